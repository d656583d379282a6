// Plans the reads of a slow source. The plan is a set of pieces, each read by one request of the source: by a thread
// that reads ahead, or by the reader that needs the piece first.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/threads.hpp"
#include "io/os/os.hpp"
#include "stele/bundle.hpp"
#include "stele/source.hpp"

namespace stele::inline v0 {
namespace {

constexpr std::uint64_t kib = 1024, mib = 1024 * kib;
constexpr std::uint64_t small_read = 64 * kib;  // read of an index, or of a small tensor that was not announced
constexpr std::size_t kept_blocks = 64;
constexpr std::uint64_t least_request = mib, largest_request = 16 * mib;
constexpr std::uint64_t least_gap = 4 * kib, largest_gap = 4 * mib;

/// Latency and bandwidth of one request at a time, from the durations of reads.
class Speed {
 public:
  explicit Speed(double latency) : latency_(latency) {}
  void note(std::uint64_t bytes, double seconds) {
    if (bytes <= small_read) {
      latency_ = latency_ == 0 ? seconds : 0.75 * latency_ + 0.25 * seconds;
    } else if (seconds > latency_) {
      const double rate = static_cast<double>(bytes) / std::max(seconds - latency_, 1e-6);
      rate_ = 0.75 * rate_ + 0.25 * rate;
    }
  }
  /// Returns the number of bytes that take as long as a request's latency.
  std::uint64_t gap() const { return std::clamp(bytes(1), least_gap, largest_gap); }
  std::uint64_t request() const { return std::clamp(bytes(9), least_request, largest_request); }

 private:
  std::uint64_t bytes(double latencies) const {
    return static_cast<std::uint64_t>(std::min(latencies * latency_ * rate_, 1e12));
  }
  double latency_;      // seconds; 0: not known
  double rate_ = 50e6;  // bytes per second, until it is measured
};

class ReadAhead final : public Source {
 public:
  ReadAhead(SourcePtr source, ReadAheadOptions options, Bytes head)
      : Source(source->name()), source_(std::move(source)), options_(options), speed_(options.latency) {
    options_.requests = std::max(options_.requests, 1U);
    head.truncate(static_cast<std::size_t>(std::min(small_read, size())));
    if (!head.empty()) blocks_.emplace(0, Block{std::make_shared<const Bytes>(std::move(head))});
  }
  ~ReadAhead() override {
    {
      const detail::Lock lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    threads_.clear();
  }
  std::uint64_t size() const noexcept override { return source_->size(); }
  std::shared_ptr<const Bundle> bundle() const override { return source_->bundle(); }
  bool plans() const noexcept override { return true; }

  void will_read(std::span<const ByteRange> ranges) const override {
    static_cast<void>(detail::guarded([&]() -> Status {
      detail::Lock lock(mutex_);
      if (ranges.empty()) {
        std::erase_if(pieces_, [&](const auto& entry) { return drop_if_unused(*entry.second); });
      } else {
        plan(ranges);
      }
      lock.unlock();
      changed_.notify_all();
      return {};
    }));
  }

  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    return detail::guarded(name(), [&]() -> Status {
      const std::uint64_t left = offset <= size() ? size() - offset : 0;
      if (out.size() > left) return source_->read_at(offset, out);  // reports it
      detail::Lock lock(mutex_);
      while (!out.empty()) {
        STELE_TRY_ASSIGN(const std::size_t n, read_some(lock, offset, out));
        offset += n;
        out = out.subspan(n);
      }
      return {};
    });
  }

 private:
  struct Piece {
    enum class State : std::uint8_t { waiting, reading, ready, failed };
    std::uint64_t end = 0;
    std::vector<ByteRange> left{};  // announced ranges that were not read yet, sorted
    std::size_t open = 0;           // number of non-empty ranges; 0: the piece is not needed
    State state = State::waiting;
    std::uint64_t turn = 0;  // position in the order in which pieces became ready
    Bytes bytes{};
    std::optional<Error> error{};
  };
  using Pieces = std::map<std::uint64_t, std::shared_ptr<Piece>>;  // sorted by offset; pieces do not overlap

  bool drop_if_unused(Piece& piece) const {
    if (piece.state == Piece::State::reading) {
      piece.open = 0;  // dropped when it is ready
      return false;
    }
    if (piece.state == Piece::State::waiting) --waiting_;
    held_ -= piece.bytes.size();
    return true;
  }

  /// Adds pieces for the parts of the ranges that no piece has yet.
  void plan(std::span<const ByteRange> ranges) const {
    const std::uint64_t gap = options_.gap != 0 ? options_.gap : speed_.gap();
    // Small enough that all requests at a time fit the memory.
    const std::uint64_t request =
        options_.request != 0
            ? options_.request
            : std::min(speed_.request(), std::max(options_.memory / options_.requests, least_request));
    std::vector<ByteRange> run;
    for (std::size_t i = 0; i < ranges.size();) {
      const std::uint64_t begin = std::min(ranges[i].offset, size());
      std::uint64_t end = end_of(ranges[i]);
      run.assign(1, {begin, end - begin});
      // Joins a run of small ranges.
      for (++i; i < ranges.size(); ++i) {
        const std::uint64_t next = end_of(ranges[i]);
        if (ranges[i].offset < begin || ranges[i].offset > end + gap || next - begin > request) break;
        if (next <= end) continue;
        const std::uint64_t from = std::max(end, ranges[i].offset);
        if (from == end) {
          run.back().size += next - from;
        } else {
          run.push_back({from, next - from});
        }
        end = next;
      }
      if (!in_block(begin, end)) add(begin, end, run, request);
    }
    if (waiting_ > 0) start_threads();
  }
  std::uint64_t end_of(const ByteRange& range) const {
    const std::uint64_t begin = std::min(range.offset, size());
    return begin + std::min(range.size, size() - begin);
  }
  bool in_block(std::uint64_t begin, std::uint64_t end) const {
    const auto at = block_at(begin);
    return at != blocks_.end() && end <= at->first + at->second.bytes->size();
  }
  /// Adds pieces for the announced ranges from `begin` to `end`.
  void add(std::uint64_t begin, std::uint64_t end, std::span<const ByteRange> announced, std::uint64_t request) const {
    while (begin < end) {
      const auto next = pieces_.upper_bound(begin);
      if (next != pieces_.begin()) {
        const auto& before = *std::prev(next)->second;
        if (before.end > begin) {
          begin = before.end;
          continue;
        }
      }
      const std::uint64_t limit = next != pieces_.end() ? std::min(end, next->first) : end;
      // Equal pieces, instead of a small last one.
      const std::uint64_t parts = (limit - begin + request - 1) / request;
      const std::uint64_t stop = begin + (limit - begin + parts - 1) / parts;
      auto piece = std::make_shared<Piece>();
      piece->end = stop;
      for (const ByteRange& range : announced) {
        const std::uint64_t from = std::max(range.offset, begin), to = std::min(range.offset + range.size, stop);
        if (from < to) piece->left.push_back({from, to - from});
      }
      piece->open = piece->left.size();
      if (piece->open != 0) {
        pieces_.emplace_hint(next, begin, std::move(piece));
        ++waiting_;
      }
      begin = stop;
    }
  }

  /// Notes that a range was read. Used ranges stay in the list, with a size of 0, so that this takes the time of a
  /// search.
  static void use(Piece& piece, std::uint64_t begin, std::uint64_t end) {
    auto& left = piece.left;
    auto at = std::lower_bound(left.begin(), left.end(), begin,
                               [](const ByteRange& range, std::uint64_t b) { return range.offset + range.size <= b; });
    for (; at != left.end() && at->offset < end; ++at) {
      if (at->size == 0) continue;
      const std::uint64_t last = at->offset + at->size;
      if (at->offset < begin) {
        at->size = begin - at->offset;
        if (last <= end) continue;
        ++piece.open;
        left.insert(std::next(at), {end, last - end});
        return;
      }
      if (last > end) {
        *at = {end, last - end};
        return;
      }
      at->size = 0;
      --piece.open;
    }
  }

  /// Copies the bytes at `offset` to the front of `out`. Returns their number, which is not 0.
  Result<std::size_t> read_some(detail::Lock& lock, std::uint64_t offset, std::span<std::byte> out) const {
    const auto next = pieces_.upper_bound(offset);
    if (next != pieces_.begin() && std::prev(next)->second->end > offset) {
      const auto at = std::prev(next);
      return read_piece(lock, at->first, at->second, offset, out);
    }
    if (next != pieces_.end()) {
      out = out.first(static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), next->first - offset)));
    }
    return read_unplanned(lock, offset, out);
  }

  Result<std::size_t> read_piece(detail::Lock& lock, std::uint64_t begin, std::shared_ptr<Piece> piece,
                                 std::uint64_t offset, std::span<std::byte> out) const {
    cursor_ = begin;
    if (piece->state == Piece::State::waiting) {
      read(lock, begin, piece);
      make_room(piece.get());
    } else {
      changed_.wait(lock, [&] { return piece->state != Piece::State::reading; });
    }
    if (piece->state == Piece::State::failed) {
      // The next reader tries again.
      erase(begin, piece);
      return *piece->error;
    }
    if (piece->state != Piece::State::ready) return read_some(lock, offset, out);  // the piece was dropped
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), piece->end - offset));
    lock.unlock();
    std::memcpy(out.data(), piece->bytes.data() + (offset - begin), n);
    lock.lock();
    use(*piece, offset, offset + n);
    if (piece->open == 0) {
      erase(begin, piece);
      changed_.notify_all();  // another piece fits the memory
    }
    return n;
  }

  void erase(std::uint64_t begin, const std::shared_ptr<Piece>& piece) const {
    const auto at = pieces_.find(begin);
    if (at == pieces_.end() || at->second != piece) return;
    held_ -= piece->bytes.size();
    pieces_.erase(at);
  }

  /// Reads a waiting piece.
  void read(detail::Lock& lock, std::uint64_t begin, const std::shared_ptr<Piece>& piece) const {
    piece->state = Piece::State::reading;
    --waiting_;
    const auto size = static_cast<std::size_t>(piece->end - begin);
    held_ += size;
    lock.unlock();
    auto done = detail::guarded(name(), [&]() -> Status {
      piece->bytes = Bytes(size);
      return timed_read(begin, piece->bytes.span());
    });
    lock.lock();
    if (done && piece->open != 0) {
      piece->state = Piece::State::ready;
      piece->turn = ++turns_;
    } else {
      held_ -= size;
      piece->bytes = {};
      if (done) {
        piece->state = Piece::State::waiting;
        erase(begin, piece);
      } else {
        piece->state = Piece::State::failed;
        piece->error = std::move(done).error();
      }
    }
    changed_.notify_all();
  }

  Status timed_read(std::uint64_t offset, std::span<std::byte> out) const {
    const auto start = std::chrono::steady_clock::now();
    STELE_TRY(source_->read_at(offset, out));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const detail::Lock lock(mutex_);
    speed_.note(out.size(), took.count());
    return {};
  }

  /// Drops the oldest unread pieces, if there are too many.
  void make_room(const Piece* kept) const {
    while (held_ > options_.memory + largest_request) {
      auto oldest = pieces_.end();
      for (auto at = pieces_.begin(); at != pieces_.end(); ++at) {
        if (at->second->state != Piece::State::ready || at->second.get() == kept) continue;
        if (oldest == pieces_.end() || at->second->turn < oldest->second->turn) oldest = at;
      }
      if (oldest == pieces_.end()) return;
      erase(oldest->first, std::shared_ptr<Piece>(oldest->second));
    }
  }

  // ---- reads without an announcement

  Result<std::size_t> read_unplanned(detail::Lock& lock, std::uint64_t offset, std::span<std::byte> out) const {
    if (const auto found = block_at(offset); found != blocks_.end()) {
      const Block& block = found->second;
      const auto n =
          static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), found->first + block.bytes->size() - offset));
      std::memcpy(out.data(), block.bytes->data() + (offset - found->first), n);
      note_sequence(offset, n);
      return n;
    }
    if (offset == sequence_end_ && sequence_ >= 2 * small_read) {  // the third read in order, or a later one
      const std::uint64_t ahead = std::min(std::max<std::uint64_t>(2 * sequence_, out.size()), options_.memory / 2);
      sequence_ = ahead;
      const ByteRange range{offset, std::min(ahead, size() - offset)};
      sequence_end_ = range.offset + range.size;
      plan({&range, 1});
      changed_.notify_all();
      return read_some(lock, offset, out);
    }
    if (out.size() > largest_request) {
      const ByteRange range{offset, out.size()};
      plan({&range, 1});
      changed_.notify_all();
      return read_some(lock, offset, out);
    }
    if (out.size() >= small_read) {
      note_sequence(offset, out.size());
      lock.unlock();
      auto done = timed_read(offset, out);
      lock.lock();
      STELE_TRY(std::move(done));
      return out.size();
    }
    return read_block(lock, offset, out);
  }

  void note_sequence(std::uint64_t offset, std::uint64_t size) const {
    sequence_ = offset == sequence_end_ ? sequence_ + size : size;
    sequence_end_ = offset + size;
  }

  struct Block {
    std::shared_ptr<const Bytes> bytes;
    std::uint64_t turn = 0;
  };
  using Blocks = std::map<std::uint64_t, Block>;  // they may overlap
  Blocks::iterator block_at(std::uint64_t offset) const {
    auto at = blocks_.upper_bound(offset);
    while (at != blocks_.begin() && offset - std::prev(at)->first < small_read) {
      --at;
      if (offset - at->first < at->second.bytes->size()) {
        at->second.turn = ++turns_;
        return at;
      }
    }
    return blocks_.end();
  }
  Result<std::size_t> read_block(detail::Lock& lock, std::uint64_t offset, std::span<std::byte> out) const {
    note_sequence(offset, out.size());
    const std::uint64_t size = std::min(small_read, this->size());
    const std::uint64_t begin = std::min(offset, this->size() - size);  // the end of a file often has an index
    lock.unlock();
    const auto bytes = std::make_shared<Bytes>(static_cast<std::size_t>(size));
    auto done = timed_read(begin, bytes->span());
    lock.lock();
    STELE_TRY(std::move(done));
    if (blocks_.size() >= kept_blocks) {
      blocks_.erase(std::min_element(blocks_.begin(), blocks_.end(),
                                     [](const auto& a, const auto& b) { return a.second.turn < b.second.turn; }));
    }
    blocks_.insert_or_assign(begin, Block{bytes, ++turns_});
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), begin + size - offset));
    std::memcpy(out.data(), bytes->data() + (offset - begin), n);
    return n;
  }

  // ---- threads

  void start_threads() const {
    while (threads_.size() < std::min<std::size_t>(options_.requests, pieces_.size())) {
      threads_.emplace_back([this] { work(); });
      if (threads_.back().started()) continue;
      threads_.pop_back();
      return;  // readers read for themselves
    }
  }

  void work() const {
    detail::Lock lock(mutex_);
    for (;;) {
      std::shared_ptr<Piece> piece;
      std::uint64_t begin = 0;
      changed_.wait(lock, [&] {
        if (ending_) return true;
        if (const auto next = next_waiting(); next != pieces_.end()) {
          begin = next->first;
          piece = next->second;
        }
        return piece != nullptr;
      });
      if (ending_) return;
      read(lock, begin, piece);
    }
  }

  /// Returns the first waiting piece after the last read, if it fits the memory.
  Pieces::iterator next_waiting() const {
    if (waiting_ == 0 || held_ >= options_.memory) return pieces_.end();
    const auto waits = [](const auto& entry) { return entry.second->state == Piece::State::waiting; };
    const auto from = pieces_.lower_bound(cursor_);
    auto at = std::find_if(from, pieces_.end(), waits);
    if (at == pieces_.end()) {
      at = std::find_if(pieces_.begin(), from, waits);
      if (at == from) return pieces_.end();
    }
    return held_ + (at->second->end - at->first) <= std::max(options_.memory, largest_request) ? at : pieces_.end();
  }

  SourcePtr source_;
  ReadAheadOptions options_;
  mutable detail::Mutex mutex_;
  mutable detail::Condition changed_;
  mutable Pieces pieces_;
  mutable Blocks blocks_;
  mutable std::size_t waiting_ = 0;   // pieces in that state
  mutable std::uint64_t held_ = 0;    // bytes of the pieces that are ready or being read
  mutable std::uint64_t cursor_ = 0;  // offset of the last piece that was read
  mutable std::uint64_t turns_ = 0;
  mutable std::uint64_t sequence_ = 0, sequence_end_ = 0;  // unplanned bytes read in order, and where they end
  mutable Speed speed_;
  mutable std::vector<detail::Thread> threads_;
  mutable bool ending_ = false;
};

}  // namespace

SourcePtr read_ahead(SourcePtr source, ReadAheadOptions options, Bytes head) {
  if (source == nullptr || source->is_folder() || !source->view().empty()) return source;
  return std::make_shared<ReadAhead>(std::move(source), options, std::move(head));
}

}  // namespace stele::inline v0
