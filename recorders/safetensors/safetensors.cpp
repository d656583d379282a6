#include "stele/recorders/safetensors.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>

#include "base/limits.hpp"
#include "base/name_order.hpp"
#include "base/parallel.hpp"
#include "file.hpp"
#include "json/json.hpp"
#include "passes/byte_order.hpp"
#include "snapshot/data.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/leaf_gather.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/skipped.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0 {
namespace {

namespace json = detail::json;

using detail::safetensors::max_header;

/// The dtypes in the order of the reference (enum Dtype in safetensors/src/tensor.rs), which also sorts the file, last
/// dtype first.
constexpr std::array<std::pair<std::string_view, DType>, 22> dtypes = {{
    {"BOOL", DType::boolean},
    {"F4", DType::f4_e2m1},
    {"F6_E2M3", DType::f6_e2m3},
    {"F6_E3M2", DType::f6_e3m2},
    {"U8", DType::u8},
    {"I8", DType::i8},
    {"F8_E5M2", DType::f8_e5m2},
    {"F8_E4M3", DType::f8_e4m3fn},
    {"F8_E8M0", DType::f8_e8m0},
    {"F8_E4M3FNUZ", DType::f8_e4m3fnuz},
    {"F8_E5M2FNUZ", DType::f8_e5m2fnuz},
    {"I16", DType::i16},
    {"U16", DType::u16},
    {"F16", DType::f16},
    {"BF16", DType::bf16},
    {"I32", DType::i32},
    {"U32", DType::u32},
    {"F32", DType::f32},
    {"C64", DType::c64},
    {"F64", DType::f64},
    {"I64", DType::i64},
    {"U64", DType::u64},
}};

std::size_t dtype_order(DType d) {
  const auto same = [&](const auto& pair) { return pair.second == d; };
  return static_cast<std::size_t>(std::find_if(dtypes.begin(), dtypes.end(), same) - dtypes.begin());
}

bool holds(DType d) { return dtype_order(d) != dtypes.size(); }

struct File {
  SourcePtr source;
  Bytes header;  // names are views of it
};

// A leaf's number is its offset in the file.
constexpr LeafOps leaf_ops{.locate = [](const void* at, std::uint64_t number) -> SourceRange {
  return {static_cast<const File*>(at)->source.get(), number};
}};

class SafetensorsReader {
 public:
  SafetensorsReader(SourcePtr source, const Limits& limits) : file_(std::make_shared<File>()), limits_(limits) {
    file_->source = std::move(source);
  }

  Result<Snapshot> run() {
    STELE_TRY_ASSIGN(const std::string_view text, read_header());
    STELE_TRY(parse(text));
    return build();
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
    const auto n = detail::load_le<std::uint64_t>(length);
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
    memory_ = detail::IndexBudget(limits_, file_->source->size());
    memory_.admit(text.size(), detail::index_rate::index);
    constexpr std::uint64_t per_entry =
        sizeof(Entry) + sizeof(Node) + sizeof(detail::LeafData) + 3 * sizeof(std::uint32_t);
    bool metadata_seen = false;
    in.begin_object();
    while (in.next_key(key, scratch)) {
      if (key == "__metadata__") {
        if (metadata_seen) in.fail(Errc::duplicate, "", "__metadata__ occurs twice");
        metadata_seen = true;
        read_metadata(in);
        continue;
      }
      // Names without escapes are views of the header; others need a copy.
      const bool inside = key.data() >= text.data() && key.data() <= text.data() + text.size();
      if (!spend(in, per_entry + (inside ? 0 : 3 * key.size()))) break;
      Entry& entry = entries_.emplace_back();
      entry.name = inside ? key : builder_.intern(key);
      read_entry(in, entry);
      spend(in, std::uint64_t{3} * sizeof(Extent) * entry.rank);
    }
    return in.finish() ? Status() : in.status();
  }

  /// Counts memory that this reader and the Snapshot take, against the bound of Format::open.
  bool spend(json::Reader& in, std::uint64_t bytes) {
    return memory_.take(bytes) || in.fail(Errc::limit, "", "the header needs more memory than the file's size allows");
  }

  void read_metadata(json::Reader& in) {
    std::string key_scratch;
    std::string text_scratch;
    std::string_view key;
    std::string_view text;
    // The reference reads null as no metadata.
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
      if (!metadata_.emplace(std::move(name), std::move(value)).second) {
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
        skipped_.add(key);
        in.skip_value();  // the reference ignores unknown keys
      }
    }
    if (in.ok() && seen != 7) in.fail(Errc::malformed, "dtype, shape and data_offsets");
  }

  Error bad(Errc code, const char* text, const Entry& entry) const {
    return Error(code, text).path(std::string(entry.name)).offset(data_ + entry.begin);
  }

  Result<Snapshot> build() {
    std::vector<std::uint32_t> order(entries_.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto before = [&](std::uint32_t a, std::uint32_t b) {
      return std::pair(entries_[a].begin, entries_[a].end) < std::pair(entries_[b].begin, entries_[b].end);
    };
    if (!std::is_sorted(order.begin(), order.end(), before)) std::stable_sort(order.begin(), order.end(), before);

    builder_.set_flat();
    builder_.reserve(entries_.size() + 1, entries_.size(), extents_.size());
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
        return bad(Errc::truncated, "the file ends before the tensor does", entry)
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
      builder_.tensor(entry.name, entry.dtype, shape, entry.end - entry.begin,
                      {&leaf_ops, file_.get(), data_ + entry.begin});
    }
    if (at != size) {
      return Error(Errc::malformed, "bytes follow the last tensor")
          .expected(std::to_string(data_ + at) + " bytes")
          .found(std::to_string(data_ + size))
          .offset(data_ + at);
    }
    STELE_TRY(detail::finish_names(builder_, std::move(metadata_), memory_));
    skipped_.leave_out(builder_.data(), "unknown keys of tensors");
    builder_.keep(file_);
    return builder_.finish();
  }

  std::shared_ptr<File> file_;
  SnapshotBuilder builder_;
  std::uint64_t data_ = 0;     // offset of the tensors' bytes
  std::deque<Entry> entries_;  // grows without holding twice its size
  std::vector<Extent> extents_;
  std::map<std::string, std::string> metadata_;
  detail::Skipped skipped_;  // keys of tensors
  const Limits& limits_;
  detail::IndexBudget memory_;
};

}  // namespace

const Capabilities& SafetensorsFormat::capabilities() const noexcept {
  static constexpr Capabilities can{.values = true, .aliases = true, .metadata = true, .holds = holds};
  return can;
}

bool SafetensorsFormat::recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept {
  if (head.size() < 9) return false;
  const auto n = detail::load_le<std::uint64_t>(head.data());
  if (n > max_header || n > size - 8) return false;
  for (const std::byte b : head.subspan(8)) {
    const char c = static_cast<char>(b);
    if (c == '{') return true;
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return false;
  }
  return false;
}

Result<Snapshot> SafetensorsFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::in_host_order(SafetensorsReader(std::move(source), context.options().limits).run());
}

namespace detail::safetensors {

Status check(const Snapshot& snapshot, const LeafPaths& paths) {
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    const auto refuse = [&](const char* why) {
      return Error(Errc::not_representable, "safetensors files cannot hold this")
          .path(std::string(paths[i]))
          .found(why);
    };
    const std::string_view name = paths[i];
    if (name == "__metadata__") return refuse("a tensor of the reserved name __metadata__");
    if (!json::valid_utf8(name)) return refuse("a name that is not UTF-8");
    if (leaf.size() * bits(leaf.dtype()) % 8 != 0) return refuse("a tensor of part of a byte");
  }
  for (const auto& [key, text] : snapshot.metadata()) {
    if (key == flat_key) return Error(Errc::not_representable, "the metadata key stele is reserved for the library");
    if (json::valid_utf8(key) && json::valid_utf8(text)) continue;
    return Error(Errc::not_representable, "safetensors files store metadata in UTF-8 only")
        .found("bytes that are not UTF-8");
  }
  return {};
}

Result<FilePlan> plan_file(const Snapshot& snapshot, const LeafPaths& paths, std::span<const std::uint32_t> leaves,
                           const std::map<std::string, std::string>& metadata) {
  struct Item {
    std::size_t order;
    std::uint32_t leaf;
  };
  std::vector<Item> items;
  items.reserve(leaves.size());
  for (const std::uint32_t k :
       order_by_name(static_cast<std::uint32_t>(leaves.size()), [&](std::uint32_t i) { return paths[leaves[i]]; })) {
    items.push_back({dtype_order(snapshot.leaf(leaves[k]).dtype()), leaves[k]});
  }
  const auto before = [](const Item& a, const Item& b) { return a.order > b.order; };
  if (!std::is_sorted(items.begin(), items.end(), before)) std::stable_sort(items.begin(), items.end(), before);
  FilePlan plan;
  std::string& header = plan.header;
  json::Writer out(header);
  out.begin_object();
  if (!metadata.empty()) {
    out.key("__metadata__");
    out.begin_object();
    for (const auto& [key, text] : metadata) {
      out.key(key);
      out.string(text);
    }
    out.end_object();
  }
  std::uint64_t at = 0;
  for (const Item& item : items) {
    const LeafView leaf = snapshot.leaf(item.leaf);
    out.key(paths[item.leaf]);
    out.begin_object();
    out.key("dtype");
    out.string(dtypes[item.order].first);
    out.key("shape");
    out.begin_array();
    for (const Extent e : leaf.shape()) out.u64(e);
    out.end_array();
    out.key("data_offsets");
    out.begin_array();
    out.u64(at);
    out.u64(at += leaf.byte_size());
    out.end_array();
    out.end_object();
    plan.order.push_back(item.leaf);
  }
  plan.bytes = at;
  out.end_object();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > max_header) {
    return Error(Errc::not_representable, "the header is too large for safetensors")
        .expected("at most 100000000 bytes")
        .found(std::to_string(header.size()));
  }
  return plan;
}

Status write(const Snapshot& snapshot, const LeafPaths& paths, std::span<const std::uint32_t> leaves,
             const std::map<std::string, std::string>& metadata, const Workers& workers, Sink& sink) {
  STELE_TRY_ASSIGN(const FilePlan plan, plan_file(snapshot, paths, leaves, metadata));
  STELE_TRY(sink.reserve(8 + plan.header.size() + plan.bytes));
  LeafGather gather(sink);
  std::byte length[8];
  store_le(length, std::uint64_t{plan.header.size()});
  STELE_TRY(gather.write(length));
  STELE_TRY(gather.write(std::as_bytes(std::span(plan.header))));
  ReadContext context(workers);
  const Snapshot ordered = in_file_order(snapshot);
  for (const std::uint32_t leaf : plan.order) STELE_TRY(gather.leaf(ordered.leaf(leaf), context));
  return gather.flush();
}

}  // namespace detail::safetensors

Status SafetensorsFormat::write(const Snapshot& snapshot, Sink& sink, const SaveOptions& options) const {
  const detail::LeafPaths paths(*snapshot.data());
  STELE_TRY(detail::safetensors::check(snapshot, paths));
  std::vector<std::uint32_t> leaves(snapshot.leaf_count());
  std::iota(leaves.begin(), leaves.end(), std::uint32_t{0});
  std::map<std::string, std::string> metadata = snapshot.metadata();
  STELE_TRY_ASSIGN(std::string extras, detail::flat_extras(snapshot));
  if (!extras.empty()) metadata.emplace(detail::flat_key, std::move(extras));
  return detail::safetensors::write(snapshot, paths, leaves, metadata, detail::workers_of(options), sink);
}

}  // namespace stele::inline v0
