/// \file
/// The rules of one record by itself: sections 5 to 10 of SPEC.md, in their order.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "bytes.hpp"
#include "errors.hpp"
#include "layout.hpp"
#include "record.hpp"
#include "utf8.hpp"
#include "validate.hpp"

namespace weig {

/// NUM-2.
inline void check_number(std::uint64_t value, std::string_view field) {
    if (value > layout::max_number)
        fail(Code::number_too_large, "NUM-2", text(field), text(value, " is more than 2^53 - 1"));
}

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

} // namespace weig
