// The walk object -> visitor over the tables of a module or a Record. Independent of formats; needs no heap itself.
#pragma once

#include <cstddef>
#include <cstdint>

#include "stele/detail/type_info.hpp"
#include "stele/errc.hpp"
#include "stele/node.hpp"

namespace stele::inline v0::detail {

/// One step of the path from the top of a module to the current position of a walk.
struct Step {
  const Step* up;  // null at the top
  NodeName name;
};

/// A visitor has begin(kind, step, type, conditional), end(), tensor(step, ops, object, conditional), value(…),
/// none(…). For tied objects: alias(step, target), where target is the result of mark() from the visit of the target.
/// Each function may stop the walk by returning an Errc other than none. derived(type, object) follows the none() of an
/// object that the walk refuses because `type` describes only a base of the object's class.
///
/// Self provides the parts that depend on a heap: `Addresses` of a module's fields, and the visits of maps and shared
/// pointers.
template <class Self, class Visitor>
class WalkOver {
 public:
  Errc run(const TypeInfo& type, const void* object) {
    return visit(type, const_cast<void*>(object), Step{nullptr, ""}, false, 0);
  }

 protected:
  explicit WalkOver(Visitor& visitor, bool constants = true) : visitor_(visitor), constants_(constants) {}

  Errc visit(const TypeInfo& type, void* object, const Step& at, bool conditional, int depth) {
    if (depth > Self::deepest) return Errc::limit;
    if (type.other_class != nullptr && type.other_class(object) != nullptr) {
      static_cast<void>(visitor_.none(at, conditional));  // sets the path of the error
      visitor_.derived(type, object);
      return Errc::kind_mismatch;
    }
    switch (type.kind) {
      case TypeKind::none:
        return visitor_.none(at, conditional);
      case TypeKind::tensor:
        return visitor_.tensor(at, *type.tensor, object, conditional);
      case TypeKind::value:
        return visitor_.value(at, *type.value, object, conditional);
      case TypeKind::module:
      case TypeKind::tuple: {
        if (const Errc e = begin(type, at, conditional); e != Errc::none) return e;
        const typename Self::Addresses addresses(self(), type, object);
        if (!addresses.complete()) return Errc::limit;
        for (std::size_t i = 0; i < type.fields.size(); ++i) {
          const FieldInfo& field = type.fields[i];
          const bool skipped = field.flags.constant && !constants_;
          if (skipped && type.kind == TypeKind::module) continue;
          const Step step{&at, type.kind == TypeKind::tuple ? NodeName::element(i) : NodeName(field.name)};
          const Errc e =
              skipped ? visitor_.none(step, false) : visit(*field.type, addresses[i], step, false, depth + 1);
          if (e != Errc::none) return e;
        }
        return visitor_.end();
      }
      case TypeKind::list:
      case TypeKind::array: {
        if (const Errc e = begin(type, at, conditional); e != Errc::none) return e;
        const std::size_t n = type.container->size(object);
        for (std::size_t i = 0; i < n; ++i) {
          const Step step{&at, NodeName::element(i)};
          const Errc e = visit(*type.element, type.container->at(object, i), step, true, depth + 1);
          if (e != Errc::none) return e;
        }
        return visitor_.end();
      }
      case TypeKind::map:
        return self().visit_map(type, object, at, conditional, depth);
      case TypeKind::variant: {
        const std::size_t which = type.container->size(object);
        if (which >= type.fields.size()) return visitor_.none(at, conditional);
        if (const Errc e = begin(type, at, conditional); e != Errc::none) return e;
        const FieldInfo& alternative = type.fields[which];
        const Step step{&at, NodeName(alternative.name)};
        const Errc e = visit(*alternative.type, type.container->at(object, 0), step, true, depth + 1);
        return e != Errc::none ? e : visitor_.end();
      }
      case TypeKind::optional:
      case TypeKind::pointer:
        if (type.container->size(object) == 0) return visitor_.none(at, conditional);
        return visit_held(type, object, at, conditional, depth);
      case TypeKind::shared:
        return self().visit_shared(type, object, at, conditional, depth);
    }
    return Errc::none;
  }

  /// Visits the pointee of an optional or pointer. Files have the same `none` for an empty pointer and for an empty
  /// pointee, so an empty pointee in a pointer that is not empty is an error.
  Errc visit_held(const TypeInfo& type, void* object, const Step& at, bool conditional, int depth) {
    const TypeInfo& held = *type.element;
    void* const inner = type.container->at(object, 0);
    const bool holds =
        held.kind == TypeKind::optional || held.kind == TypeKind::pointer || held.kind == TypeKind::shared;
    if (holds && held.container->size(inner) == 0) {
      static_cast<void>(visitor_.none(at, conditional));  // sets the path of the error
      return Errc::not_representable;
    }
    return visit(held, inner, at, true, depth + 1);
  }

  Errc begin(const TypeInfo& type, const Step& at, bool conditional) {
    static constexpr NodeKind kinds[] = {NodeKind::none,   NodeKind::tensor, NodeKind::value,
                                         NodeKind::module, NodeKind::tuple,  NodeKind::list,
                                         NodeKind::array,  NodeKind::map,    NodeKind::variant};
    return visitor_.begin(kinds[static_cast<std::size_t>(type.kind)], at, type, conditional);
  }

  Self& self() { return static_cast<Self&>(*this); }

  Visitor& visitor_;
  bool constants_;  // visits fields with FieldFlags::constant
};

/// Refuses types that need a heap, and bounds the stack memory.
template <class Visitor>
class HeaplessWalk : public WalkOver<HeaplessWalk<Visitor>, Visitor> {
 public:
  using Base = WalkOver<HeaplessWalk<Visitor>, Visitor>;
  explicit HeaplessWalk(Visitor& visitor) : Base(visitor) {}

 private:
  friend Base;
  static constexpr int deepest = 32;

  // The addresses of the fields of all open modules, without gaps.
  class Addresses {
   public:
    Addresses(HeaplessWalk& walk, const TypeInfo& type, void* object)
        : walk_(walk), first_(walk.used_), complete_(type.slots <= max_addresses - first_) {
      if (!complete_) return;
      type.addresses(object, walk.addresses_ + first_);
      walk.used_ = first_ + type.fields.size();
    }
    ~Addresses() { walk_.used_ = first_; }
    Addresses(const Addresses&) = delete;
    Addresses& operator=(const Addresses&) = delete;
    bool complete() const { return complete_; }
    void* operator[](std::size_t i) const { return walk_.addresses_[first_ + i]; }

   private:
    HeaplessWalk& walk_;
    std::size_t first_;
    bool complete_;
  };

  Errc visit_map(const TypeInfo&, void*, const Step& at, bool conditional, int) { return refuse(at, conditional); }
  Errc visit_shared(const TypeInfo&, void*, const Step& at, bool conditional, int) { return refuse(at, conditional); }
  Errc refuse(const Step& at, bool conditional) {
    static_cast<void>(this->visitor_.none(at, conditional));  // sets the position of the error
    return Errc::unsupported;
  }

  static constexpr std::size_t max_addresses = 160;  // STELE_MODULE lists up to 156 fields
  void* addresses_[max_addresses];
  std::size_t used_ = 0;
};

}  // namespace stele::inline v0::detail
