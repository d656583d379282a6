// Writes training configurations as JSON.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <utility>

#include "classes.hpp"
#include "json/json.hpp"
#include "stele/training.hpp"

namespace stele::inline v0 {
namespace detail::training {

std::string java_text(double number) {
  if (std::isnan(number)) return "\"NaN\"";
  if (std::isinf(number)) return number < 0 ? "\"-Infinity\"" : "\"Infinity\"";
  char buffer[64];
  const double size = std::fabs(number);
  const bool plain = number == 0 || (size >= 1e-3 && size < 1e7);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  const char* const end = std::to_chars(std::begin(buffer), std::end(buffer), number, format).ptr;
  const std::string_view digits(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = std::min(digits.find('e'), digits.size());
  std::string text(digits.substr(0, e));
  if (text.find('.') == std::string::npos) text += ".0";
  if (!plain) {
    int exponent = 0;
    const char* begin = buffer + e + 1;
    if (*begin == '+') ++begin;
    std::from_chars(begin, end, exponent);
    text += 'E' + std::to_string(exponent);
  }
  return text;
}

}  // namespace detail::training

namespace {

using detail::json::Reader;
using namespace detail::training;

// Replaces each byte that is not valid UTF-8 by U+FFFD.
std::string repaired(std::string_view text) {
  std::string good;
  while (!text.empty()) {
    std::size_t n = 1;
    while (n <= std::min<std::size_t>(4, text.size()) && !detail::json::valid_utf8(text.substr(0, n))) ++n;
    const bool valid = n <= std::min<std::size_t>(4, text.size());
    if (!valid) n = 1;
    good += valid ? text.substr(0, n) : std::string_view("\xef\xbf\xbd");
    text.remove_prefix(n);
  }
  return good;
}

// Writes JSON in the form of Jackson's indented output: one line for each member, and arrays on one line.
class JacksonText {
 public:
  void open() { out_ += '{', ++depth_, first_ = true; }
  void close() {
    --depth_;
    if (first_) {
      out_ += " }";
    } else {
      line(), out_ += '}';
    }
    first_ = false;
  }
  void key(std::string_view name) {
    if (!first_) out_ += ',';
    first_ = false;
    line(), string(name), out_ += " : ";
  }
  void string(std::string_view text) {
    detail::json::Writer writer(out_);
    if (detail::json::valid_utf8(text)) {
      writer.string(text);
    } else {
      writer.string(repaired(text));
    }
  }
  void raw(std::string_view json) {
    Reader reader(json);
    out_ += reader.skip_value() && reader.finish() ? json : std::string_view("null");
  }
  void number(const TrainingNumber& number) {
    const auto integer = number.integer();
    out_ += integer ? std::to_string(*integer) : java_text(number.value());
  }
  void boolean(bool flag) { out_ += flag ? "true" : "false"; }
  template <class List, class Item>
  void array(const List& list, Item item) {
    out_ += '[';
    for (std::size_t i = 0; i < list.size(); ++i) {
      out_ += i == 0 ? " " : ", ";
      item(list[i]);
    }
    out_ += " ]";
  }
  void names(const TrainingConfig::Names& names) {
    if (!names) {
      out_ += "null";
    } else {
      array(*names, [this](const std::string& name) { string(name); });
    }
  }
  void others(const std::vector<TrainingRaw>& others) {
    for (const TrainingRaw& member : others) key(member.name), raw(member.json);
  }

  void object(const TrainingObject& object) {
    if (object.type.empty()) {
      out_ += "null";
      return;
    }
    open();
    key(kClass), string(class_name(object));
    // Write the members that DL4J's class has first, in its order.
    const Known* const one = known(object.type);
    const std::string_view order = one != nullptr ? one->members : std::string_view();
    for (std::size_t at = 0; at < order.size();) {
      const std::size_t end = std::min(order.find(' ', at), order.size());
      member(object, order.substr(at, end - at));
      at = end + 1;
    }
    const auto rest = [&](const auto& members, auto write) {
      for (const auto& [name, value] : members) {
        if (!in(order, name)) key(name), write(value);
      }
    };
    rest(object.texts, [this](const std::string& text) { string(text); });
    rest(object.numbers, [this](const TrainingNumber& n) { number(n); });
    rest(object.flags, [this](bool flag) { boolean(flag); });
    rest(object.objects, [this](const TrainingObject& inner) { this->object(inner); });
    if (!object.values.empty() && !in(order, kValues)) member(object, kValues);
    rest(object.other, [this](const std::string& json) { raw(json); });
    close();
  }

  std::string take() { return std::move(out_); }

 private:
  void line() { out_.append(1, '\n').append(std::size_t{2} * depth_, ' '); }

  static bool in(std::string_view order, std::string_view name) {
    for (std::size_t at = 0; at < order.size();) {
      const std::size_t end = std::min(order.find(' ', at), order.size());
      if (order.substr(at, end - at) == name) return true;
      at = end + 1;
    }
    return false;
  }

  // Writes the member with the given name, if it exists.
  void member(const TrainingObject& object, std::string_view name) {
    if (const auto* text = find(object.texts, name)) {
      key(name), string(*text);
    } else if (const auto* found = find(object.numbers, name)) {
      key(name), number(*found);
    } else if (const auto* flag = find(object.flags, name)) {
      key(name), boolean(*flag);
    } else if (const auto* inner = find(object.objects, name)) {
      key(name), this->object(*inner);
    } else if (name == kValues && !object.values.empty()) {
      key(name), open();
      for (const auto& [at, value] : object.values) key(std::to_string(at)), number(value);
      close();
    } else {
      for (const TrainingRaw& other : object.other) {
        if (other.name == name) return key(name), raw(other.json);
      }
    }
  }

  std::string out_;
  std::size_t depth_ = 0;
  bool first_ = true;
};

}  // namespace

std::string TrainingObject::json() const {
  JacksonText text;
  text.object(*this);
  return text.take();
}

std::string TrainingConfig::json() const {
  if (source.text != nullptr) {
    const Result<TrainingConfig> before = parse(*source.text);
    if (before && *before == *this) return *source.text;
  }
  JacksonText text;
  text.open();
  text.key("updater"), text.object(updater);
  text.key("regularization");
  text.array(regularization, [&](const TrainingObject& one) { text.object(one); });
  text.key("minimize"), text.boolean(minimize);
  text.key("dataSetFeatureMapping"), text.names(data_set_feature_mapping);
  text.key("dataSetLabelMapping"), text.names(data_set_label_mapping);
  text.key("dataSetFeatureMaskMapping"), text.names(data_set_feature_mask_mapping);
  text.key("dataSetLabelMaskMapping"), text.names(data_set_label_mask_mapping);
  text.key("lossVariables"), text.names(loss_variables);
  text.key("iterationCount"), text.number(iteration_count);
  text.key("epochCount"), text.number(epoch_count);
  text.others(other);
  text.close();
  return text.take();
}

}  // namespace stele::inline v0
