package stele;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.nd4j.autodiff.samediff.SameDiff;

/** Resave FROM TO: every .fb file of FROM, read and written again by DL4J; those that it cannot read are left out. */
public final class Resave {
  public static void main(String[] args) throws Exception {
    if (args.length != 2) throw new IllegalArgumentException("Resave FROM TO");
    Files.createDirectories(Paths.get(args[1]));
    try (Stream<Path> list = Files.list(Paths.get(args[0]))) {
      for (Path file : list.filter(f -> f.toString().endsWith(".fb")).sorted().collect(Collectors.toList())) {
        try {
          SameDiff sd = SameDiff.load(file.toFile(), true);
          sd.save(Paths.get(args[1]).resolve(file.getFileName()).toFile(), true);
        } catch (Throwable e) {
          System.out.println("not saved again: " + file.getFileName() + ": " + String.valueOf(e.getMessage()).split("\n")[0]);
        }
      }
    }
  }
}
