#include "stele/torch.hpp"

#include <torch/torch.h>

#include <memory>
#include <utility>

#include "state_dict.hpp"
#include "stele/record.hpp"

namespace stele::inline v0::torch {

using detail::libtorch::StateDict;

Result<Snapshot> snapshot_of(const ::torch::nn::Module& module) {
  return detail::guarded([&]() -> Result<Snapshot> {
    const ::torch::NoGradGuard no_grad;
    STELE_TRY_ASSIGN(const std::shared_ptr<StateDict> state, StateDict::of(module));
    return detail::libtorch::snapshot_of(state);
  });
}

Status load_state_dict(::torch::nn::Module& module, const Snapshot& snapshot, const LoadOptions& options) {
  return detail::guarded([&]() -> Status {
    const ::torch::NoGradGuard no_grad;
    STELE_TRY_ASSIGN(const std::shared_ptr<StateDict> state, StateDict::of(module));
    for (const auto& [path, e] : state->paths()) {
      for (std::int64_t d = 0; d < e->tensor.dim(); ++d) {
        if (e->tensor.stride(d) == 0 && e->tensor.size(d) > 1) {
          return Error(Errc::not_loadable, "elements of the expanded tensor share memory").path(path);
        }
      }
    }
    detail::libtorch::Branch& root = state->root();
    STELE_TRY(detail::load_object(snapshot, root.type, &root, detail::LoadMode::in_place, options));
    auto copied = detail::guarded([&]() -> Status {
      for (detail::libtorch::Entry& e : state->entries()) {
        if (e.copied()) {
          e.tensor.copy_(e.host);
        } else if (!e.tensor.is_inference()) {
          e.tensor.unsafeGetTensorImpl()->bump_version();  // as copy_() does: autograd detects the change
        }
      }
      return {};
    });
    if (!copied) return std::move(copied).error().partially_applied(true);
    return {};
  });
}

}  // namespace stele::inline v0::torch
