// Names, keys and texts that are no UTF-8: what a save accepts opens equal; all else is an error before a byte is
// written.
#include <stele/bundle.hpp>
#include <stele/layout.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/recorders/safetensors.hpp>

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

namespace text_test {

using namespace stele_test;
using namespace std::string_literals;
using stele::Errc;
using stele::Format;
using stele::NodeKind;
using stele::Snapshot;
using stele::SnapshotBuilder;
using stele::Value;

namespace {

const std::array<float, 2> numbers{1, 2};

void add_tensor(SnapshotBuilder& builder, SnapshotBuilder::Name name) {
  const stele::Extent shape[] = {2};
  builder.tensor(name, stele::DType::f32, shape, sizeof numbers, {&memory_ops, numbers.data(), 0});
}

/// A model with a text in one place.
struct Place {
  std::string what;
  std::function<void(SnapshotBuilder&, const std::string& text)> put;
};

const Place places[] = {
    {"tensor", [](SnapshotBuilder& b, const std::string& text) { add_tensor(b, b.intern(text)); }},
    {"value", [](SnapshotBuilder& b, const std::string& text) { b.value("text", Value(text)); }},
    {"name of a value",
     [](SnapshotBuilder& b, const std::string& text) { b.value(b.intern(text), Value(std::int64_t{1})); }},
    {"key of a value",
     [](SnapshotBuilder& b, const std::string& text) {
       b.value("map", Value(Value::Map{{text, Value(std::int64_t{1})}}));
     }},
    {"module",
     [](SnapshotBuilder& b, const std::string& text) {
       b.begin(NodeKind::module, b.intern(text));
       add_tensor(b, "inner");
       b.end();
     }},
    {"key of a map",
     [](SnapshotBuilder& b, const std::string& text) {
       b.begin(NodeKind::map, "map");
       b.begin(NodeKind::module, b.intern(text), true);
       b.value("inner", Value(std::int64_t{1}), true);
       b.end();
       b.end();
     }},
    {"empty optional",
     [](SnapshotBuilder& b, const std::string& text) {
       b.begin(NodeKind::map, "map");
       b.none(b.intern(text), true);
       b.end();
     }},
    {"tie",
     [](SnapshotBuilder& b, const std::string& text) {
       const std::uint32_t target = b.tensor("target", stele::DType::f32, std::array<stele::Extent, 1>{2},
                                             sizeof numbers, {&memory_ops, numbers.data(), 0});
       b.alias(b.intern(text), target);
     }},
    {"class",
     [](SnapshotBuilder& b, const std::string& text) {
       b.begin(NodeKind::module, "module", false, b.intern(text));
       add_tensor(b, "inner");
       b.end();
     }},
    {"class with a version",
     [](SnapshotBuilder& b, const std::string& text) {
       b.begin(NodeKind::module, b.intern(text), false, {}, 3);
       add_tensor(b, "inner");
       b.end();
     }},
    {"metadata key",
     [](SnapshotBuilder& b, const std::string& text) {
       b.set_metadata({{text, "x"}});
     }},
    {"metadata",
     [](SnapshotBuilder& b, const std::string& text) {
       b.set_metadata({{"x", text}});
     }},
    {"annotation key", [](SnapshotBuilder& b, const std::string& text) { b.annotate(text, Value("x")); }},
    {"annotation", [](SnapshotBuilder& b, const std::string& text) { b.annotate("x", Value(text)); }},
};

Snapshot model(const Place& place, const std::string& text) {
  SnapshotBuilder builder;
  builder.begin(NodeKind::module, "");
  add_tensor(builder, "w");
  place.put(builder, text);
  builder.end();
  return builder.finish();
}

std::vector<std::string> texts() {
  std::vector<std::string> all{"plain"s,
                               "\xff"s,
                               "a\xc0\x80"s,
                               "\xed\xa0\x80"s,
                               "\xf4\x90\x80\x80"s,
                               "\xe2\x82"s,
                               "caf\xe9"s,
                               "$str:"s,
                               "$str:/w=="s,
                               "$$str:/w=="s,
                               "$str"s,
                               "$bytes"s,
                               "stele"s,
                               "%FF"s,
                               "\\xff"s,
                               "x\xff.y"s,
                               "nul\0x"s,
                               "nul\0\xff"s,
                               " "s,
                               "\xef\xbb\xbf"s,
                               "\xef\xbf\xbd"s};
  Random random(1);
  for (int i = 0; i < 40; ++i) all.push_back(random.bytes(1 + random.below(12)));
  return all;
}

std::string shown(const std::string& text) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string all;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte < 0x7f) {
      all += c;
    } else {
      all += {'\\', 'x', digits[byte >> 4U], digits[byte & 15U]};
    }
  }
  return all;
}

struct Saved {
  stele::Bytes bytes;
  std::shared_ptr<stele::Bundle> bundle = stele::memory_bundle();
};

stele::Status save(const Format& format, const Snapshot& snapshot, Saved& to) {
  const stele::detail::Object object = stele::detail::object_of(snapshot);
  if (format.is_folder()) {
    STELE_TRY(stele::detail::save_object(format, {}, object, *stele::bundle_sink(to.bundle), {}));
    return {};
  }
  stele::BufferSink sink;
  STELE_TRY(stele::detail::save_object(format, {}, object, sink, {}));
  to.bytes = sink.take();
  return {};
}

stele::Result<Snapshot> open(const Format& format, const Saved& saved, const Snapshot& as) {
  stele::LoadOptions options;
  if (format.name() == "paddle") options.layout = good(stele::layout_of(as));
  if (format.is_folder()) return stele::detail::open({&format}, stele::bundle_source(saved.bundle), options);
  return stele::detail::open({&format}, saved.bytes, options);
}

}  // namespace

TEST_CASE("text: any bytes in any place of any format") {
  std::size_t kept = 0;
  std::size_t refused = 0;
  const auto lost = [](const Format& format, const Place& place,
                       const std::string& text) -> std::optional<std::string> {
    const Snapshot before = model(place, text);
    Saved saved;
    if (!save(format, before, saved)) return std::nullopt;
    const auto after = open(format, saved, before);
    return after ? difference(facts(before, format.capabilities()), facts(*after, format.capabilities())) : why(after);
  };
  for (const Format* const format : stele::formats()) {
    if (format->name() == "nnef-tensor" || format->name() == "npy") continue;  // hold one tensor
    // Shards, which a bundle of memory holds like folders, are named by their index.
    if (format->name() == "safetensors-sharded" || !format->writes()) continue;
    stele::Capabilities can = format->capabilities();
    const std::string name(format->name());
    CAPTURE(name);
    for (const Place& place : places) {
      if (place.what.starts_with("annotation") && !can.annotations) continue;
      CAPTURE(place.what);
      // A place that loses even plain text is skipped: the bytes are not the cause.
      if (lost(*format, place, "plain") != "") continue;
      for (const std::string& text : texts()) {
        const std::string visible = shown(text);
        CAPTURE(visible);
        Saved saved;
        const auto status = save(*format, model(place, text), saved);
        if (!status) {
          const Errc code = status.error().code();
          CHECK_MESSAGE((code == Errc::not_representable || code == Errc::invalid_argument || code == Errc::duplicate),
                        why(status));
          ++refused;
          continue;
        }
        const std::string difference = *lost(*format, place, text);
        CHECK(difference == "");
        ++kept;
      }
    }
  }
  CHECK(kept > 1000);
  CHECK(refused > 1000);
}

TEST_CASE("text: names that older files have as they are") {
  for (const std::string name : {"$str:", "$str:abc", "$str:YQ==", "$str:$", "$$str:/w=="}) {
    const std::string header = R"({"__metadata__":{"stele":"{\"version\":1,\"values\":{\")" + name + R"(\":1}}"}})";
    std::string file(8, '\0');
    file[0] = static_cast<char>(header.size());
    file += header;
    const Snapshot snapshot = good(stele::SafetensorsRecorder<>().open(bytes_of(file)));
    REQUIRE(snapshot.nodes().size() == 2);
    CHECK(snapshot.path(1) == name);
  }
}

}  // namespace text_test
