// The calls that rebuild tensors, read as data.
#include "tensors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::pytorch {
namespace {

using pickle::Kind;
using pickle::no_ref;
using pickle::Ref;

constexpr std::string_view utils = "torch._utils";

Error bad(const char* what) { return Error(Errc::malformed, what); }

pickle::Ref at(std::span<const Ref> list, std::size_t i) { return i < list.size() ? list[i] : no_ref; }

bool is_numpy_module(std::string_view module) {
  return module == "numpy.core.multiarray" || module == "numpy._core.multiarray";
}

/// Returns the type of a NumPy dtype's name, "f4".
const TorchType* numpy_type(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> names[] = {
      {"f2", "float16"}, {"f4", "float32"}, {"f8", "float64"}, {"c8", "complex64"}, {"c16", "complex128"},
      {"i1", "int8"},    {"i2", "int16"},   {"i4", "int32"},   {"i8", "int64"},     {"u1", "uint8"},
      {"u2", "uint16"},  {"u4", "uint32"},  {"u8", "uint64"},  {"b1", "bool"}};
  for (const auto& [numpy, torch] : names) {
    if (numpy == name) return type_of_name(torch);
  }
  return nullptr;
}

/// A NumPy dtype: numpy.dtype('f4', False, True) with the state (3, '<', …).
struct NumpyType {
  const TorchType* type = nullptr;
  bool big_endian = false;
};
NumpyType numpy_type(const pickle::Objects& objects, Ref r) {
  if (!objects.is(r, Kind::object) || !objects.is_global(objects.callable(r), "numpy", "dtype")) return {};
  const Ref name = at(objects.items(objects.args(r)), 0);
  if (!objects.is(name, Kind::string)) return {};
  NumpyType found{numpy_type(objects.text(name)), false};
  const Ref state = objects.state(r);
  const Ref order = objects.is(state, Kind::tuple) ? at(objects.items(state), 1) : no_ref;
  if (objects.is(order, Kind::string)) found.big_endian = objects.text(order) == ">";
  return found;
}

}  // namespace

std::optional<Tensors::Call> Tensors::call(Ref r) const {
  if (!objects_.is(r, Kind::object)) return std::nullopt;
  const Ref callable = objects_.callable(r), args = objects_.args(r);
  if (!objects_.is(callable, Kind::global) || !objects_.is(args, Kind::tuple)) return std::nullopt;
  return Call{objects_.module(callable), objects_.name(callable), objects_.items(args)};
}

bool Tensors::is_usual(Ref r) const {
  return usual_ != no_ref && objects_.is(r, Kind::object) && objects_.callable(r) == usual_ &&
         objects_.is(objects_.args(r), Kind::tuple);
}

Ref Tensors::core(Ref r, std::string* class_name) const {
  if (is_usual(r)) return r;
  // Each level wraps another call: real files have a few levels; only a hostile file has more.
  for (int level = 0; level < 16; ++level) {
    const auto c = call(r);
    if (!c) return r;
    const bool parameter = c->name == "_rebuild_parameter" || c->name == "_rebuild_parameter_with_state";
    if (c->module == utils && (parameter || c->name == "_rebuild_device_tensor_from_cpu_tensor")) {
      r = at(c->args, 0);
    } else if (c->module == "torch.nn.parameter" && (c->name == "Parameter" || c->name == "Buffer")) {
      r = at(c->args, 0);
    } else if (c->module == "torch._tensor" && c->name == "_rebuild_from_type_v2") {
      // The inner call is stored as a function and its arguments; the caller reads both as one call.
      return r;
    } else {
      return r;
    }
    if (class_name != nullptr) class_name->clear();
  }
  return no_ref;
}

Tensors::Form Tensors::form(Ref r) const {
  if (is_usual(r)) return Form::dense;
  r = core(r, nullptr);
  if (objects_.is(r, Kind::persistent)) {
    const Ref id = objects_.args(r);
    if (!objects_.is(id, Kind::tuple)) return file_.tensors.empty() ? Form::other : Form::dense;
    const Ref kind = at(objects_.items(id), 0);
    return objects_.is(kind, Kind::string) && objects_.text(kind) == "storage" ? Form::storage : Form::other;
  }
  auto c = call(r);
  if (!c) return Form::other;
  if (c->module == "torch._tensor" && c->name == "_rebuild_from_type_v2") {
    const Ref inner = at(c->args, 0);
    if (!objects_.is(inner, Kind::global) || objects_.module(inner) != utils) return Form::other;
    c->module = utils;
    c->name = objects_.name(inner);
  }
  if (is_numpy_module(c->module) && c->name == "_reconstruct") {
    const Ref state = objects_.state(r);
    if (!objects_.is(state, Kind::tuple)) return Form::other;
    const auto items = objects_.items(state);
    const bool numbers = items.size() == 5 && numpy_type(objects_, items[2]).type != nullptr;
    return numbers && objects_.is(items[4], Kind::bytes) ? Form::dense : Form::other;
  }
  if (c->module != utils) return Form::other;
  if (c->name == "_rebuild_sparse_tensor" || c->name == "_rebuild_sparse_csr_tensor") return Form::sparse;
  if (c->name == "_rebuild_nested_tensor") return Form::nested;
  if (c->name == "_rebuild_tensor_v2" && objects_.is(r, Kind::object)) {
    if (objects_.is_global(objects_.callable(r), utils, "_rebuild_tensor_v2")) usual_ = objects_.callable(r);
    return Form::dense;
  }
  static constexpr std::string_view dense[] = {"_rebuild_tensor", "_rebuild_tensor_v3", "_rebuild_qtensor",
                                               "_rebuild_device_tensor_from_numpy"};
  return std::find(std::begin(dense), std::end(dense), c->name) != std::end(dense) ? Form::dense : Form::other;
}

Result<std::uint64_t> Tensors::number(Ref r) const {
  if (!objects_.is(r, Kind::integer) || objects_.integer(r) < 0) {
    return bad("a size, stride or offset of a tensor is not a number of 0 or more");
  }
  return static_cast<std::uint64_t>(objects_.integer(r));
}

Ref Tensors::unwrapped(Ref r) const {
  if (is_usual(r)) return r;
  const auto c = call(r);
  if (!c) return r;
  if (c->module == "torch" && c->name == "Size") return at(c->args, 0);
  const bool typed = c->name.starts_with("build_") && c->name.ends_with("list");
  if (c->module == "torch.jit._pickle" && (typed || c->name == "restore_type_tag")) return at(c->args, 0);
  return r;
}

Result<std::vector<std::uint64_t>> Tensors::numbers(Ref r) const {
  r = unwrapped(r);
  if (!objects_.is(r, Kind::tuple) && !objects_.is(r, Kind::list))
    return bad("a tensor has no list of sizes or strides");
  std::vector<std::uint64_t> all;
  all.reserve(objects_.items(r).size());
  for (const Ref item : objects_.items(r)) {
    STELE_TRY_ASSIGN(const std::uint64_t n, number(item));
    all.push_back(n);
  }
  return all;
}

Result<Storage*> Tensors::storage(Ref id, const TorchType*& type, std::uint64_t& offset) {
  if (objects_.is(id, Kind::object)) {
    // TypedStorage(wrap_storage=…) occurs only in pickles of storages, not in files of torch.save.
    return Error(Errc::unsupported, "a storage is pickled as an object");
  }
  const Ref key_tuple = objects_.is(id, Kind::persistent) ? objects_.args(id) : no_ref;
  const auto items = objects_.is(key_tuple, Kind::tuple) ? objects_.items(key_tuple) : std::span<const Ref>();
  const bool named = items.size() >= 5 && objects_.is(items[0], Kind::string) && objects_.text(items[0]) == "storage";
  if (!named || !objects_.is(items[1], Kind::global)) return bad("the id of a storage has an unknown form");
  if (!objects_.is(items[2], Kind::string) && !objects_.is(items[2], Kind::integer)) {
    return bad("the key of a storage is not a string");
  }
  constexpr std::size_t max_key = 255;  // PyTorch's keys are numbers; each tensor looks up its key
  if (objects_.is(items[2], Kind::string) && objects_.text(items[2]).size() > max_key) {
    return bad("the key of a storage is too long");
  }
  const std::string key = objects_.is(items[2], Kind::string) ? std::string(objects_.text(items[2]))
                                                              : std::to_string(objects_.integer(items[2]));
  const std::string_view class_name = objects_.name(items[1]);
  const bool untyped = class_name == "UntypedStorage" || class_name == "_UntypedStorage";
  if (items[1] != storage_class_) {
    storage_class_ = items[1];
    storage_type_ = untyped ? nullptr : type_of_storage(class_name);
  }
  type = storage_type_;
  if (type == nullptr && !untyped) {
    return Error(Errc::unsupported, "the class of a storage is unknown").found(std::string(class_name));
  }
  STELE_TRY_ASSIGN(const std::uint64_t count, number(items[4]));
  auto found = file_.storages->find(key);
  if (!found) return found;
  Storage& storage = **found;
  // The size of packed elements is counted in bytes.
  const auto size = checked_mul(count, type == nullptr ? 1 : type->size);
  if (size && storage.lost && storage.size == 0) storage.size = *size;
  if (!size || *size != storage.size) {
    return bad("the size of the storage differs from that of its record")
        .offset(storage.offset)
        .expected(std::to_string(count) + " elements of " + std::string(class_name))
        .found(std::to_string(storage.size) + " bytes of storage " + key);
  }
  if (storage.type != nullptr && type != nullptr && storage.type != type && storage.size != 0) {
    return bad("one storage has two dtypes")
        .offset(storage.offset)
        .expected(std::string(storage.type->name))
        .found(std::string(type->name));
  }
  if (type != nullptr) storage.type = type;
  // A stream stores views of a storage as key, offset and size.
  if (items.size() > 5 && objects_.is(items[5], Kind::tuple)) {
    STELE_TRY_ASSIGN(offset, number(at(objects_.items(items[5]), 1)));
  }
  return &storage;
}

Status Tensors::read_metadata(Ref r, View& view) const {
  if (r == no_ref || objects_.is(r, Kind::none)) return {};
  if (!objects_.is(r, Kind::dict)) return bad("the metadata of a tensor is not a dict");
  const auto items = objects_.items(r);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    const std::string_view key = objects_.is(items[i], Kind::string) ? objects_.text(items[i]) : std::string_view();
    if ((key != "conj" && key != "neg") || !objects_.is(items[i + 1], Kind::boolean)) {
      return Error(Errc::unsupported, "a tensor has unknown metadata").found(std::string(key));
    }
    (key == "conj" ? view.conjugated : view.negated) = objects_.boolean(items[i + 1]);
  }
  return {};
}

Result<Dense> Tensors::rebuild(Ref r, const Call& c) {
  if (c.name == "_rebuild_device_tensor_from_numpy") return dense(at(c.args, 0));
  Result<Dense> result(std::in_place);
  Dense& made = *result;
  View& view = made.view;
  std::uint64_t base = 0;
  STELE_TRY_ASSIGN(view.storage, storage(at(c.args, 0), view.type, base));
  STELE_TRY_ASSIGN(view.offset, number(at(c.args, 1)));
  if (__builtin_add_overflow(view.offset, base, &view.offset)) return bad("the offset of a tensor is too large");
  STELE_TRY_ASSIGN(const auto extents, numbers(at(c.args, 2)));
  view.shape = Shape(std::span<const Extent>(extents));
  STELE_TRY_ASSIGN(view.strides, numbers(at(c.args, 3)));
  if (c.name == "_rebuild_tensor_v3") {
    const Ref dtype = at(c.args, 6);
    const TorchType* type = objects_.is(dtype, Kind::global) && objects_.module(dtype) == "torch"
                                ? type_of_name(objects_.name(dtype))
                                : nullptr;
    if (type == nullptr) {
      return Error(Errc::unsupported, "the dtype of a tensor is unknown")
          .found(objects_.is(dtype, Kind::global) ? std::string(objects_.name(dtype)) : "no name");
    }
    view.type = type;
    STELE_TRY(read_metadata(at(c.args, 7), view));
  } else if (view.type == nullptr) {
    return bad("a tensor's storage has no dtype");
  } else if (c.name == "_rebuild_tensor_v2") {
    STELE_TRY(read_metadata(at(c.args, 6), view));
  }
  if (c.name == "_rebuild_qtensor") {
    STELE_TRY_ASSIGN(made.quantization, quantizer(at(c.args, 4), *view.type));
    if (const Value* axis = made.quantization.find("axis"); axis != nullptr) {
      const auto rank = static_cast<std::int64_t>(view.shape.rank());
      const std::int64_t a = *axis->as_i64();
      const bool fits =
          a < rank && made.quantization.find("scale")->as_list()->size() == view.shape[static_cast<std::size_t>(a)];
      if (!fits) return bad("the quantized tensor has no scale for each index along its axis");
    }
  }
  static_cast<void>(r);
  STELE_TRY(check_view(view));
  return result;
}

Result<Value> Tensors::list_of(Ref tensor, Extent length) {
  STELE_TRY_ASSIGN(const Dense numbers, dense(tensor));
  const View& view = numbers.view;
  const bool kind = view.type->dtype == DType::f64 || view.type->dtype == DType::f32 || view.type->dtype == DType::i64;
  if (view.shape.rank() != 1 || !kind || (length != UINT64_MAX && view.shape[0] != length)) {
    return bad("the scales or zero points of a quantized tensor are not a list of numbers");
  }
  const std::uint64_t bytes = leaf_bytes(view);
  // Takes the bytes first, so that the product below fits.
  if (!memory_.take(bytes) || !memory_.take(3 * sizeof(Value) * view.shape[0])) {
    return index_error("the quantized tensors need too much memory");
  }
  STELE_TRY(view.storage->check());
  Bytes content(static_cast<std::size_t>(bytes));
  ReadContext context;
  STELE_TRY(Gathered(view).fill(0, content.span(), context));
  Value::List list;
  list.reserve(static_cast<std::size_t>(view.shape[0]));
  for (std::size_t i = 0; i < content.size(); i += view.type->size) {
    const std::byte* p = content.data() + i;
    if (view.type->dtype == DType::f64) {
      list.emplace_back(std::bit_cast<double>(load_le<std::uint64_t>(p)));
    } else if (view.type->dtype == DType::f32) {
      list.emplace_back(static_cast<double>(std::bit_cast<float>(load_le<std::uint32_t>(p))));
    } else {
      list.emplace_back(static_cast<std::int64_t>(load_le<std::uint64_t>(p)));
    }
  }
  return Value(std::move(list));
}

Result<Value> Tensors::quantizer(Ref r, const TorchType& type) {
  const auto items = objects_.is(r, Kind::tuple) ? objects_.items(r) : std::span<const Ref>();
  const std::string_view scheme =
      objects_.is(at(items, 0), Kind::global) ? objects_.name(items[0]) : std::string_view();
  if (type.quantized_bits == 0) return bad("the storage of a quantized tensor does not have a quantized dtype");
  Value::Map note{{"scheme", Value("zero_point")},
                  {"bits", Value(std::int64_t{type.quantized_bits})},
                  {"signed", Value(type.quantized_signed)}};
  if (scheme == "per_tensor_affine" || scheme == "per_tensor_symmetric") {
    const Ref scale = at(items, 1), zero = at(items, 2);
    if (!objects_.is(scale, Kind::real) || !objects_.is(zero, Kind::integer)) {
      return bad("a quantized tensor has no scale and zero point");
    }
    note.emplace_back("scale", Value(objects_.real(scale)));
    note.emplace_back("zero_point", Value(objects_.integer(zero)));
    return Value(std::move(note));
  }
  if (scheme != "per_channel_affine" && scheme != "per_channel_symmetric" &&
      scheme != "per_channel_affine_float_qparams") {
    return Error(Errc::unsupported, "the quantization scheme is unknown").found(std::string(scheme));
  }
  STELE_TRY_ASSIGN(Value scales, list_of(at(items, 1), UINT64_MAX));
  STELE_TRY_ASSIGN(Value zeros, list_of(at(items, 2), scales.as_list()->size()));
  STELE_TRY_ASSIGN(const std::uint64_t axis, number(at(items, 3)));
  note.emplace_back("axis", Value(static_cast<std::int64_t>(axis)));
  note.emplace_back("scale", std::move(scales));
  note.emplace_back("zero_point", std::move(zeros));
  return Value(std::move(note));
}

Result<Dense> Tensors::numpy_array(Ref r) {
  const auto items = objects_.items(objects_.state(r));
  const NumpyType type = numpy_type(objects_, items[2]);
  const std::string_view bytes = objects_.text(items[4]);
  Dense made;
  View& view = made.view;
  STELE_TRY_ASSIGN(const auto extents, numbers(items[1]));
  view.shape = Shape(std::span<const Extent>(extents));
  view.type = type.type;
  const auto count = view.shape.element_count();
  if (!count || checked_mul(*count, type.type->size) != bytes.size()) {
    return bad("the bytes of a NumPy array do not match its shape");
  }
  if (!memory_.take(bytes.size() + storage_memory)) return index_error("the file's arrays need too much memory");
  Storage& storage = file_.storages->add();
  storage.source = own_bytes(std::vector<std::byte>(reinterpret_cast<const std::byte*>(bytes.data()),
                                                    reinterpret_cast<const std::byte*>(bytes.data()) + bytes.size()),
                             file_.name);
  storage.size = bytes.size();
  storage.big_endian = type.big_endian;
  view.storage = &storage;
  const bool fortran = objects_.is(items[3], Kind::boolean) && objects_.boolean(items[3]);
  view.strides.resize(extents.size());
  std::uint64_t stride = 1;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const std::size_t d = fortran ? i : extents.size() - 1 - i;
    view.strides[d] = stride;
    stride *= std::max<Extent>(extents[d], 1);
  }
  STELE_TRY(check_view(view));
  return made;
}

Result<Dense> Tensors::dense(Ref r) {
  // A quantized tensor contains tensors of scales, which contain no tensors; but a file can nest them.
  constexpr int max_nesting = 8;
  if (nesting_ == max_nesting) return Error(Errc::limit, "tensors are nested too deeply");
  ++nesting_;
  auto made = read_dense(r);
  --nesting_;
  return made;
}

Result<Dense> Tensors::read_dense(Ref r) {
  const Form form = this->form(r);
  if (form != Form::dense && form != Form::storage) return bad("an object is not a dense tensor");
  std::string class_name;
  r = core(r, &class_name);
  if (objects_.is(r, Kind::persistent)) {
    const Ref id = objects_.args(r);
    if (objects_.is(id, Kind::tuple)) {
      Dense made;
      std::uint64_t offset = 0;
      STELE_TRY_ASSIGN(Storage * storage, this->storage(r, made.view.type, offset));
      if (made.view.type == nullptr) made.view.type = type_of_name("uint8");
      made.view.storage = storage;
      made.view.shape = {storage->size / made.view.type->size};
      made.view.strides = {1};
      STELE_TRY(check_view(made.view));
      return made;
    }
    std::int64_t key = -1;
    if (objects_.is(id, Kind::integer)) key = objects_.integer(id);
    if (objects_.is(id, Kind::string) && objects_.text(id).size() <= 18) {
      const std::string text(objects_.text(id));
      char* end = nullptr;
      key = std::strtoll(text.c_str(), &end, 10);
      if (end == text.c_str() || *end != '\0') key = -1;
    }
    const auto found = file_.tensors.find(key);
    if (found == file_.tensors.end()) return bad("an object refers to a tensor that is not in the file");
    return Dense{found->second};
  }
  auto c = call(r);
  if (!c) return bad("an object is not a tensor");
  if (is_numpy_module(c->module)) return numpy_array(r);
  if (c->module == "torch._tensor") {
    const Ref type = at(c->args, 1), args = at(c->args, 2);
    if (!objects_.is(args, Kind::tuple)) return bad("a subclass of a tensor has no arguments");
    if (objects_.is(type, Kind::global)) {
      class_name = std::string(objects_.module(type)) + '.' + std::string(objects_.name(type));
    }
    c = Call{utils, objects_.name(at(c->args, 0)), objects_.items(args)};
  }
  auto made = rebuild(r, *c);
  if (made && class_name != "torch.Tensor" && class_name != "torch.nn.parameter.Parameter") {
    made->class_name = class_name;
  }
  return made;
}

std::string Tensors::layout(Ref r) const {
  const auto c = call(core(r, nullptr));
  if (!c || c->name == "_rebuild_nested_tensor") return "torch.nested";
  const Ref layout = at(c->args, 0);
  if (objects_.is(layout, Kind::global)) return "torch." + std::string(objects_.name(layout));
  // A call: torch.serialization._get_layout("torch.sparse_coo")
  const auto name = call(layout);
  const Ref text = name ? at(name->args, 0) : no_ref;
  return objects_.is(text, Kind::string) ? std::string(objects_.text(text)) : std::string();
}

Result<std::vector<Tensors::Part>> Tensors::parts(Ref r) const {
  const auto c = call(core(r, nullptr));
  if (!c) return bad("an object is not a tensor");
  static constexpr std::string_view nested[] = {"values", "sizes", "strides", "offsets"};
  static constexpr std::string_view coo[] = {"indices", "values", "size", "is_coalesced"};
  static constexpr std::string_view compressed[] = {"compressed_indices", "plain_indices", "values", "size"};
  std::span<const std::string_view> names;
  std::span<const Ref> objects = c->args;
  std::size_t required = 4;
  if (c->name == "_rebuild_nested_tensor") {
    names = nested;
  } else {
    const Ref tuple = at(c->args, 1);
    if (!objects_.is(tuple, Kind::tuple)) return bad("a sparse tensor has no parts");
    objects = objects_.items(tuple);
    const std::string layout = this->layout(r);
    const bool is_coo = layout == "torch.sparse_coo";
    static constexpr std::string_view known[] = {"torch.sparse_csr", "torch.sparse_csc", "torch.sparse_bsr",
                                                 "torch.sparse_bsc"};
    if (!is_coo && std::find(std::begin(known), std::end(known), layout) == std::end(known)) {
      return Error(Errc::unsupported, "the layout of a tensor is unknown").found(layout);
    }
    names = is_coo ? std::span<const std::string_view>(coo) : std::span<const std::string_view>(compressed);
    if (is_coo) required = 3;  // files of 1.13 and earlier have no is_coalesced
  }
  if (objects.size() < required) return bad("a sparse or nested tensor has too few parts");
  std::vector<Part> all;
  for (std::size_t i = 0; i < std::min(names.size(), objects.size()); ++i) all.push_back({names[i], objects[i]});
  return all;
}

std::optional<Value> Tensors::numpy_scalar(Ref r) const {
  const auto c = call(r);
  if (!c || !is_numpy_module(c->module) || c->name != "scalar") return std::nullopt;
  const NumpyType type = numpy_type(objects_, at(c->args, 0));
  const Ref data = at(c->args, 1);
  if (type.type == nullptr || !objects_.is(data, Kind::bytes)) return std::nullopt;
  const std::string_view bytes = objects_.text(data);
  if (bytes.size() != type.type->size || bytes.size() > 8) return std::nullopt;
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::size_t place = type.big_endian ? bytes.size() - 1 - i : i;
    bits |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << 8 * place;
  }
  const unsigned spare = 64 - 8 * static_cast<unsigned>(bytes.size());
  switch (type.type->dtype) {
    case DType::f64:
      return Value(std::bit_cast<double>(bits));
    case DType::f32:
      return Value(static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits))));
    case DType::boolean:
      return Value(bits != 0);
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64:
      return Value(static_cast<std::int64_t>(bits << spare) >> spare);
    case DType::u8:
    case DType::u16:
    case DType::u32:
      return Value(static_cast<std::int64_t>(bits));
    case DType::u64:
      return bits > INT64_MAX ? Value(bits) : Value(static_cast<std::int64_t>(bits));
    default:
      return std::nullopt;
  }
}

}  // namespace stele::inline v0::detail::pytorch
