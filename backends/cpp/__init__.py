"""The C++20 loader (`weig.hpp`), bound with pybind11; written independently of the C one."""
