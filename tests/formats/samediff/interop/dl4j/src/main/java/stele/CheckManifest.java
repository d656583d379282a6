package stele;

import java.io.ObjectInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.nd4j.common.primitives.Pair;

/** CheckManifest FILE.bin FILE.txt…: a manifest that Java reads as it reads that of an .sdnb file must be what FILE.txt says. */
public final class CheckManifest {
  public static void main(String[] args) throws Exception {
    if (args.length == 0 || args.length % 2 != 0) throw new IllegalArgumentException("CheckManifest FILE.bin FILE.txt ...");
    int failed = 0;
    for (int i = 0; i < args.length; i += 2) {
      String difference;
      try {
        difference = compare(Paths.get(args[i]), CheckFiles.lines(Paths.get(args[i + 1])));
      } catch (Throwable e) {
        difference = CheckFiles.thrown(e);
      }
      failed += difference.isEmpty() ? 0 : 1;
      System.out.println((difference.isEmpty() ? "ok " : "DIFFERS ") + Paths.get(args[i]).getFileName()
          + (difference.isEmpty() ? "" : ": " + difference));
    }
    System.exit(failed == 0 ? 0 : 1);
  }

  @SuppressWarnings("unchecked")
  private static String compare(Path file, List<String> expected) throws Exception {
    List<String> found = new ArrayList<>();
    try (ObjectInputStream in = new ObjectInputStream(Files.newInputStream(file))) {
      Object read = in.readObject();
      if (read.getClass() != LinkedHashMap.class) return "a " + read.getClass();
      for (Map.Entry<String, Pair<Long, Long>> e : ((Map<String, Pair<Long, Long>>) read).entrySet()) {
        long offset = e.getValue().getFirst();
        long length = e.getValue().getSecond();
        found.add(Facts.encode(e.getKey()) + " " + offset + " " + length);
      }
      if (in.read() >= 0) return "bytes after the map";
    }
    return found.equals(expected) ? "" : "expected " + expected + ", found " + found;
  }
}
