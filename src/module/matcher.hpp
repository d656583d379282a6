// The walk of match(), divided into parts: structure is in match.cpp, containers and ties in match_containers.cpp,
// tensors and values in match_leaves.cpp, unused entries in match_unused.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/patterns.hpp"
#include "base/similar.hpp"
#include "module/match.hpp"
#include "module/walk.hpp"
#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"

namespace stele::inline v0::detail {

class Matcher {
 public:
  Matcher(const Tree& tree, LoadMode mode, MatchMode match_mode, const LoadOptions& options, Report& report,
          LoadPlan& plan)
      : tree_(tree),
        options_(options),
        mode_(mode),
        report_(report),
        plan_(plan),
        mutate_(match_mode != MatchMode::check),
        quiet_(match_mode == MatchMode::remake),
        used_(tree.snapshot().nodes().size()) {
    const auto nodes = tree.snapshot().nodes();
    has_aliases_ = std::any_of(nodes.begin(), nodes.end(), [](const Node& n) { return n.kind == NodeKind::alias; });
  }

  Status run(const TypeInfo& type, void* object);

 private:
  // ---- errors and rows ----

  void fail(Error error) {
    if (!failed_) failed_ = std::move(error);
  }
  void row(Report::What what, std::string_view path, std::string_view detail = {}) {
    if (!quiet_) report_.add(what, path, detail);
  }
  /// Fails for a missing or unused name; later names are counted.
  void fail_name(Errc code, std::string_view text, std::string_view path, std::string_view found = {});
  void count_further_names();
  void missing(const std::string& path);
  void mismatch(Errc code, const char* text, const std::string& expected, const std::string& found,
                std::string_view hint = {});
  /// Stores a name for suggest().
  static void compare_later(std::vector<std::string>& names, std::string_view path) {
    if (names.size() < max_compared_names && path.size() <= max_compared_bytes) names.emplace_back(path);
  }
  static constexpr std::string_view set_rebuild = "set LoadOptions::rebuild";
  void const_elements() {
    fail(Error(Errc::not_loadable, "elements with const members cannot be loaded in place")
             .path(path_)
             .hint(set_rebuild));
  }
  std::string describe(const Place& place) const;

  /// Appends a segment to path_ during its lifetime.
  class Segment {
   public:
    Segment(Matcher& matcher, std::string_view name, bool escape = true)
        : matcher_(matcher), size_(matcher.path_.size()) {
      matcher.open_.push_back({size_, PathStore::none});
      if (size_ != 0) matcher.path_ += '.';
      if (escape) {
        append_segment(matcher.path_, name);
      } else {
        matcher.path_ += name;
      }
    }
    ~Segment() {
      matcher_.path_.resize(size_);
      matcher_.open_.pop_back();
    }
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;

   private:
    Matcher& matcher_;
    std::size_t size_;
  };
  static std::string_view decimal(std::size_t i, char (&buffer)[24]) {
    char* end = buffer + sizeof buffer;
    char* at = end;
    do {
      *--at = static_cast<char>('0' + i % 10);
      i /= 10;
    } while (i != 0);
    return {at, static_cast<std::size_t>(end - at)};
  }

  void use(const Place& place) {
    if (place.node != no_index) used_[place.node] = true;
    if (place.alias != no_index) used_[place.alias] = true;
  }

  // ---- structure ----

  // `object` is null if only the structure is checked, because the object will be created later.
  void visit(const TypeInfo& type, void* object, const Place& place, int depth);

  bool container_fits(const Place& place, bool named);

  void visit_fields(const TypeInfo& type, void* object, const Place& place, int depth);

  /// Returns true if the file does not have the field. Other programs write `none` for fields that they do not record;
  /// for an optional or pointer, `none` means empty instead.
  bool is_absent(const TypeInfo& type, const Place& at) const;

  // ---- moved() ----

  /// The paths that a class declares as moved, while the class is visited.
  struct Moves {
    std::span<const MovedPath> paths;
    Place base;            // place of the class
    std::size_t path = 0;  // length of the class's path
    std::string_view relative(std::string_view to) const { return to.substr(path == 0 ? 0 : path + 1); }
  };
  /// Returns the place where an older file stores the object whose current path is path_.
  Place moved_here() const;
  /// Returns true if an older file has an object whose current path is below path_.
  bool moved_below() const;

  // ---- lists ----

  /// Returns true if the place does not have a list, but an object that can be the element of one.
  bool is_one(const Place& place) const;

  void visit_list(const TypeInfo& type, void* object, const Place& place, int depth, bool was_one);
  bool room_for(const ContainerOps& container, std::size_t n);

  // ---- elements ----
  //
  // Containers may move their elements when an element is added, so an element is visited, and its address stored, only
  // after its container is complete. Elements with a hook are created one by one, each from a whole record: no address
  // inside them is stored.

  /// Adds an element to a container. Returns null if the element cannot be created; the load has then failed.
  void* make_element(const TypeInfo& type, void* container, std::size_t which, std::string_view key, void* record);

  /// Creates an element by its hook. Returns false if the load has failed.
  bool visit_hooked(const TypeInfo& type, void* container, std::size_t which, std::string_view key, const Place& at,
                    int depth);

  /// Creates the only element of a container and loads it; only checks it if there is no object yet.
  void visit_only(const TypeInfo& type, void* container, std::size_t which, const Place& at, int depth);
  static const TypeInfo& element_of(const TypeInfo& type, std::size_t which) {
    return type.kind == TypeKind::variant ? *type.fields[which].type : *type.element;
  }

  void visit_map(const TypeInfo& type, void* object, const Place& place, int depth);
  /// Visits the tensors of a file with flat names, under their names.
  void each_tensor(const std::function<void(std::string_view name, const Place& at)>& visit) const;
  /// `whole`: the keys are names of the file, not segments.
  void visit_new_map(const TypeInfo& type, void* object, const Place& place, int depth, bool whole);

  /// Returns true if the file has a field of the module at the place, under any of the field's names.
  bool has_field_of(const TypeInfo& type, const Place& place) const;

  void visit_variant(const TypeInfo& type, void* object, const Place& place, int depth);

  void visit_holder(const TypeInfo& type, void* object, const Place& place, int depth);

  /// Returns true for a type that contains shared pointers under class names.
  static bool holds_shared(const TypeInfo& type);
  /// Returns the type of the shared pointer in such an object; null if there is none.
  const TypeInfo* shared_pointee(const TypeInfo& type, void* object) const;

  // ---- ties ----

  struct Shared {
    bool loaded = false;
    std::uint32_t path = 0;        // index in LoadPlan::paths
    const void* object = nullptr;  // in a new module: the first shared pointer to the object
    const ContainerOps* ops = nullptr;
  };
  /// A shared pointer of a new module, or a holder of one, that is not in the file.
  struct Unnamed {
    void* object;
    const TypeInfo* type;
    std::uint32_t path;  // index in LoadPlan::paths
  };

  void visit_shared(const TypeInfo& type, void* object, const Place& place, int depth);

  /// Adds rows for the names in early_ of objects that are loaded under a later name.
  void report_early();

  /// Handles the shared pointers in unnamed_ from `first` on: ties each pointer to the object in the file to which the
  /// constructor tied it, or else clears it.
  void finish_unnamed(std::size_t first);

  /// Records that the file's data here must equal those loaded under the first name of the shared object.
  void note_tie(const TensorOps* ops, const Value* value, std::uint32_t number);

  /// Marks everything below a place as used, because it is loaded under another name.
  void mark_all_used(const Place& place);

  // ---- leaves ----

  void visit_tensor(const TensorOps& ops, void* object, const Place& place, bool was_one);

  /// Returns the number of tensor bytes that the file can hold; if the tensors are not in a file, their total size.
  std::uint64_t capacity();

  /// Returns the rank that the tensor must have; -1 for any rank.
  int rank_of(const TensorOps& ops, const void* object) const;

  std::uint32_t keep_path();

  bool shape_fits(const TensorOps& ops, void* object, const LeafView& leaf);

  bool dtype_fits(const TensorOps& ops, const LeafView& leaf);

  void visit_value(const ValueOps& ops, void* object, const Place& place);
  /// Returns the element of a tensor as a value for a field with a number, bool or enum, which other programs store so.
  /// Returns null if it is not such a tensor; the load has then failed.
  const Value* number_of(const ValueOps& ops, const LeafView& leaf);
  /// Returns a map or list value built from entries of the file, for formats that do not distinguish such a value from
  /// a module. Returns null if some of the entries cannot be parts of a value.
  const Value* put_together(const Place& place);
  std::optional<Value> value_at(const Place& place, int depth, std::vector<std::uint32_t>& parts);
  void bad_value(std::string_view expected, const Value& value);

  /// Suggests similar names: an entry that is missing under one name may be in the file under another.
  void suggest();

  void find_unused();
  void refuse_nothing();

  struct FileKey {
    std::uint32_t node;
    std::string prefix;
    const TypeInfo* type;
    bool operator==(const FileKey&) const = default;
  };
  struct FileKeyHash {
    std::size_t operator()(const FileKey& k) const noexcept {
      return std::hash<std::string>()(k.prefix) * 31 + k.node + std::hash<const void*>()(k.type);
    }
  };

  const Tree& tree_;
  const LoadOptions& options_;
  Patterns allow_missing_{options_.allow_missing};
  Patterns allow_unused_{options_.allow_unused};
  LoadMode mode_;
  Report& report_;
  LoadPlan& plan_;
  bool mutate_;
  bool quiet_;             // adds no rows
  bool was_one_ = false;   // flag of the field to be visited next
  bool constant_ = false;  // the next value is a constant of a plain aggregate
  /// State below a shared object that has been loaded under another name: that name, and the length of the current path
  /// of the object.
  struct Tie {
    std::uint32_t first = PathStore::none;  // index in LoadPlan::paths
    std::size_t skip = 0;
  } tie_;
  bool has_aliases_ = false;  // the file has aliases
  std::vector<std::uint32_t>
      left_empty_;  // indices in LoadPlan::paths: optionals and pointers that are not in the file
  std::uint64_t visits_ = 0;
  std::optional<Error> failed_;
  std::size_t further_names_ = 0;  // names with the same error as failed_
  std::string path_;
  struct OpenSegment {
    std::size_t begin;     // offset in path_
    std::uint32_t stored;  // index in LoadPlan::paths, if it has been stored
  };
  std::vector<OpenSegment> open_;
  std::uint32_t root_path_ = PathStore::none;
  std::uint64_t outdated_bytes_ = 0;
  std::vector<std::string> missing_, unused_;  // only names short enough for a comparison
  std::vector<bool> used_;
  std::vector<Moves> moves_;
  std::uint64_t total_ = 0, stored_ = 0;  // bytes of the tensors visited, in the module and in the file
  std::optional<std::uint64_t> capacity_;
  std::unordered_map<const void*, Shared> shared_;
  std::vector<Unnamed> unnamed_;
  std::vector<std::pair<const void*, std::uint32_t>>
      early_;                             // shared objects, and names of them that are missing from the file
  std::vector<std::uint32_t> left_null_;  // indices in LoadPlan::paths: pointers that may be names of a tie
  struct FromFile {
    const void* object;  // the first shared pointer to the object
    const ContainerOps* ops;
    bool open;  // the object is being loaded
  };
  std::unordered_map<FileKey, FromFile, FileKeyHash> from_file_;
};

}  // namespace stele::inline v0::detail
