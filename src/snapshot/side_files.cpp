// The files beside the weights of a model of the hub, such as config.json.
#include "snapshot/side_files.hpp"

#include <algorithm>
#include <utility>

#include "base/skipped.hpp"

namespace stele::inline v0::detail {
namespace {

/// Returns true for files with weights: those that are read, and copies in other formats.
bool has_weights(std::string_view name) {
  constexpr std::string_view endings[] = {".safetensors", ".index.json", ".bin", ".pt",   ".pth",  ".ckpt",
                                          ".h5",          ".msgpack",    ".ot",  ".gguf", ".onnx", ".onnx_data"};
  return std::any_of(std::begin(endings), std::end(endings), [&](std::string_view e) { return name.ends_with(e); });
}

}  // namespace

Result<std::shared_ptr<const SideFiles>> side_files(const std::shared_ptr<const Bundle>& folder,
                                                    const std::function<bool(std::string_view)>& is_read,
                                                    std::vector<std::string>& left_out) {
  auto files = std::make_shared<SideFiles>();
  STELE_TRY_ASSIGN(std::vector<std::string> names, folder->names());
  Skipped skipped;
  std::erase_if(names, [&](const std::string& n) {
    const bool stays = !n.starts_with('.') && !has_weights(n);
    if (!stays && !is_read(n)) skipped.add(n);
    return !stays || is_read(n);
  });
  skipped.leave_out(left_out, "files that are not copied");
  files->folder = folder;
  files->names = std::move(names);
  return std::shared_ptr<const SideFiles>(std::move(files));
}

}  // namespace stele::inline v0::detail
