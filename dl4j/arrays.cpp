#include "dl4j/arrays.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

#include "snapshot/data.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/value.hpp"
#include "steps/byte_order.hpp"
#include "steps/transpose.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace samediff {
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
// The bits of shapeInfo's flags for the data type; the other bits are kinds of arrays.
constexpr std::int64_t type_flags = unsigned_flag | 2048 | 4096 | 8192 | 16384 | 32768 | 65536 | 131072 | 262144 |
                                    524288 | 1048576 | 4194304 | 16777216;

const Known* find(auto matches) {
  const auto found = std::find_if(known.begin(), known.end(), matches);
  return found != known.end() ? &*found : nullptr;
}

const Known* of_flags(std::int64_t flags) {
  return find([&](const Known& k) { return k.flags != 0 && k.flags == (flags & type_flags); });
}

constexpr std::uint32_t most_axes = 32;  // ND4J's limit

Error too_many_axes(std::uint32_t axes) {
  return Error(Errc::limit, "an array of too many axes")
      .expected("at most " + std::to_string(most_axes))
      .found(std::to_string(axes));
}

Error bad(const char* text) { return Error(Errc::malformed, text); }

using Longs = flatbuffers::Vector<std::int64_t>;

/// Returns true if `shape` has the form of ND4J's shapeInfo: rank, extents, strides, flags, element-wise stride, order.
bool is_shape_info(const Longs& shape) {
  const std::uint64_t n = shape.size();
  if (n < 4) return false;
  const std::int64_t rank = number_at(shape, 0);
  if (rank < 0 || static_cast<std::uint64_t>(rank) > n || n != 2 * static_cast<std::uint64_t>(rank) + 4) return false;
  const std::int64_t order = number_at(shape, n - 1);
  return (order == 'c' || order == 'f') && of_flags(number_at(shape, n - 3)) != nullptr;
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
      return Error(Errc::unsupported, "an array whose elements do not lie side by side")
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

Status set_bytes(ArrayFacts& facts, std::uint64_t there) {
  const auto count = element_count(facts.shape);
  if (!count) return bad("an array of too many elements");
  if (facts.dtype == DType::string) {
    facts.bytes = there;
    return {};
  }
  const auto bytes = byte_length(facts.dtype, *count);
  if (!bytes) return bad("an array of too many bytes");
  facts.bytes = *bytes;
  return {};
}

std::uint64_t content_size(const stele_fb::Array& array) {
  return array.buffer() != nullptr ? array.buffer()->size() : 0;
}

/// Returns shapeInfo: extents and strides in ND4J's form. Strides are those of row-major order, or of the order `axes`,
/// outermost first.
std::vector<std::int64_t> shape_info(DType dtype, std::span<const Extent> shape, bool empty,
                                     std::span<const std::size_t> axes = {}) {
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

}  // namespace

bool holds(DType dtype) {
  return dtype != DType::none && dtype != DType::string &&
         find([&](const Known& k) { return k.dtype == dtype; }) != nullptr;
}

Result<DType> dtype_of(Type type) {
  if (const Known* k = find([&](const Known& one) { return one.type == type; })) return k->dtype;
  return Error(Errc::unsupported, "a data type that stele has none for")
      .found("DType " + std::to_string(static_cast<int>(type)));
}

Type type_of(DType dtype) {
  const Known* k = find([&](const Known& one) { return one.dtype == dtype; });
  return k != nullptr ? k->type : Type::inherit;
}

Result<ArrayFacts> facts_of(const stele_fb::Array& array, Dialect hint, DType variable) {
  ArrayFacts facts;
  const Longs* shape = array.shape();
  if (shape != nullptr && is_shape_info(*shape) &&
      (hint == Dialect::a || array.buffer() == nullptr || content_size(array) != 0)) {
    const auto n = shape->size();
    const auto rank = static_cast<flatbuffers::uoffset_t>(number_at(*shape, 0));
    if (rank > most_axes) return too_many_axes(rank);
    const std::int64_t flags = number_at(*shape, n - 3);
    facts.dtype = of_flags(flags)->dtype;
    for (flatbuffers::uoffset_t k = 1; k <= rank; ++k) {
      if (number_at(*shape, k) < 0) return bad("an array with a negative extent");
      facts.shape.push_back(static_cast<Extent>(number_at(*shape, k)));
    }
    facts.big_endian = array.order() == stele_fb::ByteOrder::big;
    const bool empty = (flags & empty_flag) != 0;
    facts.scalar = empty && rank == 0;
    if (facts.scalar) facts.shape = {0};
    if (empty && element_count(facts.shape) != 0) return bad("an empty array whose extents have elements");
    if (element_count(facts.shape) != 0) {
      STELE_TRY_ASSIGN(facts.axes, axes_of(facts.shape, *shape));
    }
    STELE_TRY(set_bytes(facts, content_size(array)));
    return facts;
  }
  STELE_TRY_ASSIGN(facts.dtype, dtype_of(array.dtype()));
  if (shape != nullptr) {
    if (shape->size() > most_axes) return too_many_axes(shape->size());
    for (const std::int64_t extent : numbers_of<std::int64_t>(shape)) {
      if (extent < 0) return bad("an array with a negative extent");
      facts.shape.push_back(static_cast<Extent>(extent));
    }
  }
  // An empty array has no buffer, and may declare another type than its variable.
  const bool nothing = content_size(array) == 0 && !array.is_external() && array.appended_length() == 0 &&
                       (array.chunks() == nullptr || array.chunks()->size() == 0);
  if (nothing && facts.shape.empty()) facts.shape = {0};
  if (nothing && variable != DType::none) facts.dtype = variable;
  if (hint == Dialect::b && array.order() == stele_fb::ByteOrder::big && facts.shape.size() > 1) {
    facts.axes.resize(facts.shape.size());
    std::iota(facts.axes.rbegin(), facts.axes.rend(), std::size_t{0});
  }
  facts.big_endian = hint == Dialect::a && array.order() == stele_fb::ByteOrder::big;
  STELE_TRY(set_bytes(facts, content_size(array)));
  return facts;
}

Result<std::vector<std::string>> texts_of(const ArrayFacts& facts, std::span<const std::byte> buffer) {
  const auto count = element_count(facts.shape);
  if (!count) return bad("an array of too many elements");
  if (*count == 0) return std::vector<std::string>();
  // The layout is a count and offsets, big-endian, or only offsets, in either byte order. The first offset is 0; the
  // last is the length of the text after the offsets.
  struct Layout {
    bool counted, big;
  };
  for (const Layout layout : {Layout{true, true}, Layout{false, false}, Layout{false, true}}) {
    const std::uint64_t words = *count + 1 + (layout.counted ? 1 : 0);
    if (words > buffer.size() / 8 || *count > buffer.size() / 8) continue;
    const auto word = [&](std::uint64_t i) {
      auto w = load_le<std::uint64_t>(buffer.data() + 8 * i);
      return layout.big ? __builtin_bswap64(w) : w;
    };
    const std::uint64_t first = layout.counted ? 1 : 0;
    const auto text = buffer.subspan(static_cast<std::size_t>(8 * words));
    bool fits = (!layout.counted || word(0) == *count) && word(first) == 0 && word(first + *count) == text.size();
    for (std::uint64_t i = 0; fits && i < *count; ++i) fits = word(first + i) <= word(first + i + 1);
    if (!fits) continue;
    std::vector<std::string> texts;
    texts.reserve(static_cast<std::size_t>(*count));
    for (std::uint64_t i = first; i < first + *count; ++i) {
      texts.emplace_back(reinterpret_cast<const char*>(text.data()) + word(i), word(i + 1) - word(i));
    }
    return texts;
  }
  return bad("an array of texts whose offsets do not fit");
}

Result<GraphArray> read_array(const stele_fb::Array& array, Dialect hint) {
  STELE_TRY_ASSIGN(ArrayFacts facts, facts_of(array, hint));
  GraphArray out{facts.dtype, facts.shape, {}, {}};
  if (facts.dtype == DType::none) return bad("an array without a data type");
  const std::uint64_t there = content_size(array);
  const auto bytes =
      std::as_bytes(std::span(there != 0 ? array.buffer()->data() : nullptr, static_cast<std::size_t>(there)));
  if (facts.dtype == DType::string) {
    STELE_TRY_ASSIGN(out.strings, texts_of(facts, bytes));
    return out;
  }
  if (facts.bytes != there) {
    return bad("an array whose length is not that of its type and shape")
        .expected(std::to_string(facts.bytes) + " bytes")
        .found(std::to_string(there));
  }
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
    // Offsets, then the bytes, like DL4J 1.0.0-M2.1.
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

Status check_arrays(const Graph& graph) {
  const auto check = [](const GraphOperation& operation, const GraphArray& array) -> Status {
    const auto count = element_count(array.shape);
    const bool texts = array.dtype == DType::string;
    const auto wanted = texts || !count ? count : byte_length(array.dtype, *count);
    const std::uint64_t there = texts ? array.strings.size() : array.bytes.size();
    if (wanted == there) return {};
    return Error(Errc::invalid_argument, "an array of an operation that does not fit its dtype and shape")
        .path(operation.name)
        .expected(wanted ? std::to_string(*wanted) + (texts ? " strings" : " bytes") : "a dtype and a shape that fit")
        .found(std::to_string(there));
  };
  for (const GraphOperation& operation : graph.operations) {
    if (operation.scalar) STELE_TRY(check(operation, *operation.scalar));
    for (const GraphProperty& property : operation.properties) {
      for (const GraphArray& array : property.arrays) STELE_TRY(check(operation, array));
    }
  }
  for (const auto& inner : graph.sub_graphs) STELE_TRY(check_arrays(inner.second));
  return {};
}

std::string array_head(DType dtype, std::span<const Extent> shape, std::uint64_t size) {
  // The layout depends only on the size modulo 8, so a small size can replace the real one. The content is written
  // last; it and its padding are left out.
  const std::uint64_t stand_in = size % 8 + 8;
  flatbuffers::FlatBufferBuilder to(512);
  std::uint64_t content = 0;
  to.Finish(make_array(to, dtype, shape, stand_in, &content));
  std::string head(reinterpret_cast<const char*>(to.GetBufferPointer()), to.GetSize() - content);
  store_le(reinterpret_cast<std::byte*>(head.data() + head.size() - 4), static_cast<std::uint32_t>(size));
  return head;
}

std::string array_alone(const ArrayFacts& facts, const std::string& external) {
  flatbuffers::FlatBufferBuilder to(512);
  const auto info = to.CreateVector(shape_info(facts.dtype, facts.shape, facts.bytes == 0, facts.axes));
  flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>> names;
  if (!external.empty()) names = to.CreateVectorOfStrings({external});
  stele_fb::ArrayBuilder array(to);
  array.add_shape(info);
  array.add_dtype(type_of(facts.dtype));
  if (facts.big_endian) array.add_order(stele_fb::ByteOrder::big);
  if (!external.empty()) {
    array.add_external_names(names);
    array.add_is_external(true);
    array.add_total_size(static_cast<std::int64_t>(facts.bytes));
  }
  to.Finish(array.Finish());
  return {reinterpret_cast<const char*>(to.GetBufferPointer()), to.GetSize()};
}

std::string array_alone(DType dtype, std::span<const Extent> shape, const std::string& external, std::uint64_t size) {
  return array_alone(ArrayFacts{dtype, {shape.begin(), shape.end()}, size, {}, false}, external);
}

flatbuffers::Verifier verifier_of(std::span<const std::byte> buffer) {
  // A table takes at least four bytes, so a higher number means shared tables, which could cost much time and memory.
  const auto tables = static_cast<flatbuffers::uoffset_t>(std::min<std::size_t>(buffer.size() / 4 + 1, 1U << 30U));
  return {reinterpret_cast<const std::uint8_t*>(buffer.data()), buffer.size(), 64, tables};
}

namespace {

/// Returns the offset of the root's field `buffer`, or nothing if it is absent or the whole buffer must be read to find
/// it.
std::optional<std::uint64_t> place_of_content(std::span<const std::byte> head) {
  const auto u32 = [&](std::uint64_t at) -> std::optional<std::uint32_t> {
    if (at > head.size() || head.size() - at < 4) return std::nullopt;
    return load_le<std::uint32_t>(head.data() + at);
  };
  const auto root = u32(0);
  if (!root) return std::nullopt;
  const auto back = u32(*root);
  if (!back) return std::nullopt;
  const std::int64_t table = static_cast<std::int64_t>(*root) - static_cast<std::int32_t>(*back);
  if (table < 0 || static_cast<std::uint64_t>(table) + 8 > head.size()) return std::nullopt;
  const auto length = load_le<std::uint16_t>(head.data() + table);
  if (length < 8) return std::nullopt;
  const auto field = load_le<std::uint16_t>(head.data() + table + 6);  // second field
  if (field == 0) return std::nullopt;
  const std::uint64_t at = std::uint64_t{*root} + field;
  const auto offset = u32(at);
  if (!offset) return std::nullopt;
  return at + *offset;
}

Result<std::optional<ArrayHead>> checked_head(std::span<const std::byte> buffer, bool dummy_content,
                                              std::uint64_t begin, std::uint64_t content) {
  auto verifier = verifier_of(buffer);
  if (!verifier.VerifyBuffer<stele_fb::Array>(nullptr)) return bad("an array that FlatBuffers' verifier refuses");
  const auto& array = *flatbuffers::GetRoot<stele_fb::Array>(buffer.data());
  ArrayHead head;
  STELE_TRY_ASSIGN(head.facts, facts_of(array, Dialect::a));
  if (array.is_external()) {
    if (array.external_names() == nullptr || array.external_names()->size() != 1 || content_size(array) != 0) {
      return bad("an array in another file that does not name one");
    }
    head.external = array.external_names()->Get(0)->str();
    if (head.external.empty()) return bad("an array in another file that does not name one");
    if (array.total_size() < 0 || static_cast<std::uint64_t>(array.total_size()) != head.facts.bytes) {
      return bad("an array whose length is not that of its type and shape")
          .expected(std::to_string(head.facts.bytes) + " bytes")
          .found(std::to_string(array.total_size()));
    }
    return std::optional(std::move(head));
  }
  if (!dummy_content && array.buffer() != nullptr) {
    begin = static_cast<std::uint64_t>(reinterpret_cast<const std::byte*>(array.buffer()->data()) - buffer.data());
    content = array.buffer()->size();
  }
  head.begin = begin;
  head.end = begin + content;
  if (head.facts.dtype == DType::string) {
    head.facts.bytes = content;
  } else if (head.facts.bytes != content) {
    return bad("an array whose length is not that of its type and shape")
        .expected(std::to_string(head.facts.bytes) + " bytes")
        .found(std::to_string(content));
  }
  return std::optional(std::move(head));
}

}  // namespace

Result<std::optional<ArrayHead>> read_head(std::span<const std::byte> head, std::uint64_t size) {
  constexpr std::uint64_t largest_head = std::uint64_t{64} << 10;
  // FlatBuffers reads numbers at aligned addresses, but content in a file may have any alignment.
  std::vector<std::uint64_t> memory;
  const auto aligned = [&](std::size_t n) {
    memory.assign(n / 8 + 1, 0);
    const auto copy = std::as_writable_bytes(std::span(memory)).first(n);
    std::copy_n(head.begin(), n, copy.begin());
    return copy;
  };
  // If the content is last, the bytes before it form a valid buffer once its length is set to 0.
  if (const auto at = place_of_content(head); at && *at <= head.size() && head.size() - *at >= 4) {
    const auto length = load_le<std::uint32_t>(head.data() + *at);
    if (*at < largest_head && length != 0 && length <= max_buffer && *at + 4 + length == size) {
      const auto n = static_cast<std::size_t>(*at) + 4;
      const auto copy = aligned(n);
      store_le(copy.data() + n - 4, std::uint32_t{0});
      return checked_head(copy, true, n, length);
    }
  }
  if (head.size() != size) return std::optional<ArrayHead>();
  const bool fits = reinterpret_cast<std::uintptr_t>(head.data()) % 8 == 0;
  return checked_head(fits ? head : aligned(head.size()), false, 0, 0);
}

Result<std::vector<GraphProperty>> read_properties(
    const flatbuffers::Vector<flatbuffers::Offset<stele_fb::Property>>* properties, Dialect hint) {
  std::vector<GraphProperty> all;
  if (properties == nullptr) return all;
  all.reserve(properties->size());
  for (const auto* p : *properties) {
    GraphProperty& out = all.emplace_back();
    out.name = text_of(p->name());
    out.ints = numbers_of<std::int32_t>(p->ints());
    out.longs = numbers_of<std::int64_t>(p->longs());
    out.doubles = numbers_of<double>(p->doubles());
    if (p->bools() != nullptr) {
      for (const auto b : *p->bools()) out.bools.push_back(b != 0);
    }
    out.strings = texts_of(p->strings());
    out.shape = numbers_of<std::int32_t>(p->shape());
    if (p->arrays() == nullptr) continue;
    for (const auto* array : *p->arrays()) {
      STELE_TRY_ASSIGN(GraphArray a, read_array(*array, hint));
      out.arrays.push_back(std::move(a));
    }
  }
  return all;
}

flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<stele_fb::Property>>> write_properties(
    flatbuffers::FlatBufferBuilder& to, const std::vector<GraphProperty>& properties) {
  std::vector<flatbuffers::Offset<stele_fb::Property>> all;
  for (const GraphProperty& p : properties) {
    std::vector<flatbuffers::Offset<stele_fb::Array>> arrays;
    for (const GraphArray& a : p.arrays) arrays.push_back(write_array(to, a));
    const std::vector<std::uint8_t> bools(p.bools.begin(), p.bools.end());
    // Write all lists, even empty ones: DL4J writes and requires them.
    const auto name = to.CreateString(p.name);
    const auto ints = to.CreateVector(p.ints);
    const auto longs = to.CreateVector(p.longs);
    const auto doubles = to.CreateVector(p.doubles);
    const auto array_list = to.CreateVector(arrays);
    const auto bool_list = to.CreateVector(bools);
    const auto strings = to.CreateVectorOfStrings(p.strings);
    const auto shape = to.CreateVector(p.shape);
    all.push_back(stele_fb::CreateProperty(to, name, ints, longs, doubles, array_list, bool_list, strings, shape));
  }
  return to.CreateVector(all);
}

Value value_of(const std::vector<std::string>& texts, std::span<const Extent> shape) {
  if (shape.empty()) return Value(texts.empty() ? std::string() : texts.front());
  // Nest the values from the innermost lists outwards.
  Value::List values;
  values.reserve(texts.size());
  for (const std::string& t : texts) values.emplace_back(t);
  for (std::size_t axis = shape.size(); axis-- > 1;) {
    const auto n = static_cast<std::size_t>(shape[axis]);
    if (n == 0) break;
    Value::List outer;
    for (std::size_t i = 0; i + n <= values.size(); i += n) {
      Value::List inner(std::make_move_iterator(values.begin() + static_cast<std::ptrdiff_t>(i)),
                        std::make_move_iterator(values.begin() + static_cast<std::ptrdiff_t>(i + n)));
      outer.emplace_back(std::move(inner));
    }
    values = std::move(outer);
  }
  return Value(std::move(values));
}

Status Arrays::add(std::string_view name, const ArrayFacts& facts, Provider provider) {
  if (facts.dtype == DType::none || facts.dtype == DType::string) return bad("an array without a data type");
  const auto leaf = static_cast<std::uint32_t>(builder_.data().leaves.size());
  std::vector<Extent> shape = facts.shape;
  if (!facts.axes.empty()) {
    std::vector<std::size_t>& back = axes_[leaf];
    back.resize(facts.axes.size());
    for (std::size_t k = 0; k < back.size(); ++k) {
      shape[k] = facts.shape[facts.axes[k]];
      back[facts.axes[k]] = k;
    }
  }
  big_endian_.push_back(facts.big_endian != (std::endian::native == std::endian::big));
  const std::string_view own = builder_.intern(name);
  nodes_.emplace(own, builder_.tensor(own, facts.dtype, shape, facts.bytes, provider));
  return {};
}

void Arrays::add(std::string_view name, Value value) {
  const std::string_view own = builder_.intern(name);
  nodes_.emplace(own, builder_.value(own, std::move(value)));
}

std::uint32_t Arrays::node(std::string_view name) const {
  const auto found = nodes_.find(name);
  return found != nodes_.end() ? found->second : no_index;
}

Result<Snapshot> Arrays::finish(std::shared_ptr<const void> keeper) {
  builder_.keep(std::move(keeper));
  Snapshot snapshot = builder_.finish();
  if (std::find(big_endian_.begin(), big_endian_.end(), true) != big_endian_.end()) {
    snapshot = with_bytes_swapped(snapshot, &big_endian_);
  }
  if (axes_.empty()) return snapshot;
  return transpose_where(snapshot, [&, leaf = std::uint32_t{0}](const LeafView&) mutable {
    const auto found = axes_.find(leaf++);  // called once for each leaf, in order
    return found != axes_.end() ? std::optional(found->second) : std::nullopt;
  });
}

}  // namespace samediff
}  // namespace detail
}  // namespace v0
}  // namespace stele
