// Snapshot -> object, second half: bytes.
#include <algorithm>
#include <cstring>

#include "match.hpp"
#include "parallel.hpp"
#include "snapshot_internal.hpp"

namespace stele {
inline namespace v0 {
namespace detail {
namespace {

/// Puts a leaf's bytes into a tensor of the module, converting on the way where `from` differs.
class TensorSink final : public PieceSink {
 public:
  TensorSink(const TensorOps& ops, void* object) : ops_(ops), object_(object), size_(element_size(ops.dtype)) {
    if (ops.data != nullptr) data_ = ops.data(object);
  }
  std::byte* place(std::uint64_t offset, std::size_t) override { return data_ != nullptr ? data_ + offset : nullptr; }
  Status piece(std::span<const std::byte> bytes) override {
    if (data_ == nullptr) {
      ops_.write(object_, done_ / size_, bytes.size() / size_, bytes.data());
    } else if (bytes.data() != data_ + done_ && !bytes.empty()) {
      std::memcpy(data_ + done_, bytes.data(), bytes.size());
    }
    done_ += bytes.size();
    return {};
  }

 private:
  const TensorOps& ops_;
  void* object_;
  std::size_t size_;
  std::byte* data_ = nullptr;
  std::uint64_t done_ = 0;
};

/// Says what became of a tensor.
void add_row(Report& report, std::string_view path, DType from, DType to) {
  if (from == to) return report.add(Report::What::applied, path);
  report.add(Report::What::converted, path,
             std::string(name(from)) + " -> " + std::string(name(to)) + (lossless(from, to) ? "" : ", lossy"));
}

class NullSink final : public PieceSink {
 public:
  Status piece(std::span<const std::byte>) override { return {}; }
};

class Loader {
 public:
  Loader(const Snapshot& snapshot, const LoadOptions& options, LoadMode mode, Report& report)
      : tree_(snapshot), options_(options), mode_(mode), report_(report) {}

  Status run(const TypeInfo& type, void* object) {
    // Fresh: structure is made as it is checked; what went wrong is thrown away by the caller. In place: nothing
    // changes before everything is checked.
    plan_.tensors.reserve(tree_.snapshot().leaf_count());
    const Walking first = mode_ == LoadMode::fresh ? Walking::make : Walking::check;
    if (auto r = match(tree_, type, object, mode_, first, options_, report_, plan_); !r) {
      return finish(std::move(r).error());
    }
    const bool verifies = mode_ == LoadMode::in_place && !options_.trust_data;
    std::uint64_t bytes = 0;
    for (const TensorOp& op : plan_.tensors) {
      const LeafView leaf = tree_.snapshot().leaf(op.leaf);
      bytes += leaf.size() * element_size(op.ops->dtype);  // as the module has them
    }
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
      // The second walk makes the structure; what it checks again cannot have changed.
      plan_ = {};
      auto made = guarded([&] { return match(tree_, type, object, mode_, Walking::remake, options_, report_, plan_); });
      if (!made) return finish(std::move(made).error().partially_applied(true));
    }
    return write();
  }

 private:
  Error finish(Error error) { return std::move(error).report(std::make_shared<const Report>(report_)); }
  Error at_path(Error error, const TensorOp& op) const { return std::move(error).path(std::string(plan_.path(op))); }

  Status allocate_unset() {
    for (const TensorOp& op : plan_.tensors) {
      if (op.object == nullptr || op.ops->fixed_shape || !op.ops->unset(op.object)) continue;
      allocated_.push_back(op);
      op.ops->resize(op.object, Shape(tree_.snapshot().leaf(op.leaf).shape()));
    }
    return {};
  }

  Status verify() {
    NullSink nowhere;
    for (const TensorOp& op : plan_.tensors) {
      const LeafView leaf = tree_.snapshot().leaf(op.leaf);
      auto r = guarded([&] { return stream(leaf, op.ops->dtype, nowhere); });
      if (!r) return at_path(std::move(r).error(), op);
    }
    return {};
  }

  Status stream(const LeafView& leaf, DType to, PieceSink& sink, std::uint64_t* overflowed = nullptr) {
    if (meter_->idle()) return convert(leaf, to, sink, overflowed);
    MeterSink metering(sink, *meter_);
    return convert(leaf, to, metering, overflowed);
  }

  Status convert(const LeafView& leaf, DType to, PieceSink& sink, std::uint64_t* overflowed) {
    // A bool is checked by converting it to itself.
    if (leaf.dtype() == to && to != DType::boolean) return leaf.stream(sink, context_);
    ConvertingSink converting(leaf.dtype(), to, options_.convert, sink, context_);
    STELE_TRY(leaf.stream(converting, context_));
    if (overflowed != nullptr) *overflowed = converting.overflowed();
    return {};
  }

  Status write() {
    bool written = mode_ == LoadMode::in_place && options_.rebuild;
    const auto stopped = [&](Error error) {
      return finish(mode_ == LoadMode::in_place ? std::move(error).partially_applied(written) : std::move(error));
    };
    for (const ValueOp& op : plan_.values) {
      if (op.object == nullptr) continue;
      const auto expected = op.ops->from_value(op.object, tree_.snapshot().value(tree_.node(op.node)));
      const std::string_view path = plan_.path(op);
      if (!expected.empty()) {
        return stopped(Error(Errc::value_mismatch, "a value that does not fit the field")
                           .path(std::string(path))
                           .expected(std::string(expected)));
      }
      report_.add(Report::What::applied, path);
      written = true;
    }
    // The source's order, so that one pass forward over the file is enough.
    const auto before = [](const TensorOp& a, const TensorOp& b) { return a.leaf < b.leaf; };
    if (!std::is_sorted(plan_.tensors.begin(), plan_.tensors.end(), before)) {
      std::stable_sort(plan_.tensors.begin(), plan_.tensors.end(), before);
    }
    for (const TensorOp& op : plan_.tensors) {
      if (op.object == nullptr) continue;
      written = true;  // an error in the middle leaves part of the tensor written
      auto r = guarded([&] { return write_tensor(op); });
      if (!r) return stopped(at_path(std::move(r).error(), op));
    }
    return {};
  }

  Status write_tensor(const TensorOp& op) {
    const LeafView leaf = tree_.snapshot().leaf(op.leaf);
    const TensorOps& ops = *op.ops;
    const std::string_view path = plan_.path(op);
    if (ops.id != nullptr) *ops.id(op.object) = leaf.id();
    if (options_.storage == Storage::view && ops.adopt != nullptr) {
      const char* obstacle = adopt(op, leaf);
      if (obstacle == nullptr) {
        report_.add(Report::What::applied, path);
        return meter_->add(leaf.byte_size());
      }
      report_.add(Report::What::copied, path, obstacle);
    } else if (options_.storage == Storage::view) {
      report_.add(Report::What::copied, path, "this tensor type cannot view");
    }
    const Provider& provider = leaf.provider();
    if (module_tensor_ops(provider) == &ops && ops.take != nullptr && tree_.snapshot().data()->consumable) {
      ops.take(op.object, const_cast<void*>(provider.at));
      report_.add(Report::What::applied, path);
      return meter_->add(leaf.byte_size());
    }
    if (!ops.fixed_shape) {
      Shape now;
      ops.shape(op.object, now);
      if (ops.unset(op.object) || !std::equal(now.begin(), now.end(), leaf.shape().begin(), leaf.shape().end())) {
        ops.resize(op.object, Shape(leaf.shape()));
      }
    }
    TensorSink sink(ops, op.object);
    std::uint64_t overflowed = 0;
    STELE_TRY(stream(leaf, ops.dtype, sink, &overflowed));
    add_row(report_, path, leaf.dtype(), ops.dtype);
    if (overflowed != 0) report_.add(Report::What::overflowed, path, std::to_string(overflowed) + " numbers");
    return {};
  }

  /// Lets the tensor point to where the leaf lies in memory; else says what stands in the way.
  const char* adopt(const TensorOp& op, const LeafView& leaf) {
    const Provider& provider = leaf.provider();
    const auto bytes = leaf.view();
    if (leaf.dtype() != op.ops->dtype) return "another dtype";
    if (leaf.dtype() == DType::boolean) return "bools are checked, so they are read";
    if (bytes.empty() || provider.ops->in_module) return "not in memory";
    if (!provider.ops->view_is_private && !op.ops->adopts_const) return "the memory is not to be written";
    if (reinterpret_cast<std::uintptr_t>(bytes.data()) % swap_unit(leaf.dtype()) != 0) return "not aligned";
    op.ops->adopt(op.object, const_cast<std::byte*>(bytes.data()), Shape(leaf.shape()), tree_.snapshot().data());
    return nullptr;
  }

  Tree tree_;
  const LoadOptions& options_;
  LoadMode mode_;
  Report& report_;
  LoadPlan plan_;
  std::optional<Meter> meter_;
  std::vector<TensorOp> allocated_;
  ReadContext context_{thread_count(options_.threads)};
};

}  // namespace

Status load_object(const Snapshot& snapshot, const TypeInfo& type, void* object, LoadMode mode,
                   const LoadOptions& options, Report& report) {
  return Loader(snapshot, options, mode, report).run(type, object);
}

Status check_object(const Snapshot& snapshot, const TypeInfo& type, const void* object, const LoadOptions& options,
                    Report& report) {
  LoadPlan plan;
  const LoadMode mode = object != nullptr ? LoadMode::in_place : LoadMode::fresh;
  auto status = match(Tree(snapshot), type, const_cast<void*>(object), mode, Walking::check, options, report, plan);
  if (status) {
    for (const ValueOp& op : plan.values) report.add(Report::What::applied, plan.path(op));
    for (const TensorOp& op : plan.tensors) {
      add_row(report, plan.path(op), snapshot.leaf(op.leaf).dtype(), op.ops->dtype);
    }
    return status;
  }
  return std::move(status).error().report(std::make_shared<const Report>(report));
}

Status load_tensor(const SnapshotData& data, std::uint32_t leaf, const TensorOps& ops, void* object) {
  // A one-leaf snapshot that borrows: the loader's rules hold for it as for any other.
  const LeafView from(data, leaf);
  SnapshotBuilder builder;
  builder.tensor("", from.dtype(), from.shape(), from.byte_size(), from.provider());
  if (from.id()) builder.set_id(*from.id());
  TypeInfo type;
  type.kind = TypeKind::tensor;
  type.tensor = &ops;
  Report report;
  return load_object(builder.finish(), type, object, LoadMode::fresh, LoadOptions{}, report);
}

}  // namespace detail
}  // namespace v0
}  // namespace stele
