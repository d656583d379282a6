// A cached file is two files, named after the SHA-256 of its identity: .blocks, a sparse file with the blocks at their
// offsets, and .sums, the XXH3-64 of each block (0: the block is missing). A block is written before its sum, and
// compared with it when it is read, so that neither another process nor a power failure can make it wrong: it is read
// again instead.
#include "remote/http/cache.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <vector>

#include "base/hash.hpp"
#include "remote/http/environment.hpp"
#include "remote/http/sha256.hpp"
#include "stele/bundle.hpp"

namespace stele::inline v0::remote {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t block_size = std::uint64_t{64} << 10;

std::uint64_t sum_of(std::span<const std::byte> block) {
  return std::max<std::uint64_t>(v0::detail::hash64(block.data(), block.size()), 1);
}

/// Opens a file for reading and writing, and creates it if it does not exist.
std::fstream open(const fs::path& path) {
  std::ofstream(path, std::ios::binary | std::ios::app).flush();
  return std::fstream(path, std::ios::binary | std::ios::in | std::ios::out);
}

std::vector<std::uint64_t> read_sums(std::istream& file, std::size_t count) {
  std::vector<std::uint64_t> sums(count, 0);
  file.clear();
  file.seekg(0);
  file.read(reinterpret_cast<char*>(sums.data()), static_cast<std::streamsize>(count * sizeof(std::uint64_t)));
  file.clear();
  return sums;
}

std::uint64_t used_by(const fs::path& sums) {
  std::error_code none;
  const std::uint64_t size = fs::file_size(sums, none);
  std::ifstream file(sums, std::ios::binary);
  if (none || !file) return 0;
  const auto all = read_sums(file, static_cast<std::size_t>(size / sizeof(std::uint64_t)));
  return block_size *
         static_cast<std::uint64_t>(all.size() - static_cast<std::size_t>(std::count(all.begin(), all.end(), 0U)));
}

/// Removes the files that were opened least recently, until the remaining files have at most `limit` bytes. Returns
/// their bytes.
std::uint64_t evict(const fs::path& folder, const fs::path& kept, std::uint64_t limit) {
  struct Entry {
    fs::path path;
    fs::file_time_type time;
    std::uint64_t bytes;
  };
  std::vector<Entry> entries;
  std::error_code none;
  std::uint64_t all = 0;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    if (entry.path().extension() != ".sums") continue;
    entries.push_back({entry.path(), entry.last_write_time(none), used_by(entry.path())});
    all += entries.back().bytes;
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.time < b.time; });
  for (const Entry& entry : entries) {
    if (all <= limit) break;
    if (entry.path == kept) continue;
    fs::remove(entry.path, none);  // the sums first: without them, no block is used
    fs::remove(fs::path(entry.path).replace_extension(".blocks"), none);
    all -= entry.bytes;
  }
  return all;
}

class CachedFile final : public Source {
 public:
  CachedFile(SourcePtr file, std::fstream blocks, std::fstream sums, std::uint64_t room)
      : Source(file->name()),
        file_(std::move(file)),
        blocks_(std::move(blocks)),
        sums_file_(std::move(sums)),
        room_(room),
        sums_(read_sums(sums_file_, static_cast<std::size_t>((file_->size() + block_size - 1) / block_size))) {}
  std::uint64_t size() const noexcept override { return file_->size(); }
  std::shared_ptr<const Bundle> bundle() const override { return file_->bundle(); }

  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size() || out.size() > size() - offset) return file_->read_at(offset, out);  // reports it
    return v0::detail::guarded([&]() -> Status {
      Bytes block(static_cast<std::size_t>(block_size));
      for (std::uint64_t at = offset; at < offset + out.size();) {
        const std::uint64_t number = at / block_size;
        if (get(number, block.span())) {
          at += take(block.span(), number * block_size, offset, out);
          continue;
        }
        // All blocks up to the next cached block.
        std::uint64_t end = number + 1;
        while (end * block_size < offset + out.size() && !has(end)) ++end;
        const std::uint64_t begin = number * block_size;
        Bytes run(static_cast<std::size_t>(std::min(end * block_size, size()) - begin));
        STELE_TRY(file_->read_at(begin, run.span()));
        for (std::uint64_t n = number; n < end; ++n) put(n, part(run.span(), n - number));
        at += take(run.span(), begin, offset, out);
      }
      return {};
    });
  }

 private:
  /// Copies the overlap of the range and `bytes`, which start at `begin`. Returns the number of bytes from the later of
  /// the begins on.
  static std::uint64_t take(std::span<const std::byte> bytes, std::uint64_t begin, std::uint64_t offset,
                            std::span<std::byte> out) {
    const std::uint64_t from = std::max(begin, offset), to = std::min(begin + bytes.size(), offset + out.size());
    std::memcpy(out.data() + (from - offset), bytes.data() + (from - begin), static_cast<std::size_t>(to - from));
    return to - from;
  }
  static std::span<const std::byte> part(std::span<const std::byte> run, std::uint64_t number) {
    const auto begin = static_cast<std::size_t>(number * block_size);
    return run.subspan(begin, std::min<std::size_t>(static_cast<std::size_t>(block_size), run.size() - begin));
  }
  std::size_t size_of(std::uint64_t number) const {
    return static_cast<std::size_t>(std::min(block_size, size() - number * block_size));
  }
  bool has(std::uint64_t number) const {
    const std::lock_guard lock(mutex_);
    return sums_[static_cast<std::size_t>(number)] != 0;
  }
  /// Reads a block from the folder. Shortens nothing: a last block has fewer bytes of `out`.
  bool get(std::uint64_t number, std::span<std::byte> out) const {
    const std::lock_guard lock(mutex_);
    std::uint64_t& sum = sums_[static_cast<std::size_t>(number)];
    if (sum == 0) return false;
    const auto bytes = out.first(size_of(number));
    blocks_.clear();
    blocks_.seekg(static_cast<std::streamoff>(number * block_size));
    blocks_.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    const bool good = blocks_.good() && sum_of(bytes) == sum;
    if (!good) sum = 0;
    return good;
  }
  void put(std::uint64_t number, std::span<const std::byte> bytes) const {
    const std::lock_guard lock(mutex_);
    if (room_ < block_size) return;
    blocks_.clear();
    blocks_.seekp(static_cast<std::streamoff>(number * block_size));
    blocks_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size())).flush();
    if (!blocks_.good()) {  // a full disk
      room_ = 0;
      return;
    }
    room_ -= block_size;
    const std::uint64_t sum = sum_of(bytes);
    sums_[static_cast<std::size_t>(number)] = sum;
    sums_file_.clear();
    sums_file_.seekp(static_cast<std::streamoff>(number * sizeof sum));
    sums_file_.write(reinterpret_cast<const char*>(&sum), sizeof sum).flush();
  }

  SourcePtr file_;
  mutable std::mutex mutex_;
  mutable std::fstream blocks_, sums_file_;
  mutable std::uint64_t room_;  // bytes that may still be kept
  mutable std::vector<std::uint64_t> sums_;
};

}  // namespace

SourcePtr cached(SourcePtr file, const std::string& identity, const Options& options) {
  const std::string folder_name = !options.cache_folder.empty() ? options.cache_folder : variable("STELE_CACHE");
  if (folder_name.empty() || options.cache_bytes == 0) return file;
  const fs::path folder(std::u8string(folder_name.begin(), folder_name.end()));
  std::error_code failed;
  if (fs::create_directories(folder, failed))
    fs::permissions(folder, fs::perms::owner_all, failed);  // models may be private
  const fs::path base = folder / sha256_hex(std::as_bytes(std::span(identity)));
  const fs::path sums = fs::path(base).concat(".sums");
  std::fstream sums_file = open(sums), blocks = open(fs::path(base).concat(".blocks"));
  if (!sums_file || !blocks) return file;
  fs::last_write_time(sums, fs::file_time_type::clock::now(), failed);
  const std::uint64_t used = evict(folder, sums, options.cache_bytes);
  const std::uint64_t room = options.cache_bytes - std::min(used, options.cache_bytes);
  return std::make_shared<CachedFile>(std::move(file), std::move(blocks), std::move(sums_file), room);
}

}  // namespace stele::inline v0::remote
