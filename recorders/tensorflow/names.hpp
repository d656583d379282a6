// Names the tensors of a checkpoint, and finds the variables to which optimizers' slots belong.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "encodings/tensor_bundle/bundle.hpp"
#include "stele/recorders/tensorflow.hpp"

namespace stele::inline v0::detail::tensorflow {

struct Named {
  struct Parameter {
    const Entry* entry;
    std::string path;
  };
  /// An additional name of a parameter.
  struct Tie {
    std::string path;
    std::size_t parameter;
  };
  /// A tensor that an optimizer keeps for a parameter.
  struct Slot {
    const Entry* entry;
    std::size_t parameter;
    std::string kind;
  };
  std::vector<Parameter> parameters;
  std::vector<Tie> ties;
  std::vector<Slot> slots;
};

/// Names the entries of a bundle. Errors: malformed (the graph of objects), limit.
Result<Named> name_entries(const Bundle& bundle, TensorBundleNames names, IndexBudget& memory);

}  // namespace stele::inline v0::detail::tensorflow
