#include <stele/record.hpp>

class Handle {
 public:
  Handle();

 private:
  int fd_;
};

auto save(const Handle& m) { return stele::snapshot_of(m); }
// EXPECT: this type cannot be recorded: give it a field list .STELE_MODULE or BOOST_DESCRIBE_STRUCT.
// EXPECT: Handle
