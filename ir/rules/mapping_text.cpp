// Reads files of mapping rules.
#include <algorithm>
#include <array>
#include <utility>

#include "ir/proto/mapper.pb.h"
#include "ir/proto/text_format.hpp"
#include "ir/rules/mapping.hpp"
#include "json/json.hpp"
#include "stele/import.hpp"

namespace stele::inline v0 {

namespace {

namespace proto = stele::ir;
using detail::ir::Declaration;
using detail::ir::ExpressionValue;
using detail::ir::Rule;
using Kind = Rule::Kind;

struct RuleName {
  std::string_view name;
  Kind kind;
};
/// The names of rules in DL4J's files.
constexpr std::array<RuleName, 26> rule_names = {{
    {"ndarraymapping", Kind::ndarray_mapping},
    {"multiinputindex", Kind::multi_input_index},
    {"valuemapping", Kind::value_mapping},
    {"argdescriptorconstant", Kind::constant},
    {"listattributevaluelookuptoindex", Kind::list_element},
    {"listnumbertolistnumber", Kind::list},
    {"listnumbertondarray", Kind::list_to_tensor},
    {"convertinputnumberlisttondarray", Kind::list_to_tensor},
    {"ndarrayextractscalarvalue", Kind::tensor_element},
    {"attributendarraytoscalarattribute", Kind::tensor_to_number},
    {"ndarraytointattributevalue", Kind::tensor_to_ints},
    {"ndarrayinputtonumericalattribute", Kind::tensor_to_number},
    {"ndarraysizeat", Kind::size_at},
    {"stringequals", Kind::string_equals},
    {"stringnotequalsadapterrule", Kind::string_not_equals},
    {"stringcontains", Kind::string_contains},
    {"stringtoindex", Kind::string_index},
    {"mapstringtoindex", Kind::map_string_index},
    {"invertbooleannumber", Kind::number_to_boolean},
    {"booleantonumber", Kind::number_to_boolean},
    {"datatypetoint", Kind::dtype_to_int},
    {"conditionalfieldvalueintindex", Kind::conditional_index},
    {"conditionalfieldvalueintindexndarray", Kind::conditional_tensor_element},
    {"sizethresholdarrayint", Kind::size_threshold},
    {"flattendims", Kind::flatten_dims},
    {"ndarrayinputtondarray", Kind::ndarray_mapping},
}};

Error in(const proto::MapperDeclaration& declaration, Error error, std::string_view text = {}) {
  std::string path = declaration.inputframeworkopname();
  if (declaration.sinceversion() != 0) path += '@' + std::to_string(declaration.sinceversion());
  error = std::move(error).path(path);
  return text.empty() ? error : std::move(error).found(text);
}

ExpressionValue value_of(const proto::ArgDescriptor& from) {
  switch (from.argtype()) {
    case proto::ArgDescriptor::FLOAT:
      return double{from.floatvalue()};
    case proto::ArgDescriptor::DOUBLE:
      return from.doublevalue();
    case proto::ArgDescriptor::INT32:
      return std::int64_t{from.int32value()};
    case proto::ArgDescriptor::INT64:
      return std::int64_t{from.int64value()};
    case proto::ArgDescriptor::BOOL:
      return from.boolvalue();
    case proto::ArgDescriptor::DATA_TYPE:
      return std::int64_t{from.datatypevalue()};  // DataType uses ONNX's numbers
    case proto::ArgDescriptor::STRING:
      return from.stringvalue();
    default:
      return {};
  }
}

Result<Rule> rule_of(const proto::MapperDeclaration& declaration, const proto::MappingRule& from) {
  Rule rule;
  const auto found =
      std::find_if(rule_names.begin(), rule_names.end(), [&](const RuleName& r) { return r.name == from.rulename(); });
  if (found == rule_names.end()) {
    return in(declaration, Error(Errc::unsupported, "stele does not support this kind of rule"), from.rulename());
  }
  rule.kind = found->kind;
  for (const auto& [theirs, framework] : from.inputtooutput()) rule.names.emplace_back(theirs, framework);
  std::sort(rule.names.begin(), rule.names.end());
  for (const auto& arguments : from.transformerargs()) {
    auto& list = rule.arguments[arguments.key()];
    for (const auto& argument : arguments.transformerargs()) list.emplace_back(argument.name(), value_of(argument));
  }
  if (rule.kind != Kind::constant) return rule;
  // DL4J's files use one key, "value", and store the argument names in the descriptors.
  std::map<std::string, std::vector<std::pair<std::string, ExpressionValue>>> by_name;
  for (auto& [key, list] : rule.arguments) {
    for (auto& [name, value] : list) by_name[name.empty() ? key : name].emplace_back(name, std::move(value));
  }
  rule.arguments = std::move(by_name);
  return rule;
}

/// Splits "name = EXPRESSION". Accepts a name without "=" if `alone` is true.
Result<Declaration::Named> named_of(const proto::MapperDeclaration& declaration, const std::string& text, bool alone) {
  Declaration::Named named;
  std::size_t at = text.find('=');
  named.name = text.substr(0, at);
  named.name.erase(named.name.find_last_not_of(' ') + 1);
  if (named.name.empty() || (at == text.npos && !alone)) {
    return in(declaration, Error(Errc::malformed, "expected \"name = expression\""), text);
  }
  if (at == text.npos) return named;
  auto expression = detail::ir::parse_expression(std::string_view(text).substr(at + 1));
  if (!expression) return in(declaration, std::move(expression).error(), text);
  named.value = *std::move(expression);
  return named;
}

Declaration::Port port_of(std::string text) {
  Declaration::Port port;
  port.rest = text.ends_with("...");
  port.optional = text.ends_with("?");
  text.resize(text.size() - (port.rest ? 3 : port.optional ? 1 : 0));
  port.name = std::move(text);
  return port;
}

Result<Declaration> declaration_of(const proto::MapperDeclaration& from) {
  Declaration to;
  to.domain = from.domain() == "ai.onnx" ? "" : from.domain();
  to.op = from.inputframeworkopname();
  if (to.op.empty()) return Error(Errc::malformed, "a declaration does not name an operator of the framework");
  if (!detail::json::valid_utf8(to.op)) return Error(Errc::malformed, "the name of an operator is not UTF-8");
  to.since = from.sinceversion();
  to.until = from.untilversion();
  to.op_name = from.opname();
  if (to.op_name.empty() == (from.step_size() == 0)) {
    return in(from, Error(Errc::malformed, "a declaration must have either opName or steps"));
  }
  for (const auto& rule : from.rule()) {
    STELE_TRY_ASSIGN(Rule r, rule_of(from, rule));
    to.rules.push_back(std::move(r));
  }
  for (const auto& [a, b] : from.indexoverrides()) to.index_overrides[a] = b;
  for (const std::string& port : from.input()) to.inputs.push_back(port_of(port));
  for (const std::string& port : from.output()) to.outputs.push_back(port_of(port));
  const auto add = [&](const auto& texts, std::vector<Declaration::Named>& out, bool alone) -> Status {
    for (const std::string& text : texts) {
      STELE_TRY_ASSIGN(Declaration::Named named, named_of(from, text, alone));
      out.push_back(std::move(named));
    }
    return {};
  };
  STELE_TRY(add(from.attribute(), to.attributes, true));
  STELE_TRY(add(from.define(), to.defines, false));
  STELE_TRY(add(from.shape(), to.shapes, false));
  STELE_TRY(add(from.dtype(), to.dtypes, false));
  STELE_TRY(add(from.elements(), to.elements, false));
  for (const std::string& text : from.require()) {
    auto expression = detail::ir::parse_expression(text);
    if (!expression) return in(from, std::move(expression).error(), text);
    to.requirements.emplace_back(text, *std::move(expression));
  }
  for (const std::string& text : from.step()) {
    auto step = detail::ir::parse_step(text);
    if (!step) return in(from, std::move(step).error(), text);
    to.steps.push_back(*std::move(step));
  }
  return to;
}

using Declarations = std::vector<std::shared_ptr<const Declaration>>;

auto key_of(const Declaration& d) { return std::tie(d.domain, d.op, d.since); }
bool before(const std::shared_ptr<const Declaration>& a, const std::shared_ptr<const Declaration>& b) {
  return key_of(*a) < key_of(*b);
}

Result<Declarations> declarations_of(const proto::MappingDefinitionSet& set) {
  Declarations all;
  for (const auto& mapping : set.mappings()) {
    STELE_TRY_ASSIGN(Declaration declaration, declaration_of(mapping));
    all.push_back(std::make_shared<const Declaration>(std::move(declaration)));
  }
  std::sort(all.begin(), all.end(), before);
  const auto twice =
      std::adjacent_find(all.begin(), all.end(), [](const auto& a, const auto& b) { return key_of(*a) == key_of(*b); });
  if (twice != all.end()) {
    return Error(Errc::duplicate, "two declarations apply to the same operator and version").path((*twice)->op);
  }
  return all;
}

}  // namespace

namespace detail {

/// data/FOLDER/*.pbtxt, encoded in protobuf's binary format.
extern const std::span<const unsigned char> onnx_mappings, tensorflow_mappings, nd4j_mappings;

}  // namespace detail

MappingSet::MappingSet() = default;
MappingSet::MappingSet(const MappingSet&) = default;
MappingSet::MappingSet(MappingSet&&) noexcept = default;
MappingSet& MappingSet::operator=(const MappingSet&) = default;
MappingSet& MappingSet::operator=(MappingSet&&) noexcept = default;
MappingSet::~MappingSet() = default;

MappingSet MappingSet::built_in(std::span<const unsigned char> encoded) {
  proto::MappingDefinitionSet list;
  MappingSet all;
  if (list.ParseFromArray(encoded.data(), static_cast<int>(encoded.size()))) {
    if (auto declarations = declarations_of(list)) all.declarations_ = *std::move(declarations);
  }
  return all;
}

const MappingSet& MappingSet::onnx() {
  static const MappingSet set = built_in(detail::onnx_mappings);
  return set;
}

const MappingSet& MappingSet::tensorflow() {
  static const MappingSet set = built_in(detail::tensorflow_mappings);
  return set;
}

const MappingSet& MappingSet::to_onnx() {
  static const MappingSet set = built_in(detail::nd4j_mappings);
  return set;
}

Result<MappingSet> MappingSet::open(const Input& input) {
  proto::MappingDefinitionSet list;
  STELE_TRY(detail::ir::read_text(input, list));
  auto declarations = declarations_of(list);
  if (!declarations) return std::move(declarations).error().file(input.name());
  MappingSet set;
  set.declarations_ = *std::move(declarations);
  return set;
}

void MappingSet::add(const MappingSet& rules) {
  Declarations all;
  // set_union takes the first of two declarations with the same key.
  std::set_union(rules.declarations_.begin(), rules.declarations_.end(), declarations_.begin(), declarations_.end(),
                 std::back_inserter(all), before);
  declarations_ = std::move(all);
}

std::vector<MappingSet::Operator> MappingSet::operators() const {
  std::vector<Operator> all;
  for (const auto& d : declarations_) all.push_back({d->domain, d->op, d->since, d->until});
  return all;
}

const Declaration* MappingSet::find(const std::string& domain, const std::string& name,
                                    std::int64_t version) const noexcept {
  const Declaration* best = nullptr;
  const auto of = [&](const auto& d) { return std::tie(d->domain, d->op); };
  const auto wanted = std::tie(domain, name);
  const auto first = std::lower_bound(declarations_.begin(), declarations_.end(), wanted,
                                      [&](const auto& d, const auto& key) { return of(d) < key; });
  for (auto i = first; i != declarations_.end() && of(*i) == wanted; ++i) {
    if ((*i)->since <= version) best = i->get();
  }
  return best != nullptr && (best->until == 0 || version <= best->until) ? best : nullptr;
}

}  // namespace stele::inline v0
