// Reads the tensors of a record.
#include "document_reader.hpp"

#include <charconv>
#include <utility>

#include "base/hex.hpp"
#include "numbers.hpp"

namespace stele::inline v0::detail::json {
namespace {

std::optional<ParamId> parse_id(std::string_view text) {
  if (text.size() != 36) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool padded = text.size() > 1 && text.starts_with('0');
    const bool whole = error == std::errc() && end == text.data() + text.size();
    return whole && !padded ? std::optional(ParamId::from_u64(number)) : std::nullopt;
  }
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash != (text[i] == '-')) return std::nullopt;
    if (!dash) digits += text[i];
  }
  const auto high = detail::from_hex(std::string_view(digits).substr(0, 16)),
             low = detail::from_hex(std::string_view(digits).substr(16));
  return high && low ? std::optional(ParamId::from_uuid(*high, *low)) : std::nullopt;
}

}  // namespace

bool DocumentReader::read_tensor(SnapshotBuilder::Name name) {
  constexpr unsigned shape = 1, data = 2, id = 4, annotations = 8;
  std::string_view text;
  std::string_view key;
  if (!in_->read_string(text, scratch_)) return false;
  const DType dtype = dtype_of(text);
  if (dtype == DType::none || bits(dtype) == 0) return fail(Errc::unsupported, "a dtype such as F32");
  unsigned seen = 0;
  std::size_t number = 0;
  std::optional<ParamId> identity;
  Value notes;
  extents_.clear();
  while (in_->next_key(key, scratch_)) {
    const unsigned what = key == "shape"         ? shape
                          : key == "data"        ? data
                          : key == "id"          ? id
                          : key == "annotations" ? annotations
                                                 : 0U;
    if (what == 0) return fail(Errc::unsupported, "shape, data, id or annotations");
    if ((seen & what) != 0) return fail(Errc::duplicate, "", "a key of the tensor occurs twice");
    seen |= what;
    if (what == shape) {
      std::uint64_t extent = 0;
      if (!in_->begin_array()) return false;
      while (in_->next_element()) {
        if (!in_->read_u64(extent)) return false;
        if (extents_.size() == 0xffff) return fail(Errc::limit, "at most 65535 dimensions");
        extents_.push_back(extent);
      }
    } else if (what == data) {
      number = next_data_;
      if (in_->peek() != Kind::null || number == document_->skeleton.data.size()) {
        return fail(Errc::malformed, "a string or an array, and key and $dtype without escapes");
      }
      if (number + 1 == document_->skeleton.data.size() && document_->skeleton.stopped != Errc::none) {
        return check_data(dtype, number);
      }
      if (!in_->read_null()) return false;
      ++next_data_;
    } else if (what == id) {
      if (!in_->read_string(text, scratch_)) return false;
      identity = parse_id(text);
      if (!identity) return fail(Errc::malformed, "a number below 2^64, or a UUID");
    } else {
      if (!read_value(notes)) return false;
      if (notes.as_map() == nullptr) return fail(Errc::malformed, "an object");
    }
  }
  if (!in_->ok()) return false;
  if ((seen & (shape | data)) != (shape | data)) return fail(Errc::malformed, "$dtype, shape and data");
  if (!check_data(dtype, number) || !take(std::uint64_t{2} * sizeof(Extent) * extents_.size())) return false;
  Data& found = document_->skeleton.data[number];
  builder_.tensor(name, dtype, extents_, found.bytes, {&ops_of(found), document_.get(), number}, in_list());
  if (identity || notes.as_map() != nullptr) {
    if (!take(sizeof(LeafExtra))) return false;
  }
  if (identity) builder_.set_id(*identity);
  if (notes.as_map() != nullptr) {
    for (auto& [k, v] : *notes.as_map()) builder_.annotate(std::move(k), std::move(v));
  }
  return true;
}

/// Checks that the data fit a tensor of this dtype and of shape extents_.
bool DocumentReader::check_data(DType dtype, std::size_t number) {
  Data& data = document_->skeleton.data[number];
  const Errc stopped = number + 1 == document_->skeleton.data.size() ? document_->skeleton.stopped : Errc::none;
  const auto wrong = [&](Errc code, const char* text, std::string_view expected, std::string_view found) {
    // `at` is an offset in the document instead of the skeleton.
    const std::uint64_t at = data.at;
    failed_ = Error(code, text).path(path_).expected(expected).found(found).offset(at);
    placed_ = true;
    return false;
  };
  const auto elements = element_count(extents_);
  const auto bytes = elements ? byte_length(dtype, *elements) : std::nullopt;
  if (!bytes || *bytes > UINT64_MAX / 4) {
    return wrong(Errc::malformed, "the tensor has too many elements", "less than 2^62 bytes", to_string(extents_));
  }
  data.bytes = *bytes;
  data.dtype = dtype;
  if (data.numbers) {
    if (!has_numbers(dtype)) {
      return wrong(Errc::unsupported, "a tensor of this dtype cannot be stored as numbers", "base64",
                   std::string(name(dtype)));
    }
    if (stopped != Errc::none) {
      return wrong(stopped, "the array of numbers does not end with the tensor", "the numbers of the tensor",
                   "more text");
    }
    // Each number takes at least a digit and a comma.
    if (*elements == 0 || *elements > data.size / 2) {
      return wrong(Errc::malformed, "the number of elements does not fit the length of the data",
                   std::to_string(*elements) + " numbers", std::to_string(data.size) + " characters");
    }
    data.shape = static_cast<std::uint32_t>(document_->shapes.size());
    document_->shapes.push_back(extents_.size());
    document_->shapes.insert(document_->shapes.end(), extents_.begin(), extents_.end());
    return true;
  }
  const std::uint64_t characters = (*bytes + 2) / 3 * 4;
  if (stopped == Errc::none && data.size == characters + 2) return true;
  return wrong(stopped == Errc::none ? Errc::malformed : stopped,
               stopped == Errc::truncated ? "the document ends inside the tensor's data"
                                          : "the length of the data does not match the dtype and shape",
               std::to_string(characters) + " characters",
               stopped == Errc::truncated ? std::to_string(data.size - 1) : std::to_string(data.size - 2));
}

}  // namespace stele::inline v0::detail::json
