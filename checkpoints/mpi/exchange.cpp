#include "exchange.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace stele::inline v0::mpi::detail {
namespace {

/// Maximum bytes of one message (1 GiB): MPI counts them with an int.
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

/// The requests of one exchange and the memory that they use. Leaked deliberately if a request does not complete,
/// because MPI may still write to the memory. All memory is allocated before the first request starts.
struct Exchange::Pending {
  struct Message {
    char* bytes;
    int size, peer;
    bool send;
  };
  std::vector<Message> messages;
  std::vector<MPI_Request> requests;
  std::vector<int> peers;  // for each request, the process at the other end
  MPI_Comm comm = MPI_COMM_NULL;
  std::vector<std::string> buffers;
  std::vector<std::uint64_t> sizes;
};

Exchange::~Exchange() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  // Freeing is collective, and after an error another process may have ended.
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

Status Exchange::keep(std::unique_ptr<Pending>& pending, int code, const char* what) {
  static_cast<void>(pending.release());  // other requests may still be in progress
  return check(code, what);
}

Status Exchange::wait(std::unique_ptr<Pending>& pending, const char* what) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_));
  std::chrono::microseconds pause(0);
  for (;;) {
    int done = 0;
    const int code =
        MPI_Testall(static_cast<int>(pending->requests.size()), pending->requests.data(), &done, MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS) return keep(pending, code, what);
    if (done != 0) return {};
    if (Clock::now() > end) break;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause + std::chrono::microseconds(5), std::chrono::microseconds(500));
  }
  broken_ = true;
  const Pending& kept = *pending.release();
  std::string late;
  for (std::size_t i = 0; i < kept.requests.size() && late.size() < 100; ++i) {
    int done = 0;
    MPI_Request_get_status(kept.requests[i], &done, MPI_STATUS_IGNORE);
    if (done == 0) late += (late.empty() ? "process " : ", ") + std::to_string(kept.peers[i]);
  }
  return Error(Errc::timed_out, std::string("another process did not answer while ") + what)
      .expected("an answer within " + std::to_string(timeout_) + " s")
      .found("none from " + late)
      .hint("raise Options::timeout_seconds, if the process still runs");
}

Status Exchange::start(MPI_Comm comm) {
  auto pending = std::make_unique<Pending>();
  MPI_Comm_rank(comm, &rank_);
  MPI_Comm_size(comm, &size_);
  pending->requests.resize(1);
  pending->peers.push_back(0);
  STELE_TRY(check(MPI_Comm_idup(comm, &pending->comm, pending->requests.data()), "duplicating the communicator"));
  STELE_TRY(wait(pending, "duplicating the communicator"));
  comm_ = pending->comm;
  // The caller's communicator keeps its error handler.
  return check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "setting the error handler");
}

void Exchange::add(Pending& pending, std::string& bytes, int peer, bool send) {
  for (std::size_t at = 0; at < bytes.size(); at += max_message) {
    const auto n = static_cast<int>(std::min(max_message, bytes.size() - at));
    pending.messages.push_back({bytes.data() + at, n, peer, send});
  }
}

Status Exchange::run(std::unique_ptr<Pending>& pending, const char* what) {
  const auto& messages = pending->messages;
  pending->requests.assign(messages.size(), MPI_REQUEST_NULL);
  pending->peers.clear();
  for (const Pending::Message& message : messages) pending->peers.push_back(message.peer);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto& [bytes, size, peer, send] = messages[i];
    MPI_Request& request = pending->requests[i];
    const int code = send ? MPI_Isend(bytes, size, MPI_BYTE, peer, tag, comm_, &request)
                          : MPI_Irecv(bytes, size, MPI_BYTE, peer, tag, comm_, &request);
    if (code != MPI_SUCCESS) return keep(pending, code, what);
  }
  return wait(pending, what);
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
  if (!is_root()) {
    pending->buffers.emplace_back(bytes);
    add(*pending, pending->buffers[0], 0, true);
    STELE_TRY(run(pending, "sending to process 0"));
    return std::vector<std::string>();
  }
  pending->buffers.resize(static_cast<std::size_t>(size_));
  for (int from = 1; from < size_; ++from) {
    auto& buffer = pending->buffers[static_cast<std::size_t>(from)];
    buffer.resize(static_cast<std::size_t>(pending->sizes[static_cast<std::size_t>(from)]));
    add(*pending, buffer, from, false);
  }
  STELE_TRY(run(pending, "gathering"));
  pending->buffers[0] = bytes;
  return std::move(pending->buffers);
}

Result<std::string> Exchange::scatter(std::vector<std::string> entries) {
  STELE_TRY(usable());
  auto pending = std::make_unique<Pending>();
  pending->buffers = std::move(entries);
  for (const std::string& entry : pending->buffers) pending->sizes.push_back(entry.size());
  pending->sizes.push_back(0);  // the entry of this process
  pending->requests.resize(1);
  pending->peers.assign(1, 0);
  STELE_TRY(check(MPI_Iscatter(pending->sizes.data(), 1, MPI_UINT64_T, &pending->sizes.back(), 1, MPI_UINT64_T, 0,
                               comm_, pending->requests.data()),
                  "sending sizes"));
  STELE_TRY(wait(pending, "receiving a size"));
  if (!is_root()) {
    pending->buffers.assign(1, std::string(static_cast<std::size_t>(pending->sizes.back()), '\0'));
    add(*pending, pending->buffers[0], 0, false);
  }
  for (int to = 1; is_root() && to < size_; ++to) {
    add(*pending, pending->buffers[static_cast<std::size_t>(to)], to, true);
  }
  STELE_TRY(run(pending, "receiving from process 0"));
  return std::move(pending->buffers[0]);
}

Result<std::uint64_t> Exchange::largest(std::uint64_t mine) {
  std::string packed;
  add_number(packed, mine);
  STELE_TRY_ASSIGN(const std::vector<std::string> all, gather(packed));
  std::uint64_t found = 0;
  for (const std::string& one : all) found = std::max(found, Unpacker(one).number());
  packed.clear();
  add_number(packed, found);
  STELE_TRY(broadcast(packed));
  return Unpacker(packed).number();
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

}  // namespace stele::inline v0::mpi::detail
