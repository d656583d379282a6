// Strict, bounded JSON (RFC 8259): a pull reader without allocations, a compact writer, base64, and Values as JSON. Own
// code for two reasons: opening a file may allocate at most 2 x file + 16 MiB, while simdjson needs more than 6 bytes
// per byte of input; and duplicate keys are refused, which takes a separate pass over every name anyway.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "stele/precision/base64.hpp"
#include "stele/result.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::json {

/// Maximum nesting of a Value, and of a document unless Options sets another limit: configurations nest at most a dozen
/// levels, and recursion over a Value (for example, in its destructor) takes at most about 30 KiB of stack.
inline constexpr unsigned kMaxDepth = 64;
/// Maximum of Options::max_depth. The reader's stack takes one bit per level.
inline constexpr unsigned kDeepest = 1280;

/// The kind of a value, from its first character; `none`: not a value.
enum class Kind : std::uint8_t { none, object, array, string, number, boolean, null };

struct Options {
  std::uint64_t base = 0;    // offset of the text in the file; added to the offsets of errors
  bool nul_in_names = true;  // false: a key with U+0000 (from \u0000; a raw NUL is never valid) is malformed
  unsigned max_depth = kMaxDepth;
  bool non_finite = false;  // true: NaN, Infinity and -Infinity are numbers, as Python's json.dumps() writes them
};

/// Pull reader. Every function returns false on an error, and the reader keeps the first error: callers chain calls
/// with &&, loop with `while (r.next_key(k, s))` and check ok() afterwards. The text must outlive the reader and all
/// views from it. Copying is cheap and saves the position.
class Reader {
 public:
  explicit Reader(std::string_view text, Options options = {}) noexcept
      : begin_(text.data()), p_(begin_), end_(begin_ + text.size()), token_(begin_), options_(options) {}

  /// Returns the kind of the next value. Consumes only whitespace.
  Kind peek() noexcept;

  bool begin_object() noexcept;
  /// Returns true if it read `key`; the key's value comes next. Returns false at the end of the object and on an error.
  /// Strings without escapes are views into the text. Other strings are decoded into `scratch` and are views of it.
  bool next_key(std::string_view& key, std::string& scratch);
  bool begin_array() noexcept;
  /// Returns true if a value comes next, false at the end of the array and on an error.
  bool next_element() noexcept;

  /// Reads an exact integer. A fraction, an exponent or -0 is malformed; a number beyond the type is out_of_range.
  bool read_u64(std::uint64_t& out) noexcept;
  bool read_i64(std::int64_t& out) noexcept;
  /// Reads any number, rounded to nearest, if necessary to zero. A number that rounds to infinity is out_of_range.
  bool read_double(double& out) noexcept;
  /// Reads an integer as i64 or u64, and a number with a fraction or exponent, or -0, as f64.
  bool read_number(Value& out) noexcept;
  bool read_string(std::string_view& out, std::string& scratch);
  bool read_bool(bool& out) noexcept;
  bool read_null() noexcept;
  /// Skips a value of any kind and checks its full grammar (not the range of numbers). Sets `raw` to the value's text.
  bool skip_value(std::string_view* raw = nullptr) noexcept;
  /// Returns true if exactly one top-level value has been read and only whitespace follows.
  bool finish() noexcept;

  bool ok() const noexcept { return due_ != Due::failed; }
  /// Sets an error about the last key or value, unless there already is an error. Returns false. Stores the strings by
  /// pointer, so callers must pass literals. If the text ends early, `malformed` becomes `truncated`.
  bool fail(Errc code, const char* expected, const char* message = "") noexcept {
    return fail_at(token_, code, expected, message);
  }
  /// Returns the offset in the file of the last key or value that was begun.
  std::uint64_t offset() const noexcept { return options_.base + static_cast<std::uint64_t>(token_ - begin_); }
  /// Returns the error with offset, expected and found. Call only if ok() is false.
  Error error() const;
  Status status() const { return ok() ? Status() : Status(error()); }

 private:
  // The next expected token; `key` and `element` come after a comma, unless their container ends.
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
  std::size_t non_finite_size() const noexcept;
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
  std::uint64_t objects_[kDeepest / 64]{};  // one bit per level: set for an object
  Options options_;
  unsigned depth_ = 0;
  Errc code_ = Errc::none;
  Due due_ = Due::value;
  Due after_ = Due::end;  // the token expected after a value of the innermost container
};

/// Appends JSON, compact or with one member per line. Writes commas itself and escapes strings like serde_json. The
/// caller must make the calls in an order that forms a document, with strings of valid UTF-8 and finite doubles.
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
  /// Writes the shortest digits that read back as the same double, always with a fraction or an exponent.
  void f64(double number);
  void boolean(bool b) { item(), out_->append(b ? "true" : "false"); }
  void null() { item(), out_->append("null"); }
  /// Writes `bytes` as a base64 string.
  void base64(std::span<const std::byte> bytes);
  /// Begins a value whose text the caller appends directly after this call.
  void item() {
    if (!after_key_ && comma_) out_->push_back(',');
    if (!after_key_ && pretty_ && depth_ != 0) new_line();
    comma_ = true;
    after_key_ = false;
  }
  /// Begins a line, indented to the current depth.
  void new_line() { out_->append(1, '\n').append(std::size_t{2} * depth_, ' '); }
  /// Returns the number of open containers.
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

/// Returns a map's key, or a name, in a form that JSON can store: with another $ in front if it begins with $; as
/// "$str:" and base64 if it is not UTF-8.
std::string coded_key(std::string_view key);

/// Writes a Value as JSON, without loss. Integers are JSON integers; doubles have a fraction or an exponent. A value
/// without a JSON equivalent is an object with one key: {"$bytes":base64}, {"$str":base64} for a string that is not
/// UTF-8, {"$f64":"nan"|"inf"|"-inf"}, and {"$f64":"0x<16 hex digits>"} for the other NaNs. In maps, a key that begins
/// with $ gets another $ in front, and a key that is not UTF-8 is "$str:<base64>". Any other key with a single $ is
/// reserved for later versions, and the reader refuses it. Errors: limit (nesting deeper than kMaxDepth, counting the
/// containers already open and the objects of this encoding), duplicate (a map with equal keys). After an error, the
/// written text is incomplete.
Status write_value(Writer& writer, const Value& value);

/// Reads the next value. `memory` bounds the heap memory that the Value takes while it is read, including growth and
/// allocator overhead; beyond it, the error is `limit`. A copy of the longest string with escapes is not counted.
/// Without a bound, the heap memory stays below kMaxValueBytesPerByte times the text plus a KiB (a Value is 40 bytes,
/// "0," has two, and a vector that doubles temporarily holds three times its elements). Sets `out` only on success.
/// `plain`: keys that begin with $ have no special meaning.
Status read_value(Reader& reader, Value& out, std::size_t memory, bool plain = false);
inline constexpr std::size_t unbounded = static_cast<std::size_t>(-1);
inline constexpr std::size_t kMaxValueBytesPerByte = 64;

}  // namespace stele::inline v0::detail::json
