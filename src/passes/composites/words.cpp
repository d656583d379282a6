// Integers of a few bits in words: GPTQ, AWQ, compressed-tensors.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "passes/composites/recogniser.hpp"

namespace stele::inline v0::detail::composites {

Status Recogniser::packed(const std::string& stem) {
  const Item* const codes = find(stem + "_packed");
  if (is_word(leaf(leaf_of(*codes)).dtype())) return packed_words(stem);
  const LeafView packed = leaf(leaf_of(*codes)), scales = leaf(leaf_of(*find(stem + "_scale")));
  const bool sixths = packed.shape().size() == 2 && scales.shape().size() == 2 && packed.dtype() == DType::u8 &&
                      scales.shape()[1] <= UINT32_MAX && packed.shape()[1] == scales.shape()[1] * 24;
  if (!sixths) return halves(stem, "nvfp4", {"_packed", "_scale", "_global_scale?"});
  const Made c = begin(stem, "", "mxfp6", {"_packed", "_scale"});
  set_shape(*c, std::array<Extent, 2>{packed.shape()[0], scales.shape()[1] * 32});
  if (c->rows == 0 || c->columns == 0) return {};
  c->bits = 6;
  c->packing = Packing::row_bytes;
  c->table = e2m3_table();
  std::string why = set_grid(*c, part(*c, "_scale"), std::array{Block{1, 32}});
  if (why.empty() && !set_dtype(c->scales)) why = "scales that are no exponents";
  return add(stem, c, why);
}

namespace {

struct PackedPlan {
  unsigned bits = 0;
  CodeLayout layout = CodeLayout::dense;
  bool operator==(const PackedPlan&) const = default;
};

/// Returns the minor number of a version 0.x of compressed-tensors.
std::optional<unsigned> minor_version(const LayerSettings& settings) {
  const auto version = settings.get<std::string>("version");
  if (!version || !version->starts_with("0.")) return std::nullopt;
  unsigned minor = 0;
  for (const char digit : std::string_view(*version).substr(2, 3)) {
    if (digit < '0' || digit > '9') break;
    minor = minor * 10 + static_cast<unsigned>(digit - '0');
  }
  return minor;
}

/// Plans rows with this number of columns and words. Only compressed-tensors before 0.18 pads words; its configuration
/// has the version. Returns the problem, or an empty string.
std::string packed_plan(const LayerSettings& settings, std::uint64_t columns, std::uint64_t words, PackedPlan& plan) {
  const auto asked = settings.get<std::uint64_t>("num_bits");
  const auto version = minor_version(settings);
  std::vector<PackedPlan> fitting;
  std::array<CodeLayout, 2> layouts = {CodeLayout::dense, CodeLayout::padded};
  if (version && *version < 18) std::swap(layouts[0], layouts[1]);
  for (const CodeLayout layout : layouts) {
    if (!fitting.empty()) break;
    for (unsigned bits = 1; bits <= 8; ++bits) {
      if ((asked && *asked != bits) || code_words(columns, bits, layout) != words) continue;
      const PackedPlan fit{bits, 32 % bits == 0 ? CodeLayout::dense : layout};
      if (std::find(fitting.begin(), fitting.end(), fit) == fitting.end()) fitting.push_back(fit);
    }
  }
  if (fitting.empty()) return "a width of the codes that is not 1 to 8 bits, or not that of the configuration";
  if (fitting.size() > 1) return "the shapes fit several widths of the codes, and the configuration has none";
  plan = fitting.front();
  return {};
}

}  // namespace

Status Recogniser::packed_words(const std::string& stem) {
  const Made c = begin(stem, "", "pack-quantized", {"_packed", "_scale", "_shape?", "_zero_point?", "_g_idx?"});
  const LeafView codes = leaf(c->codes);
  const std::uint32_t shape_part = part(*c, "_shape");
  if (shape_part == no_index) return add(stem, c, "the shape is missing");
  std::vector<std::uint64_t> shape;
  STELE_TRY_ASSIGN(const std::vector<float> numbers, floats_of(shape_part));
  shape.reserve(numbers.size());
  for (const float x : numbers) shape.push_back(x >= 0 && x < 0x1p24F ? static_cast<std::uint64_t>(x) : 0);
  if (shape.size() != 2 || codes.shape().size() != 2 || shape[0] != codes.shape()[0] || shape[1] == 0) {
    return add(stem, c, "a shape that is not that of the codes");
  }
  set_shape(*c, shape);
  if (c->rows == 0) return {};
  const std::uint64_t words = codes.shape()[1];
  std::string why;
  const std::string_view layer = stem.ends_with(".weight") ? std::string_view(stem).substr(0, stem.size() - 7) : stem;
  const auto plan = only_plan<PackedPlan>(layer, why, [&](const LayerSettings& settings, PackedPlan& made) {
    return packed_plan(settings, c->columns, words, made);
  });
  if (!plan) return note(stem, *c, why), Status();
  c->bits = plan->bits;
  c->layout = plan->layout;
  c->packing = Packing::row_words;
  const float half = std::ldexp(1.0F, static_cast<int>(c->bits) - 1);
  c->table = integer_table(c->bits, true);
  std::vector<Block> blocks;
  for (const LayerSettings& settings : configuration_.of(layer)) {
    const auto block = settings.block();
    if (block && settings.get<std::uint64_t>("num_bits").value_or(c->bits) == c->bits) blocks.push_back(*block);
  }
  why = set_grid(*c, part(*c, "_scale"), blocks);
  if (why.empty() && !is_float(leaf(c->scales.leaf))) why = "scales that are no floats";
  if (const std::uint32_t zeros = part(*c, "_zero_point"); why.empty() && zeros != no_index) {
    c->zeros = c->scales;
    c->zeros.leaf = zeros;
    const auto zero_shape = leaf(zeros).shape();
    if (!is_word(leaf(zeros).dtype())) {
      if (leaf(zeros).size() != leaf(c->scales.leaf).size() || element_size(leaf(zeros).dtype()) == 0)
        why = "zero points of another shape";
    } else {
      c->zeros.packing = Packing::column_words;
      c->zeros.bits = c->bits;
      c->zeros.add = -half;
      c->zeros.layout = c->layout;
      if (zero_shape.size() != 2 || zero_shape[1] != c->scales.columns ||
          zero_shape[0] != code_words(c->scales.rows, c->bits, c->layout)) {
        why = "zero points of the shape " + to_string(zero_shape);
      }
    }
  }
  if (why.empty()) why = set_group_of(*c, part(*c, "_g_idx"), true);
  return add(stem, c, why);
}

Result<std::optional<unsigned>> Recogniser::stored_zero(std::uint32_t zeros, unsigned bits, std::uint64_t count) {
  constexpr std::uint64_t max_words = 1024;  // words of the first group of columns
  if (const auto known = stored_zeros_.find(bits); known != stored_zeros_.end()) return known->second;
  const std::uint64_t words = std::min(leaf(zeros).shape()[1], max_words);
  std::vector<std::byte> bytes(static_cast<std::size_t>(words) * 4);
  STELE_TRY(leaf(zeros).read(0, bytes));
  swap_big_endian(bytes, 4);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(std::min(count, words * 32 / bits)));
  unpack_bits(bytes.data(), bits, CodeLayout::dense, codes.data(), codes.size());
  const bool same = std::all_of(codes.begin(), codes.end(), [&](std::uint8_t code) { return code == codes.front(); });
  return stored_zeros_[bits] = same ? std::optional<unsigned>(codes.front()) : std::nullopt;
}

namespace {

/// The form in which a checkpoint of GPTQ stores its zero points.
enum class Zeros : std::uint8_t { same, less_one, open };

/// The layout of GPTQ's and AWQ's words in the configuration.
struct WordPlan {
  unsigned bits = 0;
  bool awq = false, planes = false;
  std::uint64_t columns = 0, group = 0;
  Zeros zeros = Zeros::open;
  bool symmetric = false;
  bool operator==(const WordPlan&) const = default;
};

/// The extents of the parts.
struct WordShapes {
  std::uint64_t lines, line_words;  // of the codes
  std::uint64_t groups, rows;       // of the scales
  std::uint64_t zero_words;
  std::optional<std::uint64_t> columns;  // of g_idx
};

/// Returns the problem of a layout of AWQ, or an empty string. The files of exllama and ipex are those of gemm; these
/// kernels rearrange the words in memory.
std::string awq_problem(const LayerSettings& settings) {
  constexpr std::string_view known[] = {"gemm", "exllama", "exllamav2", "exllama_v2", "ipex"};
  for (const char* const key : {"checkpoint_format", "format", "version"}) {
    const auto layout = settings.get<std::string>(key);
    if (!layout) continue;
    std::string small = *layout;  // autoawq wrote GEMM
    for (char& c : small) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (std::find(std::begin(known), std::end(known), small) == std::end(known)) return "the layout " + *layout;
  }
  return {};
}

/// Sets the layout. Returns the problem, or an empty string.
std::string set_format(const LayerSettings& settings, WordPlan& plan) {
  const auto method = settings.get<std::string>("quant_method").value_or("");
  auto packing = settings.get<std::string>("packing_format");
  const bool wide = plan.bits >= 5 && plan.bits <= 7;
  if (packing || method.find("auto-round") != method.npos) {  // auto-round; before 0.5 it used another key
    if (!packing) packing = settings.get<std::string>("backend");
    if (!packing || *packing == "auto") return {};
    const auto has = [&](std::string_view part) { return packing->find(part) != packing->npos; };
    if (has("awq")) return plan.awq ? "" : "the layout " + *packing + " has other shapes";
    const bool own = !has("gptq") && (packing->starts_with("auto_round") || packing->starts_with("autoround"));
    if (!own && !has("gptq")) return "the layout " + *packing;
    plan.zeros = own || has("gptqmodel") ? Zeros::same : Zeros::less_one;
    return {};
  }
  auto format = settings.get<std::string>("checkpoint_format");
  if (!format) format = settings.get<std::string>("format");
  if (plan.awq) return awq_problem(settings);
  if (format && *format != "gptq" && *format != "gptq_v2" && *format != "gptq_p") return "the layout " + *format;
  const bool gptq = method == "gptq" || (method.empty() && settings.find("bits") != nullptr);
  if (!format && !gptq) return wide ? "codes of 5 to 7 bits, whose layout is not in the configuration" : "";
  plan.planes = wide || format == "gptq_p";
  plan.zeros = plan.planes || format == "gptq_v2" ? Zeros::same : Zeros::less_one;
  return {};
}

/// Sets the number of bits, the columns and the group. Returns the problem, or an empty string.
std::string set_sizes(const LayerSettings& settings, const WordShapes& shapes, WordPlan& plan) {
  const auto bits_asked = settings.get<std::uint64_t>("bits");
  std::vector<WordPlan> fitting;
  for (const unsigned bits : {2U, 3U, 4U, 5U, 6U, 7U, 8U}) {
    if ((bits_asked && *bits_asked != bits) || divided_up(shapes.rows * bits, 32) != shapes.zero_words) continue;
    WordPlan fit;
    fit.bits = bits;
    fit.awq = shapes.line_words != shapes.rows && bits == 4 && shapes.line_words * 8 == shapes.rows;
    fit.columns = fit.awq ? shapes.lines : shapes.columns.value_or(shapes.lines * 32 / bits);
    const bool fits = fit.awq || (shapes.line_words == shapes.rows && fit.columns <= UINT32_MAX &&
                                  divided_up(fit.columns * bits, 32) == shapes.lines);
    if (fits) fitting.push_back(fit);
  }
  if (fitting.size() > 1) return "the number of bits is not in the configuration, and the shapes fit several";
  if (fitting.empty()) {
    return "codes and zero points of such shapes" +
           (bits_asked ? " with " + std::to_string(*bits_asked) + " bits" : std::string());
  }
  plan = fitting.front();
  const auto asked = settings.get<std::int64_t>("group_size");
  plan.group = asked && *asked > 0                 ? static_cast<std::uint64_t>(*asked)
               : asked                             ? plan.columns
               : plan.columns % shapes.groups == 0 ? plan.columns / shapes.groups
                                                   : 0;
  const bool given = shapes.columns.has_value();  // the group of each column
  if (given && (plan.group == 0 || divided_up(plan.columns, plan.group) != shapes.groups)) {
    plan.group = divided_up(plan.columns, shapes.groups);
  } else if (plan.group == 0 || divided_up(plan.columns, plan.group) != shapes.groups) {
    return "scales of " + std::to_string(shapes.groups) + " groups" +
           (asked ? ", which are not those of the configuration" : "");
  }
  return {};
}

/// Determines the form of the zero points from a symmetric model, in which every zero point is the middle of the codes.
/// Returns the problem, or an empty string.
std::string set_zeros_by(std::optional<unsigned> stored, WordPlan& plan) {
  const unsigned middle = 1U << (plan.bits - 1);
  std::optional<Zeros> shown;
  if (stored == middle) shown = Zeros::same;
  if (stored == middle - 1) shown = Zeros::less_one;
  if (plan.zeros == Zeros::open) {
    if (!shown) return "whether zero points are stored less one (checkpoint_format) is not in the configuration";
    plan.zeros = *shown;
  } else if (shown && *shown != plan.zeros) {
    return "the stored zero points are " + std::to_string(*stored) + ", but those of a symmetric model are stored as " +
           std::to_string(plan.zeros == Zeros::same ? middle : middle - 1) +
           " in the format of the configuration; checkpoint_format there may be wrong";
  }
  return {};
}

}  // namespace

Status Recogniser::words(const std::string& stem) {
  const auto is_awq = [](const LayerSettings& s) { return s.get<std::string>("quant_method").value_or("") == "awq"; };
  const auto all = configuration_.of(stem);
  const bool awq = std::any_of(all.begin(), all.end(), is_awq);
  const Made c = begin(stem, ".weight", awq ? "awq" : "gptq", {".qweight", ".scales", ".qzeros", ".g_idx?"}, true);
  if (c == nullptr) return {};
  const auto shape = leaf(c->codes).shape();
  const LeafView scales = leaf(part(*c, ".scales")), zeros = leaf(part(*c, ".qzeros"));
  if (!is_word(leaf(c->codes).dtype()) || !is_word(zeros.dtype()) || !is_float(scales)) {
    return add(stem, c, "dtypes other than i32 and floats");
  }
  if (shape.size() != 2 || scales.shape().size() != 2 || zeros.shape().size() != 2 ||
      zeros.shape()[0] != scales.shape()[0]) {
    return add(stem, c, "parts that are not matrices of as many groups");
  }
  const std::uint64_t groups = scales.shape()[0], rows = scales.shape()[1];
  if (groups == 0 || rows == 0 || shape[0] == 0 || shape[1] == 0 || shape[0] > UINT32_MAX || rows > UINT32_MAX)
    return {};
  WordShapes shapes{shape[0], shape[1], groups, rows, zeros.shape()[1], std::nullopt};
  if (const std::uint32_t list = part(*c, ".g_idx"); list != no_index) shapes.columns = leaf(list).size();
  std::string why;
  auto plan = only_plan<WordPlan>(stem, why, [&](const LayerSettings& settings, WordPlan& made) {
    std::string wrong = is_awq(settings) ? awq_problem(settings) : "";
    if (wrong.empty()) wrong = set_sizes(settings, shapes, made);
    if (wrong.empty()) wrong = set_format(settings, made);
    made.symmetric = settings.get<bool>("sym").value_or(false);
    return wrong;
  });
  if (!plan) return note(stem, *c, why), Status();
  if (plan->planes && (plan->columns % 32 != 0 || rows % 32 != 0))
    return add(stem, c, "an extent that is no multiple of 32");
  if (!plan->awq && !plan->planes) {
    if (plan->zeros == Zeros::open || plan->symmetric) {
      STELE_TRY_ASSIGN(const auto stored, stored_zero(part(*c, ".qzeros"), plan->bits, rows));
      why = set_zeros_by(stored, *plan);
      if (!why.empty()) return note(stem, *c, why), Status();
    }
  }
  c->bits = plan->bits;
  c->layout = plan->planes ? CodeLayout::planes : CodeLayout::dense;
  const std::array<Extent, 2> extents = {rows, plan->columns};
  set_shape(*c, extents);
  c->scheme = plan->awq ? "awq" : "gptq";
  c->packing = plan->awq ? Packing::interleaved : Packing::column_words;
  c->table = integer_table(c->bits, false);
  c->group = plan->group;
  c->scales.leaf = part(*c, ".scales");
  c->scales.rows = rows;
  c->scales.columns = groups;
  c->scales.transposed = true;
  c->zeros = c->scales;
  c->zeros.leaf = part(*c, ".qzeros");
  c->zeros.bits = c->bits;
  c->zeros.packing = plan->awq ? Packing::interleaved : Packing::row_words;
  c->zeros.layout = c->layout;
  c->zeros.less_one = plan->zeros == Zeros::less_one;
  why = set_group_of(*c, part(*c, ".g_idx"));
  if (why.empty()) why = set_orientation(stem, *c);
  return add(stem, c, why);
}

}  // namespace stele::inline v0::detail::composites
