// One portable loop a unit, and where the processor has AVX2 (asked at run time) a shuffle of 32
// bytes.
#include "byteswap.hpp"

#include <concepts>
#include <cstdint>
#include <cstring>

#include "bytes.hpp"

#if defined(__x86_64__)
#define WEIG_HAS_AVX2 1
#include <immintrin.h>
#else
#define WEIG_HAS_AVX2 0
#endif

namespace weig {
namespace {

template <std::unsigned_integral T>
void copy_plain(std::byte *to, const std::byte *from, std::size_t size) noexcept {
    for (std::size_t i = 0; i < size; i += sizeof(T)) {
        const T value = load<T>(from + i, true);
        std::memcpy(to + i, &value, sizeof value);
    }
}

#if WEIG_HAS_AVX2

/// Copies the whole blocks of 32 bytes; gives how many bytes that were.
__attribute__((target("avx2"))) std::size_t
copy_avx2(std::byte *to, const std::byte *from, std::size_t size, unsigned unit) noexcept {
    // Where each byte of a 16-byte half comes from: its place in its unit, mirrored.
    alignas(32) std::uint8_t order[32];
    for (unsigned i = 0; i < 32; ++i)
        order[i] = static_cast<std::uint8_t>((i % 16) ^ (unit - 1));
    const __m256i shuffle = _mm256_load_si256(reinterpret_cast<const __m256i *>(order));
    const std::size_t whole = size - size % 32;
    for (std::size_t i = 0; i < whole; i += 32) {
        const __m256i block = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from + i));
        _mm256_storeu_si256(
            reinterpret_cast<__m256i *>(to + i), _mm256_shuffle_epi8(block, shuffle));
    }
    return whole;
}

std::size_t
copy_vectors(std::byte *to, const std::byte *from, std::size_t size, unsigned unit) noexcept {
    static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
    return has_avx2 ? copy_avx2(to, from, size, unit) : 0;
}

#else

std::size_t copy_vectors(std::byte *, const std::byte *, std::size_t, unsigned) noexcept {
    return 0;
}

#endif

} // namespace

void copy_reversed(
    std::span<std::byte> to, std::span<const std::byte> from, unsigned unit) noexcept {
    if (from.empty())
        return;
    const std::size_t done =
        unit == 1 ? 0 : copy_vectors(to.data(), from.data(), from.size(), unit);
    std::byte *const rest_to = to.data() + done;
    const std::byte *const rest = from.data() + done;
    const std::size_t size = from.size() - done;
    switch (unit) {
    case 2:
        return copy_plain<std::uint16_t>(rest_to, rest, size);
    case 4:
        return copy_plain<std::uint32_t>(rest_to, rest, size);
    case 8:
        return copy_plain<std::uint64_t>(rest_to, rest, size);
    default:
        std::memcpy(rest_to, rest, size);
    }
}

} // namespace weig
