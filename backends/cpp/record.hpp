/// \file
/// What the loader keeps of a record once it is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "weig.hpp"

namespace weig {

/// A checked record in the host's order. A private copy: the file may be rewritten under a map, and
/// a number that was checked there may be another one when it is read again.
struct Record {
    std::uint64_t name_offset;
    std::uint64_t shape_offset;
    std::uint64_t data_offset;
    std::uint64_t data_size;
    std::uint16_t name_size;
    std::uint8_t rank;
    Dtype dtype;

    std::string_view name(const std::byte *file) const noexcept {
        return {reinterpret_cast<const char *>(file) + name_offset, name_size};
    }
};

} // namespace weig
