// Snapshot -> object, second part: copies the bytes.
#include <algorithm>
#include <map>

#include "base/meter.hpp"
#include "base/parallel.hpp"
#include "module/compare_ties.hpp"
#include "module/device_memory.hpp"
#include "module/match.hpp"
#include "module/state_dict.hpp"
#include "module/walk.hpp"
#include "snapshot/converting.hpp"
#include "snapshot/data.hpp"
#include "snapshot/device_leaves.hpp"
#include "snapshot/fill.hpp"
#include "snapshot/items.hpp"
#include "snapshot/meter_sink.hpp"
#include "snapshot/module_leaf.hpp"
#include "stele/source.hpp"

namespace stele::inline v0::detail {
namespace {

/// Writes a leaf's bytes to a tensor of the module that can only be accessed element by element.
class ElementSink final : public PieceSink {
 public:
  ElementSink(const TensorOps& ops, void* object) : ops_(ops), object_(object), size_(element_size(ops.dtype)) {}
  Status piece(std::span<const std::byte> bytes) override {
    ops_.write(object_, done_ / size_, bytes.size() / size_, bytes.data());
    done_ += bytes.size();
    return {};
  }

 private:
  const TensorOps& ops_;
  void* object_;
  std::size_t size_;
  std::uint64_t done_ = 0;
};

/// Memory for the tensors of a new module, many tensors in one block, which uses huge pages. With separate blocks, page
/// faults of fresh memory would take most of the time of loading small tensors.
class Blocks {
 public:
  static constexpr std::size_t alignment = 64;
  // Bounds the memory that a single remaining tensor keeps alive.
  static constexpr std::size_t block_size = std::size_t{32} << 20;
  // Minimum size of a tensor with a separate block.
  static constexpr std::size_t large = std::size_t{16} << 20;

  /// Returns the size of a tensor in a block.
  static constexpr std::size_t aligned_bytes(std::size_t size) noexcept {
    return (size + alignment - 1) / alignment * alignment;
  }

  /// `total`: the size of all tensors in blocks.
  explicit Blocks(std::size_t total) noexcept : left_(total) {}
  std::byte* take(std::size_t size) {
    const std::size_t n = aligned_bytes(size);
    if (block_ == nullptr || n > block_->size() - used_) {
      block_ = std::make_shared<Bytes>(std::min(std::max(left_, n), block_size));
      used_ = 0;
    }
    std::byte* at = block_->data() + used_;
    used_ += n;
    left_ -= std::min(n, left_);
    return at;
  }
  /// Returns the block of the last tensor.
  const std::shared_ptr<Bytes>& block() const noexcept { return block_; }

 private:
  std::size_t left_;
  std::shared_ptr<Bytes> block_;
  std::size_t used_ = 0;
};

/// Adds the row of a loaded tensor.
void add_row(Report& report, std::string_view path, DType from, DType to) {
  if (from == to) return report.add(Report::What::applied, path);
  report.add(Report::What::converted, path,
             std::string(name(from)) + " -> " + std::string(name(to)) + (lossless(from, to) ? "" : ", lossy"));
}

/// The way in which a tensor receives its elements.
enum class FillMethod : std::uint8_t {
  none,      // not yet, or never
  elements,  // one by one, because it has no contiguous memory
  done,
};

/// Returns an error if a tensor is on a device that nothing copies to.
Status check_locations(const LoadPlan& plan, const LoadOptions& options) {
  if (options.transfer != nullptr) return {};
  for (const TensorOp& op : plan.tensors) {
    const TensorOps& ops = *op.ops;
    if (ops.locations == nullptr) continue;
    // Without an object, the tensor is made later.
    const auto device = op.object != nullptr ? device_of(ops, op.object) : OnDevice{Location::any_device()};
    const bool writes = ops.write != nullptr && (ops.resize != nullptr || ops.part_of_device == nullptr);
    if (device && !writes) return unreachable_device(device->where, false).path(plan.paths.text(op.path));
  }
  return {};
}

class Loader {
 public:
  Loader(const Snapshot& snapshot, const LoadOptions& options, LoadMode mode, Report& report)
      : tree_(snapshot), options_(options), mode_(mode), report_(report) {}

  /// Returns the modules to rewrite first. If there are any, the loader has not changed the object.
  std::vector<Outdated>& outdated() noexcept { return plan_.outdated; }

  Status run(const TypeInfo& type, void* object) {
    // Fresh: the walk builds the structure while checking it; on an error, the caller discards the object. In place:
    // the object is unchanged until everything is checked.
    plan_.tensors.reserve(tree_.snapshot().leaf_count());
    const MatchMode first = mode_ == LoadMode::fresh ? MatchMode::make : MatchMode::check;
    if (auto r = match(tree_, type, object, mode_, first, options_, report_, plan_); !r) {
      return finish(std::move(r).error());
    }
    if (!plan_.outdated.empty()) return {};
    if (auto r = guarded([&] { return compare_ties(plan_, options_, context_, report_); }); !r)
      return finish(std::move(r).error());
    if (auto r = check_locations(plan_, options_); !r) return finish(std::move(r).error());
    if (mode_ == LoadMode::in_place && options_.new_memory) return exchange();
    const bool verifies = mode_ == LoadMode::in_place && !options_.trust_data;
    std::uint64_t bytes = 0;
    for (const TensorOp& op : plan_.tensors) bytes += bytes_of(op);
    meter_.emplace(options_.progress, verifies ? 2 * bytes : bytes);
    if (mode_ == LoadMode::fresh) return write();
    auto ready = guarded([&]() -> Status {
      STELE_TRY(allocate_unset());
      return verifies ? verify() : Status();
    });
    if (!ready) {
      for (const TensorOp& op : allocated_) {
        if (op.ops->reset != nullptr) op.ops->reset(op.object);
      }
      return finish(std::move(ready).error());
    }
    if (options_.rebuild) {
      // The second walk builds the structure. It repeats the checks, whose results are unchanged.
      plan_ = {};
      auto made =
          guarded([&] { return match(tree_, type, object, mode_, MatchMode::remake, options_, report_, plan_); });
      if (!made) return finish(std::move(made).error().partially_applied(true));
    }
    return write();
  }

 private:
  Error finish(Error error) {
    std::shared_ptr<const Report> report;  // null if memory ran out
    static_cast<void>(guarded([&]() -> Status {
      report = std::make_shared<const Report>(report_);
      return {};
    }));
    return std::move(error).report(std::move(report));
  }
  Error at_path(Error error, const TensorOp& op) const { return std::move(error).path(plan_.paths.text(op.path)); }

  /// Sorts in the source's order: one forward pass over the file is then sufficient, and the first error belongs to the
  /// first tensor in the file.
  void sort_tensors() {
    const auto before = [](const TensorOp& a, const TensorOp& b) { return a.leaf < b.leaf; };
    if (!std::is_sorted(plan_.tensors.begin(), plan_.tensors.end(), before)) {
      std::stable_sort(plan_.tensors.begin(), plan_.tensors.end(), before);
    }
  }

  Status allocate_unset() {
    for (const TensorOp& op : plan_.tensors) {
      if (op.object == nullptr || op.ops->fixed_shape || !op.ops->unset(op.object)) continue;
      allocated_.push_back(op);
      STELE_TRY(allocate(op));
    }
    return {};
  }

  /// Gives a tensor memory for the leaf's elements.
  Status allocate(const TensorOp& op) {
    const TensorOps& ops = *op.ops;
    shape_.assign(plan_.snapshot.leaf(op.leaf).shape());
    if (ops.part_of_device != nullptr && options_.transfer != nullptr) {
      auto given =
          devices_.give(ops, op.object, op.original, shape_, loaded_dtype(op), bytes_of(op), plan_.paths.text(op.path));
      return given ? std::move(given) : at_path(std::move(given).error(), op);
    }
    ops.resize(op.object, shape_, loaded_dtype(op));
    return {};
  }

  Status verify() {
    sort_tensors();
    std::vector<Fill> fills;
    fills.reserve(plan_.tensors.size());
    for (const TensorOp& op : plan_.tensors) fills.push_back({nullptr, op.leaf, loaded_dtype(op)});
    Filled filled;
    auto r = detail::fill(plan_.snapshot, fills, options_.convert, *meter_, workers_, filled);
    return r ? std::move(r) : at_path(std::move(r).error(), plan_.tensors[filled.failed]);
  }

  Status write() {
    bool written = options_.rebuild;
    auto status = guarded([&] { return write(written); });
    if (status) return status;
    const bool partial = mode_ == LoadMode::in_place && written;
    return finish(std::move(status).error().partially_applied(partial));
  }

  /// Loads in place with LoadOptions::new_memory.
  Status exchange() {
    if (options_.rebuild) {
      return finish(Error(Errc::invalid_argument, "rebuild needs a pass that verifies, which new_memory replaces")
                        .hint("set only one of LoadOptions::rebuild and new_memory"));
    }
    std::vector<TensorOp> fresh, kept;
    std::uint64_t bytes = 0, kept_bytes = 0;
    auto ready = guarded([&]() -> Status {
      for (const TensorOp& op : plan_.tensors) {
        const bool renewed = op.object != nullptr && op.ops->create != nullptr && op.ops->take != nullptr;
        (renewed ? fresh : kept).push_back(op);
        bytes += bytes_of(op);
        kept_bytes += renewed ? 0 : bytes_of(op);
      }
      meter_.emplace(options_.progress, options_.trust_data ? bytes : bytes + kept_bytes);
      plan_.tensors = kept;
      return options_.trust_data ? Status() : verify();
    });
    if (!ready) return finish(std::move(ready).error());
    bool written = false;
    Report rows;  // rows of the new memory
    rows_ = &rows;
    auto filled = guarded([&]() -> Status {
      for (TensorOp& op : fresh) {
        op.original = std::exchange(op.object, nullptr);
        op.object = op.ops->create();
      }
      plan_.tensors = fresh;
      sort_tensors();
      return write_tensors(written);
    });
    rows_ = &report_;
    if (filled) {
      plan_.tensors = std::move(kept);
      written = false;
      filled = guarded([&] { return write(written); });
    } else {
      written = false;  // only new memory
    }
    for (const TensorOp& op : fresh) {
      if (op.original == nullptr || op.object == nullptr) continue;
      if (filled) {
        op.ops->take(op.original, op.object);
        if (op.ops->id != nullptr) *op.ops->id(op.original) = plan_.snapshot.leaf(op.leaf).id();
      }
      op.ops->destroy(op.object);
    }
    if (!filled) return finish(std::move(filled).error().partially_applied(written));
    for (std::size_t i = 0; i < rows.size(); ++i) report_.add(rows[i].what, rows[i].path, rows[i].detail);
    return {};
  }

  /// Sets `written` after it has changed the object.
  Status write(bool& written) {
    for (const ValueOp& op : plan_.values) {
      if (op.object == nullptr) continue;
      std::string_view expected;
      auto read = guarded([&]() -> Status {  // calls user code, which may throw
        expected = op.ops->from_value(op.object, *op.value);
        return {};
      });
      if (!read) return std::move(read).error().path(plan_.paths.text(op.path));
      if (!expected.empty()) {
        return Error(Errc::value_mismatch, "the value does not fit the field")
            .path(plan_.paths.text(op.path))
            .expected(std::string(expected));
      }
      written = true;
      report_.add(Report::What::applied, plan_.paths.shown(op.path));
    }
    sort_tensors();
    return write_tensors(written);
  }

  Status write_tensors(bool& written) {
    auto placed = guarded([&]() -> Status { return place(written); });
    if (!placed) {
      add_rows();  // rows of the tensors that had become views or been moved before the error
      return placed;
    }
    written = written || !fills_.empty();
    Filled filled;
    auto r = fill(filled);
    for (const auto& [i, count] : filled.overflowed) overflowed_[filled_[i]] = count;
    for (std::size_t i = 0; i < fills_.size() && !filled.done.empty(); ++i) {
      methods_[filled_[i]] = filled.done[i] != 0 ? FillMethod::done : FillMethod::none;
    }
    if (!r) {
      add_rows();
      return at_path(std::move(r).error(), plan_.tensors[filled_[filled.failed]]);
    }
    for (std::size_t i = 0; i < methods_.size(); ++i) {
      if (methods_[i] != FillMethod::elements) continue;
      written = true;  // an error during the write leaves a part of the tensor written
      auto one = guarded([&] { return write_elements(i); });
      if (!one) {
        add_rows();
        return at_path(std::move(one).error(), plan_.tensors[i]);
      }
    }
    add_rows();
    return {};
  }

  Status fill(Filled& filled) {
    const auto host = [&](const OnDevices* devices) {
      return detail::fill(plan_.snapshot, fills_, options_.convert, *meter_, workers_, filled, devices);
    };
    if (targets_.empty()) return host(nullptr);
    Transfer& transfer = *options_.transfer;
    STELE_TRY(transfer.begin());
    const OnDevices devices{transfer, targets_, options_.bypass_cache};
    auto status = host(&devices);
    if (status) {
      status = transfer.finish();
      // Any of the copies may have failed.
      for (std::size_t i = 0; !status && i < fills_.size(); ++i)
        filled.done[i] = filled.done[i] && fills_[i].targets == 0;
    }
    if (!status) transfer.cancel();
    return status;
  }

  /// Finds the destination of each tensor's elements.
  Status place(bool& written) {
    const Snapshot& snapshot = plan_.snapshot;
    const bool fresh = mode_ == LoadMode::fresh && plan_.tensors.size() > 1;
    const auto in_block = [&](const TensorOp& op, std::size_t size) {
      return fresh && op.object != nullptr && op.ops->part != nullptr && size != 0 && size < Blocks::large;
    };
    std::size_t total = 0;
    for (const TensorOp& op : plan_.tensors) {
      const std::size_t size = bytes_of(op);
      total += in_block(op, size) ? Blocks::aligned_bytes(size) : 0;
    }
    Blocks blocks(total);
    methods_.assign(plan_.tensors.size(), FillMethod::none);
    obstacles_.clear();
    overflowed_.clear();
    fills_.clear();
    filled_.clear();
    targets_.clear();
    fills_.reserve(plan_.tensors.size());
    filled_.reserve(plan_.tensors.size());
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const TensorOp& op = plan_.tensors[i];
      if (op.object == nullptr) continue;
      written = true;
      const LeafView leaf = snapshot.leaf(op.leaf);
      const TensorOps& ops = *op.ops;
      if (ops.id != nullptr && op.original == nullptr) *ops.id(op.object) = leaf.id();
      if (options_.storage == Storage::mmap) {
        obstacles_.resize(plan_.tensors.size());
        obstacles_[i] = adopt(op, leaf);
        if (obstacles_[i] == nullptr) {
          methods_[i] = FillMethod::done;
          STELE_TRY(meter_->add(leaf.byte_size()));
          continue;
        }
      }
      const Provider& provider = leaf.provider();
      if (module_tensor_ops(provider) == &ops && ops.take != nullptr && snapshot.data()->consumable) {
        ops.take(op.object, const_cast<void*>(provider.at));
        methods_[i] = FillMethod::done;
        STELE_TRY(meter_->add(leaf.byte_size()));
        continue;
      }
      const std::size_t size = bytes_of(op);
      const bool part = in_block(op, size);
      if (part) {
        shape_.assign(leaf.shape());
        std::byte* at = blocks.take(size);
        ops.part(op.object, at, shape_, blocks.block());
      } else if (!ops.fixed_shape) {
        ops.shape(op.object, shape_);
        if (ops.unset(op.object) || dtype_of(ops, op.object) != loaded_dtype(op) ||
            !std::equal(shape_.begin(), shape_.end(), leaf.shape().begin(), leaf.shape().end())) {
          STELE_TRY(allocate(op));
        }
      }
      const bool on_device = ops.locations != nullptr && device_of(ops, op.object).has_value();
      if (on_device ? options_.transfer == nullptr : ops.data == nullptr) {
        methods_[i] = FillMethod::elements;
        continue;
      }
      Fill& fill = fills_.emplace_back(Fill{nullptr, op.leaf, loaded_dtype(op), part});
      filled_.push_back(static_cast<std::uint32_t>(i));
      if (on_device) {
        fill.first_target = static_cast<std::uint32_t>(targets_.size());
        devices_.add_targets(ops, op.object, targets_);
        fill.targets = static_cast<std::uint32_t>(targets_.size() - fill.first_target);
      } else {
        fill.memory = ops.data(op.object);
      }
    }
    return {};
  }

  Status write_elements(std::size_t i) {
    const TensorOp& op = plan_.tensors[i];
    const LeafView leaf = plan_.snapshot.leaf(op.leaf);
    ElementSink elements(*op.ops, op.object);
    MeterSink sink(elements, *meter_);
    STELE_TRY_ASSIGN(const std::uint64_t count, stream_as(leaf, op.ops->dtype, options_.convert, sink, context_));
    if (count != 0) overflowed_[i] = count;
    methods_[i] = FillMethod::done;
    return {};
  }

  /// Adds the rows of the written tensors.
  void add_rows() {
    for (std::size_t i = 0; i < methods_.size(); ++i) {
      if (methods_[i] != FillMethod::done) continue;
      const TensorOp& op = plan_.tensors[i];
      const std::string path = plan_.paths.shown(op.path);
      if (!obstacles_.empty() && obstacles_[i] != nullptr) rows_->add(Report::What::copied, path, obstacles_[i]);
      add_row(*rows_, path, leaves()[op.leaf].dtype, loaded_dtype(op));
      if (const auto count = overflowed_.find(i); count != overflowed_.end()) {
        rows_->add(Report::What::overflowed, path, std::to_string(count->second) + " numbers");
      }
    }
  }

  std::span<const LeafData> leaves() const noexcept { return plan_.snapshot.data()->leaves; }
  DType loaded_dtype(const TensorOp& op) const { return detail::loaded_dtype(*op.ops, leaves()[op.leaf].dtype); }

  /// Returns the size of the tensor in the module, in bytes.
  std::size_t bytes_of(const TensorOp& op) const noexcept {
    const LeafData& leaf = leaves()[op.leaf];
    if (leaf.dtype == loaded_dtype(op)) return static_cast<std::size_t>(leaf.bytes);
    return static_cast<std::size_t>(plan_.snapshot.leaf(op.leaf).size() * element_size(op.ops->dtype));
  }

  /// Makes the tensor a view of the leaf's memory. Returns null on success, else the reason for the failure.
  const char* adopt(const TensorOp& op, const LeafView& leaf) {
    const Provider& provider = leaf.provider();
    if (op.ops->locations != nullptr) return "on a device";
    if (op.ops->adopt == nullptr) return "this tensor type cannot view";
    const auto bytes = leaf.view();
    if (leaf.dtype() != loaded_dtype(op)) return "another dtype";
    if (leaf.dtype() == DType::boolean) return "bools must be checked";
    if (bytes.empty() || provider.ops->in_module) return "not in memory";
    if (reinterpret_cast<std::uintptr_t>(bytes.data()) % swap_unit(leaf.dtype()) != 0) return "not aligned";
    auto* memory = const_cast<std::byte*>(bytes.data());
    if (!op.ops->adopts_const) {  // only now a page of a mapped file may become writable
      if (provider.ops->locate == nullptr) return "the memory is read-only";
      const SourceRange place = provider.ops->locate(provider.at, provider.number);
      memory = place.source->writable_view({place.offset, bytes.size()});
      if (memory == nullptr) return "the memory is read-only";
    }
    op.ops->adopt(op.object, memory, Shape(leaf.shape()), plan_.snapshot.data(), leaf.dtype());
    return nullptr;
  }

  Tree tree_;
  const LoadOptions& options_;
  LoadMode mode_;
  Report& report_;
  Report* rows_ = &report_;  // for the rows of written tensors
  LoadPlan plan_;
  std::optional<Meter> meter_;
  std::vector<TensorOp> allocated_;
  std::vector<FillMethod> methods_;                  // for each tensor of the plan
  std::vector<const char*> obstacles_;               // reasons why tensors are not views, if the caller requested views
  std::map<std::size_t, std::uint64_t> overflowed_;  // counts, only for tensors with overflows
  std::vector<Fill> fills_;                          // only for tensors with contiguous memory
  std::vector<std::uint32_t> filled_;                // the indexes of their tensors in the plan
  std::vector<DeviceTarget> targets_;                // targets of fills on devices
  DeviceMemory devices_{options_.transfer};
  Shape shape_;  // shape of the current tensor
  Workers workers_{workers_of(options_)};
  ReadContext context_{workers_};
};

/// Calls `attempt(snapshot, outdated)`, and calls it again after the hooks of the outdated modules have rewritten their
/// parts.
template <class Attempt>
Status with_hooks(const Snapshot& file, Report& report, Attempt attempt) {
  const Report before = report;
  Snapshot snapshot = file;
  // Each round rewrites the outermost outdated modules.
  for (int round = 0; round <= max_depth; ++round) {
    std::vector<Outdated> outdated;
    auto status = attempt(snapshot, outdated);
    if (outdated.empty()) return status;
    report = before;
    STELE_TRY_ASSIGN(snapshot, rewritten(snapshot, outdated));
  }
  return Error(Errc::limit, "the modules to migrate nest too deeply");
}

}  // namespace

Status load_object(const Snapshot& snapshot, const TypeInfo& type, void* object, LoadMode mode,
                   const LoadOptions& options) {
  STELE_TRY(not_a_delta(*snapshot.data()));
  STELE_TRY_ASSIGN(const Snapshot part, part_of(snapshot, options.part));
  STELE_TRY_ASSIGN(const Snapshot whole, named_for(type, part));
  Report own;
  Report& report = options.report != nullptr ? *options.report : own;
  return with_hooks(whole, report, [&](const Snapshot& now, std::vector<Outdated>& outdated) {
    Loader loader(now, options, mode, report);
    auto status = loader.run(type, object);
    outdated = std::move(loader.outdated());
    return status;
  });
}

Result<Report> check_object(const Snapshot& snapshot, const TypeInfo& type, const void* object,
                            const LoadOptions& options) {
  return guarded([&]() -> Result<Report> {
    STELE_TRY(not_a_delta(*snapshot.data()));
    STELE_TRY_ASSIGN(const Snapshot part, part_of(snapshot, options.part));
    STELE_TRY_ASSIGN(const Snapshot whole, named_for(type, part));
    Report report;
    LoadPlan plan;
    const LoadMode mode = object != nullptr ? LoadMode::in_place : LoadMode::fresh;
    auto status = with_hooks(whole, report, [&](const Snapshot& now, std::vector<Outdated>& outdated) {
      plan = {};
      auto checked = match(Tree(now), type, const_cast<void*>(object), mode, MatchMode::check, options, report, plan);
      outdated = std::move(plan.outdated);
      return checked;
    });
    if (status) status = check_locations(plan, options);
    if (!status) return std::move(status).error().report(std::make_shared<const Report>(report));
    for (const ValueOp& op : plan.values) report.add(Report::What::applied, plan.paths.shown(op.path));
    for (const TensorOp& op : plan.tensors) {
      const DType stored = plan.snapshot.leaf(op.leaf).dtype();
      add_row(report, plan.paths.shown(op.path), stored, loaded_dtype(*op.ops, stored));
    }
    return report;
  });
}

Status load_tensor(const SnapshotData& data, std::uint32_t leaf, const TensorOps& ops, void* object) {
  // Wraps the tensor in a snapshot with one borrowed leaf, so that the loader's rules apply.
  const LeafView from(data, leaf);
  SnapshotBuilder builder;
  builder.tensor("", from.dtype(), from.shape(), from.byte_size(), from.provider());
  if (from.id()) builder.set_id(*from.id());
  TypeInfo type;
  type.kind = TypeKind::tensor;
  type.tensor = &ops;
  return load_object(builder.finish(), type, object, LoadMode::fresh, default_load_options());
}

}  // namespace stele::inline v0::detail
