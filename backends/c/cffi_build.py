"""Builds the binding: the declarations are the marked part of weig.h, so they cannot drift."""

from pathlib import Path

from cffi import FFI

header = Path(__file__).with_name("weig.h").read_text(encoding="utf-8")
declarations = header.split("/* cffi: begin */")[1].split("/* cffi: end */")[0]

ffibuilder = FFI()
ffibuilder.cdef(declarations)
ffibuilder.cdef('extern "Python" int weig_on_progress(void *user, uint64_t done, uint64_t total);')
ffibuilder.set_source("weig.backends._c", '#include "weig.h"')
