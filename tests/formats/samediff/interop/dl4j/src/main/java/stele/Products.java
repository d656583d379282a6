package stele;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import org.nd4j.autodiff.samediff.SDVariable;
import org.nd4j.autodiff.samediff.SameDiff;
import org.nd4j.linalg.api.buffer.DataType;
import org.nd4j.linalg.api.ndarray.INDArray;
import org.nd4j.linalg.factory.Nd4j;
import org.nd4j.linalg.indexing.INDArrayIndex;
import org.nd4j.linalg.indexing.NDArrayIndex;
import org.nd4j.linalg.learning.GradientUpdater;
import org.nd4j.linalg.learning.config.IUpdater;
import org.nd4j.shade.jackson.databind.JsonNode;
import org.nd4j.shade.jackson.databind.ObjectMapper;

/**
 * Answers requests of products.py, a line of JSON each: {"write": FILE, "case": …} and {"read": FILE}. The answer is a
 * line, too: {"memory": FACTS, "stored": FACTS, "loaded": FACTS}, the facts of the graph that was saved, the arrays in
 * its file, and the facts of the graph that SameDiff.load() returns. What fails is a string instead of a list.
 */
public final class Products {
  private static final ObjectMapper JSON = new ObjectMapper();

  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(System.out, true, "UTF-8");
    System.setOut(System.err); // of the libraries
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line; (line = in.readLine()) != null;) {
      JsonNode request = JSON.readTree(line);
      Map<String, Object> answer = new TreeMap<>();
      if (request.has("read")) {
        Path file = Paths.get(request.get("read").asText());
        answer.put("stored", Raw.facts(Facts.stored(file)));
        answer.put("loaded", loaded(file));
      } else {
        Path file = Paths.get(request.get("write").asText());
        JsonNode c = request.get("case");
        boolean saved = c.get("state").asText().equals("saved");
        try {
          SameDiff sd = graph(c);
          sd.save(file.toFile(), saved);
          answer.put("memory", facts(sd, saved));
          answer.put("stored", Raw.facts(Facts.stored(file)));
          answer.put("loaded", loaded(file));
        } catch (Throwable e) {
          answer.put("memory", e.toString());
        }
      }
      out.println(JSON.writeValueAsString(answer));
    }
  }

  private static List<String> facts(SameDiff sd, boolean state) throws Exception {
    List<String> out = new ArrayList<>(Facts.variables(sd));
    out.addAll(Facts.arrays(sd));
    if (state) out.addAll(Facts.states(sd));
    out.addAll(Facts.placeholders(sd));
    out.addAll(Facts.control(sd));
    out.addAll(Facts.rest(sd));
    Collections.sort(out);
    return out;
  }

  private static Object loaded(Path file) {
    try {
      return facts(SameDiff.load(file.toFile(), true), true);
    } catch (Throwable e) {
      return e.toString();
    }
  }

  /** Fills an array with random bits, after zero, an infinity and the smallest denormal. DL4J saves each NaN as one. */
  private static INDArray filled(INDArray array, Random random) {
    if (array.isEmpty()) return array;
    DataType dtype = array.dataType();
    int width = dtype.width();
    long infinity = switch (dtype) {
      case HALF -> 0x7c00;
      case BFLOAT16 -> 0x7f80;
      case FLOAT -> 0x7f800000;
      case DOUBLE -> 0x7ffL << 52;
      default -> 0;
    };
    long fraction = infinity == 0 ? 0 : Long.lowestOneBit(infinity) - 1;
    ByteBuffer bytes = ByteBuffer.allocate(Math.toIntExact(array.length() * width)).order(ByteOrder.LITTLE_ENDIAN);
    for (int i = 0; i < array.length(); ++i) {
      long bits = i >= 3 || infinity == 0 ? random.nextLong() : i == 0 ? infinity : 2 - i;
      if (infinity != 0 && (bits & infinity) == infinity && (bits & fraction) != 0) bits = infinity | (fraction + 1) / 2;
      if (dtype == DataType.BOOL) bits &= 1;
      for (int b = 0; b < width; ++b) bytes.put((byte) (bits >> 8 * b));
    }
    array.data().asNio().put(bytes.array());
    return array;
  }

  private static INDArray array(DataType dtype, long[] shape, String order, Random random) {
    if (dtype == DataType.UTF8) {
      String[] texts = {"one", "", "three %, {}", "a\tb\nc", "end", "x"};
      List<String> all = new ArrayList<>();
      long count = 1;
      for (long extent : shape) count *= extent;
      for (int i = 0; i < count; ++i) all.add(texts[(int) (i % texts.length)]);
      return shape.length == 0 ? Nd4j.scalar(all.get(0)) : Nd4j.create(all, shape);
    }
    if (shape == null) return Nd4j.empty(dtype);
    int rank = shape.length;
    boolean empty = false;
    for (long extent : shape) empty |= extent == 0;
    if (rank == 0) return filled(Nd4j.scalar(dtype, 0), random);
    if (empty) return Nd4j.create(dtype, shape);
    switch (order) {
      case "F":
        return filled(Nd4j.createUninitialized(dtype, shape, 'c'), random).dup('f');
      case "view": {
        long[] wide = shape.clone();
        INDArrayIndex[] parts = new INDArrayIndex[rank];
        for (int i = 0; i < rank; ++i) {
          wide[i] += 2;
          parts[i] = NDArrayIndex.interval(1, 1 + shape[i]);
        }
        return filled(Nd4j.createUninitialized(dtype, wide, 'c'), random).get(parts).reshape(shape);
      }
      case "permuted": { // the axes of the array in memory are those of `shape`, rotated by one
        long[] inner = new long[rank];
        int[] back = new int[rank];
        for (int i = 0; i < rank; ++i) {
          inner[(i + 1) % rank] = shape[i];
          back[i] = (i + 1) % rank;
        }
        return filled(Nd4j.createUninitialized(dtype, inner, 'c'), random).permute(back);
      }
      default:
        return filled(Nd4j.createUninitialized(dtype, shape, 'c'), random);
    }
  }

  private static SameDiff graph(JsonNode c) throws Exception {
    SameDiff sd = SameDiff.create();
    DataType dtype = DataType.valueOf(c.get("dtype").asText());
    long[] shape = c.get("shape").isNull() ? null : JSON.convertValue(c.get("shape"), long[].class);
    String kind = c.get("kind").asText();
    SDVariable last = null;
    for (int i = 0; i < c.get("members").asInt(); ++i) {
      String name = c.get("name").asText() + (i == 0 ? "" : i);
      INDArray array = array(dtype, shape, c.get("order").asText(), new Random(i));
      boolean constant = kind.equals("constant") || (kind.equals("both") && i % 2 == 1);
      last = constant ? sd.constant(name, array) : sd.var(name, array);
    }
    switch (c.get("graph").asText()) {
      case "operation":
        if (last != null) sd.identity("an output", last);
        break;
      case "placeholders":
        sd.placeHolder("an input", DataType.FLOAT, -1, 3);
        sd.placeHolder("of any rank", DataType.INT, (long[]) null);
        break;
      case "loss": {
        SDVariable in = sd.placeHolder("in", DataType.FLOAT, 2);
        sd.placeHolder("label", DataType.FLOAT, 2);
        sd.setLossVariables(in.add("a loss", sd.var("shift", Nd4j.scalar(0.5f))));
        break;
      }
      default:
        break;
    }
    String updater = c.get("updater").asText();
    if (!updater.equals("none")) {
      Class<?> type = Class.forName("org.nd4j.linalg.learning.config." + updater);
      IUpdater made = (IUpdater) type.getConstructor().newInstance();
      sd.setTrainingConfig(MakeFiles.config(made).build());
      Method initialize = SameDiff.class.getDeclaredMethod("initializeTraining"); // what fit() begins with
      initialize.setAccessible(true);
      initialize.invoke(sd);
      Random random = new Random(1000);
      for (GradientUpdater one : new TreeMap<>(sd.getUpdaterMap()).values()) {
        @SuppressWarnings("unchecked")
        Map<String, INDArray> state = (Map<String, INDArray>) one.getState();
        if (state == null) continue;
        for (INDArray array : new TreeMap<>(state).values()) {
          if (!array.isEmpty()) array.assign(filled(Nd4j.createUninitialized(array.dataType(), array.shape(), 'c'), random));
        }
      }
    }
    return sd;
  }
}
