// The functions of stele.wasm, which stele.js calls with text as UTF-8 in the memory of the module.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <stele/expansion.hpp>
#include <stele/format.hpp>
#include <stele/precision/convert.hpp>
#include <stele/recorders/any.hpp>

#include "facts/describe.hpp"
#include "facts/differences.hpp"
#include "facts/hash.hpp"
#include "facts/names.hpp"
#include "facts/statistics.hpp"
#include "host.hpp"
#include "json/json.hpp"

namespace stele::wasm {

namespace {

struct Model {
  const Format* format = nullptr;
  Snapshot snapshot{};
  std::optional<Snapshot> numbers{};  // with tensors of blocks as f32
  std::vector<facts::Named> names{};
};

std::map<std::uint32_t, Model> models;
std::uint32_t last_model = 0;
std::string answer;

/// Writes members of an object into the answer.
class Answer final : public facts::Members {
 public:
  Answer() : writer_(answer) {
    answer.clear();
    writer_.begin_object();
  }
  ~Answer() override { writer_.end_object(); }
  void member(std::string_view key, const Value& value) override {
    writer_.key(key);
    item(value);
  }
  void begin_list(std::string_view key) override {
    writer_.key(key);
    writer_.begin_array();
  }
  void item(const Value& value) override {
    writer_.item();
    answer += to_json(value).value_or("null");
  }
  void end_list() override { writer_.end_array(); }

 private:
  detail::json::Writer writer_;
};

/// Sets the answer to an error; its hint remains unless it names options of C++. Returns 0.
std::uint32_t fail(const Error& error) {
  Error shown = error;
  if (error.hint().find("::") != error.hint().npos) shown = std::move(shown).hint("");
  Answer out;
  out.member("error", facts::to_value(shown));
  out.member("text", Value(shown.to_string()));
  return 0;
}

std::uint32_t done(const Status& status) { return status ? 1 : fail(status.error()); }

Error no_model() { return Error(Errc::invalid_argument, "the model is closed"); }

Result<Model> opened(const std::shared_ptr<Bundle>& bundle, std::string_view name) {
  SourcePtr source = bundle_source(bundle, "folder");
  if (!name.empty()) {
    STELE_TRY_ASSIGN(source, bundle->open(name));
  }
  Model model;
  auto format = format_of_content(*source);
  if (!format && format.error().code() == Errc::bad_magic) {  // some formats have no magic number
    if (auto named = format_of_path(name)) format = std::move(named);
  }
  if (!format) return std::move(format).error();
  model.format = *format;
  STELE_TRY_ASSIGN(model.snapshot, open(*model.format, source));
  STELE_TRY_ASSIGN(model.names, facts::names_of(model.snapshot));
  return model;
}

/// Returns the snapshot whose leaf has numbers.
Result<const Snapshot*> numbers_of(Model& model, std::uint32_t leaf) {
  if (!is_block(model.snapshot.leaf(leaf).dtype())) return &model.snapshot;
  if (!model.numbers) {
    STELE_TRY_ASSIGN(model.numbers, facts::with_numbers(model.snapshot));
  }
  return &*model.numbers;
}

/// Returns the model and the leaf of its tensor `tensor`, counted in the order of the description.
Result<std::pair<Model*, std::uint32_t>> found(std::uint32_t number, std::uint32_t tensor) {
  const auto at = models.find(number);
  if (at == models.end()) return no_model();
  if (tensor >= at->second.names.size()) return Error(Errc::not_found, "no tensor has this number");
  return std::pair(&at->second, at->second.names[tensor].leaf);
}

/// Returns the dtype in which JavaScript receives the numbers of a dtype: one that has a typed array, or parts of which
/// have one.
DType delivered(DType dtype) {
  switch (dtype_class(dtype)) {
    case DTypeClass::floating:
      return bits(dtype) < 32 ? DType::f32 : dtype;
    case DTypeClass::boolean:
      return DType::u8;
    default:
      break;
  }
  return bits(dtype) != 4 ? dtype : dtype == DType::i4 ? DType::i8 : DType::u8;
}

/// Passes pieces of a leaf to the host, as bytes or as numbers.
class HostSink final : public PieceSink {
 public:
  HostSink(DType from, DType to, std::uint64_t elements) : from_(from), to_(to), left_(elements) {}

  Status piece(std::span<const std::byte> bytes) override {
    if (from_ == to_) {
      host_piece(bytes.data(), bytes.size());
    } else {
      numbers(bytes, 0);
    }
    host_advance(bytes.size());
    return {};
  }

  /// Passes the numbers of `bytes`, without the first `skipped`.
  void numbers(std::span<const std::byte> bytes, std::size_t skipped) {
    constexpr std::size_t block = 8192;
    const auto all = static_cast<std::size_t>(
        std::min<std::uint64_t>(left_ + skipped, std::uint64_t{bytes.size()} * 8 / bits(from_)));
    left_ -= all - skipped;
    for (std::size_t i = 0; i < all; i += block) {
      const std::size_t n = std::min(block, all - i);
      const std::size_t skip = i == 0 ? skipped : 0;
      some(bytes.data() + i * bits(from_) / 8, n, skip);
    }
  }

 private:
  void some(const std::byte* bytes, std::size_t n, std::size_t skip) {
    out_.resize(n * bits(to_) / 8);
    if (bits(from_) == 4 || from_ == DType::boolean) {
      doubles_.resize(n);
      facts::to_doubles(from_, bytes, n, doubles_.data());
      for (std::size_t i = 0; i < n; ++i) {
        if (to_ == DType::f32) {
          const auto number = static_cast<float>(doubles_[i]);
          std::memcpy(out_.data() + i * sizeof number, &number, sizeof number);
        } else {
          out_[i] = static_cast<std::byte>(static_cast<int>(doubles_[i]));
        }
      }
    } else {
      static_cast<void>(convert(from_, bytes, to_, out_.data(), n));  // to a wider float
    }
    const std::size_t begin = skip * bits(to_) / 8;
    host_piece(out_.data() + begin, out_.size() - begin);
  }

  DType from_, to_;
  std::uint64_t left_;
  std::vector<std::byte> out_;
  std::vector<double> doubles_;
};

Status read_range(const LeafView& leaf, DType to, std::uint64_t begin, std::uint64_t count) {
  const DType from = leaf.dtype();
  const std::uint64_t width = bits(from);
  HostSink sink(from, to, count);
  std::vector<std::byte> bytes;
  ReadContext context;
  constexpr std::uint64_t block = std::uint64_t{1} << 18;  // elements
  for (std::uint64_t i = begin; i < begin + count;) {
    const std::uint64_t n = std::min(begin + count - i, block - i % block);
    const std::uint64_t first = i * width / 8;
    bytes.resize(static_cast<std::size_t>(((i + n) * width + 7) / 8 - first));
    STELE_TRY(leaf.read(first, bytes, context));
    if (from == to) {
      host_piece(bytes.data(), bytes.size());
    } else {
      sink.numbers(bytes, static_cast<std::size_t>((i * width % 8) / width));
    }
    host_advance(bytes.size());
    i += n;
  }
  return {};
}

Status read(Model& model, std::uint32_t number, bool raw, std::uint64_t begin, std::uint64_t count) {
  STELE_TRY_ASSIGN(const Snapshot* const snapshot, raw ? &model.snapshot : numbers_of(model, number));
  STELE_TRY(check_expansion(*snapshot));
  const LeafView leaf = snapshot->leaf(number);
  const DType dtype = leaf.dtype();
  if (!raw && !facts::has_numbers(dtype)) {
    return Error(Errc::unsupported, "elements of this dtype are no numbers").path(leaf.path()).found(name(dtype));
  }
  if (begin > leaf.size() || count > leaf.size() - begin) {
    return Error(Errc::out_of_range, "the tensor has fewer elements")
        .path(leaf.path())
        .expected("at most " + std::to_string(leaf.size()))
        .found(std::to_string(begin) + " + " + std::to_string(count));
  }
  const DType to = raw ? dtype : delivered(dtype);
  if (count == leaf.size()) {
    HostSink sink(dtype, to, count);
    ReadContext context;
    return leaf.stream(sink, context);
  }
  if (bits(dtype) == 0 || (raw && (begin * bits(dtype) % 8 != 0 || count * bits(dtype) % 8 != 0))) {
    return Error(Errc::invalid_argument, "these elements do not begin and end at bytes; read the whole tensor")
        .path(leaf.path())
        .found(name(dtype));
  }
  return read_range(leaf, to, begin, count);
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\0'), text.size());
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

facts::Advance advance() {
  return [](std::uint64_t bytes) {
    host_advance(bytes);
    return true;
  };
}

}  // namespace

// Every function returns 0 after an error; the answer then describes it. Lists of names end each name with a NUL.
extern "C" {

[[clang::export_name("stele_alloc")]] void* stele_alloc(std::size_t size) { return std::malloc(size); }
[[clang::export_name("stele_free")]] void stele_free(void* memory) { std::free(memory); }
[[clang::export_name("stele_answer")]] const char* stele_answer() { return answer.data(); }
[[clang::export_name("stele_answer_size")]] std::size_t stele_answer_size() { return answer.size(); }

/// Opens a file of the group, or, without a name, the group as a folder. `names`: of the files; null if they are not
/// known. Returns the number of the model.
[[clang::export_name("stele_open")]] std::uint32_t stele_open(std::uint32_t group, const char* names,
                                                              std::size_t names_size, const char* name,
                                                              std::size_t name_size) {
  const auto bundle = host_bundle(group, names != nullptr, split({names, names_size}));
  auto model = opened(bundle, {name, name_size});
  if (!model) return fail(model.error());
  models.emplace(++last_model, *std::move(model));
  return last_model;
}
[[clang::export_name("stele_close")]] void stele_close(std::uint32_t number) { models.erase(number); }

[[clang::export_name("stele_describe")]] std::uint32_t stele_describe(std::uint32_t number) {
  const auto at = models.find(number);
  if (at == models.end()) return fail(no_model());
  const Model& model = at->second;
  Answer out;
  facts::describe(
      {model.format->name(), model.snapshot, model.names, {}, facts::sums_of(model.snapshot, model.names), {}}, out);
  return 1;
}

/// Statistics, and if wanted a histogram, of a tensor.
[[clang::export_name("stele_statistics")]] std::uint32_t stele_statistics(std::uint32_t number, std::uint32_t tensor,
                                                                          std::uint32_t histogram) {
  const auto at = found(number, tensor);
  if (!at) return fail(at.error());
  const auto [model, leaf] = *at;
  const auto numbers = numbers_of(*model, leaf);
  if (!numbers) return fail(numbers.error());
  if (const Status small = check_expansion(**numbers); !small) return fail(small.error());
  ReadContext context;
  const auto read = facts::facts_of(
      (*numbers)->leaf(leaf), histogram != 0 ? facts::Histograms::yes : facts::Histograms::no, advance(), context);
  if (!read) return fail(read.error());
  Answer out;
  if (read->error) {
    out.member("damaged", Value(*read->error));
    return 1;
  }
  const facts::Statistics& s = read->statistics;
  out.member("count", facts::number(s.count));
  out.member("statistics", facts::to_value(s));
  if (!read->histogram) return 1;
  out.begin_list("histogram");
  for (const std::uint64_t bin : *read->histogram) out.item(facts::number(bin));
  out.end_list();
  return 1;
}

/// Answers in which dtype stele_read() passes the numbers of a tensor.
[[clang::export_name("stele_delivered")]] std::uint32_t stele_delivered(std::uint32_t number, std::uint32_t tensor) {
  const auto at = found(number, tensor);
  if (!at) return fail(at.error());
  const DType dtype = at->first->snapshot.leaf(at->second).dtype();
  Answer().member("dtype", Value(name(is_block(dtype) ? DType::f32 : delivered(dtype))));
  return 1;
}

/// Passes elements to the host: as they are stored (`raw`), or as numbers.
[[clang::export_name("stele_read")]] std::uint32_t stele_read(std::uint32_t number, std::uint32_t tensor,
                                                              std::uint32_t raw, std::uint64_t begin,
                                                              std::uint64_t count) {
  const auto at = found(number, tensor);
  if (!at) return fail(at.error());
  return done(read(*at->first, at->second, raw != 0, begin, count));
}

[[clang::export_name("stele_diff")]] std::uint32_t stele_diff(std::uint32_t a, std::uint32_t b) {
  const auto left = models.find(a), right = models.find(b);
  if (left == models.end() || right == models.end()) return fail(no_model());
  facts::DifferenceOptions options;
  options.advance = advance();
  const auto differences = facts::differences(options, {left->second.format->name(), left->second.snapshot},
                                              {right->second.format->name(), right->second.snapshot});
  if (!differences) return fail(differences.error());
  Answer out;
  facts::describe(*differences, out);
  return 1;
}

/// The digest that `stele hash` prints.
[[clang::export_name("stele_hash")]] std::uint32_t stele_hash(std::uint32_t number) {
  const auto at = models.find(number);
  if (at == models.end()) return fail(no_model());
  const auto hashed = facts::hashed(at->second.snapshot, facts::xxh3, facts::in_order, advance());
  if (!hashed) return fail(hashed.error());
  Answer().member("digest", Value(hashed->total));
  return 1;
}

}  // extern "C"

}  // namespace stele::wasm
