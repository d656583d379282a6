// A store of objects with the protocol of S3, in memory, for tests: conditions, uploads in parts, lists.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "remote/http/url.hpp"
#include "support/http_server.hpp"

namespace stele_test {

/// The bucket is named "bucket".
struct HttpStore {
  using Request = HttpServer::Request;
  using Response = HttpServer::Response;

  std::map<std::string, std::string> objects;  // by path: "/bucket/key"
  std::map<std::string, std::string> tags;
  std::map<std::string, std::map<int, std::string>> uploads;
  int fail_parts = 0;    // answers so many parts with 503
  int cut_headers = 0;   // carries out nothing, and closes the connection within the headers
  int lost_answers = 0;  // carries out so many writes, but closes the connection before the answer

  void put(const std::string& path, const std::string& bytes) {
    objects[path] = bytes;
    tags[path] = "\"v" + std::to_string(++versions_) + "\"";
  }

  Response answer(const Request& request) {
    const std::lock_guard lock(mutex_);
    if (cut_headers > 0 && request.method != "GET") {
      --cut_headers;
      return {.cut_headers = true};
    }
    Response made = answer_of(request);
    if (lost_answers > 0 && request.method != "GET" && request.method != "HEAD" && made.status == 200) {
      --lost_answers;
      made.body = "lost";
      made.cut = 0;
    }
    return made;
  }

 private:
  static std::string part_of(const std::string& query, const std::string& name) {
    const std::size_t at = ("&" + query).find("&" + name + "=");
    if (at == std::string::npos) return {};
    const std::size_t begin = at + name.size() + 1;
    return query.substr(begin, query.find('&', begin) - begin);
  }
  static Response error(int status, const std::string& code) {
    return {.status = status, .body = "<Error><Code>" + code + "</Code><Message>none</Message></Error>"};
  }

  Response answer_of(const Request& request) {
    using stele::remote::percent_decoded;
    const std::string key = percent_decoded(request.path);
    if (request.method == "GET" && request.query.starts_with("list-type")) {
      const std::string prefix = "/bucket/" + percent_decoded(part_of(request.query, "prefix"));
      std::string xml = "<ListBucketResult><IsTruncated>false</IsTruncated>";
      for (const auto& [name, bytes] : objects) {
        if (name.starts_with(prefix)) xml += "<Contents><Key>" + name.substr(8) + "</Key></Contents>";
      }
      return {.body = xml + "</ListBucketResult>"};
    }
    const auto found = objects.find(key);
    const bool there = found != objects.end();
    if (request.method == "GET")
      return there ? HttpServer::ranges(request, found->second, tags[key]) : error(404, "NoSuchKey");
    if (request.method == "HEAD") {
      if (!there) return {.status = 404};
      return {.headers = {{"ETag", tags[key]}}, .body = found->second};
    }
    const std::string match = request.header("if-match");
    if (request.header("if-none-match") == "*" && there) return error(412, "PreconditionFailed");
    if (!match.empty() && (!there || tags[key] != match)) return error(there ? 412 : 404, "PreconditionFailed");
    if (request.method == "PUT" && request.query.empty()) {
      put(key, request.body);
      return {.headers = {{"ETag", tags[key]}}};
    }
    if (request.method == "DELETE" && request.query.empty()) {
      objects.erase(key);
      return {.status = 204};
    }
    if (request.method == "POST" && request.query == "uploads=") {
      const std::string id = "id " + std::to_string(++versions_);
      uploads[id];
      return {.body = "<R><UploadId>" + id + "</UploadId></R>"};
    }
    const std::string id = percent_decoded(part_of(request.query, "uploadId"));
    if (uploads.count(id) == 0) return error(404, "NoSuchUpload");
    if (request.method == "PUT") {
      if (fail_parts > 0) {
        --fail_parts;
        return error(503, "SlowDown");
      }
      const int number = std::atoi(part_of(request.query, "partNumber").c_str());
      uploads[id][number] = request.body;
      return {.headers = {{"ETag", "\"part\""}}};
    }
    if (request.method == "DELETE") {
      uploads.erase(id);
      return {.status = 204};
    }
    std::string all;
    for (const auto& [number, bytes] : uploads[id]) all += bytes;
    put(key, all);
    uploads.erase(id);
    return {.body = "<CompleteMultipartUploadResult/>"};
  }

  std::mutex mutex_;
  int versions_ = 0;
};

}  // namespace stele_test
