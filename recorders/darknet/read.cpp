// Reads weights, in the order of a network's text, into a Snapshot.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/in_file.hpp"
#include "base/limits.hpp"
#include "file.hpp"
#include "io/cursor.hpp"
#include "io/levels_of_detail.hpp"
#include "io/text.hpp"
#include "leaves/source_range.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/bundle.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/recorders/read_only.hpp"
#include "stele/sink.hpp"

namespace stele::inline v0 {
namespace detail::darknet {
namespace {

constexpr std::uint64_t element_bytes = 4;

/// The revision of version 0.2 that AlexeyAB's program writes.
constexpr std::uint32_t alexey_revision = 5;

/// A file's header.
struct Header {
  std::uint32_t major = 0, minor = 0, revision = 0;
  /// Returns true if the number of images has 8 bytes; else it has 4.
  bool long_count() const noexcept { return major < 1000 && minor < 1000 && (std::uint64_t{major} * 10 + minor) >= 2; }
  /// Returns true if the matrices of connected layers are stored by columns.
  bool transposed() const noexcept { return major > 1000 || minor > 1000; }
  std::uint64_t size() const noexcept { return 12 + (long_count() ? 8 : 4); }
};
Header header_of(const std::byte* bytes) {
  return {load_le<std::uint32_t>(bytes), load_le<std::uint32_t>(bytes + 4), load_le<std::uint32_t>(bytes + 8)};
}

/// Returns the name of the network's file: `yolo.cfg` for `yolo.weights` and `yolo_final.weights`, if `trained`.
std::string network_name(std::string_view weights, bool trained) {
  std::string_view stem = weights.substr(0, weights.rfind('.'));
  if (trained) {
    const std::size_t at = stem.rfind('_');
    const std::string_view end = at != stem.npos ? stem.substr(at + 1) : "";
    constexpr std::array<std::string_view, 3> ends = {"final", "last", "best"};
    const bool number = !end.empty() && end.find_first_not_of("0123456789") == end.npos;
    if (!number && std::find(ends.begin(), ends.end(), end) == ends.end()) return {};
    stem = stem.substr(0, at);
  }
  return std::string(stem) + ".cfg";
}

class DarknetReader {
 public:
  DarknetReader(SourcePtr source, const std::string& cfg, const Limits& limits)
      : source_(std::move(source)), memory_(limits, source_->size()), cfg_(cfg), at_(0), end_(source_->size()) {}

  Result<Snapshot> run() {
    builder_.set_flat();
    builder_.keep(source_);
    STELE_TRY(read_header());
    if (cfg_.empty()) STELE_TRY(find_network());
    if (cfg_.empty()) {
      const Extent shape[] = {(end_ - at_) / element_bytes};
      STELE_TRY(add("weights", shape, end_ - at_, {}));
    } else {
      STELE_TRY(read_network());
    }
    STELE_TRY(sort_names(builder_));
    return builder_.finish();
  }

 private:
  Status read_header() {
    Cursor in(source_);
    STELE_TRY_ASSIGN(const std::byte* bytes, in.take(12));
    header_ = header_of(bytes);
    std::uint64_t seen = 0;
    if (header_.long_count()) {
      STELE_TRY_ASSIGN(seen, in.little<std::uint64_t>());
    } else {
      STELE_TRY_ASSIGN(seen, in.little<std::uint32_t>());
    }
    at_ = in.position();
    if ((end_ - at_) % element_bytes != 0) {
      return Error(Errc::malformed, "the weights are not whole 32-bit floats")
          .offset(at_)
          .expected("a multiple of 4 bytes")
          .found(std::to_string(end_ - at_));
    }
    builder_.set_metadata({{"darknet.seen", std::to_string(seen)},
                           {"darknet.version", std::to_string(header_.major) + "." + std::to_string(header_.minor) +
                                                   "." + std::to_string(header_.revision)}});
    return {};
  }

  /// Reads the text of the network next to the file. Adds a note if the network is missing.
  Status find_network() {
    const auto bundle = source_->bundle();
    const std::string name(file_name(source_->name()));
    for (const bool trained : {false, true}) {
      const std::string cfg = bundle != nullptr && !name.empty() ? network_name(name, trained) : "";
      if (cfg.empty()) continue;
      auto source = bundle->open(cfg);
      if (!source && source.error().code() == Errc::not_found) continue;
      if (!source) return std::move(source).error();
      STELE_TRY_ASSIGN(text_, read_text(**source, max_cfg_bytes, "the network's file is too large"));
      cfg_ = text_;
      cfg_name_ = (*source)->name();
      if (!cfg_.empty()) return {};
    }
    builder_.data().notes.push_back(
        bundle != nullptr ? "the weights have no names: " + network_name(name, false) + " is not next to the file"
                          : "the weights have no names: the network's .cfg file is unknown");
    return {};
  }

  Status read_network() {
    const Program program = header_.major == 0 && header_.minor == 2 && header_.revision == alexey_revision
                                ? Program::alexey
                                : Program::darknet;
    // A section of a few bytes becomes several strings.
    memory_.admit(cfg_.size(), index_rate::index);
    auto listed = list_weights(
        cfg_, program, header_.transposed(), [&] { return at_ != end_; },
        [&](const Weights& weights) { return take(weights); });
    if (!listed) {
      if (listed.error().offset()) return std::move(listed).error();  // an error of the weights
      return std::move(in_file(Result<Ended>(std::move(listed)), cfg_name_)).error();
    }
    builder_.data().left_out.emplace_back(graph_part);
    if (!listed->reason.empty()) {
      const Extent shape[] = {(end_ - at_) / element_bytes};
      return add(listed->layer, shape, end_ - at_, listed->reason);
    }
    if (!listed->layer.empty()) builder_.data().notes.push_back("the file ends before the layer " + listed->layer);
    if (at_ == end_) return {};
    return Error(Errc::malformed, "the file has more numbers than its network")
        .offset(at_)
        .expected(std::to_string(at_) + " bytes")
        .found(std::to_string(end_))
        .hint("open the file with the network that it was trained with");
  }

  /// Takes the next numbers of the file as a tensor.
  Status take(const Weights& weights) {
    const auto count = element_count(weights.shape);
    const auto bytes = count ? byte_length(DType::f32, *count) : std::nullopt;
    if (!bytes || *bytes > end_ - at_) {
      return Error(Errc::truncated, "the file has fewer numbers than its network")
          .path(std::string(weights.name))
          .offset(at_)
          .expected(to_string(weights.shape))
          .found(std::to_string((end_ - at_) / element_bytes) + " numbers")
          .hint("open the file with the network that it was trained with");
    }
    return add(weights.name, weights.shape, *bytes, weights.reason);
  }

  Status add(std::string_view name, std::span<const Extent> shape, std::uint64_t bytes, std::string_view reason) {
    const TensorEntry entry{.name = name,
                            .dtype = DType::f32,
                            .shape = shape,
                            .bytes = bytes,
                            .provider = {&source_ops, source_.get(), at_},
                            .unreadable = reason};
    at_ += bytes;
    return add_entry(builder_, entry, memory_);
  }

  SourcePtr source_;
  IndexBudget memory_;
  SnapshotBuilder builder_;
  Header header_;
  std::string text_, cfg_name_;
  std::string_view cfg_;
  std::uint64_t at_, end_;  // offsets of the next number, and of the end
};

}  // namespace
}  // namespace detail::darknet

namespace darknet = detail::darknet;

bool DarknetFormat::recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept {
  // There is no magic number: the bytes must be a version that a program wrote, and whole numbers must follow.
  if (head.size() < 20) return false;
  const darknet::Header header = darknet::header_of(head.data());
  const bool known = header.major == 0 &&
                     ((header.minor == 1 && header.revision == 0) ||
                      (header.minor == 2 && (header.revision == 0 || header.revision == darknet::alexey_revision)));
  // A count of images beyond 2^40 is not one. Paddle's tensors with one level of detail begin like version 0.1.
  if (!known || detail::has_levels_of_detail(head, size) || size <= header.size() ||
      (size - header.size()) % darknet::element_bytes != 0)
    return false;
  return !header.long_count() || detail::load_le<std::uint64_t>(head.data() + 12) < std::uint64_t{1} << 40;
}

Result<Snapshot> DarknetFormat::open(SourcePtr source, const OpenContext& context) const {
  const std::string name = source->name();
  auto opened = darknet::DarknetReader(std::move(source), options_.cfg, context.options().limits).run();
  return detail::in_host_order(detail::in_file(std::move(opened), name));
}

}  // namespace stele::inline v0
