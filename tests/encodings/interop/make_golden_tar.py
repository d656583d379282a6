#!/usr/bin/env python3
"""Write the golden tar archives of tests/encodings/data/tar: python3 tests/encodings/interop/make_golden_tar.py FOLDER

By Python's tarfile and by GNU tar, each from the same files. README.md of that folder says what is in them.
"""

import gzip
import io
import pathlib
import subprocess
import sys
import tarfile
import tempfile

LONG = "folder/" + "long" * 20 + "/" + "name" * 20 + ".dat"  # fits ustar in two parts
LONGER = "folder/" + "x" * 120  # does not
FILES = {"graph.nnef": b"version 1.0;\n", "folder/weights.dat": bytes(range(256)) * 5, "empty": b"",
         "block": b"b" * 512}


def write(path, files, **options):
    with tarfile.open(path, "w", **options) as archive:
        folder = tarfile.TarInfo("folder")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(folder)
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 1700000000
            info.uname = info.gname = "user"
            archive.addfile(info, io.BytesIO(content))


def small(path):
    """Without the padding to a record of 20 blocks, but for 2 blocks of zeros and one more."""
    content = path.read_bytes()
    end = len(content.rstrip(b"\0"))
    path.write_bytes(content[:(end + 511) // 512 * 512 + 3 * 512])


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    long, longer = {LONG: b"long"}, {LONGER: b"longer"}
    unicode = {"\u65e5\u672c\u8a9e": b"unicode"}
    write(out / "python_ustar.tar", FILES | long | unicode, format=tarfile.USTAR_FORMAT)
    write(out / "python_pax.tar", FILES | long | longer | unicode, format=tarfile.PAX_FORMAT)
    write(out / "python_gnu.tar", FILES | long | longer | unicode, format=tarfile.GNU_FORMAT)
    write(out / "python_comment.tar", FILES, format=tarfile.PAX_FORMAT, pax_headers={"comment": "for all"})
    plain = (out / "python_pax.tar").read_bytes()
    (out / "python_pax.tgz").write_bytes(gzip.compress(plain, mtime=0))
    (out / "python_members.tgz").write_bytes(gzip.compress(plain[:700], mtime=0) + gzip.compress(plain[700:], mtime=0))

    with tempfile.TemporaryDirectory() as work:
        for name, content in (FILES | long | longer).items():
            path = pathlib.Path(work, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        for kind, files in {"v7": list(FILES), "oldgnu": ["."], "gnu": ["."], "posix": ["."],
                            "ustar": list(FILES) + [LONG]}.items():
            # What would be of the time and number of this run.
            pax = ["--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime"] if kind == "posix" else []
            subprocess.run(["tar", "-c", "-f", out.absolute() / f"tar_{kind}.tar", f"--format={kind}", "--sort=name", *pax,
                            "--owner=user:1", "--group=user:1", "--mtime=@1700000000", "--mode=644", *files],
                           cwd=work, check=True)
    for path in sorted(out.glob("*.tar")):
        if path.name != "python_ustar.tar":  # which stays as it is
            small(path)


main()
