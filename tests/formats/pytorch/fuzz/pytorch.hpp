// Shared by the fuzz targets of PyTorch's files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.hpp"
#include "stele/recorders/pytorch.hpp"
#include "support/recorders.hpp"

namespace stele_test {

/// Opens a file, reads its tensors, and its parts as a checkpoint. What was read whole is written, and reads the same.
inline void read_pytorch(std::string_view file) {
  using namespace stele;
  constexpr std::uint64_t max_bytes = std::uint64_t{4} << 20;  // an expanded tensor has any size
  const PytorchRecorder<> recorder;
  if (const auto checkpoint = recorder.open_checkpoint(bytes_of(file))) {
    for (const auto& [kind, arrays] : checkpoint->optimizer.kinds()) require(!kind.empty() || arrays.leaf_count() != 0);
  } else {
    require(checkpoint.error().code() != Errc::out_of_memory);
  }
  const auto opened = recorder.open(bytes_of(file));
  if (!opened) {
    require(opened.error().code() != Errc::out_of_memory);
    return;
  }
  std::string before;
  for (std::size_t i = 0; i < opened->leaf_count(); ++i) {
    const LeafView leaf = opened->leaf(i);
    if (leaf.byte_size() > max_bytes || before.size() > max_bytes) return;
    const auto all = content(leaf);
    if (!all) return;  // a wrong checksum
    require(all->size() == leaf.byte_size());
    before += *all;
  }
  SaveOptions options = quick();
  options.allow_loss = true;
  const auto again = saved(recorder, *opened, options);
  if (!again) return;  // names that are not UTF-8, dtypes that are not written
  const auto back = recorder.open(*again);
  require(back.has_value() && back->leaf_count() <= opened->leaf_count());
  if (back->leaf_count() != opened->leaf_count()) return;  // losses
  std::string after;
  for (std::size_t i = 0; i < back->leaf_count(); ++i) {
    const auto all = content(back->leaf(i));
    require(all.has_value());
    after += *all;
  }
  require(after.size() == before.size());
}

}  // namespace stele_test
