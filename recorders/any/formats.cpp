// Finds formats by name, extension and content. Advises on files of other kinds.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asked_folder.hpp"
#include "base/entry_names.hpp"
#include "base/extension.hpp"
#include "base/hex.hpp"
#include "base/limits.hpp"
#include "base/similar.hpp"
#include "model_zip.hpp"
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

// ---- models that are not tensors, and formats of programs that are no longer developed

/// Returns the module of the name with which a pickle begins: "sklearn.pipeline". Empty if it begins with a container.
std::string_view first_module(std::string_view head) {
  if (!is_pickle(head)) return {};
  head.remove_prefix(2);
  if (head.starts_with('\x95')) head.remove_prefix(std::min<std::size_t>(head.size(), 9));  // FRAME
  const std::size_t skip = head.starts_with('\x8c') ? 2 : head.starts_with('c') ? 1 : head.starts_with('X') ? 5 : 0;
  if (skip == 0 || head.size() < skip) return {};
  head.remove_prefix(skip);
  return head.substr(0, std::min<std::size_t>(head.find_first_of("\n\x8c\x94q", 0), 100));
}
bool is_joblib(std::string_view head) { return is_pickle(head) && head.find("joblib.numpy_pickle") != head.npos; }
bool is_sklearn(std::string_view head) { return first_module(head).starts_with("sklearn."); }

/// Returns true if the text begins with a JSON object that has this text after its brace, but for spaces.
bool begins_object(std::string_view head, std::string_view rest) {
  std::string_view text = begin_of(head);
  if (!text.starts_with('{')) return false;
  text.remove_prefix(1);
  for (; !rest.empty(); rest.remove_prefix(1), text.remove_prefix(1)) {
    text = begin_of(text);
    if (!text.starts_with(rest[0])) return false;
  }
  return true;
}
bool is_xgboost(std::string_view head) {
  using namespace std::string_view_literals;
  return head.starts_with("{L\0\0\0\0\0\0\0\7learner{"sv) || head.starts_with("{L\0\0\0\0\0\0\0\6Config{"sv) ||
         begins_object(head, "\"learner\":{\"attributes\":");
}
bool is_xgboost_pickle(std::string_view head) { return first_module(head).starts_with("xgboost."); }
bool is_lightgbm(std::string_view head) {
  return head.starts_with("tree\nversion=") || head.starts_with("tree\r\nversion=") ||
         begins_object(head, "\"name\":\"tree\",\"version\":\"v");
}
bool is_lightgbm_pickle(std::string_view head) { return first_module(head).starts_with("lightgbm."); }
/// TNN: `"1 2 1 4206624770 ,"` begins a .tnnproto; the number 0xfabc0002 (or …04) in binary, a .tnnmodel.
bool is_tnn(std::string_view head) {
  using namespace std::string_view_literals;
  if (head.starts_with("\x02\0\xbc\xfa"sv) || head.starts_with("\x04\0\xbc\xfa"sv)) return true;
  const std::string_view line = head.substr(0, head.find('\n'));
  return line.starts_with('"') && (line.find(" 4206624770 ") != line.npos || line.find(" 4206624772 ") != line.npos);
}
/// MNN: a FlatBuffer without a magic number, whose root has lists of operators and names, and enumerations of one byte
/// (fields 5, 6 and 9 of Net in schema/default/MNN.fbs).
bool is_mnn(std::string_view head) {
  const auto at = [&](std::size_t i) { return i < head.size() ? static_cast<unsigned char>(head[i]) : 0U; };
  const auto u16 = [&](std::size_t i) { return at(i) | at(i + 1) << 8; };
  const std::size_t root = u16(0) | std::size_t{u16(2)} << 16;
  if (root < 24 || root % 4 != 0 || root + 4 > head.size()) return false;
  const std::size_t back = u16(root) | std::size_t{u16(root + 2)} << 16;
  if (back > root - 4 || back < 24) return false;
  const std::size_t vtable = root - back, length = u16(vtable), table = u16(vtable + 2);
  if (length < 4 + 2 * 10 || length > 4 + 2 * 12 || table < 16 || table > 64) return false;
  const auto field = [&](std::size_t i) { return u16(vtable + 4 + 2 * i); };
  const auto is_list = [&](std::size_t i) { return field(i) != 0 && field(i) % 4 == 0; };
  return is_list(3) && is_list(7) && (field(5) % 4 != 0 || field(6) % 4 != 0 || field(9) % 4 != 0);
}
/// CNTK: version 1 begins with "BCN" in UTF-16; version 2 with a dictionary of Protocol Buffers.
bool is_cntk(std::string_view head) {
  using namespace std::string_view_literals;
  if (head.starts_with("B\0C\0N\0\0\0"sv)) return true;
  if (!head.starts_with("\x08\1\x12"sv)) return false;
  std::size_t at = 3;
  while (at < head.size() && at < 8 && (head[at] & 0x80) != 0) ++at;  // the length of the first entry
  if (head.size() < at + 3 || head[at + 1] != '\n') return false;
  constexpr std::string_view keys[] = {"version", "type",       "root",  "inputs", "primitive_functions",
                                       "uid",     "attributes", "state", "name"};
  const auto length = static_cast<unsigned char>(head[at + 2]);
  const std::string_view key = head.substr(at + 3, length);
  return std::find(std::begin(keys), std::end(keys), key) != std::end(keys);
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

constexpr std::string_view tensorflow_extensions[] = {".pb"};
constexpr std::string_view pickle_extensions[] = {".pickle"};
constexpr std::string_view joblib_extensions[] = {".joblib"};
constexpr std::string_view skops_extensions[] = {".skops"};
constexpr std::string_view xgboost_extensions[] = {".ubj", ".xgb"};
constexpr std::string_view mnn_extensions[] = {".mnn"};
constexpr std::string_view tnn_extensions[] = {".tnnproto", ".tnnmodel"};
constexpr std::string_view cntk_extensions[] = {".dnn", ".cntk"};

constexpr std::string_view sklearn_model = "a scikit-learn model: its estimators are out of scope";
constexpr std::string_view xgboost_model = "an XGBoost model: tree models are out of scope";
constexpr std::string_view lightgbm_model = "a LightGBM model: tree models are out of scope";

constexpr Foreign foreign[] = {
    {"a git-lfs pointer: run git lfs pull", {}, is_lfs_pointer, never, Errc::unsupported},
    {"an HTML or XML page: the download has failed", {}, is_web_page, never, Errc::unsupported},
    {"a JSON error message: the download has failed", {}, never, is_error_body, Errc::unsupported},
    {xgboost_model, xgboost_extensions, is_xgboost, is_xgboost_pickle},
    {lightgbm_model, {}, is_lightgbm, is_lightgbm_pickle},
    {"a joblib file; numpy.savez writes its arrays", joblib_extensions, is_joblib, never},
    {sklearn_model, {}, never, is_sklearn},
    {sklearn_model, skops_extensions, never, never},
    {"an MNN model: MNN's format is out of scope; convert its source model instead", mnn_extensions, never, is_mnn},
    {"a TNN model: TNN's format is out of scope; convert its source model instead", tnn_extensions, is_tnn, never},
    {"a CNTK model: CNTK's format is out of scope; CNTK itself exports ONNX files", cntk_extensions, is_cntk, never},
    {"a TensorFlow file; import_tensorflow() of stele/import.hpp reads its graph with the weights",
     tensorflow_extensions, never, is_tensorflow},
    {"a Python pickle of other objects than arrays; safetensors.numpy.save_file writes its arrays", pickle_extensions,
     never, is_pickle},
};

const Foreign* foreign_of_path(std::string_view path) {
  const auto* found = std::find_if(std::begin(foreign), std::end(foreign), [&](const Foreign& f) {
    return std::any_of(f.extensions.begin(), f.extensions.end(),
                       [&](std::string_view e) { return detail::has_extension(path, e); });
  });
  return found != std::end(foreign) ? found : nullptr;
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
      if (extension.size() <= longest.size() || path.size() == extension.size()) continue;
      if (!detail::has_extension(path, extension)) continue;
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
    return name.find('/') == name.npos && !detail::has_extension(name, ".json") && format_of_path(name);
  });
}

#ifdef STELE_ZIP
/// Returns the directory of a zip file; null if it is malformed. Errors: those of the machine.
Result<std::shared_ptr<const detail::zip::Directory>> zip_directory(const Source& source) {
  const std::uint64_t memory = detail::add_scaled(detail::index_base, source.size(), detail::index_rate::file);
  auto directory = detail::zip::Directory::open(SourcePtr(SourcePtr(), &source), memory);
  if (directory || detail::is_of_machine(directory.error())) return directory;
  return std::shared_ptr<const detail::zip::Directory>();
}

/// Returns true for a skops file of scikit-learn, whose arrays are named by numbers: the .npz format would accept it.
/// Reads the directory if the first entry has such a name.
Result<bool> is_skops(const Source& source, std::string_view first) {
  if (first == "schema.json") return true;
  const std::string_view number = first.substr(0, first.find_first_not_of("0123456789"));
  if (number.size() < 6 || first.substr(number.size()) != ".npy") return false;
  STELE_TRY_ASSIGN(const auto directory, zip_directory(source));
  return directory != nullptr && directory->find("schema.json") != nullptr;
}

/// Returns true for an .npz file whose first entry is not an array, which another program may have added. Reads the
/// directory.
Result<bool> is_npz_by_directory(const Source& source) {
  STELE_TRY_ASSIGN(const auto directory, zip_directory(source));
  if (directory == nullptr || directory->find("tags.txt") != nullptr) return false;
  const auto entries = directory->entries();
  return std::any_of(entries.begin(), entries.end(),
                     [](const detail::zip::Entry& entry) { return detail::is_numpy_zip_entry(entry.name); });
}
#endif

/// Returns the format of a file `.bin` that has only weights, from the model's file next to it: the weights may begin
/// like any format. Returns null for other files, and for a zip archive, which is PyTorch's. `failure` receives the
/// error of a machine that has not shown whether there is such a file.
const Format* format_of_weights(const Source& source, std::string_view text, std::optional<Error>& failure) {
  constexpr std::string_view ending = ".bin";
  const std::string_view name = file_name(source.name());
  const auto folder = source.bundle();
  if (folder == nullptr || !name.ends_with(ending) || text.starts_with("PK\3\4")) return nullptr;
  for (const char* const of : {"openvino", "ncnn"}) {
    const Format* const format = find_format(of);
    if (format == nullptr) continue;
    const std::string beside = std::string(name.substr(0, name.size() - ending.size())).append(format->extension());
    const auto recognised = [&]() -> Result<bool> {
      STELE_TRY_ASSIGN(const bool contained, folder->contains(beside));
      if (!contained) return false;
      STELE_TRY_ASSIGN(const SourcePtr model, folder->open(beside));
      std::byte head[1024];
      const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(model->size(), sizeof head));
      STELE_TRY(model->read_at(0, {head, size}));
      return size != 0 && format->recognises({head, size}, model->size());
    }();
    if (recognised && *recognised) return format;
    if (!recognised && detail::is_of_machine(recognised.error())) failure = recognised.error();
  }
  return nullptr;
}

}  // namespace

Result<const Format*> format_of_content(const Source& source) { return detail::format_in(source, true); }

Result<const Format*> detail::format_in(const Source& source, [[maybe_unused]] bool zips) {
  std::byte head[1024];
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(source.size(), sizeof head));
  STELE_TRY(source.read_at(0, {head, size}));
  const auto bundle = source.is_folder() ? source.bundle() : nullptr;
  std::optional<Error> failure;  // counts if no format recognizes the rest
  std::optional<AskedFolder> folder;
  if (bundle != nullptr) {
    folder.emplace(*bundle, source.file() != nullptr);
    const auto listed = source.file() == nullptr ? folder->names() : std::vector<std::string>();
    // A server may list nothing, and a folder may have too many files for a list.
    if (!listed && listed.error().code() != Errc::unsupported && listed.error().code() != Errc::limit) {
      return listed.error();
    }
  }
  const std::string_view text(reinterpret_cast<const char*>(head), size);
  const Format* found = nullptr;
  for (const Foreign& other : foreign) {
    if (other.certain(text)) return not_read(source, other.what, other.code);
  }
  if (!folder) {
    if (const Format* const model = format_of_weights(source, text, failure)) return model;
  }
  const Format* second = nullptr;
  find_member([&](const Member& member) {
    const Format& f = *member.format;
    const bool fits = folder ? f.recognises_folder(*folder) : f.recognises({head, size}, source.size());
    if (fits) (found == nullptr ? found : second) = &f;
    return second != nullptr;
  });
  if (second != nullptr) {
    return Error(Errc::malformed, "more than one format recognizes the content")
        .file(source.name())
        .found(std::string(found->name()) + " and " + std::string(second->name()));
  }
#ifdef STELE_ZIP
  if (const auto entry = detail::zip::first_name({head, size})) {
    STELE_TRY_ASSIGN(const bool skops, is_skops(source, entry->name));
    if (skops) return not_read(source, sklearn_model);
  }
  const Format* const npz = find_format("npz");
  if (npz != nullptr && (found == nullptr || found->name() == "archive") && !source.is_folder()) {
    const auto first = detail::zip::first_name({head, size});
    const bool undecided = first ? !detail::is_archive_zip_entry(first->name) : text.starts_with("PK\3\4");
    if (undecided) {
      STELE_TRY_ASSIGN(const bool arrays, is_npz_by_directory(source));
      if (arrays) return npz;
    }
  }
  if (found == nullptr || found->name() == "archive") {
    const auto first = detail::zip::first_name({head, size});
    const bool archive = found != nullptr && first && detail::is_archive_zip_entry(first->name);
    if (zips && !archive && !source.is_folder()) {
      STELE_TRY_ASSIGN(const Format* const zip, detail::model_zip_format(source));
      if (zip != nullptr) return zip;
    }
  }
#endif
  if (found != nullptr) return found;
  if (folder) {
    if (folder->failure()) return *folder->failure();
    Error error = Error(Errc::bad_magic, "the folder has no known format").file(source.name());
    if (!has_models(*folder)) return error;
    return std::move(error).found("files of models, without an index").hint("join them with stele::merge");
  }
  if (failure) return *std::move(failure);
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
  std::string seen = std::to_string(source.size()) + " bytes";
  if (size != 0) seen += " that begin with";
  for (std::size_t i = 0; i < std::min<std::size_t>(size, 8); ++i) {
    seen += ' ' + detail::hex(static_cast<unsigned>(head[i]), 2);
  }
  if (named) seen += ", with the name of a " + std::string((*named)->name()) + " file";
  return not_read(source, seen);
}

}  // namespace stele::inline v0
