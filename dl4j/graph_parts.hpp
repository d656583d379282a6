// The parts of graphs that archives and SameDiff files share: properties, and the fields that have the same names in
// both schemas.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "arrays_fb.hpp"
#include "stele/graph.hpp"

namespace stele::inline v0::detail::samediff {

/// Maximum nesting of graphs (loops, branches). Real models need a few levels; the verifier stops at 64 nested tables.
inline constexpr unsigned max_graph_depth = 16;

using Texts = flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>;

/// Writes a list of strings; omits an empty list.
inline flatbuffers::Offset<Texts> texts(flatbuffers::FlatBufferBuilder& to, const std::vector<std::string>& all) {
  return all.empty() ? flatbuffers::Offset<Texts>() : to.CreateVectorOfStrings(all);
}

/// Reads properties of operations.
Result<std::vector<GraphProperty>> read_properties(
    const flatbuffers::Vector<flatbuffers::Offset<stele_fb::Property>>* properties, Dialect hint);
flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<stele_fb::Property>>> write_properties(
    flatbuffers::FlatBufferBuilder& to, const std::vector<GraphProperty>& properties);

/// Returns an operation's number in a file. A custom operation without a number gets the hash of its name.
inline std::int64_t number_of(const GraphOperation& operation) {
  return operation.number == 0 && operation.family == OpFamily::custom ? operation_hash(operation.op_name)
                                                                       : operation.number;
}

/// Reads a variable except for its shape. Errors: malformed, unsupported.
template <class Fb>
Result<GraphVariable> read_variable_head(const Fb& from) {
  GraphVariable out;
  out.name = text_of(from.name());
  if (from.kind() < 0 || from.kind() > 4) {
    return malformed("the variable has an unknown kind").path(out.name).found(std::to_string(from.kind()));
  }
  out.kind = static_cast<VariableKind>(from.kind());
  auto dtype = dtype_of(from.dtype());
  if (!dtype) return std::move(dtype).error().path(out.name);
  out.dtype = *dtype;
  out.control_dependencies = texts_of(from.control_deps());
  out.control_dependency_of = texts_of(from.control_dep_for_op());
  out.control_dependencies_of_var = texts_of(from.control_deps_for_var());
  return out;
}

/// Reads an operation's dimensions, scalar, properties, output dtypes and control dependencies. Errors: malformed,
/// unsupported, limit.
template <class Fb>
Status read_operation_tail(const Fb& from, Dialect hint, GraphOperation& out) {
  out.dimensions = numbers_of<std::int32_t>(from.dimensions());
  if (from.scalar() != nullptr) {
    STELE_TRY_ASSIGN(out.scalar, read_array(*from.scalar(), hint));
  }
  STELE_TRY_ASSIGN(out.properties, read_properties(from.properties(), hint));
  for (flatbuffers::uoffset_t i = 0; from.output_types() != nullptr && i < from.output_types()->size(); ++i) {
    STELE_TRY_ASSIGN(const DType dtype, dtype_of(from.output_types()->Get(i)));
    out.output_dtypes.push_back(dtype);
  }
  out.control_dependencies = texts_of(from.control_deps());
  out.var_control_dependencies = texts_of(from.var_control_deps());
  out.control_dependency_of = texts_of(from.control_dep_for());
  return {};
}

}  // namespace stele::inline v0::detail::samediff
