// Opening a file, and what an open file gives.
#include "state.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <fcntl.h>

#include "bytes.hpp"
#include "byteswap.hpp"
#include "errors.hpp"

#if defined(__linux__) && !defined(MADV_POPULATE_READ)
#define MADV_POPULATE_READ 22 // Linux 5.14; the C library's headers may be older
#endif

namespace weig {

// ---- Opening (sections 13 and 17) ----

namespace {

[[noreturn]] void fail_kind(const std::string &path) {
    throw Error(
        Code::not_regular_file, text("'", escaped(path), "' is not a regular file"), {}, "OPEN-1");
}

Descriptor open_descriptor(const std::string &path) {
    if (path.find('\0') != std::string::npos)
        throw Error(Code::io, "a path cannot hold a NUL", {}, "OPEN-11");
    int fd = -1;
    do // OPEN-2: a FIFO or a device must not block
        fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    while (fd < 0 && errno == EINTR);
    if (fd >= 0)
        return Descriptor(fd);
    const int error = errno;
    struct stat status{};
    if (::stat(path.c_str(), &status) == 0 &&
        !S_ISREG(status.st_mode)) // OPEN-1: a socket cannot be opened
        fail_kind(path);
    fail_io(text("opening '", escaped(path), "'"), error);
}

[[noreturn]] void fail_shorter() { // HDR-5
    throw Error(Code::truncated, "the file became shorter while it was read", {}, "HDR-5");
}

/// HDR-*, META-1 to META-3, REGION-* and TAIL-1, from what pread gives: faulting the two ends in
/// through a map would make the kernel read megabytes.
Header read_header(const Descriptor &descriptor, std::uint64_t real_size) {
    std::array<std::byte, layout::header_size> head;
    const std::size_t wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(real_size, head.size()));
    const std::size_t got = descriptor.read_at(0, std::span(head).first(wanted));
    const Header header = check_header(std::span(head).first(got), real_size);
    std::array<std::byte, layout::sentinel_size> tail;
    if (descriptor.read_at(header.end(), tail) < tail.size())
        fail_shorter();
    check_sentinel(header, tail);
    if (!checked::addressable(header.file_size)) // OPEN-9
        throw Error(
            Code::too_large, text("this process cannot address ", header.file_size, " bytes"), {},
            "OPEN-9");
    return header;
}

/// Copies [begin, end) of the file to the same place of `memory`, which has the zeros of its holes.
void copy_in(const Descriptor &descriptor, Memory &memory, std::uint64_t begin, std::uint64_t end) {
    while (begin < end) {
        const auto [from, to] = descriptor.next_extent(begin, end);
        const auto into = memory.bytes().subspan(
            static_cast<std::size_t>(from), static_cast<std::size_t>(to - from));
        if (descriptor.read_at(from, into) < into.size())
            fail_shorter();
        begin = to;
    }
    if (Identity(descriptor.status()).size < end) // what is past the end looks like a hole
        fail_shorter();
}

/// The memory of the whole file and its checked records. A copy takes the tensors in only after the
/// records turned out to be good.
std::pair<std::shared_ptr<const Memory>, Records>
read_records(const Descriptor &descriptor, const Header &header, Mode mode) {
    const auto size = static_cast<std::size_t>(header.file_size);
    if (mode == Mode::mmap) {
        std::shared_ptr<const Memory> memory = Memory::map(descriptor, size);
        Records records = check_records(header, memory->bytes().data());
        return {std::move(memory), std::move(records)};
    }
    std::shared_ptr<Memory> memory = Memory::fresh(size);
    copy_in(descriptor, *memory, 0, header.data_offset);
    Records records = check_records(header, memory->bytes().data());
    copy_in(descriptor, *memory, header.data_offset, header.file_size);
    return {std::move(memory), std::move(records)};
}

} // namespace

File File::open(const std::string &path, Mode mode) try {
    Descriptor descriptor = open_descriptor(path);
    const struct stat status = descriptor.status(); // OPEN-3
    if (!S_ISREG(status.st_mode))                   // OPEN-1
        fail_kind(path);
    const Identity identity(status);
    const Header header = read_header(descriptor, identity.size);
    auto [memory, records] = read_records(descriptor, header, mode);
    return File(
        std::make_shared<const State>(State{
            std::move(descriptor), identity, mode, header, std::move(memory), std::move(records)}));
} catch (const std::bad_alloc &) {
    throw Error(Code::too_large, "not enough memory for this file", {}, "OPEN-9");
} catch (const std::system_error &error) { // of std::random_device
    fail_io("opening", error.code().value());
}

// ---- What an open file gives ----

ByteOrder File::byte_order() const noexcept {
    return state_->header.order;
}
bool File::is_host_order() const noexcept {
    return !state_->header.swap;
}
std::size_t File::count() const noexcept {
    return state_->records.all.size();
}
std::uint64_t File::file_size() const noexcept {
    return state_->header.file_size;
}
std::uint64_t File::data_offset() const noexcept {
    return state_->header.data_offset;
}
Bytes File::bytes() const noexcept {
    return Memory::share(state_->memory);
}

std::optional<std::size_t> File::find(std::string_view name) const noexcept {
    return state_->records.index.find(name, state_->records.all, state_->file());
}

std::string_view File::name(std::size_t index) const {
    return state_->record(index).name(state_->file());
}

Tensor File::tensor(std::size_t index) const {
    const Record &record = state_->record(index);
    Tensor tensor{
        record.name(state_->file()), record.dtype, {}, record.data_offset, record.data_size};
    // The dimensions come from the map: once more the check of SHAPE-5, which keeps a reader inside
    // the data.
    std::optional<std::uint64_t> size = info(record.dtype).size;
    for (std::size_t i = 0; i < record.rank; ++i) {
        const auto dimension =
            load<std::uint64_t>(state_->file() + record.shape_offset + 8 * i, state_->header.swap);
        tensor.shape.push_back(dimension);
        size = size ? checked::product(*size, dimension) : size;
    }
    if (size != record.data_size)
        throw Error(
            Code::modified, "the shape was overwritten since the file was opened",
            text("meta[", index, "].shape"), "OPEN-10");
    return tensor;
}

std::span<const std::byte> File::data(std::size_t index) const {
    const Record &record = state_->record(index);
    return state_->memory->bytes().subspan(
        static_cast<std::size_t>(record.data_offset), static_cast<std::size_t>(record.data_size));
}

std::span<const std::byte> File::data_as(std::size_t index, Dtype dtype) const {
    const Record &record = state_->record(index);
    if (record.dtype != dtype)
        throw Error(
            Code::unsupported,
            text("a tensor of ", info(record.dtype).name, " cannot be seen as ", info(dtype).name),
            record_field(index, "dtype"));
    if (state_->header.swap && info(dtype).unit > 1)
        throw Error(
            Code::unsupported, "the file has the other byte order: its elements must be swapped");
    return data(index);
}

namespace {

std::shared_ptr<Memory> fresh_memory(std::uint64_t size) try {
    return Memory::fresh(static_cast<std::size_t>(size));
} catch (const std::bad_alloc &) {
    throw Error(Code::too_large, text("not enough memory for ", size, " bytes"), {}, "OPEN-9");
}

} // namespace

Bytes File::host_data() const {
    const Header &header = state_->header;
    const std::span<const std::byte> data = state_->memory->bytes().subspan(
        static_cast<std::size_t>(header.data_offset),
        static_cast<std::size_t>(header.end() - header.data_offset));
    if (!header.swap)
        return {state_->memory, data};
    const std::shared_ptr<Memory> memory = fresh_memory(data.size());
    std::uint64_t done = 0; // aliases are converted once
    for (const std::size_t i : by_data_offset(state_->records.all)) {
        const Record &record = state_->records.all[i];
        if (record.data_offset < done)
            continue;
        done = record.data_offset + record.data_size;
        const auto place = static_cast<std::size_t>(record.data_offset - header.data_offset);
        const auto size = static_cast<std::size_t>(record.data_size);
        copy_reversed(
            memory->bytes().subspan(place, size), data.subspan(place, size),
            info(record.dtype).unit);
    }
    return Memory::share(memory);
}

Bytes File::swapped(std::uint64_t offset, std::uint64_t size, unsigned unit) const {
    if (!checked::inside(offset, size, 0, file_size()))
        throw std::invalid_argument("the range is not inside the file");
    if (unit > 8 || !std::has_single_bit(unit) || size % unit != 0)
        throw std::invalid_argument("the unit must be 1, 2, 4 or 8 and divide the size");
    const std::shared_ptr<Memory> memory = fresh_memory(size);
    copy_reversed(
        memory->bytes(),
        state_->memory->bytes().subspan(
            static_cast<std::size_t>(offset), static_cast<std::size_t>(size)),
        unit);
    return Memory::share(memory);
}

void File::check_unmodified() const {
    if (Identity(state_->descriptor.status()) != state_->identity) // OPEN-10
        throw Error(Code::modified, "the file was changed since it was opened", {}, "OPEN-10");
}

namespace {

/// Reads [begin, end) through the page cache into nothing; false where the file ends before.
bool read_through(const Descriptor &descriptor, std::uint64_t begin, std::uint64_t end) {
    std::vector<std::byte> piece(std::size_t{256} << 10);
    while (begin < end) {
        const auto wanted =
            static_cast<std::size_t>(std::min<std::uint64_t>(end - begin, piece.size()));
        if (descriptor.read_at(begin, std::span(piece).first(wanted)) < wanted)
            return false;
        begin += wanted;
    }
    return true;
}

/// Maps the pages in; false where that is not to be had here.
bool populate(std::span<const std::byte> pages) {
#if defined(MADV_POPULATE_READ)
    void *const start =
        const_cast<std::byte *>(pages.data()); // read only, whatever madvise's type says
    int result = 0;
    do
        result = ::madvise(start, pages.size(), MADV_POPULATE_READ);
    while (result != 0 && errno == EINTR);
    return result == 0;
#else
    static_cast<void>(pages);
    return false;
#endif
}

} // namespace

void File::prefetch(bool wait) const {
    if (state_->mode == Mode::read)
        return;
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t begin = data_offset() - data_offset() % page;
    const auto pages = state_->memory->bytes().subspan(static_cast<std::size_t>(begin));
    if (!wait) {
        ::posix_madvise(
            const_cast<std::byte *>(pages.data()), pages.size(), POSIX_MADV_WILLNEED); // a wish
        return;
    }
    // Where the map cannot be filled (an old kernel, a file that was cut), reading tells what it
    // is.
    if (!populate(pages) && !read_through(state_->descriptor, begin, file_size()))
        fail_shorter();
}

} // namespace weig
