// Passes bytes of any format through the whole library: open, load into classes, verify, convert to three formats.
// Counts live memory and checks its bound at each step.
#include <sanitizer/allocator_interface.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "support/random_model.hpp"
#include "support/recorders.hpp"

namespace {

using namespace stele;
using namespace stele_test;

std::atomic<std::int64_t> live{0};
std::atomic<std::int64_t> peak{0};

void allocated(const volatile void*, std::size_t size) {
  const std::int64_t now = live += static_cast<std::int64_t>(size);
  std::int64_t before = peak;
  while (before < now && !peak.compare_exchange_weak(before, now)) {
  }
}
void freed(const volatile void* memory) {
  live -= static_cast<std::int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(memory)));
}

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "any_fuzz: %s\n", what);
  std::abort();
}

constexpr std::int64_t mebi = std::int64_t{1} << 20;
/// Maximum size of the tensors of one load. Larger ones are refused.
constexpr std::int64_t tensor_bytes = 32 * mebi;
/// Heap memory for each byte of the file: that of a compressed JSON document, the largest of all formats (see
/// docs/design.md). In addition, twice the library's own 16 MiB, because small tensors are allocated in blocks of 32
/// MiB.
constexpr std::int64_t memory_factor = 64;
constexpr std::int64_t memory_base = 32 * mebi;

/// Runs `step` and checks the bound of its peak memory.
template <class Step>
auto bounded(const char* what, std::int64_t bound, Step step) {
  const std::int64_t before = live;
  peak = before;
  auto result = step();
  if (peak - before > bound) std::fprintf(stderr, "%s took %ld bytes\n", what, static_cast<long>(peak - before));
  require(peak - before <= bound, "more memory than the file's size allows");
  return result;
}

std::set<std::string> names(const Snapshot& snapshot) {
  std::set<std::string> all;
  const auto layout = layout_of(snapshot);
  if (!layout) return all;
  for (const Layout::Tensor& tensor : layout->tensors) all.insert(tensor.path);
  return all;
}

/// Requires that a file saved without an error opens again, with every tensor.
template <class R>
void convert_to(const R& recorder, const Snapshot& from) {
  const auto bytes = saved(recorder, from);
  if (!bytes) return;
  const auto back = recorder.open(bytes->span());
  if (!back) std::fprintf(stderr, "%s\n", back.error().to_string().c_str());
  require(back.has_value(), "saved, then refused");
  require(names(*back) == names(from), "saved with other tensors");
}

void check(std::span<const std::byte> file) {
  const std::int64_t own = memory_base + memory_factor * static_cast<std::int64_t>(file.size());
  LoadOptions options;
  options.limits.tensor_bytes = options.limits.total_bytes = static_cast<std::uint64_t>(tensor_bytes);
  options.limits.index_bytes = static_cast<std::uint64_t>(own);
  const auto opened = bounded("open", own, [&] { return open(file, options); });
  if (!opened) {
    require(opened.error().to_string().size() < std::size_t{1} << 16, "an error of more than 64 KiB");
    return;
  }
  const auto load = [&](auto example, LoadOptions how) {
    using M = decltype(example);
    Report report;
    how.report = &report;
    static_cast<void>(bounded("load", own + 2 * tensor_bytes, [&] { return v0::load<M>(*opened, how); }));
    require(report.to_string().size() < 2 * static_cast<std::size_t>(own), "a report larger than the memory's bound");
  };
  using Tensors = std::map<std::string, Tensor<float>>;
  load(Tensors(), options);
  options.allow_missing = options.allow_unused = {"*"};
  options.convert = {true, true};
  load(Tensors(), options);
  load(Branch(), options);

  const auto format = format_of_content(*borrow_bytes(file));
  require(format.has_value(), "opened, but its format is unknown");
  if (opened->byte_size() > static_cast<std::uint64_t>(tensor_bytes)) return;
  const auto verified = bounded("verify", own, [&] { return verify(**format, file); });
  if (!verified) return;
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    const auto bytes = content(opened->leaf(i));
    require(bytes.has_value(), "verified, but not readable");
    if (!means_something(opened->leaf(i).dtype(), *bytes)) return;
  }
  bounded("convert", own + 4 * tensor_bytes, [&] {
    convert_to(BytesRecorder<>(), *opened);
    convert_to(SafetensorsRecorder<>(), *opened);
    convert_to(JsonRecorder<>(), *opened);
    return 0;
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int hooks = __sanitizer_install_malloc_and_free_hooks(allocated, freed);
  require(hooks > 0, "no space for hooks");
  check(std::as_bytes(std::span(data, size)));
  return 0;
}
