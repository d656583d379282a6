#include <algorithm>
#include <array>

#include "stele/bundle.hpp"
#include "stele/recorders/any.hpp"
#include "stele/recorders/archive.hpp"
#include "stele/recorders/binary.hpp"
#include "stele/recorders/burn.hpp"
#include "stele/recorders/json.hpp"
#include "stele/recorders/nnef.hpp"
#include "stele/recorders/paddle.hpp"
#include "stele/recorders/safetensors.hpp"
#include "stele/recorders/samediff.hpp"

namespace stele {
inline namespace v0 {

namespace {

const SteleFormat stele_format;
const SafetensorsFormat safetensors_format;
const ShardedSafetensorsFormat sharded_format;
const ArchiveFormat archive_format;
const SameDiffFormat samediff_format;
const SameDiffFormat sdnb_format({.container = SameDiffContainer::sdnb});
const SameDiffFormat sdz_format({.container = SameDiffContainer::sdz});
const NnefFormat nnef_format;
const NnefFormat nnef_tgz_format({.container = NnefContainer::tgz});
const NnefFormat nnef_tensor_format({.container = NnefContainer::tensor});
const PaddleFormat paddle_format;
const PaddleFormat paddle_folder_format({.folder = true});
const BurnpackFormat burnpack_format;
const BurnFormat burn_mpk_format({.encoding = BurnEncoding::mpk});
const BurnFormat burn_mpk_gzip_format({.encoding = BurnEncoding::mpk, .gzip = true});
const BurnFormat burn_bin_format({.encoding = BurnEncoding::bin});
const BurnFormat burn_bin_gzip_format({.encoding = BurnEncoding::bin, .gzip = true});
const BurnFormat burn_json_format({.encoding = BurnEncoding::json});
const BurnFormat burn_json_gzip_format({.encoding = BurnEncoding::json, .gzip = true});
const JsonFormat json_format({.encoding = JsonEncoding::plain});
const JsonFormat json_zstd_format({.encoding = JsonEncoding::zstd});
const JsonFormat json_gzip_format({.encoding = JsonEncoding::gzip});

/// The one list of formats.
constexpr std::array<const Format*, 22> all = {
    &stele_format,     &safetensors_format,   &sharded_format,       &archive_format,   &samediff_format,
    &sdnb_format,      &sdz_format,           &nnef_format,          &nnef_tgz_format,  &nnef_tensor_format,
    &paddle_format,    &paddle_folder_format, &json_format,          &json_zstd_format, &json_gzip_format,
    &burnpack_format,  &burn_mpk_format,      &burn_mpk_gzip_format, &burn_bin_format,  &burn_bin_gzip_format,
    &burn_json_format, &burn_json_gzip_format};

std::string join(const char* separator, auto text_of) {
  std::string text;
  for (const Format* f : all) {
    const std::string_view one = text_of(*f);
    if (!one.empty()) text += (text.empty() ? "" : separator) + std::string(one);
  }
  return text;
}

}  // namespace

std::span<const Format* const> formats() { return all; }

const Format* find_format(std::string_view name) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Format* f) { return f->name() == name; });
  return found != all.end() ? *found : nullptr;
}

Result<const Format*> format_of_path(const std::string& path) {
  if (path.empty()) return Error(Errc::invalid_argument, "an empty path");
  const Format* longest = nullptr;  // ".safetensors.index.json" is no ".json"
  for (const Format* f : all) {
    const std::string_view extension = f->extension();  // of a folder of files it may be none
    const bool fits = !extension.empty() && path.size() > extension.size() && path.ends_with(extension);
    if (fits && (longest == nullptr || f->extension().size() > longest->extension().size())) longest = f;
  }
  if (longest != nullptr) return longest;
  return Error(Errc::unsupported, "no format has this extension").file(path).expected(join(" or ", [](const Format& f) {
    return f.extension();
  }));
}

Result<const Format*> format_of_content(const Source& source) {
  std::byte head[1024];
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(source.size(), sizeof head));
  STELE_TRY(source.read_at(0, {head, size}));
  const auto folder = source.is_folder() ? source.bundle() : nullptr;
  const Format* found = nullptr;
  for (const Format* f : all) {
    const bool fits = folder != nullptr ? f->recognises_folder(*folder) : f->recognises({head, size}, source.size());
    if (!fits) continue;
    if (found != nullptr) {
      return Error(Errc::malformed, "content that more than one format claims")
          .file(source.name())
          .found(std::string(found->name()) + " and " + std::string(f->name()));
    }
    found = f;
  }
  if (found != nullptr) return found;
  if (folder != nullptr) return Error(Errc::bad_magic, "not a folder of a known format").file(source.name());
  static constexpr char digits[] = "0123456789abcdef";
  std::string seen = std::to_string(source.size()) + " bytes";
  if (size != 0) seen += " that begin with";
  for (std::size_t i = 0; i < std::min<std::size_t>(size, 8); ++i) {
    const auto b = static_cast<unsigned>(head[i]);
    seen += {' ', digits[b >> 4], digits[b & 15U]};
  }
  return Error(Errc::bad_magic, "not a file of a known format")
      .file(source.name())
      .expected(join(" or ", [](const Format& f) { return f.name(); }))
      .found(seen);
}

}  // namespace v0
}  // namespace stele
