#include "remote/http/file.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <ctime>
#include <mutex>

#include "io/files.hpp"
#include "remote/http/cache.hpp"

namespace stele::inline v0::remote {

std::optional<ContentRange> parse_content_range(std::string_view text) {
  ContentRange range;
  const auto number = [&](std::uint64_t& out, char after) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (error != std::errc()) return false;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (after == '\0') return text.empty();
    if (text.empty() || text.front() != after) return false;
    text.remove_prefix(1);
    return true;
  };
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  if (text.starts_with("*/")) {
    text.remove_prefix(2);
    return number(range.total, '\0') ? std::optional(range) : std::nullopt;
  }
  if (!number(range.begin, '-') || !number(range.end, '/') || !number(range.total, '\0')) return std::nullopt;
  if (range.end < range.begin || range.end >= range.total) return std::nullopt;
  ++range.end;
  return range;
}

std::string tag_of(const Answer& answer) {
  const std::string tag = answer.header("etag");
  return tag.starts_with("W/") ? tag.substr(2) : tag;
}

namespace {

constexpr std::uint64_t head_bytes = std::uint64_t{64} << 10;

/// Returns the string that identifies the content of a file; it must be equal in all answers.
std::string version_of(const Answer& answer) {
  const std::string tag = tag_of(answer);
  return !tag.empty() ? tag : answer.header("last-modified");
}

/// Returns true if two contents never have the same version (RFC 9110, 8.8): an ETag that is not weak, or a time of
/// change that was a minute ago, as a file may change twice in a second.
bool is_strong(const Answer& answer) {
  const std::string tag = answer.header("etag");
  if (!tag.empty()) return !tag.starts_with("W/");
  const std::time_t changed = curl_getdate(answer.header("last-modified").c_str(), nullptr);
  const std::time_t sent = curl_getdate(answer.header("date").c_str(), nullptr);
  return changed >= 0 && sent >= 0 && sent - changed >= 60;
}

Error changed(const std::string& name, std::string_view was, std::string_view is) {
  return Error(Errc::io, "the file was changed since it was opened").file(name).expected(was).found(is);
}

Error wrong_range(const std::string& name, const ByteRange& asked, const std::string& found) {
  return Error(Errc::io, "the server answers with another range")
      .file(name)
      .expected(std::to_string(asked.offset) + "-" + std::to_string(asked.offset + asked.size - 1))
      .found(found.empty() ? "none" : found);
}

/// Takes the first bytes of a file, or a whole file from a server without ranges.
class Head final : public Receiver {
 public:
  Head(const std::string& name, std::uint64_t whole_file) : name_(name), whole_file_(whole_file) {}
  Status begin(const Answer& answer) override {
    bytes.clear();
    version = version_of(answer);
    is_strong = remote::is_strong(answer);
    const std::string text = answer.header("content-range");
    ranges = answer.status == 206;
    if (ranges) {
      const auto range = parse_content_range(text);
      if (!range || range->begin != 0 || range->end != std::min(range->total, head_bytes)) {
        return wrong_range(name_, {0, head_bytes}, text);
      }
      total = range->total;
      wanted_ = range->end;
      return {};
    }
    const std::string length = answer.header("content-length");
    std::uint64_t size = 0;
    std::from_chars(length.data(), length.data() + length.size(), size);
    if (size > whole_file_) return no_ranges(length + " bytes");
    wanted_ = whole_file_;
    return {};
  }
  Status take(std::span<const std::byte> more) override {
    if (more.size() > wanted_ - bytes.size()) {
      return ranges ? Error(Errc::io, "the server sends more than the range").file(name_) : no_ranges("more");
    }
    bytes.insert(bytes.end(), more.begin(), more.end());
    return {};
  }
  Status end() override {
    if (!ranges) total = bytes.size();
    if (!ranges || bytes.size() == wanted_) return {};
    return Error(Errc::truncated, "the answer ends early").file(name_);
  }

  std::vector<std::byte> bytes;
  std::uint64_t total = 0;
  std::string version;
  bool is_strong = false;  // the version
  bool ranges = false;

 private:
  Error no_ranges(const std::string& found) const {
    return Error(Errc::unsupported, "the server sends only whole files, not ranges")
        .file(name_)
        .expected("at most " + std::to_string(whole_file_) + " bytes")
        .found(found)
        .hint("download the file, or raise remote::Options::whole_file");
  }
  const std::string& name_;
  std::uint64_t whole_file_;
  std::uint64_t wanted_ = 0;
};

/// Takes a range into memory. After a short answer, the next try asks for the rest.
class Range final : public Receiver {
 public:
  Range(const std::string& name, const std::string& version, std::uint64_t total, std::uint64_t offset,
        std::span<std::byte> out)
      : name_(name), version_(version), total_(total), offset_(offset), out_(out) {}
  std::optional<ByteRange> rest(std::optional<ByteRange>) const override {
    return ByteRange{offset_ + done_, out_.size() - done_};
  }
  Status begin(const Answer& answer) override {
    const std::string version = version_of(answer);
    if (version != version_) return changed(name_, version_, version);
    if (answer.status != 206) {
      return Error(Errc::io, "the server sends the whole file instead of a range")
          .file(name_)
          .found(std::to_string(answer.status));
    }
    const ByteRange asked = *rest({});
    const std::string text = answer.header("content-range");
    const auto range = parse_content_range(text);
    if (!range || range->begin != asked.offset || range->end != asked.offset + asked.size) {
      return wrong_range(name_, asked, text);
    }
    if (range->total == total_) return {};
    return changed(name_, std::to_string(total_) + " bytes", std::to_string(range->total));
  }
  Status take(std::span<const std::byte> bytes) override {
    if (bytes.size() > out_.size() - done_) return Error(Errc::io, "the server sends more than the range").file(name_);
    std::memcpy(out_.data() + done_, bytes.data(), bytes.size());
    done_ += bytes.size();
    return {};
  }
  Status end() override {
    if (done_ == out_.size()) return {};
    return Error(Errc::truncated, "the answer ends early").file(name_);
  }

 private:
  const std::string& name_;
  const std::string& version_;
  std::uint64_t total_, offset_;
  std::span<std::byte> out_;
  std::size_t done_ = 0;
};

class HttpFile final : public Source {
 public:
  HttpFile(Place place, std::uint64_t size, std::string version, Url reached)
      : Source(place.name),
        place_(std::move(place)),
        size_(size),
        version_(std::move(version)),
        reached_(std::move(reached)) {}
  std::uint64_t size() const noexcept override { return size_; }
  std::shared_ptr<const Bundle> bundle() const override { return place_.bundle ? place_.bundle() : nullptr; }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size_ || out.size() > size_ - offset) {
      return Error(Errc::truncated, "the bytes end before")
          .file(name())
          .offset(offset)
          .expected(std::to_string(out.size()) + " bytes")
          .found(std::to_string(offset < size_ ? size_ - offset : 0));
    }
    if (out.empty()) return {};
    Range range(name(), version_, size_, offset, out);
    // Asks the place that the first request was led to, as long as it answers: its URL is often signed for a short
    // time.
    const Url place = reached();
    if (!place.same_host(place_.url)) {
      Client::Call call;
      call.request.url = place;
      call.receiver = &range;
      call.accepted = {401, 403, 404, 410};
      STELE_TRY_ASSIGN(const Answer answer, place_.client->run(std::move(call)));
      if (answer.ok()) return {};
    }
    Client::Call call;
    Url now;
    call.request.url = place_.url;
    call.account = place_.account.get();
    call.receiver = &range;
    call.reached = &now;
    STELE_TRY(place_.client->run(std::move(call)));
    const std::lock_guard lock(mutex_);
    reached_ = std::move(now);
    return {};
  }

 private:
  Url reached() const {
    const std::lock_guard lock(mutex_);
    return reached_;
  }
  Place place_;
  std::uint64_t size_;
  std::string version_;
  mutable std::mutex mutex_;
  mutable Url reached_;
};

/// A file that the first request has read whole.
class Whole final : public Source {
 public:
  Whole(Bytes all, Place place)
      : Source(place.name), bytes_(own_bytes(std::move(all))), bundle_(std::move(place.bundle)) {}
  std::uint64_t size() const noexcept override { return bytes_->size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override { return bytes_->read_at(offset, out); }
  std::span<const std::byte> view() const noexcept override { return bytes_->view(); }
  std::byte* writable_view(ByteRange range) const noexcept override { return bytes_->writable_view(range); }
  std::shared_ptr<const Bundle> bundle() const override { return bundle_ ? bundle_() : nullptr; }

 private:
  SourcePtr bytes_;
  std::function<std::shared_ptr<const Bundle>()> bundle_;
};

class HttpBundle final : public Bundle {
 public:
  HttpBundle(std::shared_ptr<const Client> client, Url base) : client_(std::move(client)), base_(std::move(base)) {}
  Result<SourcePtr> open(std::string_view name) const override {
    STELE_TRY(v0::detail::check_name(name));
    Place place{client_, nullptr, base_, {}, {}};
    place.url.path += percent_encoded(name, true);
    place.name = place.url.shown();
    Url folder = place.url;
    folder.path.erase(folder.path.rfind('/') + 1);
    place.bundle = [client = client_, folder] { return http_bundle(client, folder); };
    return open_file(std::move(place));
  }
  Result<std::unique_ptr<Sink>> create(std::string_view) override { return read_only(); }
  Result<bool> contains(std::string_view name) const override {
    auto found = open(name);
    if (found) return true;
    if (found.error().code() == Errc::not_found) return false;
    return std::move(found).error();
  }
  Result<std::vector<std::string>> names() const override {
    return Error(Errc::unsupported, "the files of a folder cannot be listed over http")
        .file(base_.shown())
        .hint("name a file");
  }
  void remove(std::string_view) noexcept override {}

 private:
  Error read_only() const { return Error(Errc::unsupported, "nothing can be saved over http").file(base_.shown()); }
  std::shared_ptr<const Client> client_;
  Url base_;
};

}  // namespace

Result<SourcePtr> open_file(Place place, Answer* first) {
  const Options& options = place.client->options();
  Head head(place.name, options.whole_file);
  Url reached;
  Client::Call call;
  call.request.url = place.url;
  call.request.range = ByteRange{0, head_bytes};
  call.account = place.account.get();
  call.receiver = &head;
  call.reached = &reached;
  call.tries = place.tries;
  call.accepted = {416};  // an empty file
  STELE_TRY_ASSIGN(Answer answer, place.client->run(std::move(call)));
  if (answer.status == 416) {
    const auto range = parse_content_range(answer.header("content-range"));
    Request request;
    request.url = place.url;
    request.range = ByteRange{0, head_bytes};
    if (range ? range->total != 0 : xml_text(answer.text, "Code") != "InvalidRange") return error_of(request, answer);
  }
  ReadAheadOptions ahead = options.read_ahead;
  if (ahead.latency == 0) ahead.latency = answer.latency;
  if (first != nullptr) *first = std::move(answer);
  Bytes bytes(head.bytes.size());
  if (!head.bytes.empty()) std::memcpy(bytes.data(), head.bytes.data(), head.bytes.size());
  if (head.total == bytes.size()) return SourcePtr(std::make_shared<Whole>(std::move(bytes), std::move(place)));
  // The whole URL, as its query may choose the file.
  const std::string identity = place.url.text() + "\n" + head.version + "\n" + std::to_string(head.total);
  const bool keep = head.is_strong;
  SourcePtr file =
      std::make_shared<HttpFile>(std::move(place), head.total, std::move(head.version), std::move(reached));
  if (keep) file = cached(std::move(file), identity, options);
  return v0::read_ahead(std::move(file), ahead, std::move(bytes));
}

std::shared_ptr<const Bundle> http_bundle(std::shared_ptr<const Client> client, Url base) {
  return std::make_shared<HttpBundle>(std::move(client), std::move(base));
}

}  // namespace stele::inline v0::remote
