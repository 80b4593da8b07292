/// \file
/// What the loader has from the operating system, each thing with an owner: a descriptor, the
/// identity of a file, memory. The first header of every source that includes it (it chooses the
/// width of off_t).
#pragma once

#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "errors.hpp"
#include "layout.hpp"
#include "weig.hpp"

namespace weig {

static_assert(sizeof(off_t) >= 8, "file offsets must have 64 bits");

/// Throws Error IO with what the system says of `error`.
[[noreturn]] inline void fail_io(const std::string &what, int error) {
    throw Error(Code::io, text(what, ": ", std::generic_category().message(error)), {}, "OPEN-11");
}

class Descriptor {
  public:
    explicit Descriptor(int fd) noexcept : fd_(fd) {}
    Descriptor(Descriptor &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor &operator=(Descriptor &&) = delete;
    ~Descriptor() {
        if (fd_ >= 0)
            ::close(fd_);
    }

    int get() const noexcept { return fd_; }

    struct stat status() const {
        struct stat status{};
        if (::fstat(fd_, &status) != 0)
            fail_io("fstat", errno);
        return status;
    }

    /// Reads until `into` is full or the file ends; gives how many bytes it read (OPEN-11).
    std::size_t read_at(std::uint64_t offset, std::span<std::byte> into) const {
        constexpr std::size_t largest = std::size_t{1} << 30; // some systems refuse more at once
        std::size_t done = 0;
        while (done < into.size()) {
            const std::size_t piece = std::min(into.size() - done, largest);
            const ssize_t got =
                ::pread(fd_, into.data() + done, piece, static_cast<off_t>(offset + done));
            if (got < 0 && errno == EINTR)
                continue;
            if (got < 0)
                fail_io(text("reading at ", offset + done), errno);
            if (got == 0)
                break;
            done += static_cast<std::size_t>(got);
        }
        return done;
    }

    /// The next part of [begin, end) that is not a hole, empty at `end` where all of it is; all of
    /// it where the file system does not tell.
    std::pair<std::uint64_t, std::uint64_t>
    next_extent(std::uint64_t begin, std::uint64_t end) const noexcept {
#if defined(SEEK_DATA) && defined(SEEK_HOLE)
        const off_t data = ::lseek(fd_, static_cast<off_t>(begin), SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            return {end, end};
        const off_t hole = data < 0 ? -1 : ::lseek(fd_, data, SEEK_HOLE);
        if (hole > data)
            return {
                std::min(static_cast<std::uint64_t>(data), end),
                std::min(static_cast<std::uint64_t>(hole), end)};
#endif
        return {begin, end};
    }

  private:
    int fd_;
};

/// What OPEN-10 compares.
struct Identity {
    dev_t device;
    ino_t inode;
    std::uint64_t size;
    std::int64_t seconds;
    std::int64_t nanoseconds;

    explicit Identity(const struct stat &status) noexcept
        : device(status.st_dev), inode(status.st_ino),
          size(static_cast<std::uint64_t>(status.st_size)),
#if defined(__APPLE__)
          seconds(status.st_mtimespec.tv_sec), nanoseconds(status.st_mtimespec.tv_nsec)
#else
          seconds(status.st_mtim.tv_sec), nanoseconds(status.st_mtim.tv_nsec)
#endif
    {
    }
    bool operator==(const Identity &) const = default;
};

/// A block of memory: a map of a file, or fresh and zero.
class Memory {
  public:
    static std::shared_ptr<Memory> map(const Descriptor &file, std::size_t size) {
        std::shared_ptr<Memory> memory(new Memory(true));
        memory->take(::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0), size);
        return memory;
    }

    /// From the heap where it is small, else pages of its own: huge ones where the system has
    /// them, because faulting small ones in takes longer than writing to them.
    static std::shared_ptr<Memory> fresh(std::size_t size) {
        constexpr std::size_t pages_from = std::size_t{256} << 10;
        std::shared_ptr<Memory> memory(new Memory(size >= pages_from));
        if (!memory->is_pages_) {
            memory->data_ = static_cast<std::byte *>(::operator new(size, heap_align));
            memory->size_ = size;
            std::memset(memory->data_, 0, size);
            return memory;
        }
        constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS;
        memory->take(::mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, -1, 0), size);
#if defined(MADV_HUGEPAGE)
        ::madvise(memory->data_, size, MADV_HUGEPAGE); // a wish
#endif
        return memory;
    }

    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    ~Memory() {
        if (data_ == nullptr)
            return;
        if (is_pages_)
            ::munmap(data_, size_);
        else
            ::operator delete(data_, heap_align);
    }

    std::span<std::byte> bytes() noexcept { return {data_, size_}; }
    std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

    /// Read-only access that keeps `memory`.
    static Bytes share(std::shared_ptr<const Memory> memory) noexcept {
        const std::span<const std::byte> view = memory->bytes();
        return {std::move(memory), view};
    }

  private:
    static constexpr std::align_val_t heap_align{layout::data_align};

    explicit Memory(bool is_pages) noexcept : is_pages_(is_pages) {}

    /// Owns what mmap gave from now on.
    void take(void *data, std::size_t size) {
        if (data == MAP_FAILED && errno == ENOMEM)
            throw std::bad_alloc();
        if (data == MAP_FAILED)
            fail_io("mmap", errno);
        data_ = static_cast<std::byte *>(data);
        size_ = size;
    }

    std::byte *data_ = nullptr;
    std::size_t size_ = 0;
    bool is_pages_;
};

} // namespace weig
