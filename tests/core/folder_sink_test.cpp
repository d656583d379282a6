// Folders that are replaced whole.
#include <stele/bundle.hpp>

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <thread>

#include "support/models.hpp"
#include "support/recorders.hpp"
#include "support/temp_dir.hpp"

#include "folder_support.hpp"

namespace folder_sink_test {

using namespace stele_test;
using namespace stele_test::folders;
using stele::Bundle;
using stele::Durability;
using stele::Errc;
using stele::FileSinkOptions;
using stele::FolderCheck;
using stele::SourcePtr;
using stele::Status;
namespace fs = std::filesystem;

namespace {

mode_t mode_of(const std::string& path) {
  struct stat status = {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

}  // namespace

TEST_CASE("folder source: the files of the folder that was opened") {
  const TempDir dir;
  const std::string path = dir / "m";
  good(write_folder(path, "old"));
  for (const bool mapped : {false, true}) {
    const SourcePtr source = good(stele::open_folder(path, mapped));
    CHECK(source->is_folder());
    CHECK(source->name() == path);
    CHECK(source->size() == 0);
    CHECK(good(source->bundle()->names()) == both);
    const SourcePtr file = good(source->bundle()->open("below/b.dat"));
    CHECK(file->name() == path + "/below/b.dat");
    CHECK(file->view().empty() != mapped);
    CHECK(good(file->bundle()->names()) == Names{"b.dat"});
  }
  // Another folder in its place is not mixed in.
  const SourcePtr source = good(stele::open_folder(path));
  const SourcePtr file = good(source->bundle()->open("a.dat"));
  fs::rename(path, dir / "moved");
  good(write_folder(path, "new"));
  CHECK(text_in(*source->bundle(), "a.dat") == "old");
  CHECK(text_in(*file->bundle(), "a.dat") == "old");

  CHECK(bad(stele::open_folder(path + "/a.dat")).code() == Errc::io);
  CHECK(bad(stele::open_folder(dir / "none")).code() == Errc::not_found);
  CHECK(bad(stele::open_folder("")).code() == Errc::invalid_argument);
  CHECK(bad(stele::open_folder(std::string("a\0b", 3))).code() == Errc::invalid_argument);
}

TEST_CASE("folder sink: new and replaced, seen at once") {
  const TempDir dir;
  const std::string path = dir / "m";
  for (const Durability durability : {Durability::full, Durability::process}) {
    for (const std::string text : {"first", "second"}) {
      auto sink = good(stele::folder_sink(path, {durability}, always()));
      CHECK(sink->name() == path);
      CHECK(sink->is_folder());
      CHECK(bad(sink->write(bytes_of("x"))).code() == Errc::unsupported);
      good(put(*sink->bundle(), "a.dat", text));
      good(put(*sink->bundle(), "below/b.dat", text));
      const bool was_there = fs::exists(path);
      if (was_there) CHECK(read_text(path + "/a.dat") != text);
      REQUIRE(dir.names().size() == (was_there ? 2 : 1));
      CHECK(dir.names()[0].starts_with(".m.stele-" + std::to_string(::getpid()) + "-"));
      CHECK(dir.names()[0].ends_with(".tmp"));
      good(sink->commit());
      good(sink->commit());  // nothing left to do
      CHECK(dir.names() == Names{"m"});
      check_holds(path, text);
    }
    fs::remove_all(path);
  }
  SUBCASE("what the old one had goes") {
    fs::create_directories(path + "/far/down/below");
    write_text(path + "/far/down/below/x", "x");
    write_text(path + "/old", "x");
    const TempDir other;
    write_text(other / "file", "x");
    fs::create_symlink(other / "file", path + "/link");
    good(write_folder(path, "new"));
    check_holds(path, "new");
    CHECK(read_text(other / "file") == "x");
  }
  SUBCASE("without commit nothing stays") {
    good(write_folder(path, "old"));
    {
      auto sink = good(stele::folder_sink(path, fast, always()));
      good(put(*sink->bundle(), "x/y/z", "new"));
      const auto unfinished = good(sink->bundle()->create("x/other"));
      CHECK(dir.names().size() == 2);
    }
    CHECK(dir.names() == Names{"m"});
    check_holds(path, "old");
  }
  SUBCASE("a folder that is empty needs nobody's leave") {
    fs::create_directory(path);
    good(write_folder(path, "new", fast, nullptr));
    check_holds(path, "new");
  }
  SUBCASE("slashes at the end, and a name in the working folder") {
    good(write_folder(path + "//", "slashes"));
    check_holds(path, "slashes");
    const fs::path before = fs::current_path();
    fs::current_path(dir.path());
    auto sink = good(stele::folder_sink("m/", fast, always()));
    fs::current_path(before);
    good(put(*sink->bundle(), "a.dat", "here"));
    good(put(*sink->bundle(), "below/b.dat", "here"));
    good(sink->commit());
    check_holds(path, "here");
  }
}

TEST_CASE("folder sink: whom it asks before it replaces") {
  const TempDir dir;
  const std::string path = dir / "m";
  good(write_folder(path, "old"));
  std::size_t asked = 0;
  const FolderCheck no = [&](const Bundle& folder) -> Status {
    ++asked;
    CHECK(good(folder.names()) == both);
    CHECK(text_in(folder, "below/b.dat") == "old");
    return stele::Error(Errc::exists, "no");
  };
  const stele::Error error = bad(stele::folder_sink(path, fast, no));
  CHECK(error.code() == Errc::exists);
  CHECK(error.message() == "no");
  CHECK(error.file() == path);
  CHECK(asked == 1);
  CHECK(bad(stele::folder_sink(path, fast)).code() == Errc::exists);
  CHECK(dir.names() == Names{"m"});

  // The check runs again at the end: a file may have been added in the meantime.
  const FolderCheck known = [](const Bundle& folder) -> Status {
    return good(folder.names()) == both ? Status() : Status(stele::Error(Errc::exists, "unknown"));
  };
  auto sink = good(stele::folder_sink(path, fast, known));
  write_text(path + "/mine", "x");
  CHECK(bad(sink->commit()).code() == Errc::exists);
  CHECK(bad(sink->commit()).code() == Errc::io);
  CHECK(dir.names() == Names{"m"});
  CHECK(read_text(path + "/mine") == "x");
  fs::remove(path + "/mine");

  // Links and FIFOs would be lost, and the check cannot see them.
  const TempDir other;
  for (const char* name : {"folder", "dangling", "fifo"}) {
    CAPTURE(name);
    if (name == std::string("folder")) fs::create_directory_symlink(other.path(), path + "/below/folder");
    if (name == std::string("dangling")) fs::create_symlink("nothing", path + "/below/dangling");
    if (name == std::string("fifo")) REQUIRE(::mkfifo((path + "/below/fifo").c_str(), 0600) == 0);
    const stele::Error other_error = bad(stele::folder_sink(path, fast, always()));
    CHECK(other_error.code() == Errc::exists);
    CHECK(other_error.found() == std::string("below/") + name);
    fs::remove(path + "/below/" + name);
  }
  good(write_folder(path, "new"));
}

TEST_CASE("folder sink: in a place that is taken meanwhile") {
  const TempDir dir;
  const std::string path = dir / "m";
  SUBCASE("by a folder") {
    auto sink = good(stele::folder_sink(path, fast));
    good(write_folder(path, "of the other"));
    CHECK(bad(sink->commit()).code() == Errc::exists);
    check_holds(path, "of the other");
  }
  SUBCASE("by a file") {
    auto sink = good(stele::folder_sink(path, fast));
    write_text(path, "file");
    CHECK(bad(sink->commit()).code() == Errc::invalid_argument);
    CHECK(read_text(path) == "file");
  }
  CHECK(dir.names() == Names{"m"});
}

TEST_CASE("folder sink: paths that make no sense") {
  const TempDir dir;
  write_text(dir / "file", "x");
  fs::create_symlink("loop", dir / "loop");
  const auto code = [&](const std::string& path) { return bad(stele::folder_sink(path, fast, always())).code(); };
  CHECK(code("") == Errc::invalid_argument);
  CHECK(code("/") == Errc::invalid_argument);
  CHECK(code(dir / ".") == Errc::invalid_argument);
  CHECK(code(dir / "..") == Errc::invalid_argument);
  CHECK(code(dir / "file") == Errc::invalid_argument);
  CHECK(code("/dev/null") == Errc::invalid_argument);
  CHECK(code((dir / "new") + std::string(1, '\0') + "more") == Errc::invalid_argument);
  CHECK(code(dir / "none/new") == Errc::not_found);
  CHECK(code(dir / "file/new") == Errc::not_found);
  CHECK(code(dir / "loop") == Errc::io);
  CHECK(code(dir / std::string(256, 'n')) == Errc::io);
  CHECK(dir.names() == Names{"file", "loop"});
}

TEST_CASE("folder sink: links keep pointing") {
  const TempDir dir;
  fs::create_directory(dir / "real");
  good(write_folder(dir / "real/m", "old"));
  fs::create_directory_symlink("real/m", dir / "link");
  good(write_folder(dir / "link", "new"));
  CHECK(fs::is_symlink(dir / "link"));
  check_holds(dir / "real/m", "new");
  good(write_folder(dir / "link/", "newer"));
  CHECK(fs::is_symlink(dir / "link"));
  check_holds(dir / "real/m", "newer");
  fs::create_directory_symlink("real/fresh", dir / "ahead");
  good(write_folder(dir / "ahead", "ahead"));
  check_holds(dir / "real/fresh", "ahead");
  CHECK(names_in(dir / "real") == Names{"fresh", "m"});
}

TEST_CASE("folder sink: file by file where that is asked for") {
  const TempDir dir;
  const std::string path = dir / "m";
  const FileSinkOptions into{Durability::process, true};
  good(write_folder(path, "old", into));  // nothing is there: in one step
  write_text(path + "/mine", "mine");
  struct stat before = {}, after = {};
  REQUIRE(::stat(path.c_str(), &before) == 0);
  for (const Durability durability : {Durability::full, Durability::process}) {
    auto sink = good(stele::folder_sink(path, {durability, true}));
    CHECK(sink->is_folder());
    good(put(*sink->bundle(), "a.dat", "new"));
    CHECK(read_text(path + "/a.dat") == "new");
    good(put(*sink->bundle(), "more/c.dat", "new"));
    good(sink->commit());
  }
  REQUIRE(::stat(path.c_str(), &after) == 0);
  CHECK(before.st_ino == after.st_ino);
  CHECK(names_of(path) == Names{"a.dat", "below/b.dat", "mine", "more/c.dat"});
  CHECK(read_text(path + "/below/b.dat") == "old");
  // Also where the folder's name is not known.
  good(write_folder(path + "/.", "here", into));
  CHECK(read_text(path + "/below/b.dat") == "here");
}

TEST_CASE("sinks: nothing is overwritten where that is asked for") {
  const TempDir dir;
  const FileSinkOptions fresh{.durability = Durability::full, .overwrite = false};
  const auto save_file = [&](const std::string& path) -> Status {
    STELE_TRY_ASSIGN(const auto sink, stele::file_sink(path, fresh));
    STELE_TRY(sink->write(bytes_of("new")));
    return sink->commit();
  };
  CHECK(FileSinkOptions().overwrite);
  good(save_file(dir / "file"));
  CHECK(bad(save_file(dir / "file")).code() == Errc::exists);
  CHECK(bad(save_file("/dev/null")).code() == Errc::exists);
  CHECK(bad(stele::folder_sink(dir / "file", fresh)).code() == Errc::exists);
  good(write_folder(dir / "m", "new", fresh));
  CHECK(bad(write_folder(dir / "m", "newer", fresh)).code() == Errc::exists);
  CHECK(bad(write_folder(dir / "m", "newer", {Durability::process, true, false})).code() == Errc::exists);
  fs::create_directory(dir / "empty");
  CHECK(bad(write_folder(dir / "empty", "new", fresh)).code() == Errc::exists);
  // By a bundle too.
  const auto bundle = stele::folder_bundle(dir.path(), fresh);
  CHECK(bad(bundle->create("file")).code() == Errc::exists);
  good(put(*bundle, "m/c.dat", "new"));
  CHECK(bad(good(bundle->create("other"))->bundle()->create("file")).code() == Errc::exists);
  // A file or folder that appears in between is detected at commit().
  auto file = good(stele::file_sink(dir / "late", fresh));
  write_text(dir / "late", "first");
  CHECK(bad(file->commit()).code() == Errc::exists);
  CHECK(read_text(dir / "late") == "first");
  auto folder = good(stele::folder_sink(dir / "later", fresh));
  fs::create_directory(dir / "later");
  CHECK(bad(folder->commit()).code() == Errc::exists);
  CHECK(dir.names() == Names{"empty", "file", "late", "later", "m"});
}

TEST_CASE("folder sink: what killed processes left is removed, what living ones write is not") {
  const TempDir dir;
  const std::string path = dir / "m";
  good(write_folder(path, "old"));
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    auto sink = stele::folder_sink(path, fast, always());
    const bool half = sink && put(*(*sink)->bundle(), "x/half", "half") && ::write(ends[1], "x", 1) == 1;
    ::pause();
    ::_exit(half ? 0 : 1);
  }
  char byte = 0;
  REQUIRE(::read(ends[0], &byte, 1) == 1);
  for (const int end : ends) ::close(end);
  REQUIRE(dir.names().size() == 2);
  const std::string left = dir.names()[0];
  good(write_folder(path, "new"));
  CHECK(dir.names() == Names{left, "m"});
  REQUIRE(::kill(child, SIGKILL) == 0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  // A killed save may also have left the old folder. Neither a file nor what another wrote is taken for one.
  const std::string prefix = ".m.stele-" + std::to_string(child) + "-";
  fs::create_directories(dir / (prefix + "77.tmp") + "/below");
  write_text(dir / (prefix + "77.tmp") + "/below/b.dat", "older");
  write_text(dir / (prefix + "78.tmp"), "file");
  const TempDir other;
  write_text(other / "file", "x");
  fs::create_directory_symlink(other.path(), dir / (prefix + "79.tmp"));
  fs::create_directory_symlink(other.path(), dir / (prefix + "77.tmp") + "/link");
  check_holds(path, "new");
  good(write_folder(path, "newer"));
  CHECK(dir.names() == Names{prefix + "78.tmp", prefix + "79.tmp", "m"});
  CHECK(read_text(other / "file") == "x");
  check_holds(path, "newer");
}

TEST_CASE("folder sink: permissions are kept") {
  const TempDir dir;
  const std::string path = dir / "m";
  const mode_t mask = ::umask(027);
  good(write_folder(path, "new"));
  CHECK(mode_of(path) == 0750);
  for (const mode_t mode : {0700U, 0755U, 0777U, 02770U, 01777U}) {
    CAPTURE(mode);
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    auto sink = good(stele::folder_sink(path, fast, always()));
    CHECK(mode_of(dir / dir.names()[0]) == mode);
    good(put(*sink->bundle(), "a.dat", "x"));
    good(sink->commit());
    CHECK(mode_of(path) == mode);
  }
  if (::geteuid() == 0) {
    REQUIRE(::chown(path.c_str(), 1234, 4321) == 0);
    REQUIRE(::chmod(path.c_str(), 02770) == 0);
    good(write_folder(path, "new"));
    struct stat status = {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    CHECK((status.st_uid == 1234 && status.st_gid == 4321 && (status.st_mode & 07777) == 02770));
    // And so the files in it are of the folder's group.
    REQUIRE(::stat((path + "/below/b.dat").c_str(), &status) == 0);
    CHECK(status.st_gid == 4321);
  }
  // And those of its files and folders.
  good(write_folder(path, "new"));
  REQUIRE((::chmod((path + "/a.dat").c_str(), 0600) == 0 && ::chmod((path + "/below").c_str(), 0700) == 0));
  auto sink = good(stele::folder_sink(path, fast, always()));
  const auto hidden = good(sink->bundle()->create("a.dat"));
  const std::string unfinished = dir / dir.names()[0];
  CHECK(mode_of(unfinished + "/" + names_in(unfinished)[0]) == 0600);
  good(hidden->commit());
  good(put(*sink->bundle(), "below/b.dat", "x"));
  good(put(*sink->bundle(), "below/c.dat", "x"));
  good(put(*sink->bundle(), "other/c.dat", "x"));
  good(sink->commit());
  CHECK(mode_of(path + "/a.dat") == 0600);
  CHECK(mode_of(path + "/below") == 0700);
  CHECK(mode_of(path + "/below/c.dat") == 0640);
  CHECK((mode_of(path + "/other") & 0777) == 0750);
  ::umask(mask);
  // A list of its own, and one for what is made in it.
  const std::array<unsigned char, 44> list = {
      2,  0, 0, 0,                          //
      1,  0, 7, 0, 0xff, 0xff, 0xff, 0xff,  //
      2,  0, 7, 0, 0xd2, 0x04, 0,    0,     //
      4,  0, 5, 0, 0xff, 0xff, 0xff, 0xff,  //
      16, 0, 7, 0, 0xff, 0xff, 0xff, 0xff,  //
      32, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,  //
  };
  for (const char* attribute : {"system.posix_acl_access", "system.posix_acl_default"}) {
    CAPTURE(attribute);
    if (::setxattr(path.c_str(), attribute, list.data(), list.size(), 0) != 0) continue;  // a file system without
    good(write_folder(path, "newer"));
    std::array<unsigned char, 44> kept = {};
    CHECK(::getxattr(path.c_str(), attribute, kept.data(), kept.size()) == 44);
    CHECK(kept == list);
  }
}

TEST_SUITE("concurrency") {
  TEST_CASE("folder sink: who reads while it is replaced finds one or the other") {
    const TempDir dir;
    const std::string path = dir / "m";
    good(write_folder(path, "aaaa"));
    std::atomic<bool> done = false;
    std::atomic<int> read = 0;
    std::atomic<int> mixed = 0;
    std::thread reader([&] {
      while (!done) {
        const auto source = stele::open_folder(path);
        if (!source) {
          ++mixed;  // there is always one
          continue;
        }
        const auto text = [&](const char* name) -> std::string {
          const auto file = (*source)->bundle()->open(name);
          std::string bytes(4, '\0');
          if (!file || !(*file)->read_at(0, std::as_writable_bytes(std::span(bytes)))) return "";
          return bytes;
        };
        const std::string a = text("a.dat"), b = text("below/b.dat");
        if (a.empty() || b.empty()) continue;  // removed meanwhile
        ++read;
        if (a != b) ++mixed;
      }
    });
    for (int i = 0; i < 200 || (read == 0 && i < 20000); ++i) {
      const Status saved = write_folder(path, i % 2 == 0 ? "bbbb" : "aaaa");
      if (!saved) ++mixed;
    }
    done = true;
    reader.join();
    CHECK(mixed == 0);
    CHECK(read > 0);
    CHECK(dir.names() == Names{"m"});
  }
}

}  // namespace folder_sink_test
