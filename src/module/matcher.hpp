// The walk of match(), shared by its parts: structure is in match.cpp, containers and ties in match_containers.cpp,
// tensors and values in match_leaves.cpp, unused entries in match_unused.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
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
  void missing(const std::string& path);
  void mismatch(Errc code, const char* text, const std::string& expected, const std::string& found,
                std::string_view hint = {});
  /// Keeps a name for suggest().
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

  /// Appends a segment to path_ while it lives.
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

  // `object` is null where only the structure is checked, because the object will be made later.
  void visit(const TypeInfo& type, void* object, const Place& place, int depth);

  bool container_fits(const Place& place, bool named);

  void visit_fields(const TypeInfo& type, void* object, const Place& place, int depth);

  /// Returns true if the file lacks the field. Other programs write `none` for fields that they do not record; an
  /// optional or pointer that is `none` is empty instead.
  bool is_absent(const TypeInfo& type, const Place& at) const;

  // ---- moved() ----

  /// The paths that a class declares as moved, while it is visited.
  struct Moves {
    std::span<const MovedPath> paths;
    Place base;            // of the class
    std::size_t path = 0;  // length of its path
    std::string_view relative(std::string_view to) const { return to.substr(path == 0 ? 0 : path + 1); }
  };
  /// Returns the place where an older file has the object that belongs at path_.
  Place moved_here() const;
  /// Returns true if an older file has an object that belongs below path_.
  bool moved_below() const;

  // ---- lists ----

  /// Returns true if the place has no list, but an object that can be the element of one.
  bool is_one(const Place& place) const;

  void visit_list(const TypeInfo& type, void* object, const Place& place, int depth, bool was_one);
  bool room_for(const ContainerOps& container, std::size_t n);

  // ---- elements ----
  //
  // Containers may move their elements when they take one more, so an element is visited, and its address kept, only
  // when its container is complete. Elements with a hook are made one by one, each from a whole record: nothing keeps
  // an address in them.

  /// Adds an element to a container. Returns null if it cannot be made; the load has then failed.
  void* make_element(const TypeInfo& type, void* container, std::size_t which, std::string_view key, void* record);

  /// Makes an element by its hook. Returns false if the load has failed.
  bool visit_hooked(const TypeInfo& type, void* container, std::size_t which, std::string_view key, const Place& at,
                    int depth);

  /// Makes the only element of a container (or only checks, where there is no object yet) and loads it.
  void visit_only(const TypeInfo& type, void* container, std::size_t which, const Place& at, int depth);
  static const TypeInfo& element_of(const TypeInfo& type, std::size_t which) {
    return type.kind == TypeKind::variant ? *type.fields[which].type : *type.element;
  }

  void visit_map(const TypeInfo& type, void* object, const Place& place, int depth);
  void visit_new_map(const TypeInfo& type, void* object, const Place& place, int depth);

  /// Returns true if the file has a field of that module at the place, under any of the field's names.
  bool has_field_of(const TypeInfo& type, const Place& place) const;

  void visit_variant(const TypeInfo& type, void* object, const Place& place, int depth);

  void visit_holder(const TypeInfo& type, void* object, const Place& place, int depth);

  /// Returns true for a holder of shared pointers that have a class's name.
  static bool holds_shared(const TypeInfo& type);
  /// Returns the type of the shared pointer in such a holder; null if there is none.
  const TypeInfo* shared_pointee(const TypeInfo& type, void* object) const;

  // ---- ties ----

  struct Shared {
    bool loaded = false;
    std::uint32_t path = 0;        // in LoadPlan::paths
    const void* object = nullptr;  // in a new module: the first shared pointer to it
    const ContainerOps* ops = nullptr;
  };
  /// A shared pointer of a new module, or a holder of one, that the file does not name.
  struct Unnamed {
    void* object;
    const TypeInfo* type;
    std::uint32_t path;  // in LoadPlan::paths
  };

  void visit_shared(const TypeInfo& type, void* object, const Place& place, int depth);

  /// Reports the names in early_ of objects that are loaded under another one.
  void report_early();

  /// Ties the shared pointers from `first` in unnamed_ on to the objects that the constructor tied them to, if the file
  /// names those, and clears the others.
  void finish_unnamed(std::size_t first);

  /// Notes that the file's data here must equal those loaded under the first name of the shared object.
  void note_tie(const TensorOps* ops, const Value* value, std::uint32_t number);

  /// Marks everything below a place as used; it is loaded under another name.
  void mark_all_used(const Place& place);

  // ---- leaves ----

  void visit_tensor(const TensorOps& ops, void* object, const Place& place, bool was_one);

  /// Returns the number of bytes of tensors that the file can hold, or their total size if they are not in a file.
  std::uint64_t capacity();

  /// Returns the rank that the tensor must have; -1 if any.
  int rank_of(const TensorOps& ops, const void* object) const;

  std::uint32_t keep_path();

  bool shape_fits(const TensorOps& ops, void* object, const LeafView& leaf);

  bool dtype_fits(const TensorOps& ops, const LeafView& leaf);

  void visit_value(const ValueOps& ops, void* object, const Place& place);
  /// Returns a map or list value whose parts are entries of the file, because its format does not distinguish it from a
  /// module. Returns null if other entries are among them.
  const Value* put_together(const Place& place);
  std::optional<Value> value_at(const Place& place, int depth, std::vector<std::uint32_t>& parts);
  void bad_value(std::string_view expected, const Value& value);

  /// Suggests similar names: an entry missing under one name may be in the file under another.
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
  bool was_one_ = false;   // the flag of the field that is visited next
  bool constant_ = false;  // the next value is a constant of a plain aggregate
  /// Below a shared object that has been loaded under another name: that name, and the length of the path of this one.
  struct Tie {
    std::uint32_t first = PathStore::none;  // in LoadPlan::paths
    std::size_t skip = 0;
  } tie_;
  bool has_aliases_ = false;  // the file has
  std::vector<std::uint32_t>
      left_empty_;  // paths in LoadPlan::paths: optionals and pointers that the file does not name
  std::uint64_t visits_ = 0;
  std::optional<Error> failed_;
  std::string path_;
  struct OpenSegment {
    std::size_t begin;     // in path_
    std::uint32_t stored;  // in LoadPlan::paths, once it has been kept
  };
  std::vector<OpenSegment> open_;
  std::uint32_t root_path_ = PathStore::none;
  std::uint64_t outdated_bytes_ = 0;
  std::vector<std::string> missing_, unused_;  // that are short enough to be compared
  std::vector<bool> used_;
  std::vector<Moves> moves_;
  std::uint64_t total_ = 0, stored_ = 0;  // bytes of the tensors visited, in the module and in the file
  std::optional<std::uint64_t> capacity_;
  std::unordered_map<const void*, Shared> shared_;
  std::vector<Unnamed> unnamed_;
  std::vector<std::pair<const void*, std::uint32_t>> early_;  // shared objects, and their names that the file lacks
  std::vector<std::uint32_t> left_null_;  // paths in LoadPlan::paths: pointers that may be names of a tie
  struct FromFile {
    const void* object;  // the first shared pointer to it
    const ContainerOps* ops;
    bool open;  // it is being loaded
  };
  std::unordered_map<FileKey, FromFile, FileKeyHash> from_file_;
};

}  // namespace stele::inline v0::detail
