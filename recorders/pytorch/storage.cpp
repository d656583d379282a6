// The storages of a file, and leaves whose elements are in one.
#include "storage.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/threads.hpp"
#include "encodings/gzip/gzip.hpp"
#include "leaves/blocks.hpp"
#include "leaves/source_range.hpp"

namespace stele::inline v0::detail::pytorch {
namespace {

/// Types in the order of c10::ScalarType.
constexpr std::array<TorchType, 47> types = {{
    {"uint8", "ByteStorage", DType::u8, 1},
    {"int8", "CharStorage", DType::i8, 1},
    {"int16", "ShortStorage", DType::i16, 2},
    {"int32", "IntStorage", DType::i32, 4},
    {"int64", "LongStorage", DType::i64, 8},
    {"float16", "HalfStorage", DType::f16, 2},
    {"float32", "FloatStorage", DType::f32, 4},
    {"float64", "DoubleStorage", DType::f64, 8},
    {"complex32", "ComplexHalfStorage", DType::opaque, 4},
    {"complex64", "ComplexFloatStorage", DType::c64, 8},
    {"complex128", "ComplexDoubleStorage", DType::c128, 16},
    {"bool", "BoolStorage", DType::boolean, 1},
    {"qint8", "QInt8Storage", DType::i8, 1, 0, 8, true},
    {"quint8", "QUInt8Storage", DType::u8, 1, 0, 8},
    {"qint32", "QInt32Storage", DType::i32, 4, 0, 32, true},
    {"bfloat16", "BFloat16Storage", DType::bf16, 2},
    {"quint4x2", "QUInt4x2Storage", DType::u8, 1, 4, 4},
    {"quint2x4", "QUInt2x4Storage", DType::u8, 1, 2, 2},
    {"bits1x8", "", DType::opaque, 1},
    {"bits2x4", "", DType::opaque, 1},
    {"bits4x2", "", DType::opaque, 1},
    {"bits8", "", DType::opaque, 1},
    {"bits16", "", DType::opaque, 2},
    {"float8_e5m2", "", DType::f8_e5m2, 1},
    {"float8_e4m3fn", "", DType::f8_e4m3fn, 1},
    {"float8_e5m2fnuz", "", DType::f8_e5m2fnuz, 1},
    {"float8_e4m3fnuz", "", DType::f8_e4m3fnuz, 1},
    {"uint16", "", DType::u16, 2},
    {"uint32", "", DType::u32, 4},
    {"uint64", "", DType::u64, 8},
    {"uint1", "", DType::opaque, 1},
    {"uint2", "", DType::opaque, 1},
    {"uint3", "", DType::opaque, 1},
    {"uint4", "", DType::opaque, 1},
    {"uint5", "", DType::opaque, 1},
    {"uint6", "", DType::opaque, 1},
    {"uint7", "", DType::opaque, 1},
    {"int1", "", DType::opaque, 1},
    {"int2", "", DType::opaque, 1},
    {"int3", "", DType::opaque, 1},
    {"int4", "", DType::opaque, 1},
    {"int5", "", DType::opaque, 1},
    {"int6", "", DType::opaque, 1},
    {"int7", "", DType::opaque, 1},
    {"float8_e8m0fnu", "", DType::f8_e8m0, 1},
    {"float4_e2m1fn_x2", "", DType::f4_e2m1, 1},
    {"bcomplex32", "", DType::opaque, 4},
}};

/// Returns the number of elements in a storage.
std::uint64_t elements_of(const Storage& storage, const TorchType& type) {
  return type.packed_bits == 0 ? storage.size / type.size
                               : checked_mul(storage.size, 8 / type.packed_bits).value_or(UINT64_MAX);
}

bool is_contiguous(const View& view) noexcept {
  std::uint64_t stride = 1;
  for (std::size_t d = view.shape.rank(); d-- > 0;) {
    if (view.shape[d] == 0) return true;
    if (view.shape[d] != 1 && view.strides[d] != stride) return false;
    stride *= view.shape[d];
  }
  return true;
}

/// Returns true if an element is two numbers of 16 bits.
bool is_half_complex(const TorchType& type) noexcept { return type.dtype == DType::opaque && type.size == 4; }
bool is_complex(const TorchType& type) noexcept {
  return is_half_complex(type) || dtype_class(type.dtype) == DTypeClass::complex;
}
/// Returns the bytes of a number, whose order the order of bytes in a file changes.
std::size_t number_size(const TorchType& type) noexcept {
  return type.dtype == DType::opaque ? (type.size == 1 ? 1 : 2) : swap_unit(type.dtype);
}

bool is_float(DType dtype) { return dtype_class(dtype) == DTypeClass::floating && element_size(dtype) != 0; }

SourceRange range_of(const void* at, std::uint64_t) {
  const auto& storage = *static_cast<const Storage*>(at);
  return {storage.source.get(), storage.offset, 0, storage.crc, storage.has_crc, gzip::crc32};
}
constexpr LeafOps whole_ops{.locate = range_of};

const std::byte* view_part(const void* at, std::uint64_t number) {
  const auto& storage = *static_cast<const Storage*>(at);
  const auto all = storage.source->view();
  return all.empty() ? nullptr : all.data() + storage.offset + number;
}
Status read_part(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out, ReadContext&) {
  const auto& storage = *static_cast<const Storage*>(at);
  return storage.source->read_at(storage.offset + number + offset, out);
}
Status stream_part(const void* at, std::uint64_t number, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  const auto& storage = *static_cast<const Storage*>(at);
  if (size == 0) return {};
  STELE_TRY(storage.check());
  return stream_range({storage.source.get(), storage.offset + number}, size, sink, context);
}
constexpr LeafOps part_ops{.view = view_part, .read = read_part, .stream = stream_part};

Status read_gathered(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out,
                     ReadContext& context) {
  return static_cast<const Gathered*>(at)->fill(offset, out, context);
}
Status stream_gathered(const void* at, std::uint64_t, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  STELE_TRY(static_cast<const Gathered*>(at)->storage().check());
  return stream_blocks<Gathered>(at, size, sink, context);
}
StoredOnce once_of_gathered(const void* at, std::uint64_t) { return static_cast<const Gathered*>(at)->once(); }
constexpr LeafOps gathered_ops{.read = read_gathered, .stream = stream_gathered, .once = once_of_gathered};

}  // namespace

const TorchType* type_of_name(std::string_view name) noexcept {
  const auto found = std::find_if(types.begin(), types.end(), [&](const TorchType& t) { return t.name == name; });
  return found != types.end() ? &*found : nullptr;
}

const TorchType* type_of_storage(std::string_view storage_class) noexcept {
  const auto found = std::find_if(types.begin(), types.end(),
                                  [&](const TorchType& t) { return !t.storage.empty() && t.storage == storage_class; });
  return found != types.end() ? &*found : nullptr;
}

const TorchType* type_of_dtype(DType dtype) noexcept {
  // Quantized types come after the types of their integers.
  const auto found = std::find_if(types.begin(), types.end(), [&](const TorchType& t) { return t.dtype == dtype; });
  return found != types.end() && dtype != DType::opaque ? &*found : nullptr;
}

const TorchType* type_of_number(std::uint64_t number) noexcept {
  return number < types.size() ? &types[static_cast<std::size_t>(number)] : nullptr;
}

Status Storage::check() const {
  if (!has_crc) return {};
  const Lock lock(mutex_);
  if (checked_) return {};
  constexpr std::size_t piece = std::size_t{1} << 20;
  const auto all = source->view();
  Bytes buffer(all.empty() ? static_cast<std::size_t>(std::min<std::uint64_t>(size, piece)) : 0);
  std::uint32_t found = 0;
  for (std::uint64_t done = 0; done < size;) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(size - done, piece));
    const std::byte* bytes = all.empty() ? buffer.data() : all.data() + offset + done;
    if (all.empty()) STELE_TRY(source->read_at(offset + done, buffer.span().first(n)));
    found = gzip::crc32(found, bytes, n);
    done += n;
  }
  STELE_TRY(check_hash(range_of(this, 0), found));
  checked_ = true;
  return {};
}

Status check_view(const View& view) {
  const TorchType& type = *view.type;
  const auto bad = [](const char* what) { return Error(Errc::malformed, what); };
  if (view.shape.rank() != view.strides.size()) return bad("the tensor's numbers of strides and extents differ");
  if (view.shape.rank() > 0xffff) return Error(Errc::limit, "the tensor has more than 65535 dimensions");
  const auto count = view.shape.element_count();
  if (!count || !checked_mul(*count, std::uint64_t{2} * type.size))
    return bad("the tensor's size does not fit 64 bits");
  if (view.conjugated && !is_complex(type)) return bad("conjugated elements are not complex");
  if (view.negated && !is_float(type.dtype) && !is_complex(type)) {
    return Error(Errc::unsupported, "the tensor has the negative bit, but its elements are not floats")
        .found(std::string(type.name));
  }
  if (type.packed_bits != 0 && !is_contiguous(view)) {
    return Error(Errc::unsupported, "a tensor of packed elements is not contiguous").found(std::string(type.name));
  }
  if (*count == 0) return {};
  std::optional<std::uint64_t> last = view.offset;
  for (std::size_t d = 0; d < view.shape.rank() && last; ++d) {
    const auto step = checked_mul(view.shape[d] - 1, view.strides[d]);
    last = step ? checked_add(*last, *step) : std::nullopt;
  }
  const std::uint64_t available = elements_of(*view.storage, type);
  if (!last || *last >= available) {
    return bad("some of the tensor's elements are outside its storage")
        .expected("at most " + std::to_string(available) + " elements")
        .found(last ? "element " + std::to_string(*last) : "an offset beyond 64 bits");
  }
  return {};
}

bool is_plain(const View& view) noexcept {
  if (view.type->packed_bits != 0 || view.conjugated || view.negated) return false;
  if (view.storage->big_endian && number_size(*view.type) > 1) return false;
  return is_contiguous(view);
}

Shape leaf_shape(const View& view) {
  if (view.type->dtype != DType::f4_e2m1 || view.shape.empty()) return view.shape;
  std::vector<Extent> extents(view.shape.begin(), view.shape.end());
  extents.back() *= 2;  // cannot overflow: check_view() has checked the doubled count
  return Shape(std::span<const Extent>(extents));
}

std::uint64_t leaf_bytes(const View& view) noexcept { return *view.shape.element_count() * view.type->size; }

Provider plain_provider(const View& view) noexcept {
  const std::uint64_t bytes = leaf_bytes(view), offset = bytes == 0 ? 0 : view.offset * view.type->size;
  if (offset == 0 && bytes == view.storage->size) return {&whole_ops, view.storage, 0};
  return {&part_ops, view.storage, offset};
}

Provider gathered_provider(const Gathered& gathered) noexcept { return {&gathered_ops, &gathered, 0}; }

// ---- gathering ------------------------------------------------------------------------------------------------------

Gathered::Gathered(const View& view)
    : storage_(view.storage),
      type_(view.type),
      offset_(view.storage->offset + (view.type->packed_bits == 0 ? view.offset * view.type->size : 0)),
      conjugated_(view.conjugated),
      negated_(view.negated) {
  if (type_->packed_bits != 0) {
    axes_.push_back({*view.shape.element_count(), 1, view.offset, 0});
    return;
  }
  std::uint64_t place = 1;
  for (std::size_t d = view.shape.rank(); d-- > 0;) {
    if (view.shape[d] != 1) axes_.push_back({view.shape[d], view.strides[d], place, 0});
    place *= view.shape[d];
  }
  std::reverse(axes_.begin(), axes_.end());
  if (axes_.empty()) axes_.push_back({1, 1, 1, 0});
  std::stable_sort(axes_.begin(), axes_.end(), [](const Axis& a, const Axis& b) { return a.stride > b.stride; });
  std::uint64_t reach = 0;
  for (std::size_t d = axes_.size(); d-- > 0;) {
    axes_[d].reach = reach;
    reach += (axes_[d].extent - 1) * axes_[d].place;
  }
  if (axes_.back().stride != 0) return;
  View once = view;
  std::vector<Extent> extents(view.shape.begin(), view.shape.end());
  for (std::size_t d = 0; d < extents.size(); ++d) extents[d] = view.strides[d] == 0 ? 1 : extents[d];
  once.shape = Shape(std::span<const Extent>(extents));
  once_ = std::make_unique<Gathered>(once);
}

StoredOnce Gathered::once() const noexcept {
  if (once_ == nullptr) return {};
  std::uint64_t count = 1;
  for (const Axis& axis : once_->axes_) count *= axis.extent;
  return {gathered_provider(*once_), count};
}

/// Copies the elements of the axes from `axis` on. All positions are in elements: `from` is the position in the view,
/// `to` the position in the leaf, and `first` the position of `out` in the leaf.
template <std::size_t Size>
Status Gathered::gather(std::size_t axis, std::uint64_t from, std::uint64_t to, std::uint64_t first,
                        std::span<std::byte> out, ReadContext& context) const {
  const Axis& a = axes_[axis];
  const std::uint64_t end = first + out.size() / Size;
  // Visits only the indices whose elements can be in `out`.
  std::uint64_t low = 0;
  if (to + a.reach < first) low = (first - to - a.reach + a.place - 1) / a.place;
  const std::uint64_t high = to < end ? std::min(a.extent, (end - 1 - to) / a.place + 1) : 0;
  if (axis + 1 < axes_.size()) {
    for (std::uint64_t i = low; i < high; ++i) {
      STELE_TRY(gather<Size>(axis + 1, from + i * a.stride, to + i * a.place, first, out, context));
    }
    return {};
  }
  const Source& source = *storage_->source;
  for (std::uint64_t i = low; i < high;) {
    const std::uint64_t at = offset_ + (from + i * a.stride) * Size;
    std::byte* const into = out.data() + (to + i * a.place - first) * Size;
    if (a.stride == 1 && a.place == 1 && (high - i) * Size > ReadContext::piece_size / 4) {
      return source.read_at(at, {into, static_cast<std::size_t>(high - i) * Size});
    }
    const std::uint64_t fit = a.stride == 0 ? high - i : (ReadContext::piece_size / Size - 1) / a.stride + 1;
    const std::uint64_t n = std::min(fit, high - i);
    STELE_TRY_ASSIGN(const auto bytes,
                     context.window(source, at, static_cast<std::size_t>((n - 1) * a.stride + 1) * Size));
    const std::byte* p = bytes.data();
    if (a.stride == 1 && a.place == 1) {
      std::memcpy(into, p, static_cast<std::size_t>(n) * Size);
    } else {
      for (std::uint64_t k = 0; k < n; ++k) std::memcpy(into + k * a.place * Size, p + k * a.stride * Size, Size);
    }
    i += n;
  }
  return {};
}

Status Gathered::fill(std::uint64_t first, std::span<std::byte> out, ReadContext& context) const {
  if (out.empty()) return {};
  if (type_->packed_bits != 0) return unpack(first, out, context);
  const auto status = [&] {
    switch (type_->size) {
      case 1:
        return gather<1>(0, 0, 0, first, out, context);
      case 2:
        return gather<2>(0, 0, 0, first / 2, out, context);
      case 4:
        return gather<4>(0, 0, 0, first / 4, out, context);
      case 8:
        return gather<8>(0, 0, 0, first / 8, out, context);
      default:
        return gather<16>(0, 0, 0, first / 16, out, context);
    }
  }();
  STELE_TRY(status);
  change(out);
  return {};
}

/// Unpacks packed elements to bytes; the first element of a byte is in its low bits.
Status Gathered::unpack(std::uint64_t first, std::span<std::byte> out, ReadContext& context) const {
  const unsigned bits = type_->packed_bits, each = 8 / bits;
  const auto mask = static_cast<std::uint8_t>((1U << bits) - 1);
  for (std::size_t done = 0; done < out.size();) {
    const std::uint64_t element = axes_[0].place + first + done;
    const std::uint64_t skipped = element % each;
    const std::uint64_t fit = ReadContext::piece_size * each - skipped;
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(fit, out.size() - done));
    const auto size = static_cast<std::size_t>((skipped + n + each - 1) / each);
    STELE_TRY_ASSIGN(const auto bytes, context.window(*storage_->source, offset_ + element / each, size));
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t place = static_cast<std::size_t>(skipped) + i;
      const auto packed = std::to_integer<unsigned>(bytes[place / each]);
      out[done + i] = static_cast<std::byte>(packed >> place % each * bits & mask);
    }
    done += n;
  }
  return {};
}

/// Swaps the bytes of big-endian elements, and flips the signs of conjugated and negated elements.
void Gathered::change(std::span<std::byte> out) const {
  const std::size_t unit = number_size(*type_);
  if (storage_->big_endian && unit > 1) {
    for (std::size_t i = 0; i < out.size(); i += unit) std::reverse(out.data() + i, out.data() + i + unit);
  }
  if (!conjugated_ && !negated_) return;
  const bool complex = is_complex(*type_);
  for (std::size_t i = 0, number = 0; i < out.size(); i += unit, ++number) {
    const bool imaginary = complex && number % 2 == 1;
    if (negated_ != (conjugated_ && imaginary)) out[i + unit - 1] ^= std::byte{0x80};
  }
}

}  // namespace stele::inline v0::detail::pytorch
