#!/usr/bin/env bash
# Writes the golden zip files (tests/encodings/data/zip/README.md): tests/encodings/interop/make_golden_zip.sh FOLDER
set -euo pipefail
mkdir -p "$1"
out=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export TZ=UTC

python3 - "$out" <<'EOF'
import io, sys, zipfile

def info(name, method=zipfile.ZIP_STORED):
    info = zipfile.ZipInfo(name)  # 1980-01-01
    info.compress_type = method
    return info

line = b"0123456789" * 30
with zipfile.ZipFile(sys.argv[1] + "/python.zip", "w") as file:
    file.writestr(info("folder/"), b"")
    file.writestr(info("folder/stored.txt"), b"some bytes")
    file.writestr(info("folder/deflated.txt", zipfile.ZIP_DEFLATED), line)
    file.writestr(info("\u65e5\u672c\u8a9e"), b"unicode")
    file.writestr(info("empty"), b"")
    file.comment = b"a comment"

with zipfile.ZipFile(sys.argv[1] + "/python_zip64.zip", "w") as file:
    for name, method in ("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED):
        with file.open(info(name, method), "w", force_zip64=True) as to:
            to.write(line)

class Pipe(io.RawIOBase):  # which cannot go back: sizes stand behind the data
    def __init__(self, to):
        self.to = to
    def writable(self):
        return True
    def write(self, data):
        return self.to.write(data)

with open(sys.argv[1] + "/python_stream.zip", "wb") as raw, zipfile.ZipFile(Pipe(raw), "w") as file:
    file.writestr(info("stored"), line)
    with file.open(info("deflated", zipfile.ZIP_DEFLATED), "w", force_zip64=True) as to:
        to.write(line)
EOF

mkdir folder
printf 'some bytes' >folder/stored.txt
printf '0123456789%.0s' {1..30} >folder/deflated.txt
touch -d 2001-02-03T04:05:06 folder/* folder
zip -q -r -z "$out/infozip.zip" folder <<<"a comment" >/dev/null
zip -q -fd - folder/stored.txt folder/deflated.txt | cat >"$out/infozip_descriptors.zip"
printf '0123456789%.0s' {1..30} | zip -q - - | cat >"$out/infozip_pipe.zip"

cat >Make.java <<'EOF'
import java.io.FileOutputStream;
import java.util.zip.*;

class Make {
  public static void main(String[] to) throws Exception {
    byte[] line = "0123456789".repeat(30).getBytes("UTF-8");
    try (ZipOutputStream out = new ZipOutputStream(new FileOutputStream(to[0]))) {
      begin(out, "folder/");
      begin(out, "folder/deflated.txt");
      out.write(line);
      ZipEntry stored = new ZipEntry("folder/stored.txt");
      CRC32 crc = new CRC32();
      crc.update(line);
      stored.setMethod(ZipEntry.STORED);
      stored.setSize(line.length);
      stored.setCrc(crc.getValue());
      stored.setTimeLocal(java.time.LocalDateTime.of(2001, 2, 3, 4, 5, 6));
      out.putNextEntry(stored);
      out.write(line);
      begin(out, "\u65e5\u672c\u8a9e");
      begin(out, "empty");
      out.setComment("a comment");
    }
  }
  static void begin(ZipOutputStream out, String name) throws Exception {
    ZipEntry entry = new ZipEntry(name);
    entry.setTimeLocal(java.time.LocalDateTime.of(2001, 2, 3, 4, 5, 6));
    out.putNextEntry(entry);
  }
}
EOF
java Make.java "$out/java.zip"
