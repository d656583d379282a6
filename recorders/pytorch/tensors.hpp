// Reads, as data, the calls with which PyTorch's pickles rebuild tensors.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "file.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::pytorch {

/// A dense tensor.
struct Dense {
  View view;
  std::string class_name{};  // name of a subclass of torch.Tensor; else empty
  Value quantization{};      // the annotation; null if there is none
};

/// Reads calls of torch._utils and similar modules. Sources of all facts: torch/_utils.py and torch/_tensor.py of
/// PyTorch 2.15.
class Tensors {
 public:
  Tensors(File& file, IndexBudget& memory) : file_(file), objects_(file.objects), memory_(memory) {}

  /// The kind of an object, derived from the called name.
  enum class Form : std::uint8_t {
    other,    // not a tensor
    dense,    // one leaf
    sparse,   // several tensors: parts()
    nested,   //
    storage,  // a storage without a tensor
  };
  Form form(pickle::Ref r) const;
  /// Reads a dense tensor, or a storage as a dense tensor. Errors: malformed, unsupported, limit.
  Result<Dense> dense(pickle::Ref r);

  /// A part of a sparse or nested tensor: a tensor or a value.
  struct Part {
    std::string_view name;
    pickle::Ref object;
  };
  /// Returns the parts of a sparse or nested tensor. Errors: malformed, unsupported.
  Result<std::vector<Part>> parts(pickle::Ref r) const;
  /// Returns the layout of a sparse tensor: "torch.sparse_coo"; for a nested tensor, "torch.nested".
  std::string layout(pickle::Ref r) const;

  /// Returns a NumPy scalar as a number; nullopt for any other object.
  std::optional<Value> numpy_scalar(pickle::Ref r) const;
  /// Returns the elements of a torch.Size, or of a typed list of TorchScript; else `r` itself.
  pickle::Ref unwrapped(pickle::Ref r) const;

 private:
  struct Call {
    std::string_view module, name;
    std::span<const pickle::Ref> args;
  };
  std::optional<Call> call(pickle::Ref r) const;
  /// Returns true for a call of the name that nearly all tensors use, once form() has seen it.
  bool is_usual(pickle::Ref r) const;
  /// Follows parameters and subclasses to the call that builds the tensor.
  pickle::Ref core(pickle::Ref r, std::string* class_name) const;
  Result<Storage*> storage(pickle::Ref id, const TorchType*& type, std::uint64_t& offset);
  Result<std::vector<std::uint64_t>> numbers(pickle::Ref r) const;
  Result<std::uint64_t> number(pickle::Ref r) const;
  Result<Dense> read_dense(pickle::Ref r);
  Result<Dense> rebuild(pickle::Ref r, const Call& call);
  Result<Dense> numpy_array(pickle::Ref r);
  Status read_metadata(pickle::Ref r, View& view) const;
  Result<Value> quantizer(pickle::Ref r, const TorchType& type);
  Result<Value> list_of(pickle::Ref tensor, Extent length);

  File& file_;
  const pickle::Objects& objects_;
  IndexBudget& memory_;
  int nesting_ = 0;  // nesting of dense() calls
  mutable pickle::Ref usual_ = pickle::no_ref;
  pickle::Ref storage_class_ = pickle::no_ref;  // the last storage class seen
  const TorchType* storage_type_ = nullptr;     // and its type
};

}  // namespace stele::inline v0::detail::pytorch
