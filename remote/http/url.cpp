#include "remote/http/url.hpp"

#include <curl/curl.h>

#include <algorithm>
#include <memory>

#include "base/hex.hpp"

namespace stele::inline v0::remote {
namespace {

using Handle = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;
Handle make() { return {curl_url(), curl_url_cleanup}; }

Result<std::string> part(CURLU* url, CURLUPart which, bool needed) {
  char* text = nullptr;
  const CURLUcode code = curl_url_get(url, which, &text, 0);
  if (code == CURLUE_OUT_OF_MEMORY) return Error(Errc::out_of_memory);
  if (code != CURLUE_OK) {
    if (needed) return Error(Errc::invalid_argument, curl_url_strerror(code));
    return std::string();
  }
  std::string copy(text);
  curl_free(text);
  return copy;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return text;
}

Result<Url> parts_of(CURLU* from) {
  Url url;
  STELE_TRY_ASSIGN(url.scheme, part(from, CURLUPART_SCHEME, true));
  STELE_TRY_ASSIGN(url.host, part(from, CURLUPART_HOST, true));
  STELE_TRY_ASSIGN(url.port, part(from, CURLUPART_PORT, false));
  STELE_TRY_ASSIGN(url.path, part(from, CURLUPART_PATH, true));
  STELE_TRY_ASSIGN(url.query, part(from, CURLUPART_QUERY, false));
  STELE_TRY_ASSIGN(const std::string user, part(from, CURLUPART_USER, false));
  url.scheme = lower(std::move(url.scheme));
  url.host = lower(std::move(url.host));
  if (url.scheme != "http" && url.scheme != "https") {
    return Error(Errc::invalid_argument, "the URL is not one of http or https").found(url.scheme);
  }
  if (!user.empty()) return Error(Errc::invalid_argument, "the URL has a user").file(url.shown());
  return url;
}

std::string without_secrets(std::string_view text) {
  const std::size_t end = text.find_first_of("?#");
  text = text.substr(0, end);
  const std::size_t scheme = text.find("://");
  const std::size_t at = scheme != text.npos ? text.find('@', scheme) : text.npos;
  return at != text.npos && at < text.find('/', scheme + 3)
             ? std::string(text.substr(0, scheme + 3)).append(text.substr(at + 1))
             : std::string(text);
}

}  // namespace

Result<Url> Url::parse(const std::string& text) {
  const Handle url = make();
  if (url == nullptr) return Error(Errc::out_of_memory);
  const CURLUcode code = curl_url_set(url.get(), CURLUPART_URL, text.c_str(), CURLU_URLENCODE);
  if (code != CURLUE_OK) {
    return Error(Errc::invalid_argument, "the URL is not valid: " + std::string(curl_url_strerror(code)))
        .file(without_secrets(text));
  }
  return parts_of(url.get());
}

std::string Url::text() const { return shown() + (query.empty() ? "" : "?" + query); }
std::string Url::shown() const { return scheme + "://" + authority() + path; }

bool Url::same_host(const Url& other) const {
  const auto port_of = [](const Url& url) {
    return !url.port.empty() ? std::string_view(url.port) : url.scheme == "https" ? "443" : "80";
  };
  return scheme == other.scheme && host == other.host && port_of(*this) == port_of(other);
}

bool Url::is_this_machine() const {
  if (host == "localhost" || host == "[::1]") return true;
  // 127.0.0.0/8 as an address, not as the beginning of a name.
  return host.starts_with("127.") && std::count(host.begin(), host.end(), '.') == 3 && host.back() != '.' &&
         host.find_first_not_of("0123456789.") == host.npos;
}

Result<Url> Url::resolve(const std::string& location) const {
  const Handle url = make();
  if (url == nullptr) return Error(Errc::out_of_memory);
  CURLUcode code = curl_url_set(url.get(), CURLUPART_URL, text().c_str(), 0);
  if (code == CURLUE_OK) code = curl_url_set(url.get(), CURLUPART_URL, location.c_str(), CURLU_URLENCODE);
  if (code != CURLUE_OK) {
    return Error(Errc::invalid_argument, "the server redirects to an invalid URL")
        .file(shown())
        .found(without_secrets(location));
  }
  return parts_of(url.get());
}

std::string percent_encoded(std::string_view text, bool is_path) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '.' || c == '_' || c == '~' || (is_path && c == '/');
    out += plain ? std::string(1, c) : v0::detail::percent_encoded(c);
  }
  return out;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = text[i] == '%' ? v0::detail::from_hex(text.substr(i + 1, 2), 2) : std::nullopt;
    out += byte ? static_cast<char>(*byte) : text[i];
    if (byte) i += 2;
  }
  return out;
}

}  // namespace stele::inline v0::remote
