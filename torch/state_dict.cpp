#include "state_dict.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "snapshot/module_leaf.hpp"
#include "stele/detail/strided.hpp"
#include "stele/record.hpp"

namespace stele::inline v0::detail::libtorch {
namespace {

/// Looks up the dtype by name, because the set of dtypes depends on libtorch's version.
DType dtype_of(at::ScalarType type) {
  static constexpr std::pair<std::string_view, DType> names[] = {
      {"Float", DType::f32},
      {"Double", DType::f64},
      {"Half", DType::f16},
      {"BFloat16", DType::bf16},
      {"Long", DType::i64},
      {"Int", DType::i32},
      {"Short", DType::i16},
      {"Char", DType::i8},
      {"Byte", DType::u8},
      {"Bool", DType::boolean},
      {"ComplexFloat", DType::c64},
      {"ComplexDouble", DType::c128},
      {"UInt16", DType::u16},
      {"UInt32", DType::u32},
      {"UInt64", DType::u64},
      {"Float8_e4m3fn", DType::f8_e4m3fn},
      {"Float8_e5m2", DType::f8_e5m2},
      {"Float8_e4m3fnuz", DType::f8_e4m3fnuz},
      {"Float8_e5m2fnuz", DType::f8_e5m2fnuz},
      {"Float8_e8m0fnu", DType::f8_e8m0},
  };
  for (const auto& [name, dtype] : names) {
    if (name == c10::toString(type)) return dtype;
  }
  return DType::none;
}

const Entry& entry(const void* object) { return *static_cast<const Entry*>(object); }

/// Copies between row-major `rows` and the strided elements of a tensor.
template <std::size_t Size, bool Write, class Bytes>
void copy_elements(const Entry& e, std::uint64_t first, std::size_t count, Bytes* rows) {
  std::byte* const data = e.data();
  const Shape extents = e.shape();
  const std::vector<std::ptrdiff_t> strides(e.host.strides().begin(), e.host.strides().end());
  walk_strided(extents.span(), strides, first, count, [&](std::ptrdiff_t at, std::size_t i) {
    std::byte* const element = data + at * static_cast<std::ptrdiff_t>(Size);
    if constexpr (Write) {
      std::memcpy(element, rows + i * Size, Size);
    } else {
      std::memcpy(rows + i * Size, element, Size);
    }
  });
}
template <bool Write, class Bytes>
void copy_elements(const Entry& e, std::uint64_t first, std::size_t count, Bytes* rows) {
  switch (element_size(e.ops.dtype)) {
    case 1:
      return copy_elements<1, Write>(e, first, count, rows);
    case 2:
      return copy_elements<2, Write>(e, first, count, rows);
    case 4:
      return copy_elements<4, Write>(e, first, count, rows);
    case 8:
      return copy_elements<8, Write>(e, first, count, rows);
    default:
      return copy_elements<16, Write>(e, first, count, rows);
  }
}

/// Returns a part of the elements of a contiguous tensor of a device.
at::Tensor part_of(const Entry& e, std::uint64_t first, std::size_t count) {
  return e.tensor.detach().view({-1}).narrow(0, static_cast<std::int64_t>(first), static_cast<std::int64_t>(count));
}

/// Returns the device of a tensor that a Transfer can reach.
Location location_of(const at::Tensor& tensor) {
#ifdef USE_ROCM  // devices of HIP are called cuda
  constexpr DeviceKind kind = DeviceKind::hip;
#else
  constexpr DeviceKind kind = DeviceKind::cuda;
#endif
  return {kind, tensor.device().index()};
}

/// Returns false for a tensor whose storage was freed, as FSDP does, or that has no storage, such as a wrapper of
/// tensors.
bool has_data(const at::Tensor& tensor) {
  if (tensor.numel() == 0 || (!tensor.is_cpu() && !tensor.is_cuda())) return true;
  if (!tensor.has_storage() || tensor.storage().unsafeGetStorageImpl()->data() == nullptr) return false;
  std::int64_t end = tensor.storage_offset() + 1;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) end += (tensor.size(d) - 1) * tensor.stride(d);
  return static_cast<std::size_t>(end) * tensor.itemsize() <= tensor.storage().nbytes();
}

TensorOps base_ops(DType dtype) {
  TensorOps ops;
  ops.dtype = dtype;
  ops.fixed_shape = true;
  ops.shape = [](const void* object, Shape& out) { out = entry(object).shape(); };
  return ops;
}

/// For contiguous tensors of devices. Without a Transfer, libtorch copies the pieces.
TensorOps device_ops(DType dtype) {
  TensorOps ops = base_ops(dtype);
  ops.data = [](void* object) { return entry(object).data(); };
  ops.locations = [](const void* object, void* context, void (*visit)(void*, Location, std::byte*)) {
    visit(context, location_of(entry(object).tensor), entry(object).data());
  };
  ops.read = [](const void* object, std::uint64_t first, std::size_t count, std::byte* out) {
    const at::Tensor host = part_of(entry(object), first, count).cpu();
    std::memcpy(out, host.data_ptr(), host.nbytes());
  };
  ops.write = [](void* object, std::uint64_t first, std::size_t count, const std::byte* in) {
    const at::Tensor part = part_of(entry(object), first, count);
    auto* const bytes = const_cast<std::byte*>(in);  // from_blob() takes no const memory; copy_() only reads it
    part.copy_(at::from_blob(bytes, part.sizes(), at::TensorOptions().dtype(part.scalar_type())));
  };
  return ops;
}

TensorOps ops_of(DType dtype, bool contiguous) {
  TensorOps ops = base_ops(dtype);
  if (contiguous) ops.data = [](void* object) { return entry(object).data(); };
  ops.read = [](const void* object, std::uint64_t first, std::size_t count, std::byte* out) {
    copy_elements<false>(entry(object), first, count, out);
  };
  ops.write = [](void* object, std::uint64_t first, std::size_t count, const std::byte* in) {
    copy_elements<true>(entry(object), first, count, in);
  };
  return ops;
}

// Presents a tensor with several names as a shared pointer that always has a target, so that the loader recognizes
// ties.
constexpr ContainerOps holds_one = [] {
  ContainerOps ops;
  ops.size = [](const void*) { return std::size_t{1}; };
  ops.at = [](const void* object, std::size_t) { return const_cast<void*>(object); };
  return ops;
}();

}  // namespace

std::string below(const std::string& path, const std::string& name) {
  std::string text = path;
  if (!text.empty()) text += '.';
  append_segment(text, name);
  return text;
}

Result<std::shared_ptr<StateDict>> StateDict::of(const ::torch::nn::Module& module, const Select& select) {
  auto tree = std::make_shared<StateDict>();
  tree->root_ = &tree->branches_.emplace_back();
  STELE_TRY(tree->add(module, select, *tree->root_, {}));
  for (Branch& branch : tree->branches_) tree->complete(branch);
  return tree;
}

Status StateDict::add(const ::torch::nn::Module& module, const Select& select, Branch& branch,
                      const std::string& path) {
  for (const auto& tensors : {module.named_parameters(false), module.named_buffers(false)}) {
    for (const auto& item : tensors) {
      if (!item.value().defined()) continue;  // for example, a layer without bias
      const at::Tensor tensor = select ? select(item.value()) : item.value();
      if (!tensor.defined()) continue;
      std::string name = below(path, item.key());
      STELE_TRY_ASSIGN(Entry * e, find(tensor, name));
      paths_.emplace_back(std::move(name), e);
      branch.names.push_back(item.key());
      branch.objects.push_back(e);
      branch.fields.push_back({branch.names.back(), &e->type});
    }
  }
  for (const auto& child : module.named_children()) {
    if (child.value() == nullptr) continue;
    Branch& next = branches_.emplace_back();
    branch.names.push_back(child.key());
    branch.objects.push_back(&next);
    branch.fields.push_back({branch.names.back(), &next.type});
    STELE_TRY(add(*child.value(), select, next, below(path, child.key())));
  }
  return {};
}

Result<Entry*> StateDict::find(const at::Tensor& tensor, const std::string& path) {
  const DType dtype = dtype_of(tensor.scalar_type());
  const bool plain = tensor.layout() == at::kStrided && !tensor.is_quantized() && !tensor.is_meta() && has_data(tensor);
  if (dtype == DType::none || !plain) {
    return Error(Errc::unsupported, "the kind of the tensor is not supported")
        .path(path)
        .expected("a dense tensor with data and a dtype that stele supports")
        .found(tensor.toString());
  }
  const void* const storage = tensor.storage().unsafeGetStorageImpl();
  const auto [begin, end] = by_storage_.equal_range(storage);
  for (auto at = begin; at != end; ++at) {
    if (at->second->same_as(tensor)) return ++at->second->names, at->second;
  }
  Entry& e = entries_.emplace_back();
  by_storage_.emplace(storage, &e);
  e.tensor = tensor;
  e.host = tensor;
  const bool plain_elements = !tensor.is_conj() && !tensor.is_neg();
  if (tensor.is_cuda() && plain_elements && tensor.is_contiguous()) {
    e.ops = device_ops(dtype);
  } else {
    if (!tensor.is_cpu() || !plain_elements) {
      e.host = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous();
    }
    e.ops = ops_of(dtype, e.host.is_contiguous());
  }
  e.type.kind = TypeKind::tensor;
  e.type.tensor = &e.ops;
  e.shared.kind = TypeKind::shared;
  e.shared.element = &e.type;
  e.shared.container = &holds_one;
  return &e;
}

/// Completes the tables after all objects have their final addresses and all names of a tensor are known.
void StateDict::complete(Branch& branch) {
  for (std::size_t i = 0; i < branch.fields.size(); ++i) {
    if (branch.fields[i].type->kind != TypeKind::tensor) continue;
    const auto* e = static_cast<Entry*>(branch.objects[i]);
    if (e->names > 1) branch.fields[i].type = &e->shared;
  }
  // If all names are numbers, as in a Sequential or a ModuleList, the branch corresponds to a list.
  bool numbered = !branch.names.empty();
  for (std::size_t i = 0; i < branch.names.size(); ++i) numbered = numbered && branch.names[i] == std::to_string(i);
  branch.type.kind = numbered ? TypeKind::tuple : TypeKind::module;
  branch.type.fields = branch.fields;
  branch.type.slots = branch.fields.size();
  branch.type.addresses = [](void* object, void** out) {
    const auto& objects = static_cast<Branch*>(object)->objects;
    std::copy(objects.begin(), objects.end(), out);
  };
}

Snapshot snapshot_of(const std::shared_ptr<StateDict>& state, Ties ties) {
  SnapshotBuilder builder;
  builder.set_flat();
  for (const auto& [path, e] : state->paths()) {
    if (e->node != no_index) {
      if (ties == Ties::aliases) builder.alias(std::string_view(path), e->node);
    } else {
      const auto bytes = static_cast<std::uint64_t>(e->host.numel()) * element_size(e->ops.dtype);
      e->node =
          builder.tensor(std::string_view(path), e->ops.dtype, e->shape().span(), bytes, module_provider(e, e->ops));
    }
  }
  builder.keep(state);
  return builder.finish();
}

}  // namespace stele::inline v0::detail::libtorch
