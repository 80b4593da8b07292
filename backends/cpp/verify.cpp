// Level *deep*: SPEC.md, section 12.
#include "state.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "bytes.hpp"
#include "errors.hpp"

namespace weig {
namespace {

/// A range of the file that has an owner.
struct Owned {
    std::uint64_t begin;
    std::uint64_t end;
    bool is_bool;
};

void add(std::vector<Owned> &owned, std::uint64_t begin, std::uint64_t size, bool is_bool = false) {
    if (size > 0)
        owned.push_back({begin, begin + size, is_bool});
}

/// All owners of PAD-1, by where they start.
std::vector<Owned> owned_ranges(const Header &header, std::span<const Record> records) {
    std::vector<Owned> owned;
    owned.reserve(3 * records.size() + 3);
    // This is the order of a canonical file, which needs no sorting.
    add(owned, 0, layout::header_size);
    add(owned, header.meta_offset, header.aux_start() - header.meta_offset);
    for (const Record &record : records)
        add(owned, record.shape_offset, 8 * std::uint64_t{record.rank});
    for (const Record &record : records)
        add(owned, record.name_offset, std::uint64_t{record.name_size} + 1);
    for (const Record &record : records)
        add(owned, record.data_offset, record.data_size, record.dtype == Dtype::boolean);
    add(owned, header.end(), layout::sentinel_size);
    if (!std::ranges::is_sorted(owned, {}, &Owned::begin))
        std::ranges::sort(owned, {}, &Owned::begin);
    return owned;
}

/// The place of the first byte that has a bit of `mask`, or the size.
std::size_t find_bits(std::span<const std::byte> bytes, std::byte mask) noexcept {
    constexpr std::size_t block = 256;
    constexpr std::size_t word = sizeof(std::uint64_t);
    const std::uint64_t word_mask = 0x0101'0101'0101'0101 * std::to_integer<std::uint64_t>(mask);
    std::size_t at = 0;
    for (; bytes.size() - at >= block; at += block) {
        std::uint64_t all_bits = 0;
        for (std::size_t i = 0; i < block; i += word)
            all_bits |= load<std::uint64_t>(bytes.data() + at + i);
        if ((all_bits & word_mask) != 0)
            break;
    }
    while (at < bytes.size() && (bytes[at] & mask) == std::byte{0})
        ++at;
    return at;
}

/// Walks through a file once, from its start to its end.
class DeepCheck {
  public:
    DeepCheck(std::span<const std::byte> file, const File::Progress &progress) noexcept
        : file_(file), progress_(progress) {}

    void run(std::span<const Owned> owned) {
        for (const Owned &range : owned) {
            if (range.begin > done_)
                check_zero(range.begin);
            if (range.end > done_) { // else it was seen: an alias, a shared name or shape
                if (range.is_bool)
                    check_bool(range.end);
                skip(range.end);
            }
        }
        report();
    }

  private:
    /// PAD-1 for [done_, end).
    void check_zero(std::uint64_t end) {
        const std::uint64_t bad = find(end, std::byte{0xFF});
        if (bad < end) // PAD-1
            throw Error(
                Code::nonzero_padding,
                text("the byte at ", bad, " belongs to nothing and is not zero"), "padding",
                "PAD-1");
    }

    /// BOOL-1 for [done_, end).
    void check_bool(std::uint64_t end) {
        const std::uint64_t bad = find(end, std::byte{0xFE});
        if (bad < end) // BOOL-1
            throw Error(
                Code::bad_bool, text("the BOOL element at ", bad, " is neither 0 nor 1"), "data",
                "BOOL-1");
    }

    /// The first byte of [done_, end) with a bit of `mask`, or `end`; looks in pieces, to report
    /// between them.
    std::uint64_t find(std::uint64_t end, std::byte mask) {
        while (done_ < end) {
            const auto piece = static_cast<std::size_t>(std::min(end - done_, report_every));
            const auto place = static_cast<std::size_t>(done_);
            const std::size_t found = find_bits(file_.subspan(place, piece), mask);
            if (found < piece)
                return done_ + found;
            skip(done_ + piece);
        }
        return end;
    }

    void skip(std::uint64_t to) {
        done_ = to;
        if (done_ - reported_ >= report_every)
            report();
    }

    void report() {
        reported_ = done_;
        if (progress_)
            progress_(done_, file_.size());
    }

    static constexpr std::uint64_t report_every = std::uint64_t{16} << 20;

    std::span<const std::byte> file_;
    const File::Progress &progress_;
    std::uint64_t done_ = 0;
    std::uint64_t reported_ = 0;
};

} // namespace

void File::verify(const Progress &progress) const {
    std::vector<Owned> owned;
    try {
        owned = owned_ranges(state_->header, state_->records.all);
    } catch (const std::bad_alloc &) {
        throw Error(
            Code::too_large, "not enough memory for the list of owned ranges", {}, "OPEN-9");
    }
    DeepCheck(state_->memory->bytes(), progress).run(owned);
}

} // namespace weig
