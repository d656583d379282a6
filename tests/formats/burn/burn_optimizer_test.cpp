// Records of Burn's optimizers: into an OptimizerState, and back.
#include <stele/recorders/burn.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "support/golden_text.hpp"
#include "support/models.hpp"
#include "support/temp_dir.hpp"

using namespace stele_test;
using stele::BurnEncoding;
using stele::BurnFormat;
using stele::BurnOptimizer;
using stele::BurnpackFormat;
using stele::Errc;
using stele::Snapshot;
using stele::Tensor;
using stele::Value;
using Floats = stele::Param<Tensor<float>>;
using Memory = stele::MemoryRecorder<BurnFormat>;

namespace burn_states {

struct Moments {
  std::uint64_t time = 0;
  Tensor<float> moment_1, moment_2;
  std::optional<Tensor<float>> max_moment_2;
  STELE_MODULE(Moments, time, moment_1, moment_2, max_moment_2)
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::burn_record()};
};
struct Adam {
  Moments momentum;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::burn_record()};
};

struct Velocity {
  Tensor<float> velocity;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::burn_record()};
};
struct Sgd {
  std::optional<Velocity> momentum;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::burn_record()};
};

struct SquareAvg {
  Tensor<float> square_avg;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::burn_record()};
};
struct Centered {
  std::optional<Tensor<float>> grad_avg;
  Tensor<float> avg;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::burn_record()};
};
struct Buffer {
  Tensor<float> buf;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::burn_record()};
};
struct RmsProp {
  SquareAvg square_avg;
  Centered centered;
  std::optional<Buffer> momentum;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::burn_record()};
};

}  // namespace burn_states

namespace stele_test {
namespace {

/// The model of the files.
struct Linear {
  Floats weight, bias;
};
/// In the other order: maps of Burn's have any.
struct Backwards {
  Floats bias, weight;
};
template <class M>
M linear() {
  M m;
  m.weight = {Tensor<float>({2, 3}), stele::ParamId::from_u64(1001)};
  m.bias = {Tensor<float>({3}), stele::ParamId::from_u64(1002)};
  return m;
}
const Linear live = linear<Linear>();
const Backwards backwards = linear<Backwards>();
Snapshot model() { return good(stele::snapshot_of(live)); }

std::string golden(const std::string& name) { return test_data("burn") + "/" + name; }
const std::string named_files[] = {"0.21.0/optimizer.mpk", "0.21.0/optimizer.json", "0.21.0/adamw.mpk",
                                   "0.21.0/adamw.json",    "0.21.0/sgd.mpk",        "0.21.0/sgd.json",
                                   "0.21.0/rmsprop.mpk",   "0.21.0/rmsprop.json"};
const std::string bin_files[] = {"0.21.0/optimizer.bin", "0.21.0/adamw.bin", "0.21.0/sgd.bin", "0.21.0/rmsprop.bin"};
const std::string packs[] = {"0.22.1/optimizer.bpk", "0.22.1/adamw.bpk", "0.22.1/sgd.bpk", "0.22.1/rmsprop.bpk"};

BurnFormat format_of(const std::string& name) {
  stele::BurnOptions options;
  options.encoding = name.ends_with(".bin")    ? BurnEncoding::bin
                     : name.ends_with(".json") ? BurnEncoding::json
                                               : BurnEncoding::mpk;
  if (options.encoding == BurnEncoding::bin) {
    using namespace burn_states;
    options.schema = name.find("sgd") != name.npos       ? stele::schema_of<stele::BurnOptimizerRecord<Sgd>>()
                     : name.find("rmsprop") != name.npos ? stele::schema_of<stele::BurnOptimizerRecord<RmsProp>>()
                                                         : stele::schema_of<stele::BurnOptimizerRecord<Adam>>();
  }
  return BurnFormat(options);
}
Snapshot opened(const std::string& name) {
  if (name.ends_with(".bpk")) return good(stele::BurnpackRecorder<>().open(golden(name)));
  return good(stele::Recorder<BurnFormat>(format_of(name)).open(golden(name)));
}
std::string text_of(const stele::Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::string bytes_of(const stele::LeafView& leaf) {
  std::string bytes(static_cast<std::size_t>(leaf.byte_size()), '\0');
  good(leaf.read(0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

/// As the `.expect` files list a record.
std::vector<std::string> listing(const BurnOptimizer& optimizer, bool burnpack) {
  const auto rank = [](const std::string& path) { return path == "weight" ? 2 : 1; };
  const auto name = [&](const std::string& path, const std::string& field) {
    if (burnpack) return (path == "weight" ? "1001." : "1002.") + field;
    return (path == "weight" ? "t41g000000000.V1.Rank2." : "t81g000000000.V1.Rank1.") + field;
  };
  std::vector<std::string> lines;
  for (const auto& [field, kind] : optimizer.state.kinds()) {
    for (std::size_t i = 0; i < kind.leaf_count(); ++i) {
      const stele::LeafView leaf = kind.leaf(i);
      std::string shape = "[";
      for (const stele::Extent e : leaf.shape()) shape += (shape.size() > 1 ? ", " : "") + std::to_string(e);
      const std::string id = burnpack ? name(leaf.path(), "").substr(0, 4) : "-";
      lines.push_back(name(leaf.path(), field) + "\tF32\t" + shape + "]\t" + id + '\t' + hex(bytes_of(leaf)));
    }
  }
  for (const auto& [field, values] : optimizer.values) {
    for (const auto& [path, value] : values) {
      const std::string number = value.as_i64() != nullptr ? std::to_string(*value.as_i64()) : "null";
      if (!value.is_null() || !burnpack) lines.push_back(name(path, field) + (burnpack ? "\tUInt\t" : "\t") + number);
    }
  }
  for (const std::string path : {"weight", "bias"}) {
    if (!burnpack) continue;
    lines.push_back(name(path, "__rank") + "\tUInt\t" + std::to_string(rank(path)));
    lines.push_back(name(path, "").substr(0, 4) + "\tmetadata\t\"" + path + '"');
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}
std::vector<std::string> expected(const std::string& name) {
  std::ifstream in(golden(name) + ".expect");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}
void check(const std::string& name) {
  CAPTURE(name);
  const BurnOptimizer optimizer = good(stele::burn_optimizer(opened(name), model()));
  CHECK(listing(optimizer, name.ends_with(".bpk")) == expected(name));
}

TEST_CASE("burn optimizers: what Burn wrote is what Burn sees") {
  for (const auto& name : named_files) check(name);
  for (const auto& name : bin_files) check(name);
  for (const auto& name : packs) check(name);
}

TEST_CASE("burn optimizers: a record is written again byte for byte") {
  std::vector<std::string> names(std::begin(named_files), std::end(named_files));
  names.insert(names.end(), std::begin(bin_files), std::end(bin_files));
  for (const auto& name : names) {
    CAPTURE(name);
    const std::string before = read_text(golden(name));
    const Snapshot models[] = {model(), good(stele::snapshot_of(backwards))};
    bool same = false;
    for (const Snapshot& m : models) {
      const BurnOptimizer optimizer = good(stele::burn_optimizer(opened(name), m));
      const Memory recorder{format_of(name)};
      const std::string after = text_of(good(recorder.save(good(stele::burn_optimizer_record(optimizer, m)))));
      same = same || after == before;
    }
    CHECK(same);
  }
}

TEST_CASE("burn optimizers: a null or empty element of a list stays") {
  BurnOptimizer optimizer;
  optimizer.fields = {"history.0", "history.1", "history.2"};
  for (const char* path : {"weight", "bias"}) {
    optimizer.values["history.0"][path] = Value();
    optimizer.values["history.2"][path] = Value(Value::List());
  }
  good(optimizer.state.set("history.1", live));
  const stele::MemoryRecorder<BurnpackFormat> packs_;
  const Memory records{BurnFormat({.encoding = BurnEncoding::mpk})};
  const Snapshot flat = good(stele::burnpack_optimizer_record(optimizer, model()));
  const Snapshot nested = good(stele::burn_optimizer_record(optimizer, model()));
  const stele::Bytes pack = good(packs_.save(flat)), record = good(records.save(nested));
  for (const Snapshot& opened : {good(packs_.open(pack)), good(records.open(record))}) {
    const BurnOptimizer back = good(stele::burn_optimizer(opened, model()));
    CHECK(back.values == optimizer.values);
    REQUIRE(back.state.find("history.1") != nullptr);
    CHECK(back.state.find("history.1")->leaf_count() == 2);
  }
}

TEST_CASE("burn optimizers: a pack is written again with the same content, and as a record of 0.21") {
  for (const auto& name : packs) {
    CAPTURE(name);
    const BurnOptimizer optimizer = good(stele::burn_optimizer(opened(name), model()));
    const stele::MemoryRecorder<BurnpackFormat> recorder;
    const stele::Bytes bytes = good(recorder.save(good(stele::burnpack_optimizer_record(optimizer, model()))));
    const Snapshot again = good(recorder.open(bytes.span()));
    CHECK(again.metadata() == opened(name).metadata());
    CHECK(listing(good(stele::burn_optimizer(again, model())), true) == expected(name));

    // Fields that are None are missing, which Rust reads as None; the others are as 0.21 wrote them.
    const std::string old = "0.21.0/" + name.substr(7, name.find('.', 7) - 7) + ".mpk";
    const Memory memory{format_of(old)};
    const stele::Bytes record = good(memory.save(good(stele::burn_optimizer_record(optimizer, model()))));
    auto lines = expected(old);
    std::erase_if(lines, [](const std::string& line) { return line.ends_with("null"); });
    CHECK(listing(good(stele::burn_optimizer(good(memory.open(record.span())), model())), false) == lines);
  }
}

TEST_CASE("burn optimizers: moments are loaded into objects of the model's class, and come from them") {
  for (const std::string name : {"0.21.0/optimizer.mpk", "0.22.1/optimizer.bpk"}) {
    CAPTURE(name);
    const BurnOptimizer read = good(stele::burn_optimizer(opened(name), model()));
    auto m = linear<Linear>();
    auto v = linear<Linear>();
    good(read.state.load_into("momentum.moment_1", m));
    good(read.state.load_into("momentum.moment_2", v));
    CHECK(m.bias->data()[1] == doctest::Approx(0.225));
    CHECK(m.bias.id == live.bias.id);
    CHECK(read.state.find("momentum.max_moment_2") == nullptr);
    CHECK(read.fields.size() == (name.ends_with(".bpk") ? 3 : 4));

    BurnOptimizer made;
    good(made.state.set("momentum.moment_1", m));
    good(made.state.set("momentum.moment_2", v));
    made.values["momentum.time"] = {{"weight", Value(std::int64_t{1})}, {"bias", Value(std::int64_t{1})}};
    // In bincode the class says where each is; None needs no word.
    const Memory recorder{format_of("0.21.0/optimizer.bin")};
    const Snapshot m1 = model();
    const Snapshot m2 = good(stele::snapshot_of(backwards));
    const std::string either[] = {text_of(good(recorder.save(good(stele::burn_optimizer_record(made, m1))))),
                                  text_of(good(recorder.save(good(stele::burn_optimizer_record(made, m2)))))};
    const std::string burn = read_text(golden("0.21.0/optimizer.bin"));
    CHECK((either[0] == burn || either[1] == burn));
  }
}

TEST_CASE("burn optimizers: a model without ids has those that its file would have") {
  const struct { Tensor<float> weight, bias; } plain{Tensor<float>({2, 3}), Tensor<float>({3})};
  const Snapshot plain_model = good(stele::snapshot_of(plain));
  BurnOptimizer optimizer;
  good(optimizer.state.set("momentum.velocity", plain));
  const Memory recorder;
  const stele::Bytes file = good(recorder.save(plain_model));
  const stele::Bytes record = good(recorder.save(good(stele::burn_optimizer_record(optimizer, plain_model))));
  const BurnOptimizer back =
      good(stele::burn_optimizer(good(recorder.open(record.span())), good(recorder.open(file.span()))));
  CHECK(back.state.find("momentum.velocity")->leaf_count() == 2);
}

TEST_CASE("burn optimizers: a tied parameter has one state, under all its names") {
  // In Rust both have the id.
  struct Tied {
    Floats weight, bias, again;
  };
  Tied tied{live.weight, live.bias, live.weight};
  const Snapshot tied_model = good(stele::snapshot_of(tied));
  const BurnOptimizer optimizer = good(stele::burn_optimizer(opened("0.21.0/sgd.mpk"), tied_model));
  good(optimizer.state.load_into("momentum.velocity", tied));
  CHECK(tied.again->data()[0] == tied.weight->data()[0]);
  CHECK(tied.again->data()[0] == -4.609375f);
  BurnOptimizer from_tied;
  good(from_tied.state.set("momentum.velocity", tied));
  CHECK(good(stele::burn_optimizer_record(from_tied, tied_model)).leaf_count() == 2);
}

Snapshot flat(const std::vector<std::pair<std::string, Value>>& values) {
  stele::SnapshotBuilder to;
  to.set_flat();
  for (const auto& [name, value] : values) to.value(to.intern(name), value);
  return to.finish();
}
Errc error_of(const std::string& name, const Value& value = Value(true)) {
  const auto read = stele::burn_optimizer(flat({{name, value}}), model());
  return read ? Errc::none : read.error().code();
}

TEST_CASE("burn optimizers: records that are none") {
  CHECK(error_of("1001.x") == Errc::none);
  CHECK(error_of("t41g000000000.V1.Rank2.x") == Errc::none);
  CHECK(error_of("t41g000000000.V1.Rank2") == Errc::none);  // the whole state is a value: ()
  CHECK(error_of("1003.x") == Errc::not_found);
  CHECK(error_of("00000000000a0.V1.Rank1.x") == Errc::not_found);
  CHECK(error_of("1002.__rank", Value(std::int64_t{2})) == Errc::shape_mismatch);
  CHECK(error_of("1002.__rank", Value(std::int64_t{-1})) == Errc::shape_mismatch);
  CHECK(error_of("t81g000000000.V1.Rank2.x") == Errc::shape_mismatch);
  for (const std::string name : {"1001", "x", "x.y", "-1001.x", "18446744073709551616.x", "1001.__rank",
                                 "t41g000000000.V1", "t41g000000000.V1.x", "t41g000000000.V2.Rank2.x",
                                 "t41g000000000.V1.Rank.x", "t41g000000000.V1.Rank2y.x", "!.V1.Rank2.x"}) {
    CAPTURE(name);
    CHECK(error_of(name) == Errc::malformed);
  }
  const auto twice = stele::burn_optimizer(flat({{"1001.x", Value(1.0)}, {"01001.x", Value(2.0)}}), model());
  CHECK(twice.error().code() == Errc::duplicate);
  // A model is no record of an optimizer; a record with parameters of another model is refused, too.
  CHECK(stele::burn_optimizer(model(), model()).error().code() == Errc::malformed);
  const auto stale = stele::burn_optimizer(opened("0.22.1/sgd.bpk"), flat({}));
  CHECK(stale.error().code() == Errc::not_found);
  CHECK(stale.error().found().substr(4) == (stale.error().found()[3] == '1' ? " of weight" : " of bias"));
}

TEST_CASE("burn optimizers: a tensor of another rank than its parameter") {
  const struct {
    Floats weight, bias;
  } other{{Tensor<float>({3}), stele::ParamId::from_u64(1001)}, {Tensor<float>({3}), stele::ParamId::from_u64(1002)}};
  for (const std::string name : {"0.21.0/sgd.mpk", "0.22.1/sgd.bpk"}) {
    const auto read = stele::burn_optimizer(opened(name), good(stele::snapshot_of(other)));
    CHECK(read.error().code() == Errc::shape_mismatch);
  }
  BurnOptimizer optimizer;
  good(optimizer.state.set("x", other));
  CHECK(stele::burn_optimizer_record(optimizer, model()).error().code() == Errc::shape_mismatch);
  CHECK(stele::burnpack_optimizer_record(optimizer, model()).error().code() == Errc::shape_mismatch);
}

TEST_CASE("burn optimizers: states that no record holds") {
  const auto code = [](const BurnOptimizer& optimizer) {
    return stele::burn_optimizer_record(optimizer, model()).error().code();
  };
  BurnOptimizer optimizer;
  optimizer.values["x"] = {{"nothing", Value(true)}};
  CHECK(code(optimizer) == Errc::not_found);
  optimizer.values = {{"x", {{"weight", Value(true)}}}, {"x.y", {{"weight", Value(true)}}}};
  CHECK(code(optimizer) == Errc::not_representable);
  optimizer.values = {{"x", {{"weight", Value(true)}}}};
  good(optimizer.state.set("x", live));
  CHECK(code(optimizer) == Errc::duplicate);
  std::string deep = "x";
  for (int i = 0; i < 10'000; ++i) deep += ".x";
  optimizer = {.values = {{deep, {{"weight", Value(true)}}}}};
  CHECK(code(optimizer) == Errc::not_representable);

  auto uuid = linear<Linear>();
  uuid.weight.id = stele::ParamId::from_uuid(1, 2);
  optimizer = {.values = {{"x", {{"weight", Value(true)}}}}};
  const Snapshot uuids = good(stele::snapshot_of(uuid));
  CHECK(stele::burnpack_optimizer_record(optimizer, uuids).error().code() == Errc::not_representable);
  const Snapshot record = good(stele::burn_optimizer_record(optimizer, uuids));
  CHECK(good(stele::burn_optimizer(record, uuids)).values == optimizer.values);
}

TEST_CASE("burn optimizers: lists, and what is empty") {
  BurnOptimizer optimizer;
  optimizer.fields = {"b", "a.0", "a.1", "none", "list", "module"};
  optimizer.values = {{"a.0", {{"bias", Value(1.5)}}},
                      {"a.1", {{"bias", Value(2.5)}}},
                      {"b", {{"bias", Value(true)}}},
                      {"list", {{"bias", Value(Value::List{})}}},
                      {"module", {{"bias", Value(Value::Map{})}}},
                      {"none", {{"bias", Value()}}}};
  const Memory recorder{BurnFormat({.encoding = BurnEncoding::json})};
  const stele::Bytes bytes = good(recorder.save(good(stele::burn_optimizer_record(optimizer, model()))));
  std::string text = text_of(bytes);
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
  CHECK(text.find(R"({"t81g000000000":{"V1":{"Rank1":{"b":true,"a":[1.5,2.5],"none":null,"list":[],"module":{}}}}})") !=
        text.npos);
  const BurnOptimizer back = good(stele::burn_optimizer(good(recorder.open(bytes.span())), model()));
  CHECK(back.values == optimizer.values);
  CHECK(back.fields == optimizer.fields);
  CHECK(back.state.empty());
}

}  // namespace
}  // namespace stele_test
