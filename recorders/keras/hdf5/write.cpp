// Writes the layout that is h5py's default: version 0 of the superblock, version 1 of object headers, groups with
// symbol tables, contiguous datasets, variable-length strings in global heaps.
#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "hdf5.hpp"
#include "messages.hpp"

namespace stele::inline v0::detail::hdf5 {
namespace {

constexpr std::size_t leaf_k = 4, internal_k = 16;  // HDF5's defaults: half the entries of a node
constexpr std::uint64_t alignment = 64;             // alignment of a tensor's bytes
constexpr std::size_t max_message = 65528;          // bytes; a multiple of 8 below 2^16
constexpr std::size_t min_collection = 4096, usual_collection = std::size_t{64} << 10, max_texts = 4000;

void put(std::string& to, std::uint64_t number, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) to.push_back(static_cast<char>(i < 8 ? number >> 8 * i & 0xff : 0));
}
void pad(std::string& to, std::size_t multiple = 8) { to.resize((to.size() + multiple - 1) / multiple * multiple); }
void set(std::string& in, std::size_t at, std::uint64_t number) {
  for (std::size_t i = 0; i < 8; ++i) in[at + i] = static_cast<char>(number >> 8 * i & 0xff);
}

std::string datatype(unsigned kind, std::uint32_t flags, std::uint64_t size) {
  std::string out;
  put(out, 0x10U | kind, 1);  // version 1
  put(out, flags, 3);
  put(out, size, 4);
  return out;
}
std::string fixed_type(std::size_t size, bool is_signed) {
  std::string out = datatype(0, is_signed ? 8 : 0, size);
  put(out, 0, 2);
  put(out, 8 * size, 2);
  return out;
}
std::string float_type(std::size_t size, unsigned exponent) {
  const std::size_t bits = 8 * size, mantissa = bits - 1 - exponent;
  std::string out = datatype(1, static_cast<std::uint32_t>((bits - 1) << 8 | 0x20), size);
  put(out, 0, 2);
  put(out, bits, 2);
  put(out, mantissa, 1);
  put(out, exponent, 1);
  put(out, 0, 1);
  put(out, mantissa, 1);
  put(out, (std::uint64_t{1} << (exponent - 1)) - 1, 4);
  return out;
}
std::string complex_type(std::size_t size, unsigned exponent) {
  std::string out = datatype(6, 2, 2 * size);
  for (unsigned i = 0; i < 2; ++i) {
    out += i == 0 ? 'r' : 'i';
    put(out, 0, 7);
    put(out, i * size, 4);
    put(out, 0, 28);  // no dimensions
    out += float_type(size, exponent);
  }
  return out;
}
/// An enumeration as h5py writes NumPy's bool.
std::string boolean_type() {
  std::string out = datatype(8, 2, 1) + fixed_type(1, true);
  out += std::string("FALSE\0\0\0TRUE\0\0\0\0", 16);
  put(out, 0, 1);
  put(out, 1, 1);
  return out;
}
/// The type of variable-length strings in UTF-8.
std::string text_type() { return datatype(9, 0x101, 16) + fixed_type(1, false); }

/// Returns an empty string for a dtype without a type in HDF5.
std::string type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return float_type(8, 11);
    case DType::f32:
      return float_type(4, 8);
    case DType::f16:
      return float_type(2, 5);
    case DType::i64:
      return fixed_type(8, true);
    case DType::i32:
      return fixed_type(4, true);
    case DType::i16:
      return fixed_type(2, true);
    case DType::i8:
      return fixed_type(1, true);
    case DType::u64:
      return fixed_type(8, false);
    case DType::u32:
      return fixed_type(4, false);
    case DType::u16:
      return fixed_type(2, false);
    case DType::u8:
      return fixed_type(1, false);
    case DType::boolean:
      return boolean_type();
    case DType::c64:
      return complex_type(4, 8);
    case DType::c128:
      return complex_type(8, 11);
    default:
      return {};
  }
}

std::string_view opaque_name(DType dtype) {
  for (const std::string_view name :
       {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"}) {
    if (opaque_dtype(name) == dtype) return name;
  }
  return {};
}

std::string space(std::span<const Extent> shape) {
  std::string out;
  put(out, 1, 1);
  put(out, shape.size(), 1);
  put(out, 0, 6);
  for (const Extent extent : shape) put(out, extent, 8);
  return out;
}
/// A dataspace without elements.
std::string null_space() { return std::string("\2\0\0\2", 4); }

struct Attribute {
  std::string name, type, space, data;
  std::vector<std::string> texts;  // variable-length strings; the data are references to them
};

bool is_text(std::string_view text) { return text.find('\0') == text.npos; }

/// Returns nullopt for a value that an attribute cannot hold.
std::optional<Attribute> attribute_of(std::string_view name, const Value& value) {
  Attribute out{std::string(name), {}, {}, {}, {}};
  const Value* first = &value;
  std::span<const Value> elements(&value, 1);
  std::vector<Extent> shape;
  if (const auto* list = value.as_list()) {
    shape.push_back(list->size());
    elements = *list;
    first = list->empty() ? nullptr : list->data();
  }
  out.space = space(shape);
  if (first == nullptr) {
    out.type = float_type(8, 11);
    return out;
  }
  for (const Value& element : elements) {
    if (element.kind() != first->kind()) return std::nullopt;
    if (const auto* b = element.as_bool()) {
      put(out.data, *b ? 1 : 0, 1);
    } else if (const auto* i = element.as_i64()) {
      put(out.data, static_cast<std::uint64_t>(*i), 8);
    } else if (const auto* u = element.as_u64()) {
      put(out.data, *u, 8);
    } else if (const auto* f = element.as_f64()) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, f, sizeof bits);
      put(out.data, bits, 8);
    } else if (const auto* text = element.as_string()) {
      if (!is_text(*text) || text->size() > INT32_MAX) return std::nullopt;
      out.texts.push_back(*text);
    } else if (!element.is_null() || !shape.empty()) {
      return std::nullopt;
    }
  }
  switch (first->kind()) {
    case Value::Kind::boolean:
      out.type = boolean_type();
      break;
    case Value::Kind::i64:
      out.type = fixed_type(8, true);
      break;
    case Value::Kind::u64:
      out.type = fixed_type(8, false);
      break;
    case Value::Kind::f64:
      out.type = float_type(8, 11);
      break;
    case Value::Kind::string:
      out.type = text_type();
      break;
    default:
      out.type = float_type(4, 8), out.space = null_space();
      break;
  }
  if (out.data.size() + 16 * out.texts.size() + out.name.size() + 512 > max_message) return std::nullopt;
  return out;
}

}  // namespace

class Plan::Impl {
 public:
  struct Node {
    std::map<std::string, std::size_t, std::less<>> children{};
    std::vector<Attribute> attributes{};
    bool dataset = false;
    std::size_t tensor = 0;
    std::string type{};
    std::vector<Extent> shape{};
    std::uint64_t bytes = 0;
  };
  std::vector<Node> nodes{1};
  std::vector<std::uint64_t> offsets{};  // offsets of the tensors, relative to the end of the head until finish()
  std::set<std::pair<std::size_t, std::string>> attributes{};  // nodes and names
  std::string head;
  std::uint64_t size = 0;

  /// Returns the node with that path, which may be a dataset if `last`; creates groups. Errors: not_representable.
  Result<std::size_t> node(std::span<const std::string> path) {
    const auto refuse = [](const char* why) {
      return Error(Errc::not_representable, "HDF5 cannot store the name").found(why);
    };
    if (path.size() > max_depth) return refuse("a path of too many names");
    for (const std::string& name : path) {
      if (name.empty() || name == "." || name.find('/') != name.npos || !is_text(name)) {
        return refuse("an empty name, a dot, or a name with a slash or a zero byte");
      }
    }
    std::size_t at = 0;
    for (const std::string& name : path) {
      if (nodes[at].dataset) return refuse("a name below a tensor");
      const auto [child, added] = nodes[at].children.try_emplace(name, nodes.size());
      const std::size_t next = child->second;
      if (added) nodes.emplace_back();
      at = next;
    }
    return at;
  }

  void write() {
    head.assign(signature);
    put(head, 0, 5);  // versions
    put(head, 8, 1);
    put(head, 8, 1);
    put(head, 0, 1);
    put(head, leaf_k, 2);
    put(head, internal_k, 2);
    put(head, 0, 4);
    put(head, 0, 8);  // base
    put(head, undefined, 8);
    const std::size_t end = head.size();
    put(head, 0, 8);
    put(head, undefined, 8);
    const std::size_t root = head.size() + 8;
    put(head, 0, 40);  // the root's symbol table entry
    write_texts();
    const Written written = write_node(0);
    set(head, root, written.header);
    head[root + 8] = 1;  // the tree and the heap are in the entry, too
    set(head, root + 16, written.tree);
    set(head, root + 24, written.heap);
    pad(head, alignment);
    for (const Patch& patch : patches_) set(head, patch.at, head.size() + offsets[patch.tensor]);
    for (std::uint64_t& offset : offsets) offset += head.size();
    size += head.size();
    set(head, end, size);
  }

 private:
  struct Written {
    std::uint64_t header = 0, tree = undefined, heap = undefined;
  };
  struct Patch {
    std::size_t at, tensor;
  };

  /// Writes the strings of all attributes to global heaps, and references to them into the attributes.
  void write_texts() {
    struct Reference {
      Attribute* attribute;
      std::size_t index, size;
    };
    std::vector<Reference> references;
    std::string content;
    const auto flush = [&] {
      if (references.empty()) return;
      const std::size_t total = std::max(16 + content.size(), min_collection), free = total - 16 - content.size();
      if (free >= 16) {  // an entry for the free space, if an entry fits
        put(content, 0, 8);
        put(content, free, 8);
      }
      content.resize(total - 16);
      const std::size_t address = head.size();
      head += "GCOL";
      put(head, 1, 4);
      put(head, total, 8);
      head += content;
      for (const Reference& reference : references) {
        put(reference.attribute->data, reference.size, 4);
        put(reference.attribute->data, address, 8);
        put(reference.attribute->data, reference.index, 4);
      }
      references.clear();
      content.clear();
    };
    for (Node& node : nodes) {
      for (Attribute& attribute : node.attributes) {
        for (const std::string& text : attribute.texts) {
          references.push_back({&attribute, references.size() + 1, text.size()});
          put(content, references.size(), 2);
          put(content, 0, 6);
          put(content, text.size(), 8);
          content += text;
          pad(content);
          if (content.size() > usual_collection || references.size() == max_texts) flush();
        }
      }
    }
    flush();
  }

  static void message(std::string& to, unsigned type, std::string content) {
    pad(content);
    put(to, type, 2);
    put(to, content.size(), 2);
    put(to, 0, 4);
    to += content;
  }

  std::uint64_t write_header(const Node& node, std::string messages, std::size_t count, const std::size_t* address_at,
                             std::size_t tensor) {
    for (const Attribute& attribute : node.attributes) {
      std::string content;
      put(content, 3, 1);
      put(content, 0, 1);
      put(content, attribute.name.size() + 1, 2);
      put(content, attribute.type.size(), 2);
      put(content, attribute.space.size(), 2);
      put(content, 1, 1);  // UTF-8
      content += attribute.name;
      content += '\0';
      content += attribute.type + attribute.space + attribute.data;
      message(messages, 12, std::move(content));
      ++count;
    }
    pad(head);
    const std::uint64_t at = head.size();
    put(head, 1, 2);
    put(head, count, 2);
    put(head, 1, 4);
    put(head, messages.size(), 8);
    if (address_at != nullptr) patches_.push_back({head.size() + *address_at, tensor});
    head += messages;
    return at;
  }

  Written write_node(std::size_t number) {
    const Node& node = nodes[number];
    if (node.dataset) {
      std::string messages, fill, layout;
      message(messages, 1, space(node.shape));
      message(messages, 3, node.type);
      put(fill, 0x01020202, 4);  // version 2; allocated late, written if set; the default value
      put(fill, 0, 4);
      message(messages, 5, std::move(fill));
      put(layout, 0x0103, 2);  // version 3, contiguous
      put(layout, undefined, 8);
      put(layout, node.bytes, 8);
      const std::size_t address_at = messages.size() + 8 + 2;
      message(messages, 8, std::move(layout));
      return {.header =
                  write_header(node, std::move(messages), 4, node.bytes != 0 ? &address_at : nullptr, node.tensor)};
    }
    struct Member {
      std::size_t name;
      Written written;
    };
    std::vector<Member> members;
    std::string names(8, '\0');
    for (const auto& [name, child] : node.children) {  // sorted by bytes, as readers search
      members.push_back({names.size(), write_node(child)});
      names += name;
      names += '\0';
      pad(names);
    }
    pad(head);
    Written out;
    out.heap = head.size();
    head += "HEAP";
    put(head, 0, 4);
    put(head, names.size(), 8);
    put(head, 1, 8);  // no free space
    put(head, head.size() + 8, 8);
    head += names;
    struct Child {
      std::uint64_t address;
      std::size_t last;  // the greatest name
    };
    std::vector<Child> children;
    for (std::size_t i = 0; i < members.size(); i += 2 * leaf_k) {
      const std::size_t n = std::min(2 * leaf_k, members.size() - i);
      children.push_back({head.size(), members[i + n - 1].name});
      const std::size_t begin = head.size();
      head += "SNOD";
      put(head, 1, 2);
      put(head, n, 2);
      for (std::size_t k = i; k < i + n; ++k) {
        const Written& member = members[k].written;
        const bool group = member.tree != undefined;
        put(head, members[k].name, 8);
        put(head, member.header, 8);
        put(head, group ? 1 : 0, 8);
        put(head, group ? member.tree : 0, 8);
        put(head, group ? member.heap : 0, 8);
      }
      head.resize(begin + 8 + 2 * leaf_k * 40);
    }
    for (unsigned level = 0; level == 0 || children.size() > 1; ++level) {
      constexpr std::size_t node_size = 24 + 8 * (4 * internal_k + 1);
      std::vector<Child> parents;
      const std::size_t count = (children.size() + 2 * internal_k - 1) / (2 * internal_k);
      std::size_t before = 0;  // the greatest name before the node
      for (std::size_t i = 0; i < std::max<std::size_t>(count, 1); ++i) {
        const std::size_t begin = head.size(), first = i * 2 * internal_k;
        const std::size_t n = std::min(2 * internal_k, children.size() - first);
        head += "TREE";
        put(head, 0, 1);
        put(head, level, 1);
        put(head, n, 2);
        put(head, i == 0 ? undefined : begin - node_size, 8);
        put(head, i + 1 < count ? begin + node_size : undefined, 8);
        put(head, before, 8);
        for (std::size_t k = first; k < first + n; ++k) {
          put(head, children[k].address, 8);
          put(head, before = children[k].last, 8);
        }
        head.resize(begin + node_size);
        parents.push_back({begin, before});
      }
      children = std::move(parents);
      if (children.size() == 1) break;
    }
    out.tree = children[0].address;
    std::string messages, symbols;
    put(symbols, out.tree, 8);
    put(symbols, out.heap, 8);
    message(messages, 17, std::move(symbols));
    out.header = write_header(node, std::move(messages), 1, nullptr, 0);
    return out;
  }

  std::vector<Patch> patches_;
};

Plan::Plan() : impl_(std::make_unique<Impl>()) {}
Plan::~Plan() = default;

Status Plan::add(std::span<const std::string> path, DType dtype, std::span<const Extent> shape, std::uint64_t bytes) {
  STELE_TRY_ASSIGN(const std::size_t at, impl_->node(path));
  Impl::Node& node = impl_->nodes[at];
  if (at == 0 || node.dataset || !node.children.empty()) {
    return Error(Errc::not_representable, "HDF5 cannot store the name").found("a tensor whose name is that of a group");
  }
  node.dataset = true;
  node.tensor = impl_->offsets.size();
  node.type = type_of(dtype);
  if (node.type.empty()) {
    const std::string_view name = opaque_name(dtype);
    if (name.empty()) return Error(Errc::not_representable, "HDF5 has no such elements").found(stele::name(dtype));
    node.type = datatype(5, 0, element_size(dtype));
    node.attributes.push_back(*attribute_of(dtype_attribute, Value(name)));
    impl_->attributes.emplace(at, dtype_attribute);
  }
  node.shape.assign(shape.begin(), shape.end());
  node.bytes = bytes;
  impl_->offsets.push_back(impl_->size);
  impl_->size += (bytes + alignment - 1) / alignment * alignment;
  return {};
}

bool Plan::attribute(std::span<const std::string> path, std::string_view name, const Value& value) {
  if (name.empty() || name.size() > 1024 || !is_text(name)) return false;
  auto made = attribute_of(name, value);
  if (!made) return false;
  const auto at = impl_->node(path);
  if (!at) return false;
  auto& attributes = impl_->nodes[*at].attributes;
  constexpr std::size_t max_attributes = 60'000;  // a header counts its messages in 16 bits
  if (attributes.size() == max_attributes || !impl_->attributes.emplace(*at, name).second) return false;
  attributes.push_back(*std::move(made));
  return true;
}

void Plan::finish() { impl_->write(); }
std::span<const std::byte> Plan::head() const noexcept { return std::as_bytes(std::span(impl_->head)); }
std::uint64_t Plan::offset(std::size_t tensor) const noexcept { return impl_->offsets[tensor]; }
std::uint64_t Plan::size() const noexcept { return impl_->size; }

bool holds(DType dtype) noexcept { return !type_of(dtype).empty() || !opaque_name(dtype).empty(); }

}  // namespace stele::inline v0::detail::hdf5
