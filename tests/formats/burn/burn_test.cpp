// Burn's records: what Burn wrote, and what is written for it.
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "encodings/gzip/gzip.hpp"
#include "support/burn_net.hpp"
#include "support/left_out.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

using namespace stele_test;
using burn_net::Net;
using stele::BurnEncoding;
using stele::BurnEra;
using stele::BurnFormat;
using stele::BurnRecorder;
using stele::Errc;
using stele::Snapshot;

namespace stele_test {
namespace {

std::string golden(const std::string& name) { return test_data("burn") + "/" + name; }

/// Files that hold the model, of all versions: "0.21.0/net-full.mpk", …
std::vector<std::string> models() {
  std::vector<std::string> names;
  for (const auto& folder : std::filesystem::directory_iterator(golden(""))) {
    if (!folder.is_directory()) continue;
    for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
      const std::string name = file.path().filename().string();
      const bool record =
          name.find(".mpk") != name.npos || name.find(".json") != name.npos || name.find(".bin") != name.npos;
      if (!record || name.ends_with(".expect") || (!name.starts_with("net") && !name.starts_with("finite"))) continue;
      names.push_back(folder.path().filename().string() + '/' + name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}
int minor_of(const std::string& name) { return std::stoi(name.substr(2)); }

TEST_CASE("burn: every record that Burn wrote is loaded as Burn loads it") {
  std::size_t count = 0;
  for (const std::string& name : models()) {
    CAPTURE(name);
    burn_net::with_net(minor_of(name), [&]<class M>(M*) {
      const M net = good(BurnRecorder<>().load<M>(golden(name)));
      CHECK(burn_net::difference(good(stele::snapshot_of(net)), golden(name), true) == "");
    });
    ++count;
  }
  CHECK(count >= 40);
}

std::string inflated(const std::string& bytes) {
  if (!bytes.starts_with("\x1f\x8b")) return bytes;
  stele::detail::gzip::Gzip file(stele::borrow_bytes(std::as_bytes(std::span(bytes))));
  std::string plain(std::size_t{1} << 20, '\0');
  plain.resize(good(file.next(std::as_writable_bytes(std::span(plain)))));
  return plain;
}

std::string text_of(const stele::Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

BurnFormat format_of(const std::string& name) {
  stele::BurnOptions options;
  options.encoding = name.find(".bin") != name.npos    ? BurnEncoding::bin
                     : name.find(".json") != name.npos ? BurnEncoding::json
                                                       : BurnEncoding::mpk;
  options.gzip = name.ends_with(".gz");
  return BurnFormat(options);
}

TEST_CASE("burn: a record of Burn's is written again byte for byte") {
  for (const std::string& name : models()) {
    CAPTURE(name);
    if (minor_of(name) <= 13) continue;  // read only
    const std::string before = read_text(golden(name));
    stele::BurnOptions options = format_of(name).options();
    if (options.encoding == BurnEncoding::bin) {
      burn_net::with_net(minor_of(name), [&]<class M>(M*) { options.schema = stele::schema_of<M>(); });
    }
    const stele::MemoryRecorder<BurnFormat> recorder{BurnFormat(options)};
    CHECK(inflated(text_of(good(recorder.save(good(recorder.open(golden(name))))))) == inflated(before));
  }
}

template <class M, class Precision>
void check_saved(const std::string& name, BurnEra era) {
  const M net = good(BurnRecorder<>().load<M>(golden(name)));
  stele::BurnOptions options = format_of(name).options();
  options.era = era;
  const stele::MemoryRecorder<BurnFormat, Precision> recorder{BurnFormat(options)};
  CHECK(inflated(text_of(good(recorder.save(net)))) == inflated(read_text(golden(name))));
}

TEST_CASE("burn: a module is saved as Burn saves it, byte for byte") {
  for (const std::string& name : models()) {
    CAPTURE(name);
    if (!name.starts_with("0.21.0/") || name.find("bytes") != name.npos) continue;
    if (name.find("half") != name.npos) {
      check_saved<Net<>, stele::BurnHalfPrecision>(name, BurnEra::automatic);
    } else if (name.find("double") != name.npos) {
      check_saved<Net<>, stele::BurnDoublePrecision>(name, BurnEra::automatic);
    } else {
      check_saved<Net<>, stele::BurnFullPrecision>(name, BurnEra::automatic);
    }
  }
}

TEST_CASE("burn: tensors of every type, also quantized ones, go from encoding to encoding") {
  const std::string names[] = {"mpk", "json", "bin"};
  for (const std::string& from : names) {
    stele::BurnOptions options;
    options.schema = stele::schema_of<burn_net::Dtypes<21>>();
    const std::string file = golden("0.21.0/dtypes." + from);
    const Snapshot opened = good(BurnRecorder<>(BurnFormat(options)).open(file));
    CAPTURE(from);
    CHECK(burn_net::difference(opened, file, false) == "");
    for (const std::string& to : names) {
      CAPTURE(to);
      const std::string other = golden("0.21.0/dtypes." + to);
      options.encoding = format_of(other).options().encoding;
      const stele::MemoryRecorder<BurnFormat> recorder{BurnFormat(options)};
      CHECK(text_of(good(recorder.save(opened))) == read_text(other));
    }
  }
}

TEST_CASE("burn: plain values of a record") {
  const Snapshot mpk = good(BurnRecorder<>().open(golden("0.21.0/primitives.mpk")));
  const Snapshot json = good(BurnRecorder<>().open(golden("0.21.0/primitives.json")));
  const auto values = [](const Snapshot& snapshot) {
    std::vector<std::pair<std::string, stele::Value>> all;
    for (std::uint32_t i = 0; i < snapshot.nodes().size(); ++i) {
      const stele::Node& node = snapshot.nodes()[i];
      if (node.kind == stele::NodeKind::value) all.emplace_back(snapshot.path(i), snapshot.value(node));
    }
    return all;
  };
  CHECK(values(mpk).size() == 29);
  const auto same = values(mpk) == values(json);  // but for f32: JSON has its shortest digits
  CHECK(!same);
  CHECK(mpk.find("tensor")->annotations()->contains("burn.bare"));
}

TEST_CASE("burn: a real model in MessagePack is written again byte for byte") {
  const auto path = shared_file("fixtures/burn/modern-lstm-2690895bd.mpk");
  if (!path) return;
  const std::string& file = *path;
  const stele::MemoryRecorder<BurnFormat> recorder;
  const Snapshot opened = good(recorder.open(file));
  CHECK(stele::burn_header(opened)->version == "0.17.0");
  const auto leaf = opened.find("stacked_lstm.layers.0.weight_ih.weight");
  REQUIRE(leaf);
  CHECK(stele::Shape(leaf->shape()) == stele::Shape({1, 128}));
  CHECK(leaf->dtype() == stele::DType::f16);
  CHECK(stele::detail::burn::id_text(*leaf->id()) == "lrfckrk4a5oj6");
  CHECK(recorder.verify(file));
  CHECK(text_of(good(recorder.save(opened))) == read_text(file));
}

}  // namespace
}  // namespace stele_test
