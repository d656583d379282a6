// Messages between the processes of a checkpoint, with a timeout for each wait.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "packing.hpp"
#include "stele/result.hpp"

namespace stele::inline v0::mpi::detail {

/// Appends an error to the bytes of a message.
void add_error(std::string& to, const Error& error);
/// Reads an error that add_error() wrote, and prepends `prefix` to its message.
Error read_error(Unpacker& in, const std::string& prefix);

/// Exchanges messages over a duplicate of the caller's communicator. Process 0 is the root. After an error (timed_out,
/// io) the members no longer communicate.
class Exchange {
 public:
  explicit Exchange(double timeout_seconds) : timeout_(timeout_seconds) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange();
  /// Duplicates the communicator. This member and all members below are collective.
  Status start(MPI_Comm comm);

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  bool is_root() const noexcept { return rank_ == 0; }
  MPI_Comm comm() const noexcept { return comm_; }
  /// Returns true after an error that ends all communication.
  bool broken() const noexcept { return broken_; }

  /// Sends the root's bytes to every process.
  Status broadcast(std::string& bytes);
  /// Sends the bytes of every process to the root, in rank order; other processes get an empty vector.
  Result<std::vector<std::string>> gather(std::string_view bytes);
  /// Sends each process its entry of the root's list.
  Result<std::string> scatter(std::vector<std::string> entries);
  /// Returns the maximum of the processes' numbers.
  Result<std::uint64_t> largest(std::uint64_t mine);
  /// Returns the first of the processes' numbers that is not 0, or 0.
  Result<std::uint64_t> first_of(std::uint64_t mine);
  /// Returns an error in all processes if any process passes one: the error of the lowest rank. Its message names the
  /// process.
  Status agree(Status mine);

 private:
  struct Pending;
  /// Waits until all requests are complete. On error, leaks the requests' memory.
  Status wait(std::unique_ptr<Pending>& pending, const char* what);
  Status usable() const;
  Status check(int code, const char* what);
  /// Returns the error of a call, and leaks the memory of the other requests.
  Status keep(std::unique_ptr<Pending>& pending, int code, const char* what);
  /// Adds the messages that send or receive `bytes`.
  static void add(Pending& pending, std::string& bytes, int peer, bool send);
  /// Sends and receives all added messages.
  Status run(std::unique_ptr<Pending>& pending, const char* what);

  double timeout_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  bool broken_ = false;
};

}  // namespace stele::inline v0::mpi::detail
