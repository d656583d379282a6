// Tensors as NumPy arrays: zero-copy from the mapped file where that is possible, read otherwise.
#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <unordered_map>

#include <nanobind/ndarray.h>

#include <stele/expansion.hpp>

#include "base/parallel.hpp"
#include "bindings.hpp"
#include "leaves/provider.hpp"
#include "leaves/region.hpp"
#include "snapshot/data.hpp"
#include "snapshot/fill.hpp"

namespace stele::python {

namespace {

using Array = nb::ndarray<nb::numpy>;
using ConstArray = nb::ndarray<nb::numpy, nb::ro>;
using Target = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// The dtype of an array with a leaf's elements. Arrays of dtypes that NumPy lacks are unsigned integers of the same
/// size (nanobind would make arrays of objects of them); the Python sources view them as the actual dtype. `items`: the
/// array has the leaf's shape; otherwise it is one-dimensional, of bytes: packed elements, blocks, strings.
struct ArrayType {
  nb::dlpack::dtype dtype{};
  bool items = true;
};

ArrayType array_type(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto make = [&](Code code) {
    return ArrayType{{static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(bits(dtype)), 1}, true};
  };
  if (element_size(dtype) == 0) return {{static_cast<std::uint8_t>(Code::UInt), 8, 1}, false};
  switch (dtype_class(dtype)) {
    case DTypeClass::floating:
      return make(dtype == DType::bf16 || bits(dtype) == 8 ? Code::UInt : Code::Float);
    case DTypeClass::signed_int:
      return make(Code::Int);
    case DTypeClass::boolean:
      return make(Code::Bool);
    case DTypeClass::complex:
      return make(Code::Complex);
    default:
      return make(Code::UInt);
  }
}

/// The largest power of two that NumPy and torch want the address of an element to be a multiple of.
std::size_t alignment_of(DType dtype) noexcept {
  const std::size_t size = std::max(1U, element_size(dtype));
  return dtype_class(dtype) == DTypeClass::complex ? size / 2 : size;
}

/// The most axes of an array of NumPy 2.
constexpr std::size_t max_axes = 64;

void check_axes(std::size_t axes) {
  if (axes > max_axes) throw nb::value_error("NumPy has arrays of at most 64 axes");
}

nb::object array_of(std::byte* data, const LeafView& leaf, nb::handle owner, bool writable) {
  const ArrayType type = array_type(leaf.dtype());
  std::vector<std::size_t> shape;
  if (type.items) {
    check_axes(leaf.shape().size());
    for (const Extent extent : leaf.shape()) shape.push_back(static_cast<std::size_t>(extent));
  } else {
    shape.push_back(static_cast<std::size_t>(leaf.byte_size()));
  }
  static std::byte nothing[16];
  if (data == nullptr) data = nothing;  // an empty tensor
  if (writable)
    return nb::cast(Array(data, shape.size(), shape.data(), owner, nullptr, type.dtype, nb::device::cpu::value));
  return nb::cast(ConstArray(data, shape.size(), shape.data(), owner, nullptr, type.dtype, nb::device::cpu::value));
}

/// Mapped sources and leaves that were checked, for each opened file. Thread-safe.
class Mappings {
 public:
  /// Returns the mapping of a source, or nullptr.
  SourcePtr mapped(const Source& source) {
    const std::lock_guard lock(mutex_);
    auto [at, added] = mapped_.try_emplace(&source);
    if (added) at->second = source.mapped();
    return at->second;
  }
  bool checked(std::uint32_t leaf) {
    const std::lock_guard lock(mutex_);
    return leaf < checked_.size() && checked_[leaf];
  }
  void set_checked(std::uint32_t leaf) {
    const std::lock_guard lock(mutex_);
    if (leaf >= checked_.size()) checked_.resize(leaf + std::size_t{1});
    checked_[leaf] = true;
  }

 private:
  std::mutex mutex_;
  std::map<const Source*, SourcePtr> mapped_;
  std::vector<bool> checked_;
};

struct InMemory {
  const std::byte* data = nullptr;  // null: not in memory
  std::shared_ptr<const void> keeper;
  bool check = false;  // to be checked before the first use: a checksum, or bools that may be neither 0 nor 1
};

/// Returns where the elements of a leaf are in memory, or in a file of `mappings`. `writable`: required for the latter.
InMemory place_of(const Snapshot& snapshot, const LeafView& leaf, Mappings& mappings, bool writable) {
  if (leaf.byte_size() == 0) return {};
  const bool boolean = leaf.dtype() == DType::boolean;
  const std::size_t alignment = alignment_of(leaf.dtype());
  const auto usable = [&](const std::byte* data) {
    return data != nullptr && std::bit_cast<std::uintptr_t>(data) % alignment == 0;
  };
  const auto location = leaf.location();
  if (!location) {
    const auto view = leaf.view();
    if (writable || view.empty() || !usable(view.data())) return {};
    return {view.data(), snapshot.data(), boolean};
  }
  if (std::endian::native != std::endian::little) return {};
  const std::span<const std::byte> memory = location->source->view();
  if (!memory.empty() && !writable) {
    if (location->offset > memory.size() || leaf.byte_size() > memory.size() - location->offset) return {};
    const std::byte* const data = memory.data() + location->offset;
    if (!usable(data)) return {};
    return {data, snapshot.data(), location->hashed || boolean};
  }
  SourcePtr mapped = mappings.mapped(*location->source);
  if (mapped == nullptr) return {};
  const auto view = mapped->view();
  if (location->offset > view.size() || leaf.byte_size() > view.size() - location->offset) return {};
  const std::byte* data = view.data() + location->offset;
  if (!usable(data)) return {};
  if (writable) data = mapped->writable_view({location->offset, leaf.byte_size()});
  return {data, std::move(mapped), location->hashed || boolean};
}

/// Reads leaves into memory on all threads, checked. `progress` counts their bytes.
Status fill_all(const Snapshot& snapshot, std::vector<detail::Fill> fills, const Progress& progress) {
  STELE_TRY(check_expansion(snapshot));
  std::uint64_t total = 0;
  for (const auto& f : fills) total += snapshot.leaf(f.leaf).byte_size();
  const ProgressCallback callback = progress.callback();
  detail::Meter meter(callback, total);
  detail::Filled filled;
  auto status = detail::fill(snapshot, fills, {}, meter, detail::workers_of(0, nullptr), filled);
  if (status || fills.empty() || !status.error().path().empty()) return status;
  return std::move(status).error().path(snapshot.leaf(fills[filled.failed].leaf).path());
}

/// A file's leaves as arrays.
class Reader {
 public:
  explicit Reader(nb::object model) : object_(std::move(model)), model_(nb::cast<const Model*>(object_)) {}

  /// Returns arrays of leaves, in this order. `copy`: arrays own their memory; otherwise they may be read-only views.
  /// `writable`: views of a private mapping. Elements are checked if the file has checksums, unless `trust`.
  nb::list arrays(const std::vector<std::uint32_t>& leaves, bool copy, bool writable, bool trust, nb::object function) {
    const Snapshot& snapshot = model_->snapshot();
    const Progress progress(std::move(function));
    std::vector<InMemory> places(leaves.size());
    std::vector<Bytes> blocks;
    std::vector<std::pair<std::size_t, std::size_t>> in_block(leaves.size(), {no_block, 0});
    unwrap(interruptible([&] {
             return detail::guarded(
                 [&] { return prepare(leaves, copy, writable, trust, progress, places, blocks, in_block); });
           }),
           progress);
    std::vector<nb::capsule> owners;
    std::vector<std::byte*> memory;
    for (Bytes& block : blocks) {
      memory.push_back(block.data());
      owners.push_back(capsule_of(std::move(block)));
    }
    std::map<const void*, nb::capsule> keepers;
    nb::list list;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const LeafView leaf = snapshot.leaf(leaves[i]);
      if (places[i].data != nullptr) {
        nb::handle owner = object_;
        if (places[i].keeper != snapshot.data()) {
          auto [at, added] = keepers.try_emplace(places[i].keeper.get());
          if (added) at->second = capsule_of(places[i].keeper);
          owner = at->second;
        }
        list.append(array_of(const_cast<std::byte*>(places[i].data), leaf, owner, writable));
      } else if (in_block[i].first != no_block) {
        list.append(array_of(memory[in_block[i].first] + in_block[i].second, leaf, owners[in_block[i].first], true));
      } else {
        list.append(array_of(nullptr, leaf, object_, true));
      }
    }
    return list;
  }

  /// Reads a leaf into memory of its size.
  void read_into(std::uint32_t leaf, const Target& target, nb::object function) {
    const Snapshot& snapshot = model_->snapshot();
    const LeafView view = unwrap(snapshot.checked_leaf(leaf));
    if (target.size() != view.byte_size()) {
      throw nb::value_error("read_into: the memory has another number of bytes than the tensor");
    }
    const Progress progress(std::move(function));
    auto* const memory = reinterpret_cast<std::byte*>(target.data());
    unwrap(interruptible([&] {
             return detail::guarded([&] { return fill_all(snapshot, {{memory, leaf, view.dtype()}}, progress); });
           }),
           progress);
  }

  /// Reads the box of a leaf from `start` on; whole elements only.
  nb::object region(std::uint32_t leaf, const std::vector<Extent>& start, const std::vector<Extent>& length) {
    const LeafView view = unwrap(model_->snapshot().checked_leaf(leaf));
    std::uint64_t bytes = element_size(view.dtype());
    bool inside = bytes != 0 && start.size() == view.shape().size() && length.size() == start.size();
    for (std::size_t d = 0; inside && d < start.size(); ++d) {
      inside = start[d] <= view.shape()[d] && length[d] <= view.shape()[d] - start[d];
      bytes *= length[d];
    }
    if (!inside) throw nb::index_error("the region is not in the tensor");
    check_axes(length.size());
    Bytes memory(static_cast<std::size_t>(bytes));
    if (bytes != 0) {
      unwrap(interruptible([&] {
        return detail::guarded([&]() -> Status {
          const detail::RegionLeaf box(view.provider(), view.shape(), element_size(view.dtype()), {start, length});
          ReadContext context;
          return detail::read_bytes(box.provider(), bytes, 0, memory.span(), context);
        });
      }));
    }
    std::vector<std::size_t> shape(length.begin(), length.end());
    static std::byte nothing[16];
    std::byte* const data = bytes == 0 ? nothing : memory.data();
    const nb::capsule owner = capsule_of(std::move(memory));
    return nb::cast(Array(data, shape.size(), shape.data(), owner, nullptr, array_type(view.dtype()).dtype,
                          nb::device::cpu::value));
  }

  /// Returns true if arrays() would return a view of a leaf that needs no check.
  bool viewable(std::uint32_t leaf, bool trust) {
    const LeafView view = unwrap(model_->snapshot().checked_leaf(leaf));
    const InMemory place = place_of(model_->snapshot(), view, mappings_, false);
    return place.data != nullptr && (trust || !place.check || mappings_.checked(leaf));
  }

 private:
  static constexpr std::size_t no_block = SIZE_MAX;

  Status prepare(const std::vector<std::uint32_t>& leaves, bool copy, bool writable, bool trust,
                 const Progress& progress, std::vector<InMemory>& places, std::vector<Bytes>& blocks,
                 std::vector<std::pair<std::size_t, std::size_t>>& in_block) {
    // Smaller arrays share blocks: fresh memory costs page faults.
    constexpr std::uint64_t small = std::uint64_t{16} << 20, block_size = std::uint64_t{32} << 20;
    const Snapshot& snapshot = model_->snapshot();
    std::vector<detail::Fill> fills, checks;
    struct Waiting {
      std::size_t fill, block, offset;
    };
    std::vector<Waiting> waiting;
    std::vector<std::uint64_t> sizes;
    std::size_t open = no_block;
    Mappings own;  // private to these arrays
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      STELE_TRY_ASSIGN(const LeafView leaf, snapshot.checked_leaf(leaves[i]));
      const std::uint64_t bytes = leaf.byte_size();
      if (bytes == 0) continue;
      // A separate mapping for each small tensor would exhaust the number of mappings that a process may have.
      const bool alone = writable && leaves.size() == 1 && bytes < (std::uint64_t{1} << 20);
      if (!copy && !alone) places[i] = place_of(snapshot, leaf, writable ? own : mappings_, writable);
      if (places[i].data != nullptr) {
        if (places[i].check && !trust && !mappings_.checked(leaves[i]))
          checks.push_back({nullptr, leaves[i], leaf.dtype()});
        continue;
      }
      const std::uint64_t padded = (bytes + 63) / 64 * 64;
      std::size_t block = open;
      if (bytes >= small || open == no_block || sizes[open] + padded > block_size) {
        block = sizes.size();
        sizes.push_back(0);
        if (bytes < small) open = block;
      }
      in_block[i] = {block, static_cast<std::size_t>(sizes[block])};
      sizes[block] += padded;
      waiting.push_back({fills.size(), block, in_block[i].second});
      fills.push_back({nullptr, leaves[i], leaf.dtype(), bytes < small});
    }
    for (const std::uint64_t size : sizes) {
      if (size > PTRDIFF_MAX) return Error(Errc::out_of_memory);
      blocks.emplace_back(static_cast<std::size_t>(size));
    }
    for (const Waiting& w : waiting) fills[w.fill].memory = blocks[w.block].data() + w.offset;
    if (!checks.empty()) {
      STELE_TRY(fill_all(snapshot, checks, progress));
      for (const auto& check : checks) mappings_.set_checked(check.leaf);
    }
    return fills.empty() ? Status() : fill_all(snapshot, std::move(fills), progress);
  }

  nb::object object_;
  const Model* model_;
  Mappings mappings_;
};

}  // namespace

void bind_arrays(nb::module_& module) {
  nb::class_<Reader>(module, "Reader")
      .def(nb::init<nb::object>(), nb::arg("model"))
      .def("arrays", &Reader::arrays, nb::arg("leaves"), nb::arg("copy"), nb::arg("writable"), nb::arg("trust"),
           nb::arg("progress").none())
      .def("read_into", &Reader::read_into, nb::arg("leaf"), nb::arg("memory"), nb::arg("progress").none())
      .def("region", &Reader::region, nb::arg("leaf"), nb::arg("start"), nb::arg("length"))
      .def("viewable", &Reader::viewable, nb::arg("leaf"), nb::arg("trust"));
}

}  // namespace stele::python
