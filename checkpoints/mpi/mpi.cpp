#include "stele/mpi.hpp"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>

#include "base/hash.hpp"
#include "base/meter.hpp"
#include "base/parallel.hpp"
#include "encodings/safetensors/file.hpp"
#include "io/files.hpp"
#include "io/urls.hpp"
#include "leaves/region.hpp"
#include "packing.hpp"
#include "part.hpp"
#include "snapshot/data.hpp"
#include "snapshot/fill.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/module_leaf.hpp"
#include "snapshot/paths.hpp"
#include "snapshot/properties.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/recorders/any.hpp"
#include "stele/recorders/safetensors.hpp"

namespace stele::inline v0::mpi::detail {
namespace {

using v0::detail::LeafPaths;
using v0::detail::LeafPlace;
using v0::detail::SnapshotData;
namespace safetensors = v0::detail::safetensors;
namespace shards = v0::detail::shards;

/// The boxes of a module, by path.
using Places = std::unordered_map<std::string, LeafPlace>;

Places places_of(const Snapshot& snapshot) {
  const LeafPaths paths(*snapshot.data());
  Places places;
  for (std::size_t i = 0; i < snapshot.leaf_count(); ++i) {
    if (auto place = v0::detail::place_of(snapshot.leaf(i))) places.emplace(paths[i], *std::move(place));
  }
  return places;
}

/// Returns a copy of the snapshot whose leaves have no position; the plan has the positions.
Snapshot without_places(const Snapshot& snapshot) {
  auto data = v0::detail::derived_data(snapshot);
  for (std::size_t i = 0; i < data->leaves.size(); ++i) {
    if (v0::detail::place_of(snapshot.leaf(i))) {
      data->leaves[i].provider = {&v0::detail::element_leaf_ops, snapshot.leaf(i).view().data(), 0};
    }
  }
  return Snapshot(std::shared_ptr<const SnapshotData>(std::move(data)));
}

Result<LocalPart> prepare(const Snapshot& raw, PrecisionSpec precision, const SaveOptions& options, Report& report) {
  for (std::size_t i = 0; i < raw.leaf_count(); ++i) {
    if (v0::detail::place_of(raw.leaf(i)) && raw.leaf(i).byte_size() != 0 && raw.leaf(i).view().empty()) {
      return Error(Errc::not_found, "the Sharded tensor has no elements").path(raw.leaf(i).path());
    }
  }
  const Places places = places_of(raw);
  LocalPart part;
  const Snapshot plain = without_places(raw);
  const SafetensorsFormat format;
  STELE_TRY_ASSIGN(part.snapshot, v0::detail::prepare(format, precision, {nullptr, &plain}, "shard", options, report));
  const LeafPaths paths(*part.snapshot.data());
  STELE_TRY(safetensors::check(v0::detail::entries_of(part.snapshot, paths), part.snapshot.metadata()));
  STELE_TRY_ASSIGN(part.extras, v0::detail::flat_extras(part.snapshot));
  for (std::uint32_t i = 0; i < part.snapshot.leaf_count(); ++i) {
    const LeafView leaf = part.snapshot.leaf(i);
    LocalTensor tensor{{std::string(paths[i]), leaf.dtype(), {}}, {}, i};
    tensor.box.length.assign(leaf.shape().begin(), leaf.shape().end());
    const auto place = places.find(tensor.whole.name);
    if (place != places.end()) {
      tensor.whole.shape.assign(place->second.global.begin(), place->second.global.end());
      tensor.box.start.assign(place->second.start.begin(), place->second.start.end());
    } else {
      tensor.whole.shape = tensor.box.length;
      tensor.box.start.resize(tensor.box.length.size());
    }
    part.tensors.push_back(std::move(tensor));
  }
  return part;
}

/// Distributes one table of tensors to all processes. Compares each process's values and ties with process 0's.
Status exchange_tables(Exchange& exchange, const LocalPart& part, const SaveOptions& options, Plan& plan,
                       Report& report) {
  std::string of_root;
  const std::uint64_t values = v0::detail::hash64(part.extras.data(), part.extras.size());
  if (exchange.is_root()) {
    add_number(of_root, values);
    for (const LocalTensor& tensor : part.tensors) TensorTable::pack(of_root, tensor.whole);
  }
  STELE_TRY(exchange.broadcast(of_root));
  Unpacker in(of_root);
  const bool differs = in.number() != values;
  Status status = plan.table.add(in.left());
  std::string more;  // the tensors that process 0 does not have
  for (const LocalTensor& tensor : part.tensors) {
    std::string packed;
    TensorTable::pack(packed, tensor.whole);
    if (plan.table.find(tensor.whole.name) == plan.table.tensors().size()) {
      more += packed;
    } else if (status) {
      status = plan.table.add(packed);  // compares the dtype and shape
    }
  }
  if (differs) {
    constexpr const char* lost = "values or ties that differ from those of process 0, which are saved";
    if (!options.allow_loss && status) {
      status = Error(Errc::not_representable, "the checkpoint cannot store this")
                   .found(lost)
                   .hint("make them equal in all processes, or set SaveOptions::allow_loss");
    }
    report.add(Report::What::lost, "", lost);
  }
  STELE_TRY(exchange.agree(std::move(status)));
  STELE_TRY_ASSIGN(const std::vector<std::string> all, exchange.gather(more));
  std::string added;
  status = {};
  if (exchange.is_root()) {
    TensorTable merged;
    for (const std::string& one : all) {
      if (status) status = merged.add(one);
    }
    for (const GlobalTensor& tensor : merged.tensors()) TensorTable::pack(added, tensor);
  }
  STELE_TRY(exchange.agree(std::move(status)));
  STELE_TRY(exchange.broadcast(added));
  return plan.table.add(added);
}

/// Gathers and checks all boxes, and assigns each process the boxes that it writes.
Status exchange_boxes(Exchange& exchange, const LocalPart& part, const Options& options, Plan& plan) {
  const auto count = static_cast<std::uint32_t>(plan.table.tensors().size());
  plan.mine.assign(count, nullptr);
  plan.hashes.assign(count, {});
  std::vector<std::uint32_t> leaves, numbers;
  for (const LocalTensor& tensor : part.tensors) {
    const std::uint32_t number = plan.table.find(tensor.whole.name);
    plan.mine[number] = &tensor;
    numbers.push_back(number);
    leaves.push_back(tensor.leaf);
  }
  if (options.verify_replicas) {
    Status status;
    auto hashes = hash_leaves(part.snapshot, leaves, v0::detail::workers_of(options.save));
    if (hashes) {
      for (std::size_t i = 0; i < numbers.size(); ++i) plan.hashes[numbers[i]] = std::move((*hashes)[i]);
    } else {
      status = std::move(hashes).error();
    }
    STELE_TRY(exchange.agree(std::move(status)));
  }
  Planner planner(plan.table);
  Status status;
  const std::uint32_t step = batch_size(static_cast<std::size_t>(exchange.size()));
  for (std::uint32_t first = 0; first < count; first += step) {
    const std::uint32_t end = std::min(count, first + step);
    STELE_TRY_ASSIGN(const std::vector<std::string> all,
                     exchange.gather(pack_boxes(plan.mine, first, end,
                                                options.verify_replicas ? plan.hashes : std::vector<BoxHashes>())));
    std::vector<std::string> writes(static_cast<std::size_t>(exchange.size()));
    if (exchange.is_root() && status) {
      auto added = planner.add(first, end, all, options.verify_replicas);
      added ? static_cast<void>(writes = *std::move(added)) : static_cast<void>(status = std::move(added).error());
    }
    STELE_TRY_ASSIGN(const std::string mine, exchange.scatter(std::move(writes)));
    for (Unpacker in(mine); !in.empty();) plan.writes.push_back(first + static_cast<std::uint32_t>(in.number()));
  }
  plan.index = planner.take();
  return exchange.agree(std::move(status));
}

/// Returns the shard of this process; nullopt if it has no boxes.
Result<std::optional<Snapshot>> own_shard(const LocalPart& part, const Plan& plan, const Options& options) {
  if (plan.writes.empty()) return std::optional<Snapshot>();
  std::vector<const LocalTensor*> tensors;
  std::vector<BoxHashes> hashes;
  std::vector<std::uint32_t> leaves;
  for (const std::uint32_t number : plan.writes) {
    tensors.push_back(plan.mine[number]);
    hashes.push_back(plan.hashes[number]);
    leaves.push_back(plan.mine[number]->leaf);
  }
  if (!options.verify_replicas) {
    STELE_TRY_ASSIGN(hashes, hash_leaves(part.snapshot, leaves, v0::detail::workers_of(options.save)));
  }
  STELE_TRY_ASSIGN(Snapshot shard, shard_of(part.snapshot, tensors, hashes));
  return std::optional(std::move(shard));
}

/// Writes the shard of this process. `base`: as a delta of this shard, if it is set.
Result<WrittenFile> write_own_shard(const std::optional<Snapshot>& shard, const std::optional<Snapshot>& base,
                                    const std::string& name, const PartPlace& place, const SaveOptions& options) {
  if (!shard) return WrittenFile();
  WrittenFile written;
  if (base) {
    STELE_TRY_ASSIGN(written, write_shard_delta(*base, *shard, place.share->files(), name, options));
  } else {
    STELE_TRY_ASSIGN(written, write_shard(*shard, place.share->files(), name, options));
  }
  v0::detail::steps::ManifestFile file{written.name, written.bytes, written.xxh3};
  STELE_TRY(place.share->complete(file));
  written.version = file.version;
  return written;
}

/// Finds the base shard for a delta of this process's shard. No process gets one if the boxes of any process differ
/// from its boxes in the base.
Status find_base(Exchange& exchange, const std::optional<Snapshot>& shard, const PartPlace& place,
                 std::optional<Snapshot>& base) {
  if (place.base == nullptr) return {};
  if (shard) {
    auto opened = v0::detail::guarded([&] { return place.base->open(shard_name(exchange.rank())); });
    if (opened && same_boxes(*opened, *shard)) base = *std::move(opened);
  }
  STELE_TRY_ASSIGN(const std::uint64_t differs, exchange.first_of(shard && !base ? 1 : 0));
  if (differs != 0) base.reset();
  return {};
}

void pack(std::string& to, const WrittenFile& file) {
  add_text(to, file.name);
  for (const std::uint64_t n : {file.bytes, file.header, file.xxh3}) add_number(to, n);
  add_text(to, file.version);
}
WrittenFile unpack_file(Unpacker& in) {
  WrittenFile file;
  file.name = in.text();
  file.bytes = in.number();
  file.header = in.number();
  file.xxh3 = in.number();
  file.version = in.text();
  return file;
}

/// Writes the index, in process 0. Its files are `written`.
Result<PartFiles> write_index(ShardIndex index, const std::vector<WrittenFile>& written, const PartPlace& place) {
  PartFiles files;
  for (const WrittenFile& file : written) {
    index.files.push_back({file.name.substr(place.prefix.size()), file.bytes, file.header});
    files.push_back({file.name, file.bytes, file.xxh3, file.version});
  }
  const std::string text = shards::to_text(index);
  const std::string name = place.prefix + std::string(shards::shard_index_name);
  STELE_TRY_ASSIGN(const auto sink, place.share->files().create(name));
  STELE_TRY(sink->write(std::as_bytes(std::span(text))));
  STELE_TRY(sink->commit());
  files.push_back({name, text.size(), v0::detail::hash64(text.data(), text.size())});
  STELE_TRY(place.share->complete(files.back()));
  return files;
}

Result<PartFiles> write_shards(Exchange& exchange, const LocalPart& part, Plan& plan, const Options& options,
                               const PartPlace& place) {
  auto shard = v0::detail::guarded([&] { return own_shard(part, plan, options); });
  STELE_TRY(exchange.agree(shard ? Status() : Status(shard.error())));
  std::optional<Snapshot> base;
  STELE_TRY(find_base(exchange, *shard, place, base));
  const std::string name = place.prefix + shard_name(exchange.rank());
  auto written = v0::detail::guarded([&] { return write_own_shard(*shard, base, name, place, options.save); });
  STELE_TRY(exchange.agree(written ? Status() : Status(written.error())));
  std::string packed;
  if (!written->name.empty()) pack(packed, *written);
  STELE_TRY_ASSIGN(const std::vector<std::string> all, exchange.gather(packed));
  PartFiles files;
  Status status;
  if (exchange.is_root()) {
    status = v0::detail::guarded([&]() -> Status {
      std::vector<std::uint32_t> numbers;
      std::vector<WrittenFile> list;
      for (const std::string& one : all) {
        numbers.push_back(static_cast<std::uint32_t>(list.size()));
        Unpacker in(one);
        if (!one.empty()) list.push_back(unpack_file(in));
      }
      renumber(plan.index, numbers);
      plan.index.metadata = part.snapshot.metadata();
      plan.index.extras = part.extras;
      STELE_TRY_ASSIGN(files, write_index(std::move(plan.index), list, place));
      return {};
    });
  }
  STELE_TRY(exchange.agree(std::move(status)));
  return files;
}

}  // namespace

Result<PartFiles> write_part(Exchange& exchange, const Result<Snapshot>& snapshot, PrecisionSpec precision,
                             const Options& options, const PartPlace& place, Report& report) {
  Status status;
  LocalPart part;
  if (snapshot) {
    auto made = v0::detail::guarded([&] { return prepare(*snapshot, precision, options.save, report); });
    made ? static_cast<void>(part = *std::move(made)) : static_cast<void>(status = std::move(made).error());
  } else {
    status = snapshot.error();
  }
  STELE_TRY(exchange.agree(std::move(status)));
  Plan plan;
  STELE_TRY(exchange_tables(exchange, part, options.save, plan, report));
  STELE_TRY(exchange_boxes(exchange, part, options, plan));
  if (options.save.dry_run) return PartFiles();
  return options.files == 0 ? write_shards(exchange, part, plan, options, place)
                            : write_whole_files(exchange, part, plan, options, place);
}

Result<PartFiles> write_whole_part(Exchange& exchange, const PartShards& part, const Options& options,
                                   const PartPlace& place) {
  ShardIndex index;
  std::string mine;  // the number of each file, and the file
  STELE_TRY(exchange.agree(v0::detail::guarded([&]() -> Status {
    STELE_TRY_ASSIGN(const SourcePtr folder, part.folder());
    STELE_TRY_ASSIGN(const SourcePtr source, folder->bundle()->open(shards::shard_index_name));
    v0::detail::IndexBudget memory(options.load.limits, source->size());
    STELE_TRY_ASSIGN(index, shards::read_shard_index(*source, memory));
    for (auto i = static_cast<std::size_t>(exchange.rank()); i < index.files.size();
         i += static_cast<std::size_t>(exchange.size())) {
      const std::string& name = index.files[i].name;
      STELE_TRY_ASSIGN(const Snapshot shard, part.open(name));
      const std::string whole = place.prefix + whole_name(name);
      STELE_TRY_ASSIGN(WrittenFile written, write_shard(shard, place.share->files(), whole, options.save));
      v0::detail::steps::ManifestFile file{written.name, written.bytes, written.xxh3};
      STELE_TRY(place.share->complete(file));
      written.version = file.version;
      add_number(mine, i);
      pack(mine, written);
    }
    return {};
  })));
  STELE_TRY_ASSIGN(const std::vector<std::string> all, exchange.gather(mine));
  PartFiles files;
  Status status;
  if (exchange.is_root()) {
    status = v0::detail::guarded([&]() -> Status {
      std::vector<WrittenFile> list(index.files.size());
      for (const std::string& one : all) {
        for (Unpacker in(one); !in.empty();) {
          const auto number = static_cast<std::size_t>(in.number());
          list[number] = unpack_file(in);
        }
      }
      index.files.clear();
      STELE_TRY_ASSIGN(files, write_index(std::move(index), list, place));
      return {};
    });
  }
  STELE_TRY(exchange.agree(std::move(status)));
  return files;
}

Result<Report> save(const Result<Snapshot>& snapshot, const std::string& folder, MPI_Comm comm,
                    const Options& options) {
  return v0::detail::guarded([&]() -> Result<Report> {
    Exchange exchange(options.timeout_seconds);
    STELE_TRY(exchange.start(comm));
    std::unique_ptr<Sink> sink;
    std::string temporary;
    Status status;
    if (v0::detail::is_url(folder)) {
      status = Error(Errc::unsupported, "one checkpoint of several processes is saved in a folder, not at a URL")
                   .file(folder)
                   .hint("save steps with stele::mpi::CheckpointManager");
    } else if (exchange.is_root() && !options.save.dry_run) {
      const auto ours = [](const Bundle& old) { return ShardedSafetensorsFormat().may_replace(old); };
      auto made = folder_sink(folder, options.save.file, ours);
      made ? static_cast<void>(sink = *std::move(made)) : static_cast<void>(status = std::move(made).error());
      if (sink != nullptr) temporary = v0::detail::temporary_path(*sink);
    }
    STELE_TRY(exchange.agree(std::move(status)));
    STELE_TRY(exchange.broadcast(temporary));
    const auto share = temporary.empty() ? nullptr : v0::detail::steps::folder_share(temporary, options.save.file);
    Report report;
    STELE_TRY(write_part(exchange, snapshot, options.precision, options, {share.get(), {}}, report));
    status = sink != nullptr ? sink->commit() : Status();
    STELE_TRY(exchange.agree(std::move(status)));
    return report;
  });
}

Result<OpenedBoxes> open_boxes(const Input& from, const Snapshot& live, const LoadOptions& options,
                               const PartShards* deltas) {
  const Places places = places_of(live);
  Status status;
  const auto wanted = [&](std::string_view name, std::span<const Extent> shape) -> std::optional<Box> {
    const auto place = places.find(std::string(name));
    if (place == places.end()) return std::nullopt;
    if (place->second.global != Shape(shape)) {
      if (status) {
        status = Error(Errc::shape_mismatch, "the tensor's global shape differs from that in the checkpoint")
                     .path(name)
                     .expected(to_string(place->second.global.span()))
                     .found(to_string(shape));
      }
      return std::nullopt;
    }
    const Shape& start = place->second.start;
    const auto leaf = live.find(name);
    return Box{{start.begin(), start.end()}, {leaf->shape().begin(), leaf->shape().end()}};
  };
  // A folder that stele::mpi wrote has an index, from which only the files of these boxes are opened.
  LoadOptions unmapped = options;
  unmapped.storage = Storage::owned;
  if (auto folder = from.open({}, unmapped); folder && (*folder)->is_folder()) {
    STELE_TRY_ASSIGN(const bool ours, (*folder)->bundle()->contains(shards::shard_index_name));
    if (ours) {
      OpenedBoxes opened;
      const OpenContext context(options, {});
      const auto open = [&](const SourcePtr& shard) { return SafetensorsFormat().open(shard, context); };
      shards::OpenDelta open_delta;
      if (deltas != nullptr) {
        open_delta = [&](const shards::ShardFile& file) {
          opened.deltas = true;
          return deltas->open_delta(file);
        };
      }
      STELE_TRY_ASSIGN(opened.snapshot,
                       shards::open_shards(**folder, options.limits, open, wanted, &opened.check, open_delta));
      if (!status) return std::move(status).error();
      STELE_TRY_ASSIGN(opened.snapshot, v0::detail::properties_from_metadata(opened.snapshot, options.limits,
                                                                             v0::detail::file_bytes(**folder)));
      return opened;
    }
  }
  STELE_TRY_ASSIGN(const Snapshot whole, v0::open(from, options));
  auto data = v0::detail::derived_data(whole);
  auto regions = std::make_shared<std::deque<v0::detail::RegionLeaf>>();
  const LeafPaths paths(*whole.data());
  for (std::size_t i = 0; i < data->leaves.size(); ++i) {
    const LeafView leaf = whole.leaf(i);
    const auto box = wanted(paths[i], leaf.shape());
    if (!box || std::equal(box->length.begin(), box->length.end(), leaf.shape().begin())) continue;
    auto& changed = data->leaves[i];
    changed.bytes = element_count(box->length).value_or(0) * element_size(leaf.dtype());
    changed.shape = static_cast<std::uint32_t>(data->extents.size());
    data->extents.insert(data->extents.end(), box->length.begin(), box->length.end());
    changed.provider =
        regions->emplace_back(leaf.provider(), leaf.shape(), element_size(leaf.dtype()), *box).provider();
  }
  if (!status) return std::move(status).error();
  const bool cut = !regions->empty();
  data->keepers.push_back(std::move(regions));
  return OpenedBoxes{Snapshot(std::shared_ptr<const SnapshotData>(std::move(data))), {}, whole, false, cut};
}

Result<LoadOptions> verify_boxes(const OpenedBoxes& boxes, const Snapshot& live, const LoadOptions& options,
                                 bool whole_files) {
  const Snapshot& opened = boxes.snapshot;
  if (options.trust_data) return options;
  std::unordered_map<std::string, DType> wanted;
  const LeafPaths names(*live.data());
  for (std::size_t i = 0; i < live.leaf_count(); ++i) wanted.emplace(names[i], live.leaf(i).dtype());
  const LeafPaths paths(*opened.data());
  std::vector<bool> chosen(opened.leaf_count());
  bool equal = true;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const auto found = wanted.find(std::string(paths[i]));
    chosen[i] = found != wanted.end();
    equal = equal && (!chosen[i] || found->second == opened.leaf(i).dtype());
  }
  v0::detail::Meter unmetered(options.progress, 0);
  std::size_t next = 0;
  if (boxes.check && !whole_files) {
    const auto which = [&](std::string_view name) { return wanted.find(std::string(name)) != wanted.end(); };
    STELE_TRY(boxes.check(which, unmetered, v0::detail::workers_of(options)));
  }
  // For boxes with checksums, only the values of bools remain to be checked.
  STELE_TRY(v0::detail::check_leaves(opened, options, unmetered, [&](const LeafView& leaf) {
    return chosen[next++] && (!boxes.check || boxes.deltas || leaf.dtype() == DType::boolean);
  }));
  LoadOptions checked = options;
  // The load itself finds numbers that do not fit the module's dtype.
  checked.trust_data = equal;
  return checked;
}

Status verify_whole(Exchange& exchange, const OpenedBoxes& opened, const Snapshot& live, const LoadOptions& options) {
  STELE_TRY_ASSIGN(const std::uint64_t cut, exchange.first_of(opened.cut && !options.trust_data ? 1 : 0));
  if (cut == 0) return {};
  return exchange.agree(v0::detail::guarded([&]() -> Status {
    const auto size = static_cast<std::size_t>(exchange.size());
    const LeafPaths paths(*opened.whole.data());
    v0::detail::Meter unmetered(options.progress, 0);
    std::size_t next = 0;
    return v0::detail::check_leaves(opened.whole, options, unmetered, [&](const LeafView& leaf) {
      const std::size_t i = next++;
      const auto range = leaf.location();
      if (range && !range->hashed) return false;  // no checksum to compare
      // Each process checks a share of the tensors, because several processes may need a tensor.
      return size == 1 ? live.find(paths[i]).has_value() : i % size == static_cast<std::size_t>(exchange.rank());
    });
  }));
}

Status load(Result<Target> target, const std::string& path, MPI_Comm comm, const Options& options) {
  return v0::detail::guarded([&]() -> Status {
    Exchange exchange(options.timeout_seconds);
    STELE_TRY(exchange.start(comm));
    OpenedBoxes opened;
    LoadOptions checked;
    auto prepared = v0::detail::guarded([&]() -> Status {
      if (!target) return std::move(target).error();
      STELE_TRY_ASSIGN(opened, open_boxes(path, target->live, options.load));
      STELE_TRY(target->check(*target, opened.snapshot, options.load));
      STELE_TRY_ASSIGN(checked, verify_boxes(opened, target->live, options.load, false));
      return {};
    });
    STELE_TRY(exchange.agree(std::move(prepared)));
    STELE_TRY(verify_whole(exchange, opened, target->live, options.load));
    Status loaded = target->load(*target, opened.snapshot, checked);
    const bool mine = loaded.has_value();
    loaded = exchange.agree(std::move(loaded));
    // This process has changed its module, but another process failed.
    if (!loaded && mine) return std::move(loaded).error().partially_applied(true);
    return loaded;
  });
}

}  // namespace stele::inline v0::mpi::detail
