// Reads bytes as what servers and users say about files on other machines: URLs, names of the hub, Content-Range, parts
// of S3's answers.
#include <algorithm>
#include <cstdint>
#include <string>

#include "fuzz/require.hpp"
#include "remote/http/client.hpp"
#include "remote/http/file.hpp"
#include "remote/http/url.hpp"
#include "remote/hub/hub.hpp"

using namespace stele;
using stele_test::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const bool is_path : {false, true}) {
    const std::string encoded = remote::percent_encoded(text, is_path);
    require(remote::percent_decoded(encoded) == text);
    require(encoded.find_first_of(std::string("\0\r\n ?#", 6)) == encoded.npos);
  }
  static_cast<void>(remote::percent_decoded(text));
  if (const auto url = remote::Url::parse(text)) {
    require((url->scheme == "http" || url->scheme == "https") && !url->host.empty() && url->path.starts_with('/'));
    const auto again = remote::Url::parse(url->text());
    require(again && again->text() == url->text() && again->same_host(*url));
    require(url->shown().find('?') == std::string::npos);
  }
  static const auto base = remote::Url::parse("https://host.example/a/b?c").value();
  if (const auto url = base.resolve(text)) {
    require((url->scheme == "http" || url->scheme == "https") && !url->host.empty());
  }
  if (const auto range = remote::parse_content_range(text)) {
    require(range->begin <= range->end && range->end <= range->total);
  }
  for (const char* const name : {"Key", "Region", "Code"}) {
    require(remote::xml_text(text, name).size() <= text.size());
  }
  if (const auto name = remote::Repository::Name::parse(text)) {
    require(!name->repo.empty() && std::ranges::count(name->repo, '/') <= 1 &&
            name->repo.find("..") == name->repo.npos);
    require(name->path.find("..") == std::string::npos || name->path.find("/../") == std::string::npos);
  }
  return 0;
}
