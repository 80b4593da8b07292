/// \file
/// The C++20 loader of WEIG files (spec/SPEC.md), usable by itself: this header and the four
/// sources loader.cpp, validate.cpp, verify.cpp and byteswap.cpp (module.cpp is the Python
/// binding). POSIX, any byte order, any word size, no dependency.
///
///     const weig::File file = weig::File::open("model.weig");
///     for (std::size_t i = 0; i < file.count(); ++i)
///         std::cout << file.tensor(i).name << '\n';
///     std::span<const float> bias = file.elements<float>(*file.find("bias"));
///
/// Everything of level *open* holds for a File: to have one is to have a file that was checked
/// whole. After that no number is trusted from the map again, so that a file that is rewritten
/// while it is mapped can change what a tensor holds, but never where it lies.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace weig {

/// The closed list of SPEC.md, section 14, in its order.
enum class Code : std::uint8_t {
    io,
    not_regular_file,
    too_large,
    too_small,
    bad_magic,
    bad_version,
    unknown_flag,
    bad_reserved,
    truncated,
    trailing_data,
    bad_file_size,
    bad_sentinel,
    bad_meta_table,
    bad_data_region,
    misaligned,
    bad_dtype,
    bad_name,
    duplicate_name,
    bad_shape,
    bad_data_size,
    bad_data_range,
    overlap,
    number_too_large,
    nonzero_padding,
    bad_bool,
    modified,
    closed,
    no_such_tensor,
    unsupported,
};

inline constexpr std::array<std::string_view, 29> code_names{
    "IO",
    "NOT_REGULAR_FILE",
    "TOO_LARGE",
    "TOO_SMALL",
    "BAD_MAGIC",
    "BAD_VERSION",
    "UNKNOWN_FLAG",
    "BAD_RESERVED",
    "TRUNCATED",
    "TRAILING_DATA",
    "BAD_FILE_SIZE",
    "BAD_SENTINEL",
    "BAD_META_TABLE",
    "BAD_DATA_REGION",
    "MISALIGNED",
    "BAD_DTYPE",
    "BAD_NAME",
    "DUPLICATE_NAME",
    "BAD_SHAPE",
    "BAD_DATA_SIZE",
    "BAD_DATA_RANGE",
    "OVERLAP",
    "NUMBER_TOO_LARGE",
    "NONZERO_PADDING",
    "BAD_BOOL",
    "MODIFIED",
    "CLOSED",
    "NO_SUCH_TENSOR",
    "UNSUPPORTED",
};

/// The code as SPEC.md writes it.
constexpr std::string_view to_string(Code code) noexcept {
    return code_names[static_cast<std::size_t>(code)];
}

/// The one exception for what a file is or says. `what()` is for people (printable ASCII: what
/// comes from the file is escaped); `code` is stable. `field` ("meta[3].data_offset") and `rule"
/// ("DATA-3") say where and which sentence of SPEC.md; both may be empty.
class Error : public std::runtime_error {
  public:
    Error(Code code, const std::string &message, std::string field = {}, std::string_view rule = {})
        : std::runtime_error(message), code_(code), field_(std::move(field)), rule_(rule) {}

    Code code() const noexcept { return code_; }
    const std::string &field() const noexcept { return field_; }
    std::string_view rule() const noexcept { return rule_; }

  private:
    Code code_;
    std::string field_;
    std::string_view rule_; // always a literal
};

enum class Mode : std::uint8_t {
    mmap, ///< the file is mapped: for files that nobody cuts or overwrites in place meanwhile
    read, ///< a private copy is made: nothing that happens to the file can harm it
};

enum class ByteOrder : std::uint8_t { little, big };

/// SPEC.md, section 8: the code is the place in `dtypes`.
enum class Dtype : std::uint8_t {
    f32,
    f16,
    bf16,
    i8,
    u8,
    i32,
    f64,
    i64,
    i16,
    u16,
    u32,
    u64,
    boolean,
    f8_e4m3,
    f8_e5m2,
    f8_e8m0,
    c64,
    f8_e4m3fnuz,
    f8_e5m2fnuz,
};

/// `size` is bytes an element, `unit` the bytes that a change of byte order reverses together.
struct DtypeInfo {
    std::string_view name;
    std::uint8_t size;
    std::uint8_t unit;
};

inline constexpr std::array<DtypeInfo, 19> dtypes{{
    {"F32", 4, 4},  {"F16", 2, 2},         {"BF16", 2, 2},        {"I8", 1, 1},
    {"U8", 1, 1},   {"I32", 4, 4},         {"F64", 8, 8},         {"I64", 8, 8},
    {"I16", 2, 2},  {"U16", 2, 2},         {"U32", 4, 4},         {"U64", 8, 8},
    {"BOOL", 1, 1}, {"F8_E4M3", 1, 1},     {"F8_E5M2", 1, 1},     {"F8_E8M0", 1, 1},
    {"C64", 8, 4},  {"F8_E4M3FNUZ", 1, 1}, {"F8_E5M2FNUZ", 1, 1},
}};

constexpr const DtypeInfo &info(Dtype dtype) noexcept {
    return dtypes[static_cast<std::size_t>(dtype)];
}

/// Up to 64 dimensions, the slowest first; none for a scalar.
class Shape {
  public:
    static constexpr std::size_t max_rank = 64;

    Shape() noexcept {} // the dimensions past the rank are never read, so they are never written
    void push_back(std::uint64_t dimension) noexcept { dimensions_[rank_++] = dimension; }
    std::size_t rank() const noexcept { return rank_; }
    std::span<const std::uint64_t> dimensions() const noexcept { return {dimensions_, rank_}; }

  private:
    std::size_t rank_ = 0;
    std::uint64_t dimensions_[max_rank];
};

/// What one record says. `name` is UTF-8 and lies in the file's memory: it lives as long as that.
struct Tensor {
    std::string_view name;
    Dtype dtype{};
    Shape shape;
    std::uint64_t offset = 0; ///< bytes from the start of the file
    std::uint64_t size = 0;   ///< bytes
};

/// Read-only bytes and what keeps them: copy `owner`, and the bytes outlive the File.
struct Bytes {
    std::shared_ptr<const void> owner;
    std::span<const std::byte> view;
};

/// The dtype of a C++ type, where there is one.
template <class T> inline constexpr std::optional<Dtype> dtype_of{};
template <> inline constexpr std::optional<Dtype> dtype_of<float>{Dtype::f32};
template <> inline constexpr std::optional<Dtype> dtype_of<double>{Dtype::f64};
template <> inline constexpr std::optional<Dtype> dtype_of<std::int8_t>{Dtype::i8};
template <> inline constexpr std::optional<Dtype> dtype_of<std::int16_t>{Dtype::i16};
template <> inline constexpr std::optional<Dtype> dtype_of<std::int32_t>{Dtype::i32};
template <> inline constexpr std::optional<Dtype> dtype_of<std::int64_t>{Dtype::i64};
template <> inline constexpr std::optional<Dtype> dtype_of<std::uint8_t>{Dtype::u8};
template <> inline constexpr std::optional<Dtype> dtype_of<std::uint16_t>{Dtype::u16};
template <> inline constexpr std::optional<Dtype> dtype_of<std::uint32_t>{Dtype::u32};
template <> inline constexpr std::optional<Dtype> dtype_of<std::uint64_t>{Dtype::u64};

template <class T>
concept Element = dtype_of<T>.has_value();

/// An open file that was checked whole. Cheap to copy (copies share everything), immutable, and
/// safe to use from several threads. Indices are those of the records, in file order; an index that
/// is not below `count()` is the caller's fault: std::out_of_range.
class File {
  public:
    /// Called with (bytes done, bytes in all); what it throws goes through.
    using Progress = std::function<void(std::uint64_t, std::uint64_t)>;

    /// Opens a file and checks all of level *open*. Throws Error, and nothing else.
    static File open(const std::string &path, Mode mode = Mode::mmap);

    ByteOrder byte_order() const noexcept;
    /// Whether that is the host's order too, so that tensors can be used where they lie.
    bool is_host_order() const noexcept;
    std::size_t count() const noexcept;
    std::uint64_t file_size() const noexcept;

    /// The record of that name; none is no error. A binary search where the file is sorted by name,
    /// a hash look-up where it is not.
    std::optional<std::size_t> find(std::string_view name) const noexcept;
    /// Throws Error MODIFIED where the shape was overwritten in the map since.
    Tensor tensor(std::size_t index) const;
    std::string_view name(std::size_t index) const;

    /// The whole file as it is.
    Bytes bytes() const noexcept;
    /// The bytes of one tensor, in the file's byte order.
    std::span<const std::byte> data(std::size_t index) const;
    /// The elements where they lie. Throws Error UNSUPPORTED where the tensor has another dtype or
    /// the file the other byte order.
    template <Element T> std::span<const T> elements(std::size_t index) const {
        const std::span<const std::byte> bytes = data_as(index, *dtype_of<T>);
        return {reinterpret_cast<const T *>(bytes.data()), bytes.size() / sizeof(T)};
    }

    /// The data region with every tensor in the host's byte order, at `offset - data_offset()`: the
    /// file's own memory where it has that order, else fresh memory, written in one pass.
    Bytes host_data() const;
    /// Where the data region starts.
    std::uint64_t data_offset() const noexcept;
    /// Bytes of the file in fresh memory, each `unit` (1, 2, 4 or 8) of them reversed. A range that
    /// does not lie in the file, or is no multiple of the unit, is the caller's fault:
    /// std::invalid_argument.
    Bytes swapped(std::uint64_t offset, std::uint64_t size, unsigned unit) const;

    /// Deep verification: PAD-1 and BOOL-1.
    void verify(const Progress &progress = {}) const;
    /// Throws Error MODIFIED where the opened file changed since.
    void check_unmodified() const;
    /// Asks the kernel for the data; with `wait`, returns when it is resident. A copy always is.
    void prefetch(bool wait) const;

  private:
    struct State;
    explicit File(std::shared_ptr<const State> state) noexcept : state_(std::move(state)) {}
    std::span<const std::byte> data_as(std::size_t index, Dtype dtype) const;

    std::shared_ptr<const State> state_;
};

} // namespace weig
