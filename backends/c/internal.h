/* internal.h: what the parts of the library share. Not for its users. */
#ifndef WEIG_INTERNAL_H
#define WEIG_INTERNAL_H

/* Before any system header: a 64-bit off_t on 32-bit hosts; madvise and getentropy. */
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "weig.h"

#include <string.h>
#include <sys/types.h>
#include <time.h>

#pragma GCC visibility push(hidden)

#define WEIG_MAGIC UINT32_C(0x57454947)
#define WEIG_VERSION 1
#define WEIG_SENTINEL UINT64_C(0x57454947454E4421)
#define WEIG_MAX_NUMBER UINT64_C(9007199254740991) /* 2^53 - 1 */
#define WEIG_KNOWN_FLAGS UINT64_C(0)
#define WEIG_MUST_UNDERSTAND UINT64_C(0xFFFFFFFF)

enum {
    WEIG_HEADER_SIZE = 64,
    WEIG_RECORD_SIZE = 48,
    WEIG_SENTINEL_SIZE = 8,
    WEIG_MIN_FILE_SIZE = 72,
    WEIG_TABLE_ALIGN = 8,
    WEIG_DATA_ALIGN = 64,
    WEIG_FILE_SIZE_ALIGN = 8,
    WEIG_DTYPE_BOOL = 12,
    WEIG_WAITING = 8,
    WEIG_KEY_WORDS = 288 /* for 1023 bytes, in parts of 32 */
};

/* What fstat said when the file was opened: enough to see later that it was changed. */
struct weig_identity {
    dev_t device;
    ino_t inode;
    uint64_t size;
    struct timespec changed;
};

/* A name on its way into the hash table (names.c). */
struct weig_waiting {
    const uint8_t *name;
    size_t size;
    uint64_t hash;
    uint64_t index;
};

struct weig_file {
    weig_mode mode;
    int descriptor;
    struct weig_identity identity;
    weig_memory *memory;
    const uint8_t *data; /* of the memory */
    uint64_t size;       /* of the file: everything below lies within it */

    /* The header, checked. */
    bool big_endian;
    bool foreign; /* not in the host's byte order */
    uint64_t count;
    uint64_t meta_offset;
    uint64_t aux_offset; /* the end of the table */
    uint64_t data_offset;
    uint64_t data_end; /* the sentinel */

    /* What checking the records brought to light. */
    bool names_sorted;
    uint64_t names_size;
    uint64_t dims_count;

    /* The hash table of the names, where they are not sorted (validate.c). */
    weig_memory *table;
    uint64_t *slots;
    uint64_t slot_mask;
    unsigned slot_shift;
    size_t key_words; /* of the key that are set: as many as the longest name needs */
    uint64_t key[WEIG_KEY_WORDS];
    struct weig_waiting waiting[WEIG_WAITING];
};

/* Bytes of the file that something owns, [begin, end). */
struct weig_span {
    uint64_t begin;
    uint64_t end;
    uint64_t record;
    uint32_t dtype; /* of a tensor's data; WEIG_NO_DTYPE for the rest */
};
#define WEIG_NO_DTYPE UINT32_MAX

/* --- checked arithmetic: the only copies of these three --- */

/* Do `size` bytes at `offset` end at or before `end`? In the form that cannot wrap. */
static inline bool weig_fits(uint64_t offset, uint64_t size, uint64_t end) {
    return offset <= end && size <= end - offset;
}

/* *product *= factor; false where that passes 2^53 - 1. */
static inline bool weig_multiply(uint64_t *product, uint64_t factor) {
    return !__builtin_mul_overflow(*product, factor, product) && *product <= WEIG_MAX_NUMBER;
}

/* *value up to the next multiple of `alignment` (a power of two); false where that would wrap. */
static inline bool weig_round_up(size_t *value, size_t alignment) {
    if (*value > SIZE_MAX - (alignment - 1))
        return false;
    *value = (*value + alignment - 1) & ~(alignment - 1);
    return true;
}

/* --- numbers from bytes of any alignment --- */

static inline uint32_t weig_load32(const uint8_t *from, bool foreign) {
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return foreign ? __builtin_bswap32(value) : value;
}

static inline uint64_t weig_load64(const uint8_t *from, bool foreign) {
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return foreign ? __builtin_bswap64(value) : value;
}

#define WEIG_HOST_IS_BIG (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)

/* --- errors (weig.c): each fills *error where there is one, and returns `code` --- */

__attribute__((cold, format(printf, 5, 6))) weig_code weig_fail(
    weig_error *error, weig_code code, const char *rule, const char *field, const char *format,
    ...);

/* The same for a member of record `index`. */
__attribute__((cold, format(printf, 6, 7))) weig_code weig_fail_record(
    weig_error *error, weig_code code, const char *rule, uint64_t index, const char *member,
    const char *format, ...);

weig_code weig_fail_memory(weig_error *error, uint64_t bytes);

/* --- checks --- */

/* header.c. `header` holds the first min(file->size, 64) bytes; fills the header part of *file. */
weig_code weig_check_header(weig_file *file, const uint8_t *header, weig_error *error);
weig_code weig_check_sentinel(const weig_file *file, const uint8_t *sentinel, weig_error *error);

/* validate.c. One record, from file->data; all of them, and what holds between them. */
weig_code
weig_check_record(const weig_file *file, uint64_t index, weig_tensor *tensor, weig_error *error);
weig_code weig_check_records(weig_file *file, weig_error *error);

struct weig_span weig_data_span(const weig_tensor *tensor, uint64_t index);

/* Sorts by where they begin; there is room for twice as many. Gives the half that has the result.
 */
struct weig_span *weig_sort_spans(struct weig_span *spans, size_t count);

/* The data of all tensors that have any, sorted. Where the answer is WEIG_OK, *block is to be
 * freed. */
weig_code weig_sorted_data(
    const weig_file *file, struct weig_span **block, struct weig_span **spans, size_t *count,
    weig_error *error);

/* names.c: begins the hash table with the first `count` names, which have been checked; adds one
 * more; ends. Finds out on the way whether two are the same. */
weig_code weig_index_begin(weig_file *file, uint64_t count, weig_error *error);
weig_code
weig_index_add(weig_file *file, uint64_t index, const weig_tensor *tensor, weig_error *error);
weig_code weig_index_end(weig_file *file, weig_error *error);

/* --- memory (swap.c) --- */

/* `size` zero bytes, writable, at a multiple of 64; in huge pages where that pays. NULL: no memory.
 */
weig_memory *weig_memory_new(uint64_t size);

/* The owner of a mapping that was made elsewhere. NULL: no memory for the bookkeeping. */
weig_memory *weig_memory_adopt(void *base, size_t size);

/* To be written to, until it is sealed and given out. */
void *weig_memory_open(weig_memory *memory);
void weig_memory_seal(weig_memory *memory);

/* swap_avx2.c: reverses each `unit` bytes (2, 4 or 8) of `size` bytes on the way to `to`, which
 * lies at a multiple of 32. Says how many bytes it did: all but the last few. */
size_t weig_swap_avx2(uint8_t *to, const uint8_t *from, size_t size, uint32_t unit);

#pragma GCC visibility pop

#endif
