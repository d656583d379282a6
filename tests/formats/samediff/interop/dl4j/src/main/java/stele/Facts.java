package stele;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.nd4j.autodiff.samediff.SDVariable;
import org.nd4j.autodiff.samediff.SameDiff;
import org.nd4j.autodiff.samediff.VariableType;
import org.nd4j.autodiff.samediff.internal.SameDiffOp;
import org.nd4j.graph.FlatGraph;
import org.nd4j.graph.FlatNode;
import org.nd4j.linalg.api.buffer.DataType;
import org.nd4j.linalg.cpu.nativecpu.buffer.Utf8Buffer;
import org.nd4j.linalg.api.ndarray.INDArray;
import org.nd4j.linalg.factory.Nd4j;
import org.nd4j.linalg.learning.GradientUpdater;
import org.nd4j.shade.jackson.databind.JsonNode;
import org.nd4j.shade.jackson.databind.ObjectMapper;

/** What is in a graph as lines of text, one fact a line, for a reader that has no DL4J. */
final class Facts {
  private Facts() {}

  static String encode(String name) {
    if (name.isEmpty()) return "%";
    StringBuilder out = new StringBuilder();
    for (int at = 0; at < name.length(); ) {
      int c = name.codePointAt(at);
      at += Character.charCount(c);
      if (c <= ' ' || c == 127 || c == '%' || c == ',') {
        out.append(String.format("%%%02X", c));
      } else {
        out.appendCodePoint(c);
      }
    }
    return out.toString();
  }

  static String decode(String token) {
    if (token.equals("%")) return "";
    StringBuilder out = new StringBuilder();
    for (int i = 0; i < token.length(); ++i) {
      if (token.charAt(i) == '%') {
        out.append((char) Integer.parseInt(token.substring(i + 1, i + 3), 16));
        i += 2;
      } else {
        out.append(token.charAt(i));
      }
    }
    return out.toString();
  }

  static String encode(List<String> names) {
    return names == null ? "" : names.stream().map(Facts::encode).collect(Collectors.joining(","));
  }

  static String hex(byte[] bytes) {
    if (bytes.length == 0) return "-";
    StringBuilder out = new StringBuilder(2 * bytes.length);
    for (byte b : bytes) out.append(String.format("%02x", b));
    return out.toString();
  }

  static byte[] unhex(String hex) {
    if (hex.equals("-")) return new byte[0];
    byte[] out = new byte[hex.length() / 2];
    for (int i = 0; i < out.length; ++i) out[i] = (byte) Integer.parseInt(hex.substring(2 * i, 2 * i + 2), 16);
    return out;
  }

  static String shape(long[] dims) {
    if (dims.length == 0) return "scalar";
    StringBuilder out = new StringBuilder();
    for (long d : dims) out.append(out.length() == 0 ? "" : "x").append(d);
    return out.toString();
  }

  static long[] unshape(String shape) {
    if (shape.equals("scalar")) return new long[0];
    String[] parts = shape.split("x");
    long[] out = new long[parts.length];
    for (int i = 0; i < out.length; ++i) out[i] = Long.parseLong(parts[i]);
    return out;
  }

  /** Elements in C order, little-endian, whatever order and strides the array has. */
  static byte[] bytes(INDArray array) {
    if (ByteOrder.nativeOrder() != ByteOrder.LITTLE_ENDIAN) throw new IllegalStateException("little-endian only");
    if (array.isEmpty()) return new byte[0];
    INDArray dense = array.dup('c');
    byte[] out = new byte[Math.toIntExact(dense.length() * dense.dataType().width())];
    ByteBuffer raw = dense.data().asNio();
    raw.get(out);
    return out;
  }

  static INDArray array(DataType dtype, String shape, String hex) {
    INDArray out = Nd4j.createUninitialized(dtype, unshape(shape), 'c');
    out.data().asNio().put(unhex(hex));
    return out;
  }

  /** The bytes of a string as the buffer has them; getString() would hide bytes that are no UTF-8. */
  static byte[] text(INDArray strings, long at) {
    Utf8Buffer buffer = (Utf8Buffer) strings.data();
    ByteBuffer raw = buffer.pointer().asByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
    int head = Math.toIntExact(8 * (strings.length() + 1));
    int from = Math.toIntExact(raw.getLong((int) (8 * at)));
    byte[] out = new byte[Math.toIntExact(raw.getLong((int) (8 * at + 8))) - from];
    for (int i = 0; i < out.length; ++i) out[i] = raw.get(head + from + i);
    return out;
  }

  static String elements(INDArray array) {
    if (array.dataType() != DataType.UTF8) return hex(bytes(array));
    List<String> all = new ArrayList<>();
    for (long i = 0; i < array.length() && !array.isEmpty(); ++i) {
      byte[] text = text(array, i);
      all.add(text.length == 0 ? "" : hex(text));
    }
    String joined = String.join(",", all);
    return joined.isEmpty() ? "-" : joined;
  }

  static String array(INDArray array) {
    return array.dataType() + " " + shape(array.shape()) + " " + elements(array);
  }

  static JsonNode tree(String json) throws IOException {
    return new ObjectMapper().readTree(json);
  }

  static List<String> variables(SameDiff graph) {
    List<String> out = new ArrayList<>();
    for (SDVariable v : graph.variables()) {
      out.add("variable " + encode(v.name()) + " " + v.getVariableType() + " " + v.dataType());
    }
    return out;
  }

  static List<String> placeholders(SameDiff graph) {
    List<String> out = new ArrayList<>();
    for (SDVariable v : graph.variables()) {
      if (v.getVariableType() != VariableType.PLACEHOLDER) continue;
      long[] shape = v.placeholderShape();
      out.add("placeholder " + encode(v.name()) + " " + (shape == null ? "unknown" : shape(shape)));
    }
    return out;
  }

  static List<String> arrays(SameDiff graph) {
    List<String> out = new ArrayList<>();
    for (SDVariable v : graph.variables()) {
      if (v.getVariableType() != VariableType.VARIABLE && v.getVariableType() != VariableType.CONSTANT) continue;
      INDArray array = v.getArr();
      if (array != null) out.add("array " + encode(v.name()) + " " + array(array));
    }
    return out;
  }

  static List<String> states(SameDiff graph) {
    List<String> out = new ArrayList<>();
    if (graph.getUpdaterMap() == null) return out;
    for (Map.Entry<String, GradientUpdater> e : new TreeMap<>(graph.getUpdaterMap()).entrySet()) {
      @SuppressWarnings("unchecked")
      Map<String, INDArray> state = e.getValue().getState();
      if (state == null) continue;
      for (Map.Entry<String, INDArray> s : new TreeMap<>(state).entrySet()) {
        out.add("state " + encode(e.getKey()) + " " + s.getKey() + " " + array(s.getValue()));
      }
    }
    return out;
  }

  /** Ops with the numbers that the file has for them. */
  static List<String> ops(SameDiff graph, FlatGraph stored) {
    List<String> out = new ArrayList<>();
    for (int i = 0; i < stored.nodesLength(); ++i) {
      FlatNode node = stored.nodes(i);
      SameDiffOp op = graph.getOps().get(node.name());
      out.add("op " + encode(node.name()) + " " + encode(node.opName()) + " " + node.opType() + " " + node.opNum() + " in="
          + encode(op.getInputsToOp()) + " out=" + encode(op.getOutputsOfOp()));
    }
    return out;
  }

  static List<String> control(SameDiff graph) {
    List<String> out = new ArrayList<>();
    for (SameDiffOp op : graph.getOps().values()) {
      String name = "control op " + encode(op.getName());
      if (op.getControlDeps() != null) out.add(name + " after-ops " + encode(op.getControlDeps()));
      if (op.getVarControlDeps() != null) out.add(name + " after-variables " + encode(op.getVarControlDeps()));
      if (op.getControlDepFor() != null) out.add(name + " before-ops " + encode(op.getControlDepFor()));
    }
    graph.getVariables().values().forEach(v -> {
      String name = "control variable " + encode(v.getName());
      if (v.getControlDeps() != null) out.add(name + " after-variables " + encode(v.getControlDeps()));
      if (v.getControlDepsForOp() != null) out.add(name + " before-ops " + encode(v.getControlDepsForOp()));
      if (v.getControlDepsForVar() != null) out.add(name + " before-variables " + encode(v.getControlDepsForVar()));
    });
    return out;
  }

  static List<String> rest(SameDiff graph) throws IOException {
    List<String> out = new ArrayList<>();
    for (String name : graph.getLossVariables()) out.add("loss " + encode(name));
    if (graph.getTrainingConfig() != null) out.add("config " + tree(graph.getTrainingConfig().toJson()));
    return out;
  }

  static FlatGraph stored(Path file) throws IOException {
    return FlatGraph.getRootAsFlatGraph(ByteBuffer.wrap(Files.readAllBytes(file)));
  }

  static void write(Path file, List<String> lines) throws IOException {
    Files.write(file, (String.join("\n", lines) + "\n").getBytes(StandardCharsets.UTF_8));
  }
}
