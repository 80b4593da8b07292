/* Makes reads beyond a mapped case file visible: a library for LD_PRELOAD, on 64-bit Linux.

   Mappings lie side by side, so a read beyond one mostly lands in a neighbour, in silence. This
   library stands between the program and mmap, and gives each mapping of a case file neighbours
   that cannot be read:

   reserve  the file is mapped as it was asked for, with MARGIN bytes of PROT_NONE on either side;
   abut     the program gets a copy whose last byte is the last one before PROT_NONE, so that reads
            of the rest of the last page are seen too. Its address is then no multiple of a page.

   Environment: WEIG_GUARD (the mode), WEIG_GUARD_FILES (a path with a slash at its end: what lies
   below is a case file), WEIG_GUARD_PROOF (a file that lines are added to; nothing else tells that
   the library is really there):

   loaded   in some process
   mapped NAME                a mapping of this file was guarded
   bare NAME                  a mapping of this file could not be guarded
   hit NAME OFFSET SIZE       the program touched OFFSET (in the file), outside of what it mapped;
                              SIZE is that of the file

   A hit is known by the address of the SIGSEGV. What the program itself wants to happen at that
   signal happens afterwards. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#undef mmap64 /* some C libraries call it by macro */

_Static_assert(sizeof(void *) == 8, "there is no room for the margins in 32 bits");

enum { REGIONS = 4096, NAME = 48, PATH = 4096 };
#define MARGIN ((size_t)4 << 30)      /* bytes; offsets of 32 bits end within it */
#define COPY_LIMIT ((size_t)64 << 20) /* bytes; what is longer is mapped, not copied */

/* One guarded mapping. [low, high) is reserved, [first, last) are the pages in use, [begin, end)
   the bytes that may be touched; begin is what mmap gave. */
struct region {
    _Atomic uintptr_t low; /* 0: this entry is free */
    uintptr_t high, first, last, begin, end;
    int64_t offset, size; /* of begin in the file; of the file */
    bool copied;
    char name[NAME];
};

static struct region regions[REGIONS];
static atomic_flag busy = ATOMIC_FLAG_INIT;
static char mode[16], files[PATH], proof[PATH];
static size_t page;
static bool active;
static struct sigaction theirs; /* what the program wants to happen at SIGSEGV */
static int (*real_sigaction)(int, const struct sigaction *, struct sigaction *);

static void lock(void) {
    while (atomic_flag_test_and_set(&busy))
        ;
}

static void unlock(void) {
    atomic_flag_clear(&busy);
}

static uintptr_t down(uintptr_t at) {
    return at & ~(uintptr_t)(page - 1);
}

static uintptr_t up(uintptr_t at) {
    return down(at + page - 1);
}

/* The system call itself; like mmap it gives MAP_FAILED and sets errno. */
static void *raw_mmap(void *at, size_t length, int prot, int flags, int descriptor, off_t offset) {
    return (void *)syscall(SYS_mmap, at, length, prot, flags, descriptor, offset);
}

static bool forbid(uintptr_t from, uintptr_t to) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    return from >= to || raw_mmap((void *)from, to - from, PROT_NONE, flags, -1, 0) != MAP_FAILED;
}

/* ---- the proof: all of it may be called in a signal handler ---- */

static char *put_text(char *to, const char *text) {
    size_t length = strlen(text);
    memcpy(to, text, length);
    return to + length;
}

static char *put_number(char *to, int64_t value) {
    char digits[24];
    int count = 0;
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do
        digits[count++] = (char)('0' + rest % 10);
    while ((rest /= 10) != 0);
    if (value < 0)
        *to++ = '-';
    while (count > 0)
        *to++ = digits[--count];
    return to;
}

static void say(const char *what, const struct region *about, const int64_t *numbers) {
    int saved = errno;
    char line[NAME + 80], *to = put_text(line, what);
    if (about != NULL) {
        *to++ = ' ';
        to = put_text(to, about->name);
    }
    for (int i = 0; numbers != NULL && i < 2; i++) {
        *to++ = ' ';
        to = put_number(to, numbers[i]);
    }
    *to++ = '\n';
    int descriptor = open(proof, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (descriptor >= 0) {
        ssize_t written = write(descriptor, line, (size_t)(to - line));
        (void)written; /* without the line there is no proof, and the suite says so */
        close(descriptor);
    }
    errno = saved;
}

/* ---- the signal ---- */

static void tell_of_hit(uintptr_t at) {
    for (struct region *one = regions; one < regions + REGIONS; one++) {
        uintptr_t low = atomic_load(&one->low);
        if (low == 0 || at < low || at >= one->high || (at >= one->begin && at < one->end))
            continue;
        say("hit", one, (int64_t[]){(int64_t)(at - one->begin) + one->offset, one->size});
        return;
    }
}

static void on_fault(int number, siginfo_t *info, void *context) {
    if (info->si_code > 0 && info->si_code != SI_KERNEL) /* a real fault, with an address */
        tell_of_hit((uintptr_t)info->si_addr);
    struct sigaction next = theirs;
    if (next.sa_flags & SA_RESETHAND)
        theirs = (struct sigaction){.sa_handler = SIG_DFL};
    if (next.sa_flags & SA_SIGINFO) {
        next.sa_sigaction(number, info, context);
    } else if (next.sa_handler == SIG_DFL || (next.sa_handler == SIG_IGN && info->si_code > 0)) {
        struct sigaction deadly = {.sa_handler = SIG_DFL};
        real_sigaction(number, &deadly, NULL);
        if (info->si_code <= 0) /* sent: a fault comes again by itself */
            raise(number);
    } else if (next.sa_handler != SIG_IGN) {
        next.sa_handler(number);
    }
}

static int install(void) {
    struct sigaction ours = theirs;
    ours.sa_flags = (ours.sa_flags & ~SA_RESETHAND) | SA_SIGINFO;
    ours.sa_sigaction = on_fault;
    return real_sigaction(SIGSEGV, &ours, NULL);
}

static bool begin(void) {
    static atomic_bool begun;
    if (atomic_exchange(&begun, true))
        return active;
    const char *values[] = {
        getenv("WEIG_GUARD"), getenv("WEIG_GUARD_FILES"), getenv("WEIG_GUARD_PROOF")};
    char *places[] = {mode, files, proof};
    size_t rooms[] = {sizeof mode, sizeof files, sizeof proof};
    real_sigaction =
        (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
    page = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < 3; i++) {
        if (values[i] == NULL || strlen(values[i]) >= rooms[i])
            return false;
        strcpy(places[i], values[i]);
    }
    if (real_sigaction == NULL || real_sigaction(SIGSEGV, NULL, &theirs) != 0 || install() != 0)
        return false;
    active = true;
    say("loaded", NULL, NULL);
    return true;
}

__attribute__((constructor)) static void at_start(void) {
    begin();
}

int sigaction(int number, const struct sigaction *new, struct sigaction *old) {
    begin();
    if (!active || number != SIGSEGV) {
        if (real_sigaction != NULL)
            return real_sigaction(number, new, old);
        errno = ENOSYS;
        return -1;
    }
    struct sigaction before = theirs;
    if (new != NULL) {
        theirs = *new;
        if (install() != 0) {
            theirs = before;
            return -1;
        }
    }
    if (old != NULL)
        *old = before;
    return 0;
}

void (*signal(int number, void (*handler)(int)))(int) {
    struct sigaction new = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    sigemptyset(&new.sa_mask);
    sigaddset(&new.sa_mask, number);
    return sigaction(number, &new, &old) == 0 ? old.sa_handler : SIG_ERR;
}

/* ---- mapping ---- */

/* Whether a descriptor is a case file; if so, its name goes into the region. */
static bool is_case_file(int descriptor, struct region *one) {
    char link[48], path[PATH];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return false;
    path[length] = '\0';
    if (strncmp(path, files, strlen(files)) != 0)
        return false;
    const char *name = strrchr(path, '/') + 1;
    size_t end = strcspn(name, " "); /* "(deleted)" may stand behind it */
    if (end >= NAME)
        end = NAME - 1;
    memcpy(one->name, name, end);
    one->name[end] = '\0';
    return true;
}

/* Room for so many bytes of pages, with the margins; false where the system gives none. */
static bool reserve(struct region *one, size_t pages) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *low = raw_mmap(NULL, pages + 2 * MARGIN, PROT_NONE, flags, -1, 0);
    if (low == MAP_FAILED)
        return false;
    atomic_init(&one->low, (uintptr_t)low);
    one->high = (uintptr_t)low + pages + 2 * MARGIN;
    one->first = (uintptr_t)low + MARGIN;
    one->last = one->first + pages;
    return true;
}

static void release(uintptr_t low, uintptr_t high) {
    syscall(SYS_munmap, low, high - low);
}

/* Writes the region down; false where the table is full. */
static bool keep(const struct region *one) {
    lock();
    for (struct region *place = regions; place < regions + REGIONS; place++) {
        if (atomic_load(&place->low) != 0)
            continue;
        uintptr_t low = atomic_load(&one->low);
        place->high = one->high;
        place->first = one->first;
        place->last = one->last;
        place->begin = one->begin;
        place->end = one->end;
        place->offset = one->offset;
        place->size = one->size;
        place->copied = one->copied;
        memcpy(place->name, one->name, NAME);
        atomic_store(&place->low, low); /* last: a signal may come at any time */
        unlock();
        return true;
    }
    unlock();
    return false;
}

/* A copy that ends where the pages end. */
static bool copy(struct region *one, size_t count, int prot, int descriptor) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    size_t pages = up(count);
    one->last = one->first + pages;
    one->end = one->last;
    one->begin = one->end - count;
    if (raw_mmap((void *)one->first, pages, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
        return false;
    for (size_t done = 0; done < count;) {
        ssize_t got =
            pread(descriptor, (char *)one->begin + done, count - done, one->offset + (off_t)done);
        if (got <= 0)
            return false;
        done += (size_t)got;
    }
    return mprotect((void *)one->first, pages, prot) == 0;
}

/* How many bytes to copy: 0 where the file itself is to be mapped. */
static size_t to_copy(size_t length, int prot, int flags, off_t offset, int64_t size) {
    int type = flags & MAP_TYPE;
    bool alike = type == MAP_PRIVATE || (type == MAP_SHARED && (prot & PROT_WRITE) == 0);
    if (strcmp(mode, "abut") != 0 || !alike || offset >= size)
        return 0;
    size_t rest = (size_t)(size - offset);
    size_t count = length < rest ? length : rest;
    return count <= COPY_LIMIT ? count : 0;
}

static bool
fill(struct region *one, size_t length, int prot, int flags, int descriptor, off_t offset) {
    size_t count = to_copy(length, prot, flags, offset, one->size);
    if (count != 0 && copy(one, count, prot, descriptor)) {
        one->copied = true;
        return true;
    }
    one->last = one->first + up(length);
    one->begin = one->first;
    one->end = one->last;
    return raw_mmap((void *)one->first, length, prot, flags | MAP_FIXED, descriptor, offset) !=
           MAP_FAILED;
}

static void *
guarded_mmap(void *at, size_t length, int prot, int flags, int descriptor, off_t offset) {
    struct region one = {.offset = offset};
    bool sound = length != 0 && offset >= 0 && offset % sysconf(_SC_PAGESIZE) == 0;
    if (descriptor < 0 || (flags & MAP_ANONYMOUS) || !sound || !begin() ||
        !is_case_file(descriptor, &one))
        return raw_mmap(at, length, prot, flags, descriptor, offset);
    struct stat status;
    int own_place = MAP_FIXED | MAP_FIXED_NOREPLACE;
#ifdef MAP_32BIT
    own_place |= MAP_32BIT;
#endif
    bool possible = length <= SIZE_MAX / 4 && (flags & own_place) == 0 &&
                    fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
                    reserve(&one, up(length));
    if (!possible) {
        say("bare", &one, NULL);
        return raw_mmap(at, length, prot, flags, descriptor, offset);
    }
    one.size = status.st_size;
    if (!fill(&one, length, prot, flags, descriptor, offset)) {
        int reason = errno;
        release(atomic_load(&one.low), one.high);
        errno = reason;
        return MAP_FAILED;
    }
    say(keep(&one) ? "mapped" : "bare", &one, NULL);
    return (void *)one.begin;
}

void *mmap(void *at, size_t length, int prot, int flags, int descriptor, off_t offset) {
    return guarded_mmap(at, length, prot, flags, descriptor, offset);
}

void *mmap64(void *at, size_t length, int prot, int flags, int descriptor, off_t offset) {
    return guarded_mmap(at, length, prot, flags, descriptor, offset);
}

/* ---- what else a program does to a mapping ---- */

/* The region that has pages of [at, at + length), or NULL; the table must be locked. */
static struct region *find(uintptr_t at, size_t length) {
    if (at > UINTPTR_MAX - length - page)
        return NULL;
    for (struct region *one = regions; one < regions + REGIONS; one++) {
        if (atomic_load(&one->low) != 0 && down(at) < one->last && up(at + length) > one->first)
            return one;
    }
    return NULL;
}

static bool in_copy(void *at, size_t length) {
    if (!active)
        return false;
    lock();
    struct region *one = find((uintptr_t)at, length);
    bool found = one != NULL && one->copied;
    unlock();
    return found;
}

/* Takes pages [from, to) out of a region, and the region itself with its last page. */
static bool take_out(struct region *one, uintptr_t from, uintptr_t to) {
    if (from <= one->first && to >= one->last) {
        uintptr_t low = atomic_exchange(&one->low, 0);
        release(low, one->high);
        return true;
    }
    if (from < one->first)
        from = one->first;
    if (to > one->last)
        to = one->last;
    if (!forbid(from, to))
        return false;
    if (from == one->first) {
        one->first = to; /* begin stays: offsets are counted from it */
    } else if (to == one->last) {
        one->last = from;
        one->end = one->end < from ? one->end : from;
    }
    return true;
}

int munmap(void *at, size_t length) {
    uintptr_t from = (uintptr_t)at;
    if (!active || length == 0)
        return (int)syscall(SYS_munmap, at, length);
    lock();
    struct region *one = find(from, length);
    if (one == NULL || (!one->copied && from % page != 0)) {
        unlock();
        return (int)syscall(SYS_munmap, at, length);
    }
    bool done = take_out(one, down(from), up(from + length));
    unlock();
    return done ? 0 : -1;
}

/* A larger mapping, at another place with margins of its own. */
static void *grow(struct region *one, size_t old_size, size_t new_size) {
    struct region wider = {.offset = one->offset, .size = one->size};
    memcpy(wider.name, one->name, NAME);
    if (!reserve(&wider, up(new_size)))
        return MAP_FAILED;
    wider.begin = wider.first;
    wider.end = wider.last;
    void *got = (void *)syscall(
        SYS_mremap, one->first, old_size, new_size, MREMAP_MAYMOVE | MREMAP_FIXED, wider.first);
    if (got == MAP_FAILED) {
        release(atomic_load(&wider.low), wider.high);
        return MAP_FAILED;
    }
    uintptr_t low = atomic_exchange(&one->low, 0);
    release(low, one->high);
    unlock();
    if (!keep(&wider))
        say("bare", &wider, NULL);
    lock();
    return got;
}

void *mremap(void *at, size_t old_size, size_t new_size, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    void *place = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
    va_end(rest);
    uintptr_t from = (uintptr_t)at;
    if (!active)
        return (void *)syscall(SYS_mremap, at, old_size, new_size, flags, place);
    lock();
    struct region *one = find(from, old_size);
    void *got = MAP_FAILED;
    bool whole = one != NULL && from == one->begin && up(from + old_size) == one->last;
    if (!whole || old_size == 0 || new_size == 0 || (flags & ~MREMAP_MAYMOVE)) {
        if (one != NULL)
            say("bare", one, NULL); /* from here on it lies where the program wants it */
        got = (void *)syscall(SYS_mremap, at, old_size, new_size, flags, place);
    } else if (up(from + new_size) <= one->last) {
        got = take_out(one, up(from + new_size), one->last) ? at : MAP_FAILED;
    } else if (one->copied || !(flags & MREMAP_MAYMOVE)) {
        errno = ENOMEM; /* there is no room behind it */
    } else {
        got = grow(one, old_size, new_size);
    }
    unlock();
    return got;
}

/* A copy is no multiple of a page, which these calls ask for; and some advice would empty it. */

int madvise(void *at, size_t length, int advice) {
    return in_copy(at, length) ? 0 : (int)syscall(SYS_madvise, at, length, advice);
}

int posix_madvise(void *at, size_t length, int advice) {
    if (in_copy(at, length) || advice == POSIX_MADV_DONTNEED) /* as in glibc: it must not discard */
        return 0;
    int saved = errno;
    int result = syscall(SYS_madvise, at, length, advice) == 0 ? 0 : errno;
    errno = saved;
    return result;
}

int msync(void *at, size_t length, int flags) {
    return in_copy(at, length) ? 0 : (int)syscall(SYS_msync, at, length, flags);
}

int mprotect(void *at, size_t length, int prot) {
    uintptr_t from = (uintptr_t)at;
    if (in_copy(at, length)) {
        length = up(from + length) - down(from);
        from = down(from);
    }
    return (int)syscall(SYS_mprotect, from, length, prot);
}
