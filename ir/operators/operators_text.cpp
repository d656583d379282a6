// Reads and writes files of operator descriptors.
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <utility>

#include "ir/proto/op.pb.h"
#include "ir/proto/text_format.hpp"
#include "json/json.hpp"
#include "stele/operators.hpp"

namespace stele::inline v0 {

namespace {

namespace proto = stele::ir;

/// Maximum number of arguments of an operator: bounds the time, because arguments are searched one by one.
constexpr int max_arguments = 1000;

Error bad(std::string_view op, std::string_view argument, std::string_view message) {
  std::string path(op);
  if (!argument.empty()) path.append(".").append(argument);
  return Error(Errc::malformed, message).path(path);
}

Result<ArgumentType> type_of(proto::ArgDescriptor::ArgType type) {
  switch (type) {
    case proto::ArgDescriptor::FLOAT:
    case proto::ArgDescriptor::DOUBLE:
      return ArgumentType::real;
    case proto::ArgDescriptor::INT32:
    case proto::ArgDescriptor::INT64:
      return ArgumentType::integer;
    case proto::ArgDescriptor::BOOL:
      return ArgumentType::boolean;
    case proto::ArgDescriptor::DATA_TYPE:
      return ArgumentType::dtype;
    case proto::ArgDescriptor::INPUT_TENSOR:
      return ArgumentType::input;
    case proto::ArgDescriptor::OUTPUT_TENSOR:
      return ArgumentType::output;
    case proto::ArgDescriptor::STRING:
      return ArgumentType::string;
    default:
      return Error(Errc::malformed, "the argument has an unknown type");
  }
}

proto::ArgDescriptor::ArgType type_of(ArgumentType type) {
  switch (type) {
    case ArgumentType::input:
      return proto::ArgDescriptor::INPUT_TENSOR;
    case ArgumentType::output:
      return proto::ArgDescriptor::OUTPUT_TENSOR;
    case ArgumentType::integer:
      return proto::ArgDescriptor::INT64;
    case ArgumentType::real:
      return proto::ArgDescriptor::DOUBLE;
    case ArgumentType::boolean:
      return proto::ArgDescriptor::BOOL;
    case ArgumentType::dtype:
      return proto::ArgDescriptor::DATA_TYPE;
    default:
      return proto::ArgDescriptor::STRING;
  }
}

Result<ArgumentDescriptor> argument_of(const std::string& op, const proto::ArgDescriptor& from) {
  ArgumentDescriptor to;
  to.name = from.name();
  if (to.name.empty()) return bad(op, "", "an argument has no name");
  if (!detail::json::valid_utf8(to.name)) return bad(op, "", "the name of an argument is not UTF-8");
  auto type = type_of(from.argtype());
  if (!type) return bad(op, to.name, type.error().message());
  to.type = *type;
  to.optional = from.argoptional();
  to.repeated = from.isarray();
  to.present_if = from.presentif();
  if (!from.hasdefault()) return to;
  const bool narrow = from.argtype() == proto::ArgDescriptor::FLOAT || from.argtype() == proto::ArgDescriptor::INT32;
  if (to.type == ArgumentType::integer) {
    to.default_value = narrow ? std::int64_t{from.int32value()} : std::int64_t{from.int64value()};
  } else if (to.type == ArgumentType::real) {
    to.default_value = narrow ? double{from.floatvalue()} : from.doublevalue();
  } else if (to.type == ArgumentType::boolean) {
    to.default_value = from.boolvalue();
  } else {
    return bad(op, to.name, "an argument of this type cannot have a default");
  }
  if (!to.optional) return bad(op, to.name, "a required argument has a default");
  return to;
}

Result<OperatorDescriptor> operator_of(const proto::OpDescriptor& from) {
  OperatorDescriptor to;
  to.name = from.name();
  if (to.name.empty()) return Error(Errc::malformed, "an operator has no name");
  if (!detail::json::valid_utf8(to.name)) return Error(Errc::malformed, "the name of an operator is not UTF-8");
  if (!proto::OpDescriptor::OpDeclarationType_IsValid(from.opdeclarationtype())) {
    return bad(to.name, "", "the operator has an unknown declaration");
  }
  if (from.argdescriptor_size() > max_arguments) {
    return Error(Errc::limit, "the operator has too many arguments")
        .path(to.name)
        .expected("at most " + std::to_string(max_arguments))
        .found(std::to_string(from.argdescriptor_size()));
  }
  to.declaration = static_cast<OperatorDeclaration>(from.opdeclarationtype());
  to.since_version = from.sinceversion();
  to.deprecated = from.deprecated();
  if (!proto::OpDescriptor::OpFamily_IsValid(from.opfamily())) {
    return bad(to.name, "", "the operator has an unknown family");
  }
  if (from.opfamily() != proto::OpDescriptor::CUSTOM) to.family = static_cast<OpFamily>(from.opfamily() - 1);
  to.number = from.opnumber();
  // Sorts by type, then by position.
  std::vector<std::pair<std::pair<ArgumentType, std::int32_t>, ArgumentDescriptor>> arguments;
  for (const proto::ArgDescriptor& argument : from.argdescriptor()) {
    STELE_TRY_ASSIGN(ArgumentDescriptor a, argument_of(to.name, argument));
    const ArgumentType type = a.type;
    arguments.emplace_back(std::pair(type, argument.argindex()), std::move(a));
  }
  std::stable_sort(arguments.begin(), arguments.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::int32_t next = 0;
  for (auto& [place, argument] : arguments) {
    if (to.arguments.empty() || to.arguments.back().type != place.first) next = 0;
    if (place.second != next++) {
      return bad(to.name, argument.name, "the positions of this type are not 0, 1, 2, and so on")
          .expected(std::to_string(next - 1))
          .found(std::to_string(place.second));
    }
    to.arguments.push_back(std::move(argument));
  }
  std::vector<std::pair<ArgumentType, std::string_view>> names;
  for (const ArgumentDescriptor& a : to.arguments) names.emplace_back(a.type, a.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    return Error(Errc::duplicate, "two arguments of one type have the same name")
        .path(to.name + '.' + std::string(twice->second));
  }
  for (const ArgumentDescriptor& a : to.arguments) {
    if (a.present_if.empty()) continue;
    const auto has = [&](ArgumentType type) {
      return std::binary_search(names.begin(), names.end(), std::pair(type, std::string_view(a.present_if)));
    };
    const bool tensor = a.type == ArgumentType::input || a.type == ArgumentType::output;
    if (!tensor || !a.optional || (!has(ArgumentType::integer) && !has(ArgumentType::boolean))) {
      return bad(to.name, a.name,
                 "presentIf must be on an optional input or output, and name an integer or boolean argument")
          .found(a.present_if);
    }
  }
  return to;
}

Result<std::vector<OperatorDescriptor>> operators_of(const proto::OpDescriptorList& list) {
  std::vector<OperatorDescriptor> all;
  all.reserve(static_cast<std::size_t>(list.oplist_size()));
  for (const proto::OpDescriptor& op : list.oplist()) {
    STELE_TRY_ASSIGN(OperatorDescriptor one, operator_of(op));
    all.push_back(std::move(one));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice != all.end()) return Error(Errc::duplicate, "two operators have the same name").path(twice->name);
  return all;
}

void put(const ArgumentDescriptor& from, std::int32_t position, bool for_dl4j, proto::ArgDescriptor& to) {
  to.set_name(from.name);
  to.set_argtype(type_of(from.type));
  to.set_argindex(position);
  to.set_argoptional(from.optional);
  to.set_isarray(from.repeated);
  if (for_dl4j) return;
  to.set_presentif(from.present_if);
  to.set_hasdefault(from.default_value.index() != 0);
  if (const auto* i = std::get_if<std::int64_t>(&from.default_value)) to.set_int64value(*i);
  if (const auto* d = std::get_if<double>(&from.default_value)) to.set_doublevalue(*d);
  if (const auto* b = std::get_if<bool>(&from.default_value)) to.set_boolvalue(*b);
}

}  // namespace

namespace detail {

/// data/operators.pbtxt, encoded in protobuf's binary format.
extern const std::span<const unsigned char> nd4j_operators;

}  // namespace detail

const OperatorSet& OperatorSet::nd4j() {
  static const OperatorSet set = [] {
    proto::OpDescriptorList list;
    OperatorSet all;
    const auto bytes = detail::nd4j_operators;
    if (list.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      if (auto operators = operators_of(list)) all.operators_ = *std::move(operators);
    }
    return all;
  }();
  return set;
}

Result<OperatorSet> OperatorSet::open(const Input& input) {
  proto::OpDescriptorList list;
  STELE_TRY(detail::ir::read_text(input, list));
  auto operators = operators_of(list);
  if (!operators) return std::move(operators).error().file(input.name());
  OperatorSet set;
  set.operators_ = *std::move(operators);
  return set;
}

std::string OperatorSet::to_text(bool for_dl4j) const {
  proto::OpDescriptorList list;
  for (const OperatorDescriptor& from : operators_) {
    proto::OpDescriptor& to = *list.add_oplist();
    to.set_name(from.name);
    to.set_opdeclarationtype(static_cast<proto::OpDescriptor::OpDeclarationType>(from.declaration));
    if (!for_dl4j) {
      to.set_sinceversion(from.since_version);
      to.set_deprecated(from.deprecated);
      if (from.family != OpFamily::custom) {
        to.set_opfamily(static_cast<proto::OpDescriptor::OpFamily>(static_cast<int>(from.family) + 1));
      }
      to.set_opnumber(from.number);
    }
    std::int32_t position = 0;
    for (std::size_t i = 0; i < from.arguments.size(); ++i, ++position) {
      if (i != 0 && from.arguments[i].type != from.arguments[i - 1].type) position = 0;
      put(from.arguments[i], position, for_dl4j, *to.add_argdescriptor());
    }
  }
  std::string text;
  google::protobuf::TextFormat::PrintToString(list, &text);
  return text;
}

}  // namespace stele::inline v0
