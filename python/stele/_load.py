"""Loads the C++ module."""

import ctypes
import os
import sys


def _load() -> None:
    flags = sys.getdlopenflags()
    # TensorFlow exports protobuf, re2 and zstd to all modules that are loaded after it. (Not always, because functions of
    # a preloaded allocator must come first.)
    foreign = hasattr(ctypes.CDLL(None), "_ZN6google8protobuf11MessageLiteD2Ev")
    try:
        if foreign and hasattr(os, "RTLD_DEEPBIND"):
            sys.setdlopenflags(flags | os.RTLD_DEEPBIND)
        from . import _stele  # noqa: F401
    finally:
        sys.setdlopenflags(flags)


_load()
