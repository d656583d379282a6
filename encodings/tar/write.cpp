// The writer: headers, padding, the end of the archive.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "blocks.hpp"
#include "encodings/gzip/gzip.hpp"
#include "io/gather.hpp"
#include "io/os/os.hpp"
#include "tar.hpp"

namespace stele::inline v0::detail::tar {
namespace {

constexpr std::uint64_t max_octal = (std::uint64_t{1} << 33) - 1;  // eleven digits

class Out {
 public:
  virtual ~Out() = default;
  virtual Status write(std::span<const std::byte> bytes) = 0;
  /// Copies bytes of a source. Returns nullopt if the caller must read and write them.
  virtual std::optional<Status> copy(const Source&, std::uint64_t, std::uint64_t) { return std::nullopt; }
  virtual Status finish() = 0;
};

class PlainOut final : public Out {
 public:
  explicit PlainOut(Sink& sink) : gather_(sink) {}
  Status write(std::span<const std::byte> bytes) override { return gather_.write(bytes); }
  std::optional<Status> copy(const Source& from, std::uint64_t offset, std::uint64_t size) override {
    return gather_.copy(from, offset, size);
  }
  Status finish() override { return gather_.flush(); }

 private:
  Gather gather_;
};

class GzipOut final : public Out {
 public:
  explicit GzipOut(Sink& sink) : sink_(sink, 6) {}
  Status write(std::span<const std::byte> bytes) override { return sink_.write(bytes); }
  Status finish() override { return sink_.finish(); }

 private:
  gzip::GzipSink sink_;
};

class Header {
 public:
  Header(std::string_view prefix, std::string_view name, std::uint64_t size, char type) {
    put(name_field, name);
    put(mode_field, std::uint64_t{0644});
    for (const Field f : {uid_field, gid_field, time_field, major_field, minor_field}) put(f, std::uint64_t{0});
    put(size_field, size);
    put(type_field, std::string_view(&type, 1));
    put(magic_field, posix_magic);
    put(prefix_field, prefix);
    put(sum_field, "        ");
    std::uint64_t sum = 0;
    for (const std::byte b : bytes_) sum += std::to_integer<unsigned>(b);
    put({sum_field.at, sum_field.size - 1}, sum);  // six digits, a NUL, and the blank that is already in the field
  }
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  void put(Field f, std::string_view text) noexcept {
    const auto bytes = std::as_bytes(std::span(text));
    std::copy(bytes.begin(), bytes.end(), bytes_ + f.at);
  }
  /// Writes octal digits and a NUL. The number must fit.
  void put(Field f, std::uint64_t number) noexcept {
    bytes_[f.at + f.size - 1] = std::byte{0};
    for (std::size_t i = f.size - 1; i-- != 0; number >>= 3)
      bytes_[f.at + i] = static_cast<std::byte>('0' + number % 8);
  }
  std::byte bytes_[block_size]{};
};

/// Splits a name into prefix and name. Returns nullopt if it does not fit, or if an archive that begins with this file
/// would look like gzip.
std::optional<std::pair<std::string_view, std::string_view>> divided(std::string_view name) {
  std::string_view prefix, rest = name;
  if (name.size() > name_field.size) {
    const std::size_t slash = name.find('/', name.size() - name_field.size - 1);
    if (slash > prefix_field.size) return std::nullopt;  // also for npos
    prefix = name.substr(0, slash);
    rest = name.substr(slash + 1);
  }
  if (gzip::is_gzip(std::as_bytes(std::span(rest)))) return std::nullopt;
  return std::pair(prefix, rest);
}

/// Returns a record of a pax header. Its length counts the length's own digits.
std::string record(std::string_view key, std::string_view value) {
  const std::size_t rest = key.size() + value.size() + 3;
  std::size_t length = rest;
  while (length != rest + std::to_string(length).size()) length = rest + std::to_string(length).size();
  return std::to_string(length) + ' ' + std::string(key) + '=' + std::string(value) + '\n';
}

Error invalid(const char* why) { return Error(Errc::invalid_argument, why); }

}  // namespace

class Writer::State {
 public:
  State(Sink& sink, bool gzip) : name_(sink.name()) {
    if (gzip) {
      out_ = std::make_unique<GzipOut>(sink);
    } else {
      out_ = std::make_unique<PlainOut>(sink);
    }
  }
  const std::string& name() const noexcept { return name_; }

  Status create(std::string_view name) {
    if (const char* why = bad_name(name)) return invalid(why).file(name_).path(std::string(name));
    STELE_TRY(ready());
    if (names_.contains(name))
      return invalid("the archive already contains the file").file(name_).path(std::string(name));
    if (is_folder(name))
      return invalid("the path is a folder of the archive, not a file").file(name_).path(std::string(name));
    for (std::size_t slash = name.find('/'); slash != name.npos; slash = name.find('/', slash + 1)) {
      if (!names_.contains(name.substr(0, slash))) continue;
      return Error(Errc::not_found, "a folder of the path is a file in the archive")
          .file(name_)
          .path(std::string(name));
    }
    names_.emplace(name);
    open_ = true;
    return {};
  }
  bool contains(std::string_view name) const { return names_.contains(name) || is_folder(name); }
  std::vector<std::string> names(std::string_view prefix) const {
    std::vector<std::string> found;
    for (auto at = names_.lower_bound(prefix); at != names_.end() && at->starts_with(prefix); ++at) {
      found.push_back(at->substr(prefix.size()));
    }
    return found;
  }

  Status header(std::string_view name, std::uint64_t size) {
    return kept([&]() -> Status {
      const auto parts = divided(name);
      const bool fits = size <= max_octal;
      if (!parts || !fits) {
        std::string more;
        if (!parts) more += record("path", name);
        if (!fits) more += record("size", std::to_string(size));
        STELE_TRY(out_->write(Header("", "././@PaxHeader", more.size(), 'x').bytes()));
        STELE_TRY(out_->write(std::as_bytes(std::span(more))));
        STELE_TRY(pad(more.size()));
      }
      // For programs without pax support: the end of the name, without a leading slash.
      std::string_view end = name.substr(name.size() - std::min(name.size(), name_field.size));
      end.remove_prefix(std::min(end.find_first_not_of('/'), end.size()));
      const auto [prefix, rest] = parts.value_or(std::pair(std::string_view(), end));
      return out_->write(Header(prefix, rest, fits ? size : 0, '0').bytes());
    });
  }
  Status write(std::span<const std::span<const std::byte>> pieces) {
    return kept([&]() -> Status {
      for (const auto piece : pieces) STELE_TRY(out_->write(piece));
      return {};
    });
  }
  /// Copies bytes of a source. Returns nullopt if the caller must read and write them.
  std::optional<Status> copy(const Source& from, std::uint64_t offset, std::uint64_t size) {
    std::optional<Status> done;
    auto status = kept([&]() -> Status {
      done = out_->copy(from, offset, size);
      return done ? std::move(*done) : Status();
    });
    if (done) done = std::move(status);
    return done;
  }
  Status end_file(std::uint64_t size) {
    STELE_TRY(kept([&] { return pad(size); }));
    open_ = false;
    return {};
  }
  /// Abandons a file. The archive is unchanged if the file's header was not written.
  void give_up(const std::string& name, bool begun) noexcept {
    open_ = false;
    if (!begun) names_.erase(name);
    if (begun) unfinished_ = true;
  }

  Status finish() {
    STELE_TRY(ready());
    finished_ = true;
    return kept([&]() -> Status {
      static constexpr std::byte end[2 * block_size]{};
      STELE_TRY(out_->write(end));
      return out_->finish();
    });
  }

 private:
  bool is_folder(std::string_view name) const {
    const std::string inside = std::string(name) + '/';
    const auto at = names_.lower_bound(inside);
    return at != names_.end() && at->starts_with(inside);
  }
  Status ready() const {
    if (failed_) return Error(*failed_);
    if (finished_) return invalid("the archive is already finished").file(name_);
    if (unfinished_) return invalid("a file of the archive was not committed").file(name_);
    if (open_) return invalid("another file of the archive is not yet committed").file(name_);
    return {};
  }
  /// Runs `f`. After an error, every call returns that error.
  template <class F>
  Status kept(F f) {
    if (failed_) return Error(*failed_);
    auto status = guarded(name_, f);
    if (!status) failed_ = status.error();
    return status;
  }
  Status pad(std::uint64_t size) {
    static constexpr std::byte zeros[block_size]{};
    return out_->write(std::span(zeros).first(static_cast<std::size_t>(padding(size))));
  }

  std::string name_;
  std::unique_ptr<Out> out_;
  std::set<std::string, std::less<>> names_;
  std::optional<Error> failed_;
  bool open_ = false, unfinished_ = false, finished_ = false;
};

/// A folder of the archive.
class Writer::Folder final : public Bundle {
 public:
  Folder(std::shared_ptr<Writer> writer, std::string prefix) : writer_(std::move(writer)), prefix_(std::move(prefix)) {}
  Result<SourcePtr> open(std::string_view name) const override { return writer_->open(full(name)); }
  Result<std::unique_ptr<Sink>> create(std::string_view name) override { return writer_->create(full(name)); }
  Result<bool> contains(std::string_view name) const override { return writer_->contains(full(name)); }
  void remove(std::string_view) noexcept override {}
  Result<std::vector<std::string>> names() const override {
    return guarded(prefix_, [&]() -> Result<std::vector<std::string>> { return writer_->state_->names(prefix_); });
  }

 private:
  std::string full(std::string_view name) const { return prefix_ + std::string(name); }

  std::shared_ptr<Writer> writer_;
  std::string prefix_;
};

class Writer::File final : public Sink {
 public:
  File(const std::string& name, std::shared_ptr<State> state, std::weak_ptr<Writer> writer)
      : Sink(state->name() + '/' + name), state_(std::move(state)), writer_(std::move(writer)), path_(name) {}
  ~File() override {
    if (!ended_) state_->give_up(path_, reserved_);
  }

  Status reserve(std::uint64_t total) override {
    if (reserved_) return error("reserve() was called twice");
    if (total > ~std::uint64_t{0} >> 1) return error("the file size exceeds 2^63 - 1 bytes");
    reserved_ = true;
    left_ = size_ = total;
    return state_->header(path_, total);
  }
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    std::uint64_t size = 0;
    for (const auto piece : pieces) size += piece.size();
    STELE_TRY(take(size));
    return state_->write(pieces);
  }
  using Sink::write;
  Status copy(const Source& from, std::uint64_t offset, std::uint64_t size) override {
    STELE_TRY(take(size));
    if (auto done = state_->copy(from, offset, size)) return *std::move(done);
    left_ += size;  // write() subtracts them again
    return Sink::copy(from, offset, size);
  }
  Status commit() override {
    if (ended_) return error("commit() was called twice");
    if (!reserved_) STELE_TRY(reserve(0));
    if (left_ != 0) return wrong(size_ - left_);
    STELE_TRY(state_->end_file(size_));
    ended_ = true;
    return {};
  }
  std::shared_ptr<Bundle> bundle() const override {
    auto writer = writer_.lock();
    const std::size_t folder = path_.size() - file_name(path_).size();
    if (writer == nullptr || folder == 0) return writer;
    return std::make_shared<Folder>(std::move(writer), path_.substr(0, folder));
  }

 private:
  Error error(const char* why) const { return invalid(why).file(name()); }
  Error wrong(std::uint64_t found) const {
    return error("the file's size differs from the reserved size")
        .expected(std::to_string(size_) + " bytes")
        .found(std::to_string(found));
  }
  Status take(std::uint64_t size) {
    if (ended_) return error("the file is already committed");
    if (!reserved_)
      return error("write() was called before reserve()").hint("call reserve() with the size of the file first");
    if (size > left_) return wrong(size_ - left_ + size);
    left_ -= size;
    return {};
  }

  std::shared_ptr<State> state_;
  std::weak_ptr<Writer> writer_;
  std::string path_;
  std::uint64_t size_ = 0, left_ = 0;
  bool reserved_ = false, ended_ = false;
};

Writer::Writer(Sink& sink, bool gzip) : state_(std::make_shared<State>(sink, gzip)) {}

Writer::~Writer() = default;

Result<SourcePtr> Writer::open(std::string_view name) const {
  return Error(Errc::unsupported, "the tar archive is open for writing and cannot be read")
      .file(state_->name())
      .path(std::string(name));
}

Result<std::unique_ptr<Sink>> Writer::create(std::string_view name) {
  return guarded(state_->name(), [&]() -> Result<std::unique_ptr<Sink>> {
    STELE_TRY(state_->create(name));
    return std::unique_ptr<Sink>(std::make_unique<File>(std::string(name), state_, weak_from_this()));
  });
}

Result<bool> Writer::contains(std::string_view name) const {
  if (const char* why = bad_name(name)) return invalid(why).found(std::string(name));
  return state_->contains(name);
}

void Writer::remove(std::string_view) noexcept {}

Result<std::vector<std::string>> Writer::names() const {
  return guarded(state_->name(), [&]() -> Result<std::vector<std::string>> { return state_->names(""); });
}

Status Writer::finish() { return state_->finish(); }

}  // namespace stele::inline v0::detail::tar
