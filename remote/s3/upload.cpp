// An object of a bucket that is being written. Parts are sent while later ones are filled; only the last request, which
// completes the upload, makes the object visible.
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/hex.hpp"
#include "remote/http/file.hpp"
#include "remote/s3/sigv4.hpp"
#include "remote/s3/store.hpp"
#include "stele/precision/base64.hpp"

namespace stele::inline v0::remote {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t least_part = 5 * mib;  // size of all parts except the last
constexpr std::uint64_t most_parts = 10'000;   // both: Amazon S3, "Multipart upload limits"

using Md5 = std::array<std::byte, 16>;

/// Returns nullopt where the system forbids MD5.
std::optional<Md5> md5_of(std::span<const std::byte> bytes) {
  Md5 out{};
  unsigned size = 0;
  const int done =
      EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(out.data()), &size, EVP_md5(), nullptr);
  return done == 1 ? std::optional(out) : std::nullopt;
}

/// Returns the ETag of an object, without quotes.
std::string plain_tag(const Answer& answer) {
  std::string tag = tag_of(answer);
  std::erase(tag, '"');
  return tag;
}

/// Returns true if the ETag is an MD5; it is not for objects that the store encrypts with its own keys.
bool is_md5(const std::string& tag) {
  return tag.size() == 32 && tag.find_first_not_of(v0::detail::hex_digits) == tag.npos;
}

class Upload final : public Sink {
 public:
  Upload(std::shared_ptr<const Bucket> bucket, std::string key, const FileSinkOptions& options)
      : Sink(bucket->shown(key)), bucket_(std::move(bucket)), key_(std::move(key)), options_(options) {
    const Options& o = bucket_->client().options();
    part_ = std::max(o.part_bytes, least_part);
    threads_allowed_ = std::max(o.uploads, 1U);
  }
  ~Upload() override {
    stop();
    if (!id_.empty()) static_cast<void>(v0::detail::guarded([&] { return abort(); }));
  }
  using Sink::write;
  Status reserve(std::uint64_t total) override {
    part_ = std::max(part_, (total / (most_parts - 1) + mib) / mib * mib);
    return {};
  }
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    for (auto piece : pieces) {
      while (!piece.empty()) {
        if (buffer_.empty()) buffer_ = Bytes(static_cast<std::size_t>(part_));
        const std::size_t n = std::min(piece.size(), buffer_.size() - used_);
        std::memcpy(buffer_.data() + used_, piece.data(), n);
        used_ += n;
        piece = piece.subspan(n);
        if (used_ == buffer_.size()) STELE_TRY(send_buffer());
      }
    }
    return {};
  }
  Status commit() override {
    if (id_.empty()) return put_whole();
    if (used_ != 0) STELE_TRY(send_buffer());
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return (waiting_.empty() && active_ == 0) || error_; });
    if (error_) return *error_;
    lock.unlock();
    return complete();
  }
  std::shared_ptr<Bundle> bundle() const override {
    return bucket_->bundle(key_.substr(0, key_.rfind('/') + 1), options_);
  }

 private:
  struct Part {
    std::uint64_t number = 0;
    Bytes bytes{};
  };
  struct Sent {
    std::string tag;
    std::optional<Md5> md5;
  };

  Result<Request> request(const char* method, std::string query) const {
    Request made;
    made.method = method;
    STELE_TRY_ASSIGN(made.url, bucket_->url(key_, std::move(query)));
    return made;
  }
  static void add_md5(Request& request, const std::optional<Md5>& md5) {
    if (!md5) return;
    std::string text(base64_size(md5->size()), '\0');
    base64_encode(*md5, text.data());
    request.headers.emplace_back("content-md5", std::move(text));
  }
  Error other_bytes(const std::string& found, const Md5& md5) const {
    return Error(Errc::checksum, "the store has received other bytes").file(name()).expected(hex(md5)).found(found);
  }

  Status put_whole() {
    STELE_TRY_ASSIGN(Request put, request("PUT", {}));
    put.body = std::span<const std::byte>(buffer_.span()).first(used_);
    const auto md5 = md5_of(put.body);
    add_md5(put, md5);
    if (!options_.overwrite) put.headers.emplace_back("if-none-match", "*");
    auto answer = bucket_->send(std::move(put));
    // A try whose answer was lost may have succeeded.
    if (!answer && !options_.overwrite && answer.error().code() == Errc::exists && md5 && tag_is(hex(*md5))) return {};
    if (!answer) return std::move(answer).error();
    const std::string tag = plain_tag(*answer);
    if (md5 && is_md5(tag) && tag != hex(*md5)) return other_bytes(tag, *md5);
    if (tag.empty()) return Error(Errc::io, "the store has not confirmed the file").file(name());
    return {};
  }

  // ---- parts

  Status begin() {
    STELE_TRY_ASSIGN(Request post, request("POST", "uploads="));
    STELE_TRY_ASSIGN(const Answer answer, bucket_->send(std::move(post)));
    id_ = xml_text(answer.text, "UploadId");
    if (id_.empty()) return Error(Errc::io, "the store began no upload").file(name());
    return {};
  }
  /// Gives the buffer to a thread; waits while all threads are busy.
  Status send_buffer() {
    if (id_.empty()) STELE_TRY(begin());
    if (parts_ == most_parts)
      return Error(Errc::limit, "the upload has too many parts").file(name()).hint("raise remote::Options::part_bytes");
    Part part{++parts_, std::exchange(buffer_, Bytes())};
    part.bytes.truncate(std::exchange(used_, 0));
    // Uses larger parts if the file grows beyond the announced size.
    if (parts_ % 1000 == 0) part_ *= 2;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_.size() + active_ < threads_allowed_ || error_; });
    if (error_) return *error_;
    waiting_.push_back(std::move(part));
    if (threads_.size() < threads_allowed_ && active_ + waiting_.size() > threads_.size()) {
      try {
        threads_.emplace_back([this] { work(); });
      } catch (const std::exception&) {
        if (threads_.empty()) {
          Part own = std::move(waiting_.front());
          waiting_.pop_front();
          lock.unlock();
          return send(own);
        }
      }
    }
    lock.unlock();
    changed_.notify_all();
    return {};
  }
  Status send(const Part& part) {
    return v0::detail::guarded([&]() -> Status {
      STELE_TRY_ASSIGN(Request put, request("PUT", "partNumber=" + std::to_string(part.number) +
                                                       "&uploadId=" + percent_encoded(id_, false)));
      put.body = part.bytes.span();
      const auto md5 = md5_of(put.body);
      add_md5(put, md5);
      STELE_TRY_ASSIGN(const Answer answer, bucket_->send(std::move(put)));
      const std::string tag = plain_tag(answer);
      if (tag.empty()) return Error(Errc::io, "the store returned no ETag of a part").file(name());
      if (md5 && is_md5(tag) && tag != hex(*md5)) return other_bytes(tag, *md5);
      const std::lock_guard lock(mutex_);
      sent_[part.number] = {tag, md5};
      return {};
    });
  }
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
      if (ending_) return;
      Part part = std::move(waiting_.front());
      waiting_.pop_front();
      ++active_;
      lock.unlock();
      auto done = send(part);
      part.bytes = {};
      lock.lock();
      --active_;
      if (!done && !error_) error_ = std::move(done).error();
      changed_.notify_all();
    }
  }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  Status complete() {
    std::string xml = "<CompleteMultipartUpload>";
    std::string sums;
    bool known = true;
    for (const auto& [number, part] : sent_) {
      xml += "<Part><PartNumber>" + std::to_string(number) + "</PartNumber><ETag>\"" + part.tag + "\"</ETag></Part>";
      known = known && part.md5;
      if (part.md5) sums.append(reinterpret_cast<const char*>(part.md5->data()), part.md5->size());
    }
    xml += "</CompleteMultipartUpload>";
    const auto of_sums = md5_of(std::as_bytes(std::span(sums)));
    const std::string tag = known && of_sums ? hex(*of_sums) + "-" + std::to_string(sent_.size()) : std::string();
    STELE_TRY_ASSIGN(Request post, request("POST", "uploadId=" + percent_encoded(id_, false)));
    post.body = std::as_bytes(std::span(xml));
    post.headers.emplace_back("content-type", "application/xml");
    if (!options_.overwrite) post.headers.emplace_back("if-none-match", "*");
    auto answer = bucket_->send({.request = std::move(post), .result = "<CompleteMultipartUploadResult"});
    if (answer) {
      id_.clear();
      return {};
    }
    // A try whose answer was lost may have succeeded. If not, the object already has these bytes.
    if (!tag.empty() && tag_is(tag)) return {};  // the destructor ends an upload that is still open
    return std::move(answer).error();
  }
  /// Returns true if the object exists and has this ETag.
  bool tag_is(const std::string& tag) const {
    auto head = request("HEAD", {});
    if (!head) return false;
    const auto answer = bucket_->send(*std::move(head));
    return answer && plain_tag(*answer) == tag;
  }
  Status abort() {
    STELE_TRY_ASSIGN(Request remove, request("DELETE", "uploadId=" + percent_encoded(id_, false)));
    STELE_TRY(bucket_->send(std::move(remove), max_text, {404}, 2));  // after an error, the store may no longer exist
    return {};
  }

  std::shared_ptr<const Bucket> bucket_;
  std::string key_;
  FileSinkOptions options_;
  std::uint64_t part_ = 0;
  std::size_t threads_allowed_ = 1;
  Bytes buffer_{};
  std::size_t used_ = 0;
  std::string id_{};  // id of the upload, once it is started
  std::uint64_t parts_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Part> waiting_;
  std::size_t active_ = 0;
  std::map<std::uint64_t, Sent> sent_;
  std::optional<Error> error_;
  std::vector<std::thread> threads_;
  bool ending_ = false;
};

}  // namespace

Result<std::unique_ptr<Sink>> upload(std::shared_ptr<const Bucket> bucket, std::string key,
                                     const FileSinkOptions& options) {
  if (key.empty() || key.ends_with('/'))
    return Error(Errc::invalid_argument, "the URL names no file").file(bucket->shown(key));
  if (!options.overwrite) {  // before anything is sent; the last request checks again
    STELE_TRY_ASSIGN(const bool exists, bucket->contains(key));
    if (exists) return Error(Errc::exists, "the file exists").file(bucket->shown(key));
  }
  return std::unique_ptr<Sink>(std::make_unique<Upload>(std::move(bucket), std::move(key), options));
}

}  // namespace stele::inline v0::remote
