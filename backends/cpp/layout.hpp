/// \file
/// The constants of SPEC.md, sections 3 to 11. A test compares them with spec/layout.py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weig::layout {

inline constexpr std::uint32_t magic = 0x57454947;
inline constexpr std::uint32_t version = 1;
inline constexpr std::uint64_t sentinel = 0x57454947454E4421;
inline constexpr std::uint64_t max_number = (std::uint64_t{1} << 53) - 1;

inline constexpr std::size_t header_size = 64;
inline constexpr std::size_t record_size = 48;
inline constexpr std::size_t sentinel_size = 8;
inline constexpr std::size_t min_file_size = header_size + sentinel_size;

inline constexpr std::size_t table_align = 8;
inline constexpr std::size_t data_align = 64;
inline constexpr std::size_t file_size_align = 8;

inline constexpr std::size_t max_name_bytes = 1023;
inline constexpr std::size_t max_rank = 64;
inline constexpr std::uint64_t must_understand = 0xFFFF'FFFF;
inline constexpr std::uint64_t known_flags = 0;

/// Where each field lies in its structure.
namespace header {
inline constexpr std::size_t magic = 0;
inline constexpr std::size_t version = 4;
inline constexpr std::size_t tensor_count = 8;
inline constexpr std::size_t meta_offset = 16;
inline constexpr std::size_t data_offset = 24;
inline constexpr std::size_t file_size = 32;
inline constexpr std::size_t flags = 40;
inline constexpr std::size_t reserved = 48;
} // namespace header

namespace record {
inline constexpr std::size_t name_offset = 0;
inline constexpr std::size_t dtype = 8;
inline constexpr std::size_t pad = 12;
inline constexpr std::size_t shape_offset = 16;
inline constexpr std::size_t shape_count = 24;
inline constexpr std::size_t data_offset = 32;
inline constexpr std::size_t data_size = 40;
} // namespace record

} // namespace weig::layout
