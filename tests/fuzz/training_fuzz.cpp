// Reads text as a training configuration; checks that it returns the text, and that a newly written text reads back the
// same.
#include <stele/training.hpp>

#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.hpp"

namespace {

using stele_test::require;

using namespace stele;

std::string rewritten(TrainingConfig config) {
  config.source = {};
  return config.json();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = TrainingConfig::parse(text);
  if (!config) {
    const auto at = config.error().offset();
    require(at.has_value() && *at <= size);
    return 0;
  }
  require(config->json() == text);
  const std::string anew = rewritten(*config);
  const auto again = TrainingConfig::parse(anew);
  require(again.has_value() && again->json() == anew && rewritten(*again) == anew);
  if (const auto rate = learning_rate(*config); !rate) require(rate.error().code() != Errc::none);
  for (const TrainingObject& one : config->regularization) {
    for (const auto& [name, schedule] : one.objects) {
      if (const auto value = value_at(schedule, 7, 1); !value) require(value.error().code() != Errc::none);
    }
  }
  return 0;
}
