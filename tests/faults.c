/* faults.c: an operating system that misbehaves, put between a program and libc by LD_PRELOAD.
 *
 * For one file, by the environment:
 *   FAULTS_FILE=path           the file that it is about
 *   FAULTS_READ=short          every other call that reads it is interrupted, the next gives 7
 * bytes at most FAULTS_READ=holes:ERRNO    to ask where its holes are gives that error
 *   FAULTS_READ=cut:N:SIZE     the N-th call that reads or maps it finds the file cut to SIZE bytes
 *   FAULTS_LOG=path            gets a byte for every fault that was made: a test that finds it
 * empty proved nothing For all files, by two functions (ctypes): faults_kill_at(N)          SIGKILL
 * before the N-th step; each call that writes is a step, and what follows it one more
 *   faults_short_writes(1)     every other write is interrupted, the next takes 7 bytes at most
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LITTLE = 7 };

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* --- reading one file --- */

static int is_ours(int fd) {
    const char *path = getenv("FAULTS_FILE");
    struct stat wanted, got;
    return path != NULL && getenv("FAULTS_READ") != NULL && REAL(stat)(path, &wanted) == 0 &&
           REAL(fstat)(fd, &got) == 0 && wanted.st_dev == got.st_dev && wanted.st_ino == got.st_ino;
}

static void note(void) {
    const int fd =
        (int)syscall(SYS_open, getenv("FAULTS_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    syscall(SYS_write, fd, "!", 1L);
    syscall(SYS_close, fd);
}

static void cut_at_its_time(void) {
    static long calls;
    long when, size;
    if (sscanf(getenv("FAULTS_READ"), "cut:%ld:%ld", &when, &size) == 2 && ++calls == when) {
        syscall(SYS_truncate, getenv("FAULTS_FILE"), size);
        note();
    }
}

/* How much of `size` may be read now; -1 for an interruption. */
static ssize_t allowed(int fd, size_t size) {
    static int calls;
    if (!is_ours(fd))
        return (ssize_t)size;
    cut_at_its_time();
    if (strcmp(getenv("FAULTS_READ"), "short") != 0)
        return (ssize_t)size;
    note();
    if (++calls % 2 == 1) {
        errno = EINTR;
        return -1;
    }
    return size < LITTLE ? (ssize_t)size : LITTLE;
}

ssize_t read(int fd, void *to, size_t size) {
    const ssize_t most = allowed(fd, size);
    return most < 0 ? -1 : REAL(read)(fd, to, (size_t)most);
}

ssize_t pread(int fd, void *to, size_t size, off_t offset) {
    const ssize_t most = allowed(fd, size);
    return most < 0 ? -1 : REAL(pread)(fd, to, (size_t)most, offset);
}

ssize_t pread64(int fd, void *to, size_t size, off64_t offset) {
    return pread(fd, to, size, offset);
}

ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags) {
    const ssize_t most = allowed(fd, parts[0].iov_len);
    if (most < 0)
        return -1;
    const struct iovec first = {parts[0].iov_base, (size_t)most};
    if (first.iov_len < parts[0].iov_len)
        return REAL(preadv2)(fd, &first, 1, offset, flags);
    return REAL(preadv2)(fd, parts, count, offset, flags);
}

ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    return preadv2(fd, parts, count, offset, flags);
}

ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset) {
    return preadv2(fd, parts, count, offset, 0);
}

ssize_t preadv64(int fd, const struct iovec *parts, int count, off64_t offset) {
    return preadv2(fd, parts, count, offset, 0);
}

off_t lseek(int fd, off_t offset, int whence) {
    int error;
    if ((whence == SEEK_DATA || whence == SEEK_HOLE) && is_ours(fd) &&
        sscanf(getenv("FAULTS_READ"), "holes:%d", &error) == 1) {
        note();
        errno = error;
        return -1;
    }
    return REAL(lseek)(fd, offset, whence);
}

off64_t lseek64(int fd, off64_t offset, int whence) {
    return lseek(fd, offset, whence);
}

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) {
    if (!(flags & MAP_ANONYMOUS) && is_ours(fd))
        cut_at_its_time();
    return (void *)syscall(SYS_mmap, at, size, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t offset) {
    return mmap(at, size, protection, flags, fd, offset);
}

/* --- writing --- */

static long steps, fatal;
static int short_writes;

void faults_kill_at(long step) {
    steps = 0;
    fatal = step;
}

void faults_short_writes(int on) {
    short_writes = on;
}

static void step(void) {
    if (fatal != 0 && ++steps == fatal)
        raise(SIGKILL);
}

/* Between two steps stands one call. `errno` is the call's. */
#define STEPPED(type, call)                                                                        \
    step();                                                                                        \
    const type result = (call);                                                                    \
    step();                                                                                        \
    return result

static ssize_t writable(size_t size) {
    static int calls;
    if (!short_writes)
        return (ssize_t)size;
    if (++calls % 2 == 1) {
        errno = EINTR;
        return -1;
    }
    return size < LITTLE ? (ssize_t)size : LITTLE;
}

ssize_t write(int fd, const void *from, size_t size) {
    const ssize_t most = writable(size);
    STEPPED(ssize_t, most < 0 ? -1 : REAL(write)(fd, from, (size_t)most));
}

ssize_t pwrite(int fd, const void *from, size_t size, off_t offset) {
    const ssize_t most = writable(size);
    STEPPED(ssize_t, most < 0 ? -1 : REAL(pwrite)(fd, from, (size_t)most, offset));
}

ssize_t pwrite64(int fd, const void *from, size_t size, off64_t offset) {
    return pwrite(fd, from, size, offset);
}

static mode_t mode_of(int flags, va_list rest) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = mode_of(flags, rest);
    va_end(rest);
    STEPPED(int, REAL(open)(path, flags, mode));
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    const mode_t mode = mode_of(flags, rest);
    va_end(rest);
    STEPPED(int, REAL(open64)(path, flags, mode));
}

int posix_fallocate(int fd, off_t offset, off_t size) {
    STEPPED(int, REAL(posix_fallocate)(fd, offset, size));
}

int posix_fallocate64(int fd, off64_t offset, off64_t size) {
    return posix_fallocate(fd, offset, size);
}

int ftruncate(int fd, off_t size) {
    STEPPED(int, REAL(ftruncate)(fd, size));
}

int ftruncate64(int fd, off64_t size) {
    return ftruncate(fd, size);
}

int fchmod(int fd, mode_t mode) {
    STEPPED(int, REAL(fchmod)(fd, mode));
}

int fsync(int fd) {
    STEPPED(int, REAL(fsync)(fd));
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags) {
    STEPPED(int, REAL(linkat)(from_fd, from, to_fd, to, flags));
}

int rename(const char *from, const char *to) {
    STEPPED(int, REAL(rename)(from, to));
}

int unlink(const char *path) {
    STEPPED(int, REAL(unlink)(path));
}

int close(int fd) {
    STEPPED(int, REAL(close)(fd));
}
