#include "stele/transforms/pytorch.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/limits.hpp"
#include "passes/transpose.hpp"
#include "snapshot/items.hpp"
#include "snapshot/tree.hpp"
#include "stele/transform.hpp"

namespace stele::inline v0::pytorch {

using detail::Place;

namespace {

/// The new name of each renamed leaf, and the transposed tensors.
struct Changes {
  std::unordered_map<std::string, std::string> names;
  std::unordered_set<std::string> transposed;  // their new names

  Result<Snapshot> apply(const Snapshot& snapshot) const {
    STELE_TRY_ASSIGN(const Snapshot named,
                     detail::with_new_paths(snapshot, [&](std::string_view path, const LeafView*) {
                       const auto found = names.find(std::string(path));
                       return std::optional(found != names.end() ? found->second : std::string(path));
                     }));
    return detail::transpose_where(named, [&](const LeafView& leaf) {
      return transposed.contains(leaf.path()) ? std::optional(std::vector<std::size_t>()) : std::nullopt;
    });
  }
};

const LayerRule* rule_of(std::span<const LayerRule> rules, std::string_view type) {
  const auto found = std::find_if(rules.begin(), rules.end(), [&](const LayerRule& r) { return r.type == type; });
  return found != rules.end() ? &*found : nullptr;
}

bool contains(const std::vector<std::string>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

std::string below(const std::string& path, std::string_view segment) {
  std::string text = path;
  if (!text.empty()) text += '.';
  append_segment(text, segment);
  return text;
}

/// Walks a type and a file together, as a load does.
class Adapter {
 public:
  Adapter(const Snapshot& file, std::span<const LayerRule> rules) : tree_(file), rules_(rules) {}

  Result<Snapshot> run(Schema schema) {
    STELE_TRY(visit(schema, tree_.root(), "", false, 0));
    return changes_.apply(tree_.snapshot());
  }

 private:
  Status visit(Schema schema, const Place& place, const std::string& path, bool transposed, int depth) {
    if (!place.exists) return {};
    if (depth > detail::max_depth || ++visits_ > detail::max_names) {
      return Error(Errc::limit, "the type has too many paths in the file").path(path);
    }
    switch (schema.kind()) {
      case TypeKind::none:
        return {};
      case TypeKind::tensor:
      case TypeKind::value: {
        if (place.node == no_index) return {};
        const std::string file_path = tree_.snapshot().path(place.alias != no_index ? place.alias : place.node);
        changes_.names.emplace(file_path, path);
        if (transposed) changes_.transposed.insert(path);
        return {};
      }
      case TypeKind::module:
        return fields(schema, place, path, depth);
      case TypeKind::tuple:
      case TypeKind::list:
      case TypeKind::array:
        return elements(schema, place, path, depth);
      case TypeKind::map: {
        Status status;
        tree_.each(place, [&](std::string_view key, const Place& at) {
          if (status) status = visit(schema.element(), at, below(path, key), false, depth + 1);
        });
        return status;
      }
      case TypeKind::variant:
        for (std::size_t i = 0; i < schema.field_count(); ++i) {
          const Schema::Field alternative = schema.field(i);
          std::uint32_t hint = 0;
          STELE_TRY(visit(alternative.type, tree_.child(place, alternative.name, hint), below(path, alternative.name),
                          false, depth + 1));
        }
        return {};
      case TypeKind::optional:
      case TypeKind::pointer:
      case TypeKind::shared:
        return visit(schema.element(), place, path, transposed, depth + 1);
    }
    return {};
  }

  Status fields(Schema schema, const Place& place, const std::string& path, int depth) {
    const LayerRule* rule = rule_of(rules_, schema.name());
    std::uint32_t hint = 0;
    for (std::size_t i = 0; i < schema.field_count(); ++i) {
      const Schema::Field field = schema.field(i);
      std::string_view name = field.name;
      if (rule != nullptr) {
        for (const auto& [here, there] : rule->names) name = here == field.name ? std::string_view(there) : name;
      }
      const bool transposed = rule != nullptr && contains(rule->transposed, field.name);
      STELE_TRY(visit(field.type, tree_.child(place, name, hint), below(path, field.name), transposed, depth + 1));
    }
    return {};
  }

  Status elements(Schema schema, const Place& place, const std::string& path, int depth) {
    std::size_t n = 0;
    std::size_t gap = 0;
    std::uint32_t hint = 0;
    if (schema.kind() == TypeKind::tuple) {
      n = schema.field_count();
    } else if (schema.kind() == TypeKind::array) {
      n = schema.length();
    } else if (!tree_.count(place, n, gap)) {
      return {};  // the load reports it
    }
    for (std::size_t i = 0; i < n; ++i) {
      const Schema type = schema.kind() == TypeKind::tuple ? schema.field(i).type : schema.element();
      STELE_TRY(visit(type, tree_.element(place, i, hint), below(path, std::to_string(i)), false, depth + 1));
    }
    return {};
  }

  detail::Tree tree_;
  std::span<const LayerRule> rules_;
  Changes changes_;
  std::size_t visits_ = 0;
};

}  // namespace

Result<Snapshot> adapt(const Snapshot& file, Schema schema, std::span<const LayerRule> rules) {
  return detail::guarded([&] { return Adapter(file, rules).run(schema); });
}

Result<Snapshot> restore(const Snapshot& module, std::span<const LayerRule> rules) {
  return detail::guarded([&]() -> Result<Snapshot> {
    if (module.flat()) {
      return Error(Errc::invalid_argument, "a flat snapshot does not contain the types of its layers")
          .expected("the snapshot of a module, or of a file that keeps types");
    }
    const auto nodes = module.nodes();
    std::vector<std::string> paths(nodes.size());
    Changes changes;
    for (std::uint32_t i = 1; i < nodes.size(); ++i) {
      const Node& node = nodes[i];
      const LayerRule* rule = rule_of(rules, module.type_name(nodes[node.parent]));
      std::string_view name(node.name != nullptr ? node.name : "", node.name != nullptr ? node.name_size : 0);
      const bool transposed = rule != nullptr && contains(rule->transposed, name);
      if (rule != nullptr) {
        const std::string_view here = name;
        for (const auto& [field, there] : rule->names) name = field == here ? std::string_view(there) : name;
      }
      paths[i] = below(paths[node.parent], node.name != nullptr ? name : std::to_string(node.name_size));
      changes.names.emplace(module.path(i), paths[i]);
      if (transposed) changes.transposed.insert(paths[i]);
    }
    return changes.apply(module);
  });
}

}  // namespace stele::inline v0::pytorch
