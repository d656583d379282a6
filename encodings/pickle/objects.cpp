// The objects of a pickle, after its operations have run.
#include <bit>

#include "encodings/pickle/pickle.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::pickle {
namespace {

std::uint64_t wide(std::uint32_t low, std::uint32_t high) { return low | std::uint64_t{high} << 32; }

}  // namespace

double Objects::real(Ref r) const noexcept { return std::bit_cast<double>(nodes_[r].number); }

std::string_view Objects::text(Ref r) const noexcept {
  const Node& node = nodes_[r];
  if (node.number == in_source_) return {};
  return std::string_view(text_).substr(static_cast<std::size_t>(node.number),
                                        static_cast<std::size_t>(wide(node.first_item, node.item_count)));
}

Objects::Place Objects::place(Ref r) const noexcept {
  const Node& node = nodes_[r];
  return {wide(node.first_entry, node.entry_count & ~latin1_), wide(node.first_item, node.item_count),
          (node.entry_count & latin1_) != 0};
}

std::string_view Objects::module(Ref r) const noexcept {
  return std::string_view(text_).substr(static_cast<std::size_t>(nodes_[r].number), nodes_[r].first_item);
}

std::string_view Objects::name(Ref r) const noexcept {
  const Node& node = nodes_[r];
  return std::string_view(text_).substr(static_cast<std::size_t>(wide(node.args, node.state)), node.item_count);
}

bool Objects::is_global(Ref r, std::string_view module, std::string_view name) const noexcept {
  return is(r, Kind::global) && this->name(r) == name && this->module(r) == module;
}

std::span<const Ref> Objects::items(Ref r) const noexcept {
  const Node& node = nodes_[r];
  if (node.kind < Kind::list || node.kind == Kind::global || node.kind == Kind::persistent) return {};
  return std::span(items_).subspan(node.first_item, node.item_count);
}

std::span<const Ref> Objects::entries(Ref r) const noexcept {
  const Node& node = nodes_[r];
  if (node.kind != Kind::object) return {};
  return std::span(items_).subspan(node.first_entry, node.entry_count);
}

Ref Objects::find(Ref dict, std::string_view key) const noexcept {
  const auto all = items(dict);
  for (std::size_t i = all.size(); i >= 2; i -= 2) {
    if (is(all[i - 2], Kind::string) && text(all[i - 2]) == key) return all[i - 1];
  }
  return no_ref;
}

Ref Objects::callable(Ref r) const noexcept { return nodes_[r].callable; }
Ref Objects::args(Ref r) const noexcept { return nodes_[r].kind == Kind::global ? no_ref : nodes_[r].args; }
Ref Objects::state(Ref r) const noexcept { return nodes_[r].kind == Kind::global ? no_ref : nodes_[r].state; }

std::optional<Value> Objects::plain(Ref r) const {
  switch (kind(r)) {
    case Kind::none:
      return Value();
    case Kind::boolean:
      return Value(boolean(r));
    case Kind::integer:
      return Value(integer(r));
    case Kind::real:
      return Value(real(r));
    case Kind::big:
      if (const std::string_view digits = text(r); digits.size() == 9 && digits[8] == '\0') {
        return Value(load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(digits.data())));
      }
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<unsigned> protocol(std::span<const std::byte> head) noexcept {
  if (head.size() < 2 || head[0] != std::byte{0x80}) return std::nullopt;
  const auto version = std::to_integer<unsigned>(head[1]);
  if (version < 2 || version > 5) return std::nullopt;
  return version;
}

}  // namespace stele::inline v0::detail::pickle
