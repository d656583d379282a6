// The error of a damaged file is that of the first damaged tensor in the file, whatever the number of threads.
#include <stele/record.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"

namespace first_error_test {

using namespace stele_test;
using stele::Bytes;
using stele::Errc;
using stele::Error;
using stele::LoadOptions;
using stele::Source;
using stele::SourcePtr;
using stele::Status;
using stele::Tensor;

namespace {

/// Large tensors, which keep all threads busy alone, around small ones, which threads share.
struct Model {
  Tensor<float, 1> first;
  std::vector<Tensor<float, 1>> small;
  Tensor<float, 1> last;
};

/// Numbers that compress by a little.
void fill(Tensor<float, 1>& t, std::uint32_t seed) {
  for (float& x : t) {
    seed = seed * 1664525U + 1013904223U;
    x = static_cast<float>(seed >> 16);
  }
}
Model model() {
  constexpr std::size_t large = (std::size_t{9} << 20) / sizeof(float);
  Model m{Tensor<float, 1>({large}), {}, Tensor<float, 1>({large})};
  fill(m.first, 1);
  fill(m.last, 2);
  for (std::uint32_t i = 0; i < 200; ++i) {
    m.small.emplace_back(Tensor<float, 1>({i % 2 == 0 ? 24000U : 300U}));
    fill(m.small.back(), i);
  }
  return m;
}

LoadOptions on(unsigned threads) {
  LoadOptions options;
  options.threads = threads;
  return options;
}

/// Memory of which one byte cannot be read.
class Broken final : public Source {
 public:
  Broken(std::span<const std::byte> bytes, std::uint64_t byte) : Source("broken"), bytes_(bytes), byte_(byte) {}
  std::uint64_t size() const noexcept override { return bytes_.size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) return Error(Errc::truncated);
    if (offset <= byte_ && byte_ - offset < out.size()) return Error(Errc::io, "a byte that cannot be read");
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }

 private:
  std::span<const std::byte> bytes_;
  std::uint64_t byte_;
};

/// Returns the error codes and paths of all ways to load on that many threads.
std::string errors(const AnyRecorder& recorder, const SourcePtr& source, unsigned threads, Model& live) {
  const auto text = [](const auto& result) {
    return result ? std::string("ok; ")
                  : std::string(name(result.error().code())) + " " + std::string(result.error().path()) + "; ";
  };
  return text(recorder.load<Model>(source, on(threads))) + text(recorder.load_into(live, source, on(threads))) +
         text(recorder.verify(source, on(threads)));
}

}  // namespace

STELE_TEST_EACH_RECORDER("first error: of several damaged tensors, whatever the threads") {
  Model live = model();
  const Bytes bytes = good(saved(recorder, live));
  const auto damaged = [&](std::initializer_list<std::size_t> percents) {
    Bytes copy(bytes.size());
    std::copy(bytes.span().begin(), bytes.span().end(), copy.data());
    for (const std::size_t percent : percents) {
      // A bit that makes no control character or another alphabet of text.
      copy.data()[bytes.size() / 100 * percent] ^= std::byte{1};
    }
    return stele::own_bytes(std::move(copy));
  };
  const SourcePtr all = damaged({20, 45, 55, 90});
  const std::string first = errors(recorder, all, 1, live);
  CAPTURE(first);
  if (can(recorder).checksums && !is_zip_file(recorder)) CHECK(first.find("ok") == std::string::npos);
  CHECK(first == errors(recorder, damaged({20}), 1, live));
  for (const unsigned threads : {2U, 3U, 8U}) CHECK(errors(recorder, all, threads, live) == first);
  const SourcePtr later = damaged({45, 55, 90});
  const std::string second = errors(recorder, later, 1, live);
  for (const unsigned threads : {2U, 3U, 8U}) CHECK(errors(recorder, later, threads, live) == second);
}

STELE_TEST_EACH_RECORDER("first error: a part of the file that cannot be read") {
  Model live = model();
  const Bytes bytes = good(saved(recorder, live));
  for (const std::size_t percent : {10U, 40U, 50U, 61U, 80U}) {
    const SourcePtr source = std::make_shared<Broken>(bytes.span(), bytes.size() / 100 * percent);
    const std::string one = errors(recorder, source, 1, live);
    CAPTURE(one);
    CHECK(one.find("ok") == std::string::npos);
    for (const unsigned threads : {2U, 3U, 8U}) CHECK(errors(recorder, source, threads, live) == one);
  }
}

}  // namespace first_error_test
