// Parses the text of .param files.
#include "param.hpp"

#include <algorithm>
#include <charconv>
#include <string>

namespace stele::inline v0::detail::ncnn {
namespace {

constexpr std::string_view white = " \t\r\n\v\f";
/// An old array's id is this number minus the attribute's id.
constexpr std::int32_t array_base = -23300;

bool parse(std::string_view text, std::int32_t& number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

Error bad(const char* what, std::size_t at) { return Error(Errc::malformed, what).offset(at); }

}  // namespace

bool is_param(std::string_view head) noexcept {
  const std::size_t begin = std::min(head.find_first_not_of(white), head.size());
  head.remove_prefix(begin);
  return head.starts_with(magic) && head.size() > magic.size() && white.find(head[magic.size()]) != white.npos;
}

bool is_binary_param(std::string_view head) noexcept { return head.starts_with(std::string_view("\xdd\x85\x76\0", 4)); }

void ParamReader::skip_space() { at_ = std::min(text_.find_first_not_of(white, at_), text_.size()); }

std::string_view ParamReader::peek() {
  skip_space();
  return text_.substr(at_, std::min(text_.find_first_of(white, at_), text_.size()) - at_);
}

Result<std::string_view> ParamReader::word(const char* what) {
  const std::string_view text = peek();
  word_ = at_;
  if (text.empty()) return Error(Errc::truncated, "the text of the layers ends early").expected(what).offset(at_);
  if (text.size() > max_word_bytes) {
    return bad("a word is too long", at_)
        .expected(std::string(what) + " of at most " + std::to_string(max_word_bytes) + " bytes")
        .found(std::to_string(text.size()) + " bytes");
  }
  at_ += text.size();
  return text;
}

Result<std::uint32_t> ParamReader::count(const char* what) {
  STELE_TRY_ASSIGN(const std::string_view text, word(what));
  std::int32_t number = 0;
  if (!parse(text, number) || number < 0) {
    return bad("a word is not a count", word_).expected(what).found(std::string(text));
  }
  return static_cast<std::uint32_t>(number);
}

Status ParamReader::head() {
  if (!is_param(text_)) {
    return Error(Errc::bad_magic, "the file does not begin with ncnn's magic number").expected(magic).offset(0);
  }
  at_ = text_.find_first_not_of(white) + magic.size();
  STELE_TRY_ASSIGN(layers_, count("the number of layers"));
  STELE_TRY_ASSIGN(const std::uint32_t blobs, count("the number of blobs"));
  // The shortest layer has 8 bytes: "A b 0 0\n".
  constexpr std::size_t min_layer = 7;
  if (layers_ == 0 || blobs == 0 || layers_ > (text_.size() - at_) / min_layer) {
    return bad("the numbers of layers and blobs do not fit the file", word_)
        .expected("1 to " + std::to_string((text_.size() - at_) / min_layer) + " layers, at least one blob")
        .found(std::to_string(layers_) + " layers, " + std::to_string(blobs) + " blobs");
  }
  return {};
}

Status ParamReader::attribute(Layer& layer, std::string_view key, std::string_view value) {
  std::int32_t id = 0;
  if (!parse(key, id)) {
    return Error(Errc::unsupported, "an attribute has a name instead of a number, as in graphs of pnnx")
        .path(layer.name)
        .expected("a number from 0 to 31")
        .found(std::string(key.substr(0, max_word_bytes)))
        .offset(word_)
        .hint("open the file .ncnn.param that pnnx writes beside it");
  }
  const bool array = id <= array_base;
  if (array) id = array_base - id;
  if (id < 0 || id > static_cast<std::int32_t>(max_id)) {
    return bad("an attribute's number is out of range", word_)
        .path(layer.name)
        .expected("0 to 31")
        .found(std::string(key));
  }
  const std::uint32_t bit = std::uint32_t{1} << id;
  layer.given |= bit;
  layer.others &= ~bit;
  std::int32_t& number = layer.integers[static_cast<std::size_t>(id)];
  if (array || !parse(value, number)) layer.others |= bit;
  return {};
}

Status ParamReader::next(Layer& layer) {
  layer = {};
  STELE_TRY_ASSIGN(layer.type, word("a layer's type"));
  STELE_TRY_ASSIGN(layer.name, word("a layer's name"));
  STELE_TRY_ASSIGN(const std::uint32_t inputs, count("a number of inputs"));
  STELE_TRY_ASSIGN(const std::uint32_t outputs, count("a number of outputs"));
  for (std::uint64_t i = 0; i < std::uint64_t{inputs} + outputs; ++i) {
    STELE_TRY(word("the name of an input or output"));
  }
  for (;;) {
    const std::string_view text = peek();
    const std::size_t equals = text.find('=');
    if (equals == text.npos) return {};
    // Types have no equals sign, so this word is not the next layer's.
    word_ = at_;
    at_ += text.size();
    const std::string_view value = text.substr(equals + 1);
    if (value.starts_with('"')) {  // text, which may contain white space
      const std::size_t end = text_.find_first_of("\"\n", word_ + equals + 2);
      at_ = std::max(at_, std::min(end, text_.size()));
      if (at_ < text_.size() && text_[at_] == '"') ++at_;
    }
    STELE_TRY(attribute(layer, text.substr(0, equals), value));
  }
}

Status ParamReader::finish() {
  skip_space();
  if (at_ == text_.size()) return {};
  return bad("text follows the last layer", at_).expected(std::to_string(layers_) + " layers");
}

}  // namespace stele::inline v0::detail::ncnn
