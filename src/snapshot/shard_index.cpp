#include "snapshot/shard_index.hpp"
#include "snapshot/data.hpp"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>

#include "base/dtypes.hpp"
#include "base/hash.hpp"
#include "base/hex.hpp"
#include "base/in_file.hpp"
#include "base/skipped.hpp"
#include "io/files.hpp"
#include "io/text.hpp"
#include "json/json.hpp"
#include "json/sealed.hpp"
#include "leaves/region.hpp"
#include "leaves/source_range.hpp"
#include "snapshot/meter_sink.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/bundle.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::shards {
namespace {

constexpr std::uint64_t version = 1;
constexpr std::string_view version_member = "stele_shards";
constexpr std::string_view seal_member = "xxh3";

/// Reads the members of the index, in any order.
class Parser {
 public:
  Parser(std::string_view text, IndexBudget& memory) : in_(text), memory_(memory) {}

  Result<ShardIndex> run() {
    std::string_view key;
    std::uint64_t found = 0;
    in_.begin_object();
    while (in_.next_key(key, key_scratch_)) {
      if (key == version_member) {
        in_.read_u64(found);
        if (in_.ok() && found != version) in_.fail(Errc::unsupported, "version 1 of the index");
      } else if (key == "files") {
        each([&] { read_file(); });
      } else if (key == "layouts") {
        each([&] { read_layout(); });
      } else if (key == "tensors") {
        each([&] { read_tensor(); });
      } else if (key == "metadata") {
        read_metadata();
      } else if (key == "stele") {
        read_string(index_.extras);
      } else {
        if (key != seal_member) index_.skipped.add(key);
        in_.skip_value();
      }
    }
    if (in_.ok() && found == 0) in_.fail(Errc::malformed, "stele_shards");
    if (!in_.finish()) return in_.error();
    STELE_TRY(check());
    return std::move(index_);
  }

 private:
  bool spend(std::uint64_t bytes) {
    return memory_.take(bytes) || in_.fail(Errc::limit, "", "the index needs more memory than its size allows");
  }
  template <class Read>
  void each(Read&& read) {
    in_.begin_array();
    while (in_.next_element()) read();
  }
  void read_string(std::string& out) {
    std::string_view text;
    if (in_.read_string(text, scratch_) && spend(3 * text.size())) out = text;
  }
  void read_hex(std::uint64_t& out) {
    std::string_view text;
    if (!in_.read_string(text, scratch_)) return;
    const auto number = from_hex(text);
    number ? static_cast<void>(out = *number) : static_cast<void>(in_.fail(Errc::malformed, "16 hexadecimal digits"));
  }
  template <class Read>
  void members(std::string_view list, const Read& read) {
    std::string_view key;
    std::string scratch;
    in_.begin_object();
    while (in_.next_key(key, scratch)) {
      if (read(key)) continue;
      index_.skipped.add(std::string(list).append(".").append(key));
      in_.skip_value();
    }
  }

  void read_file() {
    if (!spend(3 * sizeof(ShardFile))) return;
    ShardFile& file = index_.files.emplace_back();
    members("files", [&](std::string_view key) {
      if (key == "name") return read_string(file.name), true;
      if (key == "bytes") return in_.read_u64(file.bytes), true;
      if (key == "header") return read_hex(file.header), true;
      return false;
    });
  }
  void read_numbers(std::vector<std::uint64_t>& out) {
    each([&] {
      std::uint64_t number = 0;
      if (in_.read_u64(number) && spend(3 * sizeof number)) out.push_back(number);
    });
  }
  void read_layout() {
    if (!spend(3 * sizeof(ShardLayout))) return;
    ShardLayout& layout = index_.layouts.emplace_back();
    members("layouts", [&](std::string_view key) {
      if (key == "shape") return read_numbers(layout.shape), true;
      if (key == "boxes") return read_numbers(layout.boxes), true;
      return false;
    });
  }
  void read_tensor() {
    if (!spend(3 * sizeof(ShardTensor))) return;
    ShardTensor& tensor = index_.tensors.emplace_back();
    members("tensors", [&](std::string_view key) {
      if (key == "name") return read_string(tensor.name), true;
      if (key == "dtype") {
        std::string_view text;
        if (!in_.read_string(text, scratch_)) return true;
        tensor.dtype = dtype_named(text);
        if (tensor.dtype == DType::none) in_.fail(Errc::unsupported, "a dtype");
        return true;
      }
      if (key == "layout") {
        std::uint64_t number = 0;
        if (in_.read_u64(number) && number > UINT32_MAX) in_.fail(Errc::malformed, "the number of a layout");
        return tensor.layout = static_cast<std::uint32_t>(number), true;
      }
      return false;
    });
  }
  void read_metadata() {
    members("metadata", [&](std::string_view key) {
      std::string name(key), text;
      if (!spend(sizeof(std::pair<std::string, std::string>) + 64 + 2 * name.size())) return true;
      read_string(text);
      return index_.metadata.insert_or_assign(std::move(name), std::move(text)), true;
    });
  }

  Status check() {
    for (const ShardTensor& tensor : index_.tensors) {
      if (tensor.layout < index_.layouts.size() && element_size(tensor.dtype) != 0) continue;
      return Error(Errc::malformed, "the index has no such layout or dtype for the tensor").path(tensor.name);
    }
    for (const ShardLayout& layout : index_.layouts) STELE_TRY(check(layout));
    return {};
  }
  Status check(const ShardLayout& layout) {
    const auto malformed = [](const char* what) { return Error(Errc::malformed, what); };
    if (layout.shape.size() > 0xffff) return malformed("a layout has too many axes");
    if (layout.boxes.size() % layout.stride() != 0) return malformed("a layout ends within a box");
    if (!memory_.take(layout.size() * (sizeof(Box) + 4 * sizeof(Extent) * layout.shape.size() + 64))) {
      return index_error("the list of boxes needs more memory than the size of the index allows");
    }
    std::vector<Box> boxes;
    for (std::size_t i = 0; i < layout.size(); ++i) {
      if (layout.boxes[i * layout.stride()] >= index_.files.size())
        return malformed("a box is in a file without a name");
      boxes.push_back(layout.box(i));
    }
    return check_cover(boxes, layout.shape, memory_);
  }

  json::Reader in_;
  IndexBudget& memory_;
  std::string key_scratch_, scratch_;
  ShardIndex index_;
};

/// A file of the set whose header has been read.
struct Shard {
  SourcePtr source;
  Snapshot snapshot;
  std::unordered_map<std::string_view, std::uint32_t> leaves;  // by name
  std::vector<bool> used;                                      // for each leaf
  std::unordered_map<std::string, std::uint64_t> hashes;       // by name
  std::unordered_map<std::string, std::string> pieces;         // hexadecimal checksums by name
  std::uint64_t piece_bytes = 0;
};

/// Reads the checksums in a shard's metadata.
class ChecksumReader {
 public:
  ChecksumReader(Shard& shard, const char* key, const std::string& text) : shard_(shard), key_(key), in_(text) {}

  Status boxes() {
    names([&](std::string name, std::string_view text) {
      const auto hash = from_hex(text);
      if (!hash) in_.fail(Errc::malformed, "16 hexadecimal digits");
      if (hash) shard_.hashes.emplace(std::move(name), *hash);
    });
    return finish();
  }
  Status pieces() {
    std::string_view key;
    in_.begin_object();
    while (in_.next_key(key, scratch_)) {
      if (key == "bytes") {
        in_.read_u64(shard_.piece_bytes);
      } else if (key == "boxes") {
        names([&](std::string name, std::string_view text) { shard_.pieces.emplace(std::move(name), text); });
      } else {
        in_.skip_value();
      }
    }
    if (in_.ok() && shard_.piece_bytes == 0) in_.fail(Errc::malformed, "bytes");
    return finish();
  }

 private:
  template <class Visit>
  void names(Visit&& visit) {
    std::string scratch, text_scratch;
    std::string_view key, text;
    in_.begin_object();
    while (in_.next_key(key, scratch)) {
      std::string name(key);
      if (in_.read_string(text, text_scratch)) visit(std::move(name), text);
    }
  }
  Status finish() {
    if (in_.finish()) return {};
    return in_.error().file(shard_.source->name()).found(std::string("in the metadata ") + key_);
  }

  Shard& shard_;
  const char* key_;
  json::Reader in_;
  std::string scratch_;
};

/// Checks that a file has the header that the index names. The file must have been opened.
Status check_header(const Source& source, const ShardFile& file) {
  std::byte length[8];
  STELE_TRY(source.read_at(0, length));
  Bytes header(static_cast<std::size_t>(8 + load_le<std::uint64_t>(length)));
  STELE_TRY(source.read_at(0, header.span()));
  const std::uint64_t found = hash64(header.data(), header.size());
  if (found == file.header) return {};
  return Error(Errc::checksum, "the shard's header is not that of the index: the file may belong to another set")
      .file(source.name())
      .expected(hex(file.header))
      .found(hex(found));
}

Result<Shard> open_shard(const std::shared_ptr<const Bundle>& bundle, const ShardFile& file, std::size_t number,
                         const OpenShard& open, const OpenDelta& open_delta) {
  Shard shard;
  STELE_TRY_ASSIGN(shard.source, open_of_set(bundle, file.name, number));
  const Source& source = *shard.source;
  if (source.size() != file.bytes) {
    return Error(Errc::truncated, "the shard's size differs from that in the index")
        .file(source.name())
        .expected(std::to_string(file.bytes))
        .found(std::to_string(source.size()));
  }
  if (!file.name.ends_with(delta_suffix)) {
    STELE_TRY_ASSIGN(shard.snapshot, in_file(open(shard.source), source.name()));
    STELE_TRY(check_header(source, file));
  } else if (open_delta) {
    STELE_TRY_ASSIGN(shard.snapshot, in_file(open_delta(file), source.name()));
  } else {
    return Error(Errc::unsupported, "the shard is a delta of one of another step")
        .file(source.name())
        .hint("resume with stele::mpi::CheckpointManager, which may run as one process");
  }
  shard.used.resize(shard.snapshot.leaf_count());
  for (std::uint32_t i = 0; i < shard.snapshot.leaf_count(); ++i) {
    const Node& node = shard.snapshot.nodes()[shard.snapshot.leaf(i).node()];
    shard.leaves.emplace(std::string_view(node.name, node.name_size), i);
  }
  const auto& metadata = shard.snapshot.metadata();
  if (const auto found = metadata.find(hashes_key); found != metadata.end()) {
    STELE_TRY(ChecksumReader(shard, hashes_key, found->second).boxes());
  }
  if (const auto found = metadata.find(pieces_key); found != metadata.end()) {
    STELE_TRY(ChecksumReader(shard, pieces_key, found->second).pieces());
  }
  return shard;
}

/// A box in a file, with its checksum.
struct StoredBox {
  SourceRange range;
};
constexpr LeafOps stored_ops{
    .locate = [](const void* at, std::uint64_t) { return static_cast<const StoredBox*>(at)->range; }};

/// A box that overlaps a requested box, for its verification.
struct MetBox {
  std::string_view tensor;
  SourceRange range;  // range of the whole box, with its checksum
  std::uint64_t bytes = 0;
  const RegionLeaf* region = nullptr;  // the part that is needed; null: all
  std::string_view pieces{};           // checksums of its pieces; empty: the pieces have no checksums
  std::uint64_t piece_bytes = 0;

  Status check(Meter& meter) const {
    struct Discard final : PieceSink {
      Status piece(std::span<const std::byte>) override { return {}; }
    };
    Discard discard;
    MeterSink sink(discard, meter);
    ReadContext context;
    if (region == nullptr || pieces.empty()) {
      return range.hashed ? stream_range(range, bytes, sink, context) : Status();
    }
    std::uint64_t next = 0;  // index of the first piece that is not verified yet
    for (std::uint64_t run = 0; run < region->runs(); ++run) {
      const std::uint64_t begin = region->place(run), end = begin + region->run_bytes();
      for (next = std::max(next, begin / piece_bytes); next * piece_bytes < end; ++next) {
        SourceRange piece{range.source, range.offset + next * piece_bytes};
        const auto hash = from_hex(pieces.substr(static_cast<std::size_t>(next) * digits, digits));
        if (!hash)
          return Error(Errc::malformed, "the checksum of a piece is not 16 hexadecimal digits")
              .file(range.source->name());
        piece.hash = *hash;
        piece.hashed = true;
        STELE_TRY(stream_range(piece, std::min(piece_bytes, bytes - next * piece_bytes), sink, context));
      }
    }
    return {};
  }
  static constexpr std::size_t digits = 16;
};

/// The objects that the leaves of an opened folder refer to.
struct Opened {
  std::vector<std::optional<Shard>> shards;
  std::deque<StoredBox> stored;
  std::deque<RegionLeaf> regions;
  std::deque<JoinedBoxes> joined;
  std::vector<MetBox> met;

  Status check(const WhichTensors& which, Meter& meter, const Workers& workers) const {
    std::vector<Status> done(met.size());
    parallel(workers, met.size(), [&](std::size_t i) {
      if (!which || which(met[i].tensor)) done[i] = guarded([&] { return met[i].check(meter); });
    });
    for (std::size_t i = 0; i < met.size(); ++i) {
      if (!done[i]) return std::move(done[i]).error().path(met[i].tensor);
    }
    return {};
  }
};

class Opener {
 public:
  /// `checked`: the caller will call check().
  Opener(const Source& folder, ShardIndex index, const OpenShard& open, IndexBudget& memory, const WantedBox& wanted,
         bool checked, const OpenDelta& open_delta)
      : bundle_(folder.bundle()),
        index_(std::move(index)),
        open_(open),
        memory_(memory),
        wanted_(wanted),
        checked_(checked),
        open_delta_(open_delta) {
    opened_->shards.resize(index_.files.size());
  }

  CheckBoxes check() const {
    return [opened = opened_](const WhichTensors& which, Meter& meter, const Workers& workers) {
      return opened->check(which, meter, workers);
    };
  }
  Result<Snapshot> run() {
    builder_.set_flat();
    for (const ShardTensor& tensor : index_.tensors) {
      if (auto added = add(tensor); !added) {
        Error error = std::move(added).error();
        return error.path().empty() ? std::move(error).path(tensor.name) : std::move(error);
      }
    }
    leave_out();
    STELE_TRY(sort_names(builder_));
    if (!index_.extras.empty()) {
      memory_.admit(index_.extras.size(), index_rate::index);
      STELE_TRY(add_extras(builder_, index_.extras, memory_));
    }
    builder_.set_metadata(std::move(index_.metadata));
    builder_.keep(opened_);
    return builder_.finish();
  }

 private:
  Status add(const ShardTensor& tensor) {
    const ShardLayout& layout = index_.layouts[tensor.layout];
    const std::size_t element = element_size(tensor.dtype);
    const std::string_view name = builder_.intern(tensor.name);
    Box all{std::vector<Extent>(layout.shape.size()), layout.shape};
    if (wanted_) {
      if (auto box = wanted_(tensor.name, layout.shape)) all = *std::move(box);
    }
    const auto count = element_count(all.length);
    const auto bytes = count ? checked_mul(*count, element) : std::nullopt;
    if (!bytes) return Error(Errc::malformed, "the tensor has 2^64 bytes or more");
    std::vector<Box> boxes;
    std::vector<Provider> parts;
    Box in_wanted, within;
    for (std::size_t i = 0; i < layout.size() && *bytes != 0; ++i) {
      const Box box = layout.box(i);
      if (!intersect(box, all, in_wanted, within)) continue;
      STELE_TRY_ASSIGN(Provider part, stored(tensor, layout, i));
      if (within.length != box.length) {
        const RegionLeaf& region = opened_->regions.emplace_back(part, box.length, element, within);
        part = region.provider();
        if (checked_) opened_->met.back().region = &region;
      }
      boxes.push_back(in_wanted);
      parts.push_back(part);
    }
    if (parts.size() != 1) {
      if (*bytes != 0 && !memory_.take(JoinedBoxes::memory(parts.size(), layout.shape.size()))) {
        return index_error("the list of boxes needs more memory than the size of the index allows");
      }
      parts.assign(1, opened_->joined.emplace_back(all.length, element, boxes, parts).provider());
    }
    builder_.tensor(name, tensor.dtype, all.length, *bytes, parts.front());
    return {};
  }

  /// Lists the parts of the index and of the opened files that are not in the snapshot.
  void leave_out() {
    Skipped tensors, metadata;
    for (const auto& shard : opened_->shards) {
      if (!shard) continue;
      add_left_out(builder_.data().left_out, shard->snapshot.data()->left_out);
      for (const auto& item : shard->snapshot.metadata()) {
        constexpr std::string_view known[] = {sharding_key, version_key, hashes_key, pieces_key, "format"};
        if (std::find(std::begin(known), std::end(known), item.first) == std::end(known)) metadata.add(item.first);
      }
      if (wanted_) continue;  // the boxes of some tensors are not needed
      for (std::uint32_t i = 0; i < shard->snapshot.leaf_count(); ++i) {
        const LeafView leaf = shard->snapshot.leaf(i);
        if (leaf.byte_size() != 0 && !shard->used[i]) tensors.add(leaf.path());
      }
    }
    index_.skipped.leave_out(builder_.data().left_out, "unknown keys of the index");
    tensors.leave_out(builder_.data().left_out, "tensors of the files that the index does not list");
    metadata.leave_out(builder_.data().left_out, "metadata of the files");
  }

  /// Returns a box as stored in its file.
  Result<Provider> stored(const ShardTensor& tensor, const ShardLayout& layout, std::size_t number) {
    const std::uint32_t file = layout.file(number);
    auto& shard = opened_->shards[file];
    if (!shard) {
      STELE_TRY_ASSIGN(shard, open_shard(bundle_, index_.files[file], file, open_, open_delta_));
      memory_.admit(index_.files[file].bytes, index_rate::file);
    }
    const auto found = shard->leaves.find(tensor.name);
    if (found == shard->leaves.end()) {
      return Error(Errc::missing, "the shard does not have the box of the tensor").file(shard->source->name());
    }
    shard->used[found->second] = true;
    const LeafView leaf = shard->snapshot.leaf(found->second);
    const Box box = layout.box(number);
    if (leaf.dtype() != tensor.dtype ||
        !std::equal(box.length.begin(), box.length.end(), leaf.shape().begin(), leaf.shape().end())) {
      return Error(Errc::malformed, "the dtype or shape of the shard's box differs from the index")
          .file(shard->source->name())
          .expected(std::string(name(tensor.dtype)) + " " + to_string(box.length))
          .found(std::string(name(leaf.dtype())) + " " + to_string(leaf.shape()));
    }
    const auto range = leaf.location();
    if (checked_) opened_->met.push_back({found->first, {}, leaf.byte_size()});
    if (!range) return leaf.provider();  // only on a big-endian machine
    StoredBox& stored = opened_->stored.emplace_back(StoredBox{*range});
    if (const auto hash = shard->hashes.find(tensor.name); hash != shard->hashes.end()) {
      stored.range.hash = hash->second;
      stored.range.hashed = true;
    }
    if (checked_) STELE_TRY(add_checksums(opened_->met.back(), *shard, stored.range, tensor.name));
    return Provider{&stored_ops, &stored, 0};
  }

  Status add_checksums(MetBox& met, const Shard& shard, const SourceRange& range, const std::string& name) {
    if (!memory_.take(2 * sizeof met)) {
      return index_error("the list of boxes needs more memory than the size of the index allows");
    }
    met.range = range;
    const auto found = shard.pieces.find(name);
    if (found == shard.pieces.end()) return {};
    met.pieces = found->second;
    met.piece_bytes = shard.piece_bytes;
    const std::uint64_t count = met.bytes / met.piece_bytes + (met.bytes % met.piece_bytes != 0 ? 1 : 0);
    if (met.pieces.size() == count * MetBox::digits) return {};
    return Error(Errc::malformed, "the shard's number of checksums differs from the box's number of pieces")
        .file(shard.source->name())
        .expected(std::to_string(count))
        .found(std::to_string(met.pieces.size() / MetBox::digits));
  }

  std::shared_ptr<const Bundle> bundle_;
  ShardIndex index_;
  const OpenShard& open_;
  IndexBudget& memory_;
  const WantedBox& wanted_;
  bool checked_;
  const OpenDelta& open_delta_;
  SnapshotBuilder builder_;
  std::shared_ptr<Opened> opened_ = std::make_shared<Opened>();
};

}  // namespace

Box ShardLayout::box(std::size_t number) const {
  const auto at = boxes.begin() + static_cast<std::ptrdiff_t>(number * stride() + 1);
  const auto rank = static_cast<std::ptrdiff_t>(shape.size());
  return {{at, at + rank}, {at + rank, at + 2 * rank}};
}

std::string to_text(const ShardIndex& index) {
  std::string text;
  json::Writer out(text);
  const auto numbers = [&](std::string_view key, const std::vector<std::uint64_t>& all) {
    out.key(key);
    out.begin_array();
    for (const std::uint64_t n : all) out.u64(n);
    out.end_array();
  };
  const auto list = [&](std::string_view key, const auto& all, const auto& write) {
    text += '\n';
    out.key(key);
    out.begin_array();
    for (const auto& one : all) {
      text += '\n';
      out.begin_object();
      write(one);
      out.end_object();
    }
    out.end_array();
  };
  const auto string = [&](std::string_view key, std::string_view value) {
    out.key(key);
    out.string(value);
  };
  out.begin_object();
  out.key(version_member);
  out.u64(version);
  list("files", index.files, [&](const ShardFile& file) {
    string("name", file.name);
    out.key("bytes");
    out.u64(file.bytes);
    string("header", hex(file.header));
  });
  list("layouts", index.layouts, [&](const ShardLayout& layout) {
    numbers("shape", layout.shape);
    numbers("boxes", layout.boxes);
  });
  list("tensors", index.tensors, [&](const ShardTensor& tensor) {
    string("name", tensor.name);
    string("dtype", name(tensor.dtype));
    out.key("layout");
    out.u64(tensor.layout);
  });
  out.key("metadata");
  out.begin_object();
  for (const auto& [key, value] : index.metadata) string(key, value);
  out.end_object();
  if (!index.extras.empty()) string("stele", index.extras);
  json::seal(text);
  return text;
}

Result<ShardIndex> parse_shard_index(std::string_view text, IndexBudget& memory) {
  STELE_TRY(json::check_seal(text));
  return Parser(text, memory).run();
}

Result<ShardIndex> read_shard_index(const Source& source, IndexBudget& memory) {
  STELE_TRY_ASSIGN(const std::string text, read_text(source, source.size()));
  memory.admit(text.size(), index_rate::index);
  auto index = parse_shard_index(text, memory);
  if (!index) return std::move(index).error().file(source.name());
  return index;
}

Result<Snapshot> open_shards(const Source& folder, const Limits& limits, const OpenShard& open, const WantedBox& wanted,
                             CheckBoxes* check, const OpenDelta& open_delta) {
  STELE_TRY_ASSIGN(const SourcePtr source, folder.bundle()->open(shard_index_name));
  IndexBudget memory(limits, source->size());
  STELE_TRY_ASSIGN(ShardIndex index, read_shard_index(*source, memory));
  Opener opener(folder, std::move(index), open, memory, wanted, check != nullptr, open_delta);
  if (check != nullptr) *check = opener.check();
  return opener.run();
}

}  // namespace stele::inline v0::detail::shards
