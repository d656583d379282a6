#include "arrays_fb.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::samediff {
namespace {

using stele_fb::Type;

struct Known {
  DType dtype;
  Type type;
  std::int64_t flags;  // flags in shapeInfo: libnd4j's ArrayType
};
constexpr std::int64_t unsigned_flag = 8388608;
constexpr std::int64_t empty_flag = 8;
constexpr std::array<Known, 15> known = {{
    {DType::none, Type::inherit, 0},
    {DType::boolean, Type::boolean, 524288},
    {DType::f16, Type::half, 4096},
    {DType::f32, Type::float32, 8192},
    {DType::f64, Type::float64, 16384},
    {DType::i8, Type::int8, 32768},
    {DType::i16, Type::int16, 65536},
    {DType::i32, Type::int32, 131072},
    {DType::i64, Type::int64, 262144},
    {DType::u8, Type::uint8, unsigned_flag | 32768},
    {DType::u16, Type::uint16, unsigned_flag | 65536},
    {DType::u32, Type::uint32, unsigned_flag | 131072},
    {DType::u64, Type::uint64, unsigned_flag | 262144},
    {DType::bf16, Type::bfloat16, 2048},
    {DType::string, Type::utf8, 1048576},
}};
// The bits of shapeInfo's flags that encode the data type. The other bits describe the kind of array.
constexpr std::int64_t type_flags = unsigned_flag | 2048 | 4096 | 8192 | 16384 | 32768 | 65536 | 131072 | 262144 |
                                    524288 | 1048576 | 4194304 | 16777216;

const Known* find(auto matches) {
  const auto found = std::find_if(known.begin(), known.end(), matches);
  return found != known.end() ? &*found : nullptr;
}

const Known* of_flags(std::int64_t flags) {
  return find([&](const Known& k) { return k.flags != 0 && k.flags == (flags & type_flags); });
}

constexpr std::uint32_t max_axes = 32;  // ND4J's limit

Error too_many_axes(std::uint32_t axes) {
  return Error(Errc::limit, "the array has too many axes")
      .expected("at most " + std::to_string(max_axes))
      .found(std::to_string(axes));
}

using Longs = flatbuffers::Vector<std::int64_t>;

/// Returns true if `shape` has the form of ND4J's shapeInfo: rank, extents, strides, flags, element-wise stride, order.
bool is_shape_info(const Longs& shape) {
  const std::uint64_t n = shape.size();
  if (n < 4) return false;
  const std::int64_t rank = number_at(shape, 0);
  if (rank < 0 || static_cast<std::uint64_t>(rank) > n || n != 2 * static_cast<std::uint64_t>(rank) + 4) return false;
  const std::int64_t order = number_at(shape, static_cast<std::size_t>(n - 1));
  return (order == 'c' || order == 'f') && of_flags(number_at(shape, static_cast<std::size_t>(n - 3))) != nullptr;
}

/// Returns the axes from the largest stride to the smallest; empty if they are already in that order. ND4J stores
/// permuted arrays with their strides unchanged. Errors: unsupported (elements that overlap or have gaps between them).
Result<std::vector<std::size_t>> axes_of(std::span<const Extent> shape, const Longs& info) {
  const auto stride = [&](std::size_t k) { return number_at(info, 1 + shape.size() + k); };
  std::vector<std::size_t> axes;
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] > 1) axes.push_back(k);
  }
  const std::size_t many = axes.size();
  std::stable_sort(axes.begin(), axes.end(), [&](std::size_t a, std::size_t b) { return stride(a) > stride(b); });
  std::uint64_t dense = 1;
  for (std::size_t k = many; k-- > 0;) {
    if (stride(axes[k]) < 0 || static_cast<std::uint64_t>(stride(axes[k])) != dense) {
      return Error(Errc::unsupported, "the elements of the array are not contiguous")
          .expected("stride " + std::to_string(dense))
          .found(std::to_string(stride(axes[k])));
    }
    dense *= shape[axes[k]];  // at most the number of elements
  }
  if (std::is_sorted(axes.begin(), axes.end())) return std::vector<std::size_t>();
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] == 1) axes.push_back(k);
  }
  return axes;
}

Result<std::uint64_t> size_of(const ArrayFacts& facts, const stele_fb::Array& array) {
  if (facts.dtype != DType::string) return bytes_of_array(facts.dtype, facts.shape);
  if (!element_count(facts.shape)) return malformed("the number of elements exceeds 64 bits");
  return content_size(array);
}

}  // namespace

bool holds(DType dtype) {
  return dtype != DType::none && dtype != DType::string &&
         find([&](const Known& k) { return k.dtype == dtype; }) != nullptr;
}

Result<DType> dtype_of(Type type) {
  if (const Known* k = find([&](const Known& one) { return one.type == type; })) return k->dtype;
  return Error(Errc::unsupported, "the data type is not supported")
      .found("DType " + std::to_string(static_cast<int>(type)));
}

Type type_of(DType dtype) {
  const Known* k = find([&](const Known& one) { return one.dtype == dtype; });
  return k != nullptr ? k->type : Type::inherit;
}

Result<std::vector<Extent>> extents_of(const Longs& shape) {
  if (shape.size() > max_axes) return too_many_axes(shape.size());
  std::vector<Extent> out;
  out.reserve(shape.size());
  for (const std::int64_t extent : numbers_of<std::int64_t>(&shape)) {
    if (extent < 0) return malformed("an extent of the array is negative");
    out.push_back(static_cast<Extent>(extent));
  }
  return out;
}

Result<std::uint64_t> bytes_of_array(DType dtype, std::span<const Extent> shape) {
  const auto count = element_count(shape);
  if (!count) return malformed("the number of elements exceeds 64 bits");
  const auto bytes = byte_length(dtype, *count);
  if (!bytes) return malformed("the number of bytes exceeds 64 bits");
  return *bytes;
}

std::vector<std::int64_t> shape_info(DType dtype, std::span<const Extent> shape, bool empty,
                                     std::span<const std::size_t> axes) {
  const std::size_t rank = shape.size();
  std::vector<std::int64_t> info(2 * rank + 4, 0);
  info[0] = static_cast<std::int64_t>(rank);
  std::int64_t stride = 1;
  for (std::size_t i = rank; i-- > 0;) {
    const std::size_t k = axes.empty() ? i : axes[i];
    info[1 + k] = static_cast<std::int64_t>(shape[k]);
    info[1 + rank + k] = stride;
    stride = static_cast<std::int64_t>(static_cast<std::uint64_t>(stride) * shape[k]);
  }
  info[2 * rank + 1] = find([&](const Known& k) { return k.dtype == dtype; })->flags;
  if (empty) info[2 * rank + 1] |= empty_flag;
  info[2 * rank + 2] = 1;
  info[2 * rank + 3] = 'c';
  return info;
}

Result<ArrayFacts> facts_of(const stele_fb::Array& array, Dialect hint, DType variable) {
  ArrayFacts facts;
  const Longs* shape = array.shape();
  if (shape != nullptr && is_shape_info(*shape) &&
      (hint == Dialect::a || array.buffer() == nullptr || content_size(array) != 0)) {
    const auto n = shape->size();
    const auto rank = static_cast<flatbuffers::uoffset_t>(number_at(*shape, 0));
    if (rank > max_axes) return too_many_axes(rank);
    const std::int64_t flags = number_at(*shape, n - 3);
    facts.dtype = of_flags(flags)->dtype;
    for (flatbuffers::uoffset_t k = 1; k <= rank; ++k) {
      if (number_at(*shape, k) < 0) return malformed("an extent of the array is negative");
      facts.shape.push_back(static_cast<Extent>(number_at(*shape, k)));
    }
    facts.big_endian = array.order() == stele_fb::ByteOrder::big;
    const bool empty = (flags & empty_flag) != 0;
    facts.scalar = empty && rank == 0;
    if (facts.scalar) facts.shape = {0};
    if (empty && element_count(facts.shape) != 0)
      return malformed("the array is marked as empty, but its shape has elements");
    if (element_count(facts.shape) != 0) {
      STELE_TRY_ASSIGN(facts.axes, axes_of(facts.shape, *shape));
    }
    STELE_TRY_ASSIGN(facts.bytes, size_of(facts, array));
    return facts;
  }
  STELE_TRY_ASSIGN(facts.dtype, dtype_of(array.dtype()));
  if (shape != nullptr) {
    STELE_TRY_ASSIGN(facts.shape, extents_of(*shape));
  }
  // An empty array has no buffer, and may declare a different type than its variable.
  const bool nothing = content_size(array) == 0 && !array.is_external() && array.appended_length() == 0 &&
                       (array.chunks() == nullptr || array.chunks()->size() == 0);
  if (nothing && facts.shape.empty()) facts.shape = {0};
  if (nothing && variable != DType::none) facts.dtype = variable;
  if (hint == Dialect::b && array.order() == stele_fb::ByteOrder::big && facts.shape.size() > 1) {
    facts.axes.resize(facts.shape.size());
    std::iota(facts.axes.rbegin(), facts.axes.rend(), std::size_t{0});
  }
  facts.big_endian = hint == Dialect::a && array.order() == stele_fb::ByteOrder::big;
  STELE_TRY_ASSIGN(facts.bytes, size_of(facts, array));
  return facts;
}

Result<GraphArray> read_array(const stele_fb::Array& array, Dialect hint) {
  STELE_TRY_ASSIGN(ArrayFacts facts, facts_of(array, hint));
  GraphArray out{facts.dtype, facts.shape, {}, {}};
  if (facts.dtype == DType::none) return malformed("the array has no data type");
  const std::uint64_t stored_bytes = content_size(array);
  const auto bytes = std::as_bytes(
      std::span(stored_bytes != 0 ? array.buffer()->data() : nullptr, static_cast<std::size_t>(stored_bytes)));
  if (facts.dtype == DType::string) {
    STELE_TRY_ASSIGN(out.strings, texts_of(facts, bytes));
    return out;
  }
  if (facts.bytes != stored_bytes) return wrong_length(facts.bytes, stored_bytes);
  const std::size_t size = element_size(facts.dtype);
  out.bytes.resize(bytes.size());
  std::vector<std::uint64_t> strides(facts.shape.size(), 1);  // strides in the result
  for (std::size_t k = strides.size(); k-- > 1;) strides[k - 1] = strides[k] * facts.shape[k];
  for (std::uint64_t i = 0; i * size < bytes.size(); ++i) {
    std::uint64_t to = facts.axes.empty() ? i : 0;
    std::uint64_t rest = i;
    for (std::size_t k = facts.axes.size(); k-- > 0; rest /= facts.shape[facts.axes[k]]) {
      to += rest % facts.shape[facts.axes[k]] * strides[facts.axes[k]];
    }
    const std::byte* from = bytes.data() + i * size;
    std::byte* at = out.bytes.data() + to * size;
    if (facts.big_endian) {
      std::reverse_copy(from, from + size, at);
    } else {
      std::copy(from, from + size, at);
    }
  }
  return out;
}

flatbuffers::Offset<stele_fb::Array> make_array(flatbuffers::FlatBufferBuilder& to, DType dtype,
                                                std::span<const Extent> shape, std::uint64_t size,
                                                std::uint64_t* content) {
  flatbuffers::Offset<flatbuffers::Vector<std::int8_t>> buffer;
  if (size != 0) {
    std::uint8_t* memory = nullptr;
    buffer = to.CreateUninitializedVector(static_cast<std::size_t>(size), 1, &memory);
    if (content != nullptr) *content = to.GetSize() - sizeof(flatbuffers::uoffset_t);
  }
  const auto info = to.CreateVector(shape_info(dtype, shape, size == 0));
  stele_fb::ArrayBuilder array(to);
  array.add_shape(info);
  if (size != 0) array.add_buffer(buffer);
  array.add_dtype(type_of(dtype));
  return array.Finish();
}

flatbuffers::Offset<stele_fb::Array> write_array(flatbuffers::FlatBufferBuilder& to, const GraphArray& array) {
  std::vector<std::byte> texts;
  if (array.dtype == DType::string && !array.strings.empty()) {
    // Writes the offsets, then the bytes, as DL4J 1.0.0-M2.1 does.
    std::uint64_t at = 0;
    texts.resize(8 * (array.strings.size() + 1));
    for (std::size_t i = 0; i < array.strings.size(); ++i)
      store_le(texts.data() + 8 * i + 8, at += array.strings[i].size());
    store_le(texts.data(), std::uint64_t{0});
    for (const std::string& s : array.strings) {
      const auto bytes = std::as_bytes(std::span(s));
      texts.insert(texts.end(), bytes.begin(), bytes.end());
    }
  }
  const std::vector<std::byte>& bytes = array.dtype == DType::string ? texts : array.bytes;
  std::uint64_t content = 0;
  const auto made = make_array(to, array.dtype, array.shape, bytes.size(), &content);
  std::copy(bytes.begin(), bytes.end(),
            reinterpret_cast<std::byte*>(to.GetCurrentBufferPointer() + (to.GetSize() - content)));
  return made;
}

flatbuffers::Verifier verifier_of(std::span<const std::byte> buffer) {
  // A table takes at least four bytes, so a greater number of tables means shared tables, which could take much time
  // and memory.
  const auto tables = static_cast<flatbuffers::uoffset_t>(std::min<std::size_t>(buffer.size() / 4 + 1, 1U << 30U));
  return {reinterpret_cast<const std::uint8_t*>(buffer.data()), buffer.size(), 64, tables};
}

}  // namespace stele::inline v0::detail::samediff
