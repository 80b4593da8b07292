/* swap.c: fresh memory, and bytes brought into the host's order on the way into it.
 *
 * What a swap costs is mostly the page faults of its destination, so large blocks are made of huge
 * pages.
 */
#include "internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, SMALL = 256 << 10 };

struct weig_memory {
    atomic_size_t holders;
    uint8_t *data;
    size_t size;
    void *base;       /* what is unmapped, or freed */
    size_t base_size; /* of a mapping; 0 for memory of the heap */
};

/* --- blocks of memory --- */

static weig_memory *new_memory(uint8_t *data, size_t size, void *base, size_t base_size) {
    weig_memory *memory = malloc(sizeof *memory);
    if (memory == NULL)
        return NULL;
    atomic_init(&memory->holders, 1);
    memory->data = data;
    memory->size = size;
    memory->base = base;
    memory->base_size = base_size;
    return memory;
}

weig_memory *weig_memory_adopt(void *base, size_t size) {
    return new_memory(base, size, base, size);
}

static weig_memory *heap_memory(size_t size) {
    size_t room = size > 0 ? size : 1;
    if (!weig_round_up(&room, WEIG_DATA_ALIGN))
        return NULL;
    void *base = aligned_alloc(WEIG_DATA_ALIGN, room);
    if (base == NULL)
        return NULL;
    memset(base, 0, room);
    weig_memory *memory = new_memory(base, size, base, 0);
    if (memory == NULL)
        free(base);
    return memory;
}

/* Starts at a multiple of the huge page, so that all of it can be huge pages. */
static weig_memory *mapped_memory(size_t size) {
    size_t room = size;
    if (!weig_round_up(&room, HUGE_PAGE) || room > SIZE_MAX - HUGE_PAGE)
        return NULL;
    room += HUGE_PAGE;
    void *base = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
#ifdef MADV_HUGEPAGE
    /* Advice: where the kernel does not take it, small pages do. */
    (void)madvise(base, room, MADV_HUGEPAGE);
#endif
    const size_t misfit = (uintptr_t)base % HUGE_PAGE;
    uint8_t *data = (uint8_t *)base + (misfit == 0 ? 0 : HUGE_PAGE - misfit);
    weig_memory *memory = new_memory(data, size, base, room);
    if (memory == NULL)
        (void)munmap(base, room);
    return memory;
}

weig_memory *weig_memory_new(uint64_t size) {
    if (size > PTRDIFF_MAX)
        return NULL;
    return size < SMALL ? heap_memory((size_t)size) : mapped_memory((size_t)size);
}

void *weig_memory_open(weig_memory *memory) {
    return memory->data;
}

void weig_memory_seal(weig_memory *memory) {
    /* Heap memory shares its pages with others. */
    if (memory->base_size > 0)
        (void)mprotect(memory->base, memory->base_size, PROT_READ);
}

weig_memory *weig_share(const weig_file *file) {
    atomic_fetch_add_explicit(&file->memory->holders, 1, memory_order_relaxed);
    return file->memory;
}

void weig_memory_release(weig_memory *memory) {
    if (memory == NULL)
        return;
    if (atomic_fetch_sub_explicit(&memory->holders, 1, memory_order_acq_rel) > 1)
        return;
    if (memory->base_size > 0)
        (void)munmap(memory->base, memory->base_size);
    else
        free(memory->base);
    free(memory);
}

const void *weig_memory_data(const weig_memory *memory) {
    return memory->data;
}

uint64_t weig_memory_size(const weig_memory *memory) {
    return memory->size;
}

/* --- byte order --- */

static void swap2(uint8_t *restrict to, const uint8_t *restrict from, size_t size) {
    for (size_t i = 0; i + 2 <= size; i += 2) {
        uint16_t value;
        memcpy(&value, from + i, sizeof value);
        value = __builtin_bswap16(value);
        memcpy(to + i, &value, sizeof value);
    }
}

static void swap4(uint8_t *restrict to, const uint8_t *restrict from, size_t size) {
    for (size_t i = 0; i + 4 <= size; i += 4) {
        uint32_t value;
        memcpy(&value, from + i, sizeof value);
        value = __builtin_bswap32(value);
        memcpy(to + i, &value, sizeof value);
    }
}

static void swap8(uint8_t *restrict to, const uint8_t *restrict from, size_t size) {
    for (size_t i = 0; i + 8 <= size; i += 8) {
        uint64_t value;
        memcpy(&value, from + i, sizeof value);
        value = __builtin_bswap64(value);
        memcpy(to + i, &value, sizeof value);
    }
}

/* `to` lies at a multiple of 64; `size` is a multiple of `unit`. */
static void swap_bytes(uint8_t *to, const uint8_t *from, size_t size, uint32_t unit) {
    size_t done = 0;
#if defined(__x86_64__) || defined(__i386__)
    if (unit > 1 && __builtin_cpu_supports("avx2"))
        done = weig_swap_avx2(to, from, size, unit);
#endif
    switch (unit) {
    case 2:
        swap2(to + done, from + done, size - done);
        break;
    case 4:
        swap4(to + done, from + done, size - done);
        break;
    case 8:
        swap8(to + done, from + done, size - done);
        break;
    default:
        memcpy(to, from, size);
    }
}

weig_code weig_swapped(
    const weig_file *file, uint64_t offset, uint64_t size, uint32_t unit, weig_memory **memory,
    weig_error *error) {
    *memory = NULL;
    const uint8_t *from = weig_read(file, offset, size, error);
    if (from == NULL)
        return WEIG_BAD_DATA_RANGE;
    if ((unit != 1 && unit != 2 && unit != 4 && unit != 8) || size % unit != 0)
        return weig_fail(
            error, WEIG_UNSUPPORTED, "", "", "%llu bytes in units of %u", (unsigned long long)size,
            unit);
    weig_memory *fresh = weig_memory_new(size);
    if (fresh == NULL)
        return weig_fail_memory(error, size);
    swap_bytes(fresh->data, from, (size_t)size, unit);
    weig_memory_seal(fresh);
    *memory = fresh;
    return WEIG_OK;
}

weig_code weig_swapped_data(const weig_file *file, weig_memory **memory, weig_error *error) {
    *memory = NULL;
    struct weig_span *block, *spans;
    size_t count;
    const weig_code code = weig_sorted_data(file, &block, &spans, &count, error);
    if (code != WEIG_OK)
        return code;
    const uint64_t size = file->data_end - file->data_offset;
    weig_memory *fresh = weig_memory_new(size);
    if (fresh == NULL) {
        free(block);
        return weig_fail_memory(error, size);
    }
    uint64_t done = file->data_offset; /* aliases are swapped once, however many there are */
    for (size_t i = 0; i < count; i++) {
        const struct weig_span *span = &spans[i];
        if (span->end > done)
            swap_bytes(
                fresh->data + (span->begin - file->data_offset), file->data + span->begin,
                (size_t)(span->end - span->begin), weig_dtype_of(span->dtype)->unit);
        done = span->end;
    }
    free(block);
    weig_memory_seal(fresh);
    *memory = fresh;
    return WEIG_OK;
}
