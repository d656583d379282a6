// A map's keys become names: other keys than strings need cereal.
#include <stele/record.hpp>

#include <map>
#include <string>

struct Table {
  std::map<int, std::string> names;
  STELE_MODULE(Table, names)
};

auto save(const Table& t) { return stele::snapshot_of(t); }
// EXPECT-FIRST-GCC: "names".*Table
// EXPECT-FIRST-CLANG: names.*Table
// EXPECT-FIRST: a map whose keys are not strings cannot be recorded, because the keys become names
// LINES-GCC: 10
// LINES-CLANG: 15
