// NNEF: what a load reads, and where its parameters point.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nnef_support.hpp"

namespace stele_test::nnef_lazy_test {

using namespace nnef;
using stele::SourcePtr;
using stele::Value;

namespace {

/// Another bundle's files; counts what is read of them.
class Watched final : public Bundle {
 public:
  explicit Watched(std::shared_ptr<Bundle> inner) : inner_(std::move(inner)) {}
  stele::Result<SourcePtr> open(std::string_view name) const override {
    STELE_TRY_ASSIGN(SourcePtr source, inner_->open(name));
    sources.push_back(source);
    ++opened;
    return SourcePtr(std::make_shared<Counting>(std::move(source), *this));
  }
  stele::Result<std::unique_ptr<stele::Sink>> create(std::string_view name) override { return inner_->create(name); }
  stele::Result<bool> contains(std::string_view name) const override { return inner_->contains(name); }
  stele::Result<std::vector<std::string>> names() const override { return inner_->names(); }
  void remove(std::string_view) noexcept override {}
  std::uint64_t take() const { return read.exchange(0); }

  mutable std::vector<SourcePtr> sources;
  mutable std::atomic<std::uint64_t> read{0};
  mutable std::size_t opened = 0;

 private:
  class Counting final : public stele::Source {
   public:
    Counting(SourcePtr inner, const Watched& to) : Source(inner->name()), inner_(std::move(inner)), to_(to) {}
    std::uint64_t size() const noexcept override { return inner_->size(); }
    stele::Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
      to_.read += out.size();
      return inner_->read_at(offset, out);
    }
    std::span<const std::byte> view() const noexcept override { return inner_->view(); }
    std::byte* writable_view(stele::ByteRange range) const noexcept override { return inner_->writable_view(range); }

   private:
    SourcePtr inner_;
    const Watched& to_;
  };
  std::shared_ptr<Bundle> inner_;
};

bool within(const void* at, std::span<const std::byte> memory) {
  return at >= memory.data() && at < memory.data() + memory.size();
}

}  // namespace

TEST_CASE("nnef: a load reads headers, and of leaves those that are asked for") {
  const TempDir dir;
  constexpr std::uint64_t elements = 1U << 22;
  std::string head =
      text_in(*good(folder_of(NnefRecorder<>(), flat({{"w", DType::f32, {1}, "\0\0\0\0"s}}))), "w.dat").substr(0, 128);
  for (const std::size_t at : {4U, 12U}) {
    const std::uint64_t n = at == 4 ? 4 * elements : elements;
    for (std::size_t k = 0; k < 4; ++k) head[at + k] = static_cast<char>(n >> 8 * k & 0xff);
  }
  std::string graph = "version 1.0; graph g(x) -> (t0) { x = external(shape = [1]);\n";
  constexpr std::size_t count = 150;  // more than stay open
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = "t" + std::to_string(i);
    write_text(dir / (name + ".dat"), head);
    fs::resize_file(dir / (name + ".dat"), 128 + 4 * elements);
    graph.append(name).append(" = variable(shape = [").append(std::to_string(elements)).append("], label = '");
    graph.append(name).append("');\n");
  }
  for (const bool described : {false, true}) {
    CAPTURE(described);
    if (described) write_text(dir / "graph.nnef", graph + "}");
    const auto watched = std::make_shared<Watched>(stele::folder_bundle(dir.path()));
    const Snapshot opened = good(NnefRecorder<>().open(stele::bundle_source(watched)));
    CHECK(opened.leaf_count() == count);
    CHECK(watched->take() <= count * 132 + 2 * graph.size());
    for (const std::size_t i : {std::size_t{3}, count - 1}) {
      CHECK(good(content(opened.leaf(i))) == std::string(4 * elements, '\0'));
      CHECK(watched->take() == 4 * elements);
      float part[16];
      good(opened.leaf(i).read(4 * (elements - 16), std::as_writable_bytes(std::span(part))));
      CHECK(watched->take() == sizeof part);
    }
  }
}

TEST_CASE("nnef: packed items are read in parts") {
  // 100,000 items of 12 bits in several pieces.
  std::vector<std::uint16_t> items(300001);
  for (std::size_t i = 0; i < items.size(); ++i) items[i] = static_cast<std::uint16_t>(i * 7919 % 4096);
  const std::string bytes(reinterpret_cast<const char*>(items.data()), 2 * items.size());
  const auto bundle = std::make_shared<Watched>(good(folder_of(
      NnefRecorder<>(), flat({{"w", DType::u16, {items.size()}, bytes, {{"nnef.bits", Value(std::int64_t{12})}}}}))));
  const Snapshot opened = good(NnefRecorder<>().open(stele::bundle_source(bundle)));
  CHECK(good(content(opened.leaf(0))) == bytes);
  bundle->take();
  for (const std::size_t begin : {0U, 1U, 7U, 8U, 299000U, 300000U}) {
    std::vector<std::uint16_t> part(std::min<std::size_t>(999, items.size() - begin));
    good(opened.leaf(0).read(2 * begin, std::as_writable_bytes(std::span(part))));
    CHECK(std::equal(part.begin(), part.end(), items.begin() + static_cast<std::ptrdiff_t>(begin)));
    CHECK(bundle->take() <= part.size() * 3 / 2 + 24);
  }
}

TEST_CASE("nnef: parameters that point into a mapped folder or archive") {
  const TempDir dir;
  const Net before = net();
  good(NnefRecorder<>().save(before, dir / "m.nnef", quick()));
  stele::LoadOptions options;
  options.storage = stele::Storage::mmap;
  {
    const auto watched = std::make_shared<Watched>(stele::folder_bundle(dir / "m.nnef", {}, true));
    Report report;
    const Net now = good(NnefRecorder<>().load<Net>(stele::bundle_source(watched), reporting(options, report)));
    CHECK(image(now) == image(before));
    const auto mapped = [&](const void* at) {
      return std::any_of(watched->sources.begin(), watched->sources.end(),
                         [&](const SourcePtr& s) { return within(at, s->view()); });
    };
    CHECK(mapped(now.layers[0].weight.value.data()));
    CHECK(mapped(now.layers[1].weight.value.data()));
    CHECK(mapped(now.layers[0].bias->value.data()));
    CHECK(mapped(now.steps.data()));
    CHECK_FALSE(mapped(now.mask.data()));
    CHECK(report.paths(Report::What::copied) == Names{"mask"});
  }
  Report report;
  CHECK(image(good(NnefRecorder<>().load<Net>(dir / "m.nnef", reporting(options, report)))) == image(before));
  CHECK(report.paths(Report::What::copied) == Names{"mask"});

  good(in(NnefContainer::tgz).save(before, dir / "m.nnef.tgz", quick()));
  report = {};
  CHECK(image(good(NnefRecorder<>().load<Net>(dir / "m.nnef.tgz", reporting(options, report)))) == image(before));
  CHECK(report.count(Report::What::copied) == 5);

  const SourcePtr tar = good(stele::map_file(nnef_golden("model.nnef.tar")));
  const Snapshot opened = good(NnefRecorder<>().open(tar));
  for (std::size_t i = 0; i < opened.leaf_count(); ++i) {
    const stele::LeafView leaf = opened.leaf(i);
    CAPTURE(leaf.path());
    if (leaf.dtype() == DType::boolean) {
      CHECK(leaf.view().empty());
      continue;
    }
    REQUIRE(within(leaf.view().data(), tar->view()));
    CHECK((leaf.view().data() - tar->view().data()) % 128 == 0);
  }
}

}  // namespace stele_test::nnef_lazy_test
