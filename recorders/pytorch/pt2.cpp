// Reads exported programs (.pt2): the weights and constants that their JSON lists describe (torch/export/pt2_archive
// and torch/_export/serde/schema.py of PyTorch 2.15), also those of libraries that AOTInductor compiled. Graphs and
// libraries are not read.
#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "json/json.hpp"
#include "node_names.hpp"
#include "objects.hpp"
#include "read.hpp"
#include "snapshot/adopt.hpp"
#include "snapshot/data.hpp"
#include "snapshot/unread.hpp"
#include "snapshot/unreadable.hpp"
#include "tensors.hpp"
#include "zip.hpp"

namespace stele::inline v0::detail::pytorch {
namespace {

using zip::Directory;

/// Returns the type with a number in torch._export.serde.schema.ScalarType, which differs from c10::ScalarType.
const TorchType* exported_type(std::int64_t number) {
  static constexpr std::pair<std::int64_t, std::string_view> names[] = {{1, "uint8"},
                                                                        {2, "int8"},
                                                                        {3, "int16"},
                                                                        {4, "int32"},
                                                                        {5, "int64"},
                                                                        {6, "float16"},
                                                                        {7, "float32"},
                                                                        {8, "float64"},
                                                                        {9, "complex32"},
                                                                        {10, "complex64"},
                                                                        {11, "complex128"},
                                                                        {12, "bool"},
                                                                        {13, "bfloat16"},
                                                                        {28, "uint16"},
                                                                        {29, "float8_e4m3fn"},
                                                                        {30, "float8_e5m2"},
                                                                        {31, "float8_e4m3fnuz"},
                                                                        {32, "float8_e5m2fnuz"},
                                                                        {33, "float8_e8m0fnu"},
                                                                        {34, "uint32"},
                                                                        {35, "uint64"}};
  for (const auto& [code, name] : names) {
    if (code == number) return type_of_name(name);
  }
  return nullptr;
}
constexpr std::int64_t strided_layout = 7;

class ProgramReader {
 public:
  ProgramReader(std::shared_ptr<const Directory> directory, std::string_view root, const PytorchOptions& options,
                bool big_endian, IndexBudget& memory, NodeNames& names)
      : directory_(std::move(directory)),
        root_(root),
        options_(options),
        memory_(memory),
        names_(names),
        storages_(std::make_shared<ZipStorages>(directory_, root, !options.ignore_checksums, big_endian, memory)) {}

  Result<Snapshot> run() {
    to_.set_flat();
    std::vector<std::pair<std::string, const zip::Entry*>> lists;
    std::size_t programs = 0;
    for (const zip::Entry& entry : directory_->entries()) {
      for (const std::string_view folder : {"weights", "constants"}) {
        const std::string begin = std::string(root_).append("/data/").append(folder).append("/");
        const std::string end = std::string("_").append(folder).append("_config.json");
        if (!entry.name.starts_with(begin) || !entry.name.ends_with(end) ||
            entry.name.size() < begin.size() + end.size())
          continue;
        std::string name(entry.name.substr(begin.size(), entry.name.size() - begin.size() - end.size()));
        programs += folder == "weights";
        lists.emplace_back(std::string(begin).append("\n").append(name), &entry);
      }
    }
    for (const auto& [place, entry] : lists) {
      const std::size_t split = place.find('\n');
      // If the file has several programs, each weight's name begins with the name of its program.
      STELE_TRY(read_list(place.substr(0, split), programs > 1 ? place.substr(split + 1) + '.' : "", *entry));
    }
    if (lists.empty()) STELE_TRY(read_older());
    STELE_TRY(read_compiled());
    return finish();
  }

 private:
  Error bad(const zip::Entry& entry, const char* what) const {
    return Error(Errc::malformed, what).file(directory_->source()->name() + ": " + std::string(entry.name));
  }

  Result<Value> read_json(const zip::Entry& entry) {
    memory_.admit(entry.compressed, index_rate::index);
    if (!memory_.take(entry.size)) return index_error("the list of weights needs too much memory");
    STELE_TRY_ASSIGN(const Bytes bytes, read_record(*directory_, entry, entry.size, !options_.ignore_checksums));
    json::Reader in({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    Value list;
    if (!json::read_value(in, list, static_cast<std::size_t>(memory_.left())) || !in.finish()) {
      return in.error().file(directory_->source()->name() + ": " + std::string(entry.name));
    }
    return list;
  }

  Status read_list(const std::string& folder, const std::string& prefix, const zip::Entry& entry) {
    STELE_TRY_ASSIGN(const Value list, read_json(entry));
    const Value* config = list.find("config");
    if (config == nullptr || config->as_map() == nullptr) return bad(entry, "the list of weights has no config");
    for (const auto& [name, weight] : *config->as_map()) {
      if (auto status = add(folder, prefix + name, weight, entry); !status) {
        Error error = std::move(status).error();
        return error.path().empty() ? std::move(error).path(prefix + name) : std::move(error);
      }
    }
    return {};
  }

  /// Reads a number that is known when the program is exported: {"as_int": 3}.
  static const std::int64_t* as_int(const Value& value) {
    const Value* number = value.find("as_int");
    return number != nullptr ? number->as_i64() : nullptr;
  }
  static bool read_numbers(const Value* list, std::vector<std::uint64_t>& out) {
    if (list == nullptr || list->as_list() == nullptr) return false;
    for (const Value& item : *list->as_list()) {
      const std::int64_t* number = as_int(item);
      if (number == nullptr || *number < 0) return false;
      out.push_back(static_cast<std::uint64_t>(*number));
    }
    return true;
  }

  Status add(const std::string& folder, const std::string& name, const Value& weight, const zip::Entry& list) {
    const Value* path = weight.find("path_name");
    if (path == nullptr || path->as_string() == nullptr) return bad(list, "a weight has no path_name");
    if (path->as_string()->starts_with("custom_obj")) {
      return Error(Errc::unsupported, "an object of a custom class is not a tensor").found(*path->as_string());
    }
    const zip::Entry* entry = directory_->find(folder + *path->as_string());
    if (entry == nullptr) return bad(list, "the file has no record of a weight").found(*path->as_string());
    const Value* pickled = weight.find("use_pickle");
    if (pickled != nullptr && pickled->as_bool() != nullptr && *pickled->as_bool()) return add_pickled(name, *entry);
    const Value* meta = weight.find("tensor_meta");
    if (meta == nullptr) return bad(list, "a weight has no tensor_meta");
    View view;
    const Value* dtype = meta->find("dtype");
    const Value* layout = meta->find("layout");
    if (layout != nullptr && layout->as_i64() != nullptr && *layout->as_i64() != strided_layout) {
      return Error(Errc::unsupported, "the layout of a weight is not strided").found(std::to_string(*layout->as_i64()));
    }
    view.type = dtype != nullptr && dtype->as_i64() != nullptr ? exported_type(*dtype->as_i64()) : nullptr;
    if (view.type == nullptr) {
      return Error(Errc::unsupported, "the dtype of a weight is unknown")
          .found(dtype != nullptr && dtype->as_i64() != nullptr ? std::to_string(*dtype->as_i64()) : "none");
    }
    std::vector<std::uint64_t> extents;
    const Value* offset = meta->find("storage_offset");
    const std::int64_t* first = offset != nullptr ? as_int(*offset) : nullptr;
    if (!read_numbers(meta->find("sizes"), extents) || !read_numbers(meta->find("strides"), view.strides) ||
        first == nullptr || *first < 0) {
      return bad(list, "the sizes, strides or offset of a weight are not numbers");
    }
    view.shape = Shape(std::span<const Extent>(extents));
    view.offset = static_cast<std::uint64_t>(*first);
    STELE_TRY_ASSIGN(view.storage, storages_->storage(*entry));
    return add_view(name, view);
  }

  Status add_view(const std::string& name, const View& view) {
    STELE_TRY(check_view(view));
    STELE_TRY_ASSIGN(const std::string_view kept, keep_name(name));
    const std::vector<std::uint64_t> extents(view.shape.begin(), view.shape.end());
    const bool empty = leaf_bytes(view) == 0;
    const auto same = std::tuple(view.storage, view.type, view.offset, extents, view.strides);
    if (const auto known = known_.find(same); !empty && known != known_.end()) {
      return names_.add(to_, kept, memory_, 0, {}, [&](std::string_view node) { to_.alias(node, known->second); });
    }
    const Provider provider = is_plain(view) ? plain_provider(view) : gathered_provider(storages_->add(view));
    return names_.add(to_, kept, memory_, leaf_bytes(view), provider, [&](std::string_view node) {
      const auto number = to_.tensor(node, view.type->dtype, leaf_shape(view).span(), leaf_bytes(view), provider);
      if (view.type->dtype == DType::opaque) to_.annotate(std::string(dtype_key), Value(view.type->name));
      if (!empty) known_.emplace(same, number);
    });
  }

  /// Adds a weight that is a file of torch.save.
  Status add_pickled(const std::string& name, const zip::Entry& entry) {
    STELE_TRY_ASSIGN(const Snapshot file, open_entry(entry));
    if (file.leaf_count() != 1 || file.nodes().size() != 2) return bad(entry, "a weight is not one tensor");
    return add_leaf(name, file, 0);
  }

  /// Opens a file of torch.save once, even if several weights name it.
  Result<Snapshot> open_entry(const zip::Entry& entry) {
    if (const auto known = opened_.find(&entry); known != opened_.end()) return known->second;
    STELE_TRY_ASSIGN(const SourcePtr source, directory_->open(entry));
    PytorchOptions options = options_;
    options.part.clear();
    // The entry's compressed bytes raise the budget, not its inflated bytes.
    memory_.admit(entry.compressed, index_rate::token);
    IndexBudget memory(Limits{.index_bytes = std::max<std::uint64_t>(memory_.left(), 1)}, 0);
    auto file = open_file(source, options, {}, memory, Kinds::saved);
    if (!memory_.take(memory_.left() - memory.left())) return index_error("the weights need too much memory");
    if (!file) return file;
    to_.keep(file->data());
    opened_.emplace(&entry, *file);
    return file;
  }

  /// Adds a tensor and sets `added` to its node.
  Status add_leaf(std::string_view name, const Snapshot& file, std::size_t number, std::uint32_t* added = nullptr) {
    const LeafView leaf = file.leaf(number);
    STELE_TRY_ASSIGN(const std::string_view kept, keep_name(name));
    return names_.add(to_, kept, memory_, leaf.byte_size(), leaf.provider(), [&](std::string_view name_of_node) {
      const std::uint32_t node = detail::add_leaf(to_, name_of_node, leaf);
      if (added != nullptr) *added = node;
    });
  }

  /// Reads the weights that AOTInductor stores beside a library ("pickle_weights"): each of the files that
  /// data/aotinductor/MODEL/weights_config.json names is a tensor of torch.save. {NAME: [FILE, sizes, strides,
  /// offset]}.
  Status read_compiled() {
    const std::string begin = std::string(root_) + "/data/aotinductor/", end = "/weights_config.json";
    std::vector<const zip::Entry*> lists;
    for (const zip::Entry& entry : directory_->entries()) {
      if (entry.name.starts_with(begin) && entry.name.ends_with(end)) lists.push_back(&entry);
    }
    for (const zip::Entry* const entry : lists) {
      const std::size_t size = entry->name.size() - std::min(entry->name.size(), begin.size() + end.size());
      const std::string model(entry->name.substr(begin.size(), size));
      STELE_TRY_ASSIGN(const Value list, read_json(*entry));
      if (list.as_map() == nullptr) return bad(*entry, "the list of weights is not an object");
      for (const auto& [name, weight] : *list.as_map()) {
        const std::string full = lists.size() > 1 ? std::string(model).append(1, '.').append(name) : name;
        auto added = add_compiled(full, weight, *entry);
        if (!added) return std::move(added).error().path(full);
      }
    }
    return {};
  }

  /// Reads a list of numbers that are not negative.
  static bool read_plain(const Value& list, std::vector<std::uint64_t>& out) {
    if (list.as_list() == nullptr) return false;
    return std::all_of(list.as_list()->begin(), list.as_list()->end(), [&](const Value& item) {
      const std::int64_t* const number = item.as_i64();
      if (number != nullptr && *number >= 0) out.push_back(static_cast<std::uint64_t>(*number));
      return number != nullptr && *number >= 0;
    });
  }

  Status add_compiled(const std::string& name, const Value& weight, const zip::Entry& list) {
    const Value::List* const parts = weight.as_list();
    std::vector<std::uint64_t> extents, strides;
    if (parts == nullptr || parts->size() != 4 || (*parts)[0].as_string() == nullptr ||
        !read_plain((*parts)[1], extents) || !read_plain((*parts)[2], strides) || (*parts)[3].as_i64() == nullptr ||
        *(*parts)[3].as_i64() < 0) {
      return bad(list, "a weight is not a file, sizes, strides and an offset");
    }
    const std::string& file = *(*parts)[0].as_string();
    const zip::Entry* const entry = directory_->find(std::string(root_) + "/data/weights/" + file);
    if (entry == nullptr) return bad(list, "the file has no record of a weight").found(file);
    STELE_TRY_ASSIGN(View view, saved_tensor(*entry));
    view.shape = Shape(std::span<const Extent>(extents));
    view.strides = std::move(strides);
    view.offset = static_cast<std::uint64_t>(*(*parts)[3].as_i64());
    if (const Status inside = check_view(view); !inside) return add_unread(name, inside.error());
    return add_view(name, view);
  }

  /// Adds a weight that is not in its file: PyTorch 2.15 writes parts of a storage that no weight has whole so.
  Status add_unread(const std::string& name, const Error& error) {
    STELE_TRY_ASSIGN(const std::string_view kept, keep_name(name));
    if (!memory_.take(unreadable_memory)) return index_error("the list of weights needs too much memory");
    return names_.add(to_, kept, memory_, 0, {},
                      [&](std::string_view node) { add_unreadable(to_, node, error.message()); });
  }

  /// Returns the tensor of a file of torch.save, which is opened once.
  Result<View> saved_tensor(const zip::Entry& entry) {
    if (const auto known = saved_.find(&entry); known != saved_.end()) return known->second;
    STELE_TRY_ASSIGN(const SourcePtr source, directory_->open(entry));
    memory_.admit(entry.compressed, index_rate::token);
    STELE_TRY_ASSIGN(const auto inside, Directory::open(source, memory_.left()));
    STELE_TRY_ASSIGN(const std::string_view root, root_of(*inside));
    STELE_TRY_ASSIGN(File file, open_zip(inside, root, !options_.ignore_checksums, memory_));
    Tensors tensors(file, memory_);
    const pickle::Ref object = file.objects.root();
    if (tensors.form(object) != Tensors::Form::dense) return bad(entry, "a weight is not one tensor");
    STELE_TRY_ASSIGN(Dense dense, tensors.dense(object));
    inner_bytes_ = checked_add(inner_bytes_, file.storages->bytes()).value_or(UINT64_MAX);
    to_.keep(std::move(file.storages));
    saved_.emplace(&entry, dense.view);
    return std::move(dense.view);
  }

  /// Reads the weights and constants of the first versions: one file of torch.save for each program's weights, and one
  /// for its constants.
  Status read_older() {
    for (const zip::Entry& entry : directory_->entries()) {
      const std::string_view inside = entry.name.substr(root_.size());
      const bool holds_tensors = inside.starts_with("/data/weights/") || inside.starts_with("/data/constants/");
      if (!holds_tensors || !inside.ends_with(".pt")) continue;
      STELE_TRY_ASSIGN(const Snapshot file, open_entry(entry));
      STELE_TRY(add_all(file));
    }
    return {};
  }

  /// Adds the tensors of a file, and their ties.
  Status add_all(const Snapshot& file) {
    const auto nodes = file.nodes();
    std::vector<std::uint32_t> added(nodes.size(), no_index);
    for (std::uint32_t i = 1; i < nodes.size(); ++i) {
      const Node& node = nodes[i];
      const std::string_view name(node.name, node.name_size);
      if (node.kind == NodeKind::tensor) {
        STELE_TRY(add_leaf(name, file, node.index, &added[i]));
      } else if (node.kind == NodeKind::alias && added[node.index] != no_index) {
        STELE_TRY_ASSIGN(const std::string_view kept, keep_name(name));
        STELE_TRY(
            names_.add(to_, kept, memory_, 0, {}, [&](std::string_view own) { to_.alias(own, added[node.index]); }));
      } else {
        values_.add(name);
      }
    }
    for (const auto& [key, text] : file.metadata()) values_.add(key);
    return {};
  }

  Result<std::string_view> keep_name(std::string_view name) {
    if (!memory_.take(512 + 2 * name.size())) return index_error("the list of weights needs too much memory");
    return to_.intern(name);
  }

  Result<Snapshot> finish() {
    STELE_TRY(names_.sort(to_, memory_));
    const std::uint64_t stored = checked_add(storages_->bytes(), inner_bytes_).value_or(UINT64_MAX);
    to_.set_capacity(std::max<std::uint64_t>(stored, directory_->source()->size()));
    to_.data().left_out.emplace_back(program_part);
    values_.leave_out(to_.data().left_out, "values and metadata of the weights");
    extra_files(*directory_, root_).leave_out(to_.data().left_out, "extra files");
    unread().leave_out(to_.data().left_out, unread_part);
    if (storages_->in_order()) to_.set_in_order();
    to_.keep(storages_);
    return to_.finish();
  }

  /// Returns the names of members that may have weights: libraries, their blobs, objects of custom classes, and what
  /// later versions add. The names of compiled code alone come last.
  Skipped unread() const {
    const auto is_known = [&](std::string_view name) {
      constexpr std::string_view parts[] = {"archive_format", "archive_version", "version", "byteorder"};
      constexpr std::string_view folders[] = {"models/", "data/sample_inputs/", "extra/", ".data/"};
      const auto begins = [&](std::string_view folder) { return name.starts_with(folder); };
      return std::find(std::begin(parts), std::end(parts), name) != std::end(parts) ||
             std::any_of(std::begin(folders), std::end(folders), begins) || name.ends_with(".json");
    };
    Skipped names;
    for (const bool code : {false, true}) {
      for (const zip::Entry& entry : directory_->entries()) {
        const std::string_view name = entry.name.substr(std::min(entry.name.size(), root_.size() + 1));
        const bool is_code = name.ends_with(".cpp") || name.ends_with(".h") || name.ends_with(".txt");
        const bool read = storages_->has(entry) || saved_.contains(&entry) || opened_.contains(&entry);
        if (is_code == code && !read && !name.ends_with('/') && !is_known(name)) names.add(name);
      }
    }
    return names;
  }

  std::shared_ptr<const Directory> directory_;
  std::string_view root_;
  const PytorchOptions& options_;
  IndexBudget& memory_;
  NodeNames& names_;
  std::shared_ptr<ZipStorages> storages_;
  SnapshotBuilder to_;
  std::map<const zip::Entry*, Snapshot> opened_;
  std::map<const zip::Entry*, View> saved_;  // tensors in files of torch.save
  std::uint64_t inner_bytes_ = 0;            // size of their storages
  Skipped values_;
  std::map<std::tuple<const Storage*, const TorchType*, std::uint64_t, std::vector<std::uint64_t>,
                      std::vector<std::uint64_t>>,
           std::uint32_t>
      known_;
};

}  // namespace

Result<Snapshot> open_pt2(const std::shared_ptr<const Directory>& directory, std::string_view root,
                          const PytorchOptions& options, IndexBudget& memory) {
  STELE_TRY_ASSIGN(const bool big_endian, is_big_endian(*directory, root, !options.ignore_checksums));
  NodeNames names;
  return read_with_names(names,
                         [&] { return ProgramReader(directory, root, options, big_endian, memory, names).run(); });
}

}  // namespace stele::inline v0::detail::pytorch
