// Reads the links of groups.
#include "group.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "b_tree.hpp"
#include "fractal_heap.hpp"

namespace stele::inline v0::detail::hdf5 {
namespace {

/// Sorts the links by number if all of their names are numbers: HDF5 sorts names by bytes.
void sort_numbers(std::vector<Link>& links) {
  const auto number = [](const std::string& name) {
    return name.size() < 10 && (name[0] != '0' || name.size() == 1) &&
           std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (!std::all_of(links.begin(), links.end(), [&](const Link& link) { return number(link.name); })) return;
  std::sort(links.begin(), links.end(), [](const Link& a, const Link& b) {
    return a.name.size() != b.name.size() ? a.name.size() < b.name.size() : a.name < b.name;
  });
}

class LinkReader {
 public:
  LinkReader(File& file, std::string_view path) : file_(file), path_(path) {}

  Result<std::vector<Link>> run(const Header& header) {
    if (const Message* const symbols = header.find(message::symbols); symbols != nullptr) {
      STELE_TRY(add_symbols(*symbols));
    } else {
      STELE_TRY(add_messages(header));
    }
    sort_numbers(links_);
    return std::move(links_);
  }

 private:
  /// Adds the links of a symbol table.
  Status add_symbols(const Message& message) {
    In in(message.content);
    const std::uint64_t tree = in.u64(), heap = in.u64();
    if (!in.ok()) return bad("a symbol table is incomplete", message.offset);
    Bytes buffer, names;
    STELE_TRY_ASSIGN(In head, file_.structure(heap, 32, "HEAP", buffer));
    head.take(4);
    const std::uint64_t size = head.u64();
    head.u64();
    const std::uint64_t data = head.u64();
    STELE_TRY_ASSIGN(const View heap_bytes, file_.read(data, size, names));
    const auto name_at = [&](std::uint64_t offset) -> std::optional<std::string_view> {
      if (offset >= heap_bytes.size()) return std::nullopt;
      In name(heap_bytes.subspan(static_cast<std::size_t>(offset)));
      const std::string_view text = name.text();
      return name.ok() ? std::optional(text) : std::nullopt;
    };
    return each_leaf(file_, tree, 0, 8, [&](std::uint64_t node, View) -> Status {
      Bytes head_buffer, entries;
      STELE_TRY_ASSIGN(In start, file_.structure(node, 8, "SNOD", head_buffer));
      start.take(2);
      const std::uint64_t count = start.u16();
      STELE_TRY_ASSIGN(const View bytes, file_.read(node + 8, count * 40, entries));
      In rest(bytes);
      for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t name_offset = rest.u64(), object = rest.u64();
        const std::uint32_t kind = rest.u32();
        rest.u32();
        In scratch(rest.take(16));
        const auto name = name_at(name_offset);
        if (!name) return bad("the name of a link is not in its heap", node);
        STELE_TRY(file_.count_read(name->size(), node));
        STELE_TRY(add(*name, object, kind == 2 ? "a soft link" : ""));
      }
      return {};
    });
  }

  /// Adds the links of link messages, in the header or in a heap.
  Status add_messages(const Header& header) {
    STELE_TRY(add_links(header));
    const Message* const info = header.find(message::link_info);
    if (info == nullptr) return {};
    STELE_TRY_ASSIGN(const Dense dense, read_dense(file_, *info));
    if (!dense.reason.empty()) {
      STELE_TRY(add("*", undefined, "the members of a group, which are " + std::string(dense.reason)));
    }
    const auto first = static_cast<std::ptrdiff_t>(links_.size());
    STELE_TRY(add_links(dense.header));
    if (!dense.ordered) {
      std::sort(links_.begin() + first, links_.end(), [](const Link& a, const Link& b) { return a.name < b.name; });
    }
    return {};
  }

  Status add_links(const Header& header) {
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
      STELE_TRY(add(name, object, reason));
    }
    return {};
  }

  Status add(std::string_view name, std::uint64_t object, std::string reason) {
    if (name.empty() || name.find('/') != name.npos)
      return damaged("a link of a group has no valid name").path(std::string(path_));
    // A growing array temporarily needs three times its content.
    STELE_TRY(file_.take(3 * sizeof(Link) + 2 * name.size() + reason.size()));
    links_.push_back({std::string(name), object, std::move(reason)});
    return {};
  }

  File& file_;
  const std::string_view path_;
  std::vector<Link> links_;
};

}  // namespace

bool is_group(const Header& header) {
  constexpr std::uint16_t types[] = {message::symbols, message::link_info, message::link, message::group};
  return std::any_of(std::begin(types), std::end(types), [&](std::uint16_t t) { return header.find(t) != nullptr; });
}

Result<std::vector<Link>> read_links(File& file, const Header& header, std::string_view path) {
  return LinkReader(file, path).run(header);
}

}  // namespace stele::inline v0::detail::hdf5
