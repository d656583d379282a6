#include "dl4j/checkpoint.hpp"

#include <algorithm>
#include <set>

#include "arrays.hpp"
#include "json/json.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/paths.hpp"

namespace stele::inline v0::detail {

Status check_state(std::string_view name, const LeafView& parameter, const LeafView& state) {
  const auto refuse = [&](const char* why) { return Error(Errc::not_representable, why).path(std::string(name)); };
  if (!std::equal(parameter.shape().begin(), parameter.shape().end(), state.shape().begin(), state.shape().end())) {
    return refuse("the shape of the optimizer state differs from the parameter's")
        .expected(to_string(parameter.shape()))
        .found(to_string(state.shape()));
  }
  if (!samediff::holds(state.dtype())) {
    return refuse("the format does not have the dtype of the optimizer state")
        .found(std::string(stele::name(state.dtype())));
  }
  return {};
}

Status check_names(const Snapshot& snapshot, std::span<const std::string_view> own) {
  const LeafPaths paths(*snapshot.data());
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    if (!json::valid_utf8(paths[i])) {
      return Error(Errc::not_representable, "the tensor name is not valid UTF-8").path(std::string(paths[i]));
    }
    if (!names.insert(paths[i]).second) {
      return Error(Errc::duplicate, "two tensors have the same name").path(std::string(paths[i]));
    }
  }
  for (const auto& [key, text] : snapshot.metadata()) {
    if (std::find(own.begin(), own.end(), key) != own.end()) {
      return Error(Errc::not_representable, "the format reserves the metadata key").found(key);
    }
    if (!json::valid_utf8(key) || !json::valid_utf8(text)) {
      return Error(Errc::not_representable, "the metadata is not valid UTF-8").found(key);
    }
  }
  return {};
}

}  // namespace stele::inline v0::detail
