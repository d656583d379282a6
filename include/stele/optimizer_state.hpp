// OptimizerState: the arrays that an optimizer stores for each parameter of a module.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/record.hpp"

namespace stele::inline v0 {

/// The arrays that an optimizer stores for each parameter, by kind: M and V of Adam, … Each kind is a Snapshot whose
/// tensors have the paths and shapes of the parameters, so a moment that is an object of the model's class can be added
/// and loaded as a whole. Lazy and borrowed, like Snapshots.
class STELE_EXPORT OptimizerState {
 public:
  /// Adds a kind, or replaces the kind with that key. Borrows `module` and omits its non-tensor fields. Errors: cycle.
  template <class M>
  Status set(std::string key, const M& module) {
    STELE_TRY_ASSIGN(Snapshot arrays, snapshot_of(module));
    set_snapshot(std::move(key), std::move(arrays));
    return {};
  }
  template <class M>
  Status set(std::string key, const M&& module) = delete;  // deleted for temporaries, which end with the call
  void set_snapshot(std::string key, Snapshot arrays);
  bool empty() const noexcept { return kinds_.empty(); }
  /// Returns the kinds in the order in which they were set.
  const std::vector<std::pair<std::string, Snapshot>>& kinds() const noexcept { return kinds_; }
  /// Returns the arrays of a kind; nullptr if the kind does not exist.
  const Snapshot* find(std::string_view key) const noexcept;
  /// Loads a kind into an existing module; non-tensor fields are unchanged. Errors: not_found (the kind does not
  /// exist), those of any load.
  template <class M>
  Status load_into(std::string_view key, M& module, LoadOptions options = default_load_options()) const {
    detail::check_writable<M>();
    return detail::guarded([&]() -> Status {
      STELE_TRY_ASSIGN(const Snapshot live, snapshot_of(std::as_const(module)));
      STELE_TRY_ASSIGN(const Snapshot* arrays, prepare(key, live, options));
      return detail::load_object(*arrays, *detail::module_info<M>(), &module, detail::LoadMode::in_place, options);
    });
  }

  /// Checks load_into() without changing the module.
  template <class M>
  Result<Report> dry_run(std::string_view key, const M& module, LoadOptions options = default_load_options()) const {
    STELE_TRY_ASSIGN(const Snapshot live, snapshot_of(module));
    STELE_TRY_ASSIGN(const Snapshot* arrays, prepare(key, live, options));
    return v0::dry_run(module, *arrays, options);
  }

 private:
  Result<const Snapshot*> prepare(std::string_view key, const Snapshot& live, LoadOptions& options) const;
  std::vector<std::pair<std::string, Snapshot>> kinds_;
};

}  // namespace stele::inline v0
