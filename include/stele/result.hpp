// Result and Error: a fallible call returns the kind of failure, its location, and the expected and found content.
#pragma once

#include <cstdint>
#include <exception>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "stele/config.hpp"
#include "stele/errc.hpp"
#include "stele/macros.hpp"  // STELE_TRY, STELE_TRY_ASSIGN

namespace stele::inline v0 {

class Report;

/// Returns the code's name, as in the enumeration.
STELE_EXPORT std::string_view name(Errc code) noexcept;
/// Writes the code's name.
STELE_EXPORT std::ostream& operator<<(std::ostream& to, Errc code);

template <class T>
class Result;

/// A failure. One pointer wide; the setters can be chained. Absent parts are empty. An error of usual length takes one
/// allocation. No operation throws: if memory runs out for an Error, it becomes `out_of_memory` without further parts;
/// if it runs out for a part, the part remains empty. A moved-from Error has the code `none` and no parts.
class STELE_EXPORT Error {
 public:
  explicit Error(Errc code, std::string_view message = {}) noexcept;
  Error(Error&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  Error& operator=(Error&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  Error(const Error&) noexcept;
  Error& operator=(const Error&) noexcept;
  ~Error() {
    if (data_ != nullptr) destroy();
  }

  Error&& path(std::string_view text) && noexcept;  // parameter path, e.g. "layers.0.weight"
  Error&& file(std::string_view text) && noexcept;  // name of the source or sink
  Error&& expected(std::string_view text) && noexcept;
  Error&& found(std::string_view text) && noexcept;
  Error&& hint(std::string_view text) && noexcept;  // the remedy for the caller, e.g. "pass SaveOptions::allow_loss"
  Error&& offset(std::uint64_t at) && noexcept;     // byte offset in the source
  Error&& report(std::shared_ptr<const Report> report) && noexcept;
  Error&& partially_applied(bool yes) && noexcept;

  // The strings are valid until the Error is changed or destroyed.
  Errc code() const noexcept;
  /// Returns name(code()), such as "shape_mismatch".
  std::string_view code_name() const noexcept { return name(code()); }
  std::string_view message() const noexcept;
  std::string_view path() const noexcept;
  std::string_view file() const noexcept;
  std::string_view expected() const noexcept;
  std::string_view found() const noexcept;
  std::string_view hint() const noexcept;
  std::optional<std::uint64_t> offset() const noexcept;
  /// Returns the report of the load up to its failure; null if the error is not from a load.
  const std::shared_ptr<const Report>& report() const noexcept;
  /// Returns true if a load in place had already written a part of the module (only after an I/O error in the last
  /// pass).
  bool partially_applied() const noexcept;

  /// Returns one line with every part: "not_representable: head.bias: the format has no bf16: expected f16 or f32,
  /// found bf16 at byte 128 (model.stele); pass SaveOptions::allow_loss".
  std::string to_string() const;

 private:
  template <class T>
  friend class Result;  // a successful Result<void> has no data
  struct Data;
  enum Part : unsigned char { message_, path_, file_, expected_, found_, hint_, parts_ };
  Error() noexcept = default;
  void destroy() noexcept;
  Error&& set(Part part, std::string_view text) noexcept;
  std::string_view get(Part part) const noexcept;
  Data* data_ = nullptr;
};

/// Writes to_string().
STELE_EXPORT std::ostream& operator<<(std::ostream& to, const Error& error);

#if STELE_EXCEPTIONS
/// Thrown by Result::value() if there is no value.
class STELE_EXPORT Exception : public std::exception {
 public:
  explicit Exception(Error error) : error_(std::move(error)), text_(error_.to_string()) {}
  const char* what() const noexcept override { return text_.c_str(); }
  const Error& error() const noexcept { return error_; }

 private:
  Error error_;
  std::string text_;
};
#endif

/// Called instead of throwing where exceptions are disabled: memory is exhausted, or a function was called against its
/// preconditions, as `message` says. Must not return. (A failed `new` calls C++'s own std::new_handler.)
using FatalHandler = void (*)(const char* message);
/// Sets the handler of the process, and returns the previous one. nullptr: prints the message and aborts, the default.
STELE_EXPORT FatalHandler set_fatal_handler(FatalHandler handler) noexcept;

namespace detail {
[[noreturn]] STELE_EXPORT void throw_error(const Error& error);
}  // namespace detail

/// A value or an Error, with the interface of std::expected<T, Error>.
template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  Result(T value) : value_(std::in_place, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Error error) noexcept : error_(std::move(error)) {}    // NOLINT(google-explicit-constructor)
  /// Builds the value in place from `args` (a type with a conversion operator to T builds without a move).
  template <class... Args>
  explicit Result(std::in_place_t, Args&&... args) : value_(std::in_place, std::forward<Args>(args)...) {}

  bool has_value() const noexcept { return value_.has_value(); }
  explicit operator bool() const noexcept { return value_.has_value(); }
  /// Returns the value. If there is no value, throws Exception (or calls the FatalHandler). For a temporary
  /// Result, returns the value itself instead of a reference into it: `for (auto& step : manager.steps().value())` is
  /// safe.
  T& value() & { return check(), *value_; }
  const T& value() const& { return check(), *value_; }
  T value() && { return check(), std::move(*value_); }
  T& operator*() & noexcept { return *value_; }
  const T& operator*() const& noexcept { return *value_; }
  T operator*() && noexcept(std::is_nothrow_move_constructible_v<T>) { return std::move(*value_); }
  T* operator->() noexcept { return &*value_; }
  const T* operator->() const noexcept { return &*value_; }
  /// Returns the error; requires that has_value() is false.
  const Error& error() const& noexcept { return *error_; }
  Error& error() & noexcept { return *error_; }
  Error error() && noexcept { return std::move(*error_); }
  template <class U>
  T value_or(U&& other) const& {
    return value_ ? *value_ : static_cast<T>(std::forward<U>(other));
  }
  template <class U>
  T value_or(U&& other) && {
    return value_ ? std::move(*value_) : static_cast<T>(std::forward<U>(other));
  }
  /// Returns f(value), which must be a Result, or this error.
  template <class F>
  auto and_then(F&& f) && -> std::remove_cvref_t<std::invoke_result_t<F, T&&>> {
    if (!value_) return std::move(*error_);
    return std::forward<F>(f)(std::move(*value_));
  }
  /// Returns a Result with f(value), or with this error.
  template <class F>
  auto transform(F&& f) && -> Result<std::remove_cvref_t<std::invoke_result_t<F, T&&>>> {
    if (!value_) return std::move(*error_);
    if constexpr (std::is_void_v<std::invoke_result_t<F, T&&>>) {
      std::forward<F>(f)(std::move(*value_));
      return {};
    } else {
      return std::forward<F>(f)(std::move(*value_));
    }
  }
  /// Returns this value, or f(error), which must be a Result of the same type.
  template <class F>
  Result or_else(F&& f) && {
    if (value_) return std::move(*this);
    return std::forward<F>(f)(std::move(*error_));
  }
  /// Returns this value, or a Result with the error f(error).
  template <class F>
  Result transform_error(F&& f) && {
    if (value_) return std::move(*this);
    return Error(std::forward<F>(f)(std::move(*error_)));
  }

 private:
  void check() const {
    if (!value_) detail::throw_error(*error_);
  }
  std::optional<T> value_;
  std::optional<Error> error_;
};

/// Success or an Error; one pointer wide. Becomes a success when its error is moved out.
template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;
  Result() noexcept = default;
  Result(Error error) noexcept : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)
  bool has_value() const noexcept { return error_.data_ == nullptr; }
  explicit operator bool() const noexcept { return has_value(); }
  void value() const {
    if (!has_value()) detail::throw_error(error_);
  }
  const Error& error() const& noexcept { return error_; }
  Error& error() & noexcept { return error_; }
  Error error() && noexcept { return std::move(error_); }
  /// Returns f(), which must be a Result, or this error.
  template <class F>
  auto and_then(F&& f) && -> std::remove_cvref_t<std::invoke_result_t<F>> {
    if (!has_value()) return std::move(error_);
    return std::forward<F>(f)();
  }
  /// Returns success, or f(error), which must be a Status.
  template <class F>
  Result or_else(F&& f) && {
    if (has_value()) return {};
    return std::forward<F>(f)(std::move(error_));
  }

 private:
  Error error_;
};

using Status = Result<void>;

namespace detail {

/// Converts the exception being handled to an error.
STELE_EXPORT Error error_of_exception() noexcept;

/// Runs `f`, which returns a Result, and converts an exception to an error, because user code may throw anywhere.
template <class F>
auto guarded(F f) -> decltype(f()) {
#if STELE_EXCEPTIONS
  try {
    return f();
  } catch (...) {
    return error_of_exception();
  }
#else
  return f();
#endif
}

}  // namespace detail

}  // namespace stele::inline v0
