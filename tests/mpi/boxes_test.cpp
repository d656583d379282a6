// Checkpoints saved by any number of processes with any boxes, loaded by any others.
#include <doctest/doctest.h>

#include "mpi/support.hpp"

namespace {

using namespace mpi_test;

TEST_CASE("every split of every number of processes loads into every other one") {
  const int world = size_of(MPI_COMM_WORLD);
  for (int writers = 1; writers <= world; writers = writers == world ? world + 1 : std::min(2 * writers, world)) {
    for (const unsigned files : {0U, 1U, 3U}) {
      for (const Cut cut : all_cuts) {
        const SharedDir dir;
        const First saving(writers);
        if (saving) {
          mpi::Options options = quick();
          options.files = files;
          options.verify_replicas = true;
          const auto saved = mpi::save(filled(cut, *saving), dir / "model", *saving, options);
          CHECK_MESSAGE(saved, why(saved));
        }
        MPI_Barrier(MPI_COMM_WORLD);
        for (int readers = 1; readers <= world; readers += world > 4 ? 3 : 1) {
          const First loading(readers);
          for (const Cut into : {Cut::rows, Cut::columns, Cut::grid, Cut::replicated}) {
            if (!loading) continue;
            Model model = placed(into, *loading);
            const auto loaded = mpi::load_into(model, dir / "model", *loading, quick());
            CHECK_MESSAGE(loaded, why(loaded));
            CHECK(is_filled(model));
          }
        }
        on_root([&] {
          // One process, without MPI: whole tensors, values included.
          auto whole = load<Model>(dir / "model");
          REQUIRE_MESSAGE(whole, why(whole));
          CHECK(is_filled(*whole));
          CHECK(ShardedSafetensorsRecorder<>().verify(dir / "model"));
        });
      }
    }
  }
}

TEST_CASE("boxes of any other file: .stele, one safetensors file, and a converted precision") {
  const SharedDir dir;
  on_root([&] {
    Model whole = filled(Cut::replicated, MPI_COMM_SELF);
    CHECK(save(whole, dir / "model.stele"));
    CHECK(save(whole, dir / "model.safetensors"));
  });
  for (const char* name : {"model.stele", "model.safetensors"}) {
    for (const Cut cut : all_cuts) {
      Model model = placed(cut, MPI_COMM_WORLD);
      const auto loaded = mpi::load_into(model, dir / name, MPI_COMM_WORLD, quick());
      CHECK_MESSAGE(loaded, why(loaded));
      CHECK(is_filled(model));
    }
  }
  mpi::Options half = quick();
  half.precision = precision_spec<HalfPrecision>();
  CHECK(mpi::save(filled(Cut::grid, MPI_COMM_WORLD), dir / "half", MPI_COMM_WORLD, half));
  Model model = placed(Cut::columns, MPI_COMM_WORLD);
  CHECK(mpi::load_into(model, dir / "half", MPI_COMM_WORLD, quick()));
  CHECK(is_filled(model));
}

struct Many {
  std::vector<Sharded<float>> tensors;
};

TEST_CASE("any number of tensors comes back") {
  const int rank = rank_of(MPI_COMM_WORLD), size = size_of(MPI_COMM_WORLD);
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{100'000}}) {
    const SharedDir dir;
    Many many, again;
    for (std::size_t i = 0; i < count; ++i) {
      many.tensors.push_back(box_of<float>({5, 2}, Cut::rows, rank, size));
      fill(many.tensors.back(), i);
      again.tensors.push_back(box_of<float>({5, 2}, Cut::columns, rank, size));
    }
    const auto saved = mpi::save(many, dir / "model", MPI_COMM_WORLD, quick());
    REQUIRE_MESSAGE(saved, why(saved));
    const auto loaded = mpi::load_into(again, dir / "model", MPI_COMM_WORLD, quick());
    REQUIRE_MESSAGE(loaded, why(loaded));
    bool good = true;
    for (std::size_t i = 0; i < count; ++i) good = good && has(again.tensors[i], i);
    CHECK(good);
  }
}

struct Large {
  Sharded<float> weight;
};

std::uint64_t bytes_read() {
  std::ifstream io("/proc/self/io");
  std::string key;
  std::uint64_t value = 0;
  io >> key >> value;  // rchar
  return value;
}

TEST_CASE("a process reads the bytes of its rows and little else") {
  const SharedDir dir;
  const Shape shape{16384, 1024};  // 64 MiB: small reads are rounded up to windows of 256 KiB
  Large large{box_of<float>(shape, Cut::rows, rank_of(MPI_COMM_WORLD), size_of(MPI_COMM_WORLD))};
  fill(large.weight, 5);
  REQUIRE(mpi::save(large, dir / "model", MPI_COMM_WORLD, quick()));
  for (int readers = 1; readers <= size_of(MPI_COMM_WORLD); ++readers) {
    const First loading(readers);
    if (!loading) continue;
    Large model{box_of<float>(shape, Cut::rows, rank_of(*loading), readers)};
    mpi::Options options = quick();
    options.load.trust_data = true;  // one pass
    const std::uint64_t before = bytes_read();
    REQUIRE(mpi::load_into(model, dir / "model", *loading, options));
    const double ratio =
        static_cast<double>(bytes_read() - before) / static_cast<double>(model.weight.local().size() * sizeof(float));
    CHECK(ratio <= 1.05);
    CHECK(has(model.weight, 5));
    if (rank_of(*loading) == 0) std::printf("%d readers: %.4f bytes read for each byte owned\n", readers, ratio);
    // The pass that verifies reads the pieces that have these rows: up to 1 MiB more at each end of a box.
    for (const Cut cut : {Cut::rows, Cut::columns}) {
      if (cut == Cut::columns && readers > 3) continue;  // each reads all of the tensor
      Large verified{box_of<float>(shape, cut, rank_of(*loading), readers)};
      const std::uint64_t begin = bytes_read();
      REQUIRE(mpi::load_into(verified, dir / "model", *loading, quick()));
      const auto owned = static_cast<double>(verified.weight.local().size() * sizeof(float));
      const double read = static_cast<double>(bytes_read() - begin);
      if (cut == Cut::rows) CHECK(read <= 2.05 * owned + (4 << 20));
      CHECK(has(verified.weight, 5));
      if (rank_of(*loading) == 0) {
        std::printf("%d readers, verified, %s: %.3f\n", readers, cut == Cut::rows ? "rows" : "columns", read / owned);
      }
    }
  }
}

TEST_CASE("recorders refuse a box, and save the whole tensor") {
  struct Part {
    Sharded<float, 2> weight;
  };
  Part part{Sharded<float, 2>({4, 2}, {2, 0}, {2, 2})};
  part.weight.fill(1);
  BufferSink sink;
  auto failed = BinaryRecorder<>().save(part, sink);
  CHECK(code_of(failed) == Errc::not_representable);
  CHECK(failed.error().path() == "weight");
  SaveOptions lossy;
  lossy.allow_loss = true;
  CHECK(BinaryRecorder<>().save(part, sink, lossy)->count(Report::What::lost) == 1);
  part.weight = Sharded<float, 2>::replicated({4, 2});
  part.weight.fill(2);
  BufferSink again;
  CHECK(BinaryRecorder<>().save(part, again));
  const Bytes bytes = again.take();
  Part loaded;
  CHECK(BinaryRecorder<>().load_into(loaded, bytes));
  CHECK(loaded.weight.global_shape() == Shape{4, 2});
  CHECK(loaded.weight.local()(3, 1) == 2);
  Part other{Sharded<float, 2>::split({8, 2}, 0, 0, 2)};
  CHECK(BinaryRecorder<>().load_into(other, bytes));  // the shape of the box
  Part wrong{Sharded<float, 2>::split({6, 2}, 0, 0, 2)};
  CHECK(code_of(BinaryRecorder<>().load_into(wrong, bytes)) == Errc::shape_mismatch);
  CHECK(wrong.weight.is_placed());
  CHECK_THROWS(Sharded<float, 2>({4, 2}, {3, 0}, {2, 2}));
  CHECK_THROWS(Sharded<float, 2>({4, 2}, {0}, {2}));
  CHECK_THROWS(Sharded<float, 2>::split({4, 2}, 2, 0, 2));
}

}  // namespace
