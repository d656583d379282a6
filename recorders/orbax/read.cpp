// Reads folders of Orbax into a Snapshot.
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/in_file.hpp"
#include "base/limits.hpp"
#include "base/skipped.hpp"
#include "encodings/zarr/array.hpp"
#include "encodings/zarr/metadata.hpp"
#include "encodings/zarr/store.hpp"
#include "folders.hpp"
#include "io/text.hpp"
#include "json/json.hpp"
#include "leaves/provider.hpp"
#include "ocdbt.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/fill.hpp"
#include "snapshot/path_parts.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/tensor_index.hpp"
#include "snapshot/tree.hpp"
#include "snapshot/unreadable.hpp"
#include "stele/bundle.hpp"
#include "stele/precision/convert.hpp"
#include "stele/recorders/read_only.hpp"
#include "tree.hpp"

namespace stele::inline v0 {
namespace detail::orbax {
namespace {

using zarr::Array;
using zarr::Arrays;
using zarr::Store;

/// The beginning of the reason why an entry of the tree without data is unreadable.
constexpr std::string_view lacks_data = "the checkpoint lacks the data of this ";

class Reader {
 public:
  Reader(const SourcePtr& source, const OpenContext& context)
      : source_(source), folder_(source->bundle()), memory_(context.options().limits, 0) {}

  Result<Snapshot> run() {
    if (is_unfinished(file_name(source_->name()))) {
      return Error(Errc::malformed, "the folder is a checkpoint that Orbax has not finished").file(source_->name());
    }
    STELE_TRY_ASSIGN(names_, folder_->names());
    for (const std::string& name : names_) memory_.admit(2 * name.size() + 64);
    STELE_TRY_ASSIGN(
        const Step step,
        in_file(find_step(names_, [&](const std::string& prefix) { return committed(prefix); }), source_->name()));
    if (step.steps.size() > 1) {
      builder_.data().notes.push_back("the folder has " + std::to_string(step.steps.size()) + " steps; opened " +
                                      step.prefix.substr(0, step.prefix.size() - 1));
    }
    if (step.trees.empty()) {
      return Error(Errc::not_found, "the checkpoint of Orbax has no item with arrays").file(source_->name());
    }
    STELE_TRY(checkpoint_metadata(step.prefix));
    for (const Item& item : step.documents) STELE_TRY(document(item));
    // Without a tree, the names are whole paths.
    const bool described = has(step.trees.front().prefix, tree_file);
    if (step.trees.size() == 1 && !described) {
      builder_.set_flat();
    } else {
      builder_.begin(NodeKind::module, "");
    }
    for (const Item& item : step.trees) {
      const bool member = step.trees.size() > 1;
      if (member) builder_.begin(NodeKind::module, builder_.intern(item.name));
      STELE_TRY(in_file(read_item(item.prefix), source_->name()));
      if (member) builder_.end();
    }
    for (const std::string& item : step.skipped) skipped_.add(item);
    skipped_.leave_out(builder_.data().left_out, "items and files of other kinds");
    if (builder_.data().flat) {
      STELE_TRY(finish_names(builder_, std::move(metadata_), memory_));
    } else {
      builder_.end();
      if (const std::uint32_t twice = clashing_sibling(builder_.data(), true); twice != no_index) {
        return Error(Errc::duplicate, "two entries have the same name")
            .path(node_path(builder_.data(), twice))
            .file(source_->name());
      }
      builder_.set_metadata(std::move(metadata_));
      builder_.set_unknown_kinds({.all = true});
    }
    builder_.set_capacity(std::max<std::uint64_t>(capacity_, 1));
    return in_host_order(builder_.finish());
  }

 private:
  bool has(const std::string& prefix, std::string_view name) const {
    return std::binary_search(names_.begin(), names_.end(), prefix + std::string(name));
  }

  Result<Value> json_of(const std::string& name) {
    STELE_TRY_ASSIGN(const SourcePtr file, folder_->open(name));
    constexpr std::uint64_t max_bytes = 100'000'000;
    STELE_TRY_ASSIGN(const std::string text, read_text(*file, max_bytes, "the metadata are too large"));
    memory_.admit(text.size(), index_rate::index);
    json::Reader in(text, {.non_finite = true});
    Value value;
    auto read = json::read_value(in, value, static_cast<std::size_t>(memory_.left()), true);
    if (read && !in.finish()) read = in.status();
    if (!read) return std::move(read).error().file(file->name());
    return value;
  }

  /// Returns false for a step that was not finished.
  bool committed(const std::string& prefix) {
    if (has(prefix, commit_file) || !has(prefix, step_file)) return true;
    const auto document = json_of(prefix + std::string(step_file));
    const Value* const time = document ? document->find("commit_timestamp_nsecs") : nullptr;
    return time != nullptr && !time->is_null();
  }

  Status add_metadata(std::string key, const Value* value) {
    if (value == nullptr || value->is_null()) return {};
    if (value->as_map() != nullptr && value->as_map()->empty()) return {};
    std::string text;
    json::Writer out(text);
    STELE_TRY(json::write_value(out, *value));
    metadata_.emplace(std::move(key), std::move(text));
    return {};
  }

  Status checkpoint_metadata(const std::string& prefix) {
    if (!has(prefix, step_file)) return {};
    STELE_TRY_ASSIGN(const Value document, json_of(prefix + std::string(step_file)));
    STELE_TRY(add_metadata("metrics", document.find("metrics")));
    return add_metadata("custom_metadata", document.find("custom_metadata"));
  }

  Status document(const Item& item) {
    STELE_TRY_ASSIGN(const Value value, json_of(item.prefix));
    return add_metadata(item.name, &value);
  }

  Status read_item(const std::string& prefix) {
    const bool database = has(prefix, ocdbt::manifest_name);
    STELE_TRY_ASSIGN(store_, database ? ocdbt::open(folder_, prefix, source_->name(), memory_)
                                      : zarr::open_folder_store(folder_, prefix, source_->name(), memory_));
    if (!database && has(prefix, "ocdbt.process_0/manifest.ocdbt")) {
      return Error(Errc::unsupported, "the processes' parts of the checkpoint were never merged");
    }
    STELE_TRY_ASSIGN(zarr::Hierarchy found, zarr::read_hierarchy(*store_, memory_));
    arrays_ = std::make_shared<Arrays>(store_);
    builder_.keep(arrays_);
    by_name_.clear();
    for (Array& array : found.arrays) {
      std::string name = array.path;
      by_name_.emplace(std::move(name), std::move(array));
    }
    if (has(prefix, msgpack_file)) skipped_.add(msgpack_file);
    if (has(prefix, tree_file)) {
      STELE_TRY_ASSIGN(const Value document, json_of(prefix + std::string(tree_file)));
      STELE_TRY_ASSIGN(nodes_, read_tree(document, memory_));
      if (const Value* const all = document.find(stores_all_chunks); all != nullptr && all->as_bool() != nullptr) {
        for (auto& [name, array] : by_name_) array.complete = *all->as_bool();
      }
      strings_ = Value();
      if (has(prefix, strings_file)) {
        STELE_TRY_ASSIGN(strings_, json_of(prefix + std::string(strings_file)));
      }
      STELE_TRY(add_metadata("custom_metadata", document.find("custom_metadata")));
      STELE_TRY(children(nodes_.front()));
    }
    // Arrays that the tree does not contain.
    for (auto& [name, array] : by_name_) {
      if (builder_.data().flat) {
        STELE_TRY(add(builder_.intern(path_of_parts(name, "./")), array));
      } else {
        STELE_TRY(add(builder_.intern(name), array));
      }
    }
    capacity_ = add_scaled(capacity_, 1, arrays_->capacity());
    std::vector<std::string>& notes = builder_.data().notes;
    notes.insert(notes.end(), arrays_->notes().begin(), arrays_->notes().end());
    return {};
  }

  Status take(std::uint64_t bytes) {
    if (memory_.take(bytes)) return {};
    return index_error("the checkpoint has more entries than its size allows");
  }

  /// Adds an array, and returns its provider, which is empty if it cannot be read.
  Status add(NodeName name, Array& array) {
    STELE_TRY(take(2 * (sizeof(Node) + sizeof(LeafData)) + 16 * array.shape.size() + 64));
    STELE_TRY_ASSIGN(const Provider provider, arrays_->add(array, memory_));
    if (!array.unreadable.empty()) {
      STELE_TRY(take(unreadable_memory));
      add_unreadable(builder_, name, array.unreadable);
      return {};
    }
    builder_.tensor(name, array.type->dtype, array.shape, array.bytes, provider);
    return {};
  }

  /// Reads a number of Python. Returns null for other elements.
  Result<Value> number(Array& array) {
    STELE_TRY_ASSIGN(const Provider provider, arrays_->add(array, memory_));
    if (!array.unreadable.empty() || !array.shape.empty()) return Value();
    const DType dtype = array.type->dtype;
    std::byte raw[16]{};
    const std::size_t size = element_size(dtype);
    ReadContext context;
    STELE_TRY(read_bytes(provider, size, 0, std::span(raw).first(size), context));
    if (std::endian::native == std::endian::big) std::reverse(raw, raw + size);
    const auto as = [&]<class T>(DType to, T out) -> Value {
      std::byte made[sizeof(T)];
      if (convert(dtype, raw, to, made, 1).status != ConvertStatus::ok) return {};
      std::memcpy(&out, made, sizeof out);
      return Value(out);
    };
    switch (dtype_class(dtype)) {
      case DTypeClass::boolean:
        return Value(raw[0] != std::byte{0});
      case DTypeClass::signed_int:
        return as(DType::i64, std::int64_t{});
      case DTypeClass::unsigned_int:
        return as(DType::u64, std::uint64_t{});
      case DTypeClass::floating:
        return as(DType::f64, 0.0);
      default:
        return Value();
    }
  }

  NodeName name_of(const TreeNode& node) {
    std::size_t index = 0;
    if (node.number && parse_index(node.name, index) && index < no_index) return NodeName::element(index);
    return builder_.intern(node.name);
  }

  /// Returns true if the children are the elements 0, 1, … of a list.
  bool is_list(const TreeNode& node) const {
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      const TreeNode& child = nodes_[node.children[i]];
      if (!child.number || child.name != std::to_string(i)) return false;
    }
    return !node.children.empty();
  }

  Status children(TreeNode& node) {
    // Orbax sorts the paths as strings: "10" is before "2".
    const auto index = [&](std::size_t child) {
      std::size_t number = 0;
      return nodes_[child].number && parse_index(nodes_[child].name, number) ? number : SIZE_MAX;
    };
    std::stable_sort(node.children.begin(), node.children.end(),
                     [&](std::size_t a, std::size_t b) { return index(a) < index(b); });
    for (const std::size_t child : node.children) STELE_TRY(entry(nodes_[child]));
    return {};
  }

  /// Recursion: at most max_tree_depth.
  Status entry(TreeNode& node) {
    STELE_TRY(take(2 * sizeof(Node) + sizeof(Value) + 3 * node.name.size() + 64));
    const NodeName name = name_of(node);
    if (!node.is_leaf) {
      const std::uint32_t made = builder_.begin(NodeKind::module, name);
      STELE_TRY(children(node));
      builder_.end();
      if (is_list(node)) builder_.set_kind(made, NodeKind::list);
      return {};
    }
    switch (node.kind) {
      case LeafKind::none:
        builder_.none(name);
        return {};
      case LeafKind::empty_dict:
      case LeafKind::empty_list:
        builder_.begin(node.kind == LeafKind::empty_list ? NodeKind::list : NodeKind::module, name);
        builder_.end();
        return {};
      case LeafKind::text:
        if (const Value* const text = strings_.find(node.key); text != nullptr && text->as_string() != nullptr) {
          builder_.value(name, *text);
          return {};
        }
        break;
      default:
        break;
    }
    const auto found = by_name_.find(node.key);
    if (found == by_name_.end()) {
      STELE_TRY(take(unreadable_memory));
      add_unreadable(builder_, name, std::string(lacks_data) + (node.type.empty() ? "leaf" : node.type));
      return {};
    }
    Array array = std::move(found->second);
    by_name_.erase(found);
    if (node.kind == LeafKind::scalar) {
      // A number whose bytes are damaged remains a tensor, so that the other entries can be loaded.
      auto value = number(array);
      if (!value && (value.error().code() == Errc::io || value.error().code() == Errc::out_of_memory)) {
        return std::move(value).error();
      }
      if (value && !value->is_null()) {
        builder_.value(name, *std::move(value));
        return {};
      }
    }
    return add(name, array);
  }

  const SourcePtr& source_;
  std::shared_ptr<const Bundle> folder_;
  IndexBudget memory_;
  std::vector<std::string> names_;
  SnapshotBuilder builder_;
  std::map<std::string, std::string> metadata_;
  Skipped skipped_;
  std::uint64_t capacity_ = 0;
  // The members below belong to the current item.
  std::shared_ptr<const Store> store_;
  std::shared_ptr<Arrays> arrays_;
  std::map<std::string, Array> by_name_;
  std::vector<TreeNode> nodes_;
  Value strings_;
};

}  // namespace
}  // namespace detail::orbax

bool OrbaxFormat::recognises(std::span<const std::byte> head, std::uint64_t /*size*/) const noexcept {
  const std::span<const unsigned char> magic(detail::ocdbt::manifest_magic);
  if (head.size() >= magic.size() && std::memcmp(head.data(), magic.data(), magic.size()) == 0) return true;
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (!text.starts_with('{')) return false;
  return text.find("\"tree_metadata\"") < 4 ||
         (text.find("\"item_handlers\"") < 4 && text.find("\"init_timestamp_nsecs\"") != text.npos);
}

bool OrbaxFormat::recognises_folder(const Bundle& folder) const {
  namespace orbax = detail::orbax;
  const auto contains = [&](std::string_view name) {
    const auto found = folder.contains(name);
    return found && *found;
  };
  if (contains(orbax::step_file) || contains(orbax::tree_file) || contains(detail::ocdbt::manifest_name)) return true;
  const auto names = folder.names();
  return names && orbax::find_step(*names, [](const std::string&) { return true; });
}

Result<Snapshot> OrbaxFormat::open(SourcePtr source, const OpenContext& context) const {
  if (source->bundle() == nullptr) {
    return Error(Errc::unsupported, "the metadata of an Orbax checkpoint lack their folder")
        .file(source->name())
        .hint("open the folder");
  }
  return detail::orbax::Reader(source, context).run();
}

Result<Report> OrbaxFormat::verify(SourcePtr source, const OpenContext& context) const {
  STELE_TRY_ASSIGN(const Snapshot snapshot, open(source, context));
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    const std::string_view reason = detail::unreadable(leaf);
    if (!reason.starts_with(detail::orbax::lacks_data)) continue;
    return Error(Errc::missing, std::string(reason)).path(leaf.path()).file(source->name());
  }
  STELE_TRY_ASSIGN(Report report, detail::verify_leaves(snapshot, context.options()));
  detail::add_unchecked_contents(report);
  return report;
}

}  // namespace stele::inline v0
