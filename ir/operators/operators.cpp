#include "stele/operators.hpp"

#include <algorithm>
#include <utility>

#include "base/similar.hpp"

namespace stele::inline v0 {

std::string_view name(ArgumentType type) noexcept {
  constexpr std::string_view names[] = {"input", "output", "integer", "real", "boolean", "dtype", "string"};
  return names[static_cast<std::size_t>(type)];
}

const ArgumentDescriptor* OperatorDescriptor::find(ArgumentType type, std::string_view wanted) const noexcept {
  const auto found = std::find_if(arguments.begin(), arguments.end(),
                                  [&](const ArgumentDescriptor& a) { return a.type == type && a.name == wanted; });
  return found != arguments.end() ? &*found : nullptr;
}

const OperatorDescriptor* OperatorSet::find(std::string_view wanted) const noexcept {
  const auto found = std::lower_bound(operators_.begin(), operators_.end(), wanted,
                                      [](const OperatorDescriptor& o, std::string_view n) { return o.name < n; });
  return found != operators_.end() && found->name == wanted ? &*found : nullptr;
}

void OperatorSet::add(const OperatorSet& operators) {
  std::vector<OperatorDescriptor> all;
  all.reserve(operators_.size() + operators.operators_.size());
  // set_union takes the first of two operators with the same name.
  std::set_union(operators.operators_.begin(), operators.operators_.end(), operators_.begin(), operators_.end(),
                 std::back_inserter(all),
                 [](const OperatorDescriptor& a, const OperatorDescriptor& b) { return a.name < b.name; });
  operators_ = std::move(all);
}

namespace {

using Type = ArgumentType;

Error argument_error(Errc code, std::string_view message, const OperatorDescriptor& of, std::string_view argument) {
  return Error(code, message).path(of.name + '.' + std::string(argument));
}

/// Returns the error for a name that no argument of the type has.
Error unknown(const OperatorDescriptor& of, Type type, std::string_view wanted) {
  std::vector<std::string> names;
  for (const ArgumentDescriptor& a : of.arguments) {
    if (a.type == type) names.push_back(a.name);
  }
  const auto same =
      std::find_if(of.arguments.begin(), of.arguments.end(), [&](const auto& a) { return a.name == wanted; });
  const bool other_type = same != of.arguments.end();
  Error error =
      argument_error(other_type ? Errc::kind_mismatch : Errc::invalid_argument,
                     other_type ? "the argument has another type" : "the operator has no such argument", of, wanted);
  if (other_type) error = std::move(error).expected(name(same->type)).found(name(type));
  if (const std::string_view near = detail::most_similar(wanted, names); !near.empty()) {
    return std::move(error).hint("did you mean " + std::string(near) + '?');
  }
  return error;
}

/// Returns false if an integer or boolean argument declares that `argument` is absent.
bool present(const ArgumentDescriptor& argument, const NamedArguments& given) {
  if (argument.present_if.empty()) return true;
  const auto is = [&](const auto& pair) { return pair.first == argument.present_if; };
  const auto i = std::find_if(given.ints.begin(), given.ints.end(), is);
  const auto b = std::find_if(given.bools.begin(), given.bools.end(), is);
  return (i != given.ints.end() && i->second != 0) || (b != given.bools.end() && b->second);
}

template <class T>
void append(GraphArguments<T>& out, std::string_view name, T value) {
  out.emplace_back(name, std::move(value));
}
void append(std::vector<std::string>& out, std::string_view, std::string value) { out.push_back(std::move(value)); }

template <class T>
const T& value_of(const std::pair<std::string, T>& argument) {
  return argument.second;
}
const std::string& value_of(const std::string& variable) { return variable; }

/// Orders the arguments of one type by their positions.
template <class T, class Out>
Status order(const OperatorDescriptor& of, Type type, const GraphArguments<T>& given, const NamedArguments& all,
             Out& out) {
  std::vector<std::vector<const std::pair<std::string, T>*>> values(of.arguments.size());
  std::size_t end = 0;  // index after the last argument that has a value
  for (const auto& argument : given) {
    const ArgumentDescriptor* const a = of.find(type, argument.first);
    if (a == nullptr) return unknown(of, type, argument.first);
    const auto i = static_cast<std::size_t>(a - of.arguments.data());
    if (!values[i].empty() && !a->repeated)
      return argument_error(Errc::duplicate, "the argument is given twice", of, a->name);
    if (!present(*a, all)) {
      return argument_error(Errc::invalid_argument, "the argument is given, but its flag is 0", of, a->name)
          .found(a->present_if);
    }
    values[i].push_back(&argument);
    end = std::max(end, i + 1);
  }
  for (std::size_t i = 0; i < of.arguments.size(); ++i) {
    const ArgumentDescriptor& a = of.arguments[i];
    if (a.type != type) continue;
    for (const auto* argument : values[i]) append(out, a.name, T(argument->second));
    const bool flagged = !a.present_if.empty() && present(a, all);
    if (!values[i].empty() || !present(a, all) || (i >= end && a.optional && !flagged)) continue;
    if (type == Type::real && all.scalar) continue;
    if (!a.optional || flagged) return argument_error(Errc::missing, "the operator needs this argument", of, a.name);
    if constexpr (std::is_arithmetic_v<T>) {
      if (const T* const value = std::get_if<T>(&a.default_value)) {
        append(out, a.name, T(*value));
        continue;
      }
    }
    return argument_error(Errc::missing, "a later argument is given, and this one has no default", of, a.name)
        .found(of.arguments[end - 1].name);
  }
  return {};
}

/// Assigns the names to the arguments of one type.
template <class List, class T>
Status name_all(const OperatorDescriptor& of, Type type, const List& values, const NamedArguments& all,
                GraphArguments<T>& out) {
  std::size_t needed = 0;  // the number of later arguments that are certainly present
  const auto sure = [&](const ArgumentDescriptor& a) {
    return a.type == type && (!a.optional || !a.present_if.empty()) && present(a, all) ? 1U : 0U;
  };
  for (const ArgumentDescriptor& a : of.arguments) needed += sure(a);
  std::size_t at = 0;
  std::string_view last;
  for (const ArgumentDescriptor& a : of.arguments) {
    needed -= sure(a);
    if (a.type != type || !present(a, all)) continue;
    last = a.name;
    if (at == values.size() && sure(a) != 0 && !(type == Type::real && all.scalar)) {
      return argument_error(Errc::missing, "the operator needs this argument", of, a.name)
          .hint("it is the " + std::string(name(type)) + " at position " + std::to_string(at));
    }
    for (std::size_t n = 0; at < values.size() && (n == 0 || (a.repeated && values.size() - at > needed)); ++n) {
      out.emplace_back(a.name, value_of(values[at++]));
    }
  }
  if (at == values.size()) return {};
  Error error = Error(Errc::invalid_argument, "the operation has more arguments of this type than its operator")
                    .path(of.name)
                    .expected(std::to_string(at))
                    .found(std::to_string(values.size()) + " of the type " + std::string(name(type)));
  return last.empty() ? std::move(error) : std::move(error).hint("the last one is " + std::string(last));
}

/// Calls `f` with each type and its lists. Inputs and outputs come last, because integers and booleans determine which
/// of them are present.
template <class F>
Status each_type(F f) {
  using Names = NamedArguments;
  using Positions = GraphOperation;
  STELE_TRY(f(Type::integer, &Names::ints, &Positions::ints));
  STELE_TRY(f(Type::real, &Names::doubles, &Positions::doubles));
  STELE_TRY(f(Type::boolean, &Names::bools, &Positions::bools));
  STELE_TRY(f(Type::dtype, &Names::dtypes, &Positions::dtypes));
  STELE_TRY(f(Type::string, &Names::strings, &Positions::strings));
  STELE_TRY(f(Type::input, &Names::inputs, &Positions::inputs));
  return f(Type::output, &Names::outputs, &Positions::outputs);
}

}  // namespace

Result<GraphOperation> ordered(const OperatorDescriptor& descriptor, const NamedArguments& arguments) {
  GraphOperation out;
  out.op_name = descriptor.name;
  out.family = descriptor.family;
  out.number = descriptor.number;
  out.dimensions = arguments.dimensions;
  out.scalar = arguments.scalar;
  STELE_TRY(each_type([&](Type type, auto names, auto positions) {
    return order(descriptor, type, arguments.*names, arguments, out.*positions);
  }));
  return out;
}

Result<NamedArguments> named(const OperatorDescriptor& descriptor, const GraphOperation& operation) {
  if (operation.op_name != descriptor.name) {
    return Error(Errc::invalid_argument, "the operation belongs to another operator")
        .path(operation.name)
        .expected(descriptor.name)
        .found(operation.op_name);
  }
  NamedArguments out;
  out.dimensions = operation.dimensions;
  out.scalar = operation.scalar;
  STELE_TRY(each_type([&](Type type, auto names, auto positions) {
    return name_all(descriptor, type, operation.*positions, out, out.*names);
  }));
  return out;
}

}  // namespace stele::inline v0
