// Reads the messages of object headers.
#include "messages.hpp"

#include "hdf5.hpp"

namespace stele::inline v0::detail::hdf5 {
namespace {

enum Class : unsigned {
  fixed = 0,
  floating = 1,
  time = 2,
  text = 3,
  bits = 4,
  opaque = 5,
  compound = 6,
  reference = 7,
  enumeration = 8,
  variable = 9,
  array = 10,
  complex_number = 11
};

DType integer(std::uint32_t size, bool is_signed) {
  switch (size) {
    case 1:
      return is_signed ? DType::i8 : DType::u8;
    case 2:
      return is_signed ? DType::i16 : DType::u16;
    case 4:
      return is_signed ? DType::i32 : DType::u32;
    case 8:
      return is_signed ? DType::i64 : DType::u64;
    default:
      return DType::none;
  }
}

DType real(std::uint32_t size, unsigned exponent) {
  if (size == 8 && exponent == 11) return DType::f64;
  if (size == 4 && exponent == 8) return DType::f32;
  if (size == 2 && exponent == 5) return DType::f16;
  if (size == 2 && exponent == 8) return DType::bf16;
  if (size == 1 && exponent == 5) return DType::f8_e5m2;
  return DType::none;
}

void parse_fixed(In& in, unsigned flags, Type& type) {
  const unsigned offset = in.u16(), precision = in.u16();
  const bool whole = offset == 0 && precision == 8 * std::uint64_t{type.size};
  type.big_endian = (flags & 1U) != 0;
  type.dtype = whole ? integer(type.size, (flags & 8U) != 0) : DType::none;
  if (type.dtype == DType::none) type.reason = "integers of " + std::to_string(precision) + " bits";
}

void parse_floating(In& in, unsigned flags, Type& type) {
  const unsigned offset = in.u16(), precision = in.u16(), exponent_at = in.u8(), exponent = in.u8(),
                 mantissa_at = in.u8(), mantissa = in.u8();
  const std::uint32_t bias = in.u32();
  const std::uint64_t bits = 8 * std::uint64_t{type.size};
  const bool usual = offset == 0 && precision == bits && mantissa_at == 0 && exponent_at == mantissa &&
                     mantissa + exponent + 1 == bits && (flags >> 8 & 0xff) == bits - 1 &&
                     (flags & 0x7e) == 0x20 &&  // no padding, an implied first bit of the mantissa
                     exponent > 0 && exponent < 32 && bias == (std::uint32_t{1} << (exponent - 1)) - 1;
  type.big_endian = (flags & 1U) != 0;
  type.dtype = usual ? real(type.size, exponent) : DType::none;
  if (type.dtype == DType::none) type.reason = "floating-point numbers of " + std::to_string(bits) + " unusual bits";
}

Status parse_compound(In& in, unsigned version, unsigned flags, int depth, Type& type) {
  const unsigned members = flags & 0xffff;
  type.reason = "compound elements";
  if (members != 2) return {};  // the caller skips the rest
  DType parts[2] = {DType::none, DType::none};
  bool fits = true;
  for (unsigned i = 0; i < 2; ++i) {
    const std::size_t before = in.left();
    const std::string_view name = in.text();
    if (version < 3) in.take((8 - (before - in.left()) % 8) % 8);
    const std::size_t width = type.size < 0x100 ? 1 : type.size < 0x10000 ? 2 : type.size < 0x1000000 ? 3 : 4;
    const std::uint64_t at = version < 3 ? in.u32() : in.number(width);
    if (version == 1) {
      const bool scalar = in.u8() == 0;
      fits = fits && scalar;
      in.take(27);
    }
    STELE_TRY_ASSIGN(const Type part, parse_type(in, depth + 1));
    if (!in.ok()) return damaged("a datatype is incomplete");
    if (!part.reason.empty()) return {};
    parts[i] = part.dtype;
    fits = fits && name == (i == 0 ? "r" : "i") && at == std::uint64_t{i} * part.size &&
           (i == 0 || part.big_endian == type.big_endian);
    type.big_endian = part.big_endian;
  }
  if (!fits || parts[0] != parts[1]) return {};
  if (parts[0] == DType::f32 && type.size == 8) type.dtype = DType::c64;
  if (parts[0] == DType::f64 && type.size == 16) type.dtype = DType::c128;
  if (type.dtype != DType::none) type.reason.clear();
  return {};
}

Status parse_enumeration(In& in, unsigned version, unsigned flags, int depth, Type& type) {
  const unsigned members = flags & 0xffff;
  STELE_TRY_ASSIGN(const Type base, parse_type(in, depth + 1));
  type.dtype = base.dtype;
  type.big_endian = base.big_endian;
  type.reason = base.reason;
  if (base.size != type.size) return damaged("an enumeration's size differs from the size of its numbers");
  bool boolean = members == 2 && type.size == 1;
  for (unsigned i = 0; i < members && in.ok(); ++i) {
    const std::size_t before = in.left();
    const std::string_view name = in.text();
    if (version < 3) in.take((8 - (before - in.left()) % 8) % 8);
    boolean = boolean && name == (i == 0 ? "FALSE" : "TRUE");
  }
  for (unsigned i = 0; i < members && in.ok(); ++i) {
    const std::uint64_t value = in.number(type.size <= 8 ? type.size : 0);
    boolean = boolean && value == i;
  }
  if (boolean) type.dtype = DType::boolean;
  type.enumerated = !boolean;
  return {};
}

}  // namespace

Result<Type> parse_type(In& in, int depth) {
  constexpr int max_nesting = 4;  // more deeply nested types have no dtype
  const unsigned first = in.u8();
  const auto flags = static_cast<unsigned>(in.number(3));
  Type type;
  type.size = in.u32();
  if (!in.ok()) return damaged("a datatype is incomplete");
  const unsigned version = first >> 4, kind = first & 15U;
  if (version == 0) return damaged("a datatype has an unknown version").found(std::to_string(version));
  if (type.size == 0) return damaged("a datatype has elements without bytes");
  if (depth > max_nesting || version > 5) {
    type.reason = version > 5 ? "elements of a newer version of HDF5" : "deeply nested elements";
    return type;
  }
  switch (kind) {
    case fixed:
      parse_fixed(in, flags, type);
      break;
    case floating:
      parse_floating(in, flags, type);
      break;
    case text:
      type.text = true;
      type.padding = flags & 15U;
      type.reason = "text";
      break;
    case opaque:
      in.take((std::uint64_t{flags & 0xff} + 7) / 8 * 8);
      type.opaque = true;
      type.reason = "elements without a type";
      break;
    case compound:
      STELE_TRY(parse_compound(in, version, flags, depth, type));
      break;
    case enumeration:
      STELE_TRY(parse_enumeration(in, version, flags, depth, type));
      break;
    case variable: {
      STELE_TRY(parse_type(in, depth + 1));
      type.variable = (flags & 15U) == 1 && type.size == 16;
      type.text = type.variable;
      type.reason = type.text ? "text" : "lists of variable length";
      break;
    }
    case complex_number: {
      STELE_TRY_ASSIGN(const Type part, parse_type(in, depth + 1));
      const DType of = part.reason.empty() ? part.dtype : DType::none;
      const bool rectangular = (flags >> 1 & 3U) == 0;
      if (rectangular && type.size == 2 * std::uint64_t{part.size}) {
        type.dtype = of == DType::f32 ? DType::c64 : of == DType::f64 ? DType::c128 : DType::none;
      }
      type.big_endian = part.big_endian;
      if (type.dtype == DType::none) type.reason = "unusual complex numbers";
      break;
    }
    case time:
      type.reason = "times";
      break;
    case bits:
      type.reason = "bit fields";
      break;
    case reference:
      type.reason = "references";
      break;
    case array:
      type.reason = "arrays as elements";
      break;
    default:
      type.reason = "elements of an unknown class";
      break;
  }
  if (!in.ok()) return damaged("a datatype is incomplete");
  return type;
}

Result<Space> parse_space(In& in) {
  const unsigned version = in.u8(), rank = in.u8(), flags = in.u8();
  Space space;
  if (version == 1) {
    in.take(5);
  } else if (version == 2) {
    space.null = in.u8() == 2;
  } else {
    return damaged("a dataspace has an unknown version").found(std::to_string(version));
  }
  if (rank > max_rank) return damaged("a dataspace has too many axes").found(std::to_string(rank));
  for (unsigned i = 0; i < rank; ++i) space.shape.push_back(in.u64());
  if ((flags & 1U) != 0) {
    for (unsigned i = 0; i < rank; ++i) space.maximum.push_back(in.u64());
  }
  if (!in.ok()) return damaged("a dataspace is incomplete");
  const auto count = element_count(space.shape);
  if (!count) return damaged("a dataspace has too many elements").expected("less than 2^64");
  space.count = space.null ? 0 : *count;
  return space;
}

Result<std::vector<Filter>> parse_filters(In& in) {
  const unsigned version = in.u8(), count = in.u8();
  if (version != 1 && version != 2) return damaged("a list of filters has an unknown version");
  if (version == 1) in.take(6);
  std::vector<Filter> filters;
  for (unsigned i = 0; i < count && in.ok(); ++i) {
    Filter filter;
    filter.id = in.u16();
    const unsigned name = version == 1 || filter.id >= 256 ? in.u16() : 0;
    in.u16();  // flags
    const unsigned values = in.u16();
    in.take(version == 1 ? (name + 7) / 8 * 8 : name);
    for (unsigned k = 0; k < values && in.ok(); ++k) {
      const std::uint32_t value = in.u32();
      if (k == 0) filter.value = value;
    }
    if (version == 1 && values % 2 != 0) in.u32();
    filters.push_back(filter);
  }
  if (!in.ok()) return damaged("a list of filters is incomplete");
  return filters;
}

namespace {

/// Layouts of HDF5 before 1.6.3.
void parse_old_layout(In& in, std::size_t message, Layout& layout) {
  const unsigned rank = in.u8(), kind = in.u8();
  in.take(5);
  if (kind != 0) layout.address = in.u64();
  for (unsigned i = 0; i < rank && in.ok(); ++i) layout.chunk.push_back(in.u32());
  if (kind == 2) {
    layout.kind = Layout::Kind::chunks;
  } else if (kind == 0) {
    layout.kind = Layout::Kind::compact;
    layout.size = in.u32();
    layout.address = message - in.left();
    in.take(layout.size);
  } else if (kind == 1) {
    layout.kind = Layout::Kind::contiguous;
    layout.size = undefined;  // follows from the dataspace
  }
}

void parse_new_chunks(In& in, Layout& layout) {
  const unsigned flags = in.u8(), rank = in.u8(), width = in.u8();
  layout.plain_edges = (flags & 1U) != 0;
  if (width == 0 || width > 8) {
    in.take(SIZE_MAX);  // ends with ok() == false
    return;
  }
  for (unsigned i = 0; i < rank && in.ok(); ++i) layout.chunk.push_back(in.number(width));
  const unsigned index = in.u8();
  layout.kind = Layout::Kind::chunks;
  switch (index) {
    case 1:
      layout.index = Layout::Index::single;
      if ((flags & 2U) != 0) {
        layout.size = in.u64();
        layout.mask = in.u32();
      }
      break;
    case 2:
      layout.index = Layout::Index::implicit;
      break;
    case 3:
      layout.index = Layout::Index::fixed;
      in.u8();
      break;
    case 4:
      layout.index = Layout::Index::extensible;
      in.take(5);
      break;
    case 5:
      layout.index = Layout::Index::records;
      in.take(6);
      break;
    default:
      layout.kind = Layout::Kind::unknown;
      layout.reason = "a dataset with an unknown index of chunks";
      return;
  }
  layout.address = in.u64();
}

}  // namespace

Result<Layout> parse_layout(std::span<const std::byte> message) {
  In in(message);
  Layout layout;
  const unsigned version = in.u8();
  if (version == 1 || version == 2) {
    parse_old_layout(in, message.size(), layout);
  } else if (version == 3 || version == 4 || version == 5) {
    const unsigned kind = in.u8();
    if (kind == 0) {
      layout.kind = Layout::Kind::compact;
      layout.size = in.u16();
      layout.address = message.size() - in.left();
      in.take(layout.size);
    } else if (kind == 1) {
      layout.kind = Layout::Kind::contiguous;
      layout.address = in.u64();
      layout.size = in.u64();
    } else if (kind == 2 && version == 3) {
      layout.kind = Layout::Kind::chunks;
      const unsigned rank = in.u8();
      layout.address = in.u64();
      for (unsigned i = 0; i < rank && in.ok(); ++i) layout.chunk.push_back(in.u32());
    } else if (kind == 2) {
      parse_new_chunks(in, layout);
    } else {
      layout.reason = kind == 3 ? "a virtual dataset" : "a dataset with an unknown layout";
    }
  } else {
    return damaged("a layout has an unknown version").found(std::to_string(version));
  }
  if (!in.ok()) return damaged("a layout is incomplete");
  if (layout.kind == Layout::Kind::unknown && layout.reason.empty()) layout.reason = "a dataset with an unknown layout";
  return layout;
}

DType opaque_dtype(std::string_view name) noexcept {
  if (name == "bfloat16") return DType::bf16;
  if (name == "float8_e4m3fn") return DType::f8_e4m3fn;
  if (name == "float8_e5m2") return DType::f8_e5m2;
  if (name == "float8_e8m0fnu") return DType::f8_e8m0;
  if (name == "float8_e4m3fnuz") return DType::f8_e4m3fnuz;
  if (name == "float8_e5m2fnuz") return DType::f8_e5m2fnuz;
  return DType::none;
}

}  // namespace stele::inline v0::detail::hdf5
