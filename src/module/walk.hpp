// The walk object -> visitor: supports any depth and number of fields, maps in the order of their keys, tied objects.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/limits.hpp"
#include "stele/detail/type_info.hpp"
#include "stele/detail/walk.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail {

/// Returns the error for an object whose class is not described by `type` (TypeInfo::other_class), without its path.
Error derived_error(const TypeInfo& type, const void* object);

/// Returns true if null is a value of the type.
bool accepts_null(const ValueOps& ops);

/// Addresses of a module's fields, on the stack for up to 16 fields.
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

template <class Visitor>
class Walk : public WalkOver<Walk<Visitor>, Visitor> {
 public:
  using Base = WalkOver<Walk<Visitor>, Visitor>;
  explicit Walk(Visitor& visitor, bool constants = true) : Base(visitor, constants) {}

 private:
  friend Base;
  using Base::visitor_;
  static constexpr int deepest = max_depth;

  class Addresses : public FieldAddresses {
   public:
    Addresses(Walk&, const TypeInfo& type, void* object) : FieldAddresses(type, object) {}
    static constexpr bool complete() { return true; }
  };

  Errc visit_map(const TypeInfo& type, void* object, const Step& at, bool conditional, int depth) {
    if (const Errc e = this->begin(type, at, conditional); e != Errc::none) return e;
    using Entry = std::pair<std::string_view, void*>;
    std::vector<Entry> entries;
    entries.reserve(type.container->size(object));
    type.container->each(object, &entries, [](void* context, std::string_view key, void* element) {
      static_cast<std::vector<Entry>*>(context)->emplace_back(key, element);
    });
    // For unordered maps: the bytes must depend only on the content.
    if (!std::is_sorted(entries.begin(), entries.end())) std::sort(entries.begin(), entries.end());
    for (const auto& [key, element] : entries) {
      const Step step{&at, NodeName(key)};
      if (const Errc e = this->visit(*type.element, element, step, true, depth + 1); e != Errc::none) return e;
    }
    return visitor_.end();
  }

  Errc visit_shared(const TypeInfo& type, void* object, const Step& at, bool conditional, int depth) {
    if (type.container->size(object) == 0) return visitor_.none(at, conditional);
    void* pointee = type.container->at(object, 0);
    const auto [found, fresh] = seen_.try_emplace(Key{pointee, type.element}, Seen{visitor_.mark(), true});
    if (!fresh) {
      if (found->second.open) {
        static_cast<void>(visitor_.none(at, conditional));  // sets the path of the error
        return Errc::cycle;
      }
      return visitor_.alias(at, found->second.mark, conditional);
    }
    const Errc e = this->visit_held(type, object, at, conditional, depth);
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
  std::unordered_map<Key, Seen, Hash> seen_;
};

}  // namespace stele::inline v0::detail
