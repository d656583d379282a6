// The nodes are in the Snapshot, which ends with the statement.
#include <stele/snapshot.hpp>

stele::Snapshot open();
auto nodes() { return open().nodes(); }
// EXPECT: nodes.*deleted|deleted.*nodes
