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
// EXPECT-FIRST-GCC: "audit".*Linear
// EXPECT-FIRST-CLANG: audit.*Linear
// EXPECT-FIRST: a raw pointer cannot be recorded: make it a std::unique_ptr
// LINES-GCC: 10
// LINES-CLANG: 15
