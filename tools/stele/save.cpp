#include "commands.hpp"

#include <stele/composite.hpp>
#include <stele/pattern.hpp>
#include <stele/precision/blocks.hpp>
#include <stele/quantize.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/gguf.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/transform.hpp>

#include <algorithm>
#include <charconv>
#include <vector>

#include "snapshot/undecoded.hpp"

namespace stele::command {

namespace {

/// Returns a rule for each dtype of blocks that can be written.
const std::vector<BlockRule>& block_rules() {
  static const std::vector<BlockRule> rules = [] {
    std::vector<BlockRule> all;
    for (unsigned code = 0; code <= 0xff; ++code) {
      if (const auto dtype = static_cast<DType>(code); encodable(dtype)) all.push_back({"*", dtype});
    }
    return all;
  }();
  return rules;
}

/// Returns the names that an error expected: "a, b".
void add_expected(std::vector<std::string>& names, const Error& error) {
  std::string_view rest = error.expected();
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(", "), rest.size());
    names.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 2, rest.size()));
  }
}

}  // namespace

std::vector<std::string> precision_names() {
  std::vector<std::string> names{"f64", "f32", "f16", "bf16"};
  for (const BlockRule& rule : block_rules()) names.emplace_back(v0::name(rule.dtype));
  add_expected(names, quantize_gguf(Snapshot(), "").error());
  return names;
}

std::vector<std::string> scheme_names() {
  std::vector<std::string> names;
  add_expected(names, quantize_weights(Snapshot(), {}).error());
  return names;
}

bool names_mixture(const std::string& precision) noexcept {
  return !precision.empty() && precision[0] >= 'A' && precision[0] <= 'Z';
}

Result<PrecisionSpec> parse_precision(const std::string& name) {
  if (name.empty() || name == "native") return PrecisionSpec{};
  // Also by the names of NumPy and PyTorch.
  static constexpr std::pair<std::string_view, DType> floats[] = {
      {"f64", DType::f64},     {"float64", DType::f64}, {"double", DType::f64},    {"f32", DType::f32},
      {"float32", DType::f32}, {"float", DType::f32},   {"f16", DType::f16},       {"float16", DType::f16},
      {"half", DType::f16},    {"bf16", DType::bf16},   {"bfloat16", DType::bf16},
  };
  for (const auto& [other, dtype] : floats) {
    if (other == name) return PrecisionSpec{dtype};
  }
  for (const BlockRule& rule : block_rules()) {
    if (v0::name(rule.dtype) != name) continue;
    PrecisionSpec blocks;
    blocks.block_rules = std::span(&rule, 1);
    return blocks;
  }
  return Error(Errc::invalid_argument, "no such precision")
      .expected("f64, f32, f16, bf16, native, or a block dtype that can be written, such as q8_0 or q4_K")
      .found(name);
}

Result<Snapshot> at_precision(const Snapshot& snapshot, const std::string& name, const ConvertRules& rules,
                              Report& report) {
  STELE_TRY_ASSIGN(const PrecisionSpec spec, parse_precision(name));
  if (!(spec == PrecisionSpec())) STELE_TRY(detail::check_decoded(snapshot));
  if (spec.block_rules.empty()) return with_precision(snapshot, spec, rules);
  STELE_TRY_ASSIGN(Snapshot blocks, quantize_blocks(snapshot, spec.block_rules, &report));
  if (report.count(Report::What::quantized) + report.count(Report::What::kept) != 0) return blocks;
  return Error(Errc::invalid_argument, "no tensor can have this precision, which is of matrices of floats").found(name);
}

namespace {

/// Parses a scheme, such as nvfp4 or int4:64.
Result<WeightScheme> parse_scheme(const std::string& text) {
  WeightScheme scheme;
  const std::size_t colon = text.find(':');
  scheme.name = text.substr(0, colon);
  if (colon == text.npos) return scheme;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + colon + 1, end, scheme.group);
  if (read.ec == std::errc() && read.ptr == end && scheme.group != 0) return scheme;
  return Error(Errc::invalid_argument, "not a group of a scheme").expected("a number, as in int4:64").found(text);
}

}  // namespace

Result<Snapshot> quantized(const Snapshot& parameters, const Convert& options, const Format& target,
                           PrecisionSpec& spec, Report& rows) {
  const std::string& how = options.quantize;
  const bool bits = how.size() == 1 && how[0] >= '2' && how[0] <= '8';
  const bool mixture = names_mixture(options.precision);
  if (!mixture) {
    STELE_TRY_ASSIGN(spec, parse_precision(options.precision));
  }
  if (how.empty() || bits) {
    spec.quantized_bits = bits ? static_cast<unsigned>(how[0] - '0') : 0;
    return mixture ? quantize_gguf(parameters, options.precision) : Result<Snapshot>(parameters);
  }
  STELE_TRY_ASSIGN(const WeightScheme scheme, parse_scheme(how));
  if (mixture || !spec.block_rules.empty()) {
    return Error(Errc::invalid_argument, "--precision has blocks, and --quantize a scheme")
        .found(options.precision + " and " + how);
  }
  if (!target.capabilities().composites) {
    return Error(Errc::not_representable, "files of the format do not hold the parts of quantized weights")
        .expected("safetensors, a folder of the hub, .stele, .npz or .pt")
        .found(target.name());
  }
  ConvertRules convert;
  convert.allow_overflow = options.allow_overflow;
  const Snapshot floats = with_precision(parameters, spec, convert);
  spec = {};  // done, so that the codes of weights stay
  return quantize_weights(floats, scheme, &rows);
}

Result<Snapshot> quantized_for_llama_cpp(const Snapshot& model, const Convert& options, Report& rows) {
  const auto refused = [](const char* what, const std::string& found) {
    return Error(Errc::invalid_argument, "llama.cpp has no such precision")
        .expected("f32, f16, bf16, blocks such as q8_0, or a mixture such as Q4_K_M")
        .found(std::string(what) + found);
  };
  const std::string& name = options.precision;
  if (!options.quantize.empty()) return refused("--quantize ", options.quantize);
  if (names_mixture(name)) return quantize_gguf(model, name);
  STELE_TRY_ASSIGN(const PrecisionSpec spec, parse_precision(name));
  if (spec == PrecisionSpec()) return model;
  if (spec.block_rules.empty()) {
    if (spec.floating == DType::f64) return refused("", name);
    std::string mixture = name;
    std::transform(name.begin(), name.end(), mixture.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
    return quantize_gguf(model, mixture);
  }
  // The matrices that quantize_gguf() keeps.
  const BlockRule rules[] = {{"*_norm.weight", DType::f32},
                             {"*.ffn_gate_inp.weight", DType::f32},
                             {"position_embd.weight", DType::f32},
                             spec.block_rules[0]};
  const auto kept = std::span(rules).first(std::size(rules) - 1);
  for (std::size_t i = 0; i < model.leaf_count(); ++i) {
    const LeafView leaf = model.leaf(i);
    const std::string path = leaf.path();
    const auto keeps = [&](const BlockRule& rule) { return matches(rule.pattern, path); };
    if (leaf.shape().size() < 2 || std::none_of(kept.begin(), kept.end(), keeps)) continue;
    rows.add(Report::What::kept, path, "f32, not " + name + ": llama.cpp keeps this tensor's precision");
  }
  return quantize_blocks(model, rules);
}

Report losses_of(const Checkpoint& checkpoint) {
  Report losses;
  // A SameDiff file always has a graph, at least of its variables.
  if (checkpoint.graph && !checkpoint.graph->operations.empty()) losses.add(Report::What::lost, "", "the graph");
  if (checkpoint.training) losses.add(Report::What::lost, "", "the training configuration");
  for (const auto& [kind, state] : checkpoint.optimizer.kinds()) {
    losses.add(Report::What::lost, kind, "optimizer state of " + std::to_string(state.leaf_count()) + " tensors");
  }
  return losses;
}

Result<std::vector<std::string>> other_tags(const Model& model, const Opening& opening) {
  if (model.format->name() != "archive") return std::vector<std::string>();
  STELE_TRY_ASSIGN(std::vector<std::string> tags, tags_of(input_of(model.path)));
  if (opening.tag.empty() && !tags.empty()) tags.pop_back();  // the last one is read
  std::erase(tags, opening.tag);
  return tags;
}

Result<Report> losses_of_tags(const Model& model, const Opening& opening) {
  Report losses;
  if (!opening.tag.empty()) return losses;
  STELE_TRY_ASSIGN(const auto tags, other_tags(model, opening));
  for (const std::string& tag : tags)
    losses.add(Report::What::lost, tag, "another tag of the archive; --tag chooses one");
  return losses;
}

Result<Report> losses_of(const Model& model, const Opening& opening, bool allow_loss, unsigned threads) {
  if (!allow_loss) {
    STELE_TRY_ASSIGN(const auto checkpoint, checkpoint_of(model, opening, threads));
    if (checkpoint) STELE_TRY(check_losses(false, losses_of(*checkpoint)));
  }
  return losses_of_tags(model, opening);
}

Status check_losses(bool allow_loss, const Report& losses) {
  if (allow_loss) return {};
  for (std::size_t i = 0; i < losses.size(); ++i) {
    if (losses[i].what == Report::What::unused) continue;  // the imported graph is complete
    const std::size_t others = losses.count(Report::What::lost) - (losses[i].what == Report::What::lost ? 1 : 0);
    const std::string more = others != 0 ? " (and " + std::to_string(others) + " more)" : "";
    return Error(Errc::not_representable, "the target would not hold all of the file" + more)
        .path(losses[i].path)
        .found(losses[i].detail)
        .hint("pass --allow-loss to leave it out");
  }
  return {};
}

void add_rows(Report& to, const Report& from) {
  for (std::size_t i = 0; i < from.size(); ++i) to.add(from[i].what, from[i].path, from[i].detail);
}

Result<Report> save_to(Target& target, const Snapshot& snapshot, Terminal& terminal) {
  if (is_hub(target.to, target.path, target.like)) target.to = HubFormat().name();
  STELE_TRY_ASSIGN(const auto format, format_to_write(target.to, target.path, target.like));
  STELE_TRY_ASSIGN(target.path, output_path(*format, target.path));
  STELE_TRY(check_output(target.path));
  STELE_TRY(check_losses(target.save.allow_loss, target.losses));
  Progress progress(terminal, "writing");
  SaveOptions options = target.save;
  options.format = format.get();
  options.precision = target.precision;
  options.threads = terminal.common().threads;
  options.progress = progress.callback();
  STELE_TRY_ASSIGN(const Report report, save(snapshot, target.path, options));
  Report rows = target.losses;
  add_rows(rows, report);
  return rows;
}

}  // namespace stele::command
