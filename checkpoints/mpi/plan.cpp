#include "plan.hpp"

#include <algorithm>
#include <utility>

#include "base/hash.hpp"
#include "base/hex.hpp"
#include "packing.hpp"

namespace stele::inline v0::mpi::detail {
namespace {

using v0::detail::IndexBudget;

GlobalTensor unpack(Unpacker& in) {
  GlobalTensor tensor;
  tensor.name = in.text();
  tensor.dtype = static_cast<DType>(in.number());
  tensor.shape.resize(static_cast<std::size_t>(in.number()));
  for (Extent& extent : tensor.shape) extent = in.number();
  return tensor;
}

}  // namespace

void TensorTable::pack(std::string& to, const GlobalTensor& tensor) {
  add_text(to, tensor.name);
  add_number(to, static_cast<std::uint64_t>(tensor.dtype));
  add_number(to, tensor.shape.size());
  for (const Extent extent : tensor.shape) add_number(to, extent);
}

Status TensorTable::add(std::string_view packed) {
  for (Unpacker in(packed); !in.empty();) {
    GlobalTensor tensor = unpack(in);
    const auto [at, fresh] = numbers_.emplace(tensor.name, static_cast<std::uint32_t>(tensors_.size()));
    if (fresh) {
      tensors_.push_back(std::move(tensor));
      continue;
    }
    const GlobalTensor& known = tensors_[at->second];
    if (known.dtype != tensor.dtype) {
      return Error(Errc::dtype_mismatch, "two processes have the tensor with different dtypes")
          .path(tensor.name)
          .expected(name(known.dtype))
          .found(name(tensor.dtype));
    }
    if (known.shape != tensor.shape) {
      return Error(Errc::shape_mismatch, "two processes have the tensor with different global shapes")
          .path(tensor.name)
          .expected(to_string(known.shape))
          .found(to_string(tensor.shape));
    }
  }
  return {};
}

std::uint32_t TensorTable::find(std::string_view name) const {
  const auto at = numbers_.find(std::string(name));
  return at != numbers_.end() ? at->second : static_cast<std::uint32_t>(tensors_.size());
}

std::uint32_t batch_size(std::size_t processes) {
  constexpr std::size_t boxes = std::size_t{1} << 20;
  return static_cast<std::uint32_t>(std::max<std::size_t>(1, boxes / std::max<std::size_t>(1, processes)));
}

std::string pack_boxes(const std::vector<const LocalTensor*>& local, std::uint32_t first, std::uint32_t end,
                       const std::vector<BoxHashes>& hashes) {
  std::string message;
  std::string box;
  for (std::uint32_t i = first; i < end; ++i) {
    box.clear();
    if (local[i] != nullptr) {
      for (const Extent start : local[i]->box.start) add_number(box, start);
      for (const Extent length : local[i]->box.length) add_number(box, length);
      if (box.empty()) box.push_back('\0');  // rank 0: the box has no numbers, but must not be empty
    }
    add_text(message, box);
    if (!hashes.empty() && local[i] != nullptr) add_number(message, hashes[i].all);
  }
  return message;
}

Result<std::vector<std::string>> Planner::add(std::uint32_t first, std::uint32_t end,
                                              const std::vector<std::string>& messages, bool hashes) {
  std::vector<Unpacker> in(messages.begin(), messages.end());
  std::vector<std::string> writes(messages.size());
  struct Owner {
    std::size_t process;
    std::uint64_t hash;
  };
  for (std::uint32_t i = first; i < end; ++i) {
    const GlobalTensor& tensor = table_.tensors()[i];
    ShardLayout layout{tensor.shape, {}};
    std::unordered_map<std::string_view, Owner> owners;  // for each distinct box, the lowest process that has it
    bool written = false;
    for (std::size_t process = 0; process < in.size(); ++process) {
      const std::string_view packed = in[process].text();
      if (packed.empty()) continue;
      const std::uint64_t hash = hashes ? in[process].number() : 0;
      const auto [at, fresh] = owners.emplace(packed, Owner{process, hash});
      if (!fresh) {
        if (at->second.hash == hash) continue;
        return Error(Errc::malformed, "two processes own the same box, with different elements")
            .path(tensor.name)
            .expected("equal checksums")
            .found(v0::detail::hex(at->second.hash) + " in process " + std::to_string(at->second.process) + ", " +
                   v0::detail::hex(hash) + " in process " + std::to_string(process));
      }
      Unpacker numbers(packed);
      const std::size_t before = layout.boxes.size();
      layout.boxes.push_back(process);
      bool empty = false;
      for (std::size_t d = 0; d < 2 * tensor.shape.size(); ++d) {
        layout.boxes.push_back(numbers.number());
        empty = empty || (d >= tensor.shape.size() && layout.boxes.back() == 0);
      }
      // A tensor without elements is written once, by the lowest rank that has it.
      const bool whole_is_empty = std::find(tensor.shape.begin(), tensor.shape.end(), Extent{0}) != tensor.shape.end();
      if (empty) layout.boxes.resize(before);
      if (empty && (!whole_is_empty || std::exchange(written, true))) continue;
      add_number(writes[process], i - first);
    }
    STELE_TRY_ASSIGN(const std::uint32_t number, layout_of(std::move(layout), tensor.name));
    index_.tensors.push_back({tensor.name, tensor.dtype, number});
  }
  return writes;
}

Result<std::uint32_t> Planner::layout_of(ShardLayout layout, const std::string& name) {
  std::uint64_t hash = v0::detail::hash64(layout.boxes.data(), layout.boxes.size() * sizeof(std::uint64_t));
  hash ^= v0::detail::hash64(layout.shape.data(), layout.shape.size() * sizeof(Extent));
  std::vector<std::uint32_t>& equal = layouts_[hash];
  for (const std::uint32_t number : equal) {
    const ShardLayout& known = index_.layouts[number];
    if (known.shape == layout.shape && known.boxes == layout.boxes) return number;
  }
  std::vector<Box> boxes;
  boxes.reserve(layout.size());
  for (std::size_t i = 0; i < layout.size(); ++i) boxes.push_back(layout.box(i));
  Limits unlimited;
  unlimited.index_bytes = UINT64_MAX;
  IndexBudget memory(unlimited, 0);
  if (auto covered = v0::detail::check_cover(boxes, layout.shape, memory); !covered) {
    return std::move(covered).error().path(name).hint("the boxes of all processes must cover the tensor exactly");
  }
  equal.push_back(static_cast<std::uint32_t>(index_.layouts.size()));
  index_.layouts.push_back(std::move(layout));
  return equal.back();
}

void renumber(ShardIndex& index, const std::vector<std::uint32_t>& numbers) {
  for (ShardLayout& layout : index.layouts) {
    for (std::size_t i = 0; i < layout.boxes.size(); i += layout.stride()) {
      layout.boxes[i] = numbers[static_cast<std::size_t>(layout.boxes[i])];
    }
  }
}

}  // namespace stele::inline v0::mpi::detail
