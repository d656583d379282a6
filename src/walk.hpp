// The walk object -> visitor: over the tables of a module or a Record. Knows no format.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "stele/detail/type_info.hpp"
#include "stele/snapshot.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

/// Nested objects deeper than this are refused, on save and on load: a recursive module (a linked list) would otherwise
/// overflow the stack. A frame of either walk is under 1 KiB, so this stays within a thread's smallest usual stack.
inline constexpr int max_depth = 512;

/// Addresses of a module's fields, on the stack for up to 16.
class FieldAddresses {
 public:
  FieldAddresses(const TypeInfo& type, void* object) {
    if (type.slots > few_.size()) many_ = std::make_unique<void*[]>(type.slots);
    type.addresses(object, data());
  }
  void* operator[](std::size_t i) const { return many_ ? many_[i] : few_[i]; }

 private:
  void** data() { return many_ ? many_.get() : few_.data(); }
  std::array<void*, 16> few_;
  std::unique_ptr<void*[]> many_;
};

/// Visitor: begin(kind, name, type, conditional), end(), tensor(name, ops, object, conditional), value(…), none(…),
/// and for tied objects alias(name, target) with what mark() gave when the target was visited. Names are
/// SnapshotBuilder::Name. Any of them may stop the walk by returning an Errc other than none.
template <class Visitor>
class Walk {
 public:
  using Name = SnapshotBuilder::Name;
  explicit Walk(Visitor& visitor) : visitor_(visitor) {}

  Errc run(const TypeInfo& type, const void* object) {
    return visit(type, const_cast<void*>(object), Name(""), false, 0);
  }

 private:
  Errc visit(const TypeInfo& type, void* object, Name name, bool conditional, int depth) {
    if (depth > max_depth) return Errc::limit;
    switch (type.kind) {
      case TypeKind::constant:
        return visitor_.none(name, conditional);
      case TypeKind::tensor:
        return visitor_.tensor(name, *type.tensor, object, conditional);
      case TypeKind::value:
        return visitor_.value(name, *type.value, object, conditional);
      case TypeKind::module:
      case TypeKind::tuple: {
        if (const Errc e = begin(type, name, conditional); e != Errc::none) return e;
        const FieldAddresses addresses(type, object);
        for (std::size_t i = 0; i < type.fields.size(); ++i) {
          const FieldInfo& field = type.fields[i];
          const Name field_name = type.kind == TypeKind::tuple ? Name::element(i) : Name(field.name);
          if (const Errc e = visit(*field.type, addresses[i], field_name, false, depth + 1); e != Errc::none) return e;
        }
        return visitor_.end();
      }
      case TypeKind::list:
      case TypeKind::array: {
        if (const Errc e = begin(type, name, conditional); e != Errc::none) return e;
        const std::size_t n = type.container->size(object);
        for (std::size_t i = 0; i < n; ++i) {
          const Errc e = visit(*type.element, type.container->at(object, i), Name::element(i), true, depth + 1);
          if (e != Errc::none) return e;
        }
        return visitor_.end();
      }
      case TypeKind::map:
        return visit_map(type, object, name, conditional, depth);
      case TypeKind::variant: {
        const std::size_t which = type.container->size(object);
        if (which >= type.fields.size()) return visitor_.none(name, conditional);
        if (const Errc e = begin(type, name, conditional); e != Errc::none) return e;
        const FieldInfo& alternative = type.fields[which];
        const Errc e = visit(*alternative.type, type.container->at(object, 0), Name(alternative.name), true, depth + 1);
        return e != Errc::none ? e : visitor_.end();
      }
      case TypeKind::optional:
      case TypeKind::pointer:
        if (type.container->size(object) == 0) return visitor_.none(name, conditional);
        return visit(*type.element, type.container->at(object, 0), name, true, depth + 1);
      case TypeKind::shared:
        return visit_shared(type, object, name, conditional, depth);
    }
    return Errc::none;
  }

  Errc begin(const TypeInfo& type, Name name, bool conditional) {
    static constexpr NodeKind kinds[] = {NodeKind::none,   NodeKind::tensor, NodeKind::value,
                                         NodeKind::module, NodeKind::tuple,  NodeKind::list,
                                         NodeKind::array,  NodeKind::map,    NodeKind::variant};
    return visitor_.begin(kinds[static_cast<std::size_t>(type.kind)], name, type, conditional);
  }

  Errc visit_map(const TypeInfo& type, void* object, Name name, bool conditional, int depth) {
    if (const Errc e = begin(type, name, conditional); e != Errc::none) return e;
    using Entry = std::pair<std::string_view, void*>;
    std::vector<Entry> entries;
    entries.reserve(type.container->size(object));
    type.container->each(object, &entries, [](void* context, std::string_view key, void* element) {
      static_cast<std::vector<Entry>*>(context)->emplace_back(key, element);
    });
    // Unordered maps: bytes must depend on the content alone.
    if (!std::is_sorted(entries.begin(), entries.end())) std::sort(entries.begin(), entries.end());
    for (const auto& [key, element] : entries) {
      if (const Errc e = visit(*type.element, element, Name(key), true, depth + 1); e != Errc::none) return e;
    }
    return visitor_.end();
  }

  Errc visit_shared(const TypeInfo& type, void* object, Name name, bool conditional, int depth) {
    if (type.container->size(object) == 0) return visitor_.none(name, conditional);
    void* pointee = type.container->at(object, 0);
    const auto [found, fresh] = seen_.try_emplace(Key{pointee, type.element}, Seen{visitor_.mark(), true});
    if (!fresh) {
      if (found->second.open) {
        static_cast<void>(visitor_.none(name, conditional));  // the path of the error
        return Errc::cycle;
      }
      return visitor_.alias(name, found->second.mark, conditional);
    }
    const Errc e = visit(*type.element, pointee, name, true, depth + 1);
    seen_[Key{pointee, type.element}].open = false;
    return e;
  }

  struct Key {
    const void* object;
    const TypeInfo* type;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& k) const noexcept {
      return std::hash<const void*>()(k.object) * 31 + std::hash<const void*>()(k.type);
    }
  };
  struct Seen {
    std::uint32_t mark;
    bool open;
  };
  Visitor& visitor_;
  std::unordered_map<Key, Seen, Hash> seen_;
};

}  // namespace detail
}  // namespace v0
}  // namespace stele
