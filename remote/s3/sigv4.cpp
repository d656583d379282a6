#include "remote/s3/sigv4.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "remote/http/sha256.hpp"

namespace stele::inline v0::remote {
namespace {

using Hash = std::array<unsigned char, 32>;

Hash hmac(std::span<const unsigned char> key, std::string_view text) {
  Hash out{};
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), out.data(), &size);
  return out;
}

std::span<const unsigned char> bytes_of(std::string_view text) {
  return {reinterpret_cast<const unsigned char*>(text.data()), text.size()};
}

std::string hash_hex(std::string_view text) { return sha256_hex(std::as_bytes(std::span(text))); }

}  // namespace

Status sign_v4(Request& request, const Credentials& credentials, std::string_view region, std::string_view service,
               std::string_view payload, std::time_t now) {
  std::tm utc{};
#ifdef _WIN32
  gmtime_s(&utc, &now);
#else
  gmtime_r(&now, &utc);
#endif
  char text[32];
  const std::string time(text, std::strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &utc));
  const std::string date = time.substr(0, 8);

  auto& headers = request.headers;
  std::erase_if(headers, [](const auto& header) { return header.first == "authorization"; });
  headers.emplace_back("host", request.url.authority());
  headers.emplace_back("x-amz-date", time);
  headers.emplace_back("x-amz-content-sha256", std::string(payload));
  if (!credentials.session_token.empty()) headers.emplace_back("x-amz-security-token", credentials.session_token);
  auto sorted = headers;
  std::sort(sorted.begin(), sorted.end());
  std::string canonical = request.method + "\n" + request.url.path + "\n" + request.url.query + "\n";
  std::string names;
  for (const auto& [name, value] : sorted) {
    canonical.append(name).append(":").append(value).append("\n");
    names += (names.empty() ? "" : ";") + name;
  }
  canonical += "\n" + names + "\n" + std::string(payload);

  const std::string scope = date + "/" + std::string(region) + "/" + std::string(service) + "/aws4_request";
  const std::string to_sign = "AWS4-HMAC-SHA256\n" + time + "\n" + scope + "\n" + hash_hex(canonical);
  Hash key = hmac(bytes_of("AWS4" + credentials.secret_key), date);
  key = hmac(key, region);
  key = hmac(key, service);
  key = hmac(key, "aws4_request");
  const Hash signature = hmac(key, to_sign);
  headers.emplace_back("authorization", "AWS4-HMAC-SHA256 Credential=" + credentials.access_key + "/" + scope +
                                            ", SignedHeaders=" + names +
                                            ", Signature=" + hex(std::as_bytes(std::span(signature))));
  return {};
}

}  // namespace stele::inline v0::remote
