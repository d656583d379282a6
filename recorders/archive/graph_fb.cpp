// Reads and writes graph.fb and trainingConfig.fb.
#include "graph_fb.hpp"

#include "archive_generated.h"
#include "dl4j/graph_parts.hpp"
#include "dl4j/shared.hpp"

namespace stele::inline v0::detail::archive {
namespace {

using namespace detail::samediff;
using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

using Field = TableForm::Field;
constexpr Field variable_fields[] = {
    {0, FieldKind::text}, {2, FieldKind::numbers}, {4, FieldKind::texts}, {5, FieldKind::texts}, {6, FieldKind::texts}};
constexpr TableForm variable_form{sizeof(GraphVariable), variable_fields};
constexpr Field operation_fields[] = {{0, FieldKind::text},
                                      {1, FieldKind::text},
                                      {4, FieldKind::texts},
                                      {5, FieldKind::texts},
                                      {6, FieldKind::texts},
                                      {7, FieldKind::numbers},
                                      {8, FieldKind::texts},
                                      {9, FieldKind::numbers},
                                      {10, FieldKind::texts},
                                      {11, FieldKind::numbers},
                                      {12, FieldKind::texts},
                                      {13, FieldKind::numbers},
                                      {14, FieldKind::numbers},
                                      {15, FieldKind::table, &array_form},
                                      {16, FieldKind::tables, &property_form},
                                      {17, FieldKind::numbers},
                                      {18, FieldKind::texts},
                                      {19, FieldKind::texts},
                                      {20, FieldKind::texts},
                                      {21, FieldKind::texts},
                                      {22, FieldKind::texts}};
constexpr TableForm operation_form{sizeof(GraphOperation), operation_fields};
extern const TableForm graph_form;
constexpr Field named_fields[] = {{0, FieldKind::text}, {1, FieldKind::table, &graph_form}};
constexpr TableForm named_form{sizeof(std::pair<std::string, Graph>), named_fields};
constexpr Field graph_fields[] = {{0, FieldKind::tables, &variable_form},
                                  {1, FieldKind::tables, &operation_form},
                                  {2, FieldKind::texts},
                                  {3, FieldKind::texts},
                                  {4, FieldKind::tables, &named_form}};
constexpr TableForm graph_form{sizeof(Graph), graph_fields};
constexpr Field training_fields[] = {{0, FieldKind::text}, {1, FieldKind::texts}, {2, FieldKind::text}};
constexpr TableForm training_form{sizeof(Training), training_fields};

Error too_much(const char* what) {
  return Error(Errc::limit, std::string(what) + " takes more memory than a file of this size may use");
}

template <class T, class From>
Status read_arguments(const Texts* names, const flatbuffers::Vector<From>* numbers, GraphArguments<T>& out,
                      const auto& convert) {
  const auto n = numbers != nullptr ? numbers->size() : 0;
  if (names != nullptr && names->size() != n && names->size() != 0) {
    return Error(Errc::malformed, "the number of arguments differs from the number of their names");
  }
  out.reserve(n);
  for (flatbuffers::uoffset_t i = 0; i < n; ++i) {
    std::string name = names != nullptr && names->size() != 0 ? names->Get(i)->str() : std::string();
    STELE_TRY_ASSIGN(T value, convert(number_at(*numbers, i)));
    out.emplace_back(std::move(name), std::move(value));
  }
  return {};
}

Result<GraphVariable> read(const stele_fb::GraphVariable& from) {
  STELE_TRY_ASSIGN(GraphVariable out, read_variable_head(from));
  if (from.shape() != nullptr) out.shape = numbers_of<std::int64_t>(from.shape());
  return out;
}

Status read(const stele_fb::Operation& from, GraphOperation& out) {
  out.op_name = text_of(from.op_name());
  out.family = static_cast<OpFamily>(from.legacy_type());
  out.number = from.op_number();
  out.inputs = texts_of(from.inputs());
  out.outputs = texts_of(from.outputs());
  const auto same = [](auto number) { return Result<decltype(number)>(number); };
  const auto to_bool = [](std::uint8_t b) { return Result<bool>(b != 0); };
  const auto to_dtype = [](stele_fb::Type t) { return dtype_of(t); };
  const auto to_text = [](const flatbuffers::String* t) { return Result<std::string>(t->str()); };
  STELE_TRY(read_arguments(from.i_arg_names(), from.i_args(), out.ints, same));
  STELE_TRY(read_arguments(from.t_arg_names(), from.t_args(), out.doubles, same));
  STELE_TRY(read_arguments(from.b_arg_names(), from.b_args(), out.bools, to_bool));
  STELE_TRY(read_arguments(from.d_arg_names(), from.d_args(), out.dtypes, to_dtype));
  STELE_TRY(read_arguments(from.s_arg_names(), from.s_args(), out.strings, to_text));
  return read_operation_tail(from, Dialect::a, out);
}

Result<Graph> read(const stele_fb::Graph& from, unsigned depth) {
  if (depth > max_graph_depth) return Error(Errc::limit, "graphs are nested too deep").expected("at most 16 levels");
  Graph graph;
  if (from.variables() != nullptr) {
    graph.variables.reserve(from.variables()->size());
    for (const auto* v : *from.variables()) {
      STELE_TRY_ASSIGN(GraphVariable variable, read(*v));
      graph.variables.push_back(std::move(variable));
    }
  }
  if (from.operations() != nullptr) {
    graph.operations.reserve(from.operations()->size());
    for (const auto* o : *from.operations()) {
      GraphOperation& out = graph.operations.emplace_back();
      out.name = text_of(o->name());
      if (auto r = read(*o, out); !r) return std::move(r).error().path(out.name);
    }
  }
  graph.loss_variables = texts_of(from.loss_variables());
  graph.outputs = texts_of(from.outputs());
  if (from.sub_graphs() != nullptr) {
    for (const auto* sub : *from.sub_graphs()) {
      if (sub->graph() == nullptr) return Error(Errc::malformed, "a nested graph is missing");
      STELE_TRY_ASSIGN(Graph inner, read(*sub->graph(), depth + 1));
      graph.sub_graphs.emplace_back(text_of(sub->name()), std::move(inner));
    }
  }
  return graph;
}

Status representable(DType dtype, const std::string& what) {
  if (dtype == DType::none || dtype == DType::string || samediff::holds(dtype)) return {};
  return Error(Errc::not_representable, "archives do not have the dtype").path(what).found(std::string(name(dtype)));
}

template <class T>
struct Arguments {
  Offset<Texts> names;
  Offset<flatbuffers::Vector<T>> values;
  template <class From>
  Arguments(FlatBufferBuilder& to, const GraphArguments<From>& all, const auto& convert) {
    if (all.empty()) return;
    std::vector<std::string> name_list;
    std::vector<T> value_list;
    for (const auto& [name, value] : all) {
      name_list.push_back(name);
      value_list.push_back(convert(value));
    }
    names = to.CreateVectorOfStrings(name_list);
    values = to.CreateVector(value_list);
  }
};

Status representable(const GraphOperation& o) {
  for (const auto& [name, dtype] : o.dtypes) STELE_TRY(representable(dtype, o.name));
  for (const DType dtype : o.output_dtypes) STELE_TRY(representable(dtype, o.name));
  if (o.scalar) STELE_TRY(representable(o.scalar->dtype, o.name));
  for (const GraphProperty& p : o.properties) {
    for (const GraphArray& a : p.arrays) STELE_TRY(representable(a.dtype, o.name));
  }
  return {};
}

Offset<stele_fb::GraphVariable> write(FlatBufferBuilder& to, const GraphVariable& v) {
  const auto name = to.CreateString(v.name);
  const auto shape = v.shape ? to.CreateVector(*v.shape) : Offset<flatbuffers::Vector<std::int64_t>>();
  const auto deps = texts(to, v.control_dependencies);
  const auto of_op = texts(to, v.control_dependency_of);
  const auto of_var = texts(to, v.control_dependencies_of_var);
  return stele_fb::CreateGraphVariable(to, name, type_of(v.dtype), shape, static_cast<std::int8_t>(v.kind), deps, of_op,
                                       of_var);
}

Offset<stele_fb::Operation> write(FlatBufferBuilder& to, const GraphOperation& o) {
  const auto same = [](auto x) { return x; };
  const Arguments<std::int64_t> ints(to, o.ints, same);
  const Arguments<double> doubles(to, o.doubles, same);
  const Arguments<std::uint8_t> bools(to, o.bools, [](bool b) { return static_cast<std::uint8_t>(b); });
  const Arguments<stele_fb::Type> dtypes(to, o.dtypes, type_of);
  std::vector<std::string> text_names;
  std::vector<std::string> text_values;
  for (const auto& [argument, text] : o.strings) {
    text_names.push_back(argument);
    text_values.push_back(text);
  }
  const auto s_names = texts(to, text_names);
  const auto s_values = texts(to, text_values);
  const auto name = to.CreateString(o.name);
  const auto op_name = to.CreateString(o.op_name);
  const auto inputs = to.CreateVectorOfStrings(o.inputs);
  const auto outputs = to.CreateVectorOfStrings(o.outputs);
  const auto dimensions =
      o.dimensions.empty() ? Offset<flatbuffers::Vector<std::int32_t>>() : to.CreateVector(o.dimensions);
  const auto scalar = o.scalar ? write_array(to, *o.scalar) : Offset<stele_fb::Array>();
  const auto properties = o.properties.empty() ? Offset<flatbuffers::Vector<Offset<stele_fb::Property>>>()
                                               : write_properties(to, o.properties);
  std::vector<stele_fb::Type> types;
  for (const DType d : o.output_dtypes) types.push_back(type_of(d));
  const auto output_types = types.empty() ? Offset<flatbuffers::Vector<stele_fb::Type>>() : to.CreateVector(types);
  const auto deps = texts(to, o.control_dependencies);
  const auto var_deps = texts(to, o.var_control_dependencies);
  const auto dep_of = texts(to, o.control_dependency_of);
  return stele_fb::CreateOperation(to, name, op_name, static_cast<std::int8_t>(o.family), number_of(o), inputs, outputs,
                                   ints.names, ints.values, doubles.names, doubles.values, bools.names, bools.values,
                                   dtypes.names, dtypes.values, dimensions, scalar, properties, output_types, deps,
                                   var_deps, dep_of, s_names, s_values);
}

Result<Offset<stele_fb::Graph>> write(FlatBufferBuilder& to, const Graph& graph, unsigned depth) {
  if (depth > max_graph_depth)
    return Error(Errc::not_representable, "graphs are nested too deep").expected("at most 16 levels");
  // FlatBuffers counts up to 2 GiB and then aborts the program.
  const auto full = [&] { return to.GetSize() > max_buffer / 2; };
  const auto too_large = [] { return Error(Errc::limit, "the graph is too large").expected("at most 1 GiB"); };
  std::vector<Offset<stele_fb::GraphVariable>> variables;
  for (const GraphVariable& v : graph.variables) {
    if (full()) return too_large();
    STELE_TRY(representable(v.dtype, v.name));
    variables.push_back(write(to, v));
  }
  std::vector<Offset<stele_fb::Operation>> operations;
  for (const GraphOperation& o : graph.operations) {
    if (full()) return too_large();
    STELE_TRY(representable(o));
    operations.push_back(write(to, o));
  }
  std::vector<Offset<stele_fb::NamedGraph>> sub_graphs;
  for (const auto& [name, sub] : graph.sub_graphs) {
    STELE_TRY_ASSIGN(const auto inner, write(to, sub, depth + 1));
    const auto text = to.CreateString(name);
    sub_graphs.push_back(stele_fb::CreateNamedGraph(to, text, inner));
  }
  const auto variable_list = to.CreateVector(variables);
  const auto operation_list = to.CreateVector(operations);
  const auto loss = texts(to, graph.loss_variables);
  const auto outputs = texts(to, graph.outputs);
  const auto subs =
      sub_graphs.empty() ? Offset<flatbuffers::Vector<Offset<stele_fb::NamedGraph>>>() : to.CreateVector(sub_graphs);
  return stele_fb::CreateGraph(to, variable_list, operation_list, loss, outputs, subs);
}

std::string text_of(const FlatBufferBuilder& from) {
  return {reinterpret_cast<const char*>(from.GetBufferPointer()), from.GetSize()};
}

}  // namespace

Result<Graph> read_graph(std::span<const std::byte> bytes, std::uint64_t memory) {
  if (!SharedCount(bytes, memory).root(graph_form)) return too_much("the graph");
  auto verifier = verifier_of(bytes);
  if (bytes.size() > max_buffer || !verifier.VerifyBuffer<stele_fb::Graph>(nullptr)) {
    return Error(Errc::malformed, "the graph is not a valid FlatBuffer");
  }
  return read(*flatbuffers::GetRoot<stele_fb::Graph>(bytes.data()), 0);
}

Result<std::string> write_graph(const Graph& graph) {
  FlatBufferBuilder to;
  STELE_TRY_ASSIGN(const auto root, write(to, graph, 0));
  to.Finish(root);
  return text_of(to);
}

Result<Training> read_training(std::span<const std::byte> bytes, std::uint64_t memory) {
  if (!SharedCount(bytes, memory).root(training_form)) return too_much("the training configuration");
  auto verifier = verifier_of(bytes);
  if (bytes.size() > max_buffer || !verifier.VerifyBuffer<stele_fb::Training>(nullptr)) {
    return Error(Errc::malformed, "the training configuration is not a valid FlatBuffer");
  }
  const auto& from = *flatbuffers::GetRoot<stele_fb::Training>(bytes.data());
  return Training{samediff::text_of(from.json()), samediff::texts_of(from.state_keys())};
}

std::string write_training(const Training& training, const TrainingConfig* config) {
  FlatBufferBuilder to;
  const auto json = training.json.empty() ? Offset<flatbuffers::String>() : to.CreateString(training.json);
  const auto keys = texts(to, training.state_keys);
  const auto updater = config != nullptr ? to.CreateString(config->updater.type) : Offset<flatbuffers::String>();
  to.Finish(stele_fb::CreateTraining(to, json, keys, updater, config != nullptr ? config->iteration_count : 0,
                                     config != nullptr ? config->epoch_count : 0));
  return text_of(to);
}

}  // namespace stele::inline v0::detail::archive
