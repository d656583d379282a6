#include "leaf_check.hpp"

#include <utility>

namespace stele::command {

namespace {

class CheckSink final : public PieceSink {
 public:
  explicit CheckSink(Progress& progress) : progress_(progress) {}
  Status piece(std::span<const std::byte> bytes) override {
    return progress_.add(bytes.size()) ? Status() : Progress::cancelled();
  }

 private:
  Progress& progress_;
};

}  // namespace

Result<std::vector<std::optional<Error>>> damaged_leaves(const Snapshot& snapshot, Terminal& terminal) {
  std::vector<std::optional<Error>> errors(snapshot.leaf_count());
  Progress progress(terminal, "checking", snapshot.byte_size());
  STELE_TRY(for_each_leaf(snapshot, errors.size(), terminal.common().threads,
                          [&](std::size_t i, ReadContext& context) -> Status {
                            CheckSink sink(progress);
                            auto result = snapshot.leaf(i).stream(sink, context);
                            if (result) return {};
                            if (result.error().code() == Errc::cancelled) return result;
                            errors[i] = std::move(result).error();
                            return {};
                          }));
  return errors;
}

Result<std::vector<Damage>> damages(const Snapshot& snapshot, const std::vector<std::optional<Error>>& errors) {
  std::vector<Damage> rows;
  STELE_TRY_ASSIGN(const auto names, names_of(snapshot));
  for (const Named& named : names) {
    const auto& error = errors[named.leaf];
    if (!error) continue;
    const LeafView leaf = snapshot.leaf(named.leaf);
    std::string range;
    if (const auto place = leaf.location()) {
      range = "bytes " + std::to_string(place->offset) + " to " + std::to_string(place->offset + leaf.byte_size());
    } else if (error->offset()) {
      range = "byte " + std::to_string(*error->offset());
    }
    std::string text(name(error->code()));
    if (!error->message().empty()) text += ": " + std::string(error->message());
    rows.push_back({named.name, std::move(range), std::move(text)});
  }
  return rows;
}

}  // namespace stele::command
