// Options and reads that the tests of remote files share.
#pragma once

#include <stele/remote.hpp>
#include <stele/stele.hpp>

#include <chrono>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>

#include "support/http_server.hpp"

namespace remote_support {

using namespace stele;
using stele_test::HttpServer;

inline std::string noise(std::size_t size) {
  std::string text(size, '\0');
  std::minstd_rand engine(1);
  for (char& c : text) c = static_cast<char>(engine());
  return text;
}

/// Options for tests: short waits.
inline remote::Options quick() {
  remote::Options options;
  options.first_wait = std::chrono::milliseconds(1);
  options.longest_wait = std::chrono::milliseconds(20);
  options.deadline = std::chrono::seconds(10);
  options.tries = 4;
  return options;
}

inline Result<std::string> read(const Source& source, std::uint64_t offset, std::size_t size) {
  std::string text(size, '\0');
  STELE_TRY(source.read_at(offset, std::as_writable_bytes(std::span(text))));
  return text;
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

inline remote::Options with(const HttpServer& server) {
  remote::Options options = quick();
  options.endpoint = server.url("");
  options.credentials = remote::Credentials{"AKID", "secret"};
  return options;
}

}  // namespace remote_support
