// Snapshot -> object, first half: structure.
#include "module/match.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

#include "base/limits.hpp"
#include "base/shortened.hpp"
#include "base/similar.hpp"
#include "module/walk.hpp"
#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"
#include "stele/pattern.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// As deep as formats hold values.
constexpr int max_value_depth = 64;

Patterns::Patterns(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    if (pattern.find_first_of("*?") == std::string::npos) {
      plain_.insert(pattern);
    } else {
      patterns_.emplace_back(pattern);
    }
  }
}

bool Patterns::match(std::string_view path) const {
  return plain_.contains(path) ||
         std::any_of(patterns_.begin(), patterns_.end(), [&](std::string_view p) { return matches(p, path); });
}

namespace {

/// Paths of modules that are to be migrated (64 MiB): each is a whole one, and a file may repeat a long key in all.
constexpr std::uint64_t max_outdated_bytes = std::uint64_t{64} << 20;

/// What a number or bool is as a tensor of one element.
struct ValueTensor {
  DType dtype = DType::none;
  std::array<std::byte, 8> bytes{};

  explicit ValueTensor(const Value& value) {
    const auto set = [&](DType type, auto number) {
      dtype = type;
      std::memcpy(bytes.data(), &number, sizeof number);
    };
    if (const auto* b = value.as_bool()) set(DType::boolean, *b);
    if (const auto* i = value.as_i64()) set(DType::i64, *i);
    if (const auto* u = value.as_u64()) set(DType::u64, *u);
    if (const auto* f = value.as_f64()) set(DType::f64, *f);
  }
};
constexpr LeafOps value_tensor_ops{
    .view = [](const void* at, std::uint64_t) { return static_cast<const ValueTensor*>(at)->bytes.data(); }};

/// A node's only element as a tensor of that rank (-1: its own); nothing where the node is that tensor already, or has
/// no one element.
std::optional<Snapshot> one_element(const Snapshot& file, std::uint32_t number, int rank) {
  const Node& node = file.nodes()[number];
  SnapshotBuilder builder;
  const auto shape = [&](std::size_t own) {
    return std::vector<Extent>(rank >= 0 ? static_cast<std::size_t>(rank) : own, 1);
  };
  const std::string_view path = builder.intern(file.path(number));
  if (node.kind == NodeKind::tensor) {
    const LeafView leaf = file.leaf(node.index);
    if (rank < 0 || leaf.size() != 1 || leaf.shape().size() == static_cast<std::size_t>(rank)) return std::nullopt;
    builder.tensor(path, leaf.dtype(), shape(0), leaf.byte_size(), leaf.provider());
    if (const auto id = leaf.id()) builder.set_id(*id);
    builder.keep(file.data());
    return builder.finish();
  }
  if (node.kind != NodeKind::value) return std::nullopt;
  auto tensor = std::make_shared<const ValueTensor>(file.value(node));
  if (tensor->dtype == DType::none) return std::nullopt;
  builder.tensor(path, tensor->dtype, shape(0), element_size(tensor->dtype), {&value_tensor_ops, tensor.get(), 0});
  builder.keep(std::move(tensor));
  return builder.finish();
}

/// The file with the leaves of `ones` behind its own.
Snapshot with_leaves(const Snapshot& file, const std::vector<OneElement>& ones) {
  auto data = derived_data(file);
  for (const OneElement& one : ones) {
    LeafData leaf = one.snapshot.data()->leaves[0];
    leaf.shape = static_cast<std::uint32_t>(data->extents.size());
    leaf.node = one.node;
    leaf.extra = no_index;
    if (const auto id = one.snapshot.leaf(0).id()) {
      leaf.extra = static_cast<std::uint32_t>(data->extras.size());
      data->extras.push_back({id, nullptr});
    }
    for (const Extent e : one.snapshot.leaf(0).shape()) data->extents.push_back(e);
    data->leaves.push_back(leaf);
    data->keepers.push_back(one.snapshot.data());
  }
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

class Matcher {
 public:
  Matcher(const Tree& tree, LoadMode mode, Walking walking, const LoadOptions& options, Report& report, LoadPlan& plan)
      : tree_(tree),
        options_(options),
        mode_(mode),
        report_(report),
        plan_(plan),
        mutate_(walking != Walking::check),
        quiet_(walking == Walking::remake),
        used_(tree.snapshot().nodes().size()) {
    const auto nodes = tree.snapshot().nodes();
    has_aliases_ = std::any_of(nodes.begin(), nodes.end(), [](const Node& n) { return n.kind == NodeKind::alias; });
  }

  Status run(const TypeInfo& type, void* object) {
    visit(type, object, tree_.root(), 0);
    if (!plan_.outdated.empty()) return {};
    if (!quiet_) {
      // In the order of names: the table of shared objects has none.
      std::vector<std::string> never;
      for (const auto& [pointee, shared] : shared_) {
        static_cast<void>(pointee);
        if (!shared.loaded) never.push_back(plan_.paths.text(shared.path));
      }
      std::sort(never.begin(), never.end());
      for (const std::string& path : never) missing(path);
      find_unused();
      if (failed_ && !missing_.empty() && !unused_.empty()) suggest();
    }
    return failed_ ? Status(std::move(*failed_)) : Status();
  }

 private:
  // ---- errors and rows ----

  void fail(Error error) {
    if (!failed_) failed_ = std::move(error);
  }
  void row(Report::What what, std::string_view path, std::string_view detail = {}) {
    if (!quiet_) report_.add(what, path, detail);
  }
  void missing(const std::string& path) {
    row(Report::What::missing, path);
    if (!quiet_) compare_later(missing_, path);
    if (!failed_ && !allow_missing_.match(path)) {
      fail(Error(Errc::missing, "a parameter of the module is not in the file").path(path));
    }
  }
  void mismatch(Errc code, const char* text, std::string expected, std::string found) {
    row(Report::What::mismatched, path_, "expected " + expected + ", found " + found);
    if (failed_) return;
    fail(Error(code, text).path(path_).expected(std::move(expected)).found(std::move(found)));
  }
  /// Keeps a name for suggest().
  static void compare_later(std::vector<std::string>& names, std::string_view path) {
    if (names.size() < max_compared_names && path.size() <= max_compared_bytes) names.emplace_back(path);
  }
  void const_elements() {
    fail(Error(Errc::not_loadable, "elements with const members cannot be loaded in place").path(path_));
  }
  std::string describe(const Place& place) const {
    if (!place.exists) return "nothing";
    return std::string(name(tree_.kind(place)));
  }

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
  void visit(const TypeInfo& type, void* object, const Place& place, int depth) {
    if (depth > max_depth) {
      return fail(Error(Errc::limit, "modules are nested too deep")
                      .path(path_)
                      .expected(std::to_string(max_depth) + " levels at most"));
    }
    if (++visits_ > max_names) {
      return fail(Error(Errc::limit, "more places than the file can mean: aliases of aliased containers").path(path_));
    }
    use(place);
    if (object != nullptr && type.other_class != nullptr && type.other_class(object) != nullptr) {
      Error error = derived_error(type, object).path(path_);
      row(Report::What::mismatched, path_, "expected " + error.expected() + ", found " + error.found());
      return fail(std::move(error));
    }
    // What an optional or a pointer is told is meant for what it holds.
    const bool holds =
        type.kind == TypeKind::optional || type.kind == TypeKind::pointer || type.kind == TypeKind::shared;
    const bool was_one = !holds && std::exchange(was_one_, false);
    switch (type.kind) {
      case TypeKind::constant:
        return;
      case TypeKind::tensor:
        return visit_tensor(*type.tensor, object, place, was_one);
      case TypeKind::value:
        return visit_value(*type.value, object, place);
      case TypeKind::module:
      case TypeKind::tuple:
        return visit_fields(type, object, place, depth);
      case TypeKind::list:
      case TypeKind::array:
        return visit_list(type, object, place, depth, was_one);
      case TypeKind::map:
        return visit_map(type, object, place, depth);
      case TypeKind::variant:
        return visit_variant(type, object, place, depth);
      case TypeKind::optional:
      case TypeKind::pointer:
        return visit_holder(type, object, place, depth);
      case TypeKind::shared:
        return visit_shared(type, object, place, depth);
    }
  }

  bool container_fits(const Place& place, bool named) {
    if (!place.exists || tree_.guessed()) return true;
    const NodeKind kind = tree_.kind(place);
    const bool fits = named ? kind == NodeKind::module || kind == NodeKind::map
                            : kind == NodeKind::list || kind == NodeKind::array || kind == NodeKind::tuple;
    if (!fits)
      mismatch(Errc::kind_mismatch, "another kind of thing in the file", named ? "module" : "list", describe(place));
    return fits;
  }

  void visit_fields(const TypeInfo& type, void* object, const Place& place, int depth) {
    const bool named = type.kind == TypeKind::module;
    if (!container_fits(place, named)) return;
    const std::uint32_t version =
        place.node != no_index && named ? tree_.snapshot().version(tree_.node(place.node)) : 0;
    if (type.rewrite != nullptr && place.exists && version < type.version) {
      std::string at = tree_.flat() ? place.prefix : tree_.snapshot().path(place.node);
      outdated_bytes_ += at.size() + path_.size();
      if (outdated_bytes_ > max_outdated_bytes) {
        return fail(Error(Errc::limit, "paths of older modules that take more than 64 MiB").path(path_));
      }
      plan_.outdated.push_back({std::move(at), path_, &type, version});
      return;
    }
    const bool moves = !type.moved.empty() && place.exists;
    if (moves) moves_.push_back({type.moved, place, path_.size()});
    std::optional<FieldAddresses> addresses;
    if (object != nullptr) addresses.emplace(type, object);
    std::uint32_t hint = 0;
    for (std::size_t i = 0; i < type.fields.size(); ++i) {
      const FieldInfo& field = type.fields[i];
      Place at;
      if (!named) {
        at = tree_.element(place, i, hint);
      } else {
        std::string_view name = field.name;
        if (type.migrate != nullptr && version < type.version) {
          if (const auto older = type.migrate(version, field.name); !older.empty()) name = older;
        }
        at = tree_.child(place, name, hint);
        // Files of others say no version and have today's names.
        if (!at.exists && name != field.name) at = tree_.child(place, field.name, hint);
        for (std::size_t a = 0; !at.exists && a < field.aliases.size(); ++a) {
          at = tree_.child(place, field.aliases[a], hint);
        }
      }
      const Segment segment(*this, field.name);
      if (!at.exists) at = moved_here();
      if (field.flags.defaulted && not_there(*field.type, at) && !moved_below()) {
        row(Report::What::defaulted, path_);
        continue;
      }
      was_one_ = field.flags.was_one;
      visit(*field.type, object != nullptr ? (*addresses)[i] : nullptr, at, depth + 1);
      was_one_ = false;
    }
    if (moves) moves_.pop_back();
  }

  /// Files of others have `none` for what they do not record. To an optional or pointer that says more: it is empty.
  bool not_there(const TypeInfo& type, const Place& at) const {
    const bool holds =
        type.kind == TypeKind::optional || type.kind == TypeKind::pointer || type.kind == TypeKind::shared;
    return holds ? !at.exists : tree_.absent(at);
  }

  // ---- moved() ----

  /// The paths that a class says have moved, while it is visited.
  struct Moves {
    std::span<const MovedPath> paths;
    Place base;            // of the class
    std::size_t path = 0;  // length of its path
    std::string_view relative(std::string_view to) const { return to.substr(path == 0 ? 0 : path + 1); }
  };
  /// Where older files have what belongs at path_.
  Place moved_here() const {
    for (auto moves = moves_.rbegin(); moves != moves_.rend(); ++moves) {
      for (const MovedPath& moved : moves->paths) {
        if (moved.now != moves->relative(path_)) continue;
        if (Place at = tree_.below(moves->base, moved.then); at.exists) return at;
      }
    }
    return {};
  }
  /// Whether older files have something that belongs below path_.
  bool moved_below() const {
    for (const Moves& moves : moves_) {
      for (const MovedPath& moved : moves.paths) {
        const std::string_view here = moves.relative(path_);
        const bool below =
            moved.now.size() > here.size() && moved.now.starts_with(here) && moved.now[here.size()] == '.';
        if (below && tree_.below(moves.base, moved.then).exists) return true;
      }
    }
    return false;
  }

  // ---- lists ----

  /// Whether what is there is no list, but something that can be the element of one.
  bool is_one(const Place& place) const {
    if (tree_.absent(place)) return false;
    const NodeKind kind = tree_.kind(place);
    if (kind == NodeKind::list || kind == NodeKind::array || kind == NodeKind::tuple) return false;
    if (!tree_.flat()) return true;
    std::size_t n = 0;
    std::size_t gap = 0;
    return tree_.count(place, n, gap) && n == 0;
  }

  void visit_list(const TypeInfo& type, void* object, const Place& place, int depth, bool was_one) {
    const bool one = was_one && is_one(place);
    if (!one && !container_fits(place, false)) return;
    std::size_t n = 1;
    std::size_t gap = 0;
    const bool in_place = object != nullptr && mode_ == LoadMode::in_place && !options_.rebuild;
    const bool whole = one || tree_.count(place, n, gap);
    if (in_place && (!whole || !place.exists)) {
      n = type.container->size(object);  // part of a model: what is not there is named one by one below
    } else if (!whole) {
      const Segment segment(*this, std::to_string(gap));
      return mismatch(Errc::missing, "an element of a list is not in the file", "elements without a gap",
                      "none with this number");
    }
    const bool grows = type.container->clear != nullptr;
    if (!place.exists && !tree_.guessed()) return missing(path_);
    std::size_t have = object != nullptr || !grows ? type.container->size(object) : n;
    bool make = false;
    if (have != n || (object != nullptr && !type.element->writable)) {
      if (grows && (mode_ == LoadMode::fresh || options_.rebuild)) {
        make = true;
      } else if (have != n) {
        if (!grows && tree_.guessed() && n < have) {
          // The missing elements are named one by one below.
        } else {
          return mismatch(Errc::shape_mismatch, "a list of another length", std::to_string(have) + " elements",
                          std::to_string(n));
        }
      } else {
        return const_elements();
      }
    }
    const std::size_t visits = make ? n : std::max(have, grows ? n : have);
    if ((make || object == nullptr) && !room_for(*type.container, n)) return;
    const bool hooked = type.element->hook != nullptr;
    std::uint32_t hint = 0;
    char buffer[24];
    if (make && mutate_) {
      type.container->clear(object);
      type.container->reserve(object, n);
      for (std::size_t i = 0; i < n && !hooked; ++i) {
        const Segment segment(*this, decimal(i, buffer), false);
        if (make_element(type, object, 0, {}, nullptr) == nullptr) return;
      }
    }
    for (std::size_t i = 0; i < visits; ++i) {
      const Place at = !one ? tree_.element(place, i, hint) : i == 0 ? place : Place();
      const Segment segment(*this, decimal(i, buffer), false);
      if (make && mutate_ && hooked) {
        if (!visit_hooked(type, object, 0, {}, at, depth)) return;
      } else {
        const bool there = object != nullptr && (!make || mutate_);
        visit(*type.element, there ? type.container->at(object, i) : nullptr, at, depth + 1);
      }
    }
  }
  bool room_for(const ContainerOps& container, std::size_t n) {
    const std::size_t most = container.max_size != nullptr ? container.max_size() : ContainerOps::npos;
    if (n <= most) return true;
    mismatch(Errc::shape_mismatch, "a list of more elements than its type can hold",
             std::to_string(most) + " elements at most", std::to_string(n));
    return false;
  }

  // ---- elements ----
  //
  // Containers may move their elements when they take one more, so an element is visited, and its address kept, only
  // when its container is complete. Elements with a hook are made one by one, each from a whole record: nothing keeps
  // an address in them.

  /// Adds an element to a container. Null: it cannot be made, and the load has failed.
  void* make_element(const TypeInfo& type, void* container, std::size_t which, std::string_view key, void* record) {
    void* made = nullptr;
    // Code of the user: what it throws gets the path.
    auto added = guarded([&]() -> Status {
      made = type.container->add(container, which, key, record);
      return {};
    });
    if (!added) {
      Error error = std::move(added).error();
      fail(error.path().empty() ? std::move(error).path(path_) : std::move(error));
      return nullptr;
    }
    if (made == nullptr) {
      fail(
          Error(Errc::not_loadable, "cannot be made: its type has neither a default constructor nor a from_record hook")
              .path(path_));
    }
    return made;
  }

  /// Makes an element by its hook. False: give up.
  bool visit_hooked(const TypeInfo& type, void* container, std::size_t which, std::string_view key, const Place& at,
                    int depth) {
    const HookOps& hook = *element_of(type, which).hook;
    const std::unique_ptr<void, void (*)(void*)> record(hook.create(), hook.destroy);
    // Ties hold within the record; it is gone before another object could share with it.
    auto outside = std::exchange(from_file_, {});
    visit(*hook.record, record.get(), at, depth + 1);
    from_file_ = std::move(outside);
    // The hook is not shown a record that is not whole.
    if (!plan_.outdated.empty()) return true;
    return !failed_ && make_element(type, container, which, key, record.get()) != nullptr;
  }

  /// Makes the only element of a container (or only checks, where there is no object yet) and loads it.
  void visit_only(const TypeInfo& type, void* container, std::size_t which, const Place& at, int depth) {
    const TypeInfo& element = element_of(type, which);
    if (container == nullptr) return visit(element, nullptr, at, depth + 1);
    if (element.hook != nullptr) {
      static_cast<void>(visit_hooked(type, container, which, {}, at, depth));
    } else if (void* made = make_element(type, container, which, {}, nullptr)) {
      visit(element, made, at, depth + 1);
    }
  }
  static const TypeInfo& element_of(const TypeInfo& type, std::size_t which) {
    return type.kind == TypeKind::variant ? *type.fields[which].type : *type.element;
  }

  void visit_map(const TypeInfo& type, void* object, const Place& place, int depth) {
    if (!container_fits(place, true)) return;
    if (!place.exists && !tree_.guessed()) return missing(path_);
    if (object == nullptr || mode_ == LoadMode::fresh || options_.rebuild) {
      visit_new_map(type, mutate_ ? object : nullptr, place, depth);
      return;
    }
    // In place: the module's keys; others in the file are unused.
    if (!type.element->writable && type.container->size(object) != 0) return const_elements();
    struct Context {
      Matcher& matcher;
      const TypeInfo& type;
      const Place& place;
      std::uint32_t hint;
      int depth;
    } context{*this, type, place, 0, depth};
    type.container->each(object, &context, [](void* c, std::string_view key, void* element) {
      auto& in = *static_cast<Context*>(c);
      const Place at = in.matcher.tree_.child(in.place, key, in.hint);
      const Segment segment(in.matcher, key);
      in.matcher.visit(*in.type.element, element, at, in.depth + 1);
    });
  }
  void visit_new_map(const TypeInfo& type, void* object, const Place& place, int depth) {
    const bool hooked = type.element->hook != nullptr;
    if (object != nullptr) type.container->clear(object);
    if (object != nullptr && !hooked) {
      std::vector<std::string> keys;
      tree_.each(place, [&](std::string_view key, const Place&) { keys.emplace_back(key); });
      // A map that is a sorted vector takes each at its end.
      if (!std::is_sorted(keys.begin(), keys.end())) std::sort(keys.begin(), keys.end());
      for (const std::string& key : keys) {
        const Segment segment(*this, key);
        if (make_element(type, object, 0, key, nullptr) == nullptr) return;
      }
    }
    bool going = true;
    tree_.each(place, [&](std::string_view key, const Place& at) {
      const Segment segment(*this, key);
      if (object == nullptr) {
        visit(*type.element, nullptr, at, depth + 1);
      } else if (hooked) {
        going = going && visit_hooked(type, object, 0, key, at, depth);
      } else {
        visit(*type.element, make_element(type, object, 0, key, nullptr), at, depth + 1);  // the key's element
      }
    });
  }

  /// Whether the file has a field of that module there, under any of its names.
  bool has_field_of(const TypeInfo& type, const Place& place) const {
    if (!place.exists) return false;
    if (type.kind == TypeKind::shared) return has_field_of(*type.element, place);
    std::uint32_t hint = 0;
    const auto has = [&](std::string_view name) { return tree_.child(place, name, hint).exists; };
    return std::any_of(type.fields.begin(), type.fields.end(), [&](const FieldInfo& field) {
      return has(field.name) || std::any_of(field.aliases.begin(), field.aliases.end(), has);
    });
  }

  void visit_variant(const TypeInfo& type, void* object, const Place& place, int depth) {
    std::size_t which = ContainerOps::npos;
    Place at;
    for (std::size_t i = 0; place.exists && i < type.fields.size(); ++i) {
      std::uint32_t hint = 0;
      Place found = tree_.child(place, type.fields[i].name, hint);
      if (!found.exists) continue;
      if (which != ContainerOps::npos) {
        return mismatch(Errc::kind_mismatch, "more than one alternative of a variant in the file", "one alternative",
                        std::string(type.fields[which].name) + " and " + std::string(type.fields[i].name));
      }
      which = i;
      at = std::move(found);
    }
    if (which == ContainerOps::npos && type.element != nullptr && has_field_of(*type.element, place)) {
      for (which = 0; type.fields[which].type != type.element;) ++which;
      at = place;
    }
    if (which == ContainerOps::npos) {
      if (!place.exists) return missing(path_);
      std::string names;
      for (const FieldInfo& f : type.fields) names += (names.empty() ? "" : " or ") + std::string(f.name);
      std::string found = describe(place);
      if (tree_.kind(place) == NodeKind::variant || (place.node == no_index && tree_.flat())) {
        tree_.each(place, [&, first = true](std::string_view name, const Place&) mutable {
          if (std::exchange(first, false)) found = name;
        });
      }
      return mismatch(Errc::kind_mismatch, "no known alternative of a variant in the file", names, std::move(found));
    }
    const Segment segment(*this, type.fields[which].name);
    if (object == nullptr) return visit(*type.fields[which].type, nullptr, at, depth + 1);
    const std::size_t now = type.container->size(object);
    if (now == which && type.fields[which].type->writable) {
      return visit(*type.fields[which].type, type.container->at(object, 0), at, depth + 1);
    }
    if (mode_ == LoadMode::in_place && !options_.rebuild) {
      if (now == which) return const_elements();
      const std::string have = now < type.fields.size() ? std::string(type.fields[now].name) : "no alternative";
      return mismatch(Errc::kind_mismatch, "another alternative of a variant", have,
                      std::string(type.fields[which].name));
    }
    visit_only(type, mutate_ ? object : nullptr, which, at, depth);
  }

  void visit_holder(const TypeInfo& type, void* object, const Place& place, int depth) {
    const bool there = !tree_.absent(place) || moved_below();
    if (const TypeInfo* tied = there ? nullptr : shared_pointee(type, object)) {
      // As below: one of the names is enough.
      return visit_shared(*tied, type.element->container->at(type.container->at(object, 0), 0), place, depth + 1);
    }
    if (!place.exists && !there && has_aliases_ && !quiet_ && !allow_missing_.match(path_)) {
      left_empty_.push_back(keep_path());
    }
    if (object == nullptr) {
      if (there) visit(*type.element, nullptr, place, depth + 1);
      return;
    }
    const bool have = type.container->size(object) != 0;
    if (have && there && type.element->writable)
      return visit(*type.element, type.container->at(object, 0), place, depth + 1);
    if (!have && !there) return;
    const bool may_change = mode_ == LoadMode::fresh || options_.rebuild;
    if (!there) {
      if (!may_change) return missing(path_);
      if (mutate_) type.container->clear(object);
      return;
    }
    if (!may_change) {
      return mismatch(Errc::kind_mismatch, "the file has what the module's optional or pointer does not",
                      have ? "an element that can be loaded in place" : "nothing", describe(place));
    }
    visit_only(type, mutate_ ? object : nullptr, 0, place, depth);
  }

  /// Of a holder whose object is loaded in place and may be shared under a class's name: how it is shared; else null.
  const TypeInfo* shared_pointee(const TypeInfo& type, void* object) const {
    const bool in_place = mode_ == LoadMode::in_place && !options_.rebuild;
    if (object == nullptr || !in_place || type.element->kind != TypeKind::variant) return nullptr;
    if (type.container->size(object) == 0) return nullptr;
    const std::size_t now = type.element->container->size(type.container->at(object, 0));
    if (now >= type.element->fields.size()) return nullptr;
    const TypeInfo* alternative = type.element->fields[now].type;
    return alternative->kind == TypeKind::shared ? alternative : nullptr;
  }

  // ---- ties ----

  struct Shared {
    bool loaded = false;
    std::uint32_t path = 0;  // in LoadPlan::paths
  };

  void visit_shared(const TypeInfo& type, void* object, const Place& place, int depth) {
    const bool named = !tree_.absent(place);
    const bool there = named || moved_below();
    const FileKey key{place.node, place.node == no_index ? place.prefix : std::string(), type.element};
    // An object that cannot be written is replaced, under each of its names.
    const bool replaces = object != nullptr && options_.rebuild && !type.element->writable;
    const bool makes =
        object != nullptr && mutate_ && (mode_ == LoadMode::fresh || replaces || type.container->size(object) == 0);
    if (makes && named) {
      // Two names of one thing in the file become one shared object.
      const auto [found, first] = from_file_.try_emplace(key, FromFile{object, type.container, true});
      if (!first) {
        if (found->second.open) return fail(Error(Errc::cycle, "a shared object contains itself").path(path_));
        mark_all_used(place);
        type.container->share(object, found->second.ops->owner(found->second.object));
        row(Report::What::tied, path_);
        return;
      }
      // What the constructor tied together and the file has apart is made apart.
      if (type.container->size(object) != 0 &&
          !shared_.try_emplace(type.container->at(object, 0), Shared{true, keep_path()}).second) {
        visit_only(type, object, 0, place, depth);
      } else {
        visit_holder(type, object, place, depth);
      }
      if (const auto made = from_file_.find(key); made != from_file_.end()) made->second.open = false;
      return;
    }
    if (object == nullptr || makes || replaces) return visit_holder(type, object, place, depth);
    if (type.container->size(object) == 0) return visit_holder(type, object, place, depth);
    // Loading in place: one of the names is enough; the first in the module's order is used.
    const auto [found, first] = shared_.try_emplace(type.container->at(object, 0), Shared{false, keep_path()});
    Shared& shared = found->second;
    if (!there) {
      if (!first && shared.loaded) row(Report::What::tied, path_);
      return;
    }
    if (!shared.loaded) {
      shared.loaded = true;
      shared.path = keep_path();
      if (mutate_ && named) from_file_.try_emplace(key, FromFile{object, type.container, false});
      const Tie outer = std::exchange(tie_, {});
      visit_holder(type, object, place, depth);
      tie_ = outer;
      return;
    }
    const Tie outer = std::exchange(tie_, {shared.path, path_.size()});
    const bool mutating = std::exchange(mutate_, false);
    visit(*type.element, type.container->at(object, 0), place, depth + 1);
    tie_ = outer;
    mutate_ = mutating;
    row(Report::What::tied, path_);
  }

  /// Notes that what the file has here must be what is loaded under the first name of the shared object.
  void note_tie(const TensorOps* ops, const Value* value, std::uint32_t number) {
    if (quiet_) return;
    plan_.ties.push_back({ops, value, number, keep_path(), tie_.first, tie_.skip});
  }

  /// Everything below a place that is used under another name.
  void mark_all_used(const Place& place) {
    use(place);
    if (tree_.flat() || place.node == no_index) return;
    for (std::uint32_t i = place.node; i < tree_.node(place.node).end; ++i) used_[i] = true;
  }

  // ---- leaves ----

  void visit_tensor(const TensorOps& ops, void* object, const Place& place, bool was_one) {
    if (!place.exists || place.node == no_index) {
      if (place.exists)
        return mismatch(Errc::kind_mismatch, "another kind of thing in the file", "tensor", describe(place));
      return missing(path_);
    }
    const Node& node = tree_.node(place.node);
    if (node.kind == NodeKind::none) return missing(path_);
    std::optional<Snapshot> one;
    if (was_one) one = one_element(tree_.snapshot(), place.node, rank_of(ops, object));
    if (!one && node.kind != NodeKind::tensor) {
      return mismatch(Errc::kind_mismatch, "another kind of thing in the file", "tensor", std::string(name(node.kind)));
    }
    const LeafView leaf = one ? one->leaf(0) : tree_.snapshot().leaf(node.index);
    if (ops.bind != nullptr) {
      if (object != nullptr && tie_.first == PathStore::none) {
        ops.bind(object, one ? one->data() : tree_.snapshot().data(), one ? 0 : node.index);
      }
      row(Report::What::applied, path_);
      return;
    }
    if (!shape_fits(ops, object, leaf) || !dtype_fits(ops, leaf)) return;
    std::uint32_t number = node.index;
    if (one) {
      number = static_cast<std::uint32_t>(tree_.snapshot().leaf_count() + plan_.ones.size());
      plan_.ones.push_back({*std::move(one), place.node});
    }
    if (tie_.first != PathStore::none) return note_tie(&ops, nullptr, number);
    plan_.tensors.push_back({number, &ops, object, keep_path()});
  }

  /// Bytes of tensors that the file can hold; as many as they take where they are not in a file.
  std::uint64_t capacity() {
    if (!capacity_) {
      const SnapshotData& data = *tree_.snapshot().data();
      std::uint64_t leaves = 0;
      for (const LeafData& leaf : data.leaves) leaves = checked_add(leaves, leaf.bytes).value_or(UINT64_MAX);
      capacity_ = data.capacity != 0 ? std::min(data.capacity, leaves) : leaves;
    }
    return *capacity_;
  }

  /// The rank that the tensor has to have; -1: any.
  int rank_of(const TensorOps& ops, const void* object) const {
    if (ops.rank >= 0 || object == nullptr || ops.shape == nullptr || mode_ == LoadMode::fresh) return ops.rank;
    Shape shape;
    ops.shape(object, shape);
    return static_cast<int>(shape.rank());
  }

  std::uint32_t keep_path() {
    if (open_.empty())
      return root_path_ != PathStore::none ? root_path_ : root_path_ = plan_.paths.add(PathStore::none, "");
    std::size_t first = open_.size();
    while (first != 0 && open_[first - 1].stored == PathStore::none) --first;
    for (; first != open_.size(); ++first) {
      const std::size_t end = first + 1 != open_.size() ? open_[first + 1].begin : path_.size();
      const std::string_view segment = std::string_view(path_).substr(open_[first].begin, end - open_[first].begin);
      open_[first].stored = plan_.paths.add(first != 0 ? open_[first - 1].stored : PathStore::none, segment);
    }
    return open_.back().stored;
  }

  bool shape_fits(const TensorOps& ops, void* object, const LeafView& leaf) {
    if (ops.rank >= 0 && leaf.shape().size() != static_cast<std::size_t>(ops.rank)) {
      mismatch(Errc::shape_mismatch, "a tensor of another rank", "rank " + std::to_string(ops.rank),
               "rank " + std::to_string(leaf.shape().size()) + " " + to_string(leaf.shape()));
      return false;
    }
    const auto elements = element_count(leaf.shape());
    // A number, as g++-12 at -O3 warns of an optional here.
    const std::uint64_t bytes = (elements ? byte_length(ops.dtype, *elements) : std::nullopt).value_or(UINT64_MAX);
    const bool countable = bytes != UINT64_MAX;
    if (countable) total_ = checked_add(total_, bytes).value_or(UINT64_MAX);
    stored_ = checked_add(stored_, leaf.byte_size()).value_or(UINT64_MAX);
    const Limits& limits = options_.limits;
    const auto above = [](std::uint64_t n, std::uint64_t limit) { return limit != 0 && n > limit; };
    // Without a bound of the caller: what the file can hold, at whatever dtypes the module has.
    const bool multiplied = limits.total_bytes == 0 && stored_ > add_scaled(tensor_base, capacity(), max_tied_copies);
    const bool beyond = limits.tensor_bytes == 0 && leaf.byte_size() > add_scaled(tensor_base, capacity(), 1);
    if (!countable || above(bytes, limits.tensor_bytes) || above(total_, limits.total_bytes) || multiplied || beyond) {
      fail(Error(Errc::limit, multiplied || beyond ? "more tensor memory than a file of this size can hold"
                                                   : "more tensor memory than Limits allow")
               .path(path_)
               .found(countable ? std::to_string(bytes) + " bytes" : "2^64 bytes or more"));
      return false;
    }
    if (object == nullptr && ops.fresh_shape == nullptr) return true;
    const bool free = !ops.fixed_shape && (mode_ == LoadMode::fresh || options_.rebuild || ops.unset(object));
    if (free) return true;
    Shape shape;
    if (object != nullptr) {
      ops.shape(object, shape);
    } else {
      ops.fresh_shape(shape);
    }
    if (std::equal(shape.begin(), shape.end(), leaf.shape().begin(), leaf.shape().end())) return true;
    mismatch(Errc::shape_mismatch, "a tensor of another shape", to_string(shape), to_string(leaf.shape()));
    return false;
  }

  bool dtype_fits(const TensorOps& ops, const LeafView& leaf) {
    if (element_size(leaf.dtype()) != 0 && convertible(leaf.dtype(), ops.dtype, options_.convert)) return true;
    mismatch(Errc::dtype_mismatch, "dtypes that do not convert, or only when allowed", std::string(name(ops.dtype)),
             std::string(name(leaf.dtype())));
    return false;
  }

  void visit_value(const ValueOps& ops, void* object, const Place& place) {
    if (tree_.absent(place)) return missing(path_);
    const Value* found = nullptr;
    if (place.node != no_index && tree_.node(place.node).kind == NodeKind::value) {
      found = &tree_.snapshot().value(tree_.node(place.node));
    } else if (ops.dtype == DType::none && tree_.guessed()) {
      found = put_together(place);
    }
    if (found == nullptr) {
      if (place.node == no_index) return missing(path_);
      return mismatch(Errc::kind_mismatch, "another kind of thing in the file", "value", describe(place));
    }
    const Value& value = *found;
    if (tie_.first != PathStore::none) return note_tie(nullptr, &value, no_index);
    const auto fits = [&](auto read) {
      std::string_view expected;
      auto done = guarded([&]() -> Status {  // code of the user, which may throw
        expected = read();
        return {};
      });
      if (!done) {
        fail(std::move(done).error().path(path_));
        return false;
      }
      if (!expected.empty()) bad_value(expected, value);
      return expected.empty();
    };
    if (object != nullptr && mutate_) {
      if (fits([&] { return ops.from_value(object, value); })) report_.add(Report::What::applied, path_);
      return;
    }
    if (ops.check != nullptr && !fits([&] { return ops.check(value); })) return;
    plan_.values.push_back({&ops, object, &value, keep_path()});
  }
  /// A value that is a map or a list, whose format could not tell it from a module: its parts are entries of the file.
  /// Null where there is something else among them.
  const Value* put_together(const Place& place) {
    std::vector<std::uint32_t> parts;
    auto value = value_at(place, 0, parts);
    if (!value) return nullptr;
    for (const std::uint32_t node : parts) used_[node] = true;
    return &plan_.put_together.emplace_back(*std::move(value));
  }
  std::optional<Value> value_at(const Place& place, int depth, std::vector<std::uint32_t>& parts) {
    if (depth > max_value_depth || place.alias != no_index) return std::nullopt;
    NodeKind kind = tree_.kind(place);
    if (place.node != no_index) parts.push_back(place.node);
    if (kind == NodeKind::tensor) return std::nullopt;
    if (kind == NodeKind::value) return tree_.snapshot().value(tree_.node(place.node));
    if (kind == NodeKind::none) return Value();
    std::vector<std::pair<std::uint32_t, std::pair<std::string, Value>>> found;
    bool whole = true;
    tree_.each(place, [&](std::string_view key, const Place& at) {
      const std::size_t first = parts.size();
      auto part = whole ? value_at(at, depth + 1, parts) : std::nullopt;
      whole = part.has_value() && first != parts.size();
      if (whole) found.push_back({parts[first], {std::string(key), *std::move(part)}});
    });
    if (!whole) return std::nullopt;
    // Flat names come sorted; the file's order is nearer to what the map's was.
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    Value::Map entries;
    entries.reserve(found.size());
    for (auto& [node, entry] : found) entries.push_back(std::move(entry));
    // Names alone say 0, 1, … of a list, in the order of text.
    std::size_t n = 0;
    std::size_t gap = 0;
    const bool named = place.node != no_index && !(tree_.flat() && !entries.empty());
    const bool list =
        named ? kind == NodeKind::list : !entries.empty() && tree_.count(place, n, gap) && n == entries.size();
    if (!list) return Value(std::move(entries));
    Value::List elements(entries.size());
    for (auto& [key, part] : entries) {
      std::size_t number = 0;
      if (!parse_index(key, number) || number >= elements.size()) return std::nullopt;
      elements[number] = std::move(part);
    }
    return Value(std::move(elements));
  }
  void bad_value(std::string_view expected, const Value& value) {
    std::string found(name(value.kind()));
    if (value.as_i64() != nullptr) found += " " + std::to_string(*value.as_i64());
    mismatch(Errc::value_mismatch, "a value that does not fit the field", std::string(expected), std::move(found));
  }

  /// What is missing under one name may be there under another.
  void suggest() {
    constexpr std::size_t most = 50;
    const auto each = [&](const std::vector<std::string>& names, const std::vector<std::string>& others) {
      for (std::size_t i = 0; i < std::min(names.size(), most); ++i) {
        const std::string_view similar = most_similar(names[i], others);
        if (similar.empty()) continue;
        row(Report::What::suggested, names[i], similar);
        if (failed_->path() != names[i] || !failed_->found().empty()) continue;
        failed_ = std::move(*failed_).found("did you mean " + std::string(similar) + "?");
      }
    };
    each(missing_, unused_);
    each(unused_, missing_);
  }

  void find_unused() {
    const auto nodes = tree_.snapshot().nodes();
    bool renamed = false;
    const auto unused = [&](std::uint32_t i) {
      const NodeKind kind = nodes[i].kind;
      return !used_[i] && (kind == NodeKind::tensor || kind == NodeKind::value || kind == NodeKind::alias);
    };
    std::uint32_t last = static_cast<std::uint32_t>(nodes.size());
    while (last != 0 && !unused(last - 1)) --last;
    RunningPath paths(*tree_.snapshot().data());
    for (std::uint32_t i = 0; i < last; ++i) {
      const std::string_view path = paths.of(i);  // of each, since it continues the one before
      if (!unused(i)) continue;
      if (nodes[i].kind == NodeKind::alias && used_[nodes[i].index]) {
        // A further name of what is loaded says nothing new, unless it is the older name of what was left empty.
        if (left_empty_.empty()) {
          row(Report::What::tied, path);
          continue;
        }
        if (!std::exchange(renamed, true)) {
          for (const std::uint32_t empty : left_empty_) {
            const std::string shown = plan_.paths.shown(empty);
            row(Report::What::missing, shown);
            compare_later(missing_, shown);
          }
        }
      }
      row(Report::What::unused, path);
      compare_later(unused_, path);
      if (!failed_ && !allow_unused_.match(path)) {
        fail(Error(Errc::unused, "the file has an entry that the module does not use").path(std::string(path)));
      }
    }
  }

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
  bool quiet_;            // adds no rows
  bool was_one_ = false;  // what is visited next: the field's flag
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
  struct FromFile {
    const void* object;  // the first shared pointer to it
    const ContainerOps* ops;
    bool open;  // it is being loaded
  };
  std::unordered_map<FileKey, FromFile, FileKeyHash> from_file_;
};

}  // namespace

std::uint32_t PathStore::add(std::uint32_t parent, std::string_view segment) {
  const std::uint64_t above = parent != none ? parts_[parent].whole : 0;
  parts_.push_back({text_.size(), above + segment.size(), static_cast<std::uint32_t>(segment.size()), parent});
  text_ += segment;
  return static_cast<std::uint32_t>(parts_.size() - 1);
}

std::string PathStore::text(std::uint32_t path) const {
  std::string whole(static_cast<std::size_t>(parts_[path].whole), '\0');
  for (; path != none; path = parts_[path].parent) {
    const Part& part = parts_[path];
    segment(part).copy(whole.data() + part.whole - part.size, part.size);
  }
  return whole;
}

std::string PathStore::shown(std::uint32_t path) const {
  constexpr std::size_t max = Report::max_part_bytes;
  if (parts_[path].whole <= 2 * max) return text(path);
  // What is cut out anyway is left out: as much of both ends as is shown.
  std::string both(2 * max, '\0');
  for (std::uint32_t p = path; p != none; p = parts_[p].parent) {
    const Part& part = parts_[p];
    const std::uint64_t begin = part.whole - part.size;
    const std::string_view all = segment(part);
    if (begin < max) all.substr(0, static_cast<std::size_t>(max - begin)).copy(both.data() + begin, all.size());
    const std::uint64_t tail = parts_[path].whole - max;  // where the last bytes begin
    if (part.whole <= tail) continue;
    const std::uint64_t from = std::max(begin, tail);
    all.substr(static_cast<std::size_t>(from - begin)).copy(both.data() + max + (from - tail), all.size());
  }
  return shortened(both, max);
}

Status match(const Tree& tree, const TypeInfo& type, void* object, LoadMode mode, Walking walking,
             const LoadOptions& options, Report& report, LoadPlan& plan) {
  auto status = Matcher(tree, mode, walking, options, report, plan).run(type, object);
  plan.snapshot = plan.ones.empty() ? tree.snapshot() : with_leaves(tree.snapshot(), plan.ones);
  return status;
}

}  // namespace detail
}  // namespace v0
}  // namespace stele
