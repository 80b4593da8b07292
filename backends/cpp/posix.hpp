/// \file
/// What the loader has from the operating system, each thing with an owner: a descriptor, the
/// identity of a file, memory. The first header of every source that includes it (it chooses the
/// width of off_t).
#pragma once

#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <sys/stat.h>
#include <sys/types.h>
#include <utility>

#include "weig.hpp"

namespace weig {

static_assert(sizeof(off_t) >= 8, "file offsets must have 64 bits");

/// Throws Error IO with what the system says of `error`.
[[noreturn]] void fail_io(const std::string &what, int error);

class Descriptor {
  public:
    explicit Descriptor(int fd) noexcept : fd_(fd) {}
    Descriptor(Descriptor &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor &operator=(Descriptor &&) = delete;
    ~Descriptor();

    int get() const noexcept { return fd_; }
    struct stat status() const;
    /// Reads until `into` is full or the file ends; gives how many bytes it read.
    std::size_t read_at(std::uint64_t offset, std::span<std::byte> into) const;

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

    explicit Identity(const struct stat &status) noexcept;
    bool operator==(const Identity &) const = default;
};

/// A block of memory that is a map of a file, or fresh: pages of its own (huge ones where the
/// system has them, zero at first) where that is worth it, else from the heap.
class Memory {
  public:
    static std::shared_ptr<Memory> map(const Descriptor &file, std::size_t size);
    static std::shared_ptr<Memory> fresh(std::size_t size);

    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    ~Memory();

    std::span<std::byte> bytes() noexcept { return {data_, size_}; }
    std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

    /// Read-only access that keeps `memory`.
    static Bytes share(std::shared_ptr<const Memory> memory) noexcept {
        const std::span<const std::byte> view = memory->bytes();
        return {std::move(memory), view};
    }

  private:
    Memory(std::byte *data, std::size_t size, bool is_pages) noexcept
        : data_(data), size_(size), is_pages_(is_pages) {}

    std::byte *data_;
    std::size_t size_;
    bool is_pages_;
};

} // namespace weig
