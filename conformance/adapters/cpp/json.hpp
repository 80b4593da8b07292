/// \file
/// JSON, written into a string.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace json {

inline constexpr std::string_view hex_digits = "0123456789abcdef";

/// A string of UTF-8, quoted.
inline std::string quoted(std::string_view text) {
    std::string result = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x20) {
            result += "\\u00";
            result += {hex_digits[byte >> 4], hex_digits[byte & 15]};
            continue;
        }
        if (c == '"' || c == '\\')
            result += '\\';
        result += c;
    }
    return result + '"';
}

inline std::string hex(std::span<const std::byte> bytes) {
    std::string result;
    result.reserve(2 * bytes.size());
    for (const std::byte byte : bytes) {
        result += hex_digits[std::to_integer<unsigned>(byte >> 4)];
        result += hex_digits[std::to_integer<unsigned>(byte & std::byte{15})];
    }
    return result;
}

/// An array of what is JSON already.
class Array {
  public:
    void add(std::string_view item) {
        text_ += text_.empty() ? "" : ", ";
        text_ += item;
    }
    std::string text() const { return '[' + text_ + ']'; }

  private:
    std::string text_;
};

/// An object; its members stand in the order in which they come.
class Object {
  public:
    Object &member(std::string_view key, std::string_view text) { return raw(key, quoted(text)); }
    Object &member(std::string_view key, std::unsigned_integral auto number) {
        return raw(key, std::to_string(number));
    }
    Object &raw(std::string_view key, std::string_view item) {
        text_ += text_.empty() ? "" : ", ";
        text_ += quoted(key);
        text_ += ": ";
        text_ += item;
        return *this;
    }
    std::string text() const { return '{' + text_ + '}'; }

  private:
    std::string text_;
};

} // namespace json
