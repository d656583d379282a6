// Bytes that end with the statement, and cannot be moved from.
#include <stele/recorders/binary.hpp>

const stele::Bytes make();
auto open(const stele::BinaryRecorder<>& recorder) { return recorder.open(make()); }
// EXPECT: From.*const stele::.*Bytes&&|deleted function
