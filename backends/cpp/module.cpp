// The Python binding: weig.backends._cpp. Batched calls make their objects with Python's C API, one
// pass and no call a tensor.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <array>
#include <optional>
#include <string>

#include "errors.hpp"
#include "layout.hpp"
#include "weig.hpp"

namespace py = pybind11;
using namespace py::literals;

namespace weig {
namespace {

// ---- Small things of Python ----

/// Takes over a new reference, or throws the Python error that came instead of one.
template <class T = py::object> T owned(PyObject *object) {
    if (object == nullptr)
        throw py::error_already_set();
    return py::reinterpret_steal<T>(object);
}

/// Takes back the Python error that was expected; another one (no memory) goes on.
void clear(PyObject *expected) {
    if (!PyErr_ExceptionMatches(expected))
        throw py::error_already_set();
    PyErr_Clear();
}

py::object to_str(std::string_view name) {
    PyObject *const text =
        PyUnicode_DecodeUTF8(name.data(), static_cast<py::ssize_t>(name.size()), nullptr);
    if (text != nullptr)
        return py::reinterpret_steal<py::object>(text);
    clear(PyExc_UnicodeDecodeError);
    throw Error(Code::modified, "a name was overwritten since the file was opened", {}, "OPEN-10");
}

py::object to_int(std::uint64_t number) {
    return owned(PyLong_FromUnsignedLongLong(number));
}

/// A tuple for texts, numbers and tuples of them, which can be in no cycle: the collector need not
/// walk through a hundred thousand of them again and again while they are made (it would let go of
/// them itself later).
py::object new_tuple(std::size_t size) {
    py::object tuple = owned(PyTuple_New(static_cast<py::ssize_t>(size)));
    PyObject_GC_UnTrack(tuple.ptr());
    return tuple;
}

py::object to_tuple(const Shape &shape) {
    py::object tuple = new_tuple(shape.rank());
    py::ssize_t i = 0;
    for (const std::uint64_t dimension : shape.dimensions())
        PyTuple_SET_ITEM(tuple.ptr(), i++, to_int(dimension).release().ptr());
    return tuple;
}

/// name, dtype code, shape, data offset, data size
py::object to_record(const Tensor &tensor) {
    py::object record = new_tuple(5);
    PyTuple_SET_ITEM(record.ptr(), 0, to_str(tensor.name).release().ptr());
    PyTuple_SET_ITEM(
        record.ptr(), 1, to_int(static_cast<std::uint64_t>(tensor.dtype)).release().ptr());
    PyTuple_SET_ITEM(record.ptr(), 2, to_tuple(tensor.shape).release().ptr());
    PyTuple_SET_ITEM(record.ptr(), 3, to_int(tensor.offset).release().ptr());
    PyTuple_SET_ITEM(record.ptr(), 4, to_int(tensor.size).release().ptr());
    return record;
}

/// A list of `count` objects, the i-th made by `make(i)`.
template <class Make> py::object to_list(std::size_t count, Make make) {
    py::object list = owned(PyList_New(static_cast<py::ssize_t>(count)));
    for (std::size_t i = 0; i < count; ++i)
        PyList_SET_ITEM(list.ptr(), static_cast<py::ssize_t>(i), make(i).release().ptr());
    return list;
}

/// What `work` gives; other Python threads run meanwhile.
template <class Work> auto without_gil(Work work) {
    const py::gil_scoped_release released;
    return work();
}

/// The bytes of a path, as os.fsencode gives them.
std::string to_path(const py::str &path) {
    PyObject *const encoded = PyUnicode_EncodeFSDefault(path.ptr());
    if (encoded == nullptr) {
        clear(PyExc_UnicodeEncodeError);
        throw Error(Code::io, "the path cannot be encoded for the file system", {}, "OPEN-11");
    }
    return py::reinterpret_steal<py::bytes>(encoded);
}

// ---- Memory and arrays ----

/// What memoryviews and arrays hold: a read-only buffer that keeps its memory.
struct Block {
    Bytes bytes;

    py::buffer_info buffer() const {
        return {
            reinterpret_cast<const std::uint8_t *>(bytes.view.data()),
            static_cast<py::ssize_t>(bytes.view.size()), true};
    }
};

py::object to_memoryview(Bytes bytes) {
    return owned(PyMemoryView_FromObject(py::cast(Block{std::move(bytes)}).ptr()));
}

/// Makes read-only arrays over one block of memory. The first use imports numpy; a dtype is looked
/// up once.
class ArrayMaker {
  public:
    explicit ArrayMaker(const Bytes &bytes)
        : data_(bytes.view.data()), owner_(py::cast(Block{bytes})),
          numpy_(py::detail::npy_api::get()),
          by_code_(py::module_::import("weig.spec.dtypes").attr("BY_CODE")) {}

    py::object make(const Tensor &tensor, std::uint64_t place) {
        std::array<Py_intptr_t, Shape::max_rank> dimensions;
        std::size_t rank = 0;
        for (const std::uint64_t dimension : tensor.shape.dimensions())
            dimensions[rank++] = to_dimension(dimension);
        constexpr int flags = py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_ |
                              py::detail::npy_api::NPY_ARRAY_ALIGNED_; // and not writeable
        py::object array = owned(numpy_.PyArray_NewFromDescr_(
            numpy_.PyArray_Type_, dtype(tensor.dtype).inc_ref().ptr(), static_cast<int>(rank),
            dimensions.data(), nullptr, const_cast<std::byte *>(data_ + place), flags, nullptr));
        if (numpy_.PyArray_SetBaseObject_(array.ptr(), owner_.inc_ref().ptr()) != 0)
            throw py::error_already_set();
        return array;
    }

  private:
    static Py_intptr_t to_dimension(std::uint64_t dimension) {
        if (dimension > PTRDIFF_MAX) // beside a zero, in 32 bits
            throw Error(Code::unsupported, text("numpy has no dimension of ", dimension, " here"));
        return static_cast<Py_intptr_t>(dimension);
    }

    py::handle dtype(Dtype code) {
        py::object &cached = dtypes_[static_cast<std::size_t>(code)];
        if (!cached)
            cached = by_code_[to_int(static_cast<std::uint64_t>(code))].attr("to_numpy")();
        return cached;
    }

    const std::byte *data_;
    py::object owner_;
    py::detail::npy_api &numpy_;
    py::object by_code_;
    std::array<py::object, weig::dtypes.size()> dtypes_;
};

// ---- weig.backends.interface.Opened ----

class Opened {
  public:
    explicit Opened(File file)
        : byte_order(file.byte_order() == ByteOrder::little ? "little" : "big"),
          count(file.count()), file_size(file.file_size()), file_(std::move(file)) {}

    py::object buffer() const { return to_memoryview(file().bytes()); }

    py::object names() const {
        const File &opened = file();
        return to_list(opened.count(), [&opened](std::size_t i) { return to_str(opened.name(i)); });
    }

    py::ssize_t index(const py::str &name) const {
        const File &opened = file();
        py::ssize_t size = 0;
        const char *const utf8 = PyUnicode_AsUTF8AndSize(name.ptr(), &size);
        if (utf8 == nullptr) { // a lone surrogate is in no name (NAME-4)
            clear(PyExc_UnicodeEncodeError);
            return -1;
        }
        const auto found = opened.find({utf8, static_cast<std::size_t>(size)});
        return found ? static_cast<py::ssize_t>(*found) : -1;
    }

    py::object record(py::ssize_t i) const {
        if (i < 0)
            throw std::out_of_range("no record has a negative index");
        return to_record(file().tensor(static_cast<std::size_t>(i)));
    }

    py::object records() const {
        const File &opened = file();
        return to_list(
            opened.count(), [&opened](std::size_t i) { return to_record(opened.tensor(i)); });
    }

    void verify(const py::object &progress) const {
        const File opened = file(); // a copy: another thread may close this object meanwhile
        const auto report = [&progress](std::uint64_t done, std::uint64_t total) {
            const py::gil_scoped_acquire gil;
            if (PyErr_CheckSignals() != 0)
                throw py::error_already_set();
            if (!progress.is_none())
                progress(done, total);
        };
        without_gil([&] { opened.verify(report); });
    }

    void check_unmodified() const { file().check_unmodified(); }

    void prefetch(bool wait) const {
        const File opened = file();
        without_gil([&] { opened.prefetch(wait); });
    }

    py::object swapped(std::uint64_t offset, std::uint64_t nbytes, unsigned unit) const {
        const File opened = file();
        return to_memoryview(without_gil([&] { return opened.swapped(offset, nbytes, unit); }));
    }

    py::object arrays() const {
        const File opened = file();
        ArrayMaker maker(without_gil([&] { return opened.host_data(); }));
        py::dict result;
        for (std::size_t i = 0; i < opened.count(); ++i) {
            const Tensor tensor = opened.tensor(i);
            const py::object array = maker.make(tensor, tensor.offset - opened.data_offset());
            if (PyDict_SetItem(result.ptr(), to_str(tensor.name).ptr(), array.ptr()) != 0)
                throw py::error_already_set();
        }
        return result;
    }

    void close() { file_.reset(); }

    // Facts that outlive close().
    const py::str byte_order;
    const std::size_t count;
    const std::uint64_t file_size;

  private:
    const File &file() const {
        if (!file_)
            throw Error(Code::closed, "the file is closed");
        return *file_;
    }

    std::optional<File> file_;
};

Opened open_file(const py::str &path, const std::string &mode) {
    if (mode != "mmap" && mode != "read")
        throw std::invalid_argument("the mode must be 'mmap' or 'read'");
    const std::string bytes = to_path(path);
    return Opened(
        without_gil([&] { return File::open(bytes, mode == "mmap" ? Mode::mmap : Mode::read); }));
}

// ---- The module ----

py::object or_none(std::string_view text) {
    return text.empty() ? py::object(py::none()) : py::object(py::str(text.data(), text.size()));
}

void set_weig_error(const Error &error) {
    const py::object type = py::module_::import("weig.spec.errors").attr("WeigError");
    const py::object value = type(
        to_string(error.code()), error.what(), "field"_a = or_none(error.field()),
        "rule"_a = or_none(error.rule()));
    PyErr_SetObject(type.ptr(), value.ptr());
}

void translate(std::exception_ptr thrown) {
    try {
        if (thrown)
            std::rethrow_exception(thrown);
    } catch (const Error &error) {
        set_weig_error(error);
    }
}

/// The tables of this loader, for the test that compares them with weig.spec.
void add_tables(py::module_ &module) {
    py::list codes;
    for (const std::string_view name : code_names)
        codes.append(name);
    module.attr("CODES") = py::tuple(codes);
    py::list rows;
    for (std::size_t code = 0; code < dtypes.size(); ++code)
        rows.append(py::make_tuple(code, dtypes[code].name, dtypes[code].size, dtypes[code].unit));
    module.attr("DTYPES") = py::tuple(rows);
    module.attr("LAYOUT") = py::dict(
        "MAGIC"_a = layout::magic, "VERSION"_a = layout::version, "SENTINEL"_a = layout::sentinel,
        "MAX_NUMBER"_a = layout::max_number, "HEADER_SIZE"_a = layout::header_size,
        "RECORD_SIZE"_a = layout::record_size, "SENTINEL_SIZE"_a = layout::sentinel_size,
        "MIN_FILE_SIZE"_a = layout::min_file_size, "TABLE_ALIGN"_a = layout::table_align,
        "DATA_ALIGN"_a = layout::data_align, "FILE_SIZE_ALIGN"_a = layout::file_size_align,
        "MAX_NAME_BYTES"_a = layout::max_name_bytes, "MAX_RANK"_a = layout::max_rank,
        "MUST_UNDERSTAND"_a = layout::must_understand, "KNOWN_FLAGS"_a = layout::known_flags);
}

} // namespace
} // namespace weig

PYBIND11_MODULE(_cpp, module) {
    using weig::Opened;
    module.doc() = "The C++20 loader; weig.backends.cpp.loader is its door.";
    py::register_local_exception_translator(weig::translate);

    py::class_<weig::Block>(
        module, "Block", py::buffer_protocol(), "Read-only memory with an owner.")
        .def_buffer(&weig::Block::buffer);

    py::class_<Opened>(
        module, "Opened", "A file that has passed level open; see weig.backends.interface.")
        .def_readonly("byte_order", &Opened::byte_order)
        .def_readonly("count", &Opened::count)
        .def_readonly("file_size", &Opened::file_size)
        .def("buffer", &Opened::buffer)
        .def("names", &Opened::names)
        .def("index", &Opened::index, "name"_a)
        .def("record", &Opened::record, "i"_a)
        .def("records", &Opened::records)
        .def("verify", &Opened::verify, "progress"_a)
        .def("check_unmodified", &Opened::check_unmodified)
        .def("prefetch", &Opened::prefetch, "wait"_a)
        .def("swapped", &Opened::swapped, "offset"_a, "nbytes"_a, "unit"_a)
        .def("arrays", &Opened::arrays)
        .def("close", &Opened::close);

    module.def("open", &weig::open_file, "path"_a, "mode"_a);
    weig::add_tables(module);
}
