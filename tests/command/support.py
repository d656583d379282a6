"""What the tests of the command share: running it, and making files by hand."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
import test_data  # noqa: E402

TESTS = test_data.root()  # with the files of tests/, unpacked
DIGITS = ROOT / "examples" / "data"
DIGITS_ST = DIGITS / "digits.safetensors"
DIGITS_PT = DIGITS / "digits.pth"
FIXTURES = ROOT.parent / "shared" / "fixtures"
STELE = os.environ["STELE"]

# Bytes that a terminal obeys; a newline is none of them.
CONTROL = bytes(set(range(0x20)) - {0x0A}) + b"\x7f"


def data(format):
    """Return the folder of a format's golden files."""
    return TESTS / "formats" / format / "data"


def data_files():
    """Return the paths of all golden files and the folders between them, sorted; tests/products reads those of products."""
    return sorted(path for folder in ("formats/*", "evolution", "encodings") for path in TESTS.glob(f"{folder}/data/**/*")
                  if "products" not in path.parts)


def run(*arguments, **options):
    """Run the command; return its status, standard output and standard error as bytes."""
    options.setdefault("timeout", 240)
    done = subprocess.run([STELE, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, **options)
    assert done.returncode in (0, 1, 2), f"stele {arguments}: status {done.returncode}\n{done.stderr.decode(errors='replace')}"
    assert b"Options::" not in done.stderr and b"stele::" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def succeed(*arguments, **options):
    status, out, err = run(*arguments, **options)
    assert status == 0, f"stele {arguments}: status {status}\n{out.decode()}{err.decode()}"
    return out.decode()


def document(*arguments, status=0, **options):
    """Run with --json; return the document."""
    found, out, err = run(*arguments, "--json", **options)
    assert found == status, f"stele {arguments}: status {found}\n{out.decode()}{err.decode()}"
    return json.loads(out)


DTYPES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1, "BOOL": 1}


def safetensors(path, tensors, metadata=None, size=None):
    """Write tensors {name: (dtype, shape, bytes or None)}; None leaves a hole. `size` truncates or extends the file."""
    header, offset = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, _) in tensors.items():
        count = DTYPES[dtype]
        for extent in shape:
            count *= extent
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + count]}
        offset += count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, (_, _, content) in tensors.items():
            begin, end = header[name]["data_offsets"]
            if content is not None:
                assert len(content) == end - begin
                file.seek(8 + len(text) + begin)
                file.write(content)
        file.truncate(8 + len(text) + offset if size is None else size)
    return path


def floats(*numbers):
    return struct.pack(f"<{len(numbers)}f", *numbers)


class InFolder(unittest.TestCase):
    """A test with an empty folder of its own."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return Path(self.folder.name) / name
