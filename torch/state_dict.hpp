// The tensors of a module as tables of the core: the tree that the loader walks, and the leaves of snapshots.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "stele/detail/type_info.hpp"
#include "stele/dtype.hpp"
#include "stele/result.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::libtorch {

/// A parameter or buffer, described by the core's tables.
struct Entry {
  at::Tensor tensor;  // the module's tensor
  // Strided elements in main memory, `tensor` itself or a copy; or `tensor`, contiguous in the memory of a device.
  at::Tensor host;
  std::uint32_t names = 1;
  std::uint32_t node = no_index;
  TensorOps ops;
  TypeInfo type;    // the type of the tensor
  TypeInfo shared;  // used if the tensor has several names: a shared pointer to it

  bool copied() const { return !host.is_same(tensor); }
  std::byte* data() const { return static_cast<std::byte*>(host.data_ptr()); }
  Shape shape() const {
    Shape extents;
    const auto sizes = host.sizes();
    extents.assign(std::vector<Extent>(sizes.begin(), sizes.end()));
    return extents;
  }
  /// Returns true if both refer to the same elements of one storage. Empty tensors share no elements.
  bool same_as(const at::Tensor& other) const {
    return tensor.is_same(other) || (tensor.numel() != 0 && tensor.storage_offset() == other.storage_offset() &&
                                     tensor.scalar_type() == other.scalar_type() && tensor.sizes() == other.sizes() &&
                                     tensor.strides() == other.strides() && tensor.is_conj() == other.is_conj() &&
                                     tensor.is_neg() == other.is_neg());
  }
};

/// A module of the tree: the run-time equivalent of a class's table in reflect.hpp.
struct Branch {
  std::deque<std::string> names;
  std::vector<FieldInfo> fields;
  std::vector<void*> objects;  // an Entry or a Branch for each field
  TypeInfo type;
};

/// Returns the tensor to use in place of a parameter or buffer. An undefined tensor leaves the name out.
using Select = std::function<at::Tensor(const at::Tensor&)>;

/// Tensors under the names of a module's parameters and buffers, in the order of PyTorch's state_dict.
class StateDict {
 public:
  /// Makes the tree of the module's tensors, or of the tensors that `select` returns for them.
  static Result<std::shared_ptr<StateDict>> of(const ::torch::nn::Module& module, const Select& select = {});

  Branch& root() { return *root_; }
  std::deque<Entry>& entries() { return entries_; }
  const std::vector<std::pair<std::string, Entry*>>& paths() const { return paths_; }

 private:
  Status add(const ::torch::nn::Module& module, const Select& select, Branch& branch, const std::string& path);
  Result<Entry*> find(const at::Tensor& tensor, const std::string& path);
  void complete(Branch& branch);

  std::deque<Entry> entries_;
  std::unordered_multimap<const void*, Entry*> by_storage_;
  std::deque<Branch> branches_;
  Branch* root_ = nullptr;
  std::vector<std::pair<std::string, Entry*>> paths_;
};

/// Selects how additional names of a tensor are recorded.
enum class Ties : std::uint8_t { aliases, omitted };
/// Returns the tensors of a tree. The Snapshot keeps the tree alive.
Snapshot snapshot_of(const std::shared_ptr<StateDict>& state, Ties ties = Ties::aliases);

/// Returns the path of a member below `path`.
std::string below(const std::string& path, const std::string& name);

}  // namespace stele::inline v0::detail::libtorch
