// Files for openvino_files.py.
//
//   interop_openvino stored FILE OUT          writes the constants of a model as lines: name, dtype, shape, bytes
//   interop_openvino into MODEL SOURCE OUT    writes the constants of another file into a model
#include <stele/composite.hpp>
#include <stele/recorders/openvino.hpp>
#include <stele/stele.hpp>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace {

using namespace stele;

std::string hex(std::span<const std::byte> bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte b : bytes) {
    text += {digits[std::to_integer<unsigned>(b) >> 4], digits[std::to_integer<unsigned>(b) & 15U]};
  }
  return text;
}

Status list(const std::string& from, const std::string& to) {
  STELE_TRY_ASSIGN(const Snapshot opened, open(from));
  STELE_TRY_ASSIGN(const Snapshot parts, split_composites(opened));
  std::ofstream out(to);
  for (const Node& node : parts.nodes()) {
    if (node.kind != NodeKind::tensor) continue;
    const LeafView leaf = parts.leaf(node.index);
    std::vector<std::byte> bytes(static_cast<std::size_t>(leaf.byte_size()));
    STELE_TRY(leaf.read(0, bytes));
    std::string shape;
    for (const Extent e : leaf.shape()) shape += (shape.empty() ? "" : ",") + std::to_string(e);
    out << hex(std::as_bytes(std::span(std::string_view(node.name, node.name_size)))) << ' ' << name(leaf.dtype())
        << " [" << shape << "] x" << hex(bytes) << '\n';
  }
  return {};
}

Status into(const std::string& model, const std::string& source, const std::string& to) {
  STELE_TRY_ASSIGN(const Snapshot snapshot, open(source));
  STELE_TRY(OpenvinoRecorder<>(OpenvinoFormat({.model = model})).save(snapshot, to));
  return {};
}

}  // namespace

int main(int count, char** arguments) {
  const std::vector<std::string> all(arguments + 1, arguments + count);
  Status done = Error(Errc::invalid_argument, "stored FILE OUT, or into MODEL SOURCE OUT");
  if (all.size() == 3 && all[0] == "stored") done = list(all[1], all[2]);
  if (all.size() == 4 && all[0] == "into") done = into(all[1], all[2], all[3]);
  if (done) return 0;
  std::fprintf(stderr, "%s\n", done.error().to_string().c_str());
  return 1;
}
