// Nothing is lost in silence: what a format leaves out is an error, or with allow_loss a row of the report; a dry run
// says the same.
#include <doctest/doctest.h>
#include <stele/precision/complex.hpp>

#include <algorithm>
#include <complex>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "snapshot/flat.hpp"
#include "snapshot/items.hpp"
#include "stele/recorders/any.hpp"
#include "stele/schema.hpp"
#include "stele/transform.hpp"
#include "support/burnpack.hpp"
#include "support/pytorch_file.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace losses_test {

namespace {

using namespace stele;
using namespace stele_test;
using What = Report::What;

using Vec = Tensor<float, 1>;

struct Plain {
  Param<Vec> w{Vec({2}, {1, 2})};
  STELE_MODULE(Plain, w)
};
struct Relu {
  STELE_MODULE(Relu)
};
struct Counts {  // a Record of Burn's
  std::uint64_t steps = 7;
  Vec moment{{1}, {3}};
  STELE_MODULE(Counts, steps, moment)
  static constexpr Attribute stele_attributes[] = {attr::burn_record()};
};
struct Counts8 {
  std::uint8_t steps = 0;
  Vec moment;
  STELE_MODULE(Counts8, steps, moment)
  static constexpr Attribute stele_attributes[] = {attr::burn_record()};
};
struct NarrowCounts {
  Counts8 counts;
};
struct Versioned {
  Vec w{{1}, {9}};
  STELE_MODULE(Versioned, w)
  static constexpr Attribute stele_attributes[] = {attr::version(3)};
};
using Bytes8 = Tensor<std::uint8_t, 1>;
struct Both {
  Bytes8 bytes{{1}, {1}};
  Vec w{{1}, {2}};
  STELE_MODULE(Both, bytes, w)
};
struct Shared {
  std::shared_ptr<Bytes8> bytes = std::make_shared<Bytes8>(Bytes8({1}, {3})), twin;
  std::shared_ptr<Both> both = std::make_shared<Both>(), again;
  STELE_MODULE(Shared, bytes, both, twin, again)
};
using Either = std::variant<Relu, Plain>;

/// Something of each kind that a format may have no place for.
struct Everything {
  Param<Vec> first{Vec({2}, {1, 2}), ParamId::from_u64(11)};
  double rate = 0.5;
  std::string text = "hello";
  bool flag = true;
  std::optional<double> maybe = 2.5;
  std::optional<double> absent;
  Value tree{Value::Map{{"lr", Value(0.5)}, {"steps", Value(Value::List{Value(std::int64_t{1})})}}};
  std::map<std::string, int> numbers{{"a.b", 1}, {"c", 2}};
  std::vector<Plain> none;
  std::vector<std::optional<Plain>> gaps{Plain(), std::nullopt};
  std::vector<Either> steps{Relu(), Plain()};
  Counts counts;
  Versioned versioned;
  std::shared_ptr<Vec> tied = std::make_shared<Vec>(Vec({1}, {4}));
  std::shared_ptr<Vec> again = tied;
  STELE_MODULE(Everything, first, rate, text, flag, maybe, absent, tree, numbers, none, gaps, steps, counts, versioned,
               tied, again)
};
/// The same with a tensor that many formats do not hold.
struct Wide {
  Plain plain;
  std::optional<Tensor<std::complex<double>, 1>> wide = Tensor<std::complex<double>, 1>({1}, {{1, 2}});
  int count = 3;
  STELE_MODULE(Wide, plain, wide, count)
};

/// The one tensor that a .dat holds.
struct Single {
  Vec w{{2}, {1, 2}};
  double rate = 0.5;
  std::string text = "hello";
  STELE_MODULE(Single, w, rate, text)
};

struct Lost {
  std::vector<std::string> paths;  // sorted; once for each thing

  void add(std::string path) { paths.push_back(std::move(path)); }
  std::vector<std::string> sorted() const {
    auto all = paths;
    std::sort(all.begin(), all.end());
    return all;
  }
};

/// Returns the paths of `before` that `after` lacks. `along`: it was read along its class, whose versions it shows.
std::vector<std::string> missing(const Snapshot& before, const Snapshot& after, bool along) {
  std::map<std::string, std::uint32_t> there;
  for (std::uint32_t i = 0; i < after.nodes().size(); ++i) there[after.path(i)] = i;
  Lost lost;
  for (std::uint32_t i = 0; i < before.nodes().size(); ++i) {
    const Node& node = before.nodes()[i];
    const std::string path = before.path(i);
    const auto found = there.find(path);
    const Node* now = found != there.end() ? &after.nodes()[found->second] : nullptr;
    const bool same = now != nullptr && now->kind == node.kind;
    const std::uint32_t version = now != nullptr && !along ? after.version(*now) : 0;
    if (before.version(node) != 0 && version != before.version(node)) lost.add(path);
    switch (node.kind) {
      case NodeKind::tensor: {
        if (!same) {
          lost.add(path);
          break;
        }
        const LeafView leaf = before.leaf(node.index);
        const LeafView read = after.leaf(now->index);
        CHECK_MESSAGE(content(leaf).value() == content(read).value(), path);
        if (leaf.id() && read.id() != leaf.id()) lost.add(path);
        break;
      }
      case NodeKind::value: {
        const Value& value = before.value(node);
        // Read without its class, Flax's map may be a Value or a container; a load decides.
        const bool map = value.as_list() != nullptr || value.as_map() != nullptr;
        if (map && now != nullptr && detail::is_container(now->kind)) break;
        if (!same || !(value == after.value(*now))) lost.add(path);
        break;
      }
      case NodeKind::alias:
        if (!same) lost.add(path);
        break;
      default:
        if (detail::needs_empty_entry(*before.data(), i) && now == nullptr) lost.add(path);
    }
  }
  for (const auto& [key, text] : before.metadata()) {
    const auto found = after.metadata().find(key);
    if (found == after.metadata().end() || found->second != text) lost.add("");
  }
  return lost.sorted();
}

/// The names that a file without names has, by what the report says.
Layout layout_without(const Snapshot& snapshot, const Report& report) {
  Layout layout;
  const Layout all = layout_of(snapshot).value();
  for (const Layout::Tensor& tensor : all.tensors) {
    bool dropped = false;
    for (std::size_t i = 0; i < report.size(); ++i) {
      dropped = dropped || (report[i].path == tensor.path && report[i].detail.starts_with("dtype"));
    }
    if (!dropped) layout.tensors.push_back(tensor);
  }
  return layout;
}

std::vector<std::string> rows(const Report& report) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < report.size(); ++i) {
    if (report[i].what == What::lost) all.push_back(std::string(report[i].path) + ": " + std::string(report[i].detail));
  }
  return all;
}

template <class M>
void lose(const Format& format, const M& module) {
  CAPTURE(format.name());
  const TempDir dir;
  const std::string extension(format.extension());
  const std::string path = dir / ("model" + extension);
  const detail::TypeInfo& type = *detail::module_info<M>();
  SaveOptions options = quick();
  options.metadata = {{"author", "me"}};

  const auto save = [&](bool dry, bool allow) {
    options.dry_run = dry;
    options.allow_loss = allow;
    return detail::save_object(format, {}, {&type, &module}, allow ? path : dir / ("strict" + extension), options);
  };
  const auto dry = save(true, true);
  REQUIRE_MESSAGE(dry, why(dry));
  const auto strict_dry = save(true, false);
  const auto strict = save(false, false);
  CHECK(code_of(strict) == code_of(strict_dry));
  const auto report = save(false, true);
  REQUIRE_MESSAGE(report, why(report));
  CHECK(rows(*report) == rows(*dry));
  if (strict) CHECK(rows(*strict) == rows(*report));

  const Snapshot before = with_metadata(snapshot_of(module).value(), options.metadata);
  LoadOptions load;
  load.layout = layout_without(before, *report);
  const auto after = detail::open({&format}, path, load, {&type, nullptr});
  REQUIRE_MESSAGE(after, why(after));
  auto said = report->paths(What::lost);
  if (format.name() == "ptd") {  // the names of a tensor share its bytes, so that a reader ties them again
    std::erase_if(said, [&](const std::string& path) {
      const auto nodes = after->nodes();
      for (std::uint32_t i = 0; i < nodes.size(); ++i) {
        if (nodes[i].kind == NodeKind::alias && after->path(i) == path) return true;
      }
      return false;
    });
  }
  std::sort(said.begin(), said.end());
  CHECK(said == missing(before, *after, format.name().starts_with("burn-bin")));
}

}  // namespace

TEST_CASE("losses: a dry run, a save and a look into the file say the same, in every format") {
  for (const Format* format : formats()) {
    if (!format->writes()) continue;
    lose(*format, Single());
    if (format->name() == "nnef-tensor" || format->name() == "npy") continue;  // hold one tensor
    lose(*format, Everything());
    lose(*format, Wide());
  }
}

TEST_CASE("losses: the name of the file says what is lost, where the recorder follows it") {
  const BurnRecorder<> recorder;
  const Single single;
  for (const char* extension : {".bin", ".bin.gz", ".mpk", ".json"}) {
    CAPTURE(std::string(extension));
    const TempDir dir;
    SaveOptions options = quick();
    options.metadata = {{"author", "me"}};
    options.allow_loss = true;
    const auto report = recorder.save(single, dir / ("x" + std::string(extension)), options);
    options.dry_run = true;
    const auto dry = recorder.save(single, dir / ("y" + std::string(extension)), options);
    REQUIRE_MESSAGE((report && dry), why(report), why(dry));
    CHECK(rows(*report) == rows(*dry));
    CHECK(report->count(What::lost) == (std::string_view(extension).starts_with(".bin") ? 3 : 0));
  }
}

TEST_CASE("losses: bincode names what the class does not have, and values that its class does not hold") {
  const TempDir dir;
  stele::save(Single(), dir / "single.mpk", quick()).value();
  const Snapshot more = stele::open(dir / "single.mpk").value();
  const BurnRecorder<> recorder(BurnFormat({.encoding = BurnEncoding::bin, .schema = schema_of<Plain>()}));
  const auto strict = recorder.save(more, dir / "less.bin", quick());
  REQUIRE(code_of(strict) == Errc::not_representable);
  CHECK(strict.error().path() == "rate");
  CHECK(strict.error().message().find("and 1 more") != std::string::npos);
  SaveOptions options = quick();
  options.allow_loss = true;
  const auto report = recorder.save(more, dir / "less.bin", options);
  REQUIRE_MESSAGE(report, why(report));
  CHECK(rows(*report) ==
        std::vector<std::string>{"rate: the class does not have it", "text: the class does not have it"});

  // A count that does not fit the class's type is an error, not other bytes.
  struct Wide64 {
    Counts counts;
  };
  stele::save(Wide64(), dir / "counts.mpk", quick()).value();
  const BurnRecorder<> narrow(BurnFormat({.encoding = BurnEncoding::bin, .schema = schema_of<NarrowCounts>()}));
  CHECK(narrow.save(stele::open(dir / "counts.mpk").value(), dir / "counts.bin", quick()));
  Wide64 large;
  large.counts.steps = 300;
  stele::save(large, dir / "large.mpk", quick()).value();
  CHECK(code_of(narrow.save(stele::open(dir / "large.mpk").value(), dir / "large.bin", quick())) ==
        Errc::not_representable);
}

TEST_CASE("losses: an optional that is null in JSON does not keep a model from formats of tensors alone") {
  struct Bias {
    Vec w{{1}, {1}};
    std::optional<Vec> b;
  };
  struct Net {
    std::vector<Bias> layers{2};
  };
  Net net;
  net.layers[1].b = Vec({1}, {2});
  for (const char* from : {".stele", ".json", ".json.gz", ".safetensors", ".mpk", ".bpk"}) {
    CAPTURE(std::string(from));
    const TempDir dir;
    const std::string source = dir / ("source" + std::string(from));
    stele::save(net, source, quick()).value();
    const Snapshot opened = stele::open(source).value();
    for (const char* to : {".pdiparams", ".nnef.tgz"}) {
      const std::string copy = dir / ("copy" + std::string(to));
      const auto report = stele::save(opened, copy, quick());
      REQUIRE_MESSAGE(report, why(report));
      for (const std::string& path : report->paths(What::lost)) CHECK(path == "layers.0.b");
      LoadOptions options;
      options.layout = layout_of(snapshot_of(net).value()).value();
      const auto back = stele::load<Net>(copy, options);
      REQUIRE_MESSAGE(back, why(back));
      CHECK(!back->layers[0].b);
      CHECK(back->layers[1].b);
    }
  }
  // A container that is certain to be a map still is one.
  struct Named {
    std::map<std::string, std::optional<Vec>> all{{"a", Vec({1}, {1})}, {"b", std::nullopt}};
  };
  const TempDir dir;
  CHECK(code_of(stele::save(Named(), dir / "x.pdiparams", quick())) == Errc::not_representable);
}

TEST_CASE("losses: each name of what is lost has a row") {
  Shared module;
  module.twin = module.bytes;
  module.again = module.both;
  const auto report = save(module, "model.gguf", {.allow_loss = true, .dry_run = true});  // GGUF has no u8
  REQUIRE_MESSAGE(report, why(report));
  CHECK(rows(*report) == std::vector<std::string>{"bytes: dtype u8", "both.bytes: dtype u8",
                                                  "twin: tied to what is lost",
                                                  "again: tied to an object of which a part is lost"});
}

TEST_CASE("losses: what a reader leaves out is a row of every save, and no error") {
  const TempDir dir;
  std::string record = read_text(test_data("burn") + "/0.21.0/net-full.json");
  record.insert(record.find("\"item\""), "\"extra\": [1, {\"a\": null}], \"more\": 2,");
  record.insert(record.find("\"int\""), "\"new\": \"x\", ");
  write_text(dir / "record.json", record);
  namespace files = pytorch_files;
  const std::string header = R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"unit":"m","of":{"x":1}}})";
  std::string tensors(8, '\0');
  tensors[0] = static_cast<char>(header.size());
  tensors += header + "ab";
  write_text(dir / "keys.safetensors", tensors);
  write_text(dir / "m.safetensors.index.json",
             R"({"metadata":{"total_size":2,"epochs":3},"weight_map":{"w":"keys.safetensors"},"more":[1]})");
  PackTensor packed{"t", cbor("U8"), {1}, 0, 1};
  packed.more = cbor("unit") + cbor("m");
  packed.more_keys = 1;
  write_text(dir / "keys.bpk",
             pack_file(cbor_map({cbor("tensors"), pack_tensors({packed}), cbor("later"), cbor(1)}), "x"));
  const std::string weights = files::zip_file(files::dict({{"w", files::floats()}, {"epoch", files::number(3)}}));
  files::Records older{{"archive_format", "pt2"},
                       {"data/weights/model.pt", weights},
                       {"data/constants/model.pt", files::zip_file(files::dict({{"c", files::floats()}}))},
                       {"extra/labels.txt", "cat"}};
  for (auto& record : older) record.first = "model/" + record.first;
  write_text(dir / "older.pt2", files::zipped(older));
  write_text(dir / "extra.pt", files::zip_file(files::dict({{"w", files::floats()}}),
                                               {{"data/0", files::eight}, {"extra/labels.txt", "cat"}}));
  using Rows = std::vector<std::string>;
  struct Case {
    std::string file;
    Rows rows;
  };
  const std::string graph = "the graph: only its tensors are saved";
  const std::string training = "the training configuration", optimizer = "the optimizer state";
  const Case cases[] = {
      {test_data("onnx") + "/mlp.onnx", {graph}},
      {test_data("tensorflow") + "/run_mlp_saved_open", {graph}},
      {test_data("tensorflow") + "/adam", {optimizer}},
      {test_data("nnef") + "/model.nnef", {graph}},
      {test_data("pytorch") + "/export.pt2", {"the program: only its tensors are saved"}},
      {test_data("pytorch") + "/trace.pt", {"the program: only its tensors are saved"}},
      {test_data("samediff") + "/updater_adam.fb", {graph, training, optimizer}},
      {test_data("samediff") + "/no_state.fb", {graph, training}},
      {test_data("archive") + "/full.zip",
       {training, optimizer, "other entries of the archive: README.md", "other tags of the archive (1): base"}},
      {test_data("archive") + "/least.zip", {}},
      {dir / "record.json", {"unknown keys of the record: metadata.new, extra, more"}},
      {dir / "keys.safetensors", {"unknown keys of tensors: unit, of"}},
      {dir / "m.safetensors.index.json",
       {"unknown keys of tensors: unit, of", "unknown keys of the index: metadata.epochs, more"}},
      {dir / "keys.bpk", {"unknown keys of the description: tensors.unit, later"}},
      {dir / "older.pt2",
       {"the program: only its tensors are saved", "values and metadata of the weights: epoch",
        "extra files: labels.txt"}},
      {dir / "extra.pt", {"extra files: labels.txt"}},
      {test_data("onnx") + "/types.onnx", {}},  // tensors alone
      {test_data("burn") + "/0.21.0/net-full.json", {}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.file);
    const auto opened = stele::open(c.file);
    REQUIRE_MESSAGE(opened, why(opened));
    if (c.file.ends_with("older.pt2")) CHECK(opened->leaf_count() == 2);
    const auto renamed = rename(*opened, {{"^", "x."}});
    REQUIRE_MESSAGE(renamed, why(renamed));
    const Snapshot pair[] = {*renamed, with_prefix(*opened, "y").value()};
    for (const Snapshot& snapshot : {*opened, *renamed, merge(pair).value(), overlay(pair).value()}) {
      for (const bool dry : {false, true}) {
        SaveOptions options = quick();
        options.dry_run = dry;
        const auto report = save(snapshot, dir / "copy.stele", options);
        REQUIRE_MESSAGE(report, why(report));
        std::vector<std::string> rows;
        for (std::size_t i = 0; i < report->size(); ++i) {
          if ((*report)[i].what == What::lost && (*report)[i].path.empty()) rows.emplace_back((*report)[i].detail);
        }
        CHECK(rows == c.rows);
      }
    }
  }
}

}  // namespace losses_test
