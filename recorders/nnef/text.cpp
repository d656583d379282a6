// Parses graph.nnef and graph.quant as far as parameters need them.
#include "text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/from_chars.hpp"
#include "stele/quantize.hpp"
#include "tensor.hpp"

namespace stele::inline v0::detail::nnef {
namespace {

struct Token {
  enum class Kind : std::uint8_t { end, word, number, string, symbol } kind = Kind::end;
  std::string_view text;  // without the quotes of a string
  std::size_t at = 0;
};

/// Splits a text into tokens. Comments run from # to the end of the line; strings have no escapes.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) { next(); }

  const Token& now() const noexcept { return now_; }
  bool is(char symbol) const noexcept { return now_.kind == Token::Kind::symbol && now_.text.front() == symbol; }
  bool ok() const noexcept { return ok_; }
  std::string_view from(std::size_t begin) const noexcept { return text_.substr(begin, last_end_ - begin); }

  void next() {
    last_end_ = at_;
    skip_blanks();
    now_ = {Token::Kind::end, {}, at_};
    if (at_ == text_.size()) return;
    const char c = text_[at_];
    const std::size_t begin = at_;
    if (is_letter(c)) {
      while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
      now_ = {Token::Kind::word, text_.substr(begin, at_ - begin), begin};
    } else if (is_digit(c) || (c == '-' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) {
      const auto part = [&](std::size_t i) {
        const char d = text_[i];
        const char before = text_[i - 1];
        return is_digit(d) || d == '.' || d == 'e' || d == 'E' ||
               ((d == '-' || d == '+') && (before == 'e' || before == 'E'));
      };
      do ++at_;
      while (at_ < text_.size() && part(at_));
      now_ = {Token::Kind::number, text_.substr(begin, at_ - begin), begin};
    } else if (c == '\'' || c == '"') {
      const std::size_t end = text_.find(c, begin + 1);
      if (end == std::string_view::npos) {
        ok_ = false;
        at_ = text_.size();
        return;
      }
      at_ = end + 1;
      now_ = {Token::Kind::string, text_.substr(begin + 1, end - begin - 1), begin};
    } else {
      ++at_;
      now_ = {Token::Kind::symbol, text_.substr(begin, 1), begin};
    }
  }
  bool take(char symbol) {
    if (!is(symbol)) return false;
    next();
    return true;
  }
  Error expected(const char* what) const {
    return Error(Errc::malformed, "the text is not valid NNEF")
        .offset(now_.at)
        .expected(what)
        .found(now_.kind == Token::Kind::end ? "the end" : std::string(now_.text.substr(0, 40)));
  }

 private:
  static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  void skip_blanks() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t last_end_ = 0;
  Token now_;
  bool ok_ = true;
};

/// Returns the number, or nullopt if the text is not a number.
template <class T>
std::optional<T> parsed(std::string_view text) {
  T value = 0;
  const auto [end, error] = from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Skips a value: tokens up to a comma, or to the bracket that ends the arguments.
Status skip_value(Tokens& in) {
  std::size_t depth = 0;
  for (;; in.next()) {
    if (in.now().kind == Token::Kind::end || in.is(';')) return in.expected("the end of the arguments");
    const bool opens = in.is('(') || in.is('[') || in.is('{');
    const bool closes = in.is(')') || in.is(']') || in.is('}');
    if (depth == 0 && (closes || in.is(','))) return {};
    depth = opens ? depth + 1 : closes ? depth - 1 : depth;
  }
}

/// Reads `(name = value, …)`. For each name, `visit` may read the value; values that it leaves are skipped.
template <class Visit>
Status each_argument(Tokens& in, Visit visit) {
  if (!in.take('(')) return in.expected("(");
  while (!in.take(')')) {
    const std::string_view name = in.now().text;
    if (in.now().kind != Token::Kind::word) return in.expected("the name of an argument");
    in.next();
    if (!in.take('=')) return in.expected("=");
    STELE_TRY(visit(name));
    STELE_TRY(skip_value(in));
    if (!in.is(')') && !in.take(',')) return in.expected("a comma or )");
  }
  return {};
}

Result<Variable> read_variable(Tokens& in, std::string_view id) {
  Variable variable;
  variable.id = id;
  if (in.take('<')) {
    in.next();
    if (!in.take('>')) return in.expected(">");
  }
  const std::size_t at = in.now().at;
  bool labelled = false;
  STELE_TRY(each_argument(in, [&](std::string_view name) -> Status {
    if (name == "label") {
      if (in.now().kind != Token::Kind::string) return in.expected("a string");
      variable.label = in.now().text;
      labelled = true;
      in.next();
    } else if (name == "shape" && in.is('[')) {
      Tokens ahead = in;  // a copy: if the shape is an expression, the caller skips it
      ahead.next();
      std::vector<std::uint64_t> shape;
      for (;;) {
        if (ahead.is(']') && shape.empty()) break;
        if (ahead.now().kind != Token::Kind::number) return {};
        const auto extent = parsed<std::uint64_t>(ahead.now().text);
        if (!extent) return {};
        shape.push_back(*extent);
        if (shape.size() > max_rank) return ahead.expected("at most 8 extents");
        ahead.next();
        if (ahead.is(']')) break;
        if (!ahead.take(',')) return {};
      }
      variable.shape = std::move(shape);
    }
    return {};
  }));
  if (labelled && !variable.label.empty()) return variable;
  return Error(Errc::malformed, "the variable has no label").offset(at);
}

}  // namespace

Result<GraphText> read_graph(std::string_view text) {
  Tokens in(text);
  if (in.now().text != "version") return in.expected("version 1.0;");
  in.next();
  if (in.now().kind != Token::Kind::number) return in.expected("1.0");
  if (!in.now().text.starts_with("1.")) {
    return Error(Errc::unsupported, "the NNEF version is not supported")
        .expected("1.0")
        .found(std::string(in.now().text));
  }
  GraphText graph;
  std::string_view id;    // the identifier being assigned
  std::string_view word;  // the previous token, if it is a word
  bool assigned = false;  // the previous token is =
  while (in.now().kind != Token::Kind::end) {
    const Token token = in.now();
    in.next();
    const bool called = token.kind == Token::Kind::word && (in.is('(') || in.is('<'));
    if (called && token.text == "variable") {
      STELE_TRY_ASSIGN(Variable variable, read_variable(in, id));
      graph.variables.push_back(std::move(variable));
    } else if (called && assigned && token.text != "external") {
      graph.has_operations = true;
    }
    assigned = token.kind == Token::Kind::symbol && token.text == "=";
    id = assigned ? word : std::string_view();
    word = token.kind == Token::Kind::word ? token.text : std::string_view();
  }
  if (!in.ok()) return in.expected("the end of a string");
  return graph;
}

Result<std::map<std::string_view, std::string_view>> read_quantizations(std::string_view text) {
  Tokens in(text);
  std::map<std::string_view, std::string_view> operations;
  while (in.now().kind != Token::Kind::end) {
    const std::string_view id = in.now().text;
    if (in.now().kind != Token::Kind::string) return in.expected("the name of a tensor in quotes");
    in.next();
    if (!in.take(':')) return in.expected(":");
    const std::size_t begin = in.now().at;
    if (in.now().kind != Token::Kind::word) return in.expected("an operation");
    in.next();
    STELE_TRY(each_argument(in, [](std::string_view) { return Status(); }));
    if (!operations.emplace(id, in.from(begin)).second) {
      return Error(Errc::duplicate, "the file quantizes the tensor twice").offset(begin).found(std::string(id));
    }
    if (!in.take(';')) return in.expected(";");
  }
  if (!in.ok()) return in.expected("the end of a string");
  return operations;
}

void note_operation(std::string_view operation, Annotations& notes) {
  Tokens in(operation);
  const std::string_view name = in.now().text;
  const bool linear = name == "min_max_linear_quantize" || name == "linear_quantize" || name == "quantize_linear";
  const bool zero_point = name == "zero_point_linear_quantize";
  Value::Map map{{"scheme", Value(linear ? "linear" : zero_point ? "zero_point" : "logarithmic")}};
  bool known = linear || zero_point || name == "logarithmic_quantize" || name == "quantize_logarithmic";
  in.next();
  const Status read = each_argument(in, [&](std::string_view key) -> Status {
    const Token token = in.now();
    const bool number = token.kind == Token::Kind::number;
    known = known && std::none_of(map.begin(), map.end(), [&](const auto& item) { return item.first == key; });
    if (token.kind == Token::Kind::word && (token.text == "true" || token.text == "false")) {
      map.emplace_back(key, Value(token.text == "true"));
    } else if (const auto i = number ? parsed<std::int64_t>(token.text) : std::nullopt) {
      map.emplace_back(key, Value(*i));
    } else if (const auto d = number && token.text.find_first_of(".eE") != std::string_view::npos
                                  ? parsed<double>(token.text)
                                  : std::nullopt;
               d && std::isfinite(*d)) {
      map.emplace_back(key, Value(*d));
    } else {
      known = false;  // an array, with one value for each channel
      return {};
    }
    in.next();
    return {};
  });
  if (known && read) {
    notes.insert_or_assign(std::string(quantization_key), Value(std::move(map)));
  } else {
    notes.insert_or_assign(std::string(operation_key), Value(operation));
  }
}

std::string operation_of(const Value& quantization) {
  const auto number = [&](const char* key) -> std::optional<double> {
    const Value* value = quantization.find(key);
    if (value != nullptr && value->as_f64() != nullptr) return *value->as_f64();
    if (value != nullptr && value->as_i64() != nullptr) return static_cast<double>(*value->as_i64());
    return std::nullopt;
  };
  bool complete = quantization.find("axis") == nullptr;  // this function has no operations for quantization per channel
  // NNEF's readers require a decimal point or an exponent in every scalar, and accept neither in an integer.
  const auto scalar = [&](const char* key) {
    const auto value = number(key);
    complete = complete && value && std::isfinite(*value);
    char text[64];
    const auto end = std::to_chars(text, text + sizeof text, complete ? *value : 0.0).ptr;
    std::string digits(text, end);
    if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
    return std::string(key) + " = " + digits;
  };
  const auto integer = [&](const char* key) {
    const Value* value = quantization.find(key);
    complete = complete && value != nullptr && value->as_i64() != nullptr;
    return std::string(key) + " = " + (complete ? std::to_string(*value->as_i64()) : "");
  };
  const auto flag = [&](const char* key) {
    const Value* value = quantization.find(key);
    return std::string(key) + " = " +
           (value != nullptr && value->as_bool() != nullptr && *value->as_bool() ? "true" : "false");
  };
  const Value* scheme = quantization.find("scheme");
  const std::string* name = scheme != nullptr ? scheme->as_string() : nullptr;
  std::string text;
  if (name != nullptr && *name == "linear") {
    text = "min_max_linear_quantize(" + scalar("min") + ", " + scalar("max") + ", " + integer("bits") + ", " +
           flag("signed") + ", " + flag("symmetric") + ")";
  } else if (name != nullptr && *name == "zero_point") {
    text = "zero_point_linear_quantize(" + integer("zero_point") + ", " + scalar("scale") + ", " + integer("bits") +
           ", " + flag("signed") + ", " + flag("symmetric") + ")";
  } else if (const Value* sign = quantization.find("signed");
             name != nullptr && *name == "logarithmic" &&
             (sign == nullptr || sign->as_bool() == nullptr || !*sign->as_bool())) {
    text = "logarithmic_quantize(" + scalar("max") + ", " + integer("bits") + ")";
  }
  return complete ? text : std::string();
}

}  // namespace stele::inline v0::detail::nnef
