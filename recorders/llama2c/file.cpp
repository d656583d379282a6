// The header of a llama2.c model, and the tensors that it determines. From export.py and run.c of llama2.c 350e04f.
#include "file.hpp"

#include <algorithm>
#include <array>

#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::llama2c {
namespace {

constexpr std::uint32_t magic = 0x616b3432;  // "24ka" in the file
constexpr std::size_t numbers = 7, legacy_bytes = 4 * numbers, header_bytes = 256;

bool has_magic(std::span<const std::byte> head) noexcept {
  return head.size() >= 4 && load_le<std::uint32_t>(head.data()) == magic;
}

Error malformed(const char* name, std::int64_t found, std::string expected) {
  return Error(Errc::malformed, "a number of the model is invalid")
      .expected(std::string(name) + " " + std::move(expected))
      .found(std::to_string(found));
}

/// Returns the number of floats after the header of a file of version 0; nullopt if it is too large for a model.
std::optional<std::uint64_t> legacy_floats(const Header& h) noexcept {
  constexpr std::uint64_t max_number = std::uint64_t{1} << 24;  // then no sum below overflows
  for (const std::uint64_t n : {h.dim, h.hidden_dim, h.vocab_size, h.max_seq_len, h.kv_dim()}) {
    if (n > max_number) return std::nullopt;
  }
  if (h.n_layers > 4096) return std::nullopt;
  const std::uint64_t layer = 2 * h.dim + 2 * h.dim * h.dim + 2 * h.kv_dim() * h.dim + 3 * h.dim * h.hidden_dim;
  return (h.shared_classifier ? 1 : 2) * h.vocab_size * h.dim + h.n_layers * layer + h.dim +
         2 * h.max_seq_len * (h.dim / h.n_heads / 2);
}

}  // namespace

bool recognises(std::span<const std::byte> head, std::uint64_t size) noexcept {
  if (has_magic(head)) return true;
  if (head.size() < legacy_bytes || size % 4 != 0) return false;
  std::array<std::int64_t, numbers> n{};
  for (std::size_t i = 0; i < numbers; ++i) n[i] = load_le<std::int32_t>(head.data() + 4 * i);
  n[5] = n[5] < 0 ? -n[5] : n[5];  // vocab_size
  const bool positive = std::all_of(n.begin(), n.end(), [](std::int64_t number) { return number > 0; });
  if (!positive || n[0] % n[3] != 0) return false;
  const auto header = header_of(head);
  const auto floats = header ? legacy_floats(*header) : std::nullopt;
  return floats && (size - legacy_bytes) / 4 == *floats;
}

Result<Header> header_of(std::span<const std::byte> head) {
  Header h;
  const std::byte* at = head.data();
  const bool legacy = !has_magic(head);
  if (head.size() < (legacy ? legacy_bytes : header_bytes)) {
    return Error(Errc::truncated, "the file ends in its header")
        .expected(std::to_string(legacy ? legacy_bytes : header_bytes) + " bytes")
        .found(std::to_string(head.size()));
  }
  if (!legacy) {
    h.version = load_le<std::int32_t>(at + 4);
    if (h.version != 1 && h.version != 2) {
      return Error(Errc::unsupported, "the file has another version of llama2.c's format")
          .expected("0 to 2")
          .found(std::to_string(h.version));
    }
    at += 8;
  }
  struct Number {
    const char* name;
    std::uint64_t Header::*to;
  };
  constexpr Number all[numbers] = {{"dim", &Header::dim},
                                   {"hidden_dim", &Header::hidden_dim},
                                   {"n_layers", &Header::n_layers},
                                   {"n_heads", &Header::n_heads},
                                   {"n_kv_heads", &Header::n_kv_heads},
                                   {"vocab_size", &Header::vocab_size},
                                   {"max_seq_len", &Header::max_seq_len}};
  for (const Number& number : all) {
    std::int64_t n = load_le<std::int32_t>(at);
    at += 4;
    if (legacy && number.to == &Header::vocab_size) {
      h.shared_classifier = n > 0;
      n = n < 0 ? -n : n;
    }
    if (n <= 0) return malformed(number.name, n, "above 0");
    h.*number.to = static_cast<std::uint64_t>(n);
  }
  if (h.dim % h.n_heads != 0) return malformed("n_heads", static_cast<std::int64_t>(h.n_heads), "a divisor of dim");
  if (!legacy) {
    const auto flag = std::to_integer<unsigned>(at[0]);
    if (flag > 1) return malformed("shared_classifier", flag, "0 or 1");
    h.shared_classifier = flag != 0;
    const auto group = load_le<std::int32_t>(at + 1);
    if (h.version == 2 && group <= 0) return malformed("group_size", group, "above 0");
    if (h.version == 2) h.group_size = static_cast<std::uint64_t>(group);
  }
  h.bytes = legacy ? legacy_bytes : header_bytes;
  return h;
}

namespace {

/// Lists the tensors of each version.
class Lister {
 public:
  Lister(const Header& header, const std::function<Status(const Tensor&)>& add) : h_(header), add_(add) {}

  Status legacy() {
    STELE_TRY(weight("tok_embeddings.weight", h_.vocab_size, h_.dim));
    STELE_TRY(norms("attention_norm"));
    STELE_TRY(attention());
    STELE_TRY(norms("ffn_norm"));
    STELE_TRY(layers("feed_forward.w1", h_.hidden_dim, h_.dim));
    STELE_TRY(layers("feed_forward.w2", h_.dim, h_.hidden_dim));
    STELE_TRY(layers("feed_forward.w3", h_.hidden_dim, h_.dim));
    STELE_TRY(floats("norm.weight", {h_.dim}));
    const std::uint64_t half = h_.dim / h_.n_heads / 2;
    STELE_TRY(floats("freqs_cos", {h_.max_seq_len, half}));
    STELE_TRY(floats("freqs_sin", {h_.max_seq_len, half}));
    return classifier();
  }
  Status versioned() {
    STELE_TRY(norms("attention_norm"));
    STELE_TRY(norms("ffn_norm"));
    STELE_TRY(floats("norm.weight", {h_.dim}));
    STELE_TRY(weight("tok_embeddings.weight", h_.vocab_size, h_.dim));
    STELE_TRY(attention());
    STELE_TRY(layers("feed_forward.w1", h_.hidden_dim, h_.dim));
    STELE_TRY(layers("feed_forward.w2", h_.dim, h_.hidden_dim));
    STELE_TRY(layers("feed_forward.w3", h_.hidden_dim, h_.dim));
    return classifier();
  }

 private:
  static std::string in_layer(std::uint64_t i, const char* name) {
    return "layers." + std::to_string(i) + "." + name + ".weight";
  }
  Status floats(std::string name, Shape shape) { return add_({std::move(name), DType::f32, std::move(shape)}); }
  Status weight(const std::string& name, std::uint64_t rows, std::uint64_t columns) {
    if (h_.group_size == 0) return floats(name, {rows, columns});
    STELE_TRY(add_({name, DType::i8, {rows, columns}}));
    const std::string scales = name + "_scale";
    const std::uint64_t g = h_.group_size;
    if (columns % g == 0) return floats(scales, {rows, columns / g});
    // The codes are in the file, so the product does not overflow. Such groups cross rows; runq.c does not read them.
    if (rows * columns % g != 0) {
      return Error(Errc::malformed, "a weight is no whole number of groups")
          .path(name)
          .expected("a multiple of " + std::to_string(g))
          .found(std::to_string(rows * columns));
    }
    return floats(scales, {rows * columns / g});
  }
  Status norms(const char* name) {
    for (std::uint64_t i = 0; i < h_.n_layers; ++i) STELE_TRY(floats(in_layer(i, name), {h_.dim}));
    return {};
  }
  Status layers(const char* name, std::uint64_t rows, std::uint64_t columns) {
    for (std::uint64_t i = 0; i < h_.n_layers; ++i) STELE_TRY(weight(in_layer(i, name), rows, columns));
    return {};
  }
  Status attention() {
    STELE_TRY(layers("attention.wq", h_.dim, h_.dim));
    STELE_TRY(layers("attention.wk", h_.kv_dim(), h_.dim));
    STELE_TRY(layers("attention.wv", h_.kv_dim(), h_.dim));
    return layers("attention.wo", h_.dim, h_.dim);
  }
  Status classifier() {
    if (h_.shared_classifier) return {};
    return weight("output.weight", h_.vocab_size, h_.dim);
  }

  const Header& h_;
  const std::function<Status(const Tensor&)>& add_;
};

}  // namespace

Status each_tensor(const Header& header, const std::function<Status(const Tensor&)>& add) {
  Lister lister(header, add);
  return header.version == 0 ? lister.legacy() : lister.versioned();
}

}  // namespace stele::inline v0::detail::llama2c
