// A weight as the parts of a scheme.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/threads.hpp"
#include "passes/composites/encoded_schemes.hpp"
#include "passes/composites/tables.hpp"
#include "passes/differences.hpp"
#include "stele/shape.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::composites {

enum class PartKind : std::uint8_t { codes, scales, zeros, global, constant };

/// A weight and its parts. A matrix; nf4 has rows of 64 elements, the last of which may be shorter.
struct Weight {
  const EncodedScheme* scheme = nullptr;
  Snapshot base;
  std::uint32_t leaf = 0;
  std::string path;
  std::uint64_t rows = 0, columns = 0, elements = 0;
  std::uint64_t group = 0, row_group = 1;
  DType scales = DType::none;
  DType floats_of_model = DType::none;  // f32, f16 or bf16
  TablePtr table;
  struct PartData {
    PartKind kind;
    std::string suffix;
    DType dtype;
    Shape shape;
    std::uint64_t unit = 0;  // bytes of a part that are encoded together: of row_group rows, or of a group of columns
    std::vector<std::byte> constant{};
    std::uint64_t bytes() const { return *shape.element_count() * element_size(dtype); }
  };
  std::vector<PartData> parts;
  mutable Mutex mutex;
  mutable float global = 0;  // 0: not computed yet; guarded by the mutex
  mutable SharedDifferences differences;

  LeafView floats() const { return base.leaf(leaf); }
  bool by_columns() const { return scheme->package == Package::gptq || scheme->package == Package::awq; }
  std::uint64_t units() const { return by_columns() ? columns / group : (rows + row_group - 1) / row_group; }
};

/// Lists the parts of a weight [N, K].
void add_parts(Weight& w, std::uint64_t n, std::uint64_t k);

/// Returns the leaf of a part. The weight must outlive it.
Provider provider_of(const Weight& w, std::size_t part) noexcept;

}  // namespace stele::inline v0::detail::composites
