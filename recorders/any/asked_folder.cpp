// A folder while its format is looked for.
#include "asked_folder.hpp"

#include <algorithm>

namespace stele::inline v0::detail {

Result<std::unique_ptr<Sink>> AskedFolder::create(std::string_view name) {
  return Error(Errc::unsupported, "the folder is only read").file(name);
}

const Result<std::vector<std::string>>& AskedFolder::list() const {
  if (!names_) names_ = noted(folder_.names());
  return *names_;
}

Result<SourcePtr> AskedFolder::open(std::string_view name) const {
  auto file = folder_.open(name);
  if (file || failure_ || !is_of_machine(file.error())) return file;
  // A folder or a device, which no list has, is not a failure of the machine.
  if (!list() || std::find(list()->begin(), list()->end(), name) != list()->end()) failure_ = file.error();
  return file;
}

Result<bool> AskedFolder::contains(std::string_view name) const {
  if (local_ || !list()) return noted(folder_.contains(name));  // a server that does not list its files
  const auto at = std::lower_bound(list()->begin(), list()->end(), name);
  if (at != list()->end() && *at == name) return true;
  const std::string below = std::string(name) + '/';
  const auto first = std::lower_bound(list()->begin(), list()->end(), below);
  return first != list()->end() && first->starts_with(below);
}

}  // namespace stele::inline v0::detail
