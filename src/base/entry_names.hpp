// Names of entries that distinguish the formats of one container (zip, tar).
#pragma once

#include <string_view>

namespace stele::inline v0::detail {

/// Returns true if NumPy wrote a zip file that begins with an entry of this name. TorchScript's files may begin with
/// any file in FOLDER/extra/.
constexpr bool is_numpy_zip_entry(std::string_view name) noexcept {
  const auto slash = name.find('/');
  return name.ends_with(".npy") && !(slash != name.npos && name.substr(slash).starts_with("/extra/"));
}

/// Returns true if PyTorch wrote a zip file with an entry of this name: all its entries are in one folder.
constexpr bool is_pytorch_zip_entry(std::string_view name) noexcept {
  const auto slash = name.find('/');
  if (slash == name.npos || is_numpy_zip_entry(name)) return false;
  name.remove_prefix(slash + 1);
  for (const std::string_view file :
       {"data.pkl", "version", "byteorder", ".format_version", ".storage_alignment", "constants.pkl", "archive_format",
        "archive_version", "bytecode.pkl", "attributes.pkl"}) {
    if (name == file) return true;
  }
  for (const std::string_view folder : {"data/", ".data/", "code/", "constants/", "models/", "extra/"}) {
    if (name.starts_with(folder)) return true;
  }
  return false;
}

/// Returns true if archives use the name (docs/formats/archive.md). They may have other entries.
constexpr bool is_archive_zip_entry(std::string_view name) noexcept {
  for (const std::string_view end : {"tags.txt", "/params.txt", "/updater.txt", "/metadata.json", ".fb", ".bin"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

/// Returns true if this is the name of a member of PyTorch's tar files (before 0.1.10).
constexpr bool is_pytorch_tar_entry(std::string_view name) noexcept {
  if (name.starts_with("./")) name.remove_prefix(2);
  return name == "sys_info" || name == "pickle" || name == "tensors" || name == "storages";
}

}  // namespace stele::inline v0::detail
