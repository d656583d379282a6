package stele;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.nd4j.graph.ByteOrder;
import org.nd4j.graph.FlatArray;
import org.nd4j.graph.FlatGraph;
import org.nd4j.graph.FlatVariable;
import org.nd4j.graph.UpdaterState;
import org.nd4j.graph.VarType;
import org.nd4j.autodiff.samediff.VariableType;
import org.nd4j.autodiff.samediff.serde.FlatBuffersMapper;
import org.nd4j.linalg.api.buffer.DataType;
import java.util.ArrayList;
import java.util.List;

/** Reads arrays as they are stored, for what SameDiff.load() cannot read or reads wrongly. */
final class Raw {
  private Raw() {}

  static String array(FlatArray stored) throws IOException {
    int rank = (int) stored.shape(0);
    if (stored.shapeLength() != 2 * rank + 4) throw new IOException("no shapeInfo: " + stored.shapeLength() + " longs");
    long[] dims = new long[rank];
    long count = 1;
    for (int i = 0; i < rank; ++i) count *= dims[i] = stored.shape(1 + i);
    boolean empty = (stored.shape(2 * rank + 1) & 8) != 0;
    DataType dtype = FlatBuffersMapper.getDataTypeFromByte(stored.dtype());
    String head = dtype + " " + Facts.shape(dims) + " ";
    if (empty) return head + "-";
    byte[] bytes = new byte[stored.bufferLength()];
    for (int i = 0; i < bytes.length; ++i) bytes[i] = stored.buffer(i);
    if (dtype == DataType.UTF8) return head + strings(bytes, (int) count);
    int width = dtype.width();
    if (bytes.length != count * width) throw new IOException(bytes.length + " bytes for " + count + " elements");
    byte[] out = new byte[bytes.length];
    for (int to = 0; to < count; ++to) {
      // Not only 'c' and 'f': a permuted array is stored with the strides it has.
      long from = 0;
      long rest = to;
      for (int d = rank - 1; d >= 0; --d) {
        from += rest % dims[d] * stored.shape(1 + rank + d);
        rest /= dims[d];
      }
      for (int b = 0; b < width; ++b) {
        int source = stored.byteOrder() == ByteOrder.BE ? width - 1 - b : b;
        out[to * width + b] = bytes[(int) from * width + source];
      }
    }
    return head + Facts.hex(out);
  }

  private static String strings(byte[] bytes, int count) {
    ByteBuffer raw = ByteBuffer.wrap(bytes).order(java.nio.ByteOrder.LITTLE_ENDIAN);
    StringBuilder out = new StringBuilder();
    for (int i = 0; i < count; ++i) {
      byte[] text = new byte[(int) (raw.getLong(8 * i + 8) - raw.getLong(8 * i))];
      raw.position(8 * (count + 1) + (int) raw.getLong(8 * i));
      raw.get(text);
      out.append(i == 0 ? "" : ",").append(text.length == 0 ? "" : Facts.hex(text));
    }
    return out.length() == 0 ? "-" : out.toString();
  }

  static List<String> facts(FlatGraph graph) throws IOException {
    List<String> out = new ArrayList<>();
    for (int i = 0; i < graph.variablesLength(); ++i) {
      FlatVariable v = graph.variables(i);
      out.add("variable " + Facts.encode(v.name()) + " " + VariableType.values()[v.variabletype()] + " "
          + FlatBuffersMapper.getDataTypeFromByte(v.dtype()));
    }
    for (int i = 0; i < graph.variablesLength(); ++i) {
      FlatVariable v = graph.variables(i);
      boolean held = v.variabletype() == VarType.VARIABLE || v.variabletype() == VarType.CONSTANT;
      if (held && v.ndarray() != null) out.add("array " + Facts.encode(v.name()) + " " + array(v.ndarray()));
    }
    for (int i = 0; i < graph.updaterStateLength(); ++i) {
      UpdaterState s = graph.updaterState(i);
      for (int k = 0; k < s.updaterStateKeysLength(); ++k) {
        out.add("state " + Facts.encode(s.paramName()) + " " + s.updaterStateKeys(k) + " " + array(s.updaterStateValues(k)));
      }
    }
    return out;
  }
}
