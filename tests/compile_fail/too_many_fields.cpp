#include <stele/record.hpp>

#define TEN(x) x##0, x##1, x##2, x##3, x##4, x##5, x##6, x##7, x##8, x##9
#define ALL                                                                                                       \
  TEN(a), TEN(b), TEN(c), TEN(d), TEN(e), TEN(f), TEN(g), TEN(h), TEN(i), TEN(j), TEN(k), TEN(l), TEN(m), TEN(n), \
      TEN(o), p0, p1, p2, p3, p4, p5, p6
struct Wide {
  float ALL;
  STELE_MODULE(Wide, ALL)
};

auto save(const Wide& m) { return stele::snapshot_of(m); }
// EXPECT: stele_more_than_156_fields_are_listed
