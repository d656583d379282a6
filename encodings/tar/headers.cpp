// Reads the headers of an archive in one pass.
#include "headers.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "blocks.hpp"
#include "stele/bytes.hpp"

namespace stele::inline v0::detail::tar {
namespace {

constexpr std::size_t max_entries = 1'000'000;
// Maximum size of an extended header, and of the zeros after the end (1 MiB): bounds memory and time.
constexpr std::uint64_t max_extra_bytes = std::uint64_t{1} << 20;

bool is_zero(std::span<const std::byte> bytes) noexcept {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

class HeaderBlock {
 public:
  std::span<std::byte> bytes() noexcept { return bytes_; }
  std::string_view field(Field f) const noexcept { return text(bytes_).substr(f.at, f.size); }
  char type() const noexcept { return field(type_field)[0]; }

  /// Returns the name in the header, or nullopt if bytes other than NUL follow its end.
  std::optional<std::string> name() const {
    auto name = string(name_field);
    if (!name || !field(magic_field).starts_with(posix_magic.substr(0, 6))) return name;
    const auto prefix = string(prefix_field);
    if (!prefix || prefix->empty()) return prefix ? name : std::nullopt;
    return *prefix + '/' + *name;
  }
  std::optional<std::uint64_t> size() const noexcept { return number(size_field); }

  bool has_magic() const noexcept { return field(magic_field).starts_with("ustar"); }
  /// Also accepts a sum of signed bytes, which old programs wrote.
  bool sum_is_right() const noexcept {
    std::int64_t with_sign = 0;
    std::uint64_t without = 0;
    for (std::size_t i = 0; i < block_size; ++i) {
      const bool own = i >= sum_field.at && i < sum_field.at + sum_field.size;
      const auto byte = own ? std::uint8_t{' '} : std::to_integer<std::uint8_t>(bytes_[i]);
      without += byte;
      with_sign += static_cast<std::int8_t>(byte);
    }
    const auto stored = number(sum_field);
    return stored && (*stored == without || (with_sign >= 0 && *stored == static_cast<std::uint64_t>(with_sign)));
  }

 private:
  std::optional<std::string> string(Field f) const {
    const std::string_view all = field(f);
    const std::size_t end = std::min(all.find('\0'), all.size());
    if (all.find_first_not_of('\0', end) != all.npos) return std::nullopt;
    return std::string(all.substr(0, end));
  }
  std::optional<std::uint64_t> number(Field f) const noexcept {
    constexpr std::uint64_t max_number = ~std::uint64_t{0} >> 1;
    std::string_view digits = field(f);
    std::uint64_t value = 0;
    if (digits[0] == '\x80') {
      for (const char c : digits.substr(1)) {
        if (value > max_number >> 8) return std::nullopt;
        value = value << 8 | static_cast<std::uint8_t>(c);
      }
      return value;
    }
    digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
    const std::size_t end = std::min(digits.find_first_not_of("01234567"), digits.size());
    if (end == 0 || digits.find_first_not_of(std::string_view(" \0", 2), end) != digits.npos) return std::nullopt;
    for (const char c : digits.substr(0, end)) value = value << 3 | static_cast<std::uint64_t>(c - '0');  // 36 bits
    return value;
  }

  std::byte bytes_[block_size];
};

/// Reads the headers of an archive in order.
class HeaderReader {
 public:
  HeaderReader(const Source& source, Input& input, const IndexBudget& budget)
      : source_(source), input_(input), budget_(budget) {}

  Result<std::vector<Entry>> run() {
    for (bool first = true;; first = false) {
      begin_ = at_;
      STELE_TRY_ASSIGN(const std::size_t n, input_.next(header_.bytes()));
      at_ += n;
      if (n != block_size) return cut("the archive ends without its end marker", block_size, n);
      if (is_zero(header_.bytes())) break;
      if (!header_.sum_is_right()) {
        if (first && !header_.has_magic()) return error(Errc::bad_magic, "the file is not a tar archive");
        return error(Errc::checksum, "the header's checksum does not match");
      }
      STELE_TRY(read_entry());
    }
    if (has_pax_ || long_name_) return bad("no file follows the extended header");
    STELE_TRY(end());
    STELE_TRY(order());
    return std::move(entries_);
  }

 private:
  /// Sorts the files. Checks that two files, or a file and a folder, do not have the same name.
  Status order() {
    // Sorts a slash before all other characters, so that the contents of a folder directly follow a file with its name.
    const auto rank = [](char c) { return c == '/' ? 0 : 1 + static_cast<unsigned char>(c); };
    std::sort(entries_.begin(), entries_.end(), [&](const Entry& a, const Entry& b) {
      if (a.name == b.name) return a.offset < b.offset;
      return std::lexicographical_compare(a.name.begin(), a.name.end(), b.name.begin(), b.name.end(),
                                          [&](char x, char y) { return rank(x) < rank(y); });
    });
    const auto at_odds = [](const Entry& a, const Entry& b) {
      return b.name.starts_with(a.name) && (b.name.size() == a.name.size() || b.name[a.name.size()] == '/');
    };
    if (const auto at = std::adjacent_find(entries_.begin(), entries_.end(), at_odds); at != entries_.end()) {
      const bool twice = at[1].name == at->name;
      return Error(twice ? Errc::duplicate : Errc::malformed,
                   twice ? "the file name occurs twice" : "a file has the name of another file's folder")
          .file(source_.name())
          .offset(twice ? at[1].offset : at->offset)
          .path(at->name);
    }
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
    return {};
  }

  Error error(Errc code, const char* why) const { return Error(code, why).file(source_.name()).offset(begin_); }
  Error bad(const char* why) const { return error(Errc::malformed, why); }
  Error cut(const char* why, std::uint64_t wanted, std::uint64_t found) const {
    return error(Errc::truncated, why).expected(std::to_string(wanted) + " bytes").found(std::to_string(found));
  }

  /// Reads one header with its data.
  Status read_entry() {
    const char type = header_.type();
    const auto size = header_.size();
    switch (type) {
      case 'x':
        if (has_pax_ || long_name_) return bad("the file has two extended headers");
        has_pax_ = true;
        return read_pax(size, false);
      case 'g':
        if (has_pax_ || long_name_) return bad("a global header follows the extended header of a file");
        return read_pax(size, true);
      case 'L':
        if (has_pax_ || long_name_) return bad("the file has two extended headers");
        STELE_TRY(read_data(size));
        long_name_.emplace(text(data_.span()));
        if (long_name_->ends_with('\0')) long_name_->pop_back();
        return {};
      case 'K':  // applies to a link, which is refused when it follows
        return read_data(size);
      default:
        return add_file(type);
    }
  }

  Status add_file(char type) {
    STELE_TRY_ASSIGN(std::string name, entry_name());
    if (type == 'S' || sparse_) return unsupported("sparse files are not supported", name);
    if (type == '1' || type == '2') return unsupported("links are not supported", name);
    if (type == '3' || type == '4' || type == '6') return unsupported("devices and FIFOs are not supported", name);
    if (type != '0' && type != '\0' && type != '7' && type != '5') {
      return unsupported("the entry type is not supported", name)
          .found("type " + std::to_string(static_cast<unsigned char>(type)));
    }
    const auto size = size_ ? size_ : header_.size();
    if (!size) return bad("the entry's size is not a number").path(name);
    const bool folder = type == '5' || name.ends_with('/');
    if (folder && *size != 0) return bad("the folder has data").path(name);

    // Archives contain "./" or "." for the folder itself, "./name", "folder/".
    const bool top = folder && (name == "./" || name == ".");
    if (name.starts_with("./")) name.erase(0, 2);
    if (folder && name.ends_with('/')) name.pop_back();
    if (const char* why = bad_name(name); why != nullptr && !top) return bad(why).path(name);
    if (++count_ > max_entries) return error(Errc::limit, "the archive has more than 1,000,000 files and folders");
    has_pax_ = false;
    long_name_.reset();
    path_.reset();
    size_.reset();
    if (folder) return {};

    const std::uint64_t offset = at_;
    STELE_TRY_ASSIGN(const std::uint64_t skipped, skip(*size + padding(*size)));
    if (skipped != *size + padding(*size)) {
      return cut("the archive ends inside a file", *size + padding(*size), skipped).path(name);
    }
    // A growing vector doubles, and keeps its old memory until all entries have been moved.
    const std::uint64_t memory = 3 * sizeof(Entry) + name.capacity() + 16;
    if (!budget_.take(memory))
      return error(Errc::limit, "the file names exceed the memory limit for an archive of this size")
          .hint("raise LoadOptions::limits.index_bytes");
    entries_.push_back({std::move(name), offset, *size});
    return {};
  }

  Error unsupported(const char* what, const std::string& name) const {
    return error(Errc::unsupported, what).path(name);
  }

  Result<std::string> entry_name() {
    if (path_) return *std::move(path_);
    if (long_name_) return *std::move(long_name_);
    auto name = header_.name();
    if (!name) return bad("bytes follow the NUL of the name");
    return *std::move(name);
  }

  Result<std::uint64_t> skip(std::uint64_t count) {
    STELE_TRY_ASSIGN(const std::uint64_t skipped, input_.skip(count));
    at_ += skipped;
    return skipped;
  }

  /// Reads the data of an extended header into data_.
  Status read_data(std::optional<std::uint64_t> size) {
    if (!size) return bad("the header's size is not a number");
    if (*size > max_extra_bytes) {
      return error(Errc::limit, "the extended header is too large")
          .expected("at most " + std::to_string(max_extra_bytes) + " bytes")
          .found(std::to_string(*size));
    }
    data_ = Bytes(static_cast<std::size_t>(*size + padding(*size)));
    STELE_TRY_ASSIGN(const std::size_t n, input_.next(data_.span()));
    at_ += n;
    if (n != data_.size()) return cut("the archive ends inside an extended header", data_.size(), n);
    data_.truncate(static_cast<std::size_t>(*size));
    return {};
  }

  /// Reads the records of a pax header.
  Status read_pax(std::optional<std::uint64_t> size, bool for_all) {
    STELE_TRY(read_data(size));
    for (std::string_view rest = text(data_.span()); !rest.empty();) {
      std::uint64_t length = 0;
      const char* const end = rest.data() + rest.size();
      const auto [after, failed] = std::from_chars(rest.data(), end, length);
      const auto digits = static_cast<std::size_t>(after - rest.data());
      if (failed != std::errc() || after == end || *after != ' ' || length > rest.size() || length < digits + 2 ||
          rest[static_cast<std::size_t>(length) - 1] != '\n') {
        return bad("the extended header has a malformed record");
      }
      const auto record = rest.substr(digits + 1, static_cast<std::size_t>(length) - digits - 2);
      rest.remove_prefix(static_cast<std::size_t>(length));
      const std::size_t equals = record.find('=');
      if (equals == record.npos || equals == 0) return bad("the extended header has a malformed record");
      STELE_TRY(apply(record.substr(0, equals), record.substr(equals + 1), for_all));
    }
    return {};
  }

  /// Applies one record. An empty value removes the property.
  Status apply(std::string_view key, std::string_view value, bool for_all) {
    const bool is_path = key == "path", is_size = key == "size", is_sparse = key.starts_with("GNU.sparse.");
    if (for_all && (is_path || is_size || is_sparse)) return bad("a global header sets a property of one file");
    if (is_sparse) sparse_ = true;
    if (is_path) {
      path_.reset();
      if (!value.empty()) path_.emplace(value);
    }
    if (is_size) {
      size_.reset();
      if (value.empty()) return {};
      std::uint64_t number = 0;
      const auto [after, failed] = std::from_chars(value.data(), value.data() + value.size(), number);
      if (failed != std::errc() || after != value.data() + value.size() || number > ~std::uint64_t{0} >> 1) {
        return bad("the size in the extended header is not a number");
      }
      size_ = number;
    }
    return {};
  }

  /// Checks the end, after the first block of zeros.
  Status end() {
    STELE_TRY_ASSIGN(const std::size_t second, input_.next(header_.bytes()));
    if (second != block_size) return cut("the archive ends after one block of zeros", block_size, second);
    if (!is_zero(header_.bytes())) return bad("the end marker has one block of zeros instead of two");
    Bytes piece(piece_size);
    for (std::uint64_t all = 0;;) {
      STELE_TRY_ASSIGN(const std::size_t n, input_.next(piece.span()));
      if (!is_zero(piece.span().first(n))) return bad("bytes follow the end marker");
      all += n;
      if (all > max_extra_bytes) return bad("more than 1 MiB of zeros follow the end marker");
      if (n != piece.size()) return {};
    }
  }

  const Source& source_;
  Input& input_;
  IndexBudget budget_;
  std::uint64_t at_ = 0;     // number of bytes read
  std::uint64_t begin_ = 0;  // offset of the current header
  HeaderBlock header_;
  Bytes data_;
  std::vector<Entry> entries_;
  std::size_t count_ = 0;
  // Extended properties of the next file.
  bool has_pax_ = false, sparse_ = false;
  std::optional<std::string> path_, long_name_;
  std::optional<std::uint64_t> size_;
};

}  // namespace

Result<std::vector<Entry>> read_headers(const Source& source, Input& input, const IndexBudget& budget) {
  return HeaderReader(source, input, budget).run();
}

}  // namespace stele::inline v0::detail::tar
