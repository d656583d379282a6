// PyTorch files built by hand: pickles with any operations, and the four kinds of files that contain them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "encodings/tar/tar.hpp"
#include "encodings/zip/zip.hpp"
#include "stele/sink.hpp"
#include "support/recorders.hpp"

namespace stele_test::pytorch_files {

// ---- operations of a pickle: each function returns the operations that push one value

/// Returns `size` bytes, little-endian.
inline std::string little(std::uint64_t n, unsigned size) {
  std::string text;
  for (; size != 0; --size, n >>= 8) text += static_cast<char>(n & 0xff);
  return text;
}

/// Returns a long integer with any bytes, in two's complement.
inline std::string big(std::string_view bytes) { return "\x8a" + little(bytes.size(), 1) + std::string(bytes); }
inline std::string number(std::int64_t n) {
  return n >= 0 && n < 256 ? "K" + little(static_cast<std::uint64_t>(n), 1)
                           : big(little(static_cast<std::uint64_t>(n), 8));
}
inline std::string real(double value) {
  std::string text = little(std::bit_cast<std::uint64_t>(value), 8);
  std::reverse(text.begin(), text.end());
  return "G" + text;
}
inline std::string text(std::string_view t) { return "X" + little(t.size(), 4) + std::string(t); }
inline std::string raw_bytes(std::string_view t) { return "B" + little(t.size(), 4) + std::string(t); }  // protocol 3
inline const std::string none = "N", yes = "\x88", no = "\x89", empty_tuple = ")", empty_dict = "}", empty_list = "]";

using Values = std::vector<std::string>;
inline std::string joined(const Values& values) {
  std::string all;
  for (const std::string& v : values) all += v;
  return all;
}
inline std::string tuple(const Values& values) { return values.empty() ? ")" : "(" + joined(values) + "t"; }
inline std::string list(const Values& values) { return "](" + joined(values) + "e"; }
inline std::string numbers(const std::vector<std::int64_t>& all) {
  Values values;
  for (const std::int64_t n : all) values.push_back(number(n));
  return tuple(values);
}

/// Returns a list in a list in a list…, `depth` levels deep.
inline std::string nested_lists(std::size_t depth) {
  std::string all;
  for (std::size_t i = 0; i < depth; ++i) all += "](";
  for (std::size_t i = 0; i < depth; ++i) all += "e";
  return all;
}
inline std::string repeated(const std::string& one, std::size_t count) {
  std::string all;
  all.reserve(one.size() * count);
  for (std::size_t i = 0; i < count; ++i) all += one;
  return all;
}

using Items = std::vector<std::pair<std::string, std::string>>;
/// Returns the items of a dict, whose keys are strings.
inline std::string items(const Items& all) {
  std::string values = "(";
  for (const auto& [key, value] : all) values += text(key) + value;
  return values + "u";
}
inline std::string dict(const Items& all) { return "}" + items(all); }

inline std::string global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
inline std::string call(std::string_view module, std::string_view name, const Values& args) {
  return global(module, name) + tuple(args) + "R";
}
inline std::string ordered(const Items& all) { return call("collections", "OrderedDict", {}) + items(all); }
/// Stores the value pushed by `value` in the memo.
inline std::string put(const std::string& value, std::uint32_t memo) { return value + "r" + little(memo, 4); }
inline std::string get(std::uint32_t memo) { return "j" + little(memo, 4); }
/// Sets the attributes of an object.
inline std::string built(const std::string& object, const std::string& state) { return object + state + "b"; }

// ---- calls of PyTorch

inline std::string storage_of(std::string_view type, const std::string& key, std::int64_t count) {
  return tuple({text("storage"), global("torch", type), key, text("cpu"), number(count)}) + "Q";
}
/// Returns a storage of floats with a string as its key.
inline std::string floats_storage(std::string_view key, std::int64_t count) {
  return storage_of("FloatStorage", text(key), count);
}

/// Arguments of _rebuild_tensor_v2 and similar functions.
struct View {
  std::int64_t offset = 0;
  std::vector<std::int64_t> size{2}, stride{1};
};
inline std::string tensor(const std::string& storage, const View& view = {}, const Values& more = {}) {
  Values args{storage,
              number(view.offset),
              numbers(view.size),
              numbers(view.stride),
              no,
              call("collections", "OrderedDict", {})};
  args.insert(args.end(), more.begin(), more.end());
  return call("torch._utils", "_rebuild_tensor_v2", args);
}
/// Returns a tensor of two floats in storage `key`.
inline std::string floats(std::string_view key = "0") { return tensor(floats_storage(key, 2)); }
inline std::string tensor_of_type(const std::string& storage, const std::string& dtype, const View& view = {}) {
  return call("torch._utils", "_rebuild_tensor_v3",
              {storage, number(view.offset), numbers(view.size), numbers(view.stride), no,
               call("collections", "OrderedDict", {}), dtype});
}
inline std::string quantized(const std::string& storage, const std::string& quantizer, const View& view = {}) {
  return call("torch._utils", "_rebuild_qtensor",
              {storage, number(view.offset), numbers(view.size), numbers(view.stride), quantizer, no,
               call("collections", "OrderedDict", {})});
}

inline std::string pickled(const std::string& object, unsigned protocol = 2) {
  return "\x80" + little(protocol, 1) + object + ".";
}

// ---- zip files

using Records = std::vector<std::pair<std::string, std::string>>;
/// Returns a zip file with these entries and correct checksums.
inline std::string zipped(const Records& entries, std::uint16_t method = stele::detail::zip::stored) {
  stele::BufferSink sink;
  stele::detail::Gather gather(sink);
  stele::detail::zip::Writer writer(gather);
  bool good = true;
  for (const auto& [name, bytes] : entries) good = good && writer.add(name, bytes_of(bytes), method);
  good = good && writer.finish() && gather.flush();
  if (!good) throw std::runtime_error("cannot write a zip file");
  return std::string(text_of(sink.take().span()));
}

inline const std::string eight = "12345678";  // two floats

/// Returns the entries of a file with this data.pkl: storage 0 contains two floats.
inline Records records(const std::string& data_pkl, Records more = {{"data/0", eight}}) {
  Records all{{"data.pkl", data_pkl}, {"byteorder", "little"}};
  all.insert(all.end(), more.begin(), more.end());
  all.emplace_back("version", "3\n");
  for (auto& record : all) record.first = "archive/" + record.first;
  return all;
}
inline std::string zip_file(const std::string& object, Records more = {{"data/0", eight}}, unsigned protocol = 2) {
  return zipped(records(pickled(object, protocol), std::move(more)));
}

// ---- streams before 1.6

struct LegacyStorage {
  std::string key;  // the operations that push the key
  std::int64_t count;
  std::string bytes;
};
struct LegacyFile {
  std::string magic = big("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"), version = number(1001),
              system = dict({{"protocol_version", number(1001)}, {"little_endian", yes}});
  std::string object;
  std::vector<LegacyStorage> storages{{text("0"), 2, eight}};
  std::string end = {};

  std::string make() const {
    Values keys;
    for (const LegacyStorage& s : storages) keys.push_back(s.key);
    std::string file = pickled(magic) + pickled(version) + pickled(system) + pickled(object) + pickled(list(keys));
    for (const LegacyStorage& s : storages) file += little(static_cast<std::uint64_t>(s.count), 8) + s.bytes;
    return file + end;
  }
};

// ---- tar files before 0.1.10

struct TarFile {
  struct Storage {
    std::int64_t key = 0;
    std::string type = "FloatStorage";
    std::int64_t count = 2;
    std::string bytes = eight;
  };
  struct Tensor {
    std::int64_t key = 10, storage = 0;
    std::int32_t rank = 1;
    std::vector<std::int64_t> size{2}, stride{1};
    std::int64_t offset = 0;
  };
  std::vector<Storage> storages{{}};
  std::vector<std::vector<std::int64_t>> views{};  // key, key of the other, offset, size
  std::vector<Tensor> tensors{{}};
  std::int64_t storage_count = -1, tensor_count = -1;  // -1: the correct counts
  std::string object = dict({{"w", number(10) + "Q"}});

  Records members() const {
    const auto count = [](std::int64_t given, std::size_t right) {
      return pickled(number(given != -1 ? given : static_cast<std::int64_t>(right)));
    };
    std::string first = count(storage_count, storages.size());
    for (const Storage& s : storages) {
      first += pickled(tuple({number(s.key), text("cpu"), global("torch", s.type)}));
      first += little(static_cast<std::uint64_t>(s.count), 8) + s.bytes;
    }
    Values all;
    for (const auto& view : views) all.push_back(numbers(view));
    first += pickled(list(all));
    std::string second = count(tensor_count, tensors.size());
    for (const Tensor& t : tensors) {
      second += pickled(tuple({number(t.key), number(t.storage), global("torch", "FloatTensor")}));
      second += little(static_cast<std::uint32_t>(t.rank), 4) + little(0, 4);
      for (const std::int64_t n : t.size) second += little(static_cast<std::uint64_t>(n), 8);
      for (const std::int64_t n : t.stride) second += little(static_cast<std::uint64_t>(n), 8);
      second += little(static_cast<std::uint64_t>(t.offset), 8);
    }
    return {{"sys_info", pickled(dict({}))}, {"storages", first}, {"tensors", second}, {"pickle", pickled(object)}};
  }
  std::string make() const { return packed(members()); }

  static std::string packed(const Records& members) {
    stele::BufferSink sink;
    const auto writer = std::make_shared<stele::detail::tar::Writer>(sink, false);
    const std::shared_ptr<stele::Bundle> bundle = writer;
    bool good = true;
    for (const auto& [name, bytes] : members) {
      auto file = bundle->create(name);
      good = good && file && (*file)->reserve(bytes.size()) && (*file)->write(bytes_of(bytes)) && (*file)->commit();
    }
    if (!good || !writer->finish()) throw std::runtime_error("cannot write a tar file");
    return std::string(text_of(sink.take().span()));
  }
};

// ---- exported programs

/// A weight of two floats in the record `weight_0`; the members replace those of the usual JSON.
struct Weight {
  std::string path = "\"weight_0\"", use_pickle = "false", dtype = "7", sizes = R"([{"as_int": 2}])",
              strides = R"([{"as_int": 1}])", offset = R"({"as_int": 0})", layout = "7";

  std::string json() const {
    return R"({"path_name": )" + path + R"(, "is_param": true, "use_pickle": )" + use_pickle +
           R"(, "tensor_meta": {"dtype": )" + dtype + R"(, "sizes": )" + sizes + R"(, "strides": )" + strides +
           R"(, "storage_offset": )" + offset + R"(, "requires_grad": false, "layout": )" + layout + "}}";
  }
};
inline Records program(const std::string& list, Records more = {{"data/weights/weight_0", eight}}) {
  Records all{{"archive_format", "pt2"}, {"archive_version", "0"}, {"byteorder", "little"}};
  all.emplace_back("data/weights/model_weights_config.json", list);
  all.insert(all.end(), more.begin(), more.end());
  for (auto& record : all) record.first = "model/" + record.first;
  return all;
}
inline std::string weights(const Items& all) {
  std::string list = R"({"config": {)";
  for (std::size_t i = 0; i < all.size(); ++i) {
    list += (i != 0 ? ", \"" : "\"") + all[i].first + "\": " + all[i].second;
  }
  return list + "}}";
}

}  // namespace stele_test::pytorch_files
