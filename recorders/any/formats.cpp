#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/entry_names.hpp"
#include "base/limits.hpp"
#include "base/similar.hpp"
#include "snapshot/items.hpp"
#include "stele/bundle.hpp"
#include "stele/checkpoint.hpp"
#include "stele/delta.hpp"
#include "stele/recorders/any.hpp"

#ifdef STELE_ZIP  // a format of this build has zip files
#include "encodings/zip/zip.hpp"
#endif

namespace stele::inline v0 {

namespace detail {
#define STELE_RECORDER(folder) FormatFamily folder##_formats();
#include "recorders.inc"
#undef STELE_RECORDER
}  // namespace detail

namespace {

constexpr const char* formats_hint = "see stele::formats()";

// ---- files of other programs

/// A kind of file that stele does not open, with advice on how to load its tensors.
struct Foreign {
  std::string_view what;
  std::span<const std::string_view> extensions;
  /// These functions check the first bytes of a file. `certain` applies always; `likely` applies only if no format
  /// recognizes the file.
  bool (*certain)(std::string_view head);
  bool (*likely)(std::string_view head);
  /// Errc::unsupported for files that are not models, regardless of their names.
  Errc code = Errc::bad_magic;
};

bool never(std::string_view) { return false; }

bool is_pickle(std::string_view head) { return head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5; }
bool is_hdf5(std::string_view head) { return head.starts_with("\x89HDF\r\n\x1a\n"); }
bool is_tensorflow(std::string_view head) { return head.starts_with("\x08\x01\x12"); }

/// Returns true if the text begins with `lower_case`, ignoring the case of ASCII letters.
bool begins_with(std::string_view text, std::string_view lower_case) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  return text.size() >= lower_case.size() &&
         std::equal(lower_case.begin(), lower_case.end(), text.begin(), [&](char b, char a) { return same(a, b); });
}

/// Removes a byte order mark and leading white space.
std::string_view begin_of(std::string_view head) {
  if (head.starts_with("\xef\xbb\xbf")) head.remove_prefix(3);
  const std::size_t at = head.find_first_not_of(" \t\r\n");
  return head.substr(std::min(at, head.size()));
}

bool is_lfs_pointer(std::string_view head) { return head.starts_with("version https://git-lfs.github.com/spec/"); }
bool is_web_page(std::string_view head) {
  const std::string_view text = begin_of(head);
  const bool answer = text.find("<Error>") != text.npos || text.find("<html") != text.npos;  // an S3 error; XHTML
  return begins_with(text, "<!doctype html") || begins_with(text, "<html") || begins_with(text, "<error>") ||
         (begins_with(text, "<?xml") && answer);
}
/// Returns true for the body of a server's error response: {"error": ...}. No format's JSON begins with these keys.
bool is_error_body(std::string_view head) {
  std::string_view text = begin_of(head);
  if (!text.starts_with('{')) return false;
  text = begin_of(text.substr(1));
  constexpr std::string_view keys[] = {"\"error\"", "\"errors\"", "\"message\"", "\"detail\"", "\"errorcode\""};
  return std::any_of(std::begin(keys), std::end(keys), [&](std::string_view key) { return begins_with(text, key); });
}

constexpr std::string_view hdf5_extensions[] = {".h5", ".hdf5", ".keras"};
constexpr std::string_view tensorflow_extensions[] = {".pb"};
constexpr std::string_view tflite_extensions[] = {".tflite"};
constexpr std::string_view pickle_extensions[] = {".pkl", ".pickle", ".pdparams", ".pdopt"};

constexpr std::array<Foreign, 7> foreign = {{
    {"a git-lfs pointer: run git lfs pull", {}, is_lfs_pointer, never, Errc::unsupported},
    {"an HTML or XML page: the download has failed", {}, is_web_page, never, Errc::unsupported},
    {"a JSON error message: the download has failed", {}, never, is_error_body, Errc::unsupported},
    {"an HDF5 or Keras file; safetensors.numpy.save_file writes its arrays", hdf5_extensions, is_hdf5, never},
    {"a TensorFlow file; import_tensorflow() of stele/import.hpp reads its graph with the weights",
     tensorflow_extensions, never, is_tensorflow},
    {"a TensorFlow Lite file; safetensors.tensorflow.save_file writes the variables of its model", tflite_extensions,
     never, never},
    {"a Python pickle, which is a program; safetensors.numpy.save_file writes its arrays", pickle_extensions, never,
     is_pickle},
}};

const Foreign* foreign_of_path(std::string_view path) {
  const auto found = std::find_if(foreign.begin(), foreign.end(), [&](const Foreign& f) {
    return std::any_of(f.extensions.begin(), f.extensions.end(), [&](std::string_view e) { return path.ends_with(e); });
  });
  return found != foreign.end() ? &*found : nullptr;
}

/// Returns the first member of all families for which `accepts` returns true, or null.
template <class F>
const FormatFamily::Member* find_member(const F& accepts) {
  for (const FormatFamily& family : format_families()) {
    const auto found = std::find_if(family.members.begin(), family.members.end(), accepts);
    if (found != family.members.end()) return &*found;
  }
  return nullptr;
}
using Member = FormatFamily::Member;

/// Returns the extension closest to the path's; "" if none is similar.
std::string nearest_extension(std::string_view path) {
  std::vector<std::string> extensions;
  find_member([&](const Member& member) {
    for (const std::string_view extension : member.extensions) {
      if (!extension.empty() && member.format->writes()) extensions.emplace_back(extension);
    }
    return false;
  });
  const std::string_view name = file_name(path);
  // Suggests ".json.zst" for ".json.zstd", and ".safetensors" for "v1.2.safetensor".
  for (std::size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
    if (const auto near = detail::most_similar(name.substr(dot), extensions); !near.empty()) return std::string(near);
  }
  return {};
}

}  // namespace

std::span<const FormatFamily> format_families() {
  static const FormatFamily families[] = {
#define STELE_RECORDER(folder) detail::folder##_formats(),
#include "recorders.inc"
#undef STELE_RECORDER
  };
  return families;
}

std::span<const Format* const> formats() {
  static const std::vector<const Format*> all = [] {
    std::vector<const Format*> made;
    find_member([&](const Member& member) { return made.push_back(member.format), false; });
    return made;
  }();
  return all;
}

const Format* find_format(std::string_view name) {
  const Member* const found = find_member([&](const Member& member) { return member.format->name() == name; });
  return found != nullptr ? found->format : nullptr;
}

Result<const Format*> format_of_path(std::string_view path) {
  if (path.empty()) return Error(Errc::invalid_argument, "the path is empty");
  std::string_view longest;  // so that ".safetensors.index.json" does not match ".json"
  const Format* format = nullptr;
  find_member([&](const Member& member) {
    for (const std::string_view extension : member.extensions) {
      if (extension.size() <= longest.size() || path.size() == extension.size() || !path.ends_with(extension)) continue;
      longest = extension;
      format = member.format;
    }
    return false;
  });
  if (format != nullptr) return format;
  const Foreign* const other = foreign_of_path(path);
  Error error = Error(Errc::unsupported, "no format has this extension").file(path);
  if (other != nullptr) return std::move(error).found(other->what).hint(formats_hint);
  const std::string near = nearest_extension(path);
  if (near.empty()) return std::move(error).hint(formats_hint);
  return std::move(error).hint("use the extension " + near + ", or " + formats_hint);
}

namespace {

/// Calls `save(format, options)` with the format from the options or the path. The options in this call have neither a
/// format nor a precision.
template <class Save>
Result<Report> with_format(const Output& to, const SaveOptions& options, Save save) {
  return detail::guarded([&]() -> Result<Report> {
    const Format* format = options.format.get();
    if (options.format && format == nullptr) {
      return Error(Errc::invalid_argument, "SaveOptions::format is null, as find_format() returns for an unknown name");
    }
    if (format == nullptr && to.sink() != nullptr) {
      return Error(Errc::invalid_argument, "a sink has no extension").hint("set SaveOptions::format");
    }
    if (format == nullptr) {
      STELE_TRY_ASSIGN(format, format_of_path(to.path()));
    }
    SaveOptions rest = options;
    rest.format = {};
    rest.precision = {};
    return save(*format, rest);
  });
}

}  // namespace

Result<Report> detail::save_object(const Object& object, const Output& to, const SaveOptions& options) {
  return with_format(to, options, [&](const Format& format, const SaveOptions& rest) {
    return save_object(format, options.precision, object, to, rest);
  });
}

Result<Report> save(const Checkpoint& checkpoint, const Output& to, const SaveOptions& options) {
  return with_format(to, options, [&](const Format& format, const SaveOptions& rest) -> Result<Report> {
    const auto* const whole = dynamic_cast<const CheckpointFormat*>(&format);
    if (whole == nullptr) {
      return Error(Errc::unsupported, "the format stores only parameters, not checkpoints").found(format.name());
    }
    return detail::save_checkpoint(*whole, options.precision, checkpoint, to, rest);
  });
}

namespace {

template <class Deltas>
Result<Snapshot> open_chain(const Input& base, const Deltas& deltas, const LoadOptions& options) {
  return detail::guarded([&]() -> Result<Snapshot> {
    LoadOptions whole = options;
    whole.part = {};
    STELE_TRY_ASSIGN(Snapshot snapshot, open(base, whole));
    const auto apply = [&](const Input& input) -> Status {
      STELE_TRY_ASSIGN(const Snapshot delta, open(input, whole));
      auto next = apply_delta(snapshot, delta);
      if (next) {
        snapshot = *std::move(next);
        return {};
      }
      Error error = std::move(next).error();
      return error.file().empty() ? std::move(error).file(input.name()) : std::move(error);
    };
    for (const auto& input : deltas) STELE_TRY(apply(input));
    return detail::part_of(snapshot, options.part);
  });
}

}  // namespace

Result<Snapshot> open_with_deltas(const Input& base, std::initializer_list<Input> deltas, const LoadOptions& options) {
  return open_chain(base, deltas, options);
}
Result<Snapshot> open_with_deltas(const Input& base, std::span<const std::string> paths, const LoadOptions& options) {
  return open_chain(base, paths, options);
}

namespace {

Error not_read(const Source& source, std::string_view found, Errc code = Errc::bad_magic) {
  return Error(code, "the file has no known format").file(source.name()).found(found).hint(formats_hint);
}

/// Returns true if a folder contains files of models that can be opened one by one.
bool has_models(const Bundle& folder) {
  const auto names = folder.names();
  if (!names) return false;
  return std::any_of(names->begin(), names->end(), [](const std::string& name) {
    return name.find('/') == name.npos && !name.ends_with(".json") && format_of_path(name);
  });
}

#ifdef STELE_ZIP
/// Returns true for an .npz file whose first entry is not an array, which another program may have added. Reads the
/// directory.
bool is_npz_by_directory(const Source& source) {
  const SourcePtr borrowed(SourcePtr(), &source);
  const std::uint64_t memory = detail::add_scaled(detail::index_base, source.size(), detail::index_rate::file);
  const auto directory = detail::zip::Directory::open(borrowed, memory);
  if (!directory || (*directory)->find("tags.txt") != nullptr) return false;
  const auto entries = (*directory)->entries();
  return std::any_of(entries.begin(), entries.end(),
                     [](const detail::zip::Entry& entry) { return detail::is_numpy_zip_entry(entry.name); });
}
#endif

/// Returns the format of ncnn for a file .bin beside a file .param: its weights may begin with any bytes. Returns null
/// for other files.
const Format* format_of_weights(const Source& source) {
  constexpr std::string_view ending = ".bin";
  const Format* const ncnn = find_format("ncnn");
  const std::string_view name = file_name(source.name());
  const auto folder = source.bundle();
  if (ncnn == nullptr || folder == nullptr || !name.ends_with(ending)) return nullptr;
  const std::string beside = std::string(name.substr(0, name.size() - ending.size())).append(ncnn->extension());
  const auto contained = folder->contains(beside);
  if (!contained || !*contained) return nullptr;
  const auto layers = folder->open(beside);
  std::byte head[64]{};
  const std::size_t size =
      layers ? static_cast<std::size_t>(std::min<std::uint64_t>((*layers)->size(), sizeof head)) : 0;
  if (size == 0 || !(*layers)->read_at(0, {head, size})) return nullptr;
  return ncnn->recognises({head, size}, (*layers)->size()) ? ncnn : nullptr;
}

}  // namespace

Result<const Format*> format_of_content(const Source& source) {
  std::byte head[1024];
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(source.size(), sizeof head));
  STELE_TRY(source.read_at(0, {head, size}));
  const auto folder = source.is_folder() ? source.bundle() : nullptr;
  const std::string_view text(reinterpret_cast<const char*>(head), size);
  const Format* found = nullptr;
  for (const Foreign& other : foreign) {
    if (other.certain(text)) return not_read(source, other.what, other.code);
  }
  const Format* second = nullptr;
  find_member([&](const Member& member) {
    const Format& f = *member.format;
    const bool fits = folder != nullptr ? f.recognises_folder(*folder) : f.recognises({head, size}, source.size());
    if (fits) (found == nullptr ? found : second) = &f;
    return second != nullptr;
  });
  if (second != nullptr) {
    return Error(Errc::malformed, "more than one format recognizes the content")
        .file(source.name())
        .found(std::string(found->name()) + " and " + std::string(second->name()));
  }
#ifdef STELE_ZIP
  const Format* const npz = find_format("npz");
  if (npz != nullptr && (found == nullptr || found->name() == "archive") && !source.is_folder()) {
    const auto first = detail::zip::first_name({head, size});
    const bool undecided = first ? !detail::is_archive_zip_entry(first->name) : text.starts_with("PK\3\4");
    if (undecided && is_npz_by_directory(source)) return npz;
  }
#endif
  if (found != nullptr) return found;
  if (folder == nullptr) {
    if (const Format* const ncnn = format_of_weights(source)) return ncnn;
  }
  if (folder != nullptr) {
    Error error = Error(Errc::bad_magic, "the folder has no known format").file(source.name());
    if (!has_models(*folder)) return error;
    return std::move(error).found("files of models, without an index").hint("join them with stele::merge");
  }
  const auto named = format_of_path(source.name());
  // Only Paddle's format writes an empty file for a model without tensors.
  if (size == 0 && !(named && (*named)->name() == "paddle"))
    return not_read(source, "an empty file", Errc::unsupported);
  for (const Foreign& other : foreign) {
    if (other.likely(text)) return not_read(source, other.what, other.code);
  }
  if (const Foreign* const other = foreign_of_path(source.name())) {
    return not_read(source, "by its name " + std::string(other->what));
  }
  static constexpr char digits[] = "0123456789abcdef";
  std::string seen = std::to_string(source.size()) + " bytes";
  if (size != 0) seen += " that begin with";
  for (std::size_t i = 0; i < std::min<std::size_t>(size, 8); ++i) {
    const auto b = static_cast<unsigned>(head[i]);
    seen += {' ', digits[b >> 4], digits[b & 15U]};
  }
  if (named) seen += ", with the name of a " + std::string((*named)->name()) + " file";
  return not_read(source, seen);
}

}  // namespace stele::inline v0
