#include "remote/http/client.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <random>
#include <thread>

#include "base/hash.hpp"
#include "base/of_machine.hpp"
#include "remote/http/environment.hpp"

namespace stele::inline v0::remote {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t max_headers = std::size_t{64} << 10;
constexpr int max_redirects = 5;

/// Initializes libcurl when the first client is made, and not from a static object.
void initialize() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

/// Returns a server's answer as one short line of printable text.
std::string safe(std::string_view text) {
  constexpr std::size_t longest = 200;
  std::string out;
  for (const char c : trimmed(text).substr(0, longest)) out += c >= ' ' && c != '\x7f' ? c : ' ';
  return out;
}

bool is_temporary(long status) {
  return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 || status == 504;
}
bool is_redirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}
bool is_temporary(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_SEND_FAIL_REWIND:
      return true;
    default:
      return false;
  }
}

std::chrono::milliseconds random_wait(const Options& options, unsigned tries) {
  thread_local std::minstd_rand engine{std::random_device{}()};
  const double bound = std::min(
      2.0 * static_cast<double>(options.first_wait.count()) * static_cast<double>(1ULL << std::min(tries, 20U)),
      static_cast<double>(options.longest_wait.count()));
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::uniform_real_distribution<double>(0, bound)(engine)));
}

std::optional<std::chrono::milliseconds> asked_wait(const Answer& answer) {
  const std::string text = answer.header("retry-after");
  if (text.empty()) return std::nullopt;
  if (text.find_first_not_of("0123456789") == text.npos && text.size() < 9) {
    return std::chrono::seconds(std::strtol(text.c_str(), nullptr, 10));
  }
  const std::time_t at = curl_getdate(text.c_str(), nullptr);
  if (at < 0) return std::nullopt;
  return std::chrono::seconds(std::max<std::int64_t>(at - std::time(nullptr), 0));
}

std::string range_text(const ByteRange& range) {
  return std::to_string(range.offset) + "-" + std::to_string(range.offset + range.size - 1);
}

Error was_cancelled(const Url& url) { return Error(Errc::cancelled, "the request was cancelled").file(url.shown()); }

std::string asked_text(const Request& request) {
  return request.method + (request.range ? " of bytes " + range_text(*request.range) : std::string());
}

/// Returns the status that an answer without its result stands for ("Handling CompleteMultipartUpload errors", Amazon
/// S3 API Reference: an error in the body of a success is handled like one with its own status).
long status_of_body(std::string_view xml) {
  const std::string code = xml_text(xml, "Code");
  constexpr std::string_view temporary[] = {"InternalError", "SlowDown", "ServiceUnavailable", "RequestTimeout"};
  const bool again = std::find(std::begin(temporary), std::end(temporary), code) != std::end(temporary);
  return code.empty() || again ? 500 : 400;
}

}  // namespace

std::string Answer::header(const std::string& name) const {
  if (const auto at = headers.find(name); at != headers.end()) return at->second;
  const auto at = redirect.find(name);
  return at != redirect.end() ? at->second : std::string();
}

std::string xml_text(std::string_view xml, std::string_view name) {
  const std::string open = "<" + std::string(name) + ">", close = "</" + std::string(name) + ">";
  const std::size_t begin = xml.find(open);
  if (begin == xml.npos) return {};
  const std::size_t end = xml.find(close, begin);
  if (end == xml.npos) return {};
  std::string_view text = xml.substr(begin + open.size(), end - begin - open.size());
  static constexpr std::pair<std::string_view, char> entities[] = {
      {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
  std::string out;
  while (!text.empty()) {
    const auto entity = std::find_if(std::begin(entities), std::end(entities),
                                     [&](const auto& e) { return text.starts_with(e.first); });
    if (entity != std::end(entities)) {
      out += entity->second;
      text.remove_prefix(entity->first.size());
    } else if (const std::size_t end_of_code = text.substr(0, 12).find(';');
               // code of one byte: S3 writes control characters in this form
               text.starts_with("&#") && end_of_code != text.npos) {
      const bool hex = text[2] == 'x';
      const auto code = std::strtoul(std::string(text.substr(hex ? 3 : 2, 8)).c_str(), nullptr, hex ? 16 : 10);
      out += code < 128 ? static_cast<char>(code) : '?';
      text.remove_prefix(end_of_code + 1);
    } else {
      out += text.front();
      text.remove_prefix(1);
    }
  }
  return out;
}

Status Pages::next(std::string_view token, std::size_t entries, std::size_t bytes, const std::string& shown) {
  bytes_ += bytes;
  empty_ = entries == entries_ ? empty_ + 1 : 0;
  entries_ = entries;
  const auto error = [&](Errc code, const char* what) { return Error(code, what).file(shown); };
  if (entries > max_entries) return error(Errc::limit, "the folder has too many files").expected("at most 1000000");
  if (token.empty()) return {};
  if (bytes_ > max_bytes) return error(Errc::limit, "the server's list is too long").expected("at most 1 GiB");
  const bool again = !tokens_.insert(v0::detail::hash64(token.data(), token.size())).second;
  if (again || empty_ >= max_empty) {
    return error(Errc::io, "the server's list does not end")
        .found(again ? "a page for the second time" : "1000 pages without a file");
  }
  if (tokens_.size() >= max_pages) {
    return error(Errc::limit, "the server's list does not end").expected("at most 10000 pages");
  }
  return {};
}

Error Account::error(const Request& request, const Answer& answer) const { return error_of(request, answer); }

std::string found_in(const Request& request, const Answer& answer) {
  std::string found = std::to_string(answer.status);
  std::string code = xml_text(answer.text, "Code");
  if (code.empty()) code = answer.header("x-error-code");
  std::string message = xml_text(answer.text, "Message");
  if (message.empty()) message = answer.header("x-error-message");
  if (!code.empty()) found += " " + safe(code);
  if (!message.empty()) found += ": " + safe(message);
  for (const char* name : {"x-amz-request-id", "x-request-id"}) {
    if (const std::string id = answer.header(name); !id.empty()) {
      found += ", request id " + safe(id);
      break;
    }
  }
  return found + " (" + asked_text(request) + ")";
}

Error error_of(const Request& request, const Answer& answer) {
  const auto make = [&](Errc errc, std::string_view what) {
    return Error(errc, what).file(request.url.shown()).found(found_in(request, answer));
  };
  switch (answer.status) {
    case 404:
    case 410:
      return make(Errc::not_found, "the server has no such file");
    case 409:
    case 412:
      return make(Errc::exists, "the file exists, or another program changed it at the same time");
    case 401:
      return make(Errc::io, v0::detail::wants_login).hint("set the token or the keys of an account");
    case 403:
      return make(Errc::io, v0::detail::refuses_access).hint("check the account and its rights, or sign the URL again");
    case 416:
      return make(Errc::truncated, "the file ends before the range");
    case 429:
      return make(Errc::io, "the server has received too many requests").hint("try again later");
    default:
      return make(Errc::io, is_redirect(answer.status) ? "the server redirects, but the request cannot follow"
                                                       : "the server has failed");
  }
}

Client::Client(Options options) : options_(std::move(options)) {
  initialize();
  options_.tries = std::max(options_.tries, 1U);
  if (options_.ca_file.empty()) {
    for (const char* name : {"AWS_CA_BUNDLE", "CURL_CA_BUNDLE"}) {
      if (options_.ca_file.empty()) options_.ca_file = variable(name);
    }
  }
}

Client::~Client() {
  for (CURL* const handle : idle_) curl_easy_cleanup(handle);
}

CURL* Client::take() const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      CURL* const handle = idle_.back();
      idle_.pop_back();
      return handle;
    }
  }
  return curl_easy_init();
}

void Client::give_back(CURL* handle) const {
  curl_easy_reset(handle);  // keeps its connections
  const std::lock_guard lock(mutex_);
  idle_.push_back(handle);
}

bool Client::cancelled() const { return options_.cancelled && options_.cancelled(); }

Status Client::check_host(const Url& url) const {
  if (url.scheme == "http" && !options_.allow_http && !url.is_this_machine()) {
    return Error(Errc::unsupported, "plain http is only used on this machine")
        .file(url.shown())
        .hint("use https, or set remote::Options::allow_http");
  }
  if (!options_.allow_host || options_.allow_host(url.host)) return {};
  return Error(Errc::io, "the host is not allowed").file(url.shown()).found(url.host);
}

/// The state of one request, for libcurl's callbacks.
struct Client::Try {
  const Client& client;
  const Request& request;
  const Call& call;
  Answer answer{};
  std::size_t header_bytes = 0;
  std::size_t sent = 0;
  bool complete = false;  // the headers have ended
  bool begun = false;
  std::optional<Error> error{};

  bool fail(Error e) {
    if (!error) error = std::move(e);
    return false;
  }
  template <class F>
  bool guard(const F& f) noexcept {  // no exception may cross libcurl
    if (auto done = v0::detail::guarded(f); !done) return fail(std::move(done).error());
    return true;
  }

  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* self) {
    auto& t = *static_cast<Try*>(self);
    return t.guard([&] { return t.header({data, size * count}); }) ? size * count : 0;
  }
  Status header(std::string_view line) {
    header_bytes += line.size();
    if (header_bytes > max_headers) {
      return Error(Errc::limit, "the server's headers are too long")
          .file(request.url.shown())
          .expected("at most 64 KiB");
    }
    if (line.starts_with("HTTP/")) {
      answer = {};
      complete = false;
      const std::size_t space = line.find(' ');
      answer.status = space != line.npos ? std::strtol(std::string(line.substr(space)).c_str(), nullptr, 10) : 0;
      return {};
    }
    const std::size_t colon = line.find(':');
    if (line == "\r\n" || line == "\n") complete = true;
    if (colon == line.npos) return {};
    std::string name(line.substr(0, colon));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    answer.headers.insert_or_assign(std::move(name), std::string(trimmed(line.substr(colon + 1))));
    return {};
  }

  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* self) {
    auto& t = *static_cast<Try*>(self);
    const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size * count);
    return t.guard([&] { return t.body(bytes); }) ? size * count : 0;
  }
  Status begin() {
    if (begun || call.receiver == nullptr || !answer.ok()) return {};
    begun = true;
    const std::string encoding = answer.header("content-encoding");
    if (!encoding.empty() && encoding != "identity" && encoding != "aws-chunked") {
      return Error(Errc::unsupported, "the server compresses the answer, although it was not asked to")
          .file(request.url.shown())
          .found(safe(encoding));
    }
    return call.receiver->begin(answer);
  }
  Status body(std::span<const std::byte> bytes) {
    STELE_TRY(begin());
    if (begun) return call.receiver->take(bytes);
    const std::size_t limit = answer.ok() ? call.max_answer : max_text;
    if (answer.text.size() + bytes.size() > limit) {
      if (answer.ok()) {
        return Error(Errc::limit, "the server's answer is too long")
            .file(request.url.shown())
            .expected("at most " + std::to_string(limit) + " bytes");
      }
      bytes = bytes.first(limit - answer.text.size());  // bytes of an error message
    }
    answer.text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  }

  static std::size_t on_send(char* to, std::size_t size, std::size_t count, void* self) {
    auto& t = *static_cast<Try*>(self);
    const std::size_t n = std::min(size * count, t.request.body.size() - t.sent);
    if (n != 0) std::memcpy(to, t.request.body.data() + t.sent, n);
    t.sent += n;
    return n;
  }
  static int on_seek(void* self, curl_off_t offset, int origin) {
    auto& t = *static_cast<Try*>(self);
    if (origin != SEEK_SET || offset < 0 || static_cast<std::size_t>(offset) > t.request.body.size()) {
      return CURL_SEEKFUNC_FAIL;
    }
    t.sent = static_cast<std::size_t>(offset);
    return CURL_SEEKFUNC_OK;
  }
  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    auto& t = *static_cast<Try*>(self);
    const bool on = t.guard([&]() -> Status {
      if (!t.client.cancelled()) return {};
      return was_cancelled(t.request.url);
    });
    return on ? 0 : 1;
  }
  static int on_connected(void* self, char* address, char* /*local*/, int /*port*/, int /*local_port*/) {
    auto& t = *static_cast<Try*>(self);
    const auto& allow = t.client.options_.allow_address;
    const bool fine = !allow || t.guard([&]() -> Status {
      if (allow(address)) return {};
      return Error(Errc::io, "the address is not allowed").file(t.request.url.shown()).found(address);
    });
    return fine ? CURL_PREREQFUNC_OK : CURL_PREREQFUNC_ABORT;
  }
};

Result<Answer> Client::once(const Request& request, const Call& call, Clock::time_point end, bool& again) const {
  using std::chrono::milliseconds;
  CURL* const curl = take();
  if (curl == nullptr) return Error(Errc::out_of_memory, "libcurl");
  Try state{*this, request, call};
  curl_slist* list = nullptr;
  const auto add = [&](const std::string& line) { list = curl_slist_append(list, line.c_str()); };
  for (const auto& [name, value] : request.headers) {
    std::string line = name;
    value.empty() ? static_cast<void>(line += ';') : static_cast<void>(line.append(": ").append(value));
    add(line);
  }
  add("Expect:");
  add("Accept:");
  const bool sends = request.method == "PUT" || !request.body.empty();
  if (!sends) add("Content-Type:");
  const auto set = [&](CURLoption option, auto value) { curl_easy_setopt(curl, option, value); };
  const std::string url = request.url.text();
  char message[CURL_ERROR_SIZE] = "";
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(message));
  set(CURLOPT_HTTPHEADER, list);
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  // One connection is one flow of TCP; several are faster than several streams of one.
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_BUFFERSIZE, 512L << 10);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_USERAGENT, "stele/" STELE_VERSION_STRING);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(milliseconds(options_.connect_timeout).count()));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, std::max<long>(options_.stall_timeout.count(), 1));
  const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now()).count();
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(std::max<std::int64_t>(left, 1)));
  if (request.url.is_this_machine()) set(CURLOPT_NOPROXY, "*");  // else the variable no_proxy counts
  if (!options_.ca_file.empty()) set(CURLOPT_CAINFO, options_.ca_file.c_str());
  set(CURLOPT_HEADERFUNCTION, &Try::on_header);
  set(CURLOPT_HEADERDATA, &state);
  set(CURLOPT_WRITEFUNCTION, &Try::on_body);
  set(CURLOPT_WRITEDATA, &state);
  set(CURLOPT_PREREQFUNCTION, &Try::on_connected);
  set(CURLOPT_PREREQDATA, &state);
  if (options_.cancelled) {
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, &Try::on_progress);
    set(CURLOPT_XFERINFODATA, &state);
  }
  if (request.method == "HEAD") {
    set(CURLOPT_NOBODY, 1L);
  } else if (sends) {
    set(CURLOPT_UPLOAD, 1L);
    set(CURLOPT_READFUNCTION, &Try::on_send);
    set(CURLOPT_READDATA, &state);
    set(CURLOPT_SEEKFUNCTION, &Try::on_seek);
    set(CURLOPT_SEEKDATA, &state);
    set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  } else if (request.method != "GET") {
    if (request.method == "POST") set(CURLOPT_POSTFIELDS, "");
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }
  std::string range;
  if (request.range) {
    range = range_text(*request.range);
    set(CURLOPT_RANGE, range.c_str());
  }
  const CURLcode code = curl_easy_perform(curl);
  curl_off_t first = 0, sent = 0;
  curl_easy_getinfo(curl, CURLINFO_STARTTRANSFER_TIME_T, &first);
  curl_easy_getinfo(curl, CURLINFO_PRETRANSFER_TIME_T, &sent);
  state.answer.latency = static_cast<double>(first - sent) * 1e-6;
  curl_slist_free_all(list);
  give_back(curl);
  if (state.error) return *std::move(state.error);
  if (code != CURLE_OK) {
    const bool late = code == CURLE_OPERATION_TIMEDOUT;
    const char* const what = message[0] != '\0' ? message : curl_easy_strerror(code);
    again = is_temporary(code);
    return Error(late ? Errc::timed_out : Errc::io,
                 "the request failed: " + safe(what) + " (" + asked_text(request) + ")")
        .file(request.url.shown());
  }
  if (!state.complete) {  // for libcurl 7.88 such an answer is a success
    again = true;
    return Error(Errc::io,
                 "the request failed: the connection was closed within the headers (" + asked_text(request) + ")")
        .file(request.url.shown());
  }
  if (state.answer.ok() && call.receiver != nullptr) {
    STELE_TRY(state.begin());  // an empty body
    if (auto done = call.receiver->end(); !done) {
      again = done.error().code() == Errc::truncated;
      return std::move(done).error();
    }
  }
  return std::move(state.answer);
}

void Client::pause(std::chrono::milliseconds wait) const {
  constexpr std::chrono::milliseconds step{100};  // an interruption is noticed after so long
  const auto end = Clock::now() + wait;
  for (auto now = Clock::now(); now < end && !cancelled(); now = Clock::now()) {
    std::this_thread::sleep_for(options_.cancelled ? std::min<Clock::duration>(end - now, step) : end - now);
  }
}

Result<Answer> Client::run(Call call) const {
  const auto end = Clock::now() + options_.deadline;
  const Request original = call.request;
  const unsigned most = call.tries != 0 ? call.tries : options_.tries;
  Request at = original;
  bool home = true;  // no redirect has led to another host
  bool learnt = false;
  int redirects = 0;
  std::map<std::string, std::string> first;  // headers of the first redirect
  for (unsigned tries = 1;; ++tries) {
    if (cancelled()) return was_cancelled(at.url);
    STELE_TRY(check_host(at.url));
    Request request = at;
    if (call.receiver != nullptr) request.range = call.receiver->rest(original.range);
    // All bytes had arrived before the last try failed.
    if (request.range && request.range->size == 0) return Answer{.status = 206};
    if (home && call.account != nullptr) STELE_TRY(call.account->sign(request));
    bool again = false;
    auto answer = once(request, call, end, again);
    std::chrono::milliseconds wait{0};
    if (answer) {
      if (answer->ok() && answer->text.find(call.result) == std::string::npos) {
        answer->status = status_of_body(answer->text);
      }
      if (answer->ok() ||
          std::find(call.accepted.begin(), call.accepted.end(), answer->status) != call.accepted.end()) {
        if (call.reached != nullptr) *call.reached = at.url;
        if (redirects != 0) answer->redirect = std::move(first);
        return answer;
      }
      const std::string location = answer->header("location");
      if (is_redirect(answer->status) && !location.empty() && call.follow && request.body.empty()) {
        if (++redirects > max_redirects) {
          return Error(Errc::io, "the server redirects too often").file(original.url.shown()).found(at.url.shown());
        }
        STELE_TRY_ASSIGN(Url next, at.url.resolve(location));
        if (redirects == 1) first = answer->headers;
        if (at.url.scheme == "https" && next.scheme != "https") {
          return Error(Errc::io, "the server redirects from https to http").file(at.url.shown()).found(next.shown());
        }
        if (!next.same_host(at.url)) {  // only the first host gets the credentials in the headers
          home = false;
          at.headers.clear();
        }
        at.url = std::move(next);
        --tries;
        continue;
      }
      if (!learnt && home && call.account != nullptr && call.account->learn(*answer)) {
        learnt = true;
        continue;
      }
      Error error =
          home && call.account != nullptr ? call.account->error(request, *answer) : error_of(request, *answer);
      if (!is_temporary(answer->status) || tries >= most) return error;
      wait = asked_wait(*answer).value_or(random_wait(options_, tries - 1));
      wait = std::min(wait, options_.longest_wait);
      if (Clock::now() + wait >= end) return error;
    } else {
      if (!again || tries >= most) return answer;
      wait = random_wait(options_, tries - 1);
      if (Clock::now() + wait >= end) return answer;
    }
    pause(wait);
    // A signed URL that a redirect led to may have expired.
    at = original;
    home = true;
    redirects = 0;
  }
}

}  // namespace stele::inline v0::remote
