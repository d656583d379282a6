// Reads and writes tensor files.
#include "tensor.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "items.hpp"
#include "leaves/source_range.hpp"
#include "snapshot/data.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/paths.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/quantize.hpp"
#include "text.hpp"

namespace stele::inline v0::detail::nnef {
namespace {

constexpr std::uint64_t max_data = std::numeric_limits<std::uint32_t>::max();

/// Returns the width of the narrowest dtype for integers of `bits` bits.
unsigned width_of(unsigned bits) { return std::max(8U, std::bit_ceil(bits)); }

DType integer_of(bool sign, unsigned width) {
  switch (width) {
    case 8:
      return sign ? DType::i8 : DType::u8;
    case 16:
      return sign ? DType::i16 : DType::u16;
    case 32:
      return sign ? DType::i32 : DType::u32;
    default:
      return sign ? DType::i64 : DType::u64;
  }
}

Error bad(const char* what, std::uint64_t at, std::string_view expected, std::string_view found) {
  return Error(Errc::malformed, what).offset(at).expected(expected).found(found);
}

float float_at(const std::byte* at) { return std::bit_cast<float>(load_le<std::uint32_t>(at)); }

/// Annotates the limits that versions 1.0 to 1.0.2 store after the item type: the values of all-zero and all-one bits.
void note_limits(Tensor& tensor, const std::byte* parameters, bool logarithmic) {
  const float low = float_at(parameters);
  const float high = float_at(parameters + 4);
  if (!std::isfinite(low) || !std::isfinite(high) || !(low < high)) return;
  Value::Map map{{"scheme", Value(logarithmic ? "logarithmic" : "linear")},
                 {"bits", Value(std::int64_t{tensor.bits})},
                 {"max", Value(static_cast<double>(high))}};
  if (logarithmic) {
    if (low != 0) map.emplace_back("signed", Value(true));
  } else {
    map.emplace_back("min", Value(static_cast<double>(low)));
  }
  tensor.notes.emplace(quantization_key, Value(std::move(map)));
}

/// Sets the fields that depend on type and bits. `at`: the offset of type and bits, for errors.
Status set_items(Tensor& tensor, ItemType type, std::uint32_t bits, std::uint64_t at) {
  const auto refuse = [&](const char* expected) {
    return Error(Errc::unsupported, "the width of the items is not supported")
        .offset(at)
        .expected(expected)
        .found(std::to_string(bits) + " bits");
  };
  if (bits < 1 || bits > 64) return refuse("1 to 64 bits");
  tensor.bits = bits;
  switch (type) {
    case ItemType::floating:
      if (bits != 16 && bits != 32 && bits != 64) return refuse("16, 32 or 64 bits for floats");
      tensor.dtype = bits == 16 ? DType::f16 : bits == 32 ? DType::f32 : DType::f64;
      return {};
    case ItemType::boolean:
      if (bits != 1 && bits != 8) return refuse("1 or 8 bits for bools");
      tensor.dtype = DType::boolean;
      tensor.packed = true;  // also items of 8 bits, whose nonzero values are all true
      if (bits == 8) tensor.notes.emplace(bits_key, Value(std::int64_t{8}));
      return {};
    case ItemType::unsigned_integer:
    case ItemType::quantized_unsigned:
    case ItemType::quantized_signed:
    case ItemType::signed_integer:
      break;
  }
  const bool sign = type == ItemType::signed_integer || type == ItemType::quantized_signed;
  tensor.dtype = integer_of(sign, width_of(bits));
  tensor.packed = bits != width_of(bits);
  if (tensor.packed) tensor.notes.emplace(bits_key, Value(std::int64_t{bits}));
  if (type == ItemType::quantized_signed || type == ItemType::quantized_unsigned) {
    tensor.notes.emplace(quantized_key, Value(true));
  }
  return {};
}

Error uncountable(const Tensor& tensor) {
  return bad("the size of the tensor overflows 64 bits", 12, "", to_string(tensor.shape()));
}

/// Computes the sizes of the data and of the elements.
Status set_sizes(Tensor& tensor) {
  const auto count = element_count(tensor.shape());
  const auto bits = count ? checked_mul(*count, tensor.bits) : std::nullopt;
  const auto size = count ? byte_length(tensor.dtype, *count) : std::nullopt;
  if (!bits || !size) return uncountable(tensor);
  tensor.bytes = *bits / 8 + (*bits % 8 != 0 ? 1 : 0);
  tensor.size = *size;
  return {};
}

/// Reads the layout of 2017: magic and version; u32 length of the header, u32 rank, u32[rank] extents; u8 type (0
/// float, 1 quantized unsigned, 2 signed, 3 unsigned), u8 bits, u16 length of a quantization string, and the string.
Result<std::optional<Tensor>> read_provisional(const Source& source, std::span<const std::byte> head) {
  const std::optional<Tensor> no;
  const auto header = load_le<std::uint32_t>(head.data() + 4);
  const auto rank = load_le<std::uint32_t>(head.data() + 8);
  if (rank > max_rank || header < 16 + 4 * rank || header > source.size() || head.size() < 16 + 4 * rank) return no;
  const std::size_t at = 12 + std::size_t{4} * rank;
  const auto text_size = load_le<std::uint16_t>(head.data() + at + 2);
  if (header != at + 4 + text_size) return no;
  Tensor tensor;
  tensor.rank = rank;
  for (std::size_t i = 0; i < rank; ++i) tensor.extents[i] = load_le<std::uint32_t>(head.data() + 12 + 4 * i);
  constexpr std::array types = {ItemType::floating, ItemType::quantized_unsigned, ItemType::signed_integer,
                                ItemType::unsigned_integer};
  const auto type = static_cast<std::size_t>(head[at]);
  if (type >= types.size()) return no;
  if (!set_items(tensor, types[type], static_cast<std::uint32_t>(head[at + 1]), at) || !set_sizes(tensor)) return no;
  if (source.size() - header != tensor.bytes) return no;
  tensor.data = header;
  if (text_size != 0) {
    std::string text(text_size, '\0');
    STELE_TRY(source.read_at(at + 4, std::as_writable_bytes(std::span(text))));
    note_operation(text, tensor.notes);
  }
  return std::optional(std::move(tensor));
}

/// Reads the item type and its parameters. `length`: the data length that the header declares.
Status read_items(Tensor& tensor, const std::byte* head, std::uint64_t length) {
  const auto bits = load_le<std::uint32_t>(head + 44);
  const auto code = load_le<std::uint16_t>(head + 48);
  const auto vendor = load_le<std::uint16_t>(head + 50);
  const std::byte* parameters = head + 52;
  if (vendor != 0) {
    if (!element_count(tensor.shape())) return uncountable(tensor);
    tensor.dtype = DType::opaque;
    tensor.bytes = tensor.size = length;
    tensor.notes = {{std::string(vendor_key), Value(std::int64_t{vendor})},
                    {std::string(type_key), Value(std::int64_t{code})},
                    {std::string(bits_key), Value(std::int64_t{bits})}};
    return {};
  }
  ItemType type{};
  bool logarithmic = false;
  switch (code) {
    case 1:  // until 1.0.2, a parameter declares signed integers
      type = load_le<std::uint32_t>(parameters) != 0 ? ItemType::signed_integer : ItemType::unsigned_integer;
      break;
    case 0:
    case 2:
    case 3:
    case 4:
    case 5:
      type = static_cast<ItemType>(code);
      break;
    case 0x10:  // until 1.0.2: quantized, linear
      type = ItemType::quantized_unsigned;
      break;
    case 0x11:  // until 1.0.2: quantized, logarithmic
      logarithmic = true;
      type = ItemType::quantized_unsigned;
      break;
    case 0x100:  // in the text of 1.0.3
      type = ItemType::signed_integer;
      break;
    case 0x101:
      type = ItemType::boolean;
      break;
    default:
      return Error(Errc::unsupported, "the item type is unknown").offset(48).found(std::to_string(code));
  }
  STELE_TRY(set_items(tensor, type, bits, 44));
  STELE_TRY(set_sizes(tensor));
  if (tensor.bytes != length) {
    return bad("the data length does not match the shape", 4, std::to_string(tensor.bytes) + " bytes",
               std::to_string(length));
  }
  if (code == 0x10 || code == 0x11 || code == 2) note_limits(tensor, parameters, logarithmic);
  return {};
}

}  // namespace

Result<Tensor> read_header(const Source& source) {
  std::array<std::byte, header_size + 4> head{};
  const auto known = static_cast<std::size_t>(std::min<std::uint64_t>(source.size(), head.size()));
  STELE_TRY(source.read_at(0, {head.data(), known}));
  if (known < 2 || head[0] != std::byte{0x4e} || head[1] != std::byte{0xef}) {
    return Error(Errc::bad_magic, "the file is not an NNEF tensor file").offset(0).expected("4e ef");
  }
  if (known < 16) return Error(Errc::truncated, "the file ends inside the header").offset(known);
  if (head[2] != std::byte{1} || head[3] != std::byte{0}) {
    return Error(Errc::unsupported, "the NNEF version is not supported")
        .offset(2)
        .expected("1.0")
        .found(std::to_string(static_cast<int>(head[2])) + "." + std::to_string(static_cast<int>(head[3])));
  }
  // Checks the layout of 2017 first: the size of such a file may fit the present layout by chance. The reverse cannot
  // happen, because an item would then have no bits.
  STELE_TRY_ASSIGN(auto provisional, read_provisional(source, {head.data(), known}));
  if (provisional) return std::move(*provisional);
  const std::uint64_t length = load_le<std::uint32_t>(head.data() + 4);
  const bool exact = source.size() == header_size + length;
  const bool four_more = source.size() == header_size + 4 + length && load_le<std::uint32_t>(head.data() + 128) == 0;
  if (!exact && !four_more) {
    return Error(source.size() < header_size + length ? Errc::truncated : Errc::malformed,
                 "the file size differs from the header's")
        .offset(4)
        .expected(std::to_string(header_size + length) + " bytes")
        .found(std::to_string(source.size()));
  }
  Tensor tensor;
  tensor.data = header_size + (exact ? 0 : 4);
  tensor.rank = load_le<std::uint32_t>(head.data() + 8);
  if (tensor.rank > max_rank)
    return bad("the tensor has too many dimensions", 8, "at most 8", std::to_string(tensor.rank));
  for (std::size_t i = 0; i < max_rank; ++i) {
    tensor.extents[i] = load_le<std::uint32_t>(head.data() + 12 + 4 * i);
    if (i < tensor.rank || tensor.extents[i] == 0) continue;
    return bad("an extent after the last dimension is not 0", 12 + 4 * i, "0", std::to_string(tensor.extents[i]));
  }
  STELE_TRY(read_items(tensor, head.data(), length));
  return tensor;
}

void add(SnapshotBuilder& to, std::string_view name, Tensor tensor, SourcePtr source) {
  // Items may have more bits than the quantization declares.
  if (const auto note = tensor.notes.find(std::string(quantization_key)); note != tensor.notes.end()) {
    const Value* bits = note->second.find("bits");
    const bool same = bits != nullptr && bits->as_i64() != nullptr && *bits->as_i64() == std::int64_t{tensor.bits};
    if (!same) tensor.notes.emplace(bits_key, Value(std::int64_t{tensor.bits}));
  }
  Provider provider{&source_ops, source.get(), tensor.data};
  if (tensor.packed) {
    const DTypeClass kind = dtype_class(tensor.dtype);
    provider = packed_provider(to, {std::move(source), tensor.data, tensor.bits, element_size(tensor.dtype),
                                    kind == DTypeClass::signed_int, kind == DTypeClass::boolean});
  } else {
    to.keep(std::move(source));
  }
  to.tensor(to.intern(name), tensor.dtype, tensor.shape(), tensor.size, provider);
  for (auto& [key, value] : tensor.notes) to.annotate(key, std::move(value));
}

const Value* note_of(const LeafView& leaf, std::string_view key) {
  const Annotations* notes = leaf.annotations();
  const auto found = notes != nullptr ? notes->find(std::string(key)) : Annotations::const_iterator();
  return notes != nullptr && found != notes->end() ? &found->second : nullptr;
}

Result<Form> form_of(const LeafView& leaf) {
  const auto refuse = [&](const char* why, std::string_view expected, std::string_view found) {
    return Error(Errc::not_representable, why).path(leaf.path()).expected(expected).found(found);
  };
  const auto number = [&](std::string_view key) -> std::optional<std::int64_t> {
    const Value* value = note_of(leaf, key);
    if (value == nullptr) return std::nullopt;
    if (key == quantization_key) value = value->find("bits");
    const bool valid = value != nullptr && value->as_i64() != nullptr;
    return valid ? *value->as_i64() : std::int64_t{0};
  };
  Form form;
  const auto bits = number(bits_key);
  for (const Extent e : leaf.shape()) {
    if (e > max_data)
      return refuse("an extent is too large for NNEF", "at most " + std::to_string(max_data), to_string(leaf.shape()));
  }
  const auto small = [&]() -> Result<Form> {
    if (form.bytes <= max_data) return form;
    return refuse("the tensor is too large for NNEF", "less than 4 GiB", std::to_string(form.bytes) + " bytes")
        .hint("save to .stele or safetensors");
  };
  if (leaf.dtype() == DType::opaque) {
    const auto vendor = number(vendor_key);
    const auto type = number(type_key);
    constexpr std::int64_t max_code = 0xffff;
    if (!vendor || !type || !bits || *vendor < 1 || *vendor > max_code || *type < 0 || *type > max_code || *bits < 0 ||
        *bits > static_cast<std::int64_t>(max_data)) {
      return refuse("the opaque tensor has no valid vendor item type",
                    "the annotations nnef.vendor, nnef.type and nnef.bits", "");
    }
    form.type = static_cast<ItemType>(*type);
    form.vendor = static_cast<std::uint16_t>(*vendor);
    form.bits = static_cast<unsigned>(*bits);
    form.bytes = leaf.byte_size();
    return small();
  }
  const unsigned width = v0::bits(leaf.dtype());
  form.bits = width;
  switch (dtype_class(leaf.dtype())) {
    case DTypeClass::floating:
      break;
    case DTypeClass::boolean:
      form.type = ItemType::boolean;
      form.bits = bits && *bits == 8 ? 8 : 1;
      form.packed = form.bits == 1;
      break;
    default: {
      const bool sign = dtype_class(leaf.dtype()) == DTypeClass::signed_int;
      const auto quantized = number(quantization_key);
      form.type = sign ? ItemType::signed_integer : ItemType::unsigned_integer;
      if (quantized || number(quantized_key))
        form.type = sign ? ItemType::quantized_signed : ItemType::quantized_unsigned;
      if (bits || quantized) {
        const std::int64_t wanted = bits ? *bits : *quantized;
        if (wanted < 1 || wanted > width) {
          return refuse("the annotated width does not fit the dtype",
                        "1 to " + std::to_string(width) + " bits in " + std::string(name(leaf.dtype())),
                        std::to_string(wanted));
        }
        form.bits = static_cast<unsigned>(wanted);
      }
      form.packed = form.bits != width;
    }
  }
  const auto all = checked_mul(leaf.size(), form.bits);
  form.bytes = all ? *all / 8 + (*all % 8 != 0 ? 1 : 0) : std::numeric_limits<std::uint64_t>::max();
  return small();
}

std::array<std::byte, header_size> header_of(const Form& form, std::span<const Extent> shape) {
  std::array<std::byte, header_size> head{std::byte{0x4e}, std::byte{0xef}, std::byte{1}, std::byte{0}};
  store_le(head.data() + 4, static_cast<std::uint32_t>(form.bytes));
  store_le(head.data() + 8, static_cast<std::uint32_t>(shape.size()));
  for (std::size_t i = 0; i < shape.size(); ++i)
    store_le(head.data() + 12 + 4 * i, static_cast<std::uint32_t>(shape[i]));
  store_le(head.data() + 44, static_cast<std::uint32_t>(form.bits));
  store_le(head.data() + 48, static_cast<std::uint16_t>(form.type));
  store_le(head.data() + 50, form.vendor);
  return head;
}

Status write(const LeafView& leaf, const Form& form, Sink& sink, ReadContext& context) {
  STELE_TRY(sink.reserve(header_size + form.bytes));
  LeafGather gather(sink);
  STELE_TRY(gather.write(header_of(form, leaf.shape())));
  if (form.packed) {
    PackingSink packing(leaf, form.bits, gather);
    STELE_TRY(with_path(leaf.stream(packing, context), leaf));
    STELE_TRY(packing.finish());
  } else {
    STELE_TRY(gather.leaf(leaf, context));
  }
  return gather.flush();
}

}  // namespace stele::inline v0::detail::nnef
