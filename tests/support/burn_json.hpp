// Reads and writes JSON of Burn's records below the recorder: tokens and the bytes of tensors.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "recorders/burn/tokens.hpp"
#include "stele/sink.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

namespace burn_json {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;
namespace burn = detail::burn;
using burn::Token;
using ReaderPtr = std::unique_ptr<burn::TokenReader>;

inline constexpr std::uint64_t enough = std::uint64_t{16} << 20;

inline Result<ReaderPtr> open_json(std::string_view text, std::uint64_t memory = enough) {
  return burn::json_reader(borrow_bytes(bytes_of(text), "test.json"), memory);
}

/// Returns a leaf of bytes.
inline Snapshot bytes_leaf(const Provider& provider, std::uint64_t size, std::shared_ptr<const void> keeper) {
  SnapshotBuilder builder;
  builder.keep(std::move(keeper));
  builder.begin(NodeKind::module, "");
  const Extent shape[] = {size};
  builder.tensor("bytes", DType::u8, shape, size, provider);
  builder.end();
  return builder.finish();
}
inline Snapshot leaf_of(const burn::TokenReader& tokens, const Token& token) {
  return bytes_leaf(tokens.provider(token), token.size, tokens.keeper());
}
/// Returns a leaf; `bytes` must outlive it.
inline Snapshot leaf_of(const std::string& bytes) {
  return bytes_leaf({&memory_ops, bytes.data(), bytes.size()}, bytes.size(), nullptr);
}

class Collected final : public PieceSink {
 public:
  explicit Collected(bool places) : places_(places) {}
  std::byte* place(std::uint64_t offset, std::size_t size) override {
    CHECK(offset == text.size());
    given_.resize(size);
    return places_ ? reinterpret_cast<std::byte*>(given_.data()) : nullptr;
  }
  Status piece(std::span<const std::byte> bytes) override {
    CHECK(ended_ == false);
    CHECK(bytes.size() <= ReadContext::piece_size);
    CHECK((reinterpret_cast<const std::byte*>(given_.data()) == bytes.data()) == places_);
    ended_ = bytes.size() % 64 != 0;
    text += text_of(bytes);
    return {};
  }
  std::string text;

 private:
  bool places_, ended_ = false;
  std::string given_;
};

inline std::string streamed(const Snapshot& snapshot, bool places = false) {
  Collected to(places);
  ReadContext context;
  const Status status = snapshot.leaf(0).stream(to, context);
  return status ? to.text : "error: " + status.error().to_string();
}

inline std::string written(bool pretty, auto&& f) {
  BufferSink sink;
  ReadContext context;
  const auto out = burn::json_writer(sink, context, pretty);
  f(*out);
  REQUIRE(out->finish());
  return std::string(text_of(sink.take().span()));
}

}  // namespace burn_json
