#include "snapshot/converting.hpp"

#include <algorithm>
#include <string>

namespace stele::inline v0::detail {

Error convert_error(const ConvertOutcome& outcome, DType from, DType to, std::uint64_t first) {
  const std::string pair = std::string(name(from)) + " -> " + std::string(name(to));
  const std::string at = "element " + std::to_string(first + outcome.index);
  switch (outcome.status) {
    case ConvertStatus::overflow:
      return Error(Errc::out_of_range, "the conversion makes a number infinite (" + pair + ")")
          .expected("a number in the range of " + std::string(name(to)))
          .found("a larger number in " + at)
          .hint("set convert.allow_overflow in the options");
    case ConvertStatus::out_of_range:
      return Error(Errc::out_of_range, "the number is out of range (" + pair + ")")
          .expected("a number in the range of " + std::string(name(to)))
          .found("another number in " + at);
    case ConvertStatus::bad_bool:
      return Error(Errc::malformed, "the bool is neither 0 nor 1").expected("0 or 1").found("another byte in " + at);
    case ConvertStatus::ok:
    case ConvertStatus::unsupported:
      break;
  }
  return Error(Errc::dtype_mismatch, "the dtypes do not convert")
      .expected(std::string(name(to)))
      .found(std::string(name(from)));
}

Status ConvertingSink::piece(std::span<const std::byte> bytes) {
  const std::size_t in = element_size(from_);
  const std::size_t out = element_size(to_);
  for (std::size_t left = bytes.size() / in; left != 0;) {
    const std::size_t n = std::min(left, ReadContext::piece_size / std::max(in, out));
    std::byte* to = next_.place(done_ * out, n * out);
    if (to == nullptr) to = staging_.data();
    const ConvertOutcome outcome = convert(from_, bytes.data() + bytes.size() - left * in, to_, to, n, rules_);
    if (outcome.status != ConvertStatus::ok) return convert_error(outcome, from_, to_, done_);
    overflowed_ += outcome.overflowed;
    STELE_TRY(next_.piece({to, n * out}));
    done_ += n;
    left -= n;
  }
  return {};
}

Result<std::uint64_t> stream_as(const LeafView& leaf, DType to, const ConvertRules& rules, PieceSink& sink,
                                ReadContext& context) {
  if (leaf.dtype() == to && to != DType::boolean) {
    STELE_TRY(leaf.stream(sink, context));
    return 0;
  }
  ConvertingSink converting(leaf.dtype(), to, rules, sink, context);
  STELE_TRY(leaf.stream(converting, context));
  return converting.overflowed();
}

}  // namespace stele::inline v0::detail
