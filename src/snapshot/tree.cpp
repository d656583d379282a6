#include "snapshot/tree.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/name_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/items.hpp"

namespace stele::inline v0::detail {

bool first_segment(std::string_view path, std::string_view& raw, std::string& plain) {
  plain.clear();
  std::size_t i = 0;
  for (; i < path.size() && path[i] != '.'; ++i) {
    if (path[i] != '\\') {
      plain += path[i];
      continue;
    }
    if (++i == path.size()) return false;
    if (path[i] == 'e') {
      if (i != 1) return false;
    } else if (path[i] == '\\' || path[i] == '.') {
      plain += path[i];
    } else {
      return false;
    }
  }
  raw = path.substr(0, i);
  return raw.empty() ? false : raw == "\\e" || !plain.empty();
}

namespace {

/// Returns true if each segment of the path is valid.
bool is_path(std::string_view path) {
  std::string_view raw;
  std::string plain;
  while (first_segment(path, raw, plain)) {
    if (raw.size() == path.size()) return true;
    path.remove_prefix(raw.size() + 1);
  }
  return false;
}

}  // namespace

bool parse_index(std::string_view text, std::size_t& number) {
  if (text.empty() || (text[0] == '0' && text.size() > 1)) return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

Tree::Tree(const Snapshot& snapshot) : snapshot_(snapshot) {
  if (!snapshot.flat()) return;
  if (!snapshot.data()->name_order.empty()) {
    order_ = snapshot.data()->name_order;
    return;
  }
  const auto nodes = snapshot.nodes().subspan(1);  // 0 is the root
  sorted_ = order_by_name(static_cast<std::uint32_t>(nodes.size()),
                          [&](std::uint32_t i) { return std::string_view(nodes[i].name, nodes[i].name_size); });
  for (std::uint32_t& i : sorted_) ++i;
  order_ = sorted_;
}

bool Tree::guessed() const noexcept { return snapshot_.flat() || snapshot_.unknown_kinds().all; }

std::string_view Tree::name_at(std::uint32_t position) const {
  const Node& n = node(order_[position]);
  return {n.name, n.name_size};
}

std::uint32_t Tree::lower_bound(std::string_view key, std::uint32_t low, std::uint32_t high, std::uint32_t hint) const {
  // Gallops from the hint, because neighbours in the module are usually neighbours in the file.
  if (hint > low && hint <= high) {
    if (name_at(hint - 1) < key) {
      std::uint32_t probe = low = hint;
      for (std::uint32_t step = 1; probe < high && name_at(probe) < key; step *= 2) {
        low = probe + 1;
        probe += step;
      }
      high = std::min(high, probe);
    } else {
      high = hint - 1;
    }
  }
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (name_at(middle) < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

Place Tree::at_node(std::uint32_t number) const {
  Place place;
  place.exists = true;
  place.node = number;
  if (node(number).kind == NodeKind::alias) {
    place.alias = number;
    place.node = node(number).index;
  }
  return place;
}

Place Tree::at_path(std::string path, std::uint32_t low, std::uint32_t high, std::uint32_t& hint) const {
  Place place;
  std::uint32_t at = lower_bound(path, low, high, hint);
  if (at < high && name_at(at) == path) {
    place = at_node(order_[at]);
    hint = ++at;
    if (place.alias != no_index && place.node != no_index) {
      // For an alias of a container, continues with the container's names.
      const Node& target = node(place.node);
      if (target.kind != NodeKind::tensor && target.kind != NodeKind::value) {
        path.assign(target.name, target.name_size);
        low = at = 0;
        high = static_cast<std::uint32_t>(order_.size());
      }
    }
  }
  place.prefix = std::move(path);
  place.prefix += '.';
  place.low = lower_bound(place.prefix, at, high, at);
  place.prefix.back() = '/';  // the character after '.'
  place.high = lower_bound(place.prefix, place.low, high, place.low);
  place.prefix.pop_back();
  if (place.high > hint && place.alias == no_index) hint = place.high;
  place.exists = place.exists || place.low != place.high;
  return place;
}

Place Tree::root() const {
  if (!flat()) return snapshot_.nodes().empty() ? Place{} : at_node(0);
  Place place;
  place.exists = true;
  place.node = 0;
  place.high = static_cast<std::uint32_t>(order_.size());
  return place;
}

namespace {
// Maximum number of siblings visited one after the other before a sorted table of all siblings is built.
constexpr int max_scanned = 16;
}  // namespace

Place Tree::nested_child(const Place& parent, std::uint32_t& hint, const Segment& segment) const {
  const std::uint32_t end = node(parent.node).end;
  const std::uint32_t first = parent.node + 1;
  const std::uint32_t from = hint > parent.node && hint < end ? hint : first;
  int left = max_scanned;
  // Searches from the hint to the end, and then from the beginning.
  for (const auto& [low, high] : {std::pair(from, end), std::pair(first, from)}) {
    for (std::uint32_t i = low; i < high; i = node(i).end) {
      if (left-- == 0) {
        const std::uint32_t found = find_sorted(parent.node, segment);
        return found == no_index ? Place() : (hint = node(found).end, at_node(found));
      }
      ++steps_;
      if (segment.is(node(i))) return hint = node(i).end, at_node(i);
    }
  }
  return {};
}

std::uint32_t Tree::find_sorted(std::uint32_t parent, const Segment& segment) const {
  const auto name_of = [&](std::uint32_t i) { return std::string_view(node(i).name, node(i).name_size); };
  const auto [found, made] = children_.try_emplace(parent);
  Children& children = found->second;
  if (made) {
    for (std::uint32_t i = parent + 1; i < node(parent).end; i = node(i).end, ++steps_) {
      (node(i).name != nullptr ? children.named : children.numbered).push_back(i);
    }
    const auto order = order_by_name(static_cast<std::uint32_t>(children.named.size()),
                                     [&](std::uint32_t k) { return name_of(children.named[k]); });
    std::vector<std::uint32_t> sorted(order.size());
    std::transform(order.begin(), order.end(), sorted.begin(), [&](std::uint32_t k) { return children.named[k]; });
    children.named = std::move(sorted);
    std::stable_sort(children.numbered.begin(), children.numbered.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return node(a).name_size < node(b).name_size; });
  }
  if (segment.name) {
    const auto at = std::lower_bound(children.named.begin(), children.named.end(), *segment.name,
                                     [&](std::uint32_t i, std::string_view n) { return ++steps_, name_of(i) < n; });
    if (at != children.named.end() && name_of(*at) == *segment.name) return *at;
  }
  if (segment.number) {
    const auto at = std::lower_bound(children.numbered.begin(), children.numbered.end(), *segment.number,
                                     [&](std::uint32_t i, std::size_t n) { return ++steps_, node(i).name_size < n; });
    if (at != children.numbered.end() && node(*at).name_size == *segment.number) return *at;
  }
  return no_index;
}

Place Tree::child(const Place& parent, std::string_view name, std::uint32_t& hint) const {
  if (!parent.exists) return {};
  if (!flat()) {
    // nest() cannot distinguish the numbers of a variant or map from the numbers of a list.
    std::size_t number = 0;
    const bool numeric = guessed() && parse_index(name, number);
    return nested_child(parent, hint, {name, numeric ? std::optional(number) : std::nullopt});
  }
  std::string path = parent.prefix;
  if (parent.node != 0) path += '.';
  append_segment(path, name);
  return at_path(std::move(path), parent.low, parent.high, hint);
}

Place Tree::element(const Place& parent, std::size_t number, std::uint32_t& hint) const {
  if (!parent.exists) return {};
  if (!flat()) {
    return nested_child(parent, hint, {std::nullopt, number});
  }
  std::string path = parent.prefix;
  if (parent.node != 0) path += '.';
  path += std::to_string(number);
  return at_path(std::move(path), parent.low, parent.high, hint);
}

Place Tree::below(Place from, std::string_view path) const {
  std::string_view raw;
  std::string plain;
  while (from.exists && !path.empty()) {
    if (!first_segment(path, raw, plain)) return {};
    path.remove_prefix(std::min(path.size(), raw.size() + 1));
    std::uint32_t hint = 0;
    Place next = child(from, plain, hint);
    std::size_t number = 0;
    if (!next.exists && parse_index(plain, number)) next = element(from, number, hint = 0);
    from = std::move(next);
  }
  return from;
}

bool Tree::count(const Place& list, std::size_t& n, std::size_t& gap) const {
  n = 0;
  if (!list.exists) return true;
  if (!flat()) {
    for (std::uint32_t i = list.node + 1; i < node(list.node).end; i = node(i).end, ++n) {
      if (node(i).name == nullptr && node(i).name_size != n) return gap = n, false;
    }
    return true;
  }
  // Each name below the list begins with an index; together the indices must be 0 … n-1.
  std::vector<bool> present;
  const std::size_t skip = list.node == 0 ? 0 : list.prefix.size() + 1;
  for (std::uint32_t i = list.low; i < list.high; ++i) {
    const std::string_view rest = name_at(i).substr(skip);
    std::size_t number = 0;
    if (!parse_index(rest.substr(0, rest.find('.')), number)) continue;  // reported as unused
    if (number >= list.high - list.low) {
      gap = present.size();
      for (std::size_t k = 0; k < present.size(); ++k) {
        if (!present[k]) return gap = k, false;
      }
      return false;
    }
    if (present.size() <= number) present.resize(number + 1);
    present[number] = true;
  }
  n = present.size();
  for (gap = 0; gap < n; ++gap) {
    if (!present[gap]) return false;
  }
  return true;
}

std::vector<std::uint32_t> Tree::hidden() const {
  const auto size = static_cast<std::uint32_t>(order_.size());
  const auto is_leaf = [&](std::uint32_t i) { return !is_container(node(order_[i]).kind); };
  // For each position: the difference from the previous one in the number of leaf paths that are a prefix of the name
  // there.
  std::vector<std::int32_t> change(size + 1);
  for (std::uint32_t i = 0; i < size; ++i) {
    if (!is_leaf(i)) continue;
    std::string path(name_at(i));
    path += '.';
    const std::uint32_t low = lower_bound(path, i, size, i + 1);
    path.back() = '/';  // the character after '.'
    ++change[low];
    --change[lower_bound(path, low, size, low)];
  }
  std::vector<std::uint32_t> found;
  std::int32_t above = 0;
  for (std::uint32_t i = 0; i < size; ++i) {
    above += change[i];
    if (is_leaf(i) && (above != 0 || !is_path(name_at(i)))) found.push_back(order_[i]);
  }
  std::sort(found.begin(), found.end());
  return found;
}

void Tree::each(const Place& map, const std::function<void(std::string_view, const Place&)>& visit) const {
  if (!map.exists) return;
  if (!flat()) {
    for (std::uint32_t i = map.node + 1; i < node(map.node).end; i = node(i).end) {
      if (node(i).name != nullptr) {
        visit({node(i).name, node(i).name_size}, at_node(i));
      } else {
        visit(std::to_string(node(i).name_size), at_node(i));
      }
    }
    return;
  }
  const std::size_t skip = map.node == 0 ? 0 : map.prefix.size() + 1;
  std::string key;
  std::string_view raw;
  std::uint32_t hint = map.low;
  for (std::uint32_t i = map.low; i < map.high; ++i) {
    const std::string_view name = name_at(i);
    if (!first_segment(name.substr(skip), raw, key)) continue;  // reported as unused
    const std::string_view path = name.substr(0, skip + raw.size());
    if (path.size() != name.size()) {
      // For "a.x": the key a has already been visited with the first name that begins with "a.", or with "a" itself,
      // which may come before "a-b".
      const bool run = i > map.low && name_at(i - 1).substr(0, path.size() + 1) == name.substr(0, path.size() + 1);
      const std::uint32_t exact = lower_bound(path, map.low, i, 0);
      if (run || (exact < i && name_at(exact) == path)) continue;
    }
    const Place place = at_path(std::string(path), map.low, map.high, hint);
    visit(key, place);
  }
}

}  // namespace stele::inline v0::detail
