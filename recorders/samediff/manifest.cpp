// Reads and writes the manifest of an .sdnb file, a serialized object of Java.
#include "manifest.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "base/hex.hpp"
#include "modified_utf8.hpp"

namespace stele::inline v0::detail::samediff {
namespace {

// Source: Java Object Serialization Specification, section 6.4.2.
constexpr std::uint8_t kNull = 0x70, kReference = 0x71, kClassDesc = 0x72, kObject = 0x73, kString = 0x74;
constexpr std::uint8_t kBlockData = 0x77, kEndBlockData = 0x78, kLongString = 0x7c;
constexpr std::uint8_t kSerializable = 2, kWriteMethod = 1;
constexpr std::uint32_t kMagic = 0xaced0005, kFirstHandle = 0x7e0000;
constexpr std::string_view kPair = "org.nd4j.common.primitives.Pair", kAnyObject = "Ljava/lang/Object;";

// The allowed classes, with the required contents of their descriptors.
enum class Class : std::uint8_t { linked_hash_map, hash_map, tree_map, long_, number, pair };
struct Shape {
  std::string_view name;
  std::uint64_t version;  // serialVersionUID, which is arbitrary for a Pair
  std::uint8_t flags;
  std::string_view fields;  // type and name of each field, separated by blanks; a Pair's fields may have any names
  std::optional<Class> super = {};
};
constexpr Shape kShapes[] = {
    {"java.util.LinkedHashMap", 0x34c04e5c106cc0fb, kSerializable, "ZaccessOrder", Class::hash_map},
    {"java.util.HashMap", 0x0507dac1c31660d1, kSerializable | kWriteMethod, "FloadFactor Ithreshold"},
    {"java.util.TreeMap", 0x0cc1f63e2d256ae6, kSerializable | kWriteMethod, "Lcomparator"},
    {"java.lang.Long", 0x3b8be490cc8f23df, kSerializable, "Jvalue", Class::number},
    {"java.lang.Number", 0x86ac951d0b94e08b, kSerializable, ""},
    {kPair, 119, kSerializable, "Lkey Lvalue"},
};
constexpr const Shape& shape(Class c) { return kShapes[static_cast<std::size_t>(c)]; }

// The possible targets of a TC_REFERENCE. An unfinished object has the kind `map`, to which references are invalid.
enum class Kind : std::uint8_t { descriptor, string, map, integer, pair };
struct Handle {
  Kind kind;
  bool used = false;    // true for a string that is already a name
  std::uint64_t a = 0;  // descriptor: its Class; string: offset of its bytes; integer: its value; pair: offset
  std::uint64_t b = 0;  // string: number of its bytes; pair: length
};

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, std::uint64_t memory) : bytes_(bytes), memory_(memory) {}

  Result<std::vector<ManifestEntry>> read() {
    STELE_TRY_ASSIGN(const std::uint64_t magic, number(4));
    if (magic != kMagic) return malformed("AC ED 00 05, a stream of Java objects");
    STELE_TRY(expect(kObject, "an object"));
    STELE_TRY_ASSIGN(const Class type, descriptor(0));
    if (type != Class::linked_hash_map && type != Class::hash_map && type != Class::tree_map) return malformed("a map");
    STELE_TRY(remember({Kind::map}));
    if (type == Class::tree_map) {
      STELE_TRY(expect(kNull, "no comparator"));
    } else {
      STELE_TRY(number(8));  // load factor and threshold
    }
    STELE_TRY(expect(kBlockData, "the size of the map"));
    const std::uint8_t block = type == Class::tree_map ? 4 : 8;
    STELE_TRY(expect(block, "the size of the map"));
    if (block == 8) {
      STELE_TRY(number(4));  // buckets
    }
    STELE_TRY_ASSIGN(const std::uint64_t size, number(4));
    if (size > 0x7fffffff) return malformed("the size of the map, 0 or more");
    for (std::uint64_t i = 0; i < size; ++i) STELE_TRY(entry());
    STELE_TRY(expect(kEndBlockData, "the end of the map"));
    if (type == Class::linked_hash_map) {
      STELE_TRY(number(1));  // accessOrder
    }
    start_ = at_;
    if (at_ != bytes_.size()) return malformed("the end of the manifest");
    STELE_TRY(each_once());
    return std::move(entries_);
  }

 private:
  Error error(Errc code, const char* message) const { return Error(code, message).offset(start_); }
  Error malformed(const char* expected) const {
    Error e = error(Errc::malformed, "the manifest of the SDNB file is malformed").expected(expected);
    if (start_ >= bytes_.size()) return std::move(e).found("the end");
    return std::move(e).found("0x" + detail::hex(static_cast<unsigned>(bytes_[start_]), 2));
  }
  Status charge(std::uint64_t bytes) {
    // A growing vector briefly holds three times its elements.
    if (bytes > memory_ / 3)
      return error(Errc::limit, "the manifest of the SDNB file takes more memory than allowed")
          .expected("at most " + std::to_string(memory_ / 3) + " more bytes")
          .found(std::to_string(bytes));
    memory_ -= 3 * bytes;
    return {};
  }
  Status remember(Handle handle) {
    STELE_TRY(charge(sizeof(Handle)));
    handles_.push_back(handle);
    return {};
  }

  // Reads a big-endian number. Errors in the following checks get the offset of its first byte.
  Result<std::uint64_t> number(std::size_t n) {
    start_ = at_;
    if (bytes_.size() - at_ < n) {
      return Error(Errc::truncated, "the SDNB file ends inside its manifest")
          .expected(std::to_string(n) + " bytes")
          .found(std::to_string(bytes_.size() - at_))
          .offset(at_);
    }
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < n; ++i) value = value << 8 | static_cast<std::uint64_t>(bytes_[at_ + i]);
    at_ += n;
    return value;
  }
  Status expect(std::uint8_t byte, const char* expected) {
    STELE_TRY_ASSIGN(const std::uint64_t found, number(1));
    if (found != byte) return malformed(expected);
    return {};
  }
  Result<std::string_view> text(std::size_t length_bytes) {
    STELE_TRY_ASSIGN(const std::uint64_t size, number(length_bytes));
    if (size > bytes_.size() - at_) {
      return Error(Errc::truncated, "the SDNB file ends inside its manifest")
          .expected("a string of " + std::to_string(size) + " bytes")
          .found(std::to_string(bytes_.size() - at_))
          .offset(start_);
    }
    const std::string_view found(reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<std::size_t>(size));
    at_ += found.size();
    return found;
  }
  // Returns the target of a TC_REFERENCE, whose tag has been read.
  Result<Handle*> reference(Kind kind, const char* expected) {
    STELE_TRY_ASSIGN(const std::uint64_t found, number(4));
    const std::uint64_t index = found - kFirstHandle;  // wraps to a large number if it is too small
    if (index >= handles_.size() || handles_[static_cast<std::size_t>(index)].kind != kind) return malformed(expected);
    return &handles_[static_cast<std::size_t>(index)];
  }
  // Reads a string and returns its handle.
  Result<Handle*> string() {
    STELE_TRY_ASSIGN(const std::uint64_t tag, number(1));
    if (tag == kReference) return reference(Kind::string, "a reference to an earlier string");
    if (tag != kString && tag != kLongString) return malformed("a string");
    STELE_TRY_ASSIGN(const std::string_view found, text(tag == kString ? 2 : 8));
    STELE_TRY(remember({Kind::string, false, at_ - found.size(), found.size()}));
    return &handles_.back();
  }

  // Reads a class descriptor, and the descriptor of its superclass if it has one.
  Result<Class> descriptor(unsigned depth) {
    STELE_TRY_ASSIGN(const std::uint64_t tag, number(1));
    if (tag == kReference) {
      STELE_TRY_ASSIGN(const Handle* const before, reference(Kind::descriptor, "a reference to an earlier class"));
      return static_cast<Class>(before->a);
    }
    if (tag != kClassDesc) return malformed("a class");
    const std::size_t begin = at_;
    STELE_TRY_ASSIGN(const std::string_view name, text(2));
    const std::size_t last = name.find_last_of(".$");
    Class type = Class::pair;
    if (name.substr(last == std::string_view::npos ? 0 : last + 1) != "Pair") {
      const auto* const known = std::find_if(std::begin(kShapes), std::end(kShapes) - 1,
                                             [name](const Shape& one) { return one.name == name; });
      start_ = begin;
      if (known == std::end(kShapes) - 1) {
        const auto plain = [](char c) { return c > ' ' && c < 0x7f; };
        const bool shown = name.size() < 200 && std::all_of(name.begin(), name.end(), plain);
        return error(Errc::unsupported, "the manifest of the SDNB file contains an unsupported class")
            .expected("a map, Pair or Long")
            .found(shown ? std::string(name) : "another class");
      }
      type = static_cast<Class>(known - std::begin(kShapes));
    }
    const Shape& wanted = shape(type);
    STELE_TRY_ASSIGN(const std::uint64_t version, number(8));
    if (type != Class::pair && version != wanted.version) return malformed("the serialVersionUID of the class");
    const std::size_t own = handles_.size();
    // References to a class are invalid until its fields are known.
    STELE_TRY(remember({Kind::map, false, static_cast<std::uint64_t>(type)}));
    STELE_TRY(expect(wanted.flags, "the flags of the class"));
    STELE_TRY(fields(type));
    STELE_TRY(expect(kEndBlockData, "the end of the class"));
    if (!wanted.super) {
      STELE_TRY(expect(kNull, "no superclass"));
    } else {
      STELE_TRY_ASSIGN(const Class super, depth == 0 ? descriptor(1) : Result<Class>(malformed("no superclass")));
      if (super != *wanted.super) return malformed("the superclass of the class");
    }
    handles_[own].kind = Kind::descriptor;
    return type;
  }

  Status fields(Class type) {
    const std::string_view wanted = shape(type).fields;
    STELE_TRY_ASSIGN(const std::uint64_t count, number(2));
    const auto blanks = static_cast<std::uint64_t>(std::count(wanted.begin(), wanted.end(), ' '));
    if (count != (wanted.empty() ? 0 : blanks + 1)) return malformed("the fields of the class");
    std::size_t at = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::string_view field = wanted.substr(at, std::min(wanted.find(' ', at), wanted.size()) - at);
      at += field.size() + 1;
      STELE_TRY(expect(static_cast<std::uint8_t>(field[0]), "a field of the class"));
      STELE_TRY_ASSIGN(const std::string_view name, text(2));
      if (type != Class::pair && name != field.substr(1)) return malformed("a field of the class");
      if (field[0] == 'L') STELE_TRY(string());  // the field's class is not checked, but its values are
    }
    return {};
  }

  // Begins an object of one class. Its handle is assigned before its fields are read.
  Result<std::optional<Handle>> begin_object(Class wanted, Kind kind, const char* expected) {
    STELE_TRY_ASSIGN(const std::uint64_t tag, number(1));
    if (tag == kReference) {
      STELE_TRY_ASSIGN(const Handle* const before, reference(kind, expected));
      return std::optional<Handle>(*before);
    }
    if (tag != kObject) return malformed(expected);
    const std::size_t begin = start_;
    STELE_TRY_ASSIGN(const Class type, descriptor(0));
    start_ = begin;
    if (type != wanted) return malformed(expected);
    STELE_TRY(remember({Kind::map}));
    return std::optional<Handle>();
  }
  Result<std::uint64_t> integer() {
    STELE_TRY_ASSIGN(const std::optional<Handle> before, begin_object(Class::long_, Kind::integer, "a Long"));
    if (before) return before->a;
    STELE_TRY_ASSIGN(const std::uint64_t value, number(8));
    if (value >> 63 != 0) return malformed("a number, 0 or more");
    handles_.back() = {Kind::integer, false, value};
    return value;
  }
  Status entry() {
    STELE_TRY_ASSIGN(Handle* const name, string());
    if (std::exchange(name->used, true))
      return error(Errc::duplicate, "a name occurs twice in the manifest of the SDNB file").expected("each name once");
    const std::size_t begin = start_;
    const std::string_view raw(reinterpret_cast<const char*>(bytes_.data()) + name->a,
                               static_cast<std::size_t>(name->b));
    // Counts the name, its entry, and two indexes for each_once().
    STELE_TRY(charge(raw.size() + sizeof(ManifestEntry) + 2 * sizeof(std::size_t)));
    auto utf8 = from_modified_utf8(raw);
    if (!utf8) return malformed("a name in modified UTF-8");
    ManifestEntry found{*std::move(utf8)};
    STELE_TRY_ASSIGN(const std::optional<Handle> before, begin_object(Class::pair, Kind::pair, "a Pair"));
    if (before) {
      found.offset = before->a;
      found.length = before->b;
    } else {
      const std::size_t own = handles_.size() - 1;
      STELE_TRY_ASSIGN(found.offset, integer());
      STELE_TRY_ASSIGN(found.length, integer());
      handles_[own] = {Kind::pair, false, found.offset, found.length};
    }
    starts_of_names_.push_back(begin);
    entries_.push_back(std::move(found));
    return {};
  }
  // Sorts instead of hashing, so that malicious names cannot make the check quadratic.
  Status each_once() {
    std::vector<std::size_t> order(entries_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      const int compared = entries_[a].name.compare(entries_[b].name);
      return compared != 0 ? compared < 0 : a < b;
    });
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (entries_[order[i]].name != entries_[order[i - 1]].name) continue;
      start_ = starts_of_names_[order[i]];
      return error(Errc::duplicate, "a name occurs twice in the manifest of the SDNB file")
          .expected("each name once")
          .path(entries_[order[i]].name);
    }
    return {};
  }

  std::span<const std::byte> bytes_;
  std::uint64_t memory_;
  std::size_t at_ = 0;
  std::size_t start_ = 0;  // offset of the last item read
  std::vector<Handle> handles_;
  std::vector<ManifestEntry> entries_;
  std::vector<std::size_t> starts_of_names_;
};

class Out {
 public:
  void byte(std::uint8_t b) { out_ += static_cast<char>(b); }
  void number(std::uint64_t value, unsigned n) {
    while (n-- > 0) byte(static_cast<std::uint8_t>(value >> (8 * n)));
  }
  void text(std::string_view text) { number(text.size(), 2), out_ += text; }
  void reference(std::uint32_t handle) { byte(kReference), number(handle, 4); }
  std::uint32_t handle() { return next_++; }

  void string(std::string_view text) {
    const bool big = text.size() > 0xffff;
    byte(big ? kLongString : kString);
    number(text.size(), big ? 8 : 2);
    out_ += text;
    handle();
  }
  // Writes a class descriptor the first time, then a reference to it.
  void descriptor(Class type) {
    std::uint32_t& known = descriptors_[static_cast<std::size_t>(type)];
    if (known != 0) return reference(known);
    const Shape& one = shape(type);
    byte(kClassDesc), text(one.name), number(one.version, 8);
    known = handle();
    byte(one.flags);
    const auto blanks = static_cast<std::uint64_t>(std::count(one.fields.begin(), one.fields.end(), ' '));
    number(one.fields.empty() ? 0 : blanks + 1, 2);
    std::uint32_t type_string = 0;
    for (std::size_t at = 0; at < one.fields.size();) {
      const std::size_t end = std::min(one.fields.find(' ', at), one.fields.size());
      byte(static_cast<std::uint8_t>(one.fields[at]));
      text(one.fields.substr(at + 1, end - at - 1));
      if (one.fields[at] == 'L' && type_string == 0) {
        type_string = next_;
        string(kAnyObject);
      } else if (one.fields[at] == 'L') {
        reference(type_string);
      }
      at = end + 1;
    }
    byte(kEndBlockData);
    if (one.super) {
      descriptor(*one.super);
    } else {
      byte(kNull);
    }
  }
  void object(Class type) { byte(kObject), descriptor(type), handle(); }
  void integer(std::uint64_t value) {
    std::uint32_t* const shared = value < shared_.size() ? &shared_[static_cast<std::size_t>(value)] : nullptr;
    if (shared != nullptr && *shared != 0) return reference(*shared);
    object(Class::long_);
    if (shared != nullptr) *shared = next_ - 1;
    number(value, 8);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
  std::uint32_t next_ = kFirstHandle;
  std::array<std::uint32_t, std::size(kShapes)> descriptors_{};
  std::array<std::uint32_t, 128> shared_{};  // the Longs that Long.valueOf() caches
};

}  // namespace

Result<std::vector<ManifestEntry>> parse_manifest(std::span<const std::byte> bytes, std::uint64_t memory) {
  if (bytes.empty()) return std::vector<ManifestEntry>();
  return Parser(bytes, memory).read();
}

std::string make_manifest(std::span<const ManifestEntry> entries) {
  // A HashMap begins with 16 buckets and doubles them when more than three quarters are in use.
  std::uint64_t buckets = 16;
  while (entries.size() > buckets / 4 * 3) buckets *= 2;
  Out out;
  out.number(kMagic, 4);
  out.object(Class::linked_hash_map);
  out.number(0x3f400000, 4);  // 0.75f, the load factor
  out.number(entries.empty() ? 0 : buckets / 4 * 3, 4);
  out.byte(kBlockData), out.byte(8);
  out.number(buckets, 4);
  out.number(entries.size(), 4);
  for (const ManifestEntry& entry : entries) {
    out.string(to_modified_utf8(entry.name));
    out.object(Class::pair);
    out.integer(entry.offset);
    out.integer(entry.length);
  }
  out.byte(kEndBlockData);
  out.byte(0);  // accessOrder
  return out.take();
}

}  // namespace stele::inline v0::detail::samediff
