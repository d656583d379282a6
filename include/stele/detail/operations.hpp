// The operations of the walks on objects of one type: tensors, values, containers. One constant table of functions per
// type.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "stele/detail/category.hpp"
#include "stele/detail/type_info.hpp"
#include "stele/tensor.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

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

/// Makes a T with its hook directly in place, without a move.
template <class T>
struct MadeFromRecord {
  void* record;
  operator T() const { return access::from_record<T>(std::move(*static_cast<Record<T>*>(record))); }  // NOLINT
};

/// Calls `make` with the arguments for an element: a hook's product, or nothing. Returns nullptr if T cannot be made.
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
  static_assert(Element<element>,
                "stele: tensor_traits<T>::element must be a number, bool, float16, bfloat16 or complex");
  static constexpr bool contiguous = requires(T & t) { traits::data(t); };
  static_assert(
      contiguous || requires(const T& t, std::span<element> s) { traits::read(t, std::uint64_t{}, s); },
      "stele: tensor_traits<T> needs data(), or read() and write()");

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
  static void resize(void* p, const Shape& shape) { traits::resize(get(p), shape); }
  static bool unset(const void* p) {
    if constexpr (requires { traits::unset(get(p)); }) {
      return traits::unset(get(p));
    } else {
      return element_count(as_span(traits::shape(get(p)))) == 0U;
    }
  }
  static void adopt(void* p, std::byte* d, const Shape& shape, std::shared_ptr<const void> keeper) {
    traits::adopt(get(p), reinterpret_cast<element*>(d), shape, std::move(keeper));
  }
  static void part(void* p, std::byte* d, const Shape& shape, std::shared_ptr<void> block) {
    traits::part(get(p), reinterpret_cast<element*>(d), shape, std::move(block));
  }
  static void take(void* p, void* from) {
    if constexpr (std::is_move_assignable_v<T>) get(p) = std::move(get(from));
  }

  /// Adds the operations that loading needs.
  static constexpr void complete(TensorOps& ops) {
    if constexpr (requires(T & t, const Shape& s) { traits::resize(t, s); }) {
      ops.resize = resize;
      ops.unset = unset;
      if constexpr (std::is_default_constructible_v<T> && std::is_move_assignable_v<T>) {
        ops.reset = [](void* p) { get(p) = T(); };
      }
    } else {
      ops.fixed_shape = true;
      if constexpr (std::is_default_constructible_v<T> && !std::is_array_v<T>) {
        ops.fresh_shape = [](Shape& out) { out = traits::shape(*std::make_unique<T>()); };
      }
    }
    if constexpr (requires(T & t, element * e, const Shape& s) { traits::adopt(t, e, s, nullptr); }) ops.adopt = adopt;
    if constexpr (requires(T & t, element * e, const Shape& s) { traits::part(t, e, s, nullptr); }) ops.part = part;
    if constexpr (
        requires { typename T::value_type; } &&
        requires(T & t) {
          { *t.data() } -> std::same_as<const element&>;
        }) {
      ops.adopts_const = true;
    }
    if constexpr (std::is_move_assignable_v<T> && !std::is_trivially_copyable_v<T>) ops.take = take;
  }

  static constexpr TensorOps make() {
    TensorOps ops;
    ops.dtype = dtype_of_v<element>;
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
      static_assert(traits::rank <= static_cast<int>(Shape::inline_rank), "stele: a tensor of more than 8 extents");
    }
    return ops;
  }
  static constexpr TensorOps value = make();
};

// The tensor is Param's first member, so one table's functions serve both.
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

// Defined in src/value.cpp. Integers go through the widest type of their signedness.
STELE_EXPORT void assign_value(const Value& from, Value& to);
STELE_EXPORT bool from_value(const Value& in, std::int64_t low, std::int64_t high, std::int64_t& out);
STELE_EXPORT bool from_value(const Value& in, std::uint64_t high, std::uint64_t& out);
STELE_EXPORT bool from_value(const Value& in, bool& out);
STELE_EXPORT bool from_value(const Value& in, double highest, double& out);
STELE_EXPORT bool from_value(const Value& in, std::string& out);

/// A described enum, whose values have names. Describe's headers are not included here: a user who describes an enum
/// includes them.
template <class E>
concept DescribedEnum = std::is_enum_v<E> && requires {
  boost_enum_descriptor_fn(static_cast<E**>(nullptr));
};
struct EnumName {
  std::string_view text;
  std::uint64_t bits = 0;
};
template <class List>
struct EnumList;
template <template <class...> class L, class... D>
struct EnumList<L<D...>> {
  static constexpr std::array<EnumName, sizeof...(D)> names{EnumName{D::name, static_cast<std::uint64_t>(D::value)}...};
};
template <DescribedEnum E>
inline constexpr std::span<const EnumName> enum_names =
    EnumList<decltype(boost_enum_descriptor_fn(static_cast<E**>(nullptr)))>::names;

/// The string "one of relu, tanh", for messages; a long list is cut.
template <DescribedEnum E>
struct EnumText {
  static constexpr std::size_t most = 20;
  // Calls `put` with each piece.
  static constexpr void compose(auto put) {
    put(std::string_view("one of "));
    for (std::size_t i = 0; i < enum_names<E>.size() && i < most; ++i) {
      if (i != 0) put(std::string_view(", "));
      put(enum_names<E>[i].text);
    }
    if (enum_names<E>.size() > most) put(std::string_view(", …"));
  }
  static constexpr std::size_t size = [] {
    std::size_t n = 0;
    compose([&](std::string_view piece) { n += piece.size(); });
    return n;
  }();
  static constexpr auto text = [] {
    std::array<char, size> out{};
    std::size_t n = 0;
    compose([&](std::string_view piece) {
      for (const char c : piece) out[n++] = c;
    });
    return out;
  }();
  static constexpr std::string_view view{text.data(), size};
};

/// Returns the name of a described enum's value; empty if it has none.
constexpr std::string_view enum_name(std::span<const EnumName> names, std::uint64_t bits) {
  for (const EnumName& name : names) {
    if (name.bits == bits) return name.text;
  }
  return {};
}
/// Finds the value with the name in `in`.
STELE_EXPORT bool from_value(const Value& in, std::span<const EnumName> names, std::uint64_t& bits);
STELE_EXPORT bool is_text(const Value& in);

template <class T>
struct ValueTable {
  static constexpr bool is_plain = !HasValueTraits<T> && !std::is_same_v<T, Value>;

  static PlainValue plain(const void* p) {
    const T& t = *static_cast<const T*>(p);
    if constexpr (std::is_same_v<T, std::string>) {
      return {ValueKind::string, 0, t};
    } else if constexpr (std::is_same_v<T, bool>) {
      return {ValueKind::boolean, t, {}};
    } else if constexpr (std::is_enum_v<T>) {
      if constexpr (DescribedEnum<T>) {
        const std::string_view name = enum_name(enum_names<T>, static_cast<std::uint64_t>(t));
        if (!name.empty()) return {ValueKind::string, 0, name};
      }
      const auto number = static_cast<std::underlying_type_t<T>>(t);
      return ValueTable<std::underlying_type_t<T>>::plain(&number);
    } else if constexpr (std::is_integral_v<T>) {
      // As in Value: u64 only above the range of i64.
      const bool large = std::is_unsigned_v<T> && static_cast<std::uint64_t>(t) > static_cast<std::uint64_t>(INT64_MAX);
      return {large ? ValueKind::u64 : ValueKind::i64, static_cast<std::uint64_t>(t), {}};
    } else {
      return {ValueKind::f64, std::bit_cast<std::uint64_t>(static_cast<double>(static_cast<float_of<T>>(t))), {}};
    }
  }
  static void to(const void* p, Value& out) {
    const T& t = *static_cast<const T*>(p);
    if constexpr (HasValueTraits<T>) {
      assign_value(value_traits<T>::to_value(t), out);
    } else {
      assign_value(t, out);
    }
  }
  static std::string_view from(void* p, const Value& in) {
    T& t = *static_cast<T*>(p);
    if constexpr (HasValueTraits<T>) {
      return value_traits<T>::from_value(t, in);
    } else if constexpr (std::is_same_v<T, Value>) {
      assign_value(in, t);
      return {};
    } else if constexpr (std::is_same_v<T, bool>) {
      return from_value(in, t) ? "" : "a bool";
    } else if constexpr (std::is_same_v<T, std::string>) {
      return from_value(in, t) ? "" : "a string";
    } else if constexpr (std::is_enum_v<T>) {
      if constexpr (DescribedEnum<T>) {
        // A number is accepted too: the enum was not described when the file was written, or the value has no name.
        if (is_text(in)) {
          std::uint64_t bits = 0;
          if (!from_value(in, enum_names<T>, bits)) return EnumText<T>::view;
          t = static_cast<T>(bits);
          return {};
        }
      }
      std::underlying_type_t<T> number{};
      const std::string_view expected = ValueTable<std::underlying_type_t<T>>::from(&number, in);
      if (expected.empty()) t = static_cast<T>(number);
      return expected;
    } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
      std::int64_t wide = 0;
      if (!from_value(in, std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), wide)) return integer_text();
      t = static_cast<T>(wide);
      return {};
    } else if constexpr (std::is_integral_v<T>) {
      std::uint64_t wide = 0;
      if (!from_value(in, std::numeric_limits<T>::max(), wide)) return integer_text();
      t = static_cast<T>(wide);
      return {};
    } else {
      double wide = 0;
      constexpr double highest = sizeof(T) == 8               ? 1.7976931348623157e308
                                 : std::is_same_v<T, float16> ? 65504.0
                                                              : 3.4028234663852886e38;
      if (!from_value(in, highest, wide)) return "a number in range";
      t = static_cast<T>(static_cast<float_of<T>>(wide));
      return {};
    }
  }
  static std::string_view check(const Value& in) {
    T scratch{};
    return from(&scratch, in);
  }
  static constexpr ValueOps make() {
    ValueOps ops;
    if constexpr (is_plain) ops.plain = plain;
    if constexpr (std::is_same_v<T, std::string>) {
      ops.dtype = DType::string;
    } else if constexpr (std::is_enum_v<T>) {
      ops.dtype = dtype_of_v<std::underlying_type_t<T>>;
    } else if constexpr (is_plain) {
      ops.dtype = dtype_of_v<T>;
    }
    if constexpr (STELE_HEAP != 0) {
      if constexpr (!is_plain) ops.to_value = to;
      ops.from_value = from;
      if constexpr (std::is_default_constructible_v<T>) ops.check = check;
    }
    return ops;
  }
  static constexpr ValueOps value = make();

 private:
  template <class F>
  using float_of = std::conditional_t<std::is_same_v<F, double>, double, float>;
  static constexpr std::string_view integer_text() {
    constexpr std::string_view texts[2][4] = {
        {"an integer of 8 bits without sign", "an integer of 16 bits without sign",
         "an integer of 32 bits without sign", "an integer of 64 bits without sign"},
        {"an integer of 8 bits", "an integer of 16 bits", "an integer of 32 bits", "an integer of 64 bits"}};
    return texts[std::is_signed_v<T>][sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3];
  }
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
      // A std::vector is limited by memory only.
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

}  // namespace detail
}  // namespace v0
}  // namespace stele
