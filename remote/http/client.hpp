// Requests over http and https by libcurl: retries, redirects, and errors that contain the server's message.
#pragma once

#include <curl/curl.h>

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "remote/http/url.hpp"
#include "stele/remote.hpp"

namespace stele::inline v0::remote {

struct Request {
  std::string method = "GET";
  Url url{};
  std::vector<std::pair<std::string, std::string>> headers{};  // names in lower case
  std::optional<ByteRange> range{};                            // range of the file; not empty
  std::span<const std::byte> body{};
};

struct Answer {
  long status = 0;
  std::map<std::string, std::string> headers{};  // names in lower case
  std::string text{};                            // the body, unless a Receiver took it; cut to max_text
  double latency = 0;                            // seconds from the request to the first byte

  std::map<std::string, std::string> redirect{};  // headers of the first answer, if it was a redirect

  /// Returns a header of the answer, or else of the first answer before redirects; empty if there is none.
  std::string header(const std::string& name) const;
  bool ok() const noexcept { return status >= 200 && status < 300; }
};
inline constexpr std::size_t max_text = std::size_t{64} << 10;
inline constexpr std::size_t max_listing = std::size_t{16} << 20;

/// Takes the body of a successful answer. An error ends the request.
class Receiver {
 public:
  virtual ~Receiver() = default;
  /// Called after the headers, once for each try.
  virtual Status begin(const Answer& answer) = 0;
  virtual Status take(std::span<const std::byte> bytes) = 0;
  /// Called after the last byte. After the error `truncated`, the request is tried again.
  virtual Status end() { return {}; }
  /// Returns the range to ask for in the next try.
  virtual std::optional<ByteRange> rest(std::optional<ByteRange> asked) const { return asked; }
};

/// Signs requests. Thread-safe.
class Account {
 public:
  virtual ~Account() = default;
  virtual Status sign(Request& request) const = 0;
  /// Returns the error for an answer that is not a success.
  virtual Error error(const Request& request, const Answer& answer) const;
  /// Returns true if the answer, which is not a success, contains the changes that the request needs before another
  /// try.
  virtual bool learn(const Answer& answer) const { return static_cast<void>(answer), false; }
};

/// Thread-safe. Keeps connections between requests.
class Client {
 public:
  explicit Client(Options options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  const Options& options() const noexcept { return options_; }

  struct Call {
    Request request{};
    const Account* account = nullptr;
    Receiver* receiver = nullptr;
    std::size_t max_answer = max_text;  // maximum size of Answer::text
    bool follow = true;                 // redirects
    unsigned tries = 0;                 // maximum; 0: Options::tries
    Url* reached = nullptr;             // receives the URL that answered
    std::vector<long> accepted{};       // statuses other than 2xx that are not errors
    // Root element of the result, without which a success is none: S3 may begin an answer before the result is known
    std::string_view result{};
  };
  /// Sends a request until it succeeds or need not be tried again. Errors: not_found (404, 410), io, timed_out,
  /// exists (409, 412), those of the receiver.
  Result<Answer> run(Call call) const;

 private:
  struct Try;
  /// Sends a request once. `again` becomes true if it may be tried again after the error.
  Result<Answer> once(const Request& request, const Call& call, std::chrono::steady_clock::time_point end,
                      bool& again) const;
  Status check_host(const Url& url) const;
  /// Returns true if the program wants its requests to end.
  bool cancelled() const;
  /// Waits, or returns earlier if cancelled() becomes true.
  void pause(std::chrono::milliseconds wait) const;
  CURL* take() const;
  void give_back(CURL* handle) const;

  Options options_;
  mutable std::mutex mutex_;
  mutable std::vector<CURL*> idle_;
};

/// Bounds a list that a server sends in pages: no server decides how long it takes, or how much memory.
class Pages {
 public:
  /// Maximum number of files of a folder, and of pages: stores send up to 1000 files in one.
  static constexpr std::size_t max_entries = 1'000'000, max_pages = 10'000;
  /// Checks a page. `token` requests the next page, and is empty after the last page; `entries` is the number of files
  /// so far; `bytes` the size of the page. Errors: limit, io (the server repeats a page, or sends only empty pages).
  Status next(std::string_view token, std::size_t entries, std::size_t bytes, const std::string& shown);

 private:
  static constexpr std::size_t max_empty = 1000;
  static constexpr std::uint64_t max_bytes = std::uint64_t{1} << 30;
  std::unordered_set<std::uint64_t> tokens_{};  // their hashes
  std::size_t entries_ = 0, empty_ = 0;
  std::uint64_t bytes_ = 0;
};

/// Returns the status, the server's code and message, the request's id and the request: "404 NoSuchKey (GET)".
std::string found_in(const Request& request, const Answer& answer);
/// Returns the error for an answer that is not a success, of a server of any kind.
Error error_of(const Request& request, const Answer& answer);
/// Returns the text of the first element <name> of an XML document; empty if there is none.
std::string xml_text(std::string_view xml, std::string_view name);

}  // namespace stele::inline v0::remote
