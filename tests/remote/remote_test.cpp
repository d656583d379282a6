#include <doctest/doctest.h>
#include <stele/bundle.hpp>
#include <stele/remote.hpp>
#include <stele/stele.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <random>
#include <thread>

#include "io/urls.hpp"
#include "remote/http/client.hpp"
#include "remote/http/file.hpp"
#include "remote/http/sha256.hpp"
#include "remote/http/url.hpp"
#include "remote/s3/sigv4.hpp"
#include "support/http_server.hpp"
#include "support/http_store.hpp"
#include "support/temp_dir.hpp"

namespace remote_test {

namespace {

using namespace stele;
using stele_test::HttpServer;
using stele_test::HttpStore;
using stele_test::TempDir;
using Request = HttpServer::Request;
using Response = HttpServer::Response;

std::string noise(std::size_t size) {
  std::string text(size, '\0');
  std::minstd_rand engine(1);
  for (char& c : text) c = static_cast<char>(engine());
  return text;
}

/// Options for tests: short waits.
remote::Options quick() {
  remote::Options options;
  options.first_wait = std::chrono::milliseconds(1);
  options.longest_wait = std::chrono::milliseconds(20);
  options.deadline = std::chrono::seconds(10);
  options.tries = 4;
  return options;
}

Result<std::string> read(const Source& source, std::uint64_t offset, std::size_t size) {
  std::string text(size, '\0');
  STELE_TRY(source.read_at(offset, std::as_writable_bytes(std::span(text))));
  return text;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

remote::Options with(const HttpServer& server) {
  remote::Options options = quick();
  options.endpoint = server.url("");
  options.credentials = remote::Credentials{"AKID", "secret"};
  return options;
}

}  // namespace

TEST_SUITE_BEGIN("concurrency");

TEST_CASE("remote: a model is loaded by ranges, in few requests") {
  struct Model {
    Tensor<float, 2> weight;
    Tensor<float, 1> bias;
  };
  Model model;
  model.weight = Tensor<float, 2>::filled({300, 1000}, 0.5F);
  model.bias = Tensor<float, 1>::filled({10}, 2);
  const TempDir dir;
  REQUIRE(save(model, dir / "m.safetensors"));
  const std::string content = stele_test::read_text(dir / "m.safetensors");
  const HttpServer server([&](const Request& request) {
    return request.path == "/m.safetensors" ? HttpServer::ranges(request, content) : Response{.status = 404};
  });
  auto loaded = load<Model>(server.url("/m.safetensors?signature=secret"));
  REQUIRE_MESSAGE(loaded, loaded.error().to_string());
  CHECK(loaded->weight.data()[299'999] == 0.5F);
  CHECK(loaded->bias.data()[9] == 2);
  CHECK(server.count() <= 4);
  CHECK(server.log()[0].query == "signature=secret");

  const auto missing = load<Model>(server.url("/other.safetensors?signature=secret"));
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code() == Errc::not_found);
  CHECK(contains(missing.error().to_string(), "/other.safetensors"));
  CHECK_FALSE(contains(missing.error().to_string(), "secret"));
}

TEST_CASE("remote: an open costs two requests, and a tensor one more") {
  std::string header =
      R"({"a":{"dtype":"F32","shape":[1000000],"data_offsets":[0,4000000]},"b":{"dtype":"F32","shape":[250000],"data_offsets":[4000000,5000000]}})";
  std::string content(8, '\0');
  header += std::string(100'000, ' ');
  for (int i = 0; i < 8; ++i) content[static_cast<std::size_t>(i)] = static_cast<char>(header.size() >> (8 * i));
  content += header + std::string(5'000'000, '\x01');
  const HttpServer server([&](const Request& request) { return HttpServer::ranges(request, content); });
  auto source = remote::open(server.url("/m.safetensors"), quick());
  REQUIRE(source);
  auto snapshot = SafetensorsRecorder<>().open(*source);
  REQUIRE(snapshot);
  CHECK(server.count() == 2);
  ReadContext context;
  std::vector<std::byte> bytes(1'000'000);
  REQUIRE(snapshot->find("b")->read(0, bytes, context));
  CHECK(bytes[999'999] == std::byte{1});
  CHECK(server.count() == 3);
}

TEST_CASE("remote: answers that are wrong are errors that say so") {
  const std::string content = noise(300'000);
  std::function<void(Response&)> change;
  const HttpServer server([&](const Request& request) {
    Response response = HttpServer::ranges(request, content);
    if (!request.header("range").starts_with("bytes=0-") && change) change(response);
    return response;
  });
  const auto fails = [&](std::function<void(Response&)> how) {
    change = nullptr;
    auto source = remote::open(server.url("/file"), quick());
    REQUIRE(source);
    change = std::move(how);
    const auto got = read(**source, 100'000, 70'000);
    REQUIRE_FALSE(got);
    return got.error().to_string();
  };
  const auto set = [](Response& response, const std::string& name, const std::string& value) {
    std::erase_if(response.headers, [&](const auto& h) { return h.first == name; });
    response.headers.emplace_back(name, value);
  };
  CHECK(contains(fails([](Response& r) { r.status = 200; }), "whole file instead of a range"));
  CHECK(contains(fails([&](Response& r) { set(r, "Content-Range", "bytes 0-69999/300000"); }), "another range"));
  CHECK(contains(fails([&](Response& r) { set(r, "Content-Range", "bytes nonsense"); }), "another range"));
  CHECK(contains(fails([&](Response& r) { set(r, "Content-Range", "bytes 100000-169999/300001"); }),
                 "was changed since"));
  CHECK(contains(fails([&](Response& r) { set(r, "ETag", "\"2\""); }), "was changed since"));
  CHECK(contains(fails([](Response& r) { r.body += "more"; }), "more than the range"));
  CHECK(contains(fails([](Response& r) { r.headers.emplace_back("Content-Encoding", "gzip"); }), "compresses"));
  CHECK(contains(fails([](Response& r) { r.endless_headers = true; }), "headers are too long"));
  CHECK(contains(fails([](Response& r) {
                   r = {.status = 403,
                        .headers = {{"x-amz-request-id", "R1"}},
                        .body = "<Error><Code>AccessDenied</Code><Message>no\n\x1b[1m</Message></Error>"};
                 }),
                 "403 AccessDenied: no  [1m, request id R1"));
  CHECK(contains(fails([](Response& r) { r = {.status = 500}; }), "found 500"));
  CHECK(contains(fails([](Response& r) { r = {.status = 302}; }), "redirect"));
}

TEST_CASE("remote: the ranges of answers") {
  struct Row {
    const char* text;
    std::uint64_t begin, end, total;  // zeros: not a range
  };
  const Row table[] = {
      {"bytes 0-9/10", 0, 10, 10}, {"bytes 3-3/10", 3, 4, 10},
      {"bytes */10", 0, 0, 10},    {"bytes 0-10/10", 0, 0, 0},
      {"bytes 9-8/10", 0, 0, 0},   {"bytes 0", 0, 0, 0},
      {"bytes 0-", 0, 0, 0},       {"bytes 0-9", 0, 0, 0},
      {"bytes 0-9/", 0, 0, 0},     {"bytes 0_9/10", 0, 0, 0},
      {"bytes 0-9-10", 0, 0, 0},   {"bytes 0-9/10x", 0, 0, 0},
      {"bytes 0-9/*", 0, 0, 0},    {"bytes */", 0, 0, 0},
      {"bytes */10 ", 0, 0, 0},    {"bytes=0-9/10", 0, 0, 0},
      {"items 0-9/10", 0, 0, 0},   {"", 0, 0, 0},
      {"bytes -1-9/10", 0, 0, 0},  {"bytes 0-18446744073709551615/18446744073709551616", 0, 0, 0},
  };
  for (const Row& row : table) {
    CAPTURE(row.text);
    const auto range = remote::parse_content_range(row.text);
    REQUIRE(range.has_value() == (row.total != 0));
    if (!range) continue;
    CHECK(range->begin == row.begin);
    CHECK(range->end == row.end);
    CHECK(range->total == row.total);
  }
}

TEST_CASE("remote: short answers are continued, and what is temporary is tried again") {
  const std::string content = noise(300'000);
  int bad = 0;
  int status = 0;
  std::mutex mutex;
  const HttpServer server([&](const Request& request) {
    const std::lock_guard lock(mutex);
    Response response = HttpServer::ranges(request, content);
    if (bad-- > 0) {
      if (status == 0) {
        response.cut = response.body.size() / 2;
      } else {
        response = {.status = status, .headers = {{"Retry-After", "0"}}};
      }
    }
    return response;
  });
  for (const int how : {0, 408, 429, 500, 502, 503, 504}) {
    CAPTURE(how);
    status = how;
    bad = 2;
    auto source = remote::open(server.url("/file"), quick());
    REQUIRE_MESSAGE(source, source.error().to_string());
    server.count();
    const_cast<HttpServer&>(server).clear();
    bad = 2;
    const auto got = read(**source, 100'000, 100'000);
    REQUIRE_MESSAGE(got, got.error().to_string());
    CHECK(*got == content.substr(100'000, 100'000));
    const auto log = server.log();
    REQUIRE(log.size() == 3);
    if (how == 0) CHECK(log[2].header("range") == "bytes=175000-199999");
  }
}

TEST_CASE("remote: a server that stops is given up") {
  const std::string content = noise(300'000);
  const HttpServer server([&](const Request& request) {
    Response response = HttpServer::ranges(request, content);
    if (!request.header("range").starts_with("bytes=0-")) response.stall = std::chrono::milliseconds(1500);
    return response;
  });
  for (const bool stall : {false, true}) {
    remote::Options options = quick();
    options.tries = 1;
    (stall ? options.stall_timeout : options.deadline) = std::chrono::seconds(1);
    auto source = remote::open(server.url("/file"), options);
    REQUIRE(source);
    const auto got = read(**source, 100'000, 100'000);
    REQUIRE_FALSE(got);
    CHECK(got.error().code() == Errc::timed_out);
  }
}

TEST_CASE("remote: a connection that is not accepted is given up") {
  // The system ignores connections to a full queue.
  const auto make = [] { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); };
  const int listener = make();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(bind(listener, at, size) == 0);
  REQUIRE(listen(listener, 0) == 0);
  REQUIRE(getsockname(listener, at, &size) == 0);
  const std::array<int, 4> first{make(), make(), make(), make()};
  for (const int connection : first) static_cast<void>(connect(connection, at, size));
  remote::Options options = quick();
  options.tries = 1;
  options.connect_timeout = std::chrono::seconds(1);
  const auto begin = std::chrono::steady_clock::now();
  const auto got = remote::open("http://127.0.0.1:" + std::to_string(ntohs(address.sin_port)) + "/file", options);
  REQUIRE_FALSE(got);
  CHECK(got.error().code() == Errc::timed_out);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(9));  // the deadline is 10
  for (const int connection : first) close(connection);
  close(listener);
}

TEST_CASE("remote: reads ahead have the given size") {
  const std::string content = noise(1'000'000);
  const HttpServer server([&](const Request& request) { return HttpServer::ranges(request, content); });
  remote::Options options = quick();
  options.read_ahead.request = 100'000;
  auto source = remote::open(server.url("/file"), options);
  REQUIRE(source);
  const std::array<ByteRange, 1> all{ByteRange{0, content.size()}};
  (*source)->will_read(all);
  for (std::size_t at = 0; at < content.size(); at += 50'000) {
    CHECK(*read(**source, at, 50'000) == content.substr(at, 50'000));
  }
  CHECK(server.count() >= 8);
}

TEST_CASE("remote: blocks are kept in a folder, checked, and bounded") {
  std::string content = noise(1'000'000), etag = "\"1\"";
  HttpServer server([&](const Request& request) { return HttpServer::ranges(request, content, etag); });
  const TempDir dir;
  remote::Options options = quick();
  options.cache_folder = dir / "cache";
  const auto load = [&] {
    auto source = remote::open(server.url("/file?signature"), options);
    REQUIRE(source);
    REQUIRE(*read(**source, 100'000, 700'000) == content.substr(100'000, 700'000));
    REQUIRE(*read(**source, 999'000, 1000) == content.substr(999'000));
    REQUIRE(*read(**source, 500'000, 10) == content.substr(500'000, 10));
  };
  load();
  server.clear();
  load();
  CHECK(server.count() == 1);  // of the version
  SUBCASE("another version") {
    content = noise(1'000'001).substr(1);
    etag = "\"2\"";
    load();
    CHECK(server.count() > 2);
  }
  SUBCASE("damage") {
    for (const auto& entry : std::filesystem::directory_iterator(dir / "cache")) {
      if (entry.path().extension() != ".blocks") continue;
      std::string bytes = stele_test::read_text(entry.path().string());
      bytes[300'000] = static_cast<char>(bytes[300'000] ^ 1);
      bytes.resize(400'000);
      stele_test::write_text(entry.path().string(), bytes);
    }
    load();
    CHECK(server.count() > 2);
    server.clear();
    load();
    CHECK(server.count() == 1);
  }
  SUBCASE("bounds") {
    options.cache_bytes = 300'000;
    const auto held = [&] {
      std::uint64_t blocks = 0;
      for (const auto& entry : std::filesystem::directory_iterator(dir / "cache")) {
        if (entry.path().extension() != ".sums") continue;
        const std::string sums = stele_test::read_text(entry.path().string());
        for (std::size_t i = 0; i + 8 <= sums.size(); i += 8) blocks += sums.substr(i, 8) != std::string(8, '\0');
      }
      return blocks * 65536;
    };
    for (int version = 2; version < 6; ++version) {
      etag = "\"" + std::to_string(version) + "\"";
      load();
      CHECK(held() <= 300'000);
    }
  }
}

TEST_CASE("remote: redirects") {
  const std::string content = noise(200'000);
  std::vector<std::string> tokens;
  std::mutex mutex;
  const HttpServer other([&](const Request& request) {
    const std::lock_guard lock(mutex);
    for (const auto& [name, value] : request.headers) tokens.push_back(name + ": " + value);
    return HttpServer::ranges(request, content);
  });
  int asked = 0;
  const HttpServer server([&](const Request& request) -> Response {
    if (request.path == "/loop") return {.status = 302, .headers = {{"Location", "/loop"}}};
    if (request.path == "/file")
      return {.status = 302, .headers = {{"Location", other.url("/target?signed=yes", "localhost")}}};
    if (request.path == "/invalid")
      return {.status = 302, .headers = {{"Location", "http://user:secret@host:99999999/a?signature=secret"}}};
    ++asked;
    return {.status = 404};
  });
  const auto loop = remote::open(server.url("/loop"), quick());
  REQUIRE_FALSE(loop);
  CHECK(contains(loop.error().to_string(), "redirects too often"));
  const auto invalid = remote::open(server.url("/invalid"), quick());
  REQUIRE_FALSE(invalid);
  CHECK(contains(invalid.error().to_string(), "redirects to an invalid URL"));
  CHECK(invalid.error().file() == server.url("/invalid"));
  CHECK(invalid.error().found() == "http://host:99999999/a");
  auto source = remote::open(server.url("/file"), quick());
  REQUIRE_MESSAGE(source, source.error().to_string());
  CHECK(*read(**source, 100'000, 100'000) == content.substr(100'000));
  CHECK(server.count() == 8);  // the second read went to the target at once
  for (const std::string& token : tokens) CHECK_FALSE(contains(token, "authorization"));
}

TEST_CASE("remote: servers without ranges") {
  const std::string small = noise(100'000), large = noise(2'000'000);
  const HttpServer server([&](const Request& request) -> Response {
    return {.body = request.path == "/small" ? small : request.path == "/empty" ? "" : large};
  });
  remote::Options options = quick();
  options.whole_file = 1'000'000;
  auto source = remote::open(server.url("/small"), options);
  REQUIRE(source);
  CHECK(*read(**source, 50'000, 1000) == small.substr(50'000, 1000));
  CHECK((*remote::open(server.url("/empty"), options))->size() == 0);
  const auto refused = remote::open(server.url("/large"), options);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code() == Errc::unsupported);
  CHECK(contains(refused.error().to_string(), "only whole files"));
}

TEST_CASE("remote: what may not be asked") {
  const HttpServer server([](const Request& request) { return HttpServer::ranges(request, "text"); });
  const auto error = [](const Result<SourcePtr>& result) {
    REQUIRE_FALSE(result);
    return result.error().to_string();
  };
  CHECK(contains(error(remote::open("http://example.com/model", quick())), "allow_http"));
  CHECK(contains(error(remote::open("http://127.example.com/model", quick())), "allow_http"));
  CHECK(contains(error(remote::open("ftp://example.com/model", quick())), "scheme"));
  CHECK(contains(error(remote::open("https://user:pw@example.com/model", quick())), "user"));
  CHECK_FALSE(contains(error(remote::open("https://user:pw@example.com/model", quick())), "pw"));
  remote::Options options = quick();
  options.allow_host = [](std::string_view host) { return host != "127.0.0.1"; };
  CHECK(contains(error(remote::open(server.url("/a"), options)), "host is not allowed"));
  options = quick();
  options.allow_address = [](std::string_view address) { return !address.starts_with("127."); };
  CHECK(contains(error(remote::open(server.url("/a"), options)), "address is not allowed"));
  CHECK(server.count() == 0);
  REQUIRE(remote::open(server.url("/a"), quick()));
  options = quick();
  options.allow_http = true;
  options.allow_host = [](std::string_view) { return false; };
  CHECK(contains(error(remote::open("http://example.com/model", options)), "host is not allowed"));
  options = quick();
  options.tries = 1;
  options.ca_file = "/nonexistent/authorities.pem";
  const std::string https = "https" + server.url("/a").substr(4);
  CHECK(contains(error(remote::open(https, options)), "authorities.pem"));
}

TEST_CASE("remote: files beside a file, by name only") {
  const std::string a = noise(100'000);
  const HttpServer server([&](const Request& request) {
    return request.path == "/models/a" || request.path == "/models/sub%20dir/b%3F" ? HttpServer::ranges(request, a)
                                                                                   : Response{.status = 404};
  });
  auto source = remote::open(server.url("/models/a?signed"), quick());
  REQUIRE(source);
  const auto bundle = (*source)->bundle();
  CHECK(bundle->open("sub dir/b?"));
  CHECK(*bundle->contains("a"));
  CHECK_FALSE(*bundle->contains("c"));
  for (const char* name : {"../secret", "/etc/passwd", "a//b", ""}) CHECK_FALSE(bundle->open(name));
  CHECK_FALSE(bundle->open("http://127.0.0.1:1/x"));
  CHECK_FALSE(bundle->names());
  for (const Request& request : server.log()) CHECK(request.path.starts_with("/models/"));
}

TEST_CASE("remote: a store: small and large files, lists, folders, conditions") {
  HttpStore store;
  HttpServer server([&](const Request& request) { return store.answer(request); });
  remote::Options options = with(server);
  const std::string large = noise(12'000'000);
  const auto put = [&](const std::string& key, std::string_view bytes, bool overwrite = true) -> Status {
    STELE_TRY_ASSIGN(const auto sink, remote::create("s3://bucket/" + key, options, {.overwrite = overwrite}));
    STELE_TRY(sink->reserve(bytes.size()));
    for (std::size_t at = 0; at < bytes.size(); at += 1'000'000) {
      STELE_TRY(sink->write(std::as_bytes(std::span(bytes.substr(at, 1'000'000)))));
    }
    return sink->commit();
  };
  const auto done = put("dir/a b+c=ä.bin", "small");
  REQUIRE_MESSAGE(done, done.error().to_string());
  CHECK(store.objects.count("/bucket/dir/a b+c=ä.bin") == 1);
  CHECK(contains(server.log()[0].header("authorization"), "AWS4-HMAC-SHA256 Credential=AKID/"));
  store.fail_parts = 2;
  REQUIRE(put("dir/large", large));
  CHECK(store.objects["/bucket/dir/large"] == large);
  CHECK(store.uploads.empty());

  auto folder = remote::open("s3://bucket/dir", options);
  REQUIRE_MESSAGE(folder, folder.error().to_string());
  CHECK((*folder)->is_folder());
  CHECK(*(*folder)->bundle()->names() == std::vector<std::string>{"a b+c=ä.bin", "large"});
  auto source = (*folder)->bundle()->open("large");
  REQUIRE(source);
  CHECK(*read(**source, 5'000'000, 3'000'000) == large.substr(5'000'000, 3'000'000));
  CHECK(remote::open("s3://bucket/none", options).error().code() == Errc::not_found);

  CHECK(put("dir/large", "x", false).error().code() == Errc::exists);
  SUBCASE("another program is first") {
    for (const std::string_view bytes : {std::string_view(large), std::string_view("small")}) {
      auto sink = remote::create("s3://bucket/race", options, {.overwrite = false});
      REQUIRE(sink);
      REQUIRE((*sink)->write(std::as_bytes(std::span(bytes))));
      store.objects["/bucket/race"] = "other";
      store.tags["/bucket/race"] = "\"other\"";
      const auto late = (*sink)->commit();
      REQUIRE_FALSE(late);
      CHECK(late.error().code() == Errc::exists);
      sink->reset();
      CHECK(store.objects["/bucket/race"] == "other");
      CHECK(store.uploads.empty());
      store.objects.erase("/bucket/race");
    }
  }
  SUBCASE("without commit nothing remains") {
    auto sink = remote::create("s3://bucket/gone", options);
    REQUIRE((*sink)->write(std::as_bytes(std::span(large))));
    CHECK(store.uploads.size() == 1);
    sink->reset();
    CHECK(store.uploads.empty());
    CHECK(store.objects.count("/bucket/gone") == 0);
  }
  SUBCASE("answers that end within their headers") {
    for (const std::string_view bytes : {std::string_view(large), std::string_view("small")}) {
      const std::string key = "cut" + std::to_string(bytes.size());
      store.cut_headers = 2;
      const auto again = put(key, bytes);
      REQUIRE_MESSAGE(again, again.error().to_string());
      CHECK(store.objects["/bucket/" + key] == bytes);
      store.cut_headers = 1000;
      CHECK_FALSE(put("never", bytes));
      store.cut_headers = 0;
      CHECK(store.objects.count("/bucket/never") == 0);
    }
  }
  SUBCASE("one part at a time") {
    options.uploads = 1;
    server.clear();
    REQUIRE(put("dir/parts", large));
    CHECK(store.objects["/bucket/dir/parts"] == large);
    std::vector<std::string> parts;
    for (const Request& request : server.log()) {
      const std::size_t at = request.query.find("partNumber=");
      if (at != std::string::npos) parts.push_back(request.query.substr(at + 11, 1));
    }
    CHECK(parts == std::vector<std::string>{"1", "2"});
  }
  SUBCASE("a store that fails") {
    store.fail_parts = 1000;
    const auto failed = put("dir/failed", large);
    REQUIRE_FALSE(failed);
    CHECK(contains(failed.error().to_string(), "503 SlowDown"));
    CHECK(store.uploads.empty());
  }
}

TEST_CASE("remote: signatures are those of AWS's examples") {
  // "Examples: Signature Calculations in AWS Signature Version 4", Amazon S3 API Reference: GET Object, and GET Bucket
  // lifecycle.
  const remote::Credentials keys{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
  const std::string empty = remote::sha256_hex({});
  const auto signature = [&](remote::Request request) {
    REQUIRE(remote::sign_v4(request, keys, "us-east-1", "s3", empty, 1369353600));
    const std::string line = request.headers.back().second;
    return line.substr(line.find("Signature=") + 10);
  };
  remote::Request get;
  get.url = *remote::Url::parse("https://examplebucket.s3.amazonaws.com/test.txt");
  get.headers.emplace_back("range", "bytes=0-9");
  CHECK(signature(get) == "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  remote::Request lifecycle;
  lifecycle.url = *remote::Url::parse("https://examplebucket.s3.amazonaws.com/?lifecycle=");
  CHECK(signature(lifecycle) == "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
  remote::Request list;
  list.url = *remote::Url::parse("https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J");
  CHECK(signature(list) == "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST_CASE("remote: the keys of a profile") {
  const TempDir dir;
  stele_test::write_text(dir / "keys",
                         "[default]\naws_access_key_id = A\naws_secret_access_key = a\n\n"
                         "[work]\naws_access_key_id = B\naws_secret_access_key = b\n");
  setenv("AWS_SHARED_CREDENTIALS_FILE", (dir / "keys").c_str(), 1);
  HttpServer server([](const Request& request) { return HttpServer::ranges(request, "content"); });
  remote::Options options = with(server);
  options.credentials.reset();
  for (const auto& [profile, key] : {std::pair("", "A"), std::pair("work", "B")}) {
    options.profile = profile;
    server.clear();
    REQUIRE(remote::open("s3://bucket/key", options));
    CHECK(contains(server.log()[0].header("authorization"), std::string("Credential=") + key + "/"));
  }
  options.profile = "other";
  CHECK(remote::open("s3://bucket/key", options).error().code() == Errc::invalid_argument);
  unsetenv("AWS_SHARED_CREDENTIALS_FILE");
}

TEST_CASE("remote: the region and the clock are learnt from refusals") {
  int refused = 0;
  const HttpServer server([&](const Request& request) -> Response {
    const std::string authorization = request.header("authorization");
    if (!contains(authorization, "/eu-west-3/")) {
      ++refused;
      return {.status = 400,
              .headers = {{"x-amz-bucket-region", "eu-west-3"}},
              .body = "<Error><Code>AuthorizationHeaderMalformed</Code></Error>"};
    }
    return HttpServer::ranges(request, "content");
  });
  auto source = remote::open("s3://bucket/key", with(server));
  REQUIRE_MESSAGE(source, source.error().to_string());
  CHECK(refused == 1);
  remote::Options known = with(server);
  known.region = "eu-west-3";
  REQUIRE(remote::open("s3://bucket/key", known));
  CHECK(refused == 1);
  const HttpServer late([&](const Request& request) -> Response {
    if (!request.header("x-amz-date").starts_with("20010203")) {
      return {.status = 403,
              .headers = {{"Date", "Sat, 03 Feb 2001 04:05:06 GMT"}},
              .body = "<Error><Code>RequestTimeTooSkewed</Code></Error>"};
    }
    return HttpServer::ranges(request, "content");
  });
  source = remote::open("s3://bucket/key", with(late));
  REQUIRE_MESSAGE(source, source.error().to_string());
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

TEST_CASE("remote: an upload's completion that fails in the body of a success") {
  // "Handling CompleteMultipartUpload errors", Amazon S3 API Reference.
  const std::string large = noise(12'000'000);
  struct Row {
    std::string code;
    int failures;
    bool saved;
    std::size_t completions;
  };
  const Row rows[] = {{"InternalError", 2, true, 3},
                      {"SlowDown", 1, true, 2},
                      {"", 1, true, 2},
                      {"InternalError", 9, false, 4},
                      {"InvalidPart", 9, false, 1}};
  for (const Row& row : rows) {
    CAPTURE(row.code);
    HttpStore store;
    int failures = row.failures;
    std::size_t completions = 0;
    HttpServer server([&](const Request& request) -> Response {
      if (request.method == "POST" && request.query.starts_with("uploadId=")) {
        ++completions;
        if (failures-- > 0) {
          // White space keeps the connection while the store works.
          return {.body =
                      "<?xml version=\"1.0\"?>\n   \n" +
                      (row.code.empty() ? "" : "<Error><Code>" + row.code + "</Code><Message>again</Message></Error>")};
        }
      }
      return store.answer(request);
    });
    auto sink = remote::create("s3://bucket/large", with(server));
    REQUIRE(sink);
    REQUIRE((*sink)->write(std::as_bytes(std::span(large))));
    const auto done = (*sink)->commit();
    CHECK(done.has_value() == row.saved);
    CHECK(completions == row.completions);
    CHECK(store.objects.count("/bucket/large") == (row.saved ? 1 : 0));
    if (!done) CHECK_MESSAGE(contains(done.error().to_string(), row.code + ": again"), done.error().to_string());
    sink->reset();
    CHECK(store.uploads.empty());
  }
}

TEST_CASE("remote: an ETag may be marked as weak") {
  const std::string content = noise(300'000);
  for (const bool first : {false, true}) {
    std::atomic<int> answers{0};
    const HttpServer server([&](const Request& request) {
      const bool weak = (answers++ == 0) == first;
      return HttpServer::ranges(request, content, weak ? "W/\"1\"" : "\"1\"");
    });
    auto source = remote::open(server.url("/file"), quick());
    REQUIRE(source);
    const auto got = read(**source, 100'000, 70'000);
    REQUIRE_MESSAGE(got, got.error().to_string());
    CHECK(*got == content.substr(100'000, 70'000));
  }
}

TEST_CASE("remote: this machine is asked without a proxy") {
  const HttpServer server([](const Request& request) { return HttpServer::ranges(request, "direct"); });
  const HttpServer proxy([](const Request& request) { return HttpServer::ranges(request, "proxy"); });
  setenv("http_proxy", proxy.url("").c_str(), 1);
  remote::Options options = quick();
  options.allow_http = true;
  const auto content = [&](const std::string& url) {
    const auto source = remote::open(url, options);
    REQUIRE_MESSAGE(source, source.error().to_string());
    return *read(**source, 0, 5);
  };
  for (const char* host : {"127.0.0.1", "localhost"}) CHECK(content(server.url("/file", host)) == "direc");
  CHECK(content("http://model.example.org/file") == "proxy");
  setenv("no_proxy", "example.com,.example.org", 1);
  options.tries = 1;
  CHECK_FALSE(remote::open("http://model.example.org/file", options));
  CHECK(content("http://model.example.net/file") == "proxy");
  unsetenv("no_proxy");
  unsetenv("http_proxy");
}

TEST_CASE("remote: a refused file beside a model does not refuse the model") {
  // As with a signed URL, or in a bucket without the right to list.
  std::string header =
      R"({"l.qweight":{"dtype":"I32","shape":[8,32],"data_offsets":[0,1024]},"l.qzeros":{"dtype":"I32","shape":[2,4],)"
      R"("data_offsets":[1024,1056]},"l.scales":{"dtype":"F16","shape":[2,32],"data_offsets":[1056,1184]}})";
  header += std::string(8 - header.size() % 8, ' ');
  std::string content(8, '\0');
  content[0] = static_cast<char>(header.size() & 0xff);
  content[1] = static_cast<char>(header.size() >> 8);
  content += header + std::string(1184, '\0');
  int status = 403;
  const HttpServer server([&](const Request& request) -> Response {
    if (request.path.ends_with("/m.safetensors")) return HttpServer::ranges(request, content);
    return {.status = status, .body = "<Error><Code>AccessDenied</Code></Error>"};
  });
  remote::set_defaults(with(server));
  const std::string urls[] = {server.url("/bucket/m.safetensors?signature=1"), "s3://bucket/m.safetensors"};
  for (const std::string& url : urls) {
    for (const int refusal : {401, 403}) {
      CAPTURE(url);
      status = refusal;
      const auto opened = open(url);
      REQUIRE_MESSAGE(opened, opened.error().to_string());
      CHECK(opened->leaf_count() == 3);
      const auto& notes = opened->notes();
      CHECK(std::any_of(notes.begin(), notes.end(), [](const auto& n) { return contains(n, "refuses config.json"); }));
    }
    status = 500;
    const auto failed = open(url);
    REQUIRE_FALSE(failed);
    CHECK(failed.error().code() == Errc::io);
  }
  remote::set_defaults({});
}

TEST_CASE("remote: a bucket that does not exist") {
  const HttpServer server([](const Request& request) -> Response {
    return {.status = 404, .body = request.method == "HEAD" ? "" : "<Error><Code>NoSuchBucket</Code></Error>"};
  });
  for (const char* url : {"s3://bucket/key", "s3://bucket/dir/", "s3://bucket"}) {
    CAPTURE(url);
    const auto missing = remote::open(url, with(server));
    REQUIRE_FALSE(missing);
    CHECK(missing.error().code() == Errc::not_found);
    CHECK(contains(missing.error().to_string(), "the store has no such bucket: found 404 NoSuchBucket"));
    CHECK(contains(missing.error().hint(), "check its name"));
  }
}

TEST_CASE("remote: modules are saved to a store, and loaded from it, in every format") {
  struct Model {
    Tensor<float, 2> weight;
    Tensor<float, 1> bias;
  };
  Model model;
  model.weight = Tensor<float, 2>::filled({100, 100}, 1.5F);
  model.bias = Tensor<float, 1>::filled({100}, -2);
  HttpStore store;
  HttpServer server([&](const Request& request) { return store.answer(request); });
  remote::set_defaults(with(server));
  for (const Format* format : formats()) {
    if (!format->writes() || format->is_folder() || format->name() == "nnef-tensor" || format->name() == "npy")
      continue;
    CAPTURE(format->name());
    const std::string url = "s3://bucket/" + std::string(format->name()) + "/m" + std::string(format->extension());
    const auto saved = save(model, url, {.format = format, .allow_loss = true});
    REQUIRE_MESSAGE(saved, saved.error().to_string());
    auto loaded = load<Model>(url);
    REQUIRE_MESSAGE(loaded, loaded.error().to_string());
    CHECK(loaded->weight.data()[9999] == 1.5F);
    CHECK(loaded->bias.data()[99] == -2);
  }
  remote::set_defaults({});
}

TEST_CASE("remote: a cached file belongs to one URL, version and size") {
  // Equal sizes and ETags: only the URLs tell the files apart.
  const auto content_of = [](const std::string& server, const Request& request) {
    std::string content = noise(200'000);
    const std::string place = server + request.header("host") + request.path + "?" + request.query;
    for (std::size_t at = 0; at + place.size() < content.size(); at += 1000) content.replace(at, place.size(), place);
    return content;
  };
  std::string validator = "\"1\"";
  const auto serve = [&](const std::string& name) {
    return
        [&, name](const Request& request) { return HttpServer::ranges(request, content_of(name, request), validator); };
  };
  const HttpServer server(serve("a")), other(serve("b"));
  const TempDir dir;
  remote::Options options = quick();
  options.cache_folder = dir / "cache";
  const auto read_of = [&](const std::string& url) {
    auto source = remote::open(url, options);
    REQUIRE_MESSAGE(source, source.error().to_string());
    return *read(**source, 70'000, 100'000);
  };
  const std::vector<std::string> urls = {
      server.url("/dir/m?v=1"),     server.url("/dir/m?v=2"),     server.url("/dir/m?V=1"),
      server.url("/dir/m?v=1&w=2"), server.url("/dir/m?w=2&v=1"), server.url("/dir/m"),
      server.url("/dir/M?v=1"),     server.url("/DIR/m?v=1"),     server.url("/dir//m?v=1"),
      server.url("/dir/m/?v=1"),    server.url("/dir/m%3Fv=1"),   server.url("/dir/m?v=1", "localhost"),
      other.url("/dir/m?v=1"),      server.url("/dir/m?v=1%20"),
  };
  remote::Options plain = quick();
  for (const bool again : {false, true}) {
    for (const std::string& url : urls) {
      if (url.ends_with("/?v=1")) continue;  // a folder
      CAPTURE(url);
      const std::size_t before = server.count() + other.count();
      const std::string got = read_of(url);
      CHECK(server.count() + other.count() - before == (again ? 1 : 2));
      CHECK(got == *read(**remote::open(url, plain), 70'000, 100'000));
    }
  }
  CHECK(read_of(urls[0] + "#part") == read_of(urls[0]));  // servers don't see it
  CHECK_FALSE(remote::open("http://user@127.0.0.1/dir/m?v=1", options));

  SUBCASE("a version that another content may have") {
    std::string content = noise(200'000);
    std::vector<std::pair<std::string, std::string>> headers;
    const HttpServer changing([&](const Request& request) {
      Response made = HttpServer::ranges(request, content);
      made.headers.erase(made.headers.begin());  // the ETag
      made.headers.insert(made.headers.end(), headers.begin(), headers.end());
      return made;
    });
    struct Row {
      std::vector<std::pair<std::string, std::string>> headers;
      bool kept;
    };
    const std::string day = "Sat, 28 Nov 2026 10:00:";
    const Row rows[] = {
        {{{"ETag", "\"1\""}}, true},
        {{{"ETag", "W/\"1\""}}, false},
        {{{"Last-Modified", day + "00 GMT"}, {"Date", "Sat, 28 Nov 2026 11:00:00 GMT"}}, true},
        {{{"Last-Modified", day + "00 GMT"}, {"Date", day + "01 GMT"}}, false},
        {{{"Last-Modified", day + "00 GMT"}}, false},
        {{}, false},
    };
    for (std::size_t i = 0; i < std::size(rows); ++i) {
      CAPTURE(i);
      headers = rows[i].headers;
      const std::string url = changing.url("/file" + std::to_string(i));
      CHECK(read_of(url) == content.substr(70'000, 100'000));
      content[100'000] = static_cast<char>(content[100'000] + 1);
      CHECK((read_of(url) != content.substr(70'000, 100'000)) == rows[i].kept);
    }
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

TEST_CASE("remote: XML is read in linear time") {
  std::string codes = "<Key>";
  for (int i = 0; i < 1'000'000; ++i) codes += "&#";
  CHECK(remote::xml_text(codes + "</Key>", "Key").size() == 2'000'000);
  CHECK(remote::xml_text("<Key>&#x41;&#66;&#;&#9;&#12345678901;&amp;#</Key>", "Key").starts_with("AB"));
}

TEST_CASE("remote: a program can end its requests") {
  const std::string content = noise(300'000);
  std::atomic<bool> stalls{false}, cancelled{false};
  HttpServer server([&](const Request& request) -> Response {
    if (request.path == "/busy") return {.status = 503, .headers = {{"Retry-After", "20"}}};
    Response made = HttpServer::ranges(request, content);
    if (stalls) made.stall = std::chrono::seconds(4);
    return made;
  });
  remote::Options options = quick();
  options.longest_wait = std::chrono::seconds(20);
  options.deadline = std::chrono::seconds(60);
  options.cancelled = [&] { return cancelled.load(); };
  auto source = remote::open(server.url("/file"), options);
  REQUIRE(source);
  const auto cancels = [&](const std::function<Status()>& work) {
    cancelled = false;
    const auto begin = std::chrono::steady_clock::now();
    std::thread user([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      cancelled = true;
    });
    const Status done = work();
    user.join();
    REQUIRE_FALSE(done);
    CHECK_MESSAGE(done.error().code() == Errc::cancelled, done.error().to_string());
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(15));
  };
  cancels([&]() -> Status {
    STELE_TRY(remote::open(server.url("/busy"), options));
    return {};
  });
  stalls = true;
  cancels([&]() -> Status {
    STELE_TRY(read(**source, 100'000, 100'000));
    return {};
  });
  server.clear();
  CHECK(remote::open(server.url("/file"), options).error().code() == Errc::cancelled);
  CHECK(server.count() == 0);
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

TEST_CASE("remote: URLs of one object have one identity") {
  remote::Options options;
  options.endpoint = "http://127.0.0.1:9000";
  const auto same = [](const std::string& a, const std::string& b) {
    return detail::url_identity(a) == detail::url_identity(b);
  };
  for (const bool aws : {false, true}) {
    remote::set_defaults(aws ? remote::Options{} : options);
    for (const char* url : {"s3://bucket/a b/m.stele", "s3://bucket/dir/", "http://h/a", "hf://o/m"})
      CHECK(same(url, url));
    CHECK(same("s3://bucket/dir/", "s3://bucket/dir"));
    CHECK_FALSE(same("s3://bucket/a", "s3://bucket/A"));
    CHECK_FALSE(same("s3://bucket/a", "s3://other/a"));
    CHECK_FALSE(same("s3://bucket/a%20b", "s3://bucket/a b"));  // keys are not encoded
    CHECK_FALSE(same("s3://bucket/a", "https://example.org/bucket/a"));
    CHECK(same("https://example.org/a%20b/m", "https://EXAMPLE.org:443/a b/../a b/m?X-Amz-Signature=1"));
    CHECK_FALSE(same("https://example.org/a", "https://example.org:8443/a"));
  }
  remote::set_defaults(options);
  CHECK(same("s3://bucket/a b/m+n.stele", "http://127.0.0.1:9000/bucket/a%20b/m%2Bn.stele"));
  CHECK(same("s3://bucket/m", "http://localhost:9000/bucket/m?X-Amz-Signature=1"));
  CHECK_FALSE(same("s3://bucket/m", "http://127.0.0.1:9001/bucket/m"));
  options.endpoint = "https://store.example.org";
  remote::set_defaults(options);
  CHECK(same("s3://bucket/m", "https://store.example.org/bucket/m"));
  CHECK(same("s3://bucket/m", "https://bucket.store.example.org/m"));
  CHECK_FALSE(same("s3://bucket/m", "https://bucket.other.example.org/m"));
  remote::set_defaults({});
  for (const char* url :
       {"https://my.bucket.s3.amazonaws.com/dir/m", "https://my.bucket.s3.eu-west-1.amazonaws.com/dir/m",
        "https://s3.eu-west-1.amazonaws.com/my.bucket/dir/m", "https://s3.amazonaws.com/my.bucket/dir/m?versionId=2",
        "https://s3-eu-west-1.amazonaws.com/my.bucket/dir/m", "https://my.bucket.s3-eu-west-1.amazonaws.com/dir/m",
        "https://my.bucket.s3.dualstack.eu-west-1.amazonaws.com/dir%2Fm",
        "https://my.bucket.s3.cn-north-1.amazonaws.com.cn/dir/m"}) {
    CAPTURE(url);
    CHECK(same("s3://my.bucket/dir/m", url));
  }
}

TEST_SUITE_END();

}  // namespace remote_test
