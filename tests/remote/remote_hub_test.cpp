// Repositories of the hub: refusals, the local cache, and names without an owner.
#include <doctest/doctest.h>
#include <stele/bundle.hpp>
#include <stele/remote.hpp>
#include <stele/stele.hpp>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "support/http_server.hpp"
#include "support/temp_dir.hpp"

namespace remote_hub_test {

namespace {

using namespace stele;
using stele_test::HttpServer;
using stele_test::TempDir;
using Request = HttpServer::Request;
using Response = HttpServer::Response;

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

remote::Options quick(const std::string& hub, const std::string& cache) {
  remote::Options options;
  options.first_wait = std::chrono::milliseconds(1);
  options.longest_wait = std::chrono::milliseconds(5);
  options.tries = 4;
  options.hub_endpoint = hub;
  options.hub_cache = cache;
  options.offline = false;
  return options;
}

/// Makes the local cache of a repository, as huggingface_hub does.
void fill_cache(const std::string& cache, const std::string& folder, const std::string& text) {
  const std::string commit(40, 'a');
  const std::string repository = cache + "/" + folder;
  std::filesystem::create_directories(repository + "/refs");
  std::filesystem::create_directories(repository + "/snapshots/" + commit);
  stele_test::write_text(repository + "/refs/main", commit);
  stele_test::write_text(repository + "/snapshots/" + commit + "/model.json", text);
}

std::string text_of(const Source& source) {
  std::string text(static_cast<std::size_t>(source.size()), '\0');
  REQUIRE(source.read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace

TEST_SUITE_BEGIN("concurrency");

TEST_CASE("hub: refusals tell what they are and what to do") {
  // Statuses, X-Error-Code and X-Error-Message of the hub: huggingface_hub 2.4.0, hf_raise_for_status().
  struct Row {
    int status;
    std::string code, message;
    bool token;
    Errc errc;
    std::string says, hint;
  };
  const Row rows[] = {
      {403, "GatedRepo", "Access to model o/m is restricted", true, Errc::io, "gated", "/o/m with the token's account"},
      {401, "GatedRepo", "Access to model o/m is restricted", false, Errc::io, "gated", "set HF_TOKEN"},
      {401, "RepoNotFound", "Repository not found", false, Errc::io, "no such repository, or it is private",
       "set HF_TOKEN"},
      {401, "", "Invalid username or password.", false, Errc::io, "no such repository, or it is private",
       "check the name"},
      {404, "RepoNotFound", "Repository not found", true, Errc::not_found, "no such repository, or it is private",
       "a token that may read it"},
      {404, "RevisionNotFound", "Invalid rev id: main", false, Errc::not_found, "no such revision", "main"},
      {404, "EntryNotFound", "Entry not found", false, Errc::not_found, "no such file", "/o/m"},
      {401, "", "Invalid credentials in Authorization header", true, Errc::io, "does not accept the token", "HF_TOKEN"},
      {403, "", "Access to this resource is disabled.", true, Errc::io, "refuses access", "rights of the token"},
      {403, "", "Forbidden", false, Errc::io, "refuses access", "set HF_TOKEN"},
      {429, "", "We had to rate limit you", false, Errc::io, "too many requests", "try again later, or set HF_TOKEN"},
      {429, "", "We had to rate limit you", true, Errc::io, "too many requests", "try again later"},
      {500, "", "", false, Errc::io, "the server has failed", ""},
      {404, "", "", false, Errc::not_found, "no such repository or file", "check the name"},
  };
  Response answer;
  HttpServer server([&](const Request&) { return answer; });
  const TempDir dir;
  for (const Row& row : rows) {
    for (const char* url : {"hf://o/m", "hf://o/m/model.safetensors", "hf://o/m/sub"}) {
      CAPTURE(row.message);
      CAPTURE(url);
      answer = {.status = row.status};
      if (!row.code.empty()) answer.headers.emplace_back("X-Error-Code", row.code);
      if (!row.message.empty()) answer.headers.emplace_back("X-Error-Message", row.message);
      remote::Options options = quick(server.url(""), dir / "none");
      if (row.token) options.token = "hf_secret";
      remote::set_defaults(options);
      const auto opened = open(std::string(url));
      REQUIRE_FALSE(opened);
      CHECK_MESSAGE(opened.error().code() == row.errc, opened.error().to_string());
      CHECK_MESSAGE(contains(opened.error().message(), row.says), opened.error().to_string());
      CHECK_MESSAGE(contains(opened.error().hint(), row.hint), opened.error().to_string());
      CHECK(contains(opened.error().found(), std::to_string(row.status)));
      CHECK_FALSE(contains(opened.error().to_string(), "hf_secret"));
    }
  }
  remote::set_defaults({});
}

TEST_CASE("hub: the values of HF_HUB_OFFLINE that huggingface_hub takes as true") {
  const HttpServer server([](const Request&) { return Response{.status = 404}; });
  const TempDir dir;
  remote::Options options = quick(server.url(""), dir / "cache");
  options.offline.reset();
  const std::pair<const char*, bool> values[] = {
      {"1", true},    {"ON", true}, {"on", true},   {"YES", true}, {"Yes", true}, {"TRUE", true}, {"True", true},
      {"true", true}, {"0", false}, {"off", false}, {"y", false},  {"T", false},  {"", false},    {"2", false}};
  for (const char* variable : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}) {
    for (const auto& row : values) {
      const char* const value = row.first;
      const bool offline = row.second;
      CAPTURE(value);
      setenv(variable, value, 1);
      const std::size_t before = server.count();
      const auto opened = remote::open("hf://o/m", options);
      unsetenv(variable);
      REQUIRE_FALSE(opened);
      CHECK((server.count() == before) == offline);
      CHECK(contains(opened.error().to_string(), "HF_HUB_OFFLINE") == offline);
    }
  }
}

TEST_CASE("hub: the local cache is read if the hub cannot be, with a note") {
  Response answer;
  HttpServer server([&](const Request&) { return answer; });
  const TempDir dir;
  fill_cache(dir / "cache", "models--o--m", "cached");
  std::vector<std::string> notes;
  std::mutex mutex;
  const auto options_of = [&](const std::string& hub) {
    remote::Options options = quick(hub, dir / "cache");
    options.note = [&](const std::string& note) {
      const std::lock_guard lock(mutex);
      notes.push_back(note);
    };
    return options;
  };
  const auto reads = [&](const remote::Options& options) {
    for (const bool folder : {false, true}) {
      CAPTURE(folder);
      notes.clear();
      auto source = remote::open(folder ? "hf://o/m" : "hf://o/m/model.json", options);
      REQUIRE_MESSAGE(source, source.error().to_string());
      if (folder) {
        CHECK(*(*source)->bundle()->names() == std::vector<std::string>{"model.json"});
        source = (*source)->bundle()->open("model.json");
        REQUIRE(source);
      }
      CHECK(text_of(**source) == "cached");
      REQUIRE(notes.size() == 1);
      CHECK(contains(notes[0], "local cache"));
    }
  };
  SUBCASE("nothing answers") { reads(options_of("http://127.0.0.1:1")); }
  SUBCASE("errors of the hub") {
    for (const int status : {401, 403, 429, 500, 503}) {
      CAPTURE(status);
      answer = {.status = status};
      server.clear();
      reads(options_of(server.url("")));
      CHECK(server.count() <= 4);
    }
  }
  SUBCASE("a file that the cache lacks") {
    const auto missing = remote::open("hf://o/m/other.json", options_of("http://127.0.0.1:1"));
    REQUIRE_FALSE(missing);
    CHECK(contains(missing.error().to_string(), "the request failed"));
    CHECK(notes.empty());
  }
  SUBCASE("what no longer exists is not read") {
    answer = {.status = 404, .headers = {{"X-Error-Code", "EntryNotFound"}}};
    CHECK_FALSE(remote::open("hf://o/m/model.json", options_of(server.url(""))));
    CHECK(notes.empty());
  }
}

TEST_CASE("hub: models without an owner") {
  HttpServer server([](const Request& request) -> Response {
    if (request.path.starts_with("/api/models/old/tree/")) {
      return {.body = R"([{"type":"file","path":"model.json"},{"type":"file","path":"sub/model.json"}])"};
    }
    if (!request.path.starts_with("/old/resolve/main/"))
      return {.status = 404, .headers = {{"X-Error-Code", "RepoNotFound"}}};
    if (request.path.ends_with("/model.json")) return HttpServer::ranges(request, request.path);
    return {.status = 404, .headers = {{"X-Error-Code", "EntryNotFound"}}};
  });
  const TempDir dir;
  const remote::Options options = quick(server.url(""), dir / "cache");
  const std::pair<const char*, const char*> files[] = {{"hf://old/model.json", "model.json"},
                                                       {"hf://old@main/model.json", "model.json"},
                                                       {"hf://old/sub/model.json", "sub/model.json"}};
  for (const auto& file : files) {
    const char* const url = file.first;
    CAPTURE(url);
    auto source = remote::open(url, options);
    REQUIRE_MESSAGE(source, source.error().to_string());
    CHECK(text_of(**source) == "/old/resolve/main/" + std::string(file.second));
  }
  for (const char* url : {"hf://old", "hf://old/", "hf://old/sub", "hf://old/sub/"}) {
    CAPTURE(url);
    auto source = remote::open(url, options);
    REQUIRE_MESSAGE(source, source.error().to_string());
    CHECK((*source)->is_folder());
    CHECK((*source)->bundle()->open("model.json"));
  }
  for (const char* url : {"hf://none", "hf://none/model.json", "hf://o/m"}) {
    CAPTURE(url);
    const auto missing = remote::open(url, options);
    REQUIRE_FALSE(missing);
    CHECK(contains(missing.error().to_string(), "no such repository"));
  }
  fill_cache(dir / "cache", "models--old", "cached");
  remote::Options offline = options;
  offline.offline = true;
  for (const char* url : {"hf://old/model.json", "hf://old@main/model.json"}) {
    auto source = remote::open(url, offline);
    REQUIRE_MESSAGE(source, source.error().to_string());
    CHECK(text_of(**source) == "cached");
  }
}

TEST_SUITE_END();

}  // namespace remote_hub_test
