#include "snapshot/unread.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/skipped.hpp"
#include "snapshot/data.hpp"

namespace stele::inline v0::detail {
namespace {

bool has_entries(const SnapshotData& data) {
  return std::any_of(data.nodes.begin(), data.nodes.end(),
                     [](const Node& node) { return node.kind == NodeKind::tensor || node.kind == NodeKind::value; });
}

/// Returns true for the names of files that describe a model, or the people and licenses of it.
bool is_description(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  constexpr std::string_view endings[] = {".json", ".md", ".txt", ".py", ".yaml", ".yml", ".jinja"};
  return name.empty() || name.starts_with('.') || name.starts_with("LICENSE") ||
         std::any_of(std::begin(endings), std::end(endings), [&](std::string_view end) { return name.ends_with(end); });
}

}  // namespace

Snapshot with_unread(Snapshot snapshot, std::span<const std::string> members,
                     const std::function<bool(std::string_view)>& known) {
  if (has_entries(*snapshot.data())) return snapshot;
  Skipped unread;
  for (const std::string& name : members) {
    if (!is_description(name) && !(known && known(name))) unread.add(name);
  }
  auto data = derived_data(snapshot);
  unread.leave_out(data->left_out, unread_part);
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

Result<Snapshot> with_unread(Snapshot snapshot, const Bundle& folder,
                             const std::function<bool(std::string_view)>& known) {
  if (has_entries(*snapshot.data())) return snapshot;
  STELE_TRY_ASSIGN(const std::vector<std::string> names, folder.names());
  return with_unread(std::move(snapshot), names, known);
}

std::optional<Error> nothing_found(const Snapshot& snapshot) {
  const SnapshotData& data = *snapshot.data();
  const auto part = std::find_if(data.left_out.begin(), data.left_out.end(),
                                 [](const std::string& text) { return text.starts_with(unread_part); });
  if (part == data.left_out.end() || has_entries(data)) return std::nullopt;
  return Error(Errc::unsupported, "no tensor was found, and the input has members that are not read")
      .found(part->substr(std::min(part->size(), unread_part.size() + 2)));
}

Status check_found(const Snapshot& snapshot) {
  auto error = nothing_found(snapshot);
  return error ? Status(*std::move(error)) : Status();
}

Snapshot with_note_of_nothing(const Snapshot& snapshot) {
  const auto error = nothing_found(snapshot);
  if (!error) return snapshot;
  auto data = derived_data(snapshot);
  data->notes.push_back(std::string(error->message()).append(": ").append(error->found()));
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

}  // namespace stele::inline v0::detail
