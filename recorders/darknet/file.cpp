// Parses a network's text, `.cfg`, and finds the order of its weights.
#include "file.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <utility>
#include <vector>

namespace stele::inline v0::detail::darknet {
namespace {

/// Maximum of a layer's extents, and of their product: darknet computes with int.
constexpr std::uint64_t max_int = 0x7fffffff;

/// A section of the text: its type without brackets, and its options.
struct Section {
  std::string_view type;
  std::size_t line = 0;
  std::vector<std::pair<std::string, std::string>> options{};

  std::string_view text(std::string_view key) const {
    const auto found =
        std::find_if(options.begin(), options.end(), [&](const auto& option) { return option.first == key; });
    return found != options.end() ? std::string_view(found->second) : std::string_view();
  }
  /// Returns a number as atoi does: 0 for other text.
  std::int64_t number(std::string_view key, std::int64_t otherwise) const {
    return has(key) ? parse(text(key)) : otherwise;
  }
  bool has(std::string_view key) const {
    return std::any_of(options.begin(), options.end(), [&](const auto& option) { return option.first == key; });
  }
  static std::int64_t parse(std::string_view value) {
    std::int32_t number = 0;
    if (value.starts_with('+')) value.remove_prefix(1);
    std::from_chars(value.data(), value.data() + value.size(), number);
    return number;
  }
  /// Returns the numbers of a list.
  std::vector<std::int64_t> numbers(std::string_view key) const {
    std::vector<std::int64_t> list;
    if (!has(key)) return list;
    for (std::string_view rest = text(key);;) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      list.push_back(parse(rest.substr(0, comma)));
      if (comma == rest.size()) return list;
      rest.remove_prefix(comma + 1);
    }
  }
};

/// The output of a layer.
struct Output {
  std::int64_t w = 0, h = 0, c = 0;
  std::int64_t size = 0;
};

/// Layers without weights whose output has the shape of their input.
constexpr std::array<std::string_view, 14> same_shape = {
    "dropout", "activation",    "lrn",         "normalization", "l2norm",  "logistic", "yolo",
    "iseg",    "Gaussian_yolo", "contrastive", "empty",         "silence", "region",   "detection"};
/// Layers without weights whose output is a vector of the size of their input.
constexpr std::array<std::string_view, 3> same_size = {"softmax", "soft", "cost"};

/// Other names of sections.
constexpr std::pair<std::string_view, std::string_view> aliases[] = {
    {"conv", "convolutional"}, {"deconv", "deconvolutional"}, {"conn", "connected"}, {"max", "maxpool"},
    {"avg", "avgpool"},        {"local_avg", "local_avgpool"}};

class Lister {
 public:
  Lister(Program program, bool transposed, const std::function<bool()>& more,
         const std::function<Status(const Weights&)>& add)
      : alexey_(program == Program::alexey), transposed_(transposed), more_(more), add_(add) {}

  Result<Ended> run(std::string_view cfg) {
    STELE_TRY(read(cfg));
    if (sections_.empty() || (sections_[0].type != "net" && sections_[0].type != "network")) {
      return Error(Errc::malformed, "the network does not begin with the section [net]");
    }
    const Section& net = sections_[0];
    input_ = {net.number("width", 0), net.number("height", 0), net.number("channels", 0), 0};
    STELE_TRY(check(net, input_));
    input_.size = net.number("inputs", input_.size);
    for (std::size_t i = 1; i < sections_.size(); ++i) {
      section_ = &sections_[i];
      for (const auto& [alias, name] : aliases) {
        if (section_->type == alias) sections_[i].type = name;
      }
      layer_ = std::to_string(i - 1);
      layer_.append(".").append(section_->type);
      asked_ = false;
      Output out = input_;
      STELE_TRY_ASSIGN(const bool known, layer(out));
      if (ended_) return Ended{layer_, {}};
      if (!known)
        return Ended{layer_, "a network with a section [" + std::string(section_->type) + "] is not supported"};
      STELE_TRY(check(*section_, out));
      outputs_.push_back(out);
      input_ = out;
    }
    return Ended{};
  }

 private:
  /// Splits the text into sections.
  Status read(std::string_view cfg) {
    std::size_t number = 0;
    while (!cfg.empty()) {
      const std::size_t end = std::min(cfg.find('\n'), cfg.size());
      std::string line;
      std::copy_if(cfg.begin(), cfg.begin() + static_cast<std::ptrdiff_t>(end), std::back_inserter(line),
                   [](char c) { return c != ' ' && c != '\t' && c != '\r'; });
      cfg.remove_prefix(std::min(end + 1, cfg.size()));
      ++number;
      if (line.empty() || line[0] == '#' || line[0] == ';') continue;
      if (line[0] == '[') {
        const std::size_t close = line.find(']');
        if (close != line.size() - 1 || close == 1) {
          return Error(Errc::malformed, "a line of the network is not a section")
              .expected("[name]")
              .found("line " + std::to_string(number));
        }
        types_.push_back(line.substr(1, close - 1));
        sections_.push_back({{}, number});
        continue;
      }
      const std::size_t equals = line.find('=');
      if (sections_.empty() || equals == line.npos) {
        return Error(Errc::malformed, "a line of the network is not an option")
            .expected("key=value in a section")
            .found("line " + std::to_string(number));
      }
      sections_.back().options.emplace_back(line.substr(0, equals), line.substr(equals + 1));
    }
    for (std::size_t i = 0; i < sections_.size(); ++i) sections_[i].type = types_[i];
    return {};
  }

  static Error bad(const Section& section, const char* what) {
    return Error(Errc::malformed, what)
        .found("[" + std::string(section.type) + "] in line " + std::to_string(section.line));
  }
  Error bad(const char* what) const { return bad(*section_, what); }

  /// Checks the extents of an output, and computes its size unless it is a vector.
  static Status check(const Section& section, Output& out) {
    for (const std::int64_t extent : {out.w, out.h, out.c, out.size}) {
      if (extent < 0 || static_cast<std::uint64_t>(extent) > max_int)
        return bad(section, "a layer has an invalid size");
    }
    const Extent extents[] = {static_cast<Extent>(out.w), static_cast<Extent>(out.h), static_cast<Extent>(out.c)};
    const auto count = element_count(extents);
    if (!count || *count > max_int) return bad(section, "a layer has an invalid size");
    if (*count != 0) out.size = static_cast<std::int64_t>(*count);
    return {};
  }

  /// Adds a tensor of the current layer. Sets ended_ if the file ends before the layer.
  Status add(std::string_view part, std::initializer_list<std::int64_t> extents, std::string_view reason = {}) {
    if (!asked_) ended_ = !more_();
    asked_ = true;
    if (ended_) return {};
    std::array<Extent, 6> shape{};
    std::size_t rank = 0;
    for (const std::int64_t extent : extents) {
      if (extent <= 0 || static_cast<std::uint64_t>(extent) > max_int) return bad("a layer has an invalid size");
      shape[rank++] = static_cast<Extent>(extent);
    }
    const std::string name = layer_ + "." + std::string(part);
    return add_({name, std::span(shape).first(rank), reason});
  }

  Status add_statistics(const std::string& prefix, std::int64_t n) {
    for (const char* const part : {"scales", "rolling_mean", "rolling_variance"}) STELE_TRY(add(prefix + part, {n}));
    return {};
  }

  bool normalized() const {
    return section_->number("batch_normalize", 0) != 0 || (alexey_ && section_->number("cbn", 0) != 0);
  }

  Status add_convolution(const std::string& prefix, std::int64_t in, std::int64_t out, std::int64_t size,
                         std::int64_t groups = 1) {
    if (groups <= 0 || in < groups) return bad("the number of groups of a layer is invalid");
    STELE_TRY(add(prefix + "biases", {out}));
    if (normalized() && section_->number("dontloadscales", 0) == 0) STELE_TRY(add_statistics(prefix, out));
    return add(prefix + "weights", {out, in / groups, size, size},
               section_->number("flipped", 0) != 0 ? "a transposed matrix (flipped=1)" : "");
  }

  Status add_connected(const std::string& prefix, std::int64_t in, std::int64_t out) {
    STELE_TRY(add(prefix + "biases", {out}));
    STELE_TRY(add(prefix + "weights", {out, in}, transposed_ ? "a transposed matrix of an old version" : ""));
    if (!normalized() || section_->number("dontloadscales", 0) != 0) return {};
    return add_statistics(prefix, out);
  }

  /// Adds the weights of the current layer, and sets its output, which is its input. Returns false if the layer is
  /// unknown.
  Result<bool> layer(Output& out) {
    const std::string_view type = section_->type;
    const bool skipped = section_->number("dontload", 0) != 0;
    if (skipped) asked_ = true;
    if (type == "convolutional") return convolution(out, skipped);
    if (type == "connected") {
      out = vector(section_->number("output", 1));
      if (!skipped) STELE_TRY(add_connected("", input_.size, out.size));
      return true;
    }
    if (skipped) return false;
    if (type == "batchnorm") {
      if (alexey_) STELE_TRY(add("biases", {input_.c}));
      STELE_TRY(add_statistics("", input_.c));
      return true;
    }
    if (type == "deconvolutional" && !alexey_) return deconvolution(out);
    if (type == "local") return local(out);
    if (type == "rnn" || type == "gru" || type == "lstm") return recurrent(out);
    if (type == "crnn" && !alexey_) {
      const std::int64_t hidden = section_->number("hidden_filters", 1);
      out.c = section_->number("output_filters", 1);
      STELE_TRY(add_convolution("input.", input_.c, hidden, 3));
      STELE_TRY(add_convolution("self.", hidden, hidden, 3));
      STELE_TRY(add_convolution("output.", hidden, out.c, 3));
      return true;
    }
    return other(out);
  }

  static Output vector(std::int64_t size) { return {1, 1, size, size}; }

  /// Returns (extent + added) / stride + 1, or -1 for an invalid stride.
  static std::int64_t strided(std::int64_t extent, std::int64_t added, std::int64_t stride) {
    return stride > 0 && extent + added >= 0 ? (extent + added) / stride + 1 : -1;
  }
  std::int64_t stride(const char* key) const {
    const std::int64_t both = section_->number("stride", 1);
    return alexey_ ? section_->number(key, both) : both;
  }

  Result<bool> convolution(Output& out, bool skipped) {
    const std::int64_t size = section_->number("size", 1);
    const std::int64_t pad = section_->number("pad", 0) != 0 ? size / 2 : section_->number("padding", 0);
    const std::int64_t n = section_->number("filters", 1);
    out = {strided(input_.w, 2 * pad - size, stride("stride_x")), strided(input_.h, 2 * pad - size, stride("stride_y")),
           n, 0};
    const std::int64_t loaded = section_->number("numload", 0);
    if (!skipped && !(alexey_ && section_->has("share_index"))) {
      STELE_TRY(
          add_convolution("", input_.c, !alexey_ && loaded != 0 ? loaded : n, size, section_->number("groups", 1)));
    }
    return true;
  }

  Result<bool> deconvolution(Output& out) {
    const std::int64_t size = section_->number("size", 1), step = section_->number("stride", 1);
    const std::int64_t pad = section_->number("pad", 0) != 0 ? size / 2 : section_->number("padding", 0);
    const std::int64_t n = section_->number("filters", 1);
    STELE_TRY(add("biases", {n}));
    if (normalized() && section_->number("dontloadscales", 0) == 0) STELE_TRY(add_statistics("", n));
    STELE_TRY(add("weights", {input_.c, n, size, size},
                  section_->number("flipped", 0) != 0 ? "a transposed matrix (flipped=1)" : ""));
    out = {(input_.w - 1) * step + size - 2 * pad, (input_.h - 1) * step + size - 2 * pad, n, 0};
    return true;
  }

  Result<bool> local(Output& out) {
    const std::int64_t size = section_->number("size", 1), step = section_->number("stride", 1);
    const std::int64_t less = section_->number("pad", 0) != 0 ? 1 : size, n = section_->number("filters", 1);
    out = {strided(input_.w, -less, step), strided(input_.h, -less, step), n, 0};
    STELE_TRY(check(*section_, out));
    STELE_TRY(add("biases", {n, out.h, out.w}));
    STELE_TRY(add("weights", {out.h, out.w, n, input_.c, size, size}));
    return true;
  }

  Result<bool> recurrent(Output& out) {
    const std::int64_t in = input_.size, n = section_->number("output", 1);
    out = {0, 0, 0, n};
    if (section_->type == "rnn") {
      const std::int64_t hidden = alexey_ ? section_->number("hidden", 1) : n;
      STELE_TRY(add_connected("input.", in, hidden));
      STELE_TRY(add_connected("self.", hidden, hidden));
      STELE_TRY(add_connected("output.", hidden, n));
      return true;
    }
    // Matrices of the state (w) and of the input (u), by gate.
    const bool gru = section_->type == "gru";
    const std::string_view gates = gru ? "zrh" : alexey_ ? "figo" : "ifog";
    for (const char matrix : {gru && alexey_ ? 'u' : 'w', gru && alexey_ ? 'w' : 'u'}) {
      for (const char gate : gates) {
        STELE_TRY(add_connected(std::string{matrix, gate, '.'}, matrix == 'u' ? in : n, n));
      }
    }
    return true;
  }

  /// Layers without weights, except some shortcuts and implicit layers.
  Result<bool> other(Output& out) {
    const std::string_view type = section_->type;
    if (std::find(same_shape.begin(), same_shape.end(), type) != same_shape.end()) return true;
    if (std::find(same_size.begin(), same_size.end(), type) != same_size.end()) {
      out = {0, 0, 0, input_.size};
      return true;
    }
    if (type == "maxpool" || type == "local_avgpool") {
      const std::int64_t size = section_->number("size", section_->number("stride", 1));
      const std::int64_t added = section_->number("padding", size - 1) - size;
      if (alexey_ && section_->number("maxpool_depth", 0) != 0) {
        out.c = section_->number("out_channels", 1);
      } else {
        out.w = strided(input_.w, added, stride("stride_x"));
        out.h = strided(input_.h, added, stride("stride_y"));
      }
      return true;
    }
    if (type == "avgpool") {
      out = {1, 1, input_.c, 0};
      return true;
    }
    if (type == "crop") {
      out = {section_->number("crop_width", 1), section_->number("crop_height", 1), input_.c, 0};
      return true;
    }
    if (type == "upsample") {
      scale(out, section_->number("stride", 2), 1);
      return true;
    }
    if (type == "reorg") {
      const std::int64_t step = section_->number("stride", 1), extra = section_->number("extra", 0);
      if (step < 1 || step > 0x7fff) return bad("the stride of a layer is invalid");
      scale(out, section_->number("reverse", 0) != 0 ? step : -step, step * step);
      if (extra != 0) out = {0, 0, 0, input_.size + extra};
      return true;
    }
    if (type == "route") return route(out);
    if (type == "shortcut") {
      const std::string_view weights = section_->text("weights_type");
      const auto from = static_cast<std::int64_t>(section_->numbers("from").size());
      if (weights == "per_feature" || weights == "per_layer") STELE_TRY(add("weights", {from + 1}));
      if (weights == "per_channel") STELE_TRY(add("weights", {from + 1, input_.c}));
      return true;
    }
    if (type == "scale_channels" || type == "sam") {
      const auto from = section_->numbers("from");
      if (from.empty()) return bad("a layer does not name its input");
      STELE_TRY_ASSIGN(out, at(from[0]));
      return true;
    }
    if (type == "implicit") {
      out = {1, section_->number("atoms", 1), section_->number("filters", 128), 0};
      STELE_TRY(add("weights", {out.c, out.h}));
      return true;
    }
    return false;
  }

  /// Enlarges an output by `factor`, or if it is negative reduces it; the channels change by `channels`.
  static void scale(Output& out, std::int64_t factor, std::int64_t channels) {
    if (factor < 0) {
      out = {out.w / -factor, out.h / -factor, out.c * channels, 0};
    } else {
      out = {out.w * factor, out.h * factor, out.c / channels, 0};
    }
  }

  /// Returns the output of a layer, by its number, or relative to the current layer if the number is negative.
  Result<Output> at(std::int64_t layer) const {
    const auto count = static_cast<std::int64_t>(outputs_.size());
    if (layer < 0) layer += count;
    if (layer < 0 || layer >= count) return bad("a layer names an input that does not exist");
    return outputs_[static_cast<std::size_t>(layer)];
  }

  Result<bool> route(Output& out) {
    const auto layers = section_->numbers("layers");
    if (layers.empty()) return bad("a layer does not name its input");
    out = {};
    bool equal = true;
    std::int64_t size = 0;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      STELE_TRY_ASSIGN(const Output from, at(layers[i]));
      if (i == 0) out = {from.w, from.h, 0, 0};
      equal = equal && from.w == out.w && from.h == out.h;
      out.c += from.c;
      size += from.size;
    }
    const std::int64_t groups = alexey_ ? section_->number("groups", 1) : 1;
    if (groups < 1) return bad("the number of groups of a layer is invalid");
    out.c /= groups;
    if (!equal) out = {};
    out.size = size / groups;
    return true;
  }

  const bool alexey_, transposed_;
  const std::function<bool()>& more_;
  const std::function<Status(const Weights&)>& add_;
  std::vector<std::string> types_;
  std::vector<Section> sections_;
  std::vector<Output> outputs_;
  Output input_;
  const Section* section_ = nullptr;
  std::string layer_;  // "0.convolutional"
  bool asked_ = false, ended_ = false;
};

}  // namespace

Result<Ended> list_weights(std::string_view cfg, Program program, bool transposed, const std::function<bool()>& more,
                           const std::function<Status(const Weights&)>& add) {
  return Lister(program, transposed, more, add).run(cfg);
}

}  // namespace stele::inline v0::detail::darknet
