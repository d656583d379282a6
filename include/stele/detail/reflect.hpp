// Generates the constant tables of type_info.hpp from C++ types: one table per type, with a name and a pointer per
// field.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <boost/mp11/list.hpp>

#include "stele/detail/category.hpp"
#include "stele/detail/fields.hpp"
#include "stele/detail/operations.hpp"
#include "stele/detail/type_info.hpp"
#include "stele/detail/value_table.hpp"

namespace stele::inline v0::detail {

template <class M>
consteval bool is_derived() {
  if constexpr (is_listed<M>) {
    return !boost::mp11::mp_empty<bases_of<M>>::value;
  } else {
    return false;
  }
}

/// The part of a module's table that its attributes and bases determine. Few modules have any; it is not instantiated
/// for other modules.
template <class M, bool Any = !attributes_of<M>().empty() || is_derived<M>()>
struct AttributeTable {
  static constexpr FieldInfo field(std::string_view name, const TypeInfo* type, std::size_t&) {
    return {name, type, {}, {}};
  }
  static constexpr bool versioned = false;
  static constexpr void complete(TypeInfo&) {}
};
template <class M>
struct AttributeTable<M, true> {
  using fields = recorded_fields<M>;
  static_assert(attributes_name_fields<M>(), "stele: an attribute of this module names a field that it does not have");
  static constexpr std::span<const Attribute> attributes = attributes_of<M>();
  static constexpr std::size_t count_of(Attribute::Kind kind) {
    std::size_t n = 0;
    for (const Attribute& a : attributes) n += a.kind == kind ? 1 : 0;
    return n;
  }
  static constexpr std::size_t alias_count = count_of(Attribute::Kind::alias);
  // The aliases, grouped by field.
  static constexpr auto aliases = [] {
    std::array<std::string_view, alias_count + 1> texts{};
    std::size_t n = 0;
    for (std::size_t k = 0; alias_count != 0 && k < fields::count; ++k) {
      for (const Attribute& a : attributes) {
        if (a.kind == Attribute::Kind::alias && a.field == fields::names[k]) texts[n++] = a.text;
      }
    }
    return texts;
  }();

  static constexpr FieldInfo field(std::string_view name, const TypeInfo* type, std::size_t& alias) {
    FieldInfo info{name, type, {}, {}};
    std::size_t n = 0;
    for (const Attribute& a : attributes) {
      if (a.field != name) continue;
      if (a.kind == Attribute::Kind::rename && info.name == name)
        info.name = a.text;  // a class's own name precedes its base's
      if (a.kind == Attribute::Kind::keep_default) info.flags.defaulted = true;
      if (a.kind == Attribute::Kind::was_one) info.flags.was_one = true;
      if (a.kind == Attribute::Kind::alias) ++n;
    }
    info.aliases = std::span<const std::string_view>(aliases).subspan(alias, n);
    alias += n;
    return info;
  }

  // Only renames and bases can make two names equal. Comparing all pairs of a long list would cost compile time.
  static constexpr bool names_differ = [] {
    std::array<std::string_view, fields::count + 1> names{};
    std::size_t alias = 0;
    for (std::size_t k = 0; k < fields::count; ++k) names[k] = field(fields::names[k], nullptr, alias).name;
    for (std::size_t i = 0; i < fields::count; ++i) {
      for (std::size_t j = i + 1; j < fields::count; ++j) {
        if (names[i] == names[j]) return false;
      }
    }
    return true;
  }();
  static_assert(names_differ, "stele: two recorded fields of this module have the same name (a base's, or a rename)");

  static constexpr auto moved = [] {
    std::array<MovedPath, count_of(Attribute::Kind::moved)> paths{};
    std::size_t n = 0;
    for (const Attribute& a : attributes) {
      if (a.kind == Attribute::Kind::moved) paths[n++] = {a.field, a.text};
    }
    return paths;
  }();

  static constexpr bool versioned = count_of(Attribute::Kind::version) != 0;
  static constexpr void complete(TypeInfo& info) {
    if constexpr (versioned) info.version = attributes[find_attribute(attributes, Attribute::Kind::version)].number;
    info.moved = moved;
    constexpr std::size_t layout = find_attribute(attributes, Attribute::Kind::layout);
    if constexpr (layout != attributes.size()) info.layout = &attributes[layout];
  }
};

template <class F, bool Listed>
constexpr FieldInfo with_flags(FieldInfo field) {
  if (is_constant<F, Listed>) field.flags.defaulted = field.flags.constant = true;
  return field;
}

template <bool Listed, class... F>
constexpr bool any_constant(boost::mp11::mp_list<F...>*) {
  return (is_constant<F, Listed> || ...);
}

/// The table of fields of a module; for a Record, the fields of its module with the record's types.
template <class M>
struct ModuleTable : AttributeTable<M> {
  using fields = recorded_fields<M>;
  using AttributeTable<M>::field;

  /// Info<F, listed>::table::value is the table of a field of type F.
  template <template <class, bool> class Info>
  static constexpr std::array<FieldInfo, fields::count> table = []<class... F>(boost::mp11::mp_list<F...>) {
    std::size_t alias = 0;
    std::size_t k = 0;
    static_cast<void>(alias), static_cast<void>(k);
    return std::array<FieldInfo, fields::count>{with_flags<F, fields::listed>(
        field(fields::names[k++], &Info<std::remove_cv_t<F>, fields::listed>::table::value, alias))...};
  }(typename fields::types{});

  static constexpr auto unrecorded = [] {
    std::array<UnrecordedField, fields::all - fields::count> list{};
    for (std::size_t i = 0, k = 0; fields::all != fields::count && i < fields::all; ++i) {
      if (k < fields::count && fields::index[k] == i) {
        ++k;
      } else {
        list[i - k] = {fields::of::names[i], static_cast<std::uint16_t>(k)};
      }
    }
    return list;
  }();

  // Each hook may be one of several overloads.
  using NameHook = std::string_view (*)(std::uint32_t, std::string_view);
  using SnapshotHook = Result<Snapshot> (*)(std::uint32_t, const Snapshot&);
  static constexpr bool renames = requires { static_cast<NameHook>(v0::attributes<M>::migrate); };
  static constexpr bool rewrites = requires { static_cast<SnapshotHook>(v0::attributes<M>::migrate); };
  static_assert(
      renames || rewrites || !requires { v0::attributes<M>::migrate; },
      "stele: the migrate hook of this module's attributes has another signature than stele/module.hpp declares");

  static constexpr void complete(TypeInfo& info) {
    if constexpr (fields::all != fields::count) info.unrecorded = unrecorded;
    info.constants = any_constant<fields::listed>(static_cast<typename fields::types*>(nullptr));
    info.name = type_name_text<M>.view();
    AttributeTable<M>::complete(info);
    if constexpr (renames) info.migrate = v0::attributes<M>::migrate;
    static_assert(!rewrites || AttributeTable<M>::versioned,
                  "stele: a migrate hook of this module is never called: give it a stele::attr::version");
    if constexpr (STELE_HEAP != 0 && rewrites) info.rewrite = v0::attributes<M>::migrate;
  }
};

template <class T, bool Listed>
struct info_of {
  using table = type_info<T, Listed>;
};

/// Returns false if only the hook can create a T, because T has a const member or no default constructor.
template <class T, bool Listed>
consteval bool writable() {
  constexpr Category category = category_of<T, Listed>;
  if constexpr (std::is_const_v<T>) {
    return false;
  } else if constexpr (category == Category::module && !is_record<T>) {
    return []<class... F>(boost::mp11::mp_list<F...>) {
      return (writable<F, recorded_fields<T>::listed>() && ...);
    }(typename recorded_fields<T>::types{});
  } else if constexpr (category == Category::array) {
    return writable<typename holder<T>::element, Listed>();
  } else if constexpr (category == Category::tuple) {
    return []<class... E>(boost::mp11::mp_list<E...>) {
      return (writable<E, Listed>() && ...);
    }(typename holder<T>::elements{});
  } else {
    return true;
  }
}

/// The module type of a record type: alternatives of a variant have the same names in modules and in their records.
template <class T>
struct module_of {
  using type = T;
};
template <template <class...> class C, class... T>
struct module_of<C<T...>> {
  using type = C<typename module_of<T>::type...>;
};
template <class T, std::size_t N>
struct module_of<std::array<T, N>> {
  using type = std::array<typename module_of<T>::type, N>;
};
template <class M>
struct module_of<Record<M>> {
  using type = M;
};
template <class T>
struct module_of<TypedLeaf<T>> {
  using type = T;
};

template <class T, bool Listed, class L>
struct TupleTable;
template <class T, bool Listed, class... E>
struct TupleTable<T, Listed, boost::mp11::mp_list<E...>> {
  static constexpr std::array<std::string_view, 32> decimal = {
      "0",  "1",  "2",  "3",  "4",  "5",  "6",  "7",  "8",  "9",  "10", "11", "12", "13", "14", "15",
      "16", "17", "18", "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31"};
  static_assert(sizeof...(E) <= decimal.size(), "stele: a tuple or variant has at most 32 elements");
  template <class A>
  static consteval std::string_view alternative_name(std::size_t i) {
    for (const Attribute& a : attributes_of<typename module_of<T>::type>()) {
      if (a.kind == Attribute::Kind::alternative && a.number == i) return a.text;
    }
    using named = typename module_of<std::remove_cv_t<A>>::type;
    if constexpr (category_of<named, Listed> == Category::module) {
      return type_name_text<named>.view();
    } else {
      return decimal[i];
    }
  }
  static constexpr std::array<FieldInfo, sizeof...(E)> elements = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<FieldInfo, sizeof...(E)>{
        with_flags<E, Listed>({decimal[I], &type_info<std::remove_cv_t<E>, Listed>::value, {}, {}})...};
  }
  (std::index_sequence_for<E...>{});
  static constexpr std::array<FieldInfo, sizeof...(E)> alternatives = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<FieldInfo, sizeof...(E)>{
        FieldInfo{alternative_name<E>(I), &type_info<std::remove_cv_t<E>, Listed>::value, {}, {}}...};
  }
  (std::index_sequence_for<E...>{});
  static consteval bool alternatives_differ() {
    for (std::size_t i = 0; i < alternatives.size(); ++i) {
      for (std::size_t j = i + 1; j < alternatives.size(); ++j) {
        if (alternatives[i].name == alternatives[j].name) return false;
      }
    }
    return true;
  }
  static void addresses(void* object, void** out) {
    std::apply([&](auto&... element) { ((*out++ = untyped(element)), ...); }, *static_cast<T*>(object));
  }
};

template <class M>
struct RecordTable;  // record.hpp
template <class P, class Classes>
struct DerivedTable;  // derived.hpp
template <class P>
using derived_table = DerivedTable<P, typename derived<std::remove_cv_t<typename holder<P>::element>>::classes>;

#ifdef __cpp_rtti
template <class T>
const char* other_class_of(const void* object) {
  const std::type_info& type = typeid(*static_cast<const T*>(object));
  return type == typeid(T) ? nullptr : type.name();
}
#endif

template <class T, bool Listed>
constexpr TypeInfo describe() {
  if constexpr (is_constant<T, Listed>) return describe<T, true>();
  constexpr Category category = category_of<T, Listed>;
  TypeInfo info;
#ifdef __cpp_rtti
  if constexpr (std::is_polymorphic_v<T> && !std::is_final_v<T>) info.other_class = other_class_of<T>;
#endif
  if constexpr (is_typed_leaf<T>) {
    info.kind = TypeKind::tensor;
    info.tensor = &T::ops;
  } else if constexpr (is_record<T>) {
    info = RecordTable<T>::describe();
  } else if constexpr (category == Category::tensor) {
    info.kind = TypeKind::tensor;
    info.tensor = &TensorTable<T>::value;
  } else if constexpr (category == Category::value) {
    info.kind = TypeKind::value;
    info.value = &ValueTable<T>::value;
  } else if constexpr (category == Category::module) {
    info.kind = TypeKind::module;
    info.fields = ModuleTable<T>::template table<info_of>;
    info.addresses = recorded_fields<T>::addresses;
    info.slots = recorded_fields<T>::all;
    info.writable = writable<T, Listed>();
    ModuleTable<T>::complete(info);
    if constexpr (STELE_HEAP != 0 && has_hook<T>()) info.hook = &HookTable<T>::value;
  } else if constexpr (category == Category::tuple) {
    using table = TupleTable<T, Listed, typename holder<T>::elements>;
    info.kind = TypeKind::tuple;
    info.fields = table::elements;
    info.addresses = table::addresses;
    info.slots = table::elements.size();
    info.constants = any_constant<Listed>(static_cast<typename holder<T>::elements*>(nullptr));
  } else if constexpr (category == Category::variant) {
    using table = TupleTable<T, Listed, typename holder<T>::elements>;
    static_assert(table::alternatives_differ(),
                  "stele: two alternatives of a std::variant have the same name: name them with stele::attributes and "
                  "stele::attr::alternative");
    info.kind = TypeKind::variant;
    info.fields = table::alternatives;
    info.container = &VariantTable<T, typename holder<T>::elements>::value;
  } else if constexpr (category == Category::map) {
    info.kind = TypeKind::map;
    info.element = &type_info<std::remove_cv_t<typename T::mapped_type>, Listed>::value;
    info.container = &MapTable<T, typename T::mapped_type>::value;
  } else if constexpr (category == Category::list) {
    info.kind = TypeKind::list;
    info.element = &type_info<std::remove_cv_t<typename T::value_type>, Listed>::value;
    info.container = &SequenceTable<T, typename T::value_type>::value;
  } else if constexpr (category == Category::array) {
    using element = typename holder<T>::element;
    info.kind = TypeKind::array;
    info.element = &type_info<std::remove_cv_t<element>, Listed>::value;
    info.container = &SequenceTable<T, element>::value;
  } else if constexpr (DerivedPointer<T>) {
    info.kind = TypeKind::pointer;
    info.element = &derived_table<T>::pointee;
    info.container = &derived_table<T>::pointer_ops;
  } else if constexpr (category == Category::optional || category == Category::pointer ||
                       category == Category::shared) {
    using element = typename holder<T>::element;
    info.kind = category == Category::optional  ? TypeKind::optional
                : category == Category::pointer ? TypeKind::pointer
                                                : TypeKind::shared;
    // Ties are between objects of one table. Therefore a type whose record does not depend on being listed has one
    // table.
    constexpr bool listed =
        Listed || is_listed<std::remove_cv_t<element>> || category_of<element, Listed> == Category::tensor;
    info.element = &type_info<std::remove_cv_t<element>, listed>::value;
    info.container = &HolderTable<T, element>::value;
  }
  return info;
}

/// Instantiates the errors of a module's fields. Done outside describe(), so that clang prints no further errors.
template <class T, bool Listed>
auto complaints_of() {
  if constexpr (is_record<T>) {
    return recorded_fields<typename T::module_type>::complaints();
  } else if constexpr (category_of<T, Listed> == Category::module) {
    return recorded_fields<T>::complaints();
  } else {
    return std::type_identity<char>{};
  }
}
template <class T, bool Listed>
constinit const TypeInfo type_info<T, Listed>::value =
    (static_cast<void>(sizeof(typename decltype(complaints_of<T, Listed>())::type)), describe<T, Listed>());

/// Returns true if T has any recorded part. A list or pointer counts as one without being followed, because types may
/// be recursive.
template <class T, bool Listed>
consteval bool records_anything() {
  constexpr Category category = category_of<T, Listed>;
  if constexpr (category == Category::module && !is_record<std::remove_cv_t<T>>) {
    using fields = recorded_fields<std::remove_cv_t<T>>;
    return []<class... F>(boost::mp11::mp_list<F...>) {
      if constexpr (((category_of<F, fields::listed> != Category::module) || ...)) {
        return true;
      } else {
        return (records_anything<F, fields::listed>() || ...);
      }
    }(typename fields::types{});
  } else {
    return true;
  }
}

/// Returns the table of the top-level module of a save or load.
template <class M>
const TypeInfo* module_info() {
  static_assert(!std::is_const_v<M> && !std::is_reference_v<M>);
  constexpr Category category = category_of<M, true>;
  static_assert(!is_refused(category),
                "stele: this type cannot be recorded: give it a field list (STELE_MODULE or BOOST_DESCRIBE_STRUCT), or "
                "make it a plain aggregate");
  if constexpr (!is_refused(category)) {
    if constexpr (category == Category::module && !is_record<M>) {
      static_assert(!recorded_fields<M>::ok || records_anything<M, true>(),
                    "stele: nothing in this type can be recorded: it has no parameters");
    }
    // Instantiated here, too, because the compiler's output then has one step less between the error and the user's
    // line.
    static_cast<void>(sizeof(typename decltype(complaints_of<M, true>())::type));
    return &type_info<M, true>::value;
  } else {
    return nullptr;
  }
}

}  // namespace stele::inline v0::detail
