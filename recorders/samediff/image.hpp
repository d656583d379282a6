// Makes and writes the contents of one file of a model.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan.hpp"
#include "snapshot/leaf_gather.hpp"
#include "stele/snapshot.hpp"

namespace stele::inline v0::detail::samediff {

/// The contents of a file: pieces of memory and of leaves.
struct Image {
  struct Piece {
    std::span<const std::byte> bytes;
    std::optional<LeafView> leaf;
  };
  std::vector<Piece> pieces;
  std::uint64_t size = 0;
  std::vector<std::shared_ptr<const void>> keepers;

  void add(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    pieces.push_back({bytes, {}});
    size += bytes.size();
  }
  void add(std::string text) {
    auto kept = std::make_shared<const std::string>(std::move(text));
    add(std::as_bytes(std::span(*kept)));
    keepers.push_back(std::move(kept));
  }
  void add(const LeafView& leaf) {
    if (leaf.byte_size() == 0) return;
    pieces.push_back({{}, leaf});
    size += leaf.byte_size();
  }
};

/// The parts of a model in one file.
struct ImageParts {
  bool graph = true;
  std::vector<std::size_t> arrays;              // indexes of variables
  std::map<std::string, std::string> metadata;  // the file's metadata, in addition to the user's
};
/// Makes a file: an .sdnb, or an .fb for that container. The image borrows the plan. Errors: limit (2 GiB).
Result<Image> make_image(const ModelPlan& plan, const ImageParts& parts);

/// Writes a file; sets `crc` to its CRC-32 unless null.
Status write(const Image& image, LeafGather& out, ReadContext& context, std::uint32_t* crc = nullptr);
Result<std::uint32_t> crc_of(const Image& image, ReadContext& context);

}  // namespace stele::inline v0::detail::samediff
