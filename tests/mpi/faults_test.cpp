// Boxes that do not fit together, and shards that are missing, cut, swapped or of another checkpoint.
#include <doctest/doctest.h>

#include "mpi/support.hpp"

namespace {

using namespace mpi_test;

struct One {
  Sharded<float> weight;
};
One one(Shape global, Shape start, Shape extents, float value = 1) {
  One model{Sharded<float>(std::move(global), std::move(start), std::move(extents))};
  model.weight.fill(value);
  return model;
}

TEST_CASE("boxes that overlap or leave a part out, and processes that differ") {
  const SharedDir dir;
  const int rank = rank_of(MPI_COMM_WORLD);
  const auto r = static_cast<Extent>(rank), n = static_cast<Extent>(size_of(MPI_COMM_WORLD));
  const auto code = [&](const auto& model, const mpi::Options& options = quick()) {
    auto saved = mpi::save(model, dir / "model", MPI_COMM_WORLD, options);
    CHECK_FALSE(std::filesystem::exists(dir / "model"));
    return code_of(saved);
  };
  CHECK(code(one({n + 1, 2}, {r, 0}, {1, 2})) == Errc::malformed);  // the last row is missing
  if (n == 1) return;
  CHECK(code(one({n, 2}, {r == 0 ? 0 : r - 1, 0}, {r == 0 ? 1U : 2U, 2})) == Errc::malformed);  // overlaps
  CHECK(code(one({rank == 0 ? n + 1 : n, 2}, {r, 0}, {1, 2})) == Errc::shape_mismatch);
  if (rank == 0) {
    struct Ints {
      Sharded<std::int32_t> weight;
    };
    Ints ints{Sharded<std::int32_t>({n, 2}, {0, 0}, {1, 2})};
    ints.weight.fill(1);
    CHECK(code(ints) == Errc::dtype_mismatch);
  } else {
    CHECK(code(one({n, 2}, {r, 0}, {1, 2})) == Errc::dtype_mismatch);
  }
  // A tensor without elements in one process.
  One unset{Sharded<float>({n, 2}, {r, 0}, {1, 2})};
  if (rank != 0) unset.weight.fill(1);
  CHECK(code(unset) == Errc::not_found);
  // Replicas that have drifted apart.
  mpi::Options verify = quick();
  verify.verify_replicas = true;
  One drifted = one({3, 2}, {0, 0}, {3, 2});
  CHECK(code_of(mpi::save(drifted, dir / "equal", MPI_COMM_WORLD, verify)) == Errc::none);
  if (rank == 1) drifted.weight.local()[4] = 2;
  auto saved = mpi::save(drifted, dir / "model", MPI_COMM_WORLD, verify);
  CHECK(code_of(saved) == Errc::malformed);
  CHECK(saved.error().path() == "weight");
  // Values of one process only.
  Model model = filled(Cut::rows, MPI_COMM_WORLD);
  model.count = rank;
  CHECK(code(model) == Errc::not_representable);
  mpi::Options lossy = quick();
  lossy.save.allow_loss = true;
  saved = mpi::save(model, dir / "lossy", MPI_COMM_WORLD, lossy);
  REQUIRE(saved);
  CHECK(saved->count(Report::What::lost) == (rank == 0 ? 0 : 1));
}

struct Boxes {
  Sharded<float> large, small;  // the first has pieces with checksums, the second is one
  Sharded<bool> flags;
};

Boxes boxes(Cut cut, int rank, int size) {
  return {box_of<float>({4096, 512}, cut, rank, size), box_of<float>({64, 31}, cut, rank, size),
          box_of<bool>({40, 16}, cut, rank, size)};
}
void flip(const std::string& path, std::uint64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const int c = file.get();
  file.seekp(static_cast<std::streamoff>(at));
  file.put(static_cast<char>(c ^ 16));
}

TEST_CASE("every flipped bit of a shard is an error for any boxes that need it") {
  const SharedDir dir;
  const int rank = rank_of(MPI_COMM_WORLD), size = size_of(MPI_COMM_WORLD);
  for (const Cut saved_as : {Cut::rows, Cut::columns}) {
    Boxes model = boxes(saved_as, rank, size);
    fill(model.large, 1);
    fill(model.small, 2);
    model.flags.fill(true);
    REQUIRE(mpi::save(model, dir / "model", MPI_COMM_WORLD, quick()));
    const std::string last = dir / ("model/shard-0000" + std::to_string(size) + "-model-00001-of-00001.safetensors");
    const std::uint64_t file_size = std::filesystem::file_size(last);
    const auto header = [&] {
      std::ifstream in(last, std::ios::binary);
      std::uint64_t length = 0;
      in.read(reinterpret_cast<char*>(&length), sizeof length);
      return 8 + length;
    }();
    MPI_Barrier(MPI_COMM_WORLD);
    for (std::uint64_t i = 0; i < 7; ++i) {
      const std::uint64_t at = i == 0 ? header : i == 1 ? file_size - 1 : header + (file_size - header) * i / 7;
      on_root([&] { flip(last, at); });
      for (const Cut cut : {Cut::rows, Cut::columns, Cut::grid, Cut::replicated, Cut::uneven}) {
        CAPTURE(i);
        CAPTURE(static_cast<int>(cut));
        Boxes loaded = boxes(cut, rank, size);
        CHECK(code_of(mpi::load_into(loaded, dir / "model", MPI_COMM_WORLD, quick())) == Errc::checksum);
        CHECK_FALSE(loaded.large.local().is_set());
      }
      on_root([&] { flip(last, at); });
    }
    Boxes loaded = boxes(Cut::grid, rank, size);
    CHECK(mpi::load_into(loaded, dir / "model", MPI_COMM_WORLD, quick()));
    CHECK(has(loaded.large, 1));
    CHECK(has(loaded.small, 2));
  }
}

TEST_CASE("a flipped bit of a file of whole tensors is an error for any boxes") {
  const SharedDir dir;
  const int rank = rank_of(MPI_COMM_WORLD), size = size_of(MPI_COMM_WORLD);
  on_root([&] {
    Boxes whole = boxes(Cut::replicated, 0, 1);
    fill(whole.large, 1);
    fill(whole.small, 2);
    whole.flags.fill(true);
    CHECK(save(whole, dir / "model.stele"));
  });
  const auto file_size = std::filesystem::file_size(dir / "model.stele");
  MPI_Barrier(MPI_COMM_WORLD);
  for (const std::uint64_t from_end : {0, 1'000'000, 8'300'000}) {
    if (from_end != 0) on_root([&] { flip(dir / "model.stele", file_size - from_end); });
    for (const Cut cut : {Cut::rows, Cut::columns, Cut::one}) {
      CAPTURE(from_end);
      CAPTURE(static_cast<int>(cut));
      Boxes loaded = boxes(cut, rank, size);
      const Errc code = code_of(mpi::load_into(loaded, dir / "model.stele", MPI_COMM_WORLD, quick()));
      CHECK(code == (from_end == 0 ? Errc::none : Errc::checksum));
      CHECK(loaded.large.local().is_set() == (from_end == 0));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (from_end != 0) on_root([&] { flip(dir / "model.stele", file_size - from_end); });
  }
}

TEST_CASE("a shard that is missing, cut, swapped, damaged or of another checkpoint is an error in all processes") {
  const SharedDir dir;
  const int size = size_of(MPI_COMM_WORLD);
  const auto save_to = [&](const std::string& name, std::uint64_t salt) {
    Model model = placed(Cut::rows, MPI_COMM_WORLD);
    model.each([&](auto& tensor, std::uint64_t own) { fill(tensor, own + salt); });
    CHECK(mpi::save(model, dir / name, MPI_COMM_WORLD, quick()));
  };
  const auto code = [&](Cut cut = Cut::rows) {
    Model model = placed(cut, MPI_COMM_WORLD);
    const Errc found = code_of(mpi::load_into(model, dir / "model", MPI_COMM_WORLD, quick()));
    CHECK(model.matrix.local().is_set() == (found == Errc::none));
    MPI_Barrier(MPI_COMM_WORLD);
    return found;
  };
  const std::string first = dir / "model/shard-00001-model-00001-of-00001.safetensors";
  const std::string last = dir / ("model/shard-0000" + std::to_string(size) + "-model-00001-of-00001.safetensors");
  save_to("other", 100);
  for (int fault = 0; fault < 6; ++fault) {
    on_root([&] { std::filesystem::remove_all(dir / "model"); });
    save_to("model", 0);
    on_root([&] {
      if (fault == 0) std::filesystem::remove(last);
      if (fault == 1) std::filesystem::resize_file(last, std::filesystem::file_size(last) - 1);
      if (fault == 2 && size > 1) {
        std::filesystem::rename(first, dir / "swap");
        std::filesystem::rename(last, first);
        std::filesystem::rename(dir / "swap", last);
      }
      if (fault == 3) {
        std::filesystem::copy_file(dir / "other/shard-00001-model-00001-of-00001.safetensors", first,
                                   std::filesystem::copy_options::overwrite_existing);
      }
      if (fault == 4) {
        std::fstream file(first, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(-1, std::ios::end);
        file.put('\x55');
      }
      if (fault == 5) {
        std::fstream file(dir / "model/stele-shards.json", std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(100);
        file.put('\x55');
      }
    });
    CAPTURE(fault);
    const Errc expected[] = {Errc::not_found, Errc::truncated, Errc::checksum,
                             Errc::checksum,  Errc::checksum,  Errc::checksum};
    const Errc found = code(fault == 4 && size > 1 ? Cut::rows : Cut::replicated);
    CHECK((found == expected[fault] || (fault == 2 && (size == 1 || found == Errc::truncated))));
    if (fault == 2 && size == 1) CHECK(found == Errc::none);
  }
}

}  // namespace
