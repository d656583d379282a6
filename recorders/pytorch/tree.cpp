// Builds a flat Snapshot from a file's objects.
#include "tree.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "contents.hpp"
#include "json/json.hpp"
#include "node_names.hpp"
#include "objects.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/path_parts.hpp"
#include "snapshot/tensor_index.hpp"
#include "tensors.hpp"

namespace stele::inline v0::detail::pytorch {
namespace {

using pickle::Kind;
using pickle::no_ref;
using pickle::Ref;

/// Attributes of torch.nn.Module that contain the entries of its state_dict.
constexpr std::string_view module_dicts[] = {"_parameters", "_buffers", "_modules"};

/// Maximum levels of nested lists that become one value.
constexpr unsigned max_plain_levels = 16;

class TreeBuilder {
 public:
  TreeBuilder(File& file, IndexBudget& memory, NodeNames& names)
      : file_(file),
        objects_(file.objects),
        memory_(memory),
        tensors_(file, memory),
        contents_(objects_, tensors_),
        names_(names) {}

  Result<Snapshot> run(Ref root) {
    to_.set_flat();
    // A script object's attributes without tensors are left out, but an optimizer's are its settings.
    const Ref state = root != no_ref ? objects_.state(root) : no_ref;
    const bool optimizer = objects_.is(state, Kind::dict) && objects_.find(state, "param_groups") != no_ref;
    script_ = is_script(root) && !optimizer;
    STELE_TRY(add_attributes(root));
    STELE_TRY(add_root(root));
    return finish();
  }

 private:
  // ---- names

  Error in_path(Error error) const { return error.path().empty() ? std::move(error).path(path_) : std::move(error); }

  /// Adds a node with the present path as its name: calls `add` with the name. If the name is taken, makes the node an
  /// unreadable entry, with the bytes of `tensor` unless that is null.
  template <class Add>
  Status add_node(const View* tensor, Add add) {
    constexpr std::uint64_t each = sizeof(Node) + sizeof(LeafData) + 16 * sizeof(std::uint32_t);
    if (!memory_.take(each + 2 * path_.size())) return index_error("the file's objects need too much memory");
    const std::string_view name = to_.intern(bare_ && path_.empty() ? bare_name : std::string_view(path_));
    const bool shown = tensor != nullptr && names_.is_later(to_);
    return names_.add(to_, name, memory_, shown ? leaf_bytes(*tensor) : 0, shown ? provider_of(*tensor) : Provider(),
                      std::move(add));
  }
  Provider provider_of(const View& view) {
    return is_plain(view) ? plain_provider(view) : gathered_provider(file_.storages->add(view));
  }
  Status below(std::string_view segment, Ref object, int depth) {
    if (!memory_.take(2 * segment.size())) return index_error("the file's objects need too much memory");
    const PathPart below(path_, segment);
    return add(object, depth + 1);
  }
  /// Returns the segment of a key, which may be a string that many dicts share.
  Result<std::string> segment_of(Ref key, bool& exact) {
    std::string segment = key_text(objects_, key, exact);
    if (!memory_.take(sizeof(std::string) + segment.size())) {
      return index_error("the file's objects need too much memory");
    }
    return segment;
  }
  Status note_container(const std::string& kind) {
    if (!memory_.take(160 + 2 * path_.size())) return index_error("the file's objects need too much memory");
    containers_.emplace_back(path_, kind);
    return {};
  }

  // ---- objects

  bool is_script(Ref r) const {
    if (!objects_.is(r, Kind::object)) return false;
    const Ref callable = objects_.callable(r);
    return objects_.is(callable, Kind::global) && objects_.module(callable).starts_with("__torch__");
  }

  Status add_root(Ref root) {
    const Ref r = tensors_.unwrapped(root);
    STELE_TRY_ASSIGN(const bool value, is_value(r));
    bare_ = value || tensors_.form(r) == Tensors::Form::dense || tensors_.form(r) == Tensors::Form::storage;
    if (bare_ && !objects_.is(r, Kind::tuple)) STELE_TRY(note_container(std::string(1, container::bare)));
    return add(root, 0);
  }

  /// Returns true if an object becomes one value.
  Result<bool> is_value(Ref r) {
    if (r == no_ref || tensors_.form(r) != Tensors::Form::other) return false;
    STELE_TRY_ASSIGN(const bool tensors, contents_.has_tensor(r));
    switch (objects_.kind(r)) {
      case Kind::dict:
        return false;
      case Kind::list:
      case Kind::tuple:
        return !tensors && levels_of(r, 0) <= max_plain_levels;
      case Kind::object:
        return !tensors && !is_script(r) && !is_module(r);
      case Kind::set:
        return !tensors;
      default:
        return true;
    }
  }

  Status add(Ref r, int depth) {
    if (depth > max_depth)
      return Error(Errc::limit, "objects are nested too deeply, or contain themselves").path(path_.substr(0, 1000));
    // Shared containers are visited under each of their names.
    if (!memory_.take(16)) return index_error("the file's objects need too much memory");
    r = tensors_.unwrapped(r);
    if (r == no_ref) return {};
    switch (tensors_.form(r)) {
      case Tensors::Form::dense:
      case Tensors::Form::storage:
        return add_dense(r);
      case Tensors::Form::sparse:
      case Tensors::Form::nested:
        return add_parts(r, depth);
      case Tensors::Form::other:
        break;
    }
    // Each visit looks through the attributes.
    const Ref state = objects_.state(r);
    if (objects_.is(state, Kind::dict) && !memory_.take(4 * objects_.items(state).size())) {
      return index_error("the file's objects need too much memory");
    }
    STELE_TRY_ASSIGN(const bool value, is_value(r));
    if (value) return add_value(r);
    switch (objects_.kind(r)) {
      case Kind::dict:
        return add_dict(r, objects_.items(r), depth, true);
      case Kind::list:
      case Kind::tuple:
        STELE_TRY(note_container(std::string(1, objects_.is(r, Kind::list) ? container::list : container::tuple)));
        return add_list(objects_.items(r), depth);
      case Kind::object:
        if (is_script(r)) return add_script(r, depth);
        return is_module(r) ? add_module(r, depth) : add_object(r, depth);
      default:  // a set
        STELE_TRY(add_class("set"));
        return add_list(objects_.items(r), depth);
    }
  }

  Status add_value(Ref r) {
    auto value = to_value(file_, r, memory_);
    if (!value) return in_path(std::move(value).error());
    STELE_TRY(note_tuples(r));
    has_values_ = true;
    return add_node(nullptr, [&](std::string_view name) { to_.value(name, *std::move(value)); });
  }

  /// Records the tuples among the lists of a value.
  Status note_tuples(Ref r) {
    if (objects_.is(r, Kind::tuple)) STELE_TRY(note_container(std::string(1, container::tuple_value)));
    if (!(objects_.is(r, Kind::list) || objects_.is(r, Kind::tuple)) || levels_of(r, 0) == 1) return {};
    const auto items = objects_.items(r);
    for (std::size_t i = 0; i < items.size(); ++i) {
      const PathPart below(path_, std::to_string(i));
      STELE_TRY(note_tuples(tensors_.unwrapped(items[i])));
    }
    return {};
  }

  /// Returns the number of levels of a list of numbers and strings, or of such lists; for any other list, a number
  /// above max_plain_levels. Remembers the result, because lists may be shared.
  unsigned levels_of(Ref list, unsigned depth) {
    constexpr unsigned no = max_plain_levels + 1;
    if (levels_.empty()) levels_.resize(objects_.size());
    if (levels_[list] != 0) return levels_[list];
    if (depth == max_plain_levels) return no;  // not remembered: it depends on `depth`
    unsigned levels = 1;
    for (Ref item : objects_.items(list)) {
      item = tensors_.unwrapped(item);
      if (objects_.is(item, Kind::list) || objects_.is(item, Kind::tuple)) {
        levels = std::max(levels, levels_of(item, depth + 1) + 1);
        if (levels > max_plain_levels) return no;
      } else if (item == no_ref || objects_.kind(item) > Kind::bytes) {
        levels_[list] = no;
        return no;
      }
    }
    levels_[list] = static_cast<std::uint8_t>(levels);
    return levels;
  }

  Status add_dict(Ref r, std::span<const Ref> items, int depth, bool note) {
    bool integers = false, exact = true;
    std::vector<std::string> keys;
    keys.reserve(items.size() / 2);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      integers = integers || objects_.is(items[i], Kind::integer);
      STELE_TRY_ASSIGN(std::string key, segment_of(items[i], exact));
      keys.push_back(std::move(key));
    }
    if (note) {
      STELE_TRY(note_versions(r));
      const Ref type = objects_.callable(r);
      const bool ordered = type != no_ref && objects_.is_global(type, "collections", "OrderedDict");
      if (type != no_ref && !ordered) STELE_TRY(add_class(global_name(objects_, type)));
      std::string kind(1, ordered ? container::ordered_dict : container::dict);
      if (integers) kind += container::integer_keys;
      STELE_TRY(note_container(kind));
      if (!exact) STELE_TRY(add_class("dict"));
    }
    for (std::size_t i = 0; i < keys.size(); ++i) STELE_TRY(below(keys[i], items[2 * i + 1], depth));
    return {};
  }

  /// Keeps the versions of modules that a state_dict contains.
  Status note_versions(Ref dict) {
    const Ref state = objects_.state(dict);
    const Ref versions = objects_.is(state, Kind::dict) ? objects_.find(state, "_metadata") : no_ref;
    if (versions == no_ref) return {};
    STELE_TRY_ASSIGN(Value value, to_value(file_, versions, memory_));
    if (!memory_.take(160 + 2 * path_.size())) return index_error("the file's objects need too much memory");
    versions_.emplace_back(path_, std::move(value));
    return {};
  }

  Status add_list(std::span<const Ref> items, int depth) {
    for (std::size_t i = 0; i < items.size(); ++i) STELE_TRY(below(std::to_string(i), items[i], depth));
    return {};
  }

  Status add_class(const std::string& name) {
    const PathPart below(path_, class_key);
    has_values_ = true;
    return add_node(nullptr, [&](std::string_view node) { to_.value(node, Value(name)); });
  }

  /// Adds the tensors in an object of an unknown class.
  Status add_object(Ref r, int depth) {
    STELE_TRY(note_container(std::string(1, container::dict)));
    const Ref callable = objects_.callable(r);
    STELE_TRY(add_class(class_name(callable)));
    const Ref state = objects_.state(r);
    if (objects_.is(state, Kind::dict)) {
      STELE_TRY(add_dict(state, objects_.items(state), depth, false));
    } else if (state != no_ref) {
      STELE_TRY(below("__state__", state, depth));
    }
    const Ref args = objects_.args(r);
    if (args != no_ref && !objects_.items(args).empty()) STELE_TRY(below("__args__", args, depth));
    STELE_TRY(add_dict(r, objects_.entries(r), depth, false));
    return add_list(objects_.items(r), depth);
  }

  /// Returns the name of a class. In streams, a persistent id may contain the class together with its source.
  std::string class_name(Ref callable) const {
    if (objects_.is(callable, Kind::persistent) && objects_.is(objects_.args(callable), Kind::tuple)) {
      const auto items = objects_.items(objects_.args(callable));
      if (items.size() > 1) callable = items[1];
    }
    return objects_.is(callable, Kind::global) ? global_name(objects_, callable) : "object";
  }

  /// Returns the attributes of a torch.nn.Module, or no_ref for other objects.
  Ref module_of(Ref r) const {
    Ref state = objects_.state(r);
    if (const auto place = fx_place(r)) {
      const Ref args = objects_.args(r);
      if (objects_.is(args, Kind::tuple) && *place < objects_.items(args).size()) state = objects_.items(args)[*place];
    }
    const bool module = objects_.is(state, Kind::dict) &&
                        std::all_of(std::begin(module_dicts), std::end(module_dicts), [&](std::string_view name) {
                          return objects_.is(objects_.find(state, name), Kind::dict);
                        });
    return module ? state : no_ref;
  }
  bool is_module(Ref r) const { return module_of(r) != no_ref; }

  /// Returns the place of a module's attributes among the arguments of a function of torch.fx, which creates a
  /// GraphModule from them and its source.
  std::optional<std::size_t> fx_place(Ref r) const {
    if (!objects_.is(r, Kind::object)) return std::nullopt;
    const Ref callable = objects_.callable(r);
    if (!objects_.is(callable, Kind::global) || objects_.module(callable) != "torch.fx.graph_module")
      return std::nullopt;
    const std::string_view name = objects_.name(callable);
    if (name == "reduce_graph_module") return 0;
    if (name == "reduce_package_graph_module" || name == "reduce_deploy_graph_module") return 1;  // after an importer
    return std::nullopt;
  }

  /// Adds the entries of a torch.nn.Module's state_dict.
  Status add_module(Ref r, int depth) {
    program_ = true;
    const Ref state = module_of(r);
    std::set<std::string_view> hidden;
    if (const Ref names = objects_.find(state, "_non_persistent_buffers_set"); objects_.is(names, Kind::set)) {
      if (!memory_.take(64 * objects_.items(names).size()))
        return index_error("the file's objects need too much memory");
      for (const Ref name : objects_.items(names)) {
        if (objects_.is(name, Kind::string)) hidden.insert(objects_.text(name));
      }
    }
    for (const std::string_view part : module_dicts) {
      const auto items = objects_.items(objects_.find(state, part));
      for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
        bool exact = true;
        STELE_TRY_ASSIGN(const std::string key, segment_of(items[i], exact));
        if (objects_.is(items[i + 1], Kind::none) || (part == "_buffers" && hidden.contains(key))) continue;
        STELE_TRY(below(key, items[i + 1], depth));
      }
    }
    return {};
  }

  /// Adds the attributes of a TorchScript object that contain tensors.
  Status add_script(Ref r, int depth) {
    program_ = true;
    const Ref state = objects_.state(r);
    if (!objects_.is(state, Kind::dict)) return state == no_ref ? Status() : add(state, depth + 1);
    const auto items = objects_.items(state);
    // Lists come last and add no more names to known parameters: nn.LSTM has a list of all its weights.
    const bool outer = in_script_list_;
    for (const bool lists : {false, true}) {
      for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
        const Ref attribute = tensors_.unwrapped(items[i + 1]);
        STELE_TRY_ASSIGN(const bool tensors, contents_.has_tensor(attribute));
        const bool list =
            script_ && tensors && (objects_.is(attribute, Kind::list) || objects_.is(attribute, Kind::tuple));
        if ((!tensors && script_) || list != lists) continue;
        bool exact = true;
        STELE_TRY_ASSIGN(const std::string key, segment_of(items[i], exact));
        in_script_list_ = outer || list;
        STELE_TRY(below(key, attribute, depth));
      }
    }
    in_script_list_ = outer;
    return {};
  }

  // ---- tensors

  using Key = std::tuple<const Storage*, const TorchType*, std::uint64_t, std::vector<std::uint64_t>, bool, bool>;
  static Key key_of(const View& view) {
    std::vector<std::uint64_t> axes;  // the extents, then as many strides
    axes.reserve(2 * view.strides.size());
    axes.insert(axes.end(), view.shape.begin(), view.shape.end());
    axes.insert(axes.end(), view.strides.begin(), view.strides.end());
    return {view.storage, view.type, view.offset, std::move(axes), view.conjugated, view.negated};
  }

  Status add_dense(Ref r) {
    auto read = tensors_.dense(r);
    // An error without a file concerns this tensor only, and not its record in the file.
    if (!read && read.error().code() == Errc::unsupported && read.error().file().empty()) {
      std::string reason(read.error().message());
      if (!read.error().found().empty()) reason += ": " + std::string(read.error().found());
      if (!memory_.take(unreadable_memory + 2 * reason.size())) {
        return index_error("the file's tensors need too much memory");
      }
      return add_node(nullptr, [&](std::string_view name) { add_unreadable(to_, name, reason); });
    }
    if (!read) return in_path(std::move(read).error());
    const Dense& tensor = *read;
    const View& view = tensor.view;
    const bool expanded = std::count(view.strides.begin(), view.strides.end(), 0U) != 0;
    const std::uint64_t each = (sizeof(Gathered) + 40 * view.shape.rank()) * (expanded ? 2 : 1) + 256;
    if (!memory_.take(each + unreadable_memory * (view.storage->lost ? 1 : 0))) {
      return index_error("the file's tensors need too much memory");
    }
    const bool empty = leaf_bytes(view) == 0;
    Key key = key_of(view);
    // Storages usually come in the order of their addresses, each once.
    const bool last = known_.empty() || known_.rbegin()->first < key;
    const auto known = empty || last ? known_.end() : known_.find(key);
    const bool fresh = known == known_.end();
    // Tensors without elements share no storage: only the extras contain their ties.
    if ((!fresh || empty) && is_tied_elsewhere()) return {};
    if (!fresh && in_script_list_) return {};
    if (!fresh) return add_node(&view, [&](std::string_view name) { to_.alias(name, known->second); });
    if (view.storage->lost) {
      return add_node(nullptr, [&](std::string_view name) {
        add_unreadable(to_, name, "a tensor whose storage is not in the file");
      });
    }
    if (!empty && !names_.is_later(to_)) {
      known_.emplace_hint(known_.end(), std::move(key), static_cast<std::uint32_t>(to_.nodes().size()));
    }
    return add_node(&view, [&](std::string_view name) {
      to_.tensor(name, view.type->dtype, leaf_shape(view).span(), leaf_bytes(view), provider_of(view));
      if (view.type->dtype == DType::opaque) to_.annotate(std::string(dtype_key), Value(view.type->name));
      if (!tensor.quantization.is_null()) to_.annotate("quantization", tensor.quantization);
      if (!tensor.class_name.empty()) to_.annotate(std::string(class_annotation), Value(tensor.class_name));
    });
  }

  /// Adds a sparse or nested tensor as a group.
  Status add_parts(Ref r, int depth) {
    auto parts = tensors_.parts(r);
    if (!parts) return in_path(std::move(parts).error());
    STELE_TRY(note_container(std::string(1, container::dict)));
    {
      const PathPart below(path_, "layout");
      has_values_ = true;
      STELE_TRY(add_node(nullptr, [&](std::string_view name) { to_.value(name, Value(tensors_.layout(r))); }));
    }
    for (const Tensors::Part& part : *parts) STELE_TRY(below(part.name, part.object, depth));
    return {};
  }

  // ---- the end

  /// Reads the attribute of a state_dict that stele writes.
  Status add_attributes(Ref root) {
    const Ref state = objects_.is(root, Kind::dict) ? objects_.state(root) : no_ref;
    if (!objects_.is(state, Kind::dict)) return {};
    const Ref strings = objects_.find(state, "stele_metadata");
    if (!objects_.is(strings, Kind::dict)) return {};
    const auto items = objects_.items(strings);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (!objects_.is(items[i], Kind::string) || !objects_.is(items[i + 1], Kind::string)) {
        return Error(Errc::malformed, "the attribute stele_metadata is not a dict of strings");
      }
      const std::string_view text = objects_.text(items[i + 1]);
      if (!memory_.take(96 + objects_.text(items[i]).size() + text.size())) {
        return index_error("the file's metadata needs too much memory");
      }
      if (objects_.text(items[i]) == flat_key && is_flat_text(text)) STELE_TRY(find_tied(text));
      if (!metadata_.emplace(objects_.text(items[i]), text).second) {
        return Error(Errc::duplicate, "a key of the metadata occurs twice").found(std::string(objects_.text(items[i])));
      }
    }
    return {};
  }

  /// Finds the paths that the extras tie (docs/formats/flat.md). For Python, the file has their tensors under all
  /// names.
  Status find_tied(std::string_view extras) {
    if (!memory_.take(4 * extras.size())) return index_error("the file's metadata needs too much memory");
    json::Reader in(extras);
    std::string_view key;
    std::string scratch;
    in.begin_object();
    while (in.next_key(key, scratch)) {
      if (key != "aliases") {
        in.skip_value();
        continue;
      }
      in.begin_object();
      while (in.next_key(key, scratch)) {
        STELE_TRY(tie(key));
        in.skip_value();
      }
    }
    return {};  // add_flat_extras() reports malformed extras
  }

  /// Adds a path that the extras tie.
  Status tie(std::string_view whole) {
    constexpr std::uint64_t each_segment = 128;  // a node of the map
    const std::string_view path = tied_paths_.emplace_back(whole);
    std::uint32_t node = 0;
    for (std::size_t begin = 0; begin <= path.size();) {
      const std::string_view segment = path.substr(begin, path.find('.', begin) - begin);
      if (!memory_.take(each_segment)) return index_error("the file's ties need too much memory");
      node = tied_.try_emplace({node, segment}, static_cast<std::uint32_t>(tied_.size() + 1)).first->second;
      begin += segment.size() + 1;
    }
    tied_ends_.resize(tied_.size() + 1);
    tied_ends_[node] = true;
    return {};
  }

  /// Returns true if the extras tie the present path or a container around it.
  bool is_tied_elsewhere() const {
    const std::string_view path = path_;
    std::uint32_t node = 0;
    for (std::size_t begin = 0; begin <= path.size() && !tied_.empty();) {
      const std::string_view segment = path.substr(begin, path.find('.', begin) - begin);
      const auto found = tied_.find({node, segment});
      if (found == tied_.end()) return false;
      node = found->second;
      if (tied_ends_[node]) return true;
      begin += segment.size() + 1;
    }
    return false;
  }

  Result<Snapshot> finish() {
    STELE_TRY(names_.sort(to_, memory_));
    if (const auto extras = metadata_.find(std::string(flat_key));
        extras != metadata_.end() && is_flat_text(extras->second)) {
      STELE_TRY(add_extras(to_, extras->second, memory_));
      metadata_.erase(extras);
    }
    to_.set_metadata(std::move(metadata_));
    const bool merged = merge_paths(containers_);
    if (merge_paths(versions_) || merged) to_.data().left_out.emplace_back("containers with the name of another");
    const bool plain = containers_.size() == 1 && containers_[0].second[0] == container::ordered_dict && !has_values_;
    if (!plain && !program_ && !containers_.empty()) to_.set_origin(containers_origin, containers_text());
    if (!versions_.empty()) {
      std::string text;
      json::Writer out(text);
      STELE_TRY(json::write_value(out, Value(std::move(versions_))));
      to_.set_origin(metadata_origin, std::move(text));
    }
    if (program_) to_.data().left_out.emplace_back(program_part);
    file_.extra_files.leave_out(to_.data().left_out, "extra files");
    to_.set_capacity(std::max<std::uint64_t>(file_.storages->bytes(), 1));
    if (file_.storages->in_order()) to_.set_in_order();
    to_.keep(file_.storages);
    return to_.finish();
  }

  /// Removes what has the path of an earlier item, because a key is empty or has a dot. Returns true if anything does.
  template <class Items>
  static bool merge_paths(Items& items) {
    std::set<std::string> seen;
    return std::erase_if(items, [&](const auto& item) { return !seen.insert(item.first).second; }) != 0;
  }

  std::string containers_text() const {
    std::string text;
    json::Writer out(text);
    out.begin_object();
    for (const auto& [path, kind] : containers_) {
      out.key(json::coded_key(path));
      out.string(kind);
    }
    out.end_object();
    return text;
  }

  File& file_;
  const pickle::Objects& objects_;
  IndexBudget& memory_;
  Tensors tensors_;
  Contents contents_;
  SnapshotBuilder to_;
  std::string path_;
  NodeNames& names_;
  std::vector<std::pair<std::string, std::string>> containers_;
  std::map<Key, std::uint32_t> known_;
  std::vector<std::uint8_t> levels_;  // by object; 0: unknown
  std::map<std::string, std::string> metadata_;
  Value::Map versions_;  // versions of modules, by the paths of state_dicts
  // The paths that the extras tie; their segments: (node, segment) -> node; for each node, whether a path ends there.
  std::deque<std::string> tied_paths_;
  std::map<std::pair<std::uint32_t, std::string_view>, std::uint32_t> tied_;
  std::vector<bool> tied_ends_;
  bool has_values_ = false;
  bool bare_ = false;  // the file is a single tensor or value
  bool in_script_list_ = false;
  bool program_ = false;  // some objects are modules, which are not written
  bool script_ = false;   // attributes without tensors are left out
};

}  // namespace

Result<Snapshot> build(File& file, Ref part, IndexBudget& memory) {
  NodeNames names;
  return read_with_names(names, [&] { return TreeBuilder(file, memory, names).run(part); });
}

}  // namespace stele::inline v0::detail::pytorch
