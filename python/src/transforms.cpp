// Model -> Model, lazily: stele/transform.hpp and stele/quantize.hpp.
#include <stele/composite.hpp>
#include <stele/delta.hpp>
#include <stele/quantize.hpp>
#include <stele/recorders/gguf.hpp>
#include <stele/transform.hpp>
#include <stele/transforms/lora.hpp>

#include "bindings.hpp"
#include "commands.hpp"

namespace stele::python {

namespace {

template <class F>
Model transformed(const Model& model, F f) {
  Snapshot result =
      unwrap(without_gil([&] { return detail::guarded([&]() -> Result<Snapshot> { return f(model.snapshot()); }); }));
  return {std::move(result), nullptr};
}

std::vector<Snapshot> snapshots_of(const nb::list& models) {
  std::vector<Snapshot> all;
  for (const nb::handle model : models) all.push_back(nb::cast<const Model*>(model)->snapshot());
  return all;
}

}  // namespace

void bind_transforms(nb::module_& module) {
  using Texts = std::vector<std::string>;
  module.def("filter", [](const Model& model, Texts include, Texts exclude) {
    return transformed(model, [&](const Snapshot& s) {
      return filter(s, Filter{std::move(include), std::move(exclude), {}});
    });
  });
  module.def("rename", [](const Model& model, const Texts& patterns, const Texts& replacements) {
    std::vector<Rename> rules;
    for (std::size_t i = 0; i < patterns.size(); ++i) rules.push_back({patterns[i], replacements.at(i)});
    return transformed(model, [&](const Snapshot& s) { return rename(s, rules); });
  });
  module.def("adapt", [](const Model& model) {
    return transformed(model, [](const Snapshot& s) { return command::adapted(s); });
  });
  module.def("part", [](const Model& model, const std::string& path) {
    return transformed(model, [&](const Snapshot& s) { return part(s, path); });
  });
  module.def("with_prefix", [](const Model& model, const std::string& path) {
    return transformed(model, [&](const Snapshot& s) { return with_prefix(s, path); });
  });
  module.def("transpose", [](const Model& model, const std::string& pattern, const std::vector<std::size_t>& axes) {
    return transformed(model, [&](const Snapshot& s) { return transpose(s, pattern, axes); });
  });
  module.def("reshape", [](const Model& model, const std::string& pattern, const std::vector<Extent>& shape) {
    return transformed(model, [&](const Snapshot& s) { return reshape(s, pattern, shape); });
  });
  module.def("merge", [](const nb::list& models) {
    const auto all = snapshots_of(models);
    return transformed(Model(Snapshot(), nullptr), [&](const Snapshot&) { return merge(all); });
  });
  module.def("overlay", [](const nb::list& models) {
    const auto all = snapshots_of(models);
    return transformed(Model(Snapshot(), nullptr), [&](const Snapshot&) { return overlay(all); });
  });
  module.def("with_precision",
             [](const Model& model, const std::string& precision, const Texts& patterns, bool allow_overflow) {
               return transformed(model, [&](const Snapshot& s) -> Result<Snapshot> {
                 if (command::names_mixture(precision)) return quantize_gguf(s, precision);
                 STELE_TRY_ASSIGN(const PrecisionSpec spec, command::parse_precision(precision));
                 if (!spec.block_rules.empty()) {
                   std::vector<BlockRule> rules;
                   for (const std::string& pattern : patterns)
                     rules.push_back({pattern, spec.block_rules.front().dtype});
                   return quantize_blocks(s, patterns.empty() ? spec.block_rules : std::span<const BlockRule>(rules));
                 }
                 std::vector<PrecisionRule> rules;
                 for (const std::string& pattern : patterns) rules.push_back({pattern, spec});
                 const ConvertRules convert{.allow_overflow = allow_overflow};
                 return rules.empty() ? with_precision(s, spec, convert) : with_precision(s, rules, convert);
               });
             });
  module.def("quantize", [](const Model& model, unsigned bits, const Texts& patterns) {
    Report report;
    Model result = transformed(model, [&](const Snapshot& s) { return quantize(s, {bits, patterns}, &report); });
    return nb::make_tuple(std::move(result), to_python(report));
  });
  module.def("make_delta", [](const Model& old, const Model& next) {
    return transformed(old, [&](const Snapshot& s) { return make_delta(s, next.snapshot()); });
  });
  module.def("apply_delta", [](const Model& base, const Model& delta) {
    return transformed(base, [&](const Snapshot& s) { return apply_delta(s, delta.snapshot()); });
  });
  module.def("merge_lora", [](const Model& model, const Model& adapter, nb::handle config, bool subtract,
                              const Texts& conv1d, const Texts& linear) {
    const Value settings = to_value(config);
    const LoraOptions options{.subtract = subtract, .conv1d = conv1d, .linear = linear};
    return transformed(model, [&](const Snapshot& s) { return merge_lora(s, adapter.snapshot(), settings, options); });
  });
  module.def("split_composites", [](const Model& model) {
    return transformed(model, [](const Snapshot& s) { return split_composites(s); });
  });
  module.def("dequantize", [](const Model& model, const Texts& patterns) {
    return transformed(model, [&](const Snapshot& s) { return dequantize(s, patterns); });
  });
}

}  // namespace stele::python
