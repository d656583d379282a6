#include <stele/bundle.hpp>
#include <stele/transforms/lora.hpp>

#include "commands.hpp"
#include "io/text.hpp"

namespace stele::command {

namespace {

/// Reads the configuration next to an adapter's tensors.
Result<Value> config_of(const std::string& adapter) {
  constexpr std::uint64_t max_bytes = std::uint64_t{4} << 20;
  STELE_TRY_ASSIGN(const SourcePtr source, input_of(adapter).open("", {}));
  const auto bundle = source->bundle();
  if (bundle == nullptr) return Error(Errc::unsupported, "the adapter is no file or folder").file(adapter);
  STELE_TRY_ASSIGN(const SourcePtr file, bundle->open("adapter_config.json"));
  STELE_TRY_ASSIGN(const std::string text, detail::read_text(*file, max_bytes, "the configuration is too large"));
  auto config = parse_json(text);
  if (!config) return std::move(config).error().file(file->name());
  return config;
}

}  // namespace

Result<int> lora(const Lora& options, Terminal& terminal) {
  Target target{options.out, options.to};
  STELE_TRY_ASSIGN(const Model model, open_model(options.model, options.opening, terminal.common().threads));
  STELE_TRY_ASSIGN(target.losses, losses_of(model, options.opening, options.allow_loss, terminal.common().threads));
  STELE_TRY_ASSIGN(const Model adapter, open_model(options.adapter, {}, terminal.common().threads));
  STELE_TRY_ASSIGN(const Value config, config_of(options.adapter));
  auto merged =
      merge_lora(model.snapshot, adapter.snapshot, config,
                 {.subtract = options.action == "unmerge", .conv1d = options.conv1d, .linear = options.linear});
  if (!merged) return std::move(merged).error().file(options.adapter);
  for (const std::string& note : merged->notes()) terminal.note(safe(note));
  target.save.allow_loss = options.allow_loss;
  target.like = model.format.get();
  STELE_TRY_ASSIGN(target.precision, parse_precision(options.precision));
  return write_joined(target, *merged, "stele.lora/1", terminal);
}

}  // namespace stele::command
