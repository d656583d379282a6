// The containers: the header of .sdnb files, the names of shards.
#include "container.hpp"

#include <algorithm>
#include <charconv>

#include "base/entry_names.hpp"
#include "dl4j/arrays.hpp"
#include "encodings/zip/zip.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/recorders/samediff.hpp"

namespace stele::inline v0 {
namespace detail::samediff {

bool parse_digits(std::string_view text, std::uint32_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

std::optional<ShardName> parse_shard_name(std::string_view file) {
  if (file.ends_with(".sdnb")) file.remove_suffix(5);
  const std::size_t of = file.rfind("-of-");
  const std::size_t shard = file.rfind(".shard");
  if (of == file.npos || shard == file.npos || shard + 6 > of) return std::nullopt;
  ShardName out{std::string(file.substr(0, shard)), 0, 0};
  if (!parse_digits(file.substr(shard + 6, of - shard - 6), out.index) ||
      !parse_digits(file.substr(of + 4), out.count)) {
    return std::nullopt;
  }
  return out;
}

std::string shard_name(std::string_view base, std::size_t index, std::size_t count) {
  return std::string(base) + ".shard" + std::to_string(index) + "-of-" + std::to_string(count) + ".sdnb";
}

}  // namespace detail::samediff

std::string_view SameDiffFormat::name() const noexcept {
  return options_.container == SameDiffContainer::sdnb  ? "sdnb"
         : options_.container == SameDiffContainer::sdz ? "sdz"
                                                        : "samediff";
}

std::string_view SameDiffFormat::extension() const noexcept {
  return options_.container == SameDiffContainer::sdnb  ? ".sdnb"
         : options_.container == SameDiffContainer::sdz ? ".sdz"
                                                        : ".fb";
}

bool SameDiffFormat::recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept {
  if (options_.container == SameDiffContainer::by_name) {
    const auto is = [&](SameDiffContainer one) { return SameDiffFormat({.container = one}).recognises(head, size); };
    return is(SameDiffContainer::fb) || is(SameDiffContainer::sdnb) || is(SameDiffContainer::sdz);
  }
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (options_.container == SameDiffContainer::sdnb) return text.starts_with(detail::samediff::sdnb_magic);
  if (options_.container == SameDiffContainer::sdz) {
    const auto first = detail::zip::first_name(head);
    return first && !detail::is_numpy_zip_entry(first->name) &&
           (first->name == "model" || (first->complete && first->name.ends_with(".sdnb")) ||
            first->name.starts_with("model.shard"));
  }
  // The format has no magic number. Requires a root table near the beginning, after a vtable with a plausible size for
  // a graph of 9 to 12 fields.
  if (head.size() < 24 || size > detail::samediff::max_buffer || size % 4 != 0) return false;
  // A FlatBuffer with a file identifier belongs to another program.
  const auto is_identifier = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  };
  if (std::all_of(text.begin() + 4, text.begin() + 8, is_identifier)) return false;
  const auto root = detail::load_le<std::uint32_t>(head.data());
  if (root < 8 || root % 4 != 0 || root > head.size() - 4) return false;
  const auto back = static_cast<std::int32_t>(detail::load_le<std::uint32_t>(head.data() + root));
  if (back < 4 || static_cast<std::uint32_t>(back) > root - 4) return false;
  const std::byte* vtable = head.data() + root - back;
  const auto length = detail::load_le<std::uint16_t>(vtable), table = detail::load_le<std::uint16_t>(vtable + 2);
  if (length < 8 || length > 4 + 2 * 16 || length % 2 != 0 || length > back || table < 4 || table > 128) return false;
  // All fields are numbers of 8 bytes or offsets. Other formats without a magic number, such as MNN's, have smaller
  // ones.
  for (std::size_t field = 4; field < length; field += 2) {
    if (detail::load_le<std::uint16_t>(vtable + field) % 4 != 0) return false;
  }
  return true;
}

}  // namespace stele::inline v0
