// Reads MessagePack token by token.
#include <bit>
#include <utility>

#include "encodings/msgpack/msgpack.hpp"

namespace stele::inline v0::detail::msgpack {
namespace {

Status scalar(Token& token, Value value) {
  token.kind = Token::Kind::scalar;
  token.scalar = std::move(value);
  return {};
}

Error unsupported(const Token& token, unsigned mark) {
  return Error(mark == 0xc1 ? Errc::malformed : Errc::unsupported, mark == 0xc1
                                                                       ? "the byte does not begin a MessagePack value"
                                                                       : "the reader does not support extension types")
      .offset(token.offset)
      .found("byte " + std::to_string(mark));
}

}  // namespace

Status Reader::next(Token& token) {
  STELE_TRY(in_.skip(std::exchange(skip_, 0)));
  token.offset = in_.position();
  if (left_[depth_] == 0) {
    token.kind = Token::Kind::end;
    if (end_[depth_] != 0 && end_[depth_] != token.offset) {
      return Error(Errc::malformed, "the extension's length differs from that of its value")
          .offset(token.offset)
          .expected("the end at byte " + std::to_string(end_[depth_]));
    }
    if (depth_ != 0) return --depth_, Status();
    STELE_TRY_ASSIGN(const bool ended, in_.at_end());
    if (ended) return {};
    return Error(Errc::malformed, "bytes follow the MessagePack value").offset(token.offset);
  }
  const bool key = map_[depth_] && left_[depth_] % 2 == 0;
  --left_[depth_];
  STELE_TRY_ASSIGN(const unsigned mark, in_.little<std::uint8_t>());
  if (key && (mark < 0xa0 || mark >= 0xc0) && (mark < 0xd9 || mark > 0xdb)) {
    return Error(Errc::malformed, "the key of the map is not a string")
        .offset(token.offset)
        .found("byte " + std::to_string(mark));
  }
  if (mark < 0x80) return scalar(token, Value(std::uint64_t{mark}));
  if (mark >= 0xe0) return scalar(token, Value(std::int64_t{static_cast<std::int8_t>(mark)}));
  if (mark < 0x90) return open(token, Token::Kind::map, mark & 15);
  if (mark < 0xa0) return open(token, Token::Kind::list, mark & 15);
  if (mark < 0xc0) return text(token, mark & 31);
  return value(token, mark);
}

/// Reads a value whose mark does not contain the value or its length.
Status Reader::value(Token& token, unsigned mark) {
  const auto number = [&](unsigned log) { return in_.big(std::size_t{1} << log); };
  switch (mark) {
    case 0xc0:
      token.kind = Token::Kind::nil;
      return {};
    case 0xc2:
    case 0xc3:
      return scalar(token, Value(mark == 0xc3));
    case 0xca: {
      STELE_TRY_ASSIGN(const std::uint64_t bits, number(2));
      return scalar(token, Value(double{std::bit_cast<float>(static_cast<std::uint32_t>(bits))}));
    }
    case 0xcb: {
      STELE_TRY_ASSIGN(const std::uint64_t bits, number(3));
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
    case 0xc7:
    case 0xc8:
    case 0xc9: {
      if (!extensions_) return unsupported(token, mark);
      STELE_TRY_ASSIGN(const std::uint64_t n, number(mark - 0xc7));
      return extension(token, n);
    }
    default:
      if (extensions_ && mark >= 0xd4 && mark <= 0xd8) return extension(token, std::uint64_t{1} << (mark - 0xd4));
      return unsupported(token, mark);
  }
}

Status Reader::text(Token& token, std::uint64_t size) {
  token.kind = Token::Kind::text;
  return in_.text(size, token.text);
}

Status Reader::open(Token& token, Token::Kind kind, std::uint64_t entries) {
  token.kind = kind;
  const std::uint64_t values = kind == Token::Kind::map ? 2 * entries : entries;
  if (values > in_.left()) {
    return Error(Errc::truncated, "the list or map has more values than the file has bytes")
        .offset(token.offset)
        .expected("at most " + std::to_string(in_.left()))
        .found(std::to_string(values));
  }
  STELE_TRY(deeper(token.offset));
  left_[depth_] = values;
  map_[depth_] = kind == Token::Kind::map;
  return {};
}

Status Reader::extension(Token& token, std::uint64_t size) {
  STELE_TRY_ASSIGN(const auto type, in_.little<std::int8_t>());
  token.kind = Token::Kind::extension;
  token.type = type;
  token.size = skip_ = size;
  token.at = in_.position();
  return {};
}

Status Reader::enter(const Token& token) {
  STELE_TRY(deeper(token.offset));
  left_[depth_] = 1;
  map_[depth_] = false;
  end_[depth_] = in_.position() + std::exchange(skip_, 0);
  return {};
}

Status Reader::deeper(std::uint64_t offset) {
  if (++depth_ > max_depth) {
    return Error(Errc::limit, "lists and maps are nested too deeply")
        .offset(offset)
        .expected("at most " + std::to_string(max_depth) + " levels");
  }
  end_[depth_] = 0;
  return {};
}

}  // namespace stele::inline v0::detail::msgpack
