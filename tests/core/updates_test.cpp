// Weight updates in slime's layout.
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "stele/bundle.hpp"
#include "stele/deltas/updates.hpp"
#include "stele/recorders/any.hpp"
#include "support/random_model.hpp"
#include "support/temp_dir.hpp"

namespace updates_test {

namespace {

using namespace stele;
using namespace stele_test;
using Weights = std::map<std::string, Tensor<float>>;

Weights weights(std::size_t elements, std::uint64_t version) {
  Random base(3), change(version);
  Weights all;
  for (const char* const name : {"a_weight", "b_weight", "frozen"}) {
    Tensor<float> tensor({elements});
    for (std::size_t i = 0; i < elements; ++i) {
      tensor.data()[i] = static_cast<float>(static_cast<std::int64_t>(base.bits() >> 40)) * 1e-6F;
      if (name[0] != 'f' && version != 0 && change.chance(3)) tensor.data()[i] *= 1.001F;
    }
    all.emplace(name, std::move(tensor));
  }
  return all;
}

Snapshot saved_file(const Weights& w, const std::string& path) {
  REQUIRE(save(w, path, quick()));
  return open(path).value();
}

std::map<std::string, std::string> contents(const Snapshot& snapshot) {
  std::map<std::string, std::string> all;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    all.emplace(leaf.path(), std::string(name(leaf.dtype())) + content(leaf).value());
  }
  return all;
}

void change_file(const std::string& path, const std::string& from, const std::string& to) {
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  in.close();
  REQUIRE(text.find(from) != text.npos);
  text.replace(text.find(from), from.size(), to);
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace

TEST_CASE("updates: what is written is read, for both encodings and checksums") {
  TempDir dir;
  const Snapshot base = saved_file(weights(200'000, 0), dir / "v0.safetensors");
  const Snapshot next = saved_file(weights(200'000, 1), dir / "v1.safetensors");
  for (const char* const encoding : {"xor", "overwrite"}) {
    for (const char* const checksum : {"xxh3-128", "adler32"}) {
      CAPTURE(encoding);
      CAPTURE(checksum);
      const std::string folder = dir / (std::string("weight_v1-") + encoding + checksum);
      const auto report = save_update(base, next, folder, {1, encoding, checksum}, quick());
      REQUIRE_MESSAGE(report, report.error().to_string());
      CHECK(is_update(folder).value());
      CHECK(open(folder).value().leaf_count() == 2);  // the frozen tensor has no bytes
      const auto applied = apply_update(base, folder);
      REQUIRE_MESSAGE(applied, applied.error().to_string());
      CHECK(contents(*applied) == contents(next));
      const auto leaf = applied->find("b_weight");
      std::array<float, 100> part{};
      for (int again = 0; again < 2; ++again) {
        REQUIRE(leaf->read(4 * 150'000, std::as_writable_bytes(std::span(part))));
        CHECK(text_of(std::as_bytes(std::span(part))) == content(*next.find("b_weight")).value().substr(600'000, 400));
      }
      CHECK(load<Weights>(*applied).value().size() == 3);
    }
  }
  CHECK(!is_update(dir / "v0.safetensors").value());
  CHECK(apply_update(base, dir / "v0.safetensors").error().code() == Errc::invalid_argument);
}

TEST_CASE("updates: a chain has its order, and another base is an error") {
  TempDir dir;
  std::vector<Snapshot> versions;
  for (std::uint64_t v = 0; v < 4; ++v) {
    versions.push_back(saved_file(weights(10'000, v), dir / ("v" + std::to_string(v) + ".safetensors")));
    if (v != 0) REQUIRE(save_update(versions[v - 1], versions[v], dir / ("u" + std::to_string(v)), {v}, quick()));
  }
  Snapshot now = versions[0];
  for (const char* const name : {"u1", "u2", "u3"}) {
    const auto next = apply_update(now, dir / name);
    REQUIRE_MESSAGE(next, next.error().to_string());
    now = *next;
  }
  CHECK(contents(now) == contents(versions[3]));
  CHECK(apply_update(now, dir / "u3").error().code() == Errc::invalid_argument);
  CHECK(apply_update(apply_update(versions[0], dir / "u1").value(), dir / "u3").error().code() ==
        Errc::invalid_argument);
  const auto other = apply_update(versions[0], dir / "u3");  // its tensors show it
  REQUIRE(other);
  CHECK(load<Weights>(*other).error().code() == Errc::checksum);
  std::array<float, 4> part{};
  CHECK(other->find("a_weight")->read(0, std::as_writable_bytes(std::span(part))).error().code() == Errc::checksum);
  CHECK(!save(*other, dir / "never.safetensors", quick()));
  CHECK(!open(dir / "never.safetensors"));
}

TEST_CASE("updates: what the layout cannot hold is an error") {
  TempDir dir;
  const Weights w = weights(100, 0);
  Weights more = w, fewer = w, shape = w;
  more.emplace("new", Tensor<float>::filled({1}, 1));
  fewer.erase("frozen");
  shape["frozen"] = Tensor<float>::filled({5}, 1);
  const Snapshot base = snapshot_of(w).value();
  for (const Weights* next : {&more, &fewer, &shape}) {
    CHECK(save_update(base, snapshot_of(*next).value(), dir / "u").error().code() == Errc::not_representable);
  }
  const Snapshot described = with_metadata(base, {{"epoch", "2"}});
  CHECK(save_update(base, described, dir / "u").error().code() == Errc::not_representable);
  SaveOptions lossy = quick();
  lossy.allow_loss = true;
  CHECK(save_update(base, described, dir / "u", {}, lossy).value().count(Report::What::lost) == 1);
  CHECK(save_update(base, base, dir / "u", {0}, quick()).error().code() == Errc::invalid_argument);
  CHECK(save_update(base, base, dir / "u", {1, "zip"}, quick()).error().code() == Errc::invalid_argument);
  CHECK(save_update(base, base, dir / "u", {1, "xor", "blake3"}, quick()).error().code() == Errc::invalid_argument);
  // Nothing changed: an index alone.
  REQUIRE(save_update(base, base, dir / "same", {}, quick()));
  CHECK(contents(apply_update(base, dir / "same").value()) == contents(base));

  // Positions have 32 bits.
  static constexpr LeafOps zeros{
      .read = [](const void* at, std::uint64_t, std::uint64_t, std::span<std::byte> out, ReadContext&) -> Status {
        std::fill(out.begin(), out.end(), at == nullptr ? std::byte{0} : std::byte{1});
        return {};
      }};
  static const int one = 1;
  const auto huge = [&](const void* at) {
    SnapshotBuilder builder;
    builder.set_flat();
    const Extent size = std::uint64_t{5} << 30;
    builder.tensor("huge", DType::u8, std::span(&size, 1), size, {&zeros, at, 0});
    return builder.finish();
  };
  const auto refused = save_update(huge(nullptr), huge(&one), dir / "huge", {1, "overwrite"}, quick());
  REQUIRE(!refused);
  CHECK(refused.error().code() == Errc::limit);
  CHECK(refused.error().path() == "huge");
}

TEST_CASE("updates: files that lie are errors") {
  TempDir dir;
  const Snapshot base = saved_file(weights(5000, 0), dir / "v0.safetensors");
  const Snapshot next = saved_file(weights(5000, 1), dir / "v1.safetensors");
  const std::string index = "/model.safetensors.index.json", file = "/model-00001-of-00001.safetensors";
  const auto changed = [&](const std::string& in, const std::string& from, const std::string& to) {
    const std::string folder = dir / "changed";
    REQUIRE(save_update(base, next, folder, {1, "overwrite"}, quick()));
    change_file(folder + in, from, to);
    const auto applied = apply_update(base, folder);
    if (!applied) return applied.error().code();
    const auto loaded = load<Weights>(*applied);
    return loaded ? Errc::none : loaded.error().code();
  };
  CHECK(changed(index, "overwrite", "sparse___") == Errc::unsupported);
  CHECK(changed(index, "xxh3-128", "blake3xx") == Errc::unsupported);
  CHECK(changed(index, "\"zstd\"", "\"gzip\"") == Errc::unsupported);
  CHECK(changed(index, "000001", "00000x") == Errc::malformed);
  CHECK(changed(index, "a_weight", "c_weight") != Errc::none);
  CHECK(changed(file, "\"U8\"", "\"I8\"") == Errc::malformed);
  CHECK(changed(index, "overwrite", "xor\",\"x\":\"") != Errc::none);  // XORs are longer than lists of positions

  // Every byte of the compressed changes, one at a time.
  const std::string folder = dir / "damaged";
  REQUIRE(save_update(base, next, folder, {1, "overwrite"}, quick()));
  const auto place = open(folder + file).value().leaf(0).location().value();
  std::ifstream in(folder + file, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  in.close();
  for (std::size_t i = 0; i < 400; i += 3) {
    CAPTURE(i);
    std::string bad = good;
    bad[static_cast<std::size_t>(place.offset) + i] ^= 0x5a;
    std::ofstream(folder + file, std::ios::binary) << bad;
    const auto applied = apply_update(base, folder);
    REQUIRE(applied);
    const auto loaded = load<Weights>(*applied);
    if (loaded) {
      CHECK(contents(*applied) == contents(next));  // a bit of the frame that means nothing
    } else {
      CHECK((loaded.error().code() == Errc::malformed || loaded.error().code() == Errc::checksum));
    }
  }
}

}  // namespace updates_test
