/* validate.c: the checks of the records (SPEC.md, sections 3, 5 and 7 to 10), in that order.
 *
 * One pass over the table checks each record and sees whether names and data stand in order. Where
 * they do, comparing neighbours has proved NAME-6 and DATA-4; where they do not, a hash table
 * (names.c) and a sort do.
 */
#include "internal.h"

#include <inttypes.h>
#include <stdlib.h>

/* As in the file, in the host's byte order. */
struct record {
    uint64_t name_offset;
    uint32_t dtype;
    uint32_t pad;
    uint64_t shape_offset;
    uint64_t shape_count;
    uint64_t data_offset;
    uint64_t data_size;
};
_Static_assert(sizeof(struct record) == WEIG_RECORD_SIZE, "a record has no padding of its own");

static struct record load_record(const weig_file *file, uint64_t index) {
    struct record record;
    memcpy(&record, file->data + file->meta_offset + WEIG_RECORD_SIZE * index, sizeof record);
    if (file->foreign) {
        record.name_offset = __builtin_bswap64(record.name_offset);
        record.dtype = __builtin_bswap32(record.dtype);
        record.pad = __builtin_bswap32(record.pad);
        record.shape_offset = __builtin_bswap64(record.shape_offset);
        record.shape_count = __builtin_bswap64(record.shape_count);
        record.data_offset = __builtin_bswap64(record.data_offset);
        record.data_size = __builtin_bswap64(record.data_size);
    }
    return record;
}

/* NUM-2. All bits of 2^53 - 1 are ones, so one of the numbers is past it where all of them or'ed
 * are. */
static weig_code
check_record_numbers(const struct record *record, uint64_t index, weig_error *error) {
    if ((record->name_offset | record->shape_offset | record->shape_count | record->data_offset |
         record->data_size) <= WEIG_MAX_NUMBER)
        return WEIG_OK;
    const struct {
        uint64_t value;
        const char *member;
    } numbers[] = {
        {record->name_offset, "name_offset"}, {record->shape_offset, "shape_offset"},
        {record->shape_count, "shape_count"}, {record->data_offset, "data_offset"},
        {record->data_size, "data_size"},
    };
    size_t i = 0;
    while (numbers[i].value <= WEIG_MAX_NUMBER)
        i++;
    return weig_fail_record(
        error, WEIG_NUMBER_TOO_LARGE, "NUM-2", index, numbers[i].member,
        "%" PRIu64 " is past 2^53 - 1", numbers[i].value);
}

/* The length of the UTF-8 sequence (RFC 3629) of two to four bytes that starts here; 0 where none
 * does. */
static unsigned utf8_sequence(const uint8_t *at) {
    uint8_t low = 0x80, high = 0xBF; /* of the second byte */
    unsigned length;
    if (at[0] >= 0xC2 && at[0] <= 0xDF) {
        length = 2;
    } else if (at[0] >= 0xE0 && at[0] <= 0xEF) {
        length = 3;
        if (at[0] == 0xE0)
            low = 0xA0; /* no overlong form */
        if (at[0] == 0xED)
            high = 0x9F; /* no surrogate */
    } else if (at[0] >= 0xF0 && at[0] <= 0xF4) {
        length = 4;
        if (at[0] == 0xF0)
            low = 0x90; /* no overlong form */
        if (at[0] == 0xF4)
            high = 0x8F; /* nothing past U+10FFFF */
    } else {
        return 0;
    }
    if (at[1] < low || at[1] > high)
        return 0;
    for (unsigned i = 2; i < length; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    return length;
}

/* How many of the eight bytes from here on are printable ASCII before the first that is not (8:
 * all). */
static inline unsigned plain_bytes(const uint8_t *at) {
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t bytes = weig_load64(at, WEIG_HOST_IS_BIG); /* the first byte is the lowest */
    /* The top bit of a byte is set where the byte is below 0x20, 0x7F, or above. A borrow or a
     * carry can set it wrongly in a later byte only, so the first is exact. */
    const uint64_t special = ((bytes - 0x20 * ones) | (bytes + ones) | bytes) & (0x80 * ones);
    return special == 0 ? 8 : (unsigned)__builtin_ctzll(special) / 8;
}

/* The NUL is at `end`: the lower half of NAME-3. */
static weig_code end_name(
    const weig_file *file, uint64_t index, uint64_t begin, uint64_t end, weig_tensor *tensor,
    weig_error *error) {
    if (end == begin)
        return weig_fail_record(
            error, WEIG_BAD_NAME, "NAME-3", index, "name_offset",
            "the name at %" PRIu64 " is empty", begin);
    tensor->name = (const char *)file->data + begin;
    tensor->name_size = (size_t)(end - begin);
    return WEIG_OK;
}

/* NAME-1 to NAME-5. The scan reads 8 bytes at a time from inside the aux area: the sentinel that
 * follows it keeps that inside the file. */
static weig_code check_name(
    const weig_file *file, uint64_t index, uint64_t begin, weig_tensor *tensor, weig_error *error) {
    static const char member[] = "name_offset";
    if (begin < file->aux_offset || begin >= file->data_offset)
        return weig_fail_record(
            error, WEIG_BAD_NAME, "NAME-1", index, member,
            "%" PRIu64 " is outside the aux area %" PRIu64 " to %" PRIu64, begin, file->aux_offset,
            file->data_offset);

    const bool near_end = file->data_offset - begin <= WEIG_MAX_NAME;
    const uint64_t limit = near_end ? file->data_offset : begin + WEIG_MAX_NAME + 1;
    uint64_t at = begin;
    while (at < limit) {
        const unsigned plain = plain_bytes(file->data + at);
        at += plain;
        if (plain == 8 || at >= limit)
            continue;
        const uint8_t byte = file->data[at];
        if (byte == 0)
            return end_name(file, index, begin, at, tensor, error);
        if (byte < 0x20 || byte == 0x7F)
            return weig_fail_record(
                error, WEIG_BAD_NAME, "NAME-5", index, member, "control byte 0x%02x at %" PRIu64,
                byte, at);
        const unsigned length = utf8_sequence(file->data + at);
        if (length == 0)
            return weig_fail_record(
                error, WEIG_BAD_NAME, "NAME-4", index, member,
                "no UTF-8 at %" PRIu64 " (byte 0x%02x)", at, byte);
        at += length;
    }
    if (near_end)
        return weig_fail_record(
            error, WEIG_BAD_NAME, "NAME-2", index, member,
            "no NUL from %" PRIu64 " to the end of the aux area", begin);
    return weig_fail_record(
        error, WEIG_BAD_NAME, "NAME-3", index, member,
        "no NUL in the 1024 bytes from %" PRIu64 " on", begin);
}

/* SHAPE-1 to SHAPE-5, and NUM-2 for the dimensions. */
static weig_code check_shape(
    const weig_file *file, uint64_t index, const struct record *record, uint64_t element,
    weig_tensor *tensor, weig_error *error) {
    const uint64_t rank = record->shape_count;
    if (rank > WEIG_MAX_RANK)
        return weig_fail_record(
            error, WEIG_BAD_SHAPE, "SHAPE-1", index, "shape_count", "rank %" PRIu64 " is past %d",
            rank, WEIG_MAX_RANK);
    if (record->shape_offset < file->aux_offset ||
        !weig_fits(record->shape_offset, rank * sizeof(uint64_t), file->data_offset))
        return weig_fail_record(
            error, WEIG_BAD_SHAPE, "SHAPE-2", index, "shape_offset",
            "%" PRIu64 " dimensions at %" PRIu64 " are not in the aux area %" PRIu64 " to %" PRIu64,
            rank, record->shape_offset, file->aux_offset, file->data_offset);

    /* SHAPE-3: copied out by weig_load64, at any alignment. A zero is looked for among the
     * dimensions; the product is that of the others. */
    const uint8_t *from = file->data + record->shape_offset;
    uint64_t product = element;
    bool empty = false;
    for (uint64_t i = 0; i < rank; i++) {
        const uint64_t dimension = weig_load64(from + i * sizeof(uint64_t), file->foreign);
        tensor->shape[i] = dimension;
        if (dimension > WEIG_MAX_NUMBER)
            return weig_fail_record(
                error, WEIG_NUMBER_TOO_LARGE, "NUM-2", index, "shape",
                "dimension %" PRIu64 " is %" PRIu64 ", past 2^53 - 1", i, dimension);
        if (dimension == 0)
            empty = true;
        else if (!weig_multiply(&product, dimension))
            return weig_fail_record(
                error, WEIG_BAD_SHAPE, "SHAPE-4", index, "shape",
                "the product is past 2^53 - 1 bytes at dimension %" PRIu64, i);
    }
    tensor->rank = (uint32_t)rank;
    tensor->shape_offset = record->shape_offset;

    const uint64_t size = empty ? 0 : product;
    if (record->data_size != size)
        return weig_fail_record(
            error, WEIG_BAD_DATA_SIZE, "SHAPE-5", index, "data_size",
            "%" PRIu64 " bytes, but the shape and the dtype make %" PRIu64, record->data_size,
            size);
    return WEIG_OK;
}

/* DATA-1 to DATA-3. */
static weig_code check_data(
    const weig_file *file, uint64_t index, uint64_t offset, uint64_t size, weig_error *error) {
    if (offset % WEIG_DATA_ALIGN != 0)
        return weig_fail_record(
            error, WEIG_MISALIGNED, "DATA-1", index, "data_offset",
            "%" PRIu64 " is not a multiple of 64", offset);
    if (offset < file->data_offset)
        return weig_fail_record(
            error, WEIG_BAD_DATA_RANGE, "DATA-2", index, "data_offset",
            "%" PRIu64 " is before the data region at %" PRIu64, offset, file->data_offset);
    if (!weig_fits(offset, size, file->data_end))
        return weig_fail_record(
            error, WEIG_BAD_DATA_RANGE, "DATA-3", index,
            offset > file->data_end ? "data_offset" : "data_size",
            "%" PRIu64 " bytes at %" PRIu64 " pass the end of the data region at %" PRIu64, size,
            offset, file->data_end);
    return WEIG_OK;
}

weig_code
weig_check_record(const weig_file *file, uint64_t index, weig_tensor *tensor, weig_error *error) {
    const struct record record = load_record(file, index);
    weig_code code = check_record_numbers(&record, index, error);
    if (code != WEIG_OK)
        return code;

    /* META-4 */
    if (record.pad != 0)
        return weig_fail_record(
            error, WEIG_BAD_RESERVED, "META-4", index, "pad", "0x%" PRIx32 " is not zero",
            record.pad);

    code = check_name(file, index, record.name_offset, tensor, error);
    if (code != WEIG_OK)
        return code;

    /* DTYPE-1 */
    const weig_dtype *dtype = weig_dtype_of(record.dtype);
    if (dtype == NULL)
        return weig_fail_record(
            error, WEIG_BAD_DTYPE, "DTYPE-1", index, "dtype", "%" PRIu32 " is no dtype code",
            record.dtype);

    code = check_shape(file, index, &record, dtype->size, tensor, error);
    if (code == WEIG_OK)
        code = check_data(file, index, record.data_offset, record.data_size, error);
    if (code != WEIG_OK)
        return code;

    tensor->data = file->data + record.data_offset;
    tensor->offset = record.data_offset;
    tensor->size = record.data_size;
    tensor->dtype = record.dtype;
    return WEIG_OK;
}

/* --- all records: what holds between them --- */

static bool same_bytes(const struct weig_span *a, const struct weig_span *b) {
    return a->begin == b->begin && a->end == b->end && a->dtype == b->dtype;
}

/* Does b lie after a, or is it an alias of it? */
static bool may_follow(const struct weig_span *a, const struct weig_span *b) {
    return b->begin >= a->end || same_bytes(a, b);
}

/* A radix sort: linear, whatever the numbers are. */
struct weig_span *weig_sort_spans(struct weig_span *spans, size_t count) {
    struct weig_span *from = spans;
    struct weig_span *to = spans + count;
    uint64_t all = 0;
    for (size_t i = 0; i < count; i++)
        all |= from[i].begin;
    for (unsigned shift = 0; shift < 64 && all >> shift != 0; shift += 8) {
        size_t starts[257] = {0};
        for (size_t i = 0; i < count; i++)
            starts[(from[i].begin >> shift & 0xFF) + 1]++;
        for (unsigned digit = 0; digit < 256; digit++)
            starts[digit + 1] += starts[digit];
        for (size_t i = 0; i < count; i++)
            to[starts[from[i].begin >> shift & 0xFF]++] = from[i];
        struct weig_span *other = from;
        from = to;
        to = other;
    }
    return from;
}

struct weig_span weig_data_span(const weig_tensor *tensor, uint64_t index) {
    return (struct weig_span){
        .begin = tensor->offset,
        .end = tensor->offset + tensor->size,
        .record = index,
        .dtype = tensor->dtype,
    };
}

/* DATA-4 for data in any order: sorted, a tensor can only overlap the one before it. */
static weig_code
check_sorted_spans(const struct weig_span *spans, size_t count, weig_error *error) {
    for (size_t i = 1; i < count; i++) {
        const struct weig_span *a = &spans[i - 1];
        const struct weig_span *b = &spans[i];
        if (!may_follow(a, b))
            return weig_fail_record(
                error, WEIG_OVERLAP, "DATA-4", b->record, "data_offset",
                "bytes %" PRIu64 " to %" PRIu64 " overlap meta[%" PRIu64 "] at %" PRIu64
                " to %" PRIu64,
                b->begin, b->end, a->record, a->begin, a->end);
    }
    return WEIG_OK;
}

weig_code weig_sorted_data(
    const weig_file *file, struct weig_span **block, struct weig_span **spans, size_t *count,
    weig_error *error) {
    *count = 0;
    *block = calloc(2 * (size_t)file->count + 1, sizeof **block);
    if (*block == NULL)
        return weig_fail_memory(error, 2 * file->count * sizeof **block);
    for (uint64_t i = 0; i < file->count; i++) {
        weig_tensor tensor;
        const weig_code code = weig_check_record(file, i, &tensor, error);
        if (code != WEIG_OK) {
            free(*block);
            return code;
        }
        if (tensor.size > 0)
            (*block)[(*count)++] = weig_data_span(&tensor, i);
    }
    *spans = weig_sort_spans(*block, *count);
    return WEIG_OK;
}

static weig_code check_overlap(const weig_file *file, weig_error *error) {
    struct weig_span *block, *spans;
    size_t count;
    weig_code code = weig_sorted_data(file, &block, &spans, &count, error);
    if (code == WEIG_OK) {
        code = check_sorted_spans(spans, count, error);
        free(block);
    }
    return code;
}

/* Is name a before name b in the order of their bytes? The NUL at the end is lower than any byte.
 */
static bool name_is_before(const weig_tensor *a, const weig_tensor *b) {
    const size_t shorter = a->name_size < b->name_size ? a->name_size : b->name_size;
    return memcmp(a->name, b->name, shorter + 1) < 0;
}

/* NAME-6 for record `index`, `last` being the one before. The hash table begins with the first name
 * that is out of order. */
static weig_code check_unique(
    weig_file *file, uint64_t index, const weig_tensor *last, const weig_tensor *tensor,
    weig_error *error) {
    if (file->names_sorted) {
        if (index == 0 || name_is_before(last, tensor))
            return WEIG_OK;
        file->names_sorted = false;
        const weig_code code = weig_index_begin(file, index, error);
        if (code != WEIG_OK)
            return code;
    }
    return weig_index_add(file, index, tensor, error);
}

weig_code weig_check_records(weig_file *file, weig_error *error) {
    weig_tensor tensors[2]; /* this one and the one before */
    struct weig_span last = {0};
    bool data_sorted = true;
    weig_code code = WEIG_OK;
    file->names_sorted = true;
    for (uint64_t i = 0; i < file->count && code == WEIG_OK; i++) {
        weig_tensor *tensor = &tensors[i % 2];
        code = weig_check_record(file, i, tensor, error);
        if (code != WEIG_OK)
            break;
        code = check_unique(file, i, &tensors[(i + 1) % 2], tensor, error);
        file->names_size += tensor->name_size + 1;
        file->dims_count += tensor->rank;
        if (tensor->size > 0 && data_sorted) {
            const struct weig_span span = weig_data_span(tensor, i);
            data_sorted = may_follow(&last, &span);
            last = span;
        }
    }
    if (code == WEIG_OK && !file->names_sorted)
        code = weig_index_end(file, error);
    /* DATA-4 */
    if (code == WEIG_OK && !data_sorted)
        code = check_overlap(file, error);
    return code;
}
