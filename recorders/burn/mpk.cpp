// MessagePack, as rmp-serde writes it with named fields. The first byte declares the type:
//
//  1. 00-7f, e0-ff: that integer. c0: nil. c2, c3: false, true.
//  2. cc, cd, ce, cf: u8 to u64. d0, d1, d2, d3: i8 to i64. ca, cb: f32, f64. All big-endian, as are lengths.
//  3. a0-bf: a string of up to 31 bytes; d9, da, db: u8, u16, u32 length, string.
//  4. c4, c5, c6: u8, u16, u32 length, bytes.
//  5. 90-9f, dc, dd: a list of up to 15, u16, u32 values. 80-8f, de, df: a map with as many keys and values.
//
// Source: https://github.com/msgpack/msgpack/blob/master/spec.md.
#include <array>
#include <bit>
#include <limits>

#include "cursor.hpp"
#include "named.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace burn {
namespace {

// A leaf's number is its offset in the file.
constexpr LeafOps leaf_ops{.locate = [](const void* at, std::uint64_t number) -> SourceRange {
  return {static_cast<const Source*>(at), number};
}};

class MpkTokens final : public Tokens {
 public:
  explicit MpkTokens(SourcePtr source) : in_(std::move(source)) {}

  std::unique_ptr<Tokens> clone() const override { return std::make_unique<MpkTokens>(*this); }
  Provider provider(const Token& bytes) const override { return {&leaf_ops, in_.source().get(), bytes.at}; }
  std::shared_ptr<const void> keeper() const override { return in_.source(); }

  Status next(Token& token) override {
    token.offset = in_.position();
    if (left_[depth_] == 0) {
      token.kind = Token::Kind::end;
      if (depth_ != 0) return --depth_, Status();
      STELE_TRY_ASSIGN(const bool ended, in_.at_end());
      if (ended) return {};
      return Error(Errc::malformed, "bytes behind the record").offset(token.offset);
    }
    const bool key = map_[depth_] && left_[depth_] % 2 == 0;
    --left_[depth_];
    STELE_TRY_ASSIGN(const unsigned mark, in_.little<std::uint8_t>());
    if (key && (mark < 0xa0 || mark >= 0xc0) && (mark < 0xd9 || mark > 0xdb)) {
      return Error(Errc::malformed, "a key that is no text").offset(token.offset).found("byte " + std::to_string(mark));
    }
    if (mark < 0x80) return scalar(token, Value(std::uint64_t{mark}));
    if (mark >= 0xe0) return scalar(token, Value(std::int64_t{static_cast<std::int8_t>(mark)}));
    if (mark < 0x90) return open(token, Token::Kind::map, mark & 15);
    if (mark < 0xa0) return open(token, Token::Kind::list, mark & 15);
    if (mark < 0xc0) return text(token, mark & 31);
    switch (mark) {
      case 0xc0:
        token.kind = Token::Kind::nil;
        return {};
      case 0xc2:
      case 0xc3:
        return scalar(token, Value(mark == 0xc3));
      case 0xca: {
        STELE_TRY_ASSIGN(const auto bits, in_.big<std::uint32_t>());
        return scalar(token, Value(double{std::bit_cast<float>(bits)}));
      }
      case 0xcb: {
        STELE_TRY_ASSIGN(const auto bits, in_.big<std::uint64_t>());
        return scalar(token, Value(std::bit_cast<double>(bits)));
      }
      case 0xc4:
      case 0xc5:
      case 0xc6: {
        STELE_TRY_ASSIGN(token.size, number(mark - 0xc4));
        token.kind = Token::Kind::bytes;
        token.at = in_.position();
        return in_.skip(token.size);
      }
      case 0xcc:
      case 0xcd:
      case 0xce:
      case 0xcf: {
        STELE_TRY_ASSIGN(const std::uint64_t n, number(mark - 0xcc));
        return scalar(token, Value(n));
      }
      case 0xd0:
      case 0xd1:
      case 0xd2:
      case 0xd3: {
        const unsigned bits = 8U << (mark - 0xd0);
        STELE_TRY_ASSIGN(const std::uint64_t n, number(mark - 0xd0));
        return scalar(token, Value(static_cast<std::int64_t>(n << (64 - bits)) >> (64 - bits)));
      }
      case 0xd9:
      case 0xda:
      case 0xdb: {
        STELE_TRY_ASSIGN(const std::uint64_t n, number(mark - 0xd9));
        return text(token, n);
      }
      case 0xdc:
      case 0xdd:
      case 0xde:
      case 0xdf: {
        STELE_TRY_ASSIGN(const std::uint64_t n, number(1 + (mark & 1)));
        return open(token, mark < 0xde ? Token::Kind::list : Token::Kind::map, n);
      }
      default:
        return Error(mark == 0xc1 ? Errc::malformed : Errc::unsupported, "MessagePack that Burn does not write")
            .offset(token.offset)
            .found("byte " + std::to_string(mark));
    }
  }

 private:
  static Status scalar(Token& token, Value value) {
    token.kind = Token::Kind::scalar;
    token.scalar = std::move(value);
    return {};
  }
  /// Reads a number of 1, 2, 4 or 8 bytes.
  Result<std::uint64_t> number(unsigned log) {
    STELE_TRY_ASSIGN(const std::byte* bytes, in_.take(std::size_t{1} << log));
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < std::size_t{1} << log; ++i) n = n << 8 | std::to_integer<std::uint64_t>(bytes[i]);
    return n;
  }
  Status text(Token& token, std::uint64_t size) {
    token.kind = Token::Kind::text;
    return in_.text(size, token.text);
  }
  Status open(Token& token, Token::Kind kind, std::uint64_t entries) {
    token.kind = kind;
    const std::uint64_t values = kind == Token::Kind::map ? 2 * entries : entries;
    if (values > in_.left()) {
      return Error(Errc::truncated, "more values than the file has bytes")
          .offset(token.offset)
          .expected("at most " + std::to_string(in_.left()))
          .found(std::to_string(values));
    }
    if (++depth_ > max_depth) {
      return Error(Errc::limit, "lists and maps are nested too deep")
          .offset(token.offset)
          .expected(std::to_string(max_depth) + " levels at most");
    }
    left_[depth_] = values;
    map_[depth_] = kind == Token::Kind::map;
    return {};
  }

  Cursor in_;
  unsigned depth_ = 0;
  std::array<std::uint64_t, max_depth + 1> left_{1};  // remaining values at each depth
  std::array<bool, max_depth + 1> map_{};             // true for a map, where keys and values alternate
};

class MpkOut final : public Out {
 public:
  MpkOut(LeafGather* gather, ReadContext& context, std::uint64_t& size)
      : gather_(gather), context_(context), size_(size) {}

  Status begin_map(std::size_t entries) override { return sized(entries, 0x80, 16, 0xde, 1); }
  Status key(std::string_view name) override { return text(name); }
  Status begin_list(std::size_t entries) override { return sized(entries, 0x90, 16, 0xdc, 1); }
  Status end() override { return {}; }
  Status nil() override { return byte(0xc0); }
  Status unit() override { return byte(0x90); }

  Status value(const Value& value) override {
    switch (value.kind()) {
      case ValueKind::null:
        return nil();
      case ValueKind::boolean:
        return byte(*value.as_bool() ? 0xc3 : 0xc2);
      case ValueKind::i64:
        return integer(*value.as_i64());
      case ValueKind::u64:
        return number(0xcf, 3, *value.as_u64());
      case ValueKind::f64:
        return number(0xcb, 3, std::bit_cast<std::uint64_t>(*value.as_f64()));
      case ValueKind::string:
        return text(*value.as_string());
      case ValueKind::bytes:
        STELE_TRY(sized(value.as_bytes()->size(), 0, 0, 0xc4, 0));
        return put(*value.as_bytes());
      case ValueKind::list:
        STELE_TRY(begin_list(value.as_list()->size()));
        for (const Value& element : *value.as_list()) STELE_TRY(this->value(element));
        return {};
      case ValueKind::map:
        STELE_TRY(begin_map(value.as_map()->size()));
        for (const auto& [name, element] : *value.as_map()) {
          STELE_TRY(text(name));
          STELE_TRY(this->value(element));
        }
        return {};
    }
    return {};
  }

  Status bytes(const LeafView& leaf) override {
    STELE_TRY(sized(leaf.byte_size(), 0, 0, 0xc4, 0));
    size_ += leaf.byte_size();
    return gather_ != nullptr ? gather_->leaf(leaf, context_) : Status();
  }
  Status finish() override { return {}; }

 private:
  Status put(std::span<const std::byte> bytes) {
    size_ += bytes.size();
    return gather_ != nullptr ? gather_->write(bytes) : Status();
  }
  Status byte(unsigned b) {
    const std::byte bytes[] = {static_cast<std::byte>(b)};
    return put(bytes);
  }
  /// Writes a mark, and 1, 2, 4 or 8 bytes.
  Status number(unsigned mark, unsigned log, std::uint64_t n) {
    std::byte bytes[9] = {static_cast<std::byte>(mark)};
    const std::size_t size = std::size_t{1} << log;
    for (std::size_t i = size; i != 0; n >>= 8) bytes[i--] = static_cast<std::byte>(n);
    return put(std::span(bytes).first(size + 1));
  }
  Status integer(std::int64_t n) {
    if (n >= 0) {
      const auto u = static_cast<std::uint64_t>(n);
      if (u < 0x80) return byte(static_cast<unsigned>(u));
      const unsigned log = log_of(u);
      return number(0xcc + log, log, u);
    }
    if (n >= -32) return byte(static_cast<unsigned>(n) & 0xff);
    const unsigned log = n >= INT8_MIN ? 0 : n >= INT16_MIN ? 1 : n >= INT32_MIN ? 2 : 3;
    return number(0xd0 + log, log, static_cast<std::uint64_t>(n));
  }
  static unsigned log_of(std::uint64_t n) { return n <= UINT8_MAX ? 0 : n <= UINT16_MAX ? 1 : n <= UINT32_MAX ? 2 : 3; }

  /// Writes a length: in the mark `small` if it is below `few`, else after one of the marks that begin at `large`, the
  /// first for a length of 1 << `least` bytes.
  Status sized(std::uint64_t n, unsigned small, unsigned few, unsigned large, unsigned least) {
    if (n < few) return byte(small + static_cast<unsigned>(n));
    const unsigned log = std::max(log_of(n), least);
    if (log > 2) {
      return Error(Errc::not_representable, "MessagePack holds 4 GiB at most in one piece")
          .found(std::to_string(n) + " bytes or values");
    }
    return number(large + log - least, log, n);
  }
  Status text(std::string_view text) {
    STELE_TRY(sized(text.size(), 0xa0, 32, 0xd9, 0));
    return put(std::as_bytes(std::span(text)));
  }

  LeafGather* gather_;
  ReadContext& context_;
  std::uint64_t& size_;
};

}  // namespace

std::unique_ptr<Tokens> mpk_tokens(SourcePtr source) { return std::make_unique<MpkTokens>(std::move(source)); }

std::unique_ptr<Out> mpk_out(LeafGather* gather, ReadContext& context, std::uint64_t& size) {
  return std::make_unique<MpkOut>(gather, context, size);
}

}  // namespace burn
}  // namespace detail
}  // namespace v0
}  // namespace stele
