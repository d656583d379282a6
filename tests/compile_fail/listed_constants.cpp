#include <array>

#include <stele/record.hpp>

struct Settings {
  int stride = 1;
  float momentum = 0.9F;
};
struct Model {
  std::array<float, 2> weight{};
  Settings settings;
  STELE_MODULE(Model, weight, settings)
};

auto save(const Model& m) { return stele::snapshot_of(m); }
// EXPECT: nothing in this plain aggregate can be recorded
// EXPECT: STELE_MODULE
// EXPECT: Settings
