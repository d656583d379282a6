// Record: only the parameters of a module, as a type generated at compile time, with the module's own names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

// Included first, so that errors from it show few files.
#include "stele/detail/remedy.hpp"
//
#include "stele/detail/reflect.hpp"
#include "stele/options.hpp"
#include "stele/report.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0 {

namespace detail {

// The two walks and the functions that call them; compiled once, in src/.
enum class LoadMode : std::uint8_t { fresh, in_place };
/// `constants`: includes fields with FieldFlags::constant.
STELE_EXPORT Result<Snapshot> snapshot_object(const TypeInfo& type, const void* object,
                                              std::shared_ptr<const void> keeper, bool consumable,
                                              bool constants = true);
STELE_EXPORT Status load_object(const Snapshot& snapshot, const TypeInfo& type, void* object, LoadMode mode,
                                const LoadOptions& options);
/// Checks only the structure; a null object means a new object.
STELE_EXPORT Result<Report> check_object(const Snapshot& snapshot, const TypeInfo& type, const void* object,
                                         const LoadOptions& options);
STELE_EXPORT Status load_tensor(const SnapshotData& data, std::uint32_t leaf, const TensorOps& ops, void* object);
STELE_EXPORT std::shared_ptr<const SnapshotData> own_tensor(std::shared_ptr<void> object, const TensorOps& ops);
}  // namespace detail

/// A leaf of a record: borrowed from an existing module, owned, or lazy in a file; empty until it gets a tensor.
class STELE_EXPORT LeafHandle {
 public:
  bool has_value() const noexcept { return data_ != nullptr; }
  explicit operator bool() const noexcept { return has_value(); }
  // The following functions require has_value().
  DType dtype() const noexcept { return leaf().dtype(); }
  std::span<const Extent> shape() const noexcept { return leaf().shape(); }
  std::uint64_t size() const noexcept { return leaf().size(); }
  std::uint64_t byte_size() const noexcept { return leaf().byte_size(); }
  std::optional<ParamId> id() const noexcept { return leaf().id(); }
  /// Returns the leaf as a LeafView, for parts, streaming and annotations.
  LeafView leaf() const noexcept { return {*data_, leaf_}; }

 protected:
  // Move-only, like a record: if from_record takes a tensor out of one leaf, the tensor must not be missing from
  // another.
  LeafHandle() = default;
  LeafHandle(LeafHandle&&) noexcept = default;
  LeafHandle& operator=(LeafHandle&&) noexcept = default;
  ~LeafHandle() = default;
  static const std::shared_ptr<const detail::SnapshotData>* bound(const void* object, std::uint32_t& leaf) {
    const auto& handle = *static_cast<const LeafHandle*>(object);
    leaf = handle.leaf_;
    return &handle.data_;
  }
  static void bind(void* object, std::shared_ptr<const detail::SnapshotData> data, std::uint32_t leaf) {
    auto& handle = *static_cast<LeafHandle*>(object);
    handle.data_ = std::move(data);
    handle.leaf_ = leaf;
  }

  std::shared_ptr<const detail::SnapshotData> data_;
  std::uint32_t leaf_ = 0;
};

/// The leaf of a field of type T (a tensor, or a Param of one). Assigning a T makes the leaf own it.
template <class T>
class TypedLeaf : public LeafHandle {
 public:
  using value_type = T;
  TypedLeaf() = default;
  TypedLeaf(T tensor) { *this = std::move(tensor); }  // NOLINT(google-explicit-constructor)
  TypedLeaf& operator=(T tensor) {
    data_ = detail::own_tensor(std::make_shared<T>(std::move(tensor)), detail::TensorTable<T>::value);
    leaf_ = 0;
    return *this;
  }
  /// Loads the tensor, converted to the element type of T. Errors: not_found (empty), shape_mismatch, dtype_mismatch,
  /// io, …
  Result<T> load() const {
    if (!has_value()) return Error(Errc::not_found, "the record's leaf has no tensor");
    return detail::guarded([&]() -> Result<T> {
      T tensor{};
      STELE_TRY(detail::load_tensor(*data_, leaf_, detail::TensorTable<T>::value, &tensor));
      return tensor;
    });
  }

  static constexpr detail::TensorOps ops = [] {
    detail::TensorOps o;
    o.rank = detail::TensorTable<T>::value.rank;
    o.bound = bound;
    o.bind = bind;
    return o;
  }();
};

namespace detail {

struct NotRecorded {};

/// The type of a record's member for a field of type T.
template <class T, bool Listed>
struct record_type;
template <class T, bool Listed>
using record_type_t = typename record_type<std::remove_cv_t<T>, Listed>::type;

template <template <class...> class Holder, bool Listed, class L>
struct record_types;
template <template <class...> class Holder, bool Listed, template <class...> class L, class... T>
struct record_types<Holder, Listed, L<T...>> {
  using type = Holder<record_type_t<T, Listed>...>;
};

template <class T, bool Listed>
consteval auto record_type_of() {
  constexpr Category category = category_of<T, Listed>;
  if constexpr (is_constant<T, Listed>) {
    return record_type_of<T, true>();
  } else if constexpr (category == Category::tensor) {
    return std::type_identity<TypedLeaf<T>>{};
  } else if constexpr (category == Category::value) {
    if constexpr (std::is_copy_assignable_v<T> && std::is_default_constructible_v<T>) {
      return std::type_identity<T>{};
    } else {
      return std::type_identity<Value>{};
    }
  } else if constexpr (category == Category::module) {
    return std::type_identity<Record<T>>{};
  } else if constexpr (DerivedPointer<T>) {
    return std::type_identity<typename derived_table<T>::record>{};
  } else if constexpr (category == Category::optional) {
    return std::type_identity<std::optional<record_type_t<typename holder<T>::element, Listed>>>{};
  } else if constexpr (category == Category::pointer) {
    return std::type_identity<std::unique_ptr<record_type_t<typename holder<T>::element, Listed>>>{};
  } else if constexpr (category == Category::shared) {
    return std::type_identity<std::shared_ptr<record_type_t<typename holder<T>::element, Listed>>>{};
  } else if constexpr (category == Category::array) {
    return std::type_identity<std::array<record_type_t<typename holder<T>::element, Listed>, std::tuple_size_v<T>>>{};
  } else if constexpr (category == Category::list) {
    return std::type_identity<std::vector<record_type_t<typename T::value_type, Listed>>>{};
  } else if constexpr (category == Category::map) {
    return std::type_identity<std::map<std::string, record_type_t<typename T::mapped_type, Listed>>>{};
  } else if constexpr (category == Category::tuple) {
    return std::type_identity<typename record_types<std::tuple, Listed, typename holder<T>::elements>::type>{};
  } else if constexpr (category == Category::variant) {
    return std::type_identity<
        typename record_types<holder<T>::template rebind, Listed, typename holder<T>::elements>::type>{};
  } else {
    return std::type_identity<NotRecorded>{};
  }
}
template <class T, bool Listed>
struct record_type {
  using type = typename decltype(record_type_of<T, Listed>())::type;
};

// The record of a listed field; Self only delays the instantiation.
template <class Field, class Self>
struct record_field_of {
  using type = record_type_t<Field, true>;
};

template <class T, bool Listed>
struct record_info_of {
  using table = type_info<record_type_t<T, Listed>, true>;
};

/// The members of a record of an aggregate or of a class with only a Describe list: a tuple, because they have no
/// names.
template <class M>
struct TupleRecord {
  template <class... F>
  static auto make(boost::mp11::mp_list<F...>) -> std::tuple<record_type_t<F, recorded_fields<M>::listed>...>;
  decltype(make(typename recorded_fields<M>::types{})) fields_;
  static constexpr bool compact = true;
  void** stele_addresses_(void** out) {
    std::apply([&](auto&... field) { ((*out++ = std::addressof(field)), ...); }, fields_);
    return out;
  }
};

template <class... Parts>
struct JoinedRecord : Parts... {
  void** stele_addresses_(void** out) {
    ((out = static_cast<Parts&>(*this).Parts::stele_addresses_(out)), ...);
    return out;
  }
};

template <class... C>
consteval bool all_have_macro(boost::mp11::mp_list<C...>) {
  return (has_module_macro<C> && ...);
}
template <class... C>
auto joined_record(boost::mp11::mp_list<C...>)
    -> std::type_identity<JoinedRecord<typename decltype(access::record_fields<C>())::type...>>;

struct NoRecord {};

template <class M>
consteval auto record_base() {
  if constexpr (category_of<M, true> != Category::module && !is_refused(category_of<M, true>)) {
    static_assert(category_of<M, true> == Category::module,
                  "stele: only a module has a Record: a tensor, value or container alone is loaded with load<T>");
    return std::type_identity<NoRecord>{};
  } else if constexpr (!has_module_macro<M>) {
    return std::type_identity<TupleRecord<M>>{};
  } else if constexpr (boost::mp11::mp_empty<bases_of<M>>::value) {
    return decltype(access::record_fields<M>()){};
  } else if constexpr (all_have_macro(classes_of<M>{})) {
    return decltype(joined_record(classes_of<M>{})){};
  } else {
    return std::type_identity<TupleRecord<M>>{};
  }
}

}  // namespace detail

/// The record of module M: its parameters, under the module's names (`record.weight`; for aggregates
/// get<"weight">(record)). Leaves are lazy. Move-only, so that tensors are not shared by accident.
template <class M>
class Record : public decltype(detail::record_base<M>())::type {
 public:
  using module_type = M;
  Record() = default;
  Record(Record&&) noexcept = default;
  Record& operator=(Record&&) noexcept = default;
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  ~Record() = default;
};

namespace detail {

template <class M>
struct RecordTable<Record<M>> {
  static void addresses(void* object, void** out) {
    auto& record = *static_cast<Record<M>*>(object);
    record.stele_addresses_(out);
    if constexpr (!requires { Record<M>::compact; }) recorded_fields<M>::compact(out);
  }
  static constexpr TypeInfo describe() {
    TypeInfo info;
    info.kind = TypeKind::module;
    info.fields = ModuleTable<M>::template table<record_info_of>;
    info.addresses = addresses;
    info.slots = recorded_fields<M>::all;
    ModuleTable<M>::complete(info);
    return info;
  }
};

/// A name as a template argument: get<"weight">(record).
template <std::size_t N>
struct FieldName {
  char text[N]{};
  consteval FieldName(const char (&name)[N]) {  // NOLINT(google-explicit-constructor)
    for (std::size_t i = 0; i < N; ++i) text[i] = name[i];
  }
  constexpr std::string_view view() const { return {text, N - 1}; }
};

template <class M, FieldName Name>
consteval std::size_t field_index() {
  std::size_t k = 0;
  while (k < recorded_fields<M>::count && recorded_fields<M>::names[k] != Name.view()) ++k;
  return k;
}

template <FieldName Name, class M>
auto* record_field(Record<M>& record) {
  constexpr std::size_t k = field_index<M, Name>();
  static_assert(k < recorded_fields<M>::count, "stele: this module records no field of that name");
  if constexpr (k < recorded_fields<M>::count) {
    void* addresses[recorded_fields<M>::all];
    RecordTable<Record<M>>::addresses(&record, addresses);
    using type = record_type_t<boost::mp11::mp_at_c<typename recorded_fields<M>::types, k>, recorded_fields<M>::listed>;
    return static_cast<type*>(addresses[k]);
  } else {
    return static_cast<NotRecorded*>(nullptr);
  }
}

/// Reports the reasons why an M cannot be loaded as compile-time errors.
template <class M>
constexpr void check_writable() {
  static_assert(writable<M, true>(),
                "stele: a const member cannot be loaded in place: make new objects with a static "
                "from_record(stele::Record<M>&&), or skip it with stele::attributes");
}
template <class M>
constexpr bool check_makeable() {
  static_assert(std::is_move_constructible_v<M>,
                "stele: this class cannot be moved (it has a mutex, an atomic, or a deleted move), so load cannot "
                "return it: make an object, and use load_into");
  static_assert(std::is_default_constructible_v<M> && writable<M, true>(),
                "stele: this module needs a default constructor and no const members, or a static "
                "from_record(stele::Record<M>&&)");
  return std::is_move_constructible_v<M> && std::is_default_constructible_v<M>;
}

}  // namespace detail

/// Returns the record's field with that name, in the module's spelling.
template <detail::FieldName Name, class M>
auto& get(Record<M>& record) {
  return *detail::record_field<Name>(record);
}
template <detail::FieldName Name, class M>
const auto& get(const Record<M>& record) {
  return *detail::record_field<Name>(const_cast<Record<M>&>(record));
}
template <detail::FieldName Name, class M>
auto&& get(Record<M>&& record) {
  return std::move(*detail::record_field<Name>(record));
}

/// Returns a Snapshot that borrows from `module` (a module or a Record), which must outlive it. Copies nothing. Errors:
/// cycle.
template <class M>
Result<Snapshot> snapshot_of(const M& module) {
  return detail::snapshot_object(*detail::module_info<M>(), &module, {}, false);
}
template <class M>
Result<Snapshot> snapshot_of(const M&&) = delete;

namespace detail {
template <class M>
struct recorded_module_of {
  using type = M;
};
template <class M>
struct recorded_module_of<Record<M>> {
  using type = M;
};
/// M, or the module whose record M is.
template <class M>
using recorded_module = typename recorded_module_of<M>::type;
}  // namespace detail

/// Makes a new module from a Snapshot: by its hook if it has one, else default-constructed and filled. A Record<M> is
/// lazy: the structure is checked, and tensors are read when they are used.
template <class M>
Result<M> load(const Snapshot& snapshot, const LoadOptions& options = default_load_options()) {
  return detail::guarded([&]() -> Result<M> {
    if constexpr (detail::is_record<M>) {
      M record;
      STELE_TRY(
          detail::load_object(snapshot, detail::type_info<M, true>::value, &record, detail::LoadMode::fresh, options));
      return record;
    } else if constexpr (detail::has_hook<M>()) {
      STELE_TRY_ASSIGN(Record<M> record, load<Record<M>>(snapshot, options));
      return Result<M>(std::in_place, detail::access::from_record<M>(std::move(record)));
    } else if constexpr (detail::check_makeable<M>()) {
      Result<M> module(std::in_place);
      STELE_TRY(detail::load_object(snapshot, *detail::module_info<M>(), &*module, detail::LoadMode::fresh, options));
      return module;
    } else {
      return Error(Errc::not_loadable);  // the static_assert above is the compiler's only error
    }
  });
}

/// Writes a Snapshot into an existing module. Checks the structure first. On error, the module is unchanged unless
/// Error::partially_applied().
template <class M>
Status load_into(M& module, const Snapshot& snapshot, const LoadOptions& options = default_load_options()) {
  detail::check_writable<M>();
  return detail::guarded([&]() -> Status {
    return detail::load_object(snapshot, *detail::module_info<M>(), &module, detail::LoadMode::in_place, options);
  });
}
/// Writes a record into an existing module. Gives the same guarantees as for a Snapshot.
template <class M>
Status load_into(M& module, const Record<M>& record, const LoadOptions& options = default_load_options()) {
  STELE_TRY_ASSIGN(const Snapshot snapshot, snapshot_of(record));
  return load_into(module, snapshot, options);
}

/// Makes the record of a module without copying its tensors: borrows the tensors of an existing module, which must
/// outlive the record, and owns the tensors of a temporary.
template <class M>
requires(std::is_lvalue_reference_v<M> ||
         !std::is_const_v<M>) Result<Record<std::remove_cvref_t<M>>> record_of(M&& module) {
  using Module = std::remove_cvref_t<M>;
  return detail::guarded([&]() -> Result<Record<Module>> {
    if constexpr (std::is_lvalue_reference_v<M>) {
      STELE_TRY_ASSIGN(const Snapshot snapshot, snapshot_of(std::as_const(module)));
      return load<Record<Module>>(snapshot);
    } else {
      auto owner = std::make_shared<Module>(std::forward<M>(module));
      STELE_TRY_ASSIGN(const Snapshot snapshot,
                       detail::snapshot_object(*detail::module_info<Module>(), owner.get(), owner, true));
      return load<Record<Module>>(snapshot);
    }
  });
}

/// Makes a new module from a record: by `M::from_record(Record<M>&&, args…)` if that exists, else default-constructed
/// and filled. Moves the record's own tensors if the types allow it. An immovable M can only be filled by load_into.
template <class M, class... Args>
Result<M> from_record(Record<M>&& record, Args&&... args) {
  return detail::guarded([&]() -> Result<M> {
    if constexpr (!std::is_void_v<decltype(detail::access::hook<M, Args...>(0))>) {
      return Result<M>(std::in_place, detail::access::from_record<M>(std::move(record), std::forward<Args>(args)...));
    } else {
      static_assert(sizeof...(Args) == 0, "stele: this module has no from_record hook that takes these arguments");
      STELE_TRY_ASSIGN(const Snapshot snapshot,
                       detail::snapshot_object(*detail::module_info<Record<M>>(), &record, {}, true));
      return load<M>(snapshot);
    }
  });
}

/// Checks a load into a new M, without reading a tensor or creating an M. Returns the Report of its names, kinds,
/// dtypes and shapes, or the error of that load.
template <class M>
Result<Report> dry_run(const Snapshot& snapshot, const LoadOptions& options = default_load_options()) {
  return detail::check_object(snapshot, *detail::module_info<M>(), nullptr, options);
}
/// Checks a load into an existing module without changing the module.
template <class M>
Result<Report> dry_run(const M& module, const Snapshot& snapshot, const LoadOptions& options = default_load_options()) {
  return detail::check_object(snapshot, *detail::module_info<M>(), &module, options);
}

/// Calls `visit(path, LeafView)` for each parameter of a module or record, in declaration order; once for a tied
/// parameter.
template <class M, class F>
Status for_each_param(const M& module, F visit) {
  return detail::guarded([&]() -> Status {
    STELE_TRY_ASSIGN(const Snapshot snapshot, snapshot_of(module));
    for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) visit(snapshot.leaf(i).path(), snapshot.leaf(i));
    return {};
  });
}

/// Returns the number of elements of all parameters; a tied parameter counts once. Throws Exception (aborts if
/// exceptions are disabled) for a module that cannot be walked, such as one with a cycle.
template <class M>
std::uint64_t num_params(const M& module) {
  std::uint64_t n = 0;
  for_each_param(module, [&](const std::string&, const LeafView& leaf) { n += leaf.size(); }).value();
  return n;
}

/// Returns a table of the parameters; see summary(Snapshot).
template <class M>
std::string summary(const M& module) {
  auto snapshot = snapshot_of(module);
  return snapshot ? summary(*snapshot) : snapshot.error().to_string();
}

}  // namespace stele::inline v0
