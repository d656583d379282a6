// The recorder's write side: writes a snapshot or a checkpoint as the zip file of torch.save.
#include <algorithm>
#include <functional>
#include <iterator>
#include <map>

#include "base/name_order.hpp"
#include "base/parallel.hpp"
#include "containers.hpp"
#include "encodings/zip/zip.hpp"
#include "graph/checkpoint.hpp"
#include "json/json.hpp"
#include "objects.hpp"
#include "optimizer_out.hpp"
#include "passes/byte_order.hpp"
#include "passes/untie.hpp"
#include "plan.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/paths.hpp"
#include "stele/quantize.hpp"
#include "stele/recorders/pytorch.hpp"
#include "tree.hpp"

namespace stele::inline v0 {
namespace detail::pytorch {
namespace {

constexpr std::uint64_t alignment = 64;  // as in PyTorch's writer; enough for every dtype and cache line

/// The entries of a snapshot, in order: each tensor under each of its names, and the values if the file has containers.
struct Names {
  Snapshot untied;  // owns the values
  std::vector<Entry> entries;
};

/// Returns the class name that `value` stores for the object around it, or nullptr.
const std::string* class_at(std::string_view path, const Value& value) {
  const bool is_class =
      path.ends_with(class_key) && (path.size() == class_key.size() || path[path.size() - class_key.size() - 1] == '.');
  return is_class ? value.as_string() : nullptr;
}

/// Moves the additional names of tensors to the end, sorted. In an opened file, the ties from the extras come after all
/// tensors; without this, saving the file again would change the order of its names.
void tied_names_last(std::vector<Entry>& entries, std::size_t leaves) {
  std::vector<bool> seen(leaves);
  std::vector<Entry> first, further;
  first.reserve(entries.size());
  for (Entry& e : entries) {
    const bool again = e.leaf != no_index && seen[e.leaf];
    if (e.leaf != no_index) seen[e.leaf] = true;
    (again ? further : first).push_back(std::move(e));
  }
  std::sort(further.begin(), further.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  std::move(further.begin(), further.end(), std::back_inserter(first));
  entries = std::move(first);
}

Result<Names> names_of(const Snapshot& snapshot, bool values) {
  const auto nodes = snapshot.nodes();
  const bool tied = std::any_of(nodes.begin(), nodes.end(), [](const Node& n) { return n.kind == NodeKind::alias; });
  Names made{snapshot, {}};
  std::vector<std::uint32_t> leaves;  // indices of the untied snapshot's leaves
  if (tied) {
    STELE_TRY_ASSIGN(made.untied, untied(snapshot));
    STELE_TRY(each_tensor_name(snapshot, [&](const std::string&, const Node& tensor) -> Status {
      leaves.push_back(tensor.index);
      return {};
    }));
  }
  RunningPath paths(*made.untied.data());
  const auto all = made.untied.nodes();
  made.entries.reserve(made.untied.leaf_count());
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    const std::string_view path = paths.of(i);
    if (all[i].kind == NodeKind::tensor) {
      const std::uint32_t leaf = tied ? leaves[all[i].index] : all[i].index;
      if (obstacle(snapshot.leaf(leaf)).empty()) made.entries.push_back({std::string(path), leaf, nullptr});
    } else if (all[i].kind == NodeKind::value && values) {
      const Value& value = made.untied.value(all[i]);
      if (obstacle(value).empty() && class_at(path, value) == nullptr)
        made.entries.push_back({std::string(path), no_index, &value});
    }
  }
  const auto is_in_extras = [&](const Node& n) {
    if (n.kind != NodeKind::alias || nodes[n.index].kind == NodeKind::value) return false;
    return nodes[n.index].kind != NodeKind::tensor || snapshot.leaf(nodes[n.index].index).byte_size() == 0;
  };
  if (std::any_of(nodes.begin(), nodes.end(), is_in_extras)) tied_names_last(made.entries, snapshot.leaf_count());
  return made;
}

Status check_names(std::span<const Entry> entries) {
  for (const Entry& e : entries) {
    if (!json::valid_utf8(e.name)) return Error(Errc::not_representable, "the name is not valid UTF-8").path(e.name);
  }
  const auto order = order_by_name(static_cast<std::uint32_t>(entries.size()),
                                   [&](std::uint32_t i) { return std::string_view(entries[i].name); });
  const auto same = std::adjacent_find(
      order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return entries[a].name == entries[b].name; });
  if (same == order.end()) return {};
  return Error(Errc::duplicate, "two tensors have the same name").path(entries[*same].name);
}

/// The parts of a snapshot to write, except its tensors' bytes.
struct StateDict {
  Names names;
  std::optional<FileContainers> containers;
  Value modules;                                // path of a state_dict -> its `_metadata`; null: none
  std::map<std::string, std::string> metadata;  // with the key `stele`

  /// Returns true if the file is a single tensor or value.
  bool bare() const {
    if (!containers || names.entries.size() != 1 || names.entries[0].name != bare_name) return false;
    const char root = containers->root().kind;
    return root == 'x' || (root == 'v' && names.entries[0].value != nullptr);
  }
  /// Returns true if the file's object can have attributes; a dict with attributes becomes an OrderedDict.
  bool can_have_attributes() const {
    return !bare() && (!containers || (containers->root().kind != 'l' && containers->root().kind != 't'));
  }
};

/// Parses the property with the versions of modules. Returns null if PyTorch cannot store them, with the reason in
/// `why`. Errors: malformed.
Result<Value> parse_modules(std::string_view json, std::string& why) {
  json::Reader in(json);
  Value modules;
  const bool read = json::read_value(in, modules, json::kMaxValueBytesPerByte * json.size() + 1024) && in.finish();
  const auto is_dict = [](const auto& item) { return item.second.as_map() != nullptr; };
  if (read && modules.as_map() != nullptr) {
    why = std::all_of(modules.as_map()->begin(), modules.as_map()->end(), is_dict)
              ? obstacle(modules)
              : "a module's versions are not a dict";
    return why.empty() ? std::move(modules) : Value();
  }
  return Error(Errc::malformed, "the property pytorch.metadata is invalid").expected("a JSON object");
}

Result<StateDict> state_dict_of(const Snapshot& snapshot) {
  StateDict made;
  const auto& origin = snapshot.origin();
  if (const auto found = origin.find(containers_origin); found != origin.end()) {
    STELE_TRY_ASSIGN(made.containers, parse_containers(found->second));
  }
  if (const auto found = origin.find(metadata_origin); found != origin.end()) {
    std::string why;  // losses() reports it
    STELE_TRY_ASSIGN(made.modules, parse_modules(found->second, why));
  }
  const bool values = made.containers.has_value();
  STELE_TRY_ASSIGN(made.names, names_of(snapshot, values));
  made.metadata = snapshot.metadata();
  STELE_TRY_ASSIGN(std::string extras,
                   flat_extras(
                       snapshot, [&](const std::string&, const Value&) { return values; },
                       [&](const Node& target) {
                         return (target.kind == NodeKind::tensor && snapshot.leaf(target.index).byte_size() != 0) ||
                                (values && target.kind == NodeKind::value);
                       }));
  STELE_TRY(add_flat_key(made.metadata, std::move(extras)));
  return made;
}

Status check(const StateDict& dict, const Snapshot& snapshot) {
  STELE_TRY(check_names(dict.names.entries));
  for (const auto& [key, text] : snapshot.metadata()) {
    if (json::valid_utf8(key) && json::valid_utf8(text)) continue;
    return Error(Errc::not_representable, "the metadata is not valid UTF-8").found(key);
  }
  return {};
}

/// Writes data.pkl.
class ObjectWriter {
 public:
  explicit ObjectWriter(std::string& text) : text_(text), out_(text), tensors(out_) {}

  Status state_dict(const StateDict& dict, const Snapshot& snapshot, std::uint32_t part) {
    const auto& entries = dict.names.entries;
    part_ = part;
    snapshot_ = &snapshot;
    if (dict.bare()) {
      if (entries[0].value != nullptr) {
        write_value(out_, text_, *entries[0].value, &dict.containers->kinds);
      } else {
        tensors.tensor(part, entries[0].leaf, snapshot.leaf(entries[0].leaf));
      }
      return {};
    }
    if (!dict.containers) {
      dictionary('o', entries.size(), [&](std::size_t i) {
        out_.string(entries[i].name);
        tensors.tensor(part, entries[i].leaf, snapshot.leaf(entries[i].leaf));
      });
      return attributes(dict);
    }
    FileContainers file = *dict.containers;
    const bool named = !dict.metadata.empty() || dict.modules.find("") != nullptr;
    modules_ = &dict.modules;
    if (ContainerKind& root = file.kinds[""]; root.kind == 'x' || root.kind == 'v' || (root.kind == 'd' && named)) {
      root.kind = 'o';
    }
    STELE_TRY_ASSIGN(const ContainerTree tree, ContainerTree::make(file, entries));
    container(tree, 0, entries, file.kinds);
    return dict.can_have_attributes() ? attributes(dict) : Status();
  }

  Status checkpoint(const Checkpoint& from, const StateDict& dict, const OptimizerPlan& plan,
                    const PytorchOptions& options) {
    const std::string part = options.part.empty() ? "model_state_dict" : options.part;
    const std::string optimizer = options.optimizer.empty() ? "optimizer_state_dict" : options.optimizer;
    for (const std::string& key : {part, optimizer}) {
      const bool taken = part == optimizer || key == "epoch" || key == "iteration" || key == "training_config";
      if (!taken && json::valid_utf8(key)) continue;
      return Error(Errc::invalid_argument, "a key of PytorchOptions is not UTF-8, or another part has it").found(key);
    }
    std::vector<std::uint32_t> parts;
    const std::uint32_t parameters = tensors.begin(from.parameters.leaf_count());
    for (const auto& [kind, arrays] : from.optimizer.kinds()) parts.push_back(tensors.begin(arrays.leaf_count()));
    out_.empty_dict();
    out_.mark();
    out_.string(part);
    STELE_TRY(state_dict(dict, from.parameters, parameters));
    if (!plan.groups.empty()) {
      out_.string(optimizer);
      write_optimizer(out_, text_, tensors, from, plan, parts);
    }
    if (from.training) {
      out_.string("epoch");
      out_.integer(from.training->epoch_count);
      out_.string("iteration");
      out_.integer(from.training->iteration_count);
      out_.string("training_config");
      out_.string(from.training->json());
    }
    out_.set_items();
    return {};
  }

  void finish() { out_.finish(); }

 private:
  std::string& text_;
  pickle::Writer out_;
  std::uint32_t part_ = 0;
  const Snapshot* snapshot_ = nullptr;
  const Value* modules_ = nullptr;

 public:
  TensorWriter tensors;

 private:
  /// Writes a dict of `count` items; `item` writes a key and its value.
  template <class Item>
  void dictionary(char kind, std::size_t count, Item item) {
    constexpr std::size_t batch = 1000;  // maximum items on a reader's stack, as in CPython's pickler
    if (kind == 'o') {
      tensors.ordered_dict();
    } else {
      out_.empty_dict();
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (i % batch == 0) out_.mark();
      item(i);
      if (i + 1 == count || (i + 1) % batch == 0) out_.set_items();
    }
  }

  void container(const ContainerTree& tree, std::uint32_t number, std::span<const Entry> entries,
                 const ContainerKinds& kinds) {
    const ContainerTree::Container& here = tree.container(number);
    const auto content = [&](const ContainerTree::Child& child) {
      if (child.container != no_index) return container(tree, child.container, entries, kinds);
      const Entry& entry = entries[child.entry];
      if (entry.value == nullptr) return tensors.tensor(part_, entry.leaf, snapshot_->leaf(entry.leaf));
      write_value(out_, text_, *entry.value, &kinds, entry.name);
    };
    const bool tuple = here.kind.kind == 't';
    if (!tuple && here.kind.kind != 'l') {
      dictionary(here.kind.kind, here.children.size(), [&](std::size_t i) {
        write_key(out_, text_, here.children[i].key, here.kind.integers);
        content(here.children[i]);
      });
      const Value* const modules = modules_->find(here.path);
      if (number == 0 || here.kind.kind != 'o' || modules == nullptr) return;
      out_.empty_dict();
      out_.mark();
      versions(*modules);
      out_.set_items();
      return out_.build();
    }
    if (tuple && here.children.empty()) return out_.empty_tuple();
    if (!tuple) out_.empty_list();
    if (here.children.empty()) return;
    out_.mark();
    for (const ContainerTree::Child& child : here.children) content(child);
    tuple ? out_.tuple() : out_.appends();
  }

  /// Writes the attribute `_metadata`, the versions of modules.
  void versions(const Value& modules) {
    const auto& list = *modules.as_map();
    out_.string("_metadata");
    dictionary('o', list.size(), [&](std::size_t i) {
      out_.string(list[i].first);
      write_value(out_, text_, list[i].second);
    });
  }

  /// Writes the attributes of the OrderedDict on top of the stack.
  Status attributes(const StateDict& dict) {
    const Value* const modules = dict.modules.find("");
    if (dict.metadata.empty() && modules == nullptr) return {};
    out_.empty_dict();
    out_.mark();
    if (modules != nullptr) versions(*modules);
    if (!dict.metadata.empty()) {
      out_.string("stele_metadata");
      auto next = dict.metadata.begin();
      dictionary('d', dict.metadata.size(), [&](std::size_t) {
        out_.string(next->first);
        out_.string(next->second);
        ++next;
      });
    }
    out_.set_items();
    out_.build();
    return {};
  }
};

/// Writes the entries of the zip file.
class FileWriter {
 public:
  FileWriter(Sink& sink, const Workers& workers) : sink_(sink), out_(sink, zip::crc32), zip_(out_), context_(workers) {}

  Status run(const Checkpoint& checkpoint, std::string_view object, const TensorWriter& tensors) {
    std::vector<Snapshot> parts = {in_file_order(checkpoint.parameters)};
    for (const auto& [kind, arrays] : checkpoint.optimizer.kinds()) parts.push_back(in_file_order(arrays));
    // Reserves the whole file: before a rename, ext4 writes bytes beyond the reserved ones to the disk.
    zip::Plan plan;
    plan.add(object_name, object.size());
    plan.add(order_name, order.size());
    for (std::size_t key = 0; key < tensors.storages().size(); ++key) {
      const SavedStorage storage = tensors.storages()[key];
      const std::uint64_t size = storage.part == SavedStorage::own
                                     ? tensors.array(storage.index).size()
                                     : parts[storage.part].leaf(storage.index).byte_size();
      plan.add(storage_name(key), size, 0, alignment);
    }
    plan.add(version_name, version.size());
    STELE_TRY(sink_.reserve(plan.size()));

    STELE_TRY(zip_.add(object_name, bytes_of(object)));
    STELE_TRY(zip_.add(order_name, bytes_of(order)));
    for (std::size_t key = 0; key < tensors.storages().size(); ++key) {
      const SavedStorage storage = tensors.storages()[key];
      const std::string_view name = storage_name(key);
      if (storage.part == SavedStorage::own) {
        const auto bytes = bytes_of(tensors.array(storage.index));
        STELE_TRY(begin(name, bytes.size(), zip::crc32(0, bytes.data(), bytes.size())));
        STELE_TRY(out_.write(bytes));
        continue;
      }
      const LeafView leaf = parts[storage.part].leaf(storage.index);
      STELE_TRY(with_path(write_leaf(name, leaf), leaf));
    }
    STELE_TRY(zip_.add(version_name, bytes_of(version)));
    STELE_TRY(zip_.finish());
    return out_.flush();
  }

 private:
  static constexpr std::string_view object_name = "archive/data.pkl", order_name = "archive/byteorder",
                                    folder_name = "archive/data/", version_name = "archive/version";
  static constexpr std::string_view order = "little", version = "3\n";

  /// Returns the name of a storage's entry, valid until the next call.
  std::string_view storage_name(std::size_t key) {
    name_.assign(folder_name).append(std::to_string(key));
    return name_;
  }

  Status begin(std::string_view name, std::uint64_t size, std::uint32_t crc) {
    return zip_.begin(name, zip::stored, size, size, crc, 0, alignment);
  }

  Status write_leaf(std::string_view name, const LeafView& leaf) {
    const auto begin = [&](std::uint64_t crc) {
      return this->begin(name, leaf.byte_size(), static_cast<std::uint32_t>(crc));
    };
    // A std::function of a std::ref takes no memory.
    return out_.leaf_after_hash(leaf, context_, std::ref(begin),
                                [this](std::uint64_t crc) { return zip_.set_crc(static_cast<std::uint32_t>(crc)); });
  }

  Sink& sink_;
  LeafGather out_;
  zip::Writer zip_;
  ReadContext context_;
  std::string name_;
};

}  // namespace
}  // namespace detail::pytorch

namespace pt = detail::pytorch;

Result<std::vector<Loss>> PytorchFormat::losses(const Snapshot& snapshot, std::string_view /*file*/) const {
  std::vector<Loss> losses;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    if (std::string why = pt::obstacle(leaf); !why.empty()) losses.push_back({leaf.node(), std::move(why)});
  }
  if (const auto found = snapshot.origin().find(pt::metadata_origin); found != snapshot.origin().end()) {
    std::string why;
    STELE_TRY_ASSIGN(const Value modules, pt::parse_modules(found->second, why));
    if (modules.is_null()) losses.push_back({0, "the versions of modules: " + why});
  }
  if (!snapshot.origin().contains(pt::containers_origin)) return losses;
  STELE_TRY_ASSIGN(const pt::StateDict dict, pt::state_dict_of(snapshot));
  const auto nodes = snapshot.nodes();
  detail::RunningPath paths(*snapshot.data());
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    const std::string_view path = paths.of(i);  // called for each node, because it continues the previous path
    if (nodes[i].kind != NodeKind::value) continue;
    const Value& value = snapshot.value(nodes[i]);
    std::string why = pt::obstacle(value);
    if (const std::string* name = pt::class_at(path, value))
      why = "an object of Python: " + *name + "; its content is a dict";
    if (!why.empty()) losses.push_back({i, std::move(why)});
  }
  if (!dict.metadata.empty() && !dict.can_have_attributes()) {
    losses.push_back({0, "metadata and ties of containers: the file's list, tuple or tensor has no attributes"});
  }
  return losses;
}

Status PytorchFormat::write_checkpoint(const Checkpoint& checkpoint, Sink& sink, const SaveOptions& options) const {
  STELE_TRY_ASSIGN(const pt::StateDict dict, pt::state_dict_of(checkpoint.parameters));
  STELE_TRY(pt::check(dict, checkpoint.parameters));
  std::string object;
  object.reserve(512 + 256 * dict.names.entries.size());
  pt::ObjectWriter objects(object);
  if (checkpoint.optimizer.empty() && !checkpoint.training) {
    STELE_TRY(
        objects.state_dict(dict, checkpoint.parameters, objects.tensors.begin(checkpoint.parameters.leaf_count())));
  } else {
    STELE_TRY_ASSIGN(const pt::OptimizerPlan plan, pt::plan_optimizer(checkpoint, dict.names.entries, options_));
    STELE_TRY(objects.checkpoint(checkpoint, dict, plan, options_));
  }
  objects.finish();
  return pt::FileWriter(sink, detail::workers_of(options)).run(checkpoint, object, objects.tensors);
}

}  // namespace stele::inline v0
