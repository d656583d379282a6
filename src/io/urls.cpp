#include "io/urls.hpp"

#include <algorithm>
#include <atomic>

namespace stele::inline v0::detail {
namespace {

std::atomic<const Urls*> registered{nullptr};

}  // namespace

Urls::~Urls() = default;
Store::~Store() = default;

bool is_url(std::string_view path) noexcept {
  const std::size_t colon = path.find("://");
  if (colon == path.npos || colon < 2) return false;
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return letter(path[0]) && std::all_of(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(colon), [&](char c) {
           return letter(c) || (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.';
         });
}

void set_urls(const Urls* urls) noexcept { registered.store(urls, std::memory_order_release); }

std::string url_identity(const std::string& url) {
  const Urls* const urls = registered.load(std::memory_order_acquire);
  return urls != nullptr ? urls->identity(url) : url;
}

Result<const Urls*> urls_for(std::string_view url) {
  if (const Urls* const urls = registered.load(std::memory_order_acquire)) return urls;
  return Error(Errc::unsupported, "the program opens no URLs")
      .file(url.substr(0, url.find_first_of("?#")))
      .hint("link stele::remote, and include stele/remote.hpp");
}

}  // namespace stele::inline v0::detail
