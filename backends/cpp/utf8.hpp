/// \file
/// The characters of names (SPEC.md, section 7), eight bytes at a time as long as they are plain
/// ASCII.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "bytes.hpp"

namespace weig {

constexpr std::uint64_t each_byte(std::uint8_t value) noexcept {
    return std::uint64_t{0x0101'0101'0101'0101} * value;
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
inline std::uint64_t load_word(const std::byte *at, std::uint64_t left) noexcept {
    if (left >= sizeof(std::uint64_t))
        return load_little<std::uint64_t>(at);
    std::array<std::byte, sizeof(std::uint64_t)> word{};
    std::memcpy(word.data(), at, static_cast<std::size_t>(left));
    return load_little<std::uint64_t>(word.data());
}

/// The length of the sequence of two to four bytes that starts at `at` (RFC 3629, section 4), 0
/// where it is none. `left` bytes may be looked at.
inline std::size_t utf8_length(const std::byte *at, std::size_t left) noexcept {
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

} // namespace weig
