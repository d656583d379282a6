#include <stele/record.hpp>

#include <map>
#include <string>

struct Heads {
  std::multimap<std::string, stele::Tensor<float, 1>> heads;
  STELE_MODULE(Heads, heads)
};

auto save(const Heads& m) { return stele::snapshot_of(m); }
// EXPECT: field 'heads' of module 'Heads' cannot be recorded
