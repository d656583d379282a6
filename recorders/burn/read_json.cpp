// Reads JSON. Opening reads the document in one pass and keeps its skeleton (the document without the bytes of its
// tensors) and the offsets of those bytes.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "io/cursor.hpp"
#include "json/json.hpp"
#include "stele/bytes.hpp"
#include "tokens.hpp"

namespace stele::inline v0::detail::burn {
namespace {

/// Number of tensor bytes between two marks in the text.
constexpr std::size_t mark_step = std::size_t{64} << 10;
constexpr std::size_t text_piece = std::size_t{256} << 10;

/// Locates the bytes of a tensor in the text.
struct NumberList {
  std::uint64_t at = 0;    // offset of the first number, or after the bracket if there is none
  std::uint64_t size = 0;  // length of the text up to and including the bracket
  std::uint64_t count = 0;
  std::size_t bracket = 0;  // position of the opening bracket in the skeleton
  std::size_t marks = 0;    // index of the first mark
  std::uint64_t ahead = 0;  // offset in the file minus position in the skeleton, after these numbers
};

struct Document {
  SourcePtr source;
  std::string skeleton{};  // has [] in place of numbers
  std::vector<NumberList> numbers{};
  std::vector<std::uint64_t> marks{};  // offsets of the numbers i * mark_step of each tensor, for i from 1

  std::uint64_t in_file(std::uint64_t place) const {
    const auto next = std::partition_point(numbers.begin(), numbers.end(),
                                           [place](const NumberList& n) { return n.bracket < place; });
    return next == numbers.begin() ? place : place + std::prev(next)->ahead;
  }
  Error error(Errc code, const char* text, std::uint64_t offset) const {
    return Error(code, text).file(source->name()).offset(offset);
  }
  /// Reads `n` characters from `at` on.
  Result<const char*> read(std::uint64_t at, std::size_t n, std::byte* to) const {
    STELE_TRY(source->read_at(at, {to, n}));
    return reinterpret_cast<const char*>(to);
  }
};

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Parses the numbers between an opening and a closing bracket, from pieces of text.
class NumberReader {
 public:
  bool ended() const noexcept { return state_ == State::end; }
  bool wrong() const noexcept { return state_ == State::wrong; }

  /// Stops at the end of the text, at the first digit of a number that does not fit before `limit`, after the closing
  /// bracket, or at an invalid character.
  const char* read(const char* p, const char* end, std::byte*& out, const std::byte* limit) noexcept {
    for (; p != end; ++p) {
      if (state_ <= State::due) p = read_plain(p, end, out, limit);
      if (is_blank(*p) && state_ != State::digits) continue;
      switch (state_) {
        case State::first:
        case State::due:
          if (*p == ']' && state_ == State::first) return stop(State::end, p + 1);
          if (!is_digit(*p)) return stop(State::wrong, p);
          if (out == limit) return p;
          number_ = static_cast<unsigned>(*p - '0');
          state_ = State::digits;
          continue;
        case State::digits:
          if (is_digit(*p)) {
            const bool zero = number_ == 0;
            number_ = number_ * 10 + static_cast<unsigned>(*p - '0');
            if (zero || number_ > 255) return stop(State::wrong, p);
            continue;
          }
          *out++ = static_cast<std::byte>(number_);
          state_ = State::after_number;
          if (is_blank(*p)) continue;
          [[fallthrough]];
        case State::after_number:
          if (*p == ']') return stop(State::end, p + 1);
          if (*p != ',') return stop(State::wrong, p);
          state_ = State::due;
          continue;
        case State::end:
        case State::wrong:
          return p;
      }
    }
    return p;
  }

 private:
  enum class State : std::uint8_t { first, due, digits, after_number, end, wrong };
  const char* stop(State state, const char* p) noexcept { return state_ = state, p; }

  /// Reads numbers followed by a comma, as serde_json writes them: preceded by nothing, or by a line feed and blanks.
  /// Leaves the end of the text and any invalid text to read().
  const char* read_plain(const char* p, const char* end, std::byte*& out, const std::byte* limit) noexcept {
    if (std::endian::native != std::endian::little) return p;
    constexpr std::uint64_t blanks = 0x2020202020202020U;
    std::byte* to = out;
    for (; to != limit && end - p > 24; ++to) {
      const char* from = p;
      if (*from == '\n') {
        std::uint64_t eight;
        for (++from; std::memcpy(&eight, from, 8), eight == blanks && end - from > 24;) from += 8;
        from += std::countr_zero((eight ^ blanks) | std::uint64_t{1} << 63) >> 3;
      }
      // The mark of the lowest byte that is not a digit is correct; carries make false marks only above that byte.
      std::uint32_t four;
      std::memcpy(&four, from, 4);
      const std::uint32_t digits = four - 0x30303030U;
      const int n = std::countr_zero(((four + 0x46464646U) | digits) & 0x80808080U) >> 3;
      if (n == 0 || n > 3 || from[n] != ',') break;
      const std::uint32_t last = digits << (32 - 8 * n);
      const std::uint32_t number = (last >> 8 & 0xff) * 100 + (last >> 16 & 0xff) * 10 + (last >> 24);
      if (number > 255 || (n > 1 && *from == '0')) break;
      *to = static_cast<std::byte>(number);
      p = from + n + 1;
    }
    if (to != out) state_ = State::due;
    out = to;
    return p;
  }

  State state_ = State::first;
  unsigned number_ = 0;
};

Error not_numbers(const Document& in, std::uint64_t offset) {
  return in.error(Errc::malformed, "the bytes of the tensor are not a list of bytes", offset)
      .expected("whole numbers from 0 to 255, and commas");
}

/// Builds a document from its source.
class DocumentReader {
 public:
  DocumentReader(Document& document, std::uint64_t memory) : out_(document), memory_(memory), bytes_(mark_step) {}

  Status run() {
    Bytes piece(static_cast<std::size_t>(std::min<std::uint64_t>(out_.source->size(), text_piece)));
    for (;;) {
      STELE_TRY_ASSIGN(const std::size_t n, read_some(*out_.source, at_, piece.span()));
      if (n == 0) break;
      const char* const text = reinterpret_cast<const char*>(piece.data());
      for (const char* p = text; p != text + n;) {
        STELE_TRY_ASSIGN(p, in_numbers_ ? numbers(text, p, text + n) : structure(text, p, text + n));
        // A growing vector temporarily needs three times its content.
        const std::uint64_t used =
            out_.skeleton.size() + sizeof(NumberList) * out_.numbers.size() + 8 * out_.marks.size();
        if (used > memory_ / 3)
          return out_.error(Errc::limit, "the structure of the document takes too much memory", at_);
      }
      at_ += n;
    }
    if (in_numbers_)
      return out_.error(Errc::truncated, "the file ends inside the bytes of a tensor", at_).expected("]");
    out_.skeleton.shrink_to_fit();
    return {};
  }

 private:
  enum class Due : std::uint8_t { nothing, colon, bracket, number };
  std::uint64_t place(const char* text, const char* p) const { return at_ + static_cast<std::uint64_t>(p - text); }

  /// Copies the text up to the first number after "bytes": [.
  Result<const char*> structure(const char* text, const char* p, const char* end) {
    static constexpr std::string_view key = "bytes";
    const char* const run = p;
    for (; p != end; ++p) {
      const char c = *p;
      if (quoted_) {
        const bool closes = c == '"' && !escaped_;
        if (closes) due_ = matched_ == key.size() ? Due::colon : Due::nothing;
        quoted_ = !closes;
        escaped_ = c == '\\' && !escaped_;
        matched_ = matched_ < key.size() && c == key[matched_] ? matched_ + 1 : key.size() + 1;
      } else if (c == '"') {
        quoted_ = true;
        matched_ = 0;
      } else if (due_ == Due::number && (is_digit(c) || c == ']')) {
        break;
      } else if (!is_blank(c)) {
        due_ = due_ == Due::colon && c == ':'     ? Due::bracket
               : due_ == Due::bracket && c == '[' ? Due::number
                                                  : Due::nothing;
        bracket_ = out_.skeleton.size() + static_cast<std::size_t>(p - run);
      }
    }
    out_.skeleton.append(run, p);
    if (p == end) return p;
    out_.skeleton.resize(bracket_ + 1);  // removes blanks
    out_.numbers.push_back({.at = place(text, p), .bracket = bracket_, .marks = out_.marks.size()});
    due_ = Due::nothing;
    in_numbers_ = true;
    reader_ = {};
    to_ = bytes_.data();
    return p;
  }

  /// Skips numbers.
  Result<const char*> numbers(const char* text, const char* p, const char* end) {
    NumberList& now = out_.numbers.back();
    p = reader_.read(p, end, to_, bytes_.data() + mark_step);
    if (reader_.wrong()) return not_numbers(out_, place(text, p));
    if (!reader_.ended() && p == end) return p;
    now.count += static_cast<std::uint64_t>(to_ - bytes_.data());
    to_ = bytes_.data();
    if (!reader_.ended()) {
      out_.marks.push_back(place(text, p));
      return p;
    }
    out_.skeleton += ']';
    now.size = place(text, p) - now.at;
    now.ahead = place(text, p) - out_.skeleton.size();
    in_numbers_ = false;
    return p;
  }

  Document& out_;
  std::uint64_t memory_;
  std::uint64_t at_ = 0;
  Bytes bytes_;  // scratch for decoded numbers that are skipped
  std::byte* to_ = nullptr;
  NumberReader reader_;
  bool in_numbers_ = false, quoted_ = false, escaped_ = false;
  Due due_ = Due::nothing;
  std::size_t matched_ = 0, bracket_ = 0;
};

// ---- leaves

/// Reads the numbers of a tensor forward from one of its marks.
class NumberCursor {
 public:
  NumberCursor(const Document& in, std::uint64_t number, std::uint64_t mark, ReadContext& context)
      : in_(in), numbers_(in.numbers[static_cast<std::size_t>(number)]), piece_(context) {
    at_ = mark == 0 ? numbers_.at : in.marks[numbers_.marks + static_cast<std::size_t>(mark) - 1];
  }

  /// Reads the next bytes. `last`: the tensor must end after them.
  Status fill(std::span<std::byte> out, bool last) {
    const std::uint64_t end_of_numbers = numbers_.at + numbers_.size;
    std::byte* to = out.data();
    const std::byte* const limit = to + out.size();
    for (;;) {
      p_ = reader_.read(p_, end_, to, limit);
      if (to == limit && (!last || reader_.ended())) return {};
      if (p_ != end_ || reader_.ended() || at_ == end_of_numbers) {
        return in_.error(Errc::malformed, "the file has changed since it was opened", at_);
      }
      // Estimate the length of the text, so that a small part of a large tensor needs a small read.
      const std::uint64_t estimate = last ? text_piece : (numbers_.size / numbers_.count + 1) * (out.size() + 16);
      const auto n =
          static_cast<std::size_t>(std::min({estimate, end_of_numbers - at_, std::uint64_t{ReadContext::piece_size}}));
      STELE_TRY_ASSIGN(p_, in_.read(at_, n, piece_.data()));
      end_ = p_ + n;
      at_ += n;
    }
  }

 private:
  const Document& in_;
  const NumberList& numbers_;
  ReadContext::Piece piece_;
  NumberReader reader_;
  std::uint64_t at_ = 0;  // offset after the last text read
  const char* p_ = nullptr;
  const char* end_ = nullptr;
};

Status read_numbers(const void* at, std::uint64_t number, std::uint64_t offset, std::span<std::byte> out,
                    ReadContext& context) {
  if (out.empty()) return {};
  NumberCursor cursor(*static_cast<const Document*>(at), number, offset / mark_step, context);
  ReadContext::Piece skipped(context);
  STELE_TRY(cursor.fill({skipped.data(), static_cast<std::size_t>(offset % mark_step)}, false));
  return cursor.fill(out, false);
}

Status stream_numbers(const void* at, std::uint64_t number, std::uint64_t size, PieceSink& sink, ReadContext& context) {
  NumberCursor cursor(*static_cast<const Document*>(at), number, 0, context);
  ReadContext::Piece staging(context);
  for (std::uint64_t done = 0; done < size;) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(size - done, ReadContext::piece_size));
    std::byte* const place = sink.place(done, n);
    const std::span<std::byte> piece(place != nullptr ? place : staging.data(), n);
    done += n;
    STELE_TRY(cursor.fill(piece, done == size));
    STELE_TRY(sink.piece(piece));
  }
  return {};
}

constexpr LeafOps number_ops{.read = read_numbers, .stream = stream_numbers, .encoding = "text"};

// ---- tokens

class JsonReader final : public TokenReader {
 public:
  explicit JsonReader(std::shared_ptr<const Document> document)
      : document_(std::move(document)), reader_(document_->skeleton, {.max_depth = max_depth + 1}) {}

  std::unique_ptr<TokenReader> clone() const override { return std::make_unique<JsonReader>(*this); }
  std::shared_ptr<const void> keeper() const override { return document_; }
  Provider provider(const Token& bytes) const override { return {&number_ops, document_.get(), bytes.at}; }

  Status next(Token& token) override {
    token = {};
    STELE_TRY(read(token));
    if (!reader_.ok()) {
      Error error = reader_.error();
      const std::uint64_t offset = document_->in_file(error.offset().value_or(0));
      return std::move(error).file(document_->source->name()).offset(offset);
    }
    token.offset = document_->in_file(reader_.offset());
    if (token.text.size() > max_text)
      return document_->error(Errc::limit, "the string exceeds 64 KiB", token.offset)
          .expected("at most " + std::to_string(max_text) + " bytes")
          .found(std::to_string(token.text.size()));
    return {};
  }

 private:
  Status read(Token& token) {
    const bool due = !begun_ || after_key_;  // a value is expected
    std::string_view text;
    if (!due && depth_ != 0 && in_map()) {
      after_key_ = reader_.next_key(text, scratch_);
      if (!after_key_) return close(token);
      token.kind = Token::Kind::text;
      token.text = text;
      return {};
    }
    if (!due && (depth_ == 0 ? reader_.finish() : !reader_.next_element())) return close(token);
    if (!reader_.ok()) return {};
    begun_ = true;
    after_key_ = false;
    switch (reader_.peek()) {
      case json::Kind::object:
      case json::Kind::array:
        return open(token);
      case json::Kind::string:
        token.kind = Token::Kind::text;
        if (reader_.read_string(text, scratch_)) token.text = text;
        return {};
      case json::Kind::number:
        token.kind = Token::Kind::scalar;
        reader_.read_number(token.scalar);
        return {};
      case json::Kind::boolean: {
        bool b = false;
        token.kind = Token::Kind::scalar;
        if (reader_.read_bool(b)) token.scalar = Value(b);
        return {};
      }
      case json::Kind::null:
        reader_.read_null();
        return {};
      case json::Kind::none:
        break;
    }
    reader_.fail(Errc::malformed, "a value");
    return {};
  }

  bool in_map() const { return (maps_ >> (depth_ - 1) & 1) != 0; }
  Status close(Token& token) {
    token.kind = Token::Kind::end;
    if (depth_ != 0) --depth_;
    return {};
  }
  Status open(Token& token) {
    const std::vector<NumberList>& numbers = document_->numbers;
    while (next_ != numbers.size() && numbers[next_].bracket < reader_.offset()) ++next_;
    if (next_ != numbers.size() && numbers[next_].bracket == reader_.offset()) {
      token.kind = Token::Kind::bytes;
      token.at = next_;
      token.size = numbers[next_].count;
      reader_.skip_value();
      return {};
    }
    const bool map = reader_.peek() == json::Kind::object;
    token.kind = map ? Token::Kind::map : Token::Kind::list;
    if (depth_ == max_depth) {
      return document_->error(Errc::limit, "lists and maps are nested too deeply", document_->in_file(reader_.offset()))
          .expected("at most " + std::to_string(max_depth) + " levels");
    }
    const std::uint64_t bit = std::uint64_t{1} << depth_++;
    maps_ = map ? maps_ | bit : maps_ & ~bit;
    static_cast<void>(map ? reader_.begin_object() : reader_.begin_array());
    return {};
  }

  std::shared_ptr<const Document> document_;
  json::Reader reader_;
  std::string scratch_{};
  std::uint64_t maps_ = 0;  // one bit for each level
  unsigned depth_ = 0;
  bool begun_ = false, after_key_ = false;
  std::size_t next_ = 0;  // index of the next tensor
};
static_assert(max_depth <= 64);

}  // namespace

Result<std::unique_ptr<TokenReader>> json_reader(SourcePtr source, std::uint64_t memory) {
  const auto document = std::make_shared<Document>(Document{.source = std::move(source)});
  STELE_TRY(DocumentReader(*document, memory).run());
  return std::unique_ptr<TokenReader>(std::make_unique<JsonReader>(document));
}

}  // namespace stele::inline v0::detail::burn
