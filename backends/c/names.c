/* names.c: finding a tensor by its name, and proving that no two have the same (NAME-6).
 *
 * A file whose names are sorted needs nothing here but a binary search. For any other, opening
 * builds a hash table with open addressing, under a random key: whoever makes the file cannot
 * choose names that collide, so the table stays linear (OPEN-5).
 */
#include "internal.h"

#include <inttypes.h>
#include <unistd.h>

/* A slot is 0 where it is free. Otherwise its low 48 bits are the index of a record plus one (a
 * file of 2^53 bytes has fewer than 2^48 records), and its high 16 bits are a tag: bits of the
 * hash. */
#define INDEX_MASK ((UINT64_C(1) << 48) - 1)
#define TAG(hash) ((hash) << 16 & ~INDEX_MASK)

struct name {
    const uint8_t *bytes;
    size_t size;
};

/* The name of a record that was checked. Bounded even if the file was changed since. */
static struct name name_of(const weig_file *file, uint64_t index) {
    const uint64_t begin =
        weig_load64(file->data + file->meta_offset + WEIG_RECORD_SIZE * index, file->foreign);
    if (begin >= file->data_offset)
        return (struct name){file->data, 0};
    const uint64_t room = file->data_offset - begin;
    const uint8_t *bytes = file->data + begin;
    return (struct name){
        bytes,
        strnlen((const char *)bytes, room < WEIG_MAX_NAME ? (size_t)room : WEIG_MAX_NAME),
    };
}

/* Below, at or above zero, as a is before, at or after b in the order of their bytes. */
static int compare_names(struct name a, struct name b) {
    const int order = memcmp(a.bytes, b.bytes, a.size < b.size ? a.size : b.size);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

/* --- the hash --- */

/* More key, for names of up to `size` bytes. What was hashed with less of it stays good. */
static void extend_key(weig_file *file, size_t size) {
    enum { PART = 32 }; /* words: the most that getentropy gives at once */
    const size_t words = size / 4 + 3;
    for (; file->key_words < words; file->key_words += PART) {
        uint64_t *part = file->key + file->key_words;
        if (getentropy(part, PART * sizeof *part) == 0)
            continue;
        /* A system without randomness: addresses are hard to foresee too. */
        for (unsigned i = 0; i < PART; i++)
            part[i] = ((uintptr_t)file + i) * UINT64_C(0x9E3779B97F4A7C15) + (uintptr_t)file->data;
    }
}

static inline uint64_t multiply_word(const uint64_t key[2], uint64_t word) {
    return (key[0] + (word & UINT32_MAX)) * (key[1] + (word >> 32));
}

/* Multilinear hashing (Lemire and Kaser, "Strongly universal string hashing is fast"). Its upper 32
 * bits are the hash: over all keys, two names share them as rarely as random numbers would. The
 * last word is read whole, so eight bytes must be readable behind the name. */
static uint64_t hash_name(const weig_file *file, struct name name) {
    const uint64_t *key = file->key;
    uint64_t sum = *key++;
    size_t left = name.size;
    for (; left >= 8; left -= 8, name.bytes += 8, key += 2)
        sum += multiply_word(key, weig_load64(name.bytes, WEIG_HOST_IS_BIG));
    const uint64_t last = weig_load64(name.bytes, WEIG_HOST_IS_BIG);
    return sum + multiply_word(key, last & ((UINT64_C(1) << 8 * left) - 1));
}

/* --- the table --- */

/* The slot that holds the name, or the free one where it belongs; at least half of the slots are
 * free. */
static uint64_t *probe(const weig_file *file, struct name name, uint64_t hash) {
    for (uint64_t i = hash >> file->slot_shift;; i = (i + 1) & file->slot_mask) {
        uint64_t *slot = &file->slots[i];
        if (*slot == 0)
            return slot;
        if ((*slot & ~INDEX_MASK) == TAG(hash) &&
            compare_names(name, name_of(file, (*slot & INDEX_MASK) - 1)) == 0)
            return slot;
    }
}

/* Printable ASCII as it is, everything else as \xNN, cut where it gets long. */
static const char *escape(char *to, size_t room, struct name name) {
    char *end = to;
    for (size_t i = 0; i < name.size; i++) {
        const uint8_t byte = name.bytes[i];
        if ((size_t)(end - to) + sizeof "\\xNN..." > room) {
            memcpy(end, "...", 3);
            end += 3;
            break;
        }
        if (byte >= 0x20 && byte < 0x7F && byte != '\\') {
            *end++ = (char)byte;
        } else {
            *end++ = '\\';
            *end++ = 'x';
            *end++ = "0123456789abcdef"[byte >> 4];
            *end++ = "0123456789abcdef"[byte & 15];
        }
    }
    *end = '\0';
    return to;
}

static weig_code duplicate(uint64_t index, uint64_t first, struct name name, weig_error *error) {
    char text[100];
    return weig_fail_record(
        error, WEIG_DUPLICATE_NAME, "NAME-6", index, "name_offset",
        "\"%s\" is the name of meta[%" PRIu64 "] too", escape(text, sizeof text, name), first);
}

/* Puts a name into the table, or finds that it is there already. */
static weig_code insert(weig_file *file, const struct weig_waiting *waiting, weig_error *error) {
    const struct name name = {waiting->name, waiting->size};
    uint64_t *slot = probe(file, name, waiting->hash);
    if (*slot != 0)
        return duplicate(waiting->index, (*slot & INDEX_MASK) - 1, name, error);
    *slot = TAG(waiting->hash) | (waiting->index + 1);
    return WEIG_OK;
}

/* A name waits while its slot comes into the cache, until WEIG_WAITING others have been checked: in
 * a large table that hides most of the time of a lookup. */
static weig_code add(weig_file *file, uint64_t index, struct name name, weig_error *error) {
    struct weig_waiting *place = &file->waiting[index % WEIG_WAITING];
    const weig_code code = index < WEIG_WAITING ? WEIG_OK : insert(file, place, error);
    extend_key(file, name.size);
    const uint64_t hash = hash_name(file, name);
    __builtin_prefetch(&file->slots[hash >> file->slot_shift], 1);
    *place = (struct weig_waiting){name.bytes, name.size, hash, index};
    return code;
}

weig_code weig_index_begin(weig_file *file, uint64_t count, weig_error *error) {
    unsigned bits = 3;
    while (UINT64_C(1) << bits < 2 * file->count)
        bits++;
    const uint64_t size = sizeof(uint64_t) << bits;
    file->table = weig_memory_new(size);
    if (file->table == NULL)
        return weig_fail_memory(error, size);
    file->slots = weig_memory_open(file->table);
    file->slot_shift = 64 - bits;
    file->slot_mask = (UINT64_C(1) << bits) - 1;

    weig_code code = WEIG_OK;
    for (uint64_t i = 0; i < count && code == WEIG_OK; i++)
        code = add(file, i, name_of(file, i), error);
    return code;
}

weig_code
weig_index_add(weig_file *file, uint64_t index, const weig_tensor *tensor, weig_error *error) {
    return add(file, index, (struct name){(const uint8_t *)tensor->name, tensor->name_size}, error);
}

weig_code weig_index_end(weig_file *file, weig_error *error) {
    weig_code code = WEIG_OK;
    uint64_t i = file->count < WEIG_WAITING ? 0 : file->count - WEIG_WAITING;
    for (; i < file->count && code == WEIG_OK; i++)
        code = insert(file, &file->waiting[i % WEIG_WAITING], error);
    return code;
}

static int64_t find_sorted(const weig_file *file, struct name name) {
    uint64_t low = 0, high = file->count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        const int order = compare_names(name, name_of(file, middle));
        if (order == 0)
            return (int64_t)middle;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

int64_t weig_find(const weig_file *file, const char *bytes, size_t size) {
    uint8_t copy[WEIG_MAX_NAME + sizeof(uint64_t)];
    if (size > WEIG_MAX_NAME)
        return -1;
    if (file->names_sorted)
        return find_sorted(file, (struct name){(const uint8_t *)bytes, size});
    if (size / 4 + 3 > file->key_words) /* longer than every name of the file */
        return -1;
    memcpy(copy, bytes, size);
    memset(copy + size, 0, sizeof(uint64_t));
    const struct name name = {copy, size};
    const uint64_t slot = *probe(file, name, hash_name(file, name));
    return slot == 0 ? -1 : (int64_t)((slot & INDEX_MASK) - 1);
}
