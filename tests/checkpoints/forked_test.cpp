// A manager in a process that is forked after a background save: the thread of the manager exists in the parent only.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "checkpoints/steps.hpp"

namespace forked_test {

namespace {

using namespace stele_test::steps;

/// Runs `work` in a forked process, and returns its exit status; -1 if it does not end.
template <class F>
int in_child(F work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(work());
  for (int i = 0; i < 2000; ++i) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return -1;
}

TEST_SUITE_BEGIN("checkpoints");

TEST_CASE("a forked process reads the steps of its parent's manager, saves none, and destroys it") {
  const TempDir dir;
  const Net model = net(1);
  const Checkpoint checkpoint = checkpoint_of(model).value();
  for (const bool saves : {false, true}) {
    CAPTURE(saves);
    std::optional<CheckpointManager> manager(manager_in(dir / "run"));
    REQUIRE(manager->save(1, checkpoint));
    if (saves) {
      REQUIRE(manager->save_async(2, checkpoint));
      REQUIRE(manager->wait());
    }
    CHECK(in_child([&] {
            static_cast<void>(manager->due(3));
            if (numbers(*manager) != (saves ? std::vector<std::int64_t>{1, 2} : std::vector<std::int64_t>{1})) return 1;
            if (!manager->open_latest()) return 2;
            if (saves) {
              if (code_of(manager->save(3, checkpoint)) != Errc::invalid_argument) return 3;
              if (code_of(manager->save_async(3, checkpoint)) != Errc::invalid_argument) return 4;
              if (code_of(manager->wait()) != Errc::invalid_argument) return 5;
              if (code_of(manager->remove(1)) != Errc::invalid_argument) return 6;
            }
            manager.reset();
            return 0;
          }) == 0);
    REQUIRE(manager->save(4, checkpoint));
    REQUIRE(manager->remove(4));
  }
}

TEST_CASE("a forked process lets the signals of the manager end it again") {
  const auto before = std::signal(SIGTERM, SIG_DFL);  // doctest's handler would report the child's end
  const TempDir dir;
  const Net model = net(1);
  std::optional<CheckpointManager> manager(manager_in(dir / "run", {.save = save_when::on_signal({SIGTERM})}));
  REQUIRE(manager->save_async(1, checkpoint_of(model).value()));
  REQUIRE(manager->wait());
  CHECK(in_child([&] {
          manager.reset();
          static_cast<void>(std::raise(SIGTERM));
          return 0;
        }) == 1000);
  manager.reset();
  std::signal(SIGTERM, before);
}

TEST_SUITE_END();

}  // namespace

}  // namespace forked_test
