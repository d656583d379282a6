// Opens text in zstd frames that can be read separately.
#include "text_frames.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/hash.hpp"
#include "base/threads.hpp"
#include "stele/bytes.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::json {
#if STELE_ZSTD
namespace {

// Maximum size of a frame (4 MiB). Files of other programs with larger frames are read as streams.
constexpr std::size_t largest_frame = std::size_t{4} << 20;

/// Decompresses a complete frame into exactly `out`.
Status unpack(ZSTD_DCtx& context, const Source& source, std::uint64_t offset, std::span<const std::byte> from,
              std::span<std::byte> out) {
  const std::size_t n = ZSTD_decompressDCtx(&context, out.data(), out.size(), from.data(), from.size());
  if (ZSTD_isError(n)) return damaged(source, offset, ZSTD_getErrorName(n));
  if (n != out.size()) return damaged(source, offset, "the size of a zstd frame differs from the frame table");
  return {};
}

/// A text in frames that can be read separately.
class FramedText final : public Text {
 public:
  struct Frame {
    std::uint64_t stored;  // offset in the source
    std::uint64_t plain;   // offset in the text
  };

  /// The last of `frames` marks the end. `hashes`: XXH3-64 of each stored frame, or empty.
  FramedText(SourcePtr source, std::vector<Frame> frames, std::vector<std::uint64_t> hashes)
      : source_(std::move(source)), frames_(std::move(frames)), hashes_(std::move(hashes)) {
    for (std::size_t i = 0; i + 1 < frames_.size(); ++i) {
      grain_ = std::max(grain_, static_cast<std::size_t>(frames_[i + 1].plain - frames_[i].plain));
    }
  }
  std::uint64_t size() const noexcept { return frames_.back().plain; }
  std::size_t grain() const noexcept override { return grain_; }

  Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> out) const override {
    const std::uint64_t left = size() - std::min(offset, size());
    out = out.first(static_cast<std::size_t>(std::min<std::uint64_t>(left, out.size())));
    const std::size_t all = out.size();
    auto next = std::upper_bound(frames_.begin(), frames_.end(), offset,
                                 [](std::uint64_t at, const Frame& f) { return at < f.plain; });
    while (!out.empty()) {
      const auto number = static_cast<std::size_t>(next - frames_.begin()) - 1;
      const auto skip = static_cast<std::size_t>(offset - frames_[number].plain);
      const auto length = static_cast<std::size_t>(next->plain - frames_[number].plain);
      const std::size_t n = std::min(out.size(), length - skip);
      if (n == length) {
        STELE_TRY(unpack(number, out.first(n)));
      } else if (n != 0) {
        STELE_TRY_ASSIGN(Kept* const frame, hold(number));
        std::memcpy(out.data(), frame->text.data() + skip, n);
        release(*frame);
      }
      out = out.subspan(n);
      offset += n;
      ++next;
    }
    return all;
  }

 private:
  // Number of decompressed frames to keep: neighbouring leaves share a frame, as do the parts of a large leaf on a few
  // threads.
  static constexpr std::size_t max_kept = 4;
  struct Kept {
    std::size_t number = none;
    unsigned users = 0;
    Bytes text;
  };
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  /// Returns a frame's text, which stays in memory until it is released.
  Result<Kept*> hold(std::size_t number) const {
    Kept* kept = nullptr;
    {
      const Lock lock(mutex_);
      const auto is = [&](const auto& k) { return k->number == number; };
      if (const auto found = std::find_if(kept_.begin(), kept_.end(), is); found != kept_.end()) {
        ++(*found)->users;
        return found->get();
      }
      // Reuses the oldest frame without users.
      const auto idle = std::find_if(kept_.begin(), kept_.end(), [](const auto& k) { return k->users == 0; });
      if (kept_.size() < max_kept || idle == kept_.end()) {
        kept_.push_back(std::make_unique<Kept>());
      } else {
        std::rotate(idle, idle + 1, kept_.end());
      }
      kept = kept_.back().get();
      kept->number = none;
      kept->users = 1;
    }
    if (kept->text.empty()) kept->text = Bytes(grain_);
    const auto size = static_cast<std::size_t>(frames_[number + 1].plain - frames_[number].plain);
    if (auto r = unpack(number, kept->text.span().first(size)); !r) {
      release(*kept);
      return std::move(r).error();
    }
    const Lock lock(mutex_);
    kept->number = number;
    return kept;
  }
  void release(Kept& kept) const {
    const Lock lock(mutex_);
    --kept.users;
  }

  /// Working memory to decompress a frame. Kept by the text, because the threads that use it are short-lived.
  struct Tools {
    zstd::Decompressor context = zstd::new_decompressor();
    Bytes stored;
  };

  Status unpack(std::size_t number, std::span<std::byte> out) const {
    std::unique_ptr<Tools> tools;
    {
      const Lock lock(mutex_);
      if (!tools_.empty()) {
        tools = std::move(tools_.back());
        tools_.pop_back();
      }
    }
    if (tools == nullptr) tools = std::make_unique<Tools>();
    auto status = unpack(*tools, number, out);
    const Lock lock(mutex_);
    tools_.push_back(std::move(tools));
    return status;
  }

  Status unpack(Tools& tools, std::size_t number, std::span<std::byte> out) const {
    const Frame& frame = frames_[number];
    const auto stored = static_cast<std::size_t>(frames_[number + 1].stored - frame.stored);
    std::span<const std::byte> from;
    if (const auto all = source_->view(); !all.empty()) {
      from = all.subspan(static_cast<std::size_t>(frame.stored), stored);
    } else {
      if (tools.stored.size() < stored) tools.stored = Bytes(std::max(stored, ZSTD_compressBound(grain_)));
      STELE_TRY(source_->read_at(frame.stored, tools.stored.span().first(stored)));
      from = tools.stored.span().first(stored);
    }
    if (!hashes_.empty() && hash64(from.data(), from.size()) != hashes_[number]) {
      return Error(Errc::checksum, "a compressed frame is damaged").file(source_->name()).offset(frame.stored);
    }
    return json::unpack(*tools.context, *source_, frame.stored, from, out);
  }

  SourcePtr source_;
  std::vector<Frame> frames_;
  std::vector<std::uint64_t> hashes_;
  std::size_t grain_ = 0;
  mutable Mutex mutex_;
  mutable std::vector<std::unique_ptr<Kept>> kept_;
  mutable std::vector<std::unique_ptr<Tools>> tools_;  // not in use
};

/// Opens a file with a seek table, written by stele or another program.
class Seekable {
 public:
  Seekable(const SourcePtr& source, std::uint64_t budget) : source_(source), budget_(budget) {}

  /// Returns false for another program's file without a usable table.
  Result<bool> run(OpenedText& out) {
    STELE_TRY_ASSIGN(const std::uint32_t head, tagged(0));
    const bool begins = head == 8;
    STELE_TRY_ASSIGN(const bool found, read_table());
    bool ends = false;
    bool empty = false;  // the last frame has no text
    if (found) {
      const FramedText::Frame& last = frames_[frames_.size() - 2];
      empty = last.plain == frames_.back().plain;
      STELE_TRY_ASSIGN(const std::uint32_t size, tagged(last.stored));
      ends = size != 0;
    }
    // Files written by stele have a beginning, text and an index.
    if (begins != ends ||
        (ends && (!empty || frames_.size() < 4 || frames_[1].stored != 16 || frames_[1].plain != 0))) {
      return damaged(*source_, begins ? source_->size() : 0,
                     "the compressed document's beginning, index or frame table is damaged or missing");
    }
    if (!found || (empty && !ends)) return false;
    if (ends) {
      STELE_TRY(read_index(out.index));
      frames_.pop_back();  // the last frame's offset ends the one before it
      frames_.erase(frames_.begin());
      const std::size_t count = frames_.size() - 1;
      if (out.index.size() < 8 * count) return damaged(*source_, frames_.back().stored, "the index is damaged");
      for (std::size_t i = 0; i < count; ++i) {
        hashes_.push_back(load_le<std::uint64_t>(reinterpret_cast<const std::byte*>(out.index.data()) + 8 * i));
      }
      out.index.erase(0, 8 * count);
    }
    auto text = std::make_unique<FramedText>(source_, std::move(frames_), std::move(hashes_));
    out.size = text->size();
    out.text = std::move(text);
    return true;
  }

 private:
  /// Returns the content size of stele's skippable frame at an offset, or 0 if the file has no such frame there.
  Result<std::uint32_t> tagged(std::uint64_t at) const {
    std::byte head[16];
    if (at > source_->size() || source_->size() - at < sizeof head) return 0U;
    STELE_TRY(source_->read_at(at, head));
    const bool is = load_le<std::uint32_t>(head) == index_magic && std::memcmp(head + 8, index_tag, 8) == 0;
    return is ? load_le<std::uint32_t>(head + 4) : 0U;
  }

  Result<bool> read_table() {
    constexpr std::size_t head = 8, tail = 9, entry = 8;
    const std::uint64_t size = source_->size();
    std::byte end[tail];
    if (size < head + tail) return false;
    STELE_TRY(source_->read_at(size - tail, end));
    const std::uint64_t count = load_le<std::uint32_t>(end);
    const std::uint64_t table = head + count * entry + tail;
    if (load_le<std::uint32_t>(end + 5) != table_end || end[4] != std::byte{0} || table > size || count == 0 ||
        count * (entry + sizeof(FramedText::Frame)) > budget_) {
      return false;
    }
    table_ = Bytes(static_cast<std::size_t>(table));
    STELE_TRY(source_->read_at(size - table, table_.span()));
    if (load_le<std::uint32_t>(table_.data()) != table_magic ||
        load_le<std::uint32_t>(table_.data() + 4) != table - head) {
      return false;
    }
    frames_.reserve(static_cast<std::size_t>(count) + 1);
    FramedText::Frame at{0, 0};
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::byte* p = table_.data() + head + entry * i;
      frames_.push_back(at);
      at.stored += load_le<std::uint32_t>(p);
      const auto plain = load_le<std::uint32_t>(p + 4);
      at.plain += plain;
      // Frames without text are only the first one, and the last one, which may be an index.
      const bool last = i + 1 == count;
      const std::uint64_t max_stored = plain != 0 ? ZSTD_compressBound(plain) : last ? size : i == 0 ? 16 : 0;
      if (plain > largest_frame || at.stored - frames_.back().stored > max_stored) return false;
    }
    frames_.push_back(at);
    return at.stored == size - table;
  }

  Status read_index(std::string& index) {
    constexpr std::size_t head = 32;
    const FramedText::Frame& frame = frames_[frames_.size() - 2];
    const std::uint64_t size = frames_.back().stored - frame.stored;
    const auto bad = [&](const char* text) { return damaged(*source_, frame.stored, text); };
    if (size < head) return bad("the index is too short");
    if (size > budget_) {
      return Error(Errc::limit, "the index needs more memory than the file's size allows")
          .file(source_->name())
          .offset(frame.stored);
    }
    Bytes bytes(static_cast<std::size_t>(size));
    STELE_TRY(source_->read_at(frame.stored, bytes.span()));
    const std::byte* p = bytes.data();
    if (load_le<std::uint32_t>(p + 4) != size - 8) return bad("the size of the index differs from its frame");
    Hasher hasher;
    hasher.update(table_.data() + 8, 8 * (frames_.size() - 2));
    hasher.update(p + 24, bytes.size() - 24);
    if (load_le<std::uint64_t>(p + 16) != hasher.digest()) {
      return Error(Errc::checksum, "the index or the table of frames is damaged")
          .file(source_->name())
          .offset(frame.stored);
    }
    const auto plain = load_le<std::uint64_t>(p + 24);
    if (plain > budget_ - size) {
      return Error(Errc::limit, "the index needs more memory than the file's size allows")
          .file(source_->name())
          .offset(frame.stored + 24);
    }
    index.resize(static_cast<std::size_t>(plain));
    const zstd::Decompressor context = zstd::new_decompressor();
    return unpack(*context, *source_, frame.stored + head, bytes.span().subspan(head),
                  std::as_writable_bytes(std::span(index)));
  }

  const SourcePtr& source_;
  std::uint64_t budget_;
  Bytes table_;
  std::vector<FramedText::Frame> frames_;
  std::vector<std::uint64_t> hashes_;
};

}  // namespace

Result<bool> open_frames(const SourcePtr& source, std::uint64_t budget, OpenedText& out) {
  return Seekable(source, budget).run(out);
}

#endif
}  // namespace stele::inline v0::detail::json
