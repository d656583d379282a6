// Names of unfinished files and folders, and the removal of those that killed processes left.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <functional>
#include <utility>

#include "io/files.hpp"

namespace stele::inline v0::detail {
namespace {

constexpr std::string_view mark = ".stele-";
constexpr std::string_view ending = ".tmp";
// Maximum length of a temporary's name without the file's name: the dot, the mark, two numbers, their hyphen, the
// ending. Uses the maximum, so that a name is shortened equally for all numbers.
constexpr std::size_t decoration = 1 + mark.size() + 10 + 1 + 20 + ending.size();
// A folder with at most this number of names is listed at every save, a fuller one at every 2nd, 3rd …, so that writing
// many files into one folder takes linear time.
constexpr std::size_t listed_per_save = 64;

}  // namespace

std::string temporary_prefix(const std::string& leaf, std::size_t longest_name) {
  std::size_t length = std::min(leaf.size(), longest_name > decoration ? longest_name - decoration : 0);
  // Does not split a UTF-8 character, because some file systems refuse such names.
  while (length < leaf.size() && length > 0 && (static_cast<unsigned char>(leaf[length]) & 0xC0U) == 0x80U) --length;
  return "." + leaf.substr(0, length) + std::string(mark);
}

std::string temporary_name(const std::string& prefix) {
  static std::atomic<std::uint64_t> counter{0};
  return prefix + std::to_string(os::process_id()) + "-" +
         std::to_string(counter.fetch_add(1, std::memory_order_relaxed)) + std::string(ending);
}

namespace {

/// Returns the process that created the temporary `name`, or 0 if `name` is not a temporary with this prefix.
std::uint64_t maker_of(std::string_view name, std::string_view prefix) noexcept {
  if (!name.starts_with(prefix) || !name.ends_with(ending) || name.size() < prefix.size() + ending.size()) return 0;
  const char* const last = name.data() + name.size() - ending.size();
  std::uint64_t process = 0;
  std::uint64_t counter = 0;
  const auto first = std::from_chars(name.data() + prefix.size(), last, process);
  if (first.ec != std::errc() || first.ptr == last || *first.ptr != '-') return 0;
  const auto second = std::from_chars(first.ptr + 1, last, counter);
  return second.ec == std::errc() && second.ptr == last ? process : 0;
}

/// Returns the process that created a temporary for any target; 0 for other names.
std::uint64_t maker_of_any(std::string_view name) noexcept {
  const std::size_t at = name.rfind(mark);
  return name.starts_with('.') && at != name.npos ? maker_of(name, name.substr(0, at + mark.size())) : 0;
}

/// Removes the temporaries of killed processes. `maker` returns the process of a name, or 0. Returns the number of
/// names in the folder.
///
/// Requires both that the process does not exist and that the lock is free. If this process has the id of an earlier
/// process (in containers, the id may be equal in every run), only the lock counts.
template <class Maker>
std::size_t remove_abandoned(const os::Folder& folder, os::Kind kind, Maker maker) {
  std::vector<std::string> leftovers;
  const std::size_t count = os::list(folder, [&](std::string_view name) {
    const std::uint64_t process = maker(name);
    if (process == 0 || (process != os::process_id() && os::process_lives(process))) return;
    leftovers.emplace_back(name);
  });
  for (const std::string& leaf : leftovers) os::remove_abandoned(folder, leaf, kind);
  return count;
}

}  // namespace

bool is_temporary(std::string_view name) noexcept { return maker_of_any(name) != 0; }

void remove_leftover_folders(const os::Folder& folder) { remove_abandoned(folder, os::Kind::folder, maker_of_any); }

void remove_leftovers(const os::Folder& folder, const std::string& folder_path, const std::string& prefix,
                      os::Kind kind) {
  // State of the folder into which this thread saved last.
  static thread_local std::size_t last_folder = 0;
  static thread_local std::size_t saves_to_skip = 0;
  const std::size_t this_folder = std::hash<std::string>()(folder_path);
  if (std::exchange(last_folder, this_folder) == this_folder && saves_to_skip > 0) {
    --saves_to_skip;
    return;
  }
  const std::size_t count =
      remove_abandoned(folder, kind, [&](std::string_view name) { return maker_of(name, prefix); });
  saves_to_skip = count / listed_per_save;
}

}  // namespace stele::inline v0::detail
