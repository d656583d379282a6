// Loads plug-ins: shared libraries with formats.
#include "stele/plugin.hpp"

#include <algorithm>
#include <vector>

#include "base/threads.hpp"
#include "io/os/os.hpp"
#include "stele/recorders/any.hpp"

namespace stele::inline v0 {

Status load_plugin(const std::string& path) {
  static detail::Mutex one_at_a_time;
  static std::vector<const detail::Plugin*> loaded;
  const detail::Lock waiting(one_at_a_time);
  return detail::guarded(path, [&]() -> Status {
    // The system looks for a name without a slash in its own folders only.
    const bool bare = path.find_first_of("/\\") == path.npos;
    STELE_TRY_ASSIGN(void* const library, detail::os::load_library(bare ? "./" + path : path));
    const auto* const plugin = static_cast<const detail::Plugin*>(detail::os::symbol(library, "stele_plugin"));
    if (plugin == nullptr) return Error(Errc::malformed, "the library is not a plug-in: it lacks STELE_PLUGIN");
    if (plugin->version != STELE_VERSION) {
      return Error(Errc::unsupported, "the plug-in is for another version of stele")
          .expected(std::to_string(STELE_VERSION))
          .found(std::to_string(plugin->version));
    }
    if (std::find(loaded.begin(), loaded.end(), plugin) != loaded.end()) return {};
    loaded.reserve(loaded.size() + 1);
    STELE_TRY(register_formats(plugin->formats()));
    loaded.push_back(plugin);
    return {};
  });
}

}  // namespace stele::inline v0
