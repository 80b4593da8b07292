/* deep.c: the checks of level "deep" (SPEC.md, section 12): PAD-1 and BOOL-1.
 *
 * Everything that owns bytes is a span. Sorted by where they begin, one sweep through the file sees
 * each gap once, and each BOOL tensor once however many aliases it has.
 */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 4096, REPORT_EVERY = 4 << 20 };

struct sweep {
    const weig_file *file;
    weig_progress progress;
    void *user;
    uint64_t covered; /* everything before it is owned, or was looked at */
    weig_error *error;
};

/* --- the spans --- */

static struct weig_span plain_span(uint64_t begin, uint64_t size) {
    return (struct weig_span){.begin = begin, .end = begin + size, .dtype = WEIG_NO_DTYPE};
}

static weig_code
collect_spans(const weig_file *file, struct weig_span *spans, size_t *count, weig_error *error) {
    size_t n = 0;
    spans[n++] = plain_span(0, WEIG_HEADER_SIZE);
    spans[n++] = plain_span(file->meta_offset, file->aux_offset - file->meta_offset);
    for (uint64_t i = 0; i < file->count; i++) {
        weig_tensor tensor;
        const weig_code code = weig_tensor_at(file, i, &tensor, error);
        if (code != WEIG_OK)
            return code;
        const uint64_t name_offset = (uint64_t)((const uint8_t *)tensor.name - file->data);
        spans[n++] = plain_span(name_offset, tensor.name_size + 1);
        spans[n++] = plain_span(tensor.shape_offset, tensor.rank * sizeof(uint64_t));
        spans[n++] = weig_data_span(&tensor, i);
    }
    *count = n;
    return WEIG_OK;
}

/* --- the sweep --- */

/* The first byte of [at, end) with a bit of `mask`, or `end`. */
static const uint8_t *find_bits(const uint8_t *at, const uint8_t *end, uint8_t mask) {
    while (at < end) {
        const size_t size = end - at < BLOCK ? (size_t)(end - at) : BLOCK;
        uint8_t bits = 0;
        for (size_t i = 0; i < size; i++)
            bits |= at[i];
        if ((bits & mask) != 0)
            break;
        at += size;
    }
    while (at < end && (*at & mask) == 0)
        at++;
    return at;
}

/* Looks at the bytes up to `end`, none of which may have a bit of `mask`; *bad is the first that
 * does, or `end`. */
static weig_code look(struct sweep *sweep, uint64_t end, uint8_t mask, uint64_t *bad) {
    const weig_file *file = sweep->file;
    *bad = end;
    while (sweep->covered < end) {
        const uint64_t left = end - sweep->covered;
        const uint64_t stop = sweep->covered + (left < REPORT_EVERY ? left : REPORT_EVERY);
        const uint8_t *found = find_bits(file->data + sweep->covered, file->data + stop, mask);
        if (found != file->data + stop) {
            *bad = (uint64_t)(found - file->data);
            return WEIG_OK;
        }
        const bool report = sweep->covered / REPORT_EVERY != stop / REPORT_EVERY;
        sweep->covered = stop;
        if (report && sweep->progress != NULL &&
            sweep->progress(sweep->user, stop, file->size) != 0)
            return weig_fail(sweep->error, WEIG_STOPPED, "", "", "stopped by the caller");
    }
    return WEIG_OK;
}

/* PAD-1 for the gap up to `end`. */
static weig_code check_gap(struct sweep *sweep, uint64_t end) {
    uint64_t bad;
    const weig_code code = look(sweep, end, 0xFF, &bad);
    if (code != WEIG_OK || bad == end)
        return code;
    char field[32];
    snprintf(field, sizeof field, "padding[%" PRIu64 "]", bad);
    return weig_fail(
        sweep->error, WEIG_NONZERO_PADDING, "PAD-1", field,
        "byte %" PRIu64 " belongs to nothing and is 0x%02x, not zero", bad, sweep->file->data[bad]);
}

/* BOOL-1 for a tensor that begins where the sweep stands. */
static weig_code check_bools(struct sweep *sweep, const struct weig_span *span) {
    uint64_t bad;
    const weig_code code = look(sweep, span->end, 0xFE, &bad);
    if (code != WEIG_OK || bad == span->end)
        return code;
    return weig_fail_record(
        sweep->error, WEIG_BAD_BOOL, "BOOL-1", span->record, "data",
        "element %" PRIu64 " is %u, neither 0 nor 1", bad - span->begin, sweep->file->data[bad]);
}

static weig_code check_spans(struct sweep *sweep, const struct weig_span *spans, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const struct weig_span *span = &spans[i];
        weig_code code = check_gap(sweep, span->begin);
        if (code == WEIG_OK && span->dtype == WEIG_DTYPE_BOOL)
            code = check_bools(sweep, span);
        if (code != WEIG_OK)
            return code;
        if (sweep->covered < span->end)
            sweep->covered = span->end;
    }
    return check_gap(sweep, sweep->file->data_end);
}

weig_code
weig_verify(const weig_file *file, weig_progress progress, void *user, weig_error *error) {
    /* Per record: a name, a shape, data. Besides: the header, the table. */
    const uint64_t most = 3 * file->count + 2;
    struct weig_span *block = calloc(2 * (size_t)most, sizeof *block); /* twice: to sort */
    if (block == NULL)
        return weig_fail_memory(error, 2 * most * sizeof *block);
    size_t count = 0;
    weig_code code = collect_spans(file, block, &count, error);
    if (code == WEIG_OK) {
        struct sweep sweep = {file, progress, user, 0, error};
        code = check_spans(&sweep, weig_sort_spans(block, count), count);
    }
    free(block);
    if (code == WEIG_OK && progress != NULL && progress(user, file->size, file->size) != 0)
        code = weig_fail(error, WEIG_STOPPED, "", "", "stopped by the caller");
    return code;
}
