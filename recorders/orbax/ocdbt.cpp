// Reads TensorStore's OCDBT, a B+tree of keys in a folder.
#include "ocdbt.hpp"

#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/crc32c.hpp"
#include "base/shortened.hpp"
#include "base/threads.hpp"
#include "base/varint.hpp"
#include "encodings/zstd/contexts.hpp"
#include "stele/bytes.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::ocdbt {
namespace {

using zarr::Stored;

constexpr unsigned char node_magic[] = {0x0c, 0xdb, 0x20, 0xde};
/// Maximum size of a part (64 MiB); TensorStore's default limit of a decoded node is 100 MB, its nodes have 1 MB.
constexpr std::uint64_t max_part_bytes = std::uint64_t{64} << 20;
/// The file number of values in nodes.
constexpr std::uint32_t inline_file = UINT32_MAX;

/// A range of a file.
struct Reference {
  std::uint32_t file = 0;
  std::uint64_t offset = 0, size = 0;
};

class OcdbtStore final : public zarr::Store {
 public:
  OcdbtStore(std::shared_ptr<const Bundle> folder, std::vector<std::string> files, std::vector<std::string> keys,
             std::vector<Reference> values, std::vector<std::byte> inlined, std::string name)
      : Store(std::move(keys), std::move(name)),
        folder_(std::move(folder)),
        files_(std::move(files)),
        values_(std::move(values)),
        inlined_(own_bytes(std::move(inlined), Store::name())) {}

  Result<Stored> open(std::size_t key) const override {
    const Reference& value = values_[key];
    if (value.file == inline_file) return Stored{inlined_, value.offset, value.size};
    STELE_TRY_ASSIGN(SourcePtr file, file_of(value.file));
    if (value.offset > file->size() || value.size > file->size() - value.offset) {
      return Error(Errc::truncated, "the file ends before the value of a key")
          .path(shortened(keys()[key], 200))
          .file(file->name())
          .offset(value.offset)
          .expected(std::to_string(value.size) + " bytes");
    }
    return Stored{std::move(file), value.offset, value.size};
  }

 private:
  Result<SourcePtr> file_of(std::uint32_t number) const {
    constexpr std::size_t max_open = 64;  // a process has a limited number of open files
    {
      const Lock lock(mutex_);
      if (const auto known = open_.find(number); known != open_.end()) return known->second;
    }
    STELE_TRY_ASSIGN(SourcePtr file, folder_->open(files_[number]));
    const Lock lock(mutex_);
    if (open_.size() < max_open) open_.emplace(number, file);
    return file;
  }

  std::shared_ptr<const Bundle> folder_;
  std::vector<std::string> files_;
  std::vector<Reference> values_;
  SourcePtr inlined_;
  mutable Mutex mutex_;
  mutable std::map<std::uint32_t, SourcePtr> open_;
};

/// The decoded body of a part.
class Body {
 public:
  Body(std::vector<std::byte> bytes, std::string file, std::uint64_t offset)
      : bytes_(std::move(bytes)), file_(std::move(file)), offset_(offset) {}

  Error wrong(std::string_view what) const {
    return Error(Errc::malformed, "an OCDBT part is malformed").file(file_).offset(offset_).found(std::string(what));
  }
  std::size_t left() const noexcept { return bytes_.size() - at_; }
  Result<std::span<const std::byte>> take(std::uint64_t n) {
    if (n > left()) return wrong("an early end");
    const auto taken = std::span<const std::byte>(bytes_).subspan(at_, static_cast<std::size_t>(n));
    at_ += taken.size();
    return taken;
  }
  Result<std::uint64_t> varint() {
    std::uint64_t value = 0;
    auto rest = std::span<const std::byte>(bytes_).subspan(at_);
    if (!take_varint(rest, value)) return wrong(rest.size() < max_varint ? "an early end" : "a number above 64 bits");
    at_ = bytes_.size() - rest.size();
    return value;
  }
  /// Reads a column of `n` numbers, each of which takes at least one byte.
  Result<std::vector<std::uint64_t>> column(std::uint64_t n) {
    if (n > left()) return wrong("more entries than bytes");
    std::vector<std::uint64_t> numbers(static_cast<std::size_t>(n));
    for (std::uint64_t& number : numbers) {
      STELE_TRY_ASSIGN(number, varint());
    }
    return numbers;
  }

 private:
  std::vector<std::byte> bytes_;
  std::string file_;
  std::uint64_t offset_;
  std::size_t at_ = 0;
};

class TreeReader {
 public:
  TreeReader(std::shared_ptr<const Bundle> folder, std::string prefix, std::string name, IndexBudget& memory)
      : folder_(std::move(folder)), prefix_(std::move(prefix)), name_(std::move(name)), memory_(memory) {}

  Result<std::shared_ptr<const zarr::Store>> run() {
    STELE_TRY_ASSIGN(auto within, folder_->beneath());
    if (within != nullptr) folder_ = std::move(within);
    const std::string manifest = prefix_ + std::string(manifest_name);
    STELE_TRY_ASSIGN(const SourcePtr source, folder_->open(manifest));
    STELE_TRY_ASSIGN(Body body, part({source, 0, source->size()}, manifest_magic));
    STELE_TRY(read_manifest(body));
    while (!open_.empty()) {
      const Subtree next = std::move(open_.back());
      open_.pop_back();
      STELE_TRY(read_node(next));
    }
    return std::shared_ptr<const zarr::Store>(
        std::make_shared<const OcdbtStore>(std::move(folder_), std::move(files_), std::move(keys_), std::move(values_),
                                           std::move(inlined_), std::move(name_)));
  }

 private:
  /// A node that is not read yet. `prefix`: the common beginning of its keys.
  struct Subtree {
    Reference at;
    unsigned height;
    std::string prefix;
  };
  /// Memory of a key in bytes: its string and its reference in growing arrays.
  static constexpr std::uint64_t key_memory = 3 * (sizeof(std::string) + sizeof(Reference)) + 32;
  /// Memory of a node in bytes: its entries in open_ and visited_.
  static constexpr std::uint64_t node_memory = 3 * sizeof(Subtree) + 128;

  Status take(std::uint64_t bytes) {
    if (memory_.take(bytes)) return {};
    return index_error("the keys of an OCDBT need more memory than the size of its files allows").file(name_);
  }

  /// Reads, checks and decompresses a part.
  Result<Body> part(const Stored& stored, std::span<const unsigned char, 4> magic) {
    constexpr std::uint64_t head = 4 + 8 + 2, tail = 4;
    const std::string& file = stored.source->name();
    const auto wrong = [&](Errc code, const char* what) { return Error(code, what).file(file).offset(stored.offset); };
    if (stored.size < head + tail) return wrong(Errc::truncated, "an OCDBT part is too short");
    if (stored.size > max_part_bytes) return wrong(Errc::limit, "an OCDBT part has more than 64 MiB");
    memory_.admit(stored.size, index_rate::file);
    STELE_TRY(take(stored.size));
    Bytes bytes(static_cast<std::size_t>(stored.size));
    STELE_TRY(stored.source->read_at(stored.offset, bytes.span()));
    if (std::memcmp(bytes.data(), magic.data(), magic.size()) != 0) {
      return wrong(Errc::bad_magic, "an OCDBT part has another magic number");
    }
    if (load_le<std::uint64_t>(bytes.data() + 4) != stored.size) {
      return wrong(Errc::malformed, "an OCDBT part has another size than it states");
    }
    const std::size_t content = bytes.size() - tail;
    if (crc32c(0, bytes.data(), content) != load_le<std::uint32_t>(bytes.data() + content)) {
      return wrong(Errc::checksum, "the CRC-32C of an OCDBT part does not match");
    }
    if (bytes.data()[12] != std::byte{0} || bytes.data()[13] > std::byte{1}) {
      return wrong(Errc::unsupported, "an OCDBT part has an unknown version or compression");
    }
    const std::span<const std::byte> body = bytes.span().subspan(head, content - head);
    if (bytes.data()[13] == std::byte{0}) return Body({body.begin(), body.end()}, file, stored.offset);
    memory_.admit(stored.size, index_rate::compressed);
    STELE_TRY_ASSIGN(auto decoded, decompress(body, wrong(Errc::malformed, "an OCDBT part is damaged")));
    return Body(std::move(decoded), file, stored.offset);
  }

  Result<std::vector<std::byte>> decompress(std::span<const std::byte> from, Error damaged) {
    const zstd::Decompressor context = zstd::new_decompressor();
    std::vector<std::byte> out(std::min<std::uint64_t>(4 * from.size() + 1024, max_part_bytes));
    ZSTD_inBuffer in{from.data(), from.size(), 0};
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    for (std::size_t left = 1; left != 0;) {
      left = ZSTD_decompressStream(context.get(), &to, &in);
      if (ZSTD_isError(left) != 0) return std::move(damaged).found(ZSTD_getErrorName(left));
      if (left == 0 || to.pos < to.size) {
        if (left != 0 && in.pos == in.size) return std::move(damaged).found("an early end");
        continue;
      }
      if (out.size() >= max_part_bytes || !memory_.take(out.size())) {
        return index_error("an OCDBT part decompresses to too many bytes").file(name_);
      }
      out.resize(2 * out.size());
      to = {out.data(), out.size(), to.pos};
    }
    if (in.pos != in.size) return std::move(damaged).found("bytes after the compressed data");
    out.resize(to.pos);
    return out;
  }

  /// Reads a data file table. Returns the files' numbers. `base`: the folder to which its paths are relative.
  Result<std::vector<std::uint32_t>> file_table(Body& body, const std::string& base) {
    STELE_TRY_ASSIGN(const std::uint64_t n, body.varint());
    STELE_TRY_ASSIGN(const auto prefixes, body.column(n == 0 ? 0 : n - 1));
    STELE_TRY_ASSIGN(const auto suffixes, body.column(n));
    STELE_TRY_ASSIGN(const auto bases, body.column(n));
    std::vector<std::uint32_t> numbers;
    std::string path;
    for (std::size_t i = 0; i < suffixes.size(); ++i) {
      const std::uint64_t prefix = i == 0 ? 0 : prefixes[i - 1];
      if (prefix > path.size() || bases[i] > prefix + suffixes[i]) return body.wrong("a malformed path");
      STELE_TRY_ASSIGN(const auto suffix, body.take(suffixes[i]));
      path.resize(static_cast<std::size_t>(prefix));
      path.append(reinterpret_cast<const char*>(suffix.data()), suffix.size());
      constexpr std::size_t max_path_bytes = 4096;  // the operating system's limit
      if (path.size() > max_path_bytes) return body.wrong("a path above 4096 bytes");
      std::pair file(base + path, base.size() + static_cast<std::size_t>(bases[i]));
      if (file.first.size() > max_path_bytes) return body.wrong("a path above 4096 bytes");
      const auto [known, fresh] = file_numbers_.try_emplace(file, static_cast<std::uint32_t>(files_.size()));
      if (fresh) {
        STELE_TRY(take(3 * file.first.size() + 256));
        files_.push_back(prefix_ + file.first);
        bases_.push_back(file.second);
      }
      numbers.push_back(known->second);
    }
    return numbers;
  }

  Status read_manifest(Body& body) {
    STELE_TRY(body.take(16));
    STELE_TRY_ASSIGN(const std::uint64_t kind, body.varint());
    STELE_TRY(body.varint());  // the maximum size of inline values
    STELE_TRY(body.varint());  // the maximum size of nodes
    STELE_TRY(body.take(1));   // the arity of the tree of versions
    STELE_TRY_ASSIGN(const std::uint64_t compression, body.varint());
    if (compression == 1) STELE_TRY(body.take(4));
    if (kind != 0 || compression > 1) {
      return Error(Errc::unsupported, "stele does not read this kind of OCDBT manifest")
          .file(name_)
          .expected("a single manifest, without compression or with zstd")
          .found(kind != 0 ? "numbered manifests" : "another compression");
    }
    STELE_TRY_ASSIGN(const auto files, file_table(body, {}));
    STELE_TRY_ASSIGN(const std::uint64_t n, body.varint());
    if (n == 0) return body.wrong("no version");
    STELE_TRY(body.column(n));  // generations
    STELE_TRY_ASSIGN(const auto heights, body.take(n));
    STELE_TRY_ASSIGN(const auto file, body.column(n));
    STELE_TRY_ASSIGN(const auto offsets, body.column(n));
    STELE_TRY_ASSIGN(const auto lengths, body.column(n));
    const auto last = static_cast<std::size_t>(n - 1);
    if (lengths[last] == 0) return {};  // no keys
    if (file[last] >= files.size()) return body.wrong("a file outside the table");
    return add({files[static_cast<std::size_t>(file[last])], offsets[last], lengths[last]},
               std::to_integer<unsigned>(heights[last]), {}, body);
  }

  Status add(const Reference& at, unsigned height, std::string prefix, const Body& body) {
    if (!visited_.emplace(at.file, at.offset).second) return body.wrong("a node with two parents");
    STELE_TRY(take(node_memory + prefix.size()));
    open_.push_back({at, height, std::move(prefix)});
    return {};
  }

  Status read_node(const Subtree& node) {
    STELE_TRY_ASSIGN(const SourcePtr source, folder_->open(files_[node.at.file]));
    if (node.at.offset > source->size() || node.at.size > source->size() - node.at.offset) {
      return Error(Errc::truncated, "the file ends before a node")
          .file(source->name())
          .offset(node.at.offset)
          .expected(std::to_string(node.at.size) + " bytes");
    }
    STELE_TRY_ASSIGN(Body body, part({source, node.at.offset, node.at.size}, node_magic));
    STELE_TRY_ASSIGN(const auto height, body.take(1));
    if (std::to_integer<unsigned>(height[0]) != node.height) return body.wrong("another height than in its parent");
    const std::string base = files_[node.at.file].substr(prefix_.size(), bases_[node.at.file]);
    STELE_TRY_ASSIGN(const auto files, file_table(body, base));
    STELE_TRY_ASSIGN(const std::uint64_t n, body.varint());
    if (n == 0) return body.wrong("a node without entries");
    STELE_TRY_ASSIGN(const auto prefixes, body.column(n - 1));
    STELE_TRY_ASSIGN(const auto suffixes, body.column(n));
    std::vector<std::uint64_t> common;
    if (node.height != 0) {
      STELE_TRY_ASSIGN(common, body.column(n));
    }
    std::vector<std::string> keys;
    std::string key;
    for (std::size_t i = 0; i < suffixes.size(); ++i) {
      const std::uint64_t prefix = i == 0 ? 0 : prefixes[i - 1];
      if (prefix > key.size()) return body.wrong("a malformed key");
      STELE_TRY_ASSIGN(const auto suffix, body.take(suffixes[i]));
      key.resize(static_cast<std::size_t>(prefix));
      key.append(reinterpret_cast<const char*>(suffix.data()), suffix.size());
      STELE_TRY(take(key_memory + 2 * (key.size() + node.prefix.size())));
      keys.push_back(node.prefix + key);
    }
    return node.height != 0 ? read_children(node, body, files, std::move(keys), common)
                            : read_values(body, files, std::move(keys));
  }

  Status read_values(Body& body, std::span<const std::uint32_t> files, std::vector<std::string> keys) {
    const std::uint64_t n = keys.size();
    STELE_TRY_ASSIGN(const auto sizes, body.column(n));
    STELE_TRY_ASSIGN(const auto kinds, body.take(n));
    const auto outside = static_cast<std::uint64_t>(std::count(kinds.begin(), kinds.end(), std::byte{1}));
    STELE_TRY_ASSIGN(const auto file, body.column(outside));
    STELE_TRY_ASSIGN(const auto offsets, body.column(outside));
    std::size_t next = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (!keys_.empty() && keys[i] <= keys_.back()) return body.wrong("keys that are not sorted");
      Reference value{inline_file, inlined_.size(), sizes[i]};
      if (kinds[i] == std::byte{1}) {
        if (file[next] >= files.size()) return body.wrong("a file outside the table");
        value.file = files[static_cast<std::size_t>(file[next])];
        value.offset = offsets[next++];
      } else if (kinds[i] != std::byte{0}) {
        return body.wrong("an unknown kind of value");
      } else {
        STELE_TRY_ASSIGN(const auto bytes, body.take(sizes[i]));
        STELE_TRY(take(3 * sizes[i]));
        inlined_.insert(inlined_.end(), bytes.begin(), bytes.end());
      }
      keys_.push_back(std::move(keys[i]));
      values_.push_back(value);
    }
    return body.left() == 0 ? Status() : Status(body.wrong("bytes after the entries"));
  }

  Status read_children(const Subtree& node, Body& body, std::span<const std::uint32_t> files,
                       std::vector<std::string> keys, std::span<const std::uint64_t> common) {
    const std::uint64_t n = keys.size();
    STELE_TRY_ASSIGN(const auto file, body.column(n));
    STELE_TRY_ASSIGN(const auto offsets, body.column(n));
    STELE_TRY_ASSIGN(const auto lengths, body.column(n));
    // The nodes are read from the back of the list.
    for (std::size_t i = keys.size(); i-- > 0;) {
      if (file[i] >= files.size()) return body.wrong("a file outside the table");
      if (common[i] > keys[i].size() - node.prefix.size()) return body.wrong("a prefix that is longer than its key");
      keys[i].resize(node.prefix.size() + static_cast<std::size_t>(common[i]));
      STELE_TRY(add({files[static_cast<std::size_t>(file[i])], offsets[i], lengths[i]}, node.height - 1,
                    std::move(keys[i]), body));
    }
    return {};
  }

  std::shared_ptr<const Bundle> folder_;
  std::string prefix_, name_;
  IndexBudget& memory_;
  // The files' paths, and the lengths of their base paths: nodes in a file name other files relative to its base path.
  std::map<std::pair<std::string, std::size_t>, std::uint32_t> file_numbers_;
  std::vector<std::string> files_;
  std::vector<std::size_t> bases_;
  std::vector<Subtree> open_;
  std::set<std::pair<std::uint32_t, std::uint64_t>> visited_;
  std::vector<std::string> keys_;
  std::vector<Reference> values_;
  std::vector<std::byte> inlined_;
};

}  // namespace

Result<std::shared_ptr<const zarr::Store>> open(const std::shared_ptr<const Bundle>& folder, std::string_view prefix,
                                                std::string name, IndexBudget& memory) {
  return TreeReader(folder, std::string(prefix), std::move(name), memory).run();
}

}  // namespace stele::inline v0::detail::ocdbt
