// The calls that NumPy's arrays are pickled as. Sources: numpy 2.4, numpy/_core/src/multiarray/methods.c
// (array_reduce_ex, array_setstate), descriptor.c (arraydescr_reduce), scalartypes.c.src (gentype_reduce).
#include "arrays.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/limits.hpp"
#include "leaves/source_range.hpp"
#include "stele/shape.hpp"

namespace stele::inline v0::detail::numpy_pickle {
namespace {

using pickle::Kind;
using pickle::no_ref;
using pickle::Ref;

/// Dtypes of the package ml_dtypes that stele has, by the names of their classes.
constexpr std::pair<std::string_view, DType> ml_dtypes[] = {
    {"bfloat16", DType::bf16},
    {"float8_e4m3fn", DType::f8_e4m3fn},
    {"float8_e5m2", DType::f8_e5m2},
    {"float8_e8m0fnu", DType::f8_e8m0},
    {"float8_e4m3fnuz", DType::f8_e4m3fnuz},
    {"float8_e5m2fnuz", DType::f8_e5m2fnuz},
};

Error damaged(std::string_view expected) {
  return Error(Errc::malformed, "an array of the pickle is incomplete or inconsistent").expected(std::string(expected));
}

}  // namespace

Status Latin1::scan(IndexBudget& memory) {
  const std::uint64_t blocks = size_ / block + 1;
  if (!memory.take(blocks * sizeof(std::uint64_t) + 256))
    return index_error("the pickle's arrays need too much memory");
  before_.reserve(static_cast<std::size_t>(blocks));
  Bytes buffer(static_cast<std::size_t>(std::min<std::uint64_t>(size_, block)));
  unsigned lead = 0;  // the first byte of a character of two
  for (std::uint64_t at = 0; at < size_; at += block) {
    const auto part = buffer.span().first(static_cast<std::size_t>(std::min<std::uint64_t>(size_ - at, block)));
    STELE_TRY(source_->read_at(offset_ + at, part));
    before_.push_back(count_);
    for (std::size_t i = 0; i < part.size(); ++i) {
      const unsigned c = std::to_integer<unsigned>(part[i]);
      const bool second = (c & 0xc0U) == 0x80;
      if (second != (lead != 0) || c > 0xc3 || c == 0xc0 || c == 0xc1) {
        return Error(Errc::malformed, "the elements of an array are not bytes in Latin-1").offset(offset_ + at + i);
      }
      if (!second) ++count_;
      lead = c >= 0xc2 ? c : 0;
    }
  }
  return lead == 0 ? Status() : Error(Errc::malformed, "the elements of an array end inside a character");
}

Status Latin1::read(const void* at, std::uint64_t /*number*/, std::uint64_t offset, std::span<std::byte> out,
                    ReadContext& /*context*/) {
  const auto& self = *static_cast<const Latin1*>(at);
  if (out.empty()) return {};
  const auto after = std::upper_bound(self.before_.begin(), self.before_.end(), offset);
  auto index = static_cast<std::size_t>(after - self.before_.begin() - 1);
  // Counts the characters that begin in this block; the first bytes may end a character of the previous block.
  std::uint64_t skip = offset - self.before_[index];
  Bytes buffer(static_cast<std::size_t>(std::min<std::uint64_t>(self.size_, block)));
  std::size_t done = 0;
  unsigned lead = 0;
  for (; done < out.size() && index < self.before_.size(); ++index) {
    const std::uint64_t begin = std::uint64_t{index} * block;
    const auto part = buffer.span().first(static_cast<std::size_t>(std::min<std::uint64_t>(self.size_ - begin, block)));
    STELE_TRY(self.source_->read_at(self.offset_ + begin, part));
    for (const std::byte b : part) {
      const unsigned c = std::to_integer<unsigned>(b);
      const bool second = (c & 0xc0U) == 0x80;
      if (second && lead == 0) continue;  // part of a character before the first block
      if (c >= 0xc2) {
        lead = c;
        continue;
      }
      const unsigned value = second ? (lead & 3U) << 6 | (c & 0x3fU) : c;
      lead = 0;
      if (skip != 0) {
        --skip;
      } else if (done < out.size()) {
        out[done++] = static_cast<std::byte>(value);
      }
    }
  }
  return done == out.size() ? Status() : Error(Errc::truncated, "the file has changed while it was read");
}

Provider Latin1::provider() const noexcept {
  static constexpr LeafOps ops{.read = &Latin1::read, .encoding = "text"};
  return {&ops, this, 0};
}

Arrays::Form Arrays::form(Ref object) const {
  if (!objects_.is(object, Kind::object)) return Form::none;
  const Ref callable = objects_.callable(object);
  if (!objects_.is(callable, Kind::global)) return Form::none;
  const std::string_view module = objects_.module(callable), name = objects_.name(callable);
  if (module == "numpy.core.multiarray" || module == "numpy._core.multiarray") {
    if (name == "_reconstruct") {  // also of subclasses of ndarray
      const auto args = tuple(objects_.args(object));
      return !args.empty() && objects_.is_global(args[0], "numpy", "ndarray") ? Form::array : Form::none;
    }
    return name == "scalar" ? Form::scalar : Form::none;
  }
  const bool numeric = module == "numpy.core.numeric" || module == "numpy._core.numeric";
  return numeric && name == "_frombuffer" ? Form::buffer : Form::none;
}

bool Arrays::is_array(Ref object) const { return form(object) != Form::none; }

Unwrapped Arrays::unwrapped(Ref r) const {
  if (is_array(r)) return {.object = r};
  if (objects_.is(r, Kind::tuple)) {
    const auto items = objects_.items(r);
    const bool pair = items.size() == 2 && objects_.callable(r) != no_ref && objects_.is(items[0], Kind::string) &&
                      !objects_.in_source(items[0]) && is_array(items[1]);
    return pair ? Unwrapped{items[1], items[0], true} : Unwrapped();
  }
  if (!objects_.is(r, Kind::object) || !objects_.is_global(objects_.callable(r), "builtins", "eval")) return {};
  const Ref args = objects_.args(r);
  const auto items = objects_.is(args, Kind::tuple) ? objects_.items(args) : std::span<const Ref>();
  if (items.size() != 2 || !objects_.is(items[0], Kind::string) || objects_.text(items[0]) != "data" ||
      !objects_.is(items[1], Kind::dict) || objects_.items(items[1]).size() != 2) {
    return {};
  }
  const Ref data = objects_.find(items[1], "data");
  return data != no_ref && is_array(data) ? Unwrapped{data, no_ref, true} : Unwrapped();
}

std::span<const Ref> Arrays::tuple(Ref object) const {
  return objects_.is(object, Kind::tuple) ? objects_.items(object) : std::span<const Ref>();
}

std::optional<std::string_view> Arrays::text(Ref object) const {
  if (!objects_.is(object, Kind::string)) return std::nullopt;
  return objects_.text(object);
}

/// Sets dtype, element size and byte order, or the reason.
Status Arrays::set_dtype(Ref dtype, PickledArray& to) const {
  const bool known = objects_.is(dtype, Kind::object) && objects_.is_global(objects_.callable(dtype), "numpy", "dtype");
  const auto args = known ? tuple(objects_.args(dtype)) : std::span<const Ref>();
  if (args.empty()) return damaged("a dtype");
  const auto state = tuple(objects_.state(dtype));
  if (state.size() > 4 && (!objects_.is(state[2], Kind::none) || !objects_.is(state[3], Kind::none))) {
    to.unreadable = "an array with a structured dtype";
    return {};
  }
  if (const auto type = text(args[0])) {
    to.array.dtype = numpy::dtype_of(*type);
    if (to.array.dtype == DType::none) {
      to.unreadable = "an array of dtype " + std::string(type->substr(0, 80));
      if (!type->empty() && std::string_view("OSaUTMm").find((*type)[0]) != std::string_view::npos) {
        to.unreadable.append(": ").append(numpy::refused((*type)[0]));
      }
      return {};
    }
  } else if (objects_.is(args[0], Kind::global)) {
    const std::string_view module = objects_.module(args[0]), name = objects_.name(args[0]);
    const auto* found = std::find_if(std::begin(ml_dtypes), std::end(ml_dtypes),
                                     [&](const auto& entry) { return entry.first == name; });
    if (!module.starts_with("ml_dtypes") || found == std::end(ml_dtypes)) {
      to.unreadable = "an array of dtype " + std::string(module) + '.' + std::string(name);
      return {};
    }
    to.array.dtype = found->second;
  } else {
    return damaged("the name of a dtype");
  }
  to.array.element_size = element_size(to.array.dtype);
  const auto order = state.size() > 1 ? text(state[1]) : std::nullopt;
  to.array.big_endian = order == ">";
  return {};
}

Status Arrays::set_shape(Ref shape, PickledArray& to) const {
  if (!objects_.is(shape, Kind::tuple)) return damaged("a shape");
  if (objects_.items(shape).size() > numpy::max_rank) {
    if (to.unreadable.empty()) to.unreadable = "an array of more than 64 axes";
    return {};
  }
  for (const Ref extent : objects_.items(shape)) {
    if (!objects_.is(extent, Kind::integer) || objects_.integer(extent) < 0) return damaged("a shape of extents");
    to.array.shape.push_back(static_cast<Extent>(objects_.integer(extent)));
  }
  return {};
}

Status Arrays::set_data(Ref data, PickledArray& to) {
  numpy::Array& array = to.array;
  if (!to.unreadable.empty()) return {};
  if (!objects_.is(data, Kind::bytes) && !objects_.is(data, Kind::string)) return damaged("the bytes of an array");
  const pickle::Objects::Place place = objects_.place(data);
  std::uint64_t found = place.size;
  to.provider = {&source_ops, source_.get(), place.offset};
  array.data = place.offset;
  if (place.latin1) {
    auto& known = texts_[data];
    if (known == nullptr) {
      auto made = std::make_shared<Latin1>(source_, place.offset, place.size);
      STELE_TRY(made->scan(memory_));
      known = std::move(made);
    }
    found = known->count();
    to.provider = known->provider();
  }
  const auto elements = element_count(array.shape);
  const auto bytes = elements ? checked_mul(*elements, array.element_size) : std::nullopt;
  if (bytes != found) {
    return damaged(bytes ? std::to_string(*bytes) + " bytes" : "an array of less than 2^64 bytes")
        .found(std::to_string(found))
        .offset(place.offset);
  }
  array.bytes = found;
  return {};
}

Result<PickledArray> Arrays::read(Ref object) {
  PickledArray made;
  const auto args = tuple(objects_.args(object));
  switch (form(object)) {
    case Form::array: {
      // (version, shape, dtype, is_fortran, data); version is absent in the oldest files
      auto state = tuple(objects_.state(object));
      if (state.size() == 5) state = state.subspan(1);
      if (state.size() != 4 || !objects_.is(state[2], Kind::boolean)) {
        // In protocol 2, is_fortran may be an integer.
        if (state.size() != 4 || !objects_.is(state[2], Kind::integer)) return damaged("the state of an array");
      }
      made.array.fortran =
          objects_.is(state[2], Kind::boolean) ? objects_.boolean(state[2]) : objects_.integer(state[2]) != 0;
      STELE_TRY(set_dtype(state[1], made));
      STELE_TRY(set_shape(state[0], made));
      STELE_TRY(set_data(state[3], made));
      return made;
    }
    case Form::buffer:  // (data, dtype, shape, order)
      if (args.size() != 4) return damaged("a buffer, a dtype, a shape and an order");
      made.array.fortran = text(args[3]) == "F";
      STELE_TRY(set_dtype(args[1], made));
      STELE_TRY(set_shape(args[2], made));
      STELE_TRY(set_data(args[0], made));
      return made;
    case Form::scalar:  // (dtype, data)
      if (args.size() != 2) return damaged("a dtype and the bytes of a scalar");
      STELE_TRY(set_dtype(args[0], made));
      STELE_TRY(set_data(args[1], made));
      return made;
    case Form::none:
      break;
  }
  return damaged("an array");
}

std::vector<std::shared_ptr<const void>> Arrays::kept() const {
  std::vector<std::shared_ptr<const void>> all;
  all.reserve(texts_.size());
  for (const auto& entry : texts_) all.push_back(entry.second);
  return all;
}

}  // namespace stele::inline v0::detail::numpy_pickle
