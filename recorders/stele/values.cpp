// Encodes and decodes the values in `.stele` files.
#include "values.hpp"

#include <bit>
#include <cstring>

#include "base/limits.hpp"
#include "stele/recorders/stele_reader.hpp"

namespace stele::inline v0::detail {
namespace {

template <class T>
void put(std::vector<std::byte>& out, T number) {
  std::byte bytes[sizeof(T)];
  format::store_le(bytes, number);
  out.insert(out.end(), bytes, bytes + sizeof(T));
}

Status put_size(std::vector<std::byte>& out, std::size_t size) {
  if (size > 0xffffffffU) return Error(Errc::limit, "a value exceeds 4 GiB");
  put(out, static_cast<std::uint32_t>(size));
  return {};
}

Status put_bytes(std::vector<std::byte>& out, const void* data, std::size_t size) {
  STELE_TRY(put_size(out, size));
  const auto* at = static_cast<const std::byte*>(data);
  out.insert(out.end(), at, at + size);
  return {};
}

Status encode(const Value& value, std::vector<std::byte>& out, int depth) {
  if (depth > max_value_depth) return Error(Errc::limit, "a value is nested too deep").expected("at most 64 levels");
  out.push_back(static_cast<std::byte>(value.kind()));
  switch (value.kind()) {
    case Value::Kind::null:
      break;
    case Value::Kind::boolean:
      out.push_back(static_cast<std::byte>(*value.as_bool()));
      break;
    case Value::Kind::i64:
      put(out, static_cast<std::uint64_t>(*value.as_i64()));
      break;
    case Value::Kind::u64:
      put(out, *value.as_u64());
      break;
    case Value::Kind::f64:
      put(out, std::bit_cast<std::uint64_t>(*value.as_f64()));
      break;
    case Value::Kind::string:
      return put_bytes(out, value.as_string()->data(), value.as_string()->size());
    case Value::Kind::bytes:
      return put_bytes(out, value.as_bytes()->data(), value.as_bytes()->size());
    case Value::Kind::list:
      STELE_TRY(put_size(out, value.as_list()->size()));
      for (const Value& v : *value.as_list()) STELE_TRY(encode(v, out, depth + 1));
      break;
    case Value::Kind::map:
      STELE_TRY(put_size(out, value.as_map()->size()));
      for (const auto& [key, v] : *value.as_map()) {
        STELE_TRY(put_bytes(out, key.data(), key.size()));
        STELE_TRY(encode(v, out, depth + 1));
      }
      break;
  }
  return {};
}

class Decoder {
 public:
  Decoder(std::span<const std::byte> bytes, std::uint64_t& budget) : left_(bytes), budget_(budget) {}

  Status value(Value& out, int depth) {
    if (depth > max_value_depth) return Error(Errc::limit, "a value is nested too deep").expected("at most 64 levels");
    STELE_TRY_ASSIGN(const auto kind, take(1));
    switch (static_cast<Value::Kind>(kind[0])) {
      case Value::Kind::null:
        out = Value();
        return {};
      case Value::Kind::boolean: {
        STELE_TRY_ASSIGN(const auto b, take(1));
        if (b[0] > std::byte{1}) return bad("a bool is neither 0 nor 1");
        out = Value(b[0] == std::byte{1});
        return {};
      }
      case Value::Kind::i64: {
        STELE_TRY_ASSIGN(const auto b, take(8));
        out = Value(static_cast<std::int64_t>(format::load_le<std::uint64_t>(b.data())));
        return {};
      }
      case Value::Kind::u64: {
        STELE_TRY_ASSIGN(const auto b, take(8));
        out = Value(format::load_le<std::uint64_t>(b.data()));
        return out.as_u64() != nullptr ? Status() : bad("a u64 is in the range of i64");
      }
      case Value::Kind::f64: {
        STELE_TRY_ASSIGN(const auto b, take(8));
        out = Value(std::bit_cast<double>(format::load_le<std::uint64_t>(b.data())));
        return {};
      }
      case Value::Kind::string: {
        STELE_TRY_ASSIGN(std::string text, string());
        out = Value(std::move(text));
        return {};
      }
      case Value::Kind::bytes: {
        STELE_TRY_ASSIGN(const auto b, sized());
        out = Value(Value::Bytes(b.begin(), b.end()));
        return {};
      }
      case Value::Kind::list:
        return list(out, depth);
      case Value::Kind::map:
        return map(out, depth);
    }
    return bad("the kind of a value is unknown");
  }
  bool done() const { return left_.empty(); }

 private:
  static Error bad(const char* text) { return Error(Errc::malformed, text); }
  Status spend(std::uint64_t bytes) {
    if (bytes > budget_) return Error(Errc::limit, "the values need too much memory");
    budget_ -= bytes;
    return {};
  }
  Result<std::span<const std::byte>> take(std::size_t size) {
    if (size > left_.size()) return bad("a value ends early");
    const auto now = left_.first(size);
    left_ = left_.subspan(size);
    return now;
  }
  Result<std::span<const std::byte>> sized() {
    STELE_TRY_ASSIGN(const auto size, take(4));
    const auto n = format::load_le<std::uint32_t>(size.data());
    STELE_TRY(spend(std::uint64_t{n} + 32));
    return take(n);
  }
  Result<std::string> string() {
    STELE_TRY_ASSIGN(const auto b, sized());
    return std::string(reinterpret_cast<const char*>(b.data()), b.size());
  }
  // `min_bytes`: the minimum size of each item.
  Result<std::uint32_t> count(std::size_t min_bytes, std::size_t memory) {
    STELE_TRY_ASSIGN(const auto size, take(4));
    const auto n = format::load_le<std::uint32_t>(size.data());
    if (n > left_.size() / min_bytes) return bad("a value has more items than the file has bytes");
    STELE_TRY(spend(std::uint64_t{n} * memory));
    return n;
  }
  Status list(Value& out, int depth) {
    STELE_TRY_ASSIGN(const std::uint32_t n, count(1, sizeof(Value)));
    Value::List items(n);
    for (Value& item : items) STELE_TRY(value(item, depth + 1));
    out = Value(std::move(items));
    return {};
  }
  Status map(Value& out, int depth) {
    STELE_TRY_ASSIGN(const std::uint32_t n, count(5, sizeof(std::pair<std::string, Value>)));
    Value::Map items(n);
    for (auto& [key, item] : items) {
      STELE_TRY_ASSIGN(key, string());
      STELE_TRY(value(item, depth + 1));
    }
    out = Value(std::move(items));
    return {};
  }

  std::span<const std::byte> left_;
  std::uint64_t& budget_;
};

}  // namespace

Status encode_value(const Value& value, std::vector<std::byte>& out) { return encode(value, out, 0); }

Status decode_value(std::span<const std::byte> bytes, Value& out, std::uint64_t& budget) {
  Decoder decoder(bytes, budget);
  STELE_TRY(decoder.value(out, 0));
  if (!decoder.done()) return Error(Errc::malformed, "bytes follow a value");
  return {};
}

}  // namespace stele::inline v0::detail
