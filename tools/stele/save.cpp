#include "commands.hpp"

#include <stele/precision/blocks.hpp>
#include <stele/recorder.hpp>

#include <vector>

namespace stele::command {

namespace {

/// Returns a rule for each dtype of blocks that can be written.
const std::vector<BlockRule>& block_rules() {
  static const std::vector<BlockRule> rules = [] {
    std::vector<BlockRule> all;
    for (unsigned code = 0; code <= 0xff; ++code) {
      if (const auto dtype = static_cast<DType>(code); encodable(dtype)) all.push_back({"*", dtype});
    }
    return all;
  }();
  return rules;
}

}  // namespace

bool names_mixture(const std::string& precision) noexcept {
  return !precision.empty() && precision[0] >= 'A' && precision[0] <= 'Z';
}

Result<PrecisionSpec> parse_precision(const std::string& name) {
  if (name.empty() || name == "native") return PrecisionSpec{};
  if (name == "f64") return PrecisionSpec{DType::f64};
  if (name == "f32") return PrecisionSpec{DType::f32};
  if (name == "f16") return PrecisionSpec{DType::f16};
  if (name == "bf16") return PrecisionSpec{DType::bf16};
  for (const BlockRule& rule : block_rules()) {
    if (v0::name(rule.dtype) == name) return PrecisionSpec{.block_rules = std::span(&rule, 1)};
  }
  return Error(Errc::invalid_argument, "no such precision")
      .expected("f64, f32, f16, bf16, native, or a block dtype that can be written, such as q8_0 or q4_K")
      .found(name);
}

Result<Report> save_to(const Target& target, const Snapshot& snapshot, Terminal& terminal) {
  STELE_TRY_ASSIGN(const auto format, target_format(target.to, target.path));
  Progress progress(terminal, "writing");
  SaveOptions options = target.save;
  options.threads = terminal.common().threads;
  options.progress = progress.callback();
  return save(*format, target.precision, snapshot, target.path, options);
}

}  // namespace stele::command
