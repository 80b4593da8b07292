/// \file
/// Integers out of bytes: any alignment, either byte order; and the arithmetic that cannot wrap.
/// Nothing else in the loader casts a pointer to a number or adds two numbers from a file.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "layout.hpp"

namespace weig {

template <std::unsigned_integral T> constexpr T reversed(T value) noexcept {
    if constexpr (sizeof(T) == 1)
        return value;
    else if constexpr (sizeof(T) == 2)
        return __builtin_bswap16(value);
    else if constexpr (sizeof(T) == 4)
        return __builtin_bswap32(value);
    else
        return __builtin_bswap64(value);
}

/// The integer at `at`, in the host's order or (`swap`) in the other one.
template <std::unsigned_integral T> T load(const std::byte *at, bool swap = false) noexcept {
    T value;
    std::memcpy(&value, at, sizeof value);
    return swap ? reversed(value) : value;
}

template <std::unsigned_integral T> T load_little(const std::byte *at) noexcept {
    return load<T>(at, std::endian::native == std::endian::big);
}

namespace checked {

/// Whether [offset, offset + size) lies in [begin, end).
constexpr bool
inside(std::uint64_t offset, std::uint64_t size, std::uint64_t begin, std::uint64_t end) noexcept {
    return begin <= offset && offset <= end && size <= end - offset;
}

/// The product, where it is at most 2^53 - 1 (NUM-2).
constexpr std::optional<std::uint64_t> product(std::uint64_t a, std::uint64_t b) noexcept {
    std::uint64_t result = 0;
    if (__builtin_mul_overflow(a, b, &result) || result > layout::max_number)
        return std::nullopt;
    return result;
}

/// Whether the bytes of a file of that size can be numbered in this process (OPEN-9).
constexpr bool addressable(std::uint64_t size) noexcept {
    return size <= PTRDIFF_MAX;
}

} // namespace checked
} // namespace weig
