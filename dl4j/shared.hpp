// Protects against FlatBuffers with shared offsets: a small file could expand to any number of strings and tables. The
// expanded size is counted before anything is verified or copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "stele/detail/little_endian.hpp"
#include "stele/graph.hpp"

namespace stele::inline v0::detail::samediff {

enum class FieldKind : std::uint8_t { text, texts, bytes, numbers, table, tables };

/// A table's fields other than numbers, and the table's memory without the contents of these fields.
struct TableForm {
  struct Field {
    std::uint16_t id;
    FieldKind kind;
    const TableForm* table = nullptr;
  };
  std::uint64_t size;
  std::span<const Field> fields;
};

// Tables that archives and SameDiff files share, with the ids in samediff.fbs.
inline constexpr TableForm::Field array_fields[] = {
    {0, FieldKind::numbers}, {1, FieldKind::bytes}, {6, FieldKind::texts}};
inline constexpr TableForm array_form{sizeof(GraphArray) + 64, array_fields};
inline constexpr TableForm::Field property_fields[] = {{0, FieldKind::text},
                                                       {1, FieldKind::numbers},
                                                       {2, FieldKind::numbers},
                                                       {3, FieldKind::numbers},
                                                       {4, FieldKind::tables, &array_form},
                                                       {5, FieldKind::bytes},
                                                       {6, FieldKind::texts},
                                                       {7, FieldKind::numbers}};
inline constexpr TableForm property_form{2 * sizeof(GraphProperty), property_fields};

/// Subtracts the memory of the buffer's root and everything below it from `budget`. Returns false if the budget is too
/// small. Does not count data that is outside the buffer or nested too deep: the verifier rejects it.
class SharedCount {
 public:
  SharedCount(std::span<const std::byte> buffer, std::uint64_t budget) : buffer_(buffer), budget_(budget) {}
  bool root(const TableForm& form) {
    return follow(0, [&](std::uint64_t at) { return table(at, form, 0); });
  }

 private:
  static constexpr unsigned max_depth = 64;   // the verifier's limit
  static constexpr std::uint64_t text_ = 64;  // a std::string and its heap block
  static constexpr std::uint64_t pair_ = 48;  // an argument and its name

  bool spend(std::uint64_t bytes) {
    if (bytes > budget_) return false;
    budget_ -= bytes;
    return true;
  }
  bool has(std::uint64_t at, std::uint64_t size) const { return at <= buffer_.size() && size <= buffer_.size() - at; }
  template <class T>
  T load(std::uint64_t at) const {
    return load_le<T>(buffer_.data() + at);
  }
  template <class Visit>
  bool follow(std::uint64_t at, Visit visit) {
    return !has(at, 4) || visit(at + load<std::uint32_t>(at));
  }
  /// Returns the length of a vector if it fits in the buffer; else 0.
  std::uint64_t length(std::uint64_t at, std::uint64_t element) const {
    const std::uint64_t n = has(at, 4) ? load<std::uint32_t>(at) : 0;
    return n <= buffer_.size() / element ? n : 0;
  }
  bool text(std::uint64_t at) { return spend(text_ + length(at, 1)); }

  bool table(std::uint64_t at, const TableForm& form, unsigned depth) {
    if (!spend(form.size)) return false;
    if (depth > max_depth || !has(at, 4)) return true;
    const std::int64_t begin = static_cast<std::int64_t>(at) - load<std::int32_t>(at);
    if (begin < 0 || !has(static_cast<std::uint64_t>(begin), 4)) return true;
    const auto vtable = static_cast<std::uint64_t>(begin);
    const auto size = load<std::uint16_t>(vtable);
    for (const TableForm::Field& f : form.fields) {
      const std::uint64_t place = 4 + 2 * std::uint64_t{f.id};
      if (place + 2 > size || !has(vtable + place, 2)) continue;
      const auto offset = load<std::uint16_t>(vtable + place);
      if (offset != 0 && !follow(at + offset, [&](std::uint64_t to) { return field(to, f, depth); })) return false;
    }
    return true;
  }

  bool field(std::uint64_t at, const TableForm::Field& f, unsigned depth) {
    switch (f.kind) {
      case FieldKind::text:
        return text(at);
      case FieldKind::bytes:
        return spend(2 * length(at, 1));
      case FieldKind::numbers:
        return spend(pair_ * length(at, 1));
      case FieldKind::table:
        return table(at, *f.table, depth + 1);
      case FieldKind::texts:
      case FieldKind::tables:
        break;
    }
    const std::uint64_t n = length(at, 4);
    for (std::uint64_t i = 0; i < n; ++i) {
      const bool enough = follow(at + 4 + 4 * i, [&](std::uint64_t to) {
        return f.kind == FieldKind::texts ? text(to) : table(to, *f.table, depth + 1);
      });
      if (!enough) return false;
    }
    return true;
  }

  std::span<const std::byte> buffer_;
  std::uint64_t budget_;
};

}  // namespace stele::inline v0::detail::samediff
