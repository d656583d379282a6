// Metadata, values and names that compress to almost nothing: what is saved opens again.
#include <stele/bundle.hpp>
#include <stele/recorders/any.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/sanitizers.hpp"

namespace repetitive_test {

namespace {

using namespace stele;
using namespace stele_test;

constexpr std::size_t usual = sanitizers ? 500'000 : 4'000'000;

enum class Part { metadata, keys, text, list, map, names };

struct Model {
  Snapshot snapshot;
  SaveOptions options = quick();
};

Model model_of(Part part, char c, std::size_t size = usual) {
  static const float number = 1;
  SnapshotBuilder builder;
  builder.set_flat();
  const auto tensor = [&](const std::string& name) {
    builder.tensor(builder.intern(name), DType::f32, std::vector<Extent>{1}, sizeof number, {&memory_ops, &number, 0});
  };
  tensor("w");
  Model model;
  switch (part) {
    case Part::metadata:
      model.options.metadata["k"] = std::string(size, c);
      break;
    case Part::keys:
      for (std::size_t i = 1; i <= 100; ++i) model.options.metadata[std::string(size / 100 + i, c)] = "";
      break;
    case Part::text:
      builder.value("v", Value(std::string(size, c)), true);
      break;
    case Part::list:
      builder.value("v", Value(Value::List(size / 5, Value(std::int64_t{1}))), true);
      break;
    case Part::map: {
      Value::Map map;
      for (std::size_t i = 0; i < size / 50; ++i) map.emplace_back(std::string(1, c) + std::to_string(i), Value());
      builder.value("v", Value(std::move(map)), true);
      break;
    }
    case Part::names:
      for (std::size_t i = 1; i <= 200; ++i) tensor(std::string(size / 200 + i, c));
      break;
  }
  model.snapshot = builder.finish();
  return model;
}

}  // namespace

TEST_CASE("repetitive: what is saved opens again, in every compressed format") {
  std::size_t opened_count = 0;
  for (const char* name : {"json.zst", "json.gz", "burn-mpk.gz", "burn-json.gz", "nnef-tgz", "sdz"}) {
    CAPTURE(name);
    const Format* format = find_format(name);
    REQUIRE(format != nullptr);
    for (const Part part : {Part::metadata, Part::keys, Part::text, Part::list, Part::map, Part::names}) {
      CAPTURE(static_cast<int>(part));
      const Model model = model_of(part, part == Part::text ? '\x01' : '\n');
      const AnyRecorder recorder{AnyFormat(*format)};
      const auto bundle = memory_bundle();
      const std::string file = "m" + std::string(format->extension());
      const auto sink = good(bundle->create(file));
      const auto saved = recorder.save(model.snapshot, *sink, model.options);
      if (!saved) {
        CHECK_MESSAGE(saved.error().code() == Errc::not_representable, why(saved));
        continue;
      }
      const auto opened = recorder.open(good(bundle->open(file)));
      CHECK_MESSAGE(opened, why(opened).substr(0, 300));
      if (!opened) continue;
      ++opened_count;
      CHECK((opened->metadata() == model.options.metadata));
      // Burn's records cannot tell a list from a value.
      if (opened->nodes().size() != model.snapshot.nodes().size()) {
        CHECK(format->name().starts_with("burn-"));
        continue;
      }
      for (std::uint32_t i = 0; i < opened->nodes().size(); ++i) {
        if (opened->nodes()[i].kind != NodeKind::value) continue;
        CHECK((opened->value(opened->nodes()[i]) == model.snapshot.value(model.snapshot.nodes()[2])));
      }
    }
  }
  CHECK(opened_count > 12);
}

TEST_CASE("repetitive: a structure that compresses too well is stored, and verifies") {
  // 84 MB of escapes: more than a reader admits for a small compressed file.
  const Model model = model_of(Part::metadata, '\x01', sanitizers ? usual : 14'000'000);
  for (const char* name : {"json.zst", "json.gz"}) {
    CAPTURE(name);
    const AnyRecorder recorder{AnyFormat(*find_format(name))};
    BufferSink sink;
    good(recorder.save(model.snapshot, sink, model.options));
    const Bytes file = sink.take();
    CHECK((file.size() > 10'000'000) == !sanitizers);
    CHECK((good(recorder.open(file)).metadata() == model.options.metadata));
    good(recorder.verify(file));
  }
}

}  // namespace repetitive_test
