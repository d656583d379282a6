#include "remote/s3/store.hpp"

#include <algorithm>
#include <ctime>

#include "base/of_machine.hpp"
#include "io/files.hpp"
#include "io/text.hpp"
#include "remote/http/file.hpp"
#include "remote/http/sha256.hpp"
#include "remote/s3/sigv4.hpp"

namespace stele::inline v0::remote {

// ---- signing

std::string S3Account::region() const {
  const std::lock_guard lock(mutex_);
  return region_.empty() ? settings_.region : region_;
}

Status S3Account::sign(Request& request) const {
  if (settings_.endpoint.empty()) {  // AWS's hosts have the region in their names
    const std::string before = "s3." + settings_.region + ".";
    if (const std::size_t at = request.url.host.find(before); at != std::string::npos) {
      request.url.host.replace(at, before.size(), "s3." + region() + ".");
    }
  }
  if (!settings_.credentials) return {};
  std::unique_lock lock(mutex_);
  const std::time_t now = std::time(nullptr) + skew_;
  lock.unlock();
  // Over TLS the body needs no separate signature.
  const bool hashed = request.url.scheme != "https" || request.body.empty();
  return sign_v4(request, *settings_.credentials, region(), "s3",
                 hashed ? sha256_hex(request.body) : "UNSIGNED-PAYLOAD", now);
}

bool S3Account::learn(const Answer& answer) const {
  const std::lock_guard lock(mutex_);
  std::string region = answer.header("x-amz-bucket-region");
  if (region.empty()) region = xml_text(answer.text, "Region");
  const bool name = !region.empty() && region.size() < 64 &&
                    region.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == region.npos;
  if (name && region != (region_.empty() ? settings_.region : region_)) {
    region_ = region;
    return true;
  }
  if (xml_text(answer.text, "Code") == "RequestTimeTooSkewed") {
    const std::time_t theirs = curl_getdate(answer.header("date").c_str(), nullptr);
    if (theirs < 0) return false;
    skew_ = theirs - std::time(nullptr);
    return true;
  }
  return false;
}

Error S3Account::error(const Request& request, const Answer& answer) const {
  const std::string code = xml_text(answer.text, "Code");
  const auto make = [&](Errc errc, std::string_view what) {
    return Error(errc, what).file(request.url.shown()).found(found_in(request, answer));
  };
  const bool is_list = request.url.query.find("list-type=") != std::string::npos;
  if (code == "NoSuchBucket" || (is_list && answer.status == 404)) {
    return make(Errc::not_found, "the store has no such bucket")
        .hint(settings_.endpoint.empty() ? "check its name; AWS_ENDPOINT_URL names another store than AWS"
                                         : "check its name, and the address of the store");
  }
  if (answer.status != 403) return error_of(request, answer);
  Error refused = make(Errc::io, v0::detail::refuses_access);
  if (!settings_.credentials) return std::move(refused).hint("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
  return std::move(refused).hint(
      "check the name, the keys and their rights: without the right to list, missing files are refused, too");
}

// ---- the bucket

Bucket::Bucket(std::shared_ptr<const Client> client, std::string name, S3Settings settings)
    : client_(std::move(client)),
      name_(std::move(name)),
      settings_(settings),
      account_(std::make_shared<S3Account>(std::move(settings))) {}

Result<std::shared_ptr<const Bucket>> Bucket::open(std::shared_ptr<const Client> client, std::string name) {
  const bool valid =
      name.size() >= 3 && name.size() <= 63 &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") == name.npos;
  if (!valid) return Error(Errc::invalid_argument, "the URL names no bucket").file("s3://" + name);
  STELE_TRY_ASSIGN(S3Settings settings, S3Settings::find(client->options()));
  return std::shared_ptr<const Bucket>(new Bucket(std::move(client), std::move(name), std::move(settings)));
}

Result<Url> Bucket::url(std::string_view key, std::string query) const {
  std::string base = settings_.endpoint;
  std::string path = "/";
  if (!base.empty()) {
    path += name_ + "/";
  } else if (name_.find('.') == name_.npos && name_.find('_') == name_.npos) {
    base = "https://" + name_ + ".s3." + account_->region() + ".amazonaws.com";
  } else {  // AWS's certificates are for names without dots
    base = "https://s3." + account_->region() + ".amazonaws.com";
    path += name_ + "/";
  }
  STELE_TRY_ASSIGN(Url made, Url::parse(base));
  if (made.path == "/") made.path.clear();
  made.path += path + percent_encoded(key, true);
  made.query = std::move(query);
  return made;
}

Result<Answer> Bucket::send(Client::Call call) const {
  call.account = account_.get();
  call.follow = false;
  return client_->run(std::move(call));
}

Result<Answer> Bucket::send(Request request, std::size_t max_answer, std::vector<long> accepted, unsigned tries) const {
  Client::Call call;
  call.request = std::move(request);
  call.max_answer = max_answer;
  call.accepted = std::move(accepted);
  call.tries = tries;
  return send(std::move(call));
}

Result<SourcePtr> Bucket::read(const std::string& key) const {
  Place place;
  place.client = client_;
  place.account = account_;
  place.name = shown(key);
  place.bundle = [bucket = shared_from_this(), folder = key.substr(0, key.rfind('/') + 1)] {
    return bucket->bundle(folder);
  };
  STELE_TRY_ASSIGN(place.url, url(key));
  return open_file(std::move(place));
}

Result<bool> Bucket::contains(const std::string& key) const {
  if (key.empty() || key.ends_with('/')) {
    STELE_TRY_ASSIGN(const auto keys, list(key, 1));
    return !keys.empty();
  }
  STELE_TRY_ASSIGN(const auto found, head(key));
  return found.has_value();
}

Result<std::optional<Answer>> Bucket::head(const std::string& key) const {
  Request request;
  request.method = "HEAD";
  STELE_TRY_ASSIGN(request.url, url(key));
  STELE_TRY_ASSIGN(Answer answer, send(std::move(request), max_text, {404}));
  return answer.ok() ? std::optional(std::move(answer)) : std::nullopt;
}

Result<std::vector<std::string>> Bucket::list(const std::string& prefix, std::size_t most) const {
  std::vector<std::string> keys;
  std::string token;
  Pages pages;
  do {
    Request request;
    std::string query;
    if (!token.empty()) query = "continuation-token=" + percent_encoded(token, false) + "&";
    query += "list-type=2";
    if (most < 1000) query += "&max-keys=" + std::to_string(most);
    query += "&prefix=" + percent_encoded(prefix, false);
    STELE_TRY_ASSIGN(request.url, url("", std::move(query)));
    STELE_TRY_ASSIGN(const Answer answer, send(std::move(request), max_listing));
    std::string_view rest = answer.text;
    for (std::size_t at = rest.find("<Contents>"); at != rest.npos; at = rest.find("<Contents>")) {
      rest.remove_prefix(at);
      const std::size_t end = std::min(rest.find("</Contents>"), rest.size());
      std::string key = xml_text(rest.substr(0, end), "Key");
      if (key.starts_with(prefix)) keys.push_back(std::move(key));
      rest.remove_prefix(end);
      if (keys.size() >= most) return keys;
    }
    const bool more = xml_text(answer.text, "IsTruncated") == "true";
    token = more ? xml_text(answer.text, "NextContinuationToken") : std::string();
    if (more && token.empty()) {
      return Error(Errc::io, "the server's list has more files, but no token for them").file(shown(prefix));
    }
    STELE_TRY(pages.next(token, keys.size(), answer.text.size(), shown(prefix)));
  } while (!token.empty());
  std::sort(keys.begin(), keys.end());
  return keys;
}

Result<std::unique_ptr<Sink>> Bucket::create(const std::string& key, const FileSinkOptions& options) const {
  return upload(shared_from_this(), key, options);
}

Status Bucket::remove(const std::string& key) const {
  Request request;
  request.method = "DELETE";
  STELE_TRY_ASSIGN(request.url, url(key));
  STELE_TRY(send(std::move(request), max_text, {404}));
  return {};
}

// ---- its folders

namespace {

class BucketFolder final : public Bundle {
 public:
  BucketFolder(std::shared_ptr<const Bucket> bucket, std::string prefix, FileSinkOptions options)
      : bucket_(std::move(bucket)), prefix_(std::move(prefix)), options_(options) {}
  Result<SourcePtr> open(std::string_view name) const override {
    STELE_TRY(v0::detail::check_name(name));
    return bucket_->read(prefix_ + std::string(name));
  }
  Result<std::unique_ptr<Sink>> create(std::string_view name) override {
    STELE_TRY(v0::detail::check_name(name));
    return bucket_->create(prefix_ + std::string(name), options_);
  }
  Result<bool> contains(std::string_view name) const override {
    STELE_TRY(v0::detail::check_name(name));
    const std::string key = prefix_ + std::string(name);
    STELE_TRY_ASSIGN(const bool file, bucket_->contains(key));
    if (file) return true;
    return bucket_->contains(key + "/");
  }
  Result<std::vector<std::string>> names() const override {
    STELE_TRY_ASSIGN(std::vector<std::string> keys, bucket_->list(prefix_));
    for (std::string& key : keys) key.erase(0, prefix_.size());
    std::erase_if(keys, [](const std::string& key) { return key.empty() || key.ends_with('/'); });  // marks of folders
    return keys;
  }
  void remove(std::string_view name) noexcept override {
    static_cast<void>(v0::detail::guarded([&] { return bucket_->remove(prefix_ + std::string(name)); }));
  }

 private:
  std::shared_ptr<const Bucket> bucket_;
  std::string prefix_;
  FileSinkOptions options_;
};

class BucketStore final : public v0::detail::Store {
 public:
  BucketStore(std::shared_ptr<const Bucket> bucket, std::string prefix)
      : bucket_(std::move(bucket)), prefix_(std::move(prefix)) {}
  std::shared_ptr<Bundle> bundle() const override { return bucket_->bundle(prefix_); }
  Result<SourcePtr> open_folder(const std::string& object) const override {
    return bundle_source(bucket_->bundle(prefix_ + object + "/"), name(object));
  }
  Result<std::optional<Stat>> stat(const std::string& object) const override {
    STELE_TRY_ASSIGN(const auto answer, bucket_->head(prefix_ + object));
    if (!answer) return std::optional<Stat>();
    Stat found{std::strtoull(answer->header("content-length").c_str(), nullptr, 10), tag_of(*answer)};
    return std::optional(std::move(found));
  }
  Status replace(const std::string& object, std::string_view text,
                 const std::optional<std::string>& before) const override {
    Request put;
    put.method = "PUT";
    put.body = std::as_bytes(std::span(text));
    STELE_TRY_ASSIGN(put.url, bucket_->url(prefix_ + object));
    if (before) {
      put.headers.emplace_back("if-match", *before);
    } else {
      put.headers.emplace_back("if-none-match", "*");
    }
    auto answer = bucket_->send(std::move(put));
    if (answer) return {};
    if (answer.error().code() != Errc::exists && answer.error().code() != Errc::not_found)
      return std::move(answer).error();
    // A try whose answer was lost may have succeeded.
    if (auto now = bucket_->read(prefix_ + object); now && (*now)->size() == text.size()) {
      STELE_TRY_ASSIGN(const std::string stored, v0::detail::read_text(**now, text.size()));
      if (stored == text) return {};
    }
    return Error(Errc::exists, answer.error().message()).file(name(object)).found(answer.error().found());
  }
  Status remove(const std::string& object) const override { return bucket_->remove(prefix_ + object); }
  std::string name(std::string_view object) const override { return bucket_->shown(prefix_ + std::string(object)); }

 private:
  std::shared_ptr<const Bucket> bucket_;
  std::string prefix_;
};

}  // namespace

std::shared_ptr<v0::detail::Store> store_of(std::shared_ptr<const Bucket> bucket, std::string prefix) {
  return std::make_shared<BucketStore>(std::move(bucket), std::move(prefix));
}

std::shared_ptr<Bundle> Bucket::bundle(std::string prefix, FileSinkOptions options) const {
  return std::make_shared<BucketFolder>(shared_from_this(), std::move(prefix), options);
}

}  // namespace stele::inline v0::remote
