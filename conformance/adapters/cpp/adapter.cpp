/// \file
/// The C++ library behind the adapter protocol (conformance/PROTOCOL.md): reads requests from
/// standard input, answers each with one line of JSON, and ends with the input.
#include <algorithm>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "content.hpp"
#include "json.hpp"
#include "weig.hpp"

namespace {

using Fields = std::vector<std::string_view>;

/// The largest file that has to load on a host of 32 bits, where 2 to 4 GiB hold all of a process.
constexpr std::uint64_t max_size_32 = std::uint64_t{1} << 30;
/// Bytes of a tensor that data=hex shows.
constexpr std::uint64_t max_data = 4096;

Fields split(std::string_view line) {
    Fields fields;
    while (true) {
        const std::size_t tab = line.find('\t');
        fields.push_back(line.substr(0, tab));
        if (tab == line.npos)
            return fields;
        line.remove_prefix(tab + 1);
    }
}

bool has(const Fields &fields, std::string_view field) {
    return std::ranges::find(fields, field) != fields.end();
}

std::string hello() {
    json::Array profiles;
    for (const std::string_view profile : {"core", "data", "big-endian", "deep", "mmap"})
        profiles.add(json::quoted(profile));
    json::Array dtypes;
    for (const weig::DtypeInfo &dtype : weig::dtypes)
        dtypes.add(json::quoted(dtype.name));
    json::Object limits;
    if constexpr (sizeof(void *) == 4)
        limits.member("max_size", max_size_32);
    return json::Object()
        .member("protocol", 1U)
        .member("loader", "weig-cpp")
        .member("version", ADAPTER_VERSION)
        .member("language", "c++")
        .raw("spec", "[\"1\"]")
        .raw("profiles", profiles.text())
        .raw("dtypes", dtypes.text())
        .raw("limits", limits.text())
        .text();
}

/// One tensor as the answer tells of it; its bytes only where there is `content`.
std::string tensor_answer(
    const weig::File &file, std::size_t index, weig::Mode mode, std::optional<Content> &content,
    bool as_hex) {
    const weig::Tensor tensor = file.tensor(index);
    json::Array shape;
    for (const std::uint64_t dimension : tensor.shape.dimensions())
        shape.add(std::to_string(dimension));
    const bool in_place = mode == weig::Mode::mmap && (!content || content->is_in_place());
    const std::span<const std::byte> bytes = content ? content->elements(tensor) : file.data(index);
    json::Object answer;
    answer.member("name", tensor.name)
        .member("dtype", weig::info(tensor.dtype).name)
        .raw("shape", shape.text())
        .member("nbytes", tensor.size)
        .member("backing", in_place ? "mmap" : "copy")
        .member("align", alignment(bytes.data()));
    if (content && as_hex && tensor.size <= max_data)
        answer.member("data", json::hex(content->canonical(tensor)));
    else if (content)
        answer.member("sha256", content->digest(tensor));
    return answer.text();
}

json::Object accept(const weig::File &file, weig::Mode mode, const Fields &keys) {
    const bool as_hex = has(keys, "data=hex");
    std::optional<Content> content;
    if (as_hex || has(keys, "data=sha256"))
        content.emplace(file);
    json::Array tensors;
    for (std::size_t i = 0; i < file.count(); ++i) {
        if (file.find(file.name(i)) != i)
            throw std::logic_error("a name does not lead to its record");
        tensors.add(tensor_answer(file, i, mode, content, as_hex));
    }
    file.check_unmodified();
    return json::Object()
        .member("status", "accepted")
        .member("byte_order", file.byte_order() == weig::ByteOrder::big ? "big" : "little")
        .member("count", file.count())
        .raw("tensors", tensors.text());
}

json::Object load(const std::string &path, const Fields &keys) try {
    const weig::Mode mode = has(keys, "via=read") ? weig::Mode::read : weig::Mode::mmap;
    const weig::File file = weig::File::open(path, mode);
    if (has(keys, "level=deep"))
        file.verify();
    return accept(file, mode, keys);
} catch (const weig::Error &error) {
    json::Object answer;
    answer.member("status", error.code() == weig::Code::unsupported ? "unsupported" : "rejected")
        .member("error", weig::to_string(error.code()))
        .member("message", error.what());
    if (!error.field().empty())
        answer.member("field", error.field());
    return answer;
} catch (const std::bad_alloc &) { // of the answer itself
    return json::Object()
        .member("status", "rejected")
        .member("error", weig::to_string(weig::Code::too_large))
        .member("message", "not enough memory for the answer");
} catch (const std::exception &error) {
    return json::Object().member("status", "internal").member("message", error.what());
}

std::string answer(std::string_view line) {
    const Fields fields = split(line);
    if (fields[0] == "hello")
        return hello();
    json::Object result;
    if (fields[0] != "load" || fields.size() < 3)
        result.member("status", "unsupported");
    else
        result = load(std::string(fields[2]), {fields.begin() + 3, fields.end()});
    return result.member("id", fields.size() > 1 ? fields[1] : "").text();
}

} // namespace

int main() {
    for (std::string line; std::cout && std::getline(std::cin, line);)
        std::cout << answer(line) << '\n' << std::flush;
    return std::cout ? EXIT_SUCCESS : EXIT_FAILURE;
}
