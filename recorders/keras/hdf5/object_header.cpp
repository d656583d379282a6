// Reads object headers.
#include "object_header.hpp"

namespace stele::inline v0::detail::hdf5 {
namespace {

Status add_message(Header& header, std::uint16_t type, unsigned flags, std::uint64_t offset, View content) {
  constexpr std::size_t max_messages = 0xffff;
  if (type == 0) return {};
  if (header.messages.size() == max_messages) return bad("an object has too many messages", offset);
  header.messages.push_back({type, (flags & 2U) != 0, offset, content});
  return {};
}

}  // namespace

Result<Header> read_header(File& file, std::uint64_t address) {
  Header out;
  Bytes head;
  STELE_TRY_ASSIGN(const View first, file.read(address, 16, head));
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
    STELE_TRY_ASSIGN(const View length, file.read(address + skipped, width, more));
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
      STELE_TRY(file.structure(block.offset, 4, "OCHK", letters));
      block = {block.offset + 4, block.size - 8};
    }
    STELE_TRY_ASSIGN(const View bytes, file.read(block.offset, block.size, out.blocks.emplace_back()));
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

}  // namespace stele::inline v0::detail::hdf5
