// Object -> Snapshot.
#include "module/walk.hpp"

#include <cxxabi.h>

#include <bit>
#include <cstdlib>
#include <optional>
#include <unordered_set>

#include "module/state_dict.hpp"
#include "snapshot/data.hpp"
#include "snapshot/module_leaf.hpp"
#include "snapshot/paths.hpp"
#include "stele/record.hpp"

namespace stele::inline v0::detail {
namespace {

/// Counts nodes and leaves, so that the arrays are allocated once.
struct Counter {
  std::size_t nodes = 0, leaves = 0, extents = 0;
  Errc begin(NodeKind, const Step&, const TypeInfo&, bool) { return ++nodes, Errc::none; }
  Errc end() { return Errc::none; }
  Errc tensor(const Step&, const TensorOps& ops, void*, bool) {
    ++nodes, ++leaves;
    extents += ops.rank > 0 ? static_cast<std::size_t>(ops.rank) : 0;
    return Errc::none;
  }
  Errc value(const Step&, const ValueOps&, void*, bool) { return ++nodes, Errc::none; }
  Errc none(const Step&, bool) { return ++nodes, Errc::none; }
  Errc alias(const Step&, std::uint32_t, bool) { return ++nodes, Errc::none; }
  void derived(const TypeInfo&, const void*) {}
  std::uint32_t mark() const { return 0; }
};

Value value_of(const PlainValue& plain) {
  switch (plain.kind) {
    case ValueKind::boolean:
      return Value(plain.bits != 0);
    case ValueKind::i64:
      return Value(static_cast<std::int64_t>(plain.bits));
    case ValueKind::u64:
      return Value(plain.bits);
    case ValueKind::f64:
      return Value(std::bit_cast<double>(plain.bits));
    default:
      return Value(plain.text);
  }
}

class Builder {
 public:
  explicit Builder(bool constants = true) : constants_(constants) {}
  Errc begin(NodeKind kind, const Step& at, const TypeInfo& type, bool conditional) {
    // Only modules have a type name: names of container types come from the compiler, not from the user.
    const bool module = kind == NodeKind::module;
    const std::uint32_t node =
        to.begin(kind, at.name, conditional, module ? type.name : std::string_view(), module ? type.version : 0);
    if (!constants_ && type.constants && &type != last_added_ && added_.insert(last_added_ = &type).second) {
      for (const FieldInfo& field : type.fields) {
        if (field.flags.constant) to.data().constants.push_back({node, field.name});
      }
    }
    return Errc::none;
  }
  Errc end() { return to.end(), Errc::none; }
  Errc tensor(const Step& at, const TensorOps& ops, void* object, bool conditional) {
    const NodeName& name = at.name;
    if (ops.bound != nullptr) return bound(name, ops, object, conditional);
    ops.shape(object, shape_);
    const auto count = shape_.element_count();
    const DType dtype = dtype_of(ops, object);
    const auto bytes = count ? byte_length(dtype, *count) : std::nullopt;
    if (!bytes || shape_.rank() > 0xffff)
      return fail(Errc::limit, name, "the tensor has 2^64 bytes or more, or more than 65535 extents");
    push_tensor(to.data(), name, conditional, to.parent(), dtype, shape_, *bytes, module_provider(object, ops));
    if (ops.id != nullptr) {
      if (const auto& id = *ops.id(object)) to.set_id(*id);
    }
    return Errc::none;
  }
  Errc value(const Step& at, const ValueOps& ops, void* object, bool conditional) {
    Value v;
    if (ops.plain != nullptr) {
      v = value_of(ops.plain(object));
    } else if (auto made = guarded([&]() -> Status { return ops.to_value(object, v), Status(); }); !made) {
      to.none(at.name);
      failed = std::move(made).error();
      return failed->code();
    }
    to.value(at.name, std::move(v), conditional);
    return Errc::none;
  }
  Errc none(const Step& at, bool conditional) { return to.none(at.name, conditional), Errc::none; }
  Errc alias(const Step& at, std::uint32_t target, bool conditional) {
    return to.alias(at.name, target, conditional), Errc::none;
  }
  void derived(const TypeInfo& type, const void* object) { failed = derived_error(type, object); }
  std::uint32_t mark() { return static_cast<std::uint32_t>(to.data().nodes.size()); }

  SnapshotBuilder to;
  std::string message, hint;
  std::optional<Error> failed;  // without a path
  bool consumable = true;       // true if every leaf bound so far may be moved out of its store

 private:
  // A record's leaf refers to a leaf of another snapshot: binds an equal provider, which that snapshot keeps alive.
  Errc bound(const NodeName& name, const TensorOps& ops, void* object, bool conditional) {
    std::uint32_t number = 0;
    const std::shared_ptr<const SnapshotData>& from = *ops.bound(object, number);
    if (from == nullptr) {
      return fail(Errc::not_found, name, "the record's leaf has no tensor", "assign a tensor to it");
    }
    const LeafData& leaf = from->leaves[number];
    to.tensor(name, leaf.dtype, LeafView(*from, number).shape(), leaf.bytes, leaf.provider, conditional);
    if (leaf.extra != no_index) {
      const LeafExtra& extra = from->extras[leaf.extra];
      if (extra.id) to.set_id(*extra.id);
      if (extra.annotations) {
        for (const auto& [key, v] : *extra.annotations) to.annotate(key, v);
      }
    }
    if (from != last_store_) {
      // Consecutive leaves of a record usually come from one file or module.
      if (stores_.insert(from.get()).second) {
        to.keep(from);
        consumable = consumable && from->consumable;
      }
      last_store_ = from;
    }
    return Errc::none;
  }
  Errc fail(Errc code, const NodeName& name, const char* text, const char* remedy = "") {
    to.none(name);
    message = text;
    hint = remedy;
    return code;
  }

  bool constants_;
  Shape shape_;
  std::unordered_set<const TypeInfo*> added_;  // classes whose constants have been added
  const TypeInfo* last_added_ = nullptr;       // equal layers are usually adjacent
  std::shared_ptr<const SnapshotData> last_store_;
  std::unordered_set<const SnapshotData*> stores_;  // snapshots already kept alive
};

Error walk_error(Errc code, Builder& builder) {
  const SnapshotData& data = builder.to.data();
  const std::string path =
      data.nodes.empty() ? std::string() : node_path(data, static_cast<std::uint32_t>(data.nodes.size() - 1));
  if (builder.failed) return std::move(*builder.failed).path(path);
  if (code == Errc::cycle) return Error(code, "the shared object contains itself").path(path);
  if (code == Errc::not_representable && builder.message.empty()) {
    return Error(code, "files cannot distinguish an optional or pointer that holds an empty one from an empty one")
        .path(path)
        .expected("a value inside, or an empty outer one")
        .found("an empty optional or pointer inside");
  }
  if (code == Errc::limit && builder.message.empty()) {
    return Error(code, "the modules nest too deeply")
        .path(path)
        .expected("at most " + std::to_string(max_depth) + " levels");
  }
  return Error(code, builder.message).path(path).hint(builder.hint);
}

}  // namespace

Error derived_error(const TypeInfo& type, const void* object) {
  std::string expected(type.name);
  for (const FieldInfo& f : type.fields) {
    if (type.kind == TypeKind::variant) expected += (expected.empty() ? "" : " or ") + std::string(f.name);
  }
  const char* mangled = type.other_class(object);
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> plain(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                     std::free);
  return Error(Errc::kind_mismatch, "the object has a derived class whose fields are unknown here")
      .expected(expected.empty() ? "an object of the pointer's own class" : std::move(expected))
      .found(plain != nullptr ? plain.get() : mangled)
      .hint("list the class in stele::derived");
}

bool accepts_null(const ValueOps& ops) {
  if (ops.check == nullptr) return false;
  const auto fits = guarded([&]() -> Result<bool> { return ops.check(Value()).empty(); });  // user code
  return fits && *fits;
}

Result<Snapshot> snapshot_object(const TypeInfo& type, const void* object, std::shared_ptr<const void> keeper,
                                 bool consumable, bool constants) {
  return guarded([&]() -> Result<Snapshot> {
    Counter counter;
    Builder builder(constants);
    // The second walk reports a cycle or excessive nesting, with its path.
    if (Walk<Counter>(counter, constants).run(type, object) == Errc::none) {
      builder.to.reserve(counter.nodes, counter.leaves, counter.extents);
    }
    if (const Errc e = Walk<Builder>(builder, constants).run(type, object); e != Errc::none)
      return walk_error(e, builder);
    if (keeper) builder.to.keep(std::move(keeper));
    builder.to.data().type = &type;
    if (is_state_dict(type)) {
      builder.to.data().flat = true;
      builder.to.data().nodes.front().kind = NodeKind::module;
    }
    if (consumable && builder.consumable) builder.to.data().consumable = true;
    return builder.to.finish();
  });
}

std::shared_ptr<const SnapshotData> own_tensor(std::shared_ptr<void> object, const TensorOps& ops) {
  Builder builder;
  void* tensor = object.get();
  if (builder.tensor(Step{nullptr, ""}, ops, tensor, false) != Errc::none)
    throw_error(walk_error(Errc::limit, builder));
  builder.to.keep(std::move(object));
  builder.to.data().consumable = true;
  return builder.to.finish().data();
}

}  // namespace stele::inline v0::detail
