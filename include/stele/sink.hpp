// Sink: the output of a save. A file that is replaced in one step, growing memory, the caller's span, or a
// std::ostream.
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

namespace stele::inline v0 {

class Bundle;  // stele/bundle.hpp
class Source;  // stele/source.hpp

/// A stream of bytes, written forward except by patch(). Not thread-safe. The bytes are saved only after commit()
/// succeeds.
class STELE_EXPORT Sink {
 public:
  virtual ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  /// Announces the total number of bytes, before the first write. Memory is then allocated once; a span that is too
  /// small is refused (no_space; found() contains the required size), as is a full disk (io). Only a hint: fewer or
  /// more bytes may follow.
  virtual Status reserve(std::uint64_t total);
  /// Appends the pieces in order. Errors: io, no_space, out_of_memory.
  virtual Status write(std::span<const std::span<const std::byte>> pieces) = 0;
  Status write(std::span<const std::byte> piece) {
    return write(std::span<const std::span<const std::byte>>(&piece, 1));
  }
  /// Appends `size` bytes of a source. The operating system copies them from file to file; if the file system supports
  /// it, both files then share them. Errors: those of write() and Source::read_at.
  virtual Status copy(const Source& from, std::uint64_t offset, std::uint64_t size);
  /// Returns true if patch() can be called.
  virtual bool can_patch() const noexcept { return false; }
  /// Replaces bytes that are already written. Errors: io.
  virtual Status patch(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Makes the bytes durable and visible. Without it, the sink's destructor discards them if possible.
  virtual Status commit();
  /// Returns the bundle for creating files that belong to this file; nullptr if there is none.
  virtual std::shared_ptr<Bundle> bundle() const { return nullptr; }
  /// Returns true for a folder, which accepts no bytes, only the files of bundle().
  virtual bool is_folder() const noexcept { return false; }
  const std::string& name() const noexcept { return name_; }
  /// Identifies a class of the library that is looked for without RTTI; nullptr for all others.
  virtual const void* kind() const noexcept { return nullptr; }

  /// Registers a new file of bundle(), such as a shard. A failed save removes it if it is `new_file`.
  /// The index of the shards, which is this file, is named before the shards if it is new.
  void add_part(std::string name, bool new_file = true) { parts_.push_back({std::move(name), new_file}); }
  /// Returns the files that were named, but not this one.
  std::vector<std::string> parts() const;
  /// Removes the parts after a failed save, if possible; keeps the shards if an index of them may exist. `committing`:
  /// commit() has failed, so this file may already be in place.
  void remove_parts(bool committing) noexcept;

 protected:
  explicit Sink(std::string name) : name_(std::move(name)) {}

 private:
  struct Part {
    std::string name;
    bool new_file;
  };
  std::string name_;
  std::vector<Part> parts_;
};

/// The failures that a finished save survives (design: files).
enum class Durability : std::uint8_t {
  full,     // a power loss: data and folder are synced
  process,  // a crash of the process: the file is renamed into place, and the operating system writes it out later
};

struct FileSinkOptions {
  Durability durability = Durability::full;
  /// Replaces an existing set of files file by file: a concurrent reader, or a reader after a crash, may find a mix of
  /// old and new files. If false, an existing set is an error (exists). A single file is always replaced in one step.
  bool allow_nonatomic = false;
  /// If false, an existing target is an error (exists) instead of being replaced.
  bool overwrite = true;
};

/// Replaces a file in one step: writes a temporary file next to it (created exclusively, named after the file and this
/// process), which commit() renames over the file. Keeps an existing file's permissions (owner, group and access list
/// if permitted). A symbolic link is kept, and its target is replaced; a FIFO or device is written directly. Without
/// commit(), the temporary is removed. Also removes temporaries that killed processes left for this path. Errors: io
/// (also for an existing file that is not writable), not_found (the folder does not exist), invalid_argument (an empty
/// path, a folder, a zero byte), exists (FileSinkOptions::overwrite).
STELE_EXPORT Result<std::unique_ptr<Sink>> file_sink(const std::string& path, FileSinkOptions options = {});

/// Memory that reserve() allocates and that grows if more bytes follow.
class STELE_EXPORT BufferSink final : public Sink {
 public:
  BufferSink() : Sink("memory") {}
  Status reserve(std::uint64_t total) override;
  Status write(std::span<const std::span<const std::byte>> pieces) override;
  bool can_patch() const noexcept override { return true; }
  Status patch(std::uint64_t offset, std::span<const std::byte> bytes) override;
  using Sink::write;
  /// Returns the bytes written, as one block, and empties the sink.
  Bytes take() noexcept;

 private:
  Bytes bytes_;
  std::size_t used_ = 0;
};

/// The caller's memory, of fixed size. A write that does not fit is refused as a whole: no byte is written past the
/// end.
class STELE_EXPORT SpanSink final : public Sink {
 public:
  explicit SpanSink(std::span<std::byte> memory) : Sink("span"), memory_(memory) {}
  Status reserve(std::uint64_t total) override;
  Status write(std::span<const std::span<const std::byte>> pieces) override;
  bool can_patch() const noexcept override { return true; }
  Status patch(std::uint64_t offset, std::span<const std::byte> bytes) override;
  using Sink::write;
  /// Returns the number of bytes written so far.
  std::size_t size() const noexcept { return used_; }

 private:
  std::span<std::byte> memory_;
  std::size_t used_ = 0;
};

/// The caller's std::ostream, which must outlive the sink.
class STELE_EXPORT StreamSink final : public Sink {
 public:
  explicit StreamSink(std::ostream& stream) : Sink("stream"), stream_(&stream) {}
  Status write(std::span<const std::span<const std::byte>> pieces) override;
  using Sink::write;
  Status commit() override;

 private:
  std::ostream* stream_;
};

}  // namespace stele::inline v0
