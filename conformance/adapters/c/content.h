/* content.h: the bytes of tensors, and what is told of them. */
#ifndef CONTENT_H
#define CONTENT_H

#include "sha256.h"
#include "weig.h"

enum { MAX_DATA = 4096 }; /* bytes of a tensor that data=hex shows; a multiple of every unit */

/* The elements of a tensor in the host's byte order. */
struct elements {
    const uint8_t *data;
    uint64_t size;
    uint32_t unit;
    bool copied;
    weig_memory *memory; /* to be released; NULL where they lie in the file */
};

/* What is told of a tensor's bytes. */
struct told {
    uint8_t digest[SHA256_SIZE];
    uint64_t align;
    bool copied;
};

/* The elements of one tensor: where they lie, or in fresh memory. elements->memory is to be
 * released. */
weig_code content_get(
    const weig_file *file, const weig_tensor *tensor, weig_mode mode, struct elements *elements,
    weig_error *error);

/* The canonical form, little-endian, of `size` bytes: whole units, at most MAX_DATA. */
void content_canonical(uint8_t *to, const uint8_t *from, size_t size, uint32_t unit);

/* The largest power of two, up to 65536, that divides an address. */
uint64_t content_alignment(const void *pointer);

/* One `told` for each tensor, in file order. *told is to be freed, whatever comes of it. */
weig_code
content_tell(const weig_file *file, weig_mode mode, struct told **told, weig_error *error);

/* TOO_LARGE, for the adapter's own memory. */
weig_code content_no_memory(weig_error *error);

#endif
