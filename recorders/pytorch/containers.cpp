// The nested containers of the file that a snapshot was opened from.
#include "containers.hpp"

#include <algorithm>
#include <set>

#include "json/json.hpp"
#include "snapshot/tree.hpp"

namespace stele::inline v0::detail::pytorch {
namespace {

constexpr int max_levels = 512;  // as for modules: a pickle's containers are written recursively

bool is_list(ContainerKind kind) { return kind.kind == 'l' || kind.kind == 't'; }

/// Returns the segment of a path at `begin`.
std::string_view segment_at(std::string_view path, std::size_t begin) {
  return path.substr(begin, path.find('.', begin) - begin);
}

}  // namespace

Result<FileContainers> parse_containers(std::string_view json) {
  const auto refuse = [](std::string_view found) {
    return Error(Errc::malformed, "the property pytorch.containers is invalid")
        .expected("a JSON object of kinds by path")
        .found(found);
  };
  json::Reader in(json);
  Value value;
  if (auto read = json::read_value(in, value, json::kMaxValueBytesPerByte * json.size() + 1024);
      !read || !in.finish()) {
    return refuse("other JSON");
  }
  if (value.as_map() == nullptr) return refuse(name(value.kind()));
  FileContainers made;
  for (const auto& [path, kind] : *value.as_map()) {
    const std::string* const text = kind.as_string();
    const bool valid = text != nullptr && !text->empty() && std::string_view("doltvx").find((*text)[0]) != text->npos &&
                       (text->size() == 1 || (*text)[1] == 'i') && text->size() <= 2;
    if (!valid) return refuse(text != nullptr ? *text : std::string("no string"));
    const ContainerKind parsed{(*text)[0], text->size() == 2};
    made.kinds[path] = parsed;
    if (!path.empty() && parsed.kind != 'v' && parsed.kind != 'x') made.list.emplace_back(path, parsed);
  }
  return made;
}

Result<ContainerTree> ContainerTree::make(const FileContainers& file, std::span<const Entry> entries) {
  ContainerTree tree;
  tree.containers_.reserve(file.list.size() + 1);
  tree.containers_.push_back({file.root(), {}, {}});
  tree.at_ = {0};
  std::set<std::string_view> values;  // a value replaces a container with the same path
  for (const Entry& e : entries) {
    if (e.value != nullptr) values.insert(e.name);
  }
  for (const auto& [path, kind] : file.list) {
    if (values.contains(path)) continue;
    tree.containers_.push_back({kind, path, {}});
    std::uint32_t node = 0;
    for (std::size_t begin = 0;;) {
      const std::string_view segment = segment_at(path, begin);
      const auto [found, fresh] =
          tree.segments_.try_emplace({node, segment}, static_cast<std::uint32_t>(tree.at_.size()));
      if (fresh) tree.at_.push_back(no_index);
      node = found->second;
      begin += segment.size() + 1;
      if (begin > path.size()) break;
    }
    tree.at_[node] = static_cast<std::uint32_t>(tree.containers_.size() - 1);
  }
  for (std::uint32_t i = 0; i < entries.size(); ++i) tree.add(entries[i].name, {{}, i, no_index});
  tree.place_until(static_cast<std::uint32_t>(tree.containers_.size()));
  tree.segments_.clear();  // views of `file`
  STELE_TRY(tree.check(0, 0));
  return tree;
}

ContainerTree::KeyIn ContainerTree::find(std::string_view path) const {
  KeyIn best{0, path};
  std::uint32_t node = 0;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::string_view segment = segment_at(path, begin);
    const auto found = segments_.find({node, segment});
    begin += segment.size() + 1;
    if (found == segments_.end() || begin > path.size()) break;
    node = found->second;
    if (at_[node] != no_index) best = {at_[node], path.substr(begin)};
  }
  return best;
}

void ContainerTree::add(std::string_view path, Child child) {
  KeyIn place = find(path);
  std::size_t number = 0;
  while (place.container != 0 && is_list(containers_[place.container].kind) && !parse_index(place.key, number)) {
    // The container around the list; the new key is the list's key and the rest of the path.
    const KeyIn outer = find(containers_[place.container].path);
    place = {outer.container, path.substr(path.size() - place.key.size() - 1 - outer.key.size())};
  }
  place_until(place.container + 1);
  child.key = place.key;
  containers_[place.container].children.push_back(std::move(child));
}

/// Adds the containers with numbers below `number` to their outer containers: in the file's order, each before the
/// first of its entries.
void ContainerTree::place_until(std::uint32_t number) {
  while (placed_ < number) {
    const std::uint32_t now = placed_++;
    add(std::string(containers_[now].path), {{}, no_index, now});
  }
}

Status ContainerTree::check(std::uint32_t number, int depth) {
  Container& container = containers_[number];
  const auto refuse = [&](const char* why) { return Error(Errc::not_representable, why).path(container.path); };
  if (depth > max_levels) return refuse("more than 512 levels of containers");
  std::vector<Child>& children = container.children;
  if (is_list(container.kind)) {
    const auto before = [](const Child& a, const Child& b) {
      std::size_t left = SIZE_MAX, right = SIZE_MAX;
      return static_cast<void>(parse_index(a.key, left)), static_cast<void>(parse_index(b.key, right)), left < right;
    };
    std::stable_sort(children.begin(), children.end(), before);
  }
  std::vector<std::string_view> keys;
  keys.reserve(children.size());
  for (const Child& child : children) keys.push_back(child.key);
  std::sort(keys.begin(), keys.end());
  if (const auto same = std::adjacent_find(keys.begin(), keys.end()); same != keys.end()) {
    return refuse("two entries of a container have the same key").found(*same);
  }
  for (const Child& child : children) {
    if (child.container != no_index) STELE_TRY(check(child.container, depth + 1));
  }
  return {};
}

}  // namespace stele::inline v0::detail::pytorch
