// Writes the operations of a pickle.
#include <bit>
#include <utility>

#include "encodings/pickle/pickle.hpp"

namespace stele::inline v0::detail::pickle {
namespace {

void little(std::string& out, std::uint64_t n, unsigned size) {
  char bytes[8];
  for (unsigned i = 0; i < size; ++i) bytes[i] = static_cast<char>(n >> 8 * i & 0xff);
  out.append(bytes, size);
}

/// Appends LONG1: the shortest two's complement form of `n` with `sign`, 0 or 0xff.
void long1(std::string& out, std::uint64_t n, unsigned sign) {
  unsigned size = 8;
  const auto byte = [&](unsigned i) { return static_cast<unsigned>(n >> 8 * i) & 0xff; };
  while (size > 1 && byte(size - 1) == sign && (byte(size - 2) & 0x80) == (sign & 0x80)) --size;
  const bool more = (byte(size - 1) & 0x80) != (sign & 0x80);  // one more byte for the sign
  out.push_back('\x8a');
  out.push_back(static_cast<char>(size + (more ? 1 : 0)));
  little(out, n, size);
  if (more) out.push_back(static_cast<char>(sign));
}

}  // namespace

Writer::Writer(std::string& out) : out_(out) { out_.append("\x80\x02"); }

void Writer::none() { out_.push_back('N'); }
void Writer::boolean(bool value) { out_.push_back(value ? '\x88' : '\x89'); }

void Writer::integer(std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  if (value >= 0 && value <= UINT8_MAX) {
    out_.push_back('K');
    little(out_, bits, 1);
  } else if (value >= 0 && value <= UINT16_MAX) {
    out_.push_back('M');
    little(out_, bits, 2);
  } else if (value >= INT32_MIN && value <= INT32_MAX) {
    out_.push_back('J');
    little(out_, bits, 4);
  } else {
    long1(out_, bits, value < 0 ? 0xff : 0);
  }
}

void Writer::unsigned_integer(std::uint64_t value) {
  if (value <= INT64_MAX) return integer(static_cast<std::int64_t>(value));
  long1(out_, value, 0);
}

void Writer::real(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  out_.push_back('G');
  for (unsigned i = 64; i != 0; i -= 8) out_.push_back(static_cast<char>(bits >> (i - 8) & 0xff));
}

void Writer::string(std::string_view text) {
  const bool fits = text.size() <= UINT32_MAX;
  out_.push_back(fits ? 'X' : '\x8d');  // BINUNICODE8 belongs to protocol 4, but CPython reads it in any protocol
  little(out_, text.size(), fits ? 4 : 8);
  out_.append(text);
}

void Writer::bytes(std::string_view bytes) {
  global("_codecs", "encode");
  std::size_t size = bytes.size();
  for (const char c : bytes) size += static_cast<unsigned char>(c) >> 7;
  const bool fits = size <= UINT32_MAX;
  out_.push_back(fits ? 'X' : '\x8d');
  little(out_, size, fits ? 4 : 8);
  for (const char c : bytes) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x80) {
      out_.push_back(c);
    } else {
      out_.push_back(static_cast<char>(0xc0 | code >> 6));
      out_.push_back(static_cast<char>(0x80 | (code & 0x3f)));
    }
  }
  string("latin1");
  tuple(2);
  reduce();
}

void Writer::global(std::string_view module, std::string_view name) {
  const auto is_this = [&](std::string_view known) {
    return known.size() == module.size() + name.size() + 2 && known.starts_with(module) &&
           known[module.size()] == '\n' && known.substr(module.size() + 1).starts_with(name);
  };
  for (const auto& [known, memo] : names_) {
    if (is_this(known)) return get(memo);
  }
  std::string both(module);
  both.append(1, '\n').append(name).append(1, '\n');
  out_.push_back('c');
  out_.append(both);
  const std::uint32_t memo = put();
  names_.emplace_back(std::move(both), memo);
}

void Writer::mark() { out_.push_back('('); }
void Writer::empty_tuple() { out_.push_back(')'); }
void Writer::tuple(unsigned count) { out_.push_back(static_cast<char>(0x84 + count)); }
void Writer::tuple() { out_.push_back('t'); }
void Writer::empty_list() { out_.push_back(']'); }
void Writer::appends() { out_.push_back('e'); }
void Writer::empty_dict() { out_.push_back('}'); }
void Writer::set_items() { out_.push_back('u'); }
void Writer::reduce() { out_.push_back('R'); }
void Writer::build() { out_.push_back('b'); }
void Writer::persistent() { out_.push_back('Q'); }

std::uint32_t Writer::put() {
  const bool fits = memo_ <= UINT8_MAX;
  out_.push_back(fits ? 'q' : 'r');
  little(out_, memo_, fits ? 1 : 4);
  return memo_++;
}

void Writer::get(std::uint32_t memo) {
  const bool fits = memo <= UINT8_MAX;
  out_.push_back(fits ? 'h' : 'j');
  little(out_, memo, fits ? 1 : 4);
}

void Writer::finish() { out_.push_back('.'); }

}  // namespace stele::inline v0::detail::pickle
