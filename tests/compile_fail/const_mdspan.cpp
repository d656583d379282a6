#include <stele/mdspan.hpp>
#include <stele/record.hpp>

#include "../support/mdspan.hpp"

struct Model {
  md::mdspan<const float, md::extents<int, 2, 3>> weight;
};

auto save(const Model& m) { return stele::snapshot_of(m); }
// EXPECT: a module's mdspan must be of mutable elements
