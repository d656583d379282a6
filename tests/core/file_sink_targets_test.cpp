// Files that are replaced: permissions, links, FIFOs, devices.
#include "stele/sink.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "stele/source.hpp"
#include "support/left_out.hpp"
#include "support/temp_dir.hpp"

#include "sink_support.hpp"

namespace file_sink_targets_test {

using namespace stele;
using namespace stele_test::sinks;
using stele_test::read_text;
using stele_test::TempDir;
using stele_test::write_text;
using Names = std::vector<std::string>;
namespace fs = std::filesystem;

TEST_CASE("file sink: permissions are kept") {
  const TempDir dir;
  const mode_t mask = ::umask(027);
  write_file(dir / "new", "x").value();
  CHECK(mode_of(dir / "new") == 0640);
  for (const mode_t mode : {0600U, 0644U, 0666U, 0777U, 0640U, 0604U}) {
    CAPTURE(mode);
    const std::string path = dir / "old";
    write_text(path, "old");
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    auto sink = file_sink(path, quick).value();
    CHECK(mode_of(dir / dir.names()[0]) == mode);  // the unfinished file is open to nobody else either
    CHECK(sink->write(bytes_of("new")));
    CHECK(sink->commit());
    CHECK(read_text(path) == "new");
    CHECK(mode_of(path) == mode);
  }
  SUBCASE("those at the time of the commit") {
    auto sink = file_sink(dir / "old", quick).value();
    REQUIRE(::chmod((dir / "old").c_str(), 0611) == 0);
    CHECK(sink->commit());
    CHECK(mode_of(dir / "old") == 0611);
  }
  SUBCASE("the owner, where that may be done") {
    if (::geteuid() == 0) {
      REQUIRE(::chown((dir / "old").c_str(), 1234, 4321) == 0);
      REQUIRE(::chmod((dir / "old").c_str(), 04755) == 0);
      write_file(dir / "old", "newer").value();
      struct stat status = {};
      REQUIRE(::stat((dir / "old").c_str(), &status) == 0);
      CHECK(status.st_uid == 1234);
      CHECK(status.st_gid == 4321);
      CHECK(mode_of(dir / "old") == 04755);
    }
  }
  SUBCASE("where the owner cannot be kept, nobody gets more rights") {
    if (::geteuid() == 0) {
      give_to_nobody(dir.path());
      REQUIRE(::chown((dir / "old").c_str(), 1234, 4321) == 0);
      REQUIRE(::chmod((dir / "old").c_str(), 06772) == 0);
      {
        const AsNobody nobody;
        write_file(dir / "old", "newer").value();
      }
      struct stat status = {};
      REQUIRE(::stat((dir / "old").c_str(), &status) == 0);
      CHECK(status.st_uid == 65534);
      CHECK(status.st_gid == 65534);
      CHECK(mode_of(dir / "old") == 0722);
    }
  }
  ::umask(mask);
}

TEST_CASE("file sink: an access list is kept") {
  const TempDir dir;
  const std::string path = dir / "old";
  write_text(path, "old");
  // Version 2; owner rw, user 1234 rw, group r, mask rw, others nothing.
  const std::array<unsigned char, 44> list = {
      2,  0, 0, 0,                          //
      1,  0, 6, 0, 0xff, 0xff, 0xff, 0xff,  //
      2,  0, 6, 0, 0xd2, 0x04, 0,    0,     //
      4,  0, 4, 0, 0xff, 0xff, 0xff, 0xff,  //
      16, 0, 6, 0, 0xff, 0xff, 0xff, 0xff,  //
      32, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,  //
  };
  const char* const attribute = "system.posix_acl_access";
  if (::setxattr(path.c_str(), attribute, list.data(), list.size(), 0) != 0) {
    stele_test::left_out("the file system has no access control lists");
    return;
  }
  write_file(path, "new").value();
  std::array<unsigned char, 44> kept = {};
  CHECK(::getxattr(path.c_str(), attribute, kept.data(), kept.size()) == 44);
  CHECK(kept == list);
  CHECK(mode_of(path) == 0660);

  // A list that new files get from their folder is not given to a file that had none.
  REQUIRE(::setxattr(dir.path().c_str(), "system.posix_acl_default", list.data(), list.size(), 0) == 0);
  REQUIRE(::removexattr(path.c_str(), attribute) == 0);
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  write_file(path, "newer").value();
  CHECK(::getxattr(path.c_str(), attribute, nullptr, 0) < 0);
  CHECK(mode_of(path) == 0640);
}

TEST_CASE("file sink: protected files and folders") {
  const TempDir dir;
  give_to_nobody(dir.path());
  write_text(dir / "file", "old");
  give_to_nobody(dir / "file");
  {
    const AsNobody nobody;
    // A file that may not be written to is not replaced either.
    REQUIRE(::chmod((dir / "file").c_str(), 0444) == 0);
    CHECK(save_error(dir / "file") == Errc::io);
    REQUIRE(::chmod((dir / "file").c_str(), 0644) == 0);
    // Nor is one in a folder in which nothing can be created.
    REQUIRE(::chmod(dir.path().c_str(), 0555) == 0);
    CHECK(save_error(dir / "file") == Errc::io);
    CHECK(save_error(dir / "new") == Errc::io);
    CHECK(read_text(dir / "file") == "old");
    // A folder that cannot be listed will do, also durably.
    REQUIRE(::chmod(dir.path().c_str(), 0333) == 0);
    CHECK(write_file(dir / "file", "new", {Durability::full}));
    REQUIRE(::chmod(dir.path().c_str(), 0755) == 0);
  }
  CHECK(read_text(dir / "file") == "new");
  CHECK(dir.names() == Names{"file"});
}

TEST_CASE("file sink: a link keeps pointing and its target is replaced") {
  const TempDir dir;
  fs::create_directory(dir / "store");
  write_text(dir / "store/target", "old");
  REQUIRE(::chmod((dir / "store/target").c_str(), 0600) == 0);
  fs::create_symlink("store/second", dir / "first");
  fs::create_symlink(dir / "store/target", dir / "store/second");
  auto sink = file_sink(dir / "first", quick).value();
  CHECK(sink->name() == dir / "first");
  CHECK(stele_test::names_in(dir / "store").size() == 3);  // the unfinished file lies beside the target
  CHECK(sink->write(bytes_of("new")));
  CHECK(sink->commit());
  CHECK(fs::read_symlink(dir / "first") == "store/second");
  CHECK(fs::is_symlink(dir / "store/second"));
  CHECK(!fs::is_symlink(dir / "store/target"));
  CHECK(read_text(dir / "store/target") == "new");
  CHECK(mode_of(dir / "store/target") == 0600);
  CHECK(stele_test::names_in(dir / "store") == Names{"second", "target"});
  CHECK(dir.names() == Names{"first", "store"});

  fs::create_symlink("store/absent", dir / "dangling");
  write_file(dir / "dangling", "created").value();
  CHECK(fs::is_symlink(dir / "dangling"));
  CHECK(read_text(dir / "store/absent") == "created");
  fs::create_symlink("nowhere/absent", dir / "lost");
  CHECK(save_error(dir / "lost") == Errc::not_found);

  // Through a linked folder, with a step back that starts from where the folder really is.
  fs::create_directories(dir / "deep/inner");
  fs::create_directory_symlink("deep/inner", dir / "way");
  fs::create_symlink("../beside", dir / "deep/inner/up");
  write_file(dir / "way/up", "beside").value();
  CHECK(read_text(dir / "deep/beside") == "beside");
}

TEST_CASE("file sink: a link in /proc to a file without a name is refused") {
  const TempDir dir;
  const int fd = ::open((dir / "gone").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(fd >= 0);
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  CHECK(write_file(path, "by its number"));
  CHECK(read_text(dir / "gone") == "by its number");
  REQUIRE(::unlink((dir / "gone").c_str()) == 0);
  CHECK(save_error(path) == Errc::io);
  CHECK(dir.names().empty());
  ::close(fd);
}

TEST_CASE("file sink: a FIFO is written through, whatever interrupts") {
  const TempDir dir;
  const std::string path = dir / "fifo";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  std::string text(1000000, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 / 5);
  std::string got;
  std::thread reader([&] {
    // The signals are for the writer.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    std::ifstream file(path, std::ios::binary);
    std::array<char, 3000> piece;
    while (file.read(piece.data(), piece.size()), file.gcount() > 0) {
      got.append(piece.data(), static_cast<std::size_t>(file.gcount()));
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  static std::atomic<int> interruptions{0};
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_handler = [](int) { ++interruptions; };  // without SA_RESTART: calls fail with EINTR
  REQUIRE(::sigaction(SIGALRM, &action, &before) == 0);
  itimerval timer = {{0, 700}, {0, 700}};
  REQUIRE(::setitimer(ITIMER_REAL, &timer, nullptr) == 0);
  {
    auto sink = file_sink(path).value();
    const auto bytes = bytes_of(text);
    const std::array<std::span<const std::byte>, 4> pieces = {bytes.first(1), bytes.subspan(1, 500000),
                                                              std::span<const std::byte>(), bytes.subspan(500001)};
    CHECK(sink->write(pieces));
    CHECK(sink->commit());
  }
  timer = {};
  REQUIRE(::setitimer(ITIMER_REAL, &timer, nullptr) == 0);
  REQUIRE(::sigaction(SIGALRM, &before, nullptr) == 0);
  reader.join();
  CHECK(interruptions > 0);
  CHECK(got == text);
  CHECK(dir.names() == Names{"fifo"});
  CHECK(fs::is_fifo(path));
}

TEST_CASE("file sink: devices") {
  for (const Durability durability : {Durability::full, Durability::process}) {
    CHECK(write_file("/dev/null", "to nowhere", {durability}));
    const Status full = write_file("/dev/full", "too much", {durability});
    REQUIRE(!full);
    CHECK(full.error().code() == Errc::io);
    CHECK(full.error().file() == "/dev/full");
    CHECK(full.error().message().find("No space") != std::string::npos);
  }
  CHECK(fs::is_character_file("/dev/null"));
}

}  // namespace file_sink_targets_test
