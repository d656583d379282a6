// Reads XML 1.0 in memory, element by element. A document has one root element, UTF-8, comments, processing
// instructions and CDATA sections; the five predefined entities and references to characters. Refuses document types:
// the reader has no entities to expand, and opens no other file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stele/result.hpp"

namespace stele::inline v0::detail::xml {

/// Maximum nesting of elements: bounds the memory of the open elements.
inline constexpr std::size_t max_depth = 256;
/// Maximum number of attributes of an element: bounds the time of the search for duplicates.
inline constexpr std::size_t max_attributes = 256;

enum class Event : std::uint8_t { begin, end, finish };

struct Attribute {
  std::string_view name;
  std::string_view raw;  // the value as it is in the document
  std::uint64_t offset;  // offset of the value in the document
};

class Reader {
 public:
  /// `document` must outlive the reader.
  explicit Reader(std::string_view document) noexcept : in_(document) {}

  /// Advances to the next begin or end of an element. An empty element has both. Returns `finish` after the root.
  /// Errors: malformed, limit, unsupported (an encoding other than UTF-8).
  Result<Event> next();
  /// Returns the name of the current element.
  std::string_view name() const noexcept { return name_; }
  /// Returns the number of open elements; at a begin or an end, including the current one.
  std::size_t depth() const noexcept { return depth_; }
  /// Returns the names of the elements that are open, from the root on.
  const std::vector<std::string_view>& open() const noexcept { return open_; }
  /// Returns the offset of the current tag.
  std::uint64_t offset() const noexcept { return tag_; }
  /// Returns an attribute of the element that begins, or nullptr.
  const Attribute* find(std::string_view name) const noexcept;
  /// Returns the value of an attribute of the element that begins, without references; nullopt if it is absent.
  /// Errors: malformed.
  Result<std::optional<std::string>> attribute(std::string_view name) const;

 private:
  Error bad(const char* message, std::size_t at) const;
  bool starts(std::string_view text) const noexcept { return in_.substr(at_).starts_with(text); }
  void skip_space() noexcept;
  Status skip_past(std::string_view end, const char* what);
  Status declaration();
  Status text();
  std::string_view take_name() noexcept;
  Status begin_tag();
  Status end_tag();

  std::string_view in_;
  std::size_t at_ = 0;
  std::size_t tag_ = 0;
  std::size_t depth_ = 0;
  std::string_view name_;
  std::vector<std::string_view> open_;
  std::vector<Attribute> attributes_;
  bool started_ = false;  // the declaration was read
  bool empty_ = false;    // the current element has no content: its end is the next event
  bool ended_ = false;    // the current event is an end
  bool root_ = false;     // the root element has begun
};

/// Appends the text with its references replaced, and its white space as spaces, as the value of an attribute. Returns
/// the offset of an invalid reference, or nullopt.
std::optional<std::size_t> append_text(std::string_view raw, std::string& to);

}  // namespace stele::inline v0::detail::xml
