/* weig.c: opening a file (SPEC.md, section 13), and what an open file answers. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 1 << 20 };

/* --- errors --- */

const char *weig_code_name(weig_code code) {
    static const char *const names[] = {
        [WEIG_OK] = "OK",
        [WEIG_IO] = "IO",
        [WEIG_NOT_REGULAR_FILE] = "NOT_REGULAR_FILE",
        [WEIG_TOO_LARGE] = "TOO_LARGE",
        [WEIG_TOO_SMALL] = "TOO_SMALL",
        [WEIG_BAD_MAGIC] = "BAD_MAGIC",
        [WEIG_BAD_VERSION] = "BAD_VERSION",
        [WEIG_UNKNOWN_FLAG] = "UNKNOWN_FLAG",
        [WEIG_BAD_RESERVED] = "BAD_RESERVED",
        [WEIG_TRUNCATED] = "TRUNCATED",
        [WEIG_TRAILING_DATA] = "TRAILING_DATA",
        [WEIG_BAD_FILE_SIZE] = "BAD_FILE_SIZE",
        [WEIG_BAD_SENTINEL] = "BAD_SENTINEL",
        [WEIG_BAD_META_TABLE] = "BAD_META_TABLE",
        [WEIG_BAD_DATA_REGION] = "BAD_DATA_REGION",
        [WEIG_MISALIGNED] = "MISALIGNED",
        [WEIG_BAD_DTYPE] = "BAD_DTYPE",
        [WEIG_BAD_NAME] = "BAD_NAME",
        [WEIG_DUPLICATE_NAME] = "DUPLICATE_NAME",
        [WEIG_BAD_SHAPE] = "BAD_SHAPE",
        [WEIG_BAD_DATA_SIZE] = "BAD_DATA_SIZE",
        [WEIG_BAD_DATA_RANGE] = "BAD_DATA_RANGE",
        [WEIG_OVERLAP] = "OVERLAP",
        [WEIG_NUMBER_TOO_LARGE] = "NUMBER_TOO_LARGE",
        [WEIG_NONZERO_PADDING] = "NONZERO_PADDING",
        [WEIG_BAD_BOOL] = "BAD_BOOL",
        [WEIG_MODIFIED] = "MODIFIED",
        [WEIG_CLOSED] = "CLOSED",
        [WEIG_NO_SUCH_TENSOR] = "NO_SUCH_TENSOR",
        [WEIG_UNSUPPORTED] = "UNSUPPORTED",
        [WEIG_STOPPED] = "STOPPED",
    };
    return names[code];
}

weig_code weig_fail(
    weig_error *error, weig_code code, const char *rule, const char *field, const char *format,
    ...) {
    if (error == NULL)
        return code;
    error->code = code;
    error->rule = rule;
    snprintf(error->field, sizeof error->field, "%s", field);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return code;
}

weig_code weig_fail_record(
    weig_error *error, weig_code code, const char *rule, uint64_t index, const char *member,
    const char *format, ...) {
    if (error == NULL)
        return code;
    error->code = code;
    error->rule = rule;
    snprintf(error->field, sizeof error->field, "meta[%" PRIu64 "].%s", index, member);
    /* The field is shorter than the message, so this leaves room. */
    const size_t start =
        (size_t)snprintf(error->message, sizeof error->message, "%s: ", error->field);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message + start, sizeof error->message - start, format, arguments);
    va_end(arguments);
    return code;
}

weig_code weig_fail_memory(weig_error *error, uint64_t bytes) {
    return weig_fail(error, WEIG_TOO_LARGE, "OPEN-9", "", "no memory for %" PRIu64 " bytes", bytes);
}

static weig_code fail_system(weig_error *error, const char *what, int number) {
    return weig_fail(error, WEIG_IO, "OPEN-11", "", "cannot %s: %s", what, strerror(number));
}

/* --- dtypes: section 8 --- */

static const weig_dtype dtypes[] = {
    {"F32", 4, 4},  {"F16", 2, 2},         {"BF16", 2, 2},        {"I8", 1, 1},
    {"U8", 1, 1},   {"I32", 4, 4},         {"F64", 8, 8},         {"I64", 8, 8},
    {"I16", 2, 2},  {"U16", 2, 2},         {"U32", 4, 4},         {"U64", 8, 8},
    {"BOOL", 1, 1}, {"F8_E4M3", 1, 1},     {"F8_E5M2", 1, 1},     {"F8_E8M0", 1, 1},
    {"C64", 8, 4},  {"F8_E4M3FNUZ", 1, 1}, {"F8_E5M2FNUZ", 1, 1},
};

const weig_dtype *weig_dtype_of(uint32_t code) {
    return code < sizeof dtypes / sizeof *dtypes ? &dtypes[code] : NULL;
}

/* --- opening --- */

static struct weig_identity identity_of(const struct stat *status) {
    return (struct weig_identity){
        .device = status->st_dev,
        .inode = status->st_ino,
        .size = (uint64_t)status->st_size,
        .changed = status->st_mtim,
    };
}

/* What fstat or stat says about a file that is not a regular one. */
static weig_code not_regular(mode_t mode, weig_error *error) {
    const char *kind = S_ISDIR(mode)    ? "a directory"
                       : S_ISFIFO(mode) ? "a FIFO"
                       : S_ISSOCK(mode) ? "a socket"
                                        : "a device";
    return weig_fail(
        error, WEIG_NOT_REGULAR_FILE, "OPEN-1", "", "this is %s, not a regular file", kind);
}

/* OPEN-1 to OPEN-3: a descriptor of a regular file, got without blocking, and what fstat says of
 * it. */
static weig_code open_regular(weig_file *file, const char *path, weig_error *error) {
    struct stat status;
    do
        file->descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    while (file->descriptor < 0 && errno == EINTR);
    if (file->descriptor < 0) {
        const int number = errno; /* a socket, and some devices, refuse to be opened at all */
        if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
            return not_regular(status.st_mode, error);
        return fail_system(error, "open", number);
    }
    if (fstat(file->descriptor, &status) != 0)
        return fail_system(error, "fstat", errno);
    if (!S_ISREG(status.st_mode))
        return not_regular(status.st_mode, error);
    file->size = (uint64_t)status.st_size;
    file->identity = identity_of(&status);
    return WEIG_OK;
}

/* OPEN-11: all of `size` bytes at `offset`. */
static weig_code
read_bytes(const weig_file *file, uint8_t *to, uint64_t offset, uint64_t size, weig_error *error) {
    while (size > 0) {
        const size_t wanted = size < CHUNK ? (size_t)size : CHUNK;
        const ssize_t got = pread(file->descriptor, to, wanted, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_system(error, "read", errno);
        if (got == 0)
            return weig_fail(
                error, WEIG_TRUNCATED, "OPEN-11", "",
                "the file had %" PRIu64 " bytes and now ends at %" PRIu64, file->size, offset);
        to += got;
        offset += (uint64_t)got;
        size -= (uint64_t)got;
    }
    return WEIG_OK;
}

/* The next range from *start up to *stop that is not a hole; all where the file system does not
 * tell. */
static void next_data(const weig_file *file, uint64_t *start, uint64_t *stop) {
#ifdef SEEK_DATA
    struct stat status;
    const off_t data = lseek(file->descriptor, (off_t)*start, SEEK_DATA);
    if (data < 0) {
        /* ENXIO: nothing but a hole up to the end, unless the file was cut. */
        if (errno == ENXIO && fstat(file->descriptor, &status) == 0 &&
            (uint64_t)status.st_size >= file->size)
            *start = *stop;
        return;
    }
    *start = (uint64_t)data < *stop ? (uint64_t)data : *stop;
    const off_t hole = lseek(file->descriptor, data, SEEK_HOLE);
    if (hole > data && (uint64_t)hole < *stop)
        *stop = (uint64_t)hole;
#else
    (void)file, (void)start, (void)stop;
#endif
}

/* The bytes from `start` to `stop` into fresh memory, which has the zeros of holes already. */
static weig_code
copy_bytes(const weig_file *file, uint8_t *base, uint64_t start, uint64_t stop, weig_error *error) {
    weig_code code = WEIG_OK;
    while (code == WEIG_OK && start < stop) {
        uint64_t end = stop;
        next_data(file, &start, &end);
        code = read_bytes(file, base + start, start, end - start, error);
        start = end;
    }
    return code;
}

/* The header and the sentinel, read: faulting them in through a map would read far more. */
static weig_code check_ends(weig_file *file, weig_error *error) {
    uint8_t header[WEIG_HEADER_SIZE];
    uint8_t sentinel[WEIG_SENTINEL_SIZE];
    const uint64_t size = file->size < sizeof header ? file->size : sizeof header;
    (void)posix_fadvise(file->descriptor, 0, 0, POSIX_FADV_RANDOM);
    weig_code code = read_bytes(file, header, 0, size, error);
    if (code == WEIG_OK)
        code = weig_check_header(file, header, error);
    if (code == WEIG_OK)
        code = read_bytes(file, sentinel, file->data_end, sizeof sentinel, error);
    if (code == WEIG_OK)
        code = weig_check_sentinel(file, sentinel, error);
    (void)posix_fadvise(file->descriptor, 0, 0, POSIX_FADV_NORMAL);
    return code;
}

static weig_code map_file(weig_file *file, weig_error *error) {
    const size_t size = (size_t)file->size;
    void *base = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file->descriptor, 0);
    if (base == MAP_FAILED)
        return errno == ENOMEM ? weig_fail_memory(error, file->size)
                               : fail_system(error, "map", errno);
    file->memory = weig_memory_adopt(base, size);
    if (file->memory == NULL) {
        (void)munmap(base, size);
        return weig_fail_memory(error, file->size);
    }
    file->data = base;
    return weig_check_records(file, error);
}

/* The metadata is checked in the copy, and before the data is read. */
static weig_code copy_file(weig_file *file, weig_error *error) {
    file->memory = weig_memory_new(file->size);
    if (file->memory == NULL)
        return weig_fail_memory(error, file->size);
    uint8_t *to = weig_memory_open(file->memory);
    file->data = to;
    const uint64_t head =
        file->data_offset + sizeof(uint64_t); /* the scan of a name may look that far */
    weig_code code = copy_bytes(file, to, 0, head, error);
    if (code == WEIG_OK)
        code = weig_check_records(file, error);
    if (code == WEIG_OK)
        code = copy_bytes(file, to, head, file->size, error);
    weig_memory_seal(file->memory);
    return code;
}

static weig_code open_checked(weig_file *file, const char *path, weig_error *error) {
    weig_code code = open_regular(file, path, error);
    if (code == WEIG_OK)
        code = check_ends(file, error);
    if (code != WEIG_OK)
        return code;
    /* OPEN-9 */
    if (file->size > PTRDIFF_MAX)
        return weig_fail(
            error, WEIG_TOO_LARGE, "OPEN-9", "",
            "%" PRIu64 " bytes are more than this process can address", file->size);
    return file->mode == WEIG_READ ? copy_file(file, error) : map_file(file, error);
}

weig_code weig_open(const char *path, weig_mode mode, weig_file **file, weig_error *error) {
    *file = NULL;
    weig_file *opened = calloc(1, sizeof *opened);
    if (opened == NULL)
        return weig_fail_memory(error, sizeof *opened);
    opened->descriptor = -1;
    opened->mode = mode;
    const weig_code code = open_checked(opened, path, error);
    if (code == WEIG_OK)
        *file = opened;
    else
        weig_close(opened);
    return code;
}

void weig_close(weig_file *file) {
    if (file == NULL)
        return;
    if (file->descriptor >= 0)
        (void)close(file->descriptor);
    weig_memory_release(file->table);
    weig_memory_release(file->memory);
    free(file);
}

/* --- what an open file answers --- */

const void *weig_data(const weig_file *file) {
    return file->data;
}

uint64_t weig_size(const weig_file *file) {
    return file->size;
}

bool weig_is_big_endian(const weig_file *file) {
    return file->big_endian;
}

bool weig_is_foreign(const weig_file *file) {
    return file->foreign;
}

uint64_t weig_data_offset(const weig_file *file) {
    return file->data_offset;
}

uint64_t weig_count(const weig_file *file) {
    return file->count;
}

uint64_t weig_dims_count(const weig_file *file) {
    return file->dims_count;
}

uint64_t weig_names_size(const weig_file *file) {
    return file->names_size;
}

const void *weig_read(const weig_file *file, uint64_t offset, uint64_t size, weig_error *error) {
    if (weig_fits(offset, size, file->size))
        return file->data + offset;
    (void)weig_fail(
        error, WEIG_BAD_DATA_RANGE, "", "",
        "offset %" PRIu64 " with size %" PRIu64 " is not inside the file's %" PRIu64 " bytes",
        offset, size, file->size);
    return NULL;
}

static weig_code fail_changed(weig_error *error) {
    return weig_fail(
        error, WEIG_MODIFIED, "OPEN-10", "",
        "the meta table or the aux area is not what it was when the file was opened");
}

/* The record was valid when the file was opened. It is checked again whenever it is used, so that a
 * file that changes under the map can give wrong numbers, but none that lead outside of it. */
weig_code
weig_tensor_at(const weig_file *file, uint64_t index, weig_tensor *tensor, weig_error *error) {
    if (index >= file->count)
        return weig_fail(
            error, WEIG_NO_SUCH_TENSOR, "", "", "index %" PRIu64 " of %" PRIu64 " tensors", index,
            file->count);
    if (weig_check_record(file, index, tensor, NULL) != WEIG_OK)
        return fail_changed(error);
    return WEIG_OK;
}

weig_code weig_fill(const weig_file *file, const weig_columns *columns, weig_error *error) {
    uint64_t dims = 0;
    uint64_t names = 0;
    for (uint64_t i = 0; i < file->count; i++) {
        weig_tensor tensor;
        const weig_code code = weig_tensor_at(file, i, &tensor, error);
        if (code != WEIG_OK)
            return code;
        const size_t name_size = tensor.name_size + 1;
        if (!weig_fits(dims, tensor.rank, file->dims_count) ||
            !weig_fits(names, name_size, file->names_size))
            return fail_changed(error);
        if (columns->offsets != NULL)
            columns->offsets[i] = tensor.offset;
        if (columns->sizes != NULL)
            columns->sizes[i] = tensor.size;
        if (columns->dtypes != NULL)
            columns->dtypes[i] = tensor.dtype;
        if (columns->ranks != NULL)
            columns->ranks[i] = tensor.rank;
        if (columns->dims != NULL)
            memcpy(columns->dims + dims, tensor.shape, tensor.rank * sizeof *tensor.shape);
        if (columns->names != NULL)
            memcpy(columns->names + names, tensor.name, name_size);
        dims += tensor.rank;
        names += name_size;
    }
    if (dims != file->dims_count || names != file->names_size)
        return fail_changed(error);
    return WEIG_OK;
}

/* OPEN-10 */
weig_code weig_check_unmodified(const weig_file *file, weig_error *error) {
    struct stat status;
    if (fstat(file->descriptor, &status) != 0)
        return fail_system(error, "fstat", errno);
    const struct weig_identity *then = &file->identity;
    const struct weig_identity now = identity_of(&status);
    if (now.size != then->size)
        return weig_fail(
            error, WEIG_MODIFIED, "OPEN-10", "",
            "the file had %" PRIu64 " bytes when it was opened and has %" PRIu64, then->size,
            now.size);
    if (now.changed.tv_sec != then->changed.tv_sec ||
        now.changed.tv_nsec != then->changed.tv_nsec || now.device != then->device ||
        now.inode != then->inode)
        return weig_fail(
            error, WEIG_MODIFIED, "OPEN-10", "", "the file was written to after it was opened");
    return WEIG_OK;
}

/* One byte of each page, for kernels without MADV_POPULATE_READ. */
static void touch_pages(const uint8_t *from, size_t size, size_t page) {
    const volatile uint8_t *at = from;
    for (size_t i = 0; i < size; i += page)
        (void)at[i];
}

weig_code weig_prefetch(const weig_file *file, bool wait, weig_error *error) {
    if (file->mode == WEIG_READ) /* a copy is resident already */
        return WEIG_OK;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t start = (size_t)file->data_offset & ~(page - 1);
    const size_t size = (size_t)file->size - start;
    uint8_t *from = (uint8_t *)weig_memory_open(file->memory) + start;
    if (madvise(from, size, MADV_WILLNEED) != 0)
        return fail_system(error, "prefetch", errno);
    if (!wait)
        return WEIG_OK;
#ifdef MADV_POPULATE_READ
    if (madvise(from, size, MADV_POPULATE_READ) == 0)
        return WEIG_OK;
    const int number = errno;
    if (number != EINVAL) { /* EFAULT: where touching the page would raise SIGBUS */
        const weig_code code = weig_check_unmodified(file, error);
        return code != WEIG_OK ? code : fail_system(error, "prefetch", number);
    }
#endif
    touch_pages(from, size, page);
    return WEIG_OK;
}
