// Signals that the system sends where a write cannot go on: a pipe without a reader, a limit on the size of files.
#include <stele/stele.hpp>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "support/child.hpp"
#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

namespace signals_test {

using namespace stele_test;

namespace {

Mlp large() {
  Mlp m = small_mlp(1);
  m.layers.emplace_back(400, 700, 1.0F);  // 1 MB, more than a pipe takes
  return m;
}

/// Saves in a child, with the signal ignored or not; tells how it ended.
std::string ended(int signal, bool ignored, const std::function<void()>& prepare, const std::string& path) {
  return in_child([&]() -> std::string {
    ::signal(signal, ignored ? SIG_IGN : SIG_DFL);
    prepare();
    return why(stele::save(large(), path, quick()));
  });
}

}  // namespace

TEST_CASE("signals: a pipe whose reader has left") {
  const TempDir dir;
  const std::string path = dir / "pipe.stele";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const auto leave = [&] {
    // A reader, so that opening for writing does not wait; it leaves after the first bytes.
    const pid_t reader = ::fork();
    if (reader != 0) return;
    const int fd = ::open(path.c_str(), O_RDONLY);
    char byte = 0;
    static_cast<void>(!::read(fd, &byte, 1));
    ::_exit(0);
  };
  const std::string error = ended(SIGPIPE, true, leave, path);
  CHECK(error.starts_with("io: "));
  CHECK(error.find("Broken pipe") != std::string::npos);
  CHECK(ended(SIGPIPE, false, leave, path) == " (the child died: " + std::to_string(SIGPIPE) + ")");
}

TEST_CASE("signals: a limit on the size of files") {
  const TempDir dir;
  const std::string path = dir / "m.stele";
  good(stele::save(small_mlp(5), path, quick()));
  const std::string before = read_text(path);
  const auto limit = [] {
    const rlimit bytes{64 << 10, 64 << 10};
    static_cast<void>(::setrlimit(RLIMIT_FSIZE, &bytes));
  };
  const std::string error = ended(SIGXFSZ, true, limit, path);
  CHECK(error.starts_with("io: "));
  CHECK(error.find("File too large") != std::string::npos);
  CHECK(read_text(path) == before);
  CHECK(dir.names().size() == 1);
  // The process ends, and leaves what a killed one leaves: the old file, and a temporary until the next save.
  CHECK(ended(SIGXFSZ, false, limit, path) == " (the child died: " + std::to_string(SIGXFSZ) + ")");
  CHECK(read_text(path) == before);
  good(stele::save(small_mlp(6), path, quick()));
  CHECK(dir.names().size() == 1);
}

}  // namespace signals_test
