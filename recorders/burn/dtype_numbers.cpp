// Converts dtypes in bincode, which are the numbers of Rust's variants and differ between eras.
#include <algorithm>
#include <array>
#include <span>

#include "bincode.hpp"
#include "types.hpp"

namespace stele::inline v0::detail::burn {
namespace {

// Source: burn-tensor/src/tensor/element.rs, burn-std/src/tensor/dtype.rs of each era.
constexpr std::string_view of_14[] = {"F64", "F32", "F16", "BF16", "I64",  "I32",   "I16",
                                      "I8",  "U64", "U32", "U8",   "Bool", "QFloat"};
constexpr std::string_view of_16[] = {"F64", "F32", "F16", "BF16", "I64", "I32",  "I16",
                                      "I8",  "U64", "U32", "U16",  "U8",  "Bool", "QFloat"};
constexpr std::string_view of_17[] = {"F64", "F32", "Flex32", "F16", "BF16", "I64",  "I32",   "I16",
                                      "I8",  "U64", "U32",    "U16", "U8",   "Bool", "QFloat"};

std::span<const std::string_view> dtypes_of(BurnEra era) {
  if (era <= BurnEra::v0_14) return of_14;
  if (era == BurnEra::v0_16) return of_16;
  return of_17;
}

// Source: cubecl-common/src/quant/scheme.rs of 0.9 and 0.10, used by Burn 0.20 and 0.21.
constexpr std::string_view values[] = {"Q8F", "E5M2", "E4M3", "Q4F", "E2M1", "Q2F", "Q8S", "Q4S", "Q2S"};
constexpr std::string_view params[] = {"F32", "F16", "BF16", "UE8M0", "UE4M3"};
constexpr std::string_view stores[] = {"Native", "PackedNative", "PackedU32"};
constexpr std::string_view levels[] = {"Tensor", "Block"};
constexpr std::string_view modes[] = {"Symmetric"};
constexpr std::string_view bools[] = {"Native", "U8", "U32"};
constexpr std::size_t max_block_rank = 5;

Result<std::string_view> one_of(Cursor& in, std::span<const std::string_view> names, const char* what) {
  const std::uint64_t at = in.position();
  STELE_TRY_ASSIGN(const std::uint64_t number, bincode::read_number(in));
  if (number < names.size()) return names[static_cast<std::size_t>(number)];
  return Error(Errc::unsupported, "the number of the " + std::string(what) + " is unknown")
      .offset(at)
      .expected("below " + std::to_string(names.size()))
      .found(std::to_string(number));
}

Value variant(std::string_view name, Value payload) {
  return Value(Value::Map{{std::string(name), std::move(payload)}});
}

Result<Value> read_scheme(Cursor& in) {
  STELE_TRY_ASSIGN(const auto value, one_of(in, values, "quantized value"));
  STELE_TRY_ASSIGN(const auto param, one_of(in, params, "scale type"));
  STELE_TRY_ASSIGN(const auto store, one_of(in, stores, "quantized store"));
  Value stored(store);
  if (store != stores[0]) {
    STELE_TRY_ASSIGN(const std::uint64_t dimension, bincode::read_number(in));
    stored = variant(store, Value(dimension));
  }
  STELE_TRY_ASSIGN(const auto level, one_of(in, levels, "quantization level"));
  Value block(level);
  if (level != levels[0]) {
    Value::List storage;
    for (std::size_t i = 0; i < max_block_rank; ++i) {
      STELE_TRY_ASSIGN(const auto extent, in.little<std::uint8_t>());
      storage.emplace_back(std::uint64_t{extent});
    }
    STELE_TRY_ASSIGN(const auto rank, in.little<std::uint8_t>());
    block =
        variant(level, Value(Value::Map{{"storage", Value(std::move(storage))}, {"len", Value(std::uint64_t{rank})}}));
  }
  STELE_TRY_ASSIGN(const auto mode, one_of(in, modes, "quantization mode"));
  return Value(Value::Map{{"value", Value(value)},
                          {"param", Value(param)},
                          {"store", std::move(stored)},
                          {"level", std::move(block)},
                          {"mode", Value(mode)}});
}

/// Appends a scheme, made of five fields. Returns false if a field is not as expected.
bool append_scheme(std::vector<std::byte>& out, const Value& scheme) {
  const auto number = [&](const Value* value, std::uint64_t max) {
    const std::int64_t* n = value != nullptr ? value->as_i64() : nullptr;
    if (n == nullptr || *n < 0 || static_cast<std::uint64_t>(*n) > max) return false;
    if (max == UINT8_MAX) {
      out.push_back(static_cast<std::byte>(*n));
    } else {
      bincode::append_number(out, static_cast<std::uint64_t>(*n));
    }
    return true;
  };
  // Appends a string, or a map with one entry, whose value is passed to `payload`.
  const auto choice = [&](std::string_view key, std::span<const std::string_view> names, auto payload) {
    const Value* value = scheme.find(key);
    if (value == nullptr) return false;
    const Value::Map* map = value->as_map();
    const std::string* text = map != nullptr && map->size() == 1 ? &(*map)[0].first : value->as_string();
    if (text == nullptr) return false;
    const auto found = std::find(names.begin(), names.end(), *text);
    if (found == names.end()) return false;
    bincode::append_number(out, static_cast<std::uint64_t>(found - names.begin()));
    return payload(found == names.begin(), map != nullptr ? &(*map)[0].second : nullptr);
  };
  const auto nothing = [](bool, const Value* payload) { return payload == nullptr; };
  const auto dimension = [&](bool native, const Value* payload) {
    return native ? payload == nullptr : number(payload, UINT64_MAX);
  };
  const auto block = [&](bool tensor, const Value* payload) {
    if (tensor || payload == nullptr) return tensor && payload == nullptr;
    const Value* storage = payload->find("storage");
    const Value::List* list = storage != nullptr ? storage->as_list() : nullptr;
    if (list == nullptr || list->size() != max_block_rank) return false;
    return std::all_of(list->begin(), list->end(), [&](const Value& v) { return number(&v, UINT8_MAX); }) &&
           number(payload->find("len"), UINT8_MAX);
  };
  return choice("value", values, nothing) && choice("param", params, nothing) && choice("store", stores, dimension) &&
         choice("level", levels, block) && choice("mode", modes, nothing);
}

}  // namespace

Result<Spelled> read_dtype(Cursor& in, BurnEra era) {
  STELE_TRY_ASSIGN(const auto name, one_of(in, dtypes_of(era), "dtype"));
  if (name == "Bool" && era >= BurnEra::v0_21) {
    STELE_TRY_ASSIGN(const auto store, one_of(in, bools, "bool store"));
    return read_dtype(variant(name, Value(store)));
  }
  if (name != "QFloat") return read_dtype(Value(name));
  if (era < BurnEra::v0_20) {
    return Error(Errc::unsupported, "stele does not read quantized tensors in bincode from before Burn 0.20")
        .offset(in.position());
  }
  STELE_TRY_ASSIGN(Value scheme, read_scheme(in));
  return read_dtype(variant(name, std::move(scheme)));
}

Status append_dtype(std::vector<std::byte>& out, const Value& spelled, BurnEra era) {
  const Value::Map* map = spelled.as_map();
  const std::string& name = map != nullptr ? (*map)[0].first : *spelled.as_string();
  const auto names = dtypes_of(era);
  const auto found = std::find(names.begin(), names.end(), name);
  bool fits = found != names.end();
  if (fits) bincode::append_number(out, static_cast<std::uint64_t>(found - names.begin()));
  if (fits && map != nullptr) {
    const Value& payload = (*map)[0].second;
    if (name == "Bool") {
      const auto* store = std::find(std::begin(bools), std::end(bools), *payload.as_string());
      bincode::append_number(out, static_cast<std::uint64_t>(store - bools));
    } else {
      fits = era >= BurnEra::v0_20 && append_scheme(out, payload);
    }
  }
  if (fits) return {};
  return Error(Errc::not_representable, "this release of Burn has no such dtype in bincode").found(name);
}

}  // namespace stele::inline v0::detail::burn
