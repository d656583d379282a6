package stele;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.nd4j.autodiff.samediff.SameDiff;
import org.nd4j.linalg.api.buffer.DataType;
import org.nd4j.linalg.api.ndarray.INDArray;
import org.nd4j.linalg.factory.Nd4j;

/**
 * RunGraphs LIST: runs graphs on given inputs. Each line is a folder with model.fb, inputs.txt and outputs.txt: lines "NAME
 * FILE.npy SHAPE", by tabs.
 * Prints a line "FOLDER ERROR" for each, the largest error of an output relative to its largest magnitude, or "FOLDER
 * failed: REASON".
 */
public final class RunGraphs {
  public static void main(String[] args) throws Exception {
    for (String folder : Files.readAllLines(Path.of(args[0]))) {
      String result;
      try {
        result = Double.toString(run(Path.of(folder)));
      } catch (Throwable e) {
        result = "failed: " + String.valueOf(e).replace('\n', ' ');
        if (System.getenv("STELE_TRACE") != null) e.printStackTrace();
      }
      System.out.println("\n" + folder + " " + result);  // libnd4j may have written half a line
    }
  }

  private static double run(Path folder) throws Exception {
    SameDiff graph = SameDiff.load(folder.resolve("model.fb").toFile(), true);
    Map<String, INDArray> inputs = new HashMap<>();
    for (String[] input : table(folder.resolve("inputs.txt"))) inputs.put(input[0], Nd4j.createFromNpyFile(new File(input[1])));
    List<String[]> wanted = table(folder.resolve("outputs.txt"));
    List<String> names = new ArrayList<>();
    for (String[] output : wanted) names.add(output[0]);
    Map<String, INDArray> outputs = graph.output(inputs, names);
    double worst = 0;
    for (String[] output : wanted) {
      INDArray found = outputs.get(output[0]);
      if (found.length() == 0 && java.util.Arrays.toString(found.shape()).replaceAll("[\\[\\] ]", "").equals(output[2])) continue;
      INDArray expected = Nd4j.createFromNpyFile(new File(output[1]));
      if (!java.util.Arrays.equals(expected.shape(), found.shape()) && !(expected.length() == found.length() && expected.length() <= 1)) {
        throw new AssertionError(
            "shape " + java.util.Arrays.toString(found.shape()) + ", expected " + java.util.Arrays.toString(expected.shape()));
      }
      if (expected.length() == 0) continue;
      INDArray a = expected.castTo(DataType.DOUBLE).reshape(expected.length());
      INDArray b = found.castTo(DataType.DOUBLE).dup('c').reshape(found.length());
      double largest = Math.max(a.amaxNumber().doubleValue(), 1e-30);
      double difference = 0;
      for (long i = 0; i < a.length(); i++) {
        double x = a.getDouble(i);
        double y = b.getDouble(i);
        if (Double.compare(x, y) == 0) continue; // infinities and NaNs, too
        if (Double.isNaN(x - y)) throw new AssertionError("an output is " + y + ", expected " + x);
        difference = Math.max(difference, Math.abs(x - y) / largest);
      }
      worst = Math.max(worst, difference);
    }
    return worst;
  }

  private static List<String[]> table(Path file) throws Exception {
    List<String[]> rows = new ArrayList<>();
    for (String line : Files.readAllLines(file)) rows.add(line.split("\t", -1));
    return rows;
  }
}
