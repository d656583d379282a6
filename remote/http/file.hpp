// A file that is read by ranges over http or https.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "remote/http/client.hpp"
#include "stele/bundle.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::remote {

/// The range of an answer: Content-Range, "bytes 0-99/1234"; `begin` and `end` are 0 in "bytes */1234".
struct ContentRange {
  std::uint64_t begin = 0, end = 0, total = 0;
};
std::optional<ContentRange> parse_content_range(std::string_view text);

/// Returns the ETag without the mark of a weak one: servers that compress, and their caches, add it for the same file.
std::string tag_of(const Answer& answer);

struct Place {
  std::shared_ptr<const Client> client;
  std::shared_ptr<const Account> account{};  // null: requests are not signed
  Url url{};
  std::string name{};                                       // for messages
  std::function<std::shared_ptr<const Bundle>()> bundle{};  // bundle of the file's folder; may be empty
  unsigned tries = 0;                                       // of opening; 0: Options::tries
};

/// Opens a file with one request, which also reads its first bytes. `answer`: receives the headers of the first answer.
/// Errors: those of Client::run, unsupported (a server without ranges, if the file is not small).
Result<SourcePtr> open_file(Place place, Answer* answer = nullptr);

/// Returns a bundle for the files below a URL, which ends with '/'. Their names cannot be listed.
std::shared_ptr<const Bundle> http_bundle(std::shared_ptr<const Client> client, Url base);

}  // namespace stele::inline v0::remote
