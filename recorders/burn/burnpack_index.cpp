// Reads Burnpack's description of the tensors (CBOR).
#include <algorithm>

#include "burnpack.hpp"
#include "cbor.hpp"
#include "snapshot/data.hpp"

namespace stele::inline v0::detail::burn {
namespace {

class DescriptionReader {
 public:
  DescriptionReader(std::span<const std::byte> description, std::uint64_t& memory)
      : in_(description, burnpack_header), memory_(memory) {}

  Result<PackIndex> run() {
    unsigned seen = 0;
    each([&](std::string_view key) {
      if (key == "tensors") {
        once(seen, 1);
        each([&](std::string_view name) {
          blamed_ = name;
          read_tensor(name);
          if (in_.ok()) blamed_ = {};
        });
      } else if (key == "metadata") {
        once(seen, 2);
        each([&](std::string_view name) {
          std::string_view text;
          if (!in_.read_text(text) || !spend(200 + name.size() + text.size())) return;
          if (!index_.metadata.emplace(name, text).second) in_.fail(Errc::duplicate, "a metadata key occurs twice");
        });
      } else if (key == "scalars") {
        once(seen, 4);
        each([&](std::string_view name) {
          blamed_ = name;
          read_scalar(name);
          if (in_.ok()) blamed_ = {};
        });
      } else {
        index_.skipped.add(key);
        in_.skip();  // Burn ignores unknown keys
      }
    });
    if (in_.ok() && (seen & 1) == 0) in_.fail(Errc::malformed, "the description has no key tensors");
    if (!in_.finish()) {
      Error error = in_.status().error();
      return blamed_.empty() ? error : std::move(error).path(std::string(blamed_));
    }
    return std::move(index_);
  }

 private:
  /// Visits each key of a map.
  template <class F>
  void each(F visit) {
    std::uint64_t entries = 0;
    std::string_view key;
    in_.begin_map(entries);
    while (entries-- != 0 && in_.read_text(key)) visit(key);
  }

  void once(unsigned& seen, unsigned bit) {
    if ((seen & bit) != 0) in_.fail(Errc::duplicate, "a key of the description occurs twice");
    seen |= bit;
  }

  /// Counts memory that this reader and the Snapshot take, against the bound of Format::open.
  bool spend(std::uint64_t bytes) {
    if (bytes > memory_)
      return in_.fail(Errc::limit, "the names, dimensions and strings take too much memory for a file of this size");
    memory_ -= bytes;
    return true;
  }

  void read_tensor(std::string_view name) {
    constexpr std::uint64_t per_entry = sizeof(PackIndex::Entry) + sizeof(Node) + sizeof(LeafData) +
                                        2 * sizeof(std::uint64_t) + 6 * sizeof(std::uint32_t);
    if (!spend(per_entry)) return;
    PackIndex::Entry& entry = index_.entries.emplace_back();
    entry.name = name;
    unsigned seen = 0;
    each([&](std::string_view key) {
      std::uint64_t n = 0;
      if (key == "dtype") {
        once(seen, 1);
        Value spelled;
        const std::uint64_t before = memory_;
        if (!in_.read(spelled, memory_)) return;
        auto dtype = read_dtype(spelled);
        if (!dtype) return static_cast<void>(in_.fail(std::move(dtype).error()));
        if (dtype->opaque && burnpack_scheme(spelled) == nullptr)
          in_.fail(Errc::malformed, "the dtype QFloat has no scheme");
        entry.dtype = *std::move(dtype);
        if (entry.dtype.note.is_null()) memory_ = before;
      } else if (key == "shape") {
        once(seen, 2);
        if (!in_.begin_list(n)) return;
        if (n > 0xffff) return static_cast<void>(in_.fail(Errc::limit, "the tensor has more than 65535 dimensions"));
        if (!spend(n * 4 * sizeof(Extent))) return;
        entry.extents = index_.extents.size();
        entry.rank = static_cast<std::size_t>(n);
        for (std::uint64_t extent = 0; n != 0 && in_.read_u64(extent); --n) index_.extents.push_back(extent);
      } else if (key == "data_offsets") {
        once(seen, 4);
        if (in_.begin_list(n) && n != 2) in_.fail(Errc::malformed, "data_offsets does not have two elements");
        static_cast<void>(in_.read_u64(entry.begin) && in_.read_u64(entry.end));
      } else if (key == "param_id") {
        once(seen, 8);
        if (in_.peek() == cbor::Kind::null) return static_cast<void>(in_.read_null());
        if (in_.read_u64(n) && spend(3 * sizeof(LeafExtra))) entry.id = ParamId::from_u64(n);
      } else if (key == burnpack_uuid) {
        once(seen, 16);
        std::string_view text;
        if (!in_.read_text(text) || !spend(3 * sizeof(LeafExtra))) return;
        entry.id = parse_id(text);
        if (!entry.id || entry.id->form != ParamId::Form::uuid) in_.fail(Errc::malformed, "param_uuid is not a UUID");
      } else {
        index_.skipped.add("tensors." + std::string(key));
        in_.skip();
      }
    });
    if (!entry.dtype.note.is_null()) spend(400 + (entry.dtype.opaque ? entry.rank * sizeof(Value) : 0));
    if (in_.ok() && (seen & 7) != 7) in_.fail(Errc::malformed, "the tensor lacks dtype, shape or data_offsets");
    if (in_.ok() && (seen & 24) == 24) in_.fail(Errc::malformed, "the tensor has both param_id and param_uuid");
  }

  void read_scalar(std::string_view name) {
    if (!spend(3 * (sizeof(PackIndex::Scalar) + sizeof(Value)) + sizeof(Node) + 6 * sizeof(std::uint32_t))) return;
    std::uint64_t one = 0;
    std::string_view kind;
    Value value;
    if (in_.begin_map(one) && one != 1) in_.fail(Errc::malformed, "the scalar is not a map with one entry");
    if (!in_.read_text(kind)) return;
    if (kind == "Int") {
      std::int64_t i = 0;
      if (in_.read_i64(i)) value = Value(i);
    } else if (kind == "UInt") {
      std::uint64_t u = 0;
      if (in_.read_u64(u)) value = Value(u);
    } else if (kind == "Float") {
      double f = 0;
      if (in_.read_f64(f)) value = Value(f);
    } else if (kind == "Bool") {
      bool b = false;
      if (in_.read_bool(b)) value = Value(b);
    } else {
      in_.fail(Errc::unsupported, "the type of the scalar is not Int, UInt, Float or Bool");
    }
    index_.scalars.push_back({name, std::move(value)});
  }

  cbor::Reader in_;
  std::uint64_t& memory_;  // memory that may still be used
  PackIndex index_;
  std::string_view blamed_;  // the current tensor or scalar, for errors
};

}  // namespace

Result<PackIndex> read_description(std::span<const std::byte> description, std::uint64_t& memory) {
  return DescriptionReader(description, memory).run();
}

}  // namespace stele::inline v0::detail::burn
