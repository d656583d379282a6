// Reads the index of a checkpoint, and provides its entries as leaves.
#include "bundle.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <utility>

#include "base/crc32c.hpp"
#include "base/name_pool.hpp"
#include "encodings/protobuf/protobuf.hpp"
#include "encodings/sstable/table.hpp"
#include "io/files.hpp"
#include "leaves/tensor_entry.hpp"
#include "narrow.hpp"
#include "slices.hpp"
#include "stele/bundle.hpp"
#include "strings.hpp"

namespace stele::inline v0::detail::tensorflow {
namespace {

constexpr std::array<TfType, 33> types = {{
    {1, "DT_FLOAT", DType::f32},
    {2, "DT_DOUBLE", DType::f64},
    {3, "DT_INT32", DType::i32},
    {4, "DT_UINT8", DType::u8},
    {5, "DT_INT16", DType::i16},
    {6, "DT_INT8", DType::i8},
    {string_code, "DT_STRING", DType::string},
    {8, "DT_COMPLEX64", DType::c64},
    {9, "DT_INT64", DType::i64},
    {10, "DT_BOOL", DType::boolean},
    {11, "DT_QINT8", DType::opaque, 1},
    {12, "DT_QUINT8", DType::opaque, 1},
    {13, "DT_QINT32", DType::opaque, 4},
    {14, "DT_BFLOAT16", DType::bf16},
    {15, "DT_QINT16", DType::opaque, 2},
    {16, "DT_QUINT16", DType::opaque, 2},
    {17, "DT_UINT16", DType::u16},
    {18, "DT_COMPLEX128", DType::c128},
    {19, "DT_HALF", DType::f16},
    {20, "DT_RESOURCE", DType::none},  // a handle in a running program
    {variant_code, "DT_VARIANT", DType::opaque},
    {22, "DT_UINT32", DType::u32},
    {23, "DT_UINT64", DType::u64},
    {24, "DT_FLOAT8_E5M2", DType::f8_e5m2},
    {25, "DT_FLOAT8_E4M3FN", DType::f8_e4m3fn},
    {26, "DT_FLOAT8_E4M3FNUZ", DType::f8_e4m3fnuz},
    {27, "DT_FLOAT8_E4M3B11FNUZ", DType::opaque, 1},
    {28, "DT_FLOAT8_E5M2FNUZ", DType::f8_e5m2fnuz},
    {29, "DT_INT4", DType::i8, 0, 4, true},
    {30, "DT_UINT4", DType::u8, 0, 4},
    {31, "DT_INT2", DType::i8, 0, 2, true},
    {32, "DT_UINT2", DType::u8, 0, 2},
    {33, "DT_FLOAT4_E2M1FN", DType::opaque, 1},
}};

/// The file version that stele reads: BundleHeaderProto.version.min_consumer may be at most this number.
constexpr std::uint64_t consumer = 1;

/// Maximum number of shards: bounds the files that a hostile index makes the reader open.
constexpr std::uint64_t max_shards = 100'000;

constexpr LeafOps stored_ops{.locate = [](const void* at, std::uint64_t) -> SourceRange {
  const auto& entry = *static_cast<const Entry*>(at);
  return {entry.source, entry.offset, 0, entry.crc, true, crc32c};
}};

/// The entries and the data that they point to.
struct Kept {
  NamePool keys;
  std::map<std::uint32_t, SourcePtr> shards;
  std::deque<Entry> entries;
  std::deque<JoinedBoxes> joined;
};

const LeafOps& ops_of(const TfType& type) {
  return type.code == variant_code ? variant_ops : type.narrow_bits != 0 ? narrow_ops : stored_ops;
}

/// Returns a key for messages: for the key of a slice, the variable's name.
std::string shown(std::string_view key) { return key.starts_with('\0') ? name_of_slice(key) : std::string(key); }

}  // namespace

bool holds(DType dtype) noexcept {
  return std::any_of(types.begin(), types.end(), [&](const TfType& type) { return type.dtype == dtype; });
}

const TfType* type_of(std::uint64_t code) noexcept {
  return code != 0 && code <= types.size() ? &types[static_cast<std::size_t>(code - 1)] : nullptr;
}

class BundleReader {
 public:
  BundleReader(SourcePtr index, IndexBudget& memory)
      : index_(std::move(index)), memory_(memory), kept_(std::make_shared<Kept>()) {}

  Result<Bundle> run() {
    if (index_->bundle() == nullptr) {
      return Error(Errc::unsupported, "the source of the index cannot open the checkpoint's other files")
          .hint("open a path, or a source with a bundle");
    }
    memory_.admit(index_->size(), index_rate::index);
    const std::uint64_t max_block = std::min(memory_.left(), add_scaled(index_base, index_->size(), index_rate::file));
    STELE_TRY(sstable::read_table(*index_, max_block,
                                  [this](std::string_view key, std::span<const std::byte> value, std::uint64_t at) {
                                    return read_entry(key, value, at);
                                  }));
    if (!header_) return bad(Errc::malformed, "the index has no header, the entry of the empty key");
    out_.name_ = index_->name();
    out_.entries_ = {kept_, &kept_->entries};
    STELE_TRY(find_shards());
    STELE_TRY(check_overlaps());
    STELE_TRY(read_contents());
    return std::move(out_);
  }

 private:
  static Error bad(Errc code, std::string_view message) { return Error(code, message); }
  static Error bad(Errc code, std::string_view message, const Entry& entry) {
    return Error(code, message).path(shown(entry.key));
  }

  Status spend(std::uint64_t bytes) {
    return memory_.take(bytes) ? Status()
                               : index_error("the checkpoint's index needs more memory than its size allows");
  }

  // ---- the index

  Status read_entry(std::string_view key, std::span<const std::byte> value, std::uint64_t at) {
    protobuf::Reader in(value, at);
    if (key.empty()) return read_header(in, at);
    if (!header_) return bad(Errc::malformed, "the index has no header, the entry of the empty key").offset(at);
    // The memory of the entry, of the recorder's node and leaf, and of the tables for names.
    STELE_TRY(spend(sizeof(Entry) + leaf_memory + 128 + 3 * key.size()));
    Entry& entry = kept_->entries.emplace_back();
    entry.key = kept_->keys.add(key);
    if (auto read = read_fields(in, entry); !read) {
      Error error = std::move(read).error();
      if (error.path().empty()) error = std::move(error).path(shown(entry.key));
      return error.offset() ? std::move(error) : std::move(error).offset(at);
    }
    return {};
  }

  Status read_header(protobuf::Reader& in, std::uint64_t at) {
    header_ = true;
    std::uint64_t endianness = 0, min_consumer = 0;
    while (in.next()) {
      if (in.is(1)) shards_ = in.number();
      if (in.is(2)) endianness = in.number();
      if (!in.is(3)) continue;
      protobuf::Reader version = in.message();
      while (version.next()) {
        if (version.is(2)) min_consumer = version.number();
      }
      STELE_TRY(version.status());
    }
    STELE_TRY(in.status());
    if (endianness != 0) {
      return bad(Errc::unsupported, "the checkpoint is big-endian")
          .offset(at)
          .hint("save it again with TensorFlow on a little-endian machine");
    }
    if (min_consumer > consumer) {
      return bad(Errc::unsupported, "the checkpoint needs a later reader")
          .offset(at)
          .expected("at most version " + std::to_string(consumer))
          .found(std::to_string(min_consumer));
    }
    if (shards_ <= max_shards) return {};
    return bad(Errc::limit, "the checkpoint has too many shards")
        .offset(at)
        .expected("at most " + std::to_string(max_shards))
        .found(std::to_string(shards_));
  }

  Status read_fields(protobuf::Reader& in, Entry& entry) {
    std::uint64_t code = 0, shard = 0;
    std::vector<Extent> shape;
    while (in.next()) {
      if (in.is(1)) code = in.number();
      if (in.is(2)) STELE_TRY(read_shape(in.message(), shape));
      if (in.is(3)) shard = in.number();
      if (in.is(4)) entry.offset = in.number();
      if (in.is(5)) entry.size = in.number();
      if (in.is(6)) entry.crc = in.fixed32();
      if (in.is(7)) STELE_TRY(read_slice(in.message(), entry));
    }
    STELE_TRY(in.status());
    entry.crc = unmasked_crc(entry.crc);
    entry.shape.assign(shape);
    entry.type = type_of(code);
    if (entry.type == nullptr || entry.type->dtype == DType::none) {
      return bad(Errc::unsupported, "stele does not know the dtype of the entry")
          .found(entry.type != nullptr ? std::string(entry.type->name) : "DataType " + std::to_string(code));
    }
    if (shard >= shards_) {
      return bad(Errc::malformed, "the checkpoint does not have the entry's shard")
          .expected("less than " + std::to_string(shards_))
          .found(std::to_string(shard));
    }
    entry.shard = static_cast<std::uint32_t>(shard);
    return check_size(entry);
  }

  Status read_shape(protobuf::Reader in, std::vector<Extent>& shape) {
    while (in.next()) {
      if (in.is(3) && in.number() != 0) return bad(Errc::malformed, "the entry has no shape");
      if (!in.is(2)) continue;
      Extent extent = 0;
      protobuf::Reader axis = in.message();
      while (axis.next()) {
        if (axis.is(1)) extent = axis.number();
      }
      STELE_TRY(axis.status());
      if (extent >> 63 != 0) return bad(Errc::malformed, "an extent is negative");
      if (shape.size() == 0xffff) return bad(Errc::limit, "a tensor has more than 65535 axes");
      STELE_TRY(spend(3 * sizeof(Extent)));
      shape.push_back(extent);
    }
    return in.status();
  }

  Status read_slice(protobuf::Reader in, Entry& entry) {
    constexpr Extent all = UINT64_MAX;  // represents a TensorSliceProto.Extent without a length
    STELE_TRY(spend(3 * sizeof(Box) + 64));
    Box& slice = entry.slices.emplace_back();
    while (in.next()) {
      if (!in.is(1)) continue;
      Extent start = 0, length = all;
      protobuf::Reader axis = in.message();
      while (axis.next()) {
        if (axis.is(1)) start = axis.number();
        if (axis.is(2)) length = axis.number();
      }
      STELE_TRY(axis.status());
      if (start >> 63 != 0 || (length >> 63 != 0 && length != all)) {
        return bad(Errc::malformed, "a slice has a negative start or length");
      }
      STELE_TRY(spend(6 * sizeof(Extent)));
      slice.start.push_back(start);
      slice.length.push_back(length);
    }
    return in.status();
  }

  /// Checks that the number of bytes matches dtype and shape.
  static Status check_size(const Entry& entry) {
    const auto elements = entry.shape.element_count();
    const unsigned width = entry.type->width();
    const auto bytes = elements ? checked_mul(*elements, width) : std::nullopt;
    if (!bytes || *bytes >> 63 != 0) {
      return bad(Errc::malformed, "the entry's shape exceeds 2^63 bytes").found(to_string(entry.shape.span()));
    }
    if (width == 0 || !entry.slices.empty() || *bytes == entry.size) return {};
    return bad(Errc::malformed, "the entry's size does not match its dtype and shape")
        .expected(std::to_string(*bytes) + " bytes")
        .found(std::to_string(entry.size));
  }

  // ---- the shards

  Status find_shards() {
    const auto bundle = index_->bundle();
    constexpr std::string_view extension = ".index";
    std::string prefix(file_name(index_->name()));
    if (prefix.ends_with(extension)) prefix.resize(prefix.size() - extension.size());
    for (Entry& entry : kept_->entries) {
      if (!entry.slices.empty()) continue;
      SourcePtr& shard = kept_->shards[entry.shard];
      if (shard == nullptr) {
        char number[64];
        std::snprintf(number, sizeof number, ".data-%05u-of-%05u", entry.shard, static_cast<unsigned>(shards_));
        STELE_TRY(spend(512));
        STELE_TRY_ASSIGN(shard, open_of_set(bundle, prefix + number, kept_->shards.size() - 1));
      }
      entry.source = shard.get();
      entry.provider = {&ops_of(*entry.type), &entry, 0};
      if (entry.offset <= shard->size() && entry.size <= shard->size() - entry.offset) continue;
      return bad(Errc::truncated, "the shard ends inside the tensor", entry)
          .file(shard->name())
          .expected(std::to_string(entry.size) + " bytes at " + std::to_string(entry.offset))
          .found(std::to_string(shard->size()));
    }
    return {};
  }

  /// Checks that tensors do not overlap: otherwise a small file could have any number of large tensors.
  Status check_overlaps() {
    std::vector<const Entry*> order;
    order.reserve(kept_->entries.size());
    for (const Entry& entry : kept_->entries) {
      if (entry.slices.empty() && entry.size != 0) order.push_back(&entry);
    }
    std::sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
      return std::pair(a->shard, a->offset) < std::pair(b->shard, b->offset);
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const Entry &before = *order[i - 1], &entry = *order[i];
      if (before.shard != entry.shard || entry.offset - before.offset >= before.size) continue;
      return bad(Errc::malformed, "two tensors overlap", entry)
          .file(entry.source->name())
          .offset(entry.offset)
          .expected("an offset after " + shown(before.key));
    }
    return {};
  }

  // ---- strings, and tensors in slices

  Status read_contents() {
    std::uint64_t slices_used = 0, slices = 0;
    for (Entry& entry : kept_->entries) {
      slices += entry.is_slice() ? 1 : 0;
      const std::uint64_t width = entry.type->width();
      entry.bytes = width != 0 ? *entry.shape.element_count() * width : entry.size;
      if (entry.is_slice()) continue;
      if (entry.has_strings()) {
        if (!entry.slices.empty()) return bad(Errc::unsupported, "a string tensor is partitioned", entry);
        STELE_TRY_ASSIGN(entry.strings, read_strings(entry, memory_));
      } else if (!entry.slices.empty()) {
        STELE_TRY_ASSIGN(entry.provider, joined(entry));
        slices_used += entry.slices.size();
      }
    }
    return slices == slices_used ? Status() : Status(stray_slice());
  }

  Result<Provider> joined(Entry& entry) {
    if (entry.type->width() == 0) {
      return bad(Errc::unsupported, "stele cannot join slices of elements of different sizes", entry)
          .found(std::string(entry.type->name));
    }
    std::vector<Provider> parts;
    parts.reserve(entry.slices.size());
    for (Box& slice : entry.slices) {
      if (slice.start.size() != entry.shape.size() || slice.start.empty()) {
        return bad(Errc::malformed, "a slice's rank differs from that of its tensor", entry)
            .expected(std::to_string(entry.shape.size()))
            .found(std::to_string(slice.start.size()));
      }
      STELE_TRY_ASSIGN(const Entry* part, part_of(entry, slice));
      parts.push_back(part->provider);
    }
    if (auto covered = check_cover(entry.slices, entry.shape.span(), memory_); !covered) {
      return std::move(covered).error().path(entry.key);
    }
    STELE_TRY(spend(JoinedBoxes::memory(parts.size(), entry.shape.rank())));
    const std::size_t element = entry.type->width();
    return kept_->joined.emplace_back(entry.shape.span(), element, entry.slices, parts).provider();
  }

  /// Returns the entry with the bytes of a slice, and sets the lengths of the axes that the slice covers whole.
  Result<const Entry*> part_of(const Entry& entry, Box& slice) {
    Box keyed = slice;
    for (std::size_t d = 0; d < slice.start.size(); ++d) {
      if (slice.length[d] == UINT64_MAX) slice.length[d] = entry.shape[d];
    }
    const Entry* const part = out_.find(slice_key(entry.key, keyed));
    const auto wrong = [&](const char* message) {
      return bad(Errc::malformed, message, entry)
          .expected(to_string(slice.length) + " from " + to_string(slice.start) + " on");
    };
    if (part == nullptr) return wrong("the checkpoint lacks a slice of the tensor");
    if (part->type != entry.type || !part->slices.empty())
      return wrong("a slice's dtype differs from that of its tensor");
    const auto shape = part->shape.span();
    if (!std::equal(shape.begin(), shape.end(), slice.length.begin(), slice.length.end())) {
      return wrong("a slice's shape differs from its place in the tensor").found(to_string(shape));
    }
    return part;
  }

  Error stray_slice() const {
    std::map<std::string, std::int64_t> counts;
    for (const Entry& entry : kept_->entries) {
      entry.is_slice() ? --counts[shown(entry.key)]
                       : counts[std::string(entry.key)] += static_cast<std::int64_t>(entry.slices.size());
    }
    const auto found = std::find_if(counts.begin(), counts.end(), [](const auto& c) { return c.second != 0; });
    return bad(Errc::malformed, "the checkpoint has a slice that belongs to no tensor")
        .path(found != counts.end() ? found->first : "");
  }

  SourcePtr index_;
  IndexBudget& memory_;
  std::shared_ptr<Kept> kept_;
  Bundle out_;
  bool header_ = false;
  std::uint64_t shards_ = 0;
};

const Entry* Bundle::find(std::string_view key) const noexcept {
  const auto found = std::lower_bound(entries_->begin(), entries_->end(), key,
                                      [](const Entry& entry, std::string_view k) { return entry.key < k; });
  return found != entries_->end() && found->key == key ? &*found : nullptr;
}

Result<Bundle> open_bundle(SourcePtr source, IndexBudget& memory) {
  STELE_TRY_ASSIGN(SourcePtr index, find_index(std::move(source)));
  const std::string name = index->name();
  auto opened = BundleReader(std::move(index), memory).run();
  if (!opened && opened.error().file().empty()) return std::move(opened).error().file(name);
  return opened;
}

}  // namespace stele::inline v0::detail::tensorflow
