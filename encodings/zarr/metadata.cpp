// Reads the metadata of zarr arrays and groups.
#include "encodings/zarr/metadata.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/hex.hpp"
#include "base/in_file.hpp"
#include "base/shortened.hpp"
#include "encodings/zarr/blosc.hpp"
#include "stele/detail/little_endian.hpp"
#include "stele/precision/convert.hpp"

namespace stele::inline v0::detail::zarr {
namespace {

constexpr ItemType types[] = {
    {"bool", "b1", DType::boolean, 1},
    {"int8", "i1", DType::i8, 1},
    {"int16", "i2", DType::i16, 2},
    {"int32", "i4", DType::i32, 4},
    {"int64", "i8", DType::i64, 8},
    {"uint8", "u1", DType::u8, 1},
    {"uint16", "u2", DType::u16, 2},
    {"uint32", "u4", DType::u32, 4},
    {"uint64", "u8", DType::u64, 8},
    {"float16", "f2", DType::f16, 2},
    {"float32", "f4", DType::f32, 4},
    {"float64", "f8", DType::f64, 8},
    {"complex64", "c8", DType::c64, 4},
    {"complex128", "c16", DType::c128, 8},
    {"bfloat16", "", DType::bf16, 2},
    {"float8_e4m3fn", "", DType::f8_e4m3fn, 1},
    {"float8_e5m2", "", DType::f8_e5m2, 1},
    {"float8_e8m0fnu", "", DType::f8_e8m0, 1},
    {"float8_e4m3fnuz", "", DType::f8_e4m3fnuz, 1},
    {"float8_e5m2fnuz", "", DType::f8_e5m2fnuz, 1},
    {"int4", "", DType::i8, 1, 4},
    {"int2", "", DType::i8, 1, 2},
    {"uint4", "", DType::u8, 1, 4},
    {"uint2", "", DType::u8, 1, 2},
};

/// Memory of a node in bytes, without its names, shapes and attributes: the Array, and its copy while sorting.
constexpr std::uint64_t node_memory = 2 * sizeof(Array) + 256;

std::optional<std::uint64_t> number(const Value* value) {
  if (value == nullptr) return std::nullopt;
  if (const auto* n = value->as_i64(); n != nullptr && *n >= 0) return static_cast<std::uint64_t>(*n);
  if (const auto* n = value->as_u64()) return *n;
  return std::nullopt;
}

std::string_view text(const Value* value) {
  const std::string* const found = value != nullptr ? value->as_string() : nullptr;
  return found != nullptr ? std::string_view(*found) : std::string_view();
}

bool is_null(const Value* value) { return value == nullptr || value->is_null(); }

std::string quoted(std::string_view word) { return '"' + shortened(word, 60) + '"'; }

/// Reads the documents of one array.
class ArrayReader {
 public:
  explicit ArrayReader(std::string path) { array_.path = std::move(path); }

  Result<Array> run(const Value& document) {
    if (document.as_map() == nullptr) return wrong("the metadata", "an object");
    STELE_TRY(extents("shape", document.find("shape"), array_.shape));
    const bool v3 = document.find("node_type") != nullptr;
    STELE_TRY(v3 ? read_v3(document) : read_v2(document));
    return finish(document);
  }

 private:
  Error wrong(std::string_view what, std::string_view expected) const {
    return Error(Errc::malformed, std::string(what) + " of a zarr array is malformed")
        .path(shortened(array_.path, 200))
        .expected(std::string(expected));
  }
  void refuse(std::string reason) {
    if (array_.unreadable.empty()) array_.unreadable = std::move(reason);
  }

  Status extents(std::string_view what, const Value* value, std::vector<Extent>& out) const {
    const Value::List* const list = value != nullptr ? value->as_list() : nullptr;
    if (list == nullptr) return wrong(what, "a list of integers");
    if (list->size() > max_rank) return wrong(what, "at most 64 axes");
    for (const Value& item : *list) {
      const auto n = number(&item);
      if (!n) return wrong(what, "a list of integers that are not negative");
      out.push_back(*n);
    }
    return {};
  }

  // ---- version 2

  Status read_v2(const Value& document) {
    STELE_TRY(extents("chunks", document.find("chunks"), array_.chunk));
    const Value* const dtype = document.find("dtype");
    std::string_view code = text(dtype);
    if (code.empty()) {
      refuse("a structured dtype");
    } else {
      const bool order = code[0] == '<' || code[0] == '>' || code[0] == '|' || code[0] == '=';
      array_.big_endian = code[0] == '>';
      find_type(order ? code.substr(1) : code, order);
    }
    const std::string_view order = text(document.find("order"));
    if (order == "F") {
      for (std::size_t d = array_.shape.size(); d-- > 0;) array_.order.push_back(d);
    } else if (order != "C" && !order.empty()) {
      return wrong("order", "\"C\" or \"F\"");
    }
    if (const Value* const filters = document.find("filters"); !is_null(filters)) {
      const Value::List* const list = filters->as_list();
      if (list == nullptr) return wrong("filters", "a list");
      for (const Value& filter : *list) {
        const std::string_view id = text(filter.find("id"));
        if (!codec_of(id)) refuse("the filter " + quoted(id));
        add_codec(id, &filter);
      }
    }
    if (const Value* const compressor = document.find("compressor"); !is_null(compressor)) {
      add_codec(text(compressor->find("id")), compressor);
    }
    const std::string_view separator = text(document.find("dimension_separator"));
    if (!separator.empty() && separator != "." && separator != "/") {
      return wrong("dimension_separator", "\".\" or \"/\"");
    }
    if (!separator.empty()) array_.separator = separator[0];
    return {};
  }

  void find_type(std::string_view name, bool code) {
    for (const ItemType& type : types) {
      if (code ? !type.code.empty() && type.code == name : type.name == name) array_.type = &type;
    }
    if (array_.type == nullptr) refuse("the dtype " + quoted(name));
  }

  void add_codec(std::string_view name, const Value* configuration) {
    const auto codec = codec_of(name);
    if (!codec) return refuse("the codec " + quoted(name));
    if (codec == Codec::blosc) {
      const std::string_view inner = configuration != nullptr ? text(configuration->find("cname")) : "";
      if (!is_blosc_codec(inner)) return refuse("the codec blosc with " + quoted(inner));
    }
    if (codec == Codec::crc32c && configuration != nullptr && text(configuration->find("location")) == "start") {
      return refuse("the codec crc32c with the checksum before the data");
    }
    constexpr std::size_t max_codecs = 8;
    if (array_.codecs.size() == max_codecs) return refuse("more than 8 codecs");
    std::uint64_t width = 4;  // the default of numcodecs
    if (const Value* const given = configuration != nullptr ? configuration->find("elementsize") : nullptr) {
      width = number(given).value_or(0);
      if (codec == Codec::shuffle && width == 0)
        return refuse("the codec shuffle with an elementsize that is not positive");
    }
    array_.codecs.push_back({*codec, width});
  }

  // ---- version 3

  Status read_v3(const Value& document) {
    if (const std::string_view name = text(document.find("data_type")); !name.empty()) {
      find_type(name, false);
    } else {
      const Value* const type = document.find("data_type");
      if (type == nullptr) return wrong("data_type", "a name");
      refuse("the dtype " + quoted(text(type->find("name"))));
    }
    const Value* const grid = document.find("chunk_grid");
    const Value* const grid_settings = grid != nullptr ? grid->find("configuration") : nullptr;
    if (grid == nullptr || text(grid->find("name")) != "regular" || grid_settings == nullptr) {
      refuse("a chunk grid that is not regular");
      array_.chunk.assign(array_.shape.size(), 1);
    } else {
      STELE_TRY(extents("chunk_shape", grid_settings->find("chunk_shape"), array_.chunk));
    }
    const Value* const encoding = document.find("chunk_key_encoding");
    std::string_view keys = encoding != nullptr ? text(encoding->find("name")) : "";
    if (keys.empty()) keys = text(encoding);
    array_.prefix = keys != "v2";
    if (keys != "default" && keys != "v2") refuse("the encoding of chunk keys " + quoted(keys));
    const Value* const settings = encoding != nullptr ? encoding->find("configuration") : nullptr;
    const std::string_view separator = settings != nullptr ? text(settings->find("separator")) : "";
    if (!separator.empty() && separator != "." && separator != "/") {
      return wrong("chunk_key_encoding", "a separator \".\" or \"/\"");
    }
    array_.separator = !separator.empty() ? separator[0] : array_.prefix ? '/' : '.';
    if (const Value* const transformers = document.find("storage_transformers"); !is_null(transformers)) {
      if (transformers->as_list() == nullptr || !transformers->as_list()->empty()) refuse("storage transformers");
    }
    if (const Value* const names = document.find("dimension_names"); !is_null(names)) array_.dimension_names = *names;
    constexpr std::string_view known[] = {"zarr_format",     "node_type",
                                          "shape",           "data_type",
                                          "chunk_grid",      "chunk_key_encoding",
                                          "fill_value",      "codecs",
                                          "attributes",      "storage_transformers",
                                          "dimension_names", "consolidated_metadata"};
    for (const auto& [key, value] :
         *document.as_map()) {  // an extension, unless it declares that readers may ignore it
      if (std::find(std::begin(known), std::end(known), key) != std::end(known)) continue;
      const Value* const needed = value.find("must_understand");
      if (needed == nullptr || needed->as_bool() == nullptr || *needed->as_bool())
        refuse("the extension " + quoted(key));
    }
    STELE_TRY(codecs(document.find("codecs"), true));
    return {};
  }

  Status codecs(const Value* value, bool outer) {
    const Value::List* const list = value != nullptr ? value->as_list() : nullptr;
    if (list == nullptr) return wrong("codecs", "a list");
    bool bytes = false;
    for (const Value& codec : *list) {
      const Value* const settings = codec.find("configuration");
      const std::string_view name = codec.as_string() != nullptr ? text(&codec) : text(codec.find("name"));
      if (!bytes && name == "transpose") {
        STELE_TRY(transpose(settings));
      } else if (!bytes && name == "bytes") {
        bytes = true;
        array_.big_endian = settings != nullptr && text(settings->find("endian")) == "big";
      } else if (!bytes && name == "sharding_indexed") {
        bytes = true;
        if (!outer) {
          refuse("shards in shards");
        } else if (!array_.order.empty() || &codec != &list->back()) {
          refuse("the codec sharding_indexed beside other codecs");
        } else if (settings != nullptr) {
          STELE_TRY(sharding(*settings));
        } else {
          return wrong("the codec sharding_indexed", "a configuration");
        }
      } else if (bytes) {
        add_codec(name, settings);
      } else {
        refuse("the codec " + quoted(name));
        return {};
      }
    }
    return bytes ? Status() : Status(wrong("codecs", "one that converts an array to bytes"));
  }

  Status transpose(const Value* settings) {
    const std::size_t rank = array_.shape.size();
    const Value* const order = settings != nullptr ? settings->find("order") : nullptr;
    std::vector<Extent> axes;
    if (text(order) == "C" || text(order) == "F") {
      for (std::size_t d = 0; d < rank; ++d) axes.push_back(text(order) == "C" ? d : rank - 1 - d);
    } else {
      STELE_TRY(extents("the codec transpose", order, axes));
    }
    std::vector<bool> used(rank);
    for (const Extent axis : axes) {
      if (axis >= rank || used[static_cast<std::size_t>(axis)]) return wrong("the codec transpose", "a permutation");
      used[static_cast<std::size_t>(axis)] = true;
    }
    if (axes.size() != rank) return wrong("the codec transpose", "a permutation of all axes");
    std::vector<std::size_t> composed;
    for (const Extent axis : axes) {
      const auto d = static_cast<std::size_t>(axis);
      composed.push_back(array_.order.empty() ? d : array_.order[d]);
    }
    array_.order = std::move(composed);
    return {};
  }

  Status sharding(const Value& settings) {
    std::vector<Extent> inner;
    STELE_TRY(extents("the chunk_shape of shards", settings.find("chunk_shape"), inner));
    array_.sharded = true;
    array_.shard = std::exchange(array_.chunk, std::move(inner));
    const std::string_view location = text(settings.find("index_location"));
    if (!location.empty() && location != "start" && location != "end") {
      return wrong("the index_location of shards", "\"start\" or \"end\"");
    }
    array_.index_first = location == "start";
    const Value* const index = settings.find("index_codecs");
    const Value::List* const list = index != nullptr ? index->as_list() : nullptr;
    if (list == nullptr || list->empty() || list->size() > 2) {
      refuse("codecs of a shard's index");
    } else {
      const Value* const endian = list->front().find("configuration");
      const bool little = endian == nullptr || text(endian->find("endian")) != "big";
      array_.index_crc = list->size() == 2;
      if (!little || text(list->front().find("name")) != "bytes" ||
          (array_.index_crc && text(list->back().find("name")) != "crc32c")) {
        refuse("codecs of a shard's index");
      }
    }
    return codecs(settings.find("codecs"), false);
  }

  // ---- both versions

  /// Writes a number of the fill value. Returns false if it does not fit.
  static bool put_number(const Value& value, DType dtype, std::byte* out) {
    const std::size_t size = element_size(dtype);
    const std::string_view word = text(&value);
    std::byte made[8]{};
    ConvertOutcome outcome;
    const ConvertRules rules{.allow_overflow = true, .allow_kind_change = true};
    const auto from = [&](DType type, auto n) {
      std::byte source[sizeof n];
      std::memcpy(source, &n, sizeof n);
      outcome = convert(type, source, dtype, made, 1, rules);
    };
    if (word.starts_with("0x")) {  // the element's bits
      const auto bits = from_hex(word.substr(2), word.size() - 2);
      if (!bits || (size < 8 && *bits >> (8 * size) != 0)) return false;
      for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(*bits >> 8 * i & 0xff);
      return true;
    }
    if (word == "NaN") {
      from(DType::f64, std::numeric_limits<double>::quiet_NaN());
    } else if (word == "Infinity" || word == "-Infinity") {
      from(DType::f64,
           word[0] == '-' ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity());
    } else if (const bool* const b = value.as_bool()) {
      from(DType::u8, static_cast<std::uint8_t>(*b ? 1 : 0));
    } else if (const auto* const i = value.as_i64()) {
      from(DType::i64, *i);
    } else if (const auto* const u = value.as_u64()) {
      from(DType::u64, *u);
    } else if (const auto* const f = value.as_f64()) {
      from(DType::f64, *f);
    } else {
      return false;
    }
    if (outcome.status != ConvertStatus::ok) return false;
    if (std::endian::native == std::endian::big) std::reverse(made, made + size);
    std::memcpy(out, made, size);
    return true;
  }

  void put_fill(const Value* fill) {
    if (is_null(fill) || array_.type == nullptr) return;  // without a fill value, the elements are undefined
    const DType dtype = array_.type->dtype;
    const Value::List* const parts = fill->as_list();
    if (dtype == DType::c64 || dtype == DType::c128) {
      const DType part = dtype == DType::c64 ? DType::f32 : DType::f64;
      const bool good = parts == nullptr ? put_number(*fill, part, array_.fill.data())
                                         : parts->size() == 2 && put_number((*parts)[0], part, array_.fill.data()) &&
                                               put_number((*parts)[1], part, array_.fill.data() + element_size(part));
      if (good) return;
    } else if (put_number(*fill, dtype, array_.fill.data())) {
      return;
    }
    refuse("a fill value that is not an element");
  }

  Result<Array> finish(const Value& document) {
    const std::size_t rank = array_.shape.size();
    if (array_.chunk.size() != rank || (array_.sharded && array_.shard.size() != rank)) {
      return wrong("the chunks' shape", std::to_string(rank) + " extents");
    }
    for (std::size_t d = 0; d < rank; ++d) {
      if (array_.chunk[d] == 0) return wrong("the chunks' shape", "extents above 0");
      if (array_.sharded && (array_.shard[d] == 0 || array_.shard[d] % array_.chunk[d] != 0)) {
        return wrong("the shards' shape", "multiples of the chunks' extents");
      }
    }
    put_fill(document.find("fill_value"));
    const std::uint64_t item = array_.type != nullptr ? element_size(array_.type->dtype) : 1;
    const auto size = [&](std::span<const Extent> extents) {
      const auto count = element_count(extents);
      return count ? checked_mul(*count, item) : std::nullopt;
    };
    const auto bytes = size(array_.shape), chunk_bytes = size(array_.chunk);
    const auto shard_bytes = size(array_.shard);
    constexpr std::uint64_t max_bytes = std::uint64_t{1} << 62;
    if (!bytes || !chunk_bytes || !shard_bytes || std::max({*bytes, *chunk_bytes, *shard_bytes}) > max_bytes) {
      return wrong("the shape", "a size below 2^62 bytes");
    }
    array_.bytes = *bytes;
    array_.chunk_bytes = *chunk_bytes;
    return std::move(array_);
  }

  Array array_;
};

/// Collects the nodes of a store.
class HierarchyReader {
 public:
  HierarchyReader(const Store& store, IndexBudget& memory) : store_(store), memory_(memory) {}

  Result<Hierarchy> run() {
    const auto keys = store_.keys();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::size_t slash = keys[i].rfind('/');
      const std::string_view name = std::string_view(keys[i]).substr(slash != keys[i].npos ? slash + 1 : 0);
      if (name == v3_key || name == array_key || name == group_key) {
        const std::string path = keys[i].substr(0, slash != keys[i].npos ? slash : 0);
        STELE_TRY(in_file(with_document(path, name, i), store_.name()));
      }
    }
    // Documents that exist only in the consolidated metadata.
    if (const auto key = store_.find(consolidated_key)) {
      STELE_TRY_ASSIGN(const Value document, read_json(store_, *key, memory_));
      STELE_TRY(in_file(consolidated_v2(document), store_.name()));
    }
    if (!consolidated_v3_.is_null()) STELE_TRY(in_file(consolidated_v3(), store_.name()));
    Hierarchy found;
    for (auto& [path, array] : arrays_) found.arrays.push_back(std::move(array));
    for (auto& [path, attributes] : groups_) found.groups.push_back({path, std::move(attributes)});
    return found;
  }

 private:
  static std::string join(std::string_view path, std::string_view name) {
    return path.empty() ? std::string(name) : std::string(path).append("/").append(name);
  }

  Status with_document(const std::string& path, std::string_view name, std::size_t key) {
    STELE_TRY_ASSIGN(Value document, read_json(store_, key, memory_));
    if (name == v3_key) return v3(path, document);
    Value attributes;
    if (const auto beside = store_.find(join(path, attributes_key))) {
      auto read = read_json(store_, *beside, memory_);
      if (!read && read.error().code() != Errc::malformed && read.error().code() != Errc::out_of_range) {
        return std::move(read).error();
      }
      // Attributes with numbers that JSON lacks (NaN) do not make the array unreadable.
      attributes = read ? *std::move(read) : Value("attributes that are not JSON");
    }
    return v2(path, name == array_key, document, std::move(attributes));
  }

  Status admit(const std::string& path) {
    if (memory_.take(node_memory + 4 * path.size())) return {};
    return index_error("the arrays and groups need more memory than the size of their metadata allows");
  }
  static Status version(const std::string& path, const Value& document, std::uint64_t expected) {
    const auto found = number(document.find("zarr_format"));
    if (found == expected) return {};
    return Error(Errc::unsupported, "the metadata have another version of zarr")
        .path(shortened(path, 200))
        .expected(std::to_string(expected))
        .found(found ? std::to_string(*found) : "none");
  }

  Status v2(const std::string& path, bool array, const Value& document, Value attributes) {
    STELE_TRY(version(path, document, 2));
    STELE_TRY(admit(path));
    if (!array) return groups_.try_emplace(path, std::move(attributes)), Status();
    STELE_TRY_ASSIGN(Array read, ArrayReader(path).run(document));
    read.attributes = std::move(attributes);
    arrays_.try_emplace(path, std::move(read));
    return {};
  }

  Status v3(const std::string& path, const Value& document) {
    STELE_TRY(version(path, document, 3));
    STELE_TRY(admit(path));
    Value attributes;
    if (const Value* const found = document.find("attributes")) attributes = *found;
    const std::string_view kind = text(document.find("node_type"));
    if (kind == "group") {
      const Value* const more = document.find("consolidated_metadata");
      if (path.empty() && !is_null(more)) consolidated_v3_ = *more;
      groups_.insert_or_assign(path, std::move(attributes));
      return {};
    }
    if (kind != "array") {
      return Error(Errc::malformed, "the node is neither an array nor a group")
          .path(shortened(path, 200))
          .found(quoted(kind));
    }
    STELE_TRY_ASSIGN(Array read, ArrayReader(path).run(document));
    read.attributes = std::move(attributes);
    arrays_.insert_or_assign(path, std::move(read));
    return {};
  }

  Status consolidated_v2(const Value& document) {
    const Value* const metadata = document.find("metadata");
    if (metadata == nullptr || metadata->as_map() == nullptr) return {};
    std::map<std::string_view, const Value*> all;
    for (const auto& [key, value] : *metadata->as_map()) all.emplace(key, &value);
    for (const auto& [key, value] : all) {
      const std::size_t slash = key.rfind('/');
      const std::string path(key.substr(0, slash != key.npos ? slash : 0));
      const std::string_view name = key.substr(slash != key.npos ? slash + 1 : 0);
      if ((name != array_key && name != group_key) || arrays_.contains(path) || groups_.contains(path)) continue;
      const auto attributes = all.find(join(path, attributes_key));
      STELE_TRY(v2(path, name == array_key, *value, attributes != all.end() ? *attributes->second : Value()));
    }
    return {};
  }

  Status consolidated_v3() {
    const Value all = std::exchange(consolidated_v3_, Value());
    const Value* const metadata = all.find("metadata");
    if (metadata == nullptr || metadata->as_map() == nullptr) return {};
    for (const auto& [path, document] : *metadata->as_map()) {
      if (path.empty() || arrays_.contains(path) || groups_.contains(path)) continue;
      STELE_TRY(v3(path, document));
    }
    return {};
  }

  const Store& store_;
  IndexBudget& memory_;
  std::map<std::string, Array> arrays_;
  std::map<std::string, Value> groups_;
  Value consolidated_v3_;
};

}  // namespace

const ItemType* type_of(DType dtype) noexcept {
  const auto* const found =
      std::find_if(std::begin(types), std::end(types), [&](const ItemType& type) { return type.dtype == dtype; });
  return found != std::end(types) ? found : nullptr;
}

Result<Hierarchy> read_hierarchy(const Store& store, IndexBudget& memory) {
  return HierarchyReader(store, memory).run();
}

}  // namespace stele::inline v0::detail::zarr
