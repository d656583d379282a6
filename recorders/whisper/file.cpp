// Reads models of whisper.cpp: header, vocabulary, tensors.
#include "file.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "encodings/gguf/file.hpp"
#include "encodings/gguf/pairs.hpp"
#include "encodings/gguf/types.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::ggml {
namespace {

constexpr std::uint32_t ggml_magic = 0x67676d6c, ggmf_magic = 0x67676d66, ggjt_magic = 0x67676a74,
                        ggla_magic = 0x67676c61;
constexpr std::size_t words = 18;  // read to identify a file: magic, 15 numbers of a Parakeet model, 2 extents
constexpr std::size_t mels = 9, file_type = 10;
constexpr std::int32_t version_factor = 1000;  // GGML_QNT_VERSION_FACTOR

/// Returns the number of a word.
std::int32_t number(const std::byte* head, std::size_t word) { return load_le<std::int32_t>(head + 4 * word); }

/// Returns the name of the model in a file with ggml's magic number that is not Whisper's.
std::string_view other_model(std::string_view head) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(head.data());
  const auto is = [&](std::size_t first, std::size_t second) {
    return head.size() >= 4 * (std::max(first, second) + 1) && number(bytes, first) > 0 &&
           number(bytes, first) == number(bytes, second);
  };
  if (head.substr(std::min<std::size_t>(head.size(), 8)).starts_with("silero")) return "a model of Silero VAD";
  if (is(6, 16)) return "a model of Parakeet";  // mel filters follow fifteen numbers
  if (is(1, 7)) return "a model of GPT-2";      // the number of tokens is stored twice
  if (is(1, 8)) return "a model of GPT-J";
  return "another model";
}

/// Appends a character of GPT-2's alphabet: printable bytes of Latin-1 are themselves, all other bytes are the
/// characters from U+0100 on, in order.
void append_character(std::string& text, std::uint8_t byte) {
  static const std::array<std::uint16_t, 256> alphabet = [] {
    std::array<std::uint16_t, 256> all{};
    std::uint16_t next = 256;
    for (std::uint16_t b = 0; b < 256; ++b) {
      const bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
      all[b] = printable ? b : next++;
    }
    return all;
  }();
  const std::uint16_t c = alphabet[byte];
  if (c < 0x80) {
    text += static_cast<char>(c);
  } else {
    text += static_cast<char>(0xc0 | c >> 6);
    text += static_cast<char>(0x80 | (c & 0x3f));
  }
}

Error negative(const char* what, std::int32_t found, std::uint64_t at) {
  return Error(Errc::malformed, what).expected("at least 0").found(std::to_string(found)).offset(at);
}

}  // namespace

bool is_legacy(std::string_view head) noexcept {
  if (head.size() < 4) return false;
  const auto magic = load_le<std::uint32_t>(reinterpret_cast<const std::byte*>(head.data()));
  return magic == ggml_magic || magic == ggmf_magic || magic == ggjt_magic || magic == ggla_magic;
}

Status WhisperFile::identify(Header& header) {
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(in_.left(), 4 * words));
  if (size < 4) return Error(Errc::truncated, "the file is too short for ggml's magic number").expected("4 bytes");
  STELE_TRY_ASSIGN(const std::byte* const bytes, in_.peek(size));
  const std::string_view head(reinterpret_cast<const char*>(bytes), size);
  if (!is_legacy(head)) {
    return Error(Errc::bad_magic, "the file does not begin with ggml's magic number").expected("lmgg").offset(0);
  }
  const auto magic = load_le<std::uint32_t>(bytes);
  if (magic != ggml_magic) {
    return Error(Errc::unsupported, "the file belongs to a version of llama.cpp before GGUF")
        .expected("a model of whisper.cpp, or GGUF")
        .found(magic == ggla_magic   ? "a LoRA adapter (ggla)"
               : magic == ggjt_magic ? "a language model (ggjt)"
                                     : "a language model (ggmf)")
        .hint("convert it with convert_llama_ggml_to_gguf.py of llama.cpp")
        .offset(0);
  }
  // The number of mel bands is stored twice, among the numbers and before the filters.
  constexpr std::size_t first_filter_word = 1 + hparam_names.size();
  bool whisper = size >= 4 * (first_filter_word + 1) && number(bytes, 1 + mels) == number(bytes, first_filter_word);
  for (std::size_t i = 0; whisper && i < header.hparams.size(); ++i) {
    header.hparams[i] = number(bytes, 1 + i);
    whisper = header.hparams[i] > 0 || (i == file_type && header.hparams[i] == 0);
  }
  if (!whisper) {
    return Error(Errc::unsupported, "the file is not a Whisper model")
        .expected("a model of whisper.cpp")
        .found(std::string(other_model(head)) + " of ggml before GGUF")
        .offset(0);
  }
  block_version_ = header.hparams[file_type] / version_factor;
  return in_.skip(4 * first_filter_word);
}

Status WhisperFile::filters(Header& header) {
  for (Extent& extent : header.filters) {
    STELE_TRY_ASSIGN(const auto n, in_.little<std::int32_t>());
    if (n < 0) return negative("an extent of the mel filters is negative", n, in_.position() - 4);
    extent = static_cast<Extent>(n);
  }
  header.filters_at = in_.position();
  // Two extents below 2^31 have a product below 2^62.
  if (header.filters[0] * header.filters[1] > in_.left() / 4) {
    return Error(Errc::truncated, "the file ends before the mel filters do")
        .expected(std::to_string(header.filters[0] * header.filters[1] * 4) + " bytes")
        .found(std::to_string(in_.left()))
        .offset(in_.position());
  }
  return in_.skip(4 * header.filters[0] * header.filters[1]);
}

Status WhisperFile::vocabulary(Header& header) {
  STELE_TRY_ASSIGN(const auto count, in_.little<std::int32_t>());
  if (count < 0) return negative("the number of tokens is negative", count, in_.position() - 4);
  if (static_cast<std::uint64_t>(count) > in_.left() / 4) {
    return Error(Errc::truncated, "the file is too short for its vocabulary")
        .expected(std::to_string(count) + " tokens")
        .found(std::to_string(in_.left()) + " bytes")
        .offset(in_.position() - 4);
  }
  std::string bytes;
  for (std::int32_t i = 0; i < count; ++i) {
    STELE_TRY_ASSIGN(const auto length, in_.little<std::uint32_t>());
    STELE_TRY(in_.text(length, bytes));
    memory_.admit(4 + std::uint64_t{length}, index_rate::index);
    // The growing list needs three times its content; a character has at most two bytes.
    if (!memory_.take(3 * sizeof(Value) + 32 + 2 * std::uint64_t{length})) {
      return index_error("the vocabulary needs more memory than the file's size allows");
    }
    std::string token;
    for (const char c : bytes) append_character(token, static_cast<std::uint8_t>(c));
    header.tokens.emplace_back(std::move(token));
  }
  return {};
}

Result<Header> WhisperFile::head() {
  Header header;
  STELE_TRY(identify(header));
  STELE_TRY(filters(header));
  STELE_TRY(vocabulary(header));
  return header;
}

Result<Tensor> WhisperFile::next() {
  const std::uint64_t begin = in_.position();
  Tensor tensor;
  STELE_TRY_ASSIGN(const auto rank, in_.little<std::int32_t>());
  STELE_TRY_ASSIGN(const auto length, in_.little<std::int32_t>());
  STELE_TRY_ASSIGN(const auto type, in_.little<std::uint32_t>());
  if (rank < 0 || rank > static_cast<std::int32_t>(max_rank)) {
    return Error(Errc::malformed, "a tensor has too many dimensions")
        .expected("0 to 4")
        .found(std::to_string(rank))
        .offset(begin);
  }
  tensor.rank = static_cast<std::size_t>(rank);
  ElementCounter counter;
  for (std::size_t i = tensor.rank; i-- > 0;) {
    STELE_TRY_ASSIGN(const auto n, in_.little<std::int32_t>());
    if (n < 0) return negative("a tensor's extent is negative", n, in_.position() - 4);
    tensor.extents[i] = static_cast<Extent>(n);
    counter.add(tensor.extents[i]);
  }
  if (length < 0) return negative("the length of a tensor's name is negative", length, begin + 4);
  STELE_TRY(in_.text(static_cast<std::uint32_t>(length), tensor.name));
  memory_.admit(in_.position() - begin, index_rate::index);
  if (const char* const why = gguf::bad_name(tensor.name)) {
    return Error(Errc::malformed, "a tensor's name is invalid")
        .expected("UTF-8 without a zero byte")
        .found(why)
        .offset(begin);
  }
  tensor.offset = in_.position();
  tensor.dtype = gguf::dtype_of(type);
  if (tensor.dtype == DType::none) tensor.unreadable = gguf::unknown_type(type);
  // Earlier versions of the blocks have other sizes under the same numbers.
  if (is_block(tensor.dtype) && block_version_ != static_cast<std::int32_t>(gguf::quantization_version)) {
    tensor.unreadable = "blocks of ggml's version " + std::to_string(block_version_);
  }
  if (!tensor.unreadable.empty()) {
    tensor.unreadable += ", and all tensors after it";
    tensor.dtype = DType::none;
    tensor.bytes = in_.left();
    STELE_TRY(in_.skip(in_.left()));
    return tensor;
  }
  const auto bad = [&](Errc code, const char* what) { return Error(code, what).path(tensor.name).offset(begin); };
  const std::span<const Extent> shape(tensor.extents, tensor.rank);
  if (const std::uint64_t row = block_size(tensor.dtype).elements; row != 0) {
    const Extent last = tensor.rank != 0 ? shape.back() : 1;
    if (last % row != 0) {
      return bad(Errc::malformed, "the tensor's rows are not whole blocks")
          .expected("a multiple of " + std::to_string(row) + " for " + std::string(v0::name(tensor.dtype)))
          .found(to_string(shape));
    }
  }
  const auto count = counter.count();
  const auto bytes = count ? byte_length(tensor.dtype, *count) : std::nullopt;
  if (!bytes) return bad(Errc::malformed, "the tensor's size overflows 64 bits").found(to_string(shape));
  if (*bytes > in_.left()) {
    return bad(Errc::truncated, "the file ends before the tensor does")
        .expected(std::to_string(*bytes) + " bytes")
        .found(std::to_string(in_.left()));
  }
  tensor.bytes = *bytes;
  STELE_TRY(in_.skip(*bytes));
  return tensor;
}

}  // namespace stele::inline v0::detail::ggml
