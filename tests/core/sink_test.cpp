#include "stele/sink.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "stele/source.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace stele;
using stele_test::read_text;
using stele_test::TempDir;
using stele_test::write_text;
using Names = std::vector<std::string>;
namespace fs = std::filesystem;

constexpr FileSinkOptions quick{Durability::process};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Status save(const std::string& path, std::string_view text, FileSinkOptions options = quick) {
  STELE_TRY_ASSIGN(const std::unique_ptr<Sink> sink, file_sink(path, options));
  STELE_TRY(sink->reserve(text.size()));
  STELE_TRY(sink->write(bytes_of(text)));
  return sink->commit();
}

Errc save_error(const std::string& path) {
  const Status status = save(path, "new");
  return status ? Errc::none : status.error().code();
}

mode_t mode_of(const std::string& path) {
  struct stat status = {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

/// `count` pieces of 0 to 4 bytes, and their text.
struct ManyPieces {
  explicit ManyPieces(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) text += static_cast<char>('a' + i % 26);
    std::size_t at = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t size = std::min(i % 5, text.size() - at);
      pieces.push_back(size == 0 ? std::span<const std::byte>() : bytes_of(text).subspan(at, size));
      at += size;
    }
    text.resize(at);
  }
  std::string text;
  std::vector<std::span<const std::byte>> pieces;
};

/// A process id that no process has: one that was waited for.
pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  REQUIRE(child > 0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  return child;
}

std::string temporary_name(const std::string& name, pid_t process, int counter) {
  return "." + name + ".stele-" + std::to_string(process) + "-" + std::to_string(counter) + ".tmp";
}

/// Runs the rest of the scope as a user without rights, where the test runs as root.
class AsNobody {
 public:
  AsNobody() : root_(::geteuid() == 0) {
    if (root_) REQUIRE((::setegid(65534) == 0 && ::seteuid(65534) == 0));
  }
  ~AsNobody() {
    if (root_ && (::seteuid(0) != 0 || ::setegid(0) != 0)) std::abort();
  }

 private:
  bool root_;
};

/// Gives the folder to the user of AsNobody.
void give_to_nobody(const std::string& path) {
  if (::geteuid() == 0) REQUIRE(::chown(path.c_str(), 65534, 65534) == 0);
}

}  // namespace

TEST_CASE("file sink: new and replaced") {
  const TempDir dir;
  const std::string path = dir / "model.bin";
  for (const Durability durability : {Durability::full, Durability::process}) {
    for (const std::string text : {"first", "second, longer", ""}) {
      auto sink = file_sink(path, {durability}).value();
      CHECK(sink->name() == path);
      CHECK(sink->write(bytes_of(text)));
      CHECK(dir.names().size() >= 1);
      CHECK(sink->commit());
      CHECK(read_text(path) == text);
      CHECK(dir.names() == Names{"model.bin"});
      CHECK(sink->commit());  // nothing left to do
      CHECK(sink->write(bytes_of("more")).error().code() == Errc::invalid_argument);
      CHECK(read_text(path) == text);
    }
  }
  SUBCASE("the default is durable") { CHECK(FileSinkOptions().durability == Durability::full); }
  SUBCASE("a name in the working folder") {
    const fs::path before = fs::current_path();
    fs::current_path(dir.path());
    auto sink = file_sink("plain", quick).value();
    fs::current_path(before);  // the folder was found when the sink was made
    CHECK(sink->write(bytes_of("x")));
    CHECK(sink->commit());
    CHECK(read_text(dir / "plain") == "x");
  }
}

TEST_CASE("file sink: nothing is seen before commit, nothing stays without it") {
  const TempDir dir;
  const std::string path = dir / "model.bin";
  save(path, "old").value();
  {
    auto sink = file_sink(path).value();
    CHECK(sink->write(bytes_of("new")));
    CHECK(read_text(path) == "old");
    const Names names = dir.names();
    REQUIRE(names.size() == 2);
    CHECK(names[0].starts_with(".model.bin.stele-" + std::to_string(::getpid()) + "-"));
    CHECK(names[0].ends_with(".tmp"));
  }
  CHECK(read_text(path) == "old");
  CHECK(dir.names() == Names{"model.bin"});
}

TEST_CASE("file sink: a failed commit leaves the old and no litter") {
  const TempDir dir;
  const std::string path = dir / "model.bin";
  auto sink = file_sink(path).value();
  CHECK(sink->write(bytes_of("new")));
  fs::create_directory(path);  // now it cannot be replaced by a file
  const Status status = sink->commit();
  REQUIRE(!status);
  CHECK(status.error().code() == Errc::io);
  CHECK(status.error().file() == path);
  CHECK(dir.names() == Names{"model.bin"});
  CHECK(sink->write(bytes_of("more")).error().code() == Errc::io);
  CHECK(sink->commit().error().code() == Errc::io);
}

TEST_CASE("file sink: a failed write leaves the old and no litter") {
  const TempDir dir;
  const std::string path = dir / "model.bin";
  save(path, "old").value();
  const std::string text(100000, 'x');
  auto sink = file_sink(path).value();
  rlimit before = {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit limit = before;
  limit.rlim_cur = 70000;  // the first write is a short one, the next fails
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const Status status = sink->write(bytes_of(text));
  static_cast<void>(::signal(SIGXFSZ, handler));
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  REQUIRE(!status);
  CHECK(status.error().code() == Errc::io);
  CHECK(status.error().file() == path);
  CHECK(status.error().message().find("File too large") != std::string::npos);
  CHECK(dir.names() == Names{"model.bin"});
  CHECK(sink->commit().error().code() == Errc::io);
  CHECK(read_text(path) == "old");
}

TEST_CASE("file sink: paths that make no sense") {
  const TempDir dir;
  write_text(dir / "file", "x");
  fs::create_directory_symlink(dir.path(), dir / "link");
  fs::create_symlink("loop", dir / "loop");
  CHECK(save_error("") == Errc::invalid_argument);
  CHECK(save_error(dir.path()) == Errc::invalid_argument);
  CHECK(save_error(dir.path() + "/") == Errc::invalid_argument);
  CHECK(save_error(dir / ".") == Errc::invalid_argument);
  CHECK(save_error(dir / "..") == Errc::invalid_argument);
  CHECK(save_error(dir / "link") == Errc::invalid_argument);
  CHECK(save_error(dir / "new/") == Errc::invalid_argument);
  CHECK(save_error((dir / "new") + std::string(1, '\0') + "more") == Errc::invalid_argument);
  CHECK(save_error(dir / "none/new") == Errc::not_found);
  CHECK(save_error(dir / "file/new") == Errc::not_found);
  CHECK(save_error(dir / "loop") == Errc::io);
  CHECK(save_error(dir / std::string(256, 'n')) == Errc::io);
  CHECK(dir.names() == Names{"file", "link", "loop"});
}

TEST_CASE("file sink: the path is never altered") {
  const TempDir dir;
  for (const std::string name : {"model", "model.tar.gz", " spaced ", "new\nline", "-rf", ".hidden", "\xc3\xa4\xff"}) {
    save(dir / name, name).value();
    CHECK(dir.names() == Names{name});
    CHECK(read_text(dir / name) == name);
    fs::remove(dir / name);
  }
}

TEST_CASE("file sink: names as long as the file system takes") {
  const TempDir dir;
  std::string umlauts;
  while (umlauts.size() < 254) umlauts += "\xc3\xa4";
  for (const std::string& name : {std::string(255, 'n'), umlauts, std::string(220, 'n'), std::string(212, 'n')}) {
    {
      auto sink = file_sink(dir / name, quick).value();
      for (const std::string& temporary : dir.names()) {
        // Cut between characters.
        if (name == umlauts) CHECK(temporary.find("\xc3.") == std::string::npos);
      }
      CHECK(sink->commit());
    }
    // What was left for such a name is found too.
    const std::string kept(name == umlauts ? umlauts.substr(0, 212) : std::string(212, 'n'));
    const std::string stale = temporary_name(kept, dead_process(), 5);
    write_text(dir / stale, "stale");
    save(dir / name, "again").value();
    CHECK(dir.names() == Names{name});
    CHECK(read_text(dir / name) == "again");
    fs::remove(dir / name);
  }
}

TEST_CASE("file sink: permissions are kept") {
  const TempDir dir;
  const mode_t mask = ::umask(027);
  save(dir / "new", "x").value();
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
      save(dir / "old", "newer").value();
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
        save(dir / "old", "newer").value();
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
  if (::setxattr(path.c_str(), attribute, list.data(), list.size(), 0) != 0) return;  // a file system without lists
  save(path, "new").value();
  std::array<unsigned char, 44> kept = {};
  CHECK(::getxattr(path.c_str(), attribute, kept.data(), kept.size()) == 44);
  CHECK(kept == list);
  CHECK(mode_of(path) == 0660);

  // A list that new files get from their folder is not given to a file that had none.
  REQUIRE(::setxattr(dir.path().c_str(), "system.posix_acl_default", list.data(), list.size(), 0) == 0);
  REQUIRE(::removexattr(path.c_str(), attribute) == 0);
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  save(path, "newer").value();
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
    CHECK(save(dir / "file", "new", {Durability::full}));
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
  save(dir / "dangling", "created").value();
  CHECK(fs::is_symlink(dir / "dangling"));
  CHECK(read_text(dir / "store/absent") == "created");
  fs::create_symlink("nowhere/absent", dir / "lost");
  CHECK(save_error(dir / "lost") == Errc::not_found);

  // Through a linked folder, with a step back that starts from where the folder really is.
  fs::create_directories(dir / "deep/inner");
  fs::create_directory_symlink("deep/inner", dir / "way");
  fs::create_symlink("../beside", dir / "deep/inner/up");
  save(dir / "way/up", "beside").value();
  CHECK(read_text(dir / "deep/beside") == "beside");
}

TEST_CASE("file sink: a link in /proc to a file without a name is refused") {
  const TempDir dir;
  const int fd = ::open((dir / "gone").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(fd >= 0);
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  CHECK(save(path, "by its number"));
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
    CHECK(save("/dev/null", "to nowhere", {durability}));
    const Status full = save("/dev/full", "too much", {durability});
    REQUIRE(!full);
    CHECK(full.error().code() == Errc::io);
    CHECK(full.error().file() == "/dev/full");
    CHECK(full.error().message().find("No space") != std::string::npos);
  }
  CHECK(fs::is_character_file("/dev/null"));
}

TEST_CASE("file sink: what killed processes left is removed, what living ones write is not") {
  const TempDir dir;
  const std::string path = dir / "model";
  const pid_t dead = dead_process();
  const Names kept = {
      temporary_name("model", ::getppid(), 0),  // of a living process
      temporary_name("model", 1, 3),            // of one that this user may not signal
      temporary_name("model2", dead, 0),        // for another path
      temporary_name("odel", dead, 0),          //
      temporary_name("model", dead, 1) + "x",   // no temporaries of ours
      ".model.stele-" + std::to_string(dead) + ".tmp",
      ".model.stele--1.tmp",
      ".model.stele-" + std::to_string(dead) + "-.tmp",
      ".model.stele-99999999999999999999999-1.tmp",
      ".model.stele-0-0.tmp",
      ".model.tmp",
  };
  for (const std::string& name : kept) write_text(dir / name, "kept");
  fs::create_directory(dir / temporary_name("model", dead, 7));
  fs::create_symlink(path, dir / temporary_name("model", dead, 8));
  write_text(dir / temporary_name("model", dead, 0), "stale");
  write_text(dir / temporary_name("model", dead, 12345), "stale");
  // In a container each run has the same id; nobody holds this one's lock.
  write_text(dir / temporary_name("model", ::getpid(), 1 << 30), "stale");
  // Held by a living process that has, seen from here, another id: in another container, or on another host.
  const std::string held = temporary_name("model", dead, 9);
  write_text(dir / held, "held");
  const int fd = ::open((dir / held).c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(fd >= 0);
  REQUIRE(::flock(fd, LOCK_EX) == 0);
  {
    auto own = file_sink(path, quick).value();  // of this process, at the same time
    auto other = file_sink(path, quick).value();
    CHECK(dir.names().size() == kept.size() + 5);
    CHECK(own->write(bytes_of("own")));
    CHECK(own->commit());
    CHECK(other->write(bytes_of("other")));
    CHECK(other->commit());
    CHECK(read_text(path) == "other");
  }
  Names expected = kept;
  expected.insert(expected.end(), {"model", held, temporary_name("model", dead, 7), temporary_name("model", dead, 8)});
  std::sort(expected.begin(), expected.end());
  CHECK(dir.names() == expected);
  ::close(fd);
  save(path, "last").value();
  CHECK(!fs::exists(dir / held));
}

TEST_CASE("file sink: a save killed half way leaves the old file, and the next save cleans up") {
  const TempDir dir;
  const std::string path = dir / "model";
  save(path, "old").value();
  const pid_t child = ::fork();
  if (child == 0) {
    auto sink = file_sink(path, quick);
    if (sink) static_cast<void>((*sink)->write(bytes_of("half")));
    ::raise(SIGKILL);
  }
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(read_text(path) == "old");
  CHECK(dir.names().size() == 2);
  save(path, "new").value();
  CHECK(dir.names() == Names{"model"});
}

TEST_CASE("file sink: one path saved from many threads is always one whole file") {
  const TempDir dir;
  const std::string path = dir / "model";
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const std::string text(50000, static_cast<char>('a' + t));
      for (int i = 0; i < 40; ++i) {
        if (!save(path, text)) ++failures;
        const std::string seen = read_text(path);
        failures += seen != std::string(50000, seen.at(0));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(failures == 0);
  CHECK(dir.names() == Names{"model"});
}

TEST_CASE("file sink: gathers of any number of pieces, and large ones") {
  const TempDir dir;
  for (const std::size_t count : {0UL, 1UL, 1023UL, 1024UL, 1025UL, 5000UL}) {
    CAPTURE(count);
    const ManyPieces many(count);
    for (const Durability durability : {Durability::full, Durability::process}) {
      auto sink = file_sink(dir / "file", {durability}).value();
      CHECK(sink->write(many.pieces));
      CHECK(sink->write(std::span<const std::byte>()));
      CHECK(sink->commit());
      CHECK(read_text(dir / "file") == many.text);
    }
  }
  // Beyond two steps of writing behind, ending between them.
  std::string text(std::size_t{19} << 20, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761U >> 13U);
  auto sink = file_sink(dir / "file").value();
  const auto bytes = bytes_of(text);
  const std::array<std::span<const std::byte>, 3> pieces = {bytes.first(10), bytes.subspan(10, 9000000),
                                                            bytes.subspan(9000010)};
  CHECK(sink->reserve(text.size()));
  CHECK(sink->write(pieces));
  CHECK(sink->commit());
  CHECK(read_text(dir / "file") == text);
}

TEST_CASE("file sink: room taken ahead") {
  const TempDir dir;
  const std::string path = dir / "file";
  const std::string text(3000000, 'x');
  const auto blocks = [&] {
    struct stat status = {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    return static_cast<std::uint64_t>(status.st_blocks) * 512;
  };
  // As much as was said, less (the rest is given back), and more.
  for (const std::uint64_t total : {std::uint64_t{3000000}, std::uint64_t{30000000}, std::uint64_t{2000000}}) {
    for (const Durability durability : {Durability::full, Durability::process}) {
      auto sink = file_sink(path, {durability}).value();
      CHECK(sink->reserve(total));
      CHECK(sink->write(bytes_of(text)));
      CHECK(sink->commit());
      CHECK(read_text(path) == text);
      CHECK(blocks() < 5000000);
    }
  }
  // More than any disk has.
  auto sink = file_sink(path, quick).value();
  const Status status = sink->reserve(std::uint64_t{1} << 62);
  if (status) return;  // a file system that cannot take room
  CHECK(status.error().code() == Errc::io);
  CHECK(status.error().file() == path);
  CHECK(sink->commit().error().code() == Errc::io);
  CHECK(read_text(path) == text);
  CHECK(dir.names() == Names{"file"});
}

TEST_CASE("file sink: many files in one folder") {
  const TempDir dir;
  for (int i = 0; i < 300; ++i) save(dir / std::to_string(i), "x").value();
  CHECK(dir.names().size() == 300);
  // A full folder is not searched at every save, but soon.
  write_text(dir / temporary_name("0", dead_process(), 0), "stale");
  for (int i = 0; i < 10; ++i) save(dir / "0", "y").value();
  CHECK(dir.names().size() == 300);
}

TEST_CASE("buffer sink") {
  BufferSink sink;
  CHECK(sink.take().empty());
  const ManyPieces many(3000);
  SUBCASE("with its size known") {
    CHECK(sink.reserve(many.text.size()));
    CHECK(sink.write(many.pieces));
  }
  SUBCASE("with more than was said") {
    CHECK(sink.reserve(3));
    CHECK(sink.write(many.pieces));
  }
  SUBCASE("growing") {
    for (const auto& piece : many.pieces) CHECK(sink.write(piece));
  }
  CHECK(sink.commit());
  const Bytes bytes = sink.take();
  CHECK(text_of(bytes.span()) == many.text);
  CHECK(reinterpret_cast<std::uintptr_t>(bytes.data()) % 64 == 0);
  CHECK(sink.take().empty());
  // Used again.
  CHECK(sink.write(bytes_of("again")));
  CHECK(text_of(sink.take().span()) == "again");
}

TEST_CASE("buffer sink: grows far, refuses what no memory holds") {
  BufferSink sink;
  const std::string piece(100000, 'p');
  for (int i = 0; i < 100; ++i) CHECK(sink.write(bytes_of(piece)));
  CHECK(sink.reserve(std::numeric_limits<std::uint64_t>::max()).error().code() == Errc::out_of_memory);
  const std::span<const std::byte> endless(bytes_of(piece).data(), std::numeric_limits<std::size_t>::max() / 2);
  const std::array<std::span<const std::byte>, 3> pieces = {endless, endless, endless};
  CHECK(sink.write(pieces).error().code() == Errc::out_of_memory);
  const Bytes bytes = sink.take();
  REQUIRE(bytes.size() == 100 * piece.size());
  CHECK(text_of(bytes.span().last(piece.size())) == piece);
}

TEST_CASE("span sink") {
  std::array<std::byte, 10> memory = {};
  SpanSink sink(memory);
  CHECK(sink.reserve(10));
  const Status status = sink.reserve(11);
  REQUIRE(!status);
  CHECK(status.error().code() == Errc::no_space);
  CHECK(status.error().found() == "11");
  CHECK(sink.write(bytes_of("0123456")));
  CHECK(sink.size() == 7);
  const std::array<std::span<const std::byte>, 3> pieces = {bytes_of("ab"), std::span<const std::byte>(),
                                                            bytes_of("cd")};
  const Status full = sink.write(pieces);
  REQUIRE(!full);
  CHECK(full.error().code() == Errc::no_space);
  CHECK(full.error().found() == "11");
  CHECK(sink.size() == 7);  // refused whole
  CHECK(memory[7] == std::byte{0});
  CHECK(sink.write(bytes_of("789")));
  CHECK(sink.write(std::span<const std::byte>()));
  CHECK(sink.commit());
  CHECK(text_of(memory) == "0123456789");
  const std::span<const std::byte> endless(memory.data(), std::numeric_limits<std::size_t>::max());
  CHECK(sink.write(endless).error().code() == Errc::no_space);
  SpanSink none({});
  CHECK(none.write(std::span<const std::byte>()));
  CHECK(none.write(bytes_of("x")).error().found() == "1");
}

TEST_CASE("stream sink") {
  const ManyPieces many(3000);
  std::ostringstream stream;
  StreamSink sink(stream);
  CHECK(sink.reserve(5));
  CHECK(sink.write(many.pieces));
  CHECK(sink.write(bytes_of("!")));
  CHECK(sink.commit());
  CHECK(stream.str() == many.text + "!");

  const TempDir dir;
  std::ofstream closed(dir / "none/file");
  CHECK(StreamSink(closed).write(bytes_of("x")).error().code() == Errc::io);
  std::ofstream full("/dev/full");
  StreamSink to_full(full);
  CHECK(to_full.write(bytes_of("x")));  // still in the stream's buffer
  CHECK(to_full.commit().error().code() == Errc::io);
  std::ofstream throwing("/dev/full");
  throwing.exceptions(std::ios::badbit | std::ios::failbit);
  StreamSink to_throwing(throwing);
  CHECK(to_throwing.write(bytes_of("x")));
  CHECK(to_throwing.commit().error().code() == Errc::io);
  throwing.exceptions(std::ios::goodbit);
}

namespace {

/// Bytes that can be read, but are no file and no memory.
class Plain final : public Source {
 public:
  explicit Plain(std::string text) : Source("plain"), text_(std::move(text)) {}
  std::uint64_t size() const noexcept override { return text_.size(); }
  Status read_at(std::uint64_t offset, std::span<std::byte> out) const override {
    if (fails_from <= offset + out.size()) return Error(Errc::io, "the line went dead");
    std::copy_n(bytes_of(text_).begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }
  std::uint64_t fails_from = UINT64_MAX;

 private:
  std::string text_;
};

/// A sink in front of another, without a copy of its own.
class Front final : public Sink {
 public:
  explicit Front(Sink& sink) : Sink("front"), sink_(sink) {}
  using Sink::write;
  Status write(std::span<const std::span<const std::byte>> pieces) override { return sink_.write(pieces); }

 private:
  Sink& sink_;
};

std::string large_text() {
  std::string text(std::size_t{3} << 20, '\0');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761U >> 13U);
  return text;
}

}  // namespace

TEST_CASE("sinks: copies of parts of sources") {
  const TempDir dir;
  const std::string text = large_text();
  write_text(dir / "from", text);
  const SourcePtr sources[] = {open_file(dir / "from").value(), map_file(dir / "from").value(),
                               borrow_bytes(bytes_of(text)), std::make_shared<Plain>(text)};
  const std::uint64_t n = text.size();
  const std::pair<std::uint64_t, std::uint64_t> parts[] = {{0, n}, {1, 2 * n / 3}, {n - 1, 1}, {n, 0}, {0, 0}, {5, 3}};
  std::string all = "<";
  for (const auto& [offset, size] : parts) all += text.substr(offset, size) + "|";
  for (const SourcePtr& source : sources) {
    CAPTURE(source->name());
    const auto fill = [&](Sink& sink) {
      CHECK(sink.write(bytes_of("<")));
      for (const auto& [offset, size] : parts) {
        CHECK(sink.copy(*source, offset, size));
        CHECK(sink.write(bytes_of("|")));  // behind it
      }
    };
    for (const Durability durability : {Durability::full, Durability::process}) {
      auto sink = file_sink(dir / "to", {durability}).value();
      fill(*sink);
      CHECK(sink->commit());
      CHECK(read_text(dir / "to") == all);
    }
    BufferSink buffer;
    fill(buffer);
    CHECK(text_of(buffer.take().span()) == all);
    std::string memory(all.size(), 'x');
    SpanSink span(std::as_writable_bytes(std::span(memory)));
    fill(span);
    CHECK(memory == all);
    CHECK(span.copy(*source, 0, 1).error().code() == Errc::no_space);
    std::ostringstream stream;
    StreamSink to_stream(stream);
    Front front(to_stream);
    fill(front);
    CHECK(stream.str() == all);
    // Beyond the end, and where offset and size together are more than numbers go to.
    const std::pair<std::uint64_t, std::uint64_t> beyond[] = {{n, 1},          {n + 1, 0},      {0, n + 1},
                                                              {1, UINT64_MAX}, {UINT64_MAX, 1}, {n - 1, 2}};
    for (const auto& part : beyond) {
      const auto& [offset, size] = part;
      CAPTURE(part.first);
      CAPTURE(part.second);
      auto sink = file_sink(dir / "to", quick).value();
      const Status to_file = sink->copy(*source, offset, size);
      REQUIRE(!to_file);
      CHECK(to_file.error().code() == Errc::truncated);
      CHECK(to_file.error().file() == source->name());
      CHECK(buffer.copy(*source, offset, size).error().code() == Errc::truncated);
    }
  }
  CHECK(read_text(dir / "to") == all);
  CHECK(dir.names() == Names{"from", "to"});
  Plain dead(text);
  dead.fails_from = 2000000;
  auto sink = file_sink(dir / "to", quick).value();
  CHECK(sink->copy(dead, 0, text.size()).error().code() == Errc::io);
}

TEST_CASE("sinks: a copy into a FIFO, of a file that shrinks, of itself") {
  const TempDir dir;
  const std::string text = large_text();
  write_text(dir / "from", text);
  const SourcePtr from = open_file(dir / "from").value();
  REQUIRE(::mkfifo((dir / "fifo").c_str(), 0600) == 0);
  std::string got;
  std::thread reader([&] { got = read_text(dir / "fifo"); });
  auto fifo = file_sink(dir / "fifo").value();
  CHECK_FALSE(fifo->can_patch());
  CHECK(fifo->copy(*from, 7, 100000));
  CHECK(fifo->patch(0, bytes_of("x")).error().code() == Errc::unsupported);
  CHECK(fifo->write(bytes_of("end")));
  CHECK(fifo->commit());
  fifo.reset();
  reader.join();
  CHECK(got == text.substr(7, 100000) + "end");
  // Over the file that is copied from.
  auto over = file_sink(dir / "from", quick).value();
  CHECK(over->write(bytes_of("new ")));
  CHECK(over->copy(*from, 0, text.size()));
  CHECK(over->commit());
  CHECK(read_text(dir / "from") == "new " + text);
  CHECK(from->size() == text.size());  // the old one, as long as it is open
  write_text(dir / "shrinks", text);
  const SourcePtr shrinks = open_file(dir / "shrinks").value();
  fs::resize_file(dir / "shrinks", 1000);
  auto sink = file_sink(dir / "to", quick).value();
  CHECK(sink->copy(*shrinks, 0, text.size()).error().code() == Errc::truncated);
}

TEST_CASE("sinks: bytes that are written before are patched") {
  const TempDir dir;
  std::array<std::byte, 20> memory = {};
  const auto file = file_sink(dir / "file", quick).value();
  BufferSink buffer;
  SpanSink span(memory);
  for (Sink* const sink : {file.get(), static_cast<Sink*>(&buffer), static_cast<Sink*>(&span)}) {
    CAPTURE(sink->name());
    CHECK(sink->can_patch());
    CHECK(sink->write(bytes_of("0123456789")));
    CHECK(sink->patch(3, bytes_of("abc")));
    CHECK(sink->patch(0, {}));
    CHECK(sink->write(bytes_of("ABC")));  // goes on at the end
    CHECK(sink->patch(12, bytes_of("!")));
    CHECK(sink->patch(0, bytes_of("z")));
    CHECK(sink->commit());
  }
  const std::string expected = "z12abc6789AB!";
  CHECK(read_text(dir / "file") == expected);
  for (const std::uint64_t at : {std::uint64_t{13}, std::uint64_t{12} << 40U, UINT64_MAX}) {
    CHECK(buffer.patch(at, bytes_of("xx")).error().code() == Errc::invalid_argument);
    CHECK(span.patch(at, bytes_of("xx")).error().code() == Errc::invalid_argument);
  }
  CHECK(span.patch(12, bytes_of("xx")).error().code() == Errc::invalid_argument);
  CHECK(text_of(buffer.take().span()) == expected);
  CHECK(text_of(std::span(memory).first(13)) == expected);
  CHECK(memory[13] == std::byte{0});
  std::ostringstream stream;
  StreamSink plain(stream);
  CHECK_FALSE(plain.can_patch());
  const Status status = plain.patch(0, bytes_of("x"));
  REQUIRE(!status);
  CHECK(status.error().code() == Errc::unsupported);
  CHECK(status.error().file() == "stream");
  CHECK(file->patch(0, bytes_of("x")).error().code() == Errc::invalid_argument);  // committed
}
