// The tables of a pointer to a base class with a list of classes; included by stele/derived.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>

#include "stele/derived.hpp"

namespace stele::inline v0::detail {

template <class M>
struct holder<SharedRecord<M>> {
  static constexpr Category category = Category::shared;
  using element = Record<M>;
};
template <class M>
struct module_of<SharedRecord<M>> {
  using type = M;
};

/// Operations on a pointer to a base. The address of an object is that of the complete object, because a pointer to a
/// second base has a different address.
template <class P>
struct BasePointer {
  using Base = std::remove_cv_t<typename holder<P>::element>;
  static P& get(const void* p) { return *static_cast<P*>(const_cast<void*>(p)); }
  static std::size_t size(const void* p) { return get(p) ? 1 : 0; }
  static void* self(const void* p, std::size_t) { return const_cast<void*>(p); }
  static void* object(const void* p, std::size_t) { return const_cast<void*>(dynamic_cast<const void*>(get(p).get())); }
  static void clear(void* p) { get(p).reset(); }
  template <class D>
  static void* add(void* p, std::size_t, std::string_view, void* record) {
    return make_element<D>(record, [&](auto... from) {
      get(p) = P(new D(from...));
      return object(p, 0);
    });
  }
};

/// Treats a shared_ptr to a base that holds a D as a shared_ptr to D: ties are between objects of one class,
/// independent of the types of their pointers.
template <class P, class D>
struct TiedTable : BasePointer<P> {
  using BasePointer<P>::get;
  static std::shared_ptr<void> owner(const void* p) { return {get(p), TiedTable::object(p, 0)}; }
  static void share(void* p, std::shared_ptr<void> object) { get(p) = std::static_pointer_cast<D>(std::move(object)); }
  static constexpr ContainerOps ops = [] {
    ContainerOps o;
    o.size = TiedTable::size;
    o.at = TiedTable::object;
    if constexpr (STELE_HEAP != 0) {
      o.clear = TiedTable::clear;
      o.add = TiedTable::template add<D>;
      o.owner = owner;
      o.share = share;
    }
    return o;
  }();
  static const TypeInfo value;
};
template <class P, class D>
constinit const TypeInfo TiedTable<P, D>::value = [] {
  TypeInfo info;
  info.kind = TypeKind::shared;
  info.element = &type_info<D, true>::value;
  info.container = &ops;
  return info;
}();

template <class Base, class D>
struct ListedClass {
  static_assert(std::is_base_of_v<Base, D> && std::is_convertible_v<D*, Base*>,
                "stele: a class in the list of stele::derived<Base> is not publicly derived from Base (this "
                "message names both)");
  static_assert(category_of<D, true> == Category::module,
                "stele: a class in the list of stele::derived<Base> has no field list: give it STELE_MODULE or "
                "STELE_MODULE_DERIVED");
  static constexpr bool can_be_made = [] {
    if constexpr (STELE_HEAP == 0 || std::is_default_constructible_v<D>) {
      return true;
    } else {
      return has_hook<D>();
    }
  }();
  static_assert(can_be_made,
                "stele: a class in the list of stele::derived<Base> cannot be made: it needs a public default "
                "constructor, or a static from_record(stele::Record<D>&&)");
  static constexpr bool ok = true;
};

/// The tables of P, a pointer to a base with a list. P holds a variant of the classes D whose object is P itself.
template <class P, class... D>
struct DerivedTable<P, ClassList<D...>> : BasePointer<P> {
  using typename BasePointer<P>::Base;
  using BasePointer<P>::get;
  static constexpr bool shared = holder<P>::category == Category::shared;
  using record =
      std::unique_ptr<std::conditional_t<shared, std::variant<SharedRecord<D>...>, std::variant<v0::Record<D>...>>>;

  static std::size_t which(const void* p) {
    if (!get(p)) return ContainerOps::npos;
    const Base& object = *get(p);
    const std::type_info& type = typeid(object);
    std::size_t n = 0;
    static_cast<void>(((type == typeid(D) || (++n, false)) || ...));
    return n < sizeof...(D) ? n : ContainerOps::npos;
  }
  static const char* other_class(const void* p) {
    if (!get(p) || which(p) != ContainerOps::npos) return nullptr;
    const Base& object = *get(p);
    return typeid(object).name();
  }
  /// Adds no object to the pointer, because an object can only be created after its class is known.
  static void* leave_empty(void* p, std::size_t, std::string_view, void*) { return p; }
  /// Creates the alternative of the variant.
  static void* choose(void* p, std::size_t which, std::string_view key, void* record) {
    if constexpr (shared) {
      DerivedTable::clear(p);  // the pointer is shared, or its object created, when an alternative is visited
      return p;
    } else {
      using Add = void* (*)(void*, std::size_t, std::string_view, void*);
      static constexpr Add add[] = {DerivedTable::template add<D>...};
      return add[which](p, which, key, record);
    }
  }
  static constexpr ContainerOps pointer_ops = [] {
    ContainerOps ops;
    ops.size = DerivedTable::size;
    ops.at = DerivedTable::self;
    if constexpr (STELE_HEAP != 0) {
      ops.clear = DerivedTable::clear;
      ops.add = leave_empty;
    }
    return ops;
  }();
  static constexpr ContainerOps variant_ops = [] {
    ContainerOps ops;
    ops.size = which;
    ops.at = shared ? DerivedTable::self : DerivedTable::object;
    if constexpr (STELE_HEAP != 0) ops.add = choose;
    return ops;
  }();

  // Uses the names of the alternatives of the record's variant.
  using variant = TupleTable<std::variant<D...>, true, boost::mp11::mp_list<D...>>;
  static constexpr std::array<std::string_view, sizeof...(D)> names = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<std::string_view, sizeof...(D)>{variant::template alternative_name<D>(I)...};
  }
  (std::index_sequence_for<D...>{});
  template <class C>
  using table = std::conditional_t<shared, TiedTable<P, C>, type_info<C, true>>;
  static constexpr std::array<FieldInfo, sizeof...(D)> alternatives = [] {
    std::array<FieldInfo, sizeof...(D)> fields;
    std::size_t i = 0;
    ((fields[i] = {names[i], &table<D>::value, {}, {}}, ++i), ...);
    return fields;
  }();
  static constexpr bool names_differ = [] {
    for (std::size_t i = 0; i < names.size(); ++i) {
      for (std::size_t j = i + 1; j < names.size(); ++j) {
        if (names[i] == names[j]) return false;
      }
    }
    return true;
  }();
  static constexpr TypeInfo describe() {
    static_assert(std::is_polymorphic_v<Base>, "stele: stele::derived<Base>: Base has no virtual function");
    static_assert(shared || std::has_virtual_destructor_v<Base>,
                  "stele: stele::derived<Base>: a std::unique_ptr<Base> needs a virtual destructor of Base");
    static_assert((ListedClass<Base, D>::ok && ...));
    static_assert(names_differ,
                  "stele: two classes in the list of stele::derived<Base> have the same name: give one a "
                  "stele::attr::type_name");
    TypeInfo info;
    info.kind = TypeKind::variant;
    info.fields = alternatives;
    info.container = &variant_ops;
    info.other_class = other_class;
    // Files from before the declaration contain only objects of Base, without a class name.
    std::size_t i = 0;
    ((std::is_same_v<Base, D> ? void(info.element = alternatives[i].type) : void(), ++i), ...);
    return info;
  }
  static const TypeInfo pointee;
};
template <class P, class... D>
constinit const TypeInfo DerivedTable<P, ClassList<D...>>::pointee = DerivedTable<P, ClassList<D...>>::describe();

}  // namespace stele::inline v0::detail
