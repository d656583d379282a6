#include "passes/integer_coding.hpp"

#include <optional>
#include <string>
#include <utility>

namespace stele::inline v0::detail {

Error unknown_scheme() { return Error(Errc::unsupported, "the quantization scheme is unknown"); }

namespace {

/// Returns an integer or a float as a double; nullopt for a Value that is not a finite number.
std::optional<double> number_of(const Value* v) {
  if (v == nullptr) return std::nullopt;
  if (v->as_i64() != nullptr) return static_cast<double>(*v->as_i64());
  if (v->as_f64() != nullptr && std::isfinite(*v->as_f64())) return *v->as_f64();
  return std::nullopt;
}

Result<std::vector<double>> channel_numbers(const Value& note, const char* key, Extent count) {
  const Value* const value = note.find(key);
  const Value::List* const list = value != nullptr ? value->as_list() : nullptr;
  const auto wrong = [&](const std::string& found) {
    return Error(Errc::unsupported, "the quantization's parameters do not fit the tensor")
        .expected("a list of " + std::to_string(count) + " finite numbers in " + key)
        .found(found);
  };
  if (list == nullptr) return wrong(value == nullptr ? "none" : std::string(name(value->kind())));
  if (list->size() != count) return wrong(std::to_string(list->size()) + " numbers");
  std::vector<double> numbers;
  numbers.reserve(list->size());
  for (const Value& v : *list) {
    const auto number = number_of(&v);
    if (!number) return wrong("a value that is not a finite number at position " + std::to_string(numbers.size()));
    numbers.push_back(*number);
  }
  return numbers;
}

Result<std::unique_ptr<const Channels>> channels_of(const Value& note, const Value& axis,
                                                    std::span<const Extent> shape) {
  const auto number = number_of(&axis).value_or(-1);
  if (axis.as_i64() == nullptr || number < 0 || number >= static_cast<double>(shape.size())) {
    return Error(Errc::unsupported, "the tensor does not have the quantization's axis")
        .expected("an integer below " + std::to_string(shape.size()))
        .found(axis.as_i64() != nullptr ? std::to_string(*axis.as_i64()) : std::string(name(axis.kind())));
  }
  const auto at = static_cast<std::size_t>(number);
  auto channels = std::make_unique<Channels>();
  for (const Extent e : shape.subspan(at + 1)) channels->inner *= e;
  STELE_TRY_ASSIGN(channels->scales, channel_numbers(note, "scale", shape[at]));
  STELE_TRY_ASSIGN(channels->zero_points, channel_numbers(note, "zero_point", shape[at]));
  return std::unique_ptr<const Channels>(std::move(channels));
}

}  // namespace

Result<IntegerCoding> integer_coding(const Value& note, std::span<const Extent> shape) {
  IntegerCoding coding;
  bool complete = true;
  const auto number = [&](const char* key) {
    const auto value = number_of(note.find(key));
    complete = complete && value;
    return value.value_or(0.0);
  };
  const auto flag = [&](const char* key) {
    const Value* v = note.find(key);
    return v != nullptr && v->as_bool() != nullptr && *v->as_bool();
  };
  const Value* scheme = note.find("scheme");
  if (scheme == nullptr || scheme->as_string() == nullptr) return unknown_scheme();
  const double bits = number("bits");
  coding.sign = flag("signed");
  coding.symmetric = flag("symmetric");
  const Value* const axis = note.find("axis");
  if (*scheme->as_string() == "zero_point") {
    coding.scheme = Scheme::zero_point;
    if (axis != nullptr) {
      STELE_TRY_ASSIGN(coding.channels, channels_of(note, *axis, shape));
    } else {
      coding.low = number("zero_point");
      coding.scale = number("scale");
    }
  } else if (axis != nullptr) {
    return unknown_scheme();
  } else if (*scheme->as_string() == "linear") {
    coding.low = number("min");
    coding.high = number("max");
  } else if (*scheme->as_string() == "logarithmic") {
    coding.scheme = Scheme::logarithmic;
    coding.high = number("max");
  } else {
    return unknown_scheme();
  }
  const bool possible = bits >= (coding.sign ? 2.0 : 1.0) && bits <= 64.0 && bits == std::floor(bits) &&
                        (coding.scheme != Scheme::logarithmic || coding.high > 0);
  if (!complete || !possible) return unknown_scheme();
  coding.bits = static_cast<unsigned>(bits);
  coding.finish();
  return coding;
}

}  // namespace stele::inline v0::detail
