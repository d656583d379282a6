// Reads the weights of a model into a Snapshot.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/in_file.hpp"
#include "base/limits.hpp"
#include "layers.hpp"
#include "leaves/source_range.hpp"
#include "param.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/bundle.hpp"
#include "stele/bytes.hpp"
#include "stele/recorders/read_only.hpp"
#include "weights.hpp"

namespace stele::inline v0 {
namespace {

namespace ncnn = detail::ncnn;

constexpr std::string_view param_ending = ".param", bin_ending = ".bin";

/// Maximum size of a .param file (1 GiB), which is read into memory. Files of real models have less than 1 MiB.
constexpr std::uint64_t max_param_bytes = std::uint64_t{1} << 30;

class NcnnReader {
 public:
  NcnnReader(SourcePtr source, const Limits& limits) : source_(std::move(source)), memory_(limits, 0) {}

  Result<Snapshot> run() {
    STELE_TRY(find_files());
    if (param_->size() > max_param_bytes) {
      return Error(Errc::limit, "the text of the layers is too long")
          .file(param_->name())
          .expected("at most " + std::to_string(max_param_bytes) + " bytes")
          .found(std::to_string(param_->size()));
    }
    memory_.admit(param_->size(), detail::index_rate::index);
    memory_.admit(bin_->size(), detail::index_rate::record);
    if (!memory_.take(param_->size())) return detail::index_error("the layers need too much memory");
    const auto text = std::make_shared<Bytes>(static_cast<std::size_t>(param_->size()));
    STELE_TRY(detail::in_file(param_->read_at(0, text->span()), param_->name()));
    builder_.set_flat();
    builder_.keep(bin_);
    STELE_TRY(read({reinterpret_cast<const char*>(text->data()), text->size()}));
    STELE_TRY(detail::in_file(detail::sort_names(builder_), bin_->name()));
    builder_.data().left_out.emplace_back(detail::graph_part);
    return builder_.finish();
  }

 private:
  /// Finds the .param and the .bin file, given either of them.
  Status find_files() {
    char head[64];
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(source_->size(), sizeof head));
    STELE_TRY(source_->read_at(0, std::as_writable_bytes(std::span(head, size))));
    const bool text = ncnn::is_param({head, size});
    if (ncnn::is_binary_param({head, size})) {
      return Error(Errc::unsupported, "a binary .param file has no names and no types of layers")
          .file(source_->name())
          .expected("the text of a .param file")
          .hint("open the .param file that it was made from");
    }
    const std::string_view name = file_name(source_->name());
    const std::string_view from = text ? param_ending : bin_ending, to = text ? bin_ending : param_ending;
    const auto bundle = source_->bundle();
    if (bundle == nullptr || name.size() <= from.size() || !name.ends_with(from)) {
      return Error(Errc::unsupported, bundle == nullptr ? "the source of a model of two files cannot open the other"
                                                        : "the file's name does not determine the other file's name")
          .file(source_->name())
          .expected("a name that ends in " + std::string(from))
          .hint("open the file by its path, with the other file beside it");
    }
    const std::string other = std::string(name.substr(0, name.size() - from.size())).append(to);
    auto opened = bundle->open(other);
    if (!opened) {
      const char* const what = text ? "the file with the weights is missing" : "the file with the layers is missing";
      if (opened.error().code() != Errc::not_found) return std::move(opened).error();
      return Error(Errc::not_found, what).file(source_->name()).expected(other + " in the same folder");
    }
    param_ = text ? source_ : *opened;
    bin_ = text ? *opened : source_;
    return {};
  }

  Status read(std::string_view text) {
    ncnn::ParamReader layers(text);
    STELE_TRY(detail::in_file(layers.head(), param_->name()));
    ncnn::Layer layer;
    std::vector<ncnn::Blob> blobs;
    std::uint64_t at = 0;
    for (std::uint32_t i = 0; i < layers.layers(); ++i) {
      STELE_TRY(detail::in_file(layers.next(layer), param_->name()));
      const ncnn::Unknown unknown = ncnn::blobs_of(layer, blobs);
      if (unknown != ncnn::Unknown::no) return add_rest(layer, unknown, at);
      for (const ncnn::Blob& blob : blobs) {
        const std::string name = std::string(layer.name).append(".").append(blob.name);
        auto weight = ncnn::find_weight(*bin_, at, blob);
        if (!weight) return std::move(weight).error().path(name).file(bin_->name());
        STELE_TRY(
            detail::add_entry(builder_, {name, weight->dtype, blob.shape(), weight->bytes, weight->provider}, memory_));
        at = weight->end;
      }
    }
    STELE_TRY(detail::in_file(layers.finish(), param_->name()));
    if (at == bin_->size()) return {};
    return Error(Errc::malformed, "bytes follow the weights of the last layer")
        .file(bin_->name())
        .expected(std::to_string(at) + " bytes")
        .found(std::to_string(bin_->size()))
        .offset(at);
  }

  /// Adds the bytes from `at` on, whose layers are not known, as one entry.
  Status add_rest(const ncnn::Layer& layer, ncnn::Unknown unknown, std::uint64_t at) {
    const std::uint64_t size = bin_->size() - at;
    if (size == 0) return {};
    std::string reason = unknown == ncnn::Unknown::type ? "the weights of a layer of the unknown type "
                                                        : "the weights of a layer with unknown attributes, of type ";
    reason.append(layer.type).append(", and of all layers after it");
    return detail::add_entry(
        builder_, {layer.name, DType::none, {}, size, {&detail::source_ops, bin_.get(), at}, reason}, memory_);
  }

  SourcePtr source_, param_, bin_;
  detail::IndexBudget memory_;
  SnapshotBuilder builder_;
};

}  // namespace

bool NcnnFormat::recognises(std::span<const std::byte> head, std::uint64_t /*size*/) const noexcept {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  return ncnn::is_param(text) || ncnn::is_binary_param(text) || ncnn::has_tag(text);
}

Result<Snapshot> NcnnFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::in_host_order(NcnnReader(std::move(source), context.options().limits).run());
}

}  // namespace stele::inline v0
