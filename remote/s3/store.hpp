// A bucket of S3 or of a store with its protocol.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "io/urls.hpp"
#include "remote/http/client.hpp"
#include "stele/bundle.hpp"

namespace stele::inline v0::remote {

/// The account, the endpoint and the region, from the options, or from the variables and files of AWS's programs.
struct S3Settings {
  std::optional<Credentials> credentials{};
  std::string region = "us-east-1";
  std::string endpoint{};  // empty: AWS

  static Result<S3Settings> find(const Options& options);
};

/// Signs requests to one bucket. Learns the bucket's region and the server's clock from refusals.
class S3Account final : public Account {
 public:
  explicit S3Account(S3Settings settings) : settings_(std::move(settings)) {}
  Status sign(Request& request) const override;
  bool learn(const Answer& answer) const override;
  Error error(const Request& request, const Answer& answer) const override;
  std::string region() const;

 private:
  S3Settings settings_;
  mutable std::mutex mutex_;
  mutable std::string region_{};   // region that the store's answers named
  mutable std::int64_t skew_ = 0;  // seconds that the server's clock is ahead
};

/// One bucket. Thread-safe.
class Bucket : public std::enable_shared_from_this<Bucket> {
 public:
  static Result<std::shared_ptr<const Bucket>> open(std::shared_ptr<const Client> client, std::string name);
  /// Returns the URL of an object, with a query of encoded and sorted parts.
  Result<Url> url(std::string_view key, std::string query = {}) const;
  std::string shown(std::string_view key) const { return "s3://" + name_ + "/" + std::string(key); }

  Result<SourcePtr> read(const std::string& key) const;
  /// Returns the headers of an object, or nullopt if there is none.
  Result<std::optional<Answer>> head(const std::string& key) const;
  /// Returns true if the object exists, or, with a key that ends with '/', objects below it.
  Result<bool> contains(const std::string& key) const;
  /// Lists the keys that begin with `prefix`, sorted. Errors: limit (more than 1,000,000), those of Client::run.
  Result<std::vector<std::string>> list(const std::string& prefix, std::size_t most = 1'000'000) const;
  Result<std::unique_ptr<Sink>> create(const std::string& key, const FileSinkOptions& options) const;
  Status remove(const std::string& key) const;
  Result<Answer> send(Request request, std::size_t max_answer = max_text, std::vector<long> accepted = {},
                      unsigned tries = 0) const;
  /// Sends a request with the bucket's account, without redirects.
  Result<Answer> send(Client::Call call) const;

  const Client& client() const noexcept { return *client_; }
  /// Returns the files below a prefix, which is empty or ends with '/'.
  std::shared_ptr<Bundle> bundle(std::string prefix, FileSinkOptions options = {}) const;

 private:
  Bucket(std::shared_ptr<const Client> client, std::string name, S3Settings settings);
  std::shared_ptr<const Client> client_;
  std::string name_;
  S3Settings settings_;
  std::shared_ptr<const S3Account> account_;
};

/// The objects below a prefix, which is empty or ends with '/', for checkpoints.
std::shared_ptr<v0::detail::Store> store_of(std::shared_ptr<const Bucket> bucket, std::string prefix);

/// An upload of one object: in parts while it is written, or at once if it is small.
Result<std::unique_ptr<Sink>> upload(std::shared_ptr<const Bucket> bucket, std::string key,
                                     const FileSinkOptions& options);

}  // namespace stele::inline v0::remote
