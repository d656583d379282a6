// Checkpoints of PyTorch: the numbers of parameters, the optimizer's state and settings.
#include "pytorch_written.hpp"

namespace pytorch_checkpoint_write_test {

namespace {

using namespace stele_test;
using namespace stele_test::pytorch;

/// Returns a checkpoint of these parameters with a kind of state for some of them, and plain SGD.
Checkpoint with_state(const Snapshot& parameters, std::initializer_list<const char*> names, bool training = true) {
  Checkpoint c{parameters};
  Flat state;
  for (const char* name : names) state.tensor(name, static_cast<float>(name[0]));
  c.optimizer.set_snapshot("momentum_buffer", state.snapshot());
  if (training) c.training.emplace().updater = updaters::nesterovs(0.1, 0.9);
  return c;
}

const std::string group =
    "{'lr': f0.10000000000000001, 'momentum': f0.90000000000000002, 'dampening': 0, 'weight_decay': 0, "
    "'nesterov': True, 'maximize': False, 'foreach': None, 'differentiable': False, 'fused': None, 'params': ";

/// Returns the optimizer's part.
std::string optimizer_of(const Checkpoint& c, PytorchOptions options = {}) {
  const std::string all = object_of(file_of(c, std::move(options)));
  const std::size_t begin = all.find("'optimizer_state_dict': ");
  if (begin == all.npos) return {};
  const std::size_t end = std::min(all.find(", 'epoch'"), all.size() - 1);
  return all.substr(begin + 24, end - begin - 24);
}

TEST_SUITE_BEGIN("pytorch");

TEST_CASE("pytorch checkpoints: the layout of the whole") {
  Checkpoint c = with_state(Flat().tensor("w").tensor("b").metadata({{"k", "v"}}).snapshot(), {"b"});
  c.training->epoch_count = 3;
  c.training->iteration_count = 70000;
  std::string text = object_of(file_of(c));
  const std::size_t json = text.find("'training_config': '");
  REQUIRE(json != text.npos);
  CHECK(text.substr(json + 20, text.size() - json - 22) == c.training->json());
  CHECK(text.substr(0, json) ==
        "{'model_state_dict': O{'w': T(Float '0' 2, (2), (1)), 'b': T(Float '1' 2, (2), (1))}|"
        "{'stele_metadata': {'k': 'v'}}, "
        "'optimizer_state_dict': {'state': {1: {'momentum_buffer': T(Float '2' 2, (2), (1))}}, "
        "'param_groups': [" +
            group + "[0, 1], 'param_names': ['w', 'b']}]}, 'epoch': 3, 'iteration': 70000, ");
  const PytorchOptions keys{.part = "model", .optimizer = "opt"};
  CHECK(object_of(file_of(c, keys)).starts_with("{'model': O{"));
  CHECK(object_of(file_of(c, keys)).find("}}, 'opt': {'state'") != std::string::npos);
}

TEST_CASE("pytorch checkpoints: the bytes of a checkpoint") {
  Checkpoint c{Flat().tensor("w").tensor("b", 5).snapshot()};
  for (const char* kind : {"exp_avg", "exp_avg_sq"}) {
    c.optimizer.set_snapshot(kind, Flat().tensor("w", 7).tensor("b", 9).snapshot());
  }
  c.optimizer.set_snapshot(
      "step",
      Flat().tensor("w", DType::f32, {}, "\0\0\x80\x3f"s).tensor("b", DType::f32, {}, "\0\0\x80\x3f"s).snapshot());
  c.training.emplace().updater = updaters::adam(0.25);
  CHECK(file_of(c) == read_text(test_data("pytorch") + "/written/checkpoint.pt"));
}

TEST_CASE("pytorch checkpoints: training without state, state of no kind") {
  Checkpoint c{Flat().tensor("w").snapshot()};
  CHECK(object_of(file_of(c)) == "O{'w': T(Float '0' 2, (2), (1))}");  // a state_dict
  c.training.emplace();
  CHECK(optimizer_of(c).empty());
  CHECK(object_of(file_of(c)).find("'epoch': 0") != std::string::npos);
  c.training->updater = updaters::nesterovs(0.1, 0.9);
  CHECK(optimizer_of(c) == "{'state': {}, 'param_groups': [" + group + "[0], 'param_names': ['w']}]}");
  // The configuration comes back without a state.
  const auto recorder = PytorchRecorder<>();
  for (const char* type : {"Nesterovs", "AdaBelief"}) {
    c.training->updater.type = type;
    c.training->epoch_count = 7;
    const std::string file = file_of(c);
    const Checkpoint again = good(recorder.open_checkpoint(bytes_of(file)));
    REQUIRE(again.training);
    CHECK(*again.training == *c.training);
    CHECK(again.left_out.empty());
  }
}

TEST_CASE("pytorch checkpoints: buffers have no numbers, ties have one") {
  Flat model;
  model.tensor("bn.running_mean").tensor("w").alias("tied").tensor("bn.num_batches_tracked").tensor("b");
  const Snapshot s = model.snapshot();
  CHECK(optimizer_of(with_state(s, {"w", "b"})) ==
        "{'state': {0: {'momentum_buffer': T(Float '4' 2, (2), (1))}, 1: {'momentum_buffer': "
        "T(Float '5' 2, (2), (1))}}, 'param_groups': [" +
            group + "[0, 1], 'param_names': ['w', 'b']}]}");
  CHECK(optimizer_of(with_state(s, {"tied"})).starts_with("{'state': {0: {"));
  CHECK(optimizer_of(with_state(s, {"b"}), {.buffers = {}}).starts_with("{'state': {3: {"));
  const Error error = refused(with_state(s, {"bn.running_mean"}));
  CHECK(error.code() == Errc::not_representable);
  CHECK(error.path() == "bn.running_mean");
  CHECK(error.found() == "momentum_buffer");
  CHECK(refused(with_state(s, {"x"})).code() == Errc::not_representable);
}

TEST_CASE("pytorch checkpoints: the order of the parameters may be set") {
  const Snapshot s = Flat().tensor("a").tensor("b").tensor("c").snapshot();
  const Checkpoint c = with_state(s, {"a", "c"});
  CHECK(optimizer_of(c, {.parameters = {"c", "a"}}) ==
        "{'state': {0: {'momentum_buffer': T(Float '3' 2, (2), (1))}, 1: {'momentum_buffer': "
        "T(Float '4' 2, (2), (1))}}, 'param_groups': [" +
            group + "[0, 1], 'param_names': ['c', 'a']}]}");
  CHECK(entry_of(file_of(c, {.parameters = {"c", "a"}}), "data/3") == entry_of(file_of(c), "data/4"));
  CHECK(entry_of(file_of(c), "data/3") == "\0\0\xc2\x42\0\0\xc4\x42"s);  // 97 is the letter a
  const Error unknown = refused(with_state(s, {"a"}), {.parameters = {"a", "x"}});
  CHECK(unknown.code() == Errc::invalid_argument);
  CHECK(unknown.path() == "x");
  CHECK(refused(with_state(s, {"a"}), {.parameters = {"a", "a"}}).code() == Errc::invalid_argument);
  CHECK(refused(with_state(s, {"b"}), {.parameters = {"a"}}).code() == Errc::not_representable);
}

TEST_CASE("pytorch checkpoints: groups of the file that the parameters were opened from") {
  const auto opened = [](const char* groups) {
    return Flat().tensor("a").tensor("b").tensor("c").origin("param_groups", groups).snapshot();
  };
  CHECK(optimizer_of(with_state(opened(R"([{"lr":0.5,"betas":[0.5,1],"x":[1],"params":["c"]},)"
                                       R"({"lr":1,"params":["a","gone"],"name":null}])"),
                                {"a"}, false)) ==
        "{'state': {1: {'momentum_buffer': T(Float '3' 2, (2), (1))}}, 'param_groups': "
        "[{'lr': f0.5, 'betas': (f0.5, 1), 'x': [1], 'params': [0], 'param_names': ['c']}, "
        "{'lr': 1, 'name': None, 'params': [1], 'param_names': ['a']}]}");
  // Not the training configuration's.
  CHECK(optimizer_of(with_state(opened(R"([{"lr":0.5,"params":["a","b","c"]}])"), {"b"})) ==
        "{'state': {1: {'momentum_buffer': T(Float '3' 2, (2), (1))}}, 'param_groups': "
        "[{'lr': f0.5, 'params': [0, 1, 2], 'param_names': ['a', 'b', 'c']}]}");
  // All parameters of one group have new names.
  CHECK(optimizer_of(with_state(opened(R"([{"lr":0.5,"params":["x.a","x.b","x.c"]}])"), {"b"})) ==
        "{'state': {1: {'momentum_buffer': T(Float '3' 2, (2), (1))}}, 'param_groups': "
        "[{'lr': f0.5, 'params': [0, 1, 2], 'param_names': ['a', 'b', 'c']}]}");
  CHECK(optimizer_of(with_state(opened(R"([{"lr":0.5,"params":["a","b"]}])"), {"b"}), {.parameters = {"c", "b", "a"}})
            .find("{'lr': f0.5, 'params': [2, 1], 'param_names': ['a', 'b']}") != std::string::npos);
  CHECK(refused(with_state(opened(R"([{"lr":0.5,"params":["a"]}])"), {"b"})).code() == Errc::not_representable);
  for (const char* invalid : {"", "{}", "[1]", "[{}]", R"([{"params":"a"}])", R"([{"params":[1]}])", "[] []"}) {
    CAPTURE(invalid);
    CHECK(refused(with_state(opened(invalid), {"a"})).code() == Errc::malformed);
  }
  CHECK(refused(with_state(opened(R"([{"lr":{"__class__":"torch.device"},"params":["a"]}])"), {"a"})).code() ==
        Errc::not_representable);
}

TEST_CASE("pytorch checkpoints: names find the parameters, whatever their order") {
  // A class of C++ whose fields are in another order than Python's.
  Checkpoint c = with_state(Flat().tensor("norm.bias", 1).tensor("norm.weight", 2).snapshot(), {"norm.weight"});
  const std::string file = file_of(c);
  CHECK(object_of(file).find("'param_names': ['norm.bias', 'norm.weight']") != std::string::npos);
  const PytorchRecorder<> recorder;
  const Checkpoint opened = good(recorder.open_checkpoint(bytes_of(file)));
  CHECK(opened.optimizer.find("momentum_buffer")->leaf(0).path() == "norm.weight");
  const PytorchRecorder<> ordered(PytorchFormat({.parameters = {"norm.weight", "norm.bias"}}));
  CHECK(good(ordered.open_checkpoint(bytes_of(file))).optimizer.find("momentum_buffer")->leaf(0).path() ==
        "norm.weight");
  const PytorchRecorder<> renamed(PytorchFormat({.parameters = {"norm.weight", "other"}}));
  CHECK(code_of(renamed.open_checkpoint(bytes_of(file))) == Errc::invalid_argument);
  // The numbers are those of the file that the parameters were opened from.
  c.parameters = Flat()
                     .tensor("norm.bias")
                     .tensor("norm.weight")
                     .origin("param_groups", R"([{"lr":1,"params":["norm.weight","norm.bias"]}])")
                     .snapshot();
  CHECK(optimizer_of(c).starts_with("{'state': {0: {'momentum_buffer': "));
  CHECK(optimizer_of(c).find("'param_names': ['norm.weight', 'norm.bias']") != std::string::npos);
}

TEST_CASE("pytorch checkpoints: state needs settings that PyTorch knows") {
  const Snapshot s = Flat().tensor("a").snapshot();
  const Error none = refused(with_state(s, {"a"}, false));
  CHECK(none.code() == Errc::missing);
  CHECK(none.hint().find("Checkpoint::training") != std::string_view::npos);
  Checkpoint other = with_state(s, {"a"});
  other.training->updater = updaters::ada_belief();
  CHECK(refused(other).code() == Errc::missing);
  CHECK(refused(other).found() == "AdaBelief");
  other.training->updater = updaters::sgd(TrainingObject{.type = "NoSchedule"});
  CHECK(refused(other).code() == Errc::unsupported);
}

TEST_CASE("pytorch checkpoints: what cannot be stored") {
  const Snapshot s = Flat().tensor("a").snapshot();
  Checkpoint graph{s};
  graph.graph.emplace();
  CHECK(refused(graph).code() == Errc::not_representable);
  for (const bool dry : {false, true}) {
    SaveOptions options;
    options.allow_loss = true;
    options.dry_run = dry;
    BufferSink sink;
    const Report report = good(PytorchRecorder<>().save(graph, sink, options));
    CHECK(report.count(Report::What::lost) == 1);
    if (!dry) CHECK(object_of(text_of(sink.take().span())) == "O{'a': T(Float '0' 2, (2), (1))}");
  }
  Checkpoint kind{s};
  kind.training.emplace().updater = updaters::sgd();
  kind.optimizer.set_snapshot("v", Flat().tensor("a", DType::i4, {2}, "x").snapshot());
  CHECK(refused(kind).code() == Errc::not_representable);
  CHECK(refused(kind).found() == "v: dtype i4");
  Checkpoint utf8{s};
  utf8.training = kind.training;
  utf8.optimizer.set_snapshot("\xff", Flat().tensor("a").snapshot());
  CHECK(refused(utf8).code() == Errc::not_representable);
  const Checkpoint whole = with_state(s, {"a"});
  for (const PytorchOptions& keys : {PytorchOptions{.part = "epoch"}, PytorchOptions{.optimizer = "model_state_dict"},
                                     PytorchOptions{.part = "x", .optimizer = "x"}, PytorchOptions{.part = "\xff"},
                                     PytorchOptions{.optimizer = "iteration"}}) {
    CHECK(refused(whole, keys).code() == Errc::invalid_argument);
  }
}

TEST_SUITE_END();

}  // namespace

}  // namespace pytorch_checkpoint_write_test
