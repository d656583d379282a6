// Finds the index of a checkpoint: next to a text file `checkpoint`, in a SavedModel, or at the path itself.
#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "bundle.hpp"
#include "io/text.hpp"
#include "stele/bundle.hpp"

namespace stele::inline v0::detail::tensorflow {
namespace {

constexpr std::string_view state_file = "checkpoint", path_field = "model_checkpoint_path";
constexpr std::string_view variables = "variables/variables.index", extension = ".index";

/// Maximum size of a text file `checkpoint` (16 MiB). It lists the checkpoints of a training run.
constexpr std::uint64_t max_state_bytes = std::uint64_t{16} << 20;

/// Returns the quoted string at the beginning of `text`, in protobuf's text format.
std::optional<std::string> unquoted(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t:");
  if (begin == text.npos || (text[begin] != '"' && text[begin] != '\'')) return std::nullopt;
  std::string out;
  for (std::size_t i = begin + 1; i < text.size(); ++i) {
    if (text[i] == text[begin]) return out;
    if (text[i] != '\\' || ++i == text.size()) {
      out += text[std::min(i, text.size() - 1)];
      continue;
    }
    unsigned code = 0;
    const char* const at = text.data() + i;
    const auto octal = std::from_chars(at, at + std::min<std::size_t>(3, text.size() - i), code, 8);
    if (octal.ec == std::errc()) {
      out += static_cast<char>(code);
      i += static_cast<std::size_t>(octal.ptr - at) - 1;
    } else {
      out += text[i] == 'n' ? '\n' : text[i] == 't' ? '\t' : text[i] == 'r' ? '\r' : text[i];
    }
  }
  return std::nullopt;
}

/// Opens the checkpoint that a text file names as the latest.
Result<SourcePtr> open_latest(const Source& state) {
  STELE_TRY_ASSIGN(const std::string text, read_text(state, max_state_bytes, "the list of checkpoints is too long"));
  std::optional<std::string> prefix;
  for (std::size_t line = 0; line < text.size() && !prefix;) {
    const std::size_t end = std::min(text.find('\n', line), text.size());
    std::string_view all(text.data() + line, end - line);
    all.remove_prefix(std::min(all.find_first_not_of(" \t"), all.size()));
    if (all.starts_with(path_field)) prefix = unquoted(all.substr(path_field.size()));
    line = end + 1;
  }
  if (!prefix || prefix->empty()) {
    return Error(Errc::malformed, "the list of checkpoints has no model_checkpoint_path").file(state.name());
  }
  auto bundle = state.bundle();
  if (bundle == nullptr) {
    return Error(Errc::unsupported, "the source of the list cannot open the checkpoint")
        .file(state.name())
        .hint("open a path, or a source with a bundle");
  }
  STELE_TRY_ASSIGN(auto beneath, bundle->beneath());
  if (beneath != nullptr) bundle = std::move(beneath);
  // A moved folder still contains the checkpoint, under the last segments of the absolute path.
  while (prefix->starts_with('/')) {
    prefix->erase(0, 1);
    const std::size_t slash = prefix->find('/');
    if (slash == prefix->npos) break;
    const auto below = bundle->contains(*prefix + std::string(extension));
    if (!below && below.error().code() != Errc::invalid_argument) return below.error();
    if (!below || !*below) prefix->erase(0, slash);
  }
  auto index = bundle->open(*prefix + std::string(extension));
  if (!index && index.error().code() == Errc::invalid_argument) {
    return Error(Errc::malformed, "the path of the latest checkpoint is not below the folder of the list")
        .file(state.name())
        .found(*prefix);
  }
  return index;
}

}  // namespace

Result<SourcePtr> find_index(SourcePtr source) {
  if (!source->is_folder()) {
    std::string head(path_field.size(), '\0');
    if (source->size() < head.size()) return source;
    STELE_TRY(source->read_at(0, std::as_writable_bytes(std::span(head))));
    return head == path_field ? open_latest(*source) : Result<SourcePtr>(std::move(source));
  }
  const auto bundle = source->bundle();
  STELE_TRY_ASSIGN(const bool saved_model, bundle->contains(variables));
  if (saved_model) return bundle->open(variables);
  STELE_TRY_ASSIGN(const bool state, bundle->contains(state_file));
  if (state) {
    STELE_TRY_ASSIGN(const SourcePtr list, bundle->open(state_file));
    return open_latest(*list);
  }
  STELE_TRY_ASSIGN(std::vector<std::string> names, bundle->names());
  std::erase_if(names,
                [](const std::string& name) { return !name.ends_with(extension) || name.find('/') != name.npos; });
  if (names.size() == 1) return bundle->open(names.front());
  return Error(names.empty() ? Errc::not_found : Errc::invalid_argument,
               names.empty() ? "the folder has no checkpoint" : "the folder has several checkpoints")
      .file(source->name())
      .expected("a file checkpoint or variables/variables.index, or one .index")
      .hint("open the path of a checkpoint, without .index");
}

}  // namespace stele::inline v0::detail::tensorflow
