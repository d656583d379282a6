// The base of the writers of all encodings: the snapshot, the class's fields and the current path.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fields.hpp"
#include "record.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/tree.hpp"
#include "types.hpp"

namespace stele::inline v0::detail::burn {

class RecordWriter {
 protected:
  RecordWriter(const Snapshot& snapshot, BurnEra era) : snapshot_(snapshot), tree_(snapshot), era_(era) {}

  Error refuse(Errc code, const char* why) const { return Error(code, why).path(path_); }

  /// Calls `write` with the path of a child.
  template <class Write>
  Status at(std::string_view name, Write write) {
    const std::size_t size = path_.size();
    if (size != 0) path_ += '.';
    append_segment(path_, name);
    STELE_TRY(write());
    path_.resize(size);
    return {};
  }
  /// Calls `constant(field)` or `child(type, name, place)` for each field of a class, in Rust's order.
  template <class Constant, class Child>
  Status each_field(const TypeInfo& type, const Place& place, Constant constant, Child child) {
    std::uint32_t hint = 0;
    return fields_.each(type, constant, [&](const Field& field, const TypeInfo& inner) {
      return child(inner, field.name, tree_.child(place, field.name, hint));
    });
  }

  /// A tensor with the shape, dtype and id that its file stores.
  struct Described {
    LeafView leaf;
    std::vector<Extent> shape;
    Value dtype;
    std::optional<std::string> id;  // none: the tensor is bare
  };
  Result<Described> describe(const Node& node) const {
    const LeafView leaf = snapshot_.leaf(node.index);
    STELE_TRY_ASSIGN(auto shape, shape_of(leaf));
    STELE_TRY_ASSIGN(Value dtype, spell_dtype(leaf, era_));
    Described described{leaf, std::move(shape), std::move(dtype), std::nullopt};
    if (!is_bare(leaf) && (!fields_.in_record() || leaf.id())) described.id = id_text_of(leaf, path_);
    return described;
  }

  const Snapshot& snapshot_;
  Tree tree_;
  BurnEra era_;
  Fields fields_;
  std::string path_;
};

}  // namespace stele::inline v0::detail::burn
