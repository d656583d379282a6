// Models on other machines: https, S3 and stores with its protocol, and the Hugging Face hub. With this header and the
// component stele::remote, URLs are paths: stele::load<Model>("hf://owner/name"), stele::save(model,
// "s3://bucket/key"). Files are read by ranges, several at a time, as far as they are needed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "stele/result.hpp"
#include "stele/sink.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::remote {

/// Keys of an S3 account.
struct Credentials {
  std::string access_key, secret_key;
  std::string session_token{};  // token of temporary credentials; else empty
};

struct Options {
  ReadAheadOptions read_ahead{};

  // Retries: connections that fail, short answers, and the statuses 408, 429, 500, 502, 503 and 504 are tried again,
  // after random waiting times that double, or after the time that the server asks for.
  unsigned tries = 6;                              // maximum tries of one request
  std::chrono::milliseconds first_wait{200};       // average first wait; later waits are longer
  std::chrono::milliseconds longest_wait{20'000};  // limits a wait that the server asks for, too
  std::chrono::seconds deadline{300};              // maximum time of one request with all its tries; errors: timed_out
  std::chrono::seconds connect_timeout{10};
  std::chrono::seconds stall_timeout{30};  // maximum time without a byte on a connection

  /// Largest file that is read whole from a server without ranges.
  std::uint64_t whole_file = std::uint64_t{16} << 20;

  /// Folder in which blocks of remote files are kept between runs, by URL and version; several processes may use it.
  /// Empty: the variable STELE_CACHE; if it is not set, no blocks are kept. It holds at most `cache_bytes`; files that
  /// were opened least recently go first.
  std::string cache_folder{};
  std::uint64_t cache_bytes = std::uint64_t{20} << 30;

  /// Returns true if requests are to end, with the error `cancelled`: the user has interrupted the program. Called
  /// before each request, and while one waits; from several threads.
  std::function<bool()> cancelled{};

  /// Receives notes for the user: the hub cannot be reached, and its local cache is read instead. Called from several
  /// threads.
  std::function<void(const std::string& note)> note{};

  // Security. Certificates are always verified.
  bool allow_http = false;  // permits plain http to hosts other than this machine
  std::string ca_file{};    // certificates to trust; empty: AWS_CA_BUNDLE, CURL_CA_BUNDLE, else the system's
  /// Returns false for hosts that must not be asked. Called for every request, including redirects.
  std::function<bool(std::string_view host)> allow_host{};
  /// Returns false for numeric addresses that must not be connected to, so that a service can refuse addresses of its
  /// own network.
  std::function<bool(std::string_view address)> allow_address{};

  // S3. Unset values come from the variables and files of AWS's own programs: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY
  // and AWS_SESSION_TOKEN, or the profile AWS_PROFILE in ~/.aws/credentials and ~/.aws/config; AWS_REGION or
  // AWS_DEFAULT_REGION; AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL. Without keys, requests are not signed.
  std::optional<Credentials> credentials{};
  std::string profile{};
  std::string region{};
  std::string endpoint{};  // "https://host:port" of another store than AWS; its buckets are in the path
  // size of an upload's parts, at least 5 MiB; grows for large files
  std::uint64_t part_bytes = std::uint64_t{8} << 20;
  unsigned uploads = 4;  // parts at a time; each is in memory

  // Hub. Unset values come from the hub's variables: HF_TOKEN, or the file HF_TOKEN_PATH, or HF_HOME/token;
  // HF_ENDPOINT; HF_HUB_CACHE, or HF_HOME/hub; HF_HUB_OFFLINE, or TRANSFORMERS_OFFLINE (1, on, yes, true).
  std::string token{};
  std::string hub_endpoint{};
  std::string hub_cache{};
  std::optional<bool> offline{};  // true: only files of the local cache
};

/// Opens a URL for reading by ranges: https://, http:// (of this machine, or with Options::allow_http),
/// s3://bucket/key, or hf://owner/name/path (docs/guide/remote.md has all forms). A URL of a folder (of a bucket: it
/// ends with '/', or has files below it; of the hub: without a path, or the path of a folder) is a source without
/// bytes, whose bundle() opens the files. Errors: not_found, io (with the server's answer), unsupported (no ranges, an
/// unknown scheme), timed_out, invalid_argument.
STELE_EXPORT Result<SourcePtr> open(const std::string& url, const Options& options = {});

/// Creates a file at s3://bucket/key. The bytes are sent while they are written; commit() makes the file visible, and
/// without it nothing remains. With FileSinkOptions::overwrite = false an existing file is an error (exists), even if
/// another program creates it during the upload. Errors: those of open(), unsupported (a scheme without uploads).
STELE_EXPORT Result<std::unique_ptr<Sink>> create(const std::string& url, const Options& options = {},
                                                  const FileSinkOptions& file = {});

/// Sets the options for opening URLs that are passed as paths. Call it before other threads open URLs.
STELE_EXPORT void set_defaults(Options options);

namespace detail {
/// Registers URLs for the library's functions that take paths.
STELE_EXPORT bool enable() noexcept;
inline const bool enabled = enable();
}  // namespace detail

}  // namespace stele::inline v0::remote
