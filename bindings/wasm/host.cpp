// Sources whose bytes JavaScript reads, in blocks of which a few are kept.
#include "host.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "io/files.hpp"

namespace stele::wasm {

namespace {

using Code = std::int32_t;
constexpr Code not_found = -1;
constexpr Code failed = -2;

}  // namespace

// Each returns a code, or `failed` and keeps the text of the error for error().
extern "C" {
__attribute__((import_module("stele"), import_name("open"))) Code stele_host_open(std::uint32_t group, const char* name,
                                                                                  std::size_t length);
__attribute__((import_module("stele"), import_name("size"))) std::uint64_t stele_host_size(Code file);
__attribute__((import_module("stele"), import_name("read"))) Code stele_host_read(Code file, std::uint64_t offset,
                                                                                  std::size_t length, void* out);
__attribute__((import_module("stele"), import_name("error"))) std::size_t stele_host_error(char* out, std::size_t size);
__attribute__((import_module("stele"), import_name("piece"))) void stele_host_piece(const void* bytes,
                                                                                    std::size_t size);
__attribute__((import_module("stele"), import_name("advance"))) void stele_host_advance(std::uint64_t bytes);
}

namespace {

Error host_error(std::string_view file) {
  std::array<char, 2048> text{};
  const std::size_t size = stele_host_error(text.data(), text.size());
  return Error(Errc::io, std::string(text.data(), std::min(size, text.size()))).file(file);
}

/// A file of the host. Small reads take blocks of 256 KiB, of which 8 MiB are kept: a few tensors, or the ends of a zip
/// file and its directory. Large reads go to their destination.
class HostSource final : public Source {
 public:
  HostSource(std::shared_ptr<const Bundle> bundle, std::string name, Code file)
      : Source(std::move(name)), bundle_(std::move(bundle)), file_(file), size_(stele_host_size(file)) {}

  std::uint64_t size() const noexcept override { return size_; }
  std::shared_ptr<const Bundle> bundle() const override { return bundle_; }

  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size_ || out.size() > size_ - offset) {
      return Error(Errc::truncated, "the range exceeds the file").file(name()).offset(offset);
    }
    if (out.size() >= block_size) return read(offset, out);
    while (!out.empty()) {
      STELE_TRY_ASSIGN(const Block* const block, block_of(offset / block_size));
      const auto begin = static_cast<std::size_t>(offset % block_size);
      const std::size_t n = std::min(out.size(), block->bytes.size() - begin);
      std::memcpy(out.data(), block->bytes.data() + begin, n);
      out = out.subspan(n);
      offset += n;
    }
    return {};
  }

 private:
  static constexpr std::size_t block_size = std::size_t{256} << 10;
  static constexpr std::size_t max_blocks = 32;
  struct Block {
    std::uint64_t number = 0;
    std::uint64_t used = 0;
    std::vector<std::byte> bytes{};
  };

  Status read(std::uint64_t offset, std::span<std::byte> out) const {
    if (stele_host_read(file_, offset, out.size(), out.data()) == 0) return {};
    return host_error(name()).offset(offset);
  }

  Result<const Block*> block_of(std::uint64_t number) const {
    auto found = std::find_if(blocks_.begin(), blocks_.end(), [&](const Block& b) { return b.number == number; });
    if (found == blocks_.end()) {
      Block block{number, 0, {}};
      if (blocks_.size() == max_blocks) {
        found = std::min_element(blocks_.begin(), blocks_.end(),
                                 [](const Block& a, const Block& b) { return a.used < b.used; });
        block.bytes = std::move(found->bytes);
        blocks_.erase(found);
      }
      const std::uint64_t begin = number * block_size;
      block.bytes.resize(static_cast<std::size_t>(std::min<std::uint64_t>(block_size, size_ - begin)));
      STELE_TRY(read(begin, block.bytes));
      blocks_.push_back(std::move(block));
      found = blocks_.end() - 1;
    }
    found->used = ++clock_;
    return &*found;
  }

  std::shared_ptr<const Bundle> bundle_;
  Code file_;
  std::uint64_t size_;
  mutable std::vector<Block> blocks_;
  mutable std::uint64_t clock_ = 0;
};

class HostBundle final : public Bundle, public std::enable_shared_from_this<HostBundle> {
 public:
  HostBundle(std::uint32_t group, bool listed, std::vector<std::string> names)
      : group_(group), listed_(listed), names_(std::move(names)) {
    std::sort(names_.begin(), names_.end());
  }

  Result<SourcePtr> open(std::string_view name) const override {
    STELE_TRY_ASSIGN(const Code file, find(name));
    if (file == not_found) return Error(Errc::not_found, "no such file").file(name);
    return SourcePtr(std::make_shared<HostSource>(shared_from_this(), std::string(name), file));
  }
  Result<std::unique_ptr<Sink>> create(std::string_view name) override { return read_only(name); }
  Result<bool> contains(std::string_view name) const override {
    if (listed_) {
      const auto at = std::lower_bound(names_.begin(), names_.end(), name);
      if (at != names_.end() && *at == name) return true;
      const std::string below = std::string(name) + '/';
      const auto first = std::lower_bound(names_.begin(), names_.end(), below);
      return first != names_.end() && first->starts_with(below);
    }
    STELE_TRY_ASSIGN(const Code file, find(name));
    return file != not_found;
  }
  Result<std::vector<std::string>> names() const override {
    if (listed_) return names_;
    return Error(Errc::unsupported, "a server does not list its files");
  }
  void remove(std::string_view) noexcept override {}

 private:
  static Error read_only(std::string_view name) { return Error(Errc::unsupported, "files are only read").file(name); }

  Result<Code> find(std::string_view name) const {
    STELE_TRY(detail::check_name(name));
    if (listed_ && !std::binary_search(names_.begin(), names_.end(), name)) return not_found;
    const Code file = stele_host_open(group_, name.data(), name.size());
    if (file <= failed) return host_error(name);
    return file;
  }

  std::uint32_t group_;
  bool listed_;
  std::vector<std::string> names_;
};

}  // namespace

std::shared_ptr<Bundle> host_bundle(std::uint32_t group, bool listed, std::vector<std::string> names) {
  return std::make_shared<HostBundle>(group, listed, std::move(names));
}

void host_piece(const void* bytes, std::size_t size) { stele_host_piece(bytes, size); }
void host_advance(std::uint64_t bytes) { stele_host_advance(bytes); }

}  // namespace stele::wasm
