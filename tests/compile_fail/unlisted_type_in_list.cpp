// A listed field of a type that cannot be recorded: module, field and remedy are named.
#include <stele/record.hpp>

struct DbConnection {
  explicit DbConnection(int);
  virtual ~DbConnection();
};

class Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  DbConnection* audit = nullptr;
  STELE_MODULE(Linear, weight, audit)
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
// EXPECT: field 'audit' of module 'Linear' cannot be recorded
// EXPECT: leave it out of the list, or give its type a field list
