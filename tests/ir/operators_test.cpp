// Operators by name: the descriptors, and the way to positions and back.
#include <stele/operators.hpp>
#include <stele/recorders/samediff.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "support/left_out.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace operators_test {

using namespace stele_test;
using stele::ArgumentDescriptor;
using stele::ArgumentType;
using stele::Errc;
using stele::GraphOperation;
using stele::name;
using stele::NamedArguments;
using stele::OperatorDescriptor;
using stele::OperatorSet;
using stele::ordered;

namespace {

const OperatorDescriptor& op(std::string_view name) {
  const OperatorDescriptor* const found = OperatorSet::nd4j().find(name);
  REQUIRE_MESSAGE(found != nullptr, name);
  return *found;
}

stele::Result<OperatorSet> opened(std::string_view text) { return OperatorSet::open(bytes_of(text)); }

std::string operators_with(std::string_view arguments) {
  return "opList { name: 'op' " + std::string(arguments) + " }";
}

template <class T>
std::vector<T> values(const stele::GraphArguments<T>& arguments) {
  std::vector<T> all;
  for (const auto& a : arguments) all.push_back(a.second);
  return all;
}

/// conv2d with its required arguments.
NamedArguments convolution() {
  NamedArguments a;
  a.inputs = {{"weights", "w"}, {"input", "x"}};
  a.outputs = {{"outputs", "y"}};
  for (const char* name : {"isSameMode", "dW", "dH", "pW", "pH", "sW", "sH", "kW", "kH"})
    a.ints.emplace_back(name, a.ints.size());
  return a;
}

bool same_positions(const GraphOperation& a, const GraphOperation& b) {
  return a.op_name == b.op_name && a.inputs == b.inputs && a.outputs == b.outputs && values(a.ints) == values(b.ints) &&
         values(a.doubles) == values(b.doubles) && values(a.bools) == values(b.bools) &&
         values(a.dtypes) == values(b.dtypes) && values(a.strings) == values(b.strings) && a.dimensions == b.dimensions;
}

}  // namespace

TEST_CASE("operators: arguments by name come in the order of their positions") {
  const GraphOperation conv = good(ordered(op("conv2d"), convolution()));
  CHECK(conv.op_name == "conv2d");
  CHECK(conv.inputs == std::vector<std::string>{"x", "w"});
  CHECK(values(conv.ints) == std::vector<std::int64_t>{8, 7, 6, 5, 4, 3, 2, 1, 0});
  CHECK(conv.ints[0].first == "kH");

  // The default of an argument that is left out before a given one; none behind it.
  NamedArguments more = convolution();
  more.ints.emplace_back("wFormat", 1);
  CHECK(values(good(ordered(op("conv2d"), more)).ints) == std::vector<std::int64_t>{8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 1});

  // A repeated argument, and one behind it that a flag announces.
  NamedArguments concat;
  concat.inputs = {{"input", "a"}, {"concatDimension", "axis"}, {"input", "b"}, {"input", "c"}};
  concat.outputs = {{"outputs", "y"}};
  concat.bools = {{"isDynamicAxis", true}};
  const GraphOperation joined = good(ordered(op("concat"), concat));
  CHECK(joined.inputs == std::vector<std::string>{"a", "b", "c", "axis"});
  NamedArguments again = good(named(op("concat"), joined));
  CHECK(again.inputs.back() == std::pair<std::string, std::string>("concatDimension", "axis"));
  CHECK(again.inputs[2] == std::pair<std::string, std::string>("input", "c"));
}

TEST_CASE("operators: inputs whose position depends on a flag") {
  NamedArguments a;
  a.inputs = {{"input", "x"}, {"mean", "m"}, {"variance", "v"}, {"beta", "b"}};
  a.outputs = {{"outputs", "y"}};
  a.ints = {{"applyScale", 0}, {"applyOffset", 1}, {"axis", 1}};
  a.doubles = {{"epsilon", 1e-5}};
  const GraphOperation norm = good(ordered(op("batchnorm"), a));
  CHECK(norm.inputs == std::vector<std::string>{"x", "m", "v", "b"});
  CHECK(good(named(op("batchnorm"), norm)) == a);

  a.ints[0].second = 1;
  stele::Error error = ordered(op("batchnorm"), a).error();
  CHECK(error.code() == Errc::missing);
  CHECK(error.path() == "batchnorm.gamma");
  a.ints[0].second = a.ints[1].second = 0;
  error = ordered(op("batchnorm"), a).error();
  CHECK(error.code() == Errc::invalid_argument);
  CHECK(error.path() == "batchnorm.beta");
  CHECK(error.found() == "applyOffset");
}

TEST_CASE("operators: arguments that an operator does not have") {
  const auto error = [](auto change) {
    NamedArguments a = convolution();
    change(a);
    return ordered(op("conv2d"), a).error();
  };
  stele::Error e = error([](auto& a) { a.ints.emplace_back("isNCWH", 1); });
  CHECK(e.code() == Errc::invalid_argument);
  CHECK(e.path() == "conv2d.isNCWH");
  CHECK(e.hint() == "did you mean isNCHW?");
  e = error([](auto& a) { a.doubles.emplace_back("wFormat", 1); });
  CHECK(e.code() == Errc::kind_mismatch);
  CHECK(e.expected() == "integer");
  CHECK(e.found() == "real");
  e = error([](auto& a) { a.ints.emplace_back("kH", 1); });
  CHECK(e.code() == Errc::duplicate);
  e = error([](auto& a) { a.ints.pop_back(); });
  CHECK(e.code() == Errc::missing);
  CHECK(e.path() == "conv2d.kH");
  e = error([](auto& a) { a.inputs.erase(a.inputs.begin()); });
  CHECK(e.path() == "conv2d.weights");

  // A later argument needs one that has no default.
  NamedArguments range;
  range.outputs = {{"outputs", "y"}};
  range.ints = {{"to", 3}};
  e = ordered(op("range"), range).error();
  CHECK(e.code() == Errc::missing);
  CHECK(e.path() == "range.from");
  CHECK(e.found() == "to");

  // Positions: too many, too few, another operator.
  GraphOperation conv = good(ordered(op("conv2d"), convolution()));
  for (int i = 0; i < 3; ++i) conv.ints.emplace_back("", 7);
  e = named(op("conv2d"), conv).error();
  CHECK(e.code() == Errc::invalid_argument);
  CHECK(e.expected() == "11");
  CHECK(e.hint() == "the last one is wFormat");
  conv.ints.resize(8);
  e = named(op("conv2d"), conv).error();
  CHECK(e.code() == Errc::missing);
  CHECK(e.path() == "conv2d.isSameMode");
  CHECK(named(op("conv1d"), conv).error().code() == Errc::invalid_argument);
}

TEST_CASE("operators: names to positions and back, for every operator and any of its arguments") {
  std::mt19937 random(5);
  for (const OperatorDescriptor& o : OperatorSet::nd4j().all()) {
    CAPTURE(o.name);
    for (int round = 0; round < 8; ++round) {
      NamedArguments given;
      // As many arguments of each type as this: a later one needs those before it.
      std::map<ArgumentType, std::size_t> end, seen;
      for (const ArgumentDescriptor& a : o.arguments) ++end[a.type];
      for (auto& [type, n] : end) n = round == 0 ? n : random() % (n + 1);
      for (const ArgumentDescriptor& a : o.arguments) {
        const bool in = seen[a.type]++ < end[a.type] || !a.optional;
        if (!in || !a.present_if.empty()) continue;
        for (std::size_t n = a.repeated ? 1 + random() % 3 : 1; n != 0; --n) {
          const std::string text = "t" + std::to_string(random());
          switch (a.type) {
            case ArgumentType::input:
              given.inputs.emplace_back(a.name, text);
              break;
            case ArgumentType::output:
              given.outputs.emplace_back(a.name, text);
              break;
            case ArgumentType::integer:
              given.ints.emplace_back(a.name, 0);
              break;
            case ArgumentType::real:
              given.doubles.emplace_back(a.name, static_cast<double>(random()));
              break;
            case ArgumentType::boolean:
              given.bools.emplace_back(a.name, false);
              break;
            case ArgumentType::dtype:
              given.dtypes.emplace_back(a.name, stele::DType::f16);
              break;
            case ArgumentType::string:
              given.strings.emplace_back(a.name, text);
              break;
          }
        }
      }
      const GraphOperation positions = good(ordered(o, given));
      const NamedArguments names = good(named(o, positions));
      CHECK(names == given);
      CHECK(same_positions(good(ordered(o, names)), positions));
    }
  }
}

TEST_CASE("operators: the operations of DL4J's own files have names, and the same positions again") {
  std::size_t operations = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test_data("samediff"))) {
    if (entry.path().extension() != ".fb") continue;
    CAPTURE(entry.path());
    const stele::Checkpoint file = good(stele::SameDiffRecorder<>{}.open_checkpoint(entry.path().string()));
    if (!file.graph) continue;
    for (const GraphOperation& operation : file.graph->operations) {
      // DL4J 1.0.0-M2.1 writes an integer more than its descriptors of 2021 have.
      if (operation.op_name == "enter") continue;
      CAPTURE(operation.name);
      const OperatorDescriptor* const o = OperatorSet::nd4j().find(operation.op_name);
      REQUIRE_MESSAGE(o != nullptr, operation.op_name);
      const auto names = named(*o, operation);
      CHECK_MESSAGE(names.has_value(), operation.op_name, " ", names ? "" : names.error().to_string());
      if (names) CHECK(same_positions(good(ordered(*o, *names)), operation));
      ++operations;
    }
  }
  CHECK(operations >= 40);
}

TEST_CASE("operators: text and back") {
  const OperatorSet& all = OperatorSet::nd4j();
  CHECK(all.all().size() == 705);
  const OperatorSet again = good(opened(all.to_text()));
  CHECK(std::equal(all.all().begin(), all.all().end(), again.all().begin(), again.all().end()));

  // DL4J's own parser knows neither defaults nor flags.
  const std::string plain = all.to_text(true);
  for (const char* word :
       {"hasDefault", "presentIf", "sinceVersion", "deprecated", "64Value", "boolValue:", "doubleValue:"})
    CHECK(plain.find(word) == plain.npos);
  const OperatorSet theirs = good(opened(plain));
  CHECK(theirs.find("conv2d")->arguments.size() == op("conv2d").arguments.size());

  // A file of a user adds operators, and replaces one.
  OperatorSet mine = all;
  mine.add(
      good(opened("opList { name: 'my_op' argDescriptor { name: 'x' argType: INPUT_TENSOR } sinceVersion: 3 }\n"
                  "opList { name: 'relu' deprecated: true } # mine")));
  CHECK(mine.all().size() == 706);
  CHECK(mine.find("my_op")->since_version == 3);
  CHECK(mine.find("relu")->deprecated);
  CHECK(mine.find("relu")->arguments.empty());
  CHECK(std::is_sorted(mine.all().begin(), mine.all().end(), [](auto& a, auto& b) { return a.name < b.name; }));

  // Defaults of every type; the order of the file does not matter.
  const OperatorSet set = good(opened(operators_with(R"(
      argDescriptor { name: "r" argType: FLOAT argIndex: 1 argOptional: true hasDefault: true floatValue: 0.5 }
      argDescriptor { name: "n" argType: INT32 argOptional: true hasDefault: true int32Value: -3 }
      argDescriptor { name: "q" argType: DOUBLE argOptional: true hasDefault: true }
      argDescriptor { name: "b" argType: BOOL argOptional: true hasDefault: true boolValue: true })")));
  const auto& arguments = set.find("op")->arguments;
  REQUIRE(arguments.size() == 4);
  CHECK(std::get<std::int64_t>(arguments[0].default_value) == -3);
  CHECK(std::get<double>(arguments[1].default_value) == 0);
  CHECK(std::get<double>(arguments[2].default_value) == 0.5);
  CHECK(std::get<bool>(arguments[3].default_value));
}

TEST_CASE("operators: text that is wrong") {
  const auto error = [](const std::string& text) { return bad(opened(text)); };
  CHECK(error("opList {\n  nam: 'a' }").code() == Errc::malformed);
  CHECK(std::string(error("opList {\n  nam: 'a' }").found()).find("line 2") != std::string::npos);
  for (const std::string text :
       {"opList {", "opList { }", "opList { name: 'a' opDeclarationType: 5 }", "\xff", "{", "opList: 1",
        "opList { name: 'a' opDeclarationType: 1000 }", "opList { name: '\xff' }"}) {
    CAPTURE(text);
    CHECK(error(text).code() == Errc::malformed);
  }
  for (const char* text :
       {"argDescriptor { }", "argDescriptor { name: 'x' argType: 9 }", "argDescriptor { name: 'x' argIndex: 1 }",
        "argDescriptor { name: 'x' argIndex: -1 }", "argDescriptor { name: 'x' hasDefault: true }",
        "argDescriptor { name: 'x' argType: STRING argOptional: true hasDefault: true }",
        "argDescriptor { name: 'x' argType: INPUT_TENSOR argOptional: true presentIf: 'y' }",
        "argDescriptor { name: 'x' } argDescriptor { name: 'y' }"}) {
    CAPTURE(text);
    const stele::Error e = error(operators_with(text));
    CHECK(e.code() == Errc::malformed);
    CHECK(e.path().starts_with("op"));
  }
  CHECK(error("opList { name: 'a' } opList { name: 'a' }").code() == Errc::duplicate);
  CHECK(error(operators_with("argDescriptor { name: 'x' } argDescriptor { name: 'x' argIndex: 1 }")).code() ==
        Errc::duplicate);
  CHECK(error(std::string((1 << 20) + 1, ' ')).code() == Errc::limit);
  std::string many;
  for (int i = 0; i <= 1000; ++i)
    many += "argDescriptor { name: 'a" + std::to_string(i) + "' argIndex: " + std::to_string(i) + " } ";
  CHECK(error(operators_with(many)).code() == Errc::limit);
  CHECK(OperatorSet::open("no such file").error().code() == Errc::not_found);
  CHECK(opened("").value().all().empty());
}

TEST_CASE("operators: names, order and types of the table of facts") {
  const auto path = shared_file("reference/nd4j-op-descriptors.tsv");
  if (!path) return;
  std::ifstream table(*path);
  std::size_t operators = 0, arguments = 0;
  for (std::string line; std::getline(table, line);) {
    if (line.starts_with('#')) continue;
    std::vector<std::string> fields;
    std::istringstream text(line);
    for (std::string field; std::getline(text, field, '\t');) fields.push_back(field);
    const OperatorDescriptor& o = op(fields.at(0));
    CAPTURE(o.name);
    ++operators;
    constexpr ArgumentType types[] = {ArgumentType::input, ArgumentType::output,  ArgumentType::integer,
                                      ArgumentType::real,  ArgumentType::boolean, ArgumentType::dtype,
                                      ArgumentType::string};
    for (std::size_t column = 2; column < fields.size(); ++column) {
      std::vector<std::string> ours;
      for (const ArgumentDescriptor& a : o.arguments) {
        if (a.type == types[column - 2]) ours.push_back(a.name);
      }
      std::istringstream list(fields[column]);
      for (std::string item; std::getline(list, item, ','); ++arguments) {
        const std::size_t colon = item.find(':');
        const auto position = static_cast<std::size_t>(std::stoul(item));
        CHECK(ours.at(position) == item.substr(colon + 1));
      }
    }
  }
  CHECK(operators == OperatorSet::nd4j().all().size());
  CHECK(arguments == 4158);
}

}  // namespace operators_test
