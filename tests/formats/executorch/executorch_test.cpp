// ExecuTorch's files: those of ExecuTorch itself, those of stele, and damaged ones.
#include <doctest/doctest.h>

#include <stele/recorders/any.hpp>
#include <stele/recorders/executorch.hpp>
#include <stele/recover.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "stele/detail/little_endian.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace executorch_test {

namespace {

using namespace stele;
using namespace stele_test;

/// Returns the bytes of a golden file, which stay.
const std::string& golden(const std::string& name) {
  static std::map<std::string, std::string> files;
  std::string& file = files[name];
  if (file.empty()) file = read_text(test_data("executorch") + "/" + name);
  return file;
}
template <class T>
std::vector<T> elements(const Snapshot& snapshot, std::string_view path) {
  const auto leaf = snapshot.find(path);
  REQUIRE(leaf);
  std::vector<T> out(leaf->byte_size() / sizeof(T));
  REQUIRE(leaf->read(0, std::as_writable_bytes(std::span(out))));
  return out;
}

/// Reads everything that can be read.
void read_all(const Snapshot& snapshot) {
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) static_cast<void>(content(snapshot.leaf(i)));
}

/// Opens every truncation of a file, and the file with each byte changed.
template <class Recorder>
void damage(const Recorder& recorder, const std::string& file) {
  for (std::size_t n = 0; n < file.size(); ++n) {
    const auto cut = recorder.open(bytes_of(std::string_view(file).substr(0, n)));
    if (cut) read_all(*cut);
  }
  std::string damaged = file;
  for (std::size_t i = 0; i < file.size(); ++i) {
    for (const unsigned flip : {0x01U, 0x80U, 0xffU}) {
      damaged[i] = static_cast<char>(static_cast<unsigned char>(file[i]) ^ flip);
      const auto changed = recorder.open(bytes_of(damaged));
      if (changed) read_all(*changed);
    }
    damaged[i] = file[i];
  }
}

struct Dense {
  Tensor<float> weight, bias;
};
struct Net {
  Dense conv, lin;
};

}  // namespace

TEST_CASE("executorch: a data file of ExecuTorch loads, by content") {
  const Net net = good(stele::load<Net>(test_data("executorch") + "/net.ptd"));
  CHECK(net.conv.weight.shape() == Shape({3, 2, 3, 3}));
  CHECK(net.conv.weight(0, 0, 0, 0) == -5.F / 8);
  CHECK(net.lin.bias(1) == -0.5F);
  const std::string saved_file(text_of(good(saved(PtdRecorder<>(), net)).span()));
  const Net again = good(PtdRecorder<>().load<Net>(bytes_of(saved_file)));
  CHECK(again.lin.weight(1, 3) == net.lin.weight(1, 3));
}

TEST_CASE("executorch: every type, ties and orders of axes") {
  const PtdRecorder<> recorder;
  const Snapshot snapshot = good(recorder.open(bytes_of(golden("types.ptd"))));
  const std::pair<const char*, DType> types[] = {
      {"float", DType::f32},      {"half", DType::f16},         {"double", DType::f64}, {"byte", DType::u8},
      {"char", DType::i8},        {"short", DType::i16},        {"int", DType::i32},    {"long", DType::i64},
      {"bool", DType::boolean},   {"uint16", DType::u16},       {"uint32", DType::u32}, {"uint64", DType::u64},
      {"bfloat16", DType::bf16},  {"float8", DType::f8_e4m3fn}, {"none", DType::f32},   {"odd.name/é", DType::i8},
      {"same_bytes", DType::i32},
  };
  for (const auto& known : types) {
    CAPTURE(known.first);
    REQUIRE(snapshot.find(known.first));
    CHECK(snapshot.find(known.first)->dtype() == known.second);
  }
  CHECK(snapshot.find("tied")->path() == "float");
  CHECK(snapshot.find("none")->shape().size() == 2);
  const auto image = elements<float>(snapshot, "channels_last");
  for (std::size_t i = 0; i < image.size(); ++i) CHECK(image[i] == static_cast<float>(i));
  CHECK(std::ranges::equal(snapshot.find("channels_last")->shape(), std::vector<Extent>{1, 2, 3, 4}));
  CHECK(elements<std::int32_t>(snapshot, "columns") == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5});
  CHECK(unreadable_reason(*snapshot.find("blob")) == "data without the layout of a tensor");
  CHECK(unreadable_reason(*snapshot.find("quantized")) == "a tensor of the scalar type 12");
  CHECK(code_of(saved(recorder, snapshot)) == Errc::not_representable);  // the unreadable entries
  SaveOptions options;
  options.allow_loss = true;
  const Bytes file = good(saved(recorder, snapshot, options));
  const Snapshot again = good(recorder.open(file.span()));
  CHECK(again.leaf_count() + 2 == snapshot.leaf_count());
  CHECK(again.find("tied")->path() == "float");
  CHECK(elements<float>(again, "channels_last") == image);
  CHECK(text_of(good(saved(recorder, again)).span()) == text_of(file.span()));
}

TEST_CASE("executorch: constants of programs") {
  const PteRecorder<> recorder;
  const Snapshot net = good(stele::open(test_data("executorch") + "/net.pte"));
  CHECK(net.find("constant.1")->shape().size() == 4);
  CHECK(elements<float>(net, "constant.1")[0] == -5.F / 8);
  CHECK(elements<float>(net, "constant.4") == std::vector<float>{-5.F / 8, -0.5F});
  CHECK(elements<float>(net, "mutable.1") == std::vector<float>{2, 3});
  const Snapshot outer = good(recorder.open(bytes_of(golden("outer.pte"))));
  REQUIRE(outer.notes().size() == 1);
  CHECK(outer.notes()[0].ends_with("tensors of the program are in a .ptd file"));
  const Snapshot delegated = good(recorder.open(bytes_of(golden("xnnpack.pte"))));
  CHECK(delegated.notes().size() == 1);
  CHECK(unreadable_reason(delegated.leaf(0)) == "data of a delegate");
  CHECK(code_of(stele::save(net, "/none/m.pte")) == Errc::unsupported);
  const TempDir dir;
  const Report report = good(stele::save(net, dir / "m.stele"));
  CHECK(report.count(Report::What::lost) == 1);
  CHECK(report.to_string().find("the program") != std::string::npos);
  const Snapshot tensors = good(stele::open(test_data("executorch") + "/types.ptd"));
  CHECK(good(stele::save(tensors, dir / "t.stele")).count(Report::What::lost) == 0);
}

TEST_CASE("executorch: tied tensors are stored once") {
  const Snapshot net = good(PtdRecorder<>().open(bytes_of(golden("types.ptd"))));
  const PtdRecorder<> recorder;
  SaveOptions options;
  options.allow_loss = true;
  const std::string file(text_of(good(saved(recorder, net, options)).span()));
  const Snapshot again = good(recorder.open(bytes_of(file)));
  CHECK(again.find("float")->location()->offset == again.find("same_bytes")->location()->offset);
  CHECK(again.find("tied")->location()->offset == again.find("float")->location()->offset);
}

TEST_CASE("executorch: what the format cannot store is refused") {
  const PtdRecorder<> recorder;
  CHECK(code_of(saved(recorder, std::map<std::string, std::string>{{"a", "b"}})) == Errc::not_representable);
  CHECK(code_of(saved(recorder, std::map<std::string, Tensor<float>>{{std::string("a\0b", 3), Tensor<float>({1})}})) ==
        Errc::not_representable);
  CHECK(code_of(saved(recorder, std::map<std::string, Tensor<float>>{{"a", Tensor<float>({1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                                                                          1, 1, 1, 1, 1, 1, 1})}})) ==
        Errc::not_representable);
  CHECK(code_of(saved(recorder, std::map<std::string, Tensor<float>>{
                                    {"a", Tensor<float>({std::size_t{1} << 31, 0})}})) == Errc::not_representable);
}

TEST_CASE("executorch hostile: every truncation and every changed byte") {
  damage(PtdRecorder<>(), golden("types.ptd"));
  damage(PtdRecorder<>(), golden("net.ptd"));
  damage(PteRecorder<>(), golden("net.pte"));
  damage(PteRecorder<>(), golden("xnnpack.pte"));
}

TEST_CASE("executorch hostile: lies") {
  const PtdRecorder<> recorder;
  std::map<std::string, Tensor<float>> model{{"a", Tensor<float>({2})}, {"b", Tensor<float>({3})}};
  const std::string file(text_of(good(saved(recorder, model)).span()));
  REQUIRE(recorder.open(bytes_of(file)));
  const auto with = [&](std::size_t at, std::uint64_t number) {
    std::string changed = file;
    std::byte bytes[8];
    detail::store_le(bytes, number);
    changed.replace(at, 8, reinterpret_cast<const char*>(bytes), 8);
    return code_of(recorder.open(bytes_of(changed)));
  };
  CHECK(with(16, 1) == Errc::malformed);  // the FlatBuffer's end
  CHECK(with(16, ~std::uint64_t{0}) == Errc::malformed);
  CHECK(with(24, std::uint64_t{1} << 40) == Errc::malformed);
  CHECK(with(32, ~std::uint64_t{0}) == Errc::malformed);  // the base of the segments
  CHECK(with(32, file.size()) == Errc::malformed);
  std::string twice = file;
  twice[twice.find("b\0\0\0")] = 'a';
  CHECK(code_of(recorder.open(bytes_of(twice))) == Errc::duplicate);
  CHECK(code_of(recorder.open(bytes_of("1234FT01"))) == Errc::truncated);
  CHECK(code_of(recorder.open(bytes_of(std::string(100, 'x')))) == Errc::bad_magic);
  CHECK(code_of(PteRecorder<>().open(bytes_of(std::string(100, 'x')))) == Errc::bad_magic);
  CHECK(code_of(PteRecorder<>().open(bytes_of("ET12"))) == Errc::truncated);
}

}  // namespace executorch_test
