// Writes a Snapshot as a GGUF file.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/parallel.hpp"
#include "dtypes.hpp"
#include "encodings/gguf/pairs.hpp"
#include "encodings/gguf/types.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/paths.hpp"
#include "stele/recorders/gguf.hpp"

namespace stele::inline v0 {
namespace {

namespace gguf = detail::gguf;

bool is_alignment(const Value& value) {
  const std::int64_t* const n = value.as_i64();
  return n != nullptr && *n > 0 && gguf::valid_alignment(static_cast<std::uint64_t>(*n));
}

/// Returns false for properties that GGUF cannot store, and for properties that would change how the file is read.
bool is_written(std::string_view key, const Value& value) {
  if (key.starts_with(gguf::split_prefix)) return false;
  if (key == gguf::alignment_key) return is_alignment(value);
  return gguf::bad_key(key) == nullptr && gguf::usual_type(value).has_value();
}

/// Returns the reason why a metadata key cannot be stored, or nullptr.
const char* bad_metadata_key(std::string_view key) {
  const bool reserved = key == gguf::alignment_key || key.starts_with(gguf::split_prefix);
  return reserved ? "a reserved key" : gguf::bad_key(key);
}

/// Returns true if a property describes this shape of the leaf, so that a load restores it from any other shape.
bool has_original_shape(const Snapshot& snapshot, std::string_view path, const LeafView& leaf) {
  const Value* const value = snapshot.properties().find(std::string(gguf::original_shape_prefix) + std::string(path));
  const Value::List* const list = value != nullptr ? value->as_list() : nullptr;
  return list != nullptr && std::equal(list->begin(), list->end(), leaf.shape().begin(), leaf.shape().end(),
                                       [](const Value& a, Extent b) { return a == Value(b); });
}

/// Returns the shape in the file. ComfyUI-GGUF joins rows that are not whole blocks, and stores the original shape.
std::vector<Extent> stored_shape(const LeafView& leaf) {
  constexpr Extent row = 256;  // the elements of the largest blocks
  std::vector<Extent> shape(leaf.shape().begin(), leaf.shape().end());
  const Extent unit = std::max<Extent>(block_size(leaf.dtype()).elements, 1);
  const bool whole = shape.empty() ? unit == 1 : shape.back() % unit == 0;
  if (whole) return shape;
  const Extent count = *element_count(leaf.shape());
  const Extent columns = count % row == 0 ? row : unit;
  return {count / columns, columns};
}

/// Returns the most frequent dtype among the matrices, or DType::none if there are no matrices.
DType most_used(const Snapshot& snapshot) {
  std::map<DType, std::uint64_t> counts;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    if (snapshot.leaf(i).shape().size() >= 2) ++counts[snapshot.leaf(i).dtype()];
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most != counts.end() ? most->first : DType::none;
}

bool any_blocks(const Snapshot& snapshot) {
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    if (is_block(snapshot.leaf(i).dtype())) return true;
  }
  return false;
}

/// Collects the key-value pairs of a file.
class Pairs {
 public:
  explicit Pairs(const Snapshot& snapshot) : snapshot_(snapshot) {
    const auto& properties = snapshot.data()->properties;
    if (properties == nullptr) return;
    types_ = &properties->types;
    const auto described = types_->find(std::string(gguf::dtypes_key));
    unchanged_ = described != types_->end() && described->second == gguf::dtypes_of(snapshot);
    if (const Value::Map* const map = properties->values.as_map()) map_ = map;
  }

  Status run(std::string extras) {
    const auto& metadata = snapshot_.metadata();
    static const Value::Map none;
    const Value::Map& map = map_ != nullptr ? *map_ : none;
    const bool named = std::any_of(map.begin(), map.end(), [](const auto& pair) {
      return pair.first == gguf::architecture_key && is_written(pair.first, pair.second);
    });
    std::map<std::string, std::string> others;
    if (const auto text = metadata.find(std::string(detail::flat_key)); text != metadata.end()) others.insert(*text);
    for (const auto& [key, value] : map) {
      if (key == detail::flat_key) others.emplace(key, value.as_string() != nullptr ? *value.as_string() : "");
    }
    STELE_TRY(detail::add_flat_key(others, extras));
    if (!named && !metadata.contains(std::string(gguf::architecture_key))) {
      add(gguf::architecture_key, Value(gguf::own_architecture));
    }
    std::set<std::string_view> used;
    for (const auto& [key, value] : map) {
      if (!is_written(key, value)) continue;
      if (!used.insert(key).second) {
        return Error(Errc::duplicate, "two properties have the same key").path(key);
      }
      const auto text = metadata.find(key);
      if (text != metadata.end()) {
        add(key, Value(text->second));
      } else {
        add_property(key, value);
      }
    }
    for (const auto& [key, text] : metadata) {
      if (const char* const why = bad_metadata_key(key)) {
        return Error(Errc::not_representable, "GGUF files cannot store this metadata key")
            .path(key)
            .expected("1 to 65535 bytes of UTF-8 without a zero byte; not general.alignment or split.*")
            .found(why);
      }
      if (used.insert(key).second) add(key, Value(text));
    }
    if (!unchanged_ && any_blocks(snapshot_)) {
      if (!used.contains(gguf::quantization_version_key)) {
        add(gguf::quantization_version_key, Value(std::int64_t{gguf::quantization_version}));
      }
      const std::uint32_t type = gguf::file_type_of(most_used(snapshot_));
      if (!used.contains(gguf::file_type_key) && type != gguf::no_type) {
        add(gguf::file_type_key, Value(std::int64_t{type}));
      }
    }
    if (!extras.empty()) add(detail::flat_key, Value(std::move(extras)));
    return {};
  }

  std::uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }
  std::uint64_t alignment() const { return alignment_; }

 private:
  void add(std::string_view key, const Value& value) {
    std::string_view type;
    if (types_ != nullptr) {
      if (const auto had = types_->find(std::string(key)); had != types_->end()) type = had->second;
    }
    gguf::write_pair(bytes_, key, value, type);
    ++count_;
  }

  /// Adds a property. Replaces the file type's value if it does not match the tensors.
  void add_property(std::string_view key, const Value& value) {
    const std::int64_t number = value.as_i64() != nullptr ? *value.as_i64() : -1;
    if (key == gguf::alignment_key) {
      alignment_ = static_cast<std::uint64_t>(number);
    } else if (key == gguf::file_type_key && number >= 0 && !unchanged_) {
      const DType most = most_used(snapshot_);
      const DType declared = gguf::dtype_of_file_type(static_cast<std::uint64_t>(number));
      const std::uint32_t type = gguf::file_type_of(most);
      if (declared != DType::none && declared != most && type != gguf::no_type) {
        return add(key, Value(std::int64_t{type}));
      }
    }
    add(key, value);
  }

  const Snapshot& snapshot_;
  const Value::Map* map_ = nullptr;
  const std::map<std::string, std::string>* types_ = nullptr;
  bool unchanged_ = false;  // true if the properties describe these tensors and are written unchanged
  std::string bytes_;
  std::uint64_t count_ = 0;
  std::uint64_t alignment_ = gguf::default_alignment;
};

}  // namespace

Result<std::vector<Loss>> GgufFormat::losses(const Snapshot& snapshot, std::string_view /*file*/) const {
  std::vector<Loss> losses;
  if (const Value::Map* const map = snapshot.properties().as_map()) {
    for (const auto& [key, value] : *map) {
      if (!is_written(key, value)) losses.push_back({0, "the property " + key + ", which GGUF cannot store"});
    }
  }
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    const std::uint64_t row = block_size(leaf.dtype()).elements;
    if (row == 0) continue;
    if ((leaf.shape().empty() || leaf.shape().back() % row != 0) && !has_original_shape(snapshot, leaf.path(), leaf)) {
      losses.push_back(
          {leaf.node(), "rows that do not consist of whole blocks of " + std::to_string(row) + " elements"});
    }
  }
  return losses;
}

Status GgufFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  const detail::LeafPaths paths(*snapshot.data());
  STELE_TRY_ASSIGN(std::string extras, detail::flat_extras(snapshot));
  Pairs pairs(snapshot);
  STELE_TRY(pairs.run(std::move(extras)));
  const auto aligned = [&](std::uint64_t n) {
    return (n + pairs.alignment() - 1) / pairs.alignment() * pairs.alignment();
  };

  std::string head = "GGUF";
  gguf::write_number(head, std::uint32_t{3});
  gguf::write_number(head, std::uint64_t{snapshot.leaf_count()});
  gguf::write_number(head, pairs.count());
  head += pairs.bytes();
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    const std::string_view name = paths[i];
    if (const char* const why = gguf::bad_name(name); why != nullptr || name.size() > max_name_bytes_) {
      return Error(Errc::not_representable, "GGUF files cannot store this name")
          .path(std::string(name))
          .expected("at most " + std::to_string(max_name_bytes_) + " bytes of UTF-8 without a zero byte")
          .found(why != nullptr ? why : std::to_string(name.size()) + " bytes")
          .hint("rename the tensor, or raise max_name_bytes of GgufFormat");
    }
    gguf::write_string(head, name);
    const std::vector<Extent> shape = stored_shape(leaf);
    gguf::write_number(head, static_cast<std::uint32_t>(shape.size()));
    for (std::size_t k = shape.size(); k-- > 0;) gguf::write_number(head, shape[k]);
    gguf::write_number(head, gguf::type_of(leaf.dtype()));
    gguf::write_number(head, at);
    at += aligned(leaf.byte_size());
  }
  const std::uint64_t data = snapshot.leaf_count() != 0 ? aligned(head.size()) : head.size();

  STELE_TRY(sink.reserve(data + at));
  detail::LeafGather gather(sink);
  STELE_TRY(gather.write(std::as_bytes(std::span(head))));
  STELE_TRY(gather.zeros(static_cast<std::size_t>(data - head.size())));
  ReadContext context(detail::workers_of(options));
  const Snapshot ordered = detail::in_file_order(snapshot);
  for (std::size_t i = 0; i < ordered.leaf_count(); ++i) {
    const LeafView leaf = ordered.leaf(i);
    STELE_TRY(gather.leaf(leaf, context));
    STELE_TRY(gather.zeros(static_cast<std::size_t>(aligned(leaf.byte_size()) - leaf.byte_size())));
  }
  return gather.flush();
}

}  // namespace stele::inline v0
