#include "snapshot/fill.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>

#include "base/meter.hpp"
#include "base/parallel.hpp"
#include "base/threads.hpp"
#include "leaves/needs.hpp"
#include "leaves/source_range.hpp"
#include "snapshot/converting.hpp"
#include "snapshot/data.hpp"
#include "snapshot/meter_sink.hpp"
#include "snapshot/unread.hpp"
#include "snapshot/unreadable.hpp"
#include "stele/expansion.hpp"
#include "stele/quantize.hpp"

namespace stele::inline v0::detail {
namespace {

// Maximum size of a leaf that is read together with its neighbours.
constexpr std::uint64_t largest_joined = ReadContext::piece_size / 2;
// Maximum gap between two leaves in one read.
constexpr std::uint64_t small_gap = 4096;
// Size of a thread's job, unless a single leaf is larger.
constexpr std::uint64_t job_bytes = std::uint64_t{1} << 20;
// Minimum size for several threads: reading less takes no longer than starting a thread.
constexpr std::uint64_t min_threaded_bytes = std::uint64_t{2} << 20;
// Minimum size of a compressed leaf that keeps all threads busy.
constexpr std::uint64_t large_computed = std::uint64_t{8} << 20;

/// Copies pieces to memory, or discards them.
class MemorySink final : public PieceSink {
 public:
  explicit MemorySink(std::byte* memory) : memory_(memory) {}
  std::byte* place(std::uint64_t offset, std::size_t) override {
    return memory_ != nullptr ? memory_ + offset : nullptr;
  }
  Status piece(std::span<const std::byte> bytes) override {
    if (memory_ != nullptr && !bytes.empty() && bytes.data() != memory_ + done_) {
      std::memcpy(memory_ + done_, bytes.data(), bytes.size());
    }
    done_ += bytes.size();
    return {};
  }

 private:
  std::byte* memory_;
  std::uint64_t done_ = 0;
};

bool is_in_source(const LeafData& leaf) noexcept { return leaf.provider.ops->locate != nullptr; }

/// Returns the size of a tensor in a block.
constexpr std::uint64_t in_block(std::uint64_t size) noexcept { return (size + 63) / 64 * 64; }

// Converting a bool to bool checks it.
bool converts(const LeafData& leaf, const Fill& fill) noexcept {
  return leaf.dtype != fill.to || fill.to == DType::boolean;
}

/// Returns the size of a leaf at its target dtype.
std::uint64_t filled_bytes(const LeafData& leaf, const Fill& fill) noexcept {
  return leaf.dtype == fill.to ? leaf.bytes : leaf.bytes / element_size(leaf.dtype) * element_size(fill.to);
}

/// The data that the threads of one fill() share.
struct Task {
  const Snapshot& snapshot;
  std::span<const Fill> fills;
  const ConvertRules& rules;
  Meter& meter;
  Filled& out;
  const OnDevices* devices;  // null: no fill is for a device
  Mutex mutex;
  std::optional<Error> error;  // the error of out.failed

  void fail(std::size_t i, Error e) {
    const Lock lock(mutex);
    if (error && out.failed < i) return;
    error = std::move(e);
    out.failed = i;
  }
};

/// Fills that one thread handles at a time: `first` to `last` - 1.
struct Job {
  std::size_t first, last;
};

/// The work of one thread: reads leaves sequentially.
class Worker {
 public:
  Worker(Task& task, const Workers& workers) : task_(task), context_(workers) {
    if (task.devices == nullptr) return;
    stager_.emplace(task.devices->transfer);
    if (task.devices->bypass_cache) context_.bypass_cache();
  }

  /// Starts the last copies to devices. Call it after the last job.
  void finish() {
    if (!stager_) return;
    auto started = guarded([&] { return stager_->flush(); });
    if (!started) task_.fail(last_, std::move(started).error());
  }

  /// Returns false after an error, which it has stored in the task.
  bool run(const Job& job) {
    std::size_t at = job.first;  // the leaf to which an error belongs
    auto status = guarded([&]() -> Status {
      while (at < job.last) {
        const LeafData& leaf = leaf_of(at);
        if (leaf.bytes <= largest_joined && is_in_source(leaf)) {
          STELE_TRY(read_together(at, job.last));
        } else {
          STELE_TRY(read_alone(at));
        }
      }
      return {};
    });
    if (status) {
      last_ = job.last == job.first ? job.first : job.last - 1;
      return true;
    }
    task_.fail(at, std::move(status).error());
    if (stager_) stager_.emplace(task_.devices->transfer);  // drops the held pieces of the leaf
    return false;
  }

 private:
  const LeafData& leaf_of(std::size_t i) const noexcept { return leaves_[task_.fills[i].leaf]; }

  Status read_alone(std::size_t& at) {
    const Fill& fill = task_.fills[at];
    const LeafView leaf = task_.snapshot.leaf(fill.leaf);
    STELE_TRY(into(fill, [&](PieceSink& memory) -> Status {
      MeterSink metering(memory, task_.meter);
      PieceSink& sink = task_.meter.idle() ? memory : metering;
      STELE_TRY_ASSIGN(const std::uint64_t overflowed, stream_as(leaf, fill.to, task_.rules, sink, context_));
      note_overflow(at, overflowed);
      return {};
    }));
    task_.out.done[at++] = 1;
    return {};
  }

  /// Calls `write` with the sink for the destination of a fill.
  template <class Write>
  Status into(const Fill& fill, Write write) {
    if (fill.targets != 0) {
      DeviceSink sink(*stager_, task_.devices->targets.subspan(fill.first_target, fill.targets));
      return write(sink);
    }
    MemorySink sink(fill.memory);
    return write(sink);
  }

  /// Reads the leaf `at`, and following leaves close to it in the same source, with one read.
  Status read_together(std::size_t& at, std::size_t last) {
    const std::size_t first = at;
    ranges_.clear();
    std::uint64_t end = 0;
    std::uint64_t before = 0;  // size of the previous leaf
    bool image = true;         // the memory has the layout of the source, so no copy is needed
    for (std::size_t i = first; i < last; ++i) {
      const LeafData& leaf = leaf_of(i);
      const Fill& fill = task_.fills[i];
      const std::uint64_t size = leaf.bytes;
      if (size > largest_joined || !is_in_source(leaf)) break;
      const SourceRange range = leaf.provider.ops->locate(leaf.provider.at, leaf.provider.number);
      if (i != first) {
        const SourceRange& start = ranges_.front();
        if (range.source != start.source || range.offset < end || range.offset - end > small_gap ||
            range.offset + size + range.zeros - start.offset > ReadContext::piece_size) {
          break;
        }
      }
      image =
          image && fill.in_block && fill.targets == 0 && !converts(leaf, fill) && range.zeros <= in_block(size) - size;
      if (i != first) {
        const auto distance = static_cast<std::uint64_t>(fill.memory - task_.fills[i - 1].memory);
        image = image && distance == range.offset - ranges_.back().offset && distance == in_block(before);
      }
      ranges_.push_back(range);
      before = size;
      end = range.offset + size + range.zeros;
    }
    const SourceRange& start = ranges_.front();
    const auto size = static_cast<std::size_t>(end - start.offset);
    const auto all = start.source->view();
    std::optional<ReadContext::Piece> staging;
    const std::byte* bytes = nullptr;
    if (!all.empty()) {
      bytes = all.data() + start.offset;
      image = false;
    } else if (size != 0) {
      if (!image) staging.emplace(context_);
      std::byte* to = image ? task_.fills[first].memory : staging->data();
      if (auto read = start.source->read_at(start.offset, {to, size}); !read) {
        // Reads the leaves one by one, so that the error belongs to the faulty leaf.
        if (ranges_.size() == 1) return read;
        for (const std::size_t end_of_run = first + ranges_.size(); at < end_of_run;) STELE_TRY(read_alone(at));
        return {};
      }
      bytes = to;
    }
    std::uint64_t metered = 0;
    for (const SourceRange& range : ranges_) {
      STELE_TRY(take(at, range, bytes + (range.offset - start.offset), image));
      metered += filled_bytes(leaf_of(at), task_.fills[at]);
      task_.out.done[at++] = 1;
    }
    auto go_on = task_.meter.add(metered);
    if (!go_on) at = first;  // the leaf that the error names
    return go_on;
  }

  /// Checks a leaf whose bytes have been read, and stores them in the fill's memory.
  Status take(std::size_t at, const SourceRange& range, const std::byte* from, bool in_place) {
    const Fill& fill = task_.fills[at];
    const LeafData& leaf = leaf_of(at);
    const auto size = static_cast<std::size_t>(leaf.bytes);
    if (range.hashed) STELE_TRY(check_hash(range, hash_of(range, from, size)));
    if (range.zeros != 0) STELE_TRY(check_zeros(range, size, {from + size, static_cast<std::size_t>(range.zeros)}));
    if (size == 0) return {};
    if (converts(leaf, fill)) {
      return into(fill, [&](PieceSink& memory) -> Status {
        ConvertingSink converting(leaf.dtype, fill.to, task_.rules, memory, context_);
        STELE_TRY(converting.piece({from, size}));
        note_overflow(at, converting.overflowed());
        return {};
      });
    }
    if (fill.targets != 0) return into(fill, [&](PieceSink& sink) { return sink.piece({from, size}); });
    if (fill.memory != nullptr && !in_place) std::memcpy(fill.memory, from, size);
    return {};
  }

  void note_overflow(std::size_t at, std::uint64_t count) {
    if (count == 0) return;
    const Lock lock(task_.mutex);
    task_.out.overflowed.emplace_back(at, count);
  }

  Task& task_;
  std::span<const LeafData> leaves_{task_.snapshot.data()->leaves};
  ReadContext context_;
  std::vector<SourceRange> ranges_;
  std::optional<Stager> stager_;
  std::size_t last_ = 0;  // the last fill, to which an error of finish() belongs
};

/// The distribution of the fills to jobs.
struct Jobs {
  std::vector<Job> shared;  // each run by one of the threads
  std::vector<Job> alone;   // run sequentially: leaves that use the threads themselves, or all leaves

  Jobs(const Snapshot& snapshot, std::span<const Fill> fills, const Workers& workers) {
    const auto& leaves = snapshot.data()->leaves;
    std::uint64_t total = 0;
    for (const Fill& f : fills) total += leaves[f.leaf].bytes;
    if (workers.threads == 1 || total < min_threaded_bytes || snapshot.in_order()) {
      alone.push_back({0, fills.size()});
      return;
    }
    Job job{0, 0};
    std::uint64_t bytes = 0;
    const auto end_job = [&](std::size_t next) {
      if (job.first != job.last) shared.push_back(job);
      job = {next, next};
      bytes = 0;
    };
    for (std::size_t i = 0; i < fills.size(); ++i) {
      const LeafData& leaf = leaves[fills[i].leaf];
      if (!is_in_source(leaf) && leaf.bytes >= large_computed) {
        end_job(i + 1);
        alone.push_back({i, i + 1});
        continue;
      }
      job.last = i + 1;
      bytes += leaf.bytes;
      if (bytes >= job_bytes) end_job(i + 1);
    }
    end_job(fills.size());
  }
};

}  // namespace

Status fill(const Snapshot& snapshot, std::span<const Fill> fills, const ConvertRules& rules, Meter& meter,
            const Workers& workers, Filled& out, const OnDevices* devices) {
  return guarded([&]() -> Status {
    out.done.assign(fills.size(), 0);
    out.overflowed.clear();
    Task task{snapshot, fills, rules, meter, out, devices, {}, {}};
    Needs needs;
    for (const Fill& f : fills) {
      const LeafData& leaf = snapshot.data()->leaves[f.leaf];
      needs.add(leaf.provider, leaf.bytes);
    }
    needs.announce();

    const Jobs jobs(snapshot, fills, workers);
    if (!jobs.shared.empty()) {
      std::atomic<std::size_t> next{0};
      parallel(workers, std::min<std::size_t>(workers.threads, jobs.shared.size()), [&](std::size_t) {
        Worker worker(task, {});
        for (std::size_t j = next++; j < jobs.shared.size(); j = next++) {
          // Jobs start in order, and started jobs run to the end, so the first error does not depend on the threads.
          if (!worker.run(jobs.shared[j])) next = jobs.shared.size();
        }
        worker.finish();
      });
    }
    // An earlier job may have an earlier error than the first one found so far.
    Worker worker(task, workers);
    for (const Job& job : jobs.alone) {
      if (task.error && job.first > out.failed) break;
      worker.run(job);
    }
    worker.finish();
    std::sort(out.overflowed.begin(), out.overflowed.end());
    if (!task.error) return {};
    Error error = std::move(*task.error);
    if (error.path().empty()) error = std::move(error).path(snapshot.leaf(fills[out.failed].leaf).path());
    return error;
  });
}

Status check_leaves(const Snapshot& snapshot, const LoadOptions& options, Meter& meter,
                    const std::function<bool(const LeafView&)>& which) {
  return guarded([&]() -> Status {
    STELE_TRY_ASSIGN(const Snapshot leaves, options.dequantize ? dequantize(snapshot) : Result<Snapshot>(snapshot));
    std::vector<Fill> fills;
    fills.reserve(leaves.leaf_count());
    for (std::uint32_t i = 0; i < leaves.leaf_count(); ++i) {
      const LeafView leaf = leaves.leaf(i);
      if (!which || which(leaf)) fills.push_back({nullptr, i, leaf.dtype()});
    }
    Filled filled;
    return fill(leaves, fills, {}, meter, workers_of(options), filled);
  });
}

void add_unchecked_contents(Report& report) {
  report.add(Report::What::unchecked, "contents", "names, values and tensors: the format has no checksums");
}

Result<Report> verify_leaves(const Snapshot& snapshot, const LoadOptions& options) {
  STELE_TRY(check_found(snapshot));
  Meter meter(options.progress, snapshot.byte_size());
  // Ranges that many tensors share are not read for each tensor, because no hash covers them.
  std::function<bool(const LeafView&)> which;
  if (!check_expansion(snapshot)) {
    which = [](const LeafView& leaf) {
      const auto place = leaf.location();
      return !place || place->hashed;
    };
  }
  STELE_TRY(check_leaves(snapshot, options, meter, which));
  Report report;
  add_unreadable_rows(snapshot, report);
  for (const std::string& note : snapshot.notes()) report.add(Report::What::unchecked, note, "");
  return report;
}

}  // namespace stele::inline v0::detail
