// The names of a model's files, and helpers that read its text files.
#include "files.hpp"

#include "base/extension.hpp"
#include "io/text.hpp"

namespace stele::inline v0::detail::nnef {
namespace {

// Maximum size of a text file (256 MiB): bounds memory. Real files have one line for each operation.
constexpr std::uint64_t max_text_bytes = std::uint64_t{256} << 20;

}  // namespace

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

Result<std::string> read_text(const Bundle& bundle, std::string_view name) {
  STELE_TRY_ASSIGN(const SourcePtr source, bundle.open(name));
  return detail::read_text(*source, max_text_bytes);
}

NnefContainer container_at(NnefContainer container, std::string_view path) noexcept {
  if (container != NnefContainer::by_name) return container;
  return has_extension(path, ".tgz")   ? NnefContainer::tgz
         : has_extension(path, ending) ? NnefContainer::tensor
                                       : NnefContainer::folder;
}

}  // namespace stele::inline v0::detail::nnef
