// Temporaries that end before what refers to them.

// CASE borrow_temporary
#include <stele/record.hpp>

#include <stele/source.hpp>

#include <vector>

namespace borrow_temporary {
std::vector<std::byte> make();
auto open() { return stele::borrow_bytes(make()); }
}  // namespace borrow_temporary
// EXPECT: borrow_bytes
// EXPECT: deleted function

// CASE nodes_of_temporary: The nodes are in the Snapshot, which ends with the statement.
#include <stele/record.hpp>

#include <stele/snapshot.hpp>

namespace nodes_of_temporary {
stele::Snapshot open();
auto nodes() { return open().nodes(); }
}  // namespace nodes_of_temporary
// EXPECT: nodes.*deleted|deleted.*nodes

// CASE open_const_temporary: Bytes that end with the statement, and cannot be moved from.
#include <stele/record.hpp>

#include <stele/recorders/binary.hpp>

namespace open_const_temporary {
const stele::Bytes make();
auto open(const stele::BinaryRecorder<>& recorder) { return recorder.open(make()); }
}  // namespace open_const_temporary
// EXPECT: From.*const stele::.*Bytes&&|deleted function

// CASE optimizer_state_of_temporary: A kind of state borrows its module, so that must live on.
#include <stele/record.hpp>

#include <stele/optimizer_state.hpp>

namespace optimizer_state_of_temporary {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};

auto f(stele::OptimizerState& state) { return state.set("M", Linear{}); }
}  // namespace optimizer_state_of_temporary
// EXPECT: set.*deleted|deleted.*set
// EXPECT: deleted function|deleted member function

// CASE record_of_temporary: A record of a temporary takes its tensors, which a const one does not allow.
#include <stele/record.hpp>

namespace record_of_temporary {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};

const Linear make();
auto f() { return stele::record_of(make()); }
auto g() { return stele::snapshot_of(Linear{}); }
}  // namespace record_of_temporary
// EXPECT: no matching function for call to .record_of|use of deleted function
// EXPECT: is_lvalue_reference_v
// EXPECT: deleted

// CASE tensor_braces: Braces could be the rows of a matrix, or a shape and its elements.
#include <stele/record.hpp>

#include <stele/tensor.hpp>

namespace tensor_braces {
stele::Tensor<float, 2> rows{{1, 2}, {3, 4}};
}  // namespace tensor_braces
// EXPECT: deleted
// EXPECT: nested_braces
// LINES-GCC: 10

// CASE value_of_temporary: The value is in the Snapshot, which ends with the statement.
#include <stele/record.hpp>

#include <stele/snapshot.hpp>

namespace value_of_temporary {
stele::Snapshot open();
const stele::Value* value(const stele::Node& node) { return &open().value(node); }
}  // namespace value_of_temporary
// EXPECT: value.*deleted|deleted.*value
