// Parts of URLs. Messages show them without query and user.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/result.hpp"

namespace stele::inline v0::remote {

struct Url {
  std::string scheme;  // lower case
  std::string host;    // lower case, with the brackets of IPv6
  std::string port;    // empty: the scheme's port
  std::string path;    // encoded; begins with '/'
  std::string query;   // encoded, without '?'

  /// Errors: invalid_argument (not an http or https URL, or one with a user).
  static Result<Url> parse(const std::string& text);
  std::string text() const;
  /// Returns the URL without its query, which may have a signature.
  std::string shown() const;
  std::string authority() const { return port.empty() ? host : host + ":" + port; }
  bool same_host(const Url& other) const;
  bool is_this_machine() const;
  /// Resolves a Location header relative to this URL. Errors: invalid_argument.
  Result<Url> resolve(const std::string& location) const;
};

/// Encodes all but A-Z a-z 0-9 - . _ ~ and, for a path, '/' (RFC 3986, as SigV4 wants it).
std::string percent_encoded(std::string_view text, bool is_path);
std::string percent_decoded(std::string_view text);

}  // namespace stele::inline v0::remote
