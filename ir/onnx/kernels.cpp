// Reads the table of the dtypes on which onnxruntime runs operators, and chooses dtypes for nodes.
#include "ir/onnx/kernels.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "base/dtypes.hpp"

namespace stele::inline v0::detail {
extern const std::span<const unsigned char> onnxruntime_kernels;
}

namespace stele::inline v0::detail::ir {

namespace {

/// One line of the table: products of dtypes.
struct Kernel {
  struct Port {
    std::string_view kind;  // a variable, a dtype, or "?": any
    bool rest = false;      // stands for all remaining inputs
  };
  std::vector<Port> inputs, outputs;
  std::map<std::string_view, std::vector<DType>> variables;
};
using Versions = std::map<std::int64_t, std::vector<Kernel>>;  // by the first version

std::string_view taken(std::string_view& from, char until) {
  const std::size_t end = std::min(from.find(until), from.size());
  const std::string_view part = from.substr(0, end);
  from.remove_prefix(std::min(end + 1, from.size()));
  return part;
}

std::vector<Kernel::Port> ports(std::string_view text) {
  std::vector<Kernel::Port> all;
  while (!text.empty()) {
    std::string_view kind = taken(text, ',');
    const bool rest = kind.ends_with('*');
    if (rest) kind.remove_suffix(1);
    all.push_back({kind, rest});
  }
  return all;
}

std::map<std::string_view, Versions> parsed(std::string_view table) {
  std::map<std::string_view, Versions> all;
  while (!table.empty()) {
    std::string_view line = taken(table, '\n');
    if (line.starts_with('#')) continue;
    const std::string_view op = taken(line, ' ');
    std::int64_t since = 0;
    const std::string_view version = taken(line, ' ');
    std::from_chars(version.data(), version.data() + version.size(), since);
    Kernel& kernel = all[op][since].emplace_back();
    std::string_view signature = taken(line, ' ');
    kernel.inputs = ports(taken(signature, '>'));
    kernel.outputs = ports(signature);
    while (!line.empty()) {
      std::string_view values = taken(line, ' ');
      std::vector<DType>& dtypes = kernel.variables[taken(values, '=')];
      while (!values.empty()) dtypes.push_back(dtype_named(taken(values, ',')));
    }
  }
  return all;
}

constexpr int lossy = 100;  // more than all exact casts of a node cost

/// The dtypes that may replace one, from the best: exact ones, then the ones that lose digits.
struct Wider {
  std::vector<DType> exact, inexact;
};
const Wider& wider(DType dtype) {
  using enum DType;
  static const std::map<DType, Wider> all = {
      {boolean, {{u8, i32, i64, f32}, {}}},
      {i8, {{i16, i32, i64, f32, f64}, {}}},
      {i16, {{i32, i64, f32, f64}, {}}},
      {i32, {{i64, f64}, {f32}}},
      {i64, {{}, {f64, f32}}},
      {u8, {{u16, u32, u64, i16, i32, i64, f32, f64}, {}}},
      {u16, {{u32, u64, i32, i64, f32, f64}, {}}},
      {u32, {{u64, i64, f64}, {f32}}},
      {u64, {{}, {i64, f64, f32}}},
      {f16, {{f32, f64}, {}}},
      {bf16, {{f32, f64}, {}}},
      {f32, {{f64}, {}}},
      {f64, {{}, {f32}}},
  };
  static const Wider nothing;
  const auto found = all.find(dtype);
  return found != all.end() ? found->second : nothing;
}

bool is_exact(DType from, DType to) {
  const std::vector<DType>& exact = wider(from).exact;
  return std::find(exact.begin(), exact.end(), to) != exact.end();
}

/// Returns the best of the allowed dtypes, and its cost.
std::optional<std::pair<DType, int>> best(DType given, std::span<const DType> allowed) {
  const auto is_allowed = [&](DType d) { return std::find(allowed.begin(), allowed.end(), d) != allowed.end(); };
  if (given == DType::none || is_allowed(given)) return std::pair(given, 0);
  int cost = 1;
  for (const DType d : wider(given).exact) {
    if (is_allowed(d)) return std::pair(d, cost);
    ++cost;
  }
  for (const DType d : wider(given).inexact) {
    if (is_allowed(d)) return std::pair(d, cost + lossy);
    ++cost;
  }
  return std::nullopt;
}

const Kernel::Port* port_of(const std::vector<Kernel::Port>& ports, std::size_t i) {
  if (i < ports.size()) return &ports[i];
  return !ports.empty() && ports.back().rest ? &ports.back() : nullptr;
}

/// Returns the operands that a kernel takes in place of the given ones, and their cost.
std::optional<std::pair<Operands, int>> fitted(const Kernel& kernel, const Operands& given) {
  struct Choice {
    DType given, dtype;  // of the operands, the kernel's
  };
  std::map<std::string_view, Choice> chosen;  // by variable
  const auto choose = [&](const std::vector<Kernel::Port>& ports, const std::vector<DType>& dtypes) {
    for (std::size_t i = 0; i < dtypes.size(); ++i) {
      const Kernel::Port* const port = port_of(ports, i);
      if (port == nullptr || dtypes[i] == DType::none) continue;
      const auto variable = kernel.variables.find(port->kind);
      if (variable == kernel.variables.end()) continue;
      const auto earlier = chosen.find(port->kind);
      if (earlier != chosen.end() && !is_exact(earlier->second.given, dtypes[i])) continue;
      const auto dtype = best(dtypes[i], variable->second);
      if (!dtype) return false;
      chosen[port->kind] = {dtypes[i], dtype->first};
    }
    return true;
  };
  if (!choose(kernel.inputs, given.inputs)) return std::nullopt;
  const auto bound = chosen;
  if (!choose(kernel.outputs, given.outputs)) return std::nullopt;
  for (const auto& [variable, choice] : bound) chosen[variable] = choice;  // inputs decide
  Operands fit = given;
  int cost = 0;
  for (std::size_t i = 0; i < fit.inputs.size(); ++i) {
    const Kernel::Port* const port = port_of(kernel.inputs, i);
    if (port == nullptr || fit.inputs[i] == DType::none) continue;
    const auto variable = chosen.find(port->kind);
    const DType wanted = variable != chosen.end() ? variable->second.dtype : dtype_named(port->kind);
    if (wanted == DType::none) continue;
    const auto dtype = best(fit.inputs[i], std::span(&wanted, 1));
    const bool other = variable == chosen.end() || variable->second.given != fit.inputs[i];
    if (!dtype || (other && dtype->second >= lossy)) return std::nullopt;
    fit.inputs[i] = wanted;
    cost += dtype->second;
  }
  for (std::size_t i = 0; i < fit.outputs.size(); ++i) {
    const Kernel::Port* const port = port_of(kernel.outputs, i);
    const auto variable = port != nullptr ? chosen.find(port->kind) : chosen.end();
    if (variable == chosen.end() || fit.outputs[i] == DType::none || fit.inputs == given.inputs) continue;
    fit.outputs[i] = variable->second.dtype;
  }
  return std::pair(std::move(fit), cost);
}

}  // namespace

std::optional<Runnable> runnable(std::string_view op, std::int64_t opset, const Operands& given) {
  static const std::map<std::string_view, Versions> table =
      parsed({reinterpret_cast<const char*>(onnxruntime_kernels.data()), onnxruntime_kernels.size()});
  const auto versions = table.find(op);
  if (versions == table.end()) return std::nullopt;
  const auto after = versions->second.upper_bound(opset);
  if (after == versions->second.begin()) return std::nullopt;
  std::optional<std::pair<Operands, int>> least;
  for (const Kernel& kernel : std::prev(after)->second) {
    auto fit = fitted(kernel, given);
    if (fit && (!least || fit->second < least->second)) least = std::move(fit);
  }
  if (!least) return std::nullopt;
  return Runnable{std::move(least->first), least->second < lossy};
}

}  // namespace stele::inline v0::detail::ir
