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

#include "remote/http/client.hpp"
#include "remote/http/url.hpp"
#include "support/http_server.hpp"
#include "support/temp_dir.hpp"

#include "remote_support.hpp"

namespace remote_hub_test {

namespace {

using namespace stele;
using namespace remote_support;
using remote_support::quick;
using stele_test::HttpServer;
using stele_test::TempDir;
using Request = HttpServer::Request;
using Response = HttpServer::Response;

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

TEST_CASE("remote: a repository of the hub") {
  const std::string commit(40, 'a');
  const std::string config = R"({"model_type": "x"})", weights = noise(200'000);
  std::vector<std::string> seen;
  std::mutex mutex;
  const HttpServer storage([&](const Request& request) {
    const std::lock_guard lock(mutex);
    if (!request.header("authorization").empty()) seen.push_back("token");
    return HttpServer::ranges(request, weights, "\"w\"");
  });
  const HttpServer hub([&](const Request& request) -> Response {
    if (request.header("authorization") != "Bearer hf_secret")
      return {.status = 401, .headers = {{"X-Error-Message", "Invalid credentials"}}};
    if (request.path.starts_with("/old/name/")) {
      return {.status = 307, .headers = {{"Location", "/owner/name/" + request.path.substr(10)}}};
    }
    const std::string commit_path = "/owner/name/resolve/" + commit;
    if (request.path == "/owner/name/resolve/main/config.json" || request.path == commit_path + "/config.json") {
      Response response = HttpServer::ranges(request, config);
      response.headers.emplace_back("X-Repo-Commit", commit);
      return response;
    }
    if (request.path == "/owner/name/resolve/main/model.safetensors" ||
        request.path == commit_path + "/model.safetensors") {
      return {.status = 302,
              .headers = {{"Location", storage.url("/blob?sig=1", "localhost")},
                          {"X-Repo-Commit", commit},
                          {"X-Linked-Size", "200000"}}};
    }
    if (request.path == "/api/models/owner/name/tree/" + commit || request.path == "/api/models/owner/name/tree/main") {
      if (contains(request.query, "cursor")) return {.body = R"([{"type":"file","path":"sub/c.bin"}])"};
      return {
          .headers = {{"Link", "<" + request.path + "?recursive=true&cursor=x>; rel=\"next\""}},
          .body =
              R"([{"type":"directory","path":"sub"},{"type":"file","path":"model.safetensors"},{"type":"file","path":"config.json"},{"type":"file","path":"../evil"}])"};
    }
    return {.status = 404};
  });
  const TempDir dir;
  remote::Options options = quick();
  options.hub_endpoint = hub.url("");
  options.hub_cache = dir / "cache";
  options.token = "hf_secret";
  options.offline = false;

  auto source = remote::open("hf://owner/name/model.safetensors", options);
  REQUIRE_MESSAGE(source, source.error().to_string());
  CHECK(*read(**source, 100'000, 100'000) == weights.substr(100'000));
  CHECK(seen.empty());
  auto beside = (*source)->bundle()->open("config.json");
  REQUIRE_MESSAGE(beside, beside.error().to_string());
  CHECK(hub.log().back().path == "/owner/name/resolve/" + commit + "/config.json");  // of the same commit

  auto folder = remote::open("hf://owner/name", options);
  REQUIRE(folder);
  CHECK(*(*folder)->bundle()->names() == std::vector<std::string>{"config.json", "model.safetensors", "sub/c.bin"});
  CHECK(remote::open("hf://old/name/config.json", options));

  options.token = "wrong";
  const auto refused = remote::open("hf://owner/name/config.json", options);
  REQUIRE_FALSE(refused);
  CHECK(contains(refused.error().to_string(), "401: Invalid credentials"));
  CHECK_FALSE(contains(refused.error().to_string(), "wrong"));

  // The local cache, also without the hub.
  const std::string repo = dir / "cache/models--owner--name";
  std::filesystem::create_directories(repo + "/blobs");
  std::filesystem::create_directories(repo + "/refs");
  std::filesystem::create_directories(repo + "/snapshots/" + commit);
  stele_test::write_text(repo + "/blobs/1", config);
  std::filesystem::create_symlink("../../blobs/1", repo + "/snapshots/" + commit + "/config.json");
  stele_test::write_text(repo + "/refs/main", commit);
  options.offline = true;
  const std::size_t before = hub.count();
  auto local = remote::open("hf://owner/name/config.json", options);
  REQUIRE_MESSAGE(local, local.error().to_string());
  CHECK(*read(**local, 0, config.size()) == config);
  CHECK(remote::open("hf://owner/name/model.safetensors", options).error().code() == Errc::not_found);
  CHECK(hub.count() == before);

  for (const char* url :
       {"hf://", "hf:///name", "hf://name@", "hf://a//b", "hf://a/b@/c", "hf://a/../c", "hf://../b/c"}) {
    CAPTURE(url);
    const auto refused_url = remote::open(url, options);
    REQUIRE_FALSE(refused_url);
    CHECK(refused_url.error().code() == Errc::invalid_argument);
  }
}

TEST_CASE("remote: lists without an end are errors, and bounded") {
  std::function<std::string(int)> token;  // by the number of the page
  std::string entry;
  HttpServer server([&](const Request& request) -> Response {
    static std::atomic<int> pages{0};
    const int page = ++pages;
    if (request.path.starts_with("/api/")) {
      return {.headers = {{"Link", "<" + request.path + "?cursor=" + token(page) + ">; rel=\"next\""}},
              .body = entry.empty() ? "[]" : R"([{"type":"file","path":")" + entry + "\"}]"};
    }
    return {.body = "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>" + token(page) +
                    "</NextContinuationToken>" +
                    (entry.empty() ? "" : "<Contents><Key>d/" + entry + "</Key></Contents>") + "</ListBucketResult>"};
  });
  remote::Options options = with(server);
  options.hub_endpoint = server.url("");
  options.offline = false;
  const std::function<std::string(int)> kinds[] = {
      [](int) { return std::string("same"); }, [](int page) { return std::to_string(page % 3); },
      [](int page) { return std::to_string(page); },  // always another, without a file
  };
  for (const auto& kind : kinds) {
    for (const bool hub : {false, true}) {
      token = kind;
      entry = &kind == &kinds[2] ? "" : "x";
      server.clear();
      auto source = remote::open(hub ? "hf://o/m" : "s3://bucket/d/", options);
      const auto names = source ? (*source)->bundle()->names() : source.error();
      REQUIRE_FALSE(names);
      CHECK(contains(names.error().to_string(), "list does not end"));
      CHECK(server.count() < 1010);
    }
  }
  token = [](int) { return std::string(); };
  entry = "x";
  auto source = remote::open("s3://bucket/d/", options);
  REQUIRE(source);
  CHECK_FALSE((*source)->bundle()->names());  // more files, but no token

  remote::Pages pages, long_pages;
  Status status;
  std::size_t n = 0;
  while ((status = pages.next(std::to_string(n), n, 100, "list"))) ++n;
  CHECK(status.error().code() == Errc::limit);
  CHECK(n < remote::Pages::max_pages);
  for (n = 0; (status = long_pages.next(std::to_string(n), n, remote::max_listing, "list"));) ++n;
  CHECK(status.error().code() == Errc::limit);
  CHECK(n < 100);
  CHECK(remote::Pages().next("", remote::Pages::max_entries, 1, "list"));
  CHECK_FALSE(remote::Pages().next("", remote::Pages::max_entries + 1, 1, "list"));
}

TEST_CASE("remote: a store or hub that fails is not a folder of an unknown format") {
  Response answer;
  HttpServer server([&](const Request& request) -> Response {
    if (request.query.find("max-keys=1") != std::string::npos) {
      return {.body = "<ListBucketResult><Contents><Key>m/config.json</Key></Contents></ListBucketResult>"};
    }
    return answer;
  });
  remote::Options options = with(server);
  options.hub_endpoint = server.url("");
  options.offline = false;
  options.tries = 2;
  remote::set_defaults(options);
  struct Row {
    Response answer;
    Errc code;
    std::string text;
    std::size_t tries;
  };
  const Row rows[] = {
      {{.status = 403}, Errc::io, "403", 1},        {{.status = 401}, Errc::io, "401", 1},
      {{.status = 429}, Errc::io, "429", 2},        {{.status = 500}, Errc::io, "500", 2},
      {{.status = 503}, Errc::io, "503", 2},        {{.cut_headers = true}, Errc::io, "request failed", 2},
      {{.status = 404}, Errc::not_found, "404", 1},
  };
  for (const Row& row : rows) {
    for (const char* url : {"hf://o/m", "hf://o/m/sub", "s3://bucket/m/"}) {
      CAPTURE(url);
      CAPTURE(row.text);
      answer = row.answer;
      server.clear();
      const auto opened = open(std::string(url));
      REQUIRE_FALSE(opened);
      CHECK_MESSAGE(opened.error().code() == row.code, opened.error().to_string());
      CHECK_MESSAGE(contains(opened.error().to_string(), row.text), opened.error().to_string());
      CHECK(server.count() <= 2 * row.tries);
    }
  }
  // As if nothing listens.
  options.hub_endpoint = options.endpoint = "http://127.0.0.1:1";
  remote::set_defaults(options);
  for (const char* url : {"hf://o/m", "hf://o/m/model.safetensors", "s3://bucket/m/", "s3://bucket/m.bin"}) {
    CAPTURE(url);
    const auto opened = open(std::string(url));
    REQUIRE_FALSE(opened);
    CHECK(contains(opened.error().to_string(), "the request failed"));
  }
  remote::set_defaults({});
}

TEST_SUITE_END();

}  // namespace remote_hub_test
