/* names.c: finding a tensor by its name, and proving that no two have the same (NAME-6).
 *
 * A file whose names are sorted needs nothing here but a binary search. For any other, opening
 * builds a hash table with open addressing. Its hash is SipHash-1-3 under a random key: whoever
 * makes the file cannot choose names that collide, so the table stays linear (OPEN-5).
 */
#include "internal.h"

#include <inttypes.h>
#include <unistd.h>

/* A slot is 0 where it is free. Otherwise its low 48 bits are the index of a record plus one (a
 * file of 2^53 bytes has fewer than 2^48 records), and its high 16 bits are those of the name's
 * hash. */
#define INDEX_BITS 48
#define INDEX_MASK ((UINT64_C(1) << INDEX_BITS) - 1)

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

/* --- SipHash-1-3 (Aumasson and Bernstein) --- */

static inline uint64_t rotate(uint64_t value, unsigned bits) {
    return value << bits | value >> (64 - bits);
}

static inline void sip_round(uint64_t v[4]) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

static inline void sip_word(uint64_t v[4], uint64_t word) {
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
}

static uint64_t hash_name(const uint64_t key[2], struct name name) {
    uint64_t v[4] = {
        key[0] ^ UINT64_C(0x736f6d6570736575),
        key[1] ^ UINT64_C(0x646f72616e646f6d),
        key[0] ^ UINT64_C(0x6c7967656e657261),
        key[1] ^ UINT64_C(0x7465646279746573),
    };
    size_t at = 0;
    for (; name.size - at >= 8; at += 8)
        sip_word(v, weig_load64(name.bytes + at, WEIG_HOST_IS_BIG));
    uint64_t last = (uint64_t)name.size << 56;
    for (size_t i = 0; at + i < name.size; i++)
        last |= (uint64_t)name.bytes[at + i] << (8 * i);
    sip_word(v, last);
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* --- the table --- */

/* The slot that holds the name, or the free one where it belongs. At least half of the slots are
 * free. */
static uint64_t *probe(const weig_file *file, struct name name, uint64_t hash) {
    for (uint64_t i = hash;; i++) {
        uint64_t *slot = &file->slots[i & file->slot_mask];
        if (*slot == 0)
            return slot;
        if (*slot >> INDEX_BITS == hash >> INDEX_BITS &&
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

weig_code weig_index_names(weig_file *file, weig_error *error) {
    /* Where the system has no randomness to give, addresses are hard to foresee too. */
    if (getentropy(file->key, sizeof file->key) != 0)
        file->key[0] = (uint64_t)(uintptr_t)file ^ (uint64_t)(uintptr_t)file->data << 16;

    uint64_t slots = 8;
    while (slots < 2 * file->count)
        slots *= 2;
    file->table = weig_memory_new(slots * sizeof(uint64_t));
    if (file->table == NULL)
        return weig_fail_memory(error, slots * sizeof(uint64_t));
    file->slots = weig_memory_open(file->table);
    file->slot_mask = slots - 1;

    for (uint64_t i = 0; i < file->count; i++) {
        const struct name name = name_of(file, i);
        const uint64_t hash = hash_name(file->key, name);
        uint64_t *slot = probe(file, name, hash);
        if (*slot != 0)
            return duplicate(i, (*slot & INDEX_MASK) - 1, name, error);
        *slot = (hash & ~INDEX_MASK) | (i + 1);
    }
    return WEIG_OK;
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
    const struct name name = {(const uint8_t *)bytes, size};
    if (file->names_sorted)
        return find_sorted(file, name);
    const uint64_t slot = *probe(file, name, hash_name(file->key, name));
    return slot == 0 ? -1 : (int64_t)((slot & INDEX_MASK) - 1);
}
