// Reads bincode into a Snapshot, guided by the types of the loaded module.
#include <algorithm>
#include <map>
#include <utility>

#include "bincode.hpp"
#include "elements.hpp"
#include "fields.hpp"
#include "leaves/source_range.hpp"
#include "record_reader.hpp"
#include "snapshot/data.hpp"
#include "stele/record.hpp"

namespace stele::inline v0::detail::burn {
namespace {

class BincodeReader final : public RecordReader {
 public:
  BincodeReader(SourcePtr source, std::uint64_t memory, const BurnOptions& options)
      : RecordReader(memory, options), in_(std::move(source)) {}

  Result<Snapshot> run(const TypeInfo& type) {
    for (std::size_t i = 0; i < std::size(header_names); ++i) STELE_TRY(bincode::read_text(in_, *member(header_, i)));
    STELE_TRY(check(header_, options_));
    era_ = options_.era;
    if (era_ == BurnEra::automatic) {
      STELE_TRY_ASSIGN(era_, era_of(header_.version));
    }
    auto read = node(type, "", false, 0);
    if (!read) return with_hint(std::move(read).error(), type);
    STELE_TRY_ASSIGN(const bool ended, in_.at_end());
    if (!ended) {
      return with_hint(
          Error(Errc::malformed, "bytes follow the record: the fields of the class differ from those of the file")
              .offset(in_.position()),
          type);
    }
    builder_.data().type = &type;
    return finish(in_.source());
  }

 private:
  /// Adds a hint about the fields. Most errors are caused by fields that differ from the class, which the file cannot
  /// show.
  Error with_hint(Error error, const TypeInfo& type) const {
    if (error.code() == Errc::io || error.code() == Errc::checksum || !error.hint().empty()) return error;
    std::string hint =
        "declare the fields of " + std::string(type.name) + " in Rust's order, with all constants (attr::burn_layout)";
    // Development releases stored the number of the next version.
    if (era_ == BurnEra::v0_14 && options_.era == BurnEra::automatic) {
      hint += ", or set BurnOptions::era to BurnEra::v0_13";
    }
    return std::move(error).hint(hint);
  }
  Error wrong(const char* what, std::uint64_t at) const { return Error(Errc::malformed, what).path(path()).offset(at); }
  Result<std::uint64_t> count() {
    auto n = bincode::read_count(in_);
    return n ? n : Result<std::uint64_t>(std::move(n).error().path(path()));
  }
  /// Reads a constant and checks its bytes.
  Status constant(const Field& field) {
    std::vector<std::byte> bytes;
    append_constant(field, era_, bytes);
    const std::uint64_t at = in_.position();
    for (const std::byte expected : bytes) {
      STELE_TRY_ASSIGN(const std::byte* found, in_.take(1));
      if (*found == expected) continue;
      return wrong("the file's value differs from the constant", at)
          .path(path() + (path_.empty() ? "" : ".") + std::string(field.name))
          .found("byte " + std::to_string(std::to_integer<int>(*found)));
    }
    return {};
  }

  Status node(const TypeInfo& type, NodeName name, bool conditional, unsigned depth) {
    if (depth > max_depth)
      return Error(Errc::limit, "the record is nested too deeply")
          .path(path())
          .offset(in_.position())
          .expected("at most " + std::to_string(max_depth) + " levels");
    STELE_TRY(budget_.node(0, 0, in_.position()));
    switch (type.kind) {
      case TypeKind::none:
        return {};
      case TypeKind::tensor:
        return tensor(type.tensor->dtype, name, conditional);
      case TypeKind::value:
        return value(*type.value, name, conditional);
      case TypeKind::module:
        return module(type, name, conditional, depth);
      case TypeKind::tuple:
        builder_.begin(NodeKind::tuple, name, conditional);
        for (std::size_t i = 0; i < type.fields.size(); ++i) {
          const FieldInfo& field = type.fields[i];
          if (field.flags.constant) {
            builder_.none(NodeName::element(i), false);
            STELE_TRY(constant({.name = field.name}));
          } else {
            STELE_TRY(child(*field.type, NodeName::element(i), false, depth));
          }
        }
        builder_.end();
        return {};
      case TypeKind::list:
      case TypeKind::array:
        return list(type, name, conditional, depth);
      case TypeKind::map:
        return map(type, name, conditional, depth);
      case TypeKind::variant:
        return variant(type, name, conditional, depth);
      case TypeKind::optional: {
        const std::uint64_t at = in_.position();
        STELE_TRY_ASSIGN(const auto present, in_.little<std::uint8_t>());
        if (present > 1) return wrong("the tag of the Option is neither 0 nor 1", at);
        if (present == 1) return node(*type.element, name, true, depth + 1);
        builder_.none(name, conditional);
        return {};
      }
      case TypeKind::pointer:
      case TypeKind::shared:
        return node(*type.element, name, true, depth + 1);
    }
    return {};
  }
  Status module(const TypeInfo& type, NodeName name, bool conditional, unsigned depth) {
    builder_.begin(NodeKind::module, name, conditional, type.name, type.version);
    STELE_TRY(is_constant_class(type) ? constant({.name = type.name}) : fields(type, depth));
    builder_.end();
    return {};
  }
  Status fields(const TypeInfo& type, unsigned depth) {
    return fields_.each(
        type, [&](const Field& field) { return constant(field); },
        [&](const Field& field, const TypeInfo& inner) { return child(inner, field.name, false, depth); });
  }
  Status list(const TypeInfo& type, NodeName name, bool conditional, unsigned depth) {
    const bool array = type.kind == TypeKind::array;
    std::uint64_t n = array ? type.container->size(nullptr) : 0;
    if (!array) {
      STELE_TRY_ASSIGN(n, count());
    }
    builder_.begin(array ? NodeKind::array : NodeKind::list, name, conditional);
    for (std::uint64_t i = 0; i < n; ++i) {
      STELE_TRY(child(*type.element, NodeName::element(static_cast<std::size_t>(i)), true, depth));
    }
    builder_.end();
    return {};
  }
  Status map(const TypeInfo& type, NodeName name, bool conditional, unsigned depth) {
    STELE_TRY_ASSIGN(const std::uint64_t n, count());
    builder_.begin(NodeKind::map, name, conditional);
    for (std::uint64_t i = 0; i < n; ++i) {
      std::string key;
      STELE_TRY(bincode::read_text(in_, key));
      STELE_TRY(budget_.node(key.size(), 0, in_.position()));
      STELE_TRY(child(*type.element, builder_.intern(key), true, depth));
    }
    builder_.end();
    return {};
  }
  Status variant(const TypeInfo& type, NodeName name, bool conditional, unsigned depth) {
    const std::uint64_t at = in_.position();
    STELE_TRY_ASSIGN(const std::uint64_t which, bincode::read_number(in_));
    if (which >= type.fields.size()) {
      return wrong("the variant has no alternative of this number", at)
          .expected("below " + std::to_string(type.fields.size()))
          .found(std::to_string(which));
    }
    const FieldInfo& alternative = type.fields[static_cast<std::size_t>(which)];
    builder_.begin(NodeKind::variant, name, conditional);
    STELE_TRY(child(*alternative.type, alternative.name, true, depth));
    builder_.end();
    return {};
  }
  Status child(const TypeInfo& type, NodeName name, bool conditional, unsigned depth) {
    path_.push_back(name);
    STELE_TRY(node(type, name, conditional, depth + 1));
    path_.pop_back();
    return {};
  }

  Status value(const ValueOps& ops, NodeName name, bool conditional) {
    if (!fields_.in_record()) {
      builder_.none(name, conditional);
      return constant({});
    }
    auto read = plain(ops.dtype);
    if (!read) return std::move(read).error().path(path());
    builder_.value(name, *std::move(read), conditional);
    return {};
  }
  Result<Value> plain(DType dtype) {
    if (dtype != DType::string) return bincode::read_scalar(in_, dtype);
    const std::uint64_t at = in_.position();
    std::string text;
    STELE_TRY(bincode::read_text(in_, text));
    STELE_TRY(budget_.node(text.size(), 0, at));
    return Value(std::move(text));
  }
  Status tensor(DType wanted, NodeName name, bool conditional) {
    const std::uint64_t at = in_.position();
    std::string id;
    STELE_TRY_ASSIGN(const bool parameter, read_id(id));
    if (!parameter && !fields_.in_record()) return wrong("the parameter has no valid id", at);
    Tensor made;
    if (era_ == BurnEra::v0_13) {
      STELE_TRY(elements(wanted, made));
    } else {
      STELE_TRY_ASSIGN(made.bytes, bincode::read_number(in_));
      made.provider = {&source_ops, in_.source().get(), in_.position()};
      STELE_TRY(located(in_.skip(made.bytes)));
    }
    STELE_TRY_ASSIGN(const std::uint64_t rank, count());
    STELE_TRY(budget_.node(0, static_cast<std::size_t>(rank), at));
    for (std::uint64_t i = 0; i < rank; ++i) {
      STELE_TRY_ASSIGN(const Extent extent, bincode::read_number(in_));
      made.shape.push_back(extent);
    }
    if (era_ != BurnEra::v0_13) {
      auto dtype = burn::read_dtype(in_, era_);
      if (!dtype) return std::move(dtype).error().path(path());
      made.dtype = *std::move(dtype);
    }
    STELE_TRY(add_tensor(name, std::move(made), conditional, at));
    if (!parameter) return mark_bare(), Status();
    return add_id(id, at);
  }
  /// Reads the elements of a tensor without a dtype; the class defines the dtype.
  Status elements(DType wanted, Tensor& made) {
    const DTypeClass kind = dtype_class(wanted);
    const bool floating = kind == DTypeClass::floating;
    const DType dtype =
        kind == DTypeClass::boolean ? DType::boolean : dtype_of_rust(floating ? header_.floats : header_.ints);
    STELE_TRY_ASSIGN(const std::uint64_t n, count());
    made.dtype.dtype = dtype;
    if (dtype == DType::none)
      return Error(Errc::unsupported, "the element type of the record is unknown")
          .path(path())
          .found(floating ? header_.floats : header_.ints);
    made.bytes = n * element_size(dtype);
    if (dtype == DType::f32 || dtype == DType::f64) {
      made.provider = {&source_ops, in_.source().get(), in_.position()};
      return located(in_.skip(made.bytes));
    }
    STELE_TRY_ASSIGN(const auto list, read_elements(in_, n, dtype));
    made.provider = list->provider();
    builder_.keep(list);
    return {};
  }
  /// Reads an id if the parameter has one. A tensor's length and first bytes look like an id only in a file that was
  /// made for that purpose.
  Result<bool> read_id(std::string& id) {
    STELE_TRY_ASSIGN(const bool ended, in_.at_end());
    if (ended) return false;
    STELE_TRY_ASSIGN(const std::byte* first, in_.peek(1));
    const auto size = std::to_integer<std::size_t>(*first);
    if ((size != 13 && size != 10 && size != 36) || in_.left() <= size) return false;
    STELE_TRY_ASSIGN(const std::byte* bytes, in_.peek(size + 1));
    id.assign(reinterpret_cast<const char*>(bytes) + 1, size);
    if (!parse_id(id)) return false;
    STELE_TRY(in_.skip(size + 1));
    return true;
  }

  Cursor in_;
  Fields fields_;
  BurnEra era_ = BurnEra::automatic;
};

/// Checks the ids of a module that has them: a parameter in the file must not have the id of a parameter with another
/// name.
Status check_ids(const Snapshot& file, const Object& target) {
  if (target.address == nullptr) return {};
  STELE_TRY_ASSIGN(const Snapshot now, snapshot_object(*target.type, target.address, {}, false));
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t> nodes;
  for (std::size_t i = 0; i < now.leaf_count(); ++i) {
    if (const auto id = now.leaf(i).id()) nodes.try_emplace({id->high, id->low}, now.leaf(i).node());
  }
  for (std::size_t i = 0; i < file.leaf_count() && !nodes.empty(); ++i) {
    const auto id = file.leaf(i).id();
    const auto found = id ? nodes.find({id->high, id->low}) : nodes.end();
    if (found == nodes.end()) continue;
    const std::string path = file.leaf(i).path();
    const auto here = now.find(path);
    if (!here || !here->id() || here->id() == id) continue;
    return Error(Errc::value_mismatch, "the parameter has the id of another parameter")
        .path(path)
        .expected("the id of " + path)
        .found("the id of " + now.path(found->second))
        .hint("declare the fields in the order of the file");
  }
  return {};
}

}  // namespace

Result<Snapshot> read_bincode(SourcePtr source, std::uint64_t memory, const BurnOptions& options,
                              const OpenContext& context) {
  const Object target = context.target();
  const TypeInfo* type = target.type;
  if (type == nullptr && options.schema) type = &options.schema->info();
  if (type == nullptr) {
    return Error(Errc::needs_layout, "a bincode file contains no types")
        .hint("load a module, or set BurnOptions::schema");
  }
  BincodeReader reader(std::move(source), memory, options);
  auto opened = reader.run(*type);
  if (!opened) return with_age(std::move(opened).error(), reader.header());
  STELE_TRY(check_ids(*opened, target));
  return opened;
}

}  // namespace stele::inline v0::detail::burn
