// Files that are replaced: all or nothing, names, what killed processes left, preallocation.
#include "stele/sink.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "stele/source.hpp"
#include "support/left_out.hpp"
#include "support/temp_dir.hpp"

#include "sink_support.hpp"

namespace file_sink_test {

using namespace stele;
using namespace stele_test::sinks;
using stele_test::read_text;
using stele_test::TempDir;
using stele_test::write_text;
using Names = std::vector<std::string>;
namespace fs = std::filesystem;

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
  write_file(path, "old").value();
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
  write_file(path, "old").value();
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
    write_file(dir / name, name).value();
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
        // The name is cut between characters.
        if (name == umlauts) CHECK(temporary.find("\xc3.") == std::string::npos);
      }
      CHECK(sink->commit());
    }
    // A leftover of such a name is found too.
    const std::string kept(name == umlauts ? umlauts.substr(0, 212) : std::string(212, 'n'));
    const std::string stale = temporary_name(kept, dead_process(), 5);
    write_text(dir / stale, "stale");
    write_file(dir / name, "again").value();
    CHECK(dir.names() == Names{name});
    CHECK(read_text(dir / name) == "again");
    fs::remove(dir / name);
  }
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
  write_file(path, "last").value();
  CHECK(!fs::exists(dir / held));
}

TEST_CASE("file sink: a save killed half way leaves the old file, and the next save cleans up") {
  const TempDir dir;
  const std::string path = dir / "model";
  write_file(path, "old").value();
  const pid_t child = ::fork();
  if (child == 0) {
    auto sink = file_sink(path, quick);
    if (sink) static_cast<void>((*sink)->write(bytes_of("half")));
    ::raise(SIGKILL);
  }
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(read_text(path) == "old");
  CHECK(dir.names().size() == 2);
  write_file(path, "new").value();
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
        if (!write_file(path, text)) ++failures;
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
  if (status) {
    stele_test::left_out("the file system reserves no room");
    return;
  }
  CHECK(status.error().code() == Errc::io);
  CHECK(status.error().file() == path);
  CHECK(sink->commit().error().code() == Errc::io);
  CHECK(read_text(path) == text);
  CHECK(dir.names() == Names{"file"});
}

TEST_CASE("file sink: many files in one folder") {
  const TempDir dir;
  for (int i = 0; i < 300; ++i) write_file(dir / std::to_string(i), "x").value();
  CHECK(dir.names().size() == 300);
  // A full folder is not searched at every save, but soon.
  write_text(dir / temporary_name("0", dead_process(), 0), "stale");
  for (int i = 0; i < 10; ++i) write_file(dir / "0", "y").value();
  CHECK(dir.names().size() == 300);
}

}  // namespace file_sink_test
