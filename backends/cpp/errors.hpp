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
inline std::string escaped(std::string_view text) {
    constexpr std::size_t longest = 80;
    constexpr std::string_view digits = "0123456789abcdef";
    std::string result;
    for (const char c : text.substr(0, longest)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte == '\\')
            result += "\\\\";
        else if (byte >= 0x20 && byte < 0x7F)
            result += c;
        else
            result += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    }
    return text.size() > longest ? result + "..." : result;
}

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
