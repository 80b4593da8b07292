/// \file
/// Reversing the bytes of array elements at the speed of memory.
#pragma once

#include <cstddef>
#include <span>

namespace weig {

/// Copies with each `unit` (1, 2, 4 or 8) bytes reversed. `to` and `from` have the same size, a
/// multiple of the unit, any alignment, and do not overlap.
void copy_reversed(
    std::span<std::byte> to, std::span<const std::byte> from, unsigned unit) noexcept;

} // namespace weig
