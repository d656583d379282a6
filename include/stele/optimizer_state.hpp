// OptimizerState: what an optimizer keeps for each parameter of a module.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/record.hpp"

namespace stele {
inline namespace v0 {

/// The arrays that an optimizer keeps for each parameter, by kind: M and V of Adam, … Each kind is a Snapshot whose
/// tensors have the paths and shapes of the parameters, so a moment that is an object of the model's own class is added
/// and loaded as a whole. Lazy and borrowed as Snapshots are.
class STELE_EXPORT OptimizerState {
 public:
  /// `module` is borrowed; what in it is no tensor is left out. Replaces a kind of the same key. Errors: cycle.
  template <class M>
  Status set(std::string key, const M& module) {
    STELE_TRY_ASSIGN(Snapshot arrays, snapshot_of(module));
    set_snapshot(std::move(key), std::move(arrays));
    return {};
  }
  template <class M>
  Status set(std::string key, const M&& module) = delete;  // a temporary, which would be gone
  void set_snapshot(std::string key, Snapshot arrays);
  bool empty() const noexcept { return kinds_.empty(); }
  /// In the order in which they were set.
  const std::vector<std::pair<std::string, Snapshot>>& kinds() const noexcept { return kinds_; }
  /// nullptr where there is none.
  const Snapshot* find(std::string_view key) const noexcept;
  /// Into a live module; what in it is no tensor stays. Errors: not_found (no such kind), as any load.
  template <class M>
  Result<Report> load_into(std::string_view key, M& module, LoadOptions options = default_load_options()) const {
    return detail::guarded([&]() -> Result<Report> {
      detail::check_writable<M>();
      STELE_TRY_ASSIGN(const Snapshot live, snapshot_of(std::as_const(module)));
      STELE_TRY_ASSIGN(const Snapshot* arrays, prepare(key, live, options));
      Report report;
      STELE_TRY(detail::load_object(*arrays, *detail::module_info<M>(), &module, detail::LoadMode::in_place, options,
                                    report));
      return report;
    });
  }

 private:
  Result<const Snapshot*> prepare(std::string_view key, const Snapshot& live, LoadOptions& options) const;
  std::vector<std::pair<std::string, Snapshot>> kinds_;
};

}  // namespace v0
}  // namespace stele
