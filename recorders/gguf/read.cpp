// Reads a file, or a set of split files, into a Snapshot.
#include "stele/recorders/gguf.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

#include "base/extension.hpp"
#include "base/limits.hpp"
#include "dtypes.hpp"
#include "encodings/gguf/file.hpp"
#include "encodings/gguf/pairs.hpp"
#include "encodings/gguf/types.hpp"
#include "io/files.hpp"
#include "leaves/source_range.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/model_folder.hpp"
#include "snapshot/tensor_index.hpp"
#include "snapshot/unreadable.hpp"
#include "stele/bundle.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0 {
namespace {

namespace gguf = detail::gguf;

// A leaf's provider has its source and its offset in the source.
class GgufReader {
 public:
  GgufReader(SourcePtr source, const Limits& limits) : source_(std::move(source)), memory_(limits, source_->size()) {}

  Result<Snapshot> run() {
    STELE_TRY_ASSIGN(gguf::File first, gguf::read_file(source_, memory_));
    if (first.split.count > 1) {
      STELE_TRY(open_set(std::move(first)));
    } else {
      files_.push_back(std::move(first));
    }
    return build();
  }

 private:
  /// Opens the other files of a split set. `opened` may be any of its files.
  Status open_set(gguf::File opened) {
    const gguf::Split split = opened.split;
    char ending[40];
    std::snprintf(ending, sizeof ending, "-%05u-of-%05u.gguf", static_cast<unsigned>(split.number + 1),
                  static_cast<unsigned>(split.count));
    const std::string_view name = file_name(source_->name());
    const auto bundle = source_->bundle();
    if (bundle == nullptr || !name.ends_with(ending)) {
      return Error(bundle == nullptr ? Errc::unsupported : Errc::malformed,
                   bundle == nullptr ? "the source of a split file cannot open the other files"
                                     : "the name of a split file does not contain its number in the set")
          .file(source_->name())
          .expected("a name that ends in " + std::string(ending))
          .hint("open the file by its path, under its original name");
    }
    const std::string_view prefix = name.substr(0, name.size() - std::strlen(ending));
    std::uint64_t tensors = 0;
    for (std::uint64_t i = 0; i < split.count; ++i) {
      std::snprintf(ending, sizeof ending, "-%05u-of-%05u.gguf", static_cast<unsigned>(i + 1),
                    static_cast<unsigned>(split.count));
      gguf::File file;
      if (i == split.number) {
        std::swap(file, opened);
      } else {
        STELE_TRY_ASSIGN(const SourcePtr part,
                         detail::open_of_set(bundle, std::string(prefix) + ending, static_cast<std::size_t>(i)));
        memory_.admit(part->size(), detail::index_rate::file);
        STELE_TRY_ASSIGN(file, gguf::read_file(part, memory_));
      }
      if (file.split.count != split.count || file.split.number != i || file.split.tensors != split.tensors) {
        return Error(Errc::malformed, "a file of the split set belongs to another set")
            .file(file.source->name())
            .expected("split.no " + std::to_string(i) + ", split.count " + std::to_string(split.count) +
                      ", split.tensors.count " + std::to_string(split.tensors))
            .found(std::to_string(file.split.number) + ", " + std::to_string(file.split.count) + ", " +
                   std::to_string(file.split.tensors));
      }
      tensors += file.tensors.size();
      files_.push_back(std::move(file));
      if (i != 0) STELE_TRY(add_pairs(files_.back()));
    }
    if (tensors == split.tensors) return {};
    return Error(Errc::malformed, "the number of tensors in the split set differs from the declared number")
        .file(source_->name())
        .expected(std::to_string(split.tensors))
        .found(std::to_string(tensors));
  }

  /// Adds the pairs of a later file, which only some programs write. If an earlier file has a key, its value must be
  /// equal.
  Status add_pairs(gguf::File& file) {
    auto& all = *files_[0].pairs.values.as_map();
    auto& more = *file.pairs.values.as_map();
    if (more.empty()) return {};
    bool fits = true;
    const auto place = [&](const std::string& key, std::size_t i) {
      fits = fits && memory_.take(sizeof(*known_.begin()) + 64 + key.size());
      return known_.emplace(key, i);
    };
    for (std::size_t i = 0; fits && known_.size() < all.size(); ++i) place(all[i].first, i);
    for (auto& [key, value] : more) {
      const auto [known, is_new] = place(key, all.size());
      if (!fits) return detail::index_error("the key-value pairs need more memory than the file's size allows");
      if (is_new) {
        all.emplace_back(std::move(key), std::move(value));
      } else if (!(all[known->second].second == value)) {
        return Error(Errc::malformed, "two files of the split set have different values for one key")
            .path(key)
            .file(file.source->name());
      }
    }
    files_[0].pairs.types.merge(file.pairs.types);
    file.pairs = {};
    return {};
  }

  /// Takes the shapes of ComfyUI-GGUF's keys: its converter joins rows that are not whole blocks.
  Status take_original_shapes() {
    for (const auto& [key, value] : *files_[0].pairs.values.as_map()) {
      if (!key.starts_with(gguf::original_shape_prefix)) continue;
      const Value::List* const list = value.as_list();
      std::vector<Extent> shape;
      for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
        const std::int64_t* const extent = (*list)[i].as_i64();
        if (extent == nullptr || *extent < 0) break;
        shape.push_back(static_cast<Extent>(*extent));
      }
      if (list == nullptr || shape.size() != list->size()) {
        return Error(Errc::malformed, "the original shape of a tensor is not a list of extents").path(key);
      }
      if (!memory_.take(128 + 2 * shape.size() * sizeof(Extent))) {
        return detail::index_error("the original shapes need more memory than the file's size allows");
      }
      original_.emplace(std::string_view(key).substr(gguf::original_shape_prefix.size()), std::move(shape));
    }
    return {};
  }

  Result<std::span<const Extent>> shape_of(const gguf::TensorEntry& e) const {
    const std::span<const Extent> stored(e.extents, e.rank);
    const auto original = original_.find(e.name);
    if (original == original_.end()) return stored;
    const auto count = element_count(original->second);
    if (count && count == element_count(stored)) return std::span<const Extent>(original->second);
    return Error(Errc::malformed, "the original shape of a tensor has another number of elements")
        .path(std::string(gguf::original_shape_prefix) + std::string(e.name))
        .expected(to_string(stored))
        .found(to_string(std::span<const Extent>(original->second)));
  }

  Result<Snapshot> build() {
    STELE_TRY(take_original_shapes());
    std::size_t count = 0;
    for (const gguf::File& file : files_) count += file.tensors.size();
    builder_.set_flat();
    builder_.reserve(count + 1, count, 2 * count);
    for (gguf::File& file : files_) {
      for (const gguf::TensorEntry& e : file.tensors) {
        const Provider provider{&detail::source_ops, file.source.get(), e.offset};
        if (e.dtype != DType::none) {
          STELE_TRY_ASSIGN(const auto shape, shape_of(e));
          builder_.tensor(e.name, e.dtype, shape, e.bytes, provider);
        } else {
          detail::add_unreadable(builder_, e.name, gguf::unknown_type(e.type), e.bytes, provider);
        }
      }
      builder_.keep(file.source);
      builder_.keep(std::make_shared<const detail::NamePool>(std::move(file.names)));
    }
    detail::Properties pairs = std::move(files_[0].pairs);
    auto& map = *pairs.values.as_map();
    const auto extras = std::find_if(map.begin(), map.end(), [](const auto& p) {
      const std::string* const text = p.first == detail::flat_key ? p.second.as_string() : nullptr;
      return text != nullptr && detail::is_flat_text(*text);
    });
    STELE_TRY(detail::sort_names(builder_));
    if (extras != map.end()) {
      STELE_TRY(detail::add_extras(builder_, *extras->second.as_string(), memory_));
      map.erase(extras);
    }
    std::erase_if(map, [](const auto& pair) {  // written because GGUF requires one
      return pair.first == gguf::architecture_key && pair.second == Value(gguf::own_architecture);
    });
    std::map<std::string, std::string> metadata;
    for (const auto& [key, value] : map) {
      const std::string* const text = value.as_string();
      if (text == nullptr) continue;
      if (!memory_.take(sizeof(std::pair<std::string, std::string>) + 64 + key.size() + text->size())) {
        return detail::index_error("the strings of the key-value pairs need more memory than the file's size allows");
      }
      metadata.emplace(key, *text);
    }
    builder_.set_metadata(std::move(metadata));
    auto properties = std::make_shared<detail::Properties>(std::move(pairs));
    builder_.data().properties = properties;
    Snapshot snapshot = builder_.finish();
    properties->types[std::string(gguf::dtypes_key)] = gguf::dtypes_of(snapshot);
    return snapshot;
  }

  SourcePtr source_;
  SnapshotBuilder builder_;
  detail::IndexBudget memory_;
  std::deque<gguf::File> files_;                              // a deque, because the snapshot refers to their entries
  std::map<std::string_view, std::vector<Extent>> original_;  // by the names of tensors; refers to the pairs
  std::map<std::string, std::size_t> known_;  // indexes in the first file's pairs; filled if another file has pairs
};

}  // namespace

bool GgufFormat::recognises(std::span<const std::byte> head, std::uint64_t /*size*/) const noexcept {
  return head.size() >= 4 && std::memcmp(head.data(), "GGUF", 4) == 0;
}

bool GgufFormat::recognises_folder(const Bundle& folder) const {
  const auto names = folder.names();
  const std::string weights = names ? detail::model_folder(*names).weights : std::string();
  if (!detail::has_extension(weights, extension())) return false;
  const auto source = folder.open(weights);
  std::byte head[4]{};
  return source && (*source)->size() >= sizeof head && (*source)->read_at(0, head) &&
         recognises(head, (*source)->size());
}

Result<Snapshot> GgufFormat::open(SourcePtr source, const OpenContext& context) const {
  if (source->is_folder()) {
    const auto folder = source->bundle();
    STELE_TRY_ASSIGN(const auto names, folder->names());
    const std::string weights = detail::model_folder(names).weights;
    if (!detail::has_extension(weights, extension())) {
      return Error(Errc::not_found, "the folder does not have exactly one model in GGUF")
          .file(source->name())
          .hint("name a file of the folder");
    }
    STELE_TRY_ASSIGN(source, detail::open_of_set(folder, weights, 0));
  }
  return detail::in_host_order(GgufReader(std::move(source), context.options().limits).run());
}

}  // namespace stele::inline v0
