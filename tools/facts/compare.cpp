// Compares two tensors, number by number.
#include "facts/compare.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace stele::facts {

namespace {

constexpr std::size_t block_elements = 8192;  // a multiple of the elements that share bytes

bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

class CompareSink final : public PieceSink {
 public:
  CompareSink(const LeafView& a, const LeafView& b, double atol, double rtol, Comparison& out, const Advance& advance)
      : a_(a),
        b_(b),
        atol_(atol),
        rtol_(rtol),
        out_(out),
        advance_(advance),
        left_(a.size()),
        bytes_b_(block_elements * 16) {}

  Status piece(std::span<const std::byte> bytes) override {
    const auto elements = std::min<std::uint64_t>(left_, bytes.size() * 8 / bits(a_.dtype()));
    const std::byte* at = bytes.data();
    for (std::uint64_t i = 0; i < elements; i += block_elements) {
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(block_elements, elements - i));
      STELE_TRY(block(at, n));
      at += n * bits(a_.dtype()) / 8;
    }
    left_ -= elements;
    return advanced(advance_, bytes.size());
  }

 private:
  Status block(const std::byte* elements, std::size_t n) {
    const std::span<std::byte> b(bytes_b_.data(), (n * bits(b_.dtype()) + 7) / 8);
    STELE_TRY(b_.read(done_ * bits(b_.dtype()) / 8, b, context_));
    done_ += n;
    if (a_.dtype() == b_.dtype() && std::memcmp(elements, b.data(), b.size()) == 0) {
      out_.count += n * parts_of(a_.dtype());
      return {};
    }
    to_doubles(a_.dtype(), elements, n, numbers_a_.data());
    to_doubles(b_.dtype(), b.data(), n, numbers_b_.data());
    const std::size_t width = bits(a_.dtype()) / 8 / parts_of(a_.dtype());
    const bool wide = bits(a_.dtype()) == 64 && is_integer(a_.dtype()) && a_.dtype() == b_.dtype();
    for (std::size_t i = 0; i < n * parts_of(a_.dtype()); ++i) {
      // A double does not represent every integer of 64 bits, so that different integers may compare equal.
      const bool hidden = wide && std::memcmp(elements + i * width, b.data() + i * width, width) != 0;
      number(numbers_a_.at(i), numbers_b_.at(i), hidden);
    }
    return {};
  }

  static bool is_integer(DType dtype) {
    const DTypeClass c = dtype_class(dtype);
    return c == DTypeClass::signed_int || c == DTypeClass::unsigned_int;
  }

  void number(double a, double b, bool hidden) {
    const std::uint64_t index = out_.count++;
    if (same_number(a, b) && !hidden) return;
    const bool finite = std::isfinite(a) && std::isfinite(b);
    const double difference = !finite ? std::numeric_limits<double>::infinity() : a == b ? 1 : std::abs(a - b);
    if (finite) out_.squares += difference * difference;
    if (std::isnan(a) != std::isnan(b)) ++out_.nans;
    out_.max_abs = std::max(out_.max_abs, difference);
    out_.max_rel =
        std::max(out_.max_rel, b != 0 && finite ? difference / std::abs(b) : std::numeric_limits<double>::infinity());
    if (finite && difference <= atol_ + rtol_ * std::abs(b)) return;
    if (out_.differing++ == 0) out_.first = index;
  }

  const LeafView a_, b_;
  double atol_, rtol_;
  Comparison& out_;
  const Advance& advance_;
  std::uint64_t left_;
  std::uint64_t done_ = 0;
  std::vector<std::byte> bytes_b_;
  std::array<double, 2 * block_elements> numbers_a_{}, numbers_b_{};
  ReadContext context_;
};

/// Compares bytes, for tensors without numbers.
class BytesSink final : public PieceSink {
 public:
  BytesSink(const LeafView& b, Comparison& out, const Advance& advance) : b_(b), out_(out), advance_(advance) {}
  Status piece(std::span<const std::byte> bytes) override {
    std::vector<std::byte> other(bytes.size());
    STELE_TRY(b_.read(out_.count, other, context_));
    for (std::size_t i = 0; i < bytes.size(); ++i, ++out_.count) {
      if (bytes[i] == other[i]) continue;
      if (out_.differing++ == 0) out_.first = out_.count;
      out_.max_abs = out_.max_rel = std::numeric_limits<double>::infinity();
    }
    return advanced(advance_, bytes.size());
  }

 private:
  const LeafView b_;
  Comparison& out_;
  const Advance& advance_;
  ReadContext context_;
};

}  // namespace

double Comparison::rms() const noexcept {
  if (!std::isfinite(max_abs)) return max_difference();
  return count == 0 ? 0 : std::sqrt(squares / static_cast<double>(count));
}

Result<Comparison> compare_leaves(const LeafView& a, const LeafView& b, double atol, double rtol, ReadContext& context,
                                  const Advance& advance) {
  Comparison result;
  if (has_numbers(a.dtype()) && has_numbers(b.dtype()) && parts_of(a.dtype()) == parts_of(b.dtype())) {
    const auto sink = std::make_unique<CompareSink>(a, b, atol, rtol, result, advance);
    STELE_TRY(a.stream(*sink, context));
    return result;
  }
  if (a.dtype() != b.dtype() || a.byte_size() != b.byte_size()) {
    result.count = result.differing = a.size();
    result.max_abs = result.max_rel = std::numeric_limits<double>::infinity();
    return result;
  }
  BytesSink sink(b, result, advance);
  STELE_TRY(a.stream(sink, context));
  return result;
}

std::string type_text(const LeafView& leaf) { return std::string(name(leaf.dtype())) + " " + to_string(leaf.shape()); }

}  // namespace stele::facts
