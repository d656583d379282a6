// Without exceptions and RTTI: saves and loads a model in each format, reads behind 4 GiB, breaks a precondition.
#include <sys/types.h>  // off_t

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <stele/recorders/gguf.hpp>
#include <stele/recorders/json.hpp>
#include <stele/recorders/numpy.hpp>
#include <stele/recorders/pytorch.hpp>
#include <stele/recorders/safetensors.hpp>
#include <stele/stele.hpp>

namespace {

struct Linear {
  stele::Tensor<float, 2> weight;
  std::array<float, 3> bias{};
};
struct Model {
  std::vector<Linear> layers;
};

void check(bool good, const char* what, const std::string& why = {}) {
  if (good) return;
  std::fprintf(stderr, "%s: %s\n", what, why.c_str());
  std::exit(1);
}

template <class Recorder>
void round_trip(const Recorder& recorder) {
  const std::string name(recorder.format().name());
  Model model;
  for (const float first : {1.0F, 7.0F}) {
    Linear linear{stele::Tensor<float, 2>({3, 2}), {first, first + 1, first + 2}};
    for (std::size_t i = 0; i < 6; ++i) linear.weight.data()[i] = first * static_cast<float>(i);
    model.layers.push_back(std::move(linear));
  }
  const std::string path = "bare_" + name + std::string(recorder.format().extension());
  for (const char* const time : {"first save", "second save"}) {  // the second replaces the file
    const auto saved = recorder.save(model, path);
    check(saved.has_value(), time, saved ? "" : saved.error().to_string());
  }
  stele::LoadOptions options;
  for (const auto storage : {stele::Storage::owned, stele::Storage::mmap}) {
    options.storage = storage;
    auto loaded = recorder.template load<Model>(path, options);
    check(loaded.has_value(), name.c_str(), loaded ? "" : loaded.error().to_string());
    check(loaded->layers.size() == 2, name.c_str(), "the number of layers differs");
    for (std::size_t i = 0; i < 2; ++i) {
      const Linear &want = model.layers[i], &got = loaded->layers[i];
      check(got.bias == want.bias && got.weight.shape() == want.weight.shape() && got.weight(2, 1) == want.weight(2, 1),
            name.c_str(), "an element differs");
    }
  }
  const auto missing = recorder.template load<Model>("there_is_no" + std::string(recorder.format().extension()));
  check(!missing && missing.error().code() == stele::Errc::not_found, name.c_str(), "a missing file");
  std::remove(path.c_str());
}

constexpr std::uint64_t hole_bytes = 6'000'000'000;
constexpr std::array<float, 4> far{1, 2, 3, 4};

/// A file that does not exist: a header, a tensor of zeros, and the tensor `far`.
class Hole final : public stele::Source {
 public:
  explicit Hole(std::string header) : Source("hole"), header_(std::move(header)) {}
  std::uint64_t size() const noexcept override { return far_at() + sizeof far; }
  stele::Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size() || out.size() > size() - offset) return stele::Error(stele::Errc::truncated, "behind the end");
    std::fill(out.begin(), out.end(), std::byte{});
    copy(0, header_.data(), header_.size(), offset, out);
    copy(far_at(), reinterpret_cast<const char*>(far.data()), sizeof far, offset, out);
    read += out.size();
    return {};
  }
  mutable std::uint64_t read = 0;

 private:
  std::uint64_t far_at() const noexcept { return header_.size() + hole_bytes; }
  /// Copies the bytes of a part, which begins at `from`, that are in the range `out` at `offset`.
  static void copy(std::uint64_t from, const char* part, std::size_t size, std::uint64_t offset,
                   std::span<std::byte> out) {
    const std::uint64_t first = std::max(from, offset), last = std::min(from + size, offset + out.size());
    if (first >= last) return;
    std::memcpy(out.data() + static_cast<std::size_t>(first - offset), part + static_cast<std::size_t>(first - from),
                static_cast<std::size_t>(last - first));
  }

  std::string header_;
};

void check_far(const char* what, const stele::Result<stele::Snapshot>& opened) {
  check(opened.has_value(), what, opened ? "" : opened.error().to_string());
  check(opened->byte_size() == hole_bytes + sizeof far, what, "the number of bytes differs");
  const auto hole = opened->find("hole"), last = opened->find("far");
  check(hole.has_value() && last.has_value() && hole->byte_size() == hole_bytes, what, "a tensor is missing");
  std::array<float, 4> got{};
  const auto read = last->read(0, std::as_writable_bytes(std::span(got)));
  check(read.has_value() && got == far, what, "the elements behind 4 GiB differ");
  std::array<std::byte, 64> end{std::byte{1}};
  const auto zeros = hole->read(hole_bytes - end.size(), end);
  check(zeros.has_value() && end == std::array<std::byte, 64>{}, what, "the end of the hole differs");
}

/// Opens a model with a tensor behind 4 GiB, from a source of the caller and from a file.
template <class Recorder>
void offsets(const Recorder& recorder, const std::string& header) {
  const auto source = std::make_shared<Hole>(header);
  check_far("a source", recorder.open(stele::SourcePtr(source)));
  check(source->read < 100'000, "a source", std::to_string(source->read) + " bytes were read");

  const std::string path = "bare_offsets" + std::string(recorder.format().extension());
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  const auto at = static_cast<off_t>(header.size() + hole_bytes);  // the file system stores no zeros
  check(file != nullptr && std::fwrite(header.data(), 1, header.size(), file) == header.size() &&
            ::fseeko(file, at, SEEK_SET) == 0 && std::fwrite(far.data(), 1, sizeof far, file) == sizeof far &&
            std::fclose(file) == 0,
        path.c_str(), "cannot write");
  check_far("a file", recorder.open(path));
  std::remove(path.c_str());
}

/// Returns the little-endian bytes of a number.
template <class T>
std::string bytes_of(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes.push_back(static_cast<char>(value >> (8 * i) & 0xff));
  return bytes;
}

std::string safetensors_header() {
  const std::string end = std::to_string(hole_bytes);
  const std::string json = R"({"hole":{"dtype":"U8","shape":[)" + end + R"(],"data_offsets":[0,)" + end +
                           R"(]},"far":{"dtype":"F32","shape":[4],"data_offsets":[)" + end + "," +
                           std::to_string(hole_bytes + sizeof far) + "]}}";
  return bytes_of(std::uint64_t{json.size()}) + json;
}

std::string gguf_header() {
  const auto text = [](std::string_view value) { return bytes_of(std::uint64_t{value.size()}) + std::string(value); };
  const auto tensor = [&](std::string_view name, std::uint64_t extent, std::uint32_t type, std::uint64_t offset) {
    return text(name) + bytes_of(std::uint32_t{1}) + bytes_of(extent) + bytes_of(type) + bytes_of(offset);
  };
  constexpr std::uint32_t version = 3, i8 = 24, f32 = 0;
  std::string bytes = "GGUF" + bytes_of(version) + bytes_of(std::uint64_t{2}) + bytes_of(std::uint64_t{0}) +
                      tensor("hole", hole_bytes, i8, 0) + tensor("far", 4, f32, hole_bytes);
  bytes.resize((bytes.size() + 31) / 32 * 32);
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  if (what == "formats") {
    round_trip(stele::BinaryRecorder<>());
    round_trip(stele::SafetensorsRecorder<>());
    round_trip(stele::GgufRecorder<>());
    round_trip(stele::NpzRecorder<>());
    round_trip(stele::PytorchRecorder<>());
    round_trip(stele::JsonRecorder<>());
    return 0;
  }
  if (what == "offsets") {
    static_assert(hole_bytes % 32 == 0);  // alignment of GGUF
    offsets(stele::SafetensorsRecorder<>(), safetensors_header());
    offsets(stele::GgufRecorder<>(), gguf_header());
    return 0;
  }
  static std::string_view expected =
      what == "memory" ? "std::bad_alloc" : "stele: a Tensor's values do not fit its shape";
  check(stele::set_fatal_handler([](const char* message) { std::exit(message == expected ? 0 : 2); }) == nullptr,
        "the handler at first");
  if (what == "memory") {
    const stele::Tensor<float> tensor({std::uint64_t{1} << 62});
    check(tensor.size() == 0, "memory", "there is a tensor of 2^64 bytes");
  } else {
    const stele::Tensor<float> tensor({2, 2}, {1, 2, 3});
    check(tensor.size() == 0, "precondition", "there is a tensor of 4 elements made of 3");
  }
  return 1;
}
