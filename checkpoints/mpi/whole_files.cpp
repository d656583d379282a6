// Files of whole tensors that all processes write together: MPI-IO joins their boxes into large writes.
#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>

#include "base/hash.hpp"
#include "encodings/safetensors/file.hpp"
#include "json/json.hpp"
#include "packing.hpp"
#include "part.hpp"
#include "snapshot/flat.hpp"
#include "snapshot/tensor_index.hpp"
#include "stele/bundle.hpp"
#include "stele/detail/little_endian.hpp"

namespace stele::inline v0::mpi::detail {
namespace {

namespace json = v0::detail::json;
namespace safetensors = v0::detail::safetensors;

/// Bytes that a process passes to MPI at a time.
constexpr std::uint64_t chunk_size = std::uint64_t{32} << 20;

Status failed(int code, const char* what, const std::string& file) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING];
  int size = 0;
  MPI_Error_string(code, text, &size);
  return Error(Errc::io, std::string(what) + ": " + std::string(text, static_cast<std::size_t>(size))).file(file);
}

/// Leaves without bytes, used to plan a file's header.
constexpr LeafOps no_bytes{.read = [](const void*, std::uint64_t, std::uint64_t, std::span<std::byte>,
                                      ReadContext&) -> Status { return Error(Errc::unsupported, "no bytes"); }};

Snapshot whole_tensors(const TensorTable& table) {
  SnapshotBuilder builder;
  builder.set_flat();
  for (const GlobalTensor& tensor : table.tensors()) {
    const std::uint64_t bytes = element_count(tensor.shape).value_or(0) * element_size(tensor.dtype);
    builder.tensor(builder.intern(tensor.name), tensor.dtype, tensor.shape, bytes, {&no_bytes, nullptr, 0});
  }
  return builder.finish();
}

/// Distributes the tensors, in order, over at most `files` files of about equal size.
std::vector<std::vector<std::uint32_t>> split(const Snapshot& whole, unsigned files) {
  std::vector<std::vector<std::uint32_t>> parts(1);
  const std::uint64_t each = whole.byte_size() / files + 1;
  std::uint64_t size = 0;
  for (std::uint32_t i = 0; i < whole.leaf_count(); ++i) {
    if (size >= each && parts.size() < files) {
      parts.emplace_back();
      size = 0;
    }
    parts.back().push_back(i);
    size += whole.leaf(i).byte_size();
  }
  return parts;
}

/// Returns the MPI datatype of the box's bytes in the whole tensor. Errors: limit (MPI counts with 32 bits).
Result<MPI_Datatype> box_type(const LocalTensor& tensor, std::size_t element) {
  std::vector<int> sizes, lengths, starts;
  const auto add = [&](Extent size, Extent length, Extent start, std::size_t unit) {
    sizes.push_back(static_cast<int>(size * unit));
    lengths.push_back(static_cast<int>(length * unit));
    starts.push_back(static_cast<int>(start * unit));
    return size <= static_cast<Extent>(INT32_MAX) / unit;
  };
  const std::size_t rank = tensor.whole.shape.size();
  bool fits = true;
  for (std::size_t d = 0; d < rank; ++d) {
    fits = add(tensor.whole.shape[d], tensor.box.length[d], tensor.box.start[d], 1) && fits;
  }
  fits = add(element, element, 0, 1) && fits;
  if (!fits)
    return Error(Errc::limit, "MPI-IO writes tensors of less than 2^31 elements along an axis").path(tensor.whole.name);
  MPI_Datatype type = MPI_DATATYPE_NULL;
  const int code = MPI_Type_create_subarray(static_cast<int>(rank) + 1, sizes.data(), lengths.data(), starts.data(),
                                            MPI_ORDER_C, MPI_BYTE, &type);
  if (code == MPI_SUCCESS) MPI_Type_commit(&type);
  STELE_TRY(failed(code, "cannot describe a box to MPI", tensor.whole.name));
  return type;
}

/// Writes this process's box, if it has one. Collective. Returns a local error only after all writes, so that no other
/// process waits. MPI-IO has no timeout, so all processes meet in an exchange, which has a timeout, before the MPI-IO
/// calls.
Status write_tensor(Exchange& exchange, MPI_File file, std::uint64_t at, const LocalPart& part,
                    const LocalTensor* tensor, const std::string& path) {
  MPI_Datatype type = MPI_BYTE;
  std::uint64_t bytes = 0;
  Bytes buffer;
  Status status = v0::detail::guarded([&]() -> Status {
    if (tensor == nullptr || part.snapshot.leaf(tensor->leaf).byte_size() == 0) return {};
    const LeafView leaf = part.snapshot.leaf(tensor->leaf);
    buffer = Bytes(static_cast<std::size_t>(std::min(leaf.byte_size(), chunk_size)));
    STELE_TRY_ASSIGN(type, box_type(*tensor, element_size(leaf.dtype())));
    bytes = leaf.byte_size();
    return {};
  });
  STELE_TRY_ASSIGN(const std::uint64_t longest, exchange.largest(bytes));
  // A view whose filetype has no bytes is invalid.
  int code = MPI_File_set_view(file, static_cast<MPI_Offset>(at), MPI_BYTE, bytes != 0 ? type : MPI_BYTE, "native",
                               MPI_INFO_NULL);
  if (status) status = failed(code, "cannot set the view of the file", path);
  for (std::uint64_t done = 0; done < longest; done += chunk_size) {
    const auto n = static_cast<std::size_t>(done < bytes ? std::min(chunk_size, bytes - done) : 0);
    if (n != 0 && status) {
      if (auto read = part.snapshot.leaf(tensor->leaf).read(done, buffer.span().first(n)); !read) status = read;
    }
    MPI_Status ended;
    code = MPI_File_write_at_all(file, static_cast<MPI_Offset>(done), buffer.data(), static_cast<int>(n), MPI_BYTE,
                                 &ended);
    if (status) status = failed(code, "cannot write", path);
  }
  if (type != MPI_BYTE) MPI_Type_free(&type);
  return status;
}

Status write_file(Exchange& exchange, const LocalPart& part, const Plan& plan, const Snapshot& whole,
                  const std::vector<std::uint32_t>& leaves, const std::string& path) {
  safetensors::FilePlan layout;
  STELE_TRY(exchange.agree(v0::detail::guarded([&]() -> Status {
    const v0::detail::LeafPaths paths(*whole.data());
    const std::vector<v0::detail::TensorEntry> all = v0::detail::entries_of(whole, paths);
    std::vector<v0::detail::TensorEntry> tensors;
    for (const std::uint32_t leaf : leaves) tensors.push_back(all[leaf]);
    STELE_TRY_ASSIGN(layout, safetensors::plan_file(tensors, {{"format", "pt"}}));
    for (std::uint32_t& number : layout.order) number = leaves[number];
    return {};
  })));
  MPI_File file = MPI_FILE_NULL;
  STELE_TRY(exchange.agree(
      failed(MPI_File_open(exchange.comm(), path.c_str(), MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file),
             "cannot create", path)));
  Status status;
  if (exchange.is_root()) {
    std::string head(8, '\0');
    v0::detail::store_le(reinterpret_cast<std::byte*>(head.data()), std::uint64_t{layout.header.size()});
    head += layout.header;
    MPI_Status ended;
    status = failed(MPI_File_write_at(file, 0, head.data(), static_cast<int>(head.size()), MPI_BYTE, &ended),
                    "cannot write", path);
  }
  std::vector<bool> written(plan.mine.size());
  for (const std::uint32_t number : plan.writes) written[number] = true;
  std::uint64_t at = 8 + layout.header.size();
  for (const std::uint32_t number : layout.order) {
    auto done = write_tensor(exchange, file, at, part, written[number] ? plan.mine[number] : nullptr, path);
    if (exchange.broken()) return done;  // closing the file would wait for the other processes
    if (status) status = std::move(done);
    at += whole.leaf(number).byte_size();
  }
  status = exchange.agree(std::move(status));
  if (exchange.broken()) return status;
  if (status) status = failed(MPI_File_sync(file), "cannot sync", path);
  const int closed = MPI_File_close(&file);
  if (status) status = failed(closed, "cannot close", path);
  return exchange.agree(std::move(status));
}

std::string file_of(std::size_t number, std::size_t count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", number + 1, count);
  return name;
}

/// Writes the index file of transformers, in process 0.
Status write_weight_map(const LocalPart& part, const Snapshot& whole,
                        const std::vector<std::vector<std::uint32_t>>& files, Bundle& folder, const std::string& name) {
  std::map<std::string, std::string> weights;
  for (std::size_t f = 0; f < files.size(); ++f) {
    for (const std::uint32_t leaf : files[f]) weights.emplace(whole.leaf(leaf).path(), file_of(f, files.size()));
  }
  std::string text;
  json::Writer out(text);
  out.begin_object();
  out.key("metadata");
  out.begin_object();
  std::map<std::string, std::string> metadata = part.snapshot.metadata();
  STELE_TRY(v0::detail::add_flat_key(metadata, part.extras));
  for (const auto& [key, value] : metadata) {
    out.key(key);
    out.string(value);
  }
  out.key("total_size");
  out.u64(whole.byte_size());
  out.end_object();
  out.key("weight_map");
  out.begin_object();
  for (const auto& [tensor, file] : weights) {
    out.key(tensor);
    out.string(file);
  }
  out.end_object();
  out.end_object();
  STELE_TRY_ASSIGN(const auto sink, folder.create(name));
  STELE_TRY(sink->write(std::as_bytes(std::span(text))));
  return sink->commit();
}

}  // namespace

Result<PartFiles> write_whole_files(Exchange& exchange, const LocalPart& part, const Plan& plan, const Options& options,
                                    const PartPlace& place) {
  const std::string folder = place.share->folder();
  if (folder.empty()) {
    return Error(Errc::unsupported, "files of whole tensors are written by MPI-IO, which needs a folder")
        .hint("set Options::files to 0");
  }
  const Snapshot whole = whole_tensors(plan.table);
  const auto files = split(whole, options.files);
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string path = folder + "/" + place.prefix + file_of(i, files.size());
    STELE_TRY(write_file(exchange, part, plan, whole, files[i], path));
  }
  // Each process reads its share of the files again to compute their checksums.
  std::string mine;
  Status status;
  const auto add = [&](const std::string& name) {
    auto file = v0::detail::steps::hash_file(place.share->files(), name);
    if (!file) {
      status = std::move(file).error();
      return;
    }
    add_text(mine, file->name);
    add_number(mine, file->bytes);
    add_number(mine, file->xxh3);
  };
  for (std::size_t i = static_cast<std::size_t>(exchange.rank()); i < files.size() && status;
       i += static_cast<std::size_t>(exchange.size())) {
    add(place.prefix + file_of(i, files.size()));
  }
  if (exchange.is_root() && status) {
    const std::string name = place.prefix + "model.safetensors.index.json";
    status = write_weight_map(part, whole, files, place.share->files(), name);
    if (status) add(name);
  }
  STELE_TRY(exchange.agree(std::move(status)));
  STELE_TRY_ASSIGN(const std::vector<std::string> all, exchange.gather(mine));
  PartFiles found;
  for (const std::string& one : all) {
    for (Unpacker in(one); !in.empty();) {
      auto& file = found.emplace_back();
      file.name = in.text();
      file.bytes = in.number();
      file.xxh3 = in.number();
    }
  }
  return found;
}

}  // namespace stele::inline v0::mpi::detail
