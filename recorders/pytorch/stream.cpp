// The streams that torch.save wrote before 1.6: five pickles, then the storages (docs/formats/pytorch.md).
#include <map>
#include <set>
#include <utility>

#include "file.hpp"

namespace stele::inline v0::detail::pytorch {
namespace {

using pickle::Kind;
using pickle::Objects;
using pickle::Ref;

class StreamStorages final : public Storages {
 public:
  Result<Storage*> find(std::string_view key) override {
    const auto found = by_key.find(std::string(key));
    if (found != by_key.end()) return found->second;
    return Error(Errc::malformed, "the file has no storage with this key").found(std::string(key.substr(0, 200)));
  }
  std::map<std::string, Storage*> by_key;
};

/// The number 0x1950a86a20f9469cfc6c as a long integer.
constexpr std::string_view magic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);
constexpr std::int64_t protocol_version = 1001;

/// Returns the key of a storage's persistent id and the size of its elements; the size is 0 for any other id.
std::pair<std::string, unsigned> storage_of(const Objects& objects, Ref r) {
  const Ref id = objects.args(r);
  if (!objects.is(id, Kind::tuple)) return {};
  const auto items = objects.items(id);
  if (items.size() < 5 || !objects.is(items[0], Kind::string) || objects.text(items[0]) != "storage") return {};
  if (!objects.is(items[1], Kind::global) || !objects.is(items[2], Kind::string)) return {};
  const TorchType* type = type_of_storage(objects.name(items[1]));
  return {std::string(objects.text(items[2])), type != nullptr ? type->size : 1};
}

}  // namespace

Result<File> open_stream(const SourcePtr& source, IndexBudget& memory) {
  Cursor cursor(source);
  const auto bad = [&](const char* what) {
    return Error(Errc::malformed, what).file(source->name()).offset(cursor.position());
  };
  memory.admit(source->size(), index_rate::token);
  STELE_TRY_ASSIGN(const Objects first, pickle::read(cursor, memory));
  if (!first.is(first.root(), Kind::big) || first.text(first.root()) != magic) {
    return Error(Errc::bad_magic, "the stream does not begin with PyTorch's magic number").file(source->name());
  }
  STELE_TRY_ASSIGN(const Objects version, pickle::read(cursor, memory));
  if (!version.is(version.root(), Kind::integer) || version.integer(version.root()) != protocol_version) {
    return Error(Errc::unsupported, "the version of the stream is unknown")
        .file(source->name())
        .expected(std::to_string(protocol_version));
  }
  STELE_TRY_ASSIGN(const Objects system, pickle::read(cursor, memory));
  if (!system.is(system.root(), Kind::dict)) return bad("the stream does not describe its system");
  // Elements are little-endian, even if the dict declares another order: PyTorch swaps their bytes on save
  // (torch/serialization.py).
  STELE_TRY_ASSIGN(Objects objects, pickle::read(cursor, memory));
  STELE_TRY_ASSIGN(const Objects keys, pickle::read(cursor, memory));
  if (!keys.is(keys.root(), Kind::list)) return bad("the stream has no list of its storages");

  std::map<std::string, unsigned> sizes;
  for (Ref r = 0; r < objects.size(); ++r) {
    if (!objects.is(r, Kind::persistent)) continue;
    auto [key, size] = storage_of(objects, r);
    if (size == 0) continue;
    if (!memory.take(storage_memory + key.size())) return index_error("the file's storages need too much memory");
    sizes.emplace(std::move(key), size);
  }
  auto storages = std::make_shared<StreamStorages>();
  for (const Ref r : keys.items(keys.root())) {
    if (!keys.is(r, Kind::string)) return bad("the key of a storage is not a string");
    std::string key(keys.text(r));
    const auto size = sizes.find(key);
    if (size == sizes.end()) return bad("no tensor uses a storage of the stream").found(key.substr(0, 200));
    STELE_TRY_ASSIGN(const auto count, cursor.little<std::uint64_t>());
    const auto bytes = checked_mul(count, size->second);
    if (!bytes || *bytes > cursor.left()) {
      return Error(Errc::truncated, "the file ends inside a storage")
          .file(source->name())
          .offset(cursor.position())
          .expected(std::to_string(count) + " elements of " + std::to_string(size->second) + " bytes")
          .found(std::to_string(cursor.left()) + " bytes");
    }
    if (!memory.take(storage_memory + key.size())) return index_error("the file's storages need too much memory");
    Storage& storage = storages->add();
    storage.source = source;
    storage.offset = cursor.position();
    storage.size = *bytes;
    if (!storages->by_key.emplace(std::move(key), &storage).second) return bad("a storage occurs twice");
    STELE_TRY(cursor.skip(*bytes));
  }
  return File{source->name(), std::move(objects), std::move(storages)};
}

}  // namespace stele::inline v0::detail::pytorch
