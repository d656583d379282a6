// Reads the constants of a package, a model or a file of weights into a Snapshot.
#include "stele/recorders/read_only.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/in_file.hpp"
#include "io/text.hpp"
#include "json/json.hpp"
#include "model.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/tensor_index.hpp"
#include "snapshot/unread.hpp"
#include "stele/value.hpp"

namespace stele::inline v0 {
namespace {

using namespace detail::coreml;  // NOLINT(google-build-using-namespace): this file implements the format

constexpr const char* manifest_name = "Manifest.json";
/// Maximum size of Manifest.json (1 MiB), which has a few hundred bytes.
constexpr std::uint64_t max_manifest_bytes = std::uint64_t{1} << 20;

/// Returns the path of a package's model.
Result<std::string> model_path(const Bundle& package) {
  STELE_TRY_ASSIGN(const SourcePtr source, package.open(manifest_name));
  const auto bad = [&](const char* message) { return Error(Errc::malformed, message).file(source->name()); };
  STELE_TRY_ASSIGN(const std::string text,
                   detail::read_text(*source, max_manifest_bytes, "the package's manifest is too large"));
  STELE_TRY_ASSIGN(const Value manifest, detail::in_file(parse_json(text), source->name()));
  const Value* const root = manifest.find("rootModelIdentifier");
  const Value* const items = manifest.find("itemInfoEntries");
  const std::string* const id = root != nullptr ? root->as_string() : nullptr;
  const Value* const item = id != nullptr && items != nullptr ? items->find(*id) : nullptr;
  const Value* const path = item != nullptr ? item->find("path") : nullptr;
  if (path == nullptr || path->as_string() == nullptr) return bad("the package's manifest does not name a model");
  return "Data/" + *path->as_string();
}

}  // namespace

bool CoremlFormat::recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept {
  return is_weights(head, size) || is_model(head, size);
}

bool CoremlFormat::recognises_folder(const Bundle& folder) const {
  const auto contained = folder.contains(manifest_name);
  if (!contained || !*contained) return false;
  const auto path = model_path(folder);
  return path && path->find(".mlmodel") != path->npos;
}

Result<Snapshot> CoremlFormat::open(SourcePtr source, const OpenContext& context) const {
  std::shared_ptr<const Bundle> folder = source->bundle();
  if (folder != nullptr) {
    STELE_TRY_ASSIGN(auto beneath, folder->beneath());
    if (beneath != nullptr) folder = std::move(beneath);
  }
  std::string prefix;
  const bool package = source->is_folder();
  if (package) {
    STELE_TRY_ASSIGN(const std::string path, model_path(*folder));
    STELE_TRY_ASSIGN(source, folder->open(path));
    prefix = path.substr(0, path.rfind('/') + 1);
  }
  detail::IndexBudget memory(context.options().limits, source->size(), detail::index_rate::record);
  SnapshotBuilder builder;
  builder.set_flat();
  Tensors tensors(builder, memory);
  std::byte head[128];
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(source->size(), sizeof head));
  STELE_TRY(source->read_at(0, {head, size}));
  const bool weights = is_weights({head, size}, source->size());
  const Status read = weights ? read_weights(source, tensors) : read_model(source, folder, prefix, tensors);
  if (!read) {
    Error error = read.error();
    return error.file().empty() ? std::move(error).file(source->name()) : std::move(error);
  }
  STELE_TRY(detail::sort_names(builder));
  if (!weights) builder.data().left_out.emplace_back(detail::graph_part);
  std::uint64_t held = detail::add_scaled(0, source->size(), sizeof(std::uint64_t));  // a varint has one byte or more
  for (const SourcePtr& file : tensors.owned.sources) held = detail::add_scaled(held, file->size(), 1);
  builder.set_capacity(std::max<std::uint64_t>(held, 1));
  builder.keep(std::make_shared<Owned>(std::move(tensors.owned)));
  STELE_TRY_ASSIGN(Snapshot all, detail::in_host_order(builder.finish()));
  if (package) {
    STELE_TRY_ASSIGN(all, detail::with_unread(std::move(all), *folder,
                                              [](std::string_view name) { return name.ends_with(".mlmodel"); }));
  }
  return detail::composites::joined(all, tensors.scaled);
}

}  // namespace stele::inline v0
