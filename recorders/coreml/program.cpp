// ML programs: mlmodel/format/MIL.proto of coremltools 9.0.
#include "program.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "encodings/protobuf/fields.hpp"
#include "leaves/source_range.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/value.hpp"

namespace stele::inline v0::detail::coreml {
namespace {

using protobuf::each;
using protobuf::Fields;

/// MIL.proto: DataType.
struct Type {
  std::uint64_t number;
  DType dtype;
  const char* name;
};
constexpr Type types[] = {
    {1, DType::boolean, "bool"},    {10, DType::f16, "f16"},
    {11, DType::f32, "f32"},        {12, DType::f64, "f64"},
    {13, DType::bf16, "bf16"},      {21, DType::i8, "i8"},
    {22, DType::i16, "i16"},        {23, DType::i32, "i32"},
    {24, DType::i64, "i64"},        {25, DType::i4, "i4"},
    {31, DType::u8, "u8"},          {32, DType::u16, "u16"},
    {33, DType::u32, "u32"},        {34, DType::u64, "u64"},
    {35, DType::u4, "u4"},          {36, DType::none, "u2"},
    {37, DType::none, "u1"},        {38, DType::none, "u6"},
    {39, DType::none, "u3"},        {40, DType::f8_e4m3fn, "f8e4m3fn"},
    {41, DType::f8_e5m2, "f8e5m2"},
};
constexpr std::uint64_t string_type = 2;

/// Maximum nesting of blocks: bounds the recursion.
constexpr unsigned max_blocks = 32;

constexpr LeafOps in_memory{
    .view = [](const void* at, std::uint64_t) -> const std::byte* { return static_cast<const std::byte*>(at); }};

/// A Value: a tensor in the model or in a file of weights.
struct Stored {
  bool tensor = false;
  std::uint64_t type = 0;
  std::vector<Extent> shape{};
  enum class Form : std::uint8_t { none, blob, raw, varints, strings } form = Form::none;
  std::string file{};                  // blob
  std::uint64_t offset = 0, size = 0;  // blob: the record; raw: the bytes
  std::vector<std::int64_t> varints{};
  Value::List strings{};
  std::string unreadable{};
};

class ProgramReader {
 public:
  ProgramReader(const SourcePtr& model, std::shared_ptr<const Bundle> folder, const std::string& prefix, Tensors& to)
      : model_(model), folder_(std::move(folder)), prefix_(prefix), to_(to), in_(model) {}

  Status run(std::uint64_t begin, std::uint64_t end) {
    std::size_t functions = 0;
    STELE_TRY_ASSIGN(Fields counted, message(begin, end));
    STELE_TRY(each(counted, [&](Fields& f) -> Status { return functions += is_message(f, 2) ? 1 : 0, Status(); }));
    STELE_TRY_ASSIGN(Fields program, message(begin, end));
    return each(program, [&](Fields& f) -> Status {
      if (!is_message(f, 2)) return {};
      std::string name;
      const std::uint64_t at = f.begin(), to = f.end();
      STELE_TRY(each(f.message(), [&](Fields& e) { return is_message(e, 1) ? e.text(name) : Status(); }));
      scope_ = functions > 1 ? name + "." : std::string();
      STELE_TRY(each_at(at, to, 2, [&](Fields& function) { return read_function(function); }));
      return {};
    });
  }

 private:
  static bool is_message(const Fields& f, std::uint32_t field) { return f.field() == field && f.has_length(); }
  Result<Fields> message(std::uint64_t begin, std::uint64_t end) {
    in_ = Cursor(model_);
    STELE_TRY(in_.skip(begin));
    return Fields(in_, end);
  }
  /// Calls `take` for the fields `field` of a message that was read before, and returns to the position after it.
  template <class Take>
  Status each_at(std::uint64_t begin, std::uint64_t end, std::uint32_t field, Take take) {
    Cursor in(model_);
    STELE_TRY(in.skip(begin));
    return each(Fields(in, end), [&](Fields& f) { return is_message(f, field) ? take(f) : Status(); });
  }

  Status read_function(Fields& function) {
    return each(function.message(), [&](Fields& f) -> Status {
      if (!is_message(f, 3)) return {};  // an entry of block_specializations
      return each(f.message(), [&](Fields& e) { return is_message(e, 2) ? read_block(e, 0) : Status(); });
    });
  }

  Status read_block(Fields& block, unsigned depth) {
    if (depth == max_blocks) return Error(Errc::limit, "the blocks of the program nest too deep").offset(block.tag());
    return each(block.message(), [&](Fields& f) { return is_message(f, 3) ? read_operation(f, depth) : Status(); });
  }

  using Named = std::vector<std::pair<std::string, Stored>>;

  Status read_operation(Fields& operation, unsigned depth) {
    std::string type, output;
    bool constant = false, compressed = false;
    // The type comes first: values of other operations are not read.
    Named values;
    STELE_TRY(each(operation.message(), [&](Fields& f) -> Status {
      if (is_message(f, 1)) {
        STELE_TRY(f.text(type));
        constant = type == "const";
        compressed = type.starts_with("constexpr_");
        return {};
      }
      if (is_message(f, 4)) return read_block(f, depth + 1);
      if (!constant && !compressed) return {};
      if (is_message(f, 3) && output.empty()) {
        return each(f.message(), [&](Fields& o) { return is_message(o, 1) ? o.text(output) : Status(); });
      }
      if (is_message(f, 2) && compressed) return read_entry(f, true, values);
      return is_message(f, 5) ? read_entry(f, false, values) : Status();
    }));
    if (constant) {
      for (auto& [key, value] : values) {
        if (key == "val") STELE_TRY(add(scope_ + output, std::move(value)));
      }
    }
    return compressed ? add_compressed(type, scope_ + output, values) : Status();
  }

  /// Reads an entry of an operation's inputs (an Argument) or attributes (a Value).
  Status read_entry(Fields& entry, bool input, Named& values) {
    std::string key;
    return each(entry.message(), [&](Fields& f) -> Status {
      if (is_message(f, 1)) return f.text(key);
      if (!is_message(f, 2) || key == "name") return {};
      if (!input) {
        values.emplace_back(key, Stored());
        return read_value(f, values.back().second);
      }
      return each(f.message(), [&](Fields& argument) -> Status {
        if (!is_message(argument, 1)) return {};
        return each(argument.message(), [&](Fields& binding) -> Status {
          if (!is_message(binding, 2)) return {};
          values.emplace_back(key, Stored());
          return read_value(binding, values.back().second);
        });
      });
    });
  }

  Status read_value(Fields& value, Stored& to) {
    return each(value.message(), [&](Fields& f) -> Status {
      if (is_message(f, 2)) {
        return each(f.message(), [&](Fields& t) { return is_message(t, 1) ? read_type(t, to) : Status(); });
      }
      if (is_message(f, 3)) {
        return each(f.message(), [&](Fields& i) { return is_message(i, 1) ? read_immediate(i, to) : Status(); });
      }
      if (!is_message(f, 5)) return {};
      to.form = Stored::Form::blob;
      return each(f.message(), [&](Fields& b) -> Status {
        if (b.field() == 2 && b.is_number()) to.offset = b.number();
        return is_message(b, 1) ? b.text(to.file) : Status();
      });
    });
  }

  Status read_type(Fields& type, Stored& to) {
    to.tensor = true;
    return each(type.message(), [&](Fields& f) -> Status {
      if (f.field() == 1 && f.is_number()) to.type = f.number();
      if (!is_message(f, 3)) return {};
      STELE_TRY(to_.spend(3 * sizeof(Extent)));
      to.shape.push_back(0);  // an empty message is a size of 0
      return each(f.message(), [&](Fields& d) -> Status {
        if (!is_message(d, 1)) {
          to.unreadable = "a tensor of unknown shape";
          return {};
        }
        return each(d.message(), [&](Fields& c) -> Status {
          if (c.field() == 1 && c.is_number()) to.shape.back() = static_cast<Extent>(c.number());
          return {};
        });
      });
    });
  }

  /// Reads a TensorValue: floats, doubles and bytes stay in the file.
  Status read_immediate(Fields& immediate, Stored& to) {
    return each(immediate.message(), [&](Fields& f) -> Status {
      if (!f.has_length()) return {};
      const bool raw = f.field() == 1 || f.field() == 6 || f.field() == 7;
      to.form = raw ? Stored::Form::raw : f.field() == 4 ? Stored::Form::strings : Stored::Form::varints;
      return each(f.message(), [&](Fields& v) -> Status {
        if (v.field() != 1) return {};
        if (raw) {
          if (!v.has_length() || to.size != 0) to.unreadable = "numbers in several pieces";
          to.offset = v.begin();
          to.size = v.size();
          return {};
        }
        STELE_TRY(to_.spend(v.has_length() ? 3 * sizeof(std::int64_t) * v.size() : 32));
        if (to.form == Stored::Form::varints) return v.integers(to.varints);
        std::string text;
        STELE_TRY(v.text(text));
        STELE_TRY(to_.spend(3 * sizeof(Value)));
        to.strings.emplace_back(std::move(text));
        return {};
      });
    });
  }

  /// Adds a tensor or a value. Returns its name; empty if it is neither.
  Result<std::string> add(std::string name, Stored value) {
    if (!value.tensor) return std::string();
    if (value.form == Stored::Form::strings) {
      const bool one = value.shape.empty() && value.strings.size() == 1;
      return to_.add(std::move(name), one ? std::move(value.strings[0]) : Value(std::move(value.strings)));
    }
    const auto* const found =
        std::find_if(std::begin(types), std::end(types), [&](const Type& t) { return t.number == value.type; });
    const DType dtype = found != std::end(types) ? found->dtype : DType::none;
    if (value.unreadable.empty() && dtype == DType::none) {
      value.unreadable = value.type == string_type  ? "strings in a file of weights"
                         : found != std::end(types) ? "elements of the type " + std::string(found->name)
                                                    : "elements of the type number " + std::to_string(value.type);
    }
    const auto count = element_count(value.shape);
    const std::uint64_t expected = count ? byte_length(dtype, *count).value_or(UINT64_MAX) : UINT64_MAX;
    std::uint64_t bytes = value.size;
    Provider provider{&source_ops, model_.get(), value.offset};
    switch (value.form) {
      case Stored::Form::blob: {
        STELE_TRY_ASSIGN(const SourcePtr* const weights, file_of(value.file));
        if (weights == nullptr) {
          value.unreadable = "elements in a file with another kind of path";
          provider.number = bytes = 0;
          break;
        }
        STELE_TRY_ASSIGN(const Blob blob, read_blob(**weights, value.offset));
        provider = {&source_ops, weights->get(), blob.offset};
        bytes = blob.size;
        break;
      }
      case Stored::Form::varints: {
        auto& numbers = to_.owned.numbers.emplace_back();
        const std::size_t width = element_size(dtype);
        const bool integers = width != 0 && dtype_class(dtype) != DTypeClass::floating;
        for (const std::int64_t number : value.varints) {
          if (!integers) break;
          std::byte little[8];
          store_le(little, number);
          numbers.insert(numbers.end(), little, little + width);
        }
        if (!integers && value.unreadable.empty()) value.unreadable = "integers for another type";
        bytes = numbers.size();
        if (bytes != 0) provider = {&in_memory, numbers.data(), 0};
        break;
      }
      default:
        break;
    }
    if (value.unreadable.empty() && expected != bytes) {
      value.unreadable = std::to_string(bytes) + " bytes for a tensor of " + std::to_string(expected);
    }
    return to_.add(std::move(name), dtype, value.shape, bytes, provider, value.unreadable);
  }

  /// Opens a file of weights. Returns null for paths that are not relative to the model.
  Result<const SourcePtr*> file_of(const std::string& path) {
    constexpr std::string_view beside = "@model_path/";
    if (!path.starts_with(beside)) return nullptr;
    const std::string name = prefix_ + path.substr(beside.size());
    const auto found = std::find_if(files_.begin(), files_.end(), [&](const auto& file) { return file.first == name; });
    if (found != files_.end()) return &found->second;
    if (folder_ == nullptr) {
      return Error(Errc::unsupported, "the model's weights are in another file")
          .file(model_->name())
          .hint("open the model by a path, or from a bundle");
    }
    constexpr std::size_t max_files = 64;
    if (files_.size() == max_files) return Error(Errc::limit, "the model has too many files of weights");
    STELE_TRY_ASSIGN(SourcePtr source, folder_->open(name));
    to_.owned.sources.push_back(source);
    files_.reserve(max_files);  // so that pointers to the sources stay valid
    files_.emplace_back(name, std::move(source));
    return &files_.back().second;
  }

  /// Adds the parts of a compressed weight: the first part under the weight's name, the other parts below it.
  Status add_compressed(const std::string& type, const std::string& name, Named& values) {
    const bool affine = type == "constexpr_affine_dequantize", blocks = type == "constexpr_blockwise_shift_scale";
    const char* const first = affine                     ? "quantized_data"
                              : blocks                   ? "data"
                              : type == "constexpr_cast" ? "source_val"
                                                         : "";
    composites::Scaled scaled;
    for (auto& [key, value] : values) {
      if (affine && key == "axis" && value.varints.size() == 1) {
        scaled.axis = value.varints[0];
        continue;
      }
      if (type == "constexpr_cast" && key == "output_dtype") continue;
      STELE_TRY_ASSIGN(std::string added,
                       add(key == first ? name : std::string(name).append(".").append(key), std::move(value)));
      if (key == first) scaled.codes = added;
      if (key == "scale") scaled.scale = added;
      if (key == "zero_point" || key == "offset") scaled.zero = added;
    }
    if ((affine || blocks) && !scaled.codes.empty() && !scaled.scale.empty()) {
      STELE_TRY(to_.spend(3 * (sizeof scaled + scaled.codes.size() + scaled.scale.size() + scaled.zero.size())));
      to_.scaled.push_back(std::move(scaled));
    }
    return {};
  }

  const SourcePtr& model_;
  std::shared_ptr<const Bundle> folder_;
  const std::string& prefix_;
  Tensors& to_;
  Cursor in_;
  std::string scope_;  // the beginning of names
  std::vector<std::pair<std::string, SourcePtr>> files_;
};

}  // namespace

Status read_program(const SourcePtr& model, const std::shared_ptr<const Bundle>& folder, const std::string& prefix,
                    std::uint64_t begin, std::uint64_t end, Tensors& to) {
  return ProgramReader(model, folder, prefix, to).run(begin, end);
}

}  // namespace stele::inline v0::detail::coreml
