// A map's keys become names: other keys than strings need cereal.
#include <stele/record.hpp>

#include <map>
#include <string>

struct Table {
  std::map<int, std::string> names;
  STELE_MODULE(Table, names)
};

auto save(const Table& t) { return stele::snapshot_of(t); }
// EXPECT: field 'names' of module 'Table' cannot be recorded
