// Messages between the processes of a checkpoint, with a time limit on each wait.
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

/// Appends an error to a message.
void add_error(std::string& to, const Error& error);
/// Reads such an error; its message begins with `prefix`.
Error read_error(Unpacker& in, const std::string& prefix);

/// A communicator of its own. Process 0 is the root. After an error (timed_out, io) no member communicates again.
class Exchange {
 public:
  explicit Exchange(double timeout_seconds) : timeout_(timeout_seconds) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange();
  /// Duplicates the communicator. Collective, as are all members below.
  Status start(MPI_Comm comm);

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  bool is_root() const noexcept { return rank_ == 0; }
  MPI_Comm comm() const noexcept { return comm_; }
  /// Returns true after an error that ends all communication.
  bool broken() const noexcept { return broken_; }

  /// Gives every process the root's bytes.
  Status broadcast(std::string& bytes);
  /// Gives the root the bytes of every process, by number; the others get an empty vector.
  Result<std::vector<std::string>> gather(std::string_view bytes);
  /// Gives each process its entry of the root's list.
  Result<std::string> scatter(std::vector<std::string> entries);
  /// Returns the largest number of the processes.
  Result<std::uint64_t> largest(std::uint64_t mine);
  /// Returns the first number of the processes that is not 0, or 0.
  Result<std::uint64_t> first_of(std::uint64_t mine);
  /// Returns an error to all processes if one of them has one: that of the first. Its message names the process.
  Status agree(Status mine);

 private:
  struct Pending;
  /// Waits until all requests are done. On error, their memory is never freed.
  Status wait(std::unique_ptr<Pending>& pending, const char* what);
  Status usable() const;
  Status check(int code, const char* what);
  /// Returns the error of a call; the memory of the other requests is never freed.
  Status keep(std::unique_ptr<Pending>& pending, int code, const char* what);
  /// Adds the messages that send or receive these bytes.
  static void add(Pending& pending, std::string& bytes, int peer, bool send);
  /// Sends and receives all messages that were added.
  Status run(std::unique_ptr<Pending>& pending, const char* what);

  double timeout_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  bool broken_ = false;
};

}  // namespace stele::inline v0::mpi::detail
