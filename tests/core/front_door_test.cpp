// The front door finds every format: saves by the path's ending, loads by content.
#include <stele/bundle.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/nnef.hpp>
#include <stele/recorders/samediff.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"
#include "support/test_data.hpp"

namespace stele_test::front_door_test {
namespace {

struct Two {
  std::array<float, 2> bias{1, 2};
  std::array<float, 3> weight{3, 4, 5};
  bool operator==(const Two&) const = default;
};

}  // namespace

TEST_CASE("front door: every format by its ending, and by content under another name") {
  for (const stele::Format* format : stele::formats()) {
    CAPTURE(format->name());
    if (!format->writes()) continue;
    if (format->extension().empty()) continue;
    if (format->name() == "nnef-tensor" || format->name() == "npy") continue;  // hold one tensor
    const TempDir dir;
    const std::string path = dir / ("model" + std::string(format->extension()));
    good(stele::save(Two(), path, quick()));
    CHECK(good(stele::load<Two>(path)).weight[2] == 5);
    if (format->name() == "safetensors-sharded" || format->name() == "sdnb") continue;  // files that name each other
    std::filesystem::rename(path, dir / "other.thing");
    CHECK(good(stele::load<Two>(dir / "other.thing")).bias[1] == 2);
  }
}

TEST_CASE("front door: an ending in upper case means what it means in lower case") {
  for (const stele::FormatFamily& family : stele::format_families()) {
    for (const auto& member : family.members) {
      for (const std::string_view ending : member.extensions) {
        if (ending.empty()) continue;
        const std::string lower = "model" + std::string(ending);
        std::string upper = lower;
        for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
        upper.replace(0, 5, "model");
        CAPTURE(upper);
        CHECK(good(stele::format_of_path(upper)) == good(stele::format_of_path(lower)));
        if (!member.format->writes()) continue;
        const TempDir one, two;
        const auto save = [&](const auto& module) {
          good(stele::save(module, one / lower, quick()));
          good(stele::save(module, two / upper, quick()));
          CHECK(good(stele::load<std::decay_t<decltype(module)>>(two / upper)) ==
                good(stele::load<std::decay_t<decltype(module)>>(one / lower)));
        };
        if (member.format->name() == "nnef-tensor" || member.format->name() == "npy") {
          save(std::map<std::string, std::vector<float>>{{"model", {1, 2, 3}}});  // the file's name is the tensor's
        } else {
          save(Two());
        }
        if (one.names() != std::vector<std::string>{lower} || std::filesystem::is_directory(one / lower)) continue;
        CHECK(two.names() == std::vector<std::string>{upper});
        CHECK((read_text(one / lower) == read_text(two / upper)));
      }
    }
  }
}

TEST_CASE("front door: a path in any of its types") {
  const TempDir dir;
  const std::filesystem::path path = std::filesystem::path(dir / "model.stele");
  good(stele::save(Two(), path));
  CHECK(good(stele::load<Two>(path)).weight[2] == 5);
  const std::string text = path.string();
  CHECK(good(stele::load<Two>(std::string_view(text))).weight[2] == 5);
  CHECK(good(stele::load<Two>(text.c_str())).weight[2] == 5);
  CHECK(good(stele::BinaryRecorder<>().load<Two>(path)).weight[2] == 5);
  const stele::Input input(dir / "mod" + std::string("el.stele"));  // a temporary path
  CHECK(stele::BinaryRecorder<>().load<stele::Record<Two>>(input));
}

TEST_CASE("front door: a file of one tensor") {
  const TempDir dir;
  good(stele::save(std::vector<float>{1, 2, 3}, dir / "w.dat", quick()));
  CHECK(good(stele::load<std::vector<float>>(dir / "w.dat"))[2] == 3);
  good(stele::save(std::vector<float>{1, 2, 3}, dir / "w.npy", quick()));
  CHECK(good(stele::load<std::vector<float>>(dir / "w.npy"))[2] == 3);
}

TEST_CASE("front door: files of others, by content") {
  const std::string data = test_data() + "/formats";
  const std::pair<const char*, const char*> files[] = {
      {"/executorch/data/net.ptd", "ptd"},
      {"/executorch/data/net.pte", "pte"},
      {"/coreml/data/int4.mlpackage", "coreml"},
      {"/coreml/data/int4.mlpackage/Data/com.apple.CoreML/model.mlmodel", "coreml"},
      {"/coreml/data/int4.mlpackage/Data/com.apple.CoreML/weights/weight.bin", "coreml"},
      {"/coreml/data/network.mlmodel", "coreml"},
      {"/flax/data/net.msgpack", "flax"},
      {"/flax/data/unknown.msgpack", "flax"},
      {"/ncnn/data/net.ncnn.param", "ncnn"},
      {"/ncnn/data/net.ncnn.bin", "ncnn"},
      {"/keras/data/conv.keras", "keras"},
      {"/keras/data/conv.weights.h5", "hdf5"},
      {"/keras/data/conv.h5", "hdf5"},
      {"/nnef/data/model.nnef", "nnef"},
      {"/nnef/data/model.nnef.tgz", "nnef-tgz"},
      {"/nnef/data/model.nnef.tar", "nnef-tgz"},
      {"/nnef/data/types/f32.dat", "nnef-tensor"},
      {"/nnef/data/by_hand/provisional_signed_16.dat", "nnef-tensor"},
      {"/numpy/data/fortran.npy", "npy"},
      {"/numpy/data/version3.npy", "npy"},
      {"/numpy/data/objects.npy", "npy"},
      {"/numpy/data/compressed.npz", "npz"},
      {"/numpy/data/names.npz", "npz"},
      {"/numpy/data/empty.npz", "npz"},
      {"/openvino/data/net.bin", "openvino"},
      {"/openvino/data/net.xml", "openvino"},
      {"/paddle/data/lenet.pdiparams", "paddle"},
      {"/paddle/data/lenet_params/__params__", "paddle"},
      {"/paddle/data/single_f32.pdtensor", "paddle"},
      {"/tflite/data/float.tflite", "tflite"},
      {"/tflite/data/types.tflite", "tflite"},
      {"/paddle/data/lenet_folder", "paddle-folder"},
      {"/paddle/data/lenet_separate", "paddle-folder"},
      {"/paddle/data/nested_folder", "paddle-folder"},
      {"/whisper/data/ggml-f16.bin", "whisper"},
  };
  for (const auto& known : files) {
    CAPTURE(known.first);
    const std::string path = data + known.first;
    const stele::SourcePtr source =
        good(std::filesystem::is_directory(path) ? stele::open_folder(path) : stele::open_file(path));
    CHECK(good(stele::format_of_content(*source))->name() == known.second);
  }
}

TEST_CASE("front door: a folder of nothing known") {
  const TempDir dir;
  std::ofstream(dir / "notes.txt") << "text";
  CHECK(code_of(stele::open(dir.path())) == stele::Errc::bad_magic);
}

TEST_CASE("front door: extensions that no format has") {
  const auto error = [](const std::string& path) {
    const stele::Error e = bad(stele::save(Two(), path));
    CHECK(e.code() == stele::Errc::unsupported);
    CHECK(e.to_string().size() < 250);
    return e;
  };
  CHECK(error("/none/m.safetensor").hint() == "use the extension .safetensors, or see stele::formats()");
  CHECK(error("/none/v1.2.stelle").hint() == "use the extension .stele, or see stele::formats()");
  CHECK(error("/none/m.json.zstd").hint() == "use the extension .json.zst, or see stele::formats()");
  CHECK(error("/none/m.somethingelse").hint() == "see stele::formats()");
  CHECK(error("/none.stele/m").hint() == "see stele::formats()");
  for (const std::pair<const char*, const char*>& other :
       {std::pair("m.pb", "a TensorFlow file"), {"m.pickle", "a Python pickle"}, {"M.PB", "a TensorFlow file"}}) {
    CAPTURE(other.first);
    CHECK(error(other.first).found().starts_with(other.second));
  }
}

TEST_CASE("front door: files of formats that are not read") {
  const TempDir dir;
  const auto found = [&](const std::string& name, std::string bytes, stele::Errc code = stele::Errc::unsupported) {
    bytes.resize(64, 'x');
    std::ofstream(dir / name, std::ios::binary) << bytes;
    const stele::Error e = bad(stele::open(dir / name));
    CHECK(e.code() == code);
    CHECK(e.hint() == "see stele::formats()");
    CHECK(e.to_string().size() < 300);
    return std::string(e.found());
  };
  using namespace std::string_literals;
  constexpr stele::Errc unknown = stele::Errc::bad_magic;  // the file's name may show its format
  CHECK(found("i", "\x08\x01\x12\x05"s).starts_with("a TensorFlow file"));
  CHECK(found("saved_model.pb", "\x08\x01\x12\x05"s).find("stele/import.hpp") != std::string::npos);
  CHECK(found("j", "\x80\x04\x95"s, unknown).starts_with("a Python pickle"));
  for (const std::string& head :
       {"\x04\x22\x4d\x18\x40\x40\xc0"s, "\xfd\x37zXZ\0\0\4"s, "BZh9\x31\x41\x59\x26\x53\x59"s}) {
    CHECK(found("k", head, unknown).starts_with("a file compressed by"));
  }
  std::ofstream(dir / "k", std::ios::binary)
      << "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xb3\xb7\x87\x02\x00\xb3\x58\xdd\xaa\x09\x00\x00\x00"s;
  CHECK(bad(stele::open(dir / "k")).found().starts_with("a file compressed by gzip, LZ4"));
  CHECK(found("l.stele", "nothing known", unknown) ==
        "64 bytes that begin with 6e 6f 74 68 69 6e 67 20, with the name of a stele file");
  CHECK(found("m", "nothing known", unknown) == "64 bytes that begin with 6e 6f 74 68 69 6e 67 20");
}

TEST_CASE("front door: models that are out of scope are named by their content") {
  const TempDir dir;
  const auto found = [](const std::string& path) {
    const stele::Error e = bad(stele::open(path));
    CHECK(e.code() == stele::Errc::unsupported);
    CHECK(e.to_string().size() < 300);
    return std::string(e.found());
  };
  const std::pair<const char*, const char*> files[] = {
      {"sk.pkl", "a scikit-learn model"}, {"sk2.pkl", "a scikit-learn model"}, {"sk.skops", "a scikit-learn model"},
      {"arr.joblib", "a joblib file"},    {"one.joblib", "a joblib file"},     {"xgb.ubj", "an XGBoost model"},
      {"xgb.json", "an XGBoost model"},   {"xgb.pkl", "an XGBoost model"},     {"lgb.txt", "a LightGBM model"},
      {"lgb.json", "a LightGBM model"},   {"lgb.pkl", "a LightGBM model"},     {"a.mnn", "an MNN model"},
  };
  for (const auto& file : files) {
    CAPTURE(file.first);
    std::filesystem::copy_file(test_data() + "/core/data/foreign/" + file.first, dir / "other.thing",
                               std::filesystem::copy_options::overwrite_existing);
    CHECK(found(dir / "other.thing").starts_with(file.second));
  }
  using namespace std::string_literals;
  const std::pair<std::string, const char*> made[] = {
      {"\"1 25 1 4206624770 ,\"\n\"input 1 3 224 224 ,\"\n", "a TNN model"},
      {"\x02\0\xbc\xfa\x19\0\0\0"s, "a TNN model"},
      {"B\0C\0N\0\0\0B\0V\0e\0r\0s\0i\0o\0n\0"s, "a CNTK model"},
      {"\x08\1\x12\x11\n\x07version\x12\x06\x08\1\x10\3(\2\x12\x09\n\3uid\x12\2ab"s, "a CNTK model"},
      {"\xba\x16\x4f\x2f\x0c\0\0\0\x64\0\0\0"s, "a fastText model"},
      {"[\n {\n \"weights\":\n [\n {\"name\":\"conv/filters\",\"shape\":[3,3]", "a TensorFlow.js model"},
      {"[{\"paths\": [\"group1-shard1of1\"], \"weights\": []}]", "a TensorFlow.js model"},
      {"{\"format\": \"graph-model\", \"generatedBy\": \"2.3\"}", "a TensorFlow.js model"},
      {"{\"modelTopology\": {\"class_name\": \"Model\"}}", "a TensorFlow.js model"},
      {"[{\"name\": \"other\"}]", "a JSON file that is not a model"},
      {"PK\3\4\x14" + std::string(21, '\0') + "\x0b\0\0\0w/zarr.json"s, "a zip file of zarr"},
      {"PK\3\4\x14" + std::string(21, '\0') + "\7\0\0\0.zgroup"s, "a zip file of zarr"},
  };
  for (const auto& [bytes, what] : made) {
    std::ofstream(dir / "other.thing", std::ios::binary) << bytes;
    CHECK(found(dir / "other.thing").starts_with(what));
  }
}

TEST_CASE("front door: files that are no models, whatever their names are") {
  const TempDir dir;
  const std::pair<std::string, const char*> files[] = {
      {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n", "a git-lfs pointer"},
      {"\xef\xbb\xbf \r\n<!DocType HTML><title>404</title>", "an HTML or XML page"},
      {"<html lang=\"en\">", "an HTML or XML page"},
      {"<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code></Error>", "an HTML or XML page"},
      {"{\"error\": \"Repository not found\"}", "a JSON error message"},
      {"{\n  \"message\": \"Not Found\"}", "a JSON error message"},
      {"{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\"\n}",
       "a JSON file that is not a model"},
      {"{\"_class_name\" : \"UNet2DConditionModel\"}", "a JSON file that is not a model"},
      {"", "an empty file"},
  };
  for (const char* extension : {"", ".safetensors", ".pt", ".bin", ".json", ".gguf", ".mpk", ".h5"}) {
    for (const auto& file : files) {
      CAPTURE(extension);
      CAPTURE(file.first);
      const std::string path = dir / ("f" + std::string(extension));
      std::ofstream(path, std::ios::binary) << file.first;
      const stele::Error e = bad(stele::open(path));
      CHECK(e.code() == stele::Errc::unsupported);
      CHECK(e.found().starts_with(file.second));
    }
  }
  std::ofstream(dir / "f.txt") << "<?xml version=\"1.0\"?><net/>";
  CHECK(code_of(stele::open(dir / "f.txt")) == stele::Errc::bad_magic);
}

TEST_CASE("front door: the weights of a graph of pnnx") {
  using namespace std::string_literals;
  const TempDir dir;
  std::ofstream(dir / "m.pnnx.bin", std::ios::binary) << "PK\3\4\x14\0\0\0\0\0"s << std::string(60, '\0');
  const stele::Error e = bad(stele::open(dir / "m.pnnx.bin"));
  CHECK(e.code() == stele::Errc::unsupported);
  CHECK(e.found().find(".ncnn.param") != std::string_view::npos);
}

TEST_CASE("front door: a folder of models without an index") {
  const TempDir dir;
  good(stele::save(Two(), dir / "model-00001-of-00002.safetensors", quick()));
  good(stele::save(Two(), dir / "model-00002-of-00002.safetensors", quick()));
  const stele::Error e = bad(stele::open(dir.path()));
  CHECK(e.code() == stele::Errc::bad_magic);
  CHECK(e.hint() == "join them with stele::merge");
}

TEST_CASE("front door: recorders whose files follow the path's extension") {
  const TempDir dir;
  const auto check = [&](const auto& recorder, const std::string& name, std::string_view format) {
    CAPTURE(name);
    good(recorder.save(Two(), dir / name, quick()));
    const std::string path = dir / name;
    const bool folder = std::filesystem::is_directory(path);
    const stele::SourcePtr source = good(folder ? stele::open_folder(path) : stele::open_file(path));
    CHECK(good(stele::format_of_content(*source))->name() == format);
    CHECK(good(recorder.template load<Two>(path)).weight[2] == 5);
  };
  check(stele::SameDiffRecorder<>(), "m.fb", "samediff");
  check(stele::SameDiffRecorder<>(), "m.sdnb", "sdnb");
  check(stele::SameDiffRecorder<>(), "m.sdz", "sdz");
  check(stele::SameDiffRecorder<>(), "m.other", "samediff");
  check(stele::SameDiffRecorder<>(stele::SameDiffContainer::sdz), "n.fb", "sdz");
  check(stele::GgufRecorder<>(), "m.gguf", "gguf");
  check(stele::NnefRecorder<>(), "m.nnef", "nnef");
  check(stele::NnefRecorder<>(), "m.nnef.tgz", "nnef-tgz");
  check(stele::NnefRecorder<>(), "m.other.folder", "nnef");
  good(stele::NnefRecorder<>().save(std::vector<float>{1, 2, 3}, dir / "w.dat", quick()));
  CHECK(std::filesystem::is_regular_file(dir / "w.dat"));
  good(stele::SameDiffRecorder<>().save(Two(), dir / "plain", quick()));
  CHECK(std::filesystem::exists(dir / "plain.fb"));
  good(stele::NnefRecorder<>().save(Two(), dir / "folder", quick()));
  CHECK(std::filesystem::is_directory(dir / "folder.nnef"));
}

}  // namespace stele_test::front_door_test
