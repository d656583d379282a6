package stele;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Collectors;
import org.nd4j.ir.OpNamespace;
import org.nd4j.shade.protobuf.TextFormat;

/** Reads our operator descriptors as DL4J reads its own. */
public final class CheckOperators {
  public static void main(String[] args) throws Exception {
    var list = OpNamespace.OpDescriptorList.newBuilder();
    TextFormat.merge(Files.readString(Path.of(args[0])), list);
    var conv2d = list.getOpListList().stream().filter(o -> o.getName().equals("conv2d")).findFirst().orElseThrow();
    List<String> integers =
        conv2d.getArgDescriptorList().stream()
            .filter(a -> a.getArgType() == OpNamespace.ArgDescriptor.ArgType.INT64)
            .sorted(Comparator.comparing(OpNamespace.ArgDescriptor::getArgIndex))
            .map(OpNamespace.ArgDescriptor::getName)
            .collect(Collectors.toList());
    if (!String.join(" ", integers).equals("kH kW sH sW pH pW dH dW isSameMode isNCHW wFormat")) {
      throw new AssertionError(integers);
    }
    System.out.println("operators that DL4J reads: " + list.getOpListCount());
  }
}
