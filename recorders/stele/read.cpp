// Reads a `.stele` file into a Snapshot. stele_reader.hpp parses; this file has the opened file, the tree and the
// leaves.
#include <algorithm>
#include <cstring>

#include "base/hash.hpp"
#include "base/limits.hpp"
#include "frames.hpp"
#include "leaves/source_range.hpp"
#include "module/walk.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"
#include "stele/recorders/binary.hpp"
#include "stele/recorders/stele_reader.hpp"
#include "values.hpp"

namespace stele::inline v0 {
namespace {

using format::Fault;

Error error_of(Fault fault, const char* text) {
  return Error(fault.code, fault.code == Errc::bad_magic ? "the file is not a .stele file" : text).offset(fault.offset);
}

/// An opened file; the leaves refer to its entries by number.
struct File {
  SourcePtr source;
  Bytes owned;  // index and trailer, if the source is not in memory
  format::Index index;
  std::uint64_t blocks_end = 0;

  format::Entry entry(std::uint64_t number) const {
    format::Entry e;
    index.entry(static_cast<std::uint32_t>(number), e);  // checked when the file was opened
    return e;
  }
};

std::uint64_t in_file(const format::Entry& entry) { return entry.stored != 0 ? entry.stored : entry.length; }

/// Returns the range of an entry's block, including the zeros up to the next block.
SourceRange range_of(const File& file, const format::Entry& entry) {
  const std::uint64_t end = entry.offset + in_file(entry);
  const std::uint64_t next = std::min(*format::round_up(end, format::block_alignment), file.blocks_end);
  return {file.source.get(), entry.offset, next - end, entry.hash, true};
}

SourceRange locate(const void* at, std::uint64_t number) {
  const File& file = *static_cast<const File*>(at);
  return range_of(file, file.index.block(static_cast<std::uint32_t>(number)));
}

constexpr LeafOps plain_ops{.locate = locate};

#if STELE_ZSTD
detail::FramedBlock framed(const File& file, const format::Entry& entry) {
  return {*file.source, entry.offset, entry.stored, entry.stored_hash, entry.length, swap_unit(entry.dtype)};
}

Status read_compressed(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                       ReadContext&) {
  const File& file = *static_cast<const File*>(at);
  return detail::read_frames(framed(file, file.entry(number)), offset, out);
}

Status stream_compressed(const void* at, std::uint64_t number, std::uint64_t, PieceSink& sink, ReadContext& context) {
  const File& file = *static_cast<const File*>(at);
  const format::Entry entry = file.entry(number);
  std::uint64_t hash = 0;
  STELE_TRY(detail::stream_frames(framed(file, entry), sink, context, hash));
  const SourceRange range = range_of(file, entry);
  STELE_TRY(detail::check_hash(range, hash));
  const auto count = static_cast<std::size_t>(range.zeros);
  STELE_TRY_ASSIGN(const auto zeros, context.window(*file.source, range.offset + entry.stored, count));
  return detail::check_zeros(range, entry.stored, zeros);
}

constexpr LeafOps compressed_ops{
    .read = read_compressed,
    .stream = stream_compressed,
    .encoding = "zstd",
    .hash = [](const void* at, std::uint64_t number) { return static_cast<const File*>(at)->entry(number).hash; }};
#endif

class SteleReader {
 public:
  SteleReader(SourcePtr source, const Limits& limits) : file_(std::make_shared<File>()), limits_(limits) {
    file_->source = std::move(source);
  }

  Result<Snapshot> run() {
    STELE_TRY(read_index());
    memory_ = detail::IndexBudget(limits_, file_->source->size());
    memory_.admit(file_->index.values().size() + file_->index.metadata().size(), detail::index_rate::index);
    STELE_TRY(spend(file_->owned.size()));
    STELE_TRY(reserve());
    STELE_TRY(read_types());
    STELE_TRY(read_metadata());
    if (builder_.data().metadata.contains(detail::delta_key) != ((header_.required & format::weight_delta) != 0)) {
      return malformed("the header's feature bit 1 and the metadata contradict each other", 16);
    }
    const format::Index& index = file_->index;
    builder_.data().flat = index.flat();
    builder_.set_unknown_kinds({.all = index.guessed()});
    STELE_TRY(check_names());
    for (std::uint32_t i = 0; i < index.nodes(); ++i) STELE_TRY(add_node(i));
    if (entries_seen_ != index.entries()) return malformed("an entry does not belong to a node", index.entry_offset(0));
    if (running_ != file_->blocks_end) return malformed("the index does not follow the last block", running_);
    for (; !ends_.empty(); ends_.pop_back()) builder_.end();
    if (const std::uint32_t i = detail::misnamed_child(builder_.data()); i != no_index) {
      return malformed("a child's name does not fit the kind of its container", index.node_offset(i))
          .path(detail::node_path(builder_.data(), i));
    }
    if (const std::uint32_t i = detail::clashing_sibling(builder_.data()); i != no_index) {
      return malformed("a name occurs twice, or elements are not in ascending order", index.node_offset(i))
          .path(detail::node_path(builder_.data(), i));
    }
    builder_.keep(file_);
    return builder_.finish();
  }

 private:
  Error malformed(const char* text, std::uint64_t offset) const {
    return Error(Errc::malformed, text).offset(offset).file(file_->source->name());
  }

  Status read_index() {
    const Source& source = *file_->source;
    std::byte bytes[format::header_size]{};
    const auto head = static_cast<std::size_t>(std::min<std::uint64_t>(source.size(), sizeof bytes));
    STELE_TRY(source.read_at(0, {bytes, head}));
    if (const Fault f =
            format::parse_header({bytes, head}, detail::hash64, header_, format::known_features | format::weight_delta))
      return error_of(f, "the header is damaged");
    const std::uint64_t total = header_.total != 0 ? header_.total : source.size();
    constexpr std::uint64_t min_size = format::header_size + format::index_header_size + format::trailer_size;
    if (total > source.size() || total < min_size) {
      return Error(Errc::truncated, "the file is shorter than its header declares")
          .expected(std::to_string(std::max(total, min_size)) + " bytes")
          .found(std::to_string(source.size()))
          .offset(source.size());
    }
    STELE_TRY(source.read_at(total - format::trailer_size, {bytes, format::trailer_size}));
    format::Trailer trailer;
    if (const Fault f = format::parse_trailer({bytes, format::trailer_size}, total, trailer)) {
      return error_of(f, f.code == Errc::truncated ? "the file does not end with a trailer" : "the trailer is damaged");
    }
    if (trailer.index_offset % format::block_alignment != 0)
      return malformed("the index is not aligned to 64 bytes", total - 64);
    file_->blocks_end = trailer.index_offset;
    const auto size = static_cast<std::size_t>(total - trailer.index_offset);
    std::span<const std::byte> bytes_of_index;
    if (const auto all = source.view(); !all.empty()) {
      bytes_of_index = all.subspan(static_cast<std::size_t>(trailer.index_offset), size);
    } else {
      file_->owned = Bytes(size);
      STELE_TRY(source.read_at(trailer.index_offset, file_->owned.span()));
      bytes_of_index = file_->owned.span();
    }
    if (const Fault f = file_->index.parse(header_, bytes_of_index, trailer.index_offset, detail::hash64)) {
      return error_of(f, f.code == Errc::checksum ? "the index is damaged" : "the index is malformed");
    }
    return {};
  }

  /// Counts the Snapshot's memory against the bound of Format::open. Parts of an index may overlap, so a small index
  /// can describe a large Snapshot.
  Status spend(std::uint64_t bytes) {
    if (memory_.take(bytes)) return {};
    return detail::index_error("the index needs more memory than its size allows").file(file_->source->name());
  }

  Status reserve() {
    const format::Index& index = file_->index;
    std::uint64_t values = 0;
    for (std::uint32_t i = 0; i < index.nodes(); ++i) {
      values += index.kind(i) == static_cast<std::uint8_t>(NodeKind::value) ? 1 : 0;
    }
    std::uint64_t extras = 0;
    for (std::uint32_t i = 0; i < index.entries(); ++i) extras += index.has_id(i) ? 1 : 0;
    // The index contains all counted items, so the sum cannot overflow.
    STELE_TRY(spend(index.nodes() * sizeof(Node) + index.entries() * sizeof(detail::LeafData) +
                    index.extents() * sizeof(Extent) + values * sizeof(Value) + extras * sizeof(detail::LeafExtra) +
                    index.types() * sizeof(detail::TypeData)));
    builder_.reserve(index.nodes(), index.entries(), static_cast<std::size_t>(index.extents()));
    builder_.data().values.reserve(static_cast<std::size_t>(values));
    builder_.data().extras.reserve(static_cast<std::size_t>(extras));
    builder_.data().types.reserve(index.types());
    return {};
  }

  Status read_types() {
    const format::Index& index = file_->index;
    std::string_view name;
    std::uint32_t version = 0;
    for (std::uint32_t i = 0; i < index.types(); ++i) {
      if (!index.type(i, name, version))
        return malformed("a type's name is outside the strings section", index.type_offset(i));
      STELE_TRY(spend(name.size()));
      builder_.data().types.push_back({std::string(name), version});
    }
    return {};
  }

  Status read_metadata() {
    auto left = file_->index.metadata();
    if (left.empty()) return {};
    const auto bad = [&] { return malformed("the metadata are malformed", file_->index.place(left)); };
    const auto number = [&](std::uint32_t& out) {
      if (left.size() < 4) return false;
      out = format::load_le<std::uint32_t>(left.data());
      left = left.subspan(4);
      return true;
    };
    const auto text = [&](std::uint32_t size, std::string& out) {
      if (left.size() < size) return false;
      out.assign(reinterpret_cast<const char*>(left.data()), size);
      left = left.subspan(size);
      return true;
    };
    std::map<std::string, std::string> all;
    std::uint32_t pairs = 0;
    if (!number(pairs)) return bad();
    for (std::uint32_t i = 0; i < pairs; ++i) {
      std::uint32_t key_size = 0;
      std::uint32_t text_size = 0;
      std::string key;
      std::string value;
      if (!number(key_size) || !number(text_size) || !text(key_size, key) || !text(text_size, value)) return bad();
      if (!all.empty() && all.rbegin()->first >= key) return bad();
      STELE_TRY(spend(sizeof(std::pair<std::string, std::string>) + 64 + key.size() + value.size()));
      all.emplace_hint(all.end(), std::move(key), std::move(value));
    }
    if (!left.empty()) return bad();
    builder_.set_metadata(std::move(all));
    return {};
  }

  /// Checks that names strictly ascend, so that they are unique and the binary search finds every name. The rest of an
  /// entry is checked with its node.
  Status check_names() {
    const format::Index& index = file_->index;
    std::string_view last;
    std::string_view name;
    for (std::uint32_t i = 0; i < index.entries(); ++i) {
      if (!index.entry_name(i, name)) return malformed("an entry is malformed", index.entry_offset(i));
      if (i != 0 && !(last < name)) {
        return malformed("the entries are not in the order of their names", index.entry_offset(i));
      }
      last = name;
    }
    return {};
  }

  Status check_entry(std::uint32_t i, const format::Entry& entry) const {
    const format::Index& index = file_->index;
    if (!is_known(entry.dtype)) {
      return Error(Errc::unsupported, "a tensor has an unknown dtype")
          .offset(index.entry_offset(i))
          .file(file_->source->name());
    }
    // Packed and block dtypes store their own lengths.
    if (!index.length_fits(entry)) {
      return malformed("a tensor's length does not match its dtype and shape", index.entry_offset(i));
    }
    return {};
  }

  Status add_node(std::uint32_t i) {
    const format::Index& index = file_->index;
    format::NodeView node;
    const auto bad = [&](const char* text) { return malformed(text, index.node_offset(i)); };
    if (!index.node(i, node) || node.kind >= node_kind_count) return bad("a node is malformed");
    while (!ends_.empty() && ends_.back().end == i) {
      path_.resize(ends_.back().path);
      ends_.pop_back();
      builder_.end();
    }
    const std::uint32_t limit = ends_.empty() ? (i == 0 ? index.nodes() : 0) : ends_.back().end;
    const auto kind = static_cast<NodeKind>(node.kind);
    const bool container = kind >= NodeKind::module && kind <= NodeKind::variant;
    if (node.end <= i || node.end > limit || (!container && node.end != i + 1))
      return bad("the end of a node's subtree is wrong");
    if (i == 0 && node.end != index.nodes()) return bad("the record has more than one root");
    if ((kind == NodeKind::value && node.index != 0) || (kind == NodeKind::none && node.index != no_index)) {
      return bad("the index field of a node without an index has a wrong value");
    }
    if (kind != NodeKind::value && kind != NodeKind::tensor && !node.value.empty()) {
      return bad("a node that is neither a value nor a tensor has a value");
    }
    if (ends_.size() > detail::max_depth)
      return Error(Errc::limit, "nodes nest too deep").offset(index.node_offset(i)).file(file_->source->name());

    const std::size_t parent_path = path_.size();
    // Names may overlap, so the file's size limits the total length of names to read.
    path_work_ += node.name.size();
    if (parent_path + node.name.size() > index.strings().size() + (std::size_t{1} << 20) ||
        path_work_ > 64 * file_->source->size() + (std::uint64_t{16} << 20)) {
      return Error(Errc::limit, "the names are too long").offset(index.node_offset(i)).file(file_->source->name());
    }
    if (index.flat()) {
      if (i != 0 && (!node.named || (container && node.end != i + 1)))
        return bad("a file with whole paths as names has nested nodes");
      path_ = node.name;
    } else if (i != 0) {
      if (ends_.size() > 1) path_ += '.';
      if (node.named) {
        append_segment(path_, node.name);
      } else {
        path_ += std::to_string(node.number);
      }
    }
    const auto name = node.named ? SnapshotBuilder::Name(node.name) : SnapshotBuilder::Name::element(node.number);
    switch (kind) {
      case NodeKind::tensor:
        STELE_TRY(add_tensor(i, node, name));
        break;
      case NodeKind::value: {
        Value value;
        if (auto r = detail::decode_value(node.value, value, memory_.left()); !r) {
          return std::move(r).error().offset(index.place(node.value)).path(path_);
        }
        builder_.value(name, std::move(value), node.conditional);
        break;
      }
      case NodeKind::none:
        builder_.none(name, node.conditional);
        break;
      case NodeKind::alias:
        STELE_TRY(add_alias(i, node, name));
        break;
      default: {
        if (node.index != no_index && node.index >= index.types()) return bad("a node refers to an unknown type");
        const std::uint32_t number = builder_.begin(kind, name, node.conditional);
        builder_.data().nodes[number].index = node.index;
        ends_.push_back({node.end, parent_path, number});
        return close_if_empty(i, node.end);
      }
    }
    path_.resize(parent_path);
    return {};
  }

  Status close_if_empty(std::uint32_t i, std::uint32_t end) {
    if (end != i + 1) return {};
    path_.resize(ends_.back().path);
    ends_.pop_back();
    builder_.end();
    return {};
  }

  Status add_tensor(std::uint32_t i, const format::NodeView& node, SnapshotBuilder::Name name) {
    const format::Index& index = file_->index;
    const auto bad = [&](const char* text) { return malformed(text, index.node_offset(i)); };
    if (node.index >= index.entries()) return bad("a tensor has no entry");
    format::Entry entry;
    if (!index.entry(node.index, entry)) return malformed("an entry is malformed", index.entry_offset(node.index));
    if (entry.alias || entry.node != i || entry.name != path_) return bad("a tensor does not match its entry");
    STELE_TRY(check_entry(node.index, entry));
    // In tree order, blocks follow each other without a gap, so they do not overlap and no bytes are hidden.
#if STELE_ZSTD
    const LeafOps& ops = entry.stored != 0 ? compressed_ops : plain_ops;
    if (entry.stored != 0 && !detail::frames_fit(entry.stored, entry.length)) {
      return malformed("the size of a compressed block is impossible", index.entry_offset(node.index));
    }
#else
    const LeafOps& ops = plain_ops;
    if (entry.stored != 0) return detail::zstd::left_out(file_->source->name());
#endif
    const auto end = checked_add(entry.offset, in_file(entry));
    if (entry.offset != running_ || !end || *end > file_->blocks_end) {
      return malformed("a block does not follow the previous one", index.entry_offset(node.index));
    }
    running_ = std::min(*format::round_up(*end, format::block_alignment), file_->blocks_end);
    ++entries_seen_;
    extents_used_ += entry.rank;
    if (extents_used_ > index.extents()) return bad("tensors share extents");
    extents_.resize(entry.rank);
    for (std::uint32_t d = 0; d < entry.rank; ++d) extents_[d] = index.extent(entry, d);
    detail::push_tensor(builder_.data(), name, node.conditional, builder_.parent(), entry.dtype, extents_, entry.length,
                        {&ops, file_.get(), node.index});
    if (entry.id_form != 0) {
      builder_.set_id({entry.id_high, entry.id_low, static_cast<ParamId::Form>(entry.id_form)});
    }
    if (!node.value.empty()) {
      Value annotations;
      STELE_TRY(spend(3 * sizeof(detail::LeafExtra)));
      STELE_TRY(detail::decode_value(node.value, annotations, memory_.left()));
      if (annotations.as_map() == nullptr) return bad("the annotations of a tensor are not a map");
      STELE_TRY(spend(annotations.as_map()->size() * (sizeof(Annotations::value_type) + 64)));
      for (auto& [key, value] : *annotations.as_map()) builder_.annotate(std::move(key), std::move(value));
    }
    return {};
  }

  Status add_alias(std::uint32_t i, const format::NodeView& node, SnapshotBuilder::Name name) {
    const format::Index& index = file_->index;
    const auto bad = [&](const char* text) { return malformed(text, index.node_offset(i)); };
    // A target is complete and comes before its aliases, so a file cannot make cycles.
    if (node.index >= i) return bad("an alias does not refer to an earlier node");
    const Node& target = builder_.nodes()[node.index];
    const bool open = std::any_of(ends_.begin(), ends_.end(), [&](const End& e) { return e.node == node.index; });
    if (target.kind == NodeKind::alias || target.kind == NodeKind::none || open)
      return bad("an alias refers to an alias, a none, or a container around it");
    if (target.kind == NodeKind::tensor) {
      format::Entry entry;
      if (!index.find(path_, entry) || !entry.alias || entry.node != i) return bad("an alias does not match its entry");
      format::NodeView target_node;
      index.node(node.index, target_node);
      const format::Entry same = file_->entry(target_node.index);
      if (entry.offset != same.offset || entry.length != same.length || entry.stored != same.stored ||
          entry.stored_hash != same.stored_hash || entry.hash != same.hash || entry.dtype != same.dtype ||
          entry.rank != same.rank || entry.first_extent != same.first_extent || entry.id_form != same.id_form ||
          entry.id_low != same.id_low || entry.id_high != same.id_high) {
        return bad("an alias's entry differs from its target's");
      }
      ++entries_seen_;
    }
    builder_.alias(name, node.index, node.conditional);
    return {};
  }

  struct End {
    std::uint32_t end;
    std::size_t path;  // length of the parent's path
    std::uint32_t node;
  };
  std::shared_ptr<File> file_;
  format::Header header_;
  SnapshotBuilder builder_;
  std::vector<End> ends_;
  std::vector<Extent> extents_;
  std::string path_;
  const Limits& limits_;
  detail::IndexBudget memory_;
  std::uint64_t path_work_ = 0;
  std::uint64_t extents_used_ = 0;
  std::uint64_t running_ = format::header_size;
  std::uint32_t entries_seen_ = 0;
};

}  // namespace

bool SteleFormat::recognises(std::span<const std::byte> head, std::uint64_t) const noexcept {
  return head.size() >= sizeof format::magic && std::memcmp(head.data(), format::magic, sizeof format::magic) == 0;
}

Result<Snapshot> SteleFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::in_host_order(SteleReader(std::move(source), context.options().limits).run());
}

}  // namespace stele::inline v0
