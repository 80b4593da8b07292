/* parts.c: tests of what the library keeps inside. Says on stderr what fails; exits 0 where nothing
 * does. */
#include "internal.h"

#include <stdio.h>

static int failures;

static void check(bool holds, const char *what, int line) {
    if (holds)
        return;
    fprintf(stderr, "parts.c:%d: %s\n", line, what);
    failures++;
}
#define CHECK(condition) check(condition, #condition, __LINE__)

static void test_fits(void) {
    CHECK(weig_fits(0, 0, 0));
    CHECK(weig_fits(10, 0, 10));
    CHECK(weig_fits(4, 6, 10));
    CHECK(!weig_fits(4, 7, 10));
    CHECK(!weig_fits(11, 0, 10));
    CHECK(!weig_fits(8, UINT64_MAX, 10));
    CHECK(!weig_fits(UINT64_MAX - 7, 16, 10)); /* the sum wraps to 8 */
    CHECK(!weig_fits(UINT64_MAX, UINT64_MAX, UINT64_MAX));
    CHECK(weig_fits(0, UINT64_MAX, UINT64_MAX));
}

static bool multiplies(uint64_t a, uint64_t b, uint64_t expected) {
    return weig_multiply(&a, b) && a == expected;
}

static void test_multiply(void) {
    CHECK(multiplies(1, WEIG_MAX_NUMBER, WEIG_MAX_NUMBER));
    CHECK(multiplies(6361, UINT64_C(69431) * 20394401, WEIG_MAX_NUMBER)); /* its prime factors */
    CHECK(multiplies(1 << 26, 1 << 26, UINT64_C(1) << 52));
    CHECK(!multiplies(1 << 26, 1 << 27, UINT64_C(1) << 53));
    CHECK(!multiplies(UINT64_C(1) << 32, UINT64_C(1) << 32, 0)); /* wraps to 0 */
    CHECK(!multiplies(WEIG_MAX_NUMBER, WEIG_MAX_NUMBER, (UINT64_C(0) - (UINT64_C(1) << 54)) + 1));
    CHECK(!multiplies(UINT64_MAX, UINT64_MAX, 1));
}

static void test_round_up(void) {
    size_t value = 0;
    CHECK(weig_round_up(&value, 64) && value == 0);
    value = 1;
    CHECK(weig_round_up(&value, 64) && value == 64);
    value = 64;
    CHECK(weig_round_up(&value, 64) && value == 64);
    value = SIZE_MAX - 63;
    CHECK(weig_round_up(&value, 64) && value == SIZE_MAX - 63);
    value = SIZE_MAX - 62;
    CHECK(!weig_round_up(&value, 64) && value == SIZE_MAX - 62);
    value = SIZE_MAX;
    CHECK(!weig_round_up(&value, 4096));
}

static void test_loads(void) {
    const uint8_t bytes[] = {0xFF, 1, 2, 3, 4, 5, 6, 7, 8};
    const uint64_t big = UINT64_C(0x0102030405060708);
    CHECK(weig_load64(bytes + 1, !WEIG_HOST_IS_BIG) == big);
    CHECK(weig_load64(bytes + 1, WEIG_HOST_IS_BIG) == __builtin_bswap64(big));
    CHECK(weig_load32(bytes + 1, !WEIG_HOST_IS_BIG) == 0x01020304);
    CHECK(weig_load32(bytes + 1, WEIG_HOST_IS_BIG) == 0x04030201);
}

static void test_memory(void) {
    const uint64_t sizes[] = {0, 1, 64, 4095, 1 << 18, (1 << 18) + 1, (4 << 20) + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        weig_memory *memory = weig_memory_new(sizes[i]);
        CHECK(memory != NULL);
        uint8_t *bytes = weig_memory_open(memory);
        CHECK((uintptr_t)bytes % 64 == 0);
        CHECK(weig_memory_size(memory) == sizes[i]);
        CHECK(sizes[i] == 0 || (bytes[0] == 0 && bytes[sizes[i] - 1] == 0));
        memset(bytes, 1, (size_t)sizes[i]);
        weig_memory_seal(memory);
        CHECK(weig_memory_data(memory) == bytes);
        weig_memory_release(memory);
    }
    CHECK(weig_memory_new(UINT64_MAX) == NULL);
    CHECK(weig_memory_new((uint64_t)PTRDIFF_MAX + 1) == NULL);
    weig_memory_release(NULL);
}

static void test_sort(void) {
    enum { COUNT = 1000 };
    static struct weig_span spans[2 * COUNT];
    uint64_t state = 1;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        spans[i].begin = state >> (11 + state % 50);
        spans[i].record = i;
        sum += spans[i].begin;
    }
    const struct weig_span *sorted = weig_sort_spans(spans, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        sum -= sorted[i].begin;
        if (i > 0) {
            CHECK(sorted[i - 1].begin <= sorted[i].begin);
            CHECK(sorted[i - 1].begin < sorted[i].begin || sorted[i - 1].record < sorted[i].record);
        }
    }
    CHECK(sum == 0);
    weig_sort_spans(spans, 0);
}

static void test_errors(void) {
    weig_file *file = (weig_file *)&failures;
    weig_error error;
    CHECK(weig_open("/no/such/file", WEIG_MMAP, &file, &error) == WEIG_IO);
    CHECK(file == NULL && error.code == WEIG_IO);
    CHECK(strcmp(weig_code_name(error.code), "IO") == 0);
    CHECK(weig_open("/no/such/file", WEIG_READ, &file, NULL) == WEIG_IO);
    weig_close(NULL);

    /* The longest field and a message that is too long are cut, not written past the end. */
    char text[400];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CHECK(
        weig_fail_record(&error, WEIG_BAD_NAME, "", UINT64_MAX, "shape_offset", "%s", text) ==
        WEIG_BAD_NAME);
    CHECK(strcmp(error.field, "meta[18446744073709551615].shape_offset") == 0);
    CHECK(strlen(error.message) == sizeof error.message - 1);
}

int main(void) {
    test_fits();
    test_multiply();
    test_round_up();
    test_loads();
    test_memory();
    test_sort();
    test_errors();
    return failures == 0 ? 0 : 1;
}
