// Finds the layers and blobs of a message NetParameter.
#include "file.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/in_file.hpp"
#include "base/varint.hpp"
#include "encodings/protobuf/fields.hpp"
#include "io/cursor.hpp"
#include "leaves/source_range.hpp"

namespace stele::inline v0::detail::caffe {
namespace {

using protobuf::Fields;

/// Maximum number of axes: caffe::kMaxBlobAxes.
constexpr std::size_t max_axes = 32;

/// Numbers of fields (caffe.proto).
namespace net_field {
constexpr std::uint32_t name = 1, old_layers = 2, input = 3, input_dim = 4, input_shape = 8, layers = 100;
}  // namespace net_field
namespace blob_field {
constexpr std::uint32_t width = 4, data = 5, diff = 6, shape = 7, double_data = 8, double_diff = 9;
}  // namespace blob_field

/// The fields of a layer, in one of the three versions of the message.
struct LayerFields {
  std::uint32_t name, type, blobs;
};
constexpr LayerFields current{1, 2, 7}, v1{4, 5, 6}, v0{1, 2, 50};
/// The field of a V1LayerParameter with a V0LayerParameter.
constexpr std::uint32_t v0_layer = 1;

/// Types of layers whose blobs are a weight and a bias, and types of normalization layers. The numbers are those of
/// V1LayerParameter::LayerType; the last names are those of V0LayerParameter.
constexpr std::array<std::string_view, 10> weighted = {
    "Convolution", "Deconvolution", "InnerProduct", "Embed", "Scale", "4", "39", "14", "conv", "innerproduct"};
constexpr std::array<std::string_view, 2> weight_names = {"weight", "bias"};
constexpr std::array<std::string_view, 3> statistics_names = {"mean", "variance", "factor"};

/// A blob's fields.
struct Blob {
  std::vector<std::int64_t> shape{};
  bool has_shape = false;              // false: the elements determine the shape, or `axes` do
  bool legacy = false;                 // the shape is `axes`
  std::array<std::int64_t, 4> axes{};  // num, channels, height, width
  std::uint64_t at = 0, bytes = 0;     // position and size of the elements
  DType dtype = DType::none;           // none: the blob has no elements
  const char* reason = "";             // the reason why the elements cannot be read
};

struct Layer {
  std::string name{}, type{};
  std::vector<Blob> blobs{};
};

Error bad(const Fields& field, const char* what) { return Error(Errc::malformed, what).offset(field.tag()); }

class NetworkReader {
 public:
  NetworkReader(const SourcePtr& source, IndexBudget& memory, const std::function<Status(const TensorEntry&)>& add)
      : in_(source), memory_(memory), add_(add) {}

  Result<Contents> run() {
    std::uint64_t number = 0;
    STELE_TRY(each(Fields(in_, in_.source()->size()), [&](Fields& field) -> Status {
      const bool old = field.field() == net_field::old_layers;
      if (!old && field.field() != net_field::layers) return {};
      if (!field.has_length()) return bad(field, "a layer is not a message");
      Layer layer;
      STELE_TRY(collect(field.message(), old ? v1 : current, layer));
      if (layer.name.empty()) layer.name = std::to_string(number);
      ++number;
      return add(layer);
    }));
    return contents_;
  }

 private:
  Status take(std::uint64_t bytes) {
    if (memory_.take(bytes)) return {};
    return index_error("the blobs' names and shapes need more memory than the file's size allows");
  }

  Status collect(Fields message, const LayerFields& numbers, Layer& layer) {
    return each(message, [&](Fields& f) -> Status {
      if (&numbers == &v1 && f.field() == v0_layer && f.has_length()) return collect(f.message(), v0, layer);
      if (f.field() == numbers.name) return f.text(layer.name);
      if (f.field() == numbers.type) {
        if (!f.is_number()) return f.text(layer.type);
        layer.type = std::to_string(f.number());
      }
      if (f.field() != numbers.blobs) return {};
      if (!f.has_length()) return bad(f, "a blob is not a message");
      STELE_TRY(take(3 * sizeof(Blob)));
      return blob(f.message(), layer.blobs.emplace_back());
    });
  }

  Status blob(Fields message, Blob& blob) {
    const std::uint64_t begin = in_.position();
    std::uint64_t elements = 0;
    STELE_TRY(each(message, [&](Fields& f) -> Status {
      switch (f.field()) {
        case blob_field::shape:
          if (!f.has_length()) return bad(f, "a shape is not a message");
          blob.has_shape = true;
          return each(f.message(), [&](Fields& dim) -> Status {
            if (dim.field() != 1) return {};
            STELE_TRY(take(3 * sizeof(std::int64_t) * (dim.is_number() ? 1 : dim.size())));
            return dim.integers(blob.shape);
          });
        case blob_field::data:
        case blob_field::double_data:
          elements += f.size();
          return data(f, blob);
        case blob_field::diff:
        case blob_field::double_diff:
          elements += f.size();
          contents_.gradients = true;
          return {};
        default:
          if (f.field() > blob_field::width) return {};
          if (!f.is_number()) return bad(f, "the extent of a blob is not a number");
          blob.legacy = true;
          blob.axes[f.field() - 1] = static_cast<std::int64_t>(f.number());
          return {};
      }
    }));
    memory_.admit(in_.position() - begin - elements, index_rate::index);
    return {};
  }

  /// Takes the place of the elements. Caffe reads the doubles if a blob has both.
  static Status data(const Fields& f, Blob& blob) {
    const bool doubles = f.field() == blob_field::double_data;
    const DType dtype = doubles ? DType::f64 : DType::f32;
    if (f.is_number()) return bad(f, "the elements of a blob are not numbers of 4 or 8 bytes");
    if (f.has_length() && f.size() % element_size(dtype) != 0) return bad(f, "the last element of a blob is cut off");
    if (f.size() == 0 || (blob.dtype == DType::f64 && !doubles)) return {};
    if (!f.has_length()) {
      blob.reason = "numbers that are not packed";
    } else if (blob.dtype == dtype) {
      blob.reason = "numbers in several parts";
    } else {
      blob.reason = "";
    }
    blob.dtype = dtype;
    blob.at = f.begin();
    blob.bytes = f.size();
    return {};
  }

  Status add(const Layer& layer) {
    std::string path = layer.name;
    STELE_TRY(take(path.size()));
    const std::size_t size = path.size();
    for (std::size_t i = 0; i < layer.blobs.size(); ++i) {
      path.resize(size);
      path += '.';
      path += blob_name(layer.type, i);
      if (auto added = add(path, layer.blobs[i]); !added) {
        return added.error().path().empty() ? Status(std::move(added).error().path(path)) : std::move(added);
      }
    }
    return {};
  }

  static std::string blob_name(std::string_view type, std::size_t i) {
    const bool weight = std::find(weighted.begin(), weighted.end(), type) != weighted.end();
    if (weight && i < weight_names.size()) return std::string(weight_names[i]);
    if (type == "BatchNorm" && i < statistics_names.size()) return std::string(statistics_names[i]);
    return std::to_string(i);
  }

  Status add(const std::string& path, const Blob& blob) {
    TensorEntry entry{.name = path,
                      .dtype = blob.dtype,
                      .shape = {},
                      .bytes = blob.bytes,
                      .provider = {&source_ops, in_.source().get(), blob.at},
                      .unreadable = blob.reason};
    if (!entry.unreadable.empty()) return add_(entry);
    std::vector<Extent> shape;
    const std::span<const std::int64_t> axes = blob.legacy ? std::span<const std::int64_t>(blob.axes) : blob.shape;
    for (const std::int64_t extent : axes) {
      if (extent < 0) {
        return Error(Errc::malformed, "an extent is negative").offset(blob.at).found(std::to_string(extent));
      }
      shape.push_back(static_cast<Extent>(extent));
    }
    // All fields may be missing in a blob without elements, for example of a layer whose shape is not yet known.
    if (blob.dtype == DType::none) entry.dtype = DType::f32;
    if (!blob.has_shape && !blob.legacy) shape = {blob.bytes / element_size(entry.dtype)};
    if (shape.size() > max_axes) {
      return Error(Errc::malformed, "the blob has too many axes")
          .offset(blob.at)
          .expected("at most " + std::to_string(max_axes))
          .found(std::to_string(shape.size()));
    }
    const auto count = element_count(shape);
    const auto bytes = count ? byte_length(entry.dtype, *count) : std::nullopt;
    if (bytes && *bytes != 0 && blob.dtype == DType::none) {
      entry.unreadable = "a blob without elements";
    } else if (bytes != blob.bytes) {
      return Error(Errc::malformed, "the number of a blob's elements differs from that of its shape")
          .offset(blob.at)
          .expected(count ? std::to_string(*count) : "less than 2^64")
          .found(std::to_string(blob.bytes / element_size(entry.dtype)));
    }
    entry.shape = shape;
    return add_(entry);
  }

  Cursor in_;
  IndexBudget& memory_;
  const std::function<Status(const TensorEntry&)>& add_;
  Contents contents_;
};

/// Reads fields of a message from the first bytes of a file. Strings and messages must be complete only if they are
/// looked into.
struct Head {
  std::span<const std::byte> bytes;
  std::size_t at = 0;

  bool varint(std::uint64_t& out) {
    auto rest = bytes.subspan(at);
    const bool whole = take_varint(rest, out);
    at = bytes.size() - rest.size();
    return whole;
  }
  /// Reads a string of 1 to 256 characters, which must not contain control characters.
  bool text() {
    std::uint64_t size = 0;
    if (!varint(size) || size == 0 || size > 256 || size > bytes.size() - at) return false;
    const auto all = bytes.subspan(at, static_cast<std::size_t>(size));
    at += static_cast<std::size_t>(size);
    return std::all_of(all.begin(), all.end(),
                       [](std::byte b) { return b >= std::byte{0x20} && b != std::byte{0x7f}; });
  }
  /// Reads a tag.
  bool tag(std::uint64_t expected) {
    std::uint64_t found = 0;
    return varint(found) && found == expected;
  }
};

constexpr std::uint64_t tag_of(std::uint32_t field) { return std::uint64_t{field} << 3 | 2; }

}  // namespace

Result<Contents> read_network(const SourcePtr& source, IndexBudget& memory,
                              const std::function<Status(const TensorEntry&)>& add) {
  return in_file(NetworkReader(source, memory, add).run(), source->name());
}

bool is_network(std::span<const std::byte> head, std::uint64_t size) noexcept {
  // Protocol buffers have no magic number. Caffe writes the fields in the order of their numbers.
  Head in{head};
  bool named = false;
  for (std::uint64_t tag = 0; in.varint(tag);) {
    std::uint64_t length = 0;
    if (tag == tag_of(net_field::name) && !named) {
      if (!in.text()) return false;
      named = true;
    } else if (tag == tag_of(net_field::input) && named) {
      if (!in.text()) return false;
    } else if (tag == std::uint64_t{net_field::input_dim} << 3 && named) {
      if (!in.varint(length)) return false;
    } else if (tag == tag_of(net_field::input_shape) && named) {
      if (!in.varint(length) || length > in.bytes.size() - in.at) return false;
      in.at += static_cast<std::size_t>(length);
    } else if (tag == tag_of(net_field::old_layers) && named) {
      // Begins with the names of a layer's inputs or outputs, its name, or a layer of the oldest version.
      if (!in.varint(length) || length > size) return false;
      std::uint64_t first = 0;
      return in.varint(first) &&
             (first == tag_of(2) || first == tag_of(3) || first == tag_of(4) ||
              (first == tag_of(v0_layer) && in.varint(length) && in.tag(tag_of(v0.name)))) &&
             in.text();
    } else {
      return tag == tag_of(net_field::layers) && in.varint(length) && length <= size && in.tag(tag_of(current.name)) &&
             in.text() && in.tag(tag_of(current.type)) && in.text();
    }
  }
  return false;
}

}  // namespace stele::inline v0::detail::caffe
