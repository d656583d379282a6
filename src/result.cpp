#include "stele/result.hpp"

#include <array>
#include <cstdlib>

#include "stele/report.hpp"

namespace stele {
inline namespace v0 {

std::string_view name(Errc code) noexcept {
  static constexpr std::array<std::string_view, 27> names = {"none",
                                                             "io",
                                                             "not_found",
                                                             "truncated",
                                                             "bad_magic",
                                                             "unsupported",
                                                             "malformed",
                                                             "checksum",
                                                             "limit",
                                                             "duplicate",
                                                             "missing",
                                                             "unused",
                                                             "dtype_mismatch",
                                                             "shape_mismatch",
                                                             "kind_mismatch",
                                                             "out_of_range",
                                                             "not_representable",
                                                             "cycle",
                                                             "needs_layout",
                                                             "no_space",
                                                             "out_of_memory",
                                                             "user_exception",
                                                             "cancelled",
                                                             "invalid_argument",
                                                             "not_loadable",
                                                             "value_mismatch",
                                                             "exists"};
  const auto i = static_cast<std::size_t>(code);
  return i < names.size() ? names[i] : "unknown";
}

struct Error::Data {
  Errc code = Errc::none;
  bool partial = false;
  std::optional<std::uint64_t> offset;
  std::string message, path, file, expected, found;
  std::shared_ptr<const Report> report;
};

Error::Error(Errc code, std::string message) : data_(std::make_unique<Data>()) {
  data_->code = code;
  data_->message = std::move(message);
}
Error::Error(Error&&) noexcept = default;
Error& Error::operator=(Error&&) noexcept = default;
Error::Error(const Error& other) : data_(std::make_unique<Data>(*other.data_)) {}
Error& Error::operator=(const Error& other) {
  if (this != &other) data_ = std::make_unique<Data>(*other.data_);
  return *this;
}
Error::~Error() = default;

Error&& Error::path(std::string text) && { return data_->path = std::move(text), std::move(*this); }
Error&& Error::file(std::string text) && { return data_->file = std::move(text), std::move(*this); }
Error&& Error::expected(std::string text) && { return data_->expected = std::move(text), std::move(*this); }
Error&& Error::found(std::string text) && { return data_->found = std::move(text), std::move(*this); }
Error&& Error::offset(std::uint64_t at) && { return data_->offset = at, std::move(*this); }
Error&& Error::report(std::shared_ptr<const Report> report) && {
  return data_->report = std::move(report), std::move(*this);
}
Error&& Error::partially_applied(bool yes) && { return data_->partial = yes, std::move(*this); }

Errc Error::code() const noexcept { return data_->code; }
const std::string& Error::message() const noexcept { return data_->message; }
const std::string& Error::path() const noexcept { return data_->path; }
const std::string& Error::file() const noexcept { return data_->file; }
const std::string& Error::expected() const noexcept { return data_->expected; }
const std::string& Error::found() const noexcept { return data_->found; }
std::optional<std::uint64_t> Error::offset() const noexcept { return data_->offset; }
const std::shared_ptr<const Report>& Error::report() const noexcept { return data_->report; }
bool Error::partially_applied() const noexcept { return data_->partial; }

std::string Error::to_string() const {
  std::string text(name(data_->code));
  if (!data_->path.empty()) text += ": " + data_->path;
  if (!data_->message.empty()) text += ": " + data_->message;
  if (!data_->expected.empty()) text += ": expected " + data_->expected;
  if (!data_->found.empty()) text += (data_->expected.empty() ? ": found " : ", found ") + data_->found;
  if (data_->offset) text += " at byte " + std::to_string(*data_->offset);
  if (!data_->file.empty()) text += " (" + data_->file + ")";
  if (data_->partial) text += " [part of the module was already written]";
  return text;
}

namespace detail {
void throw_error(const Error& error) {
#if STELE_EXCEPTIONS
  throw Exception(error);
#else
  static_cast<void>(error);
  std::abort();
#endif
}

Error error_of_exception() {
#if STELE_EXCEPTIONS
  try {
    throw;
  } catch (const Exception& e) {
    return e.error();
  } catch (const std::bad_alloc&) {
    return Error(Errc::out_of_memory, "no memory");
  } catch (const std::exception& e) {
    return Error(Errc::user_exception, e.what());
  } catch (...) {
    return Error(Errc::user_exception, "an exception of unknown type");
  }
#else
  return Error(Errc::user_exception);
#endif
}

}  // namespace detail

}  // namespace v0
}  // namespace stele
