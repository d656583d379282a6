// Files for paddle.sh: what Paddle wrote is read, compared with the texts beside it (paddle_files.py says
// how they read), written again, and must be the same bytes.
//
//   interop_paddle THEIRS OURS
#include <stele/recorders/paddle.hpp>
#include <stele/stele.hpp>
#include <stele/value.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace stele;
namespace fs = std::filesystem;

struct Expected {
  std::string name, rest;  // as in the text
};

std::string hex(std::span<const std::byte> bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte b : bytes) {
    text += {digits[std::to_integer<unsigned>(b) >> 4], digits[std::to_integer<unsigned>(b) & 15U]};
  }
  return text.empty() ? "-" : text;
}

std::string decoded(const std::string& coded) {
  std::string text;
  for (std::size_t i = 0; i < coded.size(); ++i) {
    if (coded[i] == '%' && coded.size() - i > 2) {
      text += static_cast<char>(std::stoi(coded.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      text += coded[i];
    }
  }
  return text;
}

std::vector<Expected> expectations(const fs::path& file) {
  std::ifstream in(file);
  std::vector<Expected> all;
  for (std::string line; std::getline(in, line);) {
    const std::size_t blank = line.find(' ');
    all.push_back({decoded(line.substr(0, blank)), line.substr(blank + 1)});
  }
  if (all.empty()) throw std::runtime_error(file.string() + ": nothing expected");
  return all;
}

/// Its line of the text, without the name.
std::string described(const LeafView& leaf) {
  std::string text(name(leaf.dtype()));
  text += ' ';
  std::string shape;
  for (const Extent e : leaf.shape()) shape += (shape.empty() ? "" : "x") + std::to_string(e);
  text += shape.empty() ? "scalar" : shape;
  std::vector<std::byte> bytes(static_cast<std::size_t>(leaf.byte_size()));
  leaf.read(0, bytes).value();
  text += ' ' + hex(bytes);
  if (const Annotations* notes = leaf.annotations(); notes != nullptr && notes->count("paddle.lod") != 0) {
    for (const Value& level : *notes->at("paddle.lod").as_list()) {
      std::string offsets;
      for (const Value& offset : *level.as_list()) {
        offsets += (offsets.empty() ? "" : ",") + std::to_string(*offset.as_i64());
      }
      text += ' ' + offsets;
    }
  }
  return text;
}

void compare(const std::string& what, const Snapshot& snapshot, const std::vector<Expected>& expected, bool named) {
  if (snapshot.leaf_count() != expected.size()) {
    throw std::runtime_error(what + ": " + std::to_string(snapshot.leaf_count()) + " tensors, expected " +
                             std::to_string(expected.size()));
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const LeafView leaf = snapshot.leaf(i);
    const std::string name = named ? expected[i].name : std::to_string(i);
    if (leaf.path() != name) throw std::runtime_error(what + ": is named " + leaf.path() + ", expected " + name);
    if (const std::string found = described(leaf); found != expected[i].rest) {
      throw std::runtime_error(what + ", " + name + ": found " + found + ", expected " + expected[i].rest);
    }
  }
  ReadContext context;
  struct : PieceSink {
    Status piece(std::span<const std::byte>) override { return {}; }
  } sink;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) snapshot.leaf(i).stream(sink, context).value();
}

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error(file.string() + ": not there");
  return {std::istreambuf_iterator<char>(in), {}};
}

void same_bytes(const fs::path& one, const fs::path& other) {
  const std::string a = content(one), b = content(other);
  if (a == b) return;
  const auto at =
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min(a.size(), b.size())), b.begin());
  throw std::runtime_error(one.string() + " and " + other.string() + " differ at byte " +
                           std::to_string(at.first - a.begin()) + " of " + std::to_string(a.size()) + " and " +
                           std::to_string(b.size()));
}

/// The files of both folders, but for the programs.
void same_folders(const fs::path& one, const fs::path& other) {
  const auto files = [](const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string name = fs::relative(entry.path(), folder).string();
      if (entry.is_regular_file() && !name.starts_with("__model__")) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  };
  const std::vector<std::string> names = files(one);
  if (names != files(other)) throw std::runtime_error(one.string() + " and " + other.string() + ": other files");
  for (const std::string& name : names) same_bytes(one / name, other / name);
}

PaddleRecorder<> recorder(const PaddleOptions& options) { return PaddleRecorder<>(PaddleFormat(options)); }

void combined(const fs::path& theirs, const fs::path& ours, const std::vector<Expected>& expected, bool named) {
  PaddleOptions options;
  if (!named) {  // and so in no order of names
    options.names = PaddleNames::counter;
    options.order = PaddleOrder::declared;
  }
  const Snapshot snapshot = recorder(options).open(theirs.string()).value();
  compare(theirs.string(), snapshot, expected, named);
  fs::create_directories(ours.parent_path());
  recorder(options).save(snapshot, ours.string()).value();
  same_bytes(theirs, ours);
}

void folder(const fs::path& theirs, const fs::path& ours, const std::vector<Expected>& expected) {
  const PaddleRecorder<> folders = recorder({.folder = true});
  const Snapshot snapshot = folders.open(theirs.string()).value();
  compare(theirs.string(), snapshot, expected, true);
  folders.save(snapshot, ours.string()).value();
  same_folders(theirs, ours);
}

/// The variables of a program must be what its file has: -1 for what is left open.
void program(const fs::path& file, const std::vector<Expected>& expected) {
  const std::vector<PaddleVariable> variables = paddle_program(file.string()).value();
  if (variables.size() != expected.size()) throw std::runtime_error(file.string() + ": other variables");
  for (std::size_t i = 0; i < variables.size(); ++i) {
    std::istringstream rest(expected[i].rest);
    std::string dtype, shape;
    rest >> dtype >> shape;
    std::string declared;
    for (const std::int64_t e : variables[i].shape) declared += (declared.empty() ? "" : "x") + std::to_string(e);
    if (declared.empty()) declared = "scalar";
    const bool open = declared.find('-') != std::string::npos;
    if (variables[i].name != expected[i].name || name(variables[i].dtype) != dtype || (!open && declared != shape)) {
      throw std::runtime_error(file.string() + ": declares " + variables[i].name + " " +
                               std::string(name(variables[i].dtype)) + " " + declared + ", expected " +
                               expected[i].name + " " + dtype + " " + shape);
    }
  }
}

void every(const fs::path& theirs, const fs::path& ours) {
  std::size_t files = 0;
  std::vector<fs::path> texts;
  for (const auto& entry : fs::directory_iterator(theirs)) {
    if (entry.path().extension() == ".txt") texts.push_back(entry.path());
  }
  std::sort(texts.begin(), texts.end());
  for (const fs::path& text : texts) {
    const std::vector<Expected> expected = expectations(text);
    const std::string name = text.stem().string();
    fs::path model;
    for (const char* end : {".json", ".pdmodel", "/__model__", "/__model__.json"}) {
      if (fs::is_regular_file(theirs / (name + end))) model = theirs / (name + end);
    }
    if (!model.empty()) program(model, expected);
    if (name == "lenet_params") {
      combined(theirs / name / "__params__", ours / name / "__params__", expected, true);
    } else if (fs::is_directory(theirs / name)) {
      folder(theirs / name, ours / name, expected);
    } else if (name.starts_with("single_")) {
      combined(theirs / (name + ".pdtensor"), ours / (name + ".pdtensor"), expected, false);
    } else {
      combined(theirs / (name + ".pdiparams"), ours / (name + ".pdiparams"), expected, !model.empty());
    }
    ++files;
  }
  if (files == 0) throw std::runtime_error(theirs.string() + ": no files");
  std::printf("%zu files: read, compared, the same bytes again\n", files);
}

struct Conv {
  Tensor<float, 4> weight;
  Tensor<float, 1> bias;
  STELE_MODULE(Conv, weight, bias)
};
struct Linear {
  Tensor<float, 2> weight;
  Tensor<float, 1> bias;
  STELE_MODULE(Linear, weight, bias)
};
/// Not in the order of the names.
struct LeNet {
  Linear fc;
  Conv conv2, conv1;
  STELE_MODULE(LeNet, fc, conv2, conv1)
};

/// One form into the other, and a module of C++ both ways, with the program beside the file and without it.
void across(const fs::path& theirs, const fs::path& ours) {
  const fs::path params = theirs / "lenet_params" / "__params__";
  const PaddleRecorder<> files, folders = recorder({.folder = true});
  folders.save(files.open(params.string()).value(), (ours / "from_combined").string()).value();
  same_folders(theirs / "lenet_folder", ours / "from_combined");
  files.save(folders.open((theirs / "lenet_folder").string()).value(), (ours / "from_folder.pdiparams").string())
      .value();
  same_bytes(params, ours / "from_folder.pdiparams");

  const auto here = files.load<LeNet>(params.string()).value();
  files.save(here, (ours / "module.pdiparams").string()).value();
  same_bytes(params, ours / "module.pdiparams");
  const auto there = files.load<LeNet>((ours / "module.pdiparams").string()).value();
  PaddleOptions checked;
  checked.program = paddle_program((theirs / "lenet_params" / "__model__").string()).value();
  recorder(checked).save(there, (ours / "layout.pdiparams").string()).value();
  same_bytes(params, ours / "layout.pdiparams");
  std::printf("forms and modules: the same bytes\n");

  if (files.open((theirs / "selected_rows.bin").string()) ||
      recorder({.names = PaddleNames::counter}).open((theirs / "selected_rows.bin").string())) {
    throw std::runtime_error("selected_rows.bin: no error");
  }
}

}  // namespace

int main(int count, char** arguments) try {
  if (count != 3) {
    std::fprintf(stderr, "usage: %s THEIRS OURS\n", arguments[0]);
    return 2;
  }
  fs::create_directories(arguments[2]);
  every(arguments[1], arguments[2]);
  across(arguments[1], arguments[2]);
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
