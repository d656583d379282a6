// Parsed declarations of mappings.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/rules/expression.hpp"

namespace stele::inline v0::detail::ir {

/// A rule in DL4J's syntax.
struct Rule {
  enum class Kind : std::uint8_t {
    ndarray_mapping,
    multi_input_index,
    value_mapping,
    constant,
    list_element,
    list,
    list_to_tensor,
    tensor_element,
    tensor_to_ints,
    tensor_to_number,
    size_at,
    string_equals,
    string_not_equals,
    string_contains,
    string_index,
    map_string_index,
    number_to_boolean,
    dtype_to_int,
    conditional_index,
    conditional_tensor_element,
    size_threshold,
    flatten_dims,
  };
  Kind kind = Kind::value_mapping;
  std::vector<std::pair<std::string, std::string>> names{};  // pairs of DL4J's name and the framework's name, sorted
  /// transformerArgs by key: lists of names and values.
  std::map<std::string, std::vector<std::pair<std::string, ExpressionValue>>> arguments{};
};

struct Declaration {
  struct Port {
    std::string name;
    bool optional = false, rest = false;  // rest: takes any number of tensors, as a list
  };
  struct Named {
    std::string name;
    std::optional<Expression> value{};  // empty: required
  };
  std::string domain, op;
  std::int64_t since = 0, until = 0;
  std::string op_name;  // DL4J's operator; empty if the declaration has steps
  std::vector<Rule> rules;
  std::map<std::int64_t, std::int64_t> index_overrides;
  std::vector<Port> inputs, outputs;
  std::vector<Named> attributes, defines;
  std::vector<std::pair<std::string, Expression>> requirements;  // each with its text
  std::vector<Step> steps;
  std::vector<Named> shapes, dtypes, elements;  // rules for the outputs
};

}  // namespace stele::inline v0::detail::ir
