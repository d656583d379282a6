// Dtypes in the spellings of all releases of Burn.
#include "types.hpp"

#include <algorithm>
#include <array>

namespace stele::inline v0::detail::burn {
namespace {

constexpr std::array<std::pair<std::string_view, DType>, 13> names = {{
    {"F64", DType::f64},
    {"F32", DType::f32},
    {"F16", DType::f16},
    {"BF16", DType::bf16},
    {"I64", DType::i64},
    {"I32", DType::i32},
    {"I16", DType::i16},
    {"I8", DType::i8},
    {"U64", DType::u64},
    {"U32", DType::u32},
    {"U16", DType::u16},
    {"U8", DType::u8},
    {"Bool", DType::boolean},
}};

const Value* note_of(const LeafView& leaf, std::string_view key) {
  const Annotations* notes = leaf.annotations();
  if (notes == nullptr) return nullptr;
  const auto found = notes->find(std::string(key));
  return found != notes->end() ? &found->second : nullptr;
}

}  // namespace

Result<Spelled> read_dtype(const Value& spelled) {
  std::string_view text;
  const Value* payload = nullptr;
  if (const std::string* plain = spelled.as_string()) {
    text = *plain;
  } else if (const Value::Map* map = spelled.as_map(); map != nullptr && map->size() == 1) {
    text = (*map)[0].first;
    payload = &(*map)[0].second;
  } else {
    return Error(Errc::malformed, "the dtype is neither a string nor a map with one entry");
  }
  if (text == "QFloat" && payload != nullptr) return Spelled{DType::u8, spelled, true};
  if (text == "Flex32" && payload == nullptr) return Spelled{DType::f32, spelled, false};
  if (text == "Bool" && payload != nullptr) {
    const std::string* store = payload->as_string();
    if (store != nullptr && *store == "Native") return Spelled{DType::boolean, {}, false};
    if (store != nullptr && *store == "U8") return Spelled{DType::boolean, spelled, false};
    if (store != nullptr && *store == "U32") return Spelled{DType::u32, spelled, false};
  } else if (payload == nullptr) {
    const auto found = std::find_if(names.begin(), names.end(), [&](const auto& n) { return n.first == text; });
    if (found != names.end()) return Spelled{found->second, {}, false};
  }
  return Error(Errc::unsupported, "the dtype is unknown").found(std::string(text));
}

Result<Value> spell_dtype(const LeafView& leaf, BurnEra era) {
  if (const Value* note = note_of(leaf, dtype_note)) {
    const auto noted = read_dtype(*note);
    // Ignores a note about the dtype before a conversion.
    if (noted && !noted->note.is_null() && noted->dtype == leaf.dtype() &&
        (era >= BurnEra::v0_21 || note->find("Bool") == nullptr))
      return *note;
  }
  const auto found = std::find_if(names.begin(), names.end(), [&](const auto& n) { return n.second == leaf.dtype(); });
  if (found == names.end()) {
    return Error(Errc::not_representable, "Burn does not have the dtype")
        .path(leaf.path())
        .found(std::string(name(leaf.dtype())));
  }
  if (leaf.dtype() != DType::boolean || era < BurnEra::v0_21) return Value(found->first);
  return Value(Value::Map{{"Bool", Value("Native")}});
}

bool holds(DType dtype) noexcept {
  return std::any_of(names.begin(), names.end(), [&](const auto& n) { return n.second == dtype; });
}

Result<std::vector<Extent>> shape_of(const LeafView& leaf) {
  const Value* note = note_of(leaf, shape_note);
  if (note == nullptr || note_of(leaf, dtype_note) == nullptr || leaf.dtype() != DType::u8) {
    return std::vector<Extent>(leaf.shape().begin(), leaf.shape().end());
  }
  std::vector<Extent> shape;
  const Value::List* list = note->as_list();
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const std::int64_t* extent = (*list)[i].as_i64();
    if (extent == nullptr || *extent < 0) {
      list = nullptr;
    } else {
      shape.push_back(static_cast<Extent>(*extent));
    }
  }
  if (list != nullptr) return shape;
  return Error(Errc::malformed, "the annotation burn.shape is not a list of extents").path(leaf.path());
}

Status add(SnapshotBuilder& builder, NodeName name, Tensor tensor, bool conditional) {
  if (tensor.shape.size() > 0xffff)
    return Error(Errc::limit, "the tensor has more than 65535 dimensions").found(std::to_string(tensor.shape.size()));
  if (tensor.dtype.opaque) {
    Value::List extents;
    for (const Extent e : tensor.shape) extents.emplace_back(std::uint64_t{e});
    const Extent bytes[] = {tensor.bytes};
    builder.tensor(name, DType::u8, bytes, tensor.bytes, tensor.provider, conditional);
    builder.annotate(std::string(shape_note), Value(std::move(extents)));
  } else {
    const auto elements = element_count(tensor.shape);
    const auto bytes = elements ? byte_length(tensor.dtype.dtype, *elements) : std::nullopt;
    if (bytes != tensor.bytes) {
      return Error(Errc::malformed, "the length of the tensor does not match its dtype and shape")
          .expected(bytes ? std::to_string(*bytes) + " bytes" : "less than 2^64 bytes")
          .found(std::to_string(tensor.bytes));
    }
    builder.tensor(name, tensor.dtype.dtype, tensor.shape, tensor.bytes, tensor.provider, conditional);
  }
  if (!tensor.dtype.note.is_null()) builder.annotate(std::string(dtype_note), std::move(tensor.dtype.note));
  return {};
}

}  // namespace stele::inline v0::detail::burn
