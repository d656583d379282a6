// The component of URLs alone.
#include <iostream>

#include <stele/remote.hpp>

int main() {
  stele::remote::Options options;
  options.tries = 1;
  options.allow_host = [](std::string_view) { return false; };
  stele::remote::set_defaults(options);
  const auto refused = stele::remote::open("https://127.0.0.1:1/model.safetensors", options);
  const auto other = stele::remote::create("ftp://127.0.0.1/model.safetensors", options);
  const bool good = stele::remote::detail::enabled && !refused && refused.error().code() == stele::Errc::io && !other;
  std::cout << (good ? "URLs: ok\n" : "URLs: wrong\n");
  return good ? 0 : 1;
}
