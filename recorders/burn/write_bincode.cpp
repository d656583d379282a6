// Writes a Snapshot as bincode, guided by the types of the recorded module.
#include "bincode.hpp"
#include "record_writer.hpp"
#include "snapshot/data.hpp"

namespace stele::inline v0::detail::burn {
namespace {

class BincodeWriter final : public RecordWriter {
 public:
  BincodeWriter(const Snapshot& snapshot, BurnEra era, LeafGather* gather, ReadContext& context, std::uint64_t& size)
      : RecordWriter(snapshot, era), gather_(gather), context_(context), size_(size), seen_(snapshot.nodes().size()) {}

  Status run(Header header, const TypeInfo& type) {
    for (std::size_t i = 0; i < std::size(header_names); ++i) text(*member(header, i));
    STELE_TRY(node(type, tree_.root(), 0));
    STELE_TRY(flush());
    return {};
  }

  /// Returns the data that run() left out.
  std::vector<Loss> losses() const {
    std::vector<Loss> all = losses_;
    const auto nodes = snapshot_.nodes();
    for (std::uint32_t i = 0; i < nodes.size(); ++i) {
      if ((nodes[i].kind != NodeKind::value && nodes[i].kind != NodeKind::tensor) || seen_[i] == Seen::written)
        continue;
      all.push_back({i, seen_[i] == Seen::skipped ? "a value of a module" : "the class does not have it"});
    }
    if (!snapshot_.metadata().empty()) all.push_back({0, "the metadata"});
    return all;
  }

 private:
  void byte(unsigned b) { out_.push_back(static_cast<std::byte>(b)); }
  void number(std::uint64_t n) { bincode::append_number(out_, n); }
  void text(std::string_view text) { bincode::append_text(out_, text); }
  Status flush() {
    size_ += out_.size();
    if (gather_ != nullptr) STELE_TRY(gather_->write(out_));
    out_.clear();
    return {};
  }

  Status node(const TypeInfo& type, const Place& place, unsigned depth) {
    if (depth > max_depth)
      return refuse(Errc::limit, "the record is nested too deeply")
          .expected("at most " + std::to_string(max_depth) + " levels");
    const bool present = !tree_.absent(place);
    switch (type.kind) {
      case TypeKind::none:
        return {};
      case TypeKind::tensor:
        return tensor(place);
      case TypeKind::value:
        return value(*type.value, place);
      case TypeKind::module: {
        if (is_constant_class(type)) return byte(0), Status();
        return each_field(
            type, place, [&](const Field& field) { return append_constant(field, era_, out_), Status(); },
            [&](const TypeInfo& inner, std::string_view name, const Place& at) {
              return child(inner, name, at, depth);
            });
      }
      case TypeKind::tuple:
        return elements(type, place, type.fields.size(), depth);
      case TypeKind::array:
        return elements(type, place, type.container->size(nullptr), depth);
      case TypeKind::list: {
        std::size_t n = 0;
        std::size_t gap = 0;
        if (present && !tree_.count(place, n, gap)) return refuse(Errc::missing, "the list has gaps");
        number(n);
        return elements(type, place, n, depth);
      }
      case TypeKind::map: {
        std::vector<std::pair<std::string, Place>> all;
        tree_.each(place, [&](std::string_view key, const Place& at) { all.emplace_back(key, at); });
        number(all.size());
        for (const auto& [key, at] : all) {
          text(key);
          STELE_TRY(child(*type.element, key, at, depth));
        }
        return {};
      }
      case TypeKind::variant:
        for (std::size_t i = 0; i < type.fields.size(); ++i) {
          std::uint32_t hint = 0;
          const Place at = tree_.child(place, type.fields[i].name, hint);
          if (!at.exists) continue;
          number(i);
          return child(*type.fields[i].type, type.fields[i].name, at, depth);
        }
        return refuse(Errc::missing, "the variant has none of its alternatives");
      case TypeKind::optional:
        // Since 0.21, an Option of a constant is itself a constant.
        if (is_constant_class(*type.element) && era_ >= BurnEra::v0_21) {
          if (present && place.node != no_index) losses_.push_back({place.node, "the presence of the value"});
          return byte(0), Status();
        }
        byte(present ? 1 : 0);
        return present ? node(*type.element, place, depth + 1) : Status();
      case TypeKind::pointer:
      case TypeKind::shared:
        if (!present) return refuse(Errc::not_representable, "the pointer is null, which Rust does not have");
        return node(*type.element, place, depth + 1);
    }
    return {};
  }
  Status elements(const TypeInfo& type, const Place& place, std::size_t n, unsigned depth) {
    std::uint32_t hint = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (type.kind == TypeKind::tuple && type.fields[i].flags.constant) {
        byte(0);
        continue;
      }
      const TypeInfo& inner = type.kind == TypeKind::tuple ? *type.fields[i].type : *type.element;
      STELE_TRY(child(inner, std::to_string(i), tree_.element(place, i, hint), depth));
    }
    return {};
  }
  Status child(const TypeInfo& type, std::string_view name, const Place& place, unsigned depth) {
    return at(name, [&] { return node(type, place, depth + 1); });
  }

  Status value(const ValueOps& ops, const Place& place) {
    const bool is_value = place.node != no_index && tree_.node(place.node).kind == NodeKind::value;
    if (is_value) seen_[place.node] = fields_.in_record() ? Seen::written : Seen::skipped;
    if (!fields_.in_record()) return byte(0), Status();
    if (!is_value) return refuse(Errc::missing, "the value is missing");
    const Value& v = snapshot_.value(tree_.node(place.node));
    if (ops.check != nullptr) {
      STELE_TRY_ASSIGN(const std::string_view wanted,
                       guarded([&]() -> Result<std::string_view> { return ops.check(v); }));
      if (!wanted.empty()) {
        return refuse(Errc::not_representable, "the value does not fit its class").expected(std::string(wanted));
      }
    }
    if (ops.dtype == DType::string && v.as_string() != nullptr) {
      if (v.as_string()->size() > max_text)
        return refuse(Errc::not_representable, "the string exceeds 64 KiB")
            .found(std::to_string(v.as_string()->size()) + " bytes");
      return text(*v.as_string()), Status();
    }
    if (bincode::append_scalar(out_, ops.dtype, v)) return {};
    return refuse(Errc::not_representable, "a Rust record cannot have a value of this type");
  }

  Status tensor(const Place& place) {
    if (place.node == no_index || tree_.node(place.node).kind != NodeKind::tensor) {
      return refuse(Errc::missing, "the tensor is missing");
    }
    STELE_TRY_ASSIGN(const Described tensor, describe(tree_.node(place.node)));
    if (tensor.id) text(*tensor.id);
    number(tensor.leaf.byte_size());
    STELE_TRY(flush());
    if (gather_ != nullptr) STELE_TRY(gather_->leaf(tensor.leaf, context_));
    size_ += tensor.leaf.byte_size();
    number(tensor.shape.size());
    for (const Extent e : tensor.shape) number(e);
    seen_[place.node] = Seen::written;
    auto spelled = append_dtype(out_, tensor.dtype, era_);
    return spelled ? Status() : Status(std::move(spelled).error().path(path_));
  }

  LeafGather* gather_;
  ReadContext& context_;
  std::uint64_t& size_;
  enum class Seen : std::uint8_t { not_at_all, skipped, written };
  std::vector<Seen> seen_;    // by node
  std::vector<Loss> losses_;  // other losses
  std::vector<std::byte> out_;
};

}  // namespace

namespace {

Result<const TypeInfo*> type_to_write(const Snapshot& snapshot, const BurnOptions& options) {
  const TypeInfo* type = options.schema ? &options.schema->info() : snapshot.data()->type;
  if (type != nullptr) return type;
  return Error(Errc::needs_layout, "bincode stores no names, and the type of the snapshot is unknown")
      .hint("save a module, or set BurnOptions::schema");
}

}  // namespace

Status write_bincode(const Snapshot& snapshot, Header header, BurnEra era, const BurnOptions& options,
                     LeafGather* gather, ReadContext& context, std::uint64_t& size) {
  STELE_TRY_ASSIGN(const TypeInfo* type, type_to_write(snapshot, options));
  return BincodeWriter(snapshot, era, gather, context, size).run(std::move(header), *type);
}

Result<std::vector<Loss>> bincode_losses(const Snapshot& snapshot, BurnEra era, const BurnOptions& options) {
  STELE_TRY_ASSIGN(const TypeInfo* type, type_to_write(snapshot, options));
  ReadContext context;
  std::uint64_t size = 0;
  BincodeWriter writer(snapshot, era, nullptr, context, size);
  STELE_TRY(writer.run({}, *type));
  return writer.losses();
}

}  // namespace stele::inline v0::detail::burn
