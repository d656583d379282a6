// Reads attributes and the elements of small datasets.
#include "attribute.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "fractal_heap.hpp"
#include "hdf5.hpp"
#include "stele/precision/convert.hpp"

namespace stele::inline v0::detail::hdf5 {

Status AttributeReader::add(const Header& header, Entry& entry) {
  STELE_TRY(add_all(header, entry));
  const Message* const info = header.find(message::attribute_info);
  if (info == nullptr) return {};
  STELE_TRY_ASSIGN(const Dense dense, read_dense(file_, *info));
  if (!dense.reason.empty()) entry.skipped.push_back("attributes " + std::string(dense.reason));
  const auto first = static_cast<std::ptrdiff_t>(entry.attributes.size());
  STELE_TRY(add_all(dense.header, entry));
  if (!dense.ordered) {
    std::sort(entry.attributes.begin() + first, entry.attributes.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  return {};
}

Status AttributeReader::add_all(const Header& header, Entry& entry) {
  for (const Message& message : header.messages) {
    if (message.type != message::attribute) continue;
    if (message.shared) {
      entry.skipped.emplace_back("a shared attribute");
      continue;
    }
    auto read = add_one(message, entry);
    if (!read) {
      Error error = std::move(read).error().path(std::string(entry.path));
      return error.offset() ? std::move(error) : std::move(error).offset(message.offset);
    }
  }
  return {};
}

Status AttributeReader::add_one(const Message& message, Entry& entry) {
  In in(message.content);
  const unsigned version = in.u8(), flags = in.u8();
  const std::uint64_t name_size = in.u16(), type_size = in.u16(), space_size = in.u16();
  if (version < 1 || version > 3) return damaged("an attribute has an unknown version");
  if (version == 3) in.u8();
  const auto padded = [&](std::uint64_t size) { return version == 1 ? (size + 7) / 8 * 8 : size; };
  std::string_view name = text_of(in.take(padded(name_size)));
  name = name.substr(0, name.find('\0'));
  In type_bytes(in.take(padded(type_size))), space_bytes(in.take(padded(space_size)));
  if (!in.ok()) return damaged("an attribute is incomplete");
  STELE_TRY(file_.take(3 * sizeof(Value) + 2 * name.size()));
  const auto skip = [&]() -> Status {
    entry.skipped.emplace_back(name);
    return {};
  };
  if ((flags & 3U) != 0 && version > 1) return skip();  // a named datatype
  STELE_TRY_ASSIGN(const Type type, parse_type(type_bytes));
  STELE_TRY_ASSIGN(const Space space, parse_space(space_bytes));
  const auto bytes = checked_mul(space.count, type.size);
  if (!bytes || *bytes > in.left()) return damaged("an attribute is shorter than its elements");
  // A Value has no complex numbers.
  const bool kept = type.text || (type.dtype != DType::none && dtype_class(type.dtype) != DTypeClass::complex);
  if (space.shape.size() > 1 || !kept) return skip();
  if (file_.memory_left() < 4 * sizeof(Value) * space.count) return skip();
  STELE_TRY_ASSIGN(Value value, value_of(type, space, in.take(*bytes)));
  if (type.enumerated) entry.skipped.push_back(std::string(name) + " (names of its numbers)");
  entry.attributes.emplace_back(name, std::move(value));
  return {};
}

Result<Value> AttributeReader::value_of(const Type& type, const Space& space, View bytes) {
  if (space.null) return Value();
  Value::List list;
  STELE_TRY(file_.take(4 * sizeof(Value) * space.count));
  list.reserve(static_cast<std::size_t>(space.count));
  for (std::uint64_t i = 0; i < space.count; ++i) {
    STELE_TRY_ASSIGN(Value value, element(type, bytes.subspan(static_cast<std::size_t>(i * type.size), type.size)));
    list.push_back(std::move(value));
  }
  return space.shape.empty() ? std::move(list[0]) : Value(std::move(list));
}

Result<Value> AttributeReader::element(const Type& type, View bytes) {
  if (type.variable) {
    STELE_TRY_ASSIGN(std::string text, heap_.text(bytes));
    return Value(std::move(text));
  }
  if (type.text) {
    std::string_view text = text_of(bytes);
    if (type.padding == 0) text = text.substr(0, text.find('\0'));
    const std::size_t end = text.find_last_not_of(type.padding == 2 ? ' ' : '\0');
    text = text.substr(0, end == text.npos ? 0 : end + 1);
    STELE_TRY(file_.take(text.size()));
    return Value(text);
  }
  std::byte little[16] = {};
  const std::size_t size = std::min<std::size_t>(bytes.size(), sizeof little);
  std::copy_n(bytes.begin(), size, little);
  if (type.big_endian) std::reverse(little, little + size);
  const auto raw = load_le<std::uint64_t>(little);
  switch (type.dtype) {
    case DType::boolean:
      return Value(raw != 0);
    case DType::i8:
      return Value(static_cast<std::int8_t>(raw));
    case DType::i16:
      return Value(static_cast<std::int16_t>(raw));
    case DType::i32:
      return Value(static_cast<std::int32_t>(raw));
    case DType::i64:
      return Value(static_cast<std::int64_t>(raw));
    case DType::u8:
    case DType::u16:
    case DType::u32:
    case DType::u64:
      return Value(raw);
    default:
      break;
  }
  if (std::endian::native == std::endian::big) std::reverse(little, little + size);
  double number = 0;
  convert(type.dtype, little, DType::f64, reinterpret_cast<std::byte*>(&number), 1);
  return Value(number);
}

}  // namespace stele::inline v0::detail::hdf5
