"""The dtype table (SPEC.md, section 8): the one place that knows a code, a name or a size."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

__all__ = ["BY_CODE", "BY_NAME", "DTYPES", "Dtype"]


class Dtype(NamedTuple):
    """One element type.

    ``size`` is in bytes. ``unit`` is the number of bytes that a change of byte order reverses
    together (C64 is two F32, so 4). ``numpy`` names the type in numpy, or in ml_dtypes where
    ``ml`` is true. ``dlpack`` is the type code of DLPack 1.1.
    """

    code: int
    name: str
    size: int
    unit: int
    numpy: str
    ml: bool
    dlpack: int

    def to_numpy(self) -> np.dtype:
        """The numpy dtype in the host's byte order (imports numpy, and ml_dtypes where needed)."""
        import numpy as np

        if not self.ml:
            return np.dtype(self.numpy)
        import ml_dtypes

        result: np.dtype = np.dtype(getattr(ml_dtypes, self.numpy))
        return result


DTYPES = (
    Dtype(0, "F32", 4, 4, "float32", False, 2),
    Dtype(1, "F16", 2, 2, "float16", False, 2),
    Dtype(2, "BF16", 2, 2, "bfloat16", True, 4),
    Dtype(3, "I8", 1, 1, "int8", False, 0),
    Dtype(4, "U8", 1, 1, "uint8", False, 1),
    Dtype(5, "I32", 4, 4, "int32", False, 0),
    Dtype(6, "F64", 8, 8, "float64", False, 2),
    Dtype(7, "I64", 8, 8, "int64", False, 0),
    Dtype(8, "I16", 2, 2, "int16", False, 0),
    Dtype(9, "U16", 2, 2, "uint16", False, 1),
    Dtype(10, "U32", 4, 4, "uint32", False, 1),
    Dtype(11, "U64", 8, 8, "uint64", False, 1),
    Dtype(12, "BOOL", 1, 1, "bool", False, 6),
    Dtype(13, "F8_E4M3", 1, 1, "float8_e4m3fn", True, 10),
    Dtype(14, "F8_E5M2", 1, 1, "float8_e5m2", True, 12),
    Dtype(15, "F8_E8M0", 1, 1, "float8_e8m0fnu", True, 14),
    Dtype(16, "C64", 8, 4, "complex64", False, 5),
    Dtype(17, "F8_E4M3FNUZ", 1, 1, "float8_e4m3fnuz", True, 11),
    Dtype(18, "F8_E5M2FNUZ", 1, 1, "float8_e5m2fnuz", True, 13),
)

BY_CODE = {dtype.code: dtype for dtype in DTYPES}
BY_NAME = {dtype.name: dtype for dtype in DTYPES}
