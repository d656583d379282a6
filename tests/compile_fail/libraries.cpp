// Types of other libraries, with their headers.

// CASE cereal_deferred: cereal::defer would leave data out of the value.
#include <stele/record.hpp>

#include <stele/cereal.hpp>

namespace cereal_deferred {
class Late {
 public:
  Late() = default;
  int n = 0;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(cereal::defer(n));
  }
};
struct Model {
  Late late;
  STELE_MODULE(Model, late)
};

auto save(const Model& m) { return stele::snapshot_of(m); }
}  // namespace cereal_deferred
// EXPECT: stele: cereal::defer cannot be part of a value

// CASE const_mdspan
#include <stele/record.hpp>

#include <stele/mdspan.hpp>

#include "../support/mdspan.hpp"

namespace const_mdspan {
struct Model {
  md::mdspan<const float, md::extents<int, 2, 3>> weight;
};

auto save(const Model& m) { return stele::snapshot_of(m); }
}  // namespace const_mdspan
// EXPECT: a module's mdspan must be of mutable elements
