#include <doctest/doctest.h>

#include <algorithm>

#include "stele/eigen.hpp"
#include "stele/stele.hpp"

namespace eigen_test {

namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct Layer {
  Eigen::MatrixXf weight;  // column-major
  RowMajor rows;
  Eigen::VectorXd bias;
  Eigen::RowVector3f scale = Eigen::RowVector3f::Zero();
  Eigen::Matrix<float, 2, 3> fixed = Eigen::Matrix<float, 2, 3>::Zero();
  Eigen::ArrayXXf array;
  std::optional<stele::Param<Eigen::MatrixXf>> extra;
};

Layer example(Eigen::Index rows, Eigen::Index columns) {
  Layer layer;
  layer.weight = Eigen::MatrixXf::Random(rows, columns);
  layer.rows = layer.weight;
  layer.bias = Eigen::VectorXd::Random(rows);
  layer.scale = {1, 2, 3};
  layer.fixed << 1, 2, 3, 4, 5, 6;
  layer.array = Eigen::ArrayXXf::Random(columns, rows);
  layer.extra = stele::Param<Eigen::MatrixXf>(Eigen::MatrixXf::Random(3, 5));
  return layer;
}

}  // namespace

TEST_CASE_TEMPLATE("Eigen types round trip in every recorder", Format, stele::SteleFormat, stele::SafetensorsFormat,
                   stele::JsonFormat) {
  const stele::MemoryRecorder<Format> recorder;
  // Sizes around the blocks of 16 rows and around a piece of 65536 floats.
  for (const auto& [rows, columns] : {std::pair<Eigen::Index, Eigen::Index>{5, 7}, {33, 16}, {1000, 300}, {3, 70000}}) {
    const Layer layer = example(rows, columns);
    const stele::Bytes bytes = recorder.save(layer).value();
    const Layer again = recorder.template load<Layer>(bytes).value();
    CHECK(again.weight == layer.weight);
    CHECK(again.rows == layer.rows);
    CHECK(again.bias == layer.bias);
    CHECK(again.scale == layer.scale);
    CHECK(again.fixed == layer.fixed);
    CHECK((again.array == layer.array).all());
    CHECK(again.extra->value == layer.extra->value);
  }
}

TEST_CASE("a column-major matrix is written row-major") {
  const Layer layer = example(40, 9);
  const stele::Snapshot snapshot = stele::snapshot_of(layer).value();
  const auto weight = snapshot.find("weight");
  const auto rows = snapshot.find("rows");
  REQUIRE(weight);
  REQUIRE(rows);
  CHECK(weight->shape().size() == 2);
  CHECK(weight->shape()[0] == 40);
  CHECK(weight->shape()[1] == 9);
  CHECK(snapshot.find("bias")->shape().size() == 1);
  std::vector<std::byte> a(weight->byte_size());
  std::vector<std::byte> b(a.size());
  REQUIRE(weight->read(0, a));
  REQUIRE(rows->read(0, b));
  CHECK(a == b);
  // Any part, from the middle of a row to the middle of another.
  for (std::size_t first : {std::size_t{1}, std::size_t{8}, std::size_t{9}, std::size_t{31}}) {
    std::vector<std::byte> part((360 - first - 5) * 4);
    REQUIRE(weight->read(first * 4, part));
    CHECK(std::equal(part.begin(), part.end(), b.begin() + static_cast<std::ptrdiff_t>(first * 4)));
  }
}

TEST_CASE("a fixed Eigen matrix refuses another shape") {
  struct Wide {
    Eigen::Matrix<float, 2, 4> fixed = Eigen::Matrix<float, 2, 4>::Zero();
  };
  struct Narrow {
    Eigen::Matrix<float, 2, 3> fixed = Eigen::Matrix<float, 2, 3>::Zero();
  };
  const stele::BytesRecorder<> recorder;
  const stele::Bytes bytes = recorder.save(Wide{}).value();
  const auto narrow = recorder.load<Narrow>(bytes);
  REQUIRE_FALSE(narrow);
  CHECK(narrow.error().code() == stele::Errc::shape_mismatch);
  CHECK(narrow.error().path() == "fixed");
  CHECK(narrow.error().expected() == "[2, 3]");
  CHECK(narrow.error().found() == "[2, 4]");
}

}  // namespace eigen_test
