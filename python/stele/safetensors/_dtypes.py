"""Dtypes of the format."""

from __future__ import annotations

import numpy as np

from .. import _dtypes
from ._errors import SafetensorError, error_of

# The names in a file's header, by those of the library.
CODES = {
    "bool": "BOOL",
    "f4_e2m1": "F4",
    "f6_e2m3": "F6_E2M3",
    "f6_e3m2": "F6_E3M2",
    "u8": "U8",
    "i8": "I8",
    "f8_e5m2": "F8_E5M2",
    "f8_e4m3fn": "F8_E4M3",
    "f8_e8m0": "F8_E8M0",
    "f8_e4m3fnuz": "F8_E4M3FNUZ",
    "f8_e5m2fnuz": "F8_E5M2FNUZ",
    "i16": "I16",
    "u16": "U16",
    "f16": "F16",
    "bf16": "BF16",
    "i32": "I32",
    "u32": "U32",
    "f32": "F32",
    "c64": "C64",
    "f64": "F64",
    "i64": "I64",
    "u64": "U64",
}
BITS = {
    **{name: 8 * np.dtype(_dtypes.NUMPY[name]).itemsize for name in CODES if name in _dtypes.NUMPY},
    **{name: 16 if name == "bf16" else 8 for name in _dtypes.ML_DTYPES},
    "f4_e2m1": 4,
    "f6_e2m3": 6,
    "f6_e3m2": 6,
}
# Dtypes whose elements are not whole bytes.
PACKED = frozenset(name for name, bits in BITS.items() if bits % 8)
# The library's names by those that TensorSpec takes: of NumPy and torch.
SPEC_DTYPES = {
    **{other: name for name, other in _dtypes.TORCH.items() if name in CODES},
    "float4_e2m1fn_x2": "f4_e2m1",
}


def unknown_dtype(dtype: object, path: str = "") -> SafetensorError:
    error = error_of(f'{path + ": " if path else ""}Unknown dtype "{dtype}". Supported dtypes: {", ".join(SPEC_DTYPES)}')
    error.code, error.path, error.found = "not_representable", path, str(dtype)
    return error
