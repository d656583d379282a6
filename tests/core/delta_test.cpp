// Deltas of weights: what apply_delta() gives is the new version, bit for bit, and nothing else is accepted.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "snapshot/data.hpp"
#include "stele/composite.hpp"
#include "stele/delta.hpp"
#include "stele/recorders/any.hpp"
#include "stele/recorders/stele_reader.hpp"
#include "stele/transform.hpp"
#include "support/models.hpp"
#include "support/random_model.hpp"
#include "support/sanitizers.hpp"
#include "support/stele_file.hpp"
#include "support/temp_dir.hpp"

namespace delta_test {

namespace {

using namespace stele;
using namespace stele_test;
using Weights = std::map<std::string, Tensor<float>>;

/// Returns a later version of a snapshot: some of its tensors have some other bytes.
Snapshot later(const Snapshot& snapshot, Random& random) {
  auto data = detail::derived_data(snapshot);
  for (std::size_t i = 0; i < data->leaves.size(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    if (leaf.byte_size() == 0 || random.chance(30)) continue;
    auto bytes = std::make_shared<std::string>(content(leaf).value());
    const unsigned rate = random.chance(50) ? 3 : 60;
    for (char& c : *bytes) {
      if (random.chance(rate) && leaf.dtype() != DType::boolean) c = static_cast<char>(random.bits());
    }
    data->leaves[i].provider = {random.chance(50) ? &memory_ops : &read_only_ops, bytes->data(), 0};
    data->keepers.push_back(bytes);
  }
  return Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
}

std::map<std::string, std::string> all_facts(const Snapshot& snapshot) {
  return facts(snapshot, can<BinaryRecorder<>>());
}

/// Weights of which `changed` in a million differ from those of another seed's base.
Weights weights(std::size_t tensors, std::size_t elements, std::uint64_t changed, std::uint64_t seed = 1) {
  Random base(7), change(seed);
  Weights all;
  for (std::size_t t = 0; t < tensors; ++t) {
    Tensor<float> tensor({elements});
    for (std::size_t i = 0; i < elements; ++i) {
      tensor.data()[i] = static_cast<float>(static_cast<std::int64_t>(base.bits() >> 40)) * 1e-6F;
      if (change.below(1'000'000) < changed) tensor.data()[i] *= 1.001F;
    }
    all.emplace("layer" + std::to_string(t) + ".weight", std::move(tensor));
  }
  return all;
}

Bytes delta_file(const Snapshot& base, const Snapshot& next) {
  const auto delta = make_delta(base, next);
  REQUIRE_MESSAGE(delta, delta.error().to_string());
  auto file = saved(CompressedRecorder<>(), *delta);
  REQUIRE_MESSAGE(file, file.error().to_string());
  return *std::move(file);
}

/// Returns the part of the model's metadata that describes a delta, with other text in it.
Snapshot with_annotation(const Snapshot& delta, std::size_t leaf, const char* key, Value value) {
  auto data = detail::derived_data(delta);
  auto& annotations = data->extras[data->leaves[leaf].extra].annotations;
  Annotations changed = *annotations;
  for (auto& [name, old] : *changed["stele.delta"].as_map()) {
    if (name == key) old = value;
  }
  annotations = std::make_unique<const Annotations>(std::move(changed));
  return Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
}

}  // namespace

TEST_CASE_TEMPLATE("delta: base and delta give the new version, bit for bit, also after a save", R, BinaryRecorder<>,
                   CompressedRecorder<>, JsonRecorder<>) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const Snapshot base = random_snapshot(random, can<R>());
    const Snapshot next = seed % 5 == 4 ? random_snapshot(random, can<R>()) : later(base, random);
    const auto delta = make_delta(base, next);
    REQUIRE_MESSAGE(delta, delta.error().to_string());
    const auto file = saved(R(), *delta);
    REQUIRE_MESSAGE(file, file.error().to_string());
    const auto opened = R().open(*file);
    REQUIRE_MESSAGE(opened, opened.error().to_string());
    for (const Snapshot& d : {*delta, *opened}) {
      const auto applied = apply_delta(base, d);
      REQUIRE_MESSAGE(applied, applied.error().to_string());
      CHECK(difference(facts(*applied, can<R>()), facts(next, can<R>())) == "");
      CHECK(weights_digest(*applied).value() == delta_info(d)->next);
    }
    CHECK(delta_info(*opened)->base == weights_digest(base).value());
    CHECK(delta_info(*opened)->next == weights_digest(next).value());
    bool meaningful = true;  // random bytes are no bools
    for (std::size_t i = 0; i < delta->leaf_count(); ++i) {
      meaningful = meaningful && means_something(delta->leaf(i).dtype(), content(delta->leaf(i)).value());
    }
    CHECK(R().verify(*file).has_value() == meaningful);
  }
}

TEST_CASE("delta: unchanged tensors have no bytes, few changes are sparse, many are a XOR") {
  const Weights base = weights(3, 300'000, 0);
  Weights next = base;
  for (std::size_t i = 0; i < 300; ++i) next["layer1.weight"].data()[i * 997] *= 1.001F;
  for (std::size_t i = 0; i < 300'000; ++i) next["layer2.weight"].data()[i] *= 1.0001F;
  next.emplace("new", Tensor<float>::filled({3}, 1));
  const auto delta = make_delta(snapshot_of(base).value(), snapshot_of(next).value()).value();
  const auto info = delta_info(delta).value();
  CHECK(info.unchanged == 1);
  CHECK(info.changed == 2);
  CHECK(info.added == 1);
  CHECK(info.renamed == 0);
  CHECK(delta.find("layer0.weight")->byte_size() == 0);
  CHECK(delta.find("layer1.weight")->byte_size() < 300 * 10);
  CHECK(delta.find("layer2.weight")->byte_size() == 1'200'000);
  const auto applied = apply_delta(snapshot_of(base).value(), delta).value();
  const auto loaded = load<Weights>(applied);
  REQUIRE_MESSAGE(loaded, loaded.error().to_string());
  CHECK(all_facts(snapshot_of(*loaded).value()) == all_facts(snapshot_of(next).value()));
  // A part of each, within a piece and over several.
  for (const auto& entry : next) {
    CAPTURE(entry.first);
    const Tensor<float>& tensor = entry.second;
    const auto leaf = applied.find(entry.first);
    REQUIRE(leaf);
    for (const std::size_t left_out : {std::size_t{1}, tensor.size() / 3}) {
      std::vector<float> part(tensor.size() - 2 * left_out);
      REQUIRE(leaf->read(4 * left_out, std::as_writable_bytes(std::span(part))));
      CHECK(std::equal(part.begin(), part.end(), tensor.data() + left_out));
    }
  }
}

TEST_CASE("delta: renamed and removed tensors, and tensors with another dtype or shape") {
  Weights base = weights(2, 100, 0);
  base.emplace("old", Tensor<float>::filled({50}, 2));
  base.emplace("gone", Tensor<float>::filled({5}, 3));
  base.emplace("reshaped", Tensor<float>::filled({6}, 4));
  Weights next = weights(2, 100, 0);
  next.emplace("renamed", Tensor<float>::filled({50}, 2));
  next.emplace("reshaped", Tensor<float>::filled({2, 3}, 4));
  const Bytes file = delta_file(snapshot_of(base).value(), snapshot_of(next).value());
  const Snapshot delta = BinaryRecorder<>().open(file).value();
  const auto info = delta_info(delta).value();
  CHECK(info.unchanged == 3);
  CHECK(info.renamed == 1);
  CHECK(info.added == 1);
  const auto applied = apply_delta(snapshot_of(base).value(), delta).value();
  CHECK(all_facts(applied) == all_facts(snapshot_of(next).value()));
}

TEST_CASE("delta: the formats of base and result do not matter, and partial reads are checked") {
  TempDir dir;
  const Weights base = weights(2, 200'000, 0), next = weights(2, 200'000, 5'000);
  REQUIRE(save(base, dir / "base.safetensors", quick()));
  REQUIRE(save(next, dir / "next.stele", quick()));
  const auto delta = make_delta(open(dir / "base.safetensors").value(), open(dir / "next.stele").value()).value();
  REQUIRE(CompressedRecorder<>().save(delta, dir / "d.stele", quick()));
  REQUIRE(save(base, dir / "base.npz", quick()));
  for (const char* const name : {"base.safetensors", "base.npz"}) {
    CAPTURE(name);
    const auto opened = open_with_deltas(dir / name, {dir / "d.stele"});
    REQUIRE_MESSAGE(opened, opened.error().to_string());
    const auto leaf = opened->find(opened->flat() ? "layer1.weight" : "layer1\\.weight");
    REQUIRE(leaf);
    std::array<float, 1000> part{};
    REQUIRE(leaf->read(4 * 100'000, std::as_writable_bytes(std::span(part))));
    CHECK(std::equal(part.begin(), part.end(), next.at("layer1.weight").data() + 100'000));
    CHECK(load<Weights>(*opened).value().at("layer0.weight").data()[199'999] ==
          next.at("layer0.weight").data()[199'999]);
  }
  REQUIRE(save(open_with_deltas(dir / "base.npz", {dir / "d.stele"}).value(), dir / "result.safetensors", quick()));
  CHECK(weights_digest(open(dir / "result.safetensors").value()).value() == delta_info(delta)->next);
}

TEST_CASE("delta: chains in order, while every other order, repetition or base is an error") {
  TempDir dir;
  std::vector<Weights> versions;
  for (std::uint64_t v = 0; v < 4; ++v) versions.push_back(weights(3, 20'000, v * 3000));
  const auto name = [&](std::size_t v, const char* ending) { return dir / ("v" + std::to_string(v) + ending); };
  for (std::size_t v = 0; v < 4; ++v) {
    REQUIRE(save(versions[v], name(v, ".stele"), quick()));
    REQUIRE(save(versions[v], name(v, ".safetensors"), quick()));
    if (v == 0) continue;
    const auto delta = make_delta(open(name(v - 1, ".stele")).value(), open(name(v, ".stele")).value()).value();
    REQUIRE(CompressedRecorder<>().save(delta, name(v, ".delta.stele"), quick()));
  }
  const std::string all[] = {name(1, ".delta.stele"), name(2, ".delta.stele"), name(3, ".delta.stele")};
  for (const char* const ending : {".stele", ".safetensors"}) {
    CAPTURE(ending);
    const auto opened = open_with_deltas(name(0, ending), {all[0], all[1], all[2]});
    REQUIRE_MESSAGE(opened, opened.error().to_string());
    CHECK(weights_digest(*opened).value() == weights_digest(open(name(3, ".stele")).value()).value());
    CHECK(load<Weights>(*opened).value().at("layer2.weight").data()[19'999] ==
          versions[3].at("layer2.weight").data()[19'999]);
    const std::initializer_list<Input> wrong[] = {{all[1]}, {all[0], all[2]}, {all[0], all[0]}, {all[1], all[0]}};
    for (const auto& chain : wrong) {
      const auto bad = open_with_deltas(name(0, ending), chain);
      // A file without checksums shows at the first read that it is not the base.
      const auto code = bad ? load<Weights>(*bad).error().code() : bad.error().code();
      CHECK(code == Errc::checksum);
      if (bad) CHECK(!save(*bad, dir / "never.safetensors", quick()));
    }
  }
  CHECK(!open(dir / "never.safetensors"));

  // One delta instead of three.
  Snapshot merged = open(all[0]).value();
  for (const std::size_t i : {1U, 2U}) {
    const auto next = merge_deltas(merged, open(all[i]).value());
    REQUIRE_MESSAGE(next, next.error().to_string());
    merged = *next;
  }
  REQUIRE(CompressedRecorder<>().save(merged, dir / "merged.stele", quick()));
  const auto opened = open_with_deltas(name(0, ".safetensors"), {dir / "merged.stele"}).value();
  const Weights loaded = load<Weights>(opened).value();
  CHECK(all_facts(*snapshot_of(loaded)) == all_facts(snapshot_of(versions[3]).value()));
  CHECK(merge_deltas(open(all[0]).value(), open(all[2]).value()).error().code() == Errc::checksum);
}

TEST_CASE("delta: joining many reads each once, all at once or one after the other") {
  constexpr std::size_t count = 60;
  using Model = std::map<std::string, std::vector<float>>;
  std::vector<Model> models{{{"few", std::vector<float>(1000, 1.0F)}, {"many", std::vector<float>(2000, 1.0F)}}};
  models.reserve(count + 1);
  // A source that counts what is read of it.
  struct Counted final : Source {
    explicit Counted(Bytes bytes) : Source("counted"), all(std::move(bytes)) {}
    std::uint64_t size() const noexcept override { return all.size(); }
    Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
      read += out.size();
      const auto part = all.span().subspan(static_cast<std::size_t>(offset), out.size());
      std::copy(part.begin(), part.end(), out.begin());
      return {};
    }
    Bytes all;
    mutable std::atomic<std::uint64_t> read{0};
  };
  std::vector<std::shared_ptr<Counted>> sources;
  std::vector<Snapshot> deltas;
  for (std::size_t i = 0; i < count; ++i) {
    Model next = models.back();
    next["few"][i * 7 % 1000] += 1;
    for (std::size_t k = 0; k < 2000; ++k) next["many"][k] = static_cast<float>(k + i) * 1.5F;
    models.push_back(std::move(next));
    const Snapshot delta = make_delta(snapshot_of(models[i]).value(), snapshot_of(models[i + 1]).value()).value();
    sources.push_back(std::make_shared<Counted>(saved(BinaryRecorder<>(), delta).value()));
    deltas.push_back(BinaryRecorder<>().open(SourcePtr(sources.back())).value());
  }
  const auto read = [&] {
    std::uint64_t all = 0;
    for (const auto& source : sources) all += source->read.exchange(0);
    return all;
  };
  std::uint64_t bytes = 0;
  for (const auto& source : sources) bytes += source->size();
  static_cast<void>(read());
  const auto check = [&](const Result<Snapshot>& joined) {
    REQUIRE_MESSAGE(joined, joined.error().to_string());
    const auto file = saved(BinaryRecorder<>(), *joined);
    REQUIRE_MESSAGE(file, file.error().to_string());
    const Snapshot applied =
        apply_delta(snapshot_of(models.front()).value(), BinaryRecorder<>().open(*file).value()).value();
    CHECK(weights_digest(applied).value() == weights_digest(snapshot_of(models.back()).value()).value());
  };
  check(merge_deltas(deltas));
  CHECK(read() < 6 * bytes);  // to compare, and to write
  Snapshot joined = deltas.front();
  for (std::size_t i = 1; i < count; ++i) joined = merge_deltas(joined, deltas[i]).value();
  check(joined);
  CHECK(read() < 6 * count * bytes);  // each step reads those before it
  CHECK(merge_deltas(std::span(deltas).first(1)).has_value());
  CHECK(merge_deltas(std::span<const Snapshot>()).error().code() == Errc::invalid_argument);
}

TEST_CASE("delta: merging two deltas equals applying both, for random models") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const auto& all = can<BinaryRecorder<>>();
    const Snapshot a = random_snapshot(random, all);
    const Snapshot b = seed % 7 == 6 ? random_snapshot(random, all) : later(a, random);
    const Snapshot c = seed % 5 == 4 ? random_snapshot(random, all) : later(b, random);
    const Bytes one = delta_file(a, b), two = delta_file(b, c);
    const auto merged = merge_deltas(BinaryRecorder<>().open(one).value(), BinaryRecorder<>().open(two).value());
    REQUIRE_MESSAGE(merged, merged.error().to_string());
    const auto file = saved(CompressedRecorder<>(), *merged);
    REQUIRE_MESSAGE(file, file.error().to_string());
    const auto applied = apply_delta(a, BinaryRecorder<>().open(*file).value());
    REQUIRE_MESSAGE(applied, applied.error().to_string());
    CHECK(difference(all_facts(*applied), all_facts(c)) == "");
  }
}

TEST_CASE("delta: quantized weights are compared as the tensors that files store") {
  Weights w = {{"a.weight", Tensor<float>::filled({128, 128}, 0.5F)}};
  SnapshotBuilder builder;
  builder.set_flat();
  const Snapshot module = snapshot_of(w).value();
  builder.tensor("a.weight", DType::f32, std::vector<Extent>{128, 128}, 128 * 128 * 4, module.leaf(0).provider());
  const Snapshot floats = builder.finish();
  const auto quantized = quantize_weights(floats, {"fp8"}).value();
  const auto base = saved(SafetensorsRecorder<>(), quantized).value();
  w.at("a.weight").data()[5] = 0.25F;
  const auto next = saved(SafetensorsRecorder<>(), quantize_weights(floats, {"fp8"}).value()).value();
  const Snapshot from = SafetensorsRecorder<>().open(base).value(), to = SafetensorsRecorder<>().open(next).value();
  REQUIRE(composite(from.leaf(0)));
  const Bytes file = delta_file(from, to);
  const auto applied = apply_delta(from, BinaryRecorder<>().open(file).value());
  REQUIRE_MESSAGE(applied, applied.error().to_string());
  REQUIRE(composite(applied->leaf(0)));
  CHECK(content(applied->leaf(0)).value() == content(to.leaf(0)).value());
}

TEST_CASE("delta: a delta is not taken for a model") {
  const Weights base = weights(1, 5000, 0), next = weights(1, 5000, 900'000);
  const Bytes file = delta_file(snapshot_of(base).value(), snapshot_of(next).value());
  const Snapshot delta = BinaryRecorder<>().open(file).value();
  CHECK(load<Weights>(delta).error().code() == Errc::invalid_argument);
  CHECK(load<Weights>(file).error().message() == "the file is a delta of weights, not a model");
  CHECK(make_delta(delta, delta).error().code() == Errc::invalid_argument);
  CHECK(apply_delta(delta, delta).error().code() == Errc::invalid_argument);
  CHECK(apply_delta(snapshot_of(base).value(), snapshot_of(base).value()).error().code() == Errc::invalid_argument);
  CHECK(saved(SafetensorsRecorder<>(), delta).error().code() == Errc::not_representable);
  SaveOptions lossy;
  lossy.allow_loss = true;
  CHECK(!saved(NpzRecorder<>(), delta, lossy));
  CHECK((saved(BinaryRecorder<HalfPrecision>(), delta).error().code() == Errc::invalid_argument));
  CHECK(!delta_info(snapshot_of(base).value()));
  CHECK(filter(delta, {}).error().code() == Errc::invalid_argument);  // it could lack tensors
  // Readers that know no deltas refuse the file.
  format::MemoryFile memory;
  CHECK(memory.open(file.span()).code == Errc::unsupported);
  std::string unmarked(text_of(file.span()));
  put_at(unmarked, 16, std::uint64_t{1});
  fix_hashes(unmarked);
  CHECK(BinaryRecorder<>().open(bytes_of(unmarked)).error().code() == Errc::malformed);
}

TEST_CASE("delta: what a delta does not have of its base is in the report") {
  const Weights w = weights(1, 100, 0), later = weights(1, 100, 900'000);
  auto data = detail::derived_data(snapshot_of(w).value());
  data->left_out.emplace_back(detail::graph_part);
  const Snapshot base(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
  const Snapshot delta = make_delta(base, snapshot_of(later).value()).value();
  const auto applied = apply_delta(base, delta).value();
  BufferSink sink;
  const auto report = SafetensorsRecorder<>().save(applied, sink);
  REQUIRE(report);
  CHECK(report->count(Report::What::lost) == 1);
}

TEST_CASE("delta: the digest is that of the weights alone") {
  TempDir dir;
  const Weights w = weights(3, 1000, 0), other = weights(3, 1000, 100'000);
  REQUIRE(save(w, dir / "a.stele", quick()));
  REQUIRE(CompressedRecorder<>().save(w, dir / "b.stele", quick()));
  REQUIRE(save(w, dir / "c.npz", quick()));
  const std::string digest = weights_digest(snapshot_of(w).value()).value();
  CHECK(digest.size() == 16);
  for (const char* const name : {"a.stele", "b.stele"})
    CHECK(weights_digest(open(dir / name).value()).value() == digest);
  CHECK(weights_digest(snapshot_of(other).value()).value() != digest);
}

TEST_CASE("delta: 100,000 tensors") {
  constexpr int many = sanitizers ? 10'000 : 100'000;
  SnapshotBuilder base, next;
  static const float zero = 0, one = 1;
  for (SnapshotBuilder* builder : {&base, &next}) {
    builder->set_flat();
    for (int i = 0; i < many; ++i) {
      const float* const at = builder == &next && i % 10 == 0 ? &one : &zero;
      builder->tensor(builder->intern("t" + std::to_string(i)), DType::f32, {}, 4, {&memory_ops, at, 0});
    }
  }
  const Snapshot from = base.finish(), to = next.finish();
  const Bytes file = delta_file(from, to);
  const auto opened = BinaryRecorder<>().open(file);
  REQUIRE_MESSAGE(opened, opened.error().to_string());
  CHECK(delta_info(*opened)->unchanged == many / 10 * 9);
  const auto applied = apply_delta(from, *opened).value();
  CHECK(all_facts(applied) == all_facts(to));
}

TEST_CASE("delta: annotations and tables that lie are errors") {
  const Weights base = weights(2, 3'000'000, 0);
  Weights next = base;
  for (const std::size_t at : {0U, 5U, 700U, 1'048'575U, 1'048'576U, 2'999'999U}) next["layer0.weight"].data()[at] = 9;
  const Snapshot from = snapshot_of(base).value();
  const Snapshot delta = make_delta(from, snapshot_of(next).value()).value();
  const auto fails = [&](const Snapshot& bad) {
    const auto applied = apply_delta(from, bad);
    if (!applied) return applied.error().code();
    const auto loaded = load<Weights>(*applied);
    return loaded ? Errc::none : loaded.error().code();
  };
  CHECK(fails(delta) == Errc::none);
  const Value::List other_shape = {Value(3'000'001)}, huge = {Value(std::uint64_t{1} << 62), Value(16)};
  for (const std::size_t leaf : {0U, 1U}) {
    CAPTURE(leaf);
    CHECK(fails(with_annotation(delta, leaf, "is", "zip")) == Errc::unsupported);
    CHECK(fails(with_annotation(delta, leaf, "is", Value(3))) == Errc::malformed);
    CHECK(fails(with_annotation(delta, leaf, "hash", Value(3))) != Errc::none);
    CHECK(fails(with_annotation(delta, leaf, "base", Value(3))) != Errc::none);
    CHECK(fails(with_annotation(delta, leaf, "base", "x")) == Errc::malformed);
    CHECK(fails(with_annotation(delta, leaf, "dtype", "f64")) == Errc::malformed);
    CHECK(fails(with_annotation(delta, leaf, "dtype", "f33")) == Errc::unsupported);
    CHECK(fails(with_annotation(delta, leaf, "shape", other_shape)) == Errc::malformed);
    CHECK(fails(with_annotation(delta, leaf, "shape", huge)) == Errc::malformed);
    CHECK(fails(with_annotation(delta, leaf, "bytes", Value(12'000'004))) == Errc::malformed);
    CHECK(!delta_info(with_annotation(delta, leaf, "is", "zip")));
  }
  // Bytes of the sparse tensor: its table, gaps of 255 elements and more, changed elements.
  const std::string good = content(delta.leaf(0)).value();
  CHECK(good.size() < 10'000);
  for (std::size_t i = 0; i < good.size(); i += i < 50 ? 1 : 113) {
    CAPTURE(i);
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] + 1);
    auto data = detail::derived_data(delta);
    data->leaves[0].provider = {&memory_ops, bytes.data(), 0};
    const Errc code = fails(Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data))));
    CHECK((code == Errc::malformed || code == Errc::checksum));
  }
  auto described = delta.metadata();
  std::string& promised = described["stele.delta"];
  promised.replace(promised.find(delta_info(delta)->next), 16, "0123456789abcdef");
  CHECK(fails(with_metadata(delta, described)) == Errc::checksum);  // as if it lacked a tensor
  for (const char* const text : {"", "{}", R"({"version":2})", R"({"version":1})", "[1]"}) {
    described["stele.delta"] = text;
    CHECK(fails(with_metadata(delta, described)) != Errc::none);
  }
}

TEST_CASE("delta: a long chain has a limit") {
  const Weights weight = {{"w", Tensor<float>::filled({10}, 1)}};
  Snapshot model = snapshot_of(weight).value();
  const Snapshot nothing = make_delta(model, model).value();
  Weights other = {{"w", Tensor<float>::filled({10}, 2)}};
  const Snapshot there = make_delta(model, snapshot_of(other).value()).value();
  const Snapshot back = make_delta(snapshot_of(other).value(), model).value();
  Errc code = Errc::none;
  int applied = 0;
  for (; applied < 1000 && code == Errc::none; ++applied) {
    auto next = apply_delta(model, applied % 2 == 0 ? there : back);
    next ? void(model = *next) : void(code = next.error().code());
  }
  CHECK(code == Errc::limit);
  CHECK(applied == 257);
  CHECK(load<Weights>(model).value().at("w").data()[3] == 1);
}

}  // namespace delta_test
