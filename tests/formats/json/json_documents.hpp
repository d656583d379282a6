// Recorders, a model, compression and documents for the tests of JSON records.
#pragma once

#include <doctest/doctest.h>
#include <zlib.h>
#include <zstd.h>

#include <limits>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/stele_file.hpp"

namespace stele_test::json_documents {

using namespace stele;

inline const MemoryRecorder<PlainJsonFormat> plain;
inline const MemoryRecorder<ZstdJsonFormat> zstd;
inline const MemoryRecorder<GzipJsonFormat> gzip;

struct Dense {
  Param<Tensor<float, 2>> weight;
  std::optional<Param<Tensor<float, 1>>> bias;
  STELE_MODULE(Dense, weight, bias)
};
struct Versioned {
  Tensor<std::int16_t, 1> t;
  STELE_MODULE(Versioned, t)
  static constexpr Attribute stele_attributes[] = {attr::version(3)};
};
struct All {
  std::vector<Dense> layers;
  std::variant<Dense, Versioned> choice;
  std::shared_ptr<Versioned> tied, again;
  std::map<std::string, Tensor<bool, 1>> named;
  std::string text;
  double rate = 0;
  int steps = 0;
  bool on = false;
  Value any;
  STELE_MODULE(All, layers, choice, tied, again, named, text, rate, steps, on, any)
};

inline All all() {
  All a;
  a.layers.resize(2);
  a.layers[0].weight.value = Tensor<float, 2>({2, 3}, {1, 2.5F, -0.0F, 0.1F, 1e-45F, 3e38F});
  a.layers[1].weight = {Tensor<float, 2>({1, 1}, {7}), ParamId::from_u64(UINT64_MAX)};
  a.layers[1].bias =
      Param<Tensor<float, 1>>(Tensor<float, 1>({0}), ParamId::from_uuid(0x0123456789abcdef, 0xfedcba9876543210));
  a.choice.emplace<Versioned>().t = Tensor<std::int16_t, 1>({2}, {-1, 300});
  a.tied = a.again = std::make_shared<Versioned>();
  a.tied->t = Tensor<std::int16_t, 1>({1}, {5});
  a.named.emplace("$x", Tensor<bool, 1>({2}, {true, false}));
  a.named.emplace("a.b", Tensor<bool, 1>({1}, {true}));
  a.text = "line\nü\"";
  a.rate = 0.5;
  a.steps = -3;
  a.on = true;
  a.any = Value(Value::Map{{"k", Value(Value::List{Value(), Value(std::numeric_limits<double>::infinity())})}});
  return a;
}

inline std::string inflated(std::string_view packed) {
  z_stream state{};
  REQUIRE(inflateInit2(&state, 15 + 16) == Z_OK);
  std::string text(1 << 22, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  state.avail_in = static_cast<uInt>(packed.size());
  state.next_out = reinterpret_cast<Bytef*>(text.data());
  state.avail_out = static_cast<uInt>(text.size());
  REQUIRE(inflate(&state, Z_FINISH) == Z_STREAM_END);
  text.resize(state.total_out);
  inflateEnd(&state);
  return text;
}
inline std::string deflated(std::string_view text) {
  z_stream state{};
  REQUIRE(deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&state, static_cast<uLong>(text.size())) + 64, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(packed.data());
  state.avail_out = static_cast<uInt>(packed.size());
  REQUIRE(deflate(&state, Z_FINISH) == Z_STREAM_END);
  packed.resize(state.total_out);
  deflateEnd(&state);
  return packed;
}
/// Returns the text, decompressed as by any zstd program.
inline std::string decompressed(std::string_view packed) {
  std::string text(1 << 24, '\0');
  const std::size_t n = ZSTD_decompress(text.data(), text.size(), packed.data(), packed.size());
  REQUIRE_MESSAGE(!ZSTD_isError(n), ZSTD_getErrorName(n));
  text.resize(n);
  return text;
}
inline std::string compressed(std::string_view text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

inline std::string document(std::string_view record) {
  return R"({"format":"stele-json","version":1,"metadata":{},"record":)" + std::string(record) + "}";
}

}  // namespace stele_test::json_documents
