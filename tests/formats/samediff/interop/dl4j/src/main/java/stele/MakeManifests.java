package stele;

import java.io.ObjectOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.nd4j.common.primitives.Pair;

/** MakeManifests OUT_DIR: manifests as the end of an .sdnb file has them, by Java's own serialization. */
public final class MakeManifests {
  private final Path folder;

  private MakeManifests(Path folder) {
    this.folder = folder;
  }

  public static void main(String[] args) throws Exception {
    if (args.length != 1) throw new IllegalArgumentException("MakeManifests OUT_DIR");
    MakeManifests make = new MakeManifests(Paths.get(args[0]));
    Files.createDirectories(make.folder);
    make.all();
  }

  private void write(String name, Map<String, Pair<Long, Long>> manifest) throws Exception {
    try (ObjectOutputStream out = new ObjectOutputStream(Files.newOutputStream(folder.resolve(name + ".bin")))) {
      out.writeObject(manifest);
    }
    List<String> lines = new ArrayList<>();
    manifest.forEach((k, v) -> lines.add(Facts.encode(k) + " " + v.getFirst() + " " + v.getSecond()));
    if (lines.isEmpty()) {
      Files.write(folder.resolve(name + ".txt"), new byte[0]);
    } else {
      Facts.write(folder.resolve(name + ".txt"), lines);
    }
  }

  private void all() throws Exception {
    Map<String, Pair<Long, Long>> manifest = new LinkedHashMap<>();
    write("manifest_empty", manifest);
    manifest.put("w", Pair.of(4096L, 1048576L));
    write("manifest_1", manifest);
    manifest.put("b", Pair.of(1052672L, 2097152L));
    write("manifest_2", manifest);
    manifest.clear();
    long at = 123456;
    for (int i = 0; i < 300; ++i) {
      long length = 1048576 + 4L * (i % 9);
      manifest.put("layer" + i / 2 + (i % 2 == 0 ? "/kernel" : "/bias"), Pair.of(at, length));
      at += length;
    }
    write("manifest_300", manifest);
    // Boxed numbers from -128 to 127 are one object wherever they occur: references in the stream.
    manifest.clear();
    manifest.put("a", Pair.of(32L, 16L));
    manifest.put("b", Pair.of(48L, 16L));
    manifest.put("c", Pair.of(64L, 64L));
    manifest.put("d", Pair.of(127L, 0L));
    manifest.put("e", Pair.of(128L, 128L));
    manifest.put("f", Pair.of(256L, 128L));
    write("manifest_shared_numbers", manifest);
    // One object as the value of two names.
    manifest.clear();
    Pair<Long, Long> pair = Pair.of(4096L, 8192L);
    manifest.put("first", pair);
    manifest.put("second", pair);
    manifest.put("third", Pair.of(pair.getFirst(), 0x7FFFFFFFFFFFFFFFL));
    write("manifest_shared_pairs", manifest);
    // Names: modified UTF-8 has U+0000 as two bytes, and each half of a surrogate pair as three.
    manifest.clear();
    long k = 1000;
    for (String name : new String[] {"", "nul\0within", "größe", "重み", "\uD83D\uDE00", "with blank", "tab\tline\n", "100%",
             "my/param/name", "\uFFFF\u0080\u07FF\u0800"}) {
      manifest.put(name, Pair.of(k, k + 1));
      k += 1000;
    }
    write("manifest_names", manifest);
    // Removed entries leave a table larger than the entries need.
    manifest.clear();
    for (int i = 0; i < 100; ++i) manifest.put("gone" + i, Pair.of(0L, 0L));
    manifest.keySet().removeIf(n -> !n.endsWith("7"));
    write("manifest_sparse_table", manifest);
  }
}
