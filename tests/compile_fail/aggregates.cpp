// Plain aggregates that cannot be recorded.

// CASE aggregate_bit_field
#include <stele/record.hpp>

namespace aggregate_bit_field {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  int flags : 3;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace aggregate_bit_field
// EXPECT: stele_finds_a_bit_field_or_an_anonymous_union_list_the_fields_with_STELE_MODULE
// EXPECT: Linear

// CASE aggregate_complex
#include <stele/record.hpp>

#include <complex>
#include <optional>
#include <vector>

namespace aggregate_complex {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::optional<std::vector<std::complex<float>>> spectrum;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace aggregate_complex
// EXPECT-FIRST-GCC: "spectrum".*Linear
// EXPECT-FIRST-CLANG: spectrum.*Linear
// EXPECT-FIRST: complex numbers need a header: include stele/precision/complex.hpp
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE aggregate_eigen
#include <stele/record.hpp>

#include <Eigen/Core>

namespace aggregate_eigen {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  Eigen::MatrixXf matrix;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace aggregate_eigen
// EXPECT-FIRST-GCC: "matrix".*Linear
// EXPECT-FIRST-CLANG: matrix.*Linear
// EXPECT-FIRST: this looks like a type of Eigen: include stele/eigen.hpp
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE aggregate_field: A field of a plain aggregate that cannot be recorded: its name, its type and what to do come
// first.
#include <stele/record.hpp>

#include <functional>

namespace aggregate_field {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::function<void()> audit;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace aggregate_field
// EXPECT-FIRST-GCC: "audit".*function.*Linear
// EXPECT-FIRST-CLANG: audit.*function.*Linear
// EXPECT-FIRST: this field cannot be recorded: list the fields to record with STELE_MODULE
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE aggregate_list: The remedy is that of the type within.
#include <stele/record.hpp>

#include <list>
#include <vector>

namespace aggregate_list {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::vector<std::list<float>> history;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace aggregate_list
// EXPECT-FIRST-GCC: "history".*Linear
// EXPECT-FIRST-CLANG: history.*Linear
// EXPECT-FIRST: this kind of list cannot be recorded: use std::vector
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE aggregate_map_keys
#include <stele/record.hpp>

#include <map>
#include <vector>

namespace aggregate_map_keys {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::map<int, std::vector<float>> table;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace aggregate_map_keys
// EXPECT-FIRST-GCC: "table".*Linear
// EXPECT-FIRST-CLANG: table.*Linear
// EXPECT-FIRST: a map whose keys are not strings cannot be recorded, because the keys become names: use std::string
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE aggregate_multimap
#include <stele/record.hpp>

#include <map>
#include <string>
#include <vector>

namespace aggregate_multimap {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::multimap<std::string, std::vector<float>> table;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace aggregate_multimap
// EXPECT-FIRST-GCC: "table".*Linear
// EXPECT-FIRST-CLANG: table.*Linear
// EXPECT-FIRST: a map with several elements for a key cannot be recorded: use std::map of std::vector
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE aggregate_raw_pointer
#include <stele/record.hpp>

namespace aggregate_raw_pointer {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  void* audit;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace aggregate_raw_pointer
// EXPECT-FIRST-GCC: "audit".*Linear
// EXPECT-FIRST-CLANG: audit.*Linear
// EXPECT-FIRST: a raw pointer cannot be recorded: make it a std::unique_ptr, or a std::shared_ptr
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE aggregate_reference
#include <stele/record.hpp>

namespace aggregate_reference {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  float& shared;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace aggregate_reference
// EXPECT: the fields of this plain aggregate cannot be counted .more than 100, or a reference.: list those to record
// EXPECT: Linear

// CASE aggregate_two_fields: Both fields are named, with the remedy for the first.
#include <stele/record.hpp>

#include <list>
#include <vector>

namespace aggregate_two_fields {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::list<float> history;
  float* cache = nullptr;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace aggregate_two_fields
// EXPECT-FIRST: history.*Linear.*cache
// EXPECT-FIRST: this kind of list cannot be recorded: use std::vector
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE aggregate_volatile
#include <stele/record.hpp>

namespace aggregate_volatile {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  volatile float flag;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace aggregate_volatile
// EXPECT: a plain aggregate with a volatile field cannot be recorded: list the fields to record with STELE_MODULE
// EXPECT: Linear

// CASE aggregate_with_base
#include <stele/record.hpp>

namespace aggregate_with_base {
struct Base {
  stele::Param<stele::Tensor<float, 2>> weight;
};
struct Derived : Base {
  stele::Param<stele::Tensor<float, 2>> more;
};

auto save(const Derived& m) { return stele::snapshot_of(m); }
}  // namespace aggregate_with_base
// EXPECT: a plain aggregate with base classes cannot be recorded
// EXPECT: STELE_MODULE_DERIVED
// EXPECT: Derived

// CASE c_array_in_aggregate
#include <stele/record.hpp>

namespace c_array_in_aggregate {
struct Table {
  stele::Param<stele::Tensor<float, 2>> weight;
  float numbers[4];
};

auto save(const Table& m) { return stele::snapshot_of(m); }
}  // namespace c_array_in_aggregate
// EXPECT: a plain aggregate with a C array cannot be recorded: use std::array, or list the fields
// EXPECT: Table
// LINES-GCC: 12
// LINES-CLANG: 16

// CASE chars_in_aggregate: Characters are integers that no tensor has.
#include <stele/record.hpp>

#include <vector>

namespace chars_in_aggregate {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::vector<char> names;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace chars_in_aggregate
// EXPECT-FIRST-GCC: "names".*Linear
// EXPECT-FIRST-CLANG: names.*Linear
// EXPECT-FIRST: a sequence of integers in a plain aggregate may be weights or a constant: list the fields to record with STELE_MODULE, or skip
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE integers_in_aggregate: Weights, or a stride? Neither is guessed.
#include <stele/record.hpp>

#include <vector>

namespace integers_in_aggregate {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::vector<int> stride;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace integers_in_aggregate
// EXPECT-FIRST-GCC: "stride".*Linear
// EXPECT-FIRST-CLANG: stride.*Linear
// EXPECT-FIRST: a sequence of integers in a plain aggregate may be weights or a constant: list the fields to record with STELE_MODULE, or skip
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE nothing_recorded
#include <stele/record.hpp>

namespace nothing_recorded {
struct Options {};

auto save(const Options& m) { return stele::snapshot_of(m); }
}  // namespace nothing_recorded
// EXPECT: nothing in this type can be recorded: it has no parameters
// EXPECT: Options

// CASE not_a_module
#include <stele/record.hpp>

namespace not_a_module {
class Handle {
 public:
  Handle();

 private:
  int fd_;
};

auto save(const Handle& m) { return stele::snapshot_of(m); }
}  // namespace not_a_module
// EXPECT: this type cannot be recorded: give it a field list .STELE_MODULE or BOOST_DESCRIBE_STRUCT.
// EXPECT: Handle

// CASE string_view_field
#include <stele/record.hpp>

#include <string_view>

namespace string_view_field {
struct Net {
  stele::Tensor<float, 2> weight;
  std::string_view name;
};

auto save(const Net& m) { return stele::snapshot_of(m); }
}  // namespace string_view_field
// EXPECT-FIRST-GCC: "name".*Net
// EXPECT-FIRST-CLANG: name.*Net
// EXPECT-FIRST: a std::string_view cannot be loaded, because it does not own its text: use std::string
// LINES-GCC: 10
// LINES-CLANG: 15

// CASE variant_names_clash
#include <stele/record.hpp>

#include <array>
#include <variant>

namespace variant_names_clash {
template <class T>
struct Layer {
  std::array<T, 2> weight;
};
struct Model {
  std::variant<Layer<float>, Layer<double>> layer;
};

auto save(const Model& m) { return stele::snapshot_of(m); }
}  // namespace variant_names_clash
// EXPECT: two alternatives of a std::variant have the same name: name them with stele::attributes

// CASE vector_bool_in_aggregate
#include <stele/record.hpp>

#include <vector>

namespace vector_bool_in_aggregate {
struct Linear {
  stele::Param<stele::Tensor<float, 2>> weight;
  std::vector<bool> bits;
};

auto save(const Linear& m) { return stele::snapshot_of(m); }
}  // namespace vector_bool_in_aggregate
// EXPECT-FIRST-GCC: "bits".*Linear
// EXPECT-FIRST-CLANG: bits.*Linear
// EXPECT-FIRST: std::vector<bool> cannot be recorded, because it stores bits: use stele::Tensor
// LINES-GCC: 10
// LINES-CLANG: 15
