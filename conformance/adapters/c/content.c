/* content.c: bytes of tensors in the host's order, their canonical form, their digests. */
#include "content.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_ALIGN 65536

/* A tensor's place, to sort by. */
struct place {
    uint64_t offset;
    uint64_t size;
    uint32_t dtype;
    uint64_t index;
};

weig_code content_get(
    const weig_file *file, const weig_tensor *tensor, weig_mode mode, struct elements *elements,
    weig_error *error) {
    const uint32_t unit = weig_dtype_of(tensor->dtype)->unit;
    *elements = (struct elements){
        .data = tensor->data, .size = tensor->size, .unit = unit, .copied = mode == WEIG_READ};
    if (!weig_is_foreign(file) || unit == 1)
        return WEIG_OK;
    const weig_code code =
        weig_swapped(file, tensor->offset, tensor->size, unit, &elements->memory, error);
    if (code == WEIG_OK) {
        elements->data = weig_memory_data(elements->memory);
        elements->copied = true;
    }
    return code;
}

void content_canonical(uint8_t *to, const uint8_t *from, size_t size, uint32_t unit) {
    const uint16_t one = 1;
    const bool host_is_little = *(const uint8_t *)&one == 1;
    const size_t mirror = host_is_little ? 0 : unit - 1;
    for (size_t i = 0; i < size; i++)
        to[i] = from[i ^ mirror];
}

static void digest_elements(const struct elements *elements, uint8_t digest[SHA256_SIZE]) {
    struct sha256 hash;
    uint8_t piece[MAX_DATA];
    sha256_begin(&hash);
    for (uint64_t done = 0; done < elements->size;) {
        const uint64_t left = elements->size - done;
        const size_t size = left < sizeof piece ? (size_t)left : sizeof piece;
        content_canonical(piece, elements->data + done, size, elements->unit);
        sha256_add(&hash, piece, size);
        done += size;
    }
    sha256_end(&hash, digest);
}

uint64_t content_alignment(const void *pointer) {
    const uintptr_t address = (uintptr_t)pointer | MAX_ALIGN;
    return address & (~address + 1);
}

/* --- what is told of all tensors --- */

static int by_place(const void *left, const void *right) {
    const struct place *a = left;
    const struct place *b = right;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    return (a->dtype > b->dtype) - (a->dtype < b->dtype);
}

/* In the order of the file's bytes, so that aliases stand together and are looked at once. */
static weig_code tell_all(
    const weig_file *file, weig_mode mode, const struct place *places, struct told *told,
    weig_error *error) {
    for (uint64_t i = 0; i < weig_count(file); i++) {
        struct told *here = &told[places[i].index];
        if (i > 0 && by_place(&places[i - 1], &places[i]) == 0) {
            *here = told[places[i - 1].index];
            continue;
        }
        weig_tensor tensor;
        struct elements elements;
        weig_code code = weig_tensor_at(file, places[i].index, &tensor, error);
        if (code == WEIG_OK)
            code = content_get(file, &tensor, mode, &elements, error);
        if (code != WEIG_OK)
            return code;
        digest_elements(&elements, here->digest);
        here->align = content_alignment(elements.data);
        here->copied = elements.copied;
        weig_memory_release(elements.memory);
    }
    return WEIG_OK;
}

/* The places of all tensors, sorted. */
static weig_code sort_places(const weig_file *file, struct place *places, weig_error *error) {
    const uint64_t count = weig_count(file);
    for (uint64_t i = 0; i < count; i++) {
        weig_tensor tensor;
        const weig_code code = weig_tensor_at(file, i, &tensor, error);
        if (code != WEIG_OK)
            return code;
        places[i] = (struct place){tensor.offset, tensor.size, tensor.dtype, i};
    }
    qsort(places, (size_t)count, sizeof *places, by_place);
    return WEIG_OK;
}

weig_code content_no_memory(weig_error *error) {
    *error = (weig_error){.code = WEIG_TOO_LARGE, .rule = "OPEN-9"};
    snprintf(error->message, sizeof error->message, "no memory for the answer");
    return error->code;
}

weig_code
content_tell(const weig_file *file, weig_mode mode, struct told **told, weig_error *error) {
    const size_t count = (size_t)weig_count(file);
    struct place *places = calloc(count + 1, sizeof *places);
    *told = calloc(count + 1, sizeof **told);
    weig_code code = places == NULL || *told == NULL ? content_no_memory(error)
                                                     : sort_places(file, places, error);
    if (code == WEIG_OK)
        code = tell_all(file, mode, places, *told, error);
    free(places);
    return code;
}
