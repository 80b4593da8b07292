/// \file
/// The C++ library behind the adapter protocol (conformance/PROTOCOL.md): reads requests from
/// standard input, answers each with one line of JSON, and ends with the input.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
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

/// Whether each key of a request that is known has a value that is.
bool all_known(const Fields &fields) {
    constexpr std::array<std::string_view, 7> known = {
        "data=none", "data=sha256", "data=hex", "level=open", "level=deep", "via=mmap", "via=read"};
    return std::ranges::all_of(fields, [&](std::string_view field) {
        const bool is_ours =
            field.starts_with("data=") || field.starts_with("level=") || field.starts_with("via=");
        return !is_ours || std::ranges::find(known, field) != known.end();
    });
}

std::string hello() {
    json::Array profiles;
    for (const std::string_view profile :
         {"core", "data", "big-endian", "deep", "mmap", "held-mmap", "held-read"})
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
    return json::Object()
        .member("status", "accepted")
        .member("byte_order", file.byte_order() == weig::ByteOrder::big ? "big" : "little")
        .member("count", file.count())
        .raw("tensors", tensors.text());
}

/// A file that was loaded, and how.
struct Loaded {
    weig::File file;
    weig::Mode mode;
};

/// Answers requests; keeps the file of the last `open`.
class Session {
  public:
    std::string answer(std::string_view line);

  private:
    json::Object load(const Fields &fields, bool hold);
    json::Object dispatch(const Fields &fields);

    std::optional<Loaded> held_;
};

json::Object Session::load(const Fields &fields, bool hold) {
    held_.reset();
    const Fields keys(fields.begin() + 3, fields.end());
    const weig::Mode mode = has(keys, "via=read") ? weig::Mode::read : weig::Mode::mmap;
    Loaded loaded{weig::File::open(std::string(fields[2]), mode), mode};
    if (has(keys, "level=deep"))
        loaded.file.verify();
    json::Object answer = accept(loaded.file, mode, keys);
    loaded.file.check_unmodified();
    if (hold)
        held_ = std::move(loaded);
    return answer;
}

json::Object Session::dispatch(const Fields &fields) try {
    const std::string_view verb = fields[0];
    if (!all_known(fields))
        return json::Object().member("status", "unsupported");
    if ((verb == "load" || verb == "open") && fields.size() >= 3)
        return load(fields, verb == "open");
    if (verb == "check" && held_) {
        held_->file.check_unmodified();
        return json::Object().member("status", "unmodified");
    }
    if (verb == "access" && held_)
        return accept(held_->file, held_->mode, fields);
    return json::Object().member("status", "unsupported");
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

std::string Session::answer(std::string_view line) {
    const Fields fields = split(line);
    if (fields[0] == "hello")
        return hello();
    return dispatch(fields).member("id", fields.size() > 1 ? fields[1] : "").text();
}

} // namespace

int main() {
    Session session;
    for (std::string line; std::cout && std::getline(std::cin, line);)
        std::cout << session.answer(line) << '\n' << std::flush;
    return std::cout ? EXIT_SUCCESS : EXIT_FAILURE;
}
