// The numbers and names of GGUF's types.
#include "types.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace stele::inline v0::detail::gguf {
namespace {

// enum ggml_type; block types are 64 + the number.
constexpr std::array<std::pair<std::uint32_t, DType>, 8> plain = {{{0, DType::f32},
                                                                   {1, DType::f16},
                                                                   {24, DType::i8},
                                                                   {25, DType::i16},
                                                                   {26, DType::i32},
                                                                   {27, DType::i64},
                                                                   {28, DType::f64},
                                                                   {30, DType::bf16}}};
constexpr std::uint32_t block_base = 64;

// enum llama_ftype. If several file types of one dtype differ in their mixture, the writer uses the first one here.
constexpr std::array<std::pair<std::uint32_t, DType>, 35> file_types = {
    {{0, DType::f32},    {1, DType::f16},      {2, DType::q4_0},    {3, DType::q4_1},   {7, DType::q8_0},
     {8, DType::q5_0},   {9, DType::q5_1},     {10, DType::q2_k},   {12, DType::q3_k},  {11, DType::q3_k},
     {13, DType::q3_k},  {15, DType::q4_k},    {14, DType::q4_k},   {17, DType::q5_k},  {16, DType::q5_k},
     {18, DType::q6_k},  {19, DType::iq2_xxs}, {20, DType::iq2_xs}, {21, DType::q2_k},  {23, DType::iq3_xxs},
     {24, DType::iq1_s}, {25, DType::iq4_nl},  {26, DType::iq3_s},  {27, DType::iq3_s}, {22, DType::iq3_s},
     {28, DType::iq2_s}, {29, DType::iq2_s},   {30, DType::iq4_xs}, {31, DType::iq1_m}, {32, DType::bf16},
     {36, DType::tq1_0}, {37, DType::tq2_0},   {38, DType::mxfp4},  {39, DType::nvfp4}, {40, DType::q1_0}}};

constexpr std::array<std::pair<std::string_view, std::size_t>, type_count> types = {{{"u8", 1},
                                                                                     {"i8", 1},
                                                                                     {"u16", 2},
                                                                                     {"i16", 2},
                                                                                     {"u32", 4},
                                                                                     {"i32", 4},
                                                                                     {"f32", 4},
                                                                                     {"bool", 1},
                                                                                     {"string", 0},
                                                                                     {"array", 0},
                                                                                     {"u64", 8},
                                                                                     {"i64", 8},
                                                                                     {"f64", 8}}};

}  // namespace

DType dtype_of(std::uint32_t ggml_type) noexcept {
  const auto found = std::find_if(plain.begin(), plain.end(), [&](const auto& p) { return p.first == ggml_type; });
  if (found != plain.end()) return found->second;
  if (ggml_type > 0xff) return DType::none;
  const auto block = static_cast<DType>(block_base + ggml_type);
  return is_block(block) ? block : DType::none;
}

std::uint32_t type_of(DType dtype) noexcept {
  if (is_block(dtype)) return static_cast<std::uint32_t>(dtype) - block_base;
  const auto found = std::find_if(plain.begin(), plain.end(), [&](const auto& p) { return p.second == dtype; });
  return found != plain.end() ? found->first : no_type;
}

std::size_t size_of(Type type) noexcept { return types[static_cast<std::size_t>(type)].second; }
std::string_view type_name(Type type) noexcept { return types[static_cast<std::size_t>(type)].first; }

std::uint32_t file_type_of(DType dtype) noexcept {
  const auto found =
      std::find_if(file_types.begin(), file_types.end(), [&](const auto& p) { return p.second == dtype; });
  return found != file_types.end() ? found->first : no_type;
}

DType dtype_of_file_type(std::uint64_t file_type) noexcept {
  const std::uint64_t known = file_type & ~std::uint64_t{1024};  // bit 1024 marks a guessed type
  const auto found =
      std::find_if(file_types.begin(), file_types.end(), [&](const auto& p) { return p.first == known; });
  return found != file_types.end() ? found->second : DType::none;
}

}  // namespace stele::inline v0::detail::gguf
