// Opens .npz files.
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "arrays.hpp"
#include "base/entry_names.hpp"
#include "base/limits.hpp"
#include "encodings/zip/rebuild.hpp"
#include "encodings/zip/zip.hpp"
#include "io/os/os.hpp"
#include "own_entry.hpp"
#include "snapshot/data.hpp"
#include "snapshot/fill.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/recorders/numpy.hpp"

namespace stele::inline v0 {
namespace detail::numpy {
namespace {

/// Size of an entry's data to read together with the local header (256 bytes): covers NumPy's headers of arrays with up
/// to a dozen axes.
constexpr std::uint64_t usual_header = 256;

/// The elements of an array in a file.
struct Stored {
  SourcePtr inflated;        // the entry if it is deflated, else null
  std::uint64_t offset = 0;  // offset of the elements in `inflated`, or in the file if that is null
  std::uint32_t crc = 0;     // CRC-32 of the elements, if the entry is stored
};

struct File {
  std::shared_ptr<const zip::Directory> directory;
  std::deque<Stored> arrays;
};

// A leaf's number is its index in `arrays`.
constexpr LeafOps leaf_ops{.locate = [](const void* at, std::uint64_t number) -> SourceRange {
  const File& file = *static_cast<const File*>(at);
  const Stored& array = file.arrays[static_cast<std::size_t>(number)];
  if (array.inflated != nullptr) return {array.inflated.get(), array.offset};
  return {file.directory->source().get(), array.offset, 0, array.crc, true, zip::crc32};
}};

class NpzReader {
 public:
  NpzReader(SourcePtr source, const Limits& limits, const NpyOptions& options)
      : source_(std::move(source)),
        options_(options),
        file_(std::make_shared<File>()),
        memory_(limits, source_->size(), index_rate::entry) {}

  Result<Snapshot> run() {
    STELE_TRY(open_directory());
    STELE_TRY(read_own_entry());
    arrays_.builder().set_flat();
    zip::HeadReader heads(file_->directory, usual_header);
    for (const zip::Entry& entry : file_->directory->entries()) {
      if (entry.name == own_entry) continue;
      STELE_TRY(read_array(entry, heads));
    }
    if (const auto* const omitted = zip::omitted_entries(*source_)) {
      for (const zip::Omitted& entry : *omitted) STELE_TRY(add_omitted(entry));
    } else {
      STELE_TRY(check_own_entry());
    }
    return finish();
  }

 private:
  static Error too_much() { return index_error("the arrays' names and shapes need more memory than the file allows"); }

  Status open_directory() {
    STELE_TRY_ASSIGN(file_->directory, zip::Directory::open(source_, memory_.left()));
    std::uint64_t taken = 0;
    for (const zip::Entry& entry : file_->directory->entries()) {
      taken += sizeof entry + 64 + entry.name.size();
      compressed_ = compressed_ || entry.method != zip::stored;
    }
    if (compressed_) memory_.admit_compressed();
    return memory_.take(taken) ? Status() : Status(too_much());
  }

  /// Adds the entry's name to an error whose offset counts from the beginning of the entry's data.
  Error of_entry(Error error, const zip::Entry& entry) const {
    if (!error.file().empty()) return error;
    return std::move(error).file(source_->name() + ": " + std::string(entry.name));
  }

  Status read_own_entry() {
    const zip::Entry* entry = file_->directory->find(own_entry);
    if (entry == nullptr) return {};
    memory_.admit(entry->compressed, index_rate::index);
    if (!memory_.take(entry->size)) return too_much();
    STELE_TRY_ASSIGN(own_bytes_, file_->directory->read(*entry, entry->size));
    const auto refuse = [&](Error error) { return of_entry(std::move(error), *entry); };
    Bytes buffer;
    auto header = header_of(*source_, 0, entry->size, own_bytes_.span(), buffer);
    if (!header) return refuse(std::move(header).error());
    auto array = parse(*header, entry->size);
    if (!array) return refuse(std::move(array).error());
    if (array->dtype != DType::u8 || array->shape.size() != 1) {
      return refuse(Error(Errc::malformed, "the entry is not a list of bytes").offset(0).expected("|u1, one axis"));
    }
    const auto bytes = own_bytes_.span().subspan(static_cast<std::size_t>(array->data));
    auto own = parse_own_entry({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, memory_);
    if (!own) return refuse(std::move(own).error());
    own_ = *std::move(own);
    return {};
  }

  Status read_array(const zip::Entry& entry, zip::HeadReader& heads) {
    const bool is_array = entry.name.ends_with(ending);
    const std::string_view key = entry.name.substr(0, entry.name.size() - (is_array ? ending.size() : 0));
    std::string_view name = is_array ? key : other_name(key);
    if (const auto own = own_.names.find(key); is_array && own != own_.names.end()) {
      name = arrays_.builder().intern(own->second);
      ++names_used_;
    }
    DType dtype = DType::none;
    if (const auto own = own_.dtypes.find(key); is_array && own != own_.dtypes.end()) {
      dtype = own->second;
      ++dtypes_used_;
    }
    Stored stored;
    auto array =
        is_array ? find_array(entry, heads, dtype, stored) : Error(Errc::bad_magic, "the entry is not an array");
    auto added = array ? add_array(entry, name, *array, std::move(stored)) : add_unreadable(entry, name, array.error());
    if (added) return {};
    Error error = of_entry(std::move(added).error(), entry);
    return error.path().empty() ? std::move(error).path(std::string(name)) : std::move(error);
  }

  /// Returns the name for an entry other than an array: the entry's name, or if an array has this name, the name with
  /// the first number from 2 on that makes it unique.
  std::string_view other_name(std::string_view key) {
    const zip::Directory& directory = *file_->directory;
    const auto array_has = [&](const std::string& name) {
      return directory.find(name + std::string(ending)) != nullptr;
    };
    if (!array_has(std::string(key))) return key;
    for (std::size_t number = 2;; ++number) {
      const std::string name = std::string(key).append(" (").append(std::to_string(number)).append(")");
      if (!array_has(name) && directory.find(name) == nullptr) return arrays_.builder().intern(name);
    }
  }

  Result<Array> find_array(const zip::Entry& entry, zip::HeadReader& heads, DType dtype, Stored& stored) {
    const zip::Directory& directory = *file_->directory;
    Array array;
    if (entry.method == zip::stored) {
      STELE_TRY_ASSIGN(const auto head, heads.head(entry));
      STELE_TRY_ASSIGN(const std::uint64_t data, directory.data(entry, head));
      const std::uint64_t before = data - entry.header;
      auto known = head.subspan(static_cast<std::size_t>(std::min<std::uint64_t>(head.size(), before)));
      known = known.first(static_cast<std::size_t>(std::min<std::uint64_t>(known.size(), entry.size)));
      STELE_TRY_ASSIGN(const auto header, header_of(*source_, data, entry.size, known, buffer_));
      STELE_TRY_ASSIGN(array, parse(header, entry.size));
      // The CRC-32 of the elements follows from the CRC-32 of the header and of the whole entry.
      const std::uint32_t crc = zip::crc32(0, header.data(), header.size());
      stored.offset = data + array.data;
      stored.crc = zip::crc32_joined(crc, entry.crc, array.bytes);
      if (array.bytes == 0 && crc != entry.crc) {
        return Error(Errc::checksum, "the CRC-32 of the array does not match").file(source_->name()).offset(data);
      }
    } else {
      // An inflating source keeps state: reads the header from a separate source, which is then freed.
      STELE_TRY_ASSIGN(const SourcePtr once, directory.open(entry));
      STELE_TRY_ASSIGN(const auto header, header_of(*once, 0, entry.size, {}, buffer_));
      STELE_TRY_ASSIGN(array, parse(header, entry.size));
      STELE_TRY_ASSIGN(stored.inflated, directory.open(entry));
      stored.offset = array.data;
    }
    STELE_TRY(set_dtype(array, dtype, options_));
    return array;
  }

  /// Charges the memory of a leaf and returns the leaf's provider.
  Result<Provider> provider_of(const zip::Entry& entry, Stored stored, std::uint64_t more_memory) {
    const std::uint64_t inflates = stored.inflated != nullptr ? 512 + 2 * entry.name.size() : 0;
    constexpr std::uint64_t per_array =
        2 * sizeof(Stored) + sizeof(Node) + sizeof(LeafData) + 4 * sizeof(std::uint32_t) + 2;
    if (!memory_.take(per_array + inflates + more_memory)) return too_much();
    file_->arrays.push_back(std::move(stored));
    return Provider{&leaf_ops, file_.get(), file_->arrays.size() - 1};
  }

  Status add_array(const zip::Entry& entry, std::string_view name, const Array& array, Stored stored) {
    STELE_TRY_ASSIGN(const Provider provider,
                     provider_of(entry, std::move(stored), 4 * sizeof(Extent) * array.shape.size()));
    arrays_.add(name, array, provider);
    return {};
  }

  /// Adds an unreadable entry with all its bytes, after find_array() failed with `error`. Returns errors that mean
  /// damage.
  Status add_unreadable(const zip::Entry& entry, std::string_view name, const Error& error) {
    const Errc code = error.code();
    if (code != Errc::bad_magic && code != Errc::unsupported && code != Errc::limit) return error;
    std::string reason(error.message());
    if (!error.found().empty()) reason += ": " + std::string(error.found());
    if (!error.hint().empty()) reason += "; " + std::string(error.hint());
    Stored stored{nullptr, 0, entry.crc};
    const bool encrypted = zip::is_encrypted(entry);
    const bool has_bytes = !encrypted && (entry.method == zip::stored || entry.method == zip::deflated);
    const auto data = file_->directory->data(entry);  // checks the local header
    if (!data && !(encrypted && data.error().code() == Errc::unsupported)) return data.error();
    if (has_bytes && entry.method == zip::stored) stored.offset = *data;
    if (has_bytes && entry.method == zip::deflated) {
      STELE_TRY_ASSIGN(stored.inflated, file_->directory->open(entry));
    }
    STELE_TRY_ASSIGN(const Provider provider,
                     provider_of(entry, std::move(stored), unreadable_memory + reason.size() + name.size()));
    arrays_.add_unreadable(name, reason, entry.size, has_bytes ? provider : Provider());
    return {};
  }

  /// Adds an entry that a recovered file has lost.
  Status add_omitted(const zip::Omitted& entry) {
    if (entry.name == own_entry) return {};
    std::string key = entry.name;
    if (key.ends_with(ending)) key.resize(key.size() - ending.size());
    if (const auto own = own_.names.find(key); own != own_.names.end()) key = own->second;
    const zip::Directory& directory = *file_->directory;
    std::string name = key;
    // Entries may have the same name. A number is tried once, so that many such entries take linear time.
    for (std::size_t& number = lost_numbers_.try_emplace(key, 1).first->second;
         directory.find(name) != nullptr || directory.find(name + std::string(ending)) != nullptr ||
         !lost_names_.insert(name).second;) {
      name = key + " (" + std::to_string(++number) + ")";
    }
    constexpr std::uint64_t per_name = 256;
    if (!memory_.take(unreadable_memory + per_name + entry.reason.size() + 4 * name.size())) return too_much();
    arrays_.add_unreadable(arrays_.builder().intern(name), entry.reason, 0, Provider());
    return {};
  }

  Status check_own_entry() {
    if (names_used_ != own_.names.size() || dtypes_used_ != own_.dtypes.size()) {
      return Error(Errc::malformed, "__stele__ names an array that the file does not have").file(source_->name());
    }
    return {};
  }

  Result<Snapshot> finish() {
    SnapshotBuilder& builder = arrays_.builder();
    STELE_TRY(finish_names(builder, std::move(own_.metadata), memory_));
    if (compressed_) builder.set_in_order();
    builder.keep(file_);
    return arrays_.finish();
  }

  SourcePtr source_;
  const NpyOptions& options_;
  std::shared_ptr<File> file_;
  IndexBudget memory_;
  Arrays arrays_;
  OwnEntry own_;
  Bytes own_bytes_, buffer_;
  std::set<std::string> lost_names_;
  std::map<std::string, std::size_t> lost_numbers_;
  std::size_t names_used_ = 0, dtypes_used_ = 0;
  bool compressed_ = false;
};

}  // namespace
}  // namespace detail::numpy

bool NpzFormat::recognises(std::span<const std::byte> head, std::uint64_t size) const noexcept {
  constexpr std::uint64_t empty_size = 22;  // a zip file without entries is its end record
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (size == empty_size && text.starts_with(std::string_view("PK\5\6", 4))) return true;
  const auto first = detail::zip::first_name(head);
  return first && first->complete && detail::is_numpy_zip_entry(first->name);
}

Result<bool> NpzFormat::recognises_file(const Source& source) const {
  STELE_TRY_ASSIGN(const auto directory, detail::zip::directory_of(source));
  if (directory == nullptr || directory->find("tags.txt") != nullptr) return false;  // an archive may have any entries
  const auto entries = directory->entries();
  return std::any_of(entries.begin(), entries.end(),
                     [](const detail::zip::Entry& entry) { return detail::is_numpy_zip_entry(entry.name); });
}

Result<Snapshot> NpzFormat::open(SourcePtr source, const OpenContext& context) const {
  return detail::guarded(source->name(), [&]() -> Result<Snapshot> {
    return detail::numpy::NpzReader(source, context.options().limits, options_).run();
  });
}

Result<Report> NpzFormat::verify(SourcePtr source, const OpenContext& context) const {
  return detail::guarded(source->name(), [&]() -> Result<Report> {
    STELE_TRY_ASSIGN(const Snapshot snapshot, open(source, context));
    STELE_TRY_ASSIGN(Report report, detail::verify_leaves(snapshot, context.options()));
    detail::zip::add_unchecked_records(report);
    return report;
  });
}

}  // namespace stele::inline v0
