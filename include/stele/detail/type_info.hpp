// The tables that describe C++ types to the compiled part of the library. Templates emit one constant table per type;
// every walk over objects is compiled once, in src/. This header does not depend on a format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "stele/config.hpp"
#include "stele/dtype.hpp"
#include "stele/location.hpp"
#include "stele/node.hpp"
#include "stele/param.hpp"
#include "stele/shape.hpp"

namespace stele::inline v0 {

struct Attribute;  // stele/module.hpp
class Snapshot;
class Value;
template <class T>
class Result;

/// The role of a type in a record.
enum class TypeKind : std::uint8_t {
  none,  // a type that cannot be recorded
  tensor,
  value,
  module,
  tuple,
  list,   // variable length: std::vector, std::deque
  array,  // fixed length: std::array
  map,    // string keys
  variant,
  optional,
  pointer,  // std::unique_ptr; also a pointer to a base of stele::derived, which holds a variant of its classes
  shared,   // std::shared_ptr: tied parameters
};

/// A field of a module that stele::attr::skip excludes from its records. Some formats count these fields.
struct UnrecordedField {
  std::string_view name;
  std::uint16_t before = 0;  // number of recorded fields before it
};

namespace detail {

struct TypeInfo;
struct SnapshotData;

/// Flags from a field's attributes (stele::attributes<T>), and from its position in a plain aggregate.
struct FieldFlags {
  bool defaulted = false;  // may be missing; then keeps its constructed value
  bool constant = false;   // a plain aggregate's field that consists of numbers, enums and strings
  bool was_one = false;    // older files have a single element instead of a list
};

/// A current path and the corresponding path in older files, relative to one class.
struct MovedPath {
  std::string_view now, then;
};

/// One recorded field of a module, element of a tuple or alternative of a variant.
struct FieldInfo {
  std::string_view name;
  const TypeInfo* type = nullptr;
  FieldFlags flags{};
  std::span<const std::string_view> aliases{};  // older names, tried in order if `name` is missing
};

/// A tensor type. `object` is the tensor, or the Param that contains it. With STELE_HEAP=0, the functions that create,
/// resize or move tensors are absent.
struct TensorOps {
  DType dtype = DType::none;  // none: known at run time, from dtype_of; a load sets it to the file's dtype
  std::int16_t rank = -1;     // -1: known at run time
  bool fixed_shape = false;
  void (*shape)(const void* object, Shape& out) = nullptr;
  // Contiguous types have `data`; other types have `read` and `write`, for elements in row-major order. Types with
  // `locations` may have all three.
  std::byte* (*data)(void* object) = nullptr;
  void (*read)(const void* object, std::uint64_t first, std::size_t count, std::byte* out) = nullptr;
  void (*write)(void* object, std::uint64_t first, std::size_t count, const std::byte* in) = nullptr;
  DType (*dtype_of)(const void* object) = nullptr;
  void (*resize)(void* object, const Shape& shape, DType dtype) = nullptr;  // absent: fixed_shape
  bool (*unset)(const void* object) = nullptr;
  void (*reset)(void* object) = nullptr;      // makes it unset again
  void (*fresh_shape)(Shape& out) = nullptr;  // fixed_shape only: the shape of a default-constructed object
  void (*adopt)(void* object, std::byte* data, const Shape& shape, std::shared_ptr<const void> keeper,
                DType dtype) = nullptr;
  bool adopts_const = false;  // adopt() accepts read-only memory
  /// Makes the tensor the owner of a part of `block`, aligned to 64 bytes.
  void (*part)(void* object, std::byte* data, const Shape& shape, std::shared_ptr<void> block) = nullptr;
  void (*take)(void* object, void* from) = nullptr;  // moves a tensor of the same type
  void* (*create)() = nullptr;                       // an unset tensor, without its Param
  void (*destroy)(void* object) = nullptr;           // deletes what create() returned
  /// Calls `visit` for each memory that has all elements of the tensor; null data: the tensor has no memory yet.
  /// Absent: `data` is in main memory.
  void (*locations)(const void* object, void* context,
                    void (*visit)(void* context, Location where, std::byte* data)) = nullptr;
  /// Makes the tensor the owner of a part of `block`, memory of a device, aligned to 256 bytes.
  void (*part_of_device)(void* object, std::byte* data, const Shape& shape, DType dtype, std::shared_ptr<void> block,
                         Location where) = nullptr;
  std::optional<ParamId>* (*id)(void* object) = nullptr;  // Param only
  /// Sharded only: the shape of the whole tensor, and the first index of this part along each axis. Returns false if
  /// the tensor has no place yet.
  bool (*place)(const void* object, Shape& global, Shape& start) = nullptr;
  // Leaves of Records only: the leaf refers to a snapshot's leaf instead of storing elements.
  const std::shared_ptr<const SnapshotData>* (*bound)(const void* object, std::uint32_t& leaf) = nullptr;
  void (*bind)(void* object, std::shared_ptr<const SnapshotData> data, std::uint32_t leaf) = nullptr;
};

inline DType dtype_of(const TensorOps& ops, const void* object) {
  return ops.dtype == DType::none && ops.dtype_of != nullptr ? ops.dtype_of(object) : ops.dtype;
}
/// Returns the dtype of a tensor after it is loaded from a leaf of dtype `stored`.
inline DType loaded_dtype(const TensorOps& ops, DType stored) {
  return ops.dtype == DType::none && ops.dtype_of != nullptr ? stored : ops.dtype;
}

/// A number, bool or string of the user.
struct PlainValue {
  ValueKind kind = ValueKind::null;
  std::uint64_t bits = 0;  // boolean, i64, u64, f64
  std::string_view text{};
};

/// A value type: number, bool, enum, string, Value, or a type with a cereal function.
struct ValueOps {
  DType dtype = DType::none;                          // dtype of a number, bool or enum; string; none: any other type
  PlainValue (*plain)(const void* object) = nullptr;  // numbers, bools, enums, strings
  void (*to_value)(const void* object, Value& out) = nullptr;  // all other types; may throw
  /// Returns an empty string on success, else the expected type ("an integer from 0 to 255"). Absent, like all
  /// functions below, with STELE_HEAP=0.
  std::string_view (*from_value)(void* object, const Value& in) = nullptr;
  /// Checks a value without an object, before any change; absent if T has no default constructor.
  std::string_view (*check)(const Value& in) = nullptr;
};

/// Containers: list, array, map, variant, optional, pointer, shared. With STELE_HEAP=0, only size, at and each exist.
struct ContainerOps {
  std::size_t (*size)(const void* c) = nullptr;         // variant: the alternative's number, or npos if valueless
  void* (*at)(const void* c, std::size_t i) = nullptr;  // element i; optional, pointer: the pointee; variant: the value
  void (*clear)(void* c) = nullptr;                     // absent: fixed size
  void (*reserve)(void* c, std::size_t n) = nullptr;
  std::size_t (*max_size)() = nullptr;  // list: maximum number of elements; absent: unlimited
  /// Appends an element, fills an optional or pointer, inserts `key` (unless it exists), or switches to alternative
  /// `which`; returns the element. May move the container's other elements. `record` is a Record of the element's type
  /// if a hook creates the element, else null.
  void* (*add)(void* c, std::size_t which, std::string_view key, void* record) = nullptr;
  void (*each)(const void* c, void* context,
               void (*visit)(void* context, std::string_view key, void* element)) = nullptr;
  // shared: returns the object's owner; makes another pointer to that class, even one of a different type, share the
  // object.
  std::shared_ptr<void> (*owner)(const void* c) = nullptr;
  void (*share)(void* c, std::shared_ptr<void> object) = nullptr;
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
};

/// A type whose objects are created by a static `from_record(Record&&)`.
struct HookOps {
  const TypeInfo* record = nullptr;
  void* (*create)() = nullptr;
  void (*destroy)(void* record) = nullptr;
};

/// A constant-initialised description of one C++ type. The graph of these descriptions is the Schema.
struct TypeInfo {
  TypeKind kind = TypeKind::none;
  bool writable = true;    // false: has a const member, so only the hook can create an object
  bool constants = false;  // some fields have the flag `constant`
  std::uint32_t version = 0;
  std::string_view name{};              // unqualified, without template arguments
  std::span<const FieldInfo> fields{};  // module, tuple; variant: the alternatives
  std::span<const UnrecordedField> unrecorded{};
  // module, tuple: writes the addresses of all fields. The first fields.size() are used, but `out` needs space for
  // `slots`.
  void (*addresses)(void* object, void** out) = nullptr;
  std::size_t slots = 0;
  // list array map optional pointer shared; variant: the alternative that has no name in older files, or nullptr
  const TypeInfo* element = nullptr;
  const TensorOps* tensor = nullptr;
  const ValueOps* value = nullptr;
  const ContainerOps* container = nullptr;
  const HookOps* hook = nullptr;
  /// Returns the mangled name of the object's class if this table describes only one of its bases, else null. Absent if
  /// no class can be derived, and without RTTI.
  const char* (*other_class)(const void* object) = nullptr;
  /// Returns the name of `field` in a file of version `from`; empty if it is unchanged.
  std::string_view (*migrate)(std::uint32_t from, std::string_view field) = nullptr;
  /// Converts this module's part of a file of version `from` to the current version.
  Result<Snapshot> (*rewrite)(std::uint32_t from, const Snapshot& old) = nullptr;
  std::span<const MovedPath> moved{};
  /// Facts about the unrecorded fields, for formats that store fields by position (burn_layout); or nullptr.
  const Attribute* layout = nullptr;
};

}  // namespace detail
}  // namespace stele::inline v0
