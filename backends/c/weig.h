/* weig.h: open, check, map and read WEIG files (format version 1).
 *
 * A WEIG file holds named tensors in the form in which a program uses them: it is mapped, checked
 * once, and then read in place. This library is C11 and needs nothing but POSIX; to use it, add its
 * .c files to a project and include this header.
 *
 *     weig_file *file;
 *     weig_error error;
 *     if (weig_open("model.weig", WEIG_MMAP, &file, &error) != WEIG_OK) {
 *       fprintf(stderr, "%s: %s\n", weig_code_name(error.code), error.message);
 *       return 1;
 *     }
 *     weig_tensor tensor;
 *     int64_t index = weig_find(file, "embed.weight", strlen("embed.weight"));
 *     if (index >= 0 && weig_tensor_at(file, (uint64_t)index, &tensor, &error) == WEIG_OK)
 *       use(tensor.data, tensor.shape, tensor.rank);
 *     weig_close(file);
 *
 * What it promises:
 *
 *   - A file that opens has passed every rule of level "open" (spec/SPEC.md), for all its tensors.
 *     No number of the file is used before it is checked, and the file is never written to.
 *   - Whatever the bytes of the file are, also where another process changes them after opening,
 *     no function reads outside the mapping. Truncation is the exception: touching a page that a
 *     mapped file lost raises SIGBUS. WEIG_READ works on a private copy and is free of that.
 *   - Functions that take a `const weig_file *` may run in several threads at once.
 *   - `error` may be NULL in every call; it is written only where the answer is not WEIG_OK.
 *   - Every pointer that a file gives out is good until weig_close(), or longer: weig_share().
 */
#ifndef WEIG_H
#define WEIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What stands between the two marks is also the declaration that the Python binding is built from.
 */
/* cffi: begin */

#define WEIG_MAX_RANK 64
#define WEIG_MAX_NAME 1023

/* The answers. All but the first and the last are the error codes of SPEC.md, section 14. */
typedef enum weig_code {
    WEIG_OK,
    WEIG_IO,
    WEIG_NOT_REGULAR_FILE,
    WEIG_TOO_LARGE, /* for this process: its address space or its memory */
    WEIG_TOO_SMALL,
    WEIG_BAD_MAGIC,
    WEIG_BAD_VERSION,
    WEIG_UNKNOWN_FLAG,
    WEIG_BAD_RESERVED,
    WEIG_TRUNCATED,
    WEIG_TRAILING_DATA,
    WEIG_BAD_FILE_SIZE,
    WEIG_BAD_SENTINEL,
    WEIG_BAD_META_TABLE,
    WEIG_BAD_DATA_REGION,
    WEIG_MISALIGNED,
    WEIG_BAD_DTYPE,
    WEIG_BAD_NAME,
    WEIG_DUPLICATE_NAME,
    WEIG_BAD_SHAPE,
    WEIG_BAD_DATA_SIZE,
    WEIG_BAD_DATA_RANGE,
    WEIG_OVERLAP,
    WEIG_NUMBER_TOO_LARGE,
    WEIG_NONZERO_PADDING,
    WEIG_BAD_BOOL,
    WEIG_MODIFIED,
    WEIG_CLOSED, /* never the answer of this library: a closed weig_file is gone */
    WEIG_NO_SUCH_TENSOR,
    WEIG_UNSUPPORTED,
    WEIG_STOPPED /* the caller's own progress function asked for it */
} weig_code;

/* Why a call failed. The code is stable; the texts are for people, and hold printable ASCII only
 * whatever the file holds. */
typedef struct weig_error {
    weig_code code;
    const char *rule;  /* the sentence of SPEC.md that is broken, "DATA-3"; or "" */
    char field[64];    /* the place in the file, "meta[3].data_offset"; or "" */
    char message[256]; /* one line, with the numbers that disagree */
} weig_error;

typedef enum weig_mode {
    WEIG_MMAP, /* map the file: no copy, for files that nobody truncates while they are open */
    WEIG_READ  /* copy it into private memory: survives whatever happens to the file later */
} weig_mode;

typedef struct weig_dtype {
    const char *name; /* "BF16" */
    uint32_t size;    /* bytes an element */
    uint32_t unit;    /* bytes that a change of byte order reverses together */
} weig_dtype;

typedef struct weig_tensor {
    const char *name; /* in the file, NUL-terminated UTF-8 */
    size_t name_size; /* bytes, without the NUL */
    const void *data; /* in the file, in the file's byte order, at a multiple of 64 */
    uint64_t offset;  /* of the data, from the start of the file */
    uint64_t size;    /* of the data, bytes */
    uint32_t dtype;   /* its code: weig_dtype_of() */
    uint32_t rank;
    uint64_t shape_offset;         /* where the shape array stands in the file */
    uint64_t shape[WEIG_MAX_RANK]; /* the first `rank` are set */
} weig_tensor;

/* Arrays of the caller for weig_fill(): one element a tensor in file order, but for the last two.
 * NULL where a column is not wanted. */
typedef struct weig_columns {
    uint64_t *offsets;
    uint64_t *sizes;
    uint32_t *dtypes;
    uint32_t *ranks;
    uint64_t *dims; /* all shapes, one after the other: weig_dims_count() elements */
    char *names;    /* all names, each with its NUL: weig_names_size() bytes */
} weig_columns;

typedef struct weig_file weig_file;

/* A block of read-only memory that is given back when its last holder releases it. */
typedef struct weig_memory weig_memory;

/* Called now and then with the bytes done and to do; anything but 0 stops the work. */
typedef int (*weig_progress)(void *user, uint64_t done, uint64_t total);

/* The name of a code, "BAD_NAME". */
const char *weig_code_name(weig_code code);

/* The element type of a code of the format; NULL where the table has none. */
const weig_dtype *weig_dtype_of(uint32_t code);

/* Opens and checks the whole file. WEIG_OK: *file must be closed. Otherwise *file is NULL. */
weig_code weig_open(const char *path, weig_mode mode, weig_file **file, weig_error *error);

/* Closes the descriptor and gives up the memory; NULL is allowed. */
void weig_close(weig_file *file);

/* The whole file. */
const void *weig_data(const weig_file *file);
uint64_t weig_size(const weig_file *file);

/* The byte order of the file, and whether it is not the host's. */
bool weig_is_big_endian(const weig_file *file);
bool weig_is_foreign(const weig_file *file);

/* Where the data region begins; it ends 8 bytes before the file does. */
uint64_t weig_data_offset(const weig_file *file);

/* The number of tensors. */
uint64_t weig_count(const weig_file *file);

/* `size` bytes at `offset`, where they lie (no copy); NULL where the file does not hold them all.
 */
const void *weig_read(const weig_file *file, uint64_t offset, uint64_t size, weig_error *error);

/* The index of a tensor, or -1. `size` is the length of the name without a NUL. In O(log n) where
 * the file's names are sorted, in O(1) where they are not. */
int64_t weig_find(const weig_file *file, const char *name, size_t size);

/* One tensor. Fails with NO_SUCH_TENSOR, or MODIFIED where the record is no longer valid. */
weig_code
weig_tensor_at(const weig_file *file, uint64_t index, weig_tensor *tensor, weig_error *error);

/* All tensors at once, into arrays of the caller. Fails with MODIFIED. */
weig_code weig_fill(const weig_file *file, const weig_columns *columns, weig_error *error);
uint64_t weig_dims_count(const weig_file *file);
uint64_t weig_names_size(const weig_file *file);

/* The deep checks: padding is zero, BOOL elements are 0 or 1. `progress` may be NULL. */
weig_code weig_verify(const weig_file *file, weig_progress progress, void *user, weig_error *error);

/* MODIFIED where the size or the time of change of the opened file is not what it was. */
weig_code weig_check_unmodified(const weig_file *file, weig_error *error);

/* Asks the kernel for the tensor data; with `wait`, returns when it is resident. */
weig_code weig_prefetch(const weig_file *file, bool wait, weig_error *error);

/* `size` bytes at `offset` in fresh memory, each `unit` of them reversed (1, 2, 4 or 8; `size` is a
 * multiple of it): the bytes of a tensor of a foreign file as the host needs them, with the unit of
 * its dtype. *memory must be released. */
weig_code weig_swapped(
    const weig_file *file, uint64_t offset, uint64_t size, uint32_t unit, weig_memory **memory,
    weig_error *error);

/* The whole data region like that, each tensor at its offset minus weig_data_offset(). The bytes
 * between them are zero. */
weig_code weig_swapped_data(const weig_file *file, weig_memory **memory, weig_error *error);

/* One more holder for the memory of a file: what weig_data() points to then outlives weig_close().
 * Never NULL. */
weig_memory *weig_share(const weig_file *file);

const void *weig_memory_data(const weig_memory *memory);
uint64_t weig_memory_size(const weig_memory *memory);

/* Gives up one hold; NULL is allowed. */
void weig_memory_release(weig_memory *memory);

/* cffi: end */

#ifdef __cplusplus
}
#endif

#endif
