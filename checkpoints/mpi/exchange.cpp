#include "exchange.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace stele {
inline namespace v0 {
namespace mpi {
namespace detail {
namespace {

/// Maximum bytes of one message, whose size MPI counts with an int.
constexpr std::size_t max_message = std::size_t{1} << 30;
constexpr int tag = 7;

}  // namespace

void add_error(std::string& to, const Error& error) {
  add_number(to, static_cast<std::uint64_t>(error.code()));
  for (const std::string_view part :
       {error.message(), error.path(), error.file(), error.expected(), error.found(), error.hint()}) {
    add_text(to, part);
  }
}

Error read_error(Unpacker& in, const std::string& prefix) {
  const auto code = static_cast<Errc>(in.number());
  Error error(code, prefix + std::string(in.text()));
  error = std::move(error).path(in.text());
  error = std::move(error).file(in.text());
  error = std::move(error).expected(in.text());
  error = std::move(error).found(in.text());
  return std::move(error).hint(in.text());
}

/// The requests of one step and the memory that they use. Kept for ever if they do not end: MPI may still write to it.
struct Exchange::Pending {
  std::vector<MPI_Request> requests;
  std::vector<int> peers;  // of each request
  std::vector<std::string> buffers;
  std::vector<std::uint64_t> sizes;
};

Exchange::~Exchange() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  // Freeing is collective: after an error, a process may be gone.
  if (comm_ != MPI_COMM_NULL && !broken_ && finalized == 0) MPI_Comm_free(&comm_);
}

Status Exchange::check(int code, const char* what) {
  if (code == MPI_SUCCESS) return {};
  broken_ = true;
  char text[MPI_MAX_ERROR_STRING];
  int size = 0;
  MPI_Error_string(code, text, &size);
  return Error(Errc::io,
               std::string("MPI failed while ") + what + ": " + std::string(text, static_cast<std::size_t>(size)));
}

Status Exchange::wait(std::unique_ptr<Pending>& pending, const char* what) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_));
  std::chrono::microseconds pause(0);
  for (;;) {
    int done = 0;
    const int code =
        MPI_Testall(static_cast<int>(pending->requests.size()), pending->requests.data(), &done, MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS) {
      static_cast<void>(pending.release());
      return check(code, what);
    }
    if (done != 0) return {};
    if (Clock::now() > end) break;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause + std::chrono::microseconds(5), std::chrono::microseconds(500));
  }
  std::string late;
  for (std::size_t i = 0; i < pending->requests.size() && late.size() < 100; ++i) {
    int done = 0;
    MPI_Request_get_status(pending->requests[i], &done, MPI_STATUS_IGNORE);
    if (done == 0) late += (late.empty() ? "process " : ", ") + std::to_string(pending->peers[i]);
  }
  static_cast<void>(pending.release());  // see Pending
  broken_ = true;
  return Error(Errc::timed_out, std::string("another process did not answer while ") + what)
      .expected("an answer within " + std::to_string(timeout_) + " s")
      .found("none from " + late)
      .hint("raise Options::timeout_seconds, if the process still runs");
}

Status Exchange::start(MPI_Comm comm) {
  auto pending = std::make_unique<Pending>();
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm, &rank_);
  MPI_Comm_size(comm, &size_);
  pending->requests.resize(1);
  pending->peers.push_back(0);
  STELE_TRY(check(MPI_Comm_idup(comm, &comm_, pending->requests.data()), "duplicating the communicator"));
  STELE_TRY(wait(pending, "duplicating the communicator"));
  return check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "setting the error handler");
}

void Exchange::add_send(Pending& pending, std::string_view bytes, int to) const {
  for (std::size_t at = 0; at < bytes.size(); at += max_message) {
    const auto n = static_cast<int>(std::min(max_message, bytes.size() - at));
    pending.requests.push_back(MPI_REQUEST_NULL);
    pending.peers.push_back(to);
    MPI_Isend(bytes.data() + at, n, MPI_BYTE, to, tag, comm_, &pending.requests.back());
  }
}

void Exchange::add_receive(Pending& pending, std::string& bytes, int from) const {
  for (std::size_t at = 0; at < bytes.size(); at += max_message) {
    const auto n = static_cast<int>(std::min(max_message, bytes.size() - at));
    pending.requests.push_back(MPI_REQUEST_NULL);
    pending.peers.push_back(from);
    MPI_Irecv(bytes.data() + at, n, MPI_BYTE, from, tag, comm_, &pending.requests.back());
  }
}

Status Exchange::usable() const {
  return broken_ ? Error(Errc::timed_out, "an earlier exchange between the processes has failed") : Status();
}

Status Exchange::broadcast(std::string& bytes) {
  STELE_TRY(usable());
  auto pending = std::make_unique<Pending>();
  pending->buffers.push_back(std::move(bytes));
  std::string& held = pending->buffers[0];
  pending->sizes.assign(1, held.size());
  pending->requests.resize(1);
  pending->peers.assign(1, 0);
  STELE_TRY(check(MPI_Ibcast(pending->sizes.data(), 1, MPI_UINT64_T, 0, comm_, pending->requests.data()), "sending"));
  STELE_TRY(wait(pending, "receiving a size"));
  held.resize(static_cast<std::size_t>(pending->sizes[0]));
  for (std::size_t at = 0; at < held.size(); at += max_message) {
    const auto n = static_cast<int>(std::min(max_message, held.size() - at));
    STELE_TRY(check(MPI_Ibcast(held.data() + at, n, MPI_BYTE, 0, comm_, pending->requests.data()), "sending"));
    STELE_TRY(wait(pending, "receiving a message"));
  }
  bytes = std::move(held);
  return {};
}

Result<std::vector<std::string>> Exchange::gather(std::string_view bytes) {
  STELE_TRY(usable());
  auto pending = std::make_unique<Pending>();
  pending->sizes.resize(static_cast<std::size_t>(size_) + 1);
  pending->sizes.back() = bytes.size();
  pending->requests.resize(1);
  pending->peers.assign(1, 0);
  STELE_TRY(check(MPI_Igather(&pending->sizes.back(), 1, MPI_UINT64_T, pending->sizes.data(), 1, MPI_UINT64_T, 0, comm_,
                              pending->requests.data()),
                  "sending a size"));
  STELE_TRY(wait(pending, "gathering sizes"));
  pending->requests.clear();
  pending->peers.clear();
  if (!is_root()) {
    pending->buffers.emplace_back(bytes);
    add_send(*pending, pending->buffers[0], 0);
    STELE_TRY(wait(pending, "sending to process 0"));
    return std::vector<std::string>();
  }
  pending->buffers.resize(static_cast<std::size_t>(size_));
  for (int from = 1; from < size_; ++from) {
    auto& buffer = pending->buffers[static_cast<std::size_t>(from)];
    buffer.resize(static_cast<std::size_t>(pending->sizes[static_cast<std::size_t>(from)]));
    add_receive(*pending, buffer, from);
  }
  STELE_TRY(wait(pending, "gathering"));
  pending->buffers[0] = bytes;
  return std::move(pending->buffers);
}

Result<std::string> Exchange::scatter(std::vector<std::string> entries) {
  STELE_TRY(usable());
  auto pending = std::make_unique<Pending>();
  pending->buffers = std::move(entries);
  for (const std::string& entry : pending->buffers) pending->sizes.push_back(entry.size());
  pending->sizes.push_back(0);  // of this process
  pending->requests.resize(1);
  pending->peers.assign(1, 0);
  STELE_TRY(check(MPI_Iscatter(pending->sizes.data(), 1, MPI_UINT64_T, &pending->sizes.back(), 1, MPI_UINT64_T, 0,
                               comm_, pending->requests.data()),
                  "sending sizes"));
  STELE_TRY(wait(pending, "receiving a size"));
  pending->requests.clear();
  pending->peers.clear();
  if (!is_root()) {
    pending->buffers.assign(1, std::string(static_cast<std::size_t>(pending->sizes.back()), '\0'));
    add_receive(*pending, pending->buffers[0], 0);
  }
  for (int to = 1; is_root() && to < size_; ++to) {
    add_send(*pending, pending->buffers[static_cast<std::size_t>(to)], to);
  }
  STELE_TRY(wait(pending, "receiving from process 0"));
  return std::move(pending->buffers[0]);
}

Result<std::uint64_t> Exchange::first_of(std::uint64_t mine) {
  std::string packed;
  if (mine != 0) add_number(packed, mine);
  STELE_TRY_ASSIGN(const std::vector<std::string> all, gather(packed));
  const auto first = std::find_if(all.begin(), all.end(), [](const std::string& one) { return !one.empty(); });
  std::string found = first != all.end() ? *first : std::string();
  STELE_TRY(broadcast(found));
  return Unpacker(found).number();
}

Status Exchange::agree(Status mine) {
  std::string text;
  if (!mine) {
    add_error(text, mine.error());
    if (!usable()) return mine;
  }
  STELE_TRY_ASSIGN(const std::vector<std::string> all, gather(text));
  std::string verdict;
  for (std::size_t i = 0; i < all.size() && verdict.empty(); ++i) {
    if (all[i].empty()) continue;
    add_number(verdict, i);
    verdict += all[i];
  }
  STELE_TRY(broadcast(verdict));
  if (verdict.empty()) return {};
  Unpacker in(verdict);
  const std::uint64_t process = in.number();
  if (!mine && process == static_cast<std::uint64_t>(rank_)) return mine;
  return read_error(in, "process " + std::to_string(process) + ": ");
}

}  // namespace detail
}  // namespace mpi
}  // namespace v0
}  // namespace stele
