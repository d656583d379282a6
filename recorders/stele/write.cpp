// Writes a Snapshot as a `.stele` file.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <unordered_map>

#include "base/name_order.hpp"
#include "base/parallel.hpp"
#include "encodings/zstd/contexts.hpp"
#include "frames.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/paths.hpp"
#include "stele/recorders/binary.hpp"
#include "stele/recorders/stele_reader.hpp"
#include "values.hpp"

namespace stele::inline v0 {
namespace {

using format::store_le;

/// A range in the strings section.
struct Text {
  std::uint32_t offset = 0;
  std::uint32_t length = 0;
};

/// The strings section. Stores each string once, because static names repeat often.
class Strings {
 public:
  Text add(std::string_view text) {
    if (text.empty()) return {};
    const auto [found, fresh] = known_.try_emplace(text, Text{});
    if (fresh) found->second = append(text);
    return found->second;
  }
  Text append(std::string_view text) {
    const Text at{static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(text.size())};
    bytes_ += text;
    fits_ = fits_ && bytes_.size() <= 0xffffffffU;
    return at;
  }
  bool fits() const { return fits_; }
  const std::string& bytes() const { return bytes_; }
  void reserve(std::size_t n) { bytes_.reserve(n); }

 private:
  std::string bytes_;
  bool fits_ = true;
  std::unordered_map<std::string_view, Text> known_;  // keys are views of the snapshot
};

/// The index data of one tensor or alias.
struct Row {
  Text name;
  std::uint32_t node;
  std::uint32_t leaf;
  bool alias;
};

// Minimum size that is worth a second thread (4 MiB).
constexpr std::uint64_t min_bytes_for_thread = std::uint64_t{4} << 20;

class SteleWriter {
 public:
  SteleWriter(Snapshot snapshot, Sink& sink, const detail::Workers& workers, bool compressed)
      : snapshot_(std::move(snapshot)),
        data_(*snapshot_.data()),
        sink_(sink),
        workers_(workers),
        compressed_(compressed) {}

  Status run() {
    STELE_TRY(plan());
    const std::uint64_t total = compressed() ? 0 : index_offset_ + index_size_ + format::trailer_size;
    if (!compressed()) STELE_TRY(sink_.reserve(total));
    detail::LeafGather out(sink_);
    STELE_TRY(write_header(out, total));
    hashes_.resize(data_.leaves.size());
    STELE_TRY(compressed() ? write_compressed(out) : write_blocks(out));
    STELE_TRY(align(out));
    STELE_TRY(out.write(index_.span()));
    return out.flush();
  }

 private:
  // ---- contents and offsets ----

  Status plan() {
    rows_.reserve(data_.leaves.size());
    node_names_.resize(data_.nodes.size());
    node_values_.resize(data_.nodes.size());
    strings_.reserve(data_.leaves.size() * 24);
    if (!data_.nodes.empty()) {
      for (std::uint32_t i = 0; i < data_.nodes.size(); ++i) STELE_TRY(plan_node(i));
    }
    if (!strings_.fits() || data_.extents.size() > 0xffffffffU) return Error(Errc::limit, "the index exceeds 4 GiB");
    if (compressed()) STELE_TRY(sort_rows());
    if (const std::uint32_t i = detail::misnamed_child(data_); i != no_index) {
      return Error(Errc::invalid_argument, "a child's name does not fit the kind of its container")
          .path(snapshot_.path(i));
    }
    if (const std::uint32_t i = detail::clashing_sibling(data_); i != no_index) {
      return Error(Errc::duplicate, "a name occurs twice, or elements are not in ascending order")
          .path(snapshot_.path(i));
    }
    for (const auto& type : data_.types) types_.push_back(strings_.add(type.name));
    STELE_TRY(plan_metadata());

    std::uint64_t at = format::header_size;
    offsets_.reserve(data_.leaves.size());
    for (const auto& leaf : data_.leaves) {
      offsets_.push_back(at);
      const auto end = checked_add(at, leaf.bytes);
      const auto next = end ? format::round_up(*end, format::block_alignment) : std::nullopt;
      if (!next) return Error(Errc::limit, "the file exceeds 2^64 bytes");
      at = *next;
    }
    index_offset_ = at;
    const auto padded = [](std::size_t n) { return (n + 7) / 8 * 8; };
    index_size_ = format::index_header_size + data_.nodes.size() * format::node_size +
                  data_.types.size() * format::type_size + rows_.size() * format::entry_size +
                  data_.extents.size() * 8 + padded(values_.size()) + padded(metadata_.size()) +
                  padded(strings_.bytes().size()) + (compressed() ? rows_.size() * format::stored_size : 0);
    if (compressed()) stored_.resize(data_.leaves.size());
    return {};
  }

  bool compressed() const { return compressed_; }
  static Status align(detail::LeafGather& out) {
    return out.zeros(
        static_cast<std::size_t>(*format::round_up(out.position(), format::block_alignment) - out.position()));
  }

  Status plan_node(std::uint32_t i) {
    const Node& node = data_.nodes[i];
    const std::string_view path = paths_.of(i);
    const std::string_view segment(node.name != nullptr ? node.name : "", node.name != nullptr ? node.name_size : 0);
    std::uint32_t leaf = no_index;
    if (node.kind == NodeKind::tensor) {
      leaf = node.index;
    } else if (node.kind == NodeKind::alias && data_.nodes[node.index].kind == NodeKind::tensor) {
      leaf = data_.nodes[node.index].index;
    }
    if (leaf != no_index) {
      const Text name = strings_.append(path);
      rows_.push_back({name, i, leaf, node.kind == NodeKind::alias});
      // The segment is usually the end of the path, and the section already has the path.
      const bool suffix = path.ends_with(segment);
      node_names_[i] = suffix ? Text{static_cast<std::uint32_t>(name.offset + path.size() - segment.size()),
                                     static_cast<std::uint32_t>(segment.size())}
                              : strings_.add(segment);
    } else if (i != 0) {
      node_names_[i] = strings_.add(segment);
    }
    if (node.kind == NodeKind::value) {
      STELE_TRY(plan_value(i, data_.values[node.index]));
    } else if (node.kind == NodeKind::tensor) {
      if (const Annotations* annotations = snapshot_.leaf(node.index).annotations()) {
        Value::Map map;
        for (const auto& [key, value] : *annotations) map.emplace_back(key, value);
        STELE_TRY(plan_value(i, Value(std::move(map))));
      }
    }
    return {};
  }

  Status plan_value(std::uint32_t node, const Value& value) {
    const std::size_t before = values_.size();
    if (auto r = detail::encode_value(value, values_); !r) return std::move(r).error().path(snapshot_.path(node));
    if (values_.size() - before > 0xffffffffU)
      return Error(Errc::limit, "a value exceeds 4 GiB").path(snapshot_.path(node));
    node_values_[node] = {before, values_.size() - before};
    return {};
  }

  Status sort_rows() {
    const std::string_view all(strings_.bytes());
    const auto name = [&](const Row& r) { return all.substr(r.name.offset, r.name.length); };
    const auto order = detail::order_by_name(static_cast<std::uint32_t>(rows_.size()),
                                             [&](std::uint32_t i) { return name(rows_[i]); });
    std::vector<Row> sorted;
    sorted.reserve(rows_.size());
    for (const std::uint32_t i : order) sorted.push_back(rows_[i]);
    rows_.swap(sorted);
    const auto same =
        std::adjacent_find(rows_.begin(), rows_.end(), [&](const Row& a, const Row& b) { return name(a) == name(b); });
    if (same != rows_.end()) {
      return Error(Errc::duplicate, "two tensors have the same name").path(std::string(name(*same)));
    }
    entry_of_node_.resize(data_.nodes.size(), no_index);
    for (std::uint32_t e = 0; e < rows_.size(); ++e) entry_of_node_[rows_[e].node] = e;
    return {};
  }

  Status plan_metadata() {
    const auto put = [&](std::uint32_t number) {
      std::byte bytes[4];
      store_le(bytes, number);
      metadata_.insert(metadata_.end(), bytes, bytes + 4);
    };
    if (data_.metadata.empty()) return {};
    put(static_cast<std::uint32_t>(data_.metadata.size()));
    for (const auto& [key, text] : data_.metadata) {
      if (key.size() > 0xffffffffU || text.size() > 0xffffffffU)
        return Error(Errc::limit, "a metadata string exceeds 4 GiB");
      put(static_cast<std::uint32_t>(key.size()));
      put(static_cast<std::uint32_t>(text.size()));
      for (const std::string* s : {&key, &text}) {
        const auto* bytes = reinterpret_cast<const std::byte*>(s->data());
        metadata_.insert(metadata_.end(), bytes, bytes + s->size());
      }
    }
    return {};
  }

  // ---- bytes ----

  Status write_compressed(detail::LeafGather& out) {
#if STELE_ZSTD
    ReadContext context;
    detail::FrameWriter frames(workers_, out);
    for (std::uint32_t i = 0; i < data_.leaves.size(); ++i) {
      STELE_TRY(align(out));
      offsets_[i] = out.position();
      STELE_TRY_ASSIGN(stored_[i], frames.write(snapshot_.leaf(i), context, hashes_[i]));
    }
    STELE_TRY(align(out));
    index_offset_ = out.position();
    make_index();
    return {};
#else
    static_cast<void>(out);
    return detail::zstd::left_out(sink_.name());
#endif
  }

  /// Writes the blocks. Computes the index data of a live module (tensor hashes and name order) on a second thread,
  /// because that takes as long as the writes for small tensors, and a third of their time for large tensors.
  Status write_blocks(detail::LeafGather& out) {
    std::vector<std::uint32_t> beside;
    std::uint64_t bytes = 0;
    for (std::uint32_t i = 0; i < data_.leaves.size() && workers_.threads > 1; ++i) {
      if (!detail::LeafGather::passes_by(snapshot_.leaf(i))) continue;
      beside.push_back(i);
      bytes += data_.leaves[i].bytes;
    }
    if (bytes < min_bytes_for_thread) beside.clear();
    std::atomic<bool> stopped{false};
    const auto write = [&]() -> Status {
      ReadContext context(workers_);
      auto next = beside.begin();
      for (std::uint32_t i = 0; i < data_.leaves.size() && !stopped; ++i) {
        const bool hashed = next != beside.end() && *next == i;
        if (hashed) ++next;
        STELE_TRY(out.zeros(static_cast<std::size_t>(offsets_[i] - out.position())));
        STELE_TRY(out.leaf(snapshot_.leaf(i), context, hashed ? nullptr : &hashes_[i]));
      }
      return {};
    };
    if (beside.empty()) {
      STELE_TRY(sort_rows());
      STELE_TRY(write());
      make_index();
      return {};
    }
    Status sorted;
    Status written;
    const auto prepare = [&] {
      sorted = detail::guarded([&] { return sort_rows(); });
      stopped = stopped || !sorted;
      for (auto i = beside.begin(); i != beside.end() && !stopped; ++i) {
        const auto all = snapshot_.leaf(*i).view();
        hashes_[*i] = detail::hash64(all.data(), all.size());
      }
      if (beside.size() == hashes_.size() && !stopped) make_index();
    };
    detail::beside(workers_, prepare, [&] {
      written = detail::guarded(write);
      stopped = stopped || !written;
    });
    STELE_TRY(std::move(sorted));
    STELE_TRY(std::move(written));
    if (index_.empty()) make_index();
    return {};
  }

  Status write_header(detail::LeafGather& out, std::uint64_t total) const {
    std::byte h[format::header_size]{};
    std::memcpy(h, format::magic, sizeof format::magic);
    store_le(h + 8, format::version);
    store_le(h + 12, format::block_alignment);
    store_le(h + 16, (compressed() ? format::compressed_blocks : std::uint64_t{0}) |
                         (snapshot_.metadata().contains(detail::delta_key) ? format::weight_delta : std::uint64_t{0}));
    store_le(h + 32, total);
    store_le(h + 56, detail::hash64(h, 56));
    return out.write(h);
  }

  /// Makes the index and the trailer.
  void make_index() {
    const std::uint64_t total = index_offset_ + index_size_ + format::trailer_size;
    Bytes bytes(static_cast<std::size_t>(index_size_) + format::trailer_size);
    std::memset(bytes.data(), 0, bytes.size());
    std::byte* p = bytes.data();
    store_le(p, static_cast<std::uint32_t>(data_.nodes.size()));
    store_le(p + 4, static_cast<std::uint32_t>(rows_.size()));
    store_le(p + 8, std::uint64_t{data_.extents.size()});
    store_le(p + 16, std::uint64_t{values_.size()});
    store_le(p + 24, std::uint64_t{metadata_.size()});
    store_le(p + 32, std::uint64_t{strings_.bytes().size()});
    store_le(p + 40, static_cast<std::uint32_t>(data_.types.size()));
    store_le(p + 44, (data_.flat ? format::flat_names : 0U) | (data_.unknown_kinds.all ? format::guessed_kinds : 0U) |
                         (compressed() ? format::stored_blocks : 0U));
    p += format::index_header_size;
    for (std::uint32_t i = 0; i < data_.nodes.size(); ++i, p += format::node_size) put_node(p, i);
    for (std::size_t i = 0; i < types_.size(); ++i, p += format::type_size) {
      store_le(p, types_[i].offset);
      store_le(p + 4, types_[i].length);
      store_le(p + 8, data_.types[i].version);
    }
    for (const Row& row : rows_) {
      put_entry(p, row);
      p += format::entry_size;
    }
    for (const Extent e : data_.extents) {
      store_le(p, e);
      p += 8;
    }
    const auto section = [&](const void* data, std::size_t size) {
      if (size != 0) std::memcpy(p, data, size);
      p += (size + 7) / 8 * 8;
    };
    section(values_.data(), values_.size());
    section(metadata_.data(), metadata_.size());
    section(strings_.bytes().data(), strings_.bytes().size());
    for (std::size_t i = 0; compressed() && i < rows_.size(); ++i, p += format::stored_size) {
      store_le(p, stored_[rows_[i].leaf].size);
      store_le(p + 8, stored_[rows_[i].leaf].hash);
    }
    store_le(p, index_offset_);
    store_le(p + 8, index_size_);
    store_le(p + 16, total);
    store_le(p + 48, detail::hash64(bytes.data(), static_cast<std::size_t>(index_size_) + 48));
    for (std::size_t i = 0; i < sizeof format::magic; ++i) p[56 + i] = static_cast<std::byte>(format::magic[7 - i]);
    index_ = std::move(bytes);
  }

  void put_node(std::byte* p, std::uint32_t i) const {
    const Node& node = data_.nodes[i];
    const bool named = node.name != nullptr;
    p[0] = static_cast<std::byte>(node.kind);
    p[1] = static_cast<std::byte>((named ? 1U : 0U) | (node.conditional ? 2U : 0U));
    store_le(p + 4, named ? node_names_[i].offset : node.name_size);
    store_le(p + 8, named ? node_names_[i].length : 0U);
    store_le(p + 12, node.end);
    const bool tensor = node.kind == NodeKind::tensor;
    store_le(p + 16, tensor                         ? entry_of_node_[i]
                     : node.kind == NodeKind::value ? 0U
                     : node.kind == NodeKind::none  ? no_index
                                                    : node.index);
    store_le(p + 20, static_cast<std::uint32_t>(node_values_[i].size));
    store_le(p + 24, std::uint64_t{node_values_[i].offset});
  }

  void put_entry(std::byte* p, const Row& row) const {
    const detail::LeafData& leaf = data_.leaves[row.leaf];
    const auto id = snapshot_.leaf(row.leaf).id();
    store_le(p, row.name.offset);
    store_le(p + 4, row.name.length);
    store_le(p + 8, offsets_[row.leaf]);
    store_le(p + 16, leaf.bytes);
    store_le(p + 24, hashes_[row.leaf]);
    store_le(p + 32, static_cast<std::uint16_t>(leaf.dtype));
    store_le(p + 34, leaf.rank);
    store_le(p + 36, leaf.shape);
    store_le(p + 40, (row.alias ? format::alias_entry : 0U) | (id ? static_cast<std::uint32_t>(id->form) << 1 : 0U));
    store_le(p + 44, row.node);
    store_le(p + 48, id ? id->low : 0);
    store_le(p + 56, id ? id->high : 0);
  }

  struct Range {
    std::size_t offset = 0, size = 0;
  };
  const Snapshot snapshot_;
  const detail::SnapshotData& data_;
  Sink& sink_;
  detail::Workers workers_;
  bool compressed_;
  Strings strings_;
  std::vector<Row> rows_;
  std::vector<Text> node_names_, types_;
  std::vector<Range> node_values_;
  std::vector<std::byte> values_, metadata_;
  std::vector<std::uint32_t> entry_of_node_;
  std::vector<std::uint64_t> offsets_, hashes_;
  std::vector<detail::StoredBlock> stored_;
  detail::RunningPath paths_{data_};
  std::uint64_t index_offset_ = 0, index_size_ = 0;
  Bytes index_;
};

}  // namespace

Status SteleFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  const bool compressed = compression_ == Compression::zstd;
  return SteleWriter(detail::in_file_order(snapshot), sink, detail::workers_of(options), compressed).run();
}

}  // namespace stele::inline v0
