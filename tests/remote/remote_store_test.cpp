// Stores of objects: signatures, uploads and their completion, lists, identities of URLs.
#include <doctest/doctest.h>
#include <stele/bundle.hpp>
#include <stele/remote.hpp>
#include <stele/stele.hpp>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "io/urls.hpp"
#include "remote/http/sha256.hpp"
#include "remote/http/url.hpp"
#include "remote/s3/sigv4.hpp"
#include "support/http_server.hpp"
#include "support/http_store.hpp"
#include "support/temp_dir.hpp"

#include "remote_support.hpp"

namespace remote_store_test {

namespace {

using namespace stele;
using namespace remote_support;
using stele_test::HttpServer;
using stele_test::HttpStore;
using stele_test::TempDir;
using Request = HttpServer::Request;
using Response = HttpServer::Response;

}  // namespace

TEST_SUITE_BEGIN("concurrency");

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
  // A store cannot replace a folder in one step.
  const SaveOptions zarr{.format = find_format("zarr")};
  REQUIRE(save(model, "s3://bucket/folder.zarr", zarr));
  const auto loaded = load<Model>("s3://bucket/folder.zarr");
  REQUIRE_MESSAGE(loaded, loaded.error().to_string());
  CHECK(loaded->bias.data()[99] == -2);
  const auto again = save(model, "s3://bucket/folder.zarr", zarr);
  REQUIRE_FALSE(again);
  CHECK(again.error().code() == Errc::exists);
  CHECK(again.error().file() == "s3://bucket/folder.zarr/");
  CHECK(contains(again.error().hint(), "another folder"));
  remote::set_defaults({});
}

TEST_CASE("remote: XML is read in linear time") {
  std::string codes = "<Key>";
  for (int i = 0; i < 1'000'000; ++i) codes += "&#";
  CHECK(remote::xml_text(codes + "</Key>", "Key").size() == 2'000'000);
  CHECK(remote::xml_text("<Key>&#x41;&#66;&#;&#9;&#12345678901;&amp;#</Key>", "Key").starts_with("AB"));
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

}  // namespace remote_store_test
