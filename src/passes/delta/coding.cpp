#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <map>
#include <memory>
#include <numeric>

#include "base/dtypes.hpp"
#include "base/hex.hpp"
#include "base/meter.hpp"
#include "base/parallel.hpp"
#include "base/threads.hpp"
#include "passes/delta/delta.hpp"
#include "passes/untie.hpp"
#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"
#include "stele/expansion.hpp"

namespace stele::inline v0::detail::delta {
namespace {

constexpr std::array<std::string_view, 4> encoding_names = {"", "same", "xor", "sparse"};

std::string digest_of(const std::string& text) { return hex(hash64(text.data(), text.size())); }

}  // namespace

Result<Description> description_of(const Snapshot& snapshot) {
  const auto found = snapshot.metadata().find(key);
  if (found == snapshot.metadata().end()) {
    return Error(Errc::invalid_argument, "the file is not a delta of weights");
  }
  constexpr std::size_t max_bytes = 4096;  // three digests
  if (found->second.size() > max_bytes) return malformed("the description of the delta is too long");
  STELE_TRY_ASSIGN(const Value all, parse_json(found->second));
  const auto version = all.at("version").to<std::int64_t>();
  if (!version) return malformed("the description of the delta has no version");
  if (*version != 1) {
    return Error(Errc::unsupported, "the delta has a newer version").expected("1").found(std::to_string(*version));
  }
  Description d;
  for (const auto& [name, to] :
       {std::pair("base", &d.base), std::pair("next", &d.next), std::pair("names", &d.names)}) {
    STELE_TRY_ASSIGN(*to, all.at(name).to<std::string>());
  }
  return d;
}

Result<std::string> text_of(const Description& d) {
  return to_json(Value(
      Value::Map{{"version", Value(1)}, {"base", Value(d.base)}, {"next", Value(d.next)}, {"names", Value(d.names)}}));
}

Result<Coding> coding_of(const LeafView& leaf) {
  Coding coding;
  coding.dtype = leaf.dtype();
  coding.shape = Shape(leaf.shape());
  coding.bytes = leaf.byte_size();
  const Annotations* const annotations = leaf.annotations();
  const auto found = annotations != nullptr ? annotations->find(key) : Annotations::const_iterator();
  if (annotations == nullptr || found == annotations->end()) return coding;
  const Value& value = found->second;
  const auto read = [&]() -> Status {
    STELE_TRY_ASSIGN(const std::string is, value.at("is").to<std::string>());
    const auto name = std::find(encoding_names.begin() + 1, encoding_names.end(), is);
    if (name == encoding_names.end()) return Error(Errc::unsupported, "an unknown encoding").found(is);
    coding.encoding = static_cast<Encoding>(name - encoding_names.begin());
    STELE_TRY_ASSIGN(coding.hash, value.at("hash").to<std::uint64_t>());
    STELE_TRY_ASSIGN(coding.base_hash, value.at("base").to<std::uint64_t>());
    if (value.find("from") != nullptr) {
      STELE_TRY_ASSIGN(coding.from, value.at("from").to<std::string>());
    }
    if (coding.encoding == Encoding::xored) return {};
    STELE_TRY_ASSIGN(const std::string dtype, value.at("dtype").to<std::string>());
    coding.dtype = dtype_named(dtype);
    if (coding.dtype == DType::none) return Error(Errc::unsupported, "an unknown dtype").found(dtype);
    STELE_TRY_ASSIGN(const auto shape, value.at("shape").to<std::vector<std::uint64_t>>());
    coding.shape = Shape(shape);
    STELE_TRY_ASSIGN(coding.bytes, value.at("bytes").to<std::uint64_t>());
    // The sizes of blocks, strings and opaque tensors are stored, and compared with the sizes in the base.
    const auto count = coding.shape.element_count();
    const bool fits = count && (bits(coding.dtype) == 0 || byte_length(coding.dtype, *count) == coding.bytes);
    return fits ? Status() : malformed("the shape contradicts the bytes");
  };
  if (auto r = read(); !r) {
    const Errc code = r.error().code() == Errc::unsupported ? Errc::unsupported : Errc::malformed;
    return Error(code, "the annotation of a tensor in a delta: " + std::string(r.error().message())).path(leaf.path());
  }
  return coding;
}

Value value_of(const Coding& coding) {
  if (coding.encoding == Encoding::plain) return {};
  Value::Map map{{"is", Value(encoding_names[static_cast<std::size_t>(coding.encoding)])},
                 {"hash", Value(coding.hash)},
                 {"base", Value(coding.base_hash)}};
  if (!coding.from.empty()) map.emplace_back("from", Value(coding.from));
  if (coding.encoding == Encoding::xored) return Value(std::move(map));
  map.emplace_back("dtype", Value(name(coding.dtype)));
  Value::List shape;
  for (const Extent extent : coding.shape) shape.emplace_back(extent);
  map.emplace_back("shape", Value(std::move(shape)));
  map.emplace_back("bytes", Value(coding.bytes));
  return Value(std::move(map));
}

Result<Names> Names::of(const Snapshot& snapshot) {
  Names names;
  STELE_TRY(each_tensor_name(snapshot, [&](const std::string& path, const Node& tensor) -> Status {
    if (!names.index_.emplace(path, tensor.index).second) {
      return Error(Errc::duplicate, "two tensors have one name").path(path);
    }
    names.list_.push_back({tensor.index, path});
    return {};
  }));
  return names;
}

std::string Names::digest(const Snapshot& snapshot, const std::vector<std::uint64_t>* hashes) const {
  std::vector<std::size_t> order(list_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return list_[a].path < list_[b].path; });
  // With hashes, this is the text of tools/stele/hash.cpp.
  std::string text = hashes != nullptr ? "stele hash 2\n" : "stele names 1\n";
  for (const std::size_t i : order) {
    const LeafView leaf = snapshot.leaf(list_[i].leaf);
    if (hashes != nullptr) text += hex((*hashes)[list_[i].leaf]) + "  ";
    text += std::string(name(leaf.dtype())) + "  " + to_string(leaf.shape()) + "  " +
            std::to_string(list_[i].path.size()) + "  " + list_[i].path + "\n";
  }
  return digest_of(text);
}

void FileHasher::update(std::span<const std::byte> bytes) {
  if constexpr (std::endian::native == std::endian::little) {
    hasher_.update(bytes.data(), bytes.size());
  } else {
    std::array<std::byte, 4096> swapped;
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min(bytes.size(), swapped.size()));
      std::copy(part.begin(), part.end(), swapped.begin());
      for (std::size_t i = 0; i < part.size(); i += unit_) std::reverse(&swapped[i], &swapped[i] + unit_);
      hasher_.update(swapped.data(), part.size());
      bytes = bytes.subspan(part.size());
    }
  }
}

std::optional<std::uint64_t> stored_hash(const LeafView& leaf) {
  const Provider& provider = leaf.provider();
  if (provider.ops->hash != nullptr) return provider.ops->hash(provider.at, provider.number);
  const auto place = leaf.location();
  if (place && place->hashed && place->crc == nullptr) return place->hash;
  return std::nullopt;
}

Status each_leaf(std::size_t count, const LoadOptions& options, bool in_order,
                 const std::function<Status(std::size_t, ReadContext&)>& work) {
  Workers workers = workers_of(options);
  if (in_order) workers.threads = 1;
  Mutex mutex;
  std::atomic<std::size_t> failed = count;
  Status status;
  parallel(workers, count, [&](std::size_t i) {
    if (i > failed) return;
    ReadContext context;
    auto result = guarded([&] { return work(i, context); });
    if (result) return;
    const Lock lock(mutex);
    if (i < failed) failed = i, status = std::move(result);
  });
  return status;
}

Result<std::uint64_t> hash_of(const LeafView& leaf, ReadContext& context) {
  struct HashSink final : PieceSink {
    explicit HashSink(DType dtype) : hasher(dtype) {}
    Status piece(std::span<const std::byte> bytes) override {
      hasher.update(bytes);
      return {};
    }
    FileHasher hasher;
  };
  if (const auto stored = stored_hash(leaf)) return *stored;
  HashSink sink(leaf.dtype());
  STELE_TRY(with_path(leaf.stream(sink, context), leaf));
  return sink.hasher.digest();
}

Result<std::vector<std::uint64_t>> hashes_of(const Snapshot& snapshot, const LoadOptions& options) {
  STELE_TRY(check_expansion(snapshot));
  std::vector<std::uint64_t> hashes(snapshot.leaf_count());
  Meter meter(options.progress, snapshot.byte_size());
  STELE_TRY(each_leaf(hashes.size(), options, snapshot.in_order(), [&](std::size_t i, ReadContext& context) -> Status {
    const LeafView leaf = snapshot.leaf(i);
    STELE_TRY_ASSIGN(hashes[i], hash_of(leaf, context));
    return meter.add(leaf.byte_size());
  }));
  return hashes;
}

Result<std::span<const std::byte>> Window::at(std::uint64_t offset, std::size_t size, ReadContext& context) {
  if (const auto all = leaf_.view(); !all.empty()) return all.subspan(static_cast<std::size_t>(offset), size);
  if (offset < begin_ || offset + size > begin_ + filled_) {
    const std::uint64_t left = leaf_.byte_size() - offset;
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(left, std::max(size, ahead)));
    if (memory_.size() < count) memory_ = Bytes(count);
    filled_ = 0;
    STELE_TRY(leaf_.read(offset, memory_.span().first(count), context));
    begin_ = offset;
    filled_ = count;
  }
  return std::span<const std::byte>(memory_.span()).subspan(static_cast<std::size_t>(offset - begin_), size);
}

bool same_values(const Snapshot& a, const Snapshot& b) {
  const auto values = [](const Snapshot& snapshot) {
    std::map<std::string, Value> all;
    const auto nodes = snapshot.nodes();
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].kind == NodeKind::value) all.emplace(snapshot.path(i), snapshot.value(nodes[i]));
    }
    return all;
  };
  return values(a) == values(b);
}

Provider zeros() noexcept {
  static constexpr LeafOps ops{
      .read = [](const void*, std::uint64_t, std::uint64_t, std::span<std::byte> out, ReadContext&) -> Status {
        std::fill(out.begin(), out.end(), std::byte{0});
        return {};
      }};
  return {&ops, nullptr, 0};
}

void set_leaf(SnapshotData& data, std::size_t leaf, DType dtype, std::span<const Extent> shape, std::uint64_t bytes,
              const Provider& provider, const Value& annotation) {
  LeafData& to = data.leaves[leaf];
  to.dtype = dtype;
  to.bytes = bytes;
  to.provider = provider;
  const std::span<const Extent> before(data.extents.data() + to.shape, to.rank);
  if (!std::equal(shape.begin(), shape.end(), before.begin(), before.end())) {
    to.shape = static_cast<std::uint32_t>(data.extents.size());
    to.rank = static_cast<std::uint16_t>(shape.size());
    data.extents.insert(data.extents.end(), shape.begin(), shape.end());
  }
  if (to.extra == no_index) {
    if (annotation.is_null()) return;
    to.extra = static_cast<std::uint32_t>(data.extras.size());
    data.extras.emplace_back();
  }
  LeafExtra& extra = data.extras[to.extra];
  Annotations changed = extra.annotations ? *extra.annotations : Annotations();
  if (annotation.is_null()) {
    changed.erase(key);
  } else {
    changed.insert_or_assign(key, annotation);
  }
  extra.annotations = changed.empty() ? nullptr : std::make_unique<const Annotations>(std::move(changed));
}

}  // namespace stele::inline v0::detail::delta
