#include "snapshot/ahead.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/parallel.hpp"
#include "base/threads.hpp"

namespace stele::inline v0::detail {
namespace {

// Minimum size of a leaf for a second thread: starting the thread takes as long as converting a small part of this
// size.
constexpr std::uint64_t min_pipelined_bytes = std::uint64_t{4} << 20;

/// Passes a few pieces between two threads. The producer uses it as a PieceSink.
class Ring final : public PieceSink {
 public:
  explicit Ring(Hasher* hasher) : hasher_(hasher) {
    for (Bytes& slot : slots_) slot = Bytes(ReadContext::piece_size);
  }

  // ---- producer

  std::byte* place(std::uint64_t, std::size_t size) override {
    return size <= ReadContext::piece_size && wait_for_slot() ? slot(made_).data() : nullptr;
  }
  Status piece(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      if (!wait_for_slot()) return Error(Errc::cancelled, "the consumer stopped reading");
      const auto now = bytes.first(std::min(bytes.size(), ReadContext::piece_size));
      std::byte* const to = slot(made_).data();
      if (now.data() != to) std::memcpy(to, now.data(), now.size());
      if (hasher_ != nullptr) hasher_->update(to, now.size());
      bytes = bytes.subspan(now.size());
      const Lock lock(mutex_);
      sizes_[made_ % sizes_.size()] = now.size();
      ++made_;
      changed_.notify_all();
    }
    return {};
  }
  void end(Status status) {
    const Lock lock(mutex_);
    ended_ = true;
    status_ = std::move(status);
    changed_.notify_all();
  }

  // ---- consumer

  /// Passes all pieces to `sink`. Returns the first error of either thread.
  Status pass_on(PieceSink& sink) {
    for (;;) {
      {
        Lock lock(mutex_);
        changed_.wait(lock, [&] { return taken_ != made_ || ended_; });
        if (taken_ == made_) return std::move(status_);
      }
      auto r = guarded([&] { return sink.piece(slot(taken_).span().first(sizes_[taken_ % sizes_.size()])); });
      const Lock lock(mutex_);
      ++taken_;
      stopped_ = !r;
      changed_.notify_all();
      if (!r) return r;
    }
  }

 private:
  Bytes& slot(std::size_t i) { return slots_[i % slots_.size()]; }
  bool wait_for_slot() {
    Lock lock(mutex_);
    changed_.wait(lock, [&] { return made_ - taken_ < slots_.size() || stopped_; });
    return !stopped_;
  }

  Hasher* hasher_;
  std::array<Bytes, 4> slots_;
  std::array<std::size_t, 4> sizes_{};
  Mutex mutex_;
  Condition changed_;
  std::size_t made_ = 0, taken_ = 0;
  bool ended_ = false;
  bool stopped_ = false;
  Status status_;
};

}  // namespace

bool worth_ahead(const LeafView& leaf, const Workers& workers) noexcept {
  // An executor may run its parts sequentially, so no part may wait for another part.
  return workers.threads > 1 && workers.executor == nullptr && leaf.byte_size() >= min_pipelined_bytes &&
         leaf.provider().ops->stream != nullptr;
}

Status stream_ahead(const LeafView& leaf, ReadContext& context, Hasher* hasher, PieceSink& sink) {
  Ring ring(hasher);
  Thread maker([&]() noexcept { ring.end(guarded([&] { return leaf.stream(ring, context); })); });
  if (maker.started()) return ring.pass_on(sink);
  class Inline final : public PieceSink {
   public:
    Inline(Hasher* h, PieceSink& next) : hasher_(h), next_(next) {}
    Status piece(std::span<const std::byte> bytes) override {
      if (hasher_ != nullptr) hasher_->update(bytes.data(), bytes.size());
      return next_.piece(bytes);
    }

   private:
    Hasher* hasher_;
    PieceSink& next_;
  } here(hasher, sink);
  return leaf.stream(here, context);
}

}  // namespace stele::inline v0::detail
