package stele;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
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
 * Writes the outputs as found0.npy, found1.npy, ... into the folder, of 64-bit integers or floats. Prints a line "FOLDER ok"
 * for each, or "FOLDER failed: REASON".
 */
public final class RunGraphs {
  public static void main(String[] args) throws Exception {
    for (String folder : Files.readAllLines(Path.of(args[0]))) {
      String result = "ok";
      try {
        run(Path.of(folder));
      } catch (Throwable e) {
        result = "failed: " + String.valueOf(e).replace('\n', ' ');
        if (System.getenv("STELE_TRACE") != null) e.printStackTrace();
      }
      System.out.println("\n" + folder + " " + result);  // libnd4j may have written half a line
    }
  }

  private static void run(Path folder) throws Exception {
    SameDiff graph = SameDiff.load(folder.resolve("model.fb").toFile(), true);
    Map<String, INDArray> inputs = new HashMap<>();
    for (String[] input : table(folder.resolve("inputs.txt"))) inputs.put(input[0], Nd4j.createFromNpyFile(new File(input[1])));
    List<String> names = new ArrayList<>();
    for (String[] output : table(folder.resolve("outputs.txt"))) names.add(output[0]);
    Map<String, INDArray> outputs = graph.output(inputs, names);
    for (int i = 0; i < names.size(); i++) write(folder.resolve("found" + i + ".npy"), outputs.get(names.get(i)));
  }

  /** Writes version 1.0 of NumPy's format. */
  private static void write(Path file, INDArray found) throws Exception {
    boolean real = found.dataType().isFPType();
    long[] extents = found.isEmpty() && found.rank() == 0 ? new long[] {0} : found.shape();
    String shape = Arrays.toString(extents).replace("[", "(").replace("]", extents.length == 1 ? ",)" : ")");
    String header = "{'descr': '" + (real ? "<f8" : "<i8") + "', 'fortran_order': False, 'shape': " + shape + "}\n";
    ByteBuffer bytes = ByteBuffer.allocate(10 + header.length() + Math.toIntExact(8 * found.length()));
    bytes.order(ByteOrder.LITTLE_ENDIAN);
    bytes.put(new byte[] {(byte) 0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0}).putShort((short) header.length());
    bytes.put(header.getBytes(StandardCharsets.US_ASCII));
    if (found.length() != 0) {
      INDArray row = found.castTo(real ? DataType.DOUBLE : DataType.INT64).dup('c').reshape(found.length());
      for (long i = 0; i < row.length(); i++) {
        if (real) {
          bytes.putDouble(row.getDouble(i));
        } else {
          bytes.putLong(row.getLong(i));
        }
      }
    }
    Files.write(file, bytes.array());
  }

  private static List<String[]> table(Path file) throws Exception {
    List<String[]> rows = new ArrayList<>();
    for (String line : Files.readAllLines(file)) rows.add(line.split("\t", -1));
    return rows;
  }
}
