// Level *open*, in the order of SPEC.md; each check carries the id of its rule.
#include "validate.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "bytes.hpp"
#include "errors.hpp"

namespace weig {
namespace {

// ---- Header (sections 3 to 6)
// --------------------------------------------------------------------

struct Signature {
    std::size_t offset;
    std::string_view bytes;
    std::string_view hint;
};

// What people feed to a loader by mistake (section 14, BAD_MAGIC).
constexpr std::array signatures{
    Signature{0, "version https://git-lfs", "a git-LFS pointer: the file itself was not fetched"},
    Signature{0, "<!DOCTYPE", "an HTML page"},
    Signature{0, "<!doctype", "an HTML page"},
    Signature{0, "<html", "an HTML page"},
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

void check_number(std::uint64_t value, std::string_view field) {
    if (value > layout::max_number)
        fail(Code::number_too_large, "NUM-2", text(field), text(value, " is more than 2^53 - 1"));
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

// ---- Names (section 7)
// ---------------------------------------------------------------------------

constexpr std::uint64_t each_byte(std::uint8_t value) noexcept {
    return 0x0101'0101'0101'0101 * value;
}

/// The high bit of the first byte (in memory order) of a little-endian word that is not plain: a
/// control byte (NUL too), 0x7F, or part of a longer sequence. Bits of later bytes may be wrong; 0
/// is exact.
constexpr std::uint64_t special_bytes(std::uint64_t word) noexcept {
    const std::uint64_t below_0x20 = (word - each_byte(0x20)) & ~word;
    const std::uint64_t delete_ = word ^ each_byte(0x7F);
    const std::uint64_t is_0x7f = (delete_ - each_byte(0x01)) & ~delete_;
    return (word | below_0x20 | is_0x7f) & each_byte(0x80);
}

/// Eight bytes as a little-endian word; zeros stand for those past `left` (OPEN-7: no tensor byte
/// is touched).
std::uint64_t load_word(const std::byte *at, std::uint64_t left) noexcept {
    if (left >= sizeof(std::uint64_t))
        return load_little<std::uint64_t>(at);
    std::array<std::byte, sizeof(std::uint64_t)> word{};
    std::memcpy(word.data(), at, static_cast<std::size_t>(left));
    return load_little<std::uint64_t>(word.data());
}

/// The length of the sequence of two to four bytes that starts at `at` (RFC 3629, section 4), 0
/// where it is none. `left` bytes may be looked at.
std::size_t utf8_length(const std::byte *at, std::size_t left) noexcept {
    const auto byte = [at](std::size_t i) { return std::to_integer<unsigned>(at[i]); };
    const auto is_in = [](unsigned value, unsigned low, unsigned high) {
        return low <= value && value <= high;
    };
    const unsigned first = byte(0);
    const std::size_t length = is_in(first, 0xC2, 0xDF)   ? 2
                               : is_in(first, 0xE0, 0xEF) ? 3
                               : is_in(first, 0xF0, 0xF4) ? 4
                                                          : 0;
    if (length == 0 || left < length)
        return 0;
    const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80; // no overlong form
    const unsigned high = first == 0xED   ? 0x9F
                          : first == 0xF4 ? 0x8F
                                          : 0xBF; // no surrogate, no plane 17
    if (!is_in(byte(1), low, high))
        return 0;
    for (std::size_t i = 2; i < length; ++i)
        if (!is_in(byte(i), 0x80, 0xBF))
            return 0;
    return length;
}

// ---- Records (sections 5 to 10)
// ------------------------------------------------------------------

/// Checks the records of one file one by one. `swap`: the file has the other byte order.
template <bool swap> class RecordChecker {
  public:
    RecordChecker(const Header &header, const std::byte *file) noexcept
        : file_(file), table_(file + header.meta_offset), aux_start_(header.aux_start()),
          data_offset_(header.data_offset), end_(header.end()) {}

    Record check(std::size_t index) const {
        const std::byte *at = table_ + index * layout::record_size;
        const Fields fields{at};
        check_numbers(index, fields);
        if (fields.pad != 0) // META-4
            fail(Code::bad_reserved, "META-4", record_field(index, "pad"), "not zero");
        if (fields.dtype >= dtypes.size()) // DTYPE-1
            fail(
                Code::bad_dtype, "DTYPE-1", record_field(index, "dtype"),
                text(fields.dtype, " is no code of the table"));
        const std::size_t name_size = check_name(index, fields);
        check_shape(index, fields);
        check_data(index, fields);
        return {
            fields.name_offset,
            fields.shape_offset,
            fields.data_offset,
            fields.data_size,
            static_cast<std::uint16_t>(name_size),
            static_cast<std::uint8_t>(fields.shape_count),
            static_cast<Dtype>(fields.dtype)};
    }

  private:
    /// The record as the file has it.
    struct Fields {
        std::uint64_t name_offset, shape_offset, shape_count, data_offset, data_size;
        std::uint32_t dtype, pad;

        explicit Fields(const std::byte *at) noexcept
            : name_offset(load<std::uint64_t>(at + layout::record::name_offset, swap)),
              shape_offset(load<std::uint64_t>(at + layout::record::shape_offset, swap)),
              shape_count(load<std::uint64_t>(at + layout::record::shape_count, swap)),
              data_offset(load<std::uint64_t>(at + layout::record::data_offset, swap)),
              data_size(load<std::uint64_t>(at + layout::record::data_size, swap)),
              dtype(load<std::uint32_t>(at + layout::record::dtype, swap)),
              pad(load<std::uint32_t>(at + layout::record::pad, swap)) {}
    };

    /// NUM-2, all five numbers at once; which of them it is matters only once one is wrong.
    static void check_numbers(std::size_t index, const Fields &fields) {
        const std::uint64_t all_bits = fields.name_offset | fields.shape_offset |
                                       fields.shape_count | fields.data_offset | fields.data_size;
        if (all_bits <= layout::max_number)
            return;
        check_number(fields.name_offset, record_field(index, "name_offset"));
        check_number(fields.shape_offset, record_field(index, "shape_offset"));
        check_number(fields.shape_count, record_field(index, "shape_count"));
        check_number(fields.data_offset, record_field(index, "data_offset"));
        check_number(fields.data_size, record_field(index, "data_size"));
    }

    /// NAME-1 to NAME-5. Gives the name's length.
    std::size_t check_name(std::size_t index, const Fields &fields) const {
        if (!checked::inside(fields.name_offset, 1, aux_start_, data_offset_)) // NAME-1
            fail(
                Code::bad_name, "NAME-1", record_field(index, "name_offset"),
                text(
                    fields.name_offset, " is not in the aux area [", aux_start_, ", ", data_offset_,
                    ")"));
        const std::byte *name = file_ + fields.name_offset;
        const auto room = static_cast<std::size_t>(
            std::min<std::uint64_t>(data_offset_ - fields.name_offset, layout::max_name_bytes + 1));
        std::size_t length = 0;
        while (length < room) {
            const std::uint64_t special =
                special_bytes(load_word(name + length, data_offset_ - fields.name_offset - length));
            if (special == 0) {
                length += sizeof special;
                continue;
            }
            length += static_cast<std::size_t>(std::countr_zero(special)) / 8;
            if (length >= room)
                break;
            if (name[length] == std::byte{0}) {
                if (length == 0) // NAME-3
                    fail(Code::bad_name, "NAME-3", record_field(index, "name"), "empty");
                return length;
            }
            length += check_sequence(index, name + length, room - length);
        }
        fail_unended(index, room);
    }

    /// NAME-4 and NAME-5, where a byte is not plain ASCII. Gives the bytes of one character.
    static std::size_t check_sequence(std::size_t index, const std::byte *at, std::size_t left) {
        const auto first = std::to_integer<unsigned>(*at);
        if (first < 0x80) // NAME-5
            fail(
                Code::bad_name, "NAME-5", record_field(index, "name"),
                text("has the control byte ", first));
        const std::size_t length = utf8_length(at, left);
        if (length == 0) // NAME-4
            fail(
                Code::bad_name, "NAME-4", record_field(index, "name"),
                text("is not UTF-8 at the byte ", first));
        return length;
    }

    [[noreturn]] static void fail_unended(std::size_t index, std::size_t room) {
        if (room > layout::max_name_bytes) // NAME-3
            fail(Code::bad_name, "NAME-3", record_field(index, "name"), "longer than 1023 bytes");
        fail(
            Code::bad_name, "NAME-2", record_field(index, "name"),
            "no NUL in the aux area"); // NAME-2
    }

    /// SHAPE-1 to SHAPE-5.
    void check_shape(std::size_t index, const Fields &fields) const {
        if (fields.shape_count > layout::max_rank) // SHAPE-1
            fail(
                Code::bad_shape, "SHAPE-1", record_field(index, "shape_count"),
                text(fields.shape_count, " dimensions are more than 64"));
        if (!checked::inside(
                fields.shape_offset, 8 * fields.shape_count, aux_start_, data_offset_)) // SHAPE-2
            fail(
                Code::bad_shape, "SHAPE-2", record_field(index, "shape_offset"),
                text(
                    fields.shape_count, " dimensions at ", fields.shape_offset,
                    " are not in the aux area [", aux_start_, ", ", data_offset_, ")"));
        std::uint64_t size = dtypes[fields.dtype].size;
        bool is_empty = false;
        for (std::size_t i = 0; i < fields.shape_count; ++i) { // SHAPE-3: at any alignment
            const auto dimension = load<std::uint64_t>(file_ + fields.shape_offset + 8 * i, swap);
            if (dimension > layout::max_number) // NUM-2
                check_number(dimension, text("meta[", index, "].shape[", i, "]"));
            is_empty |= dimension == 0;
            const auto next = checked::product(size, dimension == 0 ? 1 : dimension);
            if (!next) // SHAPE-4
                fail(
                    Code::bad_shape, "SHAPE-4", text("meta[", index, "].shape"),
                    "takes more than 2^53 - 1 bytes");
            size = *next;
        }
        if (fields.data_size != (is_empty ? 0 : size)) // SHAPE-5
            fail(
                Code::bad_data_size, "SHAPE-5", record_field(index, "data_size"),
                text(fields.data_size, " is not the shape's ", is_empty ? 0 : size, " bytes"));
    }

    /// DATA-1 to DATA-3.
    void check_data(std::size_t index, const Fields &fields) const {
        if (fields.data_offset % layout::data_align != 0) // DATA-1
            fail(
                Code::misaligned, "DATA-1", record_field(index, "data_offset"),
                text(fields.data_offset, " is not a multiple of 64"));
        if (fields.data_offset < data_offset_) // DATA-2
            fail(
                Code::bad_data_range, "DATA-2", record_field(index, "data_offset"),
                text(fields.data_offset, " is before the data region at ", data_offset_));
        if (!checked::inside(fields.data_offset, fields.data_size, data_offset_, end_)) // DATA-3
            fail(
                Code::bad_data_range, "DATA-3", record_field(index, "data_offset"),
                text(
                    fields.data_size, " bytes at ", fields.data_offset,
                    " reach past the end of the data at ", end_));
    }

    const std::byte *file_;
    const std::byte *table_;
    std::uint64_t aux_start_;
    std::uint64_t data_offset_;
    std::uint64_t end_;
};

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
