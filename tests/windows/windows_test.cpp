// The file layer on Windows: what tests of the other systems' calls check there.
#ifndef NOMINMAX
#define NOMINMAX
#endif
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
// After windows.h.
#include <aclapi.h>
#include <sddl.h>
#include <winioctl.h>

#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "io/files.hpp"
#include "io/os/os.hpp"
#include "stele/recorders/any.hpp"
#include "stele/recorders/binary.hpp"
#include "stele/stele.hpp"
#include "support/temp_dir.hpp"

namespace {

namespace fs = std::filesystem;
namespace os = stele::detail::os;
using stele::Bundle;
using stele::Errc;
using stele::Error;
using stele::FileSinkOptions;
using stele::Result;
using stele::Sink;
using stele::SourcePtr;
using stele::Status;
using stele_test::read_text;
using stele_test::TempDir;
using stele_test::write_text;
constexpr FileSinkOptions quick{stele::Durability::process};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Status save(const std::string& path, std::string_view text, FileSinkOptions options = quick) {
  STELE_TRY_ASSIGN(const std::unique_ptr<Sink> sink, stele::file_sink(path, options));
  STELE_TRY(sink->write(bytes_of(text)));
  return sink->commit();
}

template <class T>
Error bad(const T& result) {
  REQUIRE_FALSE(result);
  return result.error();
}

std::string text_of(const SourcePtr& source) {
  std::string text(static_cast<std::size_t>(source->size()), ' ');
  REQUIRE(source->read_at(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  return text;
}

std::wstring wide(const std::string& text) { return fs::path(std::u8string(text.begin(), text.end())).wstring(); }

/// The access list of a file as text.
std::string access_of(const std::string& path) {
  PSECURITY_DESCRIPTOR found = nullptr;
  REQUIRE(::GetNamedSecurityInfoW(wide(path).c_str(), SE_FILE_OBJECT, DACL_SECURITY_INFORMATION, nullptr, nullptr,
                                  nullptr, nullptr, &found) == ERROR_SUCCESS);
  char* text = nullptr;
  REQUIRE(::ConvertSecurityDescriptorToStringSecurityDescriptorA(found, SDDL_REVISION_1, DACL_SECURITY_INFORMATION,
                                                                 &text, nullptr) != 0);
  std::string out(text);
  ::LocalFree(text);
  ::LocalFree(found);
  return out;
}

void set_access(const std::string& path, const char* text) {
  PSECURITY_DESCRIPTOR made = nullptr;
  REQUIRE(::ConvertStringSecurityDescriptorToSecurityDescriptorA(text, SDDL_REVISION_1, &made, nullptr) != 0);
  REQUIRE(::SetFileSecurityW(wide(path).c_str(), DACL_SECURITY_INFORMATION | PROTECTED_DACL_SECURITY_INFORMATION,
                             made) != 0);
  ::LocalFree(made);
}

/// Starts this program with only one test case.
PROCESS_INFORMATION start(const std::string& test_case, const std::string& argument) {
  REQUIRE(::SetEnvironmentVariableA("STELE_TEST_CHILD", argument.c_str()) != 0);
  std::wstring self(1024, L'\0');
  self.resize(::GetModuleFileNameW(nullptr, self.data(), static_cast<DWORD>(self.size())));
  std::wstring line = L"\"" + self + L"\" --no-skip -tc=\"" + wide(test_case) + L"\"";
  STARTUPINFOW startup = {};
  startup.cb = sizeof startup;
  PROCESS_INFORMATION process = {};
  REQUIRE(::CreateProcessW(self.c_str(), line.data(), nullptr, nullptr, FALSE, 0, nullptr, nullptr, &startup,
                           &process) != 0);
  return process;
}

std::string child_argument() {
  std::string text(1024, '\0');
  text.resize(::GetEnvironmentVariableA("STELE_TEST_CHILD", text.data(), static_cast<DWORD>(text.size())));
  return text;
}

struct Model {
  std::vector<float> weight;
};

}  // namespace

TEST_CASE("windows: a save over a file that is not open, in every spelling of its path") {
  const TempDir dir;
  const std::string path = dir / "model.bin";
  std::string backslashes = path;
  for (char& c : backslashes) c = c == '/' ? '\\' : c;
  REQUIRE(save(path, "one"));
  for (const std::string& spelling :
       {path, backslashes, fs::absolute(path).string(), R"(\\?\)" + fs::absolute(path).make_preferred().string()}) {
    CAPTURE(spelling);
    REQUIRE(save(spelling, spelling, {stele::Durability::full}));
    CHECK(read_text(path) == spelling);
    CHECK(text_of(stele::open_file(spelling).value()) == spelling);
    CHECK(text_of(stele::map_file(spelling).value()) == spelling);
    CHECK(dir.names() == std::vector<std::string>{"model.bin"});
  }
  CHECK(bad(save(path, "x", {stele::Durability::process, false, false})).code() == Errc::exists);
  CHECK(bad(save(dir / "none/x", "x")).code() == Errc::not_found);
  CHECK(bad(save(dir.path(), "x")).code() == Errc::invalid_argument);
  CHECK(bad(save(dir / "a\xff", "x")).message().find("UTF-8") != std::string::npos);
}

TEST_CASE("windows: names in Unicode, long paths, std::filesystem::path") {
  const TempDir dir;
  std::string deep = dir.path();
  for (int i = 0; i < 8; ++i) {
    deep += "/" + std::string(60, static_cast<char>('a' + i));
    REQUIRE(os::make_folder(deep).value());
  }
  const std::string path = deep + "/\xc3\xa4\xe6\xbc\xa2\xf0\x9f\x98\x80.stele";
  REQUIRE(path.size() > 500);
  const Model model{{1, 2, 3}};
  REQUIRE(stele::BinaryRecorder<>().save(model, path));
  CHECK(stele::BinaryRecorder<>().load<Model>(path).value().weight == model.weight);
  const fs::path short_path(fs::path(dir.path()) / L"\u00e4\u6f22.stele");
  REQUIRE(stele::save(model, short_path));
  CHECK(stele::load<Model>(short_path).value().weight == model.weight);
  CHECK(::GetFileAttributesW(short_path.c_str()) != INVALID_FILE_ATTRIBUTES);
}

TEST_CASE("windows: reserved names and streams") {
  const TempDir dir;
  const auto folder = stele::folder_bundle(dir.path());
  for (const char* name : {"NUL", "con", "Aux.txt", "COM1", "lpt9.bin", "nul .x", "CONOUT$", "a.", "a ", "a:b", "a\\b",
                           "a?", "sub/prn", "sub./x", "COM\xc2\xb9", "a\x01"}) {
    CAPTURE(name);
    auto created = folder->create(name);
    REQUIRE_FALSE(created);
    CHECK(created.error().code() == Errc::invalid_argument);
    auto opened = folder->open(name);
    REQUIRE_FALSE(opened);
    CHECK(opened.error().code() == Errc::invalid_argument);
  }
  for (const char* name : {"nulla", "com", "COM10", ".a", "a.b.c", "console"}) {
    CAPTURE(name);
    CHECK(folder->create(name));
  }
  CHECK(bad(save(dir / "file:stream", "x")).code() == Errc::invalid_argument);
  CHECK(dir.names().empty());
}

TEST_CASE("windows: a path with a reserved name is refused, unless it has the prefix of devices") {
  const TempDir dir;
  const Model model{{1, 2, 3}};
  for (const char* name : {"NUL.safetensors", "nul", "aux.x", "prn", "com7.stele", "LPT1.json", "COM\xc2\xb2.gguf",
                           "CON", "CONIN$", "model.", "model .", "NUL:.bin"}) {
    for (const std::string& path : {std::string(name), dir / name, dir.path() + "\\" + name, dir / name + "/x.stele"}) {
      CAPTURE(path);
      const Error error = bad(save(path, "kept"));
      CHECK(error.code() == Errc::invalid_argument);
      CHECK(error.hint().find(R"(\\?\)") != std::string::npos);
      CHECK(bad(stele::folder_sink(path, quick)).code() == Errc::invalid_argument);
      CHECK(bad(stele::open_file(path)).code() == Errc::invalid_argument);
      CHECK(bad(stele::BinaryRecorder<>().save(model, path)).code() == Errc::invalid_argument);
    }
  }
  CHECK(dir.names().empty());
  const std::string whole = R"(\\?\)" + fs::absolute(dir.path()).make_preferred().string();
  for (const char* name : {"aux.x", "model.", "NUL.safetensors"}) {
    const std::string path = whole + "\\" + name;
    CAPTURE(path);
    REQUIRE(save(path, name));
    REQUIRE(save(path, name));  // over the first
    CHECK(text_of(stele::open_file(path).value()) == name);
    std::string names;
    for (const std::string& found : dir.names()) names += found + '|';
    CHECK(names == std::string(name) + '|');
    os::remove(os::open_folder(os::Path(dir.path())).value(), name);  // std::filesystem cannot
  }
  CHECK(save(R"(\\.\NUL)", "nothing is kept"));
  CHECK(dir.names().empty());
}

TEST_CASE("windows: a file that is open or mapped is replaced, or kept whole with an error") {
  const TempDir dir;
  const std::string path = dir / "model.bin";
  for (const bool mapped : {false, true}) {
    CAPTURE(mapped);
    REQUIRE(save(path, "old"));
    const SourcePtr reader = (mapped ? stele::map_file(path) : stele::open_file(path)).value();
    const Status saved = save(path, "the new one");
    CHECK(text_of(reader) == "old");
    CHECK(read_text(path) == (saved ? "the new one" : "old"));
    if (!saved) {  // a system without POSIX semantics of renames
      CHECK(saved.error().code() == Errc::io);
      CHECK(saved.error().hint().find("open") != std::string::npos);
    }
    CHECK(dir.names() == std::vector<std::string>{"model.bin"});
  }
  CHECK(save(path, "closed again"));
  CHECK(read_text(path) == "closed again");
}

TEST_CASE("windows: a file can be read while it is written, and while its lock is held") {
  const TempDir dir;
  const std::string path = dir / "model.bin";
  REQUIRE(save(path, "old"));
  auto sink = stele::file_sink(path, quick).value();
  REQUIRE(sink->write(bytes_of("new")));
  CHECK(read_text(path) == "old");
  CHECK(dir.names().size() == 2);
  REQUIRE(sink->commit());
  CHECK(read_text(path) == "new");
  const os::File locked = os::open_locked(os::Path(path)).value();
  CHECK(locked.is_open());
  CHECK_FALSE(os::open_locked(os::Path(path)).value().is_open());
  CHECK(text_of(stele::open_file(path).value()) == "new");
}

TEST_CASE("windows: access lists are kept") {
  const TempDir dir;
  const std::string path = dir / "model.bin";
  REQUIRE(save(path, "old"));
  const std::string inherited = access_of(path);
  REQUIRE(save(path, "new"));
  CHECK(access_of(path) == inherited);
  set_access(path, "D:P(A;;FA;;;BA)(A;;FA;;;SY)(A;;FA;;;CO)(A;;FR;;;WD)");
  const std::string own = access_of(path);
  REQUIRE(save(path, "newer"));
  CHECK(access_of(path) == own);
  CHECK(read_text(path) == "newer");
}

TEST_CASE("windows: pieces of all sizes, patches, offsets beyond 4 GiB") {
  const TempDir dir;
  std::mt19937 random(7);
  std::string text(std::size_t{3} << 20, '\0');
  for (char& c : text) c = static_cast<char>(random());
  std::vector<std::span<const std::byte>> pieces;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t largest = random() % 4 == 0 ? 200'000 : 3000;
    const std::size_t size = std::min<std::size_t>(random() % largest, text.size() - at);
    pieces.push_back(bytes_of(text).subspan(at, size));
    at += size;
  }
  const std::string path = dir / "pieces";
  auto sink = stele::file_sink(path, quick).value();
  REQUIRE(sink->reserve(2 * text.size()));
  REQUIRE(sink->write(std::span<const std::span<const std::byte>>(pieces)));
  REQUIRE(sink->patch(5, bytes_of("patched")));
  text.replace(5, 7, "patched");
  REQUIRE(sink->write(bytes_of("the end")));
  REQUIRE(sink->commit());
  CHECK((read_text(path) == text + "the end"));

  constexpr std::uint64_t beyond = (std::uint64_t{5} << 30) + 3;
  const HANDLE file = ::CreateFileW(wide(dir / "far").c_str(), GENERIC_WRITE, 0, nullptr, CREATE_NEW, 0, nullptr);
  REQUIRE(file != INVALID_HANDLE_VALUE);
  DWORD done = 0;
  ::DeviceIoControl(file, FSCTL_SET_SPARSE, nullptr, 0, nullptr, 0, &done, nullptr);
  LARGE_INTEGER to = {};
  to.QuadPart = static_cast<LONGLONG>(beyond);
  REQUIRE(::SetFilePointerEx(file, to, nullptr, FILE_BEGIN) != 0);
  REQUIRE(::WriteFile(file, "there", 5, &done, nullptr) != 0);
  ::CloseHandle(file);
  const SourcePtr source = stele::open_file(dir / "far").value();
  CHECK(source->size() == beyond + 5);
  std::string word(5, ' ');
  REQUIRE(source->read_at(beyond, std::as_writable_bytes(std::span(word.data(), word.size()))));
  CHECK(word == "there");
}

TEST_CASE("windows: folders are made whole; a full one is not replaced in one step") {
  const TempDir dir;
  const std::string path = dir.path() + "\\model";
  const auto put = [&](std::string_view text, FileSinkOptions options = quick) -> Status {
    STELE_TRY_ASSIGN(const auto sink, stele::folder_sink(path, options, [](const Bundle&) -> Status { return {}; }));
    const auto bundle = sink->bundle();
    for (const char* name : {"a.bin", "below/b.bin"}) {
      STELE_TRY_ASSIGN(const auto file, bundle->create(name));
      STELE_TRY(file->write(bytes_of(text)));
      STELE_TRY(file->commit());
    }
    CHECK_FALSE((fs::exists(path + "\\c.bin")));
    return sink->commit();
  };
  REQUIRE(put("one", {stele::Durability::full}));
  CHECK(read_text(path + "/below/b.bin") == "one");
  const Error error = bad(put("two"));
  CHECK(error.code() == Errc::exists);
  CHECK(error.hint().find("allow_nonatomic") != std::string::npos);
  CHECK(read_text(path + "/below/b.bin") == "one");
  CHECK(dir.names() == std::vector<std::string>{"model"});
  REQUIRE(put("two", {stele::Durability::full, true}));
  CHECK(read_text(path + "/below/b.bin") == "two");
  fs::remove_all(path);
  fs::create_directory(path);
  REQUIRE(put("three"));  // over an empty folder
  CHECK(read_text(path + "/a.bin") == "three");
  CHECK(dir.names() == std::vector<std::string>{"model"});
}

TEST_CASE("windows: a rename of a folder removes no file, and a removal of a file no folder") {
  const TempDir dir;
  for (const char* name : {"empty", "new", "full", "full/below"}) fs::create_directory(dir / name);
  write_text(dir / "file", "kept");
  const os::Folder folder = os::open_folder(os::Path(dir.path())).value();
  CHECK(bad(os::rename(folder, "new", "file", "new")).code() == Errc::exists);
  CHECK(read_text(dir / "file") == "kept");
  CHECK(bad(os::rename(folder, "new", "full", "new")).code() == Errc::exists);
  CHECK(fs::exists(dir / "full/below"));
  os::remove(folder, "empty");
  CHECK(fs::exists(dir / "empty"));
  REQUIRE(os::rename(folder, "new", "empty", "new"));
  CHECK(dir.names() == std::vector<std::string>{"empty", "file", "full"});
}

TEST_CASE("windows: leftovers of ended processes are removed, those of running ones are kept") {
  const TempDir dir;
  const std::string path = dir / "model.bin";
  PROCESS_INFORMATION ended = start("windows: child that ends", "x");
  ::WaitForSingleObject(ended.hProcess, INFINITE);
  const auto temporary = [](std::uint64_t process, int number) {
    return ".model.bin.stele-" + std::to_string(process) + "-" + std::to_string(number) + ".tmp";
  };
  write_text(dir / temporary(ended.dwProcessId, 1), "left");
  fs::create_directories(dir / temporary(ended.dwProcessId, 2) + "/below");
  auto running = stele::file_sink(path, quick).value();
  REQUIRE(running->write(bytes_of("first")));
  REQUIRE(save(path, "second"));
  CHECK(dir.names().size() == 3);  // the file, the folder, the unfinished file of `running`
  const os::Folder folder = os::open_folder(os::Path(dir.path())).value();
  stele::detail::remove_leftover_folders(folder);
  CHECK(dir.names().size() == 2);
  // A folder of this process is in use.
  auto unfinished = stele::folder_sink(dir / "folder", quick, nullptr).value();
  stele::detail::remove_leftover_folders(folder);
  CHECK(dir.names().size() == 3);
  REQUIRE(unfinished->commit());
  REQUIRE(running->commit());
  CHECK(read_text(path) == "first");
  CHECK(dir.names() == std::vector<std::string>{"folder", "model.bin"});
  CHECK(os::process_lives(os::process_id()));
  CHECK_FALSE(os::process_lives(ended.dwProcessId));
  ::CloseHandle(ended.hThread);
  ::CloseHandle(ended.hProcess);
}

TEST_CASE("windows: child that ends" * doctest::skip()) { CHECK_FALSE(child_argument().empty()); }

TEST_CASE("windows: child that saves until it is killed" * doctest::skip()) {
  const std::string path = child_argument();
  REQUIRE_FALSE(path.empty());
  for (int i = 0;; ++i) {
    // A reader may hold the file for a moment.
    static_cast<void>(
        save(path, std::string(100'000 + static_cast<std::size_t>(i % 10), static_cast<char>('a' + i % 26))));
  }
}

TEST_CASE("windows: killed saves leave a complete file") {
  const TempDir dir;
  const std::string path = dir / "model.bin";
  REQUIRE(save(path, std::string(100'000, 'z')));
  std::mt19937 random(11);
  int seen = 0;
  for (int i = 0; i < 12; ++i) {
    const PROCESS_INFORMATION child = start("windows: child that saves until it is killed", path);
    ::WaitForSingleObject(child.hProcess, 300 + random() % 200);
    REQUIRE(::TerminateProcess(child.hProcess, 1) != 0);
    ::WaitForSingleObject(child.hProcess, INFINITE);
    ::CloseHandle(child.hThread);
    ::CloseHandle(child.hProcess);
    const std::string text = read_text(path);
    REQUIRE(text.size() >= 100'000);
    CHECK(text.size() < 100'010);
    CHECK(text.find_first_not_of(text[0]) == text.npos);
    seen += text[0] != 'z';
  }
  CHECK(seen > 0);
  REQUIRE(save(path, "after"));
  CHECK(dir.names() == std::vector<std::string>{"model.bin"});
}

TEST_CASE("windows: signals are counted and the handler is restored") {
  std::signal(SIGINT, SIG_IGN);
  REQUIRE(os::catch_signal(SIGINT));
  const std::uint64_t before = os::signal_count(SIGINT);
  std::raise(SIGINT);
  std::raise(SIGINT);
  CHECK(os::signal_count(SIGINT) == before + 2);
  os::release_signal(SIGINT);
  CHECK((std::signal(SIGINT, SIG_DFL) == SIG_IGN));
  CHECK_FALSE(os::catch_signal(9));
}
