/* An adapter of its own small format that reads beyond the file in one known way.

   A file is good where it starts with GOOD; its one tensor is the rest, a matrix of U8 with two
   rows. The vices show at other files, where nothing else is told from them:

   none         reads the file's bytes and no others
   past-map     trusts a length in the file: touches a byte two pages beyond the last one
   far          the same, 3 GiB beyond
   before-map   touches the byte before the first one
   past-end     touches the 8 bytes behind the end of the file
   straddle     reads 8 bytes at once, 4 of them behind the end
   tail         the first byte behind the end decides about its answer
   survives     as past-map, but catches the signal and answers as if nothing had been
   reads        as none, but with read(2): it maps nothing

   Without a guard all of them pass: a neighbour lies wherever they reach. The suite uses them to
   show, at each guarded run, that the guard catches what it is for. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FAR ((size_t)3 << 30)

static const char HELLO[] =
    "{\"protocol\": 1, \"loader\": \"overread\", \"version\": \"1\", \"language\": \"c\", "
    "\"spec\": [\"1\"], \"profiles\": [\"core\", \"data\"]}";
static volatile uint64_t sink; /* so that no read is left out */
static sigjmp_buf back;

static void caught(int number) {
    (void)number;
    siglongjmp(back, 1);
}

static void touch(const unsigned char *at) {
    sink = *(const volatile unsigned char *)at;
}

static void touch_eight(const unsigned char *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    sink = value;
}

static void survive(const unsigned char *at) {
    struct sigaction old, new = {.sa_handler = caught};
    sigaction(SIGSEGV, &new, &old);
    if (sigsetjmp(back, 1) == 0)
        touch(at);
    sigaction(SIGSEGV, &old, NULL);
}

/* Does what the vice does; gives whether the file is refused with another code than it ought. */
static int misread(const char *vice, const unsigned char *data, size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const unsigned char *beyond = data + size + 2 * page;
    if (strcmp(vice, "past-map") == 0)
        touch(beyond);
    else if (strcmp(vice, "far") == 0)
        touch(data + FAR);
    else if (strcmp(vice, "before-map") == 0)
        touch(data - 1);
    else if (strcmp(vice, "past-end") == 0)
        touch_eight(data + size);
    else if (strcmp(vice, "straddle") == 0)
        touch_eight(data + size - 4);
    else if (strcmp(vice, "survives") == 0)
        survive(beyond);
    return strcmp(vice, "tail") == 0 && data[size] != 0;
}

static void answer(const char *vice, const char *id, const unsigned char *data, size_t size) {
    if (size >= 4 && memcmp(data, "GOOD", 4) == 0) {
        printf(
            "{\"id\": \"%s\", \"status\": \"accepted\", \"byte_order\": \"little\", \"count\": 1, "
            "\"tensors\": [{\"name\": \"w\", \"dtype\": \"U8\", \"shape\": [2, %zu], "
            "\"nbytes\": %zu, \"data\": \"",
            id, (size - 4) / 2, size - 4);
        for (size_t i = 4; i < size; i++)
            printf("%02x", data[i]);
        printf("\"}]}\n");
        return;
    }
    const char *code = misread(vice, data, size) ? "WORSE" : "BAD";
    printf("{\"id\": \"%s\", \"status\": \"rejected\", \"error\": \"%s\"}\n", id, code);
}

static void load(const char *vice, const char *id, const char *path) {
    /* What lies beside a map is left to chance: here there are neighbours that can be read. */
    static unsigned char *neighbours;
    if (neighbours == NULL) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        neighbours = mmap(NULL, 2 * FAR, PROT_READ, flags, -1, 0);
    }
    unsigned char *place = neighbours + FAR / 2;
    struct stat status;
    int descriptor = open(path, O_RDONLY);
    if (neighbours == MAP_FAILED || descriptor < 0 || fstat(descriptor, &status) != 0 ||
        status.st_size == 0) {
        printf("{\"id\": \"%s\", \"status\": \"rejected\", \"error\": \"IO\"}\n", id);
        return;
    }
    size_t size = (size_t)status.st_size;
    if (strcmp(vice, "reads") == 0) {
        unsigned char *data = malloc(size);
        if (data != NULL && read(descriptor, data, size) == (ssize_t)size)
            answer("none", id, data, size);
        free(data);
        close(descriptor);
        return;
    }
    /* A hole of the right size, which the kernel likes to fill when it is asked to. */
    munmap(place, size);
    unsigned char *data = mmap(place, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    close(descriptor);
    if (data != MAP_FAILED) {
        answer(vice, id, data, size);
        munmap(data, size);
    }
    mmap(place, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

int main(int count, char **words) {
    static char line[8192];
    while (count == 2 && fgets(line, sizeof line, stdin) != NULL) {
        char *verb = strtok(line, "\t\n"), *id = strtok(NULL, "\t\n"), *path = strtok(NULL, "\t\n");
        if (verb != NULL && strcmp(verb, "hello") == 0)
            puts(HELLO);
        else if (verb != NULL && path != NULL && strcmp(verb, "load") == 0)
            load(words[1], id, path);
        else
            printf("{\"id\": \"%s\", \"status\": \"unsupported\"}\n", id != NULL ? id : "");
        fflush(stdout);
    }
    return count == 2 ? 0 : 2;
}
