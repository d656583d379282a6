// Writes a module as `.stele` into the caller's memory, without heap, exceptions, RTTI or iostream. Writes the same
// bytes as BytesRecorder (recorders/stele/write.cpp); tests compare them. Writes the index in place and walks the
// module twice, to count and to write. Instead of keeping a table of the strings already written, the writer searches
// the module for them, which takes time quadratic in the number of modules, and no memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>

#include "stele/detail/reflect.hpp"
#include "stele/detail/walk.hpp"
#include "stele/recorders/stele_reader.hpp"

namespace stele::inline v0 {
namespace detail {

/// A visited node of any kind: at most one of the pointers is set.
struct MetNode {
  const Step& at;
  NodeKind kind;
  bool conditional;
  const TypeInfo* container = nullptr;
  const TensorOps* tensor = nullptr;
  const ValueOps* value = nullptr;
  void* object = nullptr;
};

/// A visitor with one function for all kinds, called through a function pointer, so that the program contains one copy
/// of the walk.
struct ErasedVisitor {
  void* context;
  Errc (*node)(void* context, const MetNode& met);
  void (*close)(void* context);

  Errc begin(NodeKind kind, const Step& at, const TypeInfo& type, bool conditional) {
    return node(context, {at, kind, conditional, &type});
  }
  Errc end() { return close(context), Errc::none; }
  Errc tensor(const Step& at, const TensorOps& ops, void* object, bool conditional) {
    return node(context, {at, NodeKind::tensor, conditional, nullptr, &ops, nullptr, object});
  }
  Errc value(const Step& at, const ValueOps& ops, void* object, bool conditional) {
    return node(context, {at, NodeKind::value, conditional, nullptr, nullptr, &ops, object});
  }
  Errc none(const Step& at, bool conditional) { return node(context, {at, NodeKind::none, conditional}); }
  void derived(const TypeInfo&, const void*) {}
};

class SpanWriter {
 public:
  SpanWriter(const TypeInfo& type, const void* object) noexcept : type_(type), object_(object) {}

  /// Counts the parts of the file. Errors: unsupported, limit.
  format::Fault plan(std::uint64_t& total) {
    if (const format::Fault f = pass()) return f;
    all_ = now_;
    const auto padded = [](std::uint64_t n) { return (n + 7) / 8 * 8; };
    index_size_ = format::index_header_size + std::uint64_t{all_.nodes} * format::node_size +
                  std::uint64_t{all_.types} * format::type_size + std::uint64_t{all_.entries} * format::entry_size +
                  std::uint64_t{all_.extents} * 8 + padded(all_.values) + padded(all_.strings);
    const auto with_index = checked_add(all_.blocks, index_size_ + format::trailer_size);
    if (!with_index || all_.strings > 0xffffffffU) return {Errc::limit, 0};
    total = total_ = *with_index;
    return {};
  }

  /// Writes the file, after plan(), into `memory`, which must have at least that many bytes and be aligned to 8.
  format::Fault write(std::byte* memory, format::Hash hash) {
    std::memset(memory, 0, static_cast<std::size_t>(total_));
    memory_ = memory;
    hash_ = hash;
    nodes_ = memory + all_.blocks + format::index_header_size;
    types_ = nodes_ + std::size_t{all_.nodes} * format::node_size;
    entries_ = types_ + std::size_t{all_.types} * format::type_size;
    extents_ = entries_ + std::size_t{all_.entries} * format::entry_size;
    values_ = extents_ + std::size_t{all_.extents} * 8;
    strings_ = values_ + (all_.values + 7) / 8 * 8;
    if (const format::Fault f = pass()) return f;
    sort_entries();
    write_header();
    write_trailer();
    return {};
  }

 private:
  struct Counts {
    std::uint64_t blocks = format::header_size;  // the start of the next block
    std::uint64_t values = 0, strings = 0;       // numbers of bytes
    std::uint32_t nodes = 0, types = 0, entries = 0, extents = 0;
  };
  struct Text {
    std::uint32_t offset = 0, length = 0;
  };

  // ---- walks ----

  bool writing() const { return memory_ != nullptr; }

  format::Fault pass() {
    now_ = {};
    Errc e = walk({this, [](void* self, const MetNode& met) { return static_cast<SpanWriter*>(self)->node(met); },
                   [](void* self) { static_cast<SpanWriter*>(self)->close(); }});
    if (e != Errc::none) return {e, now_.nodes - 1};
    // Strings of types are stored after strings of nodes.
    named_ = typed_ = 0;
    e = walk({this, [](void* self, const MetNode& met) { return static_cast<SpanWriter*>(self)->name_type(met); },
              [](void*) {}});
    return {e, 0};
  }

  Errc walk(ErasedVisitor visitor) const { return HeaplessWalk<ErasedVisitor>(visitor).run(type_, object_); }

  Errc node(const MetNode& met) {
    const std::uint32_t number = now_.nodes++;
    const std::string_view segment = text_of(met.at.name);
    Text name;
    std::uint32_t index = no_index;
    if (met.tensor != nullptr) {
      const Text path = add_path(met.at);
      // The segment is usually the end of the path, which is already stored.
      name = ends_its_path(segment) ? Text{path.offset + path.length - static_cast<std::uint32_t>(segment.size()),
                                           static_cast<std::uint32_t>(segment.size())}
                                    : add_text(segment, number);
      if (const Errc e = tensor(met, path, number); e != Errc::none) return e;
    } else if (met.at.up != nullptr) {
      name = add_text(segment, number);
    }
    if (has_type(met)) {
      const std::uint32_t before = find({Search::type, met.container->name, met.container->version, number});
      index = before == no_index ? now_.types++ : writing() ? format::load_le<std::uint32_t>(node_at(before) + 16) : 0;
    }
    const std::uint64_t value_begin = now_.values;
    if (met.value != nullptr) {
      if (met.value->plain == nullptr) return Errc::unsupported;
      add_value(met.value->plain(met.object));
    }
    if (!writing()) return Errc::none;
    std::byte* p = node_at(number);
    const bool named = met.at.name.data != nullptr;
    p[0] = static_cast<std::byte>(met.kind);
    p[1] = static_cast<std::byte>((named ? 1U : 0U) | (met.conditional ? 2U : 0U));
    store_le(p + 4, named ? name.offset : static_cast<std::uint32_t>(met.at.name.size));
    store_le(p + 8, named ? name.length : 0U);
    // Until the end of an open container is known, this slot stores the container's parent.
    store_le(p + 12, met.container != nullptr ? open_ : number + 1);
    if (met.container != nullptr) open_ = number;
    store_le(p + 16, met.value != nullptr ? 0U : index);  // a tensor's entry is set when the entries are sorted
    store_le(p + 20, static_cast<std::uint32_t>(now_.values - value_begin));
    store_le(p + 24, met.value != nullptr ? value_begin : std::uint64_t{0});
    return Errc::none;
  }

  void close() {
    if (!writing()) return;
    std::byte* end = node_at(open_) + 12;
    open_ = format::load_le<std::uint32_t>(end);
    store_le(end, now_.nodes);
  }

  static bool has_type(const MetNode& met) {
    return met.kind == NodeKind::module && (!met.container->name.empty() || met.container->version != 0);
  }

  Errc name_type(const MetNode& met) {
    const std::uint32_t number = named_++;
    if (!has_type(met)) return Errc::none;
    const auto& [name, version] = std::pair(met.container->name, met.container->version);
    if (find({Search::type, name, version, number}) != no_index) return Errc::none;
    Text text;
    if (const std::uint32_t same = find({Search::type_name, name, 0, number}); same != no_index) {
      // Another version of a name that is already stored.
      text.length = static_cast<std::uint32_t>(name.size());
      if (writing())
        text.offset = format::load_le<std::uint32_t>(type_at(format::load_le<std::uint32_t>(node_at(same) + 16)));
    } else {
      text = add_text(name, now_.nodes);
    }
    if (writing()) {
      std::byte* p = type_at(typed_);
      store_le(p, text.offset);
      store_le(p + 4, text.length);
      store_le(p + 8, version);
    }
    ++typed_;
    return Errc::none;
  }

  /// An item to search for among the nodes before a given node.
  struct Search {
    enum What : std::uint8_t { text, type, type_name } what;
    std::string_view name;
    std::uint32_t version;
    std::uint32_t before;
    std::uint32_t at = 0;
    bool found = false;
  };

  /// Returns the first match; no_index if there is none.
  std::uint32_t find(Search search) const {
    walk({&search, [](void* s, const MetNode& met) { return look(*static_cast<Search*>(s), met); }, [](void*) {}});
    return search.found ? search.at : no_index;
  }
  static Errc look(Search& search, const MetNode& met) {
    if (search.at == search.before) return Errc::cancelled;
    if (search.what == Search::text) {
      search.found = met.at.up != nullptr && met.at.name.data != nullptr && text_of(met.at.name) == search.name &&
                     (met.tensor == nullptr || !ends_its_path(search.name));
    } else {
      search.found = has_type(met) && met.container->name == search.name &&
                     (search.what == Search::type_name || met.container->version == search.version);
    }
    if (search.found) return Errc::cancelled;
    ++search.at;
    return Errc::none;
  }

  // ---- strings ----

  static std::string_view text_of(const NodeName& name) {
    return name.data != nullptr ? std::string_view(name.data, name.size) : std::string_view();
  }
  static bool is_escaped(char c) { return c == '\\' || c == '.'; }

  /// Returns true if the unescaped segment is a suffix of its escaped path.
  static bool ends_its_path(std::string_view segment) {
    std::size_t next = segment.size();
    bool escaped = false;
    for (std::size_t i = segment.size(); i > 0; --i) {
      const char c = escaped ? '\\' : segment[--next];
      escaped = !escaped && is_escaped(c);
      if (c != segment[i - 1]) return false;
    }
    return true;
  }

  /// Writes an escaped segment before `end`, unless `end` is null; returns its length.
  static std::uint32_t put_segment(const NodeName& name, std::byte* end) {
    std::uint32_t length = 0;
    const auto put = [&](char c) {
      ++length;
      if (end != nullptr) *(end - length) = static_cast<std::byte>(c);
    };
    if (name.data == nullptr) {
      std::size_t number = name.size;
      do {
        put(static_cast<char>('0' + number % 10));
        number /= 10;
      } while (number != 0);
    } else if (name.size == 0) {
      put('e'), put('\\');
    } else {
      for (std::size_t i = name.size; i > 0; --i) {
        put(name.data[i - 1]);
        if (is_escaped(name.data[i - 1])) put('\\');
      }
    }
    return length;
  }

  static std::uint32_t put_path(const Step& leaf, std::byte* end) {
    std::uint32_t length = 0;
    for (const Step* s = &leaf; s->up != nullptr; s = s->up) {
      length += put_segment(s->name, end != nullptr ? end - length : nullptr);
      if (s->up->up == nullptr) break;
      ++length;
      if (end != nullptr) *(end - length) = std::byte{'.'};
    }
    return length;
  }

  Text grow_strings(std::uint32_t length) {
    const Text text{static_cast<std::uint32_t>(now_.strings), length};
    now_.strings += length;
    return text;
  }
  Text add_path(const Step& leaf) {
    const Text text = grow_strings(put_path(leaf, nullptr));
    if (writing()) put_path(leaf, strings_ + text.offset + text.length);
    return text;
  }
  /// Adds the string of a node or, if `number` is past the nodes, of a type.
  Text add_text(std::string_view text, std::uint32_t number) {
    if (text.empty()) return {};
    const auto length = static_cast<std::uint32_t>(text.size());
    if (const std::uint32_t before = find({Search::text, text, 0, number}); before != no_index) {
      return {writing() ? format::load_le<std::uint32_t>(node_at(before) + 4) : 0, length};
    }
    const Text fresh = grow_strings(length);
    if (writing()) std::memcpy(strings_ + fresh.offset, text.data(), length);
    return fresh;
  }

  // ---- bytes ----

  std::byte* node_at(std::uint32_t i) const { return nodes_ + std::size_t{i} * format::node_size; }
  std::byte* type_at(std::uint32_t i) const { return types_ + std::size_t{i} * format::type_size; }

  void add_value(const PlainValue& value) {
    std::byte* p = writing() ? values_ + now_.values : nullptr;
    const bool text = value.kind == ValueKind::string;
    now_.values += 1 + (value.kind == ValueKind::boolean ? 1 : text ? 4 + value.text.size() : 8);
    if (p == nullptr) return;
    p[0] = static_cast<std::byte>(value.kind);
    if (value.kind == ValueKind::boolean) {
      p[1] = static_cast<std::byte>(value.bits);
    } else if (text) {
      store_le(p + 1, static_cast<std::uint32_t>(value.text.size()));
      if (!value.text.empty()) std::memcpy(p + 5, value.text.data(), value.text.size());
    } else {
      store_le(p + 1, value.bits);
    }
  }

  Errc tensor(const MetNode& met, const Text& path, std::uint32_t number) {
    const TensorOps& ops = *met.tensor;
    if (ops.bound != nullptr) return Errc::unsupported;  // a leaf of a Record
    ops.shape(met.object, shape_);
    const auto count = shape_.element_count();
    const DType dtype = dtype_of(ops, met.object);
    const auto bytes = count ? byte_length(dtype, *count) : std::nullopt;
    const auto end = bytes ? checked_add(now_.blocks, *bytes) : std::nullopt;
    const auto next = end ? format::round_up(*end, format::block_alignment) : std::nullopt;
    if (!next) return Errc::limit;
    if (writing()) {
      std::byte* block = memory_ + now_.blocks;
      const auto size = static_cast<std::size_t>(*bytes);
      if (const Errc e = copy(met, static_cast<std::size_t>(*count), size, block); e != Errc::none) return e;
      std::byte* p = entries_ + std::size_t{now_.entries} * format::entry_size;
      store_le(p, path.offset);
      store_le(p + 4, path.length);
      store_le(p + 8, now_.blocks);
      store_le(p + 16, *bytes);
      store_le(p + 24, hash_(block, size));
      store_le(p + 32, static_cast<std::uint16_t>(dtype));
      store_le(p + 34, static_cast<std::uint16_t>(shape_.rank()));
      store_le(p + 36, now_.extents);
      store_le(p + 44, number);
      if (const std::optional<ParamId>* id = ops.id != nullptr ? ops.id(met.object) : nullptr; id != nullptr && *id) {
        store_le(p + 40, static_cast<std::uint32_t>((*id)->form) << 1);
        store_le(p + 48, (*id)->low);
        store_le(p + 56, (*id)->high);
      }
      p = extents_ + std::size_t{now_.extents} * 8;
      for (const Extent e : shape_) {
        store_le(p, e);
        p += 8;
      }
    }
    now_.blocks = *next;
    now_.extents += static_cast<std::uint32_t>(shape_.rank());
    ++now_.entries;
    return Errc::none;
  }

  static Errc copy(const MetNode& met, std::size_t count, std::size_t size, std::byte* to) {
    const TensorOps& ops = *met.tensor;
    if (size == 0) return Errc::none;
    if constexpr (STELE_HEAP != 0) {
      if (ops.locations != nullptr && ops.read == nullptr) return Errc::unsupported;  // memory of a device
    }
    if (ops.data == nullptr || ops.locations != nullptr) {
      ops.read(met.object, 0, count, to);
    } else if (const std::byte* from = ops.data(met.object)) {
      std::memcpy(to, from, size);
    } else {
      return Errc::invalid_argument;  // a view whose pointer is null
    }
    if constexpr (std::endian::native == std::endian::big) {
      const std::size_t unit = swap_unit(dtype_of(ops, met.object));
      for (std::size_t i = 0; i < size; i += unit) std::reverse(to + i, to + i + unit);
    }
    return Errc::none;
  }

  void sort_entries() {
    struct Row {
      std::byte bytes[format::entry_size];
    };
    auto* rows = reinterpret_cast<Row*>(entries_);
    const auto name = [this](const Row& row) {
      const auto* text = reinterpret_cast<const char*>(strings_) + format::load_le<std::uint32_t>(row.bytes);
      return std::string_view(text, format::load_le<std::uint32_t>(row.bytes + 4));
    };
    const auto before = [&](const Row& a, const Row& b) { return name(a) < name(b); };
    std::make_heap(rows, rows + now_.entries, before);
    std::sort_heap(rows, rows + now_.entries, before);
    for (std::uint32_t e = 0; e < now_.entries; ++e) {
      store_le(node_at(format::load_le<std::uint32_t>(rows[e].bytes + 44)) + 16, e);
    }
  }

  void write_header() const {
    std::byte* h = memory_;
    std::memcpy(h, format::magic, sizeof format::magic);
    store_le(h + 8, format::version);
    store_le(h + 12, format::block_alignment);
    store_le(h + 32, total_);
    store_le(h + 56, hash_(h, 56));
  }

  void write_trailer() const {
    std::byte* index = memory_ + all_.blocks;
    store_le(index, all_.nodes);
    store_le(index + 4, all_.entries);
    store_le(index + 8, std::uint64_t{all_.extents});
    store_le(index + 16, all_.values);
    store_le(index + 32, all_.strings);
    store_le(index + 40, all_.types);
    std::byte* p = index + index_size_;
    store_le(p, all_.blocks);
    store_le(p + 8, index_size_);
    store_le(p + 16, total_);
    store_le(p + 48, hash_(index, static_cast<std::size_t>(index_size_) + 48));
    for (std::size_t i = 0; i < sizeof format::magic; ++i) p[56 + i] = static_cast<std::byte>(format::magic[7 - i]);
  }

  const TypeInfo& type_;
  const void* object_;
  format::Hash hash_ = nullptr;
  Counts now_, all_;
  std::uint64_t index_size_ = 0, total_ = 0;
  std::byte* memory_ = nullptr;  // null while counting
  std::byte *nodes_ = nullptr, *types_ = nullptr, *entries_ = nullptr, *extents_ = nullptr, *values_ = nullptr,
            *strings_ = nullptr;
  std::uint32_t open_ = no_index;  // the innermost open container
  std::uint32_t named_ = 0, typed_ = 0;
  Shape shape_;
};

inline format::Fault write_object(const TypeInfo& type, const void* object, std::span<std::byte> memory,
                                  std::size_t& size, format::Hash hash) {
  SpanWriter writer(type, object);
  std::uint64_t total = 0;
  if (const format::Fault f = writer.plan(total)) return f;
  if (total > std::numeric_limits<std::size_t>::max()) return {Errc::limit, 0};
  size = static_cast<std::size_t>(total);
  if (size > memory.size()) return {Errc::no_space, total};
  if (hash == nullptr || reinterpret_cast<std::uintptr_t>(memory.data()) % 8 != 0) return {Errc::invalid_argument, 0};
  return writer.write(memory.data(), hash);
}

}  // namespace detail

/// Writes `module` into `memory`, which must be aligned to 8 bytes; sets `size` to the file's size in bytes. `hash` is
/// XXH3-64. Errors: no_space (`size` is the required size, even if there is no memory at all); unsupported (a map, a
/// shared pointer, a value with traits, a Record: they need a heap); limit (nested deeper than 32 levels, or more than
/// 160 fields in the modules that contain each other); kind_mismatch (an object of a class derived from its pointer's
/// class, if RTTI is available); invalid_argument (memory that is not aligned, no hash, a view with a null pointer).
/// For the errors of a field, the offset is the number of its node: 0 is the module itself; its descendants follow in
/// declaration order.
template <class M>
format::Fault write_to(const M& module, std::span<std::byte> memory, std::size_t& size, format::Hash hash) {
  return detail::write_object(*detail::module_info<M>(), &module, memory, size, hash);
}

/// Computes the number of bytes that write_to() needs for `module` in its current state.
template <class M>
format::Fault written_size(const M& module, std::size_t& size) {
  const format::Fault f = write_to(module, {}, size, nullptr);
  return f.code == Errc::no_space ? format::Fault{} : f;
}

}  // namespace stele::inline v0
