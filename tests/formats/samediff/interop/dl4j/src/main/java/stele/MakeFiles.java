package stele;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.nd4j.autodiff.samediff.SDVariable;
import org.nd4j.autodiff.samediff.SameDiff;
import org.nd4j.autodiff.samediff.TrainingConfig;
import org.nd4j.evaluation.classification.Evaluation;
import org.nd4j.linalg.api.buffer.DataType;
import org.nd4j.linalg.api.ndarray.INDArray;
import org.nd4j.linalg.api.ops.impl.layers.convolution.config.Conv2DConfig;
import org.nd4j.linalg.api.ops.impl.layers.convolution.config.PaddingMode;
import org.nd4j.linalg.api.ops.impl.layers.convolution.config.Pooling2DConfig;
import org.nd4j.linalg.dataset.MultiDataSet;
import org.nd4j.linalg.factory.Nd4j;
import org.nd4j.linalg.indexing.NDArrayIndex;
import org.nd4j.linalg.learning.config.AMSGrad;
import org.nd4j.linalg.learning.config.AdaBelief;
import org.nd4j.linalg.learning.config.AdaDelta;
import org.nd4j.linalg.learning.config.AdaGrad;
import org.nd4j.linalg.learning.config.AdaMax;
import org.nd4j.linalg.learning.config.Adam;
import org.nd4j.linalg.learning.config.IUpdater;
import org.nd4j.linalg.learning.config.Nadam;
import org.nd4j.linalg.learning.config.Nesterovs;
import org.nd4j.linalg.learning.config.NoOp;
import org.nd4j.linalg.learning.config.RmsProp;
import org.nd4j.linalg.learning.config.Sgd;
import org.nd4j.linalg.schedule.CycleSchedule;
import org.nd4j.linalg.schedule.ExponentialSchedule;
import org.nd4j.linalg.schedule.FixedSchedule;
import org.nd4j.linalg.schedule.ISchedule;
import org.nd4j.linalg.schedule.InverseSchedule;
import org.nd4j.linalg.schedule.MapSchedule;
import org.nd4j.linalg.schedule.PolySchedule;
import org.nd4j.linalg.schedule.RampSchedule;
import org.nd4j.linalg.schedule.ScheduleType;
import org.nd4j.linalg.schedule.SigmoidSchedule;
import org.nd4j.linalg.schedule.StepSchedule;

/** Writes small graphs by SameDiff.save(), and beside each what is in it. Always makes the same values. */
public final class MakeFiles {
  private final Path folder;

  private MakeFiles(Path folder) {
    this.folder = folder;
  }

  public static void main(String[] args) throws Exception {
    if (args.length != 1) throw new IllegalArgumentException("MakeFiles OUT_DIR");
    MakeFiles make = new MakeFiles(Paths.get(args[0]));
    Files.createDirectories(make.folder);
    make.all();
  }

  /** Element k is ((k * 7) % 11 - 5) / 8: exact in every floating dtype, and no two neighbours are equal. */
  static INDArray ramp(DataType dtype, long... shape) {
    INDArray out = Nd4j.createUninitialized(DataType.FLOAT, shape, 'c');
    for (long k = 0; k < out.length(); ++k) out.putScalar(k, ((k * 7) % 11 - 5) / 8f);
    return dtype == DataType.FLOAT ? out : out.castTo(dtype);
  }

  static INDArray counts(DataType dtype, long... shape) {
    INDArray out = Nd4j.createUninitialized(DataType.FLOAT, shape, 'c');
    for (long k = 0; k < out.length(); ++k) out.putScalar(k, k % 7);
    return out.castTo(dtype);
  }

  static INDArray oneHot(int rows, int classes) {
    INDArray out = Nd4j.zeros(DataType.FLOAT, rows, classes);
    for (int r = 0; r < rows; ++r) out.putScalar(r, r % classes, 1f);
    return out;
  }

  static SameDiff mlp() {
    SameDiff sd = SameDiff.create();
    SDVariable in = sd.placeHolder("in", DataType.FLOAT, -1, 4);
    SDVariable label = sd.placeHolder("label", DataType.FLOAT, -1, 3);
    SDVariable w0 = sd.var("w0", ramp(DataType.FLOAT, 4, 3));
    SDVariable b0 = sd.var("b0", Nd4j.zeros(DataType.FLOAT, 3));
    SDVariable logits = in.mmul("mm", w0).add("logits", b0);
    sd.nn.softmax("out", logits, 1);
    sd.loss.softmaxCrossEntropy("loss", label, logits, null);
    sd.setLossVariables("loss");
    return sd;
  }

  static Map<String, INDArray> mlpInputs() {
    Map<String, INDArray> inputs = new LinkedHashMap<>();
    inputs.put("in", ramp(DataType.FLOAT, 8, 4));
    inputs.put("label", oneHot(8, 3));
    return inputs;
  }

  static TrainingConfig.Builder config(IUpdater updater) {
    return new TrainingConfig.Builder().updater(updater).dataSetFeatureMapping("in").dataSetLabelMapping("label");
  }

  static SameDiff trained(TrainingConfig config, int steps) {
    SameDiff sd = mlp();
    sd.setTrainingConfig(config);
    Map<String, INDArray> inputs = mlpInputs();
    for (int i = 0; i < steps; ++i) sd.fit(new MultiDataSet(inputs.get("in").dup(), inputs.get("label").dup()));
    return sd;
  }

  private void save(String name, SameDiff sd, boolean updater, Map<String, INDArray> inputs, String... outputs)
      throws Exception {
    Path file = folder.resolve(name + ".fb");
    sd.save(file.toFile(), updater);
    List<String> lines = new ArrayList<>();
    lines.addAll(Facts.variables(sd));
    lines.addAll(Facts.arrays(sd));
    if (updater) lines.addAll(Facts.states(sd));
    List<String> stored = Raw.facts(Facts.stored(file));
    if (!new ArrayList<>(new java.util.TreeSet<>(stored)).equals(new ArrayList<>(new java.util.TreeSet<>(lines)))) {
      Facts.write(folder.resolve(name + ".stored.txt"), stored);
      System.out.println(name + ": the file does not have what memory has, see " + name + ".stored.txt");
    }
    lines.addAll(Facts.placeholders(sd));
    lines.addAll(Facts.ops(sd, Facts.stored(file)));
    lines.addAll(Facts.control(sd));
    lines.addAll(Facts.rest(sd));
    for (Map.Entry<String, INDArray> e : inputs.entrySet()) {
      lines.add("input " + Facts.encode(e.getKey()) + " " + Facts.array(e.getValue()));
    }
    if (outputs.length > 0) {
      Map<String, INDArray> found = sd.output(inputs, outputs);
      for (String o : outputs) {
        INDArray a = found.get(o);
        if (a == null) throw new IllegalStateException(name + " has no " + o);
        lines.add("output " + Facts.encode(o) + " " + Facts.shape(a.shape()) + " " + Facts.elements(a));
      }
    }
    Facts.write(folder.resolve(name + ".txt"), lines);
  }

  private void constants(String name, Map<String, INDArray> arrays) throws Exception {
    SameDiff sd = SameDiff.create();
    for (Map.Entry<String, INDArray> e : arrays.entrySet()) sd.constant(e.getKey(), e.getValue());
    save(name, sd, true, Collections.emptyMap());
  }

  private void all() throws Exception {
    dtypes();
    orders();
    training();
    graphs();
  }

  private void dtypes() throws Exception {
    Map<String, INDArray> arrays = new LinkedHashMap<>();
    for (DataType t : new DataType[] {DataType.BOOL, DataType.HALF, DataType.FLOAT, DataType.DOUBLE, DataType.BYTE,
             DataType.SHORT, DataType.INT, DataType.LONG, DataType.UBYTE}) {
      arrays.put(t.name().toLowerCase(), t.isFPType() || t.isSigned() && t != DataType.BOOL ? signed(t) : counts(t, 2, 3));
    }
    constants("dtypes", arrays);
    arrays.clear();
    // SameDiff.load() of M2.1 gives these two with the bytes of each element exchanged.
    arrays.put("bfloat16", signed(DataType.BFLOAT16));
    arrays.put("uint16", counts(DataType.UINT16, 2, 3));
    constants("dtypes16", arrays);
    arrays.clear();
    // SameDiff.load() of M2.1 refuses these two.
    arrays.put("uint32", counts(DataType.UINT32, 2, 3));
    arrays.put("uint64", counts(DataType.UINT64, 2, 3));
    constants("dtypes_unsigned", arrays);
    arrays.clear();
    arrays.put("scalar", Nd4j.scalar("a scalar"));
    arrays.put("vector", Nd4j.create("one", "", "three %"));
    constants("strings", arrays);
    arrays.clear();
    arrays.put("float", Nd4j.createFromArray(Float.NaN, Float.POSITIVE_INFINITY, Float.NEGATIVE_INFINITY, -0f,
        Float.MIN_VALUE, Float.MAX_VALUE));
    arrays.put("double", Nd4j.createFromArray(Double.NaN, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY, -0.0,
        Double.MIN_VALUE, Double.MAX_VALUE));
    arrays.put("int", Nd4j.createFromArray(Integer.MIN_VALUE, Integer.MAX_VALUE, 0x01020304));
    arrays.put("long", Nd4j.createFromArray(Long.MIN_VALUE, Long.MAX_VALUE, 0x0102030405060708L));
    arrays.put("short", Nd4j.createFromArray(Short.MIN_VALUE, Short.MAX_VALUE, (short) 0x0102));
    arrays.put("byte", Nd4j.createFromArray(Byte.MIN_VALUE, Byte.MAX_VALUE, (byte) 1));
    constants("extremes", arrays);
  }

  private static INDArray signed(DataType dtype) {
    return dtype.isFPType() ? ramp(dtype, 2, 3) : counts(DataType.FLOAT, 2, 3).sub(2).castTo(dtype);
  }

  private void orders() throws Exception {
    Map<String, INDArray> arrays = new LinkedHashMap<>();
    arrays.put("c", ramp(DataType.FLOAT, 2, 3));
    arrays.put("f", ramp(DataType.FLOAT, 2, 3).dup('f'));
    arrays.put("f3", counts(DataType.LONG, 2, 3, 4).dup('f'));
    arrays.put("f_half", ramp(DataType.HALF, 3, 2).dup('f'));
    arrays.put("view_columns", ramp(DataType.FLOAT, 4, 5).get(NDArrayIndex.all(), NDArrayIndex.interval(1, 3)));
    arrays.put("view_row", ramp(DataType.DOUBLE, 4, 5).getRow(2));
    arrays.put("transposed", ramp(DataType.FLOAT, 2, 5).transpose());
    arrays.put("permuted", counts(DataType.INT, 2, 3, 4).permute(2, 0, 1));
    arrays.put("ones_in_shape", ramp(DataType.FLOAT, 1, 3, 1));
    arrays.put("rank6", counts(DataType.BYTE, 1, 2, 1, 2, 1, 2));
    constants("orders", arrays);
    arrays.clear();
    arrays.put("float", Nd4j.scalar(1.5f));
    arrays.put("double", Nd4j.scalar(-2.25));
    arrays.put("int", Nd4j.scalar(7));
    arrays.put("long", Nd4j.scalar(-7L));
    arrays.put("bool", Nd4j.scalar(true));
    arrays.put("half", Nd4j.scalar(DataType.HALF, 0.5));
    arrays.put("vector1", Nd4j.createFromArray(3f));
    constants("scalars", arrays);
    arrays.clear();
    arrays.put("float", Nd4j.empty(DataType.FLOAT));
    arrays.put("float_0x3", Nd4j.create(DataType.FLOAT, 0, 3));
    arrays.put("int_2x0", Nd4j.create(DataType.INT, 2, 0));
    arrays.put("long_0", Nd4j.create(DataType.LONG, 0));
    arrays.put("bool_0x0", Nd4j.create(DataType.BOOL, 0, 0));
    constants("empties", arrays);
    arrays.clear();
    // SameDiff.load() of M2.1 makes these FLOAT.
    arrays.put("int", Nd4j.empty(DataType.INT));
    arrays.put("double", Nd4j.empty(DataType.DOUBLE));
    constants("empties_rank0", arrays);
  }

  private void training() throws Exception {
    Map<String, IUpdater> updaters = new TreeMap<>();
    updaters.put("adam", new Adam(0.01));
    updaters.put("amsgrad", new AMSGrad(0.01));
    updaters.put("nadam", new Nadam(0.01));
    updaters.put("adamax", new AdaMax(0.01));
    updaters.put("nesterovs", new Nesterovs(0.01, 0.9));
    updaters.put("rmsprop", new RmsProp(0.01));
    updaters.put("adagrad", new AdaGrad(0.01));
    updaters.put("adadelta", new AdaDelta());
    updaters.put("sgd", new Sgd(0.01));
    updaters.put("noop", new NoOp());
    for (Map.Entry<String, IUpdater> e : updaters.entrySet()) {
      save("updater_" + e.getKey(), trained(config(e.getValue()).build(), 3), true, mlpInputs(), "out", "loss");
    }
    // fit() of M2.1 fails with this updater, so there is no state of it.
    save("untrained_adabelief", trained(config(new AdaBelief(0.01)).build(), 0), true, mlpInputs(), "out");
    save("no_state", trained(config(new Adam(0.01)).build(), 3), false, mlpInputs(), "out");
    save("untrained", trained(config(new Adam(0.01)).build(), 0), true, mlpInputs(), "out");
    save("inference", mlp(), false, mlpInputs(), "out");
    save("l1_l2", trained(config(new Adam(0.01)).l1(1e-3).l2(1e-4).build(), 2), true, mlpInputs(), "out");
    save("weight_decay", trained(config(new Sgd(0.01)).weightDecay(1e-3, true).build(), 2), true, mlpInputs(), "out");

    Map<String, ISchedule> schedules = new TreeMap<>();
    schedules.put("fixed", new FixedSchedule(0.01));
    schedules.put("step", new StepSchedule(ScheduleType.ITERATION, 0.01, 0.5, 2));
    schedules.put("exponential", new ExponentialSchedule(ScheduleType.ITERATION, 0.01, 0.9));
    schedules.put("inverse", new InverseSchedule(ScheduleType.ITERATION, 0.01, 0.9, 2));
    schedules.put("poly", new PolySchedule(ScheduleType.EPOCH, 0.01, 2, 100));
    schedules.put("sigmoid", new SigmoidSchedule(ScheduleType.ITERATION, 0.01, 0.9, 10));
    Map<Integer, Double> steps = new HashMap<>();
    steps.put(0, 0.01);
    steps.put(2, 0.005);
    schedules.put("map", new MapSchedule(ScheduleType.ITERATION, steps));
    schedules.put("cycle", new CycleSchedule(ScheduleType.ITERATION, 0.001, 0.01, 20, 4, 0.1));
    schedules.put("ramp", new RampSchedule(new FixedSchedule(0.01), 5));
    for (Map.Entry<String, ISchedule> e : schedules.entrySet()) {
      save("schedule_" + e.getKey(), trained(config(new Adam(e.getValue())).build(), 2), true, mlpInputs(), "out");
    }
    ISchedule momentum = new StepSchedule(ScheduleType.EPOCH, 0.9, 0.5, 2);
    save("schedule_momentum", trained(config(new Nesterovs(0.01, momentum)).build(), 2), true, mlpInputs(), "out");

    save("evaluations", trained(config(new Adam(0.01)).trainEvaluation("out", 0, new Evaluation())
        .validationEvaluation("out", 0, new Evaluation()).build(), 0), true, mlpInputs(), "out");
    SameDiff twice = mlp();
    twice.setTrainingConfig(config(new Adam(0.01)).initialLossDataType(DataType.DOUBLE).build());
    twice.setLossVariables("loss", "out");
    save("two_losses", twice, true, mlpInputs(), "out");
  }

  private void graphs() throws Exception {
    convolution();
    convolutionTrained();
    controlFlow();
    controlDependencies();
    multiOutput();
    legacy();
    names();
    placeholders();
  }

  private void convolution() throws Exception {
    SameDiff sd = SameDiff.create();
    SDVariable in = sd.placeHolder("in", DataType.FLOAT, -1, 2, 6, 6);
    SDVariable w = sd.var("w", ramp(DataType.FLOAT, 3, 3, 2, 4));
    SDVariable b = sd.var("b", ramp(DataType.FLOAT, 4));
    SDVariable conv = sd.cnn.conv2d("conv", in, w, b,
        Conv2DConfig.builder().kH(3).kW(3).sH(1).sW(1).paddingMode(PaddingMode.SAME).dataFormat("NCHW").build());
    SDVariable norm = sd.nn.batchNorm("norm", conv, sd.var("mean", ramp(DataType.FLOAT, 4)),
        sd.var("variance", ramp(DataType.FLOAT, 4).add(1)), sd.var("gamma", Nd4j.ones(DataType.FLOAT, 4)),
        sd.var("beta", Nd4j.zeros(DataType.FLOAT, 4)), 1e-5, 1);
    SDVariable relu = sd.nn.relu("relu", norm, 0);
    sd.cnn.maxPooling2d("pool", relu, Pooling2DConfig.builder().kH(2).kW(2).sH(2).sW(2).isNHWC(false).build());
    save("convolution", sd, false, Collections.singletonMap("in", ramp(DataType.FLOAT, 1, 2, 6, 6)), "conv", "norm", "pool");
  }

  private void convolutionTrained() throws Exception {
    SameDiff sd = SameDiff.create();
    SDVariable in = sd.placeHolder("in", DataType.FLOAT, -1, 1, 4, 4);
    SDVariable label = sd.placeHolder("label", DataType.FLOAT, -1, 2);
    SDVariable conv = sd.cnn.conv2d("conv", in, sd.var("w", ramp(DataType.FLOAT, 3, 3, 1, 2)),
        sd.var("b", ramp(DataType.FLOAT, 2)),
        Conv2DConfig.builder().kH(3).kW(3).sH(1).sW(1).paddingMode(PaddingMode.SAME).dataFormat("NCHW").build());
    SDVariable pool = sd.cnn.maxPooling2d("pool", sd.nn.relu("relu", conv, 0),
        Pooling2DConfig.builder().kH(4).kW(4).sH(4).sW(4).isNHWC(false).build());
    SDVariable out = sd.reshape("out", pool, -1, 2);
    sd.loss.meanSquaredError("loss", label, out, null);
    sd.setLossVariables("loss");
    sd.setTrainingConfig(config(new Nesterovs(0.01, 0.9)).build());
    Map<String, INDArray> inputs = new LinkedHashMap<>();
    inputs.put("in", ramp(DataType.FLOAT, 3, 1, 4, 4));
    inputs.put("label", oneHot(3, 2));
    for (int i = 0; i < 2; ++i) sd.fit(new MultiDataSet(inputs.get("in").dup(), inputs.get("label").dup()));
    save("convolution_trained", sd, true, inputs, "out", "loss");
  }

  private void controlFlow() throws Exception {
    SameDiff sd = SameDiff.create();
    SDVariable count = sd.constant("count", Nd4j.scalar(0f));
    SDVariable sum = sd.placeHolder("sum", DataType.FLOAT, 2);
    SDVariable[] done = sd.whileLoop(new String[] {"count_out", "sum_out"}, "loop", new SDVariable[] {count, sum},
        (g, v) -> v[0].lt(3), (g, v) -> new SDVariable[] {v[0].add(1), v[1].add(v[0])});
    if (done.length != 2) throw new IllegalStateException();
    save("while", sd, false, Collections.singletonMap("sum", ramp(DataType.FLOAT, 2)), "count_out", "sum_out");

    SameDiff choose = SameDiff.create();
    SDVariable a = choose.placeHolder("a", DataType.FLOAT, 2);
    SDVariable k = choose.var("k", Nd4j.scalar(3f));
    choose.ifCond("result", "choice", g -> a.sum().gt(0), g -> a.mul(k), g -> a.sub(k));
    save("if", choose, false, Collections.singletonMap("a", ramp(DataType.FLOAT, 2)), "result");
  }

  private void controlDependencies() throws Exception {
    SameDiff sd = SameDiff.create();
    SDVariable x = sd.placeHolder("x", DataType.FLOAT, 3);
    SDVariable w = sd.var("w", ramp(DataType.FLOAT, 3));
    SDVariable first = x.add("first", w);
    SDVariable second = x.mul("second", 2);
    SDVariable third = sd.math.tanh("third", x);
    SDVariable late = sd.var("late", ramp(DataType.FLOAT, 3));
    second.addControlDependency(first);
    third.addControlDependency(w);
    late.addControlDependency(w);
    late.addControlDependency(first);
    save("control_dependencies", sd, false, Collections.singletonMap("x", ramp(DataType.FLOAT, 3)), "first", "second", "third");
  }

  private void multiOutput() throws Exception {
    SameDiff sd = SameDiff.create();
    SDVariable x = sd.placeHolder("x", DataType.FLOAT, 3, 4);
    SDVariable[] halves = sd.split(new String[] {"left", "right"}, x, 2, 1);
    SDVariable[] rows = sd.unstack(new String[] {"row0", "row1", "row2"}, x, 0, 3);
    SDVariable[] top = sd.nn.topK(new String[] {"top", "where"}, x, 2, true);
    rows[2].add("sum", rows[0]);
    halves[1].mul("product", halves[0]);
    top[0].neg("negative");
    save("multi_output", sd, false, Collections.singletonMap("x", ramp(DataType.FLOAT, 3, 4)), "left", "right", "row1",
        "top", "where", "sum", "product", "negative");
  }

  /** Ops that are numbers within a family instead of hashes. */
  private void legacy() throws Exception {
    SameDiff sd = SameDiff.create();
    SDVariable x = sd.placeHolder("x", DataType.FLOAT, 3, 4);
    List<SDVariable> all = new ArrayList<>();
    all.add(sd.math.exp("exp", x));
    all.add(sd.math.square("square", x));
    all.add(sd.math.sqrt("sqrt", sd.math.abs("abs", x)));
    all.add(x.add("plus2", 2));
    all.add(x.rdiv("rdiv3", 3));
    all.add(x.sum("sum", true, 1));
    all.add(x.mean("mean"));
    all.add(x.norm2("norm2", 0));
    all.add(x.argmax("argmax", 1));
    all.add(x.std("std", true, 1));
    all.add(sd.math.cosineSimilarity("cosine", x, sd.math.sin("sin", x), 1));
    all.add(sd.nn.leakyRelu("leaky", x, 0.25));
    all.add(sd.math.countNonZero("nonzero", x, 1));
    all.add(x.castTo("cast", DataType.INT));
    all.add(sd.reshape("reshaped", x, 2, 6));
    all.add(sd.concat("joined", 0, x, x));
    save("legacy", sd, false, Collections.singletonMap("x", ramp(DataType.FLOAT, 3, 4)),
        all.stream().map(SDVariable::name).toArray(String[]::new));
  }

  private void names() throws Exception {
    SameDiff sd = SameDiff.create();
    SDVariable x = sd.placeHolder("an input", DataType.FLOAT, 2);
    SDVariable a = sd.var("my/param/name", ramp(DataType.FLOAT, 2));
    SDVariable b = sd.var("&MyParam*", ramp(DataType.FLOAT, 2));
    SDVariable c = sd.var("with blank", ramp(DataType.FLOAT, 2));
    SDVariable d = sd.var("100%,\ttab\nline", ramp(DataType.FLOAT, 2));
    SDVariable e = sd.var("größe/重み/\uD83D\uDE00", ramp(DataType.FLOAT, 2));
    SDVariable f = sd.var("7", ramp(DataType.FLOAT, 2));
    SDVariable g = sd.var("../up\\down:\"'", ramp(DataType.FLOAT, 2));
    x.add(a).add(b).add(c).add(d).add(e).add(f).add("the sum", g);
    sd.setLossVariables("the sum");
    save("names", sd, false, Collections.singletonMap("an input", ramp(DataType.FLOAT, 2)), "the sum");
  }

  private void placeholders() throws Exception {
    SameDiff sd = SameDiff.create();
    sd.placeHolder("any_rank", DataType.FLOAT, (long[]) null);
    sd.placeHolder("matrix", DataType.DOUBLE, -1, 3);
    sd.placeHolder("scalar", DataType.INT, new long[0]);
    sd.placeHolder("flags", DataType.BOOL, 4);
    save("placeholders", sd, false, Collections.emptyMap());
  }
}
