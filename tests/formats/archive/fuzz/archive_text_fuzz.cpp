// Reads bytes as one of the parts of an archive, which the first byte chooses: what was read is written, and reads as
// the same. The zip file around them would keep a fuzzer out.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "dl4j/arrays.hpp"
#include "fuzz/require.hpp"
#include "recorders/archive/graph_fb.hpp"
#include "recorders/archive/lines.hpp"

namespace {

using stele_test::require;

using namespace stele;
using namespace stele::detail;
using namespace stele::detail::archive;

constexpr std::uint64_t memory = 1U << 24U;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

void check_tags(std::string_view text) {
  const auto tags = parse_tags(text);
  if (!tags) return;
  for (const std::string& tag : *tags) require(valid_tag(tag) && same_tag(tag, folded(tag)));
  const auto again = parse_tags(tags_text(*tags));
  require(again && *again == *tags);
}

bool same(const Line& a, const Line& b) {
  return a.name == b.name && a.arrays == b.arrays && a.keys == b.keys && a.kind == b.kind;
}

void check_lines(std::string_view text) {
  const auto lines = parse_lines(text, memory);
  if (!lines) return;
  const auto again = parse_lines(lines_text(*lines), memory);
  require(again && std::equal(lines->begin(), lines->end(), again->begin(), again->end(), same));
}

void check_graph(std::span<const std::byte> bytes) {
  const auto graph = read_graph(bytes, memory);
  if (!graph) return;
  if (const auto order = graph->order()) require(order->size() == graph->operations.size());
  const auto written = write_graph(*graph);
  if (!written) return;
  const auto again = read_graph(bytes_of(*written), 16 * memory);
  require(again.has_value());
  // A custom operation's number is found where it is 0, NaNs are never equal.
  const auto twice = write_graph(*again);
  require(twice && *twice == *written);
}

void check_training(std::span<const std::byte> bytes) {
  const auto training = read_training(bytes, memory);
  if (!training) return;
  const std::string written = write_training(*training, nullptr);
  const auto again = read_training(bytes_of(written), memory);
  require(again && again->json == training->json && again->state_keys == training->state_keys);
}

void check_array(std::span<const std::byte> bytes) {
  const auto head = samediff::read_head(bytes, bytes.size());
  if (!head) return;
  require(head->has_value());
  const samediff::ArrayHead& whole = **head;
  require(whole.begin <= whole.end && whole.end <= bytes.size());
  if (!whole.external.empty()) require(whole.begin == whole.end);
  if (whole.external.empty() && whole.facts.dtype != DType::string) {
    require(whole.end - whole.begin == whole.facts.bytes);
  }
  if (whole.facts.dtype == DType::string && whole.external.empty()) {
    const auto content = bytes.subspan(whole.begin, whole.end - whole.begin);
    static_cast<void>(samediff::Arrays().add_texts("texts", whole.facts, content));
  }
  // As much as its content leaves says the same.
  for (const std::size_t known : {static_cast<std::size_t>(whole.begin), bytes.size() / 2, std::size_t{64}}) {
    const auto part = samediff::read_head(bytes.first(std::min(known, bytes.size())), bytes.size());
    if (!part || !*part) continue;
    require((*part)->begin == whole.begin && (*part)->end == whole.end && (*part)->facts.shape == whole.facts.shape &&
            (*part)->facts.dtype == whole.facts.dtype && (*part)->facts.big_endian == whole.facts.big_endian);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  // FlatBuffers are read where an allocation begins, or a page.
  const std::string copy(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Bytes aligned = [&] {
    Bytes bytes(copy.size());
    std::copy(copy.begin(), copy.end(), reinterpret_cast<char*>(bytes.data()));
    return bytes;
  }();
  switch (data[0] % 5) {
    case 0:
      check_tags(copy);
      break;
    case 1:
      check_lines(copy);
      break;
    case 2:
      check_graph(aligned.span());
      break;
    case 3:
      check_training(aligned.span());
      break;
    default:
      check_array(aligned.span());
  }
  return 0;
}
