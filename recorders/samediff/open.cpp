// Opens the files of a SameDiff model.
#include <algorithm>

#include "container.hpp"
#include "encodings/zip/zip.hpp"
#include "model.hpp"
#include "stele/bundle.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::detail::samediff {
namespace {

std::uint64_t big64(const std::byte* p) { return __builtin_bswap64(load_le<std::uint64_t>(p)); }

/// Returns true if the root table has field number `field` (its vtable is long enough and has an offset for it).
bool has_field(std::span<const std::byte> verified, std::size_t field) {
  const auto* table = flatbuffers::GetRoot<flatbuffers::Table>(verified.data());
  return table->GetOptionalFieldOffset(static_cast<flatbuffers::voffset_t>(4 + 2 * field)) != 0;
}

/// Returns true for nodes in the format of DL4J before 1.0.0-beta4, which the verifier rejects: id 7 is a byte, with
/// less space than the four bytes of the offset in later files, and id 18 is missing.
bool is_before_beta4(std::span<const std::byte> bytes) {
  auto verifier = verifier_of(bytes);
  if (!verifier.VerifyBuffer<stele_fb::OldGraph>(nullptr)) return false;
  const auto* nodes = flatbuffers::GetRoot<stele_fb::OldGraph>(bytes.data())->nodes();
  if (nodes == nullptr || nodes->size() == 0) return false;
  for (const auto* node : *nodes) {
    const auto& table = *reinterpret_cast<const flatbuffers::Table*>(node);
    constexpr auto slot = [](int field) { return static_cast<flatbuffers::voffset_t>(4 + 2 * field); };
    if (table.GetOptionalFieldOffset(slot(18)) != 0) return false;
    const unsigned dtype = table.GetOptionalFieldOffset(slot(7));
    bool is_byte = dtype % 4 != 0;
    for (int field = 0; field < 18 && !is_byte; ++field) {
      const unsigned other = table.GetOptionalFieldOffset(slot(field));
      is_byte = dtype != 0 && other > dtype && other < dtype + 4;
    }
    if (!is_byte) return false;
  }
  return true;
}

}  // namespace

Status Model::fetch(Part& part, std::uint64_t size) {
  if (size > max_buffer) return Error(Errc::malformed, "the FlatBuffer exceeds 2 GiB").file(part.source->name());
  // In a mapped file, reading touches only the FlatBuffer's tables.
  SourcePtr memory = part.source;
  if (memory->view().empty() && size != 0) memory = part.source->mapped();
  if (memory != nullptr && !memory->view().empty()) {
    part.bytes = memory->view().subspan(static_cast<std::size_t>(part.begin), static_cast<std::size_t>(size));
    part.keeper = memory;
  }
  const bool aligned = reinterpret_cast<std::uintptr_t>(part.bytes.data()) % 8 == 0;
  if (part.bytes.size() != size || !aligned) {
    if (!spend(size)) return too_much().file(part.source->name());
    auto copy = std::make_shared<Bytes>(static_cast<std::size_t>(size));
    STELE_TRY(part.source->read_at(part.begin, copy->span()));
    part.bytes = copy->span();
    part.keeper = std::move(copy);
  }
  auto verifier = verifier_of(part.bytes);
  const auto refuse = [&]() -> Error {
    const bool old = part.dialect == Dialect::a && part.bytes.size() >= 8 && is_before_beta4(part.bytes);
    const Error error =
        old ? Error(Errc::unsupported, "DL4J before 1.0.0-beta4 wrote the graph, which later versions do not read")
                  .expected("a graph of 1.0.0-beta4 or later")
            : malformed("the graph is not a valid FlatBuffer of SameDiff");
    return Error(error).file(part.source->name()).offset(part.begin);
  };
  if (part.bytes.size() < 8) return refuse();
  if (part.dialect == Dialect::a) {
    if (!verifier.VerifyBuffer<stele_fb::PlainGraph>(nullptr)) return refuse();
    // In DL4J's .fb files, id 9 is not a list of strings. Only a file that also has id 10 can be a SameDiffGraph.
    if (!has_field(part.bytes, 10)) return {};
    auto again = verifier_of(part.bytes);
    part.newer = again.VerifyBuffer<stele_fb::SameDiffGraph>(nullptr);
    return {};
  }
  if (!verifier.VerifyBuffer<stele_fb::SameDiffGraph>(nullptr)) return refuse();
  part.newer = true;
  return {};
}

Status Model::open_fb(SourcePtr source) {
  Part& part = parts_.emplace_back();
  const std::uint64_t size = source->size();
  part.source = std::move(source);
  return fetch(part, size);
}

Status Model::open_sdnb(const SourcePtr& source) {
  Part& part = parts_.emplace_back();
  part.source = source;
  part.dialect = Dialect::b;
  const auto refuse = [&](const char* why, std::uint64_t offset) {
    return malformed(why).file(source->name()).offset(offset);
  };
  if (source->size() < sdnb_header)
    return Error(Errc::truncated, "the file ends inside the SDNB header").file(source->name());
  std::byte head[sdnb_header];
  STELE_TRY(source->read_at(0, head));
  const std::uint32_t version = __builtin_bswap32(load_le<std::uint32_t>(head + 4));
  if (version != 1) {
    return Error(Errc::unsupported, "the SDNB version is not supported")
        .file(source->name())
        .expected("1")
        .found(std::to_string(version));
  }
  const std::uint64_t manifest_at = big64(head + 8), manifest_size = big64(head + 16);
  if (big64(head + 24) != sdnb_header) return refuse("the FlatBuffer does not start after the header", 24);
  if (manifest_at < sdnb_header || manifest_at > source->size()) return refuse("the manifest is outside the file", 8);
  if (manifest_size != source->size() - manifest_at) return refuse("the manifest does not end the file", 16);
  if (!spend(manifest_size)) return too_much().file(source->name());
  Bytes bytes(static_cast<std::size_t>(manifest_size));
  STELE_TRY(source->read_at(manifest_at, bytes.span()));
  auto entries = parse_manifest(bytes.span(), memory_.left());
  if (!entries) return std::move(entries).error().file(source->name());
  part.begin = sdnb_header;
  part.blobs = manifest_at;
  std::vector<Segment> taken;
  for (ManifestEntry& e : *entries) {
    if (!spend(sizeof e + 96 + e.name.size())) return too_much().file(source->name());
    if (e.offset < sdnb_header || e.offset > manifest_at || e.length > manifest_at - e.offset) {
      return refuse("the array is outside the file", manifest_at).path(e.name);
    }
    part.blobs = std::min(part.blobs, e.offset);
    if (e.length != 0) taken.push_back({e.offset, e.length});
    std::string name = e.name;
    part.manifest.emplace(std::move(name), std::move(e));
  }
  std::sort(taken.begin(), taken.end(), [](const Segment& a, const Segment& b) { return a.offset < b.offset; });
  for (std::size_t i = 1; i < taken.size(); ++i) {
    if (taken[i].offset - taken[i - 1].offset < taken[i - 1].size) {
      return refuse("two arrays overlap", taken[i].offset);
    }
  }
  return fetch(part, part.blobs - sdnb_header);
}

Status Model::open_shards(const ShardName& name, const std::function<Result<SourcePtr>(const std::string&)>& open) {
  // Maximum number of shards (100,000): limits the open files. Real models have far fewer.
  constexpr std::uint32_t max_shards = 100'000;
  if (name.count == 0 || name.count > max_shards || name.index >= name.count)
    return malformed("the shard's index or count is invalid")
        .found(std::to_string(name.index) + " of " + std::to_string(name.count));
  for (std::uint32_t i = 0; i < name.count; ++i) {
    const std::string file = shard_name(name.base, i, name.count);
    auto source = open(file);
    if (!source) {
      if (source.error().code() != Errc::not_found) return std::move(source).error();
      return Error(Errc::missing, "the model lacks a shard").file(file);
    }
    STELE_TRY(open_sdnb(*source));
  }
  return {};
}

Status Model::open_sdz(const SourcePtr& source) {
  STELE_TRY_ASSIGN(directory_, zip::Directory::open(source, memory_.left()));
  std::uint64_t taken = 0;
  for (const zip::Entry& e : directory_->entries()) taken += sizeof e + 64 + e.name.size();
  if (!spend(taken)) return too_much().file(source->name());
  const auto open = [&](const std::string& name) -> Result<SourcePtr> {
    const zip::Entry* entry = directory_->find(name);
    if (entry == nullptr && name.ends_with(".sdnb")) entry = directory_->find(name.substr(0, name.size() - 5));
    if (entry == nullptr) return Error(Errc::not_found).file(name);
    return directory_->open(*entry);
  };
  // Searches in DL4J's order: model.sdnb, model, shards, the only .sdnb entry.
  for (const char* name : {"model.sdnb", "model"}) {
    if (directory_->find(name) == nullptr) continue;
    STELE_TRY_ASSIGN(const SourcePtr entry, open(name));
    return open_sdnb(entry);
  }
  const zip::Entry* only = nullptr;
  for (const zip::Entry& e : directory_->entries()) {
    if (const auto shard = parse_shard_name(e.name)) return open_shards(*shard, open);
    if (!e.name.ends_with(".sdnb")) continue;
    if (only != nullptr)
      return malformed("the zip file contains several SDNB files that are not shards of one model")
          .file(source->name());
    only = &e;
  }
  if (only == nullptr) return malformed("the zip file contains no SameDiff model").file(source->name());
  STELE_TRY_ASSIGN(const SourcePtr entry, directory_->open(*only));
  return open_sdnb(entry);
}

Result<std::shared_ptr<Model>> Model::open(const SourcePtr& source, const Limits& limits) {
  auto model = std::make_shared<Model>();
  std::byte head[4]{};
  const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(source->size(), sizeof head));
  STELE_TRY(source->read_at(0, {head, n}));
  const std::string_view magic(reinterpret_cast<const char*>(head), n);
  const bool is_zip = magic == std::string_view("PK\3\4", 4);
  model->memory_ = IndexBudget(limits, source->size(), is_zip ? index_rate::compressed : index_rate::entry);
  if (is_zip) model->memory_.admit_compressed();
  if (is_zip) {
    STELE_TRY(model->open_sdz(source));
  } else if (magic == sdnb_magic) {
    const auto bundle = source->bundle();
    const auto open = [&](const std::string& name) -> Result<SourcePtr> {
      STELE_TRY_ASSIGN(SourcePtr shard, bundle->open(name));
      model->memory_.admit(shard->size(), index_rate::entry);
      return shard;
    };
    auto shard = parse_shard_name(file_name(source->name()));
    if (!shard) {
      STELE_TRY(model->open_sdnb(source));
      // If the graph lacks the arrays of its variables, its metadata store the number of shards.
      const Part& part = model->parts_.front();
      const auto& root = *flatbuffers::GetRoot<stele_fb::SameDiffGraph>(part.bytes.data());
      const auto* keys = root.metadata_keys();
      const auto* values = root.metadata_values();
      const auto n = keys != nullptr && values != nullptr ? std::min(keys->size(), values->size()) : 0;
      for (flatbuffers::uoffset_t i = 0; i < n; ++i) {
        ShardName name{std::string(file_name(source->name())), 0, 0};
        if (keys->Get(i)->string_view() != "shard.count" || !parse_digits(values->Get(i)->string_view(), name.count))
          continue;
        if (name.base.ends_with(".sdnb")) name.base.resize(name.base.size() - 5);
        shard = std::move(name);
      }
      if (shard) model->parts_.clear();
    }
    if (shard) {
      if (bundle == nullptr)
        return malformed("the model has other shards, which the source cannot open")
            .file(source->name())
            .hint("open the shard by its path");
      STELE_TRY(model->open_shards(*shard, open));
    }
  } else {
    STELE_TRY(model->open_fb(source));
  }
  return model;
}

}  // namespace stele::inline v0::detail::samediff
