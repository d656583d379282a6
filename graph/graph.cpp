#include "stele/graph.hpp"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace stele::inline v0 {

Graph::Graph() = default;
Graph::Graph(const Graph&) = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(const Graph&) = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;
bool operator==(const Graph& a, const Graph& b) {
  return a.variables == b.variables && a.operations == b.operations && a.loss_variables == b.loss_variables &&
         a.outputs == b.outputs && a.sub_graphs == b.sub_graphs;
}

const GraphVariable* Graph::find_variable(std::string_view name) const noexcept {
  const auto found = std::find_if(variables.begin(), variables.end(), [&](const auto& v) { return v.name == name; });
  return found != variables.end() ? &*found : nullptr;
}

const GraphOperation* Graph::find_operation(std::string_view name) const noexcept {
  const auto found = std::find_if(operations.begin(), operations.end(), [&](const auto& o) { return o.name == name; });
  return found != operations.end() ? &*found : nullptr;
}

Result<std::vector<std::size_t>> Graph::order() const {
  constexpr std::size_t no_operation = SIZE_MAX;
  std::unordered_map<std::string_view, std::size_t> maker;  // the operation that computes each variable
  maker.reserve(variables.size());
  for (const GraphVariable& v : variables) {
    if (!maker.emplace(v.name, no_operation).second) {
      return Error(Errc::duplicate, "two variables have the same name").path(v.name);
    }
  }
  std::unordered_map<std::string_view, std::size_t> number;
  number.reserve(operations.size());
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (!number.emplace(operations[i].name, i).second) {
      return Error(Errc::duplicate, "two operations have the same name").path(operations[i].name);
    }
    for (const std::string& name : operations[i].outputs) {
      const auto found = maker.find(name);
      if (found == maker.end())
        return Error(Errc::malformed, "an output of the operation is not a variable").path(name);
      if (found->second != no_operation)
        return Error(Errc::malformed, "two operations have the variable as an output").path(name);
      found->second = i;
    }
  }
  // Depth-first, without recursion. Does not enter an operation in progress again, which cuts each loop once.
  std::vector<std::size_t> sorted;
  sorted.reserve(operations.size());
  std::vector<std::uint8_t> seen(operations.size());
  struct Open {
    std::size_t operation, input, dependency, variable;
  };
  std::vector<Open> open;
  const auto enter = [&](std::size_t i) {
    if (i == no_operation || seen[i] != 0) return;
    seen[i] = 1;
    open.push_back({i, 0, 0, 0});
  };
  for (std::size_t first = 0; first < operations.size(); ++first) {
    enter(first);
    while (!open.empty()) {
      Open& at = open.back();
      const GraphOperation& op = operations[at.operation];
      const auto variable = [&](const std::string& name) -> Result<std::size_t> {
        const auto found = maker.find(name);
        if (found == maker.end()) {
          return Error(Errc::malformed, "an input of an operation is not a variable")
              .path(name)
              .found("operation " + op.name);
        }
        return found->second;
      };
      if (at.input < op.inputs.size()) {
        STELE_TRY_ASSIGN(const std::size_t made, variable(op.inputs[at.input++]));
        enter(made);
      } else if (at.variable < op.var_control_dependencies.size()) {
        STELE_TRY_ASSIGN(const std::size_t made, variable(op.var_control_dependencies[at.variable++]));
        enter(made);
      } else if (at.dependency < op.control_dependencies.size()) {
        const auto found = number.find(op.control_dependencies[at.dependency++]);
        if (found != number.end()) enter(found->second);
      } else {
        sorted.push_back(at.operation);
        open.pop_back();
      }
    }
  }
  return sorted;
}

std::int64_t operation_hash(std::string_view op_name) noexcept {
  static const std::array<std::uint64_t, 256> table = [] {
    std::array<std::uint64_t, 256> t{};
    std::uint64_t h = 0x544B2FBACAAF1684ULL;
    for (std::uint64_t& entry : t) {
      for (int i = 0; i < 31; ++i) {
        h ^= h >> 7;
        h ^= h << 11;
        h ^= h >> 10;
      }
      entry = h;
    }
    return t;
  }();
  constexpr std::uint64_t factor = 7664345821815920749ULL;
  std::uint64_t h = 0xBB40E64DA205B064ULL;
  for (const char c : op_name) {
    h = (h * factor) ^ table[static_cast<unsigned char>(c)];
    h = (h * factor) ^ table[0];
  }
  return static_cast<std::int64_t>(h);
}

}  // namespace stele::inline v0
