#include <stele/record.hpp>

struct Options {};

auto save(const Options& m) { return stele::snapshot_of(m); }
// EXPECT: nothing in this type can be recorded: it has no parameters
// EXPECT: Options
