#include "stele/result.hpp"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "base/shortened.hpp"
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

namespace {

/// Returns the error for a lack of memory for another error. Never destroyed.
template <class Data>
Data* no_memory(bool partial = false) noexcept {
  struct Both {
    Data plain, partial;
  };
  alignas(Both) static std::byte room[sizeof(Both)];
  static Both* const both = [] {
    auto* made = new (static_cast<void*>(room)) Both;
    for (Data* data : {&made->plain, &made->partial}) {
      data->code = Errc::out_of_memory;
      data->message = "the memory is exhausted";  // short enough for the string's own buffer
    }
    made->partial.partial = true;
    return made;
  }();
  return partial ? &both->partial : &both->plain;
}

template <class Data>
bool is_shared(const Data* data) noexcept {
  return data == no_memory<Data>(false) || data == no_memory<Data>(true);
}

/// Returns data that a setter may write to, or null.
template <class Data>
Data* own(Data*& data) noexcept {
  if (!is_shared(data)) return data;
  auto* const fresh = new (std::nothrow) Data;
  if (fresh == nullptr) return nullptr;
  fresh->code = data->code;
  fresh->partial = data->partial;
  fresh->message = "the memory is exhausted";
  return data = fresh;
}

}  // namespace

Error::Error(Errc code, std::string message) noexcept : data_(new (std::nothrow) Data) {
  if (data_ == nullptr) {
    data_ = no_memory<Data>();
    return;
  }
  data_->code = code;
  data_->message = std::move(message);
}
Error::Error(const Error& other) noexcept : data_(other.data_) {
  if (data_ == nullptr || is_shared(data_)) return;
#if STELE_EXCEPTIONS
  try {
    data_ = new Data(*other.data_);
  } catch (const std::bad_alloc&) {
    data_ = no_memory<Data>(other.data_->partial);
  }
#else
  data_ = new Data(*other.data_);
#endif
}
Error& Error::operator=(const Error& other) noexcept {
  if (this != &other) *this = Error(other);
  return *this;
}
void Error::destroy() noexcept {
  if (!is_shared(data_)) delete data_;
}

Error&& Error::path(std::string text) && noexcept {
  if (Data* const data = own(data_)) data->path = std::move(text);
  return std::move(*this);
}
Error&& Error::file(std::string text) && noexcept {
  if (Data* const data = own(data_)) data->file = std::move(text);
  return std::move(*this);
}
Error&& Error::expected(std::string text) && noexcept {
  if (Data* const data = own(data_)) data->expected = std::move(text);
  return std::move(*this);
}
Error&& Error::found(std::string text) && noexcept {
  if (Data* const data = own(data_)) data->found = std::move(text);
  return std::move(*this);
}
Error&& Error::offset(std::uint64_t at) && noexcept {
  if (Data* const data = own(data_)) data->offset = at;
  return std::move(*this);
}
Error&& Error::report(std::shared_ptr<const Report> report) && noexcept {
  if (Data* const data = own(data_)) data->report = std::move(report);
  return std::move(*this);
}
Error&& Error::partially_applied(bool yes) && noexcept {
  if (data_ == nullptr || data_->partial == yes) return std::move(*this);
  if (Data* const data = own(data_)) {
    data->partial = yes;
  } else {
    data_ = no_memory<Data>(yes);
  }
  return std::move(*this);
}

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
  // A part of an error may come from a file, with any length.
  constexpr std::size_t max_part_bytes = 1024;
  const auto shown = [](const std::string& part) { return detail::shortened(part, max_part_bytes); };
  std::string text(name(data_->code));
  if (!data_->path.empty()) text += ": " + shown(data_->path);
  if (!data_->message.empty()) text += ": " + shown(data_->message);
  if (!data_->expected.empty()) text += ": expected " + shown(data_->expected);
  if (!data_->found.empty()) text += (data_->expected.empty() ? ": found " : ", found ") + shown(data_->found);
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

Error error_of_exception() noexcept {
#if STELE_EXCEPTIONS
  try {
    try {
      throw;
    } catch (const Exception& e) {
      return e.error();
    } catch (const std::bad_alloc&) {
      return Error(Errc::out_of_memory, "the memory is exhausted");
    } catch (const std::exception& e) {
      return Error(Errc::user_exception, e.what());
    } catch (...) {
      return Error(Errc::user_exception, "user code threw an exception of unknown type");
    }
  } catch (...) {  // no memory for the message
    return Error(Errc::out_of_memory, "the memory is exhausted");
  }
#else
  return Error(Errc::user_exception);
#endif
}

}  // namespace detail

}  // namespace v0
}  // namespace stele
