// Opens, verifies and reads files with shared and repeated parts, each in three sizes. benchmarks/shared_parts.py
// counts the instructions, to check that readers take linear time. One thread, no clock.
#include <valgrind/callgrind.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stele/bundle.hpp"
#include "stele/recorders/any.hpp"
#include "stele/recorders/burn.hpp"
#include "stele/schema.hpp"
#include "stele/stele.hpp"
#include "support/onnx_bytes.hpp"
#include "support/pytorch_file.hpp"
#include "support/tensor_bundle.hpp"

namespace {

using namespace stele;
namespace pt = stele_test::pytorch_files;
namespace tf = stele_test::tensor_bundle;
using stele_test::bytes_of;

constexpr std::size_t sizes[] = {64, 256, 1024};  // benchmarks/shared_parts.py compares the two differences
constexpr float element[] = {1, 2, 3, 4};
constexpr LeafOps memory_ops{.view = [](const void* at, std::uint64_t) { return static_cast<const std::byte*>(at); }};

/// A file in memory, with the other files of its model.
struct File {
  const Format* format = nullptr;
  SourcePtr source;
  std::optional<Layout> layout{};
};
/// A kind of file; `make` makes one with the given number of parts. Files of other programs may be refused.
struct Kind {
  std::string name;
  std::string_view format;
  bool foreign = false;
  std::function<File(std::size_t)> make;
};

[[noreturn]] void fail(const std::string& kind, const Error& error) {
  std::fprintf(stderr, "shared_parts: %s: %s\n", kind.c_str(), error.to_string().c_str());
  std::exit(1);
}

std::string numbered(const char* prefix, std::size_t i) { return prefix + std::to_string(i); }

void put(Bundle& bundle, const std::string& name, std::string_view bytes) {
  const auto sink = bundle.create(name).value();
  sink->write(bytes_of(bytes)).value();
  sink->commit().value();
}
File file_of(std::string_view format, std::string_view bytes, std::string_view side_file = {}) {
  const auto bundle = memory_bundle();
  const Format* const found = find_format(format);
  const std::string name = "model" + std::string(found->extension());
  put(*bundle, name, bytes);
  if (!side_file.empty()) put(*bundle, "side", side_file);
  return {found, bundle->open(name).value()};
}

/// Returns a file with a second one beside it, of the same stem.
File pair_of(std::string_view format, std::string_view bytes, const std::string& ending, std::string_view beside) {
  const auto bundle = memory_bundle();
  const Format* const found = find_format(format);
  const std::string name = "model" + std::string(found->extension());
  put(*bundle, name, bytes);
  put(*bundle, "model" + ending, beside);
  return {found, bundle->open(name).value()};
}

/// Returns numbers of 32 bits, little-endian.
std::string i32(std::initializer_list<std::size_t> numbers) {
  std::string bytes;
  for (const std::size_t n : numbers) {
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(n >> 8 * i & 0xff);
  }
  return bytes;
}

// ---- files of a format's own writer

/// Returns a model in which everything that a format can share or repeat is shared or repeated: long common prefixes of
/// names, one memory for all tensors, two additional names for each tensor, equal values and metadata.
Snapshot model(std::size_t count, int depth) {
  SnapshotBuilder builder;
  builder.begin(NodeKind::module, "");
  for (int i = 0; i < depth; ++i) builder.begin(NodeKind::module, "a_part_of_a_name_that_all_tensors_have");
  std::vector<std::uint32_t> tensors;
  const Extent shape[] = {2, 1, 1, 2};
  for (std::size_t i = 0; i < count; ++i) {
    tensors.push_back(builder.tensor(builder.intern(numbered("weight_", i)), DType::f32, shape, sizeof element,
                                     {&memory_ops, element, 0}));
    builder.annotate("note", Value("the same"));
  }
  for (std::size_t i = 0; i < count; ++i) {
    builder.alias(builder.intern(numbered("again_", i)), tensors[i]);
    builder.alias(builder.intern(numbered("first_", i)), tensors[0]);
    builder.value(builder.intern(numbered("value_", i)), Value(Value::List{Value("same"), Value(std::int64_t{1})}));
  }
  std::map<std::string, std::string> metadata;
  for (std::size_t i = 0; i < count; ++i) metadata.emplace(numbered("a key of the metadata ", i), "the same");
  builder.set_metadata(std::move(metadata));
  return builder.finish();
}
/// Returns a tensor for formats that store only one; it is long enough to be read in several pieces.
Snapshot one_tensor(std::size_t count) {
  constexpr std::size_t part = 512;
  static const std::vector<std::byte> zeros(sizes[2] * part * sizeof(float));
  SnapshotBuilder builder;
  builder.begin(NodeKind::module, "");
  const Extent shape[] = {count, part};
  builder.tensor("weight", DType::f32, shape, count * part * sizeof(float), {&memory_ops, zeros.data(), 0});
  return builder.finish();
}

Result<File> written(const Format& format, const detail::Object& object) {
  const auto bundle = memory_bundle();
  const std::string name = "model" + std::string(format.extension());
  SaveOptions options;
  options.threads = 1;
  options.allow_loss = true;
  if (format.is_folder()) {
    const auto sink = bundle_sink(bundle);
    STELE_TRY(detail::save_object(format, {}, object, *sink, options));
    return File{&format, bundle_source(bundle)};
  }
  STELE_TRY_ASSIGN(const auto sink, bundle->create(name));
  STELE_TRY(detail::save_object(format, {}, object, *sink, options));
  STELE_TRY_ASSIGN(SourcePtr source, bundle->open(name));
  return File{&format, std::move(source)};
}

/// The type of bincode files, which do not store names.
struct Typed {
  std::vector<Tensor<float>> tensors;
};
const BurnFormat typed_format({.encoding = BurnEncoding::bin, .schema = schema_of<Typed>()});
const BurnFormat typed_gzip_format({.encoding = BurnEncoding::bin, .gzip = true, .schema = schema_of<Typed>()});

void add_typed(std::vector<Kind>& kinds, const BurnFormat& format) {
  const std::string name(format.name());
  kinds.push_back({name, format.name(), false, [&format, name](std::size_t count) {
                     const Typed typed{std::vector<Tensor<float>>(count, Tensor<float>({4}, {1, 2, 3, 4}))};
                     auto made = written(format, detail::object_of(typed));
                     if (!made) fail(name, made.error());
                     return *std::move(made);
                   }});
}

void add_written(std::vector<Kind>& kinds, const Format& format) {
  const std::string name(format.name());
  for (const BurnFormat* typed : {&typed_format, &typed_gzip_format}) {
    if (name == typed->name()) return add_typed(kinds, *typed);
  }
  const bool one = name == "npy" || name == "nnef-tensor";
  const int depth = name == "gguf" ? 1 : 6;  // of names of at most 63 bytes
  kinds.push_back({name, format.name(), false, [&format, name, one, depth](std::size_t count) {
                     const Snapshot snapshot = one ? one_tensor(count) : model(count, depth);
                     auto made = written(format, detail::object_of(snapshot));
                     if (!made) fail(name, made.error());
                     auto layout = layout_of(snapshot);
                     if (layout) made->layout = *std::move(layout);
                     return *std::move(made);
                   }});
}

// ---- files that only other programs write

pt::Items keys(std::size_t count, const std::function<std::string(std::size_t)>& value) {
  pt::Items all;
  for (std::size_t i = 0; i < count; ++i) all.emplace_back(numbered("a.long.name.of.a.tensor.", i), value(i));
  return all;
}

std::string tensor_of_onnx(std::size_t i) {
  using stele_test::bytes;
  using stele_test::number;
  const auto pair = [](const char* key, const char* value) { return bytes(13, bytes(1, key) + bytes(2, value)); };
  return bytes(5, number(1, 2) + number(2, 1) + bytes(8, numbered("a.long.name.of.a.tensor.", i)) +
                      pair("location", "side") + pair("offset", "0") + pair("length", "8") + number(14, 1));
}

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  std::set<std::string_view> made;
  const auto add = [&](std::string name, std::string_view format, std::function<File(std::size_t)> make) {
    kinds.push_back({std::move(name), format, true, std::move(make)});
  };
  add("pytorch names of a tensor", "pytorch", [](std::size_t n) {
    const std::string first = pt::put(pt::floats(), 1) + "0";
    return file_of("pytorch", pt::zip_file(first + pt::ordered(keys(n, [](std::size_t) { return pt::get(1); }))));
  });
  add("pytorch views of a storage", "pytorch", [](std::size_t n) {
    const auto count = static_cast<std::int64_t>(n + 2);
    const auto view = [&](std::size_t i) {
      return pt::tensor(pt::floats_storage("0", count), {static_cast<std::int64_t>(i)});
    };
    return file_of("pytorch", pt::zip_file(pt::ordered(keys(n, view)), {{"data/0", std::string((n + 2) * 4, '1')}}));
  });
  add("pytorch expanded views", "pytorch", [](std::size_t n) {
    const auto view = [](std::size_t i) {
      return pt::tensor(pt::floats_storage("0", 2), {0, {static_cast<std::int64_t>(i + 1) % 64, 4}, {0, 0}});
    };
    return file_of("pytorch", pt::zip_file(pt::ordered(keys(n, view))));
  });
  add("pytorch long shapes", "pytorch", [](std::size_t n) {
    const std::vector<std::int64_t> ones(n, 1);
    return file_of("pytorch",
                   pt::zip_file(pt::ordered({{"w", pt::tensor(pt::floats_storage("0", 2), {0, ones, ones})}})));
  });
  add("pytorch shared values", "pytorch", [](std::size_t n) {
    const std::string list = pt::put(pt::list({pt::number(1), pt::text("a"), pt::numbers({1, 2, 3})}), 1) + "0";
    return file_of("pytorch", pt::zip_file(list + pt::dict(keys(n, [](std::size_t) { return pt::get(1); }))));
  });
  add("pytorch equal names", "pytorch", [](std::size_t n) {
    return file_of("pytorch", pt::zip_file("}" + pt::items(pt::Items(n, {"a", pt::floats()}))));
  });
  add("pytorch legacy", "pytorch", [](std::size_t n) {
    pt::LegacyFile file;
    file.object = pt::put(pt::floats(), 1) + "0" + pt::ordered(keys(n, [](std::size_t i) {
                    return i % 2 == 0 ? pt::get(1) : pt::tensor(pt::floats_storage("0", 2), {1, {1}, {1}});
                  }));
    return file_of("pytorch", file.make());
  });
  add("pytorch tar", "pytorch", [](std::size_t n) {
    pt::TarFile file;
    file.tensors.clear();
    for (std::size_t i = 0; i < n; ++i) file.tensors.push_back({static_cast<std::int64_t>(i + 10)});
    file.object = pt::dict(keys(n, [](std::size_t i) { return pt::number(static_cast<std::int64_t>(i) + 10) + "Q"; }));
    return file_of("pytorch", file.make());
  });
  add("pytorch pt2", "pytorch", [](std::size_t n) {
    const std::string list = pt::weights(keys(n, [](std::size_t) { return pt::Weight{}.json(); }));
    return file_of("pytorch", pt::zipped(pt::program(list)));
  });
  add("onnx tensors at one offset", "onnx", [](std::size_t n) {
    std::string graph;
    for (std::size_t i = 0; i < n; ++i) graph += tensor_of_onnx(i);
    return file_of("onnx", stele_test::onnx::model(graph), "12345678");
  });
  add("tensorflow tensors at one place", "tensor-bundle", [](std::size_t n) {
    tf::Files files;
    files.add("a/long/name/of/a/tensor/0", 1, {2}, "12345678");
    for (std::size_t i = 1; i < n; ++i) {
      files.tensors.emplace_back(numbered("a/long/name/of/a/tensor/", i), files.tensors[0].second);
    }
    return File{find_format("tensor-bundle"), files.bundle()->open("x.index").value()};
  });
  add("caffe layers", "caffe", [](std::size_t n) {
    std::string all;
    for (std::size_t i = 0; i < n; ++i) {
      const std::string name = numbered("layer_", i);
      const std::string layer = "\x0a" + std::string(1, static_cast<char>(name.size())) + name +
                                "\x12\x04"
                                "Bias\x3a\x0b\x2a\x04" +
                                std::string(4, '\0') + "\x3a\x03\x0a\x01\x01";
      all += "\xa2\x06" + std::string(1, static_cast<char>(layer.size())) + layer;
    }
    return file_of("caffe", all);
  });
  add("darknet sections", "darknet", [](std::size_t n) {
    std::string network = "[net]\ninputs=1\n";
    for (std::size_t i = 0; i < n; ++i) network += "[connected]\noutput=1\nactivation=linear\n";
    return pair_of("darknet", i32({0, 2, 0, 0, 0}) + std::string(8 * n, '\0'), ".cfg", network);
  });
  add("ncnn layers", "ncnn", [](std::size_t n) {
    const std::string count = std::to_string(n + 1);
    std::string layers = "7767517\n" + count + " " + count + "\nInput in 0 1 in\n";
    for (std::size_t i = 0; i < n; ++i) {
      const std::string name = numbered("b", i);
      layers += "Bias " + name + " 1 1 in " + name + " 0=1\n";
    }
    return pair_of("ncnn", layers, ".bin", std::string(4 * n, '\0'));
  });
  add("openvino constants of one place", "openvino", [](std::size_t n) {
    std::string graph = "<?xml version=\"1.0\"?>\n<net name=\"m\" version=\"11\">\n<layers>\n";
    for (std::size_t i = 0; i < n; ++i) {
      graph += "<layer id=\"" + std::to_string(i) + "\" name=\"" + numbered("c", i) +
               "\" type=\"Const\" version=\"opset1\"><data element_type=\"f32\" shape=\"1\" offset=\"0\" size=\"4\"/>"
               "<output><port id=\"0\" precision=\"FP32\"><dim>1</dim></port></output></layer>\n";
    }
    return pair_of("openvino", graph + "</layers>\n<edges>\n</edges>\n</net>\n", ".bin", std::string(4, '\0'));
  });
  add("llama2c layers", "llama2c", [](std::size_t n) {
    const std::size_t layers = n / 9;  // of nine weights
    std::string all = i32({0x616b3432, 1, 8, 8, layers, 1, 1, 1, 1}) + '\1';
    all.resize(256);
    return file_of("llama2c", all + std::string(4 * (layers * (2 * 8 + 7 * 64) + 8 + 8), '\0'));
  });
  add("whisper tensors", "whisper", [](std::size_t n) {
    std::string all = i32({0x67676d6c, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 0, 2, 1, 0, 0, 0});
    for (std::size_t i = 0; i < n; ++i) {
      const std::string name = numbered("encoder.weight_", 1'000'000 + i);  // in the order of names
      all += i32({1, name.size(), 0, 1}) + name + std::string(4, '\0');
    }
    return file_of("whisper", all);
  });
  // Only the tests make files of these formats.
  made = {"coreml", "orbax", "pickle", "pte", "tflite"};
  for (const Kind& kind : kinds) made.insert(kind.format);
  for (const Format* format : formats()) {
    if (format->writes()) {
      add_written(kinds, *format);
    } else if (!made.contains(format->name())) {
      fail(std::string(format->name()), Error(Errc::unsupported, "this benchmark does not make files of this format"));
    }
  }
  return kinds;
}

/// Opens the file, checks it, and reads all of it; a refusal is also a valid result.
std::string read(const File& file) {
  LoadOptions options;
  options.threads = 1;
  options.layout = file.layout;
  const auto opened = open(*file.format, file.source, options);
  if (!opened) return opened.error().to_string();
  if (const auto verified = verify(*file.format, file.source, options); !verified) {
    return verified.error().to_string();
  }
  BufferSink sink;
  SaveOptions save;
  save.threads = 1;
  save.allow_loss = true;
  const auto saved = BinaryRecorder<>().save(*opened, sink, save);
  return saved ? std::string() : saved.error().to_string();
}

}  // namespace

/// shared_parts [PART PARTS]: all kinds of files, or every PARTS-th from PART on.
int main(int count, char** words) {
  const std::size_t first = count > 2 ? std::stoul(words[1]) : 0, step = count > 2 ? std::stoul(words[2]) : 1;
  const std::vector<Kind> kinds = all_kinds();
  for (std::size_t i = first; i < kinds.size(); i += step) {
    const Kind& kind = kinds[i];
    for (const std::size_t size : sizes) {
      const File file = kind.make(size);
      CALLGRIND_ZERO_STATS;
      CALLGRIND_TOGGLE_COLLECT;
      const std::string refused = read(file);
      CALLGRIND_TOGGLE_COLLECT;
      const std::string name = kind.name + ": " + std::to_string(size);  // the macro needs it after its own statement
      CALLGRIND_DUMP_STATS_AT(name.c_str());
      if (!refused.empty() && !kind.foreign) {
        std::fprintf(stderr, "shared_parts: %s: %s\n", kind.name.c_str(), refused.c_str());
        return 1;
      }
      if (!refused.empty() && size == sizes[0]) std::printf("%s is refused: %s\n", kind.name.c_str(), refused.c_str());
    }
  }
}
