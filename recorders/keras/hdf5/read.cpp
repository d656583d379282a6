// Walks the objects of a file.
#include <algorithm>
#include <bit>
#include <deque>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "chunks.hpp"
#include "hdf5.hpp"
#include "leaves/source_range.hpp"
#include "messages.hpp"
#include "stele/precision/convert.hpp"

namespace stele::inline v0::detail::hdf5 {
namespace {

using View = std::span<const std::byte>;

std::string_view text_of(View bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

namespace message {
enum Type : std::uint16_t {
  space = 1,
  link_info = 2,
  type = 3,
  old_fill = 4,
  fill = 5,
  link = 6,
  external = 7,
  layout = 8,
  group = 10,
  filters = 11,
  attribute = 12,
  continuation = 16,
  symbols = 17
};
}  // namespace message

struct Message {
  std::uint16_t type = 0;
  bool shared = false;       // the content is a reference to another object
  std::uint64_t offset = 0;  // in the file
  View content{};
};

/// The messages of an object, and the blocks of the file that they are in.
struct Header {
  std::deque<Bytes> blocks{};
  std::vector<Message> messages{};
  const Message* find(std::uint16_t type) const {
    const auto found = std::find_if(messages.begin(), messages.end(), [&](const Message& m) { return m.type == type; });
    return found != messages.end() ? &*found : nullptr;
  }
};

struct Link {
  std::string name{};
  std::uint64_t object = undefined;
  std::string reason{};  // why the link is not followed
};

/// The state that the providers of a file share.
struct Keeper {
  SourcePtr source;
  std::deque<ChunkedLeaf> leaves{};
};

constexpr std::uint64_t max_fill_bytes = std::uint64_t{16} << 20;

/// Datasets without bytes in the file, or with too few bytes for the elements that they would decode to.
bool amplifies(std::uint64_t bytes, std::uint64_t stored, bool deflated) {
  return bytes > add_scaled(64, stored, deflated ? max_deflate_ratio : 1);
}

class Walk {
 public:
  Walk(const SourcePtr& source, IndexBudget& memory, std::shared_ptr<const void>& keeper, const Visit& visit)
      : source_(*source),
        view_(source->view()),
        memory_(memory),
        keeper_(std::make_shared<Keeper>(Keeper{source})),
        visit_(visit),
        // Structures of a file do not overlap, so that reading each once takes at most the file's size.
        work_(add_scaled(std::uint64_t{64} << 10, source->size(), 2)) {
    keeper = keeper_;
  }

  Status run() {
    STELE_TRY_ASSIGN(const std::uint64_t root, superblock());
    STELE_TRY(object({.name = {}, .object = root}));
    while (!stack_.empty()) {
      Group& group = stack_.back();
      if (group.next == group.links.size()) {
        stack_.pop_back();
        continue;
      }
      const Link link = std::move(group.links[group.next++]);
      path_.resize(group.path);
      if (stack_.size() > 1) path_ += '/';
      path_ += link.name;
      STELE_TRY(object(link));
    }
    return no_overlaps();
  }

 private:
  struct Group {
    std::vector<Link> links;
    std::size_t next;
    std::size_t path;  // length of the group's path
  };

  // ---- bytes

  static Error at(Error error, std::uint64_t offset) { return std::move(error).offset(offset); }
  static Error bad(const char* what, std::uint64_t offset) { return damaged(what).offset(offset); }
  static Error too_much() { return index_error("the file's objects need more memory than its size allows"); }
  Status take(std::uint64_t bytes) { return memory_.take(bytes) ? Status() : Status(too_much()); }

  /// Reads metadata, into `buffer` unless the file is in memory.
  Result<View> read(std::uint64_t offset, std::uint64_t size, Bytes& buffer) {
    const std::uint64_t end = source_.size();
    if (offset > end || size > end - offset) {
      return Error(Errc::truncated, "a structure of the file exceeds its end")
          .offset(offset)
          .expected(std::to_string(size) + " bytes")
          .found(std::to_string(end - std::min(offset, end)));
    }
    if (size > work_) return bad("structures of the file overlap", offset);
    work_ -= size;
    if (!view_.empty()) return view_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
    if (buffer.size() < size) buffer = Bytes(static_cast<std::size_t>(size));
    const auto bytes = buffer.span().first(static_cast<std::size_t>(size));
    STELE_TRY(source_.read_at(offset, bytes));
    return View(bytes);
  }
  /// Reads a structure that begins with four letters.
  Result<In> structure(std::uint64_t offset, std::uint64_t size, std::string_view letters, Bytes& buffer) {
    STELE_TRY_ASSIGN(const View bytes, read(offset, size, buffer));
    In in(bytes);
    if (text_of(in.take(letters.size())) != letters) {
      return bad("a structure of the file does not begin with its letters", offset).expected(std::string(letters));
    }
    return in;
  }

  Result<std::uint64_t> superblock() {
    Bytes buffer;
    const std::uint64_t size = std::min<std::uint64_t>(source_.size(), 104);
    STELE_TRY_ASSIGN(const View bytes, read(0, size, buffer));
    if (!is_hdf5(bytes)) return Error(Errc::bad_magic, "the file is not an HDF5 file").offset(0);
    In in(bytes.subspan(signature.size()));
    const unsigned version = in.u8();
    unsigned offset_size = 0, length_size = 0;
    std::uint64_t base = 0, end = 0, root = 0;
    if (version <= 1) {
      in.take(4);
      offset_size = in.u8();
      length_size = in.u8();
      in.take(version == 0 ? 9 : 13);
      base = in.u64();
      in.u64();
      end = in.u64();
      in.take(16);
      root = in.u64();
    } else if (version <= 3) {
      offset_size = in.u8();
      length_size = in.u8();
      in.u8();
      base = in.u64();
      in.u64();
      end = in.u64();
      root = in.u64();
    } else {
      return at(Error(Errc::unsupported, "the superblock has an unknown version").found(std::to_string(version)), 8);
    }
    if (!in.ok()) return Error(Errc::truncated, "the superblock is incomplete").offset(bytes.size());
    if (offset_size != 8 || length_size != 8 || base != 0) {
      return at(Error(Errc::unsupported, "the file's addresses or lengths do not have 8 bytes, or do not begin at 0"),
                8);
    }
    if (end > source_.size()) {
      return Error(Errc::truncated, "the file is shorter than its superblock declares")
          .expected(std::to_string(end) + " bytes")
          .found(std::to_string(source_.size()));
    }
    return root;
  }

  // ---- object headers

  Status add_message(Header& header, std::uint16_t type, unsigned flags, std::uint64_t offset, View content) {
    constexpr std::size_t max_messages = 0xffff;
    if (type == 0) return {};
    if (header.messages.size() == max_messages) return bad("an object has too many messages", offset);
    header.messages.push_back({type, (flags & 2U) != 0, offset, content});
    return {};
  }

  Result<Header> header(std::uint64_t address) {
    Header out;
    Bytes head;
    STELE_TRY_ASSIGN(const View first, read(address, 16, head));
    struct Block {
      std::uint64_t offset, size;
    };
    std::vector<Block> blocks;
    In in(first);
    const bool second = text_of(first.first(4)) == "OHDR";
    bool ordered = false;
    if (second) {
      in.take(4);
      const unsigned version = in.u8(), flags = in.u8();
      if (version != 2) return bad("an object header has an unknown version", address);
      ordered = (flags & 4U) != 0;
      const std::size_t width = std::size_t{1} << (flags & 3U);
      const std::uint64_t skipped = 6 + ((flags & 0x20U) != 0 ? 16 : 0) + ((flags & 0x10U) != 0 ? 4 : 0);
      Bytes more;
      STELE_TRY_ASSIGN(const View length, read(address + skipped, width, more));
      blocks.push_back({address + skipped + width, In(length).number(width)});
    } else {
      if (in.u8() != 1) return bad("an object header has an unknown version", address);
      in.take(7);
      blocks.push_back({address + 16, in.u32()});
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      Block block = blocks[i];
      if (second && i != 0) {  // letters and checksum
        if (block.size < 8) return bad("a continuation block is too short", block.offset);
        Bytes letters;
        STELE_TRY(structure(block.offset, 4, "OCHK", letters));
        block = {block.offset + 4, block.size - 8};
      }
      STELE_TRY_ASSIGN(const View bytes, read(block.offset, block.size, out.blocks.emplace_back()));
      In rest(bytes);
      const std::size_t smallest = second ? (ordered ? 6 : 4) : 8;
      while (rest.left() >= smallest) {
        const std::uint16_t type = second ? rest.u8() : rest.u16();
        const std::uint16_t size = rest.u16();
        const unsigned flags = rest.u8();
        if (!second) rest.take(3);
        if (ordered) rest.u16();
        const std::uint64_t offset = block.offset + (bytes.size() - rest.left());
        const View content = rest.take(size);
        if (!rest.ok()) return bad("a message exceeds its object header", offset);
        if (type == message::continuation) {
          In next(content);
          const std::uint64_t where = next.u64(), length = next.u64();
          if (!next.ok()) return bad("a continuation message is incomplete", offset);
          if (blocks.size() > 0xffff) return bad("an object header has too many blocks", offset);
          blocks.push_back({where, length});
        } else {
          STELE_TRY(add_message(out, type, flags, offset, content));
        }
      }
    }
    return out;
  }

  // ---- objects

  Status object(const Link& link) {
    Entry entry;
    entry.path = path_;
    entry.object = link.object;
    entry.reason = link.reason;
    if (!link.reason.empty()) {
      entry.kind = Entry::Kind::unreadable;
      return visit_(entry);
    }
    STELE_TRY(take(64));
    if (!visited_.insert(link.object).second) {
      entry.kind = Entry::Kind::link;
      return visit_(entry);
    }
    STELE_TRY_ASSIGN(const Header header, this->header(link.object));
    STELE_TRY(attributes(header, entry));
    const bool root = stack_.empty();
    if (header.find(message::layout) != nullptr && !root) {
      auto done = dataset(header, entry);
      if (!done) return done.error().path().empty() ? std::move(done).error().path(path_) : std::move(done);
      return visit_(entry);
    }
    const Message* const symbols = header.find(message::symbols);
    const Message* const info = header.find(message::link_info);
    const bool group = symbols != nullptr || info != nullptr || header.find(message::link) != nullptr ||
                       header.find(message::group) != nullptr;
    if (root && !group) return bad("the root is not a group", link.object);
    if (!group) {
      entry.kind = Entry::Kind::unreadable;
      entry.reason = header.find(message::type) != nullptr ? "a named datatype" : "an object of an unknown kind";
      return visit_(entry);
    }
    if (stack_.size() > max_depth) {
      entry.kind = Entry::Kind::unreadable;
      entry.reason = "a group that is nested more than " + std::to_string(max_depth) + " deep";
      return visit_(entry);
    }
    STELE_TRY(visit_(entry));
    std::vector<Link> links;
    if (symbols != nullptr) {
      STELE_TRY(old_links(*symbols, links));
    } else {
      STELE_TRY(new_links(header, info, links));
    }
    sort_numbers(links);
    stack_.push_back({std::move(links), 0, path_.size()});
    return {};
  }

  Status add_link(std::vector<Link>& links, std::string_view name, std::uint64_t object, std::string reason) {
    if (name.empty() || name.find('/') != name.npos) return damaged("a link of a group has no valid name").path(path_);
    // A growing array temporarily needs three times its content.
    STELE_TRY(take(3 * sizeof(Link) + 2 * name.size() + reason.size()));
    links.push_back({std::string(name), object, std::move(reason)});
    return {};
  }

  /// Sorts the links by number if all of their names are numbers: HDF5 sorts names by bytes.
  static void sort_numbers(std::vector<Link>& links) {
    const auto number = [](const std::string& name) {
      return name.size() < 10 && (name[0] != '0' || name.size() == 1) &&
             std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
    };
    if (!std::all_of(links.begin(), links.end(), [&](const Link& link) { return number(link.name); })) return;
    std::sort(links.begin(), links.end(), [](const Link& a, const Link& b) {
      return a.name.size() != b.name.size() ? a.name.size() < b.name.size() : a.name < b.name;
    });
  }

  Status old_links(const Message& message, std::vector<Link>& links) {
    In in(message.content);
    const std::uint64_t tree = in.u64(), heap = in.u64();
    if (!in.ok()) return bad("a symbol table is incomplete", message.offset);
    Bytes buffer, names;
    STELE_TRY_ASSIGN(In head, structure(heap, 32, "HEAP", buffer));
    head.take(4);
    const std::uint64_t size = head.u64();
    head.u64();
    const std::uint64_t data = head.u64();
    STELE_TRY_ASSIGN(const View heap_bytes, read(data, size, names));
    const auto name_at = [&](std::uint64_t offset) -> std::optional<std::string_view> {
      if (offset >= heap_bytes.size()) return std::nullopt;
      In name(heap_bytes.subspan(static_cast<std::size_t>(offset)));
      const std::string_view text = name.text();
      return name.ok() ? std::optional(text) : std::nullopt;
    };
    return each_leaf(tree, 0, 8, [&](std::uint64_t node, View) -> Status {
      Bytes head_buffer, entries;
      STELE_TRY_ASSIGN(In start, structure(node, 8, "SNOD", head_buffer));
      start.take(2);
      const std::uint64_t count = start.u16();
      STELE_TRY_ASSIGN(const View bytes, read(node + 8, count * 40, entries));
      In rest(bytes);
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t name_offset = rest.u64(), object = rest.u64();
        const std::uint32_t kind = rest.u32();
        rest.u32();
        In scratch(rest.take(16));
        const auto name = name_at(name_offset);
        if (!name) return bad("the name of a link is not in its heap", node);
        if (name->size() > work_) return bad("structures of the file overlap", node);
        work_ -= name->size();
        STELE_TRY(add_link(links, *name, object, kind == 2 ? "a soft link" : ""));
      }
      return {};
    });
  }

  Status new_links(const Header& header, const Message* info, std::vector<Link>& links) {
    if (info != nullptr) {
      In in(info->content);
      in.u8();
      const unsigned flags = in.u8();
      if ((flags & 1U) != 0) in.u64();
      const std::uint64_t heap = in.u64();
      if (!in.ok()) return bad("the information about links is incomplete", info->offset);
      if (heap != undefined) {
        STELE_TRY(add_link(links, "*", undefined, "the members of a group with many links, in a fractal heap"));
      }
    }
    for (const Message& message : header.messages) {
      if (message.type != message::link) continue;
      In in(message.content);
      in.u8();
      const unsigned flags = in.u8();
      const unsigned kind = (flags & 8U) != 0 ? in.u8() : 0;
      if ((flags & 4U) != 0) in.u64();
      if ((flags & 16U) != 0) in.u8();
      const std::uint64_t length = in.number(std::size_t{1} << (flags & 3U));
      const std::string_view name = text_of(in.take(length));
      const std::uint64_t object = kind == 0 ? in.u64() : undefined;
      if (!in.ok()) return bad("a link is incomplete", message.offset);
      const char* const reason = kind == 0    ? ""
                                 : kind == 1  ? "a soft link"
                                 : kind == 64 ? "a link to another file"
                                              : "a link of an unknown kind";
      STELE_TRY(add_link(links, name, object, reason));
    }
    return {};
  }

  /// Calls `visit` with the address of each child of a B-tree's leaves, and the key before it. `key_size`: of a key.
  Status each_leaf(std::uint64_t tree, unsigned type, std::size_t key_size,
                   const std::function<Status(std::uint64_t child, View key)>& visit) {
    struct Node {
      std::uint64_t address;
      int level;  // -1: not known yet
    };
    constexpr int max_levels = 32;
    std::vector<Node> nodes{{tree, -1}};
    while (!nodes.empty()) {
      const Node node = nodes.back();
      nodes.pop_back();
      Bytes buffer, content;
      STELE_TRY_ASSIGN(In head, structure(node.address, 24, "TREE", buffer));
      const unsigned found = head.u8();
      const int level = head.u8();
      const std::uint64_t count = head.u16();
      if (found != type || level > max_levels || (node.level >= 0 && level != node.level)) {
        return bad("a node of a B-tree has the wrong type or level", node.address);
      }
      STELE_TRY_ASSIGN(const View bytes, read(node.address + 24, count * (key_size + 8), content));
      In in(bytes);
      const std::size_t first = nodes.size();
      for (std::uint64_t i = 0; i < count; ++i) {
        const View key = in.take(key_size);
        const std::uint64_t child = in.u64();
        if (level == 0) {
          STELE_TRY(visit(child, key));
        } else {
          nodes.push_back({child, level - 1});
        }
      }
      std::reverse(nodes.begin() + static_cast<std::ptrdiff_t>(first), nodes.end());
    }
    return {};
  }

  // ---- attributes

  Status attributes(const Header& header, Entry& entry) {
    for (const Message& message : header.messages) {
      if (message.type == 21) {  // attribute info
        In in(message.content);
        in.u8();
        const unsigned flags = in.u8();
        if ((flags & 1U) != 0) in.u16();
        if (in.u64() != undefined && in.ok()) entry.skipped.emplace_back("attributes in a fractal heap");
      }
      if (message.type != message::attribute) continue;
      if (message.shared) {
        entry.skipped.emplace_back("a shared attribute");
        continue;
      }
      auto read = attribute(message, entry);
      if (!read) {
        return read.error().offset() ? std::move(read).error().path(path_)
                                     : std::move(read).error().path(path_).offset(message.offset);
      }
    }
    return {};
  }

  Status attribute(const Message& message, Entry& entry) {
    In in(message.content);
    const unsigned version = in.u8(), flags = in.u8();
    const std::uint64_t name_size = in.u16(), type_size = in.u16(), space_size = in.u16();
    if (version < 1 || version > 3) return damaged("an attribute has an unknown version");
    if (version == 3) in.u8();
    const auto padded = [&](std::uint64_t size) { return version == 1 ? (size + 7) / 8 * 8 : size; };
    std::string_view name = text_of(in.take(padded(name_size)));
    name = name.substr(0, name.find('\0'));
    In type_bytes(in.take(padded(type_size))), space_bytes(in.take(padded(space_size)));
    if (!in.ok()) return damaged("an attribute is incomplete");
    STELE_TRY(take(3 * sizeof(Value) + 2 * name.size()));
    const auto skip = [&]() -> Status {
      entry.skipped.emplace_back(name);
      return {};
    };
    if ((flags & 3U) != 0 && version > 1) return skip();  // a named datatype
    STELE_TRY_ASSIGN(const Type type, parse_type(type_bytes));
    STELE_TRY_ASSIGN(const Space space, parse_space(space_bytes));
    const auto bytes = checked_product(space.count, type.size);
    if (!bytes || *bytes > in.left()) return damaged("an attribute is shorter than its elements");
    // A Value has no complex numbers.
    const bool kept = type.text || (type.dtype != DType::none && dtype_class(type.dtype) != DTypeClass::complex);
    if (space.shape.size() > 1 || !kept) return skip();
    if (memory_.left() < 4 * sizeof(Value) * space.count) return skip();
    STELE_TRY_ASSIGN(Value value, value_of(type, space, in.take(*bytes)));
    if (type.enumerated) entry.skipped.push_back(std::string(name) + " (names of its numbers)");
    entry.attributes.emplace_back(name, std::move(value));
    return {};
  }

  static std::optional<std::uint64_t> checked_product(std::uint64_t a, std::uint64_t b) {
    std::uint64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? std::nullopt : std::optional(product);
  }

  /// Returns a number or string, or a list of them.
  Result<Value> value_of(const Type& type, const Space& space, View bytes) {
    if (space.null) return Value();
    Value::List list;
    STELE_TRY(take(4 * sizeof(Value) * space.count));
    list.reserve(static_cast<std::size_t>(space.count));
    for (std::uint64_t i = 0; i < space.count; ++i) {
      STELE_TRY_ASSIGN(Value value, element(type, bytes.subspan(static_cast<std::size_t>(i * type.size), type.size)));
      list.push_back(std::move(value));
    }
    return space.shape.empty() ? std::move(list[0]) : Value(std::move(list));
  }

  Result<Value> element(const Type& type, View bytes) {
    if (type.variable) return heap_text(bytes);
    if (type.text) {
      std::string_view text = text_of(bytes);
      if (type.padding == 0) text = text.substr(0, text.find('\0'));
      const std::size_t end = text.find_last_not_of(type.padding == 2 ? ' ' : '\0');
      text = text.substr(0, end == text.npos ? 0 : end + 1);
      STELE_TRY(take(text.size()));
      return Value(text);
    }
    std::byte little[16] = {};
    const std::size_t size = std::min<std::size_t>(bytes.size(), sizeof little);
    std::copy_n(bytes.begin(), size, little);
    if (type.big_endian) std::reverse(little, little + size);
    const auto raw = load_le<std::uint64_t>(little);
    switch (type.dtype) {
      case DType::boolean:
        return Value(raw != 0);
      case DType::i8:
        return Value(static_cast<std::int8_t>(raw));
      case DType::i16:
        return Value(static_cast<std::int16_t>(raw));
      case DType::i32:
        return Value(static_cast<std::int32_t>(raw));
      case DType::i64:
        return Value(static_cast<std::int64_t>(raw));
      case DType::u8:
      case DType::u16:
      case DType::u32:
      case DType::u64:
        return Value(raw);
      default:
        break;
    }
    if (std::endian::native == std::endian::big) std::reverse(little, little + size);
    double number = 0;
    convert(type.dtype, little, DType::f64, reinterpret_cast<std::byte*>(&number), 1);
    return Value(number);
  }

  /// Reads a variable-length string from its global heap.
  Result<Value> heap_text(View reference) {
    In in(reference);
    const std::uint64_t size = in.u32(), collection = in.u64();
    const std::uint32_t index = in.u32();
    if (size == 0 || collection == 0) return Value(std::string());
    STELE_TRY_ASSIGN(const auto* objects, heap(collection));
    const auto found = objects->find(index);
    if (found == objects->end() || size > found->second.size) return bad("a text is not in its collection", collection);
    STELE_TRY(take(size));
    Bytes buffer;
    STELE_TRY_ASSIGN(const View bytes, read(found->second.offset, size, buffer));
    std::string_view text = text_of(bytes);
    if (text.ends_with('\0')) text.remove_suffix(1);  // some writers store the end
    return Value(text);
  }

  struct Range {
    std::uint64_t offset, size;
  };
  using Heap = std::unordered_map<std::uint32_t, Range>;

  Result<const Heap*> heap(std::uint64_t address) {
    const auto [at, added] = heaps_.try_emplace(address);
    if (!added) return &at->second;
    Bytes buffer;
    STELE_TRY_ASSIGN(In head, structure(address, 16, "GCOL", buffer));
    head.take(4);
    const std::uint64_t size = head.u64();
    if (size < 16 || size > source_.size() || address > source_.size() - size) {
      return bad("a collection of texts exceeds the file", address);
    }
    for (std::uint64_t offset = 16; size - offset >= 16;) {
      STELE_TRY_ASSIGN(const View bytes, read(address + offset, 16, buffer));
      In in(bytes);
      const std::uint16_t index = in.u16();
      in.take(6);
      const std::uint64_t length = in.u64();
      if (index == 0) break;  // free space
      offset += 16;
      if (length > size - offset) return bad("a text exceeds its collection", address + offset);
      STELE_TRY(take(64));
      at->second.emplace(index, Range{address + offset, length});
      offset = std::min(size, offset + (length + 7) / 8 * 8);
    }
    return &at->second;
  }

  // ---- datasets

  Status unreadable(Entry& entry, std::string reason) {
    entry.kind = Entry::Kind::unreadable;
    entry.reason = std::move(reason);
    return {};
  }

  Status dataset(const Header& header, Entry& entry) {
    const Message* const type_message = header.find(message::type);
    const Message* const space_message = header.find(message::space);
    const Message& layout_message = *header.find(message::layout);
    if (type_message == nullptr || space_message == nullptr) {
      return bad("a dataset has no datatype or no dataspace", layout_message.offset);
    }
    if (type_message->shared || space_message->shared) return unreadable(entry, "a dataset with a named datatype");
    In type_in(type_message->content), space_in(space_message->content);
    auto parsed_type = parse_type(type_in);
    if (!parsed_type) return at(std::move(parsed_type).error(), type_message->offset);
    Type type = *std::move(parsed_type);
    auto parsed_space = parse_space(space_in);
    if (!parsed_space) return at(std::move(parsed_space).error(), space_message->offset);
    const Space& space = *parsed_space;
    auto parsed_layout = parse_layout(layout_message.content);
    if (!parsed_layout) return at(std::move(parsed_layout).error(), layout_message.offset);
    Layout& layout = *parsed_layout;
    if (header.find(message::external) != nullptr) return unreadable(entry, "a dataset in other files");
    if (layout.kind == Layout::Kind::unknown) return unreadable(entry, layout.reason);
    if (space.null) return unreadable(entry, "a dataset without elements");
    const auto bytes = checked_product(space.count, type.size);
    if (!bytes) return bad("a dataset is too large", space_message->offset).expected("less than 2^64 bytes");
    if (layout.kind == Layout::Kind::compact) layout.address += layout_message.offset;
    if (layout.kind == Layout::Kind::contiguous && layout.size == undefined) layout.size = *bytes;
    const bool in_place = layout.kind != Layout::Kind::chunks && layout.address != undefined;
    if (in_place) {
      if (*bytes > layout.size) {
        return bad("a dataset is longer than its storage", layout_message.offset)
            .expected(std::to_string(*bytes) + " bytes")
            .found(std::to_string(layout.size));
      }
      if (layout.address > source_.size() || *bytes > source_.size() - layout.address) {
        return Error(Errc::truncated, "a dataset exceeds the file").offset(layout.address);
      }
    }
    entry.bytes = *bytes;
    if (in_place) {
      entry.provider = {&source_ops, keeper_->source.get(), layout.address};
      STELE_TRY(add_range(layout.address, *bytes));
    }
    if (type.text) return texts(entry, type, space, in_place);
    if (type.opaque) {
      const auto found = std::find_if(entry.attributes.begin(), entry.attributes.end(),
                                      [](const auto& attribute) { return attribute.first == dtype_attribute; });
      const std::string* const name = found != entry.attributes.end() ? found->second.as_string() : nullptr;
      const DType dtype = name != nullptr ? opaque_dtype(*name) : DType::none;
      if (dtype != DType::none && element_size(dtype) == type.size) {
        type.dtype = dtype;
        entry.attributes.erase(found);
      }
    }
    if (type.dtype == DType::none) return unreadable(entry, "a dataset of " + type.reason);
    STELE_TRY(take(64 + 3 * sizeof(Extent) * space.shape.size()));
    if (type.enumerated) entry.skipped.emplace_back("names of its numbers");
    entry.kind = Entry::Kind::tensor;
    entry.dtype = type.dtype;
    entry.big_endian = type.big_endian;
    entry.shape = space.shape;
    if (in_place) return {};
    return chunked(header, layout, layout_message.offset, type, space, entry);
  }

  /// Reads the strings of a small dataset.
  Status texts(Entry& entry, const Type& type, const Space& space, bool in_place) {
    constexpr std::uint64_t max_bytes = std::uint64_t{64} << 10;
    if (!in_place || entry.bytes > max_bytes || space.shape.size() > 1 ||
        memory_.left() < 8 * sizeof(Value) * space.count) {
      return unreadable(entry, "a dataset of text");
    }
    Bytes buffer;
    STELE_TRY_ASSIGN(const View bytes, read(entry.provider.number, entry.bytes, buffer));
    STELE_TRY_ASSIGN(entry.value, value_of(type, space, bytes));
    entry.kind = Entry::Kind::text;
    return {};
  }

  Status chunked(const Header& header, const Layout& layout, std::uint64_t offset, const Type& type, const Space& space,
                 Entry& entry) {
    const std::size_t rank = entry.shape.size();
    STELE_TRY(take(512 + 128 * rank));
    ChunkedLeaf& leaf = keeper_->leaves.emplace_back();
    leaf.source = keeper_->source;
    leaf.shape = entry.shape;
    leaf.element = type.size;
    leaf.bytes = entry.bytes;
    leaf.plain_edges = layout.plain_edges;
    if (layout.kind == Layout::Kind::chunks) {
      if (rank == 0 || layout.chunk.size() != rank + 1 || layout.chunk[rank] != type.size) {
        return bad("the chunks of a dataset have other axes than the dataset", offset);
      }
      leaf.extent.assign(layout.chunk.begin(), layout.chunk.end() - 1);
    } else {  // without storage
      if (rank == 0) leaf.shape = {1};
      leaf.extent.assign(leaf.shape.begin(), leaf.shape.end());
    }
    if (entry.bytes == 0) {
      entry.provider = {&source_ops, keeper_->source.get(), 0};
      return {};
    }
    leaf.chunk_bytes = type.size;
    for (std::size_t d = 0; d < leaf.extent.size(); ++d) {
      const std::uint64_t extent = leaf.extent[d];
      const auto product = checked_product(leaf.chunk_bytes, extent);
      if (extent == 0 || !product) return bad("a chunk has no elements, or too many", offset);
      leaf.chunk_bytes = *product;
      leaf.grid.push_back(leaf.shape[d] / extent + (leaf.shape[d] % extent != 0 ? 1 : 0));
    }
    if (const Message* filters = header.find(message::filters); filters != nullptr) {
      In in(filters->content);
      auto parsed = parse_filters(in);
      if (!parsed) return at(std::move(parsed).error(), filters->offset);
      leaf.filters = *std::move(parsed);
    }
    bool deflated = false;
    for (const Filter& filter : leaf.filters) {
      if (!has_filter(filter.id)) {
        return unreadable(entry, "a dataset with the filter " + std::to_string(filter.id));
      }
      // A second deflation would square the ratio that a hostile file reaches.
      if (filter.id == deflate_filter && deflated) return unreadable(entry, "a dataset that is deflated twice");
      deflated = deflated || filter.id == deflate_filter;
    }
    const bool larger = leaf.chunk_bytes / 4 > entry.bytes;  // as in a dataset that can grow
    if (larger && leaf.chunk_bytes > max_fill_bytes)
      return unreadable(entry, "a dataset that is far smaller than a chunk");
    const Message* const fill = header.find(message::fill);
    if (fill != nullptr) {
      STELE_TRY(fill_value(*fill, leaf));
    } else if (const Message* old = header.find(message::old_fill); old != nullptr && !old->shared) {
      In in(old->content);
      take_fill(in, leaf);
      if (!in.ok()) return bad("a fill value is incomplete", old->offset);
    }
    if (layout.kind == Layout::Kind::chunks && layout.address != undefined) {
      STELE_TRY(read_chunks(layout, offset, space, leaf, entry));
      if (entry.kind == Entry::Kind::unreadable) return {};
    }
    std::uint64_t stored = 0;
    for (const Chunk& chunk : leaf.chunks) {
      const bool plain = !leaf.filtered(chunk.number);
      if (plain ? chunk.size != leaf.chunk_bytes : amplifies(leaf.chunk_bytes, chunk.size, deflated)) {
        return bad("a chunk has another size than its elements", chunk.offset)
            .expected(std::to_string(leaf.chunk_bytes) + " bytes")
            .found(std::to_string(chunk.size));
      }
      STELE_TRY(add_range(chunk.offset, chunk.size));
      stored = add_scaled(stored, leaf.chunk_bytes, 1);
    }
    // Elements without stored bytes: a small file could declare any number of them.
    const std::uint64_t missing = entry.bytes - std::min(entry.bytes, stored);
    if (missing > max_fill_bytes - filled_) {
      return unreadable(entry, "a dataset of " + std::to_string(entry.bytes) + " bytes, most of which are not stored");
    }
    filled_ += missing;
    entry.provider = leaf.provider();
    return {};
  }

  Status fill_value(const Message& message, ChunkedLeaf& leaf) {
    In in(message.content);
    const unsigned version = in.u8();
    bool defined = false;
    if (version == 3) {
      defined = (in.u8() & 0x20U) != 0;
    } else {
      in.take(2);
      defined = in.u8() != 0;
    }
    if (message.shared || !defined) return {};
    take_fill(in, leaf);
    return in.ok() ? Status() : bad("a fill value is incomplete", message.offset);
  }

  static void take_fill(In& in, ChunkedLeaf& leaf) {
    const std::uint32_t size = in.u32();
    const View value = in.take(size);
    if (in.ok() && size == leaf.element) leaf.fill.assign(value.begin(), value.end());
  }

  Status add_chunk(ChunkedLeaf& leaf, const Chunk& chunk) {
    STELE_TRY(take(3 * sizeof(Chunk)));
    if (chunk.offset > source_.size() || chunk.size > source_.size() - chunk.offset) {
      return Error(Errc::truncated, "a chunk exceeds the file").offset(chunk.offset);
    }
    leaf.chunks.push_back(chunk);
    return {};
  }

  Status read_chunks(const Layout& layout, std::uint64_t offset, const Space& space, ChunkedLeaf& leaf, Entry& entry) {
    std::uint64_t count = 1;
    for (const std::uint64_t n : leaf.grid) count *= n;  // at most the number of elements
    if (leaf.chunk_bytes > UINT32_MAX) return bad("a chunk is too large", offset).expected("less than 2^32 bytes");
    const auto whole = static_cast<std::uint32_t>(leaf.chunk_bytes);
    switch (layout.index) {
      case Layout::Index::single:
        if (count != 1) return bad("a dataset has one chunk, but more elements", offset);
        if (!leaf.filters.empty() && layout.size > UINT32_MAX) return bad("a chunk is too large", offset);
        return add_chunk(
            leaf, {0, layout.address, leaf.filtered(0) ? static_cast<std::uint32_t>(layout.size) : whole, layout.mask});
      case Layout::Index::implicit:
      case Layout::Index::fixed: {
        STELE_TRY_ASSIGN(const Grid grid, largest_grid(space, leaf, offset));
        if (layout.index == Layout::Index::fixed) return fixed_array(layout.address, count, grid, leaf, entry);
        return implicit_chunks(layout.address, count, grid, leaf);
      }
      case Layout::Index::tree:
        break;
    }
    return chunk_tree(layout.address, leaf);
  }

  /// The chunks of a dataset at its maximum size. An implicit index or a fixed array has a place for each.
  struct Grid {
    std::vector<std::uint64_t> chunks;  // along each axis
    std::uint64_t count;
  };

  Result<Grid> largest_grid(const Space& space, const ChunkedLeaf& leaf, std::uint64_t offset) {
    Grid grid{leaf.grid, 1};
    for (std::size_t d = 0; d < grid.chunks.size(); ++d) {
      const std::uint64_t most = space.maximum.empty() ? leaf.shape[d] : space.maximum[d];
      if (most == undefined || most < leaf.shape[d]) {
        return bad("the maximum size of a dataset does not fit its index of chunks", offset);
      }
      grid.chunks[d] = most / leaf.extent[d] + (most % leaf.extent[d] != 0 ? 1 : 0);
      const auto count = checked_product(grid.count, grid.chunks[d]);
      if (!count) return bad("a dataset may grow to too many chunks", offset);
      grid.count = *count;
    }
    return grid;
  }

  /// Returns the place of a chunk of the dataset in the largest grid.
  static std::uint64_t place_of(std::uint64_t number, const ChunkedLeaf& leaf, const Grid& grid) {
    std::uint64_t place = 0, stride = 1;
    for (std::size_t d = leaf.grid.size(); d-- > 0; number /= leaf.grid[d], stride *= grid.chunks[d]) {
      place += number % leaf.grid[d] * stride;
    }
    return place;
  }

  Status implicit_chunks(std::uint64_t address, std::uint64_t count, const Grid& grid, ChunkedLeaf& leaf) {
    if (!leaf.filters.empty()) return bad("a dataset with filters has no index of its chunks", address);
    if (grid.count > source_.size() / leaf.chunk_bytes || address > source_.size()) {
      return Error(Errc::truncated, "a dataset exceeds the file").offset(address);
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t at = address + place_of(i, leaf, grid) * leaf.chunk_bytes;
      STELE_TRY(add_chunk(leaf, {i, at, static_cast<std::uint32_t>(leaf.chunk_bytes), 0}));
    }
    return {};
  }

  Status chunk_tree(std::uint64_t address, ChunkedLeaf& leaf) {
    const std::size_t rank = leaf.shape.size();
    STELE_TRY(each_leaf(address, 1, 8 * (rank + 2), [&](std::uint64_t child, View key) -> Status {
      In in(key);
      Chunk chunk;
      chunk.size = in.u32();
      chunk.mask = in.u32();
      chunk.offset = child;
      for (std::size_t d = 0; d < rank; ++d) {
        const std::uint64_t start = in.u64();
        if (start % leaf.extent[d] != 0 || start >= leaf.shape[d]) {
          // A shrunk dataset keeps the chunk that its end cuts, but no chunk after it.
          return bad("a chunk is outside its dataset", child);
        }
        chunk.number = chunk.number * leaf.grid[d] + start / leaf.extent[d];
      }
      return add_chunk(leaf, chunk);
    }));
    const auto before = [](const Chunk& a, const Chunk& b) { return a.number < b.number; };
    if (!std::is_sorted(leaf.chunks.begin(), leaf.chunks.end(), before)) {
      std::sort(leaf.chunks.begin(), leaf.chunks.end(), before);
    }
    const auto same = [](const Chunk& a, const Chunk& b) { return a.number == b.number; };
    const auto twice = std::adjacent_find(leaf.chunks.begin(), leaf.chunks.end(), same);
    return twice == leaf.chunks.end() ? Status() : bad("two chunks have the same place", twice->offset);
  }

  Status fixed_array(std::uint64_t address, std::uint64_t count, const Grid& grid, ChunkedLeaf& leaf, Entry& entry) {
    Bytes buffer;
    STELE_TRY_ASSIGN(In head, structure(address, 28, "FAHD", buffer));
    head.u8();
    const unsigned client = head.u8(), entry_size = head.u8(), page_bits = head.u8();
    const std::uint64_t entries = head.u64(), block = head.u64();
    if (client > 1 || entry_size < 8 + 5 * client || entry_size > 20 || entries != grid.count ||
        (client == 1) == leaf.filters.empty()) {
      return bad("an array of chunks does not fit its dataset", address);
    }
    if (block == undefined) return {};
    if (page_bits >= 64 || entries > std::uint64_t{1} << page_bits) {
      return unreadable(entry, "a dataset with a paged index of chunks");
    }
    STELE_TRY(structure(block, 14, "FADB", buffer));
    const auto size = checked_product(entries, entry_size);
    if (!size) return bad("an array of chunks is too long", address);
    Bytes content;
    STELE_TRY_ASSIGN(const View bytes, read(block + 14, *size, content));
    for (std::uint64_t i = 0; i < count; ++i) {
      In in(bytes.subspan(static_cast<std::size_t>(place_of(i, leaf, grid) * entry_size), entry_size));
      Chunk chunk{i, in.u64(), static_cast<std::uint32_t>(leaf.chunk_bytes), 0};
      if (client == 1) {
        const std::uint64_t stored = in.number(std::min<std::size_t>(entry_size - 12, 8));
        chunk.mask = in.u32();
        if (stored > UINT32_MAX) return bad("a chunk is too large", block);
        chunk.size = static_cast<std::uint32_t>(stored);
      }
      if (chunk.offset != undefined) STELE_TRY(add_chunk(leaf, chunk));
    }
    return {};
  }

  // ---- overlaps

  Status add_range(std::uint64_t offset, std::uint64_t size) {
    if (size == 0) return {};
    STELE_TRY(take(3 * sizeof(Range)));
    ranges_.push_back({offset, size});
    return {};
  }

  /// Checks that no byte belongs to two datasets, so that a small file cannot contain many tensors.
  Status no_overlaps() {
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.offset < b.offset; });
    for (std::size_t i = 1; i < ranges_.size(); ++i) {
      if (ranges_[i].offset - ranges_[i - 1].offset < ranges_[i - 1].size) {
        return bad("two datasets overlap", ranges_[i].offset);
      }
    }
    return {};
  }

  const Source& source_;
  const View view_;
  IndexBudget& memory_;
  std::shared_ptr<Keeper> keeper_;
  const Visit& visit_;
  std::uint64_t work_;        // bytes of metadata that may still be read
  std::uint64_t filled_ = 0;  // bytes of tensors that are not stored
  std::string path_;
  std::vector<Group> stack_;
  std::unordered_set<std::uint64_t> visited_;
  std::unordered_map<std::uint64_t, Heap> heaps_;
  std::vector<Range> ranges_;
};

}  // namespace

Status read(const SourcePtr& source, IndexBudget& memory, std::shared_ptr<const void>& keeper, const Visit& visit) {
  auto done = Walk(source, memory, keeper, visit).run();
  if (done || !done.error().file().empty()) return done;
  return std::move(done).error().file(source->name());
}

}  // namespace stele::inline v0::detail::hdf5
