// A store of objects for kill_test.py. Prints its endpoint; at the end of the input, prints the keys of all objects.
#include <cstdio>

#include "support/http_store.hpp"

int main() {
  stele_test::HttpStore store;
  const stele_test::HttpServer server(
      [&](const stele_test::HttpServer::Request& request) { return store.answer(request); });
  std::printf("%s\n", server.url("").c_str());
  std::fflush(stdout);
  while (std::getchar() != EOF) continue;
  for (const auto& object : store.objects) std::printf("%s\n", object.first.c_str());
  return 0;
}
