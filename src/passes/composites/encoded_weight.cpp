// Lists the parts of encoded weights, and reads them as leaves.
#include "passes/composites/encoded_weight.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <span>
#include <utility>

#include "leaves/needs.hpp"
#include "passes/composites/composite.hpp"
#include "passes/composites/encode.hpp"
#include "passes/composites/encoder.hpp"
#include "snapshot/paths.hpp"

namespace stele::inline v0::detail::composites {
namespace {

const std::byte* part_view(const void* at, std::uint64_t number) {
  const Weight::PartData& part = static_cast<const Weight*>(at)->parts[static_cast<std::size_t>(number)];
  return part.kind == PartKind::constant ? part.constant.data() : nullptr;
}

Status part_read(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                 ReadContext& context) {
  const auto& w = *static_cast<const Weight*>(at);
  const Weight::PartData& part = w.parts[static_cast<std::size_t>(number)];
  if (part.kind == PartKind::global) {
    STELE_TRY_ASSIGN(const float global, Encoder::global_of(w, context));
    std::memcpy(out.data(), &global, out.size());  // the whole part: it has one element
    return {};
  }
  if (out.empty()) return {};
  Encoder encoder(w, context);
  const std::uint64_t end = offset + out.size();
  return encoder.run(part, offset / part.unit, (end + part.unit - 1) / part.unit,
                     [&](std::uint64_t unit, std::span<const std::byte> bytes) -> Status {
                       const std::uint64_t begin = unit * part.unit;
                       const std::uint64_t from = std::max(begin, offset);
                       const std::uint64_t to = std::min<std::uint64_t>(begin + bytes.size(), end);
                       std::memcpy(out.data() + (from - offset), bytes.data() + (from - begin),
                                   static_cast<std::size_t>(to - from));
                       return {};
                     });
}

Status part_stream(const void* at, std::uint64_t number, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  const auto& w = *static_cast<const Weight*>(at);
  const Weight::PartData& part = w.parts[static_cast<std::size_t>(number)];
  if (part.kind == PartKind::constant) return sink.piece(part.constant);
  if (part.kind == PartKind::global) {
    std::array<std::byte, sizeof(float)> bytes{};
    STELE_TRY(part_read(at, number, 0, std::span(bytes).first(static_cast<std::size_t>(size)), context));
    return sink.piece(bytes);
  }
  const LeafView floats = w.floats();
  const auto location = floats.location();
  if (part.kind == PartKind::codes && (location ? location->hashed : floats.view().empty())) {
    struct Discard final : PieceSink {  // later reads of parts are not checked
      Status piece(std::span<const std::byte>) override { return {}; }
    } discard;
    STELE_TRY(with_path(floats.stream(discard, context), floats));
  }
  Encoder encoder(w, context);
  STELE_TRY(encoder.run(part, 0, w.units(),
                        [&](std::uint64_t, std::span<const std::byte> bytes) { return sink.piece(bytes); }));
  if (part.kind == PartKind::codes) w.differences.set(encoder.differences());
  return {};
}

void part_needs(const void* at, std::uint64_t number, Needs& needs) {
  const auto& w = *static_cast<const Weight*>(at);
  if (w.parts[static_cast<std::size_t>(number)].kind != PartKind::constant) needs.add(w.floats());
}

constexpr LeafOps part_ops{.view = part_view, .read = part_read, .stream = part_stream, .needs = part_needs};

template <class T>
std::vector<std::byte> bytes_of(std::span<const T> numbers) {
  std::vector<std::byte> bytes(numbers.size_bytes());
  if (!numbers.empty()) std::memcpy(bytes.data(), numbers.data(), numbers.size_bytes());
  return bytes;
}

}  // namespace

void add_parts(Weight& w, std::uint64_t n, std::uint64_t k) {
  const std::uint64_t groups = k / w.group;
  const auto add = [&](PartKind kind, std::string suffix, DType dtype, std::initializer_list<Extent> shape,
                       std::uint64_t unit) {
    w.parts.push_back({kind, std::move(suffix), dtype, Shape(shape), unit});
  };
  const auto constant = [&](std::string suffix, DType dtype, std::initializer_list<Extent> shape,
                            std::vector<std::byte> bytes) {
    w.parts.push_back({PartKind::constant, std::move(suffix), dtype, Shape(shape), 0, std::move(bytes)});
  };
  const std::size_t element = element_size(w.scales);
  const std::uint64_t bits = w.scheme->bits;
  switch (w.scheme->package) {
    case Package::deepseek:
      add(PartKind::codes, ".weight", DType::f8_e4m3fn, {n, k}, w.row_group * k);
      add(PartKind::scales, ".weight_scale_inv", w.scales, {n / w.row_group, groups}, groups * element);
      return;
    case Package::compressed_tensors:
      if (w.scheme->coding == Coding::integer) {
        add(PartKind::codes, ".weight_packed", DType::i32, {n, k * bits / 32}, k * bits / 8);
        constant(".weight_shape", DType::i64, {2},
                 bytes_of<std::int64_t>(std::array{static_cast<std::int64_t>(n), static_cast<std::int64_t>(k)}));
      } else if (w.scheme->coding == Coding::float4) {
        add(PartKind::codes, ".weight_packed", DType::u8, {n, k / 2}, k / 2);
      } else {
        add(PartKind::codes, ".weight", DType::f8_e4m3fn, {n, k}, k);
      }
      add(PartKind::scales, ".weight_scale", w.scales, {n, groups}, groups * element);
      if (w.scheme->scaling == Scaling::of_weight)
        add(PartKind::global, ".weight_global_scale", DType::f32, {1}, sizeof(float));
      return;
    case Package::gptq:
    case Package::awq: {
      const bool gptq = w.scheme->package == Package::gptq;
      if (gptq) {
        add(PartKind::codes, ".qweight", DType::i32, {k / 8, n}, w.group / 8 * n * 4);
      } else {
        add(PartKind::codes, ".qweight", DType::i32, {k, n / 8}, w.group * (n / 8) * 4);
      }
      add(PartKind::zeros, ".qzeros", DType::i32, {groups, n / 8}, n / 8 * 4);
      add(PartKind::scales, ".scales", w.scales, {groups, n}, n * element);
      if (!gptq) return;
      std::vector<std::int32_t> index(static_cast<std::size_t>(k));
      for (std::size_t i = 0; i < index.size(); ++i) index[i] = static_cast<std::int32_t>(i / w.group);
      constant(".g_idx", DType::i32, {k}, bytes_of<std::int32_t>(index));
      return;
    }
    case Package::bitsandbytes: {
      add(PartKind::codes, ".weight", DType::u8, {(w.elements + 1) / 2, 1}, w.columns / 2);
      add(PartKind::scales, ".weight.absmax", w.scales, {w.rows}, element);
      constant(".weight.quant_map", DType::f32, {16}, bytes_of<float>(std::span(*w.table).first(16)));
      const char* const dtype = w.floats_of_model == DType::f16    ? "float16"
                                : w.floats_of_model == DType::bf16 ? "bfloat16"
                                                                   : "float32";
      const std::string state = R"({"quant_type": "nf4", "blocksize": 64, "dtype": ")" + std::string(dtype) +
                                R"(", "shape": [)" + std::to_string(n) + ", " + std::to_string(k) + "]}";
      constant(".weight.quant_state.bitsandbytes__nf4", DType::u8, {state.size()}, bytes_of<char>(state));
      return;
    }
  }
}

Provider provider_of(const Weight& w, std::size_t part) noexcept { return {&part_ops, &w, part}; }

bool is_encoded(const LeafView& leaf) noexcept {
  if (leaf.provider().ops != &part_ops) return false;
  const auto& w = *static_cast<const Weight*>(leaf.provider().at);
  return w.parts[static_cast<std::size_t>(leaf.provider().number)].kind == PartKind::codes;
}

void add_encoded_row(const LeafView& codes, Report& report) {
  const auto& w = *static_cast<const Weight*>(codes.provider().at);
  std::uint64_t bytes = 0;
  for (const Weight::PartData& part : w.parts) bytes += part.bytes();
  char text[64];
  std::snprintf(text, sizeof text, ", %.3g bits", static_cast<double>(bytes) * 8 / static_cast<double>(w.elements));
  const Composite* const from = composite_of(w.floats());
  report.add(Report::What::quantized, w.path,
             (from != nullptr ? from->scheme : std::string(name(w.floats().dtype()))) + " -> " +
                 std::string(w.scheme->name) + text + w.differences.get().text(w.elements));
}

}  // namespace stele::inline v0::detail::composites
