// The row of the format, and its capabilities.
#include "stele/recorders/nnef.hpp"

#include <algorithm>

#include "base/entry_names.hpp"
#include "encodings/gzip/gzip.hpp"
#include "encodings/tar/tar.hpp"
#include "files.hpp"
#include "stele/bundle.hpp"
#include "stele/quantize.hpp"
#include "tensor.hpp"

namespace stele::inline v0 {
namespace {

namespace nnef = detail::nnef;
namespace tar = detail::tar;

bool holds(DType dtype) {
  switch (dtype_class(dtype)) {
    case DTypeClass::floating:
      return is_plain_float(dtype) && dtype != DType::bf16;
    case DTypeClass::signed_int:
    case DTypeClass::unsigned_int:
      return element_size(dtype) != 0;
    case DTypeClass::boolean:
    case DTypeClass::opaque:
      return true;
    default:
      return false;
  }
}

bool keeps(std::string_view annotation) {
  return annotation == quantization_key || annotation == nnef::bits_key || annotation == nnef::quantized_key ||
         annotation == nnef::vendor_key || annotation == nnef::type_key || annotation == nnef::operation_key;
}

}  // namespace

std::string_view NnefFormat::name() const noexcept {
  switch (options_.container) {
    case NnefContainer::by_name:
    case NnefContainer::folder:
      return "nnef";
    case NnefContainer::tgz:
      return "nnef-tgz";
    case NnefContainer::tensor:
      break;
  }
  return "nnef-tensor";
}

std::string_view NnefFormat::extension() const noexcept {
  switch (options_.container) {
    case NnefContainer::by_name:
    case NnefContainer::folder:
      return ".nnef";
    case NnefContainer::tgz:
      return ".nnef.tgz";
    case NnefContainer::tensor:
      break;
  }
  return nnef::ending;
}

const Capabilities& NnefFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.max_rank = nnef::max_rank, .holds = holds, .keeps = keeps};
  return can;
}

bool NnefFormat::recognises(std::span<const std::byte> head, std::uint64_t /*size*/) const noexcept {
  std::byte inflated[tar::head_size];
  const std::string_view first(reinterpret_cast<const char*>(head.data()), std::min<std::size_t>(head.size(), 100));
  if (tar::looks_like_tar(head) && detail::is_pytorch_tar_entry(first.substr(0, first.find('\0')))) return false;
  const bool any = options_.container == NnefContainer::by_name;
  if ((any || options_.container == NnefContainer::tgz) &&
      (tar::looks_like_tar(head) || tar::looks_like_tar(detail::gzip::inflated_head(head, inflated)))) {
    return true;
  }
  return (any || options_.container == NnefContainer::tensor) && head.size() >= 4 && head[0] == std::byte{0x4e} &&
         head[1] == std::byte{0xef} && head[2] == std::byte{1};
}

bool NnefFormat::makes_folder(std::string_view path) const noexcept {
  return nnef::container_at(options_.container, path) == NnefContainer::folder;
}

bool NnefFormat::recognises_folder(const Bundle& folder) const {
  if (!is_folder()) return false;  // NnefFormats with other options open the other containers
  if (folder.open(nnef::graph_file)) return true;
  return nnef::check_whole(folder).has_value();
}

Status NnefFormat::may_replace(const Bundle& folder) const {
  Status known = [&]() -> Status {
    STELE_TRY(nnef::check_whole(folder));
    STELE_TRY_ASSIGN(const bool described, folder.contains(nnef::graph_file));
    if (!described && !options_.graph) return {};
    STELE_TRY_ASSIGN(const std::string graph, nnef::read_text(folder, nnef::graph_file));
    if (graph.starts_with(nnef::made_here)) return {};
    return Error(Errc::exists, "another program wrote its graph").found(nnef::graph_file);
  }();
  if (known || known.error().code() == Errc::out_of_memory) return known;
  const Error& why = known.error();
  return Error(Errc::exists, "the target folder is not only a model that stele saved: " + std::string(why.message()))
      .path(why.path())
      .file(why.file())
      .expected(why.expected())
      .found(why.found())
      .hint("save to another path, or set FileSinkOptions::allow_nonatomic");
}

namespace detail {

FormatFamily nnef_formats() {
  static const NnefFormat folder({.container = NnefContainer::folder});
  static const NnefFormat tgz({.container = NnefContainer::tgz});
  static const NnefFormat tensor({.container = NnefContainer::tensor});
  static const FormatFamily::Member members[] = {{&folder, {".nnef"}}, {&tgz, {".nnef.tgz"}}, {&tensor, {".dat"}}};
  return {.title = "NNEF",
          .folder = "nnef",
          .recorders = "NnefRecorder",
          .header = "recorders/nnef.hpp",
          .files = "a folder `.nnef`; `.nnef.tgz`; `.dat` for one tensor",
          .holds = "parameters, quantized tensors",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
