// Files at URLs: reads by ranges, wrong answers, redirects, blocks that are kept.
#include <doctest/doctest.h>
#include <stele/bundle.hpp>
#include <stele/remote.hpp>
#include <stele/stele.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "remote/http/file.hpp"
#include "remote/s3/sigv4.hpp"
#include "support/http_server.hpp"
#include "support/temp_dir.hpp"

#include "remote_support.hpp"

namespace remote_test {

namespace {

using namespace stele;
using namespace remote_support;
using stele_test::HttpServer;
using stele_test::TempDir;
using Request = HttpServer::Request;
using Response = HttpServer::Response;

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

TEST_SUITE_END();

}  // namespace remote_test
