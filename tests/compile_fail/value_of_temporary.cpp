// The value is in the Snapshot, which ends with the statement.
#include <stele/snapshot.hpp>

stele::Snapshot open();
const stele::Value* value(const stele::Node& node) { return &open().value(node); }
// EXPECT: value.*deleted|deleted.*value
