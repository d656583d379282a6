// Converts the objects of a pickle to a flat Snapshot.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "base/limits.hpp"
#include "io/cursor.hpp"
#include "io/os/os.hpp"
#include "leaves/boxes.hpp"
#include "leaves/source_range.hpp"
#include "passes/stored_order.hpp"
#include "snapshot/path_parts.hpp"
#include "snapshot/tensor_index.hpp"
#include "snapshot/unreadable.hpp"
#include "stele/bundle.hpp"
#include "stele/layout.hpp"
#include "stele/recorders/read_only.hpp"
#include "values.hpp"

namespace stele::inline v0 {
namespace detail::numpy_pickle {
namespace {

using pickle::Kind;
using pickle::no_ref;
using pickle::Ref;

/// Keys of Paddle's dicts: paddle.save adds them (python/paddle/framework/io.py and io_utils.py).
constexpr std::string_view names_key = "StructuredToParameterName@@", slices_key = "UnpackBigParamInfor@@";

/// Maximum length of a path in an error (1,000 bytes).
constexpr std::size_t max_path = 1000;

class Tree {
 public:
  Tree(SourcePtr source, const pickle::Objects& objects, IndexBudget& memory, std::string alone)
      : source_(std::move(source)),
        objects_(objects),
        memory_(memory),
        arrays_(source_, objects, memory),
        values_(source_, objects, memory),
        alone_(std::move(alone)) {}

  Result<Snapshot> run() {
    to_.set_flat();
    const Ref root = objects_.root();
    const Unwrapped alone = arrays_.unwrapped(root);
    if (alone.object != no_ref) path_ = alone_;
    if (alone.object == no_ref && !is_container(root)) return Values::wrong(objects_, root, "arrays");
    STELE_TRY(add(root, false, 0));
    STELE_TRY(sort_names(to_));
    to_.keep(source_);
    for (auto& text : arrays_.kept()) to_.keep(std::move(text));
    return order_.apply(to_.finish());
  }

 private:
  // ---- kinds of objects

  static Error full() { return Values::full(); }
  bool is_container(Ref r) const { return objects_.kind(r) >= Kind::list && objects_.kind(r) <= Kind::set; }

  enum Answer : std::uint8_t { unknown, no, yes, asked };
  /// Returns true if a container has an array at any level. Remembers the answer, because containers may be shared.
  Result<bool> has_array(Ref r, int depth) {
    if (arrays_.unwrapped(r).object != no_ref) return true;
    if (!is_container(r)) return false;
    if (has_array_.empty()) {
      if (!memory_.take(objects_.size())) return full();
      has_array_.resize(objects_.size());
    }
    if (has_array_[r] == asked || depth > max_depth) return Values::nested();
    if (has_array_[r] != unknown) return has_array_[r] == yes;
    has_array_[r] = asked;
    bool found = false;
    for (const Ref item : objects_.items(r)) {
      if (found) break;
      STELE_TRY_ASSIGN(found, has_array(item, depth + 1));
    }
    has_array_[r] = found ? yes : no;
    return found;
  }
  // ---- names

  Status take_node() {
    constexpr std::uint64_t each = sizeof(Node) + sizeof(LeafData) + 64;
    return memory_.take(each + 3 * path_.size()) ? Status() : full();
  }

  // ---- nodes

  /// Adds an object under the present path.
  Status add(Ref r, bool paddle, int depth) {
    Status added = add_object(r, paddle, depth);
    if (added) return added;
    Error error = std::move(added).error();
    return error.path().empty() ? std::move(error).path(path_.substr(0, max_path)) : std::move(error);
  }

  Status add_object(Ref r, bool paddle, int depth) {
    if (depth > max_depth) return Values::nested();
    if (!memory_.take(16)) return full();  // shared containers are visited under each of their names
    if (const Unwrapped array = arrays_.unwrapped(r); array.object != no_ref) return add_array(array, paddle);
    STELE_TRY_ASSIGN(const bool arrays, has_array(r, depth));
    const Kind kind = objects_.kind(r);
    if (kind == Kind::dict && !objects_.items(r).empty()) return add_dict(r, paddle, depth);
    if (arrays || path_.empty()) {  // the members of the whole pickle's list are named even if they are values
      const auto items = objects_.items(r);
      for (std::size_t i = 0; i < items.size(); ++i) {
        const PathPart below(path_, std::to_string(i));
        STELE_TRY(add(items[i], paddle, depth + 1));
      }
      return {};
    }
    STELE_TRY_ASSIGN(Value value, values_.value(r));
    STELE_TRY(take_node());
    to_.value(to_.intern(path_), std::move(value));
    return {};
  }

  Status add_dict(Ref r, bool paddle, int depth) {
    const auto items = objects_.items(r);
    const Ref names = objects_.find(r, names_key), slices = objects_.find(r, slices_key);
    const bool has_names = is_table(names), has_slices = objects_.is(slices, Kind::dict);
    paddle = paddle || has_names || has_slices;
    std::map<std::string_view, Ref> table;  // the names of parameters
    if (has_names) {
      const auto entries = objects_.items(names);
      if (!memory_.take(48 * entries.size())) return full();
      for (std::size_t i = 0; i + 1 < entries.size(); i += 2) table[objects_.text(entries[i])] = entries[i + 1];
    }
    std::map<std::string_view, Ref> parts;  // arrays that are slices
    if (has_slices) STELE_TRY(find_slices(r, slices, parts));
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      STELE_TRY_ASSIGN(const std::string key, values_.key(items[i]));
      if (!memory_.take(2 * key.size() + 64)) return full();
      if (has_slices && (key == slices_key || parts.contains(key))) continue;
      if (has_names && key == names_key) continue;
      const PathPart below(path_, key);
      STELE_TRY(add(items[i + 1], paddle, depth + 1));
      const auto name = table.find(key);
      if (name == table.end() || arrays_.unwrapped(items[i + 1]).object == no_ref) continue;
      if (objects_.text(name->second) != key) STELE_TRY(note_name(name->second));
      table.erase(name);
    }
    if (has_slices) STELE_TRY(add_joined(slices, parts, table));
    // The remaining names belong to no tensor of this dict.
    for (const auto& [key, name] : table) {
      const PathPart table_path(path_, names_key);
      const PathPart below(path_, key);
      STELE_TRY(add(name, false, depth + 2));
    }
    return {};
  }

  /// Returns true for a dict of strings.
  bool is_table(Ref r) const {
    if (!objects_.is(r, Kind::dict)) return false;
    const auto items = objects_.items(r);
    return std::all_of(items.begin(), items.end(),
                       [&](Ref item) { return objects_.is(item, Kind::string) && !objects_.in_source(item); });
  }

  Status note_name(Ref name) {
    if (!memory_.take(160 + objects_.text(name).size())) return full();
    if (tied_) return {};  // the tensor has the annotation already
    to_.annotate("paddle.name", Value(objects_.text(name)));
    return {};
  }

  Status add_array(const Unwrapped& array, bool paddle) {
    STELE_TRY(take_node());
    const auto known = known_.find(array.object);
    tied_ = known != known_.end();
    if (tied_) {
      to_.alias(to_.intern(path_), known->second);
      return {};
    }
    if (!memory_.take(64)) return full();
    STELE_TRY_ASSIGN(PickledArray read, arrays_.read(array.object));
    // NumPy has no bfloat16; Paddle stores it as uint16, a dtype that its tensors do not have.
    if ((paddle || array.paddle) && read.array.dtype == DType::u16) read.array.dtype = DType::bf16;
    STELE_TRY(add_tensor(read));
    known_[array.object] = static_cast<std::uint32_t>(to_.nodes().size() - 1);
    if (array.name != no_ref) STELE_TRY(note_name(array.name));
    return {};
  }

  Status add_tensor(const PickledArray& read) {
    const numpy::Array& array = read.array;
    if (!memory_.take(read.unreadable.empty() ? 24 * array.shape.size()
                                              : unreadable_memory + 3 * read.unreadable.size())) {
      return full();
    }
    const std::string_view name = to_.intern(path_);
    if (!read.unreadable.empty()) {
      add_unreadable(to_, name, read.unreadable);
      order_.add_opaque();
      return {};
    }
    // NumPy stores the bytes of each array once.
    if (array.bytes > source_->size() - bytes_) {
      return Error(Errc::malformed, "the arrays together have more elements than the file")
          .path(path_.substr(0, max_path));
    }
    bytes_ += array.bytes;
    std::vector<Extent> shape = array.shape;
    order_.add(array.big_endian, array.fortran, shape);
    to_.tensor(name, array.dtype, shape, array.bytes, read.provider);
    return {};
  }

  // ---- slices of large arrays: {name: {'OriginShape': shape, 'slices': [keys]}}

  static Error bad_slices() { return Error(Errc::malformed, "the table of slices is inconsistent"); }

  Status find_slices(Ref dict, Ref table, std::map<std::string_view, Ref>& parts) {
    const auto entries = objects_.items(table);
    for (std::size_t i = 0; i + 1 < entries.size(); i += 2) {
      const Ref info = entries[i + 1];
      const bool pair = objects_.is(info, Kind::dict) && objects_.items(info).size() == 4;  // OriginShape, slices
      const Ref slices = pair ? objects_.find(info, "slices") : no_ref;
      if (!objects_.is(slices, Kind::list)) return bad_slices();
      for (const Ref slice : objects_.items(slices)) {
        if (!memory_.take(96)) return full();
        if (!objects_.is(slice, Kind::string) || !parts.emplace(objects_.text(slice), no_ref).second) {
          return bad_slices();
        }
      }
    }
    const auto items = objects_.items(dict);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (!objects_.is(items[i], Kind::string)) continue;
      if (const auto part = parts.find(objects_.text(items[i])); part != parts.end()) part->second = items[i + 1];
    }
    return {};
  }

  Status add_joined(Ref table, const std::map<std::string_view, Ref>& parts, std::map<std::string_view, Ref>& names) {
    const auto entries = objects_.items(table);
    for (std::size_t i = 0; i + 1 < entries.size(); i += 2) {
      STELE_TRY_ASSIGN(const std::string key, values_.key(entries[i]));
      const PathPart below(path_, key);
      STELE_TRY(join(entries[i + 1], parts));
      if (const auto name = names.find(key); name != names.end()) {
        if (objects_.text(name->second) != key) STELE_TRY(note_name(name->second));
        names.erase(name);
      }
    }
    return {};
  }

  Status join(Ref info, const std::map<std::string_view, Ref>& parts) {
    const Ref shape = objects_.find(info, "OriginShape");
    if (!objects_.is(shape, Kind::tuple) || objects_.items(shape).size() > numpy::max_rank) return bad_slices();
    PickledArray whole;
    for (const Ref extent : objects_.items(shape)) {
      if (!objects_.is(extent, Kind::integer) || objects_.integer(extent) < 0) return bad_slices();
      whole.array.shape.push_back(static_cast<Extent>(objects_.integer(extent)));
    }
    std::vector<Box> boxes;
    std::vector<Provider> leaves;
    std::uint64_t count = 0;
    for (const Ref slice : objects_.items(objects_.find(info, "slices"))) {
      const Ref object = parts.at(objects_.text(slice));
      if (object == no_ref || !arrays_.is_array(object)) return bad_slices();
      if (!memory_.take(JoinedBoxes::memory(1, 1) + sizeof(Box) + 64)) return full();
      STELE_TRY_ASSIGN(const PickledArray part, arrays_.read(object));
      if (!part.unreadable.empty() || part.array.shape.size() != 1 || part.array.bytes == 0) return bad_slices();
      const bool first = boxes.empty();
      if (!first && (part.array.dtype != whole.array.dtype || part.array.big_endian != whole.array.big_endian)) {
        return bad_slices();
      }
      whole.array.dtype = part.array.dtype;
      whole.array.big_endian = part.array.big_endian;
      whole.array.bytes += part.array.bytes;  // each slice is in the table once
      boxes.push_back({{count}, {part.array.shape[0]}});
      leaves.push_back(part.provider);
      count += part.array.shape[0];
    }
    const std::size_t element = element_size(whole.array.dtype);
    if (boxes.empty() || element == 0 || element_count(whole.array.shape) != count) return bad_slices();
    const Extent flat[] = {count};
    const auto joined = std::make_shared<JoinedBoxes>(flat, element, boxes, leaves);
    whole.provider = joined->provider();
    to_.keep(joined);
    if (whole.array.dtype == DType::u16) whole.array.dtype = DType::bf16;
    tied_ = false;
    STELE_TRY(take_node());
    return add_tensor(whole);
  }

  SourcePtr source_;
  const pickle::Objects& objects_;
  IndexBudget& memory_;
  Arrays arrays_;
  Values values_;
  SnapshotBuilder to_;
  std::string alone_;  // the name of an array that is the whole pickle
  std::string path_;
  std::vector<Answer> has_array_;
  std::map<Ref, std::uint32_t> known_;  // nodes of arrays
  bool tied_ = false;                   // the last array was an alias
  StoredOrder order_;
  std::uint64_t bytes_ = 0;
};

/// The module of the class that precedes each array of joblib. The array's bytes follow, between the operations.
constexpr std::string_view joblib_module = "joblib.numpy_pickle";

/// Maximum distance between the name of that class and the operation that fails (64 KiB).
constexpr std::uint64_t max_joblib_distance = 64 << 10;

/// Returns the error of a pickle whose operations cannot be read: for a file of joblib, an error that names it.
Error not_operations(Error error, const Source& source) {
  if (error.code() != Errc::malformed && error.code() != Errc::unsupported) return error;
  if (!error.offset() || *error.offset() > source.size()) return error;
  const std::uint64_t size = std::min(*error.offset(), max_joblib_distance);
  std::string before(static_cast<std::size_t>(size), '\0');
  const Status read = source.read_at(*error.offset() - size, std::as_writable_bytes(std::span(before)));
  if (!read || before.find(joblib_module) == before.npos) return error;
  return Error(Errc::unsupported, "the pickle has arrays of joblib between its operations")
      .file(source.name())
      .hint("load it with joblib, and save a dict of arrays with numpy.savez");
}

}  // namespace
}  // namespace detail::numpy_pickle

bool PickleFormat::recognises(std::span<const std::byte> head, std::uint64_t /*size*/) const noexcept {
  if (!detail::pickle::protocol(head)) return false;
  std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (text.find("joblib") != text.npos) return false;  // has arrays between the operations
  text.remove_prefix(2);
  if (text.starts_with('\x95')) text.remove_prefix(std::min<std::size_t>(text.size(), 9));  // FRAME
  if (text.empty()) return false;
  // The root is a dict, a list, an array, or one of Paddle's tensors. Tuples begin with their first item.
  if (text[0] == '}' || text[0] == ']' || text[0] == '(') return true;
  std::string_view name = text.substr(1, 80);
  if (text[0] == '\x8c') name.remove_prefix(std::min<std::size_t>(name.size(), 1));
  if (text[0] == 'X') name.remove_prefix(std::min<std::size_t>(name.size(), 4));
  if (text[0] != 'c' && text[0] != '\x8c' && text[0] != 'X') return false;
  constexpr std::string_view names[] = {"collections", "numpy.core.", "numpy._core.", "builtins", "__builtin__"};
  return std::any_of(std::begin(names), std::end(names), [&](std::string_view n) { return name.starts_with(n); });
}

Result<Snapshot> PickleFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::guarded(source->name(), [&]() -> Result<Snapshot> {
    detail::IndexBudget memory(context.options().limits, source->size(), detail::index_rate::token);
    detail::Cursor in(source);
    auto read = detail::pickle::read_in_place(in, memory);
    if (!read) return detail::numpy_pickle::not_operations(std::move(read).error(), *source);
    const detail::pickle::Objects objects = *std::move(read);
    STELE_TRY_ASSIGN(const bool end, in.at_end());
    if (!end) return Error(Errc::malformed, "bytes follow the pickle").file(source->name()).offset(in.position());
    std::string alone;
    std::string_view stem = file_name(source->name());
    append_segment(alone, stem.substr(0, stem.find('.', 1)));
    if (const auto layout = context.layout(); layout && layout->tensors.size() == 1) alone = layout->tensors[0].path;
    if (alone.empty()) alone = "tensor";
    return detail::numpy_pickle::Tree(std::move(source), objects, memory, std::move(alone)).run();
  });
}

}  // namespace stele::inline v0
