// Reads graphs and their nested graphs from FlatBuffers.
#include <algorithm>
#include <unordered_map>

#include "dl4j/graph_parts.hpp"
#include "dl4j/shared.hpp"
#include "model.hpp"

namespace stele::inline v0::detail::samediff {
namespace {

// Memory that a graph takes, by the ids of fields in samediff.fbs. The bytes of variables stay in the file.
using Field = TableForm::Field;
constexpr Field lazy_fields[] = {{0, FieldKind::numbers}, {6, FieldKind::texts}};
constexpr TableForm lazy_form{64, lazy_fields};
constexpr Field variable_fields[] = {{1, FieldKind::text},  {3, FieldKind::numbers}, {4, FieldKind::table, &lazy_form},
                                     {7, FieldKind::texts}, {8, FieldKind::texts},   {9, FieldKind::texts}};
constexpr TableForm variable_form{sizeof(GraphVariable) + 64, variable_fields};
constexpr TableForm pair_form{64, {}};
constexpr Field node_fields[] = {{1, FieldKind::text},
                                 {4, FieldKind::tables, &property_form},
                                 {6, FieldKind::tables, &pair_form},
                                 {8, FieldKind::numbers},
                                 {9, FieldKind::numbers},
                                 {10, FieldKind::numbers},
                                 {11, FieldKind::numbers},
                                 {15, FieldKind::texts},
                                 {16, FieldKind::text},
                                 {17, FieldKind::numbers},
                                 {18, FieldKind::table, &array_form},
                                 {19, FieldKind::texts},
                                 {20, FieldKind::texts},
                                 {21, FieldKind::texts},
                                 {22, FieldKind::numbers},
                                 {23, FieldKind::texts}};
constexpr TableForm node_form{sizeof(GraphOperation), node_fields};
constexpr Field sub_fields[] = {{0, FieldKind::text}, {1, FieldKind::bytes}};
constexpr TableForm sub_form{sizeof(std::pair<std::string, Graph>), sub_fields};
constexpr Field graph_fields[] = {{1, FieldKind::tables, &variable_form},
                                  {2, FieldKind::tables, &node_form},
                                  {3, FieldKind::tables, &pair_form},
                                  {6, FieldKind::texts},
                                  {7, FieldKind::text},
                                  {11, FieldKind::tables, &sub_form}};
constexpr TableForm graph_form{sizeof(Graph), graph_fields};

std::uint64_t key(const stele_fb::IntPair* pair) {
  return pair == nullptr ? ~std::uint64_t{0}
                         : static_cast<std::uint64_t>(static_cast<std::uint32_t>(pair->first())) << 32 |
                               static_cast<std::uint32_t>(pair->second());
}

/// Reads a variable. An empty list is the shape of a scalar if `scalars` is set; else it counts as missing.
Result<GraphVariable> read_variable(const stele_fb::Variable& from, Dialect hint, bool scalars) {
  STELE_TRY_ASSIGN(GraphVariable out, read_variable_head(from));
  if (from.shape() != nullptr && (scalars || from.shape()->size() != 0)) {
    out.shape = numbers_of<std::int64_t>(from.shape());
  } else if (from.array() != nullptr && out.kind != VariableKind::placeholder) {
    auto facts = facts_of(*from.array(), hint, out.dtype);
    if (!facts) return std::move(facts).error().path(out.name);
    out.shape.emplace();
    if (!facts->scalar) out.shape->assign(facts->shape.begin(), facts->shape.end());
  }
  return out;
}

/// Reads all of an operation except its name. `name_of` returns the name of a variable.
Status read_node(const stele_fb::Node& from, Dialect hint, const auto& name_of, GraphOperation& out) {
  out.op_name = text_of(from.op_name());
  out.family = static_cast<OpFamily>(from.op_type());
  out.number = from.op_number();
  if (out.family == OpFamily::custom && out.op_name.empty()) {
    return Error(
        Errc::unsupported,
        "a custom operation has no name: DL4J before 1.0.0-beta4 wrote the file, and later versions do not read it "
        "either");
  }
  if (from.input_paired() != nullptr) {
    for (const auto* pair : *from.input_paired()) {
      STELE_TRY_ASSIGN(std::string input, name_of(pair));
      out.inputs.push_back(std::move(input));
    }
  }
  out.outputs = texts_of(from.output_names());
  for (const std::int64_t i : numbers_of<std::int64_t>(from.i_args())) out.ints.emplace_back("", i);
  for (const double d : numbers_of<double>(from.t_args())) out.doubles.emplace_back("", d);
  for (const auto b : numbers_of<std::uint8_t>(from.b_args())) out.bools.emplace_back("", b != 0);
  for (std::string& s : texts_of(from.s_args())) out.strings.emplace_back("", std::move(s));
  for (flatbuffers::uoffset_t i = 0; from.d_args() != nullptr && i < from.d_args()->size(); ++i) {
    STELE_TRY_ASSIGN(const DType dtype, dtype_of(from.d_args()->Get(i)));
    out.dtypes.emplace_back("", dtype);
  }
  return read_operation_tail(from, hint, out);
}

Result<Graph> read_sub_graph(const stele_fb::SubGraph& sub, Dialect hint, unsigned depth) {
  // A nested buffer may have any alignment, so it is copied.
  const auto n = sub.bytes() != nullptr ? sub.bytes()->size() : 0;
  Bytes copy(n);
  if (n != 0) std::copy_n(reinterpret_cast<const std::byte*>(sub.bytes()->data()), n, copy.data());
  if (!graph_fits(copy.span(), 16 * std::uint64_t{n} + (std::uint64_t{1} << 16))) {
    return Error(Errc::limit, "the nested graph takes more memory than its size allows").path(text_of(sub.name()));
  }
  auto verifier = verifier_of(copy.span());
  if (!verifier.VerifyBuffer<stele_fb::SameDiffGraph>(nullptr)) {
    return malformed("the nested graph is not a valid FlatBuffer").path(text_of(sub.name()));
  }
  return read_graph(*flatbuffers::GetRoot<stele_fb::SameDiffGraph>(copy.data()), hint, depth);
}

}  // namespace

bool graph_fits(std::span<const std::byte> buffer, std::uint64_t memory) {
  return SharedCount(buffer, memory).root(graph_form);
}

template <class Fb>
Result<Graph> read_graph(const Fb& from, Dialect hint, unsigned depth) {
  if (depth > max_graph_depth) return Error(Errc::limit, "graphs are nested too deep").expected("at most 16 levels");
  Graph graph;
  std::unordered_map<std::uint64_t, std::size_t> by_id;
  // In .fb files, DL4J writes an empty list for a variable without a shape, and no outputs of the graph. stele never
  // writes such a list, so in a file with outputs an empty list is a scalar's shape.
  const bool scalars = hint == Dialect::b || (from.outputs() != nullptr && from.outputs()->size() != 0);
  if (from.variables() != nullptr) {
    graph.variables.reserve(from.variables()->size());
    for (const auto* v : *from.variables()) {
      STELE_TRY_ASSIGN(GraphVariable out, read_variable(*v, hint, scalars));
      if (v->id() != nullptr && !by_id.emplace(key(v->id()), graph.variables.size()).second) {
        return Error(Errc::duplicate, "two variables have the same id").path(out.name);
      }
      graph.variables.push_back(std::move(out));
    }
  }
  const auto name_of = [&](const stele_fb::IntPair* pair) -> Result<std::string> {
    const auto found = by_id.find(key(pair));
    if (found != by_id.end()) return graph.variables[found->second].name;
    return malformed("an input or output refers to an unknown variable");
  };
  if (from.nodes() != nullptr) {
    graph.operations.reserve(from.nodes()->size());
    for (const auto* n : *from.nodes()) {
      GraphOperation& out = graph.operations.emplace_back();
      out.name = text_of(n->name());
      if (auto r = read_node(*n, hint, name_of, out); !r) return std::move(r).error().path(out.name);
    }
  }
  graph.loss_variables = texts_of(from.loss_variables());
  if (from.outputs() != nullptr) {
    for (const auto* pair : *from.outputs()) {
      auto output = name_of(pair);
      if (!output) return std::move(output).error().path("outputs");
      graph.outputs.push_back(*std::move(output));
    }
  }
  if constexpr (std::is_same_v<Fb, stele_fb::SameDiffGraph>) {
    if (from.sub_graphs() != nullptr) {
      for (const auto* sub : *from.sub_graphs()) {
        STELE_TRY_ASSIGN(Graph inner, read_sub_graph(*sub, hint, depth + 1));
        graph.sub_graphs.emplace_back(text_of(sub->name()), std::move(inner));
      }
    }
  }
  return graph;
}

template Result<Graph> read_graph(const stele_fb::PlainGraph&, Dialect, unsigned);
template Result<Graph> read_graph(const stele_fb::SameDiffGraph&, Dialect, unsigned);

}  // namespace stele::inline v0::detail::samediff
