/* What programs do with maps of a file, one after another; under the guard it must come out the
   same as without it. Says "ok" where it does, else the line that does not. The file has two pages
   and 100 bytes, each byte the number of its place modulo 251. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            printf("line %d: %s (%s)\n", __LINE__, #what, strerror(errno));                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static int is_right(const unsigned char *data, size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        if (data[i - from] != i % 251)
            return 0;
    return 1;
}

static int count_of_maps(void) {
    FILE *file = fopen("/proc/self/maps", "r");
    int lines = 0;
    for (int c; (c = getc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines;
}

int main(int count, char **words) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = 2 * page + 100;
    int file = open(words[1], O_RDWR);
    int fixed = count > 2; /* where begins of maps are those of pages */
    unsigned char *data;
    CHECK(file >= 0);

    int before = count_of_maps();
    for (int i = 0; i < 5000; i++) {
        data = mmap(NULL, size, PROT_READ, i % 2 ? MAP_PRIVATE : MAP_SHARED, file, 0);
        CHECK(data != MAP_FAILED && is_right(data, 0, size));
        CHECK(munmap(data, size) == 0);
    }
    CHECK(count_of_maps() <= before + 4); /* (malloc may have grown) */

    /* As a library unmaps that knows only the address of its bytes: from the start of the page. */
    data = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    size_t odd = (uintptr_t)data % page;
    CHECK(munmap(data - odd, size + odd) == 0);
    CHECK(count_of_maps() <= before + 4);

    /* A part, from a page on, to the end and past it. */
    data = mmap(NULL, 3 * page, PROT_READ, MAP_PRIVATE, file, (off_t)page);
    CHECK(data != MAP_FAILED && is_right(data, page, size));
    CHECK(munmap(data, 3 * page) == 0);

    /* Advice, in whole and from inside. */
    data = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    CHECK(madvise(data, size, MADV_WILLNEED) == 0 && madvise(data, size, MADV_DONTNEED) == 0);
    CHECK(posix_madvise(data, size, POSIX_MADV_SEQUENTIAL) == 0);
    CHECK(posix_madvise(data, size, POSIX_MADV_DONTNEED) == 0);
    CHECK(msync(data, size, MS_SYNC) == 0);
    CHECK(is_right(data, 0, size) && munmap(data, size) == 0);

    /* Bit by bit. */
    data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
    if (fixed) {
        CHECK(munmap(data + page, page) == 0);
        CHECK(is_right(data, 0, page) && is_right(data + 2 * page, 2 * page, size));
        CHECK(munmap(data, page) == 0 && is_right(data + 2 * page, 2 * page, size));
        CHECK(munmap(data + 2 * page, 100) == 0);
        CHECK(munmap(data + 1, page) == -1 && errno == EINVAL);
    } else {
        CHECK(munmap(data, size) == 0);
    }
    CHECK(count_of_maps() <= before + 5);

    /* Smaller, and larger again. */
    data = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    if (fixed) {
        unsigned char *less = mremap(data, size, page, 0);
        CHECK(less == data && is_right(less, 0, page));
        CHECK(mremap(less, page, size, 0) != data || is_right(data, 0, size));
        unsigned char *more = mremap(less, page, size, MREMAP_MAYMOVE);
        CHECK(more != MAP_FAILED && is_right(more, 0, size));
        CHECK(munmap(more, size) == 0);
    } else {
        CHECK(munmap(data, size) == 0);
    }
    CHECK(count_of_maps() <= before + 6);

    /* Moved to where the program wants it. */
    data = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    unsigned char *place = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fixed) {
        data = mremap(data, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, place);
        CHECK(data == place && is_right(data, 0, size));
    }
    data = mmap(place, size, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
    CHECK(data == place && is_right(data, 0, size) && munmap(data, 3 * page) == 0);

    /* Written to: alone, and with the file. */
    data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
    CHECK(mprotect(data, size, PROT_READ | PROT_WRITE) == 0);
    data[size - 1] = 255;
    unsigned char byte;
    CHECK(pread(file, &byte, 1, (off_t)size - 1) == 1 && byte == (size - 1) % 251);
    CHECK(munmap(data, size) == 0);
    data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    data[size - 1] = 255;
    CHECK(pread(file, &byte, 1, (off_t)size - 1) == 1 && byte == 255);
    data[size - 1] = (unsigned char)((size - 1) % 251);
    CHECK(munmap(data, size) == 0);

    /* What cannot be. */
    CHECK(mmap(NULL, 0, PROT_READ, MAP_SHARED, file, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, size, PROT_READ, MAP_SHARED, file, 1) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, size, PROT_READ, MAP_SHARED, 999, 0) == MAP_FAILED && errno == EBADF);
    CHECK(mmap(NULL, size, PROT_READ, 0, file, 0) == MAP_FAILED && errno == EINVAL);
    puts("ok");
    return 0;
}
