package stele;

import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.nd4j.autodiff.samediff.SameDiff;
import org.nd4j.autodiff.samediff.TrainingConfig;
import org.nd4j.autodiff.samediff.internal.SameDiffOp;
import org.nd4j.graph.FlatArray;
import org.nd4j.linalg.api.buffer.DataType;
import org.nd4j.linalg.api.ndarray.INDArray;
import org.nd4j.linalg.dataset.MultiDataSet;
import org.nd4j.linalg.factory.Nd4j;

/**
 * CheckFiles ORIGINALS OURS: every .fb file in OURS, read by DL4J. One that ORIGINALS has too must be the same model, to
 * the bit, and train on alike; any other must be what its .txt says. X.array.fb is one FlatArray.
 */
public final class CheckFiles {
  private final List<String> differences = new ArrayList<>();
  private String note = "";

  public static void main(String[] args) throws Exception {
    if (args.length != 2) throw new IllegalArgumentException("CheckFiles ORIGINALS OURS");
    Path originals = Paths.get(args[0]);
    List<Path> files;
    try (Stream<Path> list = Files.list(Paths.get(args[1]))) {
      files = list.filter(f -> f.toString().endsWith(".fb")).sorted().collect(Collectors.toList());
    }
    PrintStream out = System.out;
    System.setOut(new PrintStream(OutputStream.nullOutputStream()));  // DL4J prints what it differentiates
    int failed = 0;
    for (Path file : files) {
      CheckFiles check = new CheckFiles();
      try {
        check.one(originals.resolve(file.getFileName().toString()), file);
      } catch (Throwable e) {
        check.differences.add(thrown(e));
      }
      boolean bad = !check.differences.isEmpty();
      failed += bad ? 1 : 0;
      String shown = check.differences.stream().limit(5).map(d -> d.length() > 400 ? d.substring(0, 400) + "…" : d)
                         .collect(Collectors.joining("; "));
      out.println((bad ? "DIFFERS " : "ok ") + file.getFileName() + (check.note.isEmpty() ? "" : " (" + check.note + ")")
          + (bad ? ": " + shown : ""));
    }
    out.println(files.size() + " files, " + failed + " differ");
    System.exit(files.isEmpty() || failed > 0 ? 1 : 0);
  }

  static String thrown(Throwable e) {
    StackTraceElement[] at = e.getStackTrace();
    return e + (at.length > 0 ? " at " + at[0] : "") + (e.getCause() != null ? ", by " + e.getCause() : "");
  }

  static Path textOf(Path file) {
    String name = file.getFileName().toString();
    return file.resolveSibling(name.substring(0, name.length() - 3) + ".txt");
  }

  static List<String> lines(Path text) throws IOException {
    return Arrays.stream(new String(Files.readAllBytes(text), StandardCharsets.UTF_8).split("\n"))
        .filter(l -> !l.isEmpty()).collect(Collectors.toList());
  }

  static List<String> only(List<String> lines, String kind) {
    return lines.stream().filter(l -> l.startsWith(kind + " ")).collect(Collectors.toList());
  }

  private void one(Path original, Path file) throws Exception {
    if (file.toString().endsWith(".array.fb")) {
      FlatArray stored = FlatArray.getRootAsFlatArray(ByteBuffer.wrap(Files.readAllBytes(file)));
      String found = Facts.array(Nd4j.createFromFlatArray(stored));
      List<String> expected = only(lines(textOf(file)), "array");
      if (expected.size() != 1) throw new IOException("not one array line in " + textOf(file).getFileName());
      same("array", expected.get(0).split(" ", 3)[2], found);
    } else if (Files.exists(original)) {
      withOriginal(original, file, lines(textOf(original)));
    } else {
      SameDiff ours = SameDiff.load(file.toFile(), true);
      withText(ours, Facts.ops(ours, Facts.stored(file)), lines(textOf(file)));
    }
  }

  private void same(String what, Object expected, Object found) {
    if (!String.valueOf(expected).equals(String.valueOf(found))) {
      differences.add(what + ": expected " + expected + ", found " + found);
    }
  }

  private void sameLines(String what, List<String> expected, List<String> found) {
    TreeSet<String> missing = new TreeSet<>(expected);
    missing.removeAll(found);
    TreeSet<String> more = new TreeSet<>(found);
    more.removeAll(expected);
    if (!missing.isEmpty() || !more.isEmpty()) differences.add(what + ": missing " + missing + ", too many " + more);
    same("number of " + what, expected.size(), found.size());
  }

  private void withOriginal(Path original, Path file, List<String> text) throws Exception {
    SameDiff theirs;
    try {
      theirs = SameDiff.load(original.toFile(), true);
    } catch (Throwable e) {
      note = "DL4J cannot load the original, compared as stored: " + String.valueOf(e.getMessage()).split("\n")[0];
      List<String> expected = Raw.facts(Facts.stored(original));
      sameLines("facts", expected, Raw.facts(Facts.stored(file)));
      same("number of ops", Facts.stored(original).nodesLength(), Facts.stored(file).nodesLength());
      String config = Facts.stored(original).trainingConfig();
      String other = Facts.stored(file).trainingConfig();
      same("training config", config == null ? null : Facts.tree(config), other == null ? null : Facts.tree(other));
      return;
    }
    SameDiff ours = SameDiff.load(file.toFile(), true);
    sameLines("variables", Facts.variables(theirs), Facts.variables(ours));
    sameLines("placeholders", Facts.placeholders(theirs), Facts.placeholders(ours));
    // The .txt has what was saved, which is not always what DL4J reads back of its own file.
    List<String> saved = only(text, "array");
    if (!saved.equals(Facts.arrays(theirs))) note = "DL4J misreads arrays of its own file";
    if (!Facts.arrays(theirs).equals(Facts.arrays(ours))) sameLines("arrays", saved, Facts.arrays(ours));
    sameLines("states", Facts.states(theirs), Facts.states(ours));
    sameLines("state of parameters", updaters(theirs), updaters(ours));
    sameLines("ops", Facts.ops(theirs, Facts.stored(original)), Facts.ops(ours, Facts.stored(file)));
    for (SameDiffOp op : theirs.getOps().values()) {
      SameDiffOp other = ours.getOps().get(op.getName());
      if (other == null) continue;
      same("class of op " + op.getName(), op.getOp().getClass(), other.getOp().getClass());
      same("properties of op " + op.getName(), properties(op), properties(other));
    }
    sameLines("control dependencies", Facts.control(theirs), Facts.control(ours));
    same("loss variables", theirs.getLossVariables(), ours.getLossVariables());
    TrainingConfig config = theirs.getTrainingConfig();
    same("has a training config", config != null, ours.getTrainingConfig() != null);
    if (config != null) same("training config", Facts.tree(config.toJson()), Facts.tree(ours.getTrainingConfig().toJson()));
    Map<String, INDArray> inputs = inputs(text);
    String[] outputs = outputs(text);
    if (outputs.length > 0) {
      Map<String, INDArray> a = theirs.output(inputs, outputs);
      Map<String, INDArray> b = ours.output(inputs, outputs);
      for (String o : outputs) same("output " + o, Facts.array(a.get(o)), Facts.array(b.get(o)));
    }
    if (config == null || !differences.isEmpty()) return;
    try {
      step(theirs, inputs);
    } catch (Throwable e) {
      note = "DL4J cannot train the original: " + thrown(e);
      return;
    }
    step(ours, inputs);
    sameLines("arrays after a step", Facts.arrays(theirs), Facts.arrays(ours));
    sameLines("states after a step", Facts.states(theirs), Facts.states(ours));
    same("config after a step", Facts.tree(theirs.getTrainingConfig().toJson()), Facts.tree(ours.getTrainingConfig().toJson()));
  }

  private static List<String> updaters(SameDiff graph) {
    return graph.getUpdaterMap() == null ? new ArrayList<>() : new ArrayList<>(new TreeSet<>(graph.getUpdaterMap().keySet()));
  }

  private static String properties(SameDiffOp op) {
    StringBuilder out = new StringBuilder();
    for (Map.Entry<String, Object> e : new java.util.TreeMap<>(op.getOp().propertiesForFunction()).entrySet()) {
      Object v = e.getValue();
      String text = v instanceof Object[] ? Arrays.deepToString((Object[]) v)
          : v instanceof int[] ? Arrays.toString((int[]) v)
          : v instanceof long[] ? Arrays.toString((long[]) v)
          : v instanceof double[] ? Arrays.toString((double[]) v)
          : v instanceof boolean[] ? Arrays.toString((boolean[]) v) : String.valueOf(v);
      out.append(e.getKey()).append('=').append(text).append(' ');
    }
    return out.toString();
  }

  /** As one step of fit() on the inputs of the .txt, by the mapping that the config has. */
  static void step(SameDiff graph, Map<String, INDArray> inputs) {
    TrainingConfig config = graph.getTrainingConfig();
    INDArray[] features = config.getDataSetFeatureMapping().stream().map(n -> inputs.get(n).dup()).toArray(INDArray[]::new);
    INDArray[] labels = config.getDataSetLabelMapping().stream().map(n -> inputs.get(n).dup()).toArray(INDArray[]::new);
    graph.fit(new MultiDataSet(features, labels));
  }

  static Map<String, INDArray> inputs(List<String> text) {
    Map<String, INDArray> out = new LinkedHashMap<>();
    for (String line : only(text, "input")) {
      String[] t = line.split(" ");
      out.put(Facts.decode(t[1]), Facts.array(DataType.valueOf(t[2]), t[3], t[4]));
    }
    return out;
  }

  static String[] outputs(List<String> text) {
    return only(text, "output").stream().map(l -> Facts.decode(l.split(" ")[1])).toArray(String[]::new);
  }

  private void withText(SameDiff ours, List<String> ops, List<String> text) throws Exception {
    note = "against its .txt";
    if (only(text, "variable").isEmpty() && only(text, "array").isEmpty()) differences.add("the .txt has no variable");
    if (!only(text, "variable").isEmpty()) sameLines("variables", only(text, "variable"), Facts.variables(ours));
    if (!only(text, "placeholder").isEmpty()) sameLines("placeholders", only(text, "placeholder"), Facts.placeholders(ours));
    sameLines("arrays", only(text, "array"), Facts.arrays(ours));
    sameLines("states", only(text, "state"), Facts.states(ours));
    if (!only(text, "op").isEmpty()) sameLines("ops", only(text, "op"), ops);
    if (!only(text, "control").isEmpty()) sameLines("control dependencies", only(text, "control"), Facts.control(ours));
    sameLines("loss variables", only(text, "loss"), only(Facts.rest(ours), "loss"));
    List<String> configs = only(text, "config");
    same("has a training config", !configs.isEmpty(), ours.getTrainingConfig() != null);
    if (!configs.isEmpty() && ours.getTrainingConfig() != null) {
      same("training config", Facts.tree(configs.get(0).substring(7)), Facts.tree(ours.getTrainingConfig().toJson()));
    }
    String[] outputs = outputs(text);
    Map<String, INDArray> inputs = inputs(text);
    if (outputs.length > 0) {
      Map<String, INDArray> found = ours.output(inputs, outputs);
      for (String line : only(text, "output")) {
        String[] t = line.split(" ");
        INDArray a = found.get(Facts.decode(t[1]));
        same("shape of output " + t[1], t[2], Facts.shape(a.shape()));
        near("output " + t[1], a.dataType(), Facts.unhex(t[3]), Facts.bytes(a));
      }
    }
    if (ours.getTrainingConfig() != null && inputs.size() >= 2) step(ours, inputs);
  }

  private void near(String what, DataType dtype, byte[] expected, byte[] found) {
    if (dtype != DataType.FLOAT && dtype != DataType.DOUBLE || expected.length != found.length) {
      same(what, Facts.hex(expected), Facts.hex(found));
      return;
    }
    ByteBuffer a = ByteBuffer.wrap(expected).order(ByteOrder.LITTLE_ENDIAN);
    ByteBuffer b = ByteBuffer.wrap(found).order(ByteOrder.LITTLE_ENDIAN);
    while (a.hasRemaining()) {
      double x = dtype == DataType.FLOAT ? a.getFloat() : a.getDouble();
      double y = dtype == DataType.FLOAT ? b.getFloat() : b.getDouble();
      if (!(Math.abs(x - y) <= 1e-6) && Double.compare(x, y) != 0) {
        differences.add(what + ": expected " + x + ", found " + y);
        return;
      }
    }
  }
}
