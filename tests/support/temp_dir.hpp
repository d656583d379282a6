// A folder for one test, removed with its contents.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace stele_test {

/// Returns the path of the folder tests.
const std::string& tests_folder();
/// Returns the path of the files of a format's folder: tests/formats/FORMAT/data.
std::string test_data(std::string_view format);

/// Returns the names in a folder, sorted.
inline std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

class TempDir {
 public:
  TempDir() {
    std::random_device random;
    do {
      const auto name = "stele-test-" + std::to_string(random());
      path_ = (std::filesystem::temp_directory_path() / name).generic_string();
    } while (!std::filesystem::create_directory(path_));
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const noexcept { return path_; }
  /// Returns the path of `name` in the folder.
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  /// Returns the names in the folder, sorted.
  std::vector<std::string> names() const { return names_in(path_); }

 private:
  std::string path_;
};

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::ostringstream text;  // by blocks: iterators take most of the time of a test with large files
  text << file.rdbuf();
  return std::move(text).str();
}

inline void write_text(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace stele_test
