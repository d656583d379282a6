// Flat names that are no paths, or continue the path of another tensor: in every format they come back, or the save is
// an error, or a row lists them.
#include <stele/bundle.hpp>
#include <stele/recorders/any.hpp>

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/random_model.hpp"

namespace odd_names_test {

namespace {

using namespace stele;
using namespace stele_test;
using Names = std::set<std::string>;

Names names_of(const Snapshot& snapshot) {
  Names names;
  for (std::uint32_t i = 0; i < snapshot.nodes().size(); ++i) {
    const NodeKind kind = snapshot.nodes()[i].kind;
    if (kind == NodeKind::tensor || kind == NodeKind::value || kind == NodeKind::alias) names.insert(snapshot.path(i));
  }
  return names;
}

Snapshot flat_with(const Names& names, bool with_value) {
  static const float number = 1;
  SnapshotBuilder builder;
  builder.set_flat();
  for (const std::string& name : names) {
    builder.tensor(builder.intern(name), DType::f32, std::vector<Extent>{1}, sizeof number, {&memory_ops, &number, 0});
  }
  if (with_value) builder.value(builder.intern("v..x"), Value(std::int64_t{1}), true);
  return builder.finish();
}

/// Saves in memory, and adds the names of the file and of the rows to `seen`.
Status save_and_open(const Format& format, const Snapshot& snapshot, bool allow_loss, Names& seen) {
  const AnyRecorder recorder{AnyFormat(format)};
  const auto bundle = memory_bundle();
  const std::string file = "m" + std::string(format.extension());
  SaveOptions options = quick();
  options.allow_loss = allow_loss;
  std::unique_ptr<Sink> sink = format.is_folder() ? bundle_sink(bundle) : good(bundle->create(file));
  STELE_TRY_ASSIGN(const Report report, recorder.save(snapshot, *sink, options));
  for (const std::string& path : report.paths(Report::What::lost)) seen.insert(path);
  LoadOptions by_layout;
  by_layout.layout = good(layout_of(snapshot));
  const auto opened = recorder.open(format.is_folder() ? bundle_source(bundle) : good(bundle->open(file)), by_layout);
  REQUIRE_MESSAGE(opened, why(opened));
  seen.merge(names_of(*opened));
  return {};
}

}  // namespace

TEST_CASE("odd names: kept, refused or listed in every format") {
  const std::vector<Names> models = {
      {"x.y", "a..b"},  {"x.y", ".lead"},  {"x.y", "trail."},        {"x.y", "."},
      {"x.y", "a\\b"},  {"x.y", "b.\\"},   {"x.y", "x.y.z"},         {"x.y", "x.y.z", "x.y.z.u"},
      {"x.y", "a.\\e"}, {"0", "1", "1.w"}, {"a..b", "a.b", "a...b"}, {"x.y", "x.y-z", "x.y.z"}};
  std::size_t kept = 0;
  std::size_t listed = 0;
  for (const Format* format : formats()) {
    if (!format->writes()) continue;
    CAPTURE(format->name());
    for (const Names& names : models) {
      for (const bool with_value : {false, true}) {
        const Snapshot snapshot = flat_with(names, with_value);
        const Names wanted = names_of(snapshot);
        CAPTURE(*names.rbegin());
        Names seen;
        if (save_and_open(*format, snapshot, false, seen)) {
          CHECK(seen == wanted);
          ++kept;
          continue;
        }
        seen.clear();
        if (!save_and_open(*format, snapshot, true, seen)) continue;
        for (const std::string& name : wanted) {
          CAPTURE(name);
          CHECK(seen.contains(name));
        }
        ++listed;
      }
    }
  }
  CHECK(kept > 150);
  CHECK(listed > 20);
}

}  // namespace odd_names_test
