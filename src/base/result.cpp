#include "stele/result.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <new>
#include <numeric>
#include <ostream>

#include "base/printable.hpp"
#include "base/shortened.hpp"
#include "stele/report.hpp"

namespace stele::inline v0 {

std::string_view name(Errc code) noexcept {
  static constexpr std::array<std::string_view, 29> names = {"none",
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
                                                             "exists",
                                                             "timed_out",
                                                             "nothing_applied"};
  const auto i = static_cast<std::size_t>(code);
  return i < names.size() ? names[i] : "unknown";
}

/// The beginning of one block of memory; the strings follow it, in the order of Part.
struct Error::Data {
  Errc code = Errc::none;
  bool partial = false;
  std::optional<std::uint64_t> offset;
  std::shared_ptr<const Report> report;
  std::size_t capacity = 0;  // bytes reserved for strings
  std::array<std::size_t, parts_> sizes{};

  char* texts() noexcept { return reinterpret_cast<char*>(this + 1); }
  const char* texts() const noexcept { return reinterpret_cast<const char*>(this + 1); }
  /// Returns the offset of the part's first byte; the offset of `parts_` is the end.
  std::size_t begin(Part part) const noexcept {
    return std::accumulate(sizes.begin(), sizes.begin() + part, std::size_t{0});
  }

  static Data* make(std::size_t text_bytes) noexcept {
    constexpr std::size_t usual_text_bytes = 192;  // most errors never need more
    const std::size_t capacity = std::max(text_bytes, usual_text_bytes);
    void* const memory = ::operator new(sizeof(Data) + capacity, std::nothrow);
    if (memory == nullptr) return nullptr;
    auto* const data = new (memory) Data;
    data->capacity = capacity;
    return data;
  }
  /// Returns a copy with space for `text_bytes`, which must be at least the size of the strings; null if memory runs
  /// out.
  static Data* copy(const Data& from, std::size_t text_bytes) noexcept {
    Data* const data = make(text_bytes);
    if (data == nullptr) return nullptr;
    const std::size_t capacity = data->capacity;
    *data = from;
    data->capacity = capacity;
    std::memcpy(data->texts(), from.texts(), from.begin(parts_));
    return data;
  }

  /// Returns the error that replaces another one if memory runs out. Never destroyed.
  static Data* no_memory(bool partial) noexcept {
    static constexpr std::string_view message = "memory is exhausted";
    struct Block {
      alignas(Data) std::array<std::byte, sizeof(Data) + message.size()> bytes;
    };
    static std::array<Block, 2> blocks;
    static const bool made = [] {
      for (Block& block : blocks) {
        auto* const data = new (static_cast<void*>(block.bytes.data())) Data;
        data->code = Errc::out_of_memory;
        data->partial = &block == &blocks[1];
        data->sizes[message_] = message.size();
        std::memcpy(data->texts(), message.data(), message.size());
      }
      return true;
    }();
    static_cast<void>(made);
    return std::launder(reinterpret_cast<Data*>(blocks[partial ? 1 : 0].bytes.data()));
  }
  static bool is_shared(const Data* data) noexcept { return data == no_memory(false) || data == no_memory(true); }
  static void destroy(Data* data) noexcept {
    if (data == nullptr || is_shared(data)) return;
    data->~Data();
    ::operator delete(data);
  }
  /// Gives `data` one owner and space for `text_bytes`. If memory runs out, returns false and changes nothing.
  static bool own(Data*& data, std::size_t text_bytes) noexcept {
    if (data != nullptr && !is_shared(data) && text_bytes <= data->capacity) return true;
    const std::size_t wanted = text_bytes > std::numeric_limits<std::size_t>::max() / 4 ? text_bytes : text_bytes * 2;
    Data* const fresh = data == nullptr ? make(wanted) : copy(*data, std::max(wanted, data->begin(parts_)));
    if (fresh == nullptr) return false;
    destroy(std::exchange(data, fresh));
    return true;
  }
};

Error::Error(Errc code, std::string_view message) noexcept : data_(Data::make(message.size())) {
  if (data_ == nullptr) {
    data_ = Data::no_memory(false);
    return;
  }
  data_->code = code;
  set(message_, message);
}
Error::Error(const Error& other) noexcept : data_(other.data_) {
  if (data_ == nullptr || Data::is_shared(data_)) return;
  data_ = Data::copy(*other.data_, other.data_->begin(parts_));
  if (data_ == nullptr) data_ = Data::no_memory(other.data_->partial);
}
Error& Error::operator=(const Error& other) noexcept {
  if (this != &other) *this = Error(other);
  return *this;
}
void Error::destroy() noexcept { Data::destroy(data_); }

Error&& Error::set(Part part, std::string_view text) noexcept {
  const std::size_t now = data_ == nullptr ? 0 : data_->begin(parts_), old = data_ == nullptr ? 0 : data_->sizes[part];
  Data* before = nullptr;  // freed after `text`, which may point into it, is copied
  if (data_ != nullptr && !text.empty() && std::less_equal<>()(data_->texts(), text.data()) &&
      std::less<>()(text.data(), data_->texts() + now)) {
    Data* const fresh = Data::copy(*data_, now + text.size());
    if (fresh == nullptr) return std::move(*this);
    before = std::exchange(data_, fresh);
  }
  if (Data::own(data_, now - old + text.size())) {
    char* const at = data_->texts() + data_->begin(part);
    std::memmove(at + text.size(), at + old, now - static_cast<std::size_t>(at - data_->texts()) - old);
    if (!text.empty()) std::memcpy(at, text.data(), text.size());
    data_->sizes[part] = text.size();
  }
  Data::destroy(before);
  return std::move(*this);
}
std::string_view Error::get(Part part) const noexcept {
  return data_ == nullptr ? std::string_view()
                          : std::string_view(data_->texts() + data_->begin(part), data_->sizes[part]);
}

Error&& Error::path(std::string_view text) && noexcept { return set(path_, text); }
Error&& Error::file(std::string_view text) && noexcept { return set(file_, text); }
Error&& Error::expected(std::string_view text) && noexcept { return set(expected_, text); }
Error&& Error::found(std::string_view text) && noexcept { return set(found_, text); }
Error&& Error::hint(std::string_view text) && noexcept { return set(hint_, text); }
Error&& Error::offset(std::uint64_t at) && noexcept {
  if (Data::own(data_, 0)) data_->offset = at;
  return std::move(*this);
}
Error&& Error::report(std::shared_ptr<const Report> report) && noexcept {
  if (Data::own(data_, 0)) data_->report = std::move(report);
  return std::move(*this);
}
Error&& Error::partially_applied(bool yes) && noexcept {
  if (partially_applied() == yes) return std::move(*this);
  if (Data::own(data_, 0)) {
    data_->partial = yes;
  } else {
    data_ = Data::no_memory(yes);
  }
  return std::move(*this);
}

Errc Error::code() const noexcept { return data_ == nullptr ? Errc::none : data_->code; }
std::string_view Error::message() const noexcept { return get(message_); }
std::string_view Error::path() const noexcept { return get(path_); }
std::string_view Error::file() const noexcept { return get(file_); }
std::string_view Error::expected() const noexcept { return get(expected_); }
std::string_view Error::found() const noexcept { return get(found_); }
std::string_view Error::hint() const noexcept { return get(hint_); }
std::optional<std::uint64_t> Error::offset() const noexcept { return data_ == nullptr ? std::nullopt : data_->offset; }
const std::shared_ptr<const Report>& Error::report() const noexcept {
  static const std::shared_ptr<const Report> none;
  return data_ == nullptr ? none : data_->report;
}
bool Error::partially_applied() const noexcept { return data_ != nullptr && data_->partial; }

std::string Error::to_string() const {
  // A part of an error may come from a file and have any length.
  constexpr std::size_t max_part_bytes = 1024;
  const auto shown = [](std::string_view part) { return detail::printable(detail::shortened(part, max_part_bytes)); };
  std::string text(name(code()));
  if (!path().empty()) text += ": " + shown(path());
  if (!message().empty()) text += ": " + shown(message());
  if (!expected().empty()) text += ": expected " + shown(expected());
  if (!found().empty()) text += (expected().empty() ? ": found " : ", found ") + shown(found());
  if (offset()) text += " at byte " + std::to_string(*offset());
  if (!file().empty()) text += " (" + detail::printable(file()) + ")";
  if (!hint().empty()) text += "; " + shown(hint());
  if (partially_applied()) text += " [part of the module was already written]";
  return text;
}

namespace {
std::atomic<FatalHandler> fatal_handler{nullptr};
}  // namespace

FatalHandler set_fatal_handler(FatalHandler handler) noexcept { return fatal_handler.exchange(handler); }

namespace detail {
void fatal(const char* message) noexcept {
  if (const FatalHandler handler = fatal_handler.load()) handler(message);
  std::fprintf(stderr, "stele: %s\n", message);
  std::abort();
}

void throw_error(const Error& error) {
#if STELE_EXCEPTIONS
  throw Exception(error);
#else
  fatal(error.to_string().c_str());
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
      return Error(Errc::out_of_memory, "memory is exhausted");
    } catch (const std::exception& e) {
      return Error(Errc::user_exception, e.what());
    } catch (...) {
      return Error(Errc::user_exception, "user code threw an exception of unknown type");
    }
  } catch (...) {  // memory ran out for the message
    return Error(Errc::out_of_memory, "memory is exhausted");
  }
#else
  return Error(Errc::user_exception);
#endif
}

}  // namespace detail

std::ostream& operator<<(std::ostream& to, Errc code) { return to << name(code); }
std::ostream& operator<<(std::ostream& to, const Error& error) { return to << error.to_string(); }

}  // namespace stele::inline v0
