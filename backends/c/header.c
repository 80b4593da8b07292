/* header.c: the checks of the header and the sentinel (SPEC.md, sections 3 to 6 and 11), in that
 * order.
 *
 * They work on bytes that were read, before anything is mapped, and say where the table, the aux
 * area and the data region lie and that they are really there.
 */
#include "internal.h"

#include <inttypes.h>

enum { VERSION = 4, COUNT = 8, META = 16, DATA = 24, SIZE = 32, FLAGS = 40, RESERVED = 48 };

/* The same as spec/foreign.py: files of other kinds, told by their first bytes. */
static const struct {
    unsigned offset;
    const char *start;
    const char *kind;
} signatures[] = {
    {0, "version https://git-lfs", "a git-LFS pointer: run `git lfs pull`"},
    {0, "PK\x03\x04", "a ZIP file (npz, or a torch checkpoint)"},
    {0, "GGUF", "a GGUF file"},
    {0, "FUGG", "a big-endian GGUF file"},
    {0, "\x1f\x8b", "a gzip file"},
    {0, "\x93NUMPY", "an npy file"},
    {0, "\x80\x02", "a pickle (an old torch checkpoint)"},
    {0, "\x89HDF\r\n\x1a\n", "an HDF5 file"},
    {0, "<", "HTML or XML: perhaps a page instead of a download"},
    {8, "{\"", "a safetensors file"},
};

static weig_code bad_magic(const uint8_t *header, uint64_t size, weig_error *error) {
    const char *kind = "not a WEIG file";
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
        const size_t length = strlen(signatures[i].start);
        if (weig_fits(signatures[i].offset, length, size) &&
            memcmp(header + signatures[i].offset, signatures[i].start, length) == 0) {
            kind = signatures[i].kind;
            break;
        }
    }
    return weig_fail(
        error, WEIG_BAD_MAGIC, "HDR-2", "header.magic",
        "the first four bytes are %02x %02x %02x %02x: this is %s", header[0], header[1], header[2],
        header[3], kind);
}

/* HDR-1 and HDR-2. A short file of another kind is told by its magic, not by its size. */
static weig_code
check_magic(weig_file *file, const uint8_t *header, uint64_t size, weig_error *error) {
    if (size >= sizeof(uint32_t)) {
        const uint32_t magic = weig_load32(header, false);
        file->foreign = magic == __builtin_bswap32(WEIG_MAGIC);
        if (magic != WEIG_MAGIC && !file->foreign)
            return bad_magic(header, size < WEIG_HEADER_SIZE ? size : WEIG_HEADER_SIZE, error);
        file->big_endian = file->foreign != WEIG_HOST_IS_BIG;
    }
    if (size < WEIG_MIN_FILE_SIZE)
        return weig_fail(
            error, WEIG_TOO_SMALL, "HDR-1", "", "%" PRIu64 " bytes; the smallest file has %d", size,
            WEIG_MIN_FILE_SIZE);
    return WEIG_OK;
}

/* NUM-2 for the numbers of the header. */
static weig_code check_header_numbers(const uint8_t *header, bool foreign, weig_error *error) {
    static const struct {
        unsigned offset;
        const char *field;
    } numbers[] = {
        {COUNT, "header.tensor_count"},
        {META, "header.meta_offset"},
        {DATA, "header.data_offset"},
        {SIZE, "header.file_size"},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const uint64_t value = weig_load64(header + numbers[i].offset, foreign);
        if (value > WEIG_MAX_NUMBER)
            return weig_fail(
                error, WEIG_NUMBER_TOO_LARGE, "NUM-2", numbers[i].field,
                "%s is %" PRIu64 ", past 2^53 - 1", numbers[i].field, value);
    }
    return WEIG_OK;
}

/* HDR-4 to HDR-6: file_size against the real size. */
static weig_code check_file_size(uint64_t said, uint64_t size, weig_error *error) {
    static const char field[] = "header.file_size";
    if (said % WEIG_FILE_SIZE_ALIGN != 0 || said < WEIG_MIN_FILE_SIZE)
        return weig_fail(
            error, WEIG_BAD_FILE_SIZE, "HDR-4", field,
            "header.file_size is %" PRIu64 ": not a multiple of 8, or below 72", said);
    if (size < said)
        return weig_fail(
            error, WEIG_TRUNCATED, "HDR-5", field,
            "the file has %" PRIu64 " bytes, header.file_size is %" PRIu64, size, said);
    if (size > said)
        return weig_fail(
            error, WEIG_TRAILING_DATA, "HDR-6", field,
            "the file has %" PRIu64 " bytes, header.file_size is %" PRIu64, size, said);
    return WEIG_OK;
}

/* META-1 to META-3, REGION-1 and REGION-2: where the table and the data region lie. */
static weig_code check_regions(const weig_file *file, weig_error *error) {
    const uint64_t meta = file->meta_offset;
    const uint64_t data = file->data_offset;
    if (meta < WEIG_HEADER_SIZE)
        return weig_fail(
            error, WEIG_BAD_META_TABLE, "META-1", "header.meta_offset",
            "header.meta_offset is %" PRIu64 ", inside the header", meta);
    if (meta % WEIG_TABLE_ALIGN != 0)
        return weig_fail(
            error, WEIG_BAD_META_TABLE, "META-2", "header.meta_offset",
            "header.meta_offset is %" PRIu64 ", not a multiple of 8", meta);
    if (meta > data)
        return weig_fail(
            error, WEIG_BAD_META_TABLE, "META-3", "header.meta_offset",
            "header.meta_offset is %" PRIu64 ", past header.data_offset %" PRIu64, meta, data);
    if (file->count > (data - meta) / WEIG_RECORD_SIZE)
        return weig_fail(
            error, WEIG_BAD_META_TABLE, "META-3", "header.tensor_count",
            "%" PRIu64 " records from %" PRIu64
            " on do not end at or before header.data_offset %" PRIu64,
            file->count, meta, data);
    if (data % WEIG_DATA_ALIGN != 0)
        return weig_fail(
            error, WEIG_MISALIGNED, "REGION-1", "header.data_offset",
            "header.data_offset is %" PRIu64 ", not a multiple of 64", data);
    if (data > file->data_end)
        return weig_fail(
            error, WEIG_BAD_DATA_REGION, "REGION-2", "header.data_offset",
            "header.data_offset is %" PRIu64 ", past the sentinel at %" PRIu64, data,
            file->data_end);
    return WEIG_OK;
}

weig_code weig_check_header(weig_file *file, const uint8_t *header, weig_error *error) {
    const uint64_t size = file->size;
    weig_code code = check_magic(file, header, size, error);
    if (code != WEIG_OK)
        return code;
    const bool foreign = file->foreign;

    /* HDR-3, and NUM-1 where it shows first */
    const uint32_t version = weig_load32(header + VERSION, foreign);
    if (version != WEIG_VERSION)
        return weig_fail(
            error, WEIG_BAD_VERSION, "HDR-3", "header.version",
            "header.version is %" PRIu32 "; this library reads version %d", version, WEIG_VERSION);

    code = check_header_numbers(header, foreign, error);
    if (code == WEIG_OK)
        code = check_file_size(weig_load64(header + SIZE, foreign), size, error);
    if (code != WEIG_OK)
        return code;

    /* HDR-7 */
    const uint64_t flags = weig_load64(header + FLAGS, foreign);
    if ((flags & WEIG_MUST_UNDERSTAND & ~WEIG_KNOWN_FLAGS) != 0)
        return weig_fail(
            error, WEIG_UNKNOWN_FLAG, "HDR-7", "header.flags",
            "header.flags is 0x%016" PRIx64
            ": a must-understand bit that this library does not know",
            flags);

    /* HDR-8 */
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t reserved = weig_load64(header + RESERVED + 8 * i, foreign);
        if (reserved != 0)
            return weig_fail(
                error, WEIG_BAD_RESERVED, "HDR-8",
                i == 0 ? "header.reserved[0]" : "header.reserved[1]",
                "header.reserved[%u] is 0x%" PRIx64 ", not zero", i, reserved);
    }

    file->count = weig_load64(header + COUNT, foreign);
    file->meta_offset = weig_load64(header + META, foreign);
    file->data_offset = weig_load64(header + DATA, foreign);
    file->data_end = size - WEIG_SENTINEL_SIZE;
    code = check_regions(file, error);
    file->aux_offset = file->meta_offset + WEIG_RECORD_SIZE * file->count;
    return code;
}

weig_code weig_check_sentinel(const weig_file *file, const uint8_t *sentinel, weig_error *error) {
    /* TAIL-1 */
    const uint64_t value = weig_load64(sentinel, file->foreign);
    if (value != WEIG_SENTINEL)
        return weig_fail(
            error, WEIG_BAD_SENTINEL, "TAIL-1", "sentinel",
            "the last eight bytes are 0x%016" PRIx64 ": the file was not written to its end",
            value);
    return WEIG_OK;
}
