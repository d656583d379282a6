// The operations that walks perform on objects of one type: tensors and containers (values: detail/value_table.hpp).
// One constant table of functions per type.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "stele/detail/category.hpp"
#include "stele/detail/type_info.hpp"
#include "stele/tensor.hpp"

namespace stele::inline v0::detail {

template <class T, bool Listed>
struct type_info {
  static const TypeInfo value;
};

template <class T>
consteval bool has_hook() {
  if constexpr (std::is_class_v<T> && !is_record<T>) {
    return !std::is_void_v<decltype(access::hook<T>(0))>;
  } else {
    return false;
  }
}

/// Creates a T with its hook directly in place, without a move.
template <class T>
struct MadeFromRecord {
  void* record;
  operator T() const { return access::from_record<T>(std::move(*static_cast<Record<T>*>(record))); }  // NOLINT
};

/// Calls `make` with the arguments for an element: the result of the hook, or no argument. Returns nullptr if T cannot
/// be created.
template <class T, class Make>
void* make_element(void* record, Make make) {
  if constexpr (has_hook<T>()) {
    return make(MadeFromRecord<T>{record});
  } else if constexpr (std::is_default_constructible_v<T>) {
    static_cast<void>(record);
    return make();
  } else {
    static_cast<void>(record), static_cast<void>(make);
    return nullptr;
  }
}

template <class T>
void* untyped(T& object) {
  return const_cast<void*>(static_cast<const volatile void*>(std::addressof(object)));
}

template <class T>
struct TensorTable {
  using traits = tensor_traits<T>;
  using element = typename traits::element;
  static constexpr bool encoded = requires { traits::dtype; };  // the elements are bytes of this dtype
  static_assert(encoded || Element<element>,
                "stele: tensor_traits<T>::element must be a number, bool, float16, bfloat16 or complex");
  static constexpr bool contiguous = requires(T & t) { traits::data(t); };
  static_assert(
      contiguous || requires(const T& t, std::span<element> s) { traits::read(t, std::uint64_t{}, s); },
      "stele: tensor_traits<T> needs data(), or read() and write()");

  static constexpr bool on_devices = requires(const T& t) { traits::location(t); }
  || requires(T& t) { traits::replicas(t); };
  static constexpr bool owns_parts = requires(T & t, element* e, const Shape& s) {
    traits::part(t, e, s, nullptr, Location());
  }
  || requires(T& t, std::byte* b, const Shape& s) { traits::part(t, b, s, DType::none, nullptr, Location()); };

  static T& get(void* p) { return *static_cast<T*>(p); }
  static const T& get(const void* p) { return *static_cast<const T*>(p); }
  static void shape(const void* p, Shape& out) { out.assign(as_span(traits::shape(get(p)))); }
  static std::byte* data(void* p) { return reinterpret_cast<std::byte*>(traits::data(get(p))); }
  static void read(const void* p, std::uint64_t first, std::size_t count, std::byte* out) {
    traits::read(get(p), first, std::span<element>(reinterpret_cast<element*>(out), count));
  }
  static void write(void* p, std::uint64_t first, std::size_t count, const std::byte* in) {
    traits::write(get(p), first, std::span<const element>(reinterpret_cast<const element*>(in), count));
  }
  static void resize(void* p, const Shape& shape, DType dtype) {
    if constexpr (encoded) {
      traits::resize(get(p), shape, dtype);
    } else {
      traits::resize(get(p), shape);
    }
  }
  static bool unset(const void* p) {
    if constexpr (requires { traits::unset(get(p)); }) {
      return traits::unset(get(p));
    } else {
      return element_count(as_span(traits::shape(get(p)))) == 0U;
    }
  }
  static void adopt(void* p, std::byte* d, const Shape& shape, std::shared_ptr<const void> keeper, DType dtype) {
    if constexpr (encoded) {
      traits::adopt(get(p), d, shape, std::move(keeper), dtype);
    } else {
      traits::adopt(get(p), reinterpret_cast<element*>(d), shape, std::move(keeper));
    }
  }
  static void part(void* p, std::byte* d, const Shape& shape, std::shared_ptr<void> block) {
    traits::part(get(p), reinterpret_cast<element*>(d), shape, std::move(block));
  }
  static void take(void* p, void* from) {
    if constexpr (std::is_move_assignable_v<T>) get(p) = std::move(get(from));
  }
  static void* create() { return new T(); }
  static void destroy(void* p) { delete static_cast<T*>(p); }
  static void locations(const void* p, void* context, void (*visit)(void*, Location, std::byte*)) {
    T& t = *static_cast<T*>(const_cast<void*>(p));
    if constexpr (requires { traits::replicas(t); }) {
      for (const auto& [where, data] : traits::replicas(t)) visit(context, where, reinterpret_cast<std::byte*>(data));
    } else {
      visit(context, traits::location(t), reinterpret_cast<std::byte*>(traits::data(t)));
    }
  }
  static void part_of_device(void* p, std::byte* d, const Shape& shape, DType dtype, std::shared_ptr<void> block,
                             Location where) {
    if constexpr (encoded) {
      traits::part(get(p), d, shape, dtype, std::move(block), where);
    } else {
      static_cast<void>(dtype);
      traits::part(get(p), reinterpret_cast<element*>(d), shape, std::move(block), where);
    }
  }

  /// Adds the operations for loading.
  static constexpr void complete(TensorOps& ops) {
    if constexpr (on_devices) {
      ops.locations = locations;
      if constexpr (owns_parts) ops.part_of_device = part_of_device;
      if constexpr (requires(const T& t, std::span<element> s) { traits::read(t, std::uint64_t{}, s); }) {
        ops.read = read;
        ops.write = write;
      }
    }
    constexpr bool resizes = requires(T & t, const Shape& s) { traits::resize(t, s); }
    || requires(T & t, const Shape& s) { traits::resize(t, s, DType::none); };
    if constexpr (resizes) ops.resize = resize;
    if constexpr (resizes || owns_parts) {
      ops.unset = unset;
      if constexpr (std::is_default_constructible_v<T> && std::is_move_assignable_v<T>) {
        ops.create = create;
        ops.destroy = destroy;
      }
      if constexpr (requires(T & t) { traits::reset(t); }) {
        ops.reset = [](void* p) { traits::reset(get(p)); };
      } else if constexpr (std::is_default_constructible_v<T> && std::is_move_assignable_v<T>) {
        ops.reset = [](void* p) { get(p) = T(); };
      }
    } else {
      ops.fixed_shape = true;
      if constexpr (std::is_default_constructible_v<T> && !std::is_array_v<T>) {
        ops.fresh_shape = [](Shape& out) { out = traits::shape(*std::make_unique<T>()); };
      }
    }
    if constexpr (
        requires(T & t, element * e, const Shape& s) { traits::adopt(t, e, s, nullptr); } ||
        requires(T & t, std::byte * b, const Shape& s) { traits::adopt(t, b, s, nullptr, DType::none); }) {
      ops.adopt = adopt;
    }
    if constexpr (requires(T & t, element * e, const Shape& s) { traits::part(t, e, s, nullptr); }) ops.part = part;
    if constexpr (
        requires { typename T::value_type; } &&
        requires(T & t) {
          { *t.data() } -> std::same_as<const element&>;
        }) {
      ops.adopts_const = true;
    }
    if constexpr (std::is_move_assignable_v<T> && !std::is_trivially_copyable_v<T>) ops.take = take;
    if constexpr (requires(const T& t, Shape& s) { traits::place(t, s, s); }) {
      ops.place = [](const void* p, Shape& global, Shape& start) {
        return traits::place(*static_cast<const T*>(p), global, start);
      };
    }
  }

  static constexpr TensorOps make() {
    TensorOps ops;
    if constexpr (encoded) {
      ops.dtype = traits::dtype;
      ops.dtype_of = [](const void* p) { return traits::dtype_of(get(p)); };
    } else {
      ops.dtype = dtype_of_v<element>;
    }
    ops.rank = static_cast<std::int16_t>(traits::rank);
    ops.shape = shape;
    if constexpr (contiguous) {
      ops.data = data;
    } else {
      ops.read = read;
      ops.write = write;
    }
    if constexpr (STELE_HEAP != 0) {
      complete(ops);
    } else {
      static_assert(traits::rank <= static_cast<int>(Shape::inline_rank),
                    "stele: without a heap, a tensor has at most 8 extents");
    }
    return ops;
  }
  static constexpr TensorOps value = make();
};

// The tensor is Param's first member, so the functions of one table work for both.
template <class T>
struct TensorTable<Param<T>> {
  static_assert(HasTensorTraits<T>, "stele: Param<T> needs a tensor type: give T tensor_traits");
  static std::optional<ParamId>* id(void* p) { return &static_cast<Param<T>*>(p)->id; }
  static constexpr TensorOps make() {
    TensorOps ops = TensorTable<T>::make();
    ops.id = id;
    return ops;
  }
  static constexpr TensorOps value = make();
};

/// list, array
template <class C, class E>
struct SequenceTable {
  // For an array, `c` may be null.
  static std::size_t size(const void* c) {
    if constexpr (requires { std::tuple_size<C>::value; }) {
      return std::tuple_size_v<C>;
    } else {
      return static_cast<const C*>(c)->size();
    }
  }
  static void* at(const void* c, std::size_t i) { return untyped((*static_cast<const C*>(c))[i]); }
  static void clear(void* c) { static_cast<C*>(c)->clear(); }
  static void reserve(void* c, std::size_t n) {
    if constexpr (requires(C & v) { v.reserve(n); }) static_cast<C*>(c)->reserve(n);
  }
  static void* add(void* c, std::size_t, std::string_view, void* record) {
    C& v = *static_cast<C*>(c);
    return make_element<E>(record, [&](auto... from) {
      v.emplace_back(from...);
      return untyped(v.back());
    });
  }
  static std::size_t max_size() { return C().max_size(); }
  static constexpr ContainerOps make() {
    ContainerOps ops;
    ops.size = size;
    ops.at = at;
    if constexpr (STELE_HEAP != 0 && requires(C & v) { v.clear(); }) {
      ops.clear = clear;
      ops.reserve = reserve;
      ops.add = add;
      // Only memory limits a std::vector.
      if constexpr (!is_sequence<C> && requires { C().max_size(); }) ops.max_size = max_size;
    }
    return ops;
  }
  static constexpr ContainerOps value = make();
};

/// optional, unique_ptr, shared_ptr
template <class C, class E>
struct HolderTable {
  static C& get(const void* c) { return *static_cast<C*>(const_cast<void*>(c)); }
  static std::size_t size(const void* c) { return get(c) ? 1 : 0; }
  static void* at(const void* c, std::size_t) { return untyped(*get(c)); }
  static void clear(void* c) { get(c).reset(); }
  static void* add(void* c, std::size_t, std::string_view, void* record) {
    return make_element<E>(record, [&](auto... from) {
      if constexpr (holder<C>::category == Category::optional) {
        get(c).emplace(from...);
      } else {
        get(c) = C(new std::remove_const_t<E>(from...));
      }
      return untyped(*get(c));
    });
  }
  static std::shared_ptr<void> owner(const void* c) { return std::const_pointer_cast<std::remove_cv_t<E>>(get(c)); }
  static void share(void* c, std::shared_ptr<void> object) {
    get(c) = C(std::static_pointer_cast<E>(std::move(object)));
  }
  static constexpr ContainerOps make() {
    ContainerOps ops;
    ops.size = size;
    ops.at = at;
    if constexpr (STELE_HEAP != 0) {
      ops.clear = clear;
      ops.add = add;
      if constexpr (holder<C>::category == Category::shared) {
        ops.owner = owner;
        ops.share = share;
      }
    }
    return ops;
  }
  static constexpr ContainerOps value = make();
};

template <class C, class E>
struct MapTable {
  static std::size_t size(const void* c) { return static_cast<const C*>(c)->size(); }
  static void clear(void* c) { static_cast<C*>(c)->clear(); }
  static void* add(void* c, std::size_t, std::string_view key, void* record) {
    return make_element<E>(record, [&](auto... from) {
      return untyped(static_cast<C*>(c)->try_emplace(std::string(key), from...).first->second);
    });
  }
  static void each(const void* c, void* context, void (*visit)(void*, std::string_view, void*)) {
    for (const auto& [key, element] : *static_cast<const C*>(c)) visit(context, key, untyped(element));
  }
  static constexpr ContainerOps make() {
    ContainerOps ops;
    ops.size = size;
    ops.each = each;
    if constexpr (STELE_HEAP != 0) {
      ops.clear = clear;
      ops.add = add;
    }
    return ops;
  }
  static constexpr ContainerOps value = make();
};

template <class C, class L>
struct VariantTable;
template <class C, class... E>
struct VariantTable<C, boost::mp11::mp_list<E...>> {
  static std::size_t size(const void* c) { return static_cast<const C*>(c)->index(); }
  static void* at(const void* c, std::size_t) {
    void* p = nullptr;
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      const C& v = *static_cast<const C*>(c);
      ((v.index() == I ? void(p = untyped(*get_if<I>(&v))) : void()), ...);
    }
    (std::index_sequence_for<E...>{});
    return p;
  }
  static void* add(void* c, std::size_t which, std::string_view, void* record) {
    void* p = nullptr;
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      C& v = *static_cast<C*>(c);
      ((which == I
            ? void(p = make_element<E>(record, [&](auto... from) { return untyped(v.template emplace<I>(from...)); }))
            : void()),
       ...);
    }
    (std::index_sequence_for<E...>{});
    return p;
  }
  static constexpr ContainerOps make() {
    ContainerOps ops;
    ops.size = size;
    ops.at = at;
    if constexpr (STELE_HEAP != 0) ops.add = add;
    return ops;
  }
  static constexpr ContainerOps value = make();
};

template <class T>
struct HookTable {
  static void* create() { return new Record<T>(); }
  static void destroy(void* record) { delete static_cast<Record<T>*>(record); }
  static constexpr HookOps value{&type_info<Record<T>, true>::value, create, destroy};
};

}  // namespace stele::inline v0::detail
