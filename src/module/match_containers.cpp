// Matches lists, maps, variants, pointers and ties.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "module/matcher.hpp"
#include "module/state_dict.hpp"

namespace stele::inline v0::detail {

bool Matcher::is_one(const Place& place) const {
  if (tree_.absent(place)) return false;
  const NodeKind kind = tree_.kind(place);
  if (kind == NodeKind::list || kind == NodeKind::array || kind == NodeKind::tuple) return false;
  if (!tree_.flat()) return true;
  std::size_t n = 0;
  std::size_t gap = 0;
  return tree_.count(place, n, gap) && n == 0;
}

void Matcher::visit_list(const TypeInfo& type, void* object, const Place& place, int depth, bool was_one) {
  const bool one = was_one && is_one(place);
  if (!one && !container_fits(place, false)) return;
  std::size_t n = 1;
  std::size_t gap = 0;
  const bool in_place = object != nullptr && mode_ == LoadMode::in_place && !options_.rebuild;
  const bool whole = one || tree_.count(place, n, gap);
  if (in_place && (!whole || !place.exists)) {
    n = type.container->size(object);  // a part of a model: the loop below reports missing elements
  } else if (!whole) {
    const Segment segment(*this, std::to_string(gap));
    return mismatch(Errc::missing, "the file lacks an element of the list", "consecutive element numbers",
                    "no element with this number");
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
        // The loop below reports each missing element by name.
      } else {
        return mismatch(Errc::shape_mismatch, "the list has another length in the file",
                        std::to_string(have) + " elements", std::to_string(n) + " elements",
                        grows ? set_rebuild : std::string_view());
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
      const bool has_object = object != nullptr && (!make || mutate_);
      visit(*type.element, has_object ? type.container->at(object, i) : nullptr, at, depth + 1);
    }
  }
}

bool Matcher::room_for(const ContainerOps& container, std::size_t n) {
  const std::size_t limit = container.max_size != nullptr ? container.max_size() : ContainerOps::npos;
  if (n <= limit) return true;
  mismatch(Errc::shape_mismatch, "the list has more elements than its type can hold",
           "at most " + std::to_string(limit) + " elements", std::to_string(n) + " elements");
  return false;
}

void* Matcher::make_element(const TypeInfo& type, void* container, std::size_t which, std::string_view key,
                            void* record) {
  void* made = nullptr;
  // User code: exceptions get the path.
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
    fail(Error(Errc::not_loadable, "the type has neither a default constructor nor a from_record hook").path(path_));
  }
  return made;
}

bool Matcher::visit_hooked(const TypeInfo& type, void* container, std::size_t which, std::string_view key,
                           const Place& at, int depth) {
  const HookOps& hook = *element_of(type, which).hook;
  const std::unique_ptr<void, void (*)(void*)> record(hook.create(), hook.destroy);
  // Ties hold only within the record, which is destroyed before another object could share with it.
  auto outside = std::exchange(from_file_, {});
  const std::size_t unnamed = unnamed_.size();
  visit(*hook.record, record.get(), at, depth + 1);
  finish_unnamed(unnamed);
  from_file_ = std::move(outside);
  // The hook must not see an incomplete record.
  if (!plan_.outdated.empty()) return true;
  return !failed_ && make_element(type, container, which, key, record.get()) != nullptr;
}

void Matcher::visit_only(const TypeInfo& type, void* container, std::size_t which, const Place& at, int depth) {
  const TypeInfo& element = element_of(type, which);
  if (container == nullptr) return visit(element, nullptr, at, depth + 1);
  if (element.hook != nullptr) {
    static_cast<void>(visit_hooked(type, container, which, {}, at, depth));
  } else if (void* made = make_element(type, container, which, {}, nullptr)) {
    visit(element, made, at, depth + 1);
  }
}

void Matcher::each_tensor(const std::function<void(std::string_view name, const Place& at)>& visit) const {
  const auto nodes = tree_.snapshot().nodes();
  for (std::uint32_t i = 1; i < nodes.size(); ++i) {
    Place at;
    at.exists = true;
    at.node = i;
    if (nodes[i].kind == NodeKind::alias) {
      at.alias = i;
      at.node = nodes[i].index;
    }
    if (nodes[at.node].kind == NodeKind::tensor) visit({nodes[i].name, nodes[i].name_size}, at);
  }
}

void Matcher::visit_map(const TypeInfo& type, void* object, const Place& place, int depth) {
  if (!container_fits(place, true)) return;
  if (!place.exists && !tree_.guessed()) return missing(path_);
  const bool whole = depth == 0 && is_state_dict(type);
  if (object == nullptr || mode_ == LoadMode::fresh || options_.rebuild) {
    visit_new_map(type, mutate_ ? object : nullptr, place, depth, whole);
    return;
  }
  // In place: matches the module's keys; other keys in the file are unused.
  if (!type.element->writable && type.container->size(object) != 0) return const_elements();
  std::map<std::string_view, Place> tensors;  // by whole name
  if (whole) each_tensor([&](std::string_view name, const Place& at) { tensors.emplace(name, at); });
  struct Context {
    Matcher& matcher;
    const TypeInfo& type;
    const Place& place;
    const std::map<std::string_view, Place>* tensors;
    std::uint32_t hint;
    int depth;
  } context{*this, type, place, whole ? &tensors : nullptr, 0, depth};
  type.container->each(object, &context, [](void* c, std::string_view key, void* element) {
    auto& in = *static_cast<Context*>(c);
    Place at;
    if (in.tensors == nullptr) {
      at = in.matcher.tree_.child(in.place, key, in.hint);
    } else if (const auto named = in.tensors->find(key); named != in.tensors->end()) {
      at = named->second;
    }
    const Segment segment(in.matcher, key, in.tensors == nullptr);
    in.matcher.visit(*in.type.element, element, at, in.depth + 1);
  });
}

void Matcher::visit_new_map(const TypeInfo& type, void* object, const Place& place, int depth, bool whole) {
  const bool hooked = type.element->hook != nullptr;
  const auto each = [&](const std::function<void(std::string_view key, const Place& at)>& visit) {
    whole ? each_tensor(visit) : tree_.each(place, visit);
  };
  if (object != nullptr) type.container->clear(object);
  if (object != nullptr && !hooked) {
    std::vector<std::string> keys;
    each([&](std::string_view key, const Place&) { keys.emplace_back(key); });
    // A map that is a sorted vector inserts each key at its end.
    if (!std::is_sorted(keys.begin(), keys.end())) std::sort(keys.begin(), keys.end());
    for (const std::string& key : keys) {
      const Segment segment(*this, key, !whole);
      if (make_element(type, object, 0, key, nullptr) == nullptr) return;
    }
  }
  bool going = true;
  each([&](std::string_view key, const Place& at) {
    const Segment segment(*this, key, !whole);
    if (object == nullptr) {
      visit(*type.element, nullptr, at, depth + 1);
    } else if (hooked) {
      going = going && visit_hooked(type, object, 0, key, at, depth);
    } else {
      visit(*type.element, make_element(type, object, 0, key, nullptr), at, depth + 1);  // the key's element
    }
  });
}

bool Matcher::has_field_of(const TypeInfo& type, const Place& place) const {
  if (!place.exists) return false;
  if (type.kind == TypeKind::shared) return has_field_of(*type.element, place);
  std::uint32_t hint = 0;
  const auto has = [&](std::string_view name) { return tree_.child(place, name, hint).exists; };
  return std::any_of(type.fields.begin(), type.fields.end(), [&](const FieldInfo& field) {
    return has(field.name) || std::any_of(field.aliases.begin(), field.aliases.end(), has);
  });
}

void Matcher::visit_variant(const TypeInfo& type, void* object, const Place& place, int depth) {
  std::size_t which = ContainerOps::npos;
  Place at;
  for (std::size_t i = 0; place.exists && i < type.fields.size(); ++i) {
    std::uint32_t hint = 0;
    Place found = tree_.child(place, type.fields[i].name, hint);
    if (!found.exists) continue;
    if (which != ContainerOps::npos) {
      return mismatch(Errc::kind_mismatch, "the file has more than one alternative of the variant", "one alternative",
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
    return mismatch(Errc::kind_mismatch, "the file has no known alternative of the variant", names, found);
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
    return mismatch(Errc::kind_mismatch, "the file has another alternative of the variant", have,
                    std::string(type.fields[which].name), set_rebuild);
  }
  visit_only(type, mutate_ ? object : nullptr, which, at, depth);
}

void Matcher::visit_holder(const TypeInfo& type, void* object, const Place& place, int depth) {
  const bool present = !tree_.absent(place) || moved_below();
  const bool may_change = mode_ == LoadMode::fresh || options_.rebuild;
  if (const TypeInfo* tied = present || may_change ? nullptr : shared_pointee(type, object)) {
    // As in visit_shared() below, one of the names is sufficient.
    return visit_shared(*tied, type.element->container->at(type.container->at(object, 0), 0), place, depth + 1);
  }
  if (!place.exists && !present && has_aliases_ && !quiet_ && !allow_missing_.match(path_)) {
    left_empty_.push_back(keep_path());
  }
  if (object == nullptr) {
    if (present) visit(*type.element, nullptr, place, depth + 1);
    return;
  }
  const bool have = type.container->size(object) != 0;
  if (have && present && type.element->writable)
    return visit(*type.element, type.container->at(object, 0), place, depth + 1);
  if (may_change && !present && !place.exists && holds_shared(type)) {
    unnamed_.push_back({object, &type, keep_path()});
    return;
  }
  if (!have && !present) return;
  if (!present) {
    if (!may_change) return missing(path_);
    if (mutate_) type.container->clear(object);
    return;
  }
  if (!may_change) {
    return mismatch(Errc::kind_mismatch, "the optional or pointer cannot take the file's value in place",
                    have ? "an element that can be loaded in place" : "nothing", describe(place), set_rebuild);
  }
  visit_only(type, mutate_ ? object : nullptr, 0, place, depth);
}

const TypeInfo* Matcher::shared_pointee(const TypeInfo& type, void* object) const {
  if (object == nullptr || !holds_shared(type) || type.container->size(object) == 0) return nullptr;
  const std::size_t now = type.element->container->size(type.container->at(object, 0));
  if (now >= type.element->fields.size()) return nullptr;
  const TypeInfo* alternative = type.element->fields[now].type;
  return alternative->kind == TypeKind::shared ? alternative : nullptr;
}

void Matcher::visit_shared(const TypeInfo& type, void* object, const Place& place, int depth) {
  const bool named = !tree_.absent(place);
  const bool present = named || moved_below();
  const FileKey key{place.node, place.node == no_index ? place.prefix : std::string(), type.element};
  // An object that cannot be written in place is replaced under each of its names.
  const bool replaces = object != nullptr && options_.rebuild && !type.element->writable;
  const bool makes =
      object != nullptr && mutate_ && (mode_ == LoadMode::fresh || replaces || type.container->size(object) == 0);
  if (makes && named) {
    // Two names of one entry in the file become one shared object.
    const auto [found, first] = from_file_.try_emplace(key, FromFile{object, type.container, true});
    if (!first) {
      if (found->second.open) return fail(Error(Errc::cycle, "the shared object contains itself").path(path_));
      mark_all_used(place);
      type.container->share(object, found->second.ops->owner(found->second.object));
      row(Report::What::tied, path_);
      return;
    }
    // Separates objects that the constructor tied but the file stores separately.
    if (type.container->size(object) != 0 &&
        !shared_.try_emplace(type.container->at(object, 0), Shared{true, keep_path(), object, type.container}).second) {
      visit_only(type, object, 0, place, depth);
    } else {
      visit_holder(type, object, place, depth);
    }
    if (const auto made = from_file_.find(key); made != from_file_.end()) made->second.open = false;
    return;
  }
  if (makes && !place.exists && !present) {
    unnamed_.push_back({object, &type, keep_path()});
    if (type.container->size(object) != 0) return;
  }
  if (object == nullptr || makes || replaces) return visit_holder(type, object, place, depth);
  if (type.container->size(object) == 0) return visit_holder(type, object, place, depth);
  // Loading in place: one name is sufficient; the first in the module's order is used.
  Shared& shared = shared_.try_emplace(type.container->at(object, 0), Shared{false, keep_path()}).first->second;
  if (!present) {
    if (shared.loaded) return row(Report::What::tied, path_);
    early_.emplace_back(type.container->at(object, 0), keep_path());
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

bool Matcher::holds_shared(const TypeInfo& type) {
  if (type.element->kind != TypeKind::variant) return false;
  return std::any_of(type.element->fields.begin(), type.element->fields.end(),
                     [](const FieldInfo& field) { return field.type->kind == TypeKind::shared; });
}

void Matcher::report_early() {
  for (const auto& [object, path] : early_) {
    if (shared_.at(object).loaded) row(Report::What::tied, plan_.paths.shown(path));
  }
}

void Matcher::finish_unnamed(std::size_t first) {
  std::set<const TypeInfo*> loaded;
  for (const auto& [key, from] : from_file_) loaded.insert(key.type);
  for (std::size_t i = first; i < unnamed_.size(); ++i) {
    const Unnamed& pointer = unnamed_[i];
    const ContainerOps& outer = *pointer.type->container;
    if (outer.size(pointer.object) != 0) {
      const bool direct = pointer.type->kind == TypeKind::shared;
      const TypeInfo* const tied = direct ? pointer.type : shared_pointee(*pointer.type, pointer.object);
      void* const object =
          direct ? pointer.object : pointer.type->element->container->at(outer.at(pointer.object, 0), 0);
      const bool shares = tied != nullptr && tied->container->size(object) != 0;
      const auto other = shares ? shared_.find(tied->container->at(object, 0)) : shared_.end();
      if (other != shared_.end() && other->second.loaded) {  // the constructor tied it to an object in the file
        const Shared& made = other->second;
        if (mutate_ && made.ops != nullptr) tied->container->share(object, made.ops->owner(made.object));
        row(Report::What::tied, plan_.paths.shown(pointer.path));
        continue;
      }
      if (mutate_) outer.clear(pointer.object);
    }
    // The file does not distinguish an absent object from an additional name of another object.
    const auto held = [&](const FieldInfo& field) { return loaded.contains(field.type->element); };
    const std::span<const FieldInfo> classes = pointer.type->element->fields;
    const bool may_be_tied = pointer.type->kind == TypeKind::shared ? loaded.contains(pointer.type->element)
                                                                    : std::any_of(classes.begin(), classes.end(), held);
    if (may_be_tied) left_null_.push_back(pointer.path);
  }
  unnamed_.resize(first);
}

void Matcher::note_tie(const TensorOps* ops, const Value* value, std::uint32_t number) {
  if (quiet_) return;
  plan_.ties.push_back({ops, value, number, keep_path(), tie_.first, tie_.skip});
}

void Matcher::mark_all_used(const Place& place) {
  use(place);
  if (tree_.flat() || place.node == no_index) return;
  for (std::uint32_t i = place.node; i < tree_.node(place.node).end; ++i) used_[i] = true;
}

}  // namespace stele::inline v0::detail
