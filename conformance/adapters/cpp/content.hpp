/// \file
/// The bytes of tensors as the protocol tells of them.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "weig.hpp"

/// All tensors of a file in the host's byte order: where they lie or, of a file of the other order,
/// in one copy of its data region.
class Content {
  public:
    explicit Content(const weig::File &file);

    /// The elements of a tensor.
    std::span<const std::byte> elements(const weig::Tensor &tensor) const;
    /// Whether they lie in the memory of the file itself.
    bool is_in_place() const noexcept { return in_place_; }

    /// The canonical form, little-endian, of a tensor that is not large.
    std::vector<std::byte> canonical(const weig::Tensor &tensor) const;
    /// The SHA-256 of that, in hex. Aliases are looked at once.
    const std::string &digest(const weig::Tensor &tensor);

  private:
    struct Key {
        std::uint64_t offset;
        std::uint64_t size;
        weig::Dtype dtype;
        auto operator<=>(const Key &) const = default;
    };

    weig::Bytes data_;
    std::uint64_t data_offset_;
    bool in_place_;
    std::map<Key, std::string> digests_; // ordered: the offsets are the attacker's
};

/// The largest power of two, up to 65536, that divides an address.
std::uint64_t alignment(const void *pointer) noexcept;
