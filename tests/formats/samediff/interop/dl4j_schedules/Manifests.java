// Writes manifests of SDNB files, as Java's ObjectOutputStream does; reads such that stele wrote.
import java.io.*;
import java.nio.file.*;
import java.util.*;
import org.nd4j.common.primitives.Pair;

public class Manifests {
  static byte[] bytes(Object map) throws IOException {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try (ObjectOutputStream objects = new ObjectOutputStream(out)) {
      objects.writeObject(map);
    }
    return out.toByteArray();
  }

  // Offsets as a writer gets them: one array behind another. `cached`: Long.valueOf, which shares -128 to 127.
  static Map<String, Pair<Long, Long>> map(int n, long from, long step, boolean cached, Map<String, Pair<Long, Long>> map) {
    for (int i = 0; i < n; i++) {
      long offset = from + i * step, length = step;
      map.put("layer." + i + ".weight", cached ? new Pair<>(Long.valueOf(offset), Long.valueOf(length))
          : new Pair<>(new Long(offset), new Long(length)));
    }
    return map;
  }

  static LinkedHashMap<String, Pair<Long, Long>> linked() {
    return new LinkedHashMap<>();
  }

  static Map<String, byte[]> all() throws IOException {
    Map<String, byte[]> all = new LinkedHashMap<>();
    for (int n : new int[] {0, 1, 2, 12, 13, 24, 25, 300}) {
      all.put("entries_" + n, bytes(map(n, 4096, 1 << 20, true, linked())));
    }
    all.put("shared_longs", bytes(map(3, 32, 7, true, linked())));
    all.put("own_longs", bytes(map(3, 32, 7, false, linked())));
    all.put("hash_map", bytes(map(3, 4096, 7, true, new HashMap<>())));
    all.put("tree_map", bytes(map(3, 4096, 7, true, new TreeMap<>())));
    Map<String, Pair<Long, Long>> names = linked();
    String[] odd = {"", "a/b c", "\u0000", "\u00e9\u07ff", "\u0800\uffff", "\ud83d\ude00", "x\u0000y"};
    for (String name : odd) {
      names.put(name, new Pair<>(names.size() * 1000L + 1000, 1000L));
    }
    all.put("names", bytes(names));
    for (int n : new int[] {65535, 65536}) {
      Map<String, Pair<Long, Long>> one = linked();
      one.put("\u00e9".repeat((n - 1) / 2) + "x".repeat(n - (n - 1) / 2 * 2), new Pair<>(1000L, 2000L));
      all.put("name_of_" + n, bytes(one));
    }
    // One String object as a name cannot stand twice, but a name can be the type string of Pair's fields.
    Map<String, Pair<Long, Long>> type = linked();
    type.put("key", new Pair<>(1000L, 2000L));
    type.put("Ljava/lang/Object;", new Pair<>(3000L, 2000L));
    all.put("type_name", bytes(type));
    return all;
  }

  @SuppressWarnings("unchecked")
  public static void main(String[] args) throws Exception {
    Path folder = Path.of(args[1]);
    if (args[0].equals("write")) {
      Files.createDirectories(folder);
      for (Map.Entry<String, byte[]> one : all().entrySet()) {
        if (args.length > 2 || !one.getKey().startsWith("name_of_")) Files.write(folder.resolve(one.getKey() + ".ser"), one.getValue());
      }
      return;
    }
    for (File file : folder.toFile().listFiles((d, n) -> n.endsWith(".ser"))) {  // read
      byte[] data = Files.readAllBytes(file.toPath());
      Map<String, Pair<Long, Long>> map = (LinkedHashMap<String, Pair<Long, Long>>) new ObjectInputStream(new ByteArrayInputStream(data)).readObject();
      long sum = 0;
      for (Pair<Long, Long> pair : map.values()) sum += pair.getFirst() * 3 + pair.getSecond();
      System.out.println(file.getName() + " " + map.size() + " " + sum);
    }
  }
}
