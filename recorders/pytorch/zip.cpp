// The zip files that torch.save, TorchScript and libtorch write.
#include <charconv>
#include <utility>

#include "encodings/zip/rebuild.hpp"
#include "zip.hpp"

namespace stele::inline v0::detail::pytorch {
namespace {

using zip::Directory;

/// Reads a small record as text.
Result<std::string> text_of(const Directory& directory, const zip::Entry& entry, bool check) {
  constexpr std::uint64_t max_text = 4096;
  STELE_TRY_ASSIGN(const Bytes bytes, read_record(directory, entry, max_text, check));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

/// Checks the container's version: caffe2/serialize/versions.h defines 1 to 10.
Status check_version(const Directory& directory, std::string_view root, bool check) {
  constexpr unsigned newest = 10;
  const zip::Entry* entry = find_entry(directory, root, "version");
  if (entry == nullptr) entry = find_entry(directory, root, ".data/version");
  if (entry == nullptr) return {};
  STELE_TRY_ASSIGN(const std::string text, text_of(directory, *entry, check));
  unsigned version = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), version);
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (status != std::errc() || rest.find_first_not_of(" \r\n") != rest.npos) {
    return Error(Errc::malformed, "the version is not a number").path(std::string(entry->name));
  }
  if (version == 0 || version > newest) {
    return Error(Errc::unsupported, "the version of the file is unknown")
        .path(std::string(entry->name))
        .expected("1 to " + std::to_string(newest))
        .found(std::to_string(version));
  }
  return {};
}

/// The bytes of a storage that is missing from the file.
class LostSource final : public Source {
 public:
  explicit LostSource(std::string name) : Source(std::move(name)) {}
  std::uint64_t size() const noexcept override { return 0; }
  Status read_at(std::uint64_t, std::span<std::byte>) const override {
    return Error(Errc::truncated, "the tensor's storage is not in the file").file(name());
  }
};

}  // namespace

Result<Storage*> ZipStorages::find(std::string_view key) {
  // Keys usually count up in the order of the entries.
  const auto entries = directory_->entries();
  const auto is_next = [&](std::string_view name) {
    return name.size() == folder_.size() + key.size() && name.starts_with(folder_) && name.ends_with(key);
  };
  const zip::Entry* const entry = next_ < entries.size() && is_next(entries[next_].name)
                                      ? &entries[next_]
                                      : directory_->find(std::string(folder_).append(key));
  if (entry != nullptr) {
    next_ = index_of(*entry) + 1;
    return storage(*entry);
  }
  if (zip::omitted_entries(*directory_->source()) != nullptr) return lost(key);
  return Error(Errc::malformed, "the file has no record for the storage").found(std::string(key.substr(0, 200)));
}

Result<Storage*> ZipStorages::lost(std::string_view key) {
  const auto [found, added] = lost_.try_emplace(std::string(key));
  if (!added) return found->second;
  if (!memory_.take(2 * storage_memory + key.size())) return index_error("the file's storages need too much memory");
  found->second = &add();
  found->second->lost = true;
  found->second->source = std::make_shared<LostSource>(directory_->source()->name());
  return found->second;
}

Result<Storage*> ZipStorages::storage(const zip::Entry& entry) {
  const std::size_t entries = directory_->entries().size();
  if (known_.empty() && memory_.take(entries * sizeof(void*))) known_.resize(entries);
  if (known_.empty()) return index_error("the file's storages need too much memory");
  Storage*& known = known_[index_of(entry)];
  if (known != nullptr) return known;
  if (!memory_.take(storage_memory)) return index_error("the file's storages need too much memory");
  Storage& storage = add();
  storage.size = entry.size;
  storage.crc = entry.crc;
  storage.has_crc = check_;
  storage.big_endian = big_endian_;
  if (entry.method == zip::stored) {
    // The source is the file itself, so that a load reads adjacent records together.
    storage.source = directory_->source();
    STELE_TRY_ASSIGN(const auto head, heads_.head(entry));
    STELE_TRY_ASSIGN(storage.offset, directory_->data(entry, head));
  } else {
    STELE_TRY_ASSIGN(storage.source, directory_->open(entry));
    in_order_ = true;
  }
  known = &storage;
  return known;
}

Result<Bytes> read_record(const Directory& directory, const zip::Entry& entry, std::uint64_t limit, bool check) {
  if (check || entry.size > limit) {
    auto read = directory.read(entry, limit);
    if (read || read.error().code() != Errc::checksum) return read;
    return std::move(read).error().hint(
        "set PytorchOptions::ignore_checksums if torch.serialization.set_crc32_options(False) preceded the save");
  }
  STELE_TRY_ASSIGN(const SourcePtr content, directory.open(entry));
  Bytes bytes(static_cast<std::size_t>(entry.size));
  STELE_TRY(content->read_at(0, bytes.span()));
  return bytes;
}

Result<bool> is_big_endian(const Directory& directory, std::string_view root, bool check) {
  const zip::Entry* entry = find_entry(directory, root, "byteorder");
  if (entry == nullptr) return false;
  STELE_TRY_ASSIGN(const std::string text, text_of(directory, *entry, check));
  if (text == "little" || text == "big") return text == "big";
  return Error(Errc::malformed, "the byte order is unknown")
      .path(std::string(entry->name))
      .expected("little or big")
      .found(text.substr(0, 40));
}

const zip::Entry* find_entry(const Directory& directory, std::string_view root, std::string_view name) {
  return directory.find(std::string(root) + '/' + std::string(name));
}

Skipped extra_files(const Directory& directory, std::string_view root) {
  const std::string folder = std::string(root) + "/extra/";
  Skipped names;
  for (const zip::Entry& entry : directory.entries()) {
    if (entry.name.starts_with(folder)) names.add(entry.name.substr(folder.size()));
  }
  return names;
}

Result<std::string_view> root_of(const Directory& directory) {
  const auto entries = directory.entries();
  if (entries.empty()) return Error(Errc::malformed, "the zip file is empty").file(directory.source()->name());
  const std::string_view root = entries.front().name.substr(0, entries.front().name.find('/'));
  for (const zip::Entry& entry : entries) {
    if (entry.name.starts_with(root) && entry.name.size() > root.size() && entry.name[root.size()] == '/') continue;
    return Error(Errc::malformed, "an entry is not in the folder of the first one")
        .file(directory.source()->name())
        .offset(entry.header)
        .expected(std::string(root) + "/…")
        .found(std::string(entry.name));
  }
  return root;
}

Result<File> open_zip(const std::shared_ptr<const Directory>& directory, std::string_view root, bool check,
                      IndexBudget& memory) {
  const zip::Entry* pickled = find_entry(*directory, root, "data.pkl");
  if (pickled == nullptr) {
    return Error(Errc::malformed, "the file has no data.pkl").file(directory->source()->name());
  }
  STELE_TRY(check_version(*directory, root, check));
  STELE_TRY_ASSIGN(const bool big_endian, is_big_endian(*directory, root, check));
  memory.admit(pickled->compressed, index_rate::token);
  if (!memory.take(pickled->size)) return index_error("data.pkl needs too much memory");
  STELE_TRY_ASSIGN(Bytes bytes, read_record(*directory, *pickled, pickled->size, check));
  const std::string& name = directory->source()->name();
  Cursor cursor(own_bytes(std::move(bytes), name + ": data.pkl"));
  auto objects = pickle::read(cursor, memory);
  if (!objects) return std::move(objects).error().file(name + ": data.pkl");
  if (cursor.left() != 0) {
    return Error(Errc::malformed, "bytes follow the pickle").file(name + ": data.pkl").offset(cursor.position());
  }
  return File{name,
              *std::move(objects),
              std::make_shared<ZipStorages>(directory, root, check, big_endian, memory),
              {},
              extra_files(*directory, root)};
}

}  // namespace stele::inline v0::detail::pytorch
