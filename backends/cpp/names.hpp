/// \file
/// Records by name. Names are hostile: the hash has a key that an attacker does not know
/// (SipHash-1-3), so that no file can make the table slow (OPEN-5).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "bytes.hpp"
#include "errors.hpp"
#include "record.hpp"

namespace weig {

/// SipHash-1-3 of Aumasson and Bernstein.
class SipHash {
  public:
    /// One with a random key, the same for the whole process.
    static const SipHash &instance() {
        static const SipHash hash{random_word(), random_word()};
        return hash;
    }

    constexpr SipHash(std::uint64_t key0, std::uint64_t key1) noexcept : key0_(key0), key1_(key1) {}

    std::uint64_t operator()(std::string_view text) const noexcept {
        State state{
            key0_ ^ 0x736f6d6570736575, key1_ ^ 0x646f72616e646f6d, key0_ ^ 0x6c7967656e657261,
            key1_ ^ 0x7465646279746573};
        const auto *at = reinterpret_cast<const std::byte *>(text.data());
        std::size_t left = text.size();
        for (; left >= 8; at += 8, left -= 8)
            state.absorb(load_little<std::uint64_t>(at));
        std::array<std::byte, 8> last{};
        std::memcpy(last.data(), at, left);
        last[7] = static_cast<std::byte>(text.size());
        state.absorb(load_little<std::uint64_t>(last.data()));
        return state.finish();
    }

  private:
    struct State {
        std::uint64_t a, b, c, d;

        void round() noexcept {
            a += b, b = std::rotl(b, 13) ^ a, a = std::rotl(a, 32);
            c += d, d = std::rotl(d, 16) ^ c;
            a += d, d = std::rotl(d, 21) ^ a;
            c += b, b = std::rotl(b, 17) ^ c, c = std::rotl(c, 32);
        }
        void absorb(std::uint64_t word) noexcept {
            d ^= word;
            round();
            a ^= word;
        }
        std::uint64_t finish() noexcept {
            c ^= 0xff;
            round();
            round();
            round();
            return a ^ b ^ c ^ d;
        }
    };

    static std::uint64_t random_word() {
        std::random_device device;
        return std::uint64_t{device()} << 32 | device();
    }

    std::uint64_t key0_;
    std::uint64_t key1_;
};

/// Finds a record by its name.
class NameIndex {
  public:
    /// For records that stand in the order of their names: they are their own index.
    NameIndex() = default;

    /// For any others: a hash table. NAME-6: throws DUPLICATE_NAME.
    NameIndex(std::span<const Record> records, const std::byte *file)
        : slots_(std::bit_ceil(2 * records.size())) {
        // A batch of hashes first, so that the slots are on their way from memory when they are
        // needed.
        constexpr std::size_t batch = 32;
        std::array<std::uint64_t, batch> hashes;
        for (std::size_t start = 0; start < records.size(); start += batch) {
            const std::size_t size = std::min(batch, records.size() - start);
            for (std::size_t i = 0; i < size; ++i) {
                hashes[i] = SipHash::instance()(records[start + i].name(file));
                __builtin_prefetch(&slots_[first_slot(hashes[i])], 1);
            }
            for (std::size_t i = 0; i < size; ++i)
                insert(records, file, start + i, hashes[i]);
        }
    }

    std::optional<std::size_t> find(
        std::string_view name, std::span<const Record> records,
        const std::byte *file) const noexcept {
        if (slots_.empty())
            return find_sorted(name, records, file);
        const std::uint64_t hash = SipHash::instance()(name);
        const std::uint64_t slot = slots_[probe(hash, name, records, file)];
        return slot == 0 ? std::nullopt : std::optional{index_of(slot)};
    }

  private:
    // A slot is the record's number, counted from 1, in 48 bits (2^53 bytes hold fewer records),
    // and 16 bits of its hash that spare most looks at other names. 0 is free.
    static constexpr std::uint64_t number_mask = (std::uint64_t{1} << 48) - 1;

    static std::size_t index_of(std::uint64_t slot) noexcept {
        return static_cast<std::size_t>((slot & number_mask) - 1);
    }

    static std::optional<std::size_t> find_sorted(
        std::string_view name, std::span<const Record> records, const std::byte *file) noexcept {
        const auto found = std::ranges::lower_bound(
            records, name, {}, [file](const Record &record) { return record.name(file); });
        if (found == records.end() || found->name(file) != name)
            return std::nullopt;
        return static_cast<std::size_t>(found - records.begin());
    }

    std::size_t first_slot(std::uint64_t hash) const noexcept {
        return static_cast<std::size_t>(hash) & (slots_.size() - 1);
    }

    /// The slot that holds the name, or the free one where it would go.
    std::size_t probe(
        std::uint64_t hash, std::string_view name, std::span<const Record> records,
        const std::byte *file) const noexcept {
        for (std::size_t at = first_slot(hash);; at = (at + 1) & (slots_.size() - 1)) {
            const std::uint64_t slot = slots_[at];
            if (slot == 0)
                return at;
            if (((slot ^ hash) & ~number_mask) == 0 && records[index_of(slot)].name(file) == name)
                return at;
        }
    }

    void insert(
        std::span<const Record> records, const std::byte *file, std::size_t i, std::uint64_t hash) {
        const std::string_view name = records[i].name(file);
        std::uint64_t &slot = slots_[probe(hash, name, records, file)];
        if (slot != 0)
            fail(
                Code::duplicate_name, "NAME-6", record_field(i, "name"),
                text("'", escaped(name), "' is the name of record ", index_of(slot), " too"));
        slot = (hash & ~number_mask) | (i + 1);
    }

    std::vector<std::uint64_t> slots_;
};

} // namespace weig
