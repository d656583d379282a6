// All that a program has of the reader that opens a file and finds its tensors: its size is tested.
#include <stele/recorders/stele_reader.hpp>

#include <new>

extern "C" stele::Errc open_file(void* at, const std::byte* memory, std::size_t size, stele::format::Hash hash) {
  return (new (at) stele::format::MemoryFile)->open({memory, size}, hash).code;
}
extern "C" stele::Errc find_tensor(const stele::format::MemoryFile& file, const char* path, std::size_t length,
                                   stele::format::TensorBytes& out, stele::format::Hash hash) {
  return file.tensor({path, length}, out, hash).code;
}
