// Writes what ND4J's schedules and SameDiff's training configurations are; reads configurations that stele wrote.
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import org.nd4j.autodiff.samediff.TrainingConfig;
import org.nd4j.linalg.learning.config.*;
import org.nd4j.linalg.learning.regularization.*;
import org.nd4j.linalg.schedule.*;
import org.nd4j.serde.json.JsonMappers;

public class TrainingConfigs {
  static final ScheduleType[] TYPES = {ScheduleType.ITERATION, ScheduleType.EPOCH};
  static final int[][] COUNTS = {{0, 0}, {1, 0}, {2, 0}, {4, 1}, {5, 1}, {7, 2}, {9, 3}, {10, 4}, {11, 4}, {19, 5}, {20, 6},
      {21, 7}, {50, 9}, {99, 10}, {100, 11}, {101, 19}, {999, 20}, {1000, 21}, {12345, 100}, {2147483647, 2147483647}};

  static ISchedule map(ScheduleType type) {
    return new MapSchedule.Builder(type).add(0, 0.1).add(5, 0.05).add(20, 0.01).add(1000, 1e-5).build();
  }

  static Map<String, ISchedule> schedules() {
    Map<String, ISchedule> all = new LinkedHashMap<>();
    all.put("fixed", new FixedSchedule(0.001));
    for (ScheduleType type : TYPES) {
      String t = "_" + type.name().toLowerCase();
      all.put("step" + t, new StepSchedule(type, 0.1, 0.5, 10));
      all.put("step_part" + t, new StepSchedule(type, 3e-4, 0.9, 2.5));
      all.put("exponential" + t, new ExponentialSchedule(type, 0.1, 0.99));
      all.put("inverse" + t, new InverseSchedule(type, 0.01, 1e-4, 0.75));
      all.put("inverse_square" + t, new InverseSchedule(type, 1, 0.5, 2));
      all.put("poly" + t, new PolySchedule(type, 0.1, 0.9, 100));
      all.put("poly_square" + t, new PolySchedule(type, 2.5, 2, 20));
      all.put("sigmoid" + t, new SigmoidSchedule(type, 0.5, 0.1, 10));
      all.put("sigmoid_falling" + t, new SigmoidSchedule(type, 1e7, -0.25, 0));
      all.put("map" + t, map(type));
      all.put("cycle" + t, new CycleSchedule(type, 0.1, 20));
      all.put("cycle_odd" + t, new CycleSchedule(type, 0.001, 0.02, 11, 4, 0.5));
      all.put("ramp" + t, new RampSchedule(new ExponentialSchedule(type, 0.1, 0.9), 10));
    }
    return all;
  }

  static TrainingConfig config(IUpdater updater) {
    return TrainingConfig.builder().updater(updater).dataSetFeatureMapping("in").dataSetLabelMapping("label").build();
  }

  static Map<String, TrainingConfig> configs() {
    Map<String, TrainingConfig> all = new LinkedHashMap<>();
    IUpdater[] updaters = {new Adam(), new AMSGrad(), new Nadam(), new AdaMax(), new Nesterovs(), new RmsProp(), new AdaGrad(),
        new AdaDelta(), new Sgd(), new NoOp(), new AdaBelief()};
    for (IUpdater updater : updaters) {
      all.put(updater.getClass().getSimpleName(), config(updater));
    }
    for (Map.Entry<String, ISchedule> schedule : schedules().entrySet()) {
      if (!schedule.getKey().contains("_") || schedule.getKey().matches("[a-z]*_iteration")) {
        all.put("Adam_" + schedule.getKey(), config(new Adam(schedule.getValue())));
      }
    }
    all.put("Sgd_cycle_epoch", config(new Sgd(new CycleSchedule(ScheduleType.EPOCH, 0.1, 20))));
    all.put("Nesterovs_two_schedules", config(Nesterovs.builder().learningRate(Double.NaN)
        .learningRateSchedule(new StepSchedule(ScheduleType.EPOCH, 0.1, 0.5, 10)).momentum(Double.NaN)
        .momentumISchedule(new MapSchedule.Builder(ScheduleType.EPOCH).add(0, 0.5).add(10, 0.9).build()).build()));
    TrainingConfig c = TrainingConfig.builder().updater(new Adam(0.01, 0.5, 1, Double.MIN_VALUE)).l1(0.5).weightDecay(1e-3, true)
        .addRegularization(new L2Regularization(new InverseSchedule(ScheduleType.ITERATION, 1e-4, 0.5, 2))).minimize(false)
        .dataSetFeatureMapping("in", "in/\"2\"\u0001").dataSetLabelMapping("\u00e9\ud83d\ude00").dataSetLabelMaskMapping("mask")
        .initialLossDataType(org.nd4j.linalg.api.buffer.DataType.DOUBLE)
        .trainEvaluation("out", 0, new org.nd4j.evaluation.classification.Evaluation(3),
            new org.nd4j.evaluation.regression.RegressionEvaluation(2))
        .validationEvaluation("out", 0, new org.nd4j.evaluation.classification.ROC()).build();
    c.setLossVariables(java.util.Arrays.asList("loss", "other"));
    c.setIterationCount(12345);
    c.setEpochCount(7);
    all.put("everything", c);
    all.put("empty", new TrainingConfig());
    return all;
  }

  static String version() {
    return "nd4j-api " + TrainingConfig.class.getProtectionDomain().getCodeSource().getLocation().getPath()
        .replaceAll(".*nd4j-api-|\\.jar$", "") + ", Java " + System.getProperty("java.version");
  }

  public static void main(String[] args) throws Exception {
    if (args[0].equals("write")) {
      Path folder = Path.of(args[1]);
      Files.createDirectories(folder.resolve("training"));
      StringBuilder text = new StringBuilder("# ISchedule.valueAt(iteration, epoch) of " + version() + ",\n"
          + "# by tests/formats/samediff/interop/dl4j_schedules/TrainingConfigs.java: a line of JSON for a schedule, then\n"
          + "# iteration, epoch, value.\n");
      for (ISchedule schedule : schedules().values()) {
        text.append(JsonMappers.getMapper().writer().without(
            org.nd4j.shade.jackson.databind.SerializationFeature.INDENT_OUTPUT).writeValueAsString(schedule)).append('\n');
        for (int[] at : COUNTS) {
          text.append(at[0] + " " + at[1] + " " + schedule.valueAt(at[0], at[1]) + "\n");
        }
      }
      Files.writeString(folder.resolve("schedules.txt"), text);
      for (Map.Entry<String, TrainingConfig> one : configs().entrySet()) {
        Files.writeString(folder.resolve("training").resolve(one.getKey() + ".json"), one.getValue().toJson());
      }
    } else {  // read FOLDER: each .json must be a configuration, which is written again as it was
      for (java.io.File file : Path.of(args[1]).toFile().listFiles((d, n) -> n.endsWith(".json"))) {
        String text = Files.readString(file.toPath(), StandardCharsets.UTF_8), again;
        try {
          again = TrainingConfig.fromJson(text).toJson();
        } catch (RuntimeException e) {
          System.out.println(file.getName() + ": " + e.getMessage().split("\n")[0]);
          continue;
        }
        System.out.println(file.getName() + (again.equals(text) ? ": the same" : ": read, but not the same:\n" + again));
      }
    }
  }
}
