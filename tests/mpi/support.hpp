// Modules of Sharded tensors whose elements are functions of their place.
#pragma once

#include <stele/mpi.hpp>
#include <stele/stele.hpp>

#include <mpi.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

namespace mpi_test {

using namespace stele;

inline int rank_of(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}
inline int size_of(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

/// The first processes of the world as a communicator; MPI_COMM_NULL in the others.
class First {
 public:
  explicit First(int count) {
    MPI_Comm_split(MPI_COMM_WORLD, rank_of(MPI_COMM_WORLD) < count ? 0 : MPI_UNDEFINED, 0, &comm_);
  }
  First(const First&) = delete;
  First& operator=(const First&) = delete;
  ~First() {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  MPI_Comm operator*() const { return comm_; }
  explicit operator bool() const { return comm_ != MPI_COMM_NULL; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// A folder that all processes of the world see; removed at the end.
class SharedDir {
 public:
  SharedDir() {
    char path[200] = "/tmp/stele-mpi-XXXXXX";
    if (rank_of(MPI_COMM_WORLD) == 0 && ::mkdtemp(path) == nullptr) MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Bcast(path, sizeof path, MPI_CHAR, 0, MPI_COMM_WORLD);
    path_ = path;
  }
  SharedDir(const SharedDir&) = delete;
  SharedDir& operator=(const SharedDir&) = delete;
  ~SharedDir() {
    MPI_Barrier(MPI_COMM_WORLD);
    std::error_code ignored;
    if (rank_of(MPI_COMM_WORLD) == 0) std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Runs `work` on process 0, and waits for it everywhere.
template <class Work>
void on_root(Work&& work) {
  if (rank_of(MPI_COMM_WORLD) == 0) work();
  MPI_Barrier(MPI_COMM_WORLD);
}

/// How a tensor is cut: along an axis, in a grid, not at all, or all of it in one process.
enum class Cut { rows, columns, grid, replicated, one, uneven };
inline constexpr Cut all_cuts[] = {Cut::rows, Cut::columns, Cut::grid, Cut::replicated, Cut::one, Cut::uneven};

inline Shape zeros(std::size_t rank) {
  const std::vector<Extent> all(rank);
  return Shape(std::span<const Extent>(all));
}

template <class T>
Sharded<T> box_of(const Shape& global, Cut cut, int rank, int size) {
  const auto r = static_cast<std::size_t>(rank), n = static_cast<std::size_t>(size);
  if (global.rank() == 0 || cut == Cut::replicated) return Sharded<T>::replicated(global);
  if (cut == Cut::rows) return Sharded<T>::split(global, 0, r, n);
  if (cut == Cut::columns) return Sharded<T>::split(global, global.rank() - 1, r, n);
  std::vector<Extent> start(global.rank()), length(global.begin(), global.end());
  if (cut == Cut::one) {
    if (rank != size - 1) length[0] = 0;
  } else if (cut == Cut::uneven) {  // process 0 has one row, the last has the rest
    const Extent rows = global[0];
    start[0] = std::min<Extent>(rows, r);
    length[0] = r + 1 == n ? rows - start[0] : std::min<Extent>(1, rows - start[0]);
  } else {  // a grid of 2 columns, if the number of processes is even
    const std::size_t across = global.rank() > 1 && n % 2 == 0 ? 2 : 1;
    const auto part = [&](std::size_t axis, std::size_t i, std::size_t count) {
      start[axis] = global[axis] * i / count;
      length[axis] = global[axis] * (i + 1) / count - start[axis];
    };
    part(0, r / across, n / across);
    if (across == 2) part(1, r % 2, 2);
  }
  return Sharded<T>(global, Shape(std::span<const Extent>(start)), Shape(std::span<const Extent>(length)));
}

/// Calls `visit(local number, global number)` for each element of a box.
template <class T, class Visit>
void each_element(const Sharded<T>& box, Visit visit) {
  std::size_t count = 1;
  for (const Extent e : box.extents()) count *= static_cast<std::size_t>(e);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t left = i, number = 0, stride = 1;
    for (std::size_t d = box.extents().rank(); d-- > 0;) {
      number += (box.start()[d] + left % box.extents()[d]) * stride;
      left /= box.extents()[d];
      stride *= box.global_shape()[d];
    }
    visit(i, number);
  }
}

template <class T>
void fill(Sharded<T>& box, std::uint64_t salt) {
  box.fill(T{});
  each_element(box, [&](std::size_t i, std::uint64_t n) { box.local()[i] = static_cast<T>((n * 7 + salt) % 251); });
}
template <class T>
bool has(const Sharded<T>& box, std::uint64_t salt) {
  bool good = true;
  each_element(box, [&](std::size_t i, std::uint64_t n) {
    good = good && box.local()[i] == static_cast<T>((n * 7 + salt) % 251);
  });
  return good;
}

/// Tensors of every rank from 0 to 4, some uneven, some empty, and a plain one.
struct Model {
  Sharded<float> matrix, odd, scalar, empty, deep;
  std::vector<Sharded<double>> list;
  Sharded<std::int16_t> numbers;
  std::vector<float> plain;
  std::int64_t count = 0;
  STELE_MODULE(Model, matrix, odd, scalar, empty, deep, list, numbers, plain, count)

  template <class F>
  void each(F f) {
    std::uint64_t salt = 1;
    f(matrix, salt++), f(odd, salt++), f(scalar, salt++), f(empty, salt++), f(deep, salt++), f(numbers, salt++);
    for (auto& tensor : list) f(tensor, salt++);
  }
};

inline Model placed(Cut cut, MPI_Comm comm) {
  const int r = rank_of(comm), n = size_of(comm);
  Model model;
  model.matrix = box_of<float>({16, 12}, cut, r, n);
  model.odd = box_of<float>({7, 5}, cut, r, n);
  model.scalar = box_of<float>(Shape(), cut, r, n);
  model.empty = box_of<float>({0, 3}, cut, r, n);
  model.deep = box_of<float>({4, 3, 2, 5}, cut, r, n);
  model.list.push_back(box_of<double>({33}, cut, r, n));
  model.list.push_back(box_of<double>({1}, cut, r, n));
  model.numbers = box_of<std::int16_t>({9, 2, 2}, cut, r, n);
  model.plain.resize(3);
  return model;
}
inline Model filled(Cut cut, MPI_Comm comm) {
  Model model = placed(cut, comm);
  model.each([](auto& tensor, std::uint64_t salt) { fill(tensor, salt); });
  model.plain = {1, 2, 3};
  model.count = 77;
  return model;
}
inline bool is_filled(Model& model) {
  bool good = model.plain == std::vector<float>{1, 2, 3} && model.count == 77;
  model.each([&](auto& tensor, std::uint64_t salt) { good = good && has(tensor, salt); });
  return good;
}

inline mpi::Options quick() {
  mpi::Options options;
  options.save.file.durability = Durability::process;
  options.save.threads = options.load.threads = 1;
  options.timeout_seconds = 60;
  return options;
}

template <class T>
Errc code_of(const Result<T>& result) {
  return result ? Errc::none : result.error().code();
}
template <class T>
std::string why(const Result<T>& result) {
  return result ? std::string("ok") : result.error().to_string();
}

}  // namespace mpi_test
