// The rules of export, ir/data/nd4j: their names are those of DL4J's operators and of the rules that import ONNX.
#include <stele/import.hpp>
#include <stele/operators.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "ir/rules/mapping.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace export_rules_test {

using namespace stele_test;
using stele::ArgumentDescriptor;
using stele::ArgumentType;
using stele::MappingSet;
using stele::OperatorDescriptor;
using stele::OperatorSet;
using stele::detail::ir::Declaration;
using stele::detail::ir::Expression;
using stele::detail::ir::Step;

namespace {

constexpr std::int64_t first_version = 13, last_version = 22;  // of ONNX's operators

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::filesystem::path source(const std::string& path) { return std::filesystem::path(tests_folder()) / ".." / path; }

std::string export_rules() {
  std::string all;
  for (const auto& entry : std::filesystem::directory_iterator(source("ir/data/nd4j"))) all += text_of(entry.path());
  return all;
}

std::string plain(std::string name) {
  name.erase(0, name.find_first_not_of('*'));
  return name;
}

template <class List>
bool has(const List& list, const std::string& name) {
  return std::any_of(list.begin(), list.end(), [&](const auto& e) { return e.name == name; });
}

/// Adds the names and functions that an expression uses, but not the variables of its lists.
void uses(const Expression& e, std::set<std::string>& names, std::set<std::string>& functions) {
  if (e.kind == Expression::Kind::name) names.insert(e.text);
  if (e.kind == Expression::Kind::call) functions.insert(e.text);
  std::set<std::string> inner;
  for (const Expression& operand : e.operands) uses(operand, inner, functions);
  if (e.kind == Expression::Kind::each) inner.erase(e.text);
  names.insert(inner.begin(), inner.end());
}

std::set<std::string> names_in(const Expression& e) {
  std::set<std::string> names, functions;
  uses(e, names, functions);
  return names;
}

/// Returns true if the value depends on the version of ONNX's operators.
bool versioned(const Declaration& d, const Expression& e) {
  for (const std::string& name : names_in(e)) {
    if (name == "opset") return true;
    const auto define = std::find_if(d.defines.begin(), d.defines.end(), [&](const auto& x) { return x.name == name; });
    if (define != d.defines.end() && &*define->value != &e && versioned(d, *define->value)) return true;
  }
  return false;
}

/// Returns the arguments of the step that ONNX's operator does not have in that version; the operator itself.
std::string missing(const Step& step, std::int64_t version) {
  if (step.op_name == "same") return {};
  const Declaration* const onnx = MappingSet::onnx().find("", step.op_name, version);
  if (onnx == nullptr) return step.op_name;
  for (const Step::Argument& argument : step.arguments) {
    if (!has(onnx->inputs, argument.name) && !has(onnx->attributes, argument.name)) return argument.name;
  }
  const bool rest = !onnx->outputs.empty() && onnx->outputs.back().rest;
  return step.outputs.size() > onnx->outputs.size() && !rest ? "outputs" : "";
}

std::vector<const ArgumentDescriptor*> ports(const OperatorDescriptor& descriptor, ArgumentType type) {
  std::vector<const ArgumentDescriptor*> all;
  for (const ArgumentDescriptor& a : descriptor.arguments) {
    if (a.type == type) all.push_back(&a);
  }
  return all;
}

void check_ports(const std::vector<Declaration::Port>& declared, const std::vector<const ArgumentDescriptor*>& all) {
  REQUIRE(declared.size() <= all.size());
  for (std::size_t i = 0; i < declared.size(); ++i) {
    CHECK(declared[i].name == plain(all[i]->name));
    CHECK(declared[i].rest == all[i]->repeated);
  }
}

}  // namespace

TEST_CASE("export rules: arguments are those of DL4J's operators") {
  const MappingSet rules = good(MappingSet::open(bytes_of(export_rules())));
  REQUIRE(rules.size() > 200);
  for (const auto& o : rules.operators()) {
    CAPTURE(o.name);
    CHECK(o.domain.empty());
    CHECK(o.since >= first_version);
    const Declaration& d = *rules.find(o.domain, o.name, o.since);
    const OperatorDescriptor* const descriptor = OperatorSet::nd4j().find(o.name);
    REQUIRE(descriptor != nullptr);
    check_ports(d.inputs, ports(*descriptor, ArgumentType::input));
    check_ports(d.outputs, ports(*descriptor, ArgumentType::output));
    const auto is_value = [](const ArgumentDescriptor& a) {
      return a.type != ArgumentType::input && a.type != ArgumentType::output;
    };
    for (const ArgumentDescriptor& a : descriptor->arguments) {
      CAPTURE(a.name);
      if (is_value(a)) CHECK(has(d.attributes, a.name));
      // A tensor may be given in place of integers, and a rule may leave that out.
    }
    for (const Declaration::Named& attribute : d.attributes) {
      CAPTURE(attribute.name);
      CHECK(std::any_of(descriptor->arguments.begin(), descriptor->arguments.end(),
                        [&](const auto& a) { return is_value(a) && a.name == attribute.name; }));
    }
  }
}

TEST_CASE("export rules: steps are ONNX's operators") {
  const MappingSet rules = good(MappingSet::open(bytes_of(export_rules())));
  for (const auto& o : rules.operators()) {
    const Declaration& d = *rules.find(o.domain, o.name, o.since);
    const bool limited = std::any_of(d.requirements.begin(), d.requirements.end(),
                                     [&](const auto& requirement) { return versioned(d, requirement.second); });
    CHECK_MESSAGE(d.op_name.empty(), o.name);
    for (const Step& step : d.steps) {
      bool depends = limited || (step.condition && versioned(d, *step.condition));
      for (const Step::Argument& argument : step.arguments) depends = depends || versioned(d, argument.value);
      std::string first;
      bool some = false;
      for (std::int64_t version = o.since; version <= last_version; ++version) {
        const std::string absent = missing(step, version);
        some = some || absent.empty();
        if (first.empty()) first = absent;
      }
      CHECK_MESSAGE((depends ? some : first.empty()), o.name << ": " << step.op_name << ": " << first);
    }
  }
}

TEST_CASE("export rules: names and functions exist") {
  const MappingSet rules = good(MappingSet::open(bytes_of(export_rules())));
  const std::string documentation = text_of(source("docs/import.md"));
  for (const auto& o : rules.operators()) {
    const Declaration& d = *rules.find(o.domain, o.name, o.since);
    std::set<std::string> names, functions, known{"opset"}, made;
    for (const auto& port : d.inputs) known.insert(port.name);
    for (const auto& port : d.outputs) known.insert((port.rest ? "count_" : "wants_") + port.name);
    for (const auto& attribute : d.attributes) known.insert(attribute.name);
    for (const auto& define : d.defines) CHECK_MESSAGE(known.insert(define.name).second, o.name << ": " << define.name);
    for (const auto& define : d.defines) uses(*define.value, names, functions);
    for (const auto& attribute : d.attributes) {
      if (attribute.value) uses(*attribute.value, names, functions);
    }
    for (const auto& [text, requirement] : d.requirements) uses(requirement, names, functions);
    for (const Step& step : d.steps) {
      std::set<std::string> here;
      for (const Step::Argument& argument : step.arguments) uses(argument.value, here, functions);
      if (step.condition) uses(*step.condition, here, functions);
      if (step.repeats) uses(*step.repeats, here, functions);
      for (const auto& output : step.outputs) {
        if (output.count) uses(*output.count, here, functions);
        made.insert(output.name);
      }
      here.erase(step.variable);
      names.insert(here.begin(), here.end());
      CHECK_MESSAGE(!known.contains(step.variable), o.name << ": " << step.variable);
    }
    for (const auto& port : d.outputs) CHECK_MESSAGE(made.contains(port.name), o.name << ": " << port.name);
    for (const std::string& name : made) CHECK_MESSAGE(!known.contains(name), o.name << ": " << name);
    known.insert(made.begin(), made.end());
    for (const std::string& name : names) CHECK_MESSAGE(known.contains(name), o.name << ": " << name);
    for (const std::string& name : functions) {
      const bool documented = documentation.find(name + '(') != documentation.npos ||
                              documentation.find('`' + name + '`') != documentation.npos;
      CHECK_MESSAGE(documented, o.name << ": " << name);
    }
  }
}

}  // namespace export_rules_test
