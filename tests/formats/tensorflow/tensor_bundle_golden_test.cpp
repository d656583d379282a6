// Checkpoints that TensorFlow 2.21 wrote (interop/make_golden_tensorflow.py): every element of every tensor.
#include <stele/recorders/any.hpp>
#include <stele/recorders/tensorflow.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace tensor_bundle_golden_test {

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

using Names = std::vector<std::string>;

std::string golden(const std::string& name) { return test_data("tensorflow") + "/" + name; }

TensorBundleRecorder<> by(TensorBundleNames names) {
  return TensorBundleRecorder<>(TensorBundleFormat({.names = names}));
}
const TensorBundleRecorder<> recorder;

template <class T>
std::vector<double> as_doubles(const std::string& bytes) {
  std::vector<double> all(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < all.size(); ++i) {
    T element{};
    std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
    all[i] = static_cast<double>(element);
  }
  return all;
}

/// Returns the elements as f64.
std::vector<double> numbers(const Snapshot& snapshot, std::string_view path) {
  CAPTURE(std::string(path));
  REQUIRE(snapshot.find(path));
  const DType dtype = snapshot.find(path)->dtype();
  const Snapshot wide = with_precision(snapshot, PrecisionSpec{DType::f64, DType::none});
  const std::string bytes = good(content(*wide.find(path)));
  switch (dtype) {
    case DType::i64:
    case DType::u64:
      return as_doubles<std::int64_t>(bytes);
    case DType::i32:
      return as_doubles<std::int32_t>(bytes);
    case DType::u32:
      return as_doubles<std::uint32_t>(bytes);
    case DType::i16:
      return as_doubles<std::int16_t>(bytes);
    case DType::u16:
      return as_doubles<std::uint16_t>(bytes);
    case DType::i8:
      return as_doubles<std::int8_t>(bytes);
    case DType::u8:
      return as_doubles<std::uint8_t>(bytes);
    default:
      return as_doubles<double>(bytes);
  }
}

/// The elements of a tensor of that name in the script: k % 7 - 2 plus the sum of the name's bytes modulo 5.
std::vector<double> made(std::string_view name, std::size_t count) {
  int sum = 0;
  for (const char c : name) sum += static_cast<unsigned char>(c);
  std::vector<double> all(count);
  for (std::size_t k = 0; k < count; ++k) all[k] = static_cast<double>(k % 7) - 2 + sum % 5;
  return all;
}

Names names_of(const Snapshot& snapshot) {
  Names names;
  for (std::uint32_t i = 1; i < snapshot.nodes().size(); ++i) names.push_back(snapshot.path(i));
  std::sort(names.begin(), names.end());
  return names;
}

template <class R>
concept Saves = requires(const R& r, const std::map<std::string, float>& model, Sink& sink) {
  r.save(model, sink);
};

const Names weights = {"first.bias", "first.kernel", "rest.0.bias", "rest.0.kernel", "rest.1.bias", "rest.1.kernel"};

std::string with_slashes(std::string path) {
  std::replace(path.begin(), path.end(), '.', '/');
  return path;
}

}  // namespace

TEST_CASE("tensor bundle golden: no tensors, one and a hundred") {
  CHECK(names_of(good(recorder.open(golden("zero")))).empty());
  const Snapshot one = good(recorder.open(golden("one.index")));
  CHECK(names_of(one) == Names{"w"});
  CHECK(numbers(one, "w") == made("w", 6));
  const Snapshot hundred = good(stele::open(golden("hundred.index")));
  CHECK(hundred.leaf_count() == 100);
  for (std::size_t i = 0; i < 100; ++i) {
    const std::string name = "layer_" + std::to_string(i);
    REQUIRE(to_string(hundred.find(name + ".w")->shape()) == to_string(std::array<Extent, 2>{i % 4, 3}));
    REQUIRE(numbers(hundred, name + ".w") == made(name + "/w", i % 4 * 3));
  }
}

TEST_CASE("tensor bundle golden: every dtype") {
  const Snapshot all = good(recorder.open(golden("types")));
  const auto check = [&](const std::string& name, DType dtype, int low, int modulo = 7) {
    CAPTURE(name);
    CHECK(stele::name(all.find(name)->dtype()) == stele::name(dtype));
    CHECK(to_string(all.find(name)->shape()) == "[3, 5]");
    std::vector<double> wanted(15);
    for (std::size_t k = 0; k < 15; ++k) wanted[k] = static_cast<double>(static_cast<int>(k) % modulo - low);
    CHECK(numbers(all, name) == wanted);
  };
  check("float32", DType::f32, 2);
  check("float64", DType::f64, 2);
  check("float16", DType::f16, 2);
  check("bfloat16", DType::bf16, 2);
  check("int64", DType::i64, 2);
  check("int32", DType::i32, 2);
  check("int16", DType::i16, 2);
  check("int8", DType::i8, 2);
  check("uint64", DType::u64, 0);
  check("uint32", DType::u32, 0);
  check("uint16", DType::u16, 0);
  check("uint8", DType::u8, 0);
  check("int4", DType::i8, 2);
  check("uint4", DType::u8, 0);
  check("int2", DType::i8, 2, 4);
  check("uint2", DType::u8, 0, 4);
  // -2, -1, 0, 1, 2, 3, 4 of the dtypes that no precision converts.
  const auto bytes = [&](const char* name, DType dtype, const std::string& seven) {
    CAPTURE(name);
    CHECK(stele::name(all.find(name)->dtype()) == stele::name(dtype));
    CHECK(good(content(*all.find(name))) == seven + seven + seven.substr(0, 1));
  };
  bytes("float8_e5m2", DType::f8_e5m2, "\xc0\xbc\x00\x3c\x40\x42\x44"s);
  bytes("float8_e4m3fn", DType::f8_e4m3fn, "\xc0\xb8\x00\x38\x40\x44\x48"s);
  bytes("float8_e5m2fnuz", DType::f8_e5m2fnuz, "\xc4\xc0\x00\x40\x44\x46\x48"s);
  bytes("float8_e4m3fnuz", DType::f8_e4m3fnuz, "\xc8\xc0\x00\x40\x48\x4c\x50"s);
  bytes("float8_e4m3b11fnuz", DType::opaque, "\xe0\xd8\x00\x58\x60\x64\x68"s);
  bytes("float4_e2m1fn", DType::opaque, "\x0c\x0a\x00\x02\x04\x05\x06"s);
  CHECK(good(content(*all.find("bool"))) == "\0\1\0\1\0\1\0\1\0\1\0\1\0\1\0"s);
  CHECK(all.find("bool")->dtype() == DType::boolean);
  for (const char* name : {"complex64", "complex128"}) {
    const bool wide = name == "complex128"s;
    CHECK(all.find(name)->dtype() == (wide ? DType::c128 : DType::c64));
    const std::string elements = good(content(*all.find(name)));
    for (std::size_t k = 0; k < 15; ++k) {
      double real = 0, imaginary = 1;
      float parts[2];
      std::memcpy(parts, elements.data() + (wide ? 0 : 8 * k), 8);
      if (wide) {
        std::memcpy(&real, elements.data() + 16 * k, 8);
        std::memcpy(&imaginary, elements.data() + 16 * k + 8, 8);
      } else {
        real = static_cast<double>(parts[0]);
        imaginary = static_cast<double>(parts[1]);
      }
      CHECK(real == static_cast<double>(k % 7) - 2);
      CHECK(imaginary == 0);
    }
  }
  CHECK(numbers(all, "scalar") == std::vector<double>{1.5});
  CHECK(to_string(all.find("scalar")->shape()) == "[]");
  CHECK(to_string(all.find("empty")->shape()) == "[2, 0, 3]");
  CHECK(good(content(*all.find("empty"))).empty());
  const auto type = [&](const char* name) {
    return *all.find(name)->annotations()->at("tensorflow.dtype").as_string();
  };
  CHECK(type("int4") == "DT_INT4");
  CHECK(type("qint8") == "DT_QINT8");
  CHECK(type("qint32") == "DT_QINT32");
  CHECK(type("variant") == "DT_VARIANT");
  CHECK(all.find("qint8")->byte_size() == 15);
  CHECK(all.find("variant")->dtype() == DType::opaque);
  CHECK(all.find("float32")->annotations() == nullptr);
}

TEST_CASE("tensor bundle golden: strings are values") {
  const Snapshot all = good(recorder.open(golden("types")));
  std::map<std::string, Value> values;
  for (std::uint32_t i = 0; i < all.nodes().size(); ++i) {
    if (all.nodes()[i].kind == NodeKind::value) values[all.path(i)] = all.value(all.nodes()[i]);
  }
  CHECK(values.size() == 3);
  CHECK(values["text"] == Value("hello"));
  const Value second(Value::Bytes{std::byte{0xff}, std::byte{0}});
  CHECK(values["texts"] == Value(Value::List{Value(Value::List{Value("a"), Value("bcd"), Value("")}),
                                             Value(Value::List{second, Value("grün"), Value(std::string(200, 'x'))})}));
  CHECK(values["no_texts"] == Value(Value::List{}));
}

TEST_CASE("tensor bundle golden: TensorFlow 1, whole and in shards") {
  for (const char* folder : {"tf1", "sharded"}) {
    CAPTURE(folder);
    const std::string prefix = golden(folder) + "/model.ckpt-100";
    const Names variables = {"Adam.Momentum", "beta1_power",  "beta2_power", "cols.table",
                             "dense.bias",    "dense.kernel", "emb.table",   "global_step"};
    const std::map<std::string, std::string> shapes = {
        {"cols.table", "[3, 5]"}, {"dense.bias", "[3]"}, {"dense.kernel", "[2, 3]"}, {"emb.table", "[100, 2]"}};
    for (const std::string& path : {prefix, prefix + ".index", golden(folder), golden(folder) + "/checkpoint"}) {
      CAPTURE(path);
      const Checkpoint all = good(recorder.open_checkpoint(path));
      CHECK(names_of(all.parameters) == variables);
      for (const std::string& name : variables) {
        CHECK(numbers(all.parameters, name) == made(with_slashes(name), all.parameters.find(name)->size()));
      }
      Names kinds;
      for (const auto& [kind, arrays] : all.optimizer.kinds()) {
        kinds.push_back(kind);
        CHECK(arrays.leaf_count() == 4);
        for (const auto& [name, shape] : shapes) {
          CHECK(to_string(arrays.find(name)->shape()) == shape);
          CHECK(numbers(arrays, name) == made(with_slashes(name) + "/" + kind, arrays.find(name)->size()));
        }
      }
      CHECK(kinds == Names{"Adam", "Adam_1", "Momentum"});
    }
    const Snapshot keys = good(by(TensorBundleNames::keys).open(prefix));
    CHECK(keys.leaf_count() == variables.size() + 3 * 4);
    CHECK(keys.leaf(0).dtype() == DType::f32);
    CHECK(names_of(keys)[4] == "cols/table/Adam");
  }
}

namespace {

struct DenseOfKeras {
  Tensor<float, 2> kernel;
  Tensor<float, 1> bias;
  STELE_MODULE(DenseOfKeras, kernel, bias)
};
struct NetOfKeras {
  DenseOfKeras first;
  std::vector<DenseOfKeras> rest;
  Tensor<std::int64_t, 0> steps;
  STELE_MODULE(NetOfKeras, first, rest, steps)
};
struct CheckpointOfKeras {
  NetOfKeras net;
  STELE_MODULE(CheckpointOfKeras, net)
};

}  // namespace

TEST_CASE("tensor bundle golden: objects of TensorFlow 2 and their slots") {
  const std::map<std::string, std::vector<std::pair<std::string, std::string>>> optimizers = {
      {"slots", {{"m", "m"}, {"v", "v"}}},
      {"adam", {{"momentums", "momentums"}, {"velocities", "velocities"}}},
      {"sgd", {{"momentums", "momentums"}}}};
  for (const auto& optimizer : optimizers) {
    const std::string& folder = optimizer.first;
    const auto& slots = optimizer.second;
    CAPTURE(folder);
    const Checkpoint all = good(recorder.open_checkpoint(golden(folder)));
    Names wanted = {"net.steps", "save_counter"};
    for (const std::string& name : weights) wanted.push_back("net." + name);
    const Names more = folder == "slots" ? Names{"optimizer.beta1_power", "optimizer.beta2_power"}
                                         : Names{"optimizer._iterations", "optimizer._learning_rate"};
    wanted.insert(wanted.end(), more.begin(), more.end());
    std::sort(wanted.begin(), wanted.end());
    CHECK(names_of(all.parameters) == wanted);
    CHECK(names_of(good(recorder.open(golden(folder)))) == wanted);
    for (const std::string& name : weights) {
      CHECK(numbers(all.parameters, "net." + name) ==
            made(with_slashes("net." + name), all.parameters.find("net." + name)->size()));
    }
    CHECK(numbers(all.parameters, "net.steps") == made("net/steps", 1));
    CHECK(numbers(all.parameters, "save_counter") == std::vector<double>{1});
    REQUIRE(all.optimizer.kinds().size() == slots.size());
    for (const auto& [kind, slot] : slots) {
      const Snapshot* const arrays = all.optimizer.find(kind);
      REQUIRE(arrays != nullptr);
      CHECK(arrays->leaf_count() == weights.size());
      for (const std::string& name : weights) {
        const std::size_t count = all.parameters.find("net." + name)->size();
        CHECK(numbers(*arrays, "net." + name) == made(with_slashes("net." + name) + "/" + slot, count));
      }
    }
    // By the names of the variables.
    const Checkpoint named = good(by(TensorBundleNames::variables).open_checkpoint(golden(folder)));
    CHECK(numbers(named.parameters, "second_layer.kernel") == made("net/rest/0/kernel", 9));
    CHECK(numbers(named.optimizer.kinds()[0].second, "third_layer.bias") ==
          made("net/rest/1/bias/" + slots[0].second, 1));
    // Into classes.
    LoadOptions options;
    options.allow_unused = {"save_counter", "optimizer.*"};
    const auto loaded = good(recorder.load<CheckpointOfKeras>(golden(folder), options));
    CHECK(loaded.net.rest.size() == 2);
    CHECK(loaded.net.rest[0].kernel(0, 1) == static_cast<float>(made("net/rest/0/kernel", 9)[1]));
    CHECK(loaded.net.steps() == made("net/steps", 1)[0]);
    CheckpointOfKeras moment = loaded;
    LoadOptions without_steps;
    without_steps.allow_missing = {"net.steps"};  // a variable that is not trained
    good(all.optimizer.load_into(slots[0].first, moment, without_steps));
    CHECK(moment.net.first.kernel(1, 2) == static_cast<float>(made("net/first/kernel/" + slots[0].second, 6)[5]));
  }
}

TEST_CASE("tensor bundle golden: a SavedModel") {
  const Snapshot all = good(stele::open(golden("saved_model")));
  for (const std::string& name : weights) {
    std::string full = name;
    for (const auto& [from, to] :
         {std::pair("first"s, "first_layer"s), {"rest.0"s, "second_layer"s}, {"rest.1"s, "third_layer"s}}) {
      if (full.starts_with(from)) full.replace(0, from.size(), to);
    }
    CHECK(numbers(all, name) == made(with_slashes(full), all.find(name)->size()));
  }
  CHECK(names_of(all).size() == weights.size() + 1);
  CHECK(good(stele::load<NetOfKeras>(golden("saved_model"))).first.bias.shape()[0] == 3);
}

TEST_CASE("tensor bundle golden: names with dots and slashes, and a variable with two names") {
  const Snapshot all = good(recorder.open(golden("names")));
  CHECK(names_of(all) == Names{"a\\.b/c", "holder.x", "Ü"});
  CHECK(all.leaf_count() == 2);
  CHECK(numbers(all, "a\\.b/c") == made("a.b/c", 2));
  CHECK(numbers(all, "holder.x") == made("a.b/c", 2));
  CHECK(numbers(all, "Ü") == std::vector<double>{3});
  CHECK(names_of(good(by(TensorBundleNames::variables).open(golden("names")))) == Names{"Variable", "shared\\.name"});
  CHECK(names_of(good(by(TensorBundleNames::keys).open(golden("names")))).size() == 3);
}

TEST_CASE("tensor bundle golden: checkpoints are not written") {
  const TempDir dir;
  const std::map<std::string, std::vector<float>> model = {{"w", {1, 2}}};
  const auto saved = stele::save(model, dir / "w.index");
  CHECK(bad(saved).code() == Errc::unsupported);
  CHECK(bad(saved).to_string().find("only read") != std::string::npos);
  CHECK(dir.names().empty());
  BufferSink sink;
  CHECK(code_of(Recorder<TensorBundleFormat>().save(model, sink)) == Errc::unsupported);
  static_assert(!Saves<TensorBundleRecorder<>> && Saves<Recorder<TensorBundleFormat>>);
}

TEST_CASE("tensor bundle golden: every checksum is checked") {
  for (const char* name : {"types", "tf1", "slots", "hundred"}) {
    const Report report = good(recorder.verify(golden(name)));
    CHECK(report.empty());
  }
}

}  // namespace tensor_bundle_golden_test
