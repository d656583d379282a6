// Every saved file opens, whole, in every format: many small tensors, large vocabularies, long texts, many modules.
// Content that a format loses has a row. Opening takes no more memory than the format's documented bound.
#include <doctest/doctest.h>
#include <malloc.h>

#include <stele/bundle.hpp>
#include <stele/recorders/executorch.hpp>
#include <stele/recorders/flax.hpp>
#include <stele/recorders/keras.hpp>
#include <stele/recorders/mxnet.hpp>
#include <stele/recorders/nnef.hpp>
#include <stele/recorders/paddle.hpp>
#include <stele/recorders/samediff.hpp>
#include <stele/recorders/zarr.hpp>

#include <numeric>

#include "base/limits.hpp"
#include "support/any_recorder.hpp"
#include "support/child.hpp"
#include "support/recorders.hpp"
#include "support/sanitizers.hpp"

namespace saved_opens_test {

namespace {

using namespace stele;
using namespace stele_test;

// ---- every format, with the options that change what a file looks like

template <BurnEncoding encoding, bool gzip = false>
struct Burn {
  static BurnFormat make() { return BurnFormat({.encoding = encoding, .gzip = gzip}); }
};
template <SameDiffContainer container, std::uint64_t shard_bytes = std::uint64_t{1} << 30>
struct SameDiff {
  static SameDiffFormat make() { return SameDiffFormat({.container = container, .shard_bytes = shard_bytes}); }
};
template <NnefContainer container>
struct Nnef {
  static NnefFormat make() { return NnefFormat({.container = container}); }
};
template <PaddleFraming framing, bool folder = false>
struct Paddle {
  static PaddleFormat make() { return PaddleFormat({.folder = folder, .framing = framing}); }
};
struct DeflatedArchive {
  static ArchiveFormat make() { return ArchiveFormat({.tag = {}, .deduplicate = false, .deflate = true}); }
};
struct Shards {
  static ShardedSafetensorsFormat make() { return ShardedSafetensorsFormat(100'000); }
};
template <class F>
struct Plain {
  static F make() { return F(); }
};

#define EVERY_FORMAT                                                                                                   \
  Plain<SteleFormat>, Plain<CompressedSteleFormat>, Plain<SafetensorsFormat>, Shards, Plain<PlainJsonFormat>,          \
      Plain<ReadableJsonFormat>, Plain<ZstdJsonFormat>, Plain<GzipJsonFormat>, Plain<ArchiveFormat>, DeflatedArchive,  \
      Plain<BurnpackFormat>, Plain<OnnxFormat>, Plain<GgufFormat>, Plain<PtdFormat>, Plain<FlaxFormat>,                \
      Burn<BurnEncoding::mpk>, Burn<BurnEncoding::mpk, true>, Burn<BurnEncoding::bin>, Burn<BurnEncoding::bin, true>,  \
      Burn<BurnEncoding::json>, Burn<BurnEncoding::json, true>, SameDiff<SameDiffContainer::fb>,                       \
      SameDiff<SameDiffContainer::sdnb>, SameDiff<SameDiffContainer::sdz>, SameDiff<SameDiffContainer::sdnb, 100'000>, \
      Nnef<NnefContainer::folder>, Nnef<NnefContainer::tgz>, Paddle<PaddleFraming::none>,                              \
      Paddle<PaddleFraming::sized>, Paddle<PaddleFraming::named>, Paddle<PaddleFraming::none, true>, Plain<NpzFormat>, \
      Plain<Hdf5Format>, Plain<KerasFormat>, Plain<MxnetFormat>, Plain<ZarrFormat>

/// Defines a test case for each of EVERY_FORMAT; `format` is the format. The body is compiled once.
#define EACH_FORMAT(text) EACH_FORMAT_(text, DOCTEST_ANONYMOUS(saved_opens_))
#define EACH_FORMAT_(text, body)                                       \
  static void body(const Format& format);                              \
  TEST_CASE_TEMPLATE(text, Case, EVERY_FORMAT) { body(Case::make()); } \
  static void body(const Format& format)

/// Files in memory, saved by one format. Each can open the others, as in a folder.
class Saved {
 public:
  explicit Saved(const Format& format) : recorder_(AnyFormat(format)) {}
  template <class M>
  Result<Report> save(const M& module, const SaveOptions& options) {
    bundle_ = memory_bundle();
    if (recorder_.format().is_folder()) {
      const auto sink = bundle_sink(bundle_);
      return recorder_.save(module, *sink, options);
    }
    auto sink = bundle_->create(name());
    if (!sink) return std::move(sink).error();
    return recorder_.save(module, **sink, options);
  }
  SourcePtr source() const {
    return recorder_.format().is_folder() ? bundle_source(bundle_) : bundle_->open(name()).value();
  }
  /// Bytes of all files.
  std::uint64_t size() const {
    std::uint64_t bytes = 0;
    const std::vector<std::string> names = bundle_->names().value();
    for (const std::string& file : names) bytes += bundle_->open(file).value()->size();
    return bytes;
  }
  const auto& recorder() const { return recorder_; }

 private:
  std::string name() const { return "m" + std::string(recorder_.format().extension()); }

  AnyRecorder recorder_;
  std::shared_ptr<Bundle> bundle_;
};

/// Saves, and loads into `again`, a module of the same structure with other content. Content that the format cannot
/// hold is refused; if it is allowed, it has a row, and the file opens. Returns true if all of it was kept.
template <class M>
bool saves_and_opens(const Format& format, const M& module, M& again, SaveOptions options = quick()) {
  Saved saved(format);
  const auto report = saved.save(module, options);
  if (report) {
    CHECK(report->count(Report::What::lost) == 0);
    const auto loaded = saved.recorder().load_into(again, saved.source());
    CHECK_MESSAGE(loaded, why(loaded));
    return static_cast<bool>(loaded);
  }
  CHECK_MESSAGE(report.error().code() == Errc::not_representable, why(report));
  options.allow_loss = true;
  const auto lossy = saved.save(module, options);
  if (!lossy) {  // nothing is left, or what the format cannot leave out
    CHECK_MESSAGE(lossy.error().code() == Errc::not_representable, why(lossy));
    return false;
  }
  CHECK(lossy->count(Report::What::lost) != 0);
  LoadOptions partial;
  partial.allow_missing = {"*"};
  const auto loaded = saved.recorder().load_into(again, saved.source(), partial);
  CHECK_MESSAGE(loaded, why(loaded));
  return false;
}

std::string word(std::size_t i) {
  std::string text = "_";
  for (std::size_t k = i * 2654435761U % 1000003 + i; k != 0; k /= 26) text += static_cast<char>('a' + k % 26);
  return text + std::to_string(i);
}

// ---- models

struct Tensors {
  std::vector<std::vector<float>> layers;
};
Tensors tensors(std::size_t n, float first) {
  Tensors made;
  made.layers.resize(n, std::vector<float>(1));
  for (std::size_t i = 0; i < n; ++i) made.layers[i][0] = first + static_cast<float>(i);
  return made;
}

struct Vocabulary {
  std::map<std::string, int> ids;
  std::vector<std::string> words;
  std::vector<float> weight{1.F};
  STELE_MODULE(Vocabulary, ids, words, weight)
};

struct Tokenizer {
  std::string text;
  std::vector<float> weight{1.F};
  STELE_MODULE(Tokenizer, text, weight)
};

struct Block {
  int heads = 0;
  std::vector<float> weight{};
  STELE_MODULE(Block, heads, weight)
  static constexpr Attribute stele_attributes[] = {attr::version(1)};
};
struct Blocks {
  std::vector<Block> blocks;
  std::map<std::string, Block> named;
};

constexpr std::size_t many = sanitizers ? 2'000 : 100'000;

}  // namespace

EACH_FORMAT("saved opens: tensors of one element") {
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{100}, many}) {
    CAPTURE(n);
    const Tensors module = tensors(n, 1.F);
    Tensors again = tensors(n, -1.F);
    const bool kept = saves_and_opens(format, module, again);
    CHECK((kept || n == 0));
    CHECK((!kept || again.layers == module.layers));
  }
}

EACH_FORMAT("saved opens: a vocabulary") {
  constexpr std::size_t n = sanitizers ? 1'000 : 40'000;
  Vocabulary module;
  Vocabulary again;
  for (std::size_t i = 0; i < n; ++i) {
    module.ids[word(i)] = static_cast<int>(i);
    module.words.push_back(word(i));
    again.words.emplace_back();
    again.ids[word(i)] = -1;
  }
  if (saves_and_opens(format, module, again)) {
    CHECK(again.ids == module.ids);
    CHECK(again.words == module.words);
  }
}

EACH_FORMAT("saved opens: a long text") {
  for (const bool random : {false, true}) {
    CAPTURE(random);
    Tokenizer module;
    module.text.assign(sanitizers ? std::size_t{1} << 20 : std::size_t{24} << 20, 'a');
    std::uint32_t state = 1;
    for (char& c : module.text) {
      state = state * 1664525 + 1013904223;
      if (random) c = static_cast<char>('"' + (state >> 24) % 59);  // some of them are escaped
    }
    Tokenizer again;
    if (saves_and_opens(format, module, again)) CHECK((again.text == module.text));
  }
}

EACH_FORMAT("saved opens: many modules with versions and metadata") {
  constexpr std::size_t n = sanitizers ? 1'000 : 30'000;
  Blocks module;
  Blocks again;
  module.blocks.resize(n);
  again.blocks.resize(n);
  for (std::size_t i = 0; i < n / 10; ++i) again.named[word(i)] = module.named[word(i)] = {};
  module.blocks.back().heads = 8;
  SaveOptions options = quick();
  options.metadata["notes"] = std::string(std::size_t{1} << 20, 'n');
  for (std::size_t i = 0; i < 1'000; ++i) options.metadata[word(i)] = "";
  if (saves_and_opens(format, module, again, options)) CHECK(again.blocks.back().heads == 8);
}

namespace {

/// Returns the largest address space that this process has had, in bytes.
std::uint64_t peak_address_space() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    std::uint64_t kib = 0;
    if (word == "VmPeak:" && file >> kib) return kib * 1024;
  }
  return 0;
}

/// Allocates the freed memory of the heap, so that later allocations add to the address space.
void fill_heap() {
  for (const std::size_t size : {std::size_t{60'000}, std::size_t{4'000}}) {
    for (const void* end = ::sbrk(0); ::sbrk(0) == end;) {
      if (::malloc(size) == nullptr) return;  // kept: the child ends soon
    }
  }
}

/// Returns the bound of opening, as documented in docs/faults.md.
std::uint64_t bound_of(std::string_view format, std::uint64_t size) {
  const auto rate = [&]() -> std::uint64_t {
    if (format.starts_with("json") || format == "burn-json") return detail::index_rate::character;
    if (format.starts_with("burn-") || format == "flax") return detail::index_rate::token;
    if (format.starts_with("paddle") || format == "onnx") return detail::index_rate::record;
    if (format == "archive" || format == "samediff" || format == "sdnb" || format == "nnef" || format == "npz" ||
        format == "ptd" || format == "hdf5" || format == "keras")
      return detail::index_rate::entry;
    if (format.starts_with("safetensors") || format == "burnpack" || format == "mxnet" || format == "zarr")
      return detail::index_rate::index;
    return detail::index_rate::file;
  };
  const bool compressed = format.ends_with("gz") || format.ends_with("zst") || format == "sdz";
  detail::IndexBudget budget({}, size, compressed ? detail::index_rate::compressed : rate());
  if (compressed) budget.admit_compressed();
  return budget.left();
}

/// Returns the address space that `f` takes in a child of its own, or the error with which it fails.
template <class F>
std::string taken_by(F f) {
  ::malloc_trim(0);  // here: the peak of a child begins with what it inherits
  return in_child([&]() -> std::string {
    ::mallopt(M_MMAP_THRESHOLD, 1 << 16);  // fixed, so that what is freed is gone
    fill_heap();
    const std::uint64_t before = address_space();
    const std::string failed = f();
    const std::uint64_t peak = peak_address_space();
    return failed.empty() ? std::to_string(peak > before ? peak - before : 0) : failed;
  });
}

}  // namespace

EACH_FORMAT("saved opens: memory of many tensors") {
  if (sanitizers) return;
  const Tensors module = tensors(many, 1.F);
  const std::string saving = taken_by([&]() -> std::string {
    Saved file(format);
    return file.save(module, quick()) ? "" : "not saved";
  });
  Saved saved(format);
  REQUIRE(saved.save(module, quick()));
  const std::uint64_t size = saved.size();
  LoadOptions options;
  options.threads = 1;
  Tensors again = tensors(many, -1.F);
  const std::string taken = taken_by([&] {
    auto r = saved.recorder().load_into(again, saved.source(), options);
    return r ? "" : why(r);
  });
  const std::string_view name = format.name();
  CAPTURE(name);
  CAPTURE(saved.size() / many);
  REQUIRE(taken.find_first_not_of("0123456789") == std::string::npos);
  // The bound excludes the tensors' own memory, which exists already, and adds 1 MiB for the allocator.
  CHECK(std::stoull(taken) <= bound_of(name, size) + (std::uint64_t{1} << 20));
  // A save takes 2 KiB for a node, its path and its index entry; twice the file, which is in memory; buffers.
  REQUIRE(saving.find_first_not_of("0123456789") == std::string::npos);
  CHECK(std::stoull(saving) <= 2 * size + many * 2048 + (std::uint64_t{16} << 20));
  MESSAGE(name << ": " << std::stoull(saving) / many << " of memory to save; " << size / many << " bytes a tensor, "
               << std::stoull(taken) / many << " of memory");
}

}  // namespace saved_opens_test
