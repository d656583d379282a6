#include "stele/bytes.hpp"

#include <new>

#include "os/os.hpp"

namespace stele {
inline namespace v0 {
namespace detail {

namespace {

// From here on a block holds a whole huge page. Filling fresh memory then takes a third of the time (measured for
// 2 MiB; half for 3 MiB, a quarter from 4 MiB on), since most of it is page faults.
constexpr std::size_t large = os::huge_page;

constexpr std::align_val_t alignment(std::size_t size) noexcept {
  return std::align_val_t{size < large ? std::size_t{64} : os::huge_page};
}

}  // namespace

void* allocate(std::size_t size) {
  if (size == 0) return nullptr;
  // operator new and not the system's mapping: address sanitizers and replaced allocators see these blocks too.
  void* const memory = ::operator new(size, alignment(size));
  if (size >= large) os::advise_huge_pages(memory, size);
  return memory;
}

void deallocate(void* memory, std::size_t size) noexcept {
  if (memory != nullptr) ::operator delete(memory, alignment(size));
}

}  // namespace detail
}  // namespace v0
}  // namespace stele
