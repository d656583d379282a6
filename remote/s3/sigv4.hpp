// Signatures of AWS, version 4. libcurl's own signer orders queries and encodes paths wrongly in the versions of stable
// systems (curl#9717, #13754, #16927).
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "base/hex.hpp"
#include "remote/http/client.hpp"
#include "stele/remote.hpp"

namespace stele::inline v0::remote {

/// Adds the headers host, x-amz-date, x-amz-content-sha256, x-amz-security-token and authorization. `payload`: the
/// SHA-256 of the body in hex, or UNSIGNED-PAYLOAD. The path of the URL must be encoded, and its query sorted by
/// name with encoded names and values.
/// Source: "Create a signed AWS API request", AWS General Reference; checked against botocore's signer.
Status sign_v4(Request& request, const Credentials& credentials, std::string_view region, std::string_view service,
               std::string_view payload, std::time_t now);

using v0::detail::hex;

}  // namespace stele::inline v0::remote
