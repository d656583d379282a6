// Reads JSON with numbers that JSON lacks, as Python's module writes it.
#include "json/python_json.hpp"

#include <limits>
#include <string>
#include <utility>

#include "json/json.hpp"

namespace stele::inline v0::detail::json {
namespace {

Result<Value> read_document(std::string_view text, std::size_t memory) {
  Reader in(text);
  Value value;
  STELE_TRY(read_value(in, value, memory, true));
  if (!in.finish()) return in.error();
  return value;
}

struct Word {
  std::string_view text;
  double number;
};
constexpr Word words[] = {{"NaN", std::numeric_limits<double>::quiet_NaN()},
                          {"Infinity", std::numeric_limits<double>::infinity()},
                          {"-Infinity", -std::numeric_limits<double>::infinity()}};

/// Returns the text with a list in place of each word: of one string, a NUL and the word. Empty if there are no words.
std::string with_strings(std::string_view text) {
  std::string made;
  bool found = false;
  while (!text.empty()) {
    std::size_t n = text.find_first_of("\"NI-");
    if (n == text.npos) n = text.size();
    made.append(text.substr(0, n));
    text.remove_prefix(n);
    if (text.empty()) break;
    if (text[0] == '"') {
      std::size_t end = 1;
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      n = end < text.size() ? end + 1 : text.size();
    } else {
      n = 1;
      for (const Word& word : words) {
        if (!text.starts_with(word.text)) continue;
        made.append("[\"\\u0000").append(word.text).append("\"]");  // not a string, which could be a key
        text.remove_prefix(word.text.size());
        n = 0;
        found = true;
        break;
      }
    }
    made.append(text.substr(0, n));
    text.remove_prefix(n);
  }
  return found ? made : std::string();
}

/// Replaces these lists by numbers. Depth: that of the document.
void to_numbers(Value& value) {
  if (Value::Map* const map = value.as_map()) {
    for (auto& [key, item] : *map) to_numbers(item);
  }
  Value::List* const list = value.as_list();
  if (list == nullptr) return;
  const std::string* const text = list->size() == 1 ? list->front().as_string() : nullptr;
  if (text == nullptr || !text->starts_with('\0')) {
    for (Value& item : *list) to_numbers(item);
    return;
  }
  for (const Word& word : words) {
    if (text->compare(1, text->npos, word.text) != 0) continue;
    value = Value(word.number);  // frees the text
    return;
  }
}

}  // namespace

Result<Value> read_python_document(std::string_view text, std::size_t memory) {
  auto read = read_document(text, memory);
  if (read || read.error().code() != Errc::malformed || text.find("\\u0000") != text.npos) return read;
  const std::string changed = with_strings(text);
  if (changed.empty()) return read;
  auto again = read_document(changed, memory);
  if (!again) return read;  // its offsets count in the file
  to_numbers(*again);
  return again;
}

}  // namespace stele::inline v0::detail::json
