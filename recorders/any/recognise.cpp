// Finds the format of a file or folder by its content.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "asked_folder.hpp"
#include "base/extension.hpp"
#include "base/hex.hpp"
#include "foreign.hpp"
#include "formats.hpp"
#include "model_zip.hpp"
#include "snapshot/model_folder.hpp"
#include "stele/bundle.hpp"
#include "stele/recorders/any.hpp"

namespace stele::inline v0 {
namespace detail {
namespace {

constexpr std::size_t max_named = 5;        // names in a message
constexpr std::size_t max_candidates = 64;  // names that are collected for it
constexpr std::size_t head_size = 1024;     // bytes that Format::recognises() gets

Error not_read(const Source& source, std::string_view found, Errc code = Errc::bad_magic) {
  return Error(code, "the file has no known format").file(source.name()).found(found).hint(formats_hint);
}
Error not_read(const Source& source, const Foreign& other) { return not_read(source, other.what, other.code); }

/// Returns the format of a file that has only weights, from the model's file next to it
/// (FormatFamily::Member::weights): the weights may begin like any format. Returns null for other files, and for zip
/// files. `failure` receives the error of a machine that has not shown whether there is such a file.
const Format* format_of_weights(const Source& source, std::string_view text, std::optional<Error>& failure) {
  const std::string_view name = file_name(source.name());
  const auto folder = source.bundle();
  if (folder == nullptr || text.starts_with("PK\3\4")) return nullptr;
  const auto recognised = [&](const Format& format, const std::string& beside) -> Result<bool> {
    STELE_TRY_ASSIGN(const bool contained, folder->contains(beside));
    if (!contained) return false;
    STELE_TRY_ASSIGN(const SourcePtr model, folder->open(beside));
    std::byte head[head_size];
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(model->size(), sizeof head));
    STELE_TRY(model->read_at(0, {head, size}));
    return size != 0 && format.recognises({head, size}, model->size());
  };
  const auto* const member = find_member([&](const FormatFamily::Member& m) {
    if (m.weights.empty() || !name.ends_with(m.weights)) return false;
    const std::string stem(name.substr(0, name.size() - m.weights.size()));
    const auto found = recognised(*m.format, stem + std::string(m.format->extension()));
    if (!found && is_of_machine(found.error())) failure = found.error();
    return found && *found;
  });
  return member != nullptr ? member->format : nullptr;
}

/// Returns the format whose recognises_file() returns true, or null. `damage` receives the first error of a file that
/// is damaged. Errors: those of the machine.
Result<const Format*> format_of_rest(const Source& source, std::optional<Error>& damage) {
  std::optional<Error> failure;
  const auto* const member = find_member([&](const FormatFamily::Member& m) {
    const auto fits = m.format->recognises_file(source);
    if (!fits && is_of_machine(fits.error())) {
      failure = fits.error();
    } else if (!fits && !damage) {
      damage = fits.error();
    }
    return failure || (fits && *fits);
  });
  if (failure) return *std::move(failure);
  return member != nullptr ? member->format : nullptr;
}

/// The models that a folder without a format may mean.
struct Candidates {
  std::vector<std::string> files;    // in the folder itself
  std::vector<std::string> folders;  // folders below it with such files
  bool shards = false;               // the files are shards of one model
};

Candidates candidates_in(const std::vector<std::string>& names) {
  const ModelFolder model = model_folder(names);
  Candidates found{model.others, {}, false};
  if (!model.weights.empty()) found.files.push_back(model.weights);
  for (const std::string& name : names) {
    if (has_extension(name, ".json") || !format_of_path(name)) continue;
    const std::size_t slash = name.rfind('/');
    auto& list = slash == name.npos ? found.files : found.folders;
    const std::string_view candidate = std::string_view(name).substr(0, slash);
    if (std::find(list.begin(), list.end(), candidate) == list.end() && list.size() <= max_candidates)
      list.emplace_back(candidate);
  }
  std::sort(found.files.begin(), found.files.end());
  found.shards = std::any_of(found.files.begin(), found.files.end(),
                             [](const std::string& name) { return name.find("-of-") != name.npos; });
  return found;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), max_named); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > max_named ? text + ", …" : text;
}

Error unknown_file(const Source& source, std::string_view head);

/// Returns the folder's files of JSON that are the index of a model's files: a format recognizes them that is not the
/// format of such names.
std::vector<std::string> indexes_in(const AskedFolder& folder, const std::vector<std::string>& names) {
  constexpr std::size_t max_read = 16;  // files: bounds the requests for a folder on a server
  std::vector<std::string> found;
  std::size_t read = 0;
  for (const std::string& name : names) {
    if (name.find('/') != name.npos || !has_extension(name, ".json") || read == max_read) continue;
    ++read;
    const auto file = folder.open(name);
    const auto format = file ? format_in(**file, false) : file.error();
    const auto named = format_of_path(name);
    if (format && (!named || *named != *format)) found.push_back(name);
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// Returns the error for a folder that no format recognizes.
Error unknown_folder(const Source& source, const AskedFolder& folder) {
  if (folder.failure()) return *folder.failure();
  Error error = Error(Errc::bad_magic, "the folder has no known format").file(source.name());
  const auto names = folder.names();
  if (!names) return error;
  Candidates found = candidates_in(*names);
  const std::string folder_path = std::string(source.name()) + (source.name().ends_with('/') ? "" : "/");
  auto indexes = indexes_in(folder, *names);
  if (indexes.size() == 1) {
    return Error(Errc::invalid_argument, "the folder has the index of a model's files")
        .file(source.name())
        .found(indexes.front())
        .hint("name it: " + folder_path + indexes.front());
  }
  if (!indexes.empty()) found = {std::move(indexes), {}, false};
  if (found.files.size() == 1) {
    const auto file = folder.open(found.files.front());
    const auto format = file ? format_in(**file, true) : file.error();
    if (!format) return format.error();
  }
  if (found.files.size() == 1) {
    return std::move(error).found("one file of a model").hint("name it: " + folder_path + found.files.front());
  }
  if (found.shards) {
    return std::move(error).found("files of models, without an index").hint("join them with stele::merge");
  }
  const auto several = [&](const char* what, const std::vector<std::string>& list) {
    return Error(Errc::invalid_argument, what)
        .file(source.name())
        .found(listed(list))
        .hint("name one of them, such as " + folder_path + list.front());
  };
  if (!found.files.empty()) return several("the folder does not show which of its files is the model", found.files);
  if (!found.folders.empty()) return several("the models are in folders of the folder", found.folders);
  return error;
}

/// Returns the error for a file that no format recognizes.
Error unknown_file(const Source& source, std::string_view head) {
  if (const Foreign* const other = likely_foreign(head)) return not_read(source, *other);
  if (const Foreign* const other = foreign_of_path(source.name())) {
    return not_read(source, "by its name " + std::string(other->what));
  }
  std::string seen = std::to_string(source.size()) + " bytes that begin with";
  for (const char c : head.substr(0, 8)) seen += ' ' + hex(static_cast<unsigned char>(c), 2);
  const auto named = format_of_path(source.name());
  if (named) seen += ", with the name of a " + std::string((*named)->name()) + " file";
  return not_read(source, seen);
}

}  // namespace

Result<const Format*> format_in(const Source& source, [[maybe_unused]] bool zips) {
  std::byte bytes[head_size];
  const std::span head(bytes, static_cast<std::size_t>(std::min<std::uint64_t>(source.size(), sizeof bytes)));
  STELE_TRY(source.read_at(0, head));
  const auto bundle = source.is_folder() ? source.bundle() : nullptr;
  std::optional<AskedFolder> folder;
  if (bundle != nullptr) {
    folder.emplace(*bundle, source.file() != nullptr);
    const auto listed = source.file() == nullptr ? folder->names() : std::vector<std::string>();
    // A server may list nothing, and a folder may have too many files for a list.
    if (!listed && listed.error().code() != Errc::unsupported && listed.error().code() != Errc::limit) {
      return listed.error();
    }
  }
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  STELE_TRY_ASSIGN(const Foreign* const other, certain_foreign(source, text));
  if (other != nullptr) return not_read(source, *other);
  std::optional<Error> failure;  // counts if no format recognizes the rest
  if (!folder) {
    if (const Format* const model = format_of_weights(source, text, failure)) return model;
  }
  if (!folder && head.empty()) {
    const auto named = format_of_path(source.name());
    if (named && (*named)->recognises(head, 0)) return *named;  // it writes empty files
    return not_read(source, "an empty file", Errc::unsupported);
  }
  const Format* found = nullptr;
  const Format* second = nullptr;
  const auto families = format_families();
  // A format that the program has added counts before the library's.
  for (const auto some : {families.subspan(own_families()), families.first(own_families())}) {
    if (found != nullptr) break;
    find_member_in(some, [&](const FormatFamily::Member& member) {
      const Format& f = *member.format;
      const bool fits = folder ? f.recognises_folder(*folder) : f.recognises(head, source.size());
      if (fits) (found == nullptr ? found : second) = &f;
      return second != nullptr;
    });
  }
  if (second != nullptr) {
    return Error(Errc::malformed, "more than one format recognizes the content")
        .file(source.name())
        .found(std::string(found->name()) + " and " + std::string(second->name()));
  }
  if (found != nullptr) return found;
  if (folder) return unknown_folder(source, *folder);
  std::optional<Error> damage;
  STELE_TRY_ASSIGN(found, format_of_rest(source, damage));
#ifdef STELE_ZIP
  if (zips && found == nullptr) {
    STELE_TRY_ASSIGN(found, model_zip_format(source));
  }
#endif
  if (found != nullptr) return found;
  if (failure) return *std::move(failure);
  if (damage) return *std::move(damage);
  return unknown_file(source, text);
}

}  // namespace detail

Result<const Format*> format_of_content(const Source& source) { return detail::format_in(source, true); }

}  // namespace stele::inline v0
