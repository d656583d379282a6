// Reads fractal heaps.
#include "fractal_heap.hpp"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <utility>
#include <vector>

#include "b_tree.hpp"

namespace stele::inline v0::detail::hdf5 {
namespace {

constexpr std::size_t link_id = 7, attribute_id = 8;  // bytes of an object's id, which HDF5 fixes
constexpr unsigned huge_objects = 1;                  // type of the B-tree of objects outside the heap's blocks

unsigned log2(std::uint64_t power) { return static_cast<unsigned>(std::bit_width(power)) - 1; }

/// An object in one of the heap's blocks.
struct Object {
  std::uint64_t offset, size;  // in the heap's address space, in which blocks follow each other
  std::size_t message;
};

/// Reads objects as contents of messages. The space of a heap is divided into rows of blocks, whose sizes double: the
/// file stores the blocks' addresses, but not their sizes.
class HeapReader {
 public:
  HeapReader(File& file, std::uint64_t address, Header& header) : file_(file), address_(address), header_(header) {}

  /// Reads the heap's header. Errors: malformed, truncated.
  Status open(std::size_t id_size) {
    constexpr std::uint64_t head_size = 146;
    Bytes buffer;
    STELE_TRY_ASSIGN(In in, file_.structure(address_, head_size, "FRHP", buffer));
    const unsigned version = in.u8(), found_id = in.u16();
    filtered_ = in.u16() != 0;
    checksums_ = (in.u8() & 2U) != 0;
    const std::uint64_t largest_object = in.u32();
    in.u64();
    huge_tree_ = in.u64();
    in.take(std::uint64_t{10} * 8);
    width_ = in.u16();
    first_size_ = in.u64();
    largest_direct_ = in.u64();
    const unsigned bits = in.u16();
    in.u16();
    root_ = in.u64();
    root_rows_ = in.u16();
    constexpr unsigned max_bits = 63;  // HDF5 uses 32 and 40
    if (version != 0 || found_id != id_size || !std::has_single_bit(width_) || !std::has_single_bit(first_size_) ||
        !std::has_single_bit(largest_direct_) || largest_direct_ < first_size_ || largest_object == 0 ||
        bits > max_bits || log2(width_) + log2(first_size_) > bits || log2(largest_direct_) > bits ||
        root_rows_ > rows_of(std::uint64_t{1} << bits)) {
      return bad("a heap has an unknown version, or sizes that do not fit", address_);
    }
    offset_bytes_ = (bits + 7) / 8;
    length_bytes_ = std::min(bytes_for(largest_direct_), bytes_for(largest_object));
    return {};
  }

  bool filtered() const { return filtered_; }

  /// Notes that the message with this number is the object with this id.
  Status add(View id, std::size_t message) {
    In in(id);
    const unsigned kind = in.u8() >> 4;  // of version 0
    if (kind == 1) {
      huge_.emplace_back(in.number(id.size() - 1), message);
      return {};
    }
    const Object object{in.number(offset_bytes_), in.number(length_bytes_), message};
    if (kind != 0 || !in.ok()) return bad("the id of an object of a heap is unknown", address_);
    objects_.push_back(object);
    return {};
  }

  /// Reads the objects that were added. Errors: malformed, truncated, limit.
  Status read() {
    STELE_TRY(read_huge());
    std::sort(objects_.begin(), objects_.end(), [](const Object& a, const Object& b) { return a.offset < b.offset; });
    for (std::size_t i = 1; i < objects_.size(); ++i) {
      if (objects_[i].offset - objects_[i - 1].offset < objects_[i - 1].size) {
        return bad("two objects of a heap overlap", address_);
      }
    }
    if (objects_.empty()) return {};
    STELE_TRY(root_rows_ == 0 ? direct(root_, 0, first_size_) : indirect(root_, 0, root_rows_));
    return next_ == objects_.size() ? Status() : bad("an object is outside its heap", address_);
  }

 private:
  /// Returns the number of rows of an indirect block for this many bytes of the heap.
  unsigned rows_of(std::uint64_t size) const {
    const unsigned first = log2(width_) + log2(first_size_);
    return log2(size) < first ? 0 : log2(size) - first + 1;
  }
  std::uint64_t block_size(unsigned row) const { return first_size_ << (row == 0 ? 0 : row - 1); }
  bool is_next_before(std::uint64_t end) const { return next_ < objects_.size() && objects_[next_].offset < end; }

  /// Reads a block of the heap; the result is the part after the block's header.
  Result<In> block(std::uint64_t at, std::uint64_t size, std::string_view letters, std::uint64_t start, Bytes& buffer) {
    if (at == undefined) return bad("an object is in a block that is not stored", address_);
    STELE_TRY_ASSIGN(In in, file_.structure(at, size, letters, buffer));
    const unsigned version = in.u8();
    const std::uint64_t heap = in.u64(), offset = in.number(offset_bytes_);
    if (!in.ok() || version != 0 || heap != address_ || offset != start) {
      return bad("a block belongs to another place of a heap", at);
    }
    return in;
  }

  Status direct(std::uint64_t at, std::uint64_t start, std::uint64_t size) {
    STELE_TRY_ASSIGN(In in, block(at, size, "FHDB", start, header_.blocks.emplace_back()));
    if (checksums_) in.u32();
    const std::uint64_t head = size - in.left();
    const View data = in.take(in.left());
    for (; is_next_before(start + size); ++next_) {
      const Object& object = objects_[next_];
      const std::uint64_t offset = object.offset - start;
      if (!in.ok() || offset < head || object.size > size - offset) return bad("an object exceeds its block", at);
      Message& message = header_.messages[object.message];
      message.offset = at + offset;
      message.content = data.subspan(static_cast<std::size_t>(offset - head), static_cast<std::size_t>(object.size));
    }
    return {};
  }

  Status indirect(std::uint64_t at, std::uint64_t start, unsigned rows) {
    if (rows == 0) return bad("a block of a heap has no rows", at);
    Bytes buffer;
    const std::uint64_t size = 4 + 1 + 8 + offset_bytes_ + std::uint64_t{8} * rows * width_ + 4;
    STELE_TRY_ASSIGN(In in, block(at, size, "FHIB", start, buffer));
    for (unsigned row = 0; row < rows; ++row) {
      const std::uint64_t bytes = block_size(row);
      for (std::uint64_t i = 0; i < width_; ++i, start += bytes) {
        const std::uint64_t child = in.u64();
        if (!is_next_before(start + bytes)) continue;
        // Has fewer rows than this block, so the nesting ends.
        STELE_TRY(bytes <= largest_direct_ ? direct(child, start, bytes) : indirect(child, start, rows_of(bytes)));
      }
    }
    return {};
  }

  /// Reads objects that are larger than the heap's blocks: each is in one place of the file.
  Status read_huge() {
    if (huge_.empty()) return {};
    std::unordered_map<std::uint64_t, Range> places;
    constexpr std::size_t record = 24;
    STELE_TRY(each_record(file_, huge_tree_, huge_objects, record, [&](View bytes) -> Status {
      STELE_TRY(file_.take(64));
      In in(bytes);
      const Range place{in.u64(), in.u64()};
      places.emplace(in.u64(), place);
      return {};
    }));
    for (const auto& [key, number] : huge_) {
      const auto place = places.find(key);
      if (place == places.end()) return bad("a large object of a heap is not stored", address_);
      Message& message = header_.messages[number];
      message.offset = place->second.offset;
      STELE_TRY_ASSIGN(message.content, file_.read(message.offset, place->second.size, header_.blocks.emplace_back()));
    }
    return {};
  }

  File& file_;
  const std::uint64_t address_;
  Header& header_;
  bool filtered_ = false, checksums_ = false;
  std::uint64_t huge_tree_ = undefined, root_ = undefined;
  std::uint64_t width_ = 1, first_size_ = 1, largest_direct_ = 1;
  unsigned root_rows_ = 0;
  std::size_t offset_bytes_ = 0, length_bytes_ = 0;
  std::vector<Object> objects_;
  std::size_t next_ = 0;                                     // the first object that has not been read
  std::vector<std::pair<std::uint64_t, std::size_t>> huge_;  // keys and messages
};

}  // namespace

Result<Dense> read_dense(File& file, const Message& info) {
  const bool links = info.type == message::link_info;
  const std::size_t id_size = links ? link_id : attribute_id;
  In in(info.content);
  in.u8();
  const unsigned flags = in.u8();
  if ((flags & 1U) != 0) in.take(links ? 8 : 2);
  const std::uint64_t heap = in.u64(), names = in.u64();
  Dense out;
  out.ordered = (flags & 2U) != 0;
  const std::uint64_t tree = out.ordered ? in.u64() : names;
  if (!in.ok()) return bad("the information about links or attributes is incomplete", info.offset);
  if (heap == undefined) return out;
  HeapReader reader(file, heap, out.header);
  STELE_TRY(reader.open(id_size));
  if (reader.filtered()) {
    out.reason = "in a heap with filters";
    return out;
  }
  // Records of links: {order or hash of the name, id}, of attributes: {id, flags, order, [hash]}.
  const std::size_t before = !links ? 0 : out.ordered ? 8 : 4;
  const std::size_t size = links ? before + id_size : id_size + 1 + 4 + (out.ordered ? 0 : 4);
  const unsigned type = (links ? 5 : 8) + (out.ordered ? 1 : 0);
  STELE_TRY(each_record(file, tree, type, size, [&](View record) -> Status {
    STELE_TRY(file.take(3 * (sizeof(Message) + sizeof(Object))));
    const View id = record.subspan(before, id_size);
    const bool shared = !links && (std::to_integer<unsigned>(record[id_size]) & 2U) != 0;
    out.header.messages.push_back({links ? message::link : message::attribute, shared, heap, {}});
    // A shared message is in another heap.
    return shared ? Status() : reader.add(id, out.header.messages.size() - 1);
  }));
  STELE_TRY(reader.read());
  return out;
}

}  // namespace stele::inline v0::detail::hdf5
