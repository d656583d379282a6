#include "commands.hpp"

namespace stele::command {

Result<int> embed(const Embed& options, Terminal& terminal) {
  static_cast<void>(options), static_cast<void>(terminal);
  return Error(Errc::unsupported, "not written yet");
}

}  // namespace stele::command
