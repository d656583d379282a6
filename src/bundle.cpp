#include "stele/bundle.hpp"

#include "os/os.hpp"

namespace stele {
inline namespace v0 {

Bundle::~Bundle() = default;

std::string_view file_name(std::string_view path) noexcept {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

namespace {

Status check_name(std::string_view name) {
  constexpr std::string_view not_in_names("/\\\0", 3);
  if (!name.empty() && name != "." && name != ".." && name.find_first_of(not_in_names) == name.npos) return {};
  return Error(Errc::invalid_argument, "no plain file name").found(std::string(name));
}

class FolderBundle final : public Bundle {
 public:
  FolderBundle(std::string path, FileSinkOptions options, bool mapped)
      : path_(std::move(path)), options_(options), mapped_(mapped) {}

  Result<SourcePtr> open(std::string_view name) const override {
    STELE_TRY(check_name(name));
    return mapped_ ? map_file(path_of(name)) : open_file(path_of(name));
  }
  Result<std::unique_ptr<Sink>> create(std::string_view name) override {
    STELE_TRY(check_name(name));
    return file_sink(path_of(name), options_);
  }
  Result<bool> contains(std::string_view name) const override {
    STELE_TRY(check_name(name));
    STELE_TRY_ASSIGN(const detail::os::Info info, detail::os::status(path_of(name)));
    return info.kind != detail::os::Kind::missing;
  }
  void remove(std::string_view name) noexcept override {
    static_cast<void>(detail::guarded([&]() -> Status {
      STELE_TRY(check_name(name));
      STELE_TRY_ASSIGN(const auto folder, detail::os::open_folder(path_.empty() ? "." : path_, path_of(name)));
      detail::os::remove(folder, std::string(name));
      return {};
    }));
  }

 private:
  std::string path_of(std::string_view name) const {
    return path_.empty() || path_.ends_with('/') ? path_ + std::string(name) : path_ + '/' + std::string(name);
  }
  std::string path_;
  FileSinkOptions options_;
  bool mapped_;
};

class MemoryBundle final : public Bundle, public std::enable_shared_from_this<MemoryBundle> {
 public:
  Result<SourcePtr> open(std::string_view name) const override {
    STELE_TRY(check_name(name));
    const auto found = files_.find(name);
    if (found == files_.end()) return Error(Errc::not_found, "no such file in the bundle").file(std::string(name));
    return SourcePtr(std::make_shared<File>(std::string(name), found->second, shared_from_this()));
  }
  Result<std::unique_ptr<Sink>> create(std::string_view name) override {
    STELE_TRY(check_name(name));
    return std::unique_ptr<Sink>(std::make_unique<NewFile>(std::string(name), shared_from_this()));
  }
  Result<bool> contains(std::string_view name) const override {
    STELE_TRY(check_name(name));
    return files_.find(name) != files_.end();
  }
  void remove(std::string_view name) noexcept override {
    if (const auto found = files_.find(name); found != files_.end()) files_.erase(found);
  }

 private:
  class File final : public Source {
   public:
    File(std::string name, std::shared_ptr<const Bytes> bytes, std::shared_ptr<const MemoryBundle> bundle)
        : Source(std::move(name)),
          bytes_(std::move(bytes)),
          bundle_(std::move(bundle)),
          inner_(borrow_bytes(*bytes_)) {}
    std::uint64_t size() const noexcept override { return bytes_->size(); }
    Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
      return inner_->read_at(offset, out);
    }
    std::span<const std::byte> view() const noexcept override { return bytes_->span(); }
    std::shared_ptr<const Bundle> bundle() const override { return bundle_; }

   private:
    static SourcePtr borrow_bytes(const Bytes& bytes) { return v0::borrow_bytes(bytes.span()); }
    std::shared_ptr<const Bytes> bytes_;
    std::shared_ptr<const MemoryBundle> bundle_;
    SourcePtr inner_;
  };

  class NewFile final : public Sink {
   public:
    NewFile(std::string name, std::shared_ptr<MemoryBundle> bundle)
        : Sink(std::move(name)), bundle_(std::move(bundle)) {}
    using Sink::write;
    Status reserve(std::uint64_t total) override { return buffer_.reserve(total); }
    Status write(std::span<const std::span<const std::byte>> pieces) override { return buffer_.write(pieces); }
    Status commit() override {
      bundle_->files_.insert_or_assign(name(), std::make_shared<const Bytes>(buffer_.take()));
      return {};
    }
    std::shared_ptr<Bundle> bundle() const override { return bundle_; }

   private:
    BufferSink buffer_;
    std::shared_ptr<MemoryBundle> bundle_;
  };

  std::map<std::string, std::shared_ptr<const Bytes>, std::less<>> files_;
};

}  // namespace

std::shared_ptr<Bundle> folder_bundle(std::string path, FileSinkOptions options, bool mapped) {
  return std::make_shared<FolderBundle>(std::move(path), options, mapped);
}

std::shared_ptr<Bundle> memory_bundle() { return std::make_shared<MemoryBundle>(); }

}  // namespace v0
}  // namespace stele
