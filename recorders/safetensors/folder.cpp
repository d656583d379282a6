// Opens folders of safetensors files: with an index, or written by torch.distributed.checkpoint
// (HuggingFaceStorageWriter), which writes one file for each rank with boxes of the tensors.
#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/in_file.hpp"
#include "base/limits.hpp"
#include "base/skipped.hpp"
#include "file.hpp"
#include "io/files.hpp"
#include "json/json.hpp"
#include "leaves/boxes.hpp"
#include "snapshot/data.hpp"
#include "snapshot/model_folder.hpp"
#include "snapshot/shard_index.hpp"
#include "stele/bundle.hpp"
#include "stele/recorders/safetensors.hpp"

namespace stele::inline v0::detail::safetensors {
namespace {

constexpr std::string_view file_extension = ".safetensors", index_extension = ".safetensors.index.json";
constexpr const char* offsets_key = "saved_offsets";

/// Maximum number of files (100,000): bounds the files that a folder makes the reader open.
constexpr std::size_t max_files = 100'000;

/// Returns the names with this ending in the folder itself, without folders below it.
std::vector<std::string> names_with(std::vector<std::string> names, std::string_view ending) {
  std::erase_if(names, [&](const std::string& n) { return !n.ends_with(ending) || n.find('/') != n.npos; });
  return names;
}

/// Joins the boxes in a folder's files to whole tensors.
class BoxesReader {
 public:
  BoxesReader(const Source& folder, std::vector<std::string> files, const OpenContext& context)
      : folder_(folder),
        files_(std::move(files)),
        context_(context),
        memory_(context.options().limits, 0),
        joined_(std::make_shared<std::deque<JoinedBoxes>>()) {}

  Result<Snapshot> run() {
    if (files_.size() > max_files) {
      return Error(Errc::limit, "the folder has too many files")
          .expected("at most " + std::to_string(max_files))
          .found(std::to_string(files_.size()));
    }
    builder_.set_flat();
    const auto bundle = folder_.bundle();
    for (std::size_t i = 0; i < files_.size(); ++i) {
      STELE_TRY_ASSIGN(const SourcePtr source, open_of_set(bundle, files_[i], i));
      STELE_TRY(in_file(add_file(source), source->name()));
    }
    if (whole_files_ != 0 && files_.size() > 1 && whole_files_ == files_.size()) {
      return Error(Errc::malformed, "the folder has several files and no index")
          .expected("one *.safetensors.index.json, or DCP_SHARDING_INFO in the files")
          .found(files_[0] + " and " + files_[1])
          .hint("open one of the files");
    }
    return build();
  }

 private:
  /// A box in a file. The builder owns the name.
  struct Piece {
    std::string_view name;
    LeafView leaf;
    std::uint32_t file;
    std::uint32_t offsets;  // in offsets_
  };
  /// An entry of DCP_SHARDING_INFO.
  struct Saved {
    std::string name;
    std::uint32_t offsets = 0, rank = 0;
  };

  Status spend(std::uint64_t bytes) {
    return memory_.take(bytes) ? Status() : index_error("the list of boxes needs more memory than the files allow");
  }

  Status add_file(const SourcePtr& source) {
    STELE_TRY_ASSIGN(const Snapshot file, open_file(source, context_));
    memory_.admit(source->size(), index_rate::file);
    if (file.nodes().size() != file.leaf_count() + 1) {
      return Error(Errc::unsupported, "a file of a set has the metadata key stele, which belongs in an index");
    }
    std::map<std::string, std::string> metadata = file.metadata();
    const auto text = metadata.find(shards::sharding_key);
    const bool sharded = text != metadata.end();
    std::vector<Saved> saved;
    if (sharded) {
      memory_.admit(text->second.size(), index_rate::index);
      STELE_TRY(parse(text->second, saved));
    } else {
      ++whole_files_;
    }
    const auto number = static_cast<std::uint32_t>(sources_.size());
    for (std::size_t i = 0; i < file.leaf_count(); ++i) {
      const LeafView leaf = file.leaf(i);
      const Node& node = file.nodes()[leaf.node()];
      const std::string_view name(node.name, node.name_size);
      const std::size_t rank = leaf.shape().size();
      STELE_TRY(spend(3 * sizeof(Piece) + sizeof(Node) + sizeof(LeafData) + 4 * sizeof(Extent) * rank));
      Piece& piece = pieces_.emplace_back(Piece{name, leaf, number, static_cast<std::uint32_t>(offsets_.size())});
      if (!sharded) {
        offsets_.resize(offsets_.size() + rank);
        continue;
      }
      const auto at = std::lower_bound(saved.begin(), saved.end(), name,
                                       [](const Saved& s, std::string_view n) { return s.name < n; });
      if (at == saved.end() || at->name != name || at->rank != rank) {
        return Error(Errc::malformed, "DCP_SHARDING_INFO does not have the offsets of the tensor's box")
            .path(std::string(name))
            .expected(std::to_string(rank) + " offsets");
      }
      piece.offsets = at->offsets;
    }
    metadata.erase(shards::sharding_key);
    metadata.erase(shards::version_key);
    add_left_out(builder_.data().left_out, file.data()->left_out);
    if (number == 0) {
      builder_.set_metadata(std::move(metadata));
    } else {
      const auto& first = builder_.data().metadata;
      for (const auto& item : metadata) {
        const auto known = first.find(item.first);
        if (known == first.end() || known->second != item.second) skipped_.add(item.first);
      }
    }
    sources_.push_back(source);
    builder_.keep(file.data());
    return {};
  }

  /// Reads {name: {"saved_offsets": [numbers]}}, sorted by name. Ignores other keys of a tensor.
  Status parse(std::string_view text, std::vector<Saved>& saved) {
    json::Reader in(text);
    std::string scratch, inner_scratch;
    std::string_view key, inner;
    in.begin_object();
    while (in.next_key(key, scratch)) {
      STELE_TRY(spend(3 * sizeof(Saved) + 16 + key.size()));
      Saved& tensor = saved.emplace_back();
      tensor.name = key;
      tensor.offsets = static_cast<std::uint32_t>(offsets_.size());
      bool found = false;
      in.begin_object();
      while (in.next_key(inner, inner_scratch)) {
        if (inner != offsets_key) {
          in.skip_value();
          continue;
        }
        if (std::exchange(found, true)) in.fail(Errc::duplicate, "", "saved_offsets occurs twice");
        in.begin_array();
        while (in.next_element()) {
          std::uint64_t offset = 0;
          if (!in.read_u64(offset)) break;
          STELE_TRY(spend(3 * sizeof(Extent)));
          offsets_.push_back(offset);
          ++tensor.rank;
        }
      }
      if (in.ok() && !found) in.fail(Errc::malformed, "saved_offsets");
      // Offsets are numbered with 32 bits.
      if (offsets_.size() > UINT32_MAX) in.fail(Errc::limit, "at most 2^32 offsets");
    }
    if (!in.finish()) return in.error().found("in the metadata DCP_SHARDING_INFO");
    std::sort(saved.begin(), saved.end(), [](const Saved& a, const Saved& b) { return a.name < b.name; });
    const auto same =
        std::adjacent_find(saved.begin(), saved.end(), [](const Saved& a, const Saved& b) { return a.name == b.name; });
    if (same == saved.end()) return {};
    return Error(Errc::duplicate, "DCP_SHARDING_INFO lists the tensor twice").path(same->name);
  }

  Result<Snapshot> build() {
    // Groups the boxes by tensor, and keeps the tensors in the order of the files.
    std::vector<std::uint32_t> order(pieces_.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return pieces_[a].name < pieces_[b].name; });
    std::vector<std::span<const std::uint32_t>> tensors;
    for (std::size_t i = 0, end = 0; i < order.size(); i = end) {
      while (end < order.size() && pieces_[order[end]].name == pieces_[order[i]].name) ++end;
      tensors.push_back(std::span(order).subspan(i, end - i));
    }
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.front() < b.front(); });
    for (const auto& tensor : tensors) {
      if (auto added = add_tensor(tensor); !added) {
        return std::move(added).error().path(std::string(pieces_[tensor.front()].name));
      }
    }
    skipped_.leave_out(builder_.data().left_out, "metadata of further files");
    builder_.keep(joined_);
    return builder_.finish();
  }

  Status add_tensor(std::span<const std::uint32_t> numbers) {
    const Piece& first = pieces_[numbers.front()];
    const DType dtype = first.leaf.dtype();
    const std::size_t rank = first.leaf.shape().size();
    std::vector<Extent> shape(rank);
    std::vector<Box> boxes;
    std::vector<Provider> parts;
    for (const std::uint32_t i : numbers) {
      const Piece& piece = pieces_[i];
      const auto extents = piece.leaf.shape();
      if (piece.leaf.dtype() != dtype || extents.size() != rank) {
        return Error(Errc::malformed, "two boxes of the tensor differ in dtype or rank")
            .file(sources_[piece.file]->name())
            .expected(std::string(name(dtype)) + " of rank " + std::to_string(rank))
            .found(std::string(name(piece.leaf.dtype())) + " of rank " + std::to_string(extents.size()));
      }
      STELE_TRY(spend(3 * (sizeof(Box) + sizeof(Provider)) + 2 * (16 + sizeof(Extent) * rank)));
      Box& box = boxes.emplace_back();
      box.length.assign(extents.begin(), extents.end());
      const auto* const start = offsets_.data() + piece.offsets;
      box.start.assign(start, start + rank);
      for (std::size_t d = 0; d < rank; ++d) {
        const auto end = checked_add(box.start[d], box.length[d]);
        if (!end) {
          return Error(Errc::malformed, "the end of a box overflows 64 bits").file(sources_[piece.file]->name());
        }
        // The files do not store the global shape, which extends to the end of the boxes.
        shape[d] = std::max(shape[d], *end);
      }
      parts.push_back(piece.leaf.provider());
    }
    if (auto covered = check_cover(boxes, shape, memory_); !covered) {
      return std::move(covered).error().hint("the folder may lack the file of a rank");
    }
    const bool whole = numbers.size() == 1;
    const std::size_t element = element_size(dtype);
    const auto count = element_count(shape);
    const auto bytes = count ? checked_mul(*count, element) : std::nullopt;
    if (!bytes || (!whole && element == 0)) {
      return Error(Errc::unsupported, "stele does not join boxes of these elements").found(std::string(name(dtype)));
    }
    if (whole) {
      builder_.tensor(first.name, dtype, shape, first.leaf.byte_size(), parts.front());
      return {};
    }
    STELE_TRY(spend(JoinedBoxes::memory(parts.size(), rank)));
    const Provider provider = joined_->emplace_back(shape, element, boxes, parts).provider();
    builder_.tensor(first.name, dtype, shape, *bytes, provider);
    return {};
  }

  const Source& folder_;
  std::vector<std::string> files_;
  const OpenContext& context_;
  IndexBudget memory_;
  SnapshotBuilder builder_;
  std::vector<SourcePtr> sources_;
  std::deque<Piece> pieces_;
  std::vector<Extent> offsets_;
  Skipped skipped_;              // metadata
  std::size_t whole_files_ = 0;  // number of files without boxes, whose tensors are whole
  std::shared_ptr<std::deque<JoinedBoxes>> joined_;
};

}  // namespace

bool recognises_folder(const Bundle& folder) {
  const auto names = folder.names();
  if (!names) return false;
  if (!names_with(*names, index_extension).empty()) return true;
  if (std::find(names->begin(), names->end(), shards::shard_index_name) != names->end()) return true;
  const std::string weights = model_folder(*names).weights;
  if (weights.ends_with(file_extension) || is_index_of(weights, file_extension)) return true;
  const std::vector<std::string> files = names_with(*names, file_extension);
  if (files.empty()) return false;
  const auto source = folder.open(files.front());
  if (!source) return false;
  const auto file = SafetensorsFormat().open(*source, OpenContext(default_load_options(), {}));
  return file && file->metadata().contains(shards::sharding_key);
}

Result<SourcePtr> find_index(const Source& folder, std::vector<std::string>& files) {
  const auto bundle = folder.bundle();
  STELE_TRY_ASSIGN(const auto names, bundle->names());
  const std::string weights = model_folder(names).weights;
  if (is_index_of(weights, file_extension)) return bundle->open(weights);
  if (weights.ends_with(file_extension)) {
    files = {weights};
    return SourcePtr();
  }
  const std::vector<std::string> indexes = names_with(names, index_extension);
  if (indexes.size() > 1) {
    return Error(Errc::malformed, "the folder has more than one index")
        .file(folder.name())
        .found(indexes[0] + " and " + indexes[1])
        .hint("open one of them");
  }
  if (!indexes.empty()) return bundle->open(indexes.front());
  files = names_with(names, file_extension);
  if (!files.empty()) return SourcePtr();
  return Error(Errc::not_found, "the folder has no safetensors files").file(folder.name());
}

Result<Snapshot> open_files(const Source& folder, std::vector<std::string> files, const OpenContext& context) {
  if (files.size() == 1) {  // a single file may have the metadata key stele
    STELE_TRY_ASSIGN(const SourcePtr source, open_of_set(folder.bundle(), files.front(), 0));
    STELE_TRY_ASSIGN(Snapshot file, SafetensorsFormat().open(source, context));
    if (!file.metadata().contains(shards::sharding_key)) return file;
  }
  return in_file(BoxesReader(folder, std::move(files), context).run(), folder.name());
}

}  // namespace stele::inline v0::detail::safetensors
