// Digests of models.
#include "facts/hash.hpp"

#include <algorithm>
#include <utility>

#include "base/hash.hpp"
#include "base/hex.hpp"

namespace stele::facts {

namespace {

class Xxh3 final : public Digest {
 public:
  Xxh3() { hasher_.reset(); }
  void update(std::span<const std::byte> bytes) override { hasher_.update(bytes.data(), bytes.size()); }
  std::string finish() override { return detail::hex(hasher_.digest(), 16); }

 private:
  detail::Hasher hasher_;
};

class DigestSink final : public PieceSink {
 public:
  DigestSink(Digest& digest, const Advance& advance) : digest_(digest), advance_(advance) {}
  Status piece(std::span<const std::byte> bytes) override {
    digest_.update(bytes);
    return advanced(advance_, bytes.size());
  }

 private:
  Digest& digest_;
  const Advance& advance_;
};

}  // namespace

Result<std::unique_ptr<Digest>> xxh3() { return std::unique_ptr<Digest>(std::make_unique<Xxh3>()); }

// The digest of all tensors is the digest of a text, version 2: the line "stele hash 2\n", then one for each name,
// sorted by bytes: "HEX  DTYPE  [2, 3]  BYTES  NAME\n". BYTES is the length of NAME, so that no name looks like several
// lines. It does not depend on the order of tensors in the file, or on ties.
Result<Hashed> hashed(const Snapshot& snapshot, const DigestMaker& make, const Loop& loop, const Advance& advance) {
  Hashed found;
  STELE_TRY_ASSIGN(found.names, names_of(snapshot));
  found.digests.resize(snapshot.leaf_count());
  STELE_TRY(loop(found.digests.size(), [&](std::size_t i, ReadContext& context) -> Status {
    STELE_TRY_ASSIGN(const auto digest, make());
    DigestSink sink(*digest, advance);
    STELE_TRY(snapshot.leaf(i).stream(sink, context));
    found.digests[i] = digest->finish();
    return {};
  }));
  std::vector<const Named*> order;
  for (const Named& named : found.names) order.push_back(&named);
  std::sort(order.begin(), order.end(), [](const Named* a, const Named* b) { return a->name < b->name; });
  STELE_TRY_ASSIGN(const auto total, make());
  total->update("stele hash 2\n");
  for (const Named* const named : order) {
    const LeafView leaf = snapshot.leaf(named->leaf);
    total->update(found.digests[named->leaf] + "  " + std::string(name(leaf.dtype())) + "  " + to_string(leaf.shape()) +
                  "  " + std::to_string(named->name.size()) + "  " + named->name + "\n");
  }
  found.total = total->finish();
  return found;
}

}  // namespace stele::facts
