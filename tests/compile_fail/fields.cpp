// Listed fields that cannot be recorded, and attributes that do not fit.

// CASE attribute_unknown_field
#include <stele/record.hpp>

namespace attribute_unknown_field {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};
}  // namespace attribute_unknown_field
template <>
struct stele::attributes<attribute_unknown_field::Linear> {
  static constexpr stele::Attribute list[] = {stele::attr::rename("wieght", "kernel")};
};
namespace attribute_unknown_field {
auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace attribute_unknown_field
// EXPECT: an attribute of this module names a field that it does not have
// EXPECT: Linear

// CASE const_span_field
#include <stele/record.hpp>

#include <span>

namespace const_span_field {
struct Net {
  std::span<const float> weight;
  STELE_MODULE(Net, weight)
};

auto save(const Net& m) { return stele::snapshot_of(m); }
}  // namespace const_span_field
// EXPECT-FIRST-GCC: "weight".*Net
// EXPECT-FIRST-CLANG: weight.*Net
// EXPECT-FIRST: a std::span is recorded if its elements are numbers that a load can write
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE described_field: A field listed with Boost.Describe that cannot be recorded.
#include <stele/record.hpp>

#include <boost/describe/class.hpp>

namespace described_field {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  void* audit;
};
BOOST_DESCRIBE_STRUCT(Linear, (), (weight, audit))

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace described_field
// EXPECT-FIRST-GCC: "audit".*Linear
// EXPECT-FIRST-CLANG: Linear::audit
// EXPECT-FIRST: a raw pointer cannot be recorded

// CASE get_unknown_name
#include <stele/record.hpp>

namespace get_unknown_name {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
};

auto& f(stele::Record<Linear>& record) { return stele::get<"nope">(record); }
}  // namespace get_unknown_name
// EXPECT: this module records no field of that name
// EXPECT: Linear
// EXPECT: nope|110, 111, 112, 101

// CASE listed_bit_field
#include <stele/record.hpp>

namespace listed_bit_field {
class Linear {
 public:
  Linear();
  stele::Param<stele::Tensor<float, 2>> weight;
  int field : 3;
  STELE_MODULE(Linear, weight, field)
};
}  // namespace listed_bit_field
// EXPECT: a field of module 'Linear' does not exist, or is a reference or a bit-field
// EXPECT: make it an ordinary member, or leave it out of the list
// EXPECT: bit-field|reference

// CASE listed_empty_tuple
#include <stele/record.hpp>

#include <tuple>

namespace listed_empty_tuple {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::tuple<> nothing;
  STELE_MODULE(Linear, weight, nothing)
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace listed_empty_tuple
// EXPECT-FIRST-GCC: "nothing".*Linear
// EXPECT-FIRST-CLANG: nothing.*Linear
// EXPECT-FIRST: this field cannot be recorded
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE listed_expected: Like std::expected of C++23.
#include <stele/record.hpp>

#include <string>

namespace listed_expected {
template <class T, class E>
class expected {
 public:
  using value_type = T;
  using error_type = E;
  expected();
  bool has_value() const;
  T& value();
};
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  expected<float, std::string> scale;
  STELE_MODULE(Linear, weight, scale)
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace listed_expected
// EXPECT-FIRST-GCC: "scale".*Linear
// EXPECT-FIRST-CLANG: scale.*Linear
// EXPECT-FIRST: a std::expected cannot be recorded: use std::optional or std::variant
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE listed_multimap
#include <stele/record.hpp>

#include <map>
#include <string>

namespace listed_multimap {
struct Heads {
  std::multimap<std::string, stele::Tensor<float, 1>> heads;
  STELE_MODULE(Heads, heads)
};

auto save(const Heads& m) { return stele::snapshot_of(m); }
}  // namespace listed_multimap
// EXPECT-FIRST-GCC: "heads".*Heads
// EXPECT-FIRST-CLANG: heads.*Heads
// EXPECT-FIRST: a map with several elements for a key cannot be recorded: use std::map of std::vector
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE listed_reference
#include <stele/record.hpp>

namespace listed_reference {
class Linear {
 public:
  Linear();
  stele::Param<stele::Tensor<float, 2>> weight;
  float& field;
  STELE_MODULE(Linear, weight, field)
};
}  // namespace listed_reference
// EXPECT: a field of module 'Linear' does not exist, or is a reference or a bit-field
// EXPECT: make it an ordinary member, or leave it out of the list
// EXPECT: bit-field|reference

// CASE listed_volatile
#include <stele/record.hpp>

namespace listed_volatile {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  volatile float flag = 0;
  STELE_MODULE(Linear, weight, flag)
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace listed_volatile
// EXPECT-FIRST-GCC: "flag".*Linear
// EXPECT-FIRST-CLANG: flag.*Linear
// EXPECT-FIRST: a volatile field cannot be recorded: leave it out of the list
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE map_of_numbers: A map's keys become names: other keys than strings need cereal.
#include <stele/record.hpp>

#include <map>
#include <string>

namespace map_of_numbers {
struct Table {
  std::map<int, std::string> names;
  STELE_MODULE(Table, names)
};

auto save(const Table& t) { return stele::snapshot_of(t); }
}  // namespace map_of_numbers
// EXPECT-FIRST-GCC: "names".*Table
// EXPECT-FIRST-CLANG: names.*Table
// EXPECT-FIRST: a map whose keys are not strings cannot be recorded, because the keys become names
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE migrate_signature
#include <stele/record.hpp>

namespace migrate_signature {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};
}  // namespace migrate_signature
template <>
struct stele::attributes<migrate_signature::Linear> {
  static constexpr stele::Attribute list[] = {stele::attr::version(2)};
  static stele::Snapshot migrate(std::uint32_t, const stele::Snapshot& old) { return old; }
};
namespace migrate_signature {
auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace migrate_signature
// EXPECT: the migrate hook of this module's attributes has another signature than stele/module.hpp declares
// EXPECT: Linear

// CASE misspelt_field
#include <stele/record.hpp>

namespace misspelt_field {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, wieght)
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace misspelt_field
// EXPECT: wieght
// EXPECT: Linear

// CASE moved_unknown_field
#include <stele/record.hpp>

namespace moved_unknown_field {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  STELE_MODULE(Linear, weight)
};
}  // namespace moved_unknown_field
template <>
struct stele::attributes<moved_unknown_field::Linear> {
  static constexpr stele::Attribute list[] = {stele::attr::moved("weights.inner", "weight")};
};
namespace moved_unknown_field {
auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace moved_unknown_field
// EXPECT: an attribute of this module names a field that it does not have
// EXPECT: Linear

// CASE path_field
#include <stele/record.hpp>

#include <filesystem>

namespace path_field {
struct Net {
  stele::Tensor<float, 2> weight;
  std::filesystem::path origin;
  STELE_MODULE(Net, weight, origin)
};

auto save(const Net& m) { return stele::snapshot_of(m); }
}  // namespace path_field
// EXPECT-FIRST-GCC: "origin".*Net
// EXPECT-FIRST-CLANG: origin.*Net
// EXPECT-FIRST: a std::filesystem::path cannot be recorded: use std::string
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE rename_clash
#include <stele/record.hpp>

namespace rename_clash {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight, bias;
  static constexpr stele::Attribute stele_attributes[] = {stele::attr::rename("weight", "bias")};
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace rename_clash
// EXPECT: two recorded fields of this module have the same name
// EXPECT: Linear

// CASE too_many_fields
#include <stele/record.hpp>

namespace too_many_fields {
#define TEN(x) x##0, x##1, x##2, x##3, x##4, x##5, x##6, x##7, x##8, x##9
#define ALL                                                                                                       \
  TEN(a), TEN(b), TEN(c), TEN(d), TEN(e), TEN(f), TEN(g), TEN(h), TEN(i), TEN(j), TEN(k), TEN(l), TEN(m), TEN(n), \
      TEN(o), p0, p1, p2, p3, p4, p5, p6
struct Wide {
  float ALL;
  STELE_MODULE(Wide, ALL)
};

auto save(const Wide& m) { return stele::snapshot_of(m); }
}  // namespace too_many_fields
// EXPECT: stele_more_than_156_fields_are_listed

// CASE unlisted_type_in_list: A listed field of a type that cannot be recorded: module, field and remedy are named.
#include <stele/record.hpp>

namespace unlisted_type_in_list {
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
}  // namespace unlisted_type_in_list
// EXPECT-FIRST-GCC: "audit".*Linear
// EXPECT-FIRST-CLANG: audit.*Linear
// EXPECT-FIRST: a raw pointer cannot be recorded: make it a std::unique_ptr
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE vector_bool: std::vector<bool> stores bits, not bools.
#include <stele/record.hpp>

#include <vector>

namespace vector_bool {
struct Mask {
  std::vector<bool> bits;
  STELE_MODULE(Mask, bits)
};

auto save(const Mask& m) { return stele::snapshot_of(m); }
}  // namespace vector_bool
// EXPECT-FIRST-GCC: "bits".*Mask
// EXPECT-FIRST-CLANG: bits.*Mask
// EXPECT-FIRST: std::vector<bool> cannot be recorded, because it stores bits: use stele::Tensor
// LINES-GCC: 10
// LINES-CLANG: 15
