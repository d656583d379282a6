// Saving steps, finding them again, and everything that may be wrong with them.
#include <stele/checkpoints/manager.hpp>
#include <stele/checkpoints/random.hpp>
#include <stele/recorders/archive.hpp>
#include <stele/recorders/burn.hpp>
#include <stele/recorders/nnef.hpp>
#include <stele/recorders/numpy.hpp>
#include <stele/recorders/paddle.hpp>
#include <stele/recorders/pytorch.hpp>
#include <stele/recorders/tensorflow.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <csignal>
#include <optional>
#include <random>

#include "checkpoints/steps.hpp"
#include "json/sealed.hpp"

namespace manager_test {

namespace {

using namespace stele_test::steps;

struct Counted {
  std::vector<float> weight;
  std::int64_t count = 3;
  STELE_MODULE(Counted, weight, count)
};

TEST_SUITE_BEGIN("checkpoints");

TEST_CASE_TEMPLATE("a step comes back from every recorder: parameters, optimizer state, values", R,
                   STELE_TEST_RECORDERS, GgufRecorder<>, NnefRecorder<>, ShardedSafetensorsRecorder<>) {
  const TempDir dir;
  auto manager = manager_in<R>(dir / "run");
  CHECK_FALSE(manager.latest().value());
  std::mt19937 random(7);
  random.discard(1000);
  const Net model = net(1.5F), m = net(2.5F), v = net(3.5F);
  Checkpoint checkpoint = checkpoint_of(model, StateKind("M", m), StateKind("V", v)).value();
  checkpoint.training.emplace();
  checkpoint.training->updater = updaters::adam(0.1);
  checkpoint.training->iteration_count = 12;
  const Value::Map state{{"random", random_state(random)}, {"position", Value(std::int64_t{42})}};
  auto saved = manager.save(12, checkpoint, {{{"loss", 0.25}, {"nan", NAN}}, state});
  REQUIRE_MESSAGE(saved, why(saved));
  CHECK(saved->report.count(Report::What::lost) == 0);
  CHECK(stele_test::names_in(dir / "run") == std::vector<std::string>{"step-00000012"});

  const auto again = manager_in<R>(dir / "run");
  Net model2, m2, v2;
  auto resumed = again.resume(model2, StateKind("M", m2), StateKind("V", v2));
  REQUIRE_MESSAGE(resumed, why(resumed));
  REQUIRE(*resumed);
  const OpenedStep& opened = **resumed;
  CHECK(opened.info.step == 12);
  CHECK(opened.info.metrics.at("loss") == 0.25);
  CHECK(std::isnan(opened.info.metrics.at("nan")));
  CHECK(opened.info.library.starts_with("stele "));
  CHECK(opened.info.time_ms > 1'700'000'000'000);
  CHECK(opened.info.state == Value(state));
  CHECK(opened.skipped.empty());
  std::mt19937 random2;
  CHECK(set_random_state(random2, opened.info.state.find("random")));
  CHECK(random2 == random);
  CHECK(opened.checkpoint.training->iteration_count == 12);
  CHECK(model2.bias == model.bias);
  CHECK(m2.bias == m.bias);
  CHECK(v2.bias == v.bias);
  CHECK(std::equal(v2.weight.begin(), v2.weight.end(), v.weight.begin()));
}

TEST_CASE("the keep policy removes steps after each save") {
  const TempDir dir;
  auto manager = manager_in(dir / "run", {.keep = keep::latest(2) | keep::best(1, "loss")});
  const double losses[] = {0.5, 0.1, 0.9, NAN, 0.7};
  for (std::int64_t i = 0; i < 5; ++i) {
    save(manager, i, 1, {{{"loss", losses[i]}}, {}});
  }
  CHECK(numbers(manager) == std::vector<std::int64_t>{1, 3, 4});
  CHECK(manager.best("loss").value()->step == 1);
  CHECK(manager.best("loss", Better::higher).value()->step == 4);
  CHECK_FALSE(manager.best("accuracy").value());
  CHECK(manager.latest().value()->step == 4);
  CHECK(save(manager, 5, 1).removed == std::vector<std::int64_t>{3});
  CheckpointManager last = std::move(manager);
  CHECK(last.remove(1));
  CHECK(code_of(last.remove(1)) == Errc::not_found);
  CHECK(stele_test::names_in(dir / "run") == std::vector<std::string>{"step-00000004", "step-00000005"});
}

TEST_CASE("a file that someone put into a step is not removed with it") {
  const TempDir dir;
  auto manager = manager_in(dir / "run", {.keep = keep::latest(1)});
  save(manager, 1, 1);
  stele_test::write_text(dir / "run/step-00000001/notes.txt", "mine");
  const SavedStep saved = save(manager, 2, 2);
  CHECK(saved.removed.empty());
  REQUIRE(saved.not_removed);
  CHECK(saved.not_removed->code() == Errc::exists);
  CHECK(saved.not_removed->found() == "notes.txt");
  const Net model = net(3);
  const auto again = manager.save(1, checkpoint_of(model).value());
  CHECK(code_of(again) == Errc::exists);
  CHECK(stele_test::read_text(dir / "run/step-00000001/notes.txt") == "mine");
  std::filesystem::remove(dir / "run/step-00000001/notes.txt");
  CHECK(save(manager, 3, 3).removed == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("resume takes the newest step that verifies, and reports the others") {
  const TempDir dir;
  auto manager = manager_in(dir / "run");
  for (std::int64_t i = 1; i <= 4; ++i) save(manager, i, static_cast<float>(i));
  const std::string four = dir / "run/step-00000004/parameters.stele";
  flip(four, std::filesystem::file_size(four) / 2);
  std::filesystem::remove(dir / "run/step-00000003/manifest.json");
  Net model, m;
  auto resumed = manager.resume(model, StateKind("M", m)).value();
  REQUIRE(resumed);
  CHECK(resumed->info.step == 2);
  CHECK(model.bias[0] == 2.5F);
  REQUIRE(resumed->skipped.size() == 2);
  CHECK(resumed->skipped[0].step == 4);
  CHECK(resumed->skipped[0].error.code() == Errc::checksum);
  CHECK(resumed->skipped[1].step == 3);
  CHECK(resumed->skipped[1].error.code() == Errc::not_found);
  CHECK(code_of(manager.verify(4)) == Errc::checksum);
  CHECK(manager.verify(2));
  CHECK(code_of(manager.open_step(9)) == Errc::not_found);
  std::vector<BrokenStep> broken;
  CHECK(manager.steps(&broken).value().size() == 3);  // 4 has the right sizes
  CHECK(broken.size() == 1);

  SUBCASE("a broken step is put aside when its number is saved again, never removed") {
    save(manager, 3, 30);
    save(manager, 4, 40);
    CHECK(stele_test::names_in(dir / "run") == std::vector<std::string>{"step-00000001", "step-00000002",
                                                                        "step-00000003", "step-00000003.broken-1",
                                                                        "step-00000004", "step-00000004.broken-1"});
    CHECK(manager.resume(model).value()->info.step == 4);
    save(manager, 4, 41);  // replaces a good one
    CHECK(manager.resume(model).value()->info.step == 4);
    CHECK(model.bias[0] == 41.5F);
    CHECK(stele_test::names_in(dir / "run").size() == 6);
  }
  SUBCASE("a step that was skipped is neither counted nor removed by a policy") {
    auto keeping = manager_in(dir / "run", {.keep = keep::latest(2)});
    CHECK(keeping.resume(model).value()->info.step == 2);
    for (const std::int64_t step : {5, 6, 7}) save(keeping, step, 1);
    CHECK(stele_test::names_in(dir / "run") ==
          std::vector<std::string>{"step-00000003", "step-00000004", "step-00000006", "step-00000007"});
  }
  SUBCASE("without any step that verifies, resume is an error") {
    for (const char* step : {"1", "2"})
      std::filesystem::remove(dir / ("run/step-0000000" + std::string(step) + "/manifest.json"));
    auto failed = manager.resume(model);
    CHECK(code_of(failed) == Errc::checksum);
    CHECK(failed.error().message().find("step-00000004") != std::string_view::npos);
  }
}

TEST_CASE("every byte of a step is checked: each flipped bit and each truncation is found") {
  const TempDir dir;
  auto manager = manager_in(dir / "run");
  save(manager, 1, 1, {{{"loss", 0.5}}, {{"random", Value("12 34")}}});
  for (const char* name : {"manifest.json", "parameters.stele", "optimizer-0.stele"}) {
    const std::string file = dir / ("run/step-00000001/" + std::string(name));
    const std::uint64_t size = std::filesystem::file_size(file);
    for (std::uint64_t at = 0; at < size; at += 7) {
      flip(file, at);
      CHECK_MESSAGE(!manager.verify(1), name << " at " << at);
      flip(file, at);
    }
    const std::string all = dir / "whole";
    std::filesystem::copy_file(file, all, std::filesystem::copy_options::overwrite_existing);
    for (std::uint64_t left = 0; left < size; left += 13) {
      std::filesystem::resize_file(file, left);
      CHECK_MESSAGE(!manager.verify(1), name << " of " << left);
    }
    std::filesystem::copy_file(all, file, std::filesystem::copy_options::overwrite_existing);
  }
  CHECK(manager.verify(1));
}

TEST_CASE("a manifest that names a part outside of its files is refused") {
  const TempDir dir;
  auto manager = manager_in(dir / "run");
  for (const char* part : {"../parameters.stele", "..", "other.stele", "sub/parameters.stele"}) {
    save(manager, 1, 1);
    std::filesystem::copy_file(dir / "run/step-00000001/parameters.stele", dir / "run/parameters.stele",
                               std::filesystem::copy_options::overwrite_existing);
    const std::string file = dir / "run/step-00000001/manifest.json";
    std::ifstream in(file);
    std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    text.resize(text.rfind(",\n  \"xxh3\""));
    const std::string before = "\"parameters\": \"parameters.stele\"";
    text.replace(text.find(before), before.size(), "\"parameters\": \"" + std::string(part) + "\"");
    detail::json::seal(text);
    std::ofstream(file) << text;
    auto opened = manager.open_step(1);
    CHECK_MESSAGE(code_of(opened) == Errc::malformed, part);
    CHECK(opened.error().found() == part);
  }
}

TEST_CASE("space is checked ahead") {
  const TempDir dir;
  const std::uint64_t step_bytes = 2 * (6 + 3) * sizeof(float);
  auto manager = manager_in(dir / "run", {.keep = keep::latest(1), .max_bytes = 3000});
  save(manager, 1, 1);
  save(manager, 2, 1);
  CHECK(numbers(manager) == std::vector<std::int64_t>{2});
  const Net large = net(1, 400);
  auto failed = manager.save(3, checkpoint_of(large).value());
  CHECK(code_of(failed) == Errc::no_space);
  CHECK(numbers(manager) == std::vector<std::int64_t>{2});
  auto greedy = manager_in(dir / "other", {.spare_bytes = std::uint64_t{1} << 60});
  const Net small = net(1);
  failed = greedy.save(1, checkpoint_of(small).value());
  CHECK(code_of(failed) == Errc::no_space);
  CHECK(failed.error().expected().starts_with(std::to_string(step_bytes / 2)));
  CHECK(stele_test::names_in(dir / "other").empty());
}

TEST_CASE("a signal makes the next step due, and the save says so") {
  const TempDir dir;
  const auto before = std::signal(SIGINT, SIG_DFL);
  {
    auto manager = manager_in(dir / "run", {.save = save_when::every_steps(100) | save_when::on_signal({SIGINT})});
    CHECK_FALSE(manager.due(1));
    CHECK(manager.due(100));
    ::raise(SIGINT);
    CHECK(manager.signalled(SIGINT));
    CHECK_FALSE(manager.signalled(SIGTERM));
    CHECK(manager.due(1));
    CHECK(save(manager, 1, 1).info.signal == SIGINT);
    CHECK_FALSE(manager.due(2));
    CHECK(manager.signalled(SIGINT));
    CHECK(save(manager, 2, 1).info.signal == 0);
    CHECK(manager.steps().value()[0].signal == SIGINT);
  }
  CHECK((std::signal(SIGINT, before) == SIG_DFL));
  CHECK(code_of(CheckpointManager::open(dir / "run", BinaryRecorder<>(), {.save = save_when::on_signal({9})})) ==
        Errc::invalid_argument);
}

TEST_CASE("only a step on disk answers a signal") {
  const TempDir dir;
  std::optional<std::int64_t> last;
  const SavePolicy policy([&](const SaveMoment& moment) { return last = moment.last_step, moment.signal == SIGINT; },
                          {SIGINT});
  auto manager = manager_in(dir / "run", {.save = policy, .max_bytes = 1000, .staging_bytes = 100'000});
  const Net small = net(1), large = net(1, 400);
  const Checkpoint fits = checkpoint_of(small).value(), exceeds = checkpoint_of(large).value();
  ::raise(SIGINT);
  CHECK(manager.due(1));
  CHECK(code_of(manager.save(1, exceeds)) == Errc::no_space);
  CHECK(manager.due(2));
  CHECK_FALSE(last);
  // In the background: not due while the save runs, due again when it has failed.
  REQUIRE(manager.save_async(3, exceeds));
  CHECK(code_of(manager.wait()) == Errc::no_space);
  CHECK(manager.due(4));
  CHECK_FALSE(last);
  REQUIRE(manager.save_async(5, fits));
  CHECK_FALSE(manager.due(6));
  CHECK(manager.wait()->back().info.signal == SIGINT);
  CHECK_FALSE(manager.due(7));
  CHECK(last == 5);
  ::raise(SIGINT);
  CHECK(manager.save(8, fits).value().info.signal == SIGINT);
  CHECK_FALSE(manager.due(9));
  CHECK(code_of(manager.save(9, exceeds)) == Errc::no_space);
  CHECK_FALSE(manager.due(9));
  CHECK(last == 8);
}

TEST_CASE("steps that someone removes, adds or moves away while a manager is open") {
  const TempDir dir;
  auto manager = manager_in(dir / "run", {.keep = keep::best(1, "loss") | keep::latest(1), .max_bytes = 4000});
  const auto save_loss = [&](std::int64_t step, double loss) { save(manager, step, 1, {{{"loss", loss}}, {}}); };
  save_loss(1, 0.5);
  save_loss(2, 0.1);
  save_loss(3, 0.7);
  CHECK(numbers(manager) == std::vector<std::int64_t>{2, 3});
  // The best step is gone: the best of the others counts, not its memory.
  std::filesystem::remove_all(dir / "run/step-00000002");
  save_loss(4, 0.8);
  CHECK(numbers(manager) == std::vector<std::int64_t>{3, 4});
  // The folder is moved away and made again; then it gets a step of the old one back.
  std::filesystem::rename(dir / "run", dir / "old");
  const Net model = net(1);
  CHECK(code_of(manager.save(5, checkpoint_of(model).value())) == Errc::not_found);
  std::filesystem::create_directory(dir / "run");
  save_loss(5, 0.9);
  CHECK(numbers(manager) == std::vector<std::int64_t>{5});
  std::filesystem::rename(dir / "old/step-00000003", dir / "run/step-00000003");
  save_loss(6, 0.95);
  CHECK(numbers(manager) == std::vector<std::int64_t>{3, 6});
  CHECK(manager.remove(3));
  CHECK(stele_test::names_in(dir / "old") == std::vector<std::string>{"step-00000004"});
  CHECK(stele_test::names_in(dir / "run") == std::vector<std::string>{"step-00000006"});
}

TEST_CASE("links: a symlinked step is no step, and no link leads out of a step") {
  const TempDir dir;
  auto manager = manager_in(dir / "run");
  save(manager, 1, 1);
  save(manager, 2, 2);
  std::filesystem::rename(dir / "run/step-00000002", dir / "elsewhere");
  std::filesystem::create_directory_symlink(dir / "elsewhere", dir / "run/step-00000002");
  CHECK(numbers(manager) == std::vector<std::int64_t>{1});
  CHECK(code_of(manager.open_step(2)) == Errc::not_found);
  CHECK(code_of(manager.remove(2)) == Errc::not_found);
  Net model;
  CHECK(manager.resume(model).value()->info.step == 1);
  save(manager, 2, 20);  // the link is put aside, its target stays
  CHECK(stele_test::names_in(dir / "run") ==
        std::vector<std::string>{"step-00000001", "step-00000002", "step-00000002.broken-1"});
  CHECK(std::filesystem::is_symlink(dir / "run/step-00000002.broken-1"));
  CHECK(stele_test::names_in(dir / "elsewhere").size() == 3);
  // A file of the step is a link: into the step it is followed, out of it the step does not verify.
  const std::string file = dir / "run/step-00000002/parameters.stele";
  std::filesystem::rename(file, dir / "run/step-00000002/real");
  std::filesystem::create_symlink("real", file);
  CHECK(manager.verify(2));
  std::filesystem::rename(dir / "run/step-00000002/real", dir / "real");
  std::filesystem::remove(file);
  std::filesystem::create_symlink(dir / "real", file);
  CHECK(code_of(manager.verify(2)) == Errc::malformed);
  auto resumed = manager.resume(model).value();
  CHECK(resumed->info.step == 1);
  CHECK(resumed->skipped.size() == 1);
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  CHECK(code_of(manager.verify(2)) == Errc::malformed);
}

TEST_CASE("manifests have a bound, for reading and writing") {
  const TempDir dir;
  auto manager = manager_in(dir / "run");
  save(manager, 1, 1);
  std::filesystem::resize_file(dir / "run/step-00000001/manifest.json", std::uint64_t{1} << 40);
  CHECK(code_of(manager.verify(1)) == Errc::limit);
  const Net model = net(1);
  const StepValues values{{}, {{"text", Value(std::string(std::size_t{64} << 20, 'x'))}}};
  CHECK(code_of(manager.save(2, checkpoint_of(model).value(), values)) == Errc::limit);
  CHECK(stele_test::names_in(dir / "run") == std::vector<std::string>{"step-00000001"});
}

TEST_CASE("losses of a step are errors, or rows with the part's name") {
  const TempDir dir;
  const Counted model{{1, 2}, 3};
  auto strict = manager_in<NnefRecorder<>>(dir / "run");
  CHECK(code_of(strict.save(1, checkpoint_of(model).value())) == Errc::not_representable);
  const Net plain = net(1);
  Checkpoint with_graph = checkpoint_of(plain).value();
  with_graph.graph.emplace();
  CHECK(code_of(manager_in(dir / "graph").save(1, with_graph)) == Errc::not_representable);
  ManagerOptions lossy;
  lossy.parts.allow_loss = true;
  auto saved = manager_in(dir / "graph", lossy).save(1, with_graph).value();
  CHECK(saved.report.count(Report::What::lost) == 1);
  lossy.parts.dry_run = true;
  saved = manager_in(dir / "graph", lossy).save(2, with_graph).value();
  CHECK(saved.report.count(Report::What::lost) == 1);
  CHECK(stele_test::names_in(dir / "graph") == std::vector<std::string>{"step-00000001"});
}

TEST_CASE("a recorder whose steps could not be saved or opened is refused when the manager is opened") {
  const TempDir dir;
  const auto open = [&](FormatChoice format, ManagerOptions options = {}) {
    options.parts.format = std::move(format);
    return code_of(CheckpointManager::open(dir / "run", std::move(options)));
  };
  CHECK(open({}) == Errc::invalid_argument);
  CHECK(open(find_format("no such format")) == Errc::invalid_argument);
  CHECK(open(TensorBundleFormat()) == Errc::unsupported);
  CHECK(open(PaddleFormat()) == Errc::needs_layout);
  CHECK(open(BurnFormat(BurnOptions{.encoding = BurnEncoding::bin})) == Errc::needs_layout);
  ManagerOptions two;
  two.parts.precision = DType::f16;
  CHECK(code_of(CheckpointManager::open(dir / "run", BinaryRecorder<>(), two)) == Errc::invalid_argument);
  CHECK_FALSE(std::filesystem::exists(dir / "run"));
  const Net model = net(1);
  ManagerOptions options;
  options.load.layout = layout_of(snapshot_of(model).value()).value();
  CHECK(open(PaddleFormat(), options) == Errc::none);
  CHECK(open(PaddleFormat(PaddleOptions{.folder = true})) == Errc::none);
  CHECK(open(NpyFormat()) == Errc::none);  // steps of one tensor
}

TEST_CASE("steps in another format are read if the manager has the format") {
  const TempDir dir;
  {
    auto manager = manager_in<SafetensorsRecorder<>>(dir / "run");
    save(manager, 1, 1);
  }
  Net model;
  const auto strict = manager_in(dir / "run");
  auto failed = strict.resume(model);
  CHECK(code_of(failed) == Errc::unsupported);
  CHECK(failed.error().found() == "safetensors");
  auto open = manager_in(dir / "run", {.older_formats = formats()});
  CHECK(open.resume(model).value()->info.step == 1);
  CHECK(model.bias[0] == 1.5F);
}

TEST_CASE("a resume changes all or nothing") {
  const TempDir dir;
  auto manager = manager_in(dir / "run");
  save(manager, 1, 1);
  Net model = net(9), m = net(9, 5);
  CHECK(code_of(manager.resume(model, StateKind("M", m))) == Errc::shape_mismatch);
  CHECK(model.bias[0] == 9.5F);
  Net right;
  CHECK(code_of(manager.resume(model, StateKind("M", right), StateKind("V", m))) == Errc::not_found);
  CHECK(model.bias[0] == 9.5F);
}

TEST_CASE("folders and names that are no steps are left alone") {
  const TempDir dir;
  for (const char* name : {"step-1", "step-x", "step-000000001", "logs", "step-00000009.broken-1"}) {
    std::filesystem::create_directories(dir / ("run/" + std::string(name)));
  }
  std::ofstream(dir / "run/step-00000007") << "a file";
  auto manager = manager_in(dir / "run");
  CHECK(manager.steps().value().empty());
  save(manager, 123456789, 1);
  CHECK(numbers(manager) == std::vector<std::int64_t>{123456789});
  CHECK(stele_test::names_in(dir / "run").size() == 7);
  const Net model = net(1);
  CHECK(code_of(manager.save(-1, checkpoint_of(model).value())) == Errc::invalid_argument);
  CHECK(code_of(CheckpointManager::open(dir / "no/run", BinaryRecorder<>())) == Errc::not_found);
  CHECK(code_of(CheckpointManager::open("", BinaryRecorder<>())) == Errc::invalid_argument);
}

TEST_CASE("random states: engines and distributions, and text that is none") {
  std::normal_distribution<double> normal;
  std::mt19937_64 random(3);
  normal(random);
  std::normal_distribution<double> normal2;
  std::mt19937_64 random2;
  const Value state = random_state(random), shape = random_state(normal);
  REQUIRE(set_random_state(random2, &state));
  REQUIRE(set_random_state(normal2, &shape));
  CHECK(normal(random) == normal2(random2));
  const Value text("x"), number(std::int64_t{1});
  CHECK(code_of(set_random_state(random2, &text)) == Errc::malformed);
  CHECK(code_of(set_random_state(random2, &number)) == Errc::value_mismatch);
  CHECK(code_of(set_random_state(random2, nullptr)) == Errc::missing);
}

TEST_SUITE_END();

}  // namespace

}  // namespace manager_test
