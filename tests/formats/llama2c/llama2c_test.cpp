// Models of llama2.c: those of its own script, and damaged ones.
#include <doctest/doctest.h>

#include <stele/composite.hpp>
#include <stele/recorders/any.hpp>
#include <stele/recorders/read_only.hpp>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace llama2c_test {

namespace {

using namespace stele;
using namespace stele_test;

std::string path_of(const std::string& name) { return test_data("llama2c") + "/" + name; }

Result<Snapshot> open(const std::string& bytes) {
  const auto view = bytes_of(bytes);
  return Llama2cRecorder<>().open(own_bytes(std::vector<std::byte>(view.begin(), view.end())));
}

std::vector<float> floats(const LeafView& leaf) {
  std::vector<float> numbers(static_cast<std::size_t>(leaf.size()));
  good(leaf.read(0, std::as_writable_bytes(std::span(numbers))));
  return numbers;
}

/// Returns the bytes with an i32 at an offset.
std::string with(std::string bytes, std::size_t at, std::int32_t number) {
  for (std::size_t i = 0; i < 4; ++i) bytes[at + i] = static_cast<char>(static_cast<std::uint32_t>(number) >> 8 * i);
  return bytes;
}

}  // namespace

TEST_CASE("llama2.c: the tensors of every version are those of PyTorch's model") {
  std::istringstream lines(read_text(path_of("expected.txt")));
  std::string file, name, extents, sum;
  int tensors = 0;
  while (lines >> file >> name >> extents >> sum) {
    CAPTURE(file);
    CAPTURE(name);
    const Snapshot model = good(stele::open(path_of(file + ".bin")));
    const auto leaf = model.find(name);
    REQUIRE(leaf);
    std::string shape;
    for (const Extent extent : leaf->shape()) shape += (shape.empty() ? "" : "x") + std::to_string(extent);
    CHECK(shape == extents);
    ++tensors;
    if (file == "v2-rows" && name.ends_with("w2.weight")) {
      CHECK(leaf->dtype() == DType::i8);  // runq.c does not read groups that cross rows: the parts stay
      continue;
    }
    REQUIRE(leaf->dtype() == DType::f32);
    double total = 0;
    for (const float number : floats(*leaf)) total += number;
    CHECK(total == std::strtod(sum.c_str(), nullptr));
  }
  CHECK(tensors > 100);
}

TEST_CASE("llama2.c: numbers, a shared classifier, parts of quantized weights") {
  const Snapshot plain = good(stele::open(path_of("v1.bin")));
  CHECK(*plain.properties().find("llama2c.n_kv_heads")->as_i64() == 2);
  CHECK_FALSE(*plain.properties().find("llama2c.shared_classifier")->as_bool());
  CHECK(plain.find("output.weight"));
  CHECK(good(stele::open(path_of("v0.bin"))).find("freqs_sin")->shape()[0] == 6);

  struct Net {
    struct Embeddings {
      std::shared_ptr<Tensor<float, 2>> weight;
    };
    Embeddings tok_embeddings, output;
  };
  for (const char* const file : {"v0-shared.bin", "v1-shared.bin", "v2-shared.bin"}) {
    CAPTURE(file);
    const Net net = good(stele::load<Net>(path_of(file), {.allow_unused = {"*"}}));
    REQUIRE(net.output.weight);
    CHECK(net.output.weight == net.tok_embeddings.weight);
  }

  const Snapshot model = good(stele::open(path_of("v2.bin")));
  CHECK(*model.properties().find("llama2c.group_size")->as_i64() == 16);
  const auto parts = composite(*model.find("layers.1.feed_forward.w3.weight"));
  REQUIRE(parts);
  CHECK(parts->bits == 8);
  CHECK(parts->group == 16);
  CHECK(parts->parts.size() == 2);
  const Snapshot rows = good(stele::open(path_of("v2-rows.bin")));
  CHECK(rows.find("layers.0.feed_forward.w2.weight_scale"));
  CHECK(rows.notes().size() == 2);
}

TEST_CASE("llama2.c: damaged files") {
  const std::string v0 = read_text(path_of("v0-shared.bin")), v1 = read_text(path_of("v1.bin")),
                    v2 = read_text(path_of("v2.bin"));
  struct Row {
    const char* what;
    std::string bytes;
    Errc code;
  };
  const Row rows[] = {
      {"another version", with(v1, 4, 3), Errc::unsupported},
      {"no dimension", with(v1, 8, 0), Errc::malformed},
      {"a negative number of layers", with(v1, 16, -1), Errc::malformed},
      {"heads that do not divide the dimension", with(v1, 20, 3), Errc::malformed},
      {"too many layers", with(v1, 16, INT32_MAX), Errc::truncated},
      {"a tensor of 2^62 elements", with(with(v1, 8, INT32_MAX), 20, 1), Errc::truncated},
      {"a flag that is neither", with(v1, 36, 2), Errc::malformed},
      {"no group", with(v2, 37, 0), Errc::malformed},
      {"groups that do not fit", with(v2, 37, 7), Errc::malformed},
      {"bytes after the model", v1 + "x", Errc::malformed},
      {"version 0 without tokens", with(v0, 20, 0), Errc::malformed},
      {"version 0, shared only by its number", with(v0, 20, -12), Errc::truncated},
      {"nothing", "", Errc::truncated},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    CHECK(code_of(open(row.bytes)) == row.code);
  }
  for (const std::string* const file : {&v0, &v1, &v2}) {
    for (std::size_t size = 0; size < file->size(); size += size < 300 ? 1 : 97) {
      CAPTURE(size);
      CHECK(code_of(open(file->substr(0, size))) == Errc::truncated);
    }
  }
}

TEST_CASE("llama2.c: a file of version 0 is recognised by its exact size") {
  const Llama2cFormat format;
  const std::string v0 = read_text(path_of("v0.bin"));
  const auto head = bytes_of(v0).first(1024);
  CHECK(format.recognises(head, v0.size()));
  CHECK_FALSE(format.recognises(head, v0.size() + 4));
  CHECK_FALSE(format.recognises(head, v0.size() + 1));
  CHECK_FALSE(format.recognises(head.first(27), v0.size()));
  CHECK_FALSE(format.recognises(bytes_of(with(v0, 12, 3)).first(1024), v0.size()));
  CHECK(format.recognises(bytes_of(read_text(path_of("v1.bin"))).first(1024), 1));  // then opening names the fault
}

}  // namespace llama2c_test
