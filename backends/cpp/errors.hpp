/// \file
/// How the loader words and throws its errors.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include "weig.hpp"

namespace weig {

/// Bytes from a file or a path made safe for a terminal or a log: printable ASCII alone, the rest
/// as escapes; cut after 80 bytes.
std::string escaped(std::string_view text);

namespace detail {
inline void append(std::string &to, std::string_view text) {
    to += text;
}
inline void append(std::string &to, std::unsigned_integral auto number) {
    to += std::to_string(number);
}
} // namespace detail

/// The parts (texts and numbers) one after another.
template <class... Parts> std::string text(const Parts &...parts) {
    std::string result;
    (detail::append(result, parts), ...);
    return result;
}

/// "meta[3].name_offset"
inline std::string record_field(std::size_t index, std::string_view name) {
    return text("meta[", index, "].", name);
}

/// Throws the error of one rule; the message starts with the field.
[[noreturn]] inline void
fail(Code code, std::string_view rule, const std::string &field, const std::string &message) {
    throw Error(code, text(field, ": ", message), field, rule);
}

} // namespace weig
