#include "stele/quantize.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

#include "snapshot/converting.hpp"
#include "snapshot/data.hpp"
#include "snapshot/paths.hpp"
#include "stele/pattern.hpp"

namespace stele {
inline namespace v0 {
namespace {

enum class Scheme : std::uint8_t { linear, zero_point, logarithmic };

/// Scales and zero points along an axis. Each applies to `inner` elements in turn.
struct Channels {
  std::uint64_t inner = 1;
  std::vector<double> scales, zero_points;

  /// Converts integers, the first of which is element `first` of the tensor.
  void decode(std::span<double> numbers, std::uint64_t first) const {
    std::size_t channel = static_cast<std::size_t>(first / inner % scales.size());
    for (std::uint64_t within = first % inner; !numbers.empty(); within = 0) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(inner - within, numbers.size()));
      for (double& q : numbers.first(n)) q = (q - zero_points[channel]) * scales[channel];
      numbers = numbers.subspan(n);
      channel = channel + 1 == scales.size() ? 0 : channel + 1;
    }
  }
};

/// The meaning of a tensor's integers, with the annotation's fields.
struct Coding {
  Scheme scheme = Scheme::linear;
  unsigned bits = 8;
  bool sign = false;
  bool symmetric = false;
  double low = 0;                              // linear: min; zero_point: the zero point
  double high = 0;                             // linear, logarithmic: max
  double scale = 0;                            // zero_point
  double steps = 255;                          // linear
  double shift = 0;                            // linear
  std::unique_ptr<const Channels> channels{};  // zero_point with an axis

  /// Computes the members that the bits determine.
  void finish() {
    steps = std::ldexp(1.0, static_cast<int>(bits)) - (sign && symmetric ? 2.0 : 1.0);
    shift = sign ? std::ldexp(1.0, static_cast<int>(bits) - 1) - (symmetric ? 1.0 : 0.0) : 0.0;
  }

  double decode(double q) const {
    switch (scheme) {
      case Scheme::linear:
        return (q + shift) / steps * (high - low) + low;
      case Scheme::zero_point:
        return (q - low) * scale;
      case Scheme::logarithmic:
        break;
    }
    // A sign takes the top bit, which may make q negative in two's complement.
    const double codes = std::ldexp(1.0, static_cast<int>(sign ? bits - 1 : bits));
    const bool negative = sign && (q < 0 || q >= codes);
    const double code = !negative ? q : q < 0 ? q + codes : q - codes;
    const double value = std::exp2(code + std::ceil(std::log2(high)) - (codes - 1.0));
    return negative ? -value : value;
  }
  void decode(std::span<double> numbers, std::uint64_t first) const {
    if (channels != nullptr) return channels->decode(numbers, first);
    for (double& x : numbers) x = decode(x);
  }
  double encode(double x) const { return std::clamp(std::nearbyint((x - low) / (high - low) * steps), 0.0, steps); }
};

/// Returns a number of either kind; nothing for a Value that is no finite number.
std::optional<double> number_of(const Value* v) {
  if (v == nullptr) return std::nullopt;
  if (v->as_i64() != nullptr) return static_cast<double>(*v->as_i64());
  if (v->as_f64() != nullptr && std::isfinite(*v->as_f64())) return *v->as_f64();
  return std::nullopt;
}

Error unknown_scheme() { return Error(Errc::unsupported, "the quantization scheme is unknown"); }

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
    if (!number) return wrong("another value at position " + std::to_string(numbers.size()));
    numbers.push_back(*number);
  }
  return numbers;
}

Result<std::unique_ptr<const Channels>> channels_of(const Value& note, const Value& axis,
                                                    std::span<const Extent> shape) {
  const auto number = number_of(&axis).value_or(-1);
  if (axis.as_i64() == nullptr || number < 0 || number >= static_cast<double>(shape.size())) {
    return Error(Errc::unsupported, "the quantization's axis is not one of the tensor's")
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

Result<Coding> coding_of(const Value& note, std::span<const Extent> shape) {
  Coding coding;
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

// Number of intermediate doubles: they fit in the cache and on the stack.
constexpr std::size_t batch = 1024;

/// Calls `visit` with the elements as doubles, batch by batch.
template <class Visit>
Status each_batch(DType dtype, std::span<const std::byte> bytes, std::uint64_t first, Visit visit) {
  double numbers[batch];
  const std::size_t size = element_size(dtype);
  for (std::size_t left = bytes.size() / size; left != 0;) {
    const std::size_t n = std::min(left, batch);
    const ConvertOutcome outcome = convert(dtype, bytes.data() + bytes.size() - left * size, DType::f64,
                                           reinterpret_cast<std::byte*>(numbers), n, {.allow_kind_change = true});
    if (outcome.status != ConvertStatus::ok) return detail::convert_error(outcome, dtype, DType::f64, first);
    STELE_TRY(visit(std::span<double>(numbers, n)));
    left -= n;
    first += n;
  }
  return {};
}

/// The step that all quantized, or all dequantized leaves refer to. A leaf's number is that of its base leaf.
struct Step {
  Snapshot base;
  bool encodes;
  std::vector<Coding> codings;  // of each leaf of the base

  std::size_t out_size() const { return encodes ? 1 : sizeof(float); }
  Status run(std::size_t leaf, std::span<const std::byte> in, std::uint64_t first, std::byte* out) const {
    const Coding& coding = codings[leaf];
    return each_batch(base.leaf(leaf).dtype(), in, first, [&](std::span<double> numbers) -> Status {
      const std::size_t n = numbers.size();
      if (encodes) {
        for (const double x : numbers) *out++ = static_cast<std::byte>(static_cast<unsigned>(coding.encode(x)));
      } else {
        coding.decode(numbers, first);
        const auto* from = reinterpret_cast<const std::byte*>(numbers.data());
        const ConvertOutcome outcome = convert(DType::f64, from, DType::f32, out, n);
        if (outcome.status != ConvertStatus::ok) return detail::convert_error(outcome, DType::f64, DType::f32, first);
        out += n * sizeof(float);
      }
      first += n;
      return {};
    });
  }
};

class CodingSink final : public PieceSink {
 public:
  CodingSink(const Step& step, std::size_t leaf, PieceSink& next, ReadContext& context)
      : step_(step),
        leaf_(leaf),
        in_size_(element_size(step.base.leaf(leaf).dtype())),
        next_(next),
        staging_(context) {}
  Status piece(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const std::size_t n =
          std::min(bytes.size() / in_size_, ReadContext::piece_size / std::max(in_size_, step_.out_size()));
      STELE_TRY(step_.run(leaf_, bytes.first(n * in_size_), done_, staging_.data()));
      STELE_TRY(next_.piece({staging_.data(), n * step_.out_size()}));
      done_ += n;
      bytes = bytes.subspan(n * in_size_);
    }
    return {};
  }

 private:
  const Step& step_;
  std::size_t leaf_;
  std::size_t in_size_;
  PieceSink& next_;
  ReadContext::Piece staging_;
  std::uint64_t done_ = 0;  // elements
};

Status coded_stream(const void* at, std::uint64_t number, std::uint64_t, PieceSink& sink, ReadContext& context) {
  const Step& step = *static_cast<const Step*>(at);
  const auto leaf = static_cast<std::size_t>(number);
  CodingSink coding(step, leaf, sink, context);
  return step.base.leaf(leaf).stream(coding, context);
}

Status coded_read(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                  ReadContext& context) {
  const Step& step = *static_cast<const Step*>(at);
  const auto leaf = static_cast<std::size_t>(number);
  const LeafView base = step.base.leaf(leaf);
  const std::size_t in_size = element_size(base.dtype());
  ReadContext::Piece staging(context);
  for (std::size_t done = 0; done < out.size();) {
    const std::size_t n = std::min((out.size() - done) / step.out_size(), ReadContext::piece_size / in_size);
    const std::uint64_t first = (offset + done) / step.out_size();
    STELE_TRY(base.read(first * in_size, {staging.data(), n * in_size}, context));
    STELE_TRY(step.run(leaf, {staging.data(), n * in_size}, first, out.data() + done));
    done += n * step.out_size();
  }
  return {};
}

constexpr LeafOps coded_ops{.read = coded_read, .stream = coded_stream};

/// Passes every piece to a function.
template <class F>
class EachPiece final : public PieceSink {
 public:
  explicit EachPiece(F function) : function_(std::move(function)) {}
  Status piece(std::span<const std::byte> bytes) override { return function_(bytes); }

 private:
  F function_;
};

/// Finds the range of the leaf's numbers, all of which must be finite.
Status find_range(const LeafView& leaf, ReadContext& context, Coding& coding) {
  coding.low = std::numeric_limits<double>::infinity();
  coding.high = -coding.low;
  std::uint64_t first = 0;
  EachPiece sink([&](std::span<const std::byte> bytes) -> Status {
    bool finite = true;
    STELE_TRY(each_batch(leaf.dtype(), bytes, first, [&](std::span<double> numbers) -> Status {
      for (const double x : numbers) {
        finite = finite && std::isfinite(x);
        coding.low = std::min(coding.low, x);
        coding.high = std::max(coding.high, x);
      }
      return {};
    }));
    if (!finite)
      return Error(Errc::out_of_range, "the tensor has a number that is not finite, and cannot be quantized");
    first += bytes.size() / element_size(leaf.dtype());
    return {};
  });
  STELE_TRY(detail::with_path(leaf.stream(sink, context), leaf));
  // Files store both as f32: rounded outwards, so that the range contains every number.
  const auto outwards = [](double x, float far) {
    const auto f = static_cast<float>(x);
    return static_cast<double>(
        (far < 0 ? static_cast<double>(f) > x : static_cast<double>(f) < x) ? std::nextafter(f, far) : f);
  };
  constexpr float max_float = std::numeric_limits<float>::max();
  if (coding.low < -static_cast<double>(max_float) || coding.high > static_cast<double>(max_float)) {
    return Error(Errc::out_of_range, "the tensor has a number that is too large for quantization").path(leaf.path());
  }
  coding.low = outwards(coding.low, -max_float);
  coding.high = outwards(coding.high, max_float);
  if (coding.low == coding.high) {
    const double width = std::max(1.0, std::abs(coding.low));
    if (coding.low > static_cast<double>(max_float) - width) {
      coding.low = outwards(coding.low - width, -max_float);
    } else {
      coding.high = outwards(coding.low + width, max_float);
    }
  }
  return {};
}

Status report_error(const LeafView& leaf, ReadContext& context, const Coding& coding, Report& report) {
  double largest = 0;
  double squares = 0;
  EachPiece sink([&](std::span<const std::byte> bytes) {
    return each_batch(leaf.dtype(), bytes, 0, [&](std::span<double> numbers) -> Status {
      for (const double x : numbers) {
        const double error = std::abs(coding.decode(coding.encode(x)) - x);
        largest = std::max(largest, error);
        squares += error * error;
      }
      return {};
    });
  });
  STELE_TRY(leaf.stream(sink, context));
  char text[160];
  std::snprintf(text, sizeof text, "%s -> %u bits in [%g, %g]; largest error %.3g, root mean square %.3g",
                std::string(name(leaf.dtype())).c_str(), coding.bits, coding.low, coding.high, largest,
                std::sqrt(squares / static_cast<double>(leaf.size())));
  report.add(Report::What::quantized, leaf.path(), text);
  return {};
}

bool any_matches(const std::vector<std::string>& patterns, const LeafView& leaf) {
  const std::string path = leaf.path();
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) { return matches(p, path); });
}

/// Returns the snapshot with the chosen leaves coded at dtype `to`. `note` returns their annotation, or null for none.
template <class Note>
Snapshot coded(const Snapshot& snapshot, std::shared_ptr<const Step> step, const std::vector<bool>& chosen, DType to,
               Note note) {
  auto data = detail::derived_data(snapshot);
  for (std::size_t i = 0; i < data->leaves.size(); ++i) {
    if (!chosen[i]) continue;
    detail::LeafData& leaf = data->leaves[i];
    leaf.bytes = leaf.bytes / element_size(leaf.dtype) * element_size(to);
    leaf.dtype = to;
    leaf.provider = {&coded_ops, step.get(), i};
    if (leaf.extra == no_index) {
      leaf.extra = static_cast<std::uint32_t>(data->extras.size());
      data->extras.emplace_back();
    }
    detail::LeafExtra& extra = data->extras[leaf.extra];
    auto notes =
        extra.annotations ? std::make_unique<Annotations>(*extra.annotations) : std::make_unique<Annotations>();
    notes->erase(std::string(quantization_key));
    if (Value value = note(i); !value.is_null()) notes->emplace(quantization_key, std::move(value));
    if (notes->empty()) notes.reset();
    extra.annotations = std::move(notes);
  }
  data->keepers.push_back(std::move(step));
  return Snapshot(std::shared_ptr<const detail::SnapshotData>(std::move(data)));
}

}  // namespace

Result<Snapshot> quantize(const Snapshot& snapshot, const Quantize& how, Report* report) {
  return detail::guarded([&]() -> Result<Snapshot> {
    if (how.bits < 2 || how.bits > 8) {
      return Error(Errc::invalid_argument, "the width for quantization is out of range")
          .expected("2 to 8 bits")
          .found(std::to_string(how.bits));
    }
    auto step = std::make_shared<Step>(Step{snapshot, true, {}});
    step->codings.resize(snapshot.leaf_count());
    std::vector<bool> chosen(snapshot.leaf_count());
    ReadContext context;
    for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
      const LeafView leaf = snapshot.leaf(i);
      if (!is_plain_float(leaf.dtype()) || leaf.size() == 0 || !any_matches(how.patterns, leaf)) continue;
      chosen[i] = true;
      Coding& coding = step->codings[i];
      coding.bits = how.bits;
      coding.finish();
      STELE_TRY(find_range(leaf, context, coding));
      if (report != nullptr) STELE_TRY(report_error(leaf, context, coding, *report));
    }
    return coded(snapshot, step, chosen, DType::u8, [&](std::size_t i) {
      const Coding& c = step->codings[i];
      return Value(Value::Map{{"scheme", Value("linear")},
                              {"bits", Value(std::int64_t{c.bits})},
                              {"min", Value(c.low)},
                              {"max", Value(c.high)}});
    });
  });
}

Result<Snapshot> dequantize(const Snapshot& snapshot, const std::vector<std::string>& patterns) {
  return detail::guarded([&]() -> Result<Snapshot> {
    auto step = std::make_shared<Step>(Step{snapshot, false, {}});
    step->codings.resize(snapshot.leaf_count());
    std::vector<bool> chosen(snapshot.leaf_count());
    for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
      const LeafView leaf = snapshot.leaf(i);
      const Annotations* notes = leaf.annotations();
      if (notes == nullptr) continue;
      const auto note = notes->find(std::string(quantization_key));
      if (note == notes->end() || !any_matches(patterns, leaf)) continue;
      const DTypeClass kind = dtype_class(leaf.dtype());
      const bool integers = kind == DTypeClass::signed_int || kind == DTypeClass::unsigned_int;
      if (!integers || element_size(leaf.dtype()) == 0) return unknown_scheme().path(leaf.path());
      auto coding = coding_of(note->second, leaf.shape());
      if (!coding) return std::move(coding).error().path(leaf.path());
      step->codings[i] = *std::move(coding);
      chosen[i] = true;
    }
    return coded(snapshot, step, chosen, DType::f32, [](std::size_t) { return Value(); });
  });
}

}  // namespace v0
}  // namespace stele
