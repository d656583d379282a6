// Reads the header of a safetensors file.
#include <algorithm>
#include <deque>
#include <memory_resource>
#include <utility>

#include "encodings/safetensors/dtypes.hpp"
#include "encodings/safetensors/file.hpp"
#include "json/json.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::safetensors {
namespace {

struct File {
  SourcePtr source;
  Bytes header;                                 // names are views into it
  std::pmr::monotonic_buffer_resource names{};  // names with escapes
};

// A leaf's number is the offset of its bytes in the file.
constexpr LeafOps leaf_ops{.locate = [](const void* at, std::uint64_t number) -> SourceRange {
  return {static_cast<const File*>(at)->source.get(), number};
}};

class HeaderReader {
 public:
  HeaderReader(SourcePtr source, IndexBudget& memory) : file_(std::make_shared<File>()), memory_(memory) {
    file_->source = std::move(source);
  }

  Result<Contents> run(const std::function<void(std::size_t, std::size_t)>& count,
                       const std::function<void(const TensorEntry&)>& add) {
    STELE_TRY_ASSIGN(const std::string_view text, read_header());
    STELE_TRY(parse(text));
    count(entries_.size(), extents_.size());
    STELE_TRY(pass(add));
    contents_.keeper = std::move(file_);
    return std::move(contents_);
  }

 private:
  struct Entry {
    std::string_view name;
    std::uint64_t begin = 0, end = 0;
    std::size_t extents = 0;
    std::uint32_t rank = 0;
    DType dtype = DType::none;
  };

  Result<std::string_view> read_header() {
    const Source& source = *file_->source;
    std::byte length[8];
    if (source.size() < sizeof length) {
      return Error(Errc::truncated, "the file is too short for its header")
          .expected("8 bytes")
          .found(std::to_string(source.size()));
    }
    STELE_TRY(source.read_at(0, length));
    const auto n = load_le<std::uint64_t>(length);
    if (n > max_header) {
      return Error(Errc::limit, "the header is too large")
          .expected("at most " + std::to_string(max_header) + " bytes")
          .found(std::to_string(n))
          .offset(0);
    }
    if (n > source.size() - sizeof length) {
      return Error(Errc::truncated, "the file ends inside the header")
          .expected(std::to_string(n) + " bytes")
          .found(std::to_string(source.size() - sizeof length))
          .offset(0);
    }
    file_->header = Bytes(static_cast<std::size_t>(n));
    STELE_TRY(source.read_at(sizeof length, file_->header.span()));
    data_ = sizeof length + n;
    return std::string_view(reinterpret_cast<const char*>(file_->header.data()), static_cast<std::size_t>(n));
  }

  Status parse(std::string_view text) {
    json::Reader in(text, {sizeof(std::uint64_t), true});
    std::string scratch;
    std::string_view key;
    memory_.admit(text.size(), index_rate::index);
    constexpr std::uint64_t per_entry = sizeof(Entry) + leaf_memory;
    bool metadata_seen = false;
    in.begin_object();
    while (in.next_key(key, scratch)) {
      if (key == "__metadata__") {
        if (metadata_seen) in.fail(Errc::duplicate, "", "__metadata__ occurs twice");
        metadata_seen = true;
        read_metadata(in);
        continue;
      }
      // Names without escapes are views into the header; others need a copy.
      const bool inside = key.data() >= text.data() && key.data() <= text.data() + text.size();
      if (!spend(in, per_entry + (inside ? 0 : 3 * key.size()))) break;
      Entry& entry = entries_.emplace_back();
      entry.name = inside ? key : kept(key);
      read_entry(in, entry);
      spend(in, std::uint64_t{3} * sizeof(Extent) * entry.rank);
    }
    return in.finish() ? Status() : in.status();
  }

  std::string_view kept(std::string_view name) {
    auto* const copy = static_cast<char*>(file_->names.allocate(name.size() + 1, 1));
    std::copy(name.begin(), name.end(), copy);
    return {copy, name.size()};
  }

  /// Counts memory of this reader and the Snapshot against the limit of Format::open.
  bool spend(json::Reader& in, std::uint64_t bytes) {
    return memory_.take(bytes) || in.fail(Errc::limit, "", "the header needs more memory than the file's size allows");
  }

  void read_metadata(json::Reader& in) {
    std::string key_scratch;
    std::string text_scratch;
    std::string_view key;
    std::string_view text;
    // The reference implementation reads null as no metadata.
    if (in.peek() == json::Kind::null) {
      in.read_null();
      return;
    }
    if (!in.begin_object()) return;
    while (in.next_key(key, key_scratch)) {
      std::string name(key);
      if (!in.read_string(text, text_scratch)) return;
      if (!spend(in, sizeof(std::pair<std::string, std::string>) + 64 + name.size() + text.size())) return;
      std::string value = text.data() == text_scratch.data() ? std::move(text_scratch) : std::string(text);
      if (!contents_.metadata.emplace(std::move(name), std::move(value)).second) {
        in.fail(Errc::duplicate, "", "a key of __metadata__ occurs twice");
      }
    }
  }

  void read_entry(json::Reader& in, Entry& entry) {
    std::string scratch;
    std::string_view key;
    unsigned seen = 0;
    const auto once = [&](unsigned bit) {
      if ((seen & bit) != 0) in.fail(Errc::duplicate, "", "a key of the tensor occurs twice");
      seen |= bit;
    };
    if (!in.begin_object()) return;
    while (in.next_key(key, scratch)) {
      if (key == "dtype") {
        once(1);
        std::string_view text;
        if (!in.read_string(text, scratch)) return;
        const auto same = [&](const auto& pair) { return pair.first == text; };
        const auto found = std::find_if(dtypes.begin(), dtypes.end(), same);
        if (found == dtypes.end()) {
          in.fail(Errc::unsupported, "a dtype of safetensors");
          return;
        }
        entry.dtype = found->second;
      } else if (key == "shape") {
        once(2);
        entry.extents = extents_.size();
        std::uint64_t extent = 0;
        if (!in.begin_array()) return;
        while (in.next_element()) {
          if (!in.read_u64(extent)) return;
          extents_.push_back(extent);
          if (++entry.rank > 0xffff) in.fail(Errc::limit, "at most 65535 dimensions");
        }
      } else if (key == "data_offsets") {
        once(4);
        const bool pair = in.begin_array() && in.next_element() && in.read_u64(entry.begin) && in.next_element() &&
                          in.read_u64(entry.end) && !in.next_element();
        if (!pair) in.fail(Errc::malformed, "two offsets");
      } else {
        contents_.skipped.add(key);
        in.skip_value();  // the reference implementation ignores unknown keys
      }
    }
    if (in.ok() && seen != 7) in.fail(Errc::malformed, "dtype, shape and data_offsets");
  }

  Error bad(Errc code, const char* text, const Entry& entry) const {
    return Error(code, text).path(std::string(entry.name)).offset(data_ + entry.begin);
  }

  Status pass(const std::function<void(const TensorEntry&)>& add) {
    std::vector<std::uint32_t> order(entries_.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto before = [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(entries_[a].begin, entries_[a].end) < std::pair(entries_[b].begin, entries_[b].end);
    };
    if (!std::is_sorted(order.begin(), order.end(), before)) std::stable_sort(order.begin(), order.end(), before);

    const std::uint64_t size = file_->source->size() - data_;
    std::uint64_t at = 0;
    for (const std::uint32_t i : order) {
      const Entry& entry = entries_[i];
      const auto shape = std::span<const Extent>(extents_).subspan(entry.extents, entry.rank);
      // Every byte belongs to exactly one tensor: no overlap, no gap, no bytes after the last tensor.
      if (entry.begin != at || entry.end < entry.begin) {
        return bad(Errc::malformed, "the tensor does not begin where the previous one ends", entry)
            .expected(std::to_string(at))
            .found(std::to_string(entry.begin));
      }
      if (entry.end > size) {
        return bad(Errc::truncated, "the file ends inside the tensor", entry)
            .expected(std::to_string(entry.end) + " bytes of data")
            .found(std::to_string(size));
      }
      const auto elements = element_count(shape);
      const auto total_bits = elements ? checked_mul(*elements, bits(entry.dtype)) : std::nullopt;
      if (!total_bits || *total_bits % 8 != 0 || *total_bits / 8 != entry.end - entry.begin) {
        return bad(Errc::malformed, "the length of the tensor does not match its dtype and shape", entry)
            .expected(total_bits ? std::to_string(*total_bits / 8) + " bytes" : "less than 2^64 bits")
            .found(std::to_string(entry.end - entry.begin));
      }
      at = entry.end;
      add({entry.name, entry.dtype, shape, entry.end - entry.begin, {&leaf_ops, file_.get(), data_ + entry.begin}});
    }
    if (at != size) {
      return Error(Errc::malformed, "bytes follow the last tensor")
          .expected(std::to_string(data_ + at) + " bytes")
          .found(std::to_string(data_ + size))
          .offset(data_ + at);
    }
    return {};
  }

  std::shared_ptr<File> file_;
  Contents contents_;
  std::uint64_t data_ = 0;     // offset of the tensors' bytes
  std::deque<Entry> entries_;  // a deque grows without reallocation
  std::vector<Extent> extents_;
  IndexBudget& memory_;
};

}  // namespace

bool holds(DType dtype) noexcept { return dtype_order(dtype) != dtypes.size(); }

Result<Contents> read_file(SourcePtr source, IndexBudget& memory,
                           const std::function<void(std::size_t, std::size_t)>& count,
                           const std::function<void(const TensorEntry&)>& add) {
  return HeaderReader(std::move(source), memory).run(count, add);
}

}  // namespace stele::inline v0::detail::safetensors
