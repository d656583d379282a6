// The row of the format, and its capabilities.
#include "stele/recorders/paddle.hpp"

#include <algorithm>
#include <optional>

#include "io/levels_of_detail.hpp"
#include "record.hpp"
#include "stele/bundle.hpp"

namespace stele::inline v0 {
namespace {

using namespace detail::paddle;  // NOLINT(google-build-using-namespace): this file implements the format

bool holds(DType dtype) { return code_of(dtype) != 0xff; }
bool keeps(std::string_view annotation) { return annotation == lod_key; }

}  // namespace

const Capabilities& PaddleFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.max_rank = max_rank, .holds = holds, .keeps = keeps};
  return can;
}

bool PaddleFormat::recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept {
  if (size == 0) return !options_.folder;  // a model without tensors
  if (options_.folder) return false;       // another PaddleFormat opens folders
  // A record begins with a version, and the number of levels of detail.
  constexpr std::size_t without_levels = 12;
  if (head.size() < without_levels) return false;
  const bool plain =
      std::all_of(head.begin(), head.begin() + without_levels, [](std::byte b) { return b == std::byte{0}; });
  return plain ? detail::has_paddle_tensor(head, without_levels, false) : detail::has_levels_of_detail(head, size);
}

namespace {

/// Returns the name of the first file in the folder that is not a record, nullopt if all files are records, or "" if
/// there are no files.
Result<std::optional<std::string>> foreign_file(const Bundle& folder) {
  STELE_TRY_ASSIGN(const auto files, folder.names());
  for (const std::string& file : files) {
    STELE_TRY_ASSIGN(const SourcePtr source, folder.open(file));
    detail::IndexBudget memory;
    const auto record = read_record(*source, 0, source->size(), memory);
    if (!record || record->end() != source->size()) return std::optional(file);
  }
  return files.empty() ? std::optional<std::string>("") : std::nullopt;
}

}  // namespace

bool PaddleFormat::recognises_folder(const Bundle& folder) const {
  if (!options_.folder) return false;  // another PaddleFormat opens files
  for (const char* program : {"__model__", "__model__.json"}) {
    const auto contained = folder.contains(program);
    if (contained && *contained) return true;
  }
  const auto foreign = foreign_file(folder);
  return foreign && !*foreign;
}

Status PaddleFormat::may_replace(const Bundle& folder) const {
  STELE_TRY_ASSIGN(const auto foreign, foreign_file(folder));
  if (!foreign) return {};
  return Error(Errc::exists, "the target folder contains something other than parameters")
      .hint("save to another path, or set FileSinkOptions::allow_nonatomic")
      .found(*foreign);
}

namespace detail {

FormatFamily paddle_formats() {
  static const PaddleFormat file;
  static const PaddleFormat folder({.folder = true});
  static const FormatFamily::Member members[] = {{&file, {".pdiparams"}}, {&folder}};
  return {.title = "Paddle",
          .folder = "paddle",
          .recorders = "PaddleRecorder",
          .header = "recorders/paddle.hpp",
          .files = "`.pdiparams`; a folder with one file for each variable",
          .holds = "parameters",
          .members = members};
}

}  // namespace detail
}  // namespace stele::inline v0
