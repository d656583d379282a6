// All that a program has of the writer, without the tables of its modules: its size is printed.
#include <stele/recorders/stele_writer.hpp>

extern "C" stele::Errc write_module(const stele::detail::TypeInfo& type, const void* module,
                                    std::span<std::byte> memory, std::size_t& size, stele::format::Hash hash) {
  return stele::detail::write_object(type, module, memory, size, hash).code;
}
