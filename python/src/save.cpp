// Arrays of Python as a model, and saves.
#include <algorithm>
#include <cstring>
#include <unordered_map>

#include <stele/detail/strided.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/archive.hpp>
#include <stele/recorders/gguf.hpp>

#include "base/dtypes.hpp"
#include "bindings.hpp"
#include "commands.hpp"
#include "snapshot/data.hpp"
#include "snapshot/device_leaves.hpp"
#include "snapshot/module_leaf.hpp"

namespace stele::python {

namespace {

DType dtype_of(const std::string& text) {
  const DType dtype = v0::detail::dtype_named(text);
  if (dtype == DType::none) throw nb::value_error(("not a dtype: " + text).c_str());
  return dtype;
}

/// Memory of Python as a leaf: elements at any strides, in either byte order.
struct ArrayLeaf {
  const std::byte* address = nullptr;
  std::vector<Extent> shape;
  std::vector<std::ptrdiff_t> strides;  // in bytes; empty: row-major without gaps
  std::size_t element = 1;
  std::size_t swap = 1;  // bytes of a unit whose order is reversed; 1: none
  bool boolean = false;  // any byte except 0 means true, as for NumPy; files store 1
};

const std::byte* view(const void* at, std::uint64_t) {
  const auto& leaf = *static_cast<const ArrayLeaf*>(at);
  return leaf.strides.empty() && leaf.swap == 1 && !leaf.boolean ? leaf.address : nullptr;
}

template <std::size_t Size>
void gather(const ArrayLeaf& leaf, std::uint64_t first, std::span<std::byte> out) {
  detail::walk_strided(leaf.shape, leaf.strides, first, out.size() / Size, [&](std::ptrdiff_t at, std::size_t i) {
    std::memcpy(out.data() + i * Size, leaf.address + at, Size);
  });
}

Status read(const void* at, std::uint64_t, std::uint64_t offset, std::span<std::byte> out, ReadContext&) {
  const auto& leaf = *static_cast<const ArrayLeaf*>(at);
  if (leaf.strides.empty()) {
    std::memcpy(out.data(), leaf.address + offset, out.size());
  } else {
    const std::uint64_t first = offset / leaf.element;
    switch (leaf.element) {
      case 1:
        gather<1>(leaf, first, out);
        break;
      case 2:
        gather<2>(leaf, first, out);
        break;
      case 4:
        gather<4>(leaf, first, out);
        break;
      case 8:
        gather<8>(leaf, first, out);
        break;
      default:
        gather<16>(leaf, first, out);
        break;
    }
  }
  if (leaf.boolean) {
    std::transform(out.begin(), out.end(), out.begin(), [](std::byte b) { return std::byte{b != std::byte{0}}; });
  }
  if (leaf.swap > 1) {
    for (std::size_t i = 0; i + leaf.swap <= out.size(); i += leaf.swap) {
      std::reverse(out.begin() + static_cast<std::ptrdiff_t>(i),
                   out.begin() + static_cast<std::ptrdiff_t>(i + leaf.swap));
    }
  }
  return {};
}

constexpr LeafOps array_ops{.view = view, .read = read};

/// Keeps the memory of a model's arrays: references to Python objects, and the leaves.
struct Kept {
  std::vector<std::unique_ptr<ArrayLeaf>> leaves;
  std::vector<std::unique_ptr<DeviceTensor>> on_devices;
  nb::list references;
  Kept() = default;
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() {
    const nb::gil_scoped_acquire acquired;
    references.reset();
  }
};

class Build {
 public:
  explicit Build(std::size_t leaves) {
    builder_.set_flat();
    builder_.reserve(leaves + 1, leaves, 2 * leaves);
  }

  /// (name, dtype, shape, owner, address, strides or None, swapped)
  std::uint32_t array(const nb::tuple& row) {
    auto leaf = std::make_unique<ArrayLeaf>();
    const DType dtype = dtype_of(nb::cast<std::string>(row[1]));
    leaf->shape = nb::cast<std::vector<Extent>>(row[2]);
    leaf->address = reinterpret_cast<const std::byte*>(nb::cast<std::uintptr_t>(row[4]));
    check_memory(row, leaf->address, bytes_of(dtype, leaf->shape));
    if (!row[5].is_none()) leaf->strides = nb::cast<std::vector<std::ptrdiff_t>>(row[5]);
    leaf->element = std::max(1U, element_size(dtype));
    leaf->boolean = dtype == DType::boolean;
    if (nb::cast<bool>(row[6])) leaf->swap = swap_unit(dtype);
    return add(row, dtype, std::move(leaf), nb::borrow(row[3]));
  }
  /// (name, dtype, shape, owner, address, (devices, ordinal)): contiguous memory of a device
  std::uint32_t on_device(const nb::tuple& row) {
    const auto place = nb::cast<nb::tuple>(row[5]);
    auto& devices = nb::cast<Devices&>(place[0]);
    if (devices_ != nullptr && devices_ != &devices) throw nb::value_error("the tensors are on devices of two drivers");
    if (devices_ == nullptr) {
      transfer_ = unwrap(devices.transfer());
      builder_.keep(transfer_);
      devices_ = &devices;
    }
    auto tensor = std::make_unique<DeviceTensor>();
    tensor->where = {devices.kind(), nb::cast<int>(place[1])};
    tensor->data = reinterpret_cast<std::byte*>(nb::cast<std::uintptr_t>(row[4]));
    tensor->dtype = dtype_of(nb::cast<std::string>(row[1]));
    tensor->shape = Shape(std::span<const Extent>(nb::cast<std::vector<Extent>>(row[2])));
    check_memory(row, tensor->data, bytes_of(tensor->dtype, tensor->shape.span()));
    const Provider provider = detail::module_provider(tensor.get(), device_tensor_ops);
    const std::uint32_t node = builder_.tensor(intern(row[0]), tensor->dtype, tensor->shape.span(),
                                               bytes_of(tensor->dtype, tensor->shape.span()), provider);
    kept_->on_devices.push_back(std::move(tensor));
    kept_->references.append(nb::borrow(row[3]));
    return node;
  }
  /// (name, model, number of the leaf)
  std::uint32_t leaf(const nb::tuple& row) {
    const auto* const model = nb::cast<const Model*>(row[1]);
    const Snapshot& from = model->snapshot();
    const LeafView leaf = unwrap(from.checked_leaf(nb::cast<std::size_t>(row[2])));
    const std::uint32_t node =
        builder_.tensor(intern(row[0]), leaf.dtype(), leaf.shape(), leaf.byte_size(), leaf.provider());
    if (const auto id = leaf.id()) builder_.set_id(*id);
    if (leaf.annotations() != nullptr) {
      for (const auto& [key, value] : *leaf.annotations()) builder_.annotate(key, value);
    }
    if (std::find(others_.begin(), others_.end(), from.data().get()) == others_.end()) {
      others_.push_back(from.data().get());
      builder_.keep(from.data());
      if (from.in_order()) builder_.set_in_order();
    }
    return node;
  }
  /// (name, number of an earlier row)
  std::uint32_t alias(const nb::tuple& row, const std::vector<std::uint32_t>& nodes) {
    return builder_.alias(intern(row[0]), nodes.at(nb::cast<std::size_t>(row[1])));
  }
  void value(nb::handle name, nb::handle value) { builder_.value(intern(name), to_value(value)); }
  SnapshotBuilder& builder() noexcept { return builder_; }
  Snapshot finish() {
    builder_.keep(kept_);
    const Snapshot snapshot = builder_.finish();
    if (transfer_ == nullptr) return snapshot;
    return unwrap(without_gil([&] { return detail::read_through(snapshot, transfer_.get()); }));
  }

 private:
  std::uint32_t add(const nb::tuple& row, DType dtype, std::unique_ptr<ArrayLeaf> leaf, nb::object owner) {
    const std::uint32_t node =
        builder_.tensor(intern(row[0]), dtype, leaf->shape, bytes_of(dtype, leaf->shape), {&array_ops, leaf.get(), 0});
    kept_->leaves.push_back(std::move(leaf));
    kept_->references.append(std::move(owner));
    return node;
  }
  static std::uint64_t bytes_of(DType dtype, std::span<const Extent> shape) {
    const auto count = element_count(shape);
    const auto bytes = count ? byte_length(dtype, *count) : std::nullopt;
    if (!bytes) throw nb::value_error("a tensor's size does not fit its dtype, or 64 bits");
    return *bytes;
  }
  static void check_memory(const nb::tuple& row, const std::byte* address, std::uint64_t bytes) {
    if (address != nullptr || bytes == 0) return;
    throw nb::value_error((string_of(row[0]) + ": the tensor has no memory").c_str());
  }
  SnapshotBuilder::Name intern(nb::handle name) {
    const Value text = to_value(name);
    if (text.as_string() == nullptr) throw nb::type_error("names are str");
    return builder_.intern(*text.as_string());
  }

  SnapshotBuilder builder_;
  std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
  std::vector<const void*> others_;
  const Devices* devices_ = nullptr;
  std::shared_ptr<Transfer> transfer_;
};

/// Returns a model of arrays, of tensors of other models, and of values. `whole`: the file with all of the tensors,
/// whose other parts are losses of a save; or null.
Model build(const nb::list& rows, const nb::dict& values, const nb::dict& metadata, nb::handle properties,
            const Model* whole) {
  Build build(nb::len(rows) + nb::len(values));
  std::vector<std::uint32_t> nodes;
  for (const nb::handle item : rows) {
    const auto row = nb::cast<nb::tuple>(item);
    nodes.push_back(row.size() == 2   ? build.alias(row, nodes)
                    : row.size() == 3 ? build.leaf(row)
                    : row.size() == 6 ? build.on_device(row)
                                      : build.array(row));
  }
  for (const auto& [name, value] : values) build.value(name, value);
  build.builder().set_metadata(to_strings(metadata));
  if (!properties.is_none()) build.builder().set_properties(to_value(properties));
  if (whole != nullptr) build.builder().data().left_out = whole->snapshot().data()->left_out;
  return {build.finish(), nullptr};
}

/// The options of a save, with the names of the command's.
struct Saving {
  command::Convert convert{};
  SaveOptions options{};
};

Saving saving_of(const nb::dict& options) {
  Saving s;
  for (const auto& [key, value] : options) {
    const auto name = nb::cast<std::string>(key);
    if (name == "to") s.convert.to = nb::cast<std::string>(value);
    if (name == "precision") s.convert.precision = nb::cast<std::string>(value);
    if (name == "quantize") s.convert.quantize = nb::cast<std::string>(value);
    if (name == "compress") s.convert.compress = nb::cast<bool>(value);
    if (name == "shard") s.convert.shard = nb::cast<std::string>(value);
    if (name == "append") s.convert.append = nb::cast<bool>(value);
    if (name == "to_tag") s.convert.to_tag = nb::cast<std::string>(value);
    if (name == "allow_loss") s.options.allow_loss = nb::cast<bool>(value);
    if (name == "allow_overflow") s.options.convert.allow_overflow = nb::cast<bool>(value);
    if (name == "dry_run") s.options.dry_run = nb::cast<bool>(value);
    if (name == "overwrite") s.options.file.overwrite = nb::cast<bool>(value);
    if (name == "threads") s.options.threads = nb::cast<unsigned>(value);
    if (name == "durability") {
      const auto text = nb::cast<std::string>(value);
      if (text != "full" && text != "process") throw nb::value_error("durability is 'full' or 'process'");
      s.options.file.durability = text == "full" ? Durability::full : Durability::process;
    }
  }
  return s;
}

/// Saves to a path, a file object, or (None) to bytes. Returns the report, the path, and the bytes or None.
nb::tuple save_model(const Model& model, nb::object target, const nb::dict& optimizer, const nb::dict& named,
                     nb::object function) {
  Saving saving = saving_of(named);
  const Checkpoint checkpoint = checkpoint_of(model, optimizer);
  const bool whole = nb::len(optimizer) != 0;
  const bool is_path = PyUnicode_Check(target.ptr());
  saving.convert.out = is_path ? string_of(target) : "";
  BufferSink buffer;
  std::unique_ptr<Sink> file;
  if (!is_path && !target.is_none()) file = sink_of_file(target);
  const Progress progress(std::move(function));
  saving.options.progress = progress.callback();
  std::string path;
  Report rows;
  const Report report = unwrap(
      without_gil([&] {
        return detail::guarded([&]() -> Result<Report> {
          STELE_TRY_ASSIGN(const command::Destination to, command::destination(saving.convert, model.format().get()));
          path = to.path;
          saving.options.format = to.format.get();
          Checkpoint content = checkpoint;
          saving.convert.allow_overflow = saving.options.convert.allow_overflow;
          STELE_TRY_ASSIGN(content.parameters, command::quantized(content.parameters, saving.convert, *to.format,
                                                                  saving.options.precision, rows));
          if (saving.convert.append) {
            SaveOptions edit = saving.options;  // the recorder has the format and the precision
            edit.format = {};
            edit.precision = {};
            return command::append_tag(std::move(content), to, saving.convert, saving.options.precision, edit);
          }
          const Output out = is_path ? Output(path) : Output(file != nullptr ? *file : buffer);
          STELE_TRY_ASSIGN(const Report saved,
                           whole ? save(content, out, saving.options) : save(content.parameters, out, saving.options));
          command::add_rows(rows, saved);
          return rows;
        });
      }),
      progress);
  nb::object bytes = nb::none();
  if (target.is_none()) {
    const Bytes memory = buffer.take();
    bytes = nb::bytes(memory.data(), memory.size());
  }
  return nb::make_tuple(to_python(report), text(path), bytes);
}

/// Returns the model with more metadata, and with other properties unless they are None.
Model with_metadata(const Model& model, const nb::dict& metadata, nb::handle properties) {
  Snapshot snapshot = stele::with_metadata(model.snapshot(), to_strings(metadata));
  if (!properties.is_none()) snapshot = with_properties(snapshot, to_value(properties));
  return {std::move(snapshot), model.format()};
}

}  // namespace

Checkpoint checkpoint_of(const Model& model, const nb::dict& optimizer) {
  Checkpoint checkpoint;
  checkpoint.parameters = model.snapshot();
  for (const auto& [kind, arrays] : optimizer) {
    checkpoint.optimizer.set_snapshot(nb::cast<std::string>(kind), nb::cast<const Model*>(arrays)->snapshot());
  }
  return checkpoint;
}

void bind_save(nb::module_& module) {
  module.def("build", build, nb::arg("rows"), nb::arg("values"), nb::arg("metadata"), nb::arg("properties").none(),
             nb::arg("whole") = nb::none());
  module.def("with_metadata", with_metadata, nb::arg("model"), nb::arg("metadata"), nb::arg("properties").none());
  module.def("save", save_model, nb::arg("model"), nb::arg("target").none(), nb::arg("optimizer"), nb::arg("options"),
             nb::arg("progress").none());
}

}  // namespace stele::python
