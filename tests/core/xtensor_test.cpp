#include "stele/xtensor.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "stele/stele.hpp"
#include "support/temp_dir.hpp"

namespace xtensor_test {

namespace {

using ColumnMajor = xt::xtensor<float, 2, xt::layout_type::column_major>;

struct Layer {
  xt::xtensor<float, 2> weight;
  ColumnMajor columns;
  xt::xarray<double> any;
  xt::xarray<float, xt::layout_type::column_major> any_columns;
  xt::xtensor<float, 3, xt::layout_type::dynamic> transposed;
  xt::xtensor_fixed<float, xt::xshape<2, 3>> fixed = xt::zeros<float>({2, 3});
  xt::xtensor_fixed<float, xt::xshape<2, 3>, xt::layout_type::column_major> fixed_columns = xt::zeros<float>({2, 3});
  std::optional<stele::Param<xt::xtensor<bool, 1>>> mask;
};

/// Counts up in row-major order, whatever the layout.
template <class T>
void number(T& tensor) {
  typename T::value_type next{};
  for (auto i = tensor.template begin<xt::layout_type::row_major>();
       i != tensor.template end<xt::layout_type::row_major>(); ++i) {
    *i = next++;
  }
}

Layer example(std::size_t rows, std::size_t columns) {
  Layer layer;
  layer.weight.resize({rows, columns});
  number(layer.weight);
  layer.columns = layer.weight;
  layer.any = xt::xarray<double>::from_shape({2, columns, 1, 3});
  number(layer.any);
  layer.any_columns = xt::xarray<float, xt::layout_type::column_major>::from_shape({3, rows, 5});
  number(layer.any_columns);
  layer.transposed.resize({rows, 4, 2}, xt::layout_type::column_major);
  number(layer.transposed);
  number(layer.fixed);
  number(layer.fixed_columns);
  layer.mask = stele::Param<xt::xtensor<bool, 1>>(xt::xtensor<bool, 1>{true, false, true});
  return layer;
}

void check_equal(const Layer& a, const Layer& b) {
  CHECK(a.weight == b.weight);
  CHECK(a.columns == b.columns);
  CHECK(a.any == b.any);
  CHECK(a.any_columns == b.any_columns);
  CHECK(a.transposed == b.transposed);
  CHECK(a.fixed == b.fixed);
  CHECK(a.fixed_columns == b.fixed_columns);
  CHECK(a.mask->value == b.mask->value);
}

}  // namespace

TEST_CASE_TEMPLATE("xtensor types round trip in every recorder", Format, stele::SteleFormat, stele::SafetensorsFormat,
                   stele::JsonFormat) {
  const stele::MemoryRecorder<Format> recorder;
  // Sizes around the blocks of 16 rows and around a piece of 65536 floats.
  for (const auto& [rows, columns] : {std::pair<std::size_t, std::size_t>{5, 7}, {33, 16}, {1000, 300}, {3, 70000}}) {
    const Layer layer = example(rows, columns);
    const stele::Bytes bytes = recorder.save(layer).value();
    check_equal(recorder.template load<Layer>(bytes).value(), layer);

    Layer again = example(rows, columns);
    again.columns.fill(-1);
    again.any.fill(-1);
    const double* const place = again.any.data();
    recorder.load_into(again, bytes).value();
    check_equal(again, layer);
    CHECK(again.any.data() == place);
  }
}

TEST_CASE("xtensor types in a file") {
  const Layer layer = example(20, 6);
  const stele_test::TempDir dir;
  for (const char* name : {"layer.stele", "layer.safetensors"}) {
    stele::save(layer, dir / name).value();
    check_equal(stele::load<Layer>(dir / name).value(), layer);
  }
}

TEST_CASE("a column-major xtensor is written row-major") {
  const Layer layer = example(40, 9);
  const stele::Snapshot snapshot = stele::snapshot_of(layer).value();
  const stele::LeafView weight = snapshot.find("weight").value();
  const stele::LeafView columns = snapshot.find("columns").value();
  CHECK(stele::to_string(columns.shape()) == "[40, 9]");
  std::vector<std::byte> a(weight.byte_size());
  std::vector<std::byte> b(a.size());
  REQUIRE(weight.read(0, a));
  REQUIRE(columns.read(0, b));
  CHECK(a == b);
  // Any part, from the middle of a row to the middle of another.
  for (std::size_t first : {std::size_t{1}, std::size_t{8}, std::size_t{9}, std::size_t{31}}) {
    std::vector<std::byte> part((360 - first - 5) * 4);
    REQUIRE(columns.read(first * 4, part));
    CHECK(std::equal(part.begin(), part.end(), b.begin() + static_cast<std::ptrdiff_t>(first * 4)));
  }
}

TEST_CASE("shapes of xtensor types") {
  struct Any {
    xt::xarray<float> t;
  };
  struct Matrix {
    xt::xtensor<float, 2> t;
  };
  struct Fixed {
    xt::xtensor_fixed<float, xt::xshape<2, 3>> t = xt::zeros<float>({2, 3});
  };
  const stele::BytesRecorder<> recorder;
  const stele::Bytes cube = recorder.save(Any{xt::zeros<float>({2, 3, 4})}).value();
  const stele::Bytes wide = recorder.save(Matrix{xt::zeros<float>({2, 4})}).value();
  const stele::Bytes scalar = recorder.save(Any{3.0F}).value();

  const auto refused = [](const auto& result) {
    REQUIRE_FALSE(result);
    CHECK(result.error().code() == stele::Errc::shape_mismatch);
    CHECK(result.error().path() == "t");
    return std::string(result.error().expected()) + " " + std::string(result.error().found());
  };
  CHECK(refused(recorder.load<Matrix>(cube)) == "rank 2 rank 3 [2, 3, 4]");
  CHECK(refused(recorder.load<Fixed>(wide)) == "[2, 3] [2, 4]");
  Matrix unset;
  CHECK(recorder.load_into(unset, wide));
  CHECK(unset.t.shape(1) == 4);
  Matrix other{xt::ones<float>({4, 2})};
  CHECK(refused(recorder.load_into(other, wide)) == "[4, 2] [2, 4]");
  CHECK(other.t(3, 1) == 1);
  Any one;  // a scalar, as xtensor has it
  CHECK(refused(recorder.load_into(one, cube)) == "[] [2, 3, 4]");
  CHECK(recorder.load_into(one, scalar));
  CHECK(one.t() == 3.0F);
  CHECK(recorder.load<Any>(cube).value().t.dimension() == 3);
  CHECK(recorder.load<Any>(recorder.save(Any{xt::zeros<float>({0, 3})}).value()).value().t.shape(1) == 3);
}

}  // namespace xtensor_test
