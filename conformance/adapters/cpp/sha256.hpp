/// \file
/// SHA-256 (FIPS 180-4).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

class Sha256 {
  public:
    using Digest = std::array<std::byte, 32>;

    void update(std::span<const std::byte> bytes) noexcept {
        length_ += bytes.size();
        while (!bytes.empty()) {
            const auto part = bytes.first(std::min(bytes.size(), block_.size() - filled_));
            std::ranges::copy(part, block_.begin() + static_cast<std::ptrdiff_t>(filled_));
            filled_ += part.size();
            bytes = bytes.subspan(part.size());
            if (filled_ == block_.size())
                take_block();
        }
    }

    /// Ends the message; the object is spent.
    Digest finish() noexcept {
        const std::uint64_t bits = 8 * length_;
        block_[filled_++] = std::byte{0x80};
        if (filled_ > length_at) {
            fill_zero(block_.size());
            take_block();
        }
        fill_zero(length_at);
        for (unsigned shift = 64; shift > 0; shift -= 8)
            block_[filled_++] = static_cast<std::byte>(bits >> (shift - 8) & 0xFF);
        take_block();
        Digest digest;
        auto to = digest.begin();
        for (const std::uint32_t word : state_)
            for (unsigned shift = 32; shift > 0; shift -= 8)
                *to++ = static_cast<std::byte>(word >> (shift - 8) & 0xFF);
        return digest;
    }

  private:
    static constexpr std::size_t length_at =
        56; // where the length of the message stands in its block

    void fill_zero(std::size_t end) noexcept {
        while (filled_ < end)
            block_[filled_++] = std::byte{0};
    }

    void take_block() noexcept {
        std::array<std::uint32_t, 16> schedule; // the last sixteen words
        for (std::size_t i = 0; i < schedule.size(); ++i) {
            schedule[i] = 0;
            for (std::size_t byte = 0; byte < 4; ++byte)
                schedule[i] =
                    schedule[i] << 8 | std::to_integer<std::uint32_t>(block_[4 * i + byte]);
        }
        std::array<std::uint32_t, 8> work = state_;
        for (std::size_t round = 0; round < round_constants.size(); ++round) {
            std::uint32_t &word = schedule[round % 16];
            if (round >= 16)
                word += small_sigma(schedule[(round + 1) % 16], 7, 18, 3) +
                        schedule[(round + 9) % 16] +
                        small_sigma(schedule[(round + 14) % 16], 17, 19, 10);
            mix(work, round_constants[round] + word);
        }
        std::ranges::transform(state_, work, state_.begin(), std::plus<>{});
        filled_ = 0;
    }

    static void mix(std::array<std::uint32_t, 8> &work, std::uint32_t input) noexcept {
        const auto [a, b, c, d, e, f, g, h] = work;
        const std::uint32_t choice = g ^ (e & (f ^ g));
        const std::uint32_t majority = (a & b) | (c & (a | b));
        const std::uint32_t added = h + big_sigma(e, 6, 11, 25) + choice + input;
        work = {added + big_sigma(a, 2, 13, 22) + majority, a, b, c, d + added, e, f, g};
    }

    static std::uint32_t big_sigma(std::uint32_t x, int a, int b, int c) noexcept {
        return std::rotr(x, a) ^ std::rotr(x, b) ^ std::rotr(x, c);
    }
    static std::uint32_t small_sigma(std::uint32_t x, int a, int b, int shift) noexcept {
        return std::rotr(x, a) ^ std::rotr(x, b) ^ (x >> shift);
    }

    static constexpr std::array<std::uint32_t, 64> round_constants{
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
        0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
        0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
        0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
        0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
        0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
        0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
        0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
        0xc67178f2,
    };

    std::array<std::uint32_t, 8> state_{
        0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
    };
    std::array<std::byte, 64> block_{};
    std::size_t filled_ = 0;
    std::uint64_t length_ = 0;
};
