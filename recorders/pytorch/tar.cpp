// The tar files that torch.save wrote before 0.1.10 (docs/formats/pytorch.md).
#include <map>
#include <utility>

#include "encodings/tar/tar.hpp"
#include "file.hpp"

namespace stele::inline v0::detail::pytorch {
namespace {

using pickle::Kind;
using pickle::Objects;
using pickle::Ref;

/// Tensors refer to storages by position, so no key is looked up later.
class TarStorages final : public Storages {
 public:
  Result<Storage*> find(std::string_view) override {
    return Error(Errc::malformed, "an object of a tar file refers to a storage by a key");
  }
};

/// A storage, or a part of one.
struct Base {
  Storage* storage = nullptr;
  std::uint64_t offset = 0;  // in elements
};

class TarReader {
 public:
  TarReader(std::shared_ptr<const Bundle> files, std::string name, IndexBudget& memory)
      : files_(std::move(files)), name_(std::move(name)), memory_(memory) {}

  Result<File> run() {
    STELE_TRY(read_storages());
    STELE_TRY(read_tensors());
    STELE_TRY_ASSIGN(const SourcePtr source, files_->open("pickle"));
    Cursor cursor(source);
    STELE_TRY_ASSIGN(Objects objects, pickle::read(cursor, memory_));
    return File{name_, std::move(objects), std::move(storages_), std::move(tensors_)};
  }

 private:
  static Error bad(const Cursor& at, const char* what) {
    return Error(Errc::malformed, what).file(at.source()->name()).offset(at.position());
  }

  Result<std::uint64_t> count(Cursor& in) {
    STELE_TRY_ASSIGN(const Objects number, pickle::read(in, memory_));
    if (!number.is(number.root(), Kind::integer) || number.integer(number.root()) < 0) {
      return bad(in, "the number of storages or tensors is missing");
    }
    return static_cast<std::uint64_t>(number.integer(number.root()));
  }

  /// Returns the leading integers of a tuple or list.
  static std::vector<std::int64_t> integers(const Objects& objects, Ref tuple) {
    std::vector<std::int64_t> all;
    if (!objects.is(tuple, Kind::tuple) && !objects.is(tuple, Kind::list)) return all;
    for (const Ref item : objects.items(tuple)) {
      if (!objects.is(item, Kind::integer)) break;
      all.push_back(objects.integer(item));
    }
    return all;
  }

  Status read_storages() {
    STELE_TRY_ASSIGN(const SourcePtr source, files_->open("storages"));
    Cursor in(source);
    STELE_TRY_ASSIGN(const std::uint64_t n, count(in));
    for (std::uint64_t i = 0; i < n; ++i) {
      STELE_TRY_ASSIGN(const Objects head, pickle::read(in, memory_));
      const auto items = head.is(head.root(), Kind::tuple) ? head.items(head.root()) : std::span<const Ref>();
      const bool complete = items.size() == 3 && head.is(items[0], Kind::integer) && head.is(items[2], Kind::global);
      const TorchType* type = complete ? type_of_storage(head.name(items[2])) : nullptr;
      if (type == nullptr) return bad(in, "the header of a storage is invalid");
      STELE_TRY_ASSIGN(const auto elements, in.little<std::uint64_t>());
      const auto bytes = checked_mul(elements, type->size);
      if (!bytes || *bytes > in.left()) {
        return Error(Errc::truncated, "the member ends inside a storage")
            .file(source->name())
            .offset(in.position())
            .expected(std::to_string(elements) + " elements of " + std::to_string(type->size) + " bytes")
            .found(std::to_string(in.left()) + " bytes");
      }
      if (!memory_.take(storage_memory)) return index_error("the file's storages need too much memory");
      Storage& storage = storages_->add();
      storage.source = source;
      storage.offset = in.position();
      storage.size = *bytes;
      storage.type = type;
      if (!bases_.emplace(head.integer(items[0]), Base{&storage, 0}).second) return bad(in, "a storage occurs twice");
      STELE_TRY(in.skip(*bytes));
    }
    return read_views(in);
  }

  /// Reads the storages that are parts of other storages: a list of (key, key of the other storage, offset, size).
  Status read_views(Cursor& in) {
    STELE_TRY_ASSIGN(const bool none, in.at_end());
    if (none) return {};
    STELE_TRY_ASSIGN(const Objects views, pickle::read(in, memory_));
    if (!views.is(views.root(), Kind::list)) return bad(in, "the list of storages' views is missing");
    for (const Ref r : views.items(views.root())) {
      const auto numbers = integers(views, r);
      if (numbers.size() != 4 || numbers[2] < 0) return bad(in, "a view of a storage is invalid");
      const auto root = bases_.find(numbers[1]);
      if (root == bases_.end()) return bad(in, "a view refers to a storage that is not in the file");
      if (!memory_.take(storage_memory)) return index_error("the file's storages need too much memory");
      bases_.emplace(numbers[0], Base{root->second.storage, static_cast<std::uint64_t>(numbers[2])});
    }
    return {};
  }

  Status read_tensors() {
    STELE_TRY_ASSIGN(const SourcePtr source, files_->open("tensors"));
    Cursor in(source);
    STELE_TRY_ASSIGN(const std::uint64_t n, count(in));
    for (std::uint64_t i = 0; i < n; ++i) STELE_TRY(read_tensor(in));
    return {};
  }

  Status read_tensor(Cursor& in) {
    STELE_TRY_ASSIGN(const Objects head, pickle::read(in, memory_));
    const auto keys = integers(head, head.root());
    const auto base = keys.size() >= 2 ? bases_.find(keys[1]) : bases_.end();
    if (base == bases_.end()) return bad(in, "a tensor refers to a storage that is not in the file");
    STELE_TRY_ASSIGN(const auto rank, in.little<std::int32_t>());
    STELE_TRY(in.skip(4));
    constexpr std::int32_t max_rank = 1024;  // the reader takes a tensor's numbers at once: 8 KiB for each kind
    if (rank < 0 || rank > max_rank) return bad(in, "the number of dimensions is out of range");
    const auto count = static_cast<std::size_t>(rank);
    View view;
    view.storage = base->second.storage;
    view.type = view.storage->type;
    const auto list = [&]() -> Result<std::vector<std::uint64_t>> {
      STELE_TRY_ASSIGN(const std::byte* bytes, in.take(8 * count));
      std::vector<std::uint64_t> all(count);
      for (std::size_t i = 0; i < count; ++i) all[i] = load_le<std::uint64_t>(bytes + 8 * i);
      return all;
    };
    STELE_TRY_ASSIGN(const std::vector<std::uint64_t> extents, list());
    STELE_TRY_ASSIGN(view.strides, list());
    STELE_TRY_ASSIGN(view.offset, in.little<std::uint64_t>());
    if (__builtin_add_overflow(view.offset, base->second.offset, &view.offset))
      return bad(in, "the offset is too large");
    view.shape = Shape(std::span<const Extent>(extents));
    if (!memory_.take(sizeof(View) + 96 + 24 * count)) return index_error("the file's tensors need too much memory");
    if (auto status = check_view(view); !status)
      return std::move(status).error().file(in.source()->name()).offset(in.position());
    if (!tensors_.emplace(keys[0], std::move(view)).second) return bad(in, "a tensor occurs twice");
    return {};
  }

  std::shared_ptr<const Bundle> files_;
  std::string name_;
  IndexBudget& memory_;
  std::shared_ptr<TarStorages> storages_ = std::make_shared<TarStorages>();
  std::map<std::int64_t, Base> bases_;
  std::unordered_map<std::int64_t, View> tensors_;
};

}  // namespace

Result<File> open_tar(const SourcePtr& source, const Limits& limits, IndexBudget& memory) {
  memory.admit(source->size(), index_rate::token);
  STELE_TRY_ASSIGN(auto files, tar::open(source, limits));
  return TarReader(std::move(files), source->name(), memory).run();
}

}  // namespace stele::inline v0::detail::pytorch
