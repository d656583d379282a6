// Maps, and calls of Linux that a kernel or a sandbox lacks, in child processes.
#include <stele/bundle.hpp>
#include <stele/recorders/any.hpp>
#include <stele/stele.hpp>

#include <doctest/doctest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "folder_support.hpp"
#include "support/child.hpp"
#include "support/sanitizers.hpp"
#include "support/temp_dir.hpp"

namespace system_calls_test {

namespace {

namespace fs = std::filesystem;
using namespace stele;
using stele_test::good;
using stele_test::TempDir;

struct Model {
  Tensor<float, 1> weight;
};

std::string word_of(const Status& status) { return status ? "ok" : std::string(name(status.error().code())); }
template <class T>
std::string word_of(const Result<T>& result) {
  return result ? "ok" : std::string(name(result.error().code()));
}

// ---- maps

/// Returns the rights of the file's maps in this process, such as "r--p": each once, in order.
std::string rights_of(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  std::string rights;
  for (std::string line; std::getline(maps, line);) {
    if (!line.ends_with(path)) continue;
    const std::string here = line.substr(line.find(' ') + 1, 4);
    if (rights.find(here) == rights.npos) rights += (rights.empty() ? "" : " ") + here;
  }
  return rights;
}

/// Writes a safetensors file of `size` tensors f32, most of which is a hole.
void write_sparse(const std::string& path, std::uint64_t large, std::uint64_t weight) {
  std::ostringstream header;
  header << R"({"large":{"dtype":"F32","shape":[)" << large << R"(],"data_offsets":[0,)" << 4 * large
         << R"(]},"weight":{"dtype":"F32","shape":[)" << weight << R"(],"data_offsets":[)" << 4 * large << ','
         << 4 * (large + weight) << "]}}";
  std::string text = std::move(header).str();
  while (text.size() % 8 != 0) text += ' ';
  const std::uint64_t size = text.size();
  std::ofstream file(path, std::ios::binary);
  for (int i = 0; i < 8; ++i) file.put(static_cast<char>(size >> (8 * i)));
  file << text;
  REQUIRE(file.flush());
  file.close();
  fs::resize_file(path, 8 + size + 4 * (large + weight));
}

/// Sets a limit of this process.
void limit(int what, std::uint64_t bytes) {
  const rlimit to{static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
  if (::setrlimit(static_cast<decltype(RLIMIT_AS)>(what), &to) != 0) throw std::runtime_error("setrlimit");
}

// ---- calls

/// Lets a call of the system fail with `code` in this process, as a sandbox does. Returns false if the system has no
/// filters of calls (QEMU).
bool forbid(long call, int code) {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(code)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(rules)), rules};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

struct Call {
  const char* name;
  long number;
};
// All calls of src/io/os/linux that POSIX lacks.
constexpr Call calls[] = {
    {"openat2", SYS_openat2},
    {"renameat2", SYS_renameat2},
    {"copy_file_range", SYS_copy_file_range},
    {"fallocate", SYS_fallocate},
    {"sync_file_range", SYS_sync_file_range},
    {"mincore", SYS_mincore},
};

/// Saves and opens files and folders below `dir`. Returns what came of each.
std::string use_files(const std::string& dir) {
  using stele_test::folders::fast;
  using stele_test::folders::write_folder;
  std::string words;
  const auto add = [&](std::string_view what, const std::string& word) {
    words += std::string(what) + " " + word + ", ";
  };
  const Model model{Tensor<float, 1>({3}, {1, 2, 3})};
  const auto loaded = [&](const std::string& path) -> std::string {
    const auto got = load<Model>(path);
    if (!got) return word_of(got);
    return got->weight.size() == 3 && got->weight(2) == 3 ? "ok" : "differs";
  };

  // A model in a folder, and a link that leads out of it.
  const std::string folder = dir + "/hub";
  fs::create_directory(folder);
  add("save", word_of(save(model, folder + "/model.safetensors")));
  add("folder", loaded(folder));
  fs::rename(folder + "/model.safetensors", dir + "/outside.safetensors");
  fs::create_symlink("../outside.safetensors", folder + "/model.safetensors");
  const auto linked = load<Model>(folder);
  add("link", word_of(linked));

  SaveOptions fresh;
  fresh.file = {.durability = Durability::process, .overwrite = false};
  add("new", word_of(save(model, dir + "/new.safetensors", fresh)));
  add("again", word_of(save(model, dir + "/new.safetensors", fresh)));
  add("new file", loaded(dir + "/new.safetensors"));
  add("new folder", word_of(write_folder(dir + "/full", "old")));
  add("full folder", word_of(write_folder(dir + "/full", "new")));
  add("its file", stele_test::read_text(dir + "/full/a.dat"));
  // A large file, copied by the system where it can.
  write_sparse(dir + "/large.safetensors", 4 << 20, 3);
  const auto large = open(dir + "/large.safetensors");
  add("copy", large ? word_of(save(*large, dir + "/copy.safetensors")) : word_of(large));
  add("size",
      std::to_string(fs::exists(dir + "/copy.safetensors") && fs::file_size(dir + "/copy.safetensors") > 16 << 20));
  std::size_t temporaries = 0;
  for (const std::string& name : stele_test::names_in(dir)) temporaries += name.ends_with(".tmp");
  add("temporaries", std::to_string(temporaries));
  return words;
}

}  // namespace

TEST_CASE("maps: a file is mapped read-only until a load hands out tensors that can be written to") {
  const TempDir dir;
  const std::string path = dir / "m.safetensors";
  write_sparse(path, 4 << 20, 1000);
  const std::string before = stele_test::read_text(path);
  for (const bool descriptor : {false, true}) {
    CAPTURE(descriptor);
    const SourcePtr file = good(open_file(path));
    const SourcePtr source = descriptor ? file->mapped() : good(map_file(path));
    REQUIRE(source->view().size() == before.size());
    CHECK(rights_of(path) == "r--p");
    const Snapshot snapshot = good(SafetensorsRecorder<>().open(source));
    good(SafetensorsRecorder<>().save(snapshot, dir / "copy.safetensors"));
    CHECK(good(load<Model>(source, {.allow_unused = {"large"}})).weight.size() == 1000);
    CHECK(rights_of(path) == "r--p");
    Model loaded = good(load<Model>(source, {.storage = Storage::mmap, .allow_unused = {"large"}}));
    REQUIRE(loaded.weight.is_view());
    CHECK(rights_of(path) == "r--p rw-p");  // "large" is as it was
    loaded.weight(0) = 5;
    CHECK(loaded.weight(0) == 5);
    CHECK(stele_test::read_text(path) == before);
  }
  CHECK(rights_of(path).empty());
}

TEST_CASE("maps: a file that does not fit the address space is read") {
  if (stele_test::sanitizers) return;  // sanitizers need a large address space
  const TempDir dir;
  const std::string path = dir / "m.safetensors";
  write_sparse(path, 768 << 20, 1000);  // 3 GiB
  const std::string words = stele_test::in_child([&] {
    limit(RLIMIT_AS, stele_test::address_space() + (std::uint64_t{512} << 20));
    Report report;
    const LoadOptions options{.storage = Storage::mmap, .allow_unused = {"large"}, .threads = 1, .report = &report};
    const auto loaded = load<Model>(path, options);
    const auto source = map_file(path);
    std::string text = word_of(loaded) + " " + word_of(source);
    if (loaded) {
      text += " " + std::to_string(loaded->weight.size()) + " " + std::to_string(loaded->weight.is_view()) + " " +
              std::to_string(report.count(Report::What::copied));
    }
    if (source) text += " " + std::to_string((*source)->view().size()) + " " + std::to_string((*source)->size() >> 20);
    if (source) text += (*source)->mapped() == nullptr ? " not mapped" : " mapped";
    return text + " " + word_of(open(path));
  });
  CHECK(words == "ok ok 1000 0 1 0 3072 not mapped ok");
}

TEST_CASE("maps: memory that the system refuses to make writable") {
  if (stele_test::sanitizers) return;
  const TempDir dir;
  const std::string path = dir / "m.safetensors";
  write_sparse(path, 1, 64 << 20);  // 256 MiB
  const std::string words = stele_test::in_child([&] {
    std::ifstream status("/proc/self/status");
    std::uint64_t data = 0;  // KiB
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmData:")) data = std::stoull(line.substr(7));
    }
    limit(RLIMIT_DATA, (data << 10) + (std::uint64_t{64} << 20));
    const auto source = map_file(path);
    if (!source) return word_of(source);
    const std::span<const std::byte> view = (*source)->view();
    std::string text = std::to_string(view.size() >> 20) + " " + std::to_string(static_cast<int>(view.back()));
    text += (*source)->writable_view({0, view.size()}) == nullptr ? " refused" : " writable";
    text += (*source)->writable_view({0, 1}) == nullptr ? " refused" : " writable";
    // There is no memory for a copy either.
    return text + " " +
           word_of(load<Model>(*source, {.storage = Storage::mmap, .allow_unused = {"large"}, .threads = 1}));
  });
  CHECK(words == "256 0 refused writable out_of_memory");
}

TEST_CASE("calls that a kernel or a sandbox lacks are replaced by others") {
  const std::string usual =
      "save ok, folder ok, link io, new ok, again exists, new file ok, new folder ok, full folder ok, its file new, "
      "copy ok, "
      "size 1, temporaries 0, ";
  // Without it, no two folders can be exchanged.
  std::string without_exchange = usual;
  without_exchange.replace(without_exchange.find("full folder ok, its file new"), 28,
                           "full folder exists, its file old");
  {
    const TempDir dir;
    REQUIRE(use_files(dir.path()) == usual);
  }
  for (const Call& call : calls) {
    for (const int code : {ENOSYS, EPERM}) {
      CAPTURE(std::string(call.name));
      CAPTURE(code);
      const TempDir dir;
      const std::string words = stele_test::in_child(
          [&]() -> std::string { return forbid(call.number, code) ? use_files(dir.path()) : "skipped"; });
      if (words == "skipped") {
        MESSAGE("skipped: this system has no filters of calls");
        return;
      }
      CHECK(words == (call.number == SYS_renameat2 ? without_exchange : usual));
    }
  }
}

}  // namespace system_calls_test
