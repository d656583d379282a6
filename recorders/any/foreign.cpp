// Recognizes files of other programs, and advises on how to load their tensors.
#include "foreign.hpp"

#include <algorithm>

#include "base/extension.hpp"
#include "base/of_machine.hpp"
#include "io/lfs_pointer.hpp"

#ifdef STELE_ZIP  // a format of this build has zip files
#include "encodings/zip/zip.hpp"
#endif

namespace stele::inline v0::detail {
namespace {

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

/// fastText: its magic number and version (FASTTEXT_FILEFORMAT_MAGIC_INT32 and FASTTEXT_VERSION in fasttext.cc).
bool is_fasttext(std::string_view head) {
  using namespace std::string_view_literals;
  return head.size() >= 8 && head.starts_with("\xba\x16\x4f\x2f"sv) && head[4] <= 12 && head.substr(5, 3) == "\0\0\0"sv;
}
/// TensorFlow.js: a model.json, or a list of groups of weights (the weights manifest).
bool is_tfjs(std::string_view head) {
  std::string_view text = begin_of(head);
  if (text.starts_with('['))
    return begins_object(text.substr(1), "\"weights\":[") || begins_object(text.substr(1), "\"paths\":[");
  return begins_object(text, "\"format\":\"layers-model\"") || begins_object(text, "\"format\":\"graph-model\"") ||
         begins_object(text, "\"modelTopology\":") || begins_object(text, "\"weightsManifest\":");
}
bool is_compressed(std::string_view head) {
  using namespace std::string_view_literals;
  constexpr std::string_view bzip2_block = "\x31\x41\x59\x26\x53\x59";
  return head.starts_with("\x1f\x8b\x08"sv) || head.starts_with("\x04\x22\x4d\x18"sv) ||
         head.starts_with("\xfd\x37zXZ\0"sv) || (head.starts_with("BZh") && head.substr(4).starts_with(bzip2_block));
}

bool is_lfs_pointer(std::string_view head) { return head.starts_with(lfs_pointer_begin); }
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

/// Returns true for JSON that is no document of a format: a list of objects, or an object whose first key is another.
bool is_other_json(std::string_view head) {
  std::string_view text = begin_of(head);
  if (text.starts_with('[')) return begin_of(text.substr(1)).starts_with('{');
  if (!text.starts_with('{')) return false;
  text = begin_of(text.substr(1));
  const std::size_t end = text.find('"', 1);
  if (!text.starts_with('"') || end == text.npos || !begin_of(text.substr(end + 1)).starts_with(':')) return false;
  constexpr std::string_view keys[] = {"format", "version", "layout", "metadata", "record"};  // of JSON documents
  return std::find(std::begin(keys), std::end(keys), text.substr(1, end - 1)) == std::end(keys);
}

constexpr std::string_view tensorflow_extensions[] = {".pb"};
constexpr std::string_view pnnx_extensions[] = {".pnnx.bin"};
constexpr std::string_view pickle_extensions[] = {".pickle"};
constexpr std::string_view joblib_extensions[] = {".joblib"};
constexpr std::string_view skops_extensions[] = {".skops"};
constexpr std::string_view xgboost_extensions[] = {".ubj", ".xgb"};
constexpr std::string_view mnn_extensions[] = {".mnn"};
constexpr std::string_view tnn_extensions[] = {".tnnproto", ".tnnmodel"};
constexpr std::string_view cntk_extensions[] = {".dnn", ".cntk"};

constexpr std::string_view fasttext_extensions[] = {".ftz"};
constexpr std::string_view paddle_program_extensions[] = {".pdmodel"};
constexpr std::string_view zarr_zip_extensions[] = {".zarr.zip"};

constexpr std::string_view sklearn_model = "a scikit-learn model: its estimators are out of scope";
constexpr std::string_view xgboost_model = "an XGBoost model: tree models are out of scope";
constexpr std::string_view lightgbm_model = "a LightGBM model: tree models are out of scope";

constexpr Foreign foreign[] = {
    {lfs_pointer_text, {}, is_lfs_pointer, never},
    {"an HTML or XML page: the download has failed", {}, is_web_page, never},
    {"a JSON error message: the download has failed", {}, never, is_error_body},
    {"weights of a graph of pnnx: open the file .ncnn.param that pnnx writes beside it", pnnx_extensions, never, never},
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
     never, is_pickle, Errc::bad_magic},
    {"a fastText model: its vectors of words and subwords are out of scope", fasttext_extensions, is_fasttext, never},
    {"a TensorFlow.js model: its format is out of scope; convert its source model instead", {}, never, is_tfjs},
    {"a program of Paddle: open the file .pdiparams with its parameters", paddle_program_extensions, never, never},
    {"a zip file of zarr: unpack it, and open the folder", zarr_zip_extensions, never, never},
    {"a file compressed by gzip, LZ4, xz or bzip2: decompress it first", {}, never, is_compressed, Errc::bad_magic},
    {"a JSON file that is not a model, such as a configuration: open its folder, or the file with the weights",
     {},
     never,
     is_other_json},
};

#ifdef STELE_ZIP
/// Returns true for a skops file of scikit-learn, whose arrays are named by numbers: the .npz format would accept it.
/// Reads the directory if the first entry has such a name.
Result<bool> is_skops(const Source& source, std::string_view first) {
  if (first == "schema.json") return true;
  const std::string_view number = first.substr(0, first.find_first_not_of("0123456789"));
  if (number.size() < 6 || first.substr(number.size()) != ".npy") return false;
  const auto directory = zip::directory_of(source);
  if (!directory && is_of_machine(directory.error())) return directory.error();
  return directory && *directory != nullptr && (*directory)->find("schema.json") != nullptr;
}
#endif

}  // namespace

const Foreign* foreign_of_path(std::string_view path) noexcept {
  const auto* found = std::find_if(std::begin(foreign), std::end(foreign), [&](const Foreign& f) {
    return std::any_of(f.extensions.begin(), f.extensions.end(),
                       [&](std::string_view e) { return has_extension(path, e); });
  });
  return found != std::end(foreign) ? found : nullptr;
}

Result<const Foreign*> certain_foreign(const Source& source, std::string_view head) {
  for (const Foreign& other : foreign) {
    if (other.certain(head)) return &other;
  }
  if (head.starts_with("PK\3\4") && has_extension(source.name(), pnnx_extensions[0])) {
    return foreign_of_path(pnnx_extensions[0]);
  }
#ifdef STELE_ZIP
  if (const auto entry = zip::first_name(std::as_bytes(std::span(head)))) {
    STELE_TRY_ASSIGN(const bool skops, is_skops(source, entry->name));
    if (skops) return foreign_of_path(skops_extensions[0]);
    // zarr-python writes a group's or array's metadata first.
    constexpr std::string_view zarr_names[] = {"zarr.json", ".zgroup", ".zarray", ".zmetadata", ".zattrs"};
    const std::string_view name = entry->name.substr(entry->name.rfind('/') + 1);
    if (std::find(std::begin(zarr_names), std::end(zarr_names), name) != std::end(zarr_names)) {
      return foreign_of_path(zarr_zip_extensions[0]);
    }
  }
#endif
  return nullptr;
}

const Foreign* likely_foreign(std::string_view head) noexcept {
  const auto* found =
      std::find_if(std::begin(foreign), std::end(foreign), [&](const Foreign& f) { return f.likely(head); });
  return found != std::end(foreign) ? found : nullptr;
}

}  // namespace stele::inline v0::detail
