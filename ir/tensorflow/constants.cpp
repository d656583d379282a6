#include "ir/tensorflow/constants.hpp"

#include <algorithm>
#include <utility>

#include "encodings/protobuf/fields.hpp"
#include "encodings/tensor_bundle/bundle.hpp"
#include "leaves/source_range.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::ir::tensorflow {

namespace {

using protobuf::each;
using protobuf::Fields;

namespace field {
constexpr std::uint32_t dtype = 1, shape = 2, content = 4, float_val = 5, double_val = 6, int_val = 7, string_val = 8,
                        scomplex_val = 9, int64_val = 10, bool_val = 11, dcomplex_val = 12, half_val = 13,
                        uint32_val = 16, uint64_val = 17, float8_val = 18;
}
constexpr std::uint32_t dim_field = 2, size_field = 1;  // field numbers in the shape

constexpr LeafOps listed_ops{.read = Listed::read};

bool is_varint(std::uint32_t number) noexcept {
  return number == field::int_val || number == field::int64_val || number == field::bool_val ||
         number == field::half_val || number == field::uint32_val || number == field::uint64_val;
}
bool is_fixed(std::uint32_t number) noexcept {
  return number == field::float_val || number == field::double_val || number == field::scomplex_val ||
         number == field::dcomplex_val || number == field::float8_val;
}
/// Returns the number of the field that stores the elements of a dtype.
std::uint32_t field_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::f32:
      return field::float_val;
    case DType::f64:
      return field::double_val;
    case DType::i64:
      return field::int64_val;
    case DType::boolean:
      return field::bool_val;
    case DType::f16:
    case DType::bf16:
      return field::half_val;
    case DType::u32:
      return field::uint32_val;
    case DType::u64:
      return field::uint64_val;
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::u8:
    case DType::u16:
      return field::int_val;
    case DType::c64:
      return field::scomplex_val;
    case DType::c128:
      return field::dcomplex_val;
    default:
      return field::float8_val;
  }
}

Error bad(const char* message, ByteRange place) { return Error(Errc::malformed, message).offset(place.begin); }

}  // namespace

Status Listed::read(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out, ReadContext&) {
  const auto& self = *static_cast<const Listed*>(at);
  if (offset < self.bytes.size()) {
    const std::span<const std::byte> from = std::span(self.bytes).subspan(static_cast<std::size_t>(offset));
    const std::size_t n = std::min(from.size(), out.size());
    std::copy_n(from.begin(), n, out.begin());
    out = out.subspan(n);
  }
  if (self.bytes.empty()) {
    std::fill(out.begin(), out.end(), std::byte{0});
    return {};
  }
  const auto last = self.bytes.end() - static_cast<std::ptrdiff_t>(self.unit);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = last[static_cast<std::ptrdiff_t>(i % self.unit)];
  return {};
}

struct Constants::Parsed {
  std::uint64_t code = 0;
  std::vector<Extent> shape;
  std::optional<ByteRange> content;
  std::vector<std::pair<std::uint32_t, ByteRange>> values;  // fields that contain elements
  std::vector<std::string> strings;
};

Status Constants::spend(std::uint64_t bytes) {
  if (memory_->take(bytes)) return {};
  return index_error("the tensors in the graph need more memory than the file's size allows");
}

Status Constants::parse(ByteRange place, Parsed& to) {
  Cursor in(source_);
  STELE_TRY(in.skip(place.begin));
  const auto read_extent = [&](Fields& dim) -> Status {
    if (dim.field() != size_field) return {};
    to.shape.back() = dim.number();
    return to.shape.back() >> 63 != 0 ? Status(bad("an extent of a tensor is negative", place)) : Status();
  };
  return each(Fields(in, place.end), [&](Fields& field) -> Status {
    switch (field.field()) {
      case field::dtype:
        to.code = field.number();
        return {};
      case field::shape:
        if (!field.has_length()) return bad("the shape of a tensor is not a message", place);
        return each(field.message(), [&](Fields& shape) -> Status {
          if (shape.field() != dim_field || !shape.has_length()) return {};
          STELE_TRY(spend(3 * sizeof(Extent)));
          to.shape.push_back(0);
          return each(shape.message(), read_extent);
        });
      case field::content:
        to.content = ByteRange{field.begin(), field.end()};
        return {};
      case field::string_val:
        STELE_TRY(spend(2 * sizeof(std::string) + field.size()));
        return field.text(to.strings.emplace_back());
      default:
        if (!is_varint(field.field()) && !is_fixed(field.field())) return {};
        STELE_TRY(spend(3 * sizeof(to.values[0])));
        to.values.emplace_back(field.field(), ByteRange{field.tag(), field.end()});
        return {};
    }
  });
}

Result<Constants::Tensor> Constants::read(ByteRange place) {
  Parsed parsed;
  STELE_TRY(parse(place, parsed));
  const auto* const type = detail::tensorflow::type_of(parsed.code);
  if (type == nullptr || element_size(type->dtype) == 0 || type->narrow_bits != 0) {
    return Error(Errc::unsupported, "a tensor in the graph has a dtype that is not read")
        .found(type != nullptr ? std::string(type->name) : std::to_string(parsed.code));
  }
  Tensor tensor{.dtype = type->dtype, .shape = std::move(parsed.shape), .bytes = 0, .provider = {}};
  const auto count = element_count(tensor.shape);
  const auto bytes = count ? byte_length(tensor.dtype, *count) : std::nullopt;
  if (!bytes) return bad("the shape of a tensor exceeds 2^64 bytes", place);
  tensor.bytes = *bytes;
  if (parsed.content && parsed.content->end != parsed.content->begin) {
    if (parsed.content->end - parsed.content->begin != *bytes) {
      return bad("the length of a tensor does not match its dtype and shape", place)
          .expected(std::to_string(*bytes) + " bytes")
          .found(std::to_string(parsed.content->end - parsed.content->begin));
    }
    tensor.provider = {&source_ops, source_.get(), parsed.content->begin};
    return tensor;
  }
  Listed& listed = listed_.emplace_back();
  listed.unit = element_size(tensor.dtype);
  Cursor in(source_);
  for (const auto& [number, where] : parsed.values) {
    if (number != field_of(tensor.dtype)) {
      return bad("the elements of a tensor are in a field of another dtype", place)
          .expected("field " + std::to_string(field_of(tensor.dtype)))
          .found("field " + std::to_string(number));
    }
    STELE_TRY(in.skip(where.begin - in.position()));  // the fields are in the order of the file
    Fields fields(in, where.end);
    STELE_TRY(fields.next());
    const bool truth = number == field::bool_val;
    const auto add = [&](std::uint64_t value) {
      if (truth) value = value != 0 ? 1 : 0;
      std::byte element[sizeof(value)];
      store_le(element, value);
      listed.bytes.insert(listed.bytes.end(), element, element + std::min(listed.unit, sizeof(value)));
    };
    if (is_fixed(number)) {
      const std::uint64_t size = fields.size();
      if (number == field::float_val && parsed.values.size() == 1 && size == *bytes) {
        tensor.provider = {&source_ops, source_.get(), fields.begin()};
        return tensor;
      }
      STELE_TRY(spend(2 * size));
      for (std::uint64_t left = size; left != 0;) {
        const std::size_t n = static_cast<std::size_t>(std::min<std::uint64_t>(left, Cursor::max_taken_bytes));
        STELE_TRY_ASSIGN(const std::byte* const more, in.take(n));
        listed.bytes.insert(listed.bytes.end(), more, more + n);
        left -= n;
      }
    } else if (fields.is_number()) {
      STELE_TRY(spend(2 * sizeof(std::uint64_t)));
      add(fields.number());
    } else {
      STELE_TRY(spend(2 * listed.unit * fields.size()));
      for (Fields packed = fields.message();;) {
        STELE_TRY_ASSIGN(const auto element, packed.element());
        if (!element) break;
        add(*element);
      }
    }
  }
  if (listed.bytes.size() % listed.unit != 0 || listed.bytes.size() > *bytes) {
    return bad("the elements of a tensor do not match its dtype and shape", place)
        .expected("at most " + std::to_string(*bytes) + " bytes")
        .found(std::to_string(listed.bytes.size()));
  }
  tensor.provider = {&listed_ops, &listed, 0};
  return tensor;
}

Result<std::vector<std::string>> Constants::strings(ByteRange place) {
  Parsed parsed;
  STELE_TRY(parse(place, parsed));
  const auto count = element_count(parsed.shape);
  if (parsed.code != detail::tensorflow::string_code || !count || parsed.strings.size() > *count) {
    return bad("a list of names is not a tensor of strings", place);
  }
  // As for numbers, the last string fills the remaining elements.
  const std::string last = parsed.strings.empty() ? std::string() : parsed.strings.back();
  STELE_TRY(spend(add_scaled(0, *count - parsed.strings.size(), sizeof(std::string) + 2 * last.size())));
  parsed.strings.resize(static_cast<std::size_t>(*count), last);
  return std::move(parsed.strings);
}

}  // namespace stele::inline v0::detail::ir::tensorflow
