// Opens bytes as one of Burn's records: as they are, and after the metadata that the first byte chooses, in
// MessagePack, JSON or bincode, of every release. Reads everything, loads modules, saves again as each of them.
#include <stele/recorders/burn.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "fuzz/leaves.hpp"
#include "support/random_model.hpp"
#include "support/recorders.hpp"

namespace {

using namespace stele;
using namespace stele_test;
using namespace std::string_literals;

template <class T>
const T& good(const Result<T>& result) {
  if (!result) std::fputs(result.error().to_string().c_str(), stderr);
  require(result.has_value());
  return *result;
}

/// A module with every kind of field that a bincode record holds.
struct Net {
  struct Lin {
    Param<Tensor<float>> w;
    std::optional<Param<Tensor<float>>> b;
  };
  struct Pair {
    Lin first, second;
  };
  struct State {
    bool flag = false;
    std::int8_t small = 0;
    std::uint32_t number = 0;
    float16 half;
    double real = 0;
    std::string text;
    std::map<std::string, Tensor<float>> moments;
    static constexpr Attribute stele_attributes[] = {attr::burn_record()};
    STELE_MODULE(State, flag, small, number, half, real, text, moments)
  };
  Lin lin;
  std::vector<Lin> list;
  std::variant<Lin, Pair> choice;
  std::array<Param<Tensor<bool>>, 2> masks;
  std::optional<State> state;
  Value any;
  static constexpr Attribute stele_attributes[] = {
      attr::burn_layout("lin, list, choice, masks, state, any, stride[2], act(3 Relu), pool{k[2], p(1 Same)}")};
  STELE_MODULE(Net, lin, list, choice, masks, state, any)
};

BurnRecorder<> recorder_of(BurnEncoding encoding, bool gzip, bool schema) {
  BurnOptions options{.encoding = encoding, .gzip = gzip};
  if (schema) options.schema = schema_of<Net>();
  return BurnRecorder<>(BurnFormat(std::move(options)));
}
const BurnRecorder<> plain;
const BurnRecorder<> typed = recorder_of(BurnEncoding::by_name, false, true);

void check(const Snapshot& opened, std::uint64_t max_bytes, bool known) {
  const bool whole = read_leaves(opened, max_bytes);
  const LoadOptions options = lenient();
  static_cast<void>(load<Net>(opened, options));
  static_cast<void>(load<Branch>(opened, options));
  if (!whole) return;
  const Capabilities& can = plain.format().capabilities();
  for (const BurnEncoding encoding : {BurnEncoding::mpk, BurnEncoding::json, BurnEncoding::bin}) {
    if (encoding == BurnEncoding::bin && !known) continue;
    const BurnRecorder<> recorder = recorder_of(encoding, false, known);
    const auto again = saved(recorder, opened);
    if (!again) {
      const Errc code = again.error().code();
      if (code == Errc::not_representable || (encoding == BurnEncoding::bin && code == Errc::missing)) continue;
    }
    const Snapshot back = good(recorder.open(good(again)));
    const auto twice = saved(recorder, back);
    require(text_of(good(twice).span()) == text_of(again->span()));
    if (known) continue;
    const Snapshot third = good(recorder.open(*twice));
    require(difference(facts(back, can), facts(third, can)).empty());
  }
}

void check(const std::string& file) {
  // One byte of a list of numbers, or of bincode, may be an element of 8.
  const std::uint64_t max_bytes = 8 * std::uint64_t{file.size()};
  const auto opened = plain.open(bytes_of(file));
  if (opened) check(*opened, file.starts_with("\x1f\x8b") ? UINT64_MAX : max_bytes, false);
  if (!opened) require(opened.error().code() != Errc::out_of_memory);
  const auto net = typed.open(bytes_of(file));
  if (net && !file.starts_with("\x1f\x8b")) check(*net, max_bytes, true);
  static_cast<void>(plain.load<Net>(bytes_of(file)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  check(std::string(input));
  if (size == 0) return 0;
  static constexpr const char* versions[] = {"0.13.2", "0.14.0", "0.16.1", "0.20.1", "0.21.0"};
  const std::string version = versions[data[0] / 3 % 5];
  const std::string floats = data[0] % 2 == 0 ? "f32" : "half::binary16::f16";
  const std::string item(input.substr(1));
  const auto text = [](std::string_view t) { return static_cast<char>(t.size()) + std::string(t); };
  const auto key = [](std::string_view t) { return static_cast<char>(0xa0 + t.size()) + std::string(t); };
  switch (data[0] % 3) {
    case 0:
      return check("\x83" + key("metadata") + "\x83" + key("float") + key(floats) + key("int") + key("i32") +
                   key("version") + key(version) + key("item") + item),
             0;
    case 1:
      return check(R"({"metadata":{"float":")" + floats + R"(","int":"i32","version":")" + version + R"("},"item":)" +
                   item),
             0;
    default:
      return check(text(floats) + text("i32") + text("x") + text(version) + text("x") + item), 0;
  }
}
