// Loads and records of classes that do not allow them.

// CASE const_in_place
#include <stele/record.hpp>

namespace const_in_place {
struct Linear {
  const stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};

auto load(Linear& m, const stele::Snapshot& s) { return stele::load_into(m, s); }
}  // namespace const_in_place
// EXPECT: a const member cannot be loaded in place: make new objects with a static
// EXPECT: Linear

// CASE const_without_hook: A const member is recorded; loading it needs a hook.
#include <stele/record.hpp>

namespace const_without_hook {
struct Linear {
  const stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};

auto load(const stele::Snapshot& s) { return stele::load<Linear>(s); }
}  // namespace const_without_hook
// EXPECT: this module needs a default constructor and no const members, or a static
// EXPECT: from_record.stele::Record<M>&&
// EXPECT: Linear

// CASE hook_arguments
#include <stele/record.hpp>

namespace hook_arguments {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};

auto f(stele::Record<Linear>&& record) { return stele::from_record(std::move(record), 3); }
}  // namespace hook_arguments
// EXPECT: this module has no from_record hook that takes these arguments
// EXPECT: Linear

// CASE immovable_load: A class that cannot be moved is made by the caller.
#include <stele/record.hpp>

#include <mutex>

namespace immovable_load {
struct Net {
  std::mutex busy;
  stele::Tensor<float, 2> weight;
  STELE_MODULE(Net, weight)
};

auto load(const stele::Snapshot& s) { return stele::load<Net>(s); }
}  // namespace immovable_load
// EXPECT-FIRST: this class cannot be moved .it has a mutex, an atomic, or a deleted move., so load cannot return it
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE immovable_file: The same, from a file.
#include <stele/recorders/any.hpp>

#include <atomic>

namespace immovable_file {
struct Net {
  std::atomic<int> steps;
  stele::Tensor<float, 2> weight;
  STELE_MODULE(Net, weight)
};

auto load() { return stele::load<Net>("weights.stele"); }
}  // namespace immovable_file
// EXPECT-FIRST: this class cannot be moved .it has a mutex, an atomic, or a deleted move., so load cannot return it
// LINES-GCC: 12
// LINES-CLANG: 16

// CASE no_default_constructor
#include <stele/record.hpp>

namespace no_default_constructor {
struct Linear {
  explicit Linear(int);
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};

auto load(const stele::Snapshot& s) { return stele::load<Linear>(s); }
}  // namespace no_default_constructor
// EXPECT: this module needs a default constructor and no const members, or a static
// EXPECT: Linear

// CASE record_of_bad_field: The same by way of a typed record.
#include <stele/record.hpp>

#include <functional>

namespace record_of_bad_field {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::function<void()> callback;
  STELE_MODULE(Linear, weight, callback)
};

auto load(const stele::Snapshot& s) { return stele::load<Linear>(s); }
}  // namespace record_of_bad_field
// EXPECT-FIRST-GCC: "callback".*Linear
// EXPECT-FIRST-CLANG: callback.*Linear
// EXPECT-FIRST: this field cannot be recorded

// CASE record_of_tensor: A tensor alone is loaded, but has no record.
#include <stele/record.hpp>

#include <stele/recorders/binary.hpp>

#include <vector>

namespace record_of_tensor {
auto load(const stele::BinaryRecorder<>& recorder) {
  return recorder.load<stele::Record<std::vector<float>>>("weights.stele");
}
}  // namespace record_of_tensor
// EXPECT: only a module has a Record: a tensor, value or container alone is loaded with load<T>
