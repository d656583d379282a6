#include "stele/quantize.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/meter.hpp"
#include "passes/batches.hpp"
#include "passes/composites/composite.hpp"
#include "passes/precision.hpp"
#include "passes/quantize.hpp"
#include "passes/recode.hpp"
#include "snapshot/data.hpp"
#include "snapshot/fill.hpp"
#include "snapshot/marks.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/undecoded.hpp"
#include "stele/pattern.hpp"
#include "stele/precision/blocks.hpp"

namespace stele::inline v0 {
namespace {

using detail::Recoding;

/// Passes every piece to a function.
template <class F>
class EachPiece final : public PieceSink {
 public:
  explicit EachPiece(F function) : function_(std::move(function)) {}
  Status piece(std::span<const std::byte> bytes) override { return function_(bytes); }

 private:
  F function_;
};

/// Determines the range of the leaf's numbers, all of which must be finite.
Status find_range(const LeafView& leaf, ReadContext& context, detail::IntegerCoding& coding) {
  coding.low = std::numeric_limits<double>::infinity();
  coding.high = -coding.low;
  std::uint64_t first = 0;
  EachPiece sink([&](std::span<const std::byte> bytes) -> Status {
    bool finite = true;
    STELE_TRY(detail::each_batch(leaf.dtype(), bytes, first, [&](std::span<double> numbers) -> Status {
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
  // Files store both as f32. Rounds outwards, so that the range contains every number.
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

bool any_matches(const std::vector<std::string>& patterns, const LeafView& leaf) {
  const std::string path = leaf.path();
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) { return matches(p, path); });
}

/// Reads the encoded leaves and adds the rows of their errors.
Status report_errors(const Snapshot& snapshot, Report* report) {
  if (report == nullptr) return {};
  const LoadOptions reading;
  detail::Meter unmetered(reading.progress, 0);
  STELE_TRY(detail::check_leaves(snapshot, reading, unmetered, detail::is_encoded));
  detail::add_quantized_rows(snapshot, *report);
  return {};
}

Result<Recoding> integers_of(const LeafView& leaf, const Value& note) {
  const DTypeClass kind = dtype_class(leaf.dtype());
  const bool integers = kind == DTypeClass::signed_int || kind == DTypeClass::unsigned_int;
  if (!integers || element_size(leaf.dtype()) == 0) return detail::unknown_scheme();
  STELE_TRY_ASSIGN(auto coding, detail::integer_coding(note, leaf.shape()));
  return Recoding{DType::f32, std::move(coding), nullptr};
}

/// Returns the recoding that dequantizes the leaf, if the leaf is quantized.
Result<Recoding> to_floats(const LeafView& leaf) {
  if (is_block(leaf.dtype())) return Recoding{DType::f32};
  const Annotations* const notes = leaf.annotations();
  if (notes == nullptr) return Recoding{};
  const auto note = notes->find(std::string(quantization_key));
  return note != notes->end() ? integers_of(leaf, note->second) : Recoding{};
}

/// Returns the recodings that dequantize the leaves for which `which` returns true (all if it is empty); an empty list
/// if no leaf is quantized. A leaf with an unknown scheme is an error; with `skip_unknown`, it is left unchanged.
Result<std::vector<Recoding>> all_to_floats(const Snapshot& snapshot, const std::function<bool(const LeafView&)>& which,
                                            bool skip_unknown) {
  std::vector<Recoding> recodings;
  const auto& leaves = snapshot.data()->leaves;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!is_block(leaves[i].dtype) && leaves[i].extra == no_index) continue;  // avoids a LeafView for most leaves
    const LeafView leaf = snapshot.leaf(i);
    if (which && !which(leaf)) continue;
    auto recoding = to_floats(leaf);
    if (!recoding && !skip_unknown) return std::move(recoding).error().path(leaf.path());
    if (!recoding || recoding->to == DType::none) continue;
    recodings.resize(leaves.size());
    recodings[i] = *std::move(recoding);
  }
  return recodings;
}

/// Returns the dtype for a leaf whose rows are not whole blocks: the nearest dtype with smaller blocks, as in llama.cpp
/// (llama-quant.cpp, tensor_type_fallback), or f16.
DType fitting(DType blocks, Extent row) {
  if (row % block_size(blocks).elements == 0) return blocks;
  DType smaller = DType::q8_0;
  switch (blocks) {
    case DType::q2_0:
    case DType::q2_k:
    case DType::q3_k:
    case DType::tq1_0:
    case DType::tq2_0:
      smaller = DType::q4_0;
      break;
    case DType::q4_k:
      smaller = DType::q5_0;
      break;
    case DType::q5_k:
      smaller = DType::q5_1;
      break;
    default:
      break;
  }
  return row % block_size(smaller).elements == 0 ? smaller : DType::f16;
}

/// The mark of a leaf that has another dtype than the one asked for: the dtype, and the reason.
constexpr std::string_view kept_key = "stele.kept";

Error cannot_encode(DType dtype) {
  return Error(Errc::unsupported, "floats cannot be stored as this dtype")
      .expected(
          "f64, f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_K to q6_K, iq4_nl, tq1_0, tq2_0, mxfp4, nvfp4, "
          "q1_0 or q2_0")
      .found(std::string(name(dtype)));
}

/// Returns the snapshot with the matching floats as integers. Reads their ranges from `reading`.
Result<Snapshot> as_integers(const Snapshot& snapshot, const Quantize& how, const Snapshot& reading) {
  if (how.bits < 2 || how.bits > 8) {
    return Error(Errc::invalid_argument, "the width for quantization is out of range")
        .expected("2 to 8 bits")
        .found(std::to_string(how.bits));
  }
  std::vector<Recoding> leaves(snapshot.leaf_count());
  ReadContext context;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    if (!is_plain_float(leaf.dtype()) || leaf.size() == 0 || !any_matches(how.patterns, leaf)) continue;
    STELE_TRY(detail::check_decoded(leaf));
    detail::IntegerCoding coding;
    coding.bits = how.bits;
    coding.finish();
    STELE_TRY(find_range(reading.leaf(i), context, coding));
    leaves[i] = {DType::u8, std::move(coding), &detail::encode_integers};
  }
  return detail::recoded(snapshot, std::move(leaves));
}

}  // namespace

Result<Snapshot> quantize(const Snapshot& snapshot, const Quantize& how, Report* report) {
  return detail::guarded([&]() -> Result<Snapshot> {
    STELE_TRY_ASSIGN(Snapshot quantized, as_integers(snapshot, how, snapshot));
    STELE_TRY(report_errors(quantized, report));
    return quantized;
  });
}

namespace detail {

Result<Snapshot> quantized(const Snapshot& snapshot, unsigned bits, const Snapshot& reading) {
  return as_integers(snapshot, {.bits = bits}, reading);
}

Choose first_rule(std::span<const BlockRule> rules) {
  return [rules](const LeafView& leaf) {
    const std::string path = leaf.path();
    const auto rule =
        std::find_if(rules.begin(), rules.end(), [&](const BlockRule& r) { return matches(r.pattern, path); });
    return Choice{rule != rules.end() ? rule->dtype : DType::none};
  };
}

Result<Snapshot> with_blocks(const Snapshot& snapshot, const Choose& choose, Report* report) {
  std::vector<Recoding> leaves(snapshot.leaf_count());
  std::vector<DType> plain;
  std::vector<std::pair<std::size_t, std::string>> kept;  // for the save's report
  const auto add_kept = [&](const LeafView& leaf, std::size_t number, std::string text) {
    if (report != nullptr) {
      report->add(Report::What::kept, leaf.path(), text);
    } else {
      kept.emplace_back(number, std::move(text));
    }
  };
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    plain.push_back(leaf.dtype());
    if (!is_plain_float(leaf.dtype())) continue;
    const Choice choice = choose(leaf);
    if (!choice.kept.empty()) add_kept(leaf, i, std::string(name(leaf.dtype())) + ", " + choice.kept);
    DType to = choice.dtype;
    if (to == DType::none) continue;
    STELE_TRY(check_decoded(leaf));
    if (!encodable(to) && !is_plain_float(to)) return cannot_encode(to).path(leaf.path());
    if (is_block(to) && (leaf.shape().size() < 2 || leaf.size() == 0)) continue;
    if (is_block(to)) {
      const Extent row = leaf.shape().back();
      const DType asked = std::exchange(to, fitting(to, row));
      if (to != asked) {
        add_kept(leaf, i,
                 std::string(name(to)) + ", not " + std::string(name(asked)) + ": rows of " + std::to_string(row) +
                     " elements, no multiple of " + std::to_string(block_size(asked).elements));
      }
    }
    if (is_block(to)) {
      leaves[i] = {to, {}, &encode_whole_blocks};
    } else {
      plain[i] = to;
    }
  }
  const Snapshot made = recoded(with_dtypes(snapshot, std::move(plain), {}), std::move(leaves));
  if (kept.empty()) return made;
  auto data = derived_data(made);
  for (auto& [number, text] : kept) set_mark(*data, number, kept_key, std::move(text));
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

Snapshot with_kept_rows(const Snapshot& snapshot, Report& report) {
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    const std::string_view text = mark_of(leaf, kept_key);
    // A later step may have given the leaf another dtype.
    if (!text.empty() && text.substr(0, text.find(',')) == name(leaf.dtype()))
      report.add(Report::What::kept, leaf.path(), text);
  }
  return without_mark(snapshot, kept_key);
}

}  // namespace detail

Result<Snapshot> detail::quantize_as(const Snapshot& snapshot, const Choose& choose, Report* report) {
  STELE_TRY_ASSIGN(Snapshot quantized, with_blocks(snapshot, choose, report));
  STELE_TRY(report_errors(quantized, report));
  return quantized;
}

Result<Snapshot> quantize_blocks(const Snapshot& snapshot, std::span<const BlockRule> rules, Report* report) {
  return detail::guarded([&] { return detail::quantize_as(snapshot, detail::first_rule(rules), report); });
}

Result<Snapshot> dequantize_if(const Snapshot& snapshot, const std::function<bool(const LeafView&)>& which) {
  return detail::guarded([&]() -> Result<Snapshot> {
    STELE_TRY_ASSIGN(std::vector<Recoding> leaves, all_to_floats(snapshot, which, false));
    const Snapshot floats = detail::composites::decoded(snapshot, which);
    return leaves.empty() ? floats : detail::recoded(floats, std::move(leaves));
  });
}

Result<Snapshot> dequantize(const Snapshot& snapshot, const std::vector<std::string>& patterns) {
  return dequantize_if(snapshot, [&](const LeafView& leaf) { return any_matches(patterns, leaf); });
}

namespace detail {

Snapshot with_floats(const Snapshot& snapshot, const std::function<bool(const LeafView&)>& which) {
  auto leaves = all_to_floats(snapshot, which, true);
  const Snapshot floats = composites::decoded(snapshot, which);
  return leaves && !leaves->empty() ? recoded(floats, *std::move(leaves)) : floats;
}

}  // namespace detail
}  // namespace stele::inline v0
