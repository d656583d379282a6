// A small module, and managers that save it.
#pragma once

#include <stele/checkpoints/manager.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <fstream>
#include <string>
#include <vector>

#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace stele_test::steps {

using namespace stele;
using stele_test::code_of;
using stele_test::TempDir;
using stele_test::why;

struct Net {
  Tensor<float, 2> weight;
  std::vector<float> bias;
};
inline Net net(float value, std::size_t size = 3) {
  return {Tensor<float, 2>::filled({size, 2}, value), std::vector<float>(size, value + 0.5F)};
}

template <class R = BinaryRecorder<>>
CheckpointManager manager_in(const std::string& folder, ManagerOptions options = {}) {
  options.parts.file.durability = Durability::process;
  auto opened = CheckpointManager::open(folder, R(), std::move(options));
  REQUIRE_MESSAGE(opened, why(opened));
  return *std::move(opened);
}

inline SavedStep save(CheckpointManager& manager, std::int64_t step, float value, StepValues values = {}) {
  const Net model = net(value);
  const Net m = net(value * 2);
  auto saved = manager.save(step, checkpoint_of(model, StateKind("M", m)).value(), values);
  REQUIRE_MESSAGE(saved, why(saved));
  return *std::move(saved);
}

inline std::vector<std::int64_t> numbers(const CheckpointManager& manager) {
  std::vector<std::int64_t> found;
  const std::vector<StepInfo> steps = manager.steps().value();
  for (const StepInfo& info : steps) found.push_back(info.step);
  return found;
}

inline void flip(const std::string& file, std::size_t at) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(at));
  const char c = static_cast<char>(stream.get());
  stream.seekp(static_cast<std::streamoff>(at));
  stream.put(static_cast<char>(c ^ 4));
}

}  // namespace stele_test::steps
