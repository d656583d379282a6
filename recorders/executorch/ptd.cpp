// Reads and writes ExecuTorch's data files, `.ptd`. Field numbers: extension/flat_tensor/serialize/flat_tensor.fbs.
#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/parallel.hpp"
#include "file.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/paths.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/recorders/executorch.hpp"

namespace stele::inline v0 {
namespace detail::executorch {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Result<Snapshot> read_ptd(const SourcePtr& source, const Limits& limits) {
  std::byte head[header_at + ptd_header];
  if (source->size() < sizeof head) {
    return Error(Errc::truncated, "the file ends inside its header").file(source->name());
  }
  STELE_TRY(source->read_at(0, head));
  if (text_of(head).substr(4, 4) != ptd_identifier || text_of(head).substr(header_at, 4) != ptd_magic) {
    return Error(Errc::bad_magic, "the file is not a data file of ExecuTorch").file(source->name());
  }
  const auto number = [&](std::size_t at) { return load_le<std::uint64_t>(head + header_at + at); };
  const std::uint64_t begin = number(8), size = number(16), base = number(24);
  if (begin > source->size() || size > source->size() - begin) {
    return Error(Errc::malformed, "the FlatBuffer ends after the file").file(source->name()).offset(header_at + 8);
  }
  fb::Reader in(source, begin + size);
  Tensors tensors(source, limits);
  const fb::Table root = in.root();
  const fb::Vector segments = in.vector(root, 1, 4), entries = in.vector(root, 2, 4);
  STELE_TRY(in.status());
  STELE_TRY(tensors.take(4 * segments.size));
  std::vector<std::uint32_t> first(static_cast<std::size_t>(segments.size), no_index);  // the node of each segment
  // layouts of segments that several keys share, by the segment's number
  std::map<std::uint64_t, TensorLayout> layouts;
  for (std::uint64_t i = 0; i < entries.size; ++i) {
    const fb::Table entry = in.table(entries, i);
    const std::string key = in.text(entry, 0);
    const auto index = in.number<std::uint32_t>(entry, 1);
    const fb::Table layout_table = in.table(entry, 2);
    const Data data = segment(in, segments, index, base);
    STELE_TRY(in.status());
    if (!layout_table) {
      if (first[index] == no_index) tensors.count(data.size);
      STELE_TRY(tensors.add_unreadable(key, "data without the layout of a tensor", data));
      continue;
    }
    STELE_TRY_ASSIGN(const TensorLayout layout, tensors.layout(in, layout_table, 0, 1, 2));
    STELE_TRY(in.status());
    if (first[index] != no_index && layouts.at(index) == layout) {
      STELE_TRY(tensors.alias(key, first[index]));
      continue;
    }
    STELE_TRY_ASSIGN(const std::uint32_t node, tensors.add(key, layout, data, true));
    if (first[index] != no_index) continue;
    first[index] = node;
    tensors.count(data.size);
    STELE_TRY(tensors.take(sizeof(TensorLayout) + 96 + 16 * layout.sizes.size()));
    layouts.emplace(index, layout);
  }
  return tensors.finish();
}

/// Writes a .ptd file. All tables of the index are before the tables that they refer to.
class PtdWriter {
 public:
  explicit PtdWriter(const Snapshot& snapshot) : snapshot_(snapshot), paths_(*snapshot.data()) {}

  Status run(Sink& sink, const SaveOptions& options) {
    STELE_TRY(place());
    STELE_TRY(make_index());
    const std::uint64_t base = index_.size();
    STELE_TRY(sink.reserve(base + end_));
    const Snapshot ordered = in_file_order(snapshot_);
    LeafGather gather(sink);
    ReadContext context(workers_of(options));
    STELE_TRY(gather.write(std::as_bytes(std::span(index_))));
    constexpr std::byte zeros[alignment] = {};
    std::uint64_t at = 0;
    for (const Segment& segment : segments_) {
      STELE_TRY(gather.write(std::span(zeros).first(static_cast<std::size_t>(segment.offset - at))));
      STELE_TRY(gather.leaf(ordered.leaf(segment.leaf), context));
      at = segment.offset + segment.size;
    }
    return gather.flush();
  }

 private:
  struct Segment {
    std::uint32_t leaf = 0;
    std::uint64_t offset = 0, size = 0;
  };

  static constexpr std::uint64_t aligned(std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; }

  /// Gives each leaf a segment; tied tensors, which have equal providers, share one.
  Status place() {
    using Key = std::tuple<const void*, const void*, std::uint64_t, std::uint64_t>;
    std::map<Key, std::uint32_t> shared;
    for (std::uint32_t i = 0; i < snapshot_.leaf_count(); ++i) {
      const LeafView leaf = snapshot_.leaf(i);
      if (paths_[i].find('\0') != std::string_view::npos || paths_[i].size() > fb::max_text) {
        return Error(Errc::not_representable, "the format cannot store the name")
            .path(std::string(paths_[i].substr(0, 100)))
            .expected("at most 64 KiB without a zero byte");
      }
      for (const Extent extent : leaf.shape()) {
        if (extent > INT32_MAX) {
          return Error(Errc::not_representable, "an extent of the tensor is too large")
              .path(std::string(paths_[i]))
              .expected("at most 2^31 - 1")
              .found(std::to_string(extent));
        }
      }
      const Provider& from = leaf.provider();
      const auto number = static_cast<std::uint32_t>(segments_.size());
      const std::uint64_t size = leaf.byte_size();
      if (size != 0) {
        const auto [found, added] = shared.try_emplace(Key{from.ops, from.at, from.number, size}, number);
        segment_of_.push_back(found->second);
        if (!added) continue;
      } else {
        segment_of_.push_back(number);
      }
      segments_.push_back({i, aligned(end_, alignment), size});
      end_ = segments_.back().offset + size;
    }
    return {};
  }

  template <class T>
  void put(T number) {
    std::byte bytes[sizeof(T)];
    store_le(bytes, static_cast<std::make_unsigned_t<T>>(number));
    index_.append(reinterpret_cast<const char*>(bytes), sizeof bytes);
  }
  void put_u16s(std::initializer_list<std::uint16_t> numbers) {
    for (const std::uint16_t n : numbers) put(n);
  }
  void pad(std::size_t to) { index_.resize(static_cast<std::size_t>(aligned(index_.size(), to))); }
  /// Sets the offset at `from` to the end of the index so far.
  void point(std::size_t from) { set(from, static_cast<std::uint32_t>(index_.size() - from)); }
  template <class T>
  void set(std::size_t at, T number) {
    std::byte bytes[sizeof(T)];
    store_le(bytes, number);
    index_.replace(at, sizeof(T), reinterpret_cast<const char*>(bytes), sizeof(T));
  }
  /// Begins a table with this vtable.
  void begin(std::size_t vtable) { put(static_cast<std::int32_t>(index_.size() - vtable)); }
  /// Begins a table of three fields of 4 bytes, and returns the position of the first field.
  std::size_t begin_three(std::uint32_t first, std::uint32_t second) {
    begin(three_);
    put(first);
    put(second);
    put(std::uint32_t{0});
    return index_.size() - 12;
  }
  /// Adds a vector of offsets, and returns the position of the first offset.
  std::size_t offsets(std::size_t count) {
    put(static_cast<std::uint32_t>(count));
    index_.resize(index_.size() + 4 * count);
    return index_.size() - 4 * count;
  }

  Status make_index() {
    const std::size_t count = segment_of_.size();
    put(std::uint32_t{0});
    index_ += ptd_identifier;
    index_.resize(header_at + ptd_header);
    three_ = index_.size();
    put_u16s({10, 16, 4, 8, 12});  // a table of 16 bytes, and the offsets of its fields
    pad(4);
    const std::size_t two = index_.size();
    put_u16s({8, 24, 8, 16});
    point(0);
    const std::size_t root = begin_three(0, 0);  // the version
    point(root + 4);
    const std::size_t segments = offsets(segments_.size());
    point(root + 8);
    const std::size_t entries = offsets(count);
    pad(8);
    for (std::size_t i = 0; i < segments_.size(); ++i) {
      point(segments + 4 * i);
      begin(two);
      put(std::uint32_t{0});
      put(segments_[i].offset);
      put(segments_[i].size);
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      const LeafView leaf = snapshot_.leaf(i);
      point(entries + std::size_t{4} * i);
      const std::size_t entry = begin_three(0, segment_of_[i]);
      point(entry + 8);
      const std::size_t layout = begin_three(static_cast<std::uint8_t>(type_of(leaf.dtype())->number), 0);
      point(layout + 4);
      put(static_cast<std::uint32_t>(leaf.shape().size()));
      for (const Extent extent : leaf.shape()) put(static_cast<std::uint32_t>(extent));
      point(layout + 8);
      put(static_cast<std::uint32_t>(leaf.shape().size()));
      for (std::size_t axis = 0; axis < leaf.shape().size(); ++axis) put(static_cast<std::uint8_t>(axis));
      pad(4);
      point(entry);
      put(static_cast<std::uint32_t>(paths_[i].size()));
      index_ += paths_[i];
      index_ += '\0';
      pad(4);
      if (index_.size() > fb::max_size - alignment) {
        return Error(Errc::limit, "the names and shapes of the tensors exceed 2 GiB").path(std::string(paths_[i]));
      }
    }
    const std::uint64_t end = index_.size();
    pad(alignment);
    index_.replace(header_at, 4, ptd_magic);
    set(header_at + 4, static_cast<std::uint32_t>(ptd_header));
    set(header_at + 8, ptd_header);
    set(header_at + 16, end - ptd_header);
    set(header_at + 24, std::uint64_t{index_.size()});
    set(header_at + 32, end_);
    return {};
  }

  const Snapshot& snapshot_;
  LeafPaths paths_;
  std::vector<Segment> segments_;
  std::vector<std::uint32_t> segment_of_;  // for each leaf
  std::uint64_t end_ = 0;                  // end of the segments
  std::string index_;
  std::size_t three_ = 0;  // the vtable of begin_three()
};

}  // namespace
}  // namespace detail::executorch

bool PtdFormat::recognises(std::span<const std::byte> head, std::uint64_t /*size*/) const noexcept {
  return head.size() >= 8 && detail::executorch::text_of(head).substr(4, 4) == detail::executorch::ptd_identifier;
}

Result<Snapshot> PtdFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::executorch::read_ptd(source, context.options().limits);
}

Status PtdFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  return detail::executorch::PtdWriter(snapshot).run(sink, options);
}

}  // namespace stele::inline v0
