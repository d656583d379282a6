// Schema and Layout: what types and live modules say of names, and a format that needs it.
#include <stele/layout.hpp>
#include <stele/module.hpp>
#include <stele/recorder.hpp>
#include <stele/recorders/binary.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/schema.hpp>
#include <stele/tensor.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "support/models.hpp"

using namespace stele_test;
using stele::DType;
using stele::Errc;
using stele::Layout;
using stele::Shape;
using stele::Tensor;
using stele::TypeKind;

namespace stele_test {
namespace {

struct Block {
  Tensor<float, 2> weight;
  int groups = 1;
  std::array<double, 3> scale{};
  std::optional<int> note;
};

struct Closed {
  std::array<Block, 2> blocks;
  std::tuple<Vec, std::vector<float>> pair;
  std::array<std::int32_t, 4> steps{};
  std::string label;
  STELE_MODULE(Closed, blocks, pair, steps, label)
};

struct Tree {
  Vec value;
  std::unique_ptr<Tree> left;
  std::vector<Tree> more;
  STELE_MODULE(Tree, value, left, more)
};

struct Tied {
  std::shared_ptr<Block> first, second;
  Vec own;
  STELE_MODULE(Tied, first, second, own)
};

/// Tensors one after the other: u32 dtype, u32 rank, u64 extents, elements. No names.
class Positional final : public stele::Format {
 public:
  std::string_view name() const noexcept override { return "positional"; }
  std::string_view extension() const noexcept override { return ".pos"; }
  const stele::Capabilities& capabilities() const noexcept override {
    static constexpr stele::Capabilities can{};
    return can;
  }
  bool recognises(std::span<const std::byte>, std::uint64_t) const noexcept override { return false; }
  stele::Status write(const stele::Snapshot& snapshot, stele::Sink& sink, const stele::SaveOptions&) const override {
    for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
      const stele::LeafView leaf = snapshot.leaf(i);
      const std::uint32_t head[] = {static_cast<std::uint32_t>(leaf.dtype()),
                                    static_cast<std::uint32_t>(leaf.shape().size())};
      STELE_TRY(sink.write(std::as_bytes(std::span(head))));
      STELE_TRY(sink.write(std::as_bytes(leaf.shape())));
      std::vector<std::byte> bytes(static_cast<std::size_t>(leaf.byte_size()));
      STELE_TRY(leaf.read(0, bytes));
      STELE_TRY(sink.write(bytes));
    }
    return {};
  }
  stele::Result<stele::Snapshot> open(stele::SourcePtr source, const stele::OpenContext& context) const override {
    STELE_TRY_ASSIGN(const Layout layout, context.layout());
    stele::SnapshotBuilder builder;
    builder.set_flat();
    std::uint64_t at = 0;
    for (const Layout::Tensor& tensor : layout.tensors) {
      std::uint32_t head[2];
      STELE_TRY(source->read_at(at, std::as_writable_bytes(std::span(head))));
      std::vector<stele::Extent> shape(head[1]);
      STELE_TRY(source->read_at(at + 8, std::as_writable_bytes(std::span(shape))));
      at += 8 + 8 * shape.size();
      const auto dtype = static_cast<DType>(head[0]);
      const std::uint64_t bytes = *stele::byte_length(dtype, *stele::element_count(shape));
      builder.tensor(builder.intern(tensor.path), dtype, shape, bytes, {&ops, source.get(), at});
      at += bytes;
    }
    builder.keep(source);
    return builder.finish();
  }

 private:
  static stele::Status read(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                            stele::ReadContext&) {
    return static_cast<const stele::Source*>(at)->read_at(number + offset, out);
  }
  static constexpr stele::LeafOps ops{.read = read};
};

std::vector<std::string> paths(const Layout& layout) {
  std::vector<std::string> all;
  for (const Layout::Tensor& t : layout.tensors) all.push_back(t.path);
  return all;
}

}  // namespace

TEST_CASE("schema: a type's kinds, names, dtypes, shapes and values") {
  const stele::Schema closed = stele::schema_of<Closed>();
  CHECK(closed.kind() == TypeKind::module);
  CHECK(closed.name() == "Closed");
  REQUIRE(closed.field_count() == 4);
  CHECK(closed.unrecorded().empty());
  const stele::Schema blocks = closed.field(0).type;
  CHECK(closed.field(0).name == "blocks");
  CHECK(blocks.kind() == TypeKind::array);
  CHECK(blocks.length() == 2);
  CHECK(!blocks.open());

  const stele::Schema block = blocks.element();
  CHECK(block == stele::schema_of<Block>());
  CHECK(block.kind() == TypeKind::module);
  REQUIRE(block.field_count() == 4);
  CHECK(block.field(0).type.dtype() == DType::f32);
  CHECK(block.field(0).type.rank() == 2);
  CHECK(!block.field(0).type.shape());
  CHECK(block.field(1).type.kind() == TypeKind::value);
  CHECK(block.field(1).keeps_default);
  CHECK(block.field(2).name == "scale");
  CHECK(block.field(2).type.dtype() == DType::f64);
  CHECK(block.field(2).type.shape() == Shape{3});
  CHECK(block.field(3).type.kind() == TypeKind::optional);
  CHECK(block.unrecorded().empty());

  CHECK(closed.field(1).type.kind() == TypeKind::tuple);
  CHECK(closed.field(3).type.kind() == TypeKind::value);

  // Recursive types lead back to themselves.
  const stele::Schema tree = stele::schema_of<Tree>();
  CHECK(tree.field(1).type.kind() == TypeKind::pointer);
  CHECK(tree.field(1).type.open());
  CHECK(tree.field(1).type.element() == tree);
  CHECK(tree.field(2).type.element() == tree);
}

TEST_CASE("layout: of a type that leaves nothing open") {
  const Layout layout = good(stele::layout_of(stele::schema_of<Closed>()));
  CHECK(paths(layout) ==
        Paths{"blocks.0.weight", "blocks.0.scale", "blocks.1.weight", "blocks.1.scale", "pair.0", "pair.1", "steps"});
  CHECK(layout.tensors[1].shape == Shape{3});
  CHECK(layout.tensors[1].dtype == DType::f64);
  CHECK(!layout.tensors[0].shape);

  const stele::Error e = bad(stele::layout_of(stele::schema_of<Tree>()));
  CHECK(e.code() == Errc::needs_layout);
  CHECK(e.path() == "left");
  CHECK(e.found().find("pointer") != std::string::npos);
  for (const stele::Schema open : {stele::schema_of<Linear>(), stele::schema_of<Mlp>(), stele::schema_of<Tied>()}) {
    CHECK(bad(stele::layout_of(open)).code() == Errc::needs_layout);
  }
}

TEST_CASE("layout: of a live module, with every name of what is tied") {
  Tied tied;
  tied.first = tied.second = std::make_shared<Block>(Block{mat(2, 2, 1), 1, {}, {}});
  const Layout layout = good(stele::layout_of(tied));
  CHECK(paths(layout) == Paths{"first.weight", "first.scale", "second.weight", "second.scale", "own"});
  CHECK(layout.tensors[2].shape == Shape{2, 2});
  CHECK(!layout.tensors[4].shape);  // never set
  CHECK(layout.tensors[4].dtype == DType::f32);

  // The same from files, nested and flat.
  const stele::Bytes nested = good(stele::BytesRecorder<>().save(tied));
  const stele::Bytes flat = good(stele::MemoryRecorder<stele::SafetensorsFormat>().save(tied));
  for (const stele::Snapshot& file :
       {good(stele::BytesRecorder<>().open(nested)), good(stele::SafetensorsRecorder<>().open(flat))}) {
    std::vector<std::string> names = paths(good(stele::layout_of(file)));
    std::sort(names.begin(), names.end());
    CHECK(names == Paths{"first.scale", "first.weight", "own", "second.scale", "second.weight"});
  }
}

TEST_CASE("layout: as text and back") {
  Layout layout;
  layout.tensors = {{"a.b", DType::f32, Shape{2, 3}}, {"c d", DType::none, {}}, {"e", DType::bf16, Shape{}}};
  const std::string text = good(stele::to_text(layout));
  CHECK(text == "a.b\tf32\t[2, 3]\nc d\ne\tbf16\t[]\n");
  CHECK(good(stele::parse_layout(text)) == layout);
  CHECK(paths(good(stele::parse_layout("# names\r\n\r\nx\r\ny.0"))) == Paths{"x", "y.0"});
  CHECK(good(stele::parse_layout("")).tensors.empty());

  const auto error = [](std::string_view bad_text) { return bad(stele::parse_layout(bad_text)); };
  CHECK(error("a\na").code() == Errc::duplicate);
  CHECK(error("a\na").offset() == 2);
  CHECK(error("a\tf32").code() == Errc::malformed);
  CHECK(error("a\tf31\t[1]").code() == Errc::unsupported);
  for (const char* shape : {"", "[", "[1", "[1,]", "[-1]", "[1] x", "[1.5]", "[99999999999999999999]"}) {
    CAPTURE(shape);
    CHECK(error("a\tf32\t" + std::string(shape)).code() == Errc::malformed);
  }
  CHECK(error("\tf32\t[1]").code() == Errc::malformed);
  CHECK(bad(stele::to_text({{{"a\nb", DType::none, {}}}})).code() == Errc::not_representable);
}

TEST_CASE("layout: a format without names takes them from options, module or type") {
  const stele::MemoryRecorder<Positional> recorder;
  struct Plain {
    std::array<Block, 2> blocks;
    Tensor<float, 1> tail;
  };
  Plain plain{{Block{mat(1, 2, 1), 1, {1, 2, 3}, {}}, Block{mat(2, 2, 5), 1, {4, 5, 6}, {}}}, vec({7})};
  const stele::Bytes bytes = good(recorder.save(plain));

  // By type: nothing is open.
  const Plain again = good(recorder.load<Plain>(bytes));
  CHECK(image(again) == image(plain));
  const auto record = good(recorder.load<stele::Record<Plain>>(bytes));
  CHECK(good(stele::get<"tail">(record).load())[0] == 7);

  // Without a type there is nothing to go by, except what the options say.
  CHECK(bad(recorder.open(bytes)).code() == Errc::needs_layout);
  stele::LoadOptions options;
  options.layout = good(stele::layout_of(plain));
  CHECK(good(recorder.open(bytes, options)).find("blocks.1.weight")->shape()[0] == 2);

  // A type that leaves it open: a live module says it, or the options.
  Mlp mlp;
  for (int i = 0; i < 2; ++i) mlp.layers.emplace_back(2, 2, static_cast<float>(i), i == 0);
  mlp.scale = vec({1});
  const stele::Bytes file = good(recorder.save(mlp));
  const stele::Error e = bad(recorder.load<Mlp>(file));
  CHECK(e.code() == Errc::needs_layout);
  CHECK(e.path() == "layers");
  Mlp live;
  for (int i = 0; i < 2; ++i) live.layers.emplace_back(2, 2, 9.0F, i == 0);
  good(recorder.load_into(live, file));
  CHECK(image(live) == image(mlp));
  options.layout = good(stele::layout_of(mlp));
  CHECK(image(good(recorder.load<Mlp>(file, options))) == image(mlp));
}

}  // namespace stele_test
