// Sink: where bytes go to. A file replaced in one step, growing memory, the caller's span, a std::ostream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stele/bytes.hpp"
#include "stele/result.hpp"

namespace stele {
inline namespace v0 {

class Bundle;  // stele/bundle.hpp
class Source;  // stele/source.hpp

/// A stream of bytes, forward but for patch(). Not shared between threads. Nothing counts as saved before commit()
/// succeeded.
class STELE_EXPORT Sink {
 public:
  virtual ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  /// Says how many bytes will come in all, before the first write: memory is sized once, a span that is too small is
  /// refused (no_space; found() says what is needed), and so is a full disk (io). A hint only: fewer or more bytes may
  /// follow.
  virtual Status reserve(std::uint64_t total);
  /// Appends the pieces in order. Errors: io, no_space, out_of_memory.
  virtual Status write(std::span<const std::span<const std::byte>> pieces) = 0;
  Status write(std::span<const std::byte> piece) {
    return write(std::span<const std::span<const std::byte>>(&piece, 1));
  }
  /// Appends `size` bytes of a source. From file to file the system moves them; where the file system can, both then
  /// share them. Errors: as write(), as Source::read_at.
  virtual Status copy(const Source& from, std::uint64_t offset, std::uint64_t size);
  /// Whether patch() can be called.
  virtual bool can_patch() const noexcept { return false; }
  /// Replaces bytes that were written before. Errors: io.
  virtual Status patch(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Makes the bytes lasting and visible. Without it the sink's destructor discards them where that can be done.
  virtual Status commit();
  /// Where files that belong to it are created; nullptr where there is no such place.
  virtual std::shared_ptr<Bundle> bundle() const { return nullptr; }
  /// A folder: it takes no bytes of its own, only the files of bundle().
  virtual bool is_folder() const noexcept { return false; }
  const std::string& name() const noexcept { return name_; }

  /// Names a new file of bundle() that a save which fails removes: a shard, and before it the index, which is this
  /// file, where that is new.
  void add_part(std::string name) { parts_.push_back(std::move(name)); }
  /// Removes the parts after a save that failed, as far as they can be removed; no shards where an index of them may be
  /// there. `committing`: commit() has failed, so this file may be in its place.
  void remove_parts(bool committing) noexcept;

 protected:
  explicit Sink(std::string name) : name_(std::move(name)) {}

 private:
  std::string name_;
  std::vector<std::string> parts_;
};

/// What a finished save survives (design: files).
enum class Durability : std::uint8_t {
  full,     // a power loss: data and folder are synced
  process,  // a crash of the process: the file is renamed into place, the system writes it out when it likes
};

struct FileSinkOptions {
  Durability durability = Durability::full;
  /// A set of files that is there already is replaced file by file: who reads in between, or after a crash, may find
  /// some of either. Without it that is an error (exists). One file alone is always replaced in one step.
  bool allow_nonatomic = false;
  /// False: something that is there already is an error (exists) instead of being replaced.
  bool overwrite = true;
};

/// A file replaced in one step: a temporary beside it (created exclusively, named after it and this process), renamed
/// over it by commit(). An existing file's permissions are kept (owner, group and access list where that may be done);
/// a symbolic link keeps pointing and its target is replaced; a FIFO or device is written through. Without commit the
/// temporary is removed, and so is what killed processes left of saves to the same path. Errors: io (also for an
/// existing file that may not be written to), not_found (no such folder), invalid_argument (an empty path, a folder, a
/// zero byte), exists (FileSinkOptions::overwrite).
STELE_EXPORT Result<std::unique_ptr<Sink>> file_sink(const std::string& path, FileSinkOptions options = {});

/// Memory that is sized by reserve() and grows when more comes.
class STELE_EXPORT BufferSink final : public Sink {
 public:
  BufferSink() : Sink("memory") {}
  Status reserve(std::uint64_t total) override;
  Status write(std::span<const std::span<const std::byte>> pieces) override;
  bool can_patch() const noexcept override { return true; }
  Status patch(std::uint64_t offset, std::span<const std::byte> bytes) override;
  using Sink::write;
  /// What was written, as one block; the sink is empty afterwards.
  Bytes take() noexcept;

 private:
  Bytes bytes_;
  std::size_t used_ = 0;
};

/// The caller's memory of fixed size. Bytes that do not fit are refused whole: nothing is written past the end.
class STELE_EXPORT SpanSink final : public Sink {
 public:
  explicit SpanSink(std::span<std::byte> memory) : Sink("span"), memory_(memory) {}
  Status reserve(std::uint64_t total) override;
  Status write(std::span<const std::span<const std::byte>> pieces) override;
  bool can_patch() const noexcept override { return true; }
  Status patch(std::uint64_t offset, std::span<const std::byte> bytes) override;
  using Sink::write;
  /// Bytes written so far.
  std::size_t size() const noexcept { return used_; }

 private:
  std::span<std::byte> memory_;
  std::size_t used_ = 0;
};

/// A std::ostream of the caller, which must outlive the sink.
class STELE_EXPORT StreamSink final : public Sink {
 public:
  explicit StreamSink(std::ostream& stream) : Sink("stream"), stream_(&stream) {}
  Status write(std::span<const std::span<const std::byte>> pieces) override;
  using Sink::write;
  Status commit() override;

 private:
  std::ostream* stream_;
};

}  // namespace v0
}  // namespace stele
