#include "stele/checkpoint.hpp"

#include <algorithm>

namespace stele {
inline namespace v0 {

void OptimizerState::set_snapshot(std::string key, Snapshot arrays) {
  const auto same = [&](const auto& kind) { return kind.first == key; };
  const auto found = std::find_if(kinds_.begin(), kinds_.end(), same);
  if (found != kinds_.end()) {
    found->second = std::move(arrays);
  } else {
    kinds_.emplace_back(std::move(key), std::move(arrays));
  }
}

const Snapshot* OptimizerState::find(std::string_view key) const noexcept {
  const auto found = std::find_if(kinds_.begin(), kinds_.end(), [&](const auto& kind) { return kind.first == key; });
  return found != kinds_.end() ? &found->second : nullptr;
}

Result<const Snapshot*> OptimizerState::prepare(std::string_view key, const Snapshot& live,
                                                LoadOptions& options) const {
  const Snapshot* arrays = find(key);
  if (arrays == nullptr) return Error(Errc::not_found, "no optimizer state of this kind").path(std::string(key));
  const auto nodes = live.nodes();
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == NodeKind::value) options.allow_missing.push_back(live.path(i));
  }
  return arrays;
}

}  // namespace v0
}  // namespace stele
