#include "commands.hpp"

#include <stele/recorder.hpp>

namespace stele::command {

Result<PrecisionSpec> parse_precision(const std::string& name) {
  if (name.empty() || name == "native") return PrecisionSpec{};
  if (name == "f64") return PrecisionSpec{DType::f64};
  if (name == "f32") return PrecisionSpec{DType::f32};
  if (name == "f16") return PrecisionSpec{DType::f16};
  if (name == "bf16") return PrecisionSpec{DType::bf16};
  return Error(Errc::invalid_argument, "no such precision").expected("f64, f32, f16, bf16 or native").found(name);
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
