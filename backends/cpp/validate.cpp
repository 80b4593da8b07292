// Level *open*, in the order of SPEC.md; each check carries the id of its rule.
#include "validate.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "bytes.hpp"
#include "errors.hpp"
#include "record_checker.hpp"

namespace weig {
namespace {

// ---- Header (sections 3 to 6) ----

struct Signature {
    std::size_t offset;
    std::string_view bytes;
    std::string_view hint;
};

// What people feed to a loader by mistake (section 14, BAD_MAGIC).
constexpr std::array signatures{
    Signature{0, "version https://git-lfs", "a git-LFS pointer: the file itself was not fetched"},
    Signature{0, "<", "an HTML or XML page"},
    Signature{0, "PK\x03\x04", "a ZIP archive (as torch.save writes)"},
    Signature{0, "GGUF", "a GGUF file"},
    Signature{0, "\x1f\x8b", "gzip data"},
    Signature{0, "\x93NUMPY", "an npy file"},
    Signature{8, "{", "a safetensors file"},
};

std::string_view as_text(std::span<const std::byte> bytes) noexcept {
    return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

[[noreturn]] void fail_magic(std::span<const std::byte> head) {
    const std::string_view start = as_text(head);
    const auto known = std::ranges::find_if(signatures, [start](const Signature &signature) {
        return start.size() > signature.offset &&
               start.substr(signature.offset).starts_with(signature.bytes);
    });
    const std::string_view hint = known == signatures.end() ? "not a WEIG file" : known->hint;
    fail(
        Code::bad_magic, "HDR-2", "header.magic",
        text("'", escaped(start.substr(0, 4)), "' is no magic: ", hint));
}

/// HDR-2 where there are four bytes, HDR-1.
ByteOrder check_magic(std::span<const std::byte> head, std::uint64_t real_size) {
    if (head.size() >= sizeof layout::magic) { // HDR-2
        const auto magic = load_little<std::uint32_t>(head.data());
        if (magic != layout::magic && magic != reversed(layout::magic))
            fail_magic(head);
    }
    if (real_size < layout::min_file_size) // HDR-1
        throw Error(
            Code::too_small,
            text(
                "the file has ", real_size, " bytes, fewer than the ", layout::min_file_size,
                " of the smallest"),
            {}, "HDR-1");
    if (head.size() < layout::header_size) // HDR-5, seen while reading
        throw Error(
            Code::truncated, text("the file ended after ", head.size(), " bytes while it was read"),
            {}, "HDR-5");
    return load_little<std::uint32_t>(head.data()) == layout::magic ? ByteOrder::little
                                                                    : ByteOrder::big;
}

/// HDR-3 to HDR-8. Gives the header's numbers.
Header check_fields(const std::byte *head, ByteOrder order, std::uint64_t real_size) {
    namespace field = layout::header;
    const bool swap = (order == ByteOrder::little) != (std::endian::native == std::endian::little);
    const auto number = [=](std::size_t offset) {
        return load<std::uint64_t>(head + offset, swap);
    };
    const auto version = load<std::uint32_t>(head + field::version, swap);
    if (version != layout::version) // HDR-3
        fail(Code::bad_version, "HDR-3", "header.version", text(version, " is not 1"));
    const Header header{
        order,
        swap,
        number(field::tensor_count),
        number(field::meta_offset),
        number(field::data_offset),
        number(field::file_size)};
    check_number(header.tensor_count, "header.tensor_count"); // NUM-2
    check_number(header.meta_offset, "header.meta_offset");
    check_number(header.data_offset, "header.data_offset");
    check_number(header.file_size, "header.file_size");
    if (header.file_size % layout::file_size_align != 0 ||
        header.file_size < layout::min_file_size) // HDR-4
        fail(
            Code::bad_file_size, "HDR-4", "header.file_size",
            text(header.file_size, " is not a multiple of 8 that is at least 72"));
    if (real_size < header.file_size) // HDR-5
        fail(
            Code::truncated, "HDR-5", "header.file_size",
            text(header.file_size, " bytes are announced, the file has ", real_size));
    if (real_size > header.file_size) // HDR-6
        fail(
            Code::trailing_data, "HDR-6", "header.file_size",
            text(header.file_size, " bytes are announced, the file has ", real_size));
    const std::uint64_t flags = number(field::flags);
    if ((flags & layout::must_understand & ~layout::known_flags) != 0) // HDR-7
        fail(
            Code::unknown_flag, "HDR-7", "header.flags",
            text(flags, " has a must-understand bit that this loader does not know"));
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) // HDR-8
        if (number(field::reserved + 8 * i) != 0)
            fail(Code::bad_reserved, "HDR-8", text("header.reserved[", i, "]"), "not zero");
    return header;
}

/// META-1 to META-3.
void check_table(const Header &header) {
    if (header.meta_offset < layout::header_size) // META-1
        fail(
            Code::bad_meta_table, "META-1", "header.meta_offset",
            text(header.meta_offset, " lies in the header"));
    if (header.meta_offset % layout::table_align != 0) // META-2
        fail(
            Code::bad_meta_table, "META-2", "header.meta_offset",
            text(header.meta_offset, " is not a multiple of 8"));
    if (header.meta_offset > header.data_offset) // META-3
        fail(
            Code::bad_meta_table, "META-3", "header.meta_offset",
            text(header.meta_offset, " is past header.data_offset ", header.data_offset));
    if (header.tensor_count >
        (header.data_offset - header.meta_offset) / layout::record_size) // META-3
        fail(
            Code::bad_meta_table, "META-3", "header.tensor_count",
            text(
                header.tensor_count, " records do not fit between header.meta_offset ",
                header.meta_offset, " and header.data_offset ", header.data_offset));
}

/// REGION-1 and REGION-2.
void check_region(const Header &header) {
    if (header.data_offset % layout::data_align != 0) // REGION-1
        fail(
            Code::misaligned, "REGION-1", "header.data_offset",
            text(header.data_offset, " is not a multiple of 64"));
    if (header.data_offset > header.end()) // REGION-2
        fail(
            Code::bad_data_region, "REGION-2", "header.data_offset",
            text(header.data_offset, " is past the end of the data at ", header.end()));
}

// ---- Records against each other (sections 7 and 10) ----

bool are_aliases(const Record &a, const Record &b) noexcept {
    return a.data_offset == b.data_offset && a.data_size == b.data_size && a.dtype == b.dtype;
}

/// DATA-4.
void check_overlap(std::span<const Record> records) {
    const Record *last = nullptr; // the one that reaches furthest
    std::size_t last_index = 0;
    for (const std::size_t i : by_data_offset(records)) {
        const Record &record = records[i];
        if (last != nullptr && record.data_offset - last->data_offset < last->data_size) {
            if (!are_aliases(record, *last))
                fail(
                    Code::overlap, "DATA-4", record_field(i, "data_offset"),
                    text("shares bytes with record ", last_index, " without being its alias"));
            continue;
        }
        last = &record;
        last_index = i;
    }
}

/// Watches for what makes the two comparisons of records with each other free: names and data in
/// order.
class OrderWatch {
  public:
    explicit OrderWatch(const std::byte *file) noexcept : file_(file) {}

    void see(const Record &record) noexcept {
        const std::string_view name = record.name(file_);
        names_rise_ = names_rise_ && name_ < name;
        name_ = name;
        if (record.data_size == 0)
            return;
        data_rises_ = data_rises_ && data_end_ <= record.data_offset;
        data_end_ = record.data_offset + record.data_size;
    }
    bool names_rise() const noexcept { return names_rise_; }
    bool data_rises() const noexcept { return data_rises_; }

  private:
    const std::byte *file_;
    std::string_view name_; // empty: before every name
    std::uint64_t data_end_ = 0;
    bool names_rise_ = true;
    bool data_rises_ = true;
};

template <bool swap> Records check_all(const Header &header, const std::byte *file) {
    // Room for the usual file; a larger count has to show its records first.
    constexpr std::uint64_t usual_count = 1 << 20;
    const auto count = static_cast<std::size_t>(header.tensor_count);
    Records records;
    records.all.reserve(static_cast<std::size_t>(std::min(header.tensor_count, usual_count)));
    const RecordChecker<swap> checker(header, file);
    OrderWatch watch(file);
    for (std::size_t i = 0; i < count; ++i) {
        records.all.push_back(checker.check(i));
        watch.see(records.all.back());
    }
    if (!watch.names_rise()) // NAME-6: names that rise are unique
        records.index = NameIndex(records.all, file);
    if (!watch.data_rises()) // DATA-4: data that rises is disjoint
        check_overlap(records.all);
    return records;
}

} // namespace

Header check_header(std::span<const std::byte> head, std::uint64_t real_size) {
    const ByteOrder order = check_magic(head, real_size);
    const Header header = check_fields(head.data(), order, real_size);
    check_table(header);
    check_region(header);
    return header;
}

void check_sentinel(const Header &header, std::span<const std::byte, layout::sentinel_size> tail) {
    if (load<std::uint64_t>(tail.data(), header.swap) != layout::sentinel) // TAIL-1
        fail(Code::bad_sentinel, "TAIL-1", "sentinel", "the last eight bytes are not the sentinel");
}

Records check_records(const Header &header, const std::byte *file) {
    return header.swap ? check_all<true>(header, file) : check_all<false>(header, file);
}

std::vector<std::size_t> by_data_offset(std::span<const Record> records) {
    std::vector<std::size_t> order;
    order.reserve(records.size());
    for (std::size_t i = 0; i < records.size(); ++i)
        if (records[i].data_size > 0)
            order.push_back(i);
    const auto offset = [records](std::size_t i) { return records[i].data_offset; };
    if (!std::ranges::is_sorted(order, {}, offset))
        std::ranges::sort(order, {}, offset);
    return order;
}

} // namespace weig
