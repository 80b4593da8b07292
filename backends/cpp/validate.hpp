/// \file
/// Level *open* of SPEC.md over bytes that are there already: what a header says, and what the
/// records say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "layout.hpp"
#include "names.hpp"
#include "record.hpp"
#include "weig.hpp"

namespace weig {

/// A header that was checked against the real size of the file: all its offsets lie in the file and
/// its sums cannot wrap.
struct Header {
    ByteOrder order = ByteOrder::little;
    bool swap = false; ///< whether that is not the host's order
    std::uint64_t tensor_count = 0;
    std::uint64_t meta_offset = 0;
    std::uint64_t data_offset = 0;
    std::uint64_t file_size = 0;

    std::uint64_t aux_start() const noexcept {
        return meta_offset + tensor_count * layout::record_size;
    }
    std::uint64_t end() const noexcept { return file_size - layout::sentinel_size; }
};

/// HDR-1 to HDR-8, META-1 to META-3, REGION-1 and REGION-2. `head` is the start of the file (all of
/// it that is there, up to 64 bytes), `real_size` what fstat says of the file.
Header check_header(std::span<const std::byte> head, std::uint64_t real_size);

/// TAIL-1.
void check_sentinel(const Header &header, std::span<const std::byte, layout::sentinel_size> tail);

/// The records of a file, checked one by one and against each other.
struct Records {
    std::vector<Record> all;
    NameIndex index;
};

/// NUM-2 to DATA-4. `file` is the whole file; nothing from `header.data_offset` on is looked at.
Records check_records(const Header &header, const std::byte *file);

/// The indices of the tensors that have bytes, by data_offset.
std::vector<std::size_t> by_data_offset(std::span<const Record> records);

} // namespace weig
