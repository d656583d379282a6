// For pytorch.sh: files that PyTorch wrote are read and compared with the texts beside them
// (pytorch_dump.py says how they read), and written again.
//
//   interop_pytorch check FOLDER    compares every NAME.expected of the folder with its file
//   interop_pytorch write FOLDER    writes NAME.ours.pt of every NAME.pt with a NAME.write, and own_*.ours.pt
#include <stele/precision/complex.hpp>
#include <stele/recorders/pytorch.hpp>
#include <stele/stele.hpp>
#include <stele/value.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <complex>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace stele;
namespace fs = std::filesystem;

// ---- texts, as in pytorch_dump.py

std::string coded(std::string_view text) {
  std::string all;
  for (const char c : text) {
    const auto u = static_cast<unsigned char>(c);
    const bool plain =
        (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' || c == '_' || c == '.';
    if (plain) {
      all += c;
    } else {
      char code[4];
      std::snprintf(code, sizeof code, "%%%02X", u);
      all += code;
    }
  }
  return all.empty() ? "%" : all;
}

std::string decoded(const std::string& code) {
  std::string text;
  for (std::size_t i = 0; i < code.size(); ++i) {
    if (code[i] != '%') {
      text += code[i];
    } else if (code.size() - i > 2) {
      text += static_cast<char>(std::stoi(code.substr(i + 1, 2), nullptr, 16));
      i += 2;
    }
  }
  return text;
}

std::string text_of(const Value& value, bool ordered = true) {
  char buffer[32];
  switch (value.kind()) {
    case ValueKind::null:
      return "null";
    case ValueKind::boolean:
      return *value.as_bool() ? "true" : "false";
    case ValueKind::i64:
      return std::to_string(*value.as_i64());
    case ValueKind::u64:
      return std::to_string(*value.as_u64());
    case ValueKind::f64:
      std::snprintf(buffer, sizeof buffer, "f%016llx",
                    static_cast<unsigned long long>(std::bit_cast<std::uint64_t>(*value.as_f64())));
      return buffer;
    case ValueKind::string:
      return "s\"" + coded(*value.as_string()) + '"';
    case ValueKind::bytes: {
      std::string text = "b";
      for (const std::byte b : *value.as_bytes()) {
        std::snprintf(buffer, sizeof buffer, "%02x", std::to_integer<unsigned>(b));
        text += buffer;
      }
      return text;
    }
    case ValueKind::list: {
      std::string text = "[";
      for (const Value& item : *value.as_list()) text += (text.size() > 1 ? "," : "") + text_of(item);
      return text + ']';
    }
    case ValueKind::map: {
      Value::Map items = *value.as_map();
      if (!ordered) std::sort(items.begin(), items.end(), [](auto& a, auto& b) { return a.first < b.first; });
      std::string text = "{";
      for (const auto& [key, item] : items) {
        text += (text.size() > 1 ? ",\"" : "\"") + coded(key) + "\":" + text_of(item);
      }
      return text + '}';
    }
  }
  return "?";
}

// ---- what is expected

struct ExpectedTensor {
  std::string dtype, shape, tie, quantization, type;
  std::uint64_t offset = 0, size = 0;
};

struct Expected {
  std::string file;
  bool only_tensors = false;
  std::map<std::string, ExpectedTensor> tensors;
  std::map<std::string, std::string> values;
  std::string bytes;
};

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error(file.string() + ": not there");
  return {std::istreambuf_iterator<char>(in), {}};
}

Expected expectation(const fs::path& text) {
  Expected made;
  std::istringstream in(content(text));
  for (std::string line; std::getline(in, line);) {
    std::istringstream parts(line);
    std::string kind, path;
    parts >> kind >> path;
    path = decoded(path);
    if (kind == "file") {
      made.file = path;
    } else if (kind == "only") {
      made.only_tensors = true;
    } else if (kind == "T") {
      ExpectedTensor t;
      if (!(parts >> t.dtype >> t.shape >> t.offset >> t.size >> t.tie >> t.quantization >> t.type)) {
        throw std::runtime_error(text.string() + ": a line is too short: " + line);
      }
      t.type = t.type == "-" ? "" : decoded(t.type);
      made.tensors.emplace(path, t);
    } else if (kind == "V") {
      parts >> made.values[path];
    } else {
      throw std::runtime_error(text.string() + ": an unknown line: " + line);
    }
  }
  if (made.file.empty()) throw std::runtime_error(text.string() + ": names no file");
  made.bytes = content(fs::path(text).replace_extension(".bytes"));
  return made;
}

// ---- comparing

/// Collects what differs, so that one run shows all of it.
class Findings {
 public:
  void begin(std::string what) { what_ = std::move(what), here_ = 0; }
  void add(const std::string& text) {
    ++all_;
    if (++here_ <= 12) std::printf("FAIL  %s: %.600s\n", what_.c_str(), text.c_str());
  }
  std::size_t here() const { return here_; }
  std::size_t all() const { return all_; }

 private:
  std::string what_;
  std::size_t here_ = 0, all_ = 0;
};

std::string shape_text(const LeafView& leaf) {
  std::string text;
  for (const Extent e : leaf.shape()) text += (text.empty() ? "" : "x") + std::to_string(e);
  return text.empty() ? "-" : text;
}

struct Collect final : PieceSink {
  Status piece(std::span<const std::byte> bytes) override {
    all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  }
  std::string all;
};

std::string note_of(const LeafView& leaf, const std::string& key) {
  const Annotations* notes = leaf.annotations();
  if (notes == nullptr || notes->count(key) == 0) return "-";
  return text_of(notes->at(key), false);
}

void compare_tensor(const Expected& expected, const std::string& path, const LeafView& leaf, bool alias,
                    Findings& findings) {
  const ExpectedTensor& t = expected.tensors.at(path);
  const auto differs = [&](const char* what, const std::string& found, const std::string& wanted) {
    if (found != wanted) findings.add(path + ": " + what + ": expected " + wanted + ", found " + found);
  };
  differs("dtype", std::string(name(leaf.dtype())), t.dtype);
  differs("shape", shape_text(leaf), t.shape);
  if (!alias) {
    differs("quantization", note_of(leaf, "quantization"), t.quantization);
    const std::string type = note_of(leaf, "pytorch.class");
    differs("class", type, t.type.empty() ? "-" : "s\"" + coded(t.type) + '"');
  }
  Collect bytes;
  ReadContext context;
  if (const Status read = leaf.stream(bytes, context); !read) {
    return findings.add(path + ": stream: " + read.error().to_string());
  }
  const std::string_view wanted = std::string_view(expected.bytes).substr(t.offset, t.size);
  if (bytes.all != wanted) {
    const auto at = std::mismatch(bytes.all.begin(), bytes.all.end(), wanted.begin(), wanted.end()).first;
    return findings.add(path + ": " + std::to_string(bytes.all.size()) + " bytes, expected " +
                        std::to_string(wanted.size()) + "; they differ from byte " +
                        std::to_string(at - bytes.all.begin()) + " on");
  }
  // Parts of it, too: from the middle on.
  const std::uint64_t unit = leaf.size() == 0 ? 0 : leaf.byte_size() / leaf.size();
  if (unit == 0 || leaf.byte_size() != unit * leaf.size()) return;
  const std::uint64_t middle = leaf.size() / 2 * unit;
  std::string half(static_cast<std::size_t>(leaf.byte_size() - middle), '\0');
  const Status read = leaf.read(middle, std::as_writable_bytes(std::span(half)));
  if (!read) return findings.add(path + ": read: " + read.error().to_string());
  if (half != wanted.substr(static_cast<std::size_t>(middle))) findings.add(path + ": its second half differs");
}

void compare(const Expected& expected, const Snapshot& snapshot, Findings& findings) {
  const auto nodes = snapshot.nodes();
  std::map<std::string, bool> found;
  std::map<std::string, std::uint32_t> leaf_of_tie;
  std::map<std::uint32_t, std::string> tie_of_leaf;
  if (!snapshot.flat()) findings.add("the snapshot is not flat");
  for (const Node& node : nodes.subspan(1)) {
    const std::string path(node.name == nullptr ? "" : node.name, node.name_size);
    if (found.count(path) != 0) findings.add(path + ": twice");
    found[path] = true;
    if (node.kind == NodeKind::value) {
      const auto value = expected.values.find(path);
      if (value != expected.values.end()) {
        const std::string text = text_of(snapshot.value(node));
        if (text != value->second) findings.add(path + ": value: expected " + value->second + ", found " + text);
      } else if (!expected.only_tensors) {
        findings.add(path + ": a value that is not expected: " + text_of(snapshot.value(node)));
      }
      continue;
    }
    if (node.kind != NodeKind::tensor && node.kind != NodeKind::alias) {
      findings.add(path + ": a node of kind " + std::string(name(node.kind)));
      continue;
    }
    const bool alias = node.kind == NodeKind::alias;
    const Node& target = alias ? nodes[node.index] : node;
    if (target.kind == NodeKind::value) {
      if (expected.values.count(path) == 0) findings.add(path + ": an alias of a value");
      continue;
    }
    const auto tensor = expected.tensors.find(path);
    if (tensor == expected.tensors.end()) {
      if (alias && expected.only_tensors) continue;
      findings.add(path + ": a tensor that is not expected");
      continue;
    }
    compare_tensor(expected, path, snapshot.leaf(target.index), alias, findings);
    const std::string tie = tensor->second.tie == "-" ? "alone " + path : tensor->second.tie;
    const auto [known, fresh] = leaf_of_tie.emplace(tie, target.index);
    if (!fresh && known->second != target.index) findings.add(path + ": is not tied to the others of its elements");
    const auto [other, first] = tie_of_leaf.emplace(target.index, tie);
    if (!first && other->second != tie) findings.add(path + ": is tied to a tensor that is another: " + other->second);
  }
  for (const auto& [path, value] : expected.values) {
    if (found.count(path) == 0) findings.add(path + ": the value is missing: " + value);
  }
  for (const auto& [path, tensor] : expected.tensors) {
    if (found.count(path) == 0) findings.add(path + ": the tensor is missing");
  }
}

template <class Open>
void compare_file(const std::string& what, const Expected& expected, Open open, Findings& findings) {
  findings.begin(what);
  const Result<Snapshot> snapshot = open();
  if (!snapshot) {
    findings.add(snapshot.error().to_string());
  } else {
    compare(expected, *snapshot, findings);
  }
  if (findings.here() == 0) {
    std::printf("ok    %s: %zu tensors, %zu values\n", what.c_str(), expected.tensors.size(), expected.values.size());
  }
}

std::vector<fs::path> files_with(const fs::path& folder, const std::string& extension) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == extension) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) throw std::runtime_error(folder.string() + ": has no files " + extension);
  return files;
}

bool check(const fs::path& folder) {
  Findings findings;
  std::size_t files = 0;
  for (const fs::path& text : files_with(folder, ".expected")) {
    const Expected expected = expectation(text);
    const std::string file = (folder / expected.file).string();
    const bool safetensors = text.stem().string().starts_with("dcp_safetensors");
    if (!safetensors) {
      compare_file(
          text.stem().string(), expected, [&] { return PytorchRecorder<>().open(file); }, findings);
    }
    compare_file(
        text.stem().string() + " by its content", expected, [&] { return stele::open(file); }, findings);
    ++files;
  }
  std::printf("%zu files, %zu findings\n", files, findings.all());
  return findings.all() == 0;
}

// ---- writing

struct Linear {
  Tensor<float, 2> weight;
  std::optional<Tensor<float, 1>> bias;
  STELE_MODULE(Linear, weight, bias)
};
/// Mlp of pytorch_objects.py.
struct Mlp {
  Linear fc1, fc2;
  STELE_MODULE(Mlp, fc1, fc2)
};
struct Many {
  std::vector<Tensor<float, 1>> layers;
  STELE_MODULE(Many, layers)
};
struct Tied {
  std::shared_ptr<Tensor<float, 2>> embed, other, head;
  STELE_MODULE(Tied, embed, other, head)
};
struct Dtypes {
  Tensor<double, 2> f64;
  Tensor<float16, 2> f16;
  Tensor<bfloat16, 2> bf16;
  Tensor<std::int64_t, 2> i64;
  Tensor<std::int16_t, 2> i16;
  Tensor<std::int8_t, 2> i8;
  Tensor<std::uint8_t, 2> u8;
  Tensor<std::uint64_t, 2> u64;
  Tensor<bool, 2> boolean;
  Tensor<std::complex<float>, 2> c64;
  Tensor<float, 0> scalar;
  Tensor<float, 3> empty;
  STELE_MODULE(Dtypes, f64, f16, bf16, i64, i16, i8, u8, u64, boolean, c64, scalar, empty)
};

/// Returns a tensor whose element k is k % 7 (or k % 2).
template <class T, std::size_t Rank>
Tensor<T, Rank> counted(std::array<Extent, Rank> shape) {
  Tensor<T, Rank> tensor(shape);
  for (std::size_t k = 0; k < tensor.size(); ++k) {
    if constexpr (std::is_same_v<T, bool>) {
      tensor[k] = k % 2 != 0;
    } else {
      tensor[k] = static_cast<T>(static_cast<float>(k % 7));
    }
  }
  return tensor;
}

void write_own(const fs::path& folder) {
  const auto at = [&](const char* name) { return (folder / (std::string("own_") + name + ".ours.pt")).string(); };
  const PytorchRecorder<> recorder;
  recorder.save(Snapshot(), at("zero")).value();
  recorder.save(Mlp{{counted<float, 2>({3, 2}), counted<float, 1>({3})}, {counted<float, 2>({4, 3}), {}}}, at("mlp"))
      .value();
  Many many;
  for (Extent i = 0; i < 10000; ++i) many.layers.push_back(counted<float, 1>({i % 5}));
  recorder.save(many, at("many")).value();
  Tied tied;
  tied.embed = tied.head = std::make_shared<Tensor<float, 2>>(counted<float, 2>({7, 5}));
  tied.other = std::make_shared<Tensor<float, 2>>(counted<float, 2>({7, 5}));
  recorder.save(tied, at("tied")).value();
  Dtypes dtypes{counted<double, 2>({2, 5}),
                counted<float16, 2>({2, 5}),
                counted<bfloat16, 2>({2, 5}),
                counted<std::int64_t, 2>({2, 5}),
                counted<std::int16_t, 2>({2, 5}),
                counted<std::int8_t, 2>({2, 5}),
                counted<std::uint8_t, 2>({2, 5}),
                counted<std::uint64_t, 2>({2, 5}),
                counted<bool, 2>({2, 5}),
                counted<std::complex<float>, 2>({2, 5}),
                counted<float, 0>({}),
                counted<float, 3>({2, 0, 3})};
  recorder.save(dtypes, at("dtypes")).value();
}

bool write(const fs::path& folder) {
  Findings findings;
  std::size_t files = 0;
  for (const fs::path& marker : files_with(folder, ".write")) {
    const std::string how = content(marker), base = (folder / marker.stem()).string(), from = base + ".pt";
    findings.begin("write " + marker.stem().string());
    const auto note = [&](const auto& done) {
      if (!done) findings.add(done.error().to_string());
    };
    const PytorchRecorder<> recorder;
    const Result<Snapshot> opened = recorder.open(from);
    if (!opened) {
      findings.add(opened.error().to_string());
      continue;
    }
    note(recorder.save(*opened, base + ".ours.pt"));
    if (how.find("half") != std::string::npos) {
      note(PytorchRecorder<HalfPrecision>().save(*opened, base + ".half.ours.pt"));
      note(PytorchRecorder<DoublePrecision>().save(*opened, base + ".double.ours.pt"));
    }
    if (how.find("checkpoint") != std::string::npos) {
      PytorchOptions options;
      options.buffers.emplace_back("mask");  // of the transformer
      const Result<Checkpoint> checkpoint = PytorchRecorder<>(PytorchFormat(options)).open_checkpoint(from);
      note(checkpoint);
      if (checkpoint) note(recorder.save(*checkpoint, base + ".checkpoint.ours.pt"));
    }
    ++files;
  }
  write_own(folder);
  std::printf("%zu files written, %zu findings\n", files, findings.all());
  return findings.all() == 0;
}

}  // namespace

int main(int count, char** arguments) try {
  const std::string what = count == 3 ? arguments[1] : "";
  if (what == "check") return check(arguments[2]) ? 0 : 1;
  if (what == "write") return write(arguments[2]) ? 0 : 1;
  std::fprintf(stderr, "usage: %s check|write FOLDER\n", arguments[0]);
  return 2;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
