// Reads datasets.
#include "dataset.hpp"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

#include "chunk_index.hpp"
#include "chunks.hpp"
#include "leaves/source_range.hpp"

namespace stele::inline v0::detail::hdf5 {

struct Datasets::Keeper {
  SourcePtr source;
  std::deque<ChunkedLeaf> leaves{};
};

namespace {

/// Maximum number of bytes of elements that a file does not store (16 MiB).
constexpr std::uint64_t max_fill_bytes = std::uint64_t{16} << 20;

/// Returns true if a dataset stores too few bytes for the elements to which they would decode.
bool amplifies(std::uint64_t bytes, std::uint64_t stored, std::uint64_t ratio) {
  return bytes > add_scaled(64, stored, ratio);
}

Status unreadable(Entry& entry, std::string reason) {
  entry.kind = Entry::Kind::unreadable;
  entry.reason = std::move(reason);
  return {};
}

void take_fill(In& in, ChunkedLeaf& leaf) {
  const std::uint32_t size = in.u32();
  const View value = in.take(size);
  if (in.ok() && size == leaf.element) leaf.fill.assign(value.begin(), value.end());
}

Status fill_value(const Message& message, ChunkedLeaf& leaf) {
  In in(message.content);
  const unsigned version = in.u8();
  bool defined = false;
  if (version == 3) {
    defined = (in.u8() & 0x20U) != 0;
  } else {
    in.take(2);
    defined = in.u8() != 0;
  }
  if (message.shared || !defined) return {};
  take_fill(in, leaf);
  return in.ok() ? Status() : bad("a fill value is incomplete", message.offset);
}

}  // namespace

Datasets::Datasets(const SourcePtr& source, File& file, AttributeReader& values)
    : keeper_(std::make_shared<Keeper>(Keeper{source})), file_(file), values_(values) {}

Status Datasets::add(const Header& header, Entry& entry) {
  const Message* const type_message = header.find(message::type);
  const Message* const space_message = header.find(message::space);
  const Message& layout_message = *header.find(message::layout);
  if (type_message == nullptr || space_message == nullptr) {
    return bad("a dataset has no datatype or no dataspace", layout_message.offset);
  }
  if (type_message->shared || space_message->shared) return unreadable(entry, "a dataset with a named datatype");
  In type_in(type_message->content), space_in(space_message->content);
  auto parsed_type = parse_type(type_in);
  if (!parsed_type) return std::move(parsed_type).error().offset(type_message->offset);
  Type type = *std::move(parsed_type);
  auto parsed_space = parse_space(space_in);
  if (!parsed_space) return std::move(parsed_space).error().offset(space_message->offset);
  const Space& space = *parsed_space;
  auto parsed_layout = parse_layout(layout_message.content);
  if (!parsed_layout) return std::move(parsed_layout).error().offset(layout_message.offset);
  Layout& layout = *parsed_layout;
  if (header.find(message::external) != nullptr) return unreadable(entry, "a dataset in other files");
  if (layout.kind == Layout::Kind::unknown) return unreadable(entry, layout.reason);
  if (space.null) return unreadable(entry, "a dataset without elements");
  const auto bytes = checked_mul(space.count, type.size);
  if (!bytes) return bad("a dataset is too large", space_message->offset).expected("less than 2^64 bytes");
  if (layout.kind == Layout::Kind::compact) layout.address += layout_message.offset;
  if (layout.kind == Layout::Kind::contiguous && layout.size == undefined) layout.size = *bytes;
  const bool in_place = layout.kind != Layout::Kind::chunks && layout.address != undefined;
  if (in_place) {
    if (*bytes > layout.size) {
      return bad("a dataset is longer than its storage", layout_message.offset)
          .expected(std::to_string(*bytes) + " bytes")
          .found(std::to_string(layout.size));
    }
    if (layout.address > file_.size() || *bytes > file_.size() - layout.address) {
      return Error(Errc::truncated, "a dataset exceeds the file").offset(layout.address);
    }
  }
  entry.bytes = *bytes;
  if (in_place) {
    entry.provider = {&source_ops, keeper_->source.get(), layout.address};
    STELE_TRY(file_.add_range(layout.address, *bytes));
  }
  if (type.text) return texts(entry, type, space, in_place);
  if (type.opaque) {
    const auto found = std::find_if(entry.attributes.begin(), entry.attributes.end(),
                                    [](const auto& attribute) { return attribute.first == dtype_attribute; });
    const std::string* const name = found != entry.attributes.end() ? found->second.as_string() : nullptr;
    const DType dtype = name != nullptr ? opaque_dtype(*name) : DType::none;
    if (dtype != DType::none && element_size(dtype) == type.size) {
      type.dtype = dtype;
      entry.attributes.erase(found);
    }
  }
  if (type.dtype == DType::none) return unreadable(entry, "a dataset of " + type.reason);
  STELE_TRY(file_.take(64 + 3 * sizeof(Extent) * space.shape.size()));
  if (type.enumerated) entry.skipped.emplace_back("names of its numbers");
  entry.kind = Entry::Kind::tensor;
  entry.dtype = type.dtype;
  entry.big_endian = type.big_endian;
  entry.shape = space.shape;
  if (in_place) return {};
  return chunked(header, layout, layout_message.offset, type, space, entry);
}

Status Datasets::texts(Entry& entry, const Type& type, const Space& space, bool in_place) {
  constexpr std::uint64_t max_bytes = std::uint64_t{64} << 10;
  if ((!in_place && entry.bytes != 0) || entry.bytes > max_bytes || space.shape.size() > 1 ||
      file_.memory_left() < 8 * sizeof(Value) * space.count) {
    return unreadable(entry, "a dataset of text");
  }
  Bytes buffer;
  STELE_TRY_ASSIGN(const View bytes, file_.read(entry.provider.number, entry.bytes, buffer));
  STELE_TRY_ASSIGN(entry.value, values_.value_of(type, space, bytes));
  entry.kind = Entry::Kind::text;
  return {};
}

Status Datasets::chunked(const Header& header, const Layout& layout, std::uint64_t offset, const Type& type,
                         const Space& space, Entry& entry) {
  const std::size_t rank = entry.shape.size();
  STELE_TRY(file_.take(512 + 128 * rank));
  ChunkedLeaf& leaf = keeper_->leaves.emplace_back();
  leaf.source = keeper_->source;
  leaf.shape = entry.shape;
  leaf.element = type.size;
  leaf.bytes = entry.bytes;
  leaf.plain_edges = layout.plain_edges;
  if (layout.kind == Layout::Kind::chunks) {
    if (rank == 0 || layout.chunk.size() != rank + 1 || layout.chunk[rank] != type.size) {
      return bad("the chunks of a dataset have other axes than the dataset", offset);
    }
    leaf.extent.assign(layout.chunk.begin(), layout.chunk.end() - 1);
  } else {  // without storage
    if (rank == 0) leaf.shape = {1};
    leaf.extent.assign(leaf.shape.begin(), leaf.shape.end());
  }
  if (entry.bytes == 0) {
    entry.provider = {&source_ops, keeper_->source.get(), 0};
    return {};
  }
  leaf.chunk_bytes = type.size;
  for (std::size_t d = 0; d < leaf.extent.size(); ++d) {
    const std::uint64_t extent = leaf.extent[d];
    const auto product = checked_mul(leaf.chunk_bytes, extent);
    if (extent == 0 || !product) return bad("a chunk has no elements, or too many", offset);
    leaf.chunk_bytes = *product;
    leaf.grid.push_back(leaf.shape[d] / extent + (leaf.shape[d] % extent != 0 ? 1 : 0));
  }
  if (const Message* filters = header.find(message::filters); filters != nullptr) {
    In in(filters->content);
    auto parsed = parse_filters(in);
    if (!parsed) return std::move(parsed).error().offset(filters->offset);
    leaf.filters = *std::move(parsed);
  }
  std::uint64_t ratio = 1;
  for (const Filter& filter : leaf.filters) {
    if (!has_filter(filter.id)) {
      return unreadable(entry, "a dataset with the filter " + std::to_string(filter.id));
    }
    // A second compression would square the ratio that a hostile file reaches.
    if (max_ratio(filter.id) > 1 && ratio > 1) return unreadable(entry, "a dataset that is compressed twice");
    ratio = std::max(ratio, max_ratio(filter.id));
  }
  const bool larger = leaf.chunk_bytes / 4 > entry.bytes;  // as in a dataset that can grow
  if (larger && leaf.chunk_bytes > max_fill_bytes)
    return unreadable(entry, "a dataset that is far smaller than a chunk");
  const Message* const fill = header.find(message::fill);
  if (fill != nullptr) {
    STELE_TRY(fill_value(*fill, leaf));
  } else if (const Message* old = header.find(message::old_fill); old != nullptr && !old->shared) {
    In in(old->content);
    take_fill(in, leaf);
    if (!in.ok()) return bad("a fill value is incomplete", old->offset);
  }
  if (layout.kind == Layout::Kind::chunks && layout.address != undefined) {
    STELE_TRY_ASSIGN(const std::string_view reason, read_chunk_index(file_, layout, offset, space, leaf));
    if (!reason.empty()) return unreadable(entry, std::string(reason));
  }
  std::uint64_t stored = 0;
  for (const Chunk& chunk : leaf.chunks) {
    const bool plain = !leaf.filtered(chunk.number);
    if (plain ? chunk.size != leaf.chunk_bytes : amplifies(leaf.chunk_bytes, chunk.size, ratio)) {
      return bad("a chunk has another size than its elements", chunk.offset)
          .expected(std::to_string(leaf.chunk_bytes) + " bytes")
          .found(std::to_string(chunk.size));
    }
    STELE_TRY(file_.add_range(chunk.offset, chunk.size));
    stored = add_scaled(stored, leaf.chunk_bytes, 1);
  }
  // Elements without stored bytes: a small file could declare any number of them.
  const std::uint64_t missing = entry.bytes - std::min(entry.bytes, stored);
  if (missing > max_fill_bytes - filled_) {
    return unreadable(entry, "a dataset of " + std::to_string(entry.bytes) + " bytes, most of which are not stored");
  }
  filled_ += missing;
  entry.provider = leaf.provider();
  return {};
}

}  // namespace stele::inline v0::detail::hdf5
