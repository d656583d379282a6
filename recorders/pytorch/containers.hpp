// The nested containers of the file that a snapshot was opened from, filled with the snapshot's present entries.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/result.hpp"
#include "stele/snapshot.hpp"
#include "values.hpp"

namespace stele::inline v0::detail::pytorch {

/// A tensor or a value, with its path.
struct Entry {
  std::string name;
  std::uint32_t leaf = no_index;
  const Value* value = nullptr;  // null: a tensor
};

/// The containers of a snapshot's origin, in the file's order.
struct FileContainers {
  std::vector<std::pair<std::string, ContainerKind>> list;
  ContainerKinds kinds;
  ContainerKind root() const {
    const auto found = kinds.find("");
    return found != kinds.end() ? found->second : ContainerKind{};
  }
};
/// Parses the property `pytorch.containers`. Errors: malformed.
Result<FileContainers> parse_containers(std::string_view json);

/// Nested containers. An entry belongs to the container with the longest path that begins its own path; its key is the
/// rest. In a list, the keys are numbers; an entry with another key belongs to the next outer container.
class ContainerTree {
 public:
  struct Child {
    std::string key;
    std::uint32_t entry = no_index;      // number of the entry, or
    std::uint32_t container = no_index;  // number of the container
  };
  struct Container {
    ContainerKind kind;
    std::string path;
    std::vector<Child> children;
  };

  /// Errors: not_representable (two entries with one key, more than 512 levels).
  static Result<ContainerTree> make(const FileContainers& file, std::span<const Entry> entries);
  /// Number 0 is the root.
  const Container& container(std::uint32_t number) const { return containers_[number]; }

 private:
  struct KeyIn {
    std::uint32_t container = 0;
    std::string_view key;
  };
  KeyIn find(std::string_view path) const;
  void add(std::string_view path, Child child);
  void place_until(std::uint32_t number);
  Status check(std::uint32_t number, int depth);

  std::vector<Container> containers_;
  std::uint32_t placed_ = 1;
  // The segments of the containers' paths: (node, segment) → node; the containers of the nodes.
  std::map<std::pair<std::uint32_t, std::string_view>, std::uint32_t> segments_;
  std::vector<std::uint32_t> at_;
};

}  // namespace stele::inline v0::detail::pytorch
