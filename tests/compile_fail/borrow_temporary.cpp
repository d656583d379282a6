#include <stele/source.hpp>

#include <vector>

std::vector<std::byte> make();
auto open() { return stele::borrow_bytes(make()); }
// EXPECT: borrow_bytes
// EXPECT: deleted function
