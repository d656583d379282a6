// Strict, bounded JSON (RFC 8259): a pull reader without allocations, a compact writer, base64, and Value as JSON.
// Own code because opening a file may allocate at most 2 x file + 16 MiB, where simdjson needs more than 6 bytes per
// byte of input, and because duplicate keys must be refused anyway, which takes a pass of our own over every name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "stele/precision/base64.hpp"
#include "stele/result.hpp"
#include "stele/value.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace json {

/// Deepest nesting of values, and of a document unless Options say otherwise: configurations nest a dozen levels at
/// most, and recursion over a Value (its destructor, for one) stays within some 30 KiB of stack.
inline constexpr unsigned kMaxDepth = 64;
/// The most that Options may say; the reader's own stack is one bit a level.
inline constexpr unsigned kDeepest = 1280;

/// What a value is, from its first character; `none` is no value at all.
enum class Kind : std::uint8_t { none, object, array, string, number, boolean, null };

struct Options {
  std::uint64_t base = 0;    // where the text begins in the file; added to the offsets of errors
  bool nul_in_names = true;  // false: keys that hold U+0000 (from \u0000; a raw NUL is never valid) are malformed
  unsigned max_depth = kMaxDepth;
};

/// Pull reader. Every function returns false on an error, and the first error stays: calls chain with &&, loops run
/// `while (r.next_key(k, s))` and ask ok() behind them. The text must outlive the reader and all views it gave.
/// Copying is cheap and saves the position.
class Reader {
 public:
  explicit Reader(std::string_view text, Options options = {}) noexcept
      : begin_(text.data()), p_(begin_), end_(begin_ + text.size()), token_(begin_), options_(options) {}

  /// The kind of the value that is due; consumes nothing but whitespace.
  Kind peek() noexcept;

  bool begin_object() noexcept;
  /// True: `key` was read and its value is due. False: the object has ended, or an error.
  /// Strings without escapes are views into the text, others are decoded into `scratch` and are views of that.
  bool next_key(std::string_view& key, std::string& scratch);
  bool begin_array() noexcept;
  /// True: a value is due. False: the array has ended, or an error.
  bool next_element() noexcept;

  /// Integers are exact: a fraction, an exponent or -0 is malformed, anything beyond the type is out_of_range.
  bool read_u64(std::uint64_t& out) noexcept;
  bool read_i64(std::int64_t& out) noexcept;
  /// Any number, rounded to nearest, to zero too. Out of range: what rounds to infinity.
  bool read_double(double& out) noexcept;
  /// i64 or u64 where the number is an integer, f64 where it has a fraction or exponent or is -0.
  bool read_number(Value& out) noexcept;
  bool read_string(std::string_view& out, std::string& scratch);
  bool read_bool(bool& out) noexcept;
  bool read_null() noexcept;
  /// Skips a value of any kind, checking its grammar in full (not the range of numbers); `raw` gets its text.
  bool skip_value(std::string_view* raw = nullptr) noexcept;
  /// True when the one top-level value has been read and only whitespace follows.
  bool finish() noexcept;

  bool ok() const noexcept { return due_ != Due::failed; }
  /// Makes a caller's finding about the last key or value the error, unless there is one already. Returns false.
  /// The strings are kept by pointer: literals. Text that ends early is `truncated`, where `malformed` was given.
  bool fail(Errc code, const char* expected, const char* message = "") noexcept {
    return fail_at(token_, code, expected, message);
  }
  /// Offset of the last key or value begun, in the file.
  std::uint64_t offset() const noexcept { return options_.base + static_cast<std::uint64_t>(token_ - begin_); }
  /// The error with offset, expected and found; only where ok() is false.
  Error error() const;
  Status status() const { return ok() ? Status() : Status(error()); }

 private:
  // What must come next; `key` and `element` come behind a comma, unless their container ends.
  enum class Due : std::uint8_t { value, first_key, first_element, key, element, end, failed };
  enum Flags : unsigned { plain = 0, escaped = 1, nul = 2 };

  [[gnu::cold, gnu::noinline]] bool fail_at(const char* at, Errc code, const char* expected,
                                            const char* message = "") noexcept;
  [[gnu::cold, gnu::noinline]] bool misused() noexcept;
  bool at_value() noexcept;
  bool begin(char bracket, const char* expected, Due first, Due later, bool object) noexcept;
  bool in_object() const noexcept { return (objects_[(depth_ - 1) / 64] >> (depth_ - 1) % 64 & 1) != 0; }
  bool end_or_fail(const char* p, char bracket, const char* first, const char* later) noexcept;
  bool scan_key(std::string_view& raw, unsigned& flags) noexcept;
  bool scan_string(const char* p, std::string_view& raw, unsigned& flags, const char* expected) noexcept;
  [[gnu::noinline]] const char* scan_rest(const char* p, unsigned& flags) noexcept;
  const char* scan_escape(const char* p, unsigned& flags) noexcept;
  bool scan_number(bool& integral) noexcept;
  template <class T>
  bool read_integer(T& out, const char* expected) noexcept;
  bool scan_literal(std::string_view word, const char* expected) noexcept;
  bool to_double(double& out) noexcept;
  bool end_value() noexcept { return due_ = after_, true; }

  const char* begin_;
  const char* p_;
  const char* end_;
  const char* token_;
  const char* expected_ = "";
  const char* message_ = "";
  std::uint64_t objects_[kDeepest / 64]{};  // one bit a level: set for an object
  Options options_;
  unsigned depth_ = 0;
  Errc code_ = Errc::none;
  Due due_ = Due::value;
  Due after_ = Due::end;  // what is due behind a value of the innermost container
};

/// Appends JSON, compact or with a line for each member: commas by itself, strings escaped as serde_json does. The
/// caller's duties: calls in an order that makes a document, strings that are valid UTF-8, finite doubles.
class Writer {
 public:
  explicit Writer(std::string& out, bool pretty = false) noexcept : out_(&out), pretty_(pretty) {}

  void begin_object() { open('{'); }
  void end_object() { close('}'); }
  void begin_array() { open('['); }
  void end_array() { close(']'); }
  void key(std::string_view name) {
    string(name), out_->append(pretty_ ? ": " : ":");
    after_key_ = true;
  }
  void string(std::string_view text);
  void u64(std::uint64_t number);
  void i64(std::int64_t number);
  /// The shortest digits that read back as the same double, always with a fraction or an exponent.
  void f64(double number);
  void boolean(bool b) { item(), out_->append(b ? "true" : "false"); }
  void null() { item(), out_->append("null"); }
  /// `bytes` as a base64 string.
  void base64(std::span<const std::byte> bytes);
  /// A value that somebody else appends, right behind this call.
  void item() {
    if (!after_key_ && comma_) out_->push_back(',');
    if (!after_key_ && pretty_ && depth_ != 0) new_line();
    comma_ = true;
    after_key_ = false;
  }
  /// Begins a line, at the depth that there is.
  void new_line() { out_->append(1, '\n').append(std::size_t{2} * depth_, ' '); }
  /// Containers that are open.
  unsigned depth() const noexcept { return depth_; }

 private:
  void open(char bracket) { item(), out_->push_back(bracket), comma_ = false, ++depth_; }
  void close(char bracket) {
    --depth_;
    if (pretty_ && comma_) new_line();
    out_->push_back(bracket);
    comma_ = true;
  }

  std::string* out_;
  unsigned depth_ = 0;
  bool comma_ = false;
  bool after_key_ = false;
  bool pretty_ = false;
};

bool valid_utf8(std::string_view text) noexcept;

/// A map's key, or a name, as JSON can hold it: $ in front of one that begins with $, "$str:" and base64 for one that
/// is not UTF-8.
std::string coded_key(std::string_view key);

/// Value as JSON, without loss. Integers are JSON integers; doubles have a fraction or an exponent. What JSON lacks is
/// an object with one key: {"$bytes":base64}, {"$str":base64} for a string that is not UTF-8,
/// {"$f64":"nan"|"inf"|"-inf"}, and {"$f64":"0x<16 hex digits>"} for the other NaNs. In maps a key that begins with $
/// gets another $ in front, and a key that is not UTF-8 is "$str:<base64>"; any other key with a single $ is left to
/// later versions and refused. Errors: limit (nesting deeper than kMaxDepth, counting the containers already open and
/// the objects above), duplicate (a map with the same key twice). The text written up to an error is incomplete.
Status write_value(Writer& writer, const Value& value);

/// Reads the value that is due. `memory` bounds the heap that the Value takes on the way, growth and allocator overhead
/// included: beyond it the error is `limit`. Not counted: a copy of the longest string with escapes. Without a bound
/// the heap stays below kMaxValueBytesPerByte times the text (a Value is 40 bytes, "0," are two, and a vector that
/// doubles holds three times its elements for a moment) and a KiB. `out` is set on success only.
Status read_value(Reader& reader, Value& out, std::size_t memory);
inline constexpr std::size_t kMaxValueBytesPerByte = 64;

}  // namespace json
}  // namespace detail
}  // namespace v0
}  // namespace stele
