// Parses the lists of the fields of classes in Rust.
#include "fields.hpp"

#include <algorithm>
#include <charconv>

#include "stele/module.hpp"

namespace stele::inline v0::detail::burn {
namespace {

constexpr std::uint64_t max_length = std::uint64_t{1} << 16;
constexpr std::uint64_t max_variant = 250;  // one byte
constexpr int max_levels = 16;

/// Parses fields: field, field, …; each field: name, optional [number], optional (number name), optional {fields}.
class Parser {
 public:
  Parser(const TypeInfo& type, std::string_view text) : type_(type), text_(text) {}

  Result<std::vector<Field>> run() {
    STELE_TRY_ASSIGN(auto fields, list(0));
    if (at_ != text_.size()) return wrong("the end or a comma");
    std::vector<bool> named(type_.fields.size());
    for (Field& field : fields) {
      for (std::size_t i = 0; i < type_.fields.size(); ++i) {
        if (type_.fields[i].name != field.name) continue;
        if (type_.fields[i].flags.constant) continue;
        if (field.array || field.module || field.variant || named[i])
          return wrong("a recorded field once, with only its name");
        field.recorded = i;
        named[i] = true;
      }
    }
    for (std::size_t i = 0; i < named.size(); ++i) {
      if (named[i] || type_.fields[i].flags.constant) continue;
      return wrong("every recorded field, including " + std::string(type_.fields[i].name));
    }
    return fields;
  }

 private:
  Result<std::vector<Field>> list(int level) {
    std::vector<Field> fields;
    if (level > max_levels) return wrong("at most " + std::to_string(max_levels) + " levels");
    do {
      Field field;
      field.name = word();
      if (field.name.empty()) return wrong("a name");
      if (take('[')) {
        field.array = true;
        if (!number(field.length, max_length) || !take(']')) return wrong("a number and ]");
      }
      if (take('(')) {
        std::uint64_t variant = 0;
        if (!number(variant, max_variant)) return wrong("the number of a variant");
        field.variant = static_cast<std::uint32_t>(variant);
        field.alternative = word();
        if (field.alternative.empty() || !take(')')) return wrong("the name of a variant and )");
      }
      if (take('{')) {
        field.module = true;
        if (!take('}')) {
          STELE_TRY_ASSIGN(field.inside, list(level + 1));
          if (!take('}')) return wrong("}");
        }
      }
      fields.push_back(std::move(field));
    } while (take(','));
    return fields;
  }
  std::string_view word() {
    blanks();
    const std::size_t begin = at_;
    while (at_ < text_.size() && std::string_view(",[](){} \t\n").find(text_[at_]) == std::string_view::npos) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  bool number(std::uint64_t& out, std::uint64_t max) {
    blanks();
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), out);
    at_ = static_cast<std::size_t>(end - text_.data());
    return error == std::errc() && out <= max;
  }
  void blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool take(char c) {
    blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    return ++at_, true;
  }
  Error wrong(std::string_view expected) const {
    return Error(Errc::invalid_argument, "the burn_layout does not describe its class")
        .path(std::string(type_.name))
        .offset(at_)
        .expected(expected)
        .found(std::string(text_));
  }

  const TypeInfo& type_;
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

void append_constant(const Field& constant, BurnEra era, std::vector<std::byte>& out) {
  for (std::uint64_t i = 0; i < (constant.is_list(era) ? constant.length : 1); ++i) {
    if (constant.variant) out.push_back(static_cast<std::byte>(*constant.variant));
    if (!constant.module) out.push_back(std::byte{0});
    for (const Field& field : constant.inside) append_constant(field, era, out);
  }
}

Result<const std::vector<Field>*> Fields::of(const TypeInfo& type) {
  const auto found = known_.find(&type);
  if (found != known_.end()) return &found->second;
  std::vector<Field> fields;
  if (type.layout != nullptr && !type.layout->text.empty()) {
    STELE_TRY_ASSIGN(fields, Parser(type, type.layout->text).run());
  } else {
    std::size_t constant = 0;
    for (std::size_t i = 0; i <= type.fields.size(); ++i) {
      for (; constant < type.unrecorded.size() && type.unrecorded[constant].before == i; ++constant) {
        fields.push_back({.name = type.unrecorded[constant].name});
      }
      if (i == type.fields.size()) break;
      const FieldInfo& field = type.fields[i];
      fields.push_back({.name = field.name, .recorded = field.flags.constant ? Field::none : i});
    }
  }
  return &known_.emplace(&type, std::move(fields)).first->second;
}

bool is_constant_class(const TypeInfo& type) noexcept {
  return type.kind == TypeKind::module && type.fields.empty() && type.unrecorded.empty() && type.layout == nullptr;
}

bool is_record_class(const TypeInfo& type) noexcept { return type.layout != nullptr && type.layout->number == 1; }

}  // namespace stele::inline v0::detail::burn
