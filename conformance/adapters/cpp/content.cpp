#include "content.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

#include "json.hpp"
#include "sha256.hpp"

namespace {

/// Appends elements of `unit` bytes, each of them reversed where the host is big-endian.
void append_canonical(
    std::vector<std::byte> &to, std::span<const std::byte> elements, std::size_t unit) {
    if constexpr (std::endian::native == std::endian::little) {
        to.insert(to.end(), elements.begin(), elements.end());
    } else {
        for (; !elements.empty(); elements = elements.subspan(unit))
            std::ranges::reverse_copy(elements.first(unit), std::back_inserter(to));
    }
}

std::string digest_of(std::span<const std::byte> elements, std::size_t unit) {
    constexpr std::size_t largest_piece = 1 << 16; // a multiple of every unit
    Sha256 hash;
    std::vector<std::byte> piece;
    while (!elements.empty()) {
        const auto part = elements.first(std::min(elements.size(), largest_piece));
        piece.clear();
        append_canonical(piece, part, unit);
        hash.update(piece);
        elements = elements.subspan(part.size());
    }
    return json::hex(hash.finish());
}

} // namespace

Content::Content(const weig::File &file)
    : data_(file.host_data()), data_offset_(file.data_offset()), in_place_(file.is_host_order()) {}

std::span<const std::byte> Content::elements(const weig::Tensor &tensor) const {
    return data_.view.subspan(
        static_cast<std::size_t>(tensor.offset - data_offset_),
        static_cast<std::size_t>(tensor.size));
}

std::vector<std::byte> Content::canonical(const weig::Tensor &tensor) const {
    std::vector<std::byte> result;
    append_canonical(result, elements(tensor), weig::info(tensor.dtype).unit);
    return result;
}

const std::string &Content::digest(const weig::Tensor &tensor) {
    std::string &digest = digests_[{tensor.offset, tensor.size, tensor.dtype}];
    if (digest.empty())
        digest = digest_of(elements(tensor), weig::info(tensor.dtype).unit);
    return digest;
}

std::uint64_t alignment(const void *pointer) noexcept {
    constexpr int largest = 16; // as a power of two
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    return std::uint64_t{1} << std::min(std::countr_zero(address), largest);
}
