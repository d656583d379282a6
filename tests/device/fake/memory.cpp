// Engine: memory of devices and of the host, and copies.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <utility>

#include "parts.hpp"

namespace stele_fake {

namespace {

constexpr std::uint64_t guard_bytes = 64 << 10;  // on both sides of an address range
constexpr std::uint64_t page_bytes = 64 << 10;   // the largest pages that Linux has
constexpr unsigned alignment = 256;              // that drivers promise
constexpr std::size_t host_alignment = 4096;
constexpr int device_byte = 0xDB;  // contents of new device memory
constexpr int host_byte = 0xDA;    // and of new host memory
constexpr int freed_byte = 0xDD;

}  // namespace

Block::~Block() {
  std::free(bytes);
  if (reserved != nullptr) ::munmap(reserved, reserved_bytes);
}

std::string Block::text() const {
  return std::to_string(size) + " bytes at " + hex(address) +
         (on_device ? " of device " + std::to_string(ordinal) : std::string(" of page-locked memory"));
}

Code Engine::allocate_device(std::size_t size, std::uint64_t& address) {
  Device* device = nullptr;
  if (const Code failed = current(device); failed != code::success) return failed;
  if (device->failed != code::success) return device->failed;
  if (size > device->limit - std::min(device->limit, device->bytes)) return code::out_of_memory;
  const auto block = std::make_shared<Block>();
  block->on_device = true;
  block->ordinal = device->ordinal;
  block->size = size;
  // The address differs from a multiple of the page by a random multiple of the alignment, and of no more.
  const std::uint64_t shift = random_() % (page_bytes / alignment) * alignment;
  if (size > std::numeric_limits<std::size_t>::max() / 2) return code::out_of_memory;
  block->reserved_bytes =
      static_cast<std::size_t>(guard_bytes + (shift + size + page_bytes - 1) / page_bytes * page_bytes + guard_bytes);
  void* const reserved =
      ::mmap(nullptr, block->reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return code::out_of_memory;
  block->reserved = reserved;
  block->address = reinterpret_cast<std::uintptr_t>(reserved) + guard_bytes + shift;
  block->bytes = static_cast<std::byte*>(std::malloc(size));
  if (block->bytes == nullptr) return code::out_of_memory;
  std::memset(block->bytes, device_byte, size);
  device->bytes += size;
  ++counters_.device_allocations;
  counters_.device_bytes += size;
  counters_.max_device_bytes = std::max(counters_.max_device_bytes, counters_.device_bytes);
  address = block->address;
  device_blocks_[address] = block;
  return code::success;
}

Code Engine::allocate_host(std::size_t size, void*& out) {
  Device* device = nullptr;
  if (const Code failed = current(device); failed != code::success) return failed;
  if (device->failed != code::success) return device->failed;
  if (size > host_limit_ - std::min(host_limit_, host_bytes_)) return code::out_of_memory;
  const auto block = std::make_shared<Block>();
  block->ordinal = device->ordinal;
  block->size = size;
  void* memory = nullptr;
  if (::posix_memalign(&memory, host_alignment, size) != 0) return code::out_of_memory;
  block->bytes = static_cast<std::byte*>(memory);
  block->address = reinterpret_cast<std::uintptr_t>(memory);
  std::memset(memory, host_byte, size);
  host_bytes_ += size;
  ++counters_.host_allocations;
  counters_.host_bytes += size;
  counters_.max_host_bytes = std::max(counters_.max_host_bytes, counters_.host_bytes);
  host_blocks_[block->address] = block;
  out = memory;
  return code::success;
}

/// Returns the block that contains the address.
std::shared_ptr<Block> Engine::find(const Blocks& blocks, std::uint64_t address) {
  const auto next = blocks.upper_bound(address);
  if (next == blocks.begin()) return nullptr;
  const auto& block = std::prev(next)->second;
  return address - block->address < block->size ? block : nullptr;
}

/// Frees a block, after the operations that use it, as drivers do. `silent`: it is no misuse to leave the wait to that.
Code Engine::release_block(const std::shared_ptr<Block>& block, bool silent) {
  Device& device = *devices_[static_cast<std::size_t>(block->ordinal)];
  if (block->on_device) {
    device.bytes -= block->size;
    --counters_.device_allocations;
    counters_.device_bytes -= block->size;
    device_blocks_.erase(block->address);
    freed_blocks_[block->address] = block;
  } else {
    host_bytes_ -= block->size;
    --counters_.host_allocations;
    counters_.host_bytes -= block->size;
    host_blocks_.erase(block->address);
  }
  std::vector<std::shared_ptr<Op>> pending;
  for (const Use& use : uses_) {
    if (use.block == block) pending.push_back(use.op);
  }
  std::erase_if(uses_, [&](const Use& use) { return use.block == block; });
  if (!pending.empty() && !silent && !lost_ && device.failed == code::success) {
    misuse("freed_in_use", block->text() + ", for whose copies the program has not waited");
  }
  Code result = code::success;
  for (const auto& op : pending) {
    if (const Code failed = wait(op); failed != code::success) result = failed;
  }
  if (result == code::success) {  // else a late operation still uses the bytes
    {
      const Shown shown;  // ThreadSanitizer compares this access with others
      std::memset(block->bytes, freed_byte, block->size);
    }
    std::free(std::exchange(block->bytes, nullptr));
  }
  return device.failed != code::success ? device.failed : result;
}

Code Engine::free_device(std::uint64_t address) {
  Device* device = nullptr;
  if (const Code failed = current(device, true); failed != code::success) return failed;
  const auto found = device_blocks_.find(address);
  if (found != device_blocks_.end()) {
    const auto block = found->second;
    return release_block(block, false);
  }
  misuse(freed_blocks_.count(address) != 0 ? "freed_twice" : "unknown_address", hex(address));
  return flavour.contexts ? code::invalid_value : code::invalid_device_pointer;
}

Code Engine::free_host(void* memory) {
  Device* device = nullptr;
  if (const Code failed = current(device, true); failed != code::success) return failed;
  const auto found = host_blocks_.find(reinterpret_cast<std::uintptr_t>(memory));
  if (found != host_blocks_.end()) {
    const auto block = found->second;
    return release_block(block, false);
  }
  misuse("unknown_address", "no page-locked memory begins at " + hex(reinterpret_cast<std::uintptr_t>(memory)));
  return code::invalid_value;
}

/// Returns the block of a range of device memory, or null after reporting a misuse.
std::shared_ptr<Block> Engine::device_range(std::uint64_t address, std::size_t size) {
  auto block = find(device_blocks_, address);
  if (!block) {
    const auto freed = find(freed_blocks_, address);
    misuse(freed ? "use_after_free" : "unknown_address",
           hex(address) + " is in no allocation of a device" + (freed ? ", but in freed " + freed->text() : ""));
    return nullptr;
  }
  if (size > block->size - (address - block->address)) {
    misuse("device_range", std::to_string(size) + " bytes at " + hex(address) + " exceed " + block->text());
    return nullptr;
  }
  return block;
}

Code Engine::copy_to_device(std::uint64_t to, const void* from, std::size_t size, void* stream) {
  return copy(true, to, static_cast<std::byte*>(const_cast<void*>(from)), size, stream);
}

Code Engine::copy_from_device(void* to, std::uint64_t from, std::size_t size, void* stream) {
  return copy(false, from, static_cast<std::byte*>(to), size, stream);
}

Code Engine::copy(bool to_device, std::uint64_t address, std::byte* host, std::size_t size, void* handle) {
  Device* device = nullptr;
  if (const Code failed = current(device); failed != code::success) return failed;
  if (device->failed != code::success) return device->failed;
  Stream* stream = nullptr;
  if (const Code failed = find_stream(handle, stream); failed != code::success) return failed;
  if (stream->device->failed != code::success) return stream->device->failed;
  if (size == 0) return code::success;
  const auto block = device_range(address, size);
  if (!block) return code::invalid_value;
  const std::uint64_t offset = address - block->address;
  if (block->ordinal != stream->device->ordinal) {
    misuse("wrong_device", block->text() + ", and the stream is of device " + std::to_string(stream->device->ordinal));
  }
  const std::uint64_t host_address = reinterpret_cast<std::uintptr_t>(host);
  const auto host_block = find(host_blocks_, host_address);
  auto partly = host_block;  // the block of some bytes only
  if (host_block) {
    if (size <= host_block->size - (host_address - host_block->address)) partly = nullptr;
  } else if (const auto next = host_blocks_.lower_bound(host_address);
             next != host_blocks_.end() && next->first - host_address < size) {
    partly = next->second;
  }
  if (partly) {
    misuse("host_range",
           std::to_string(size) + " bytes at " + hex(host_address) + " are only partly in " + partly->text());
    return code::invalid_value;
  }
  if (!host_block) {
    if (find(device_blocks_, host_address) || find(freed_blocks_, host_address) || host == nullptr) {
      misuse("unknown_address", hex(host_address) + " is no host memory");
      return code::invalid_value;
    }
    misuse("pageable", hex(host_address) + " is not page-locked, so the copy is not asynchronous");
  }

  const auto op = make_op();
  std::byte* const contents = block->bytes + offset;
  op->to = to_device ? contents : host;
  op->from = to_device ? host : contents;
  op->device_block = block;
  op->host_block = host_block;
  const std::size_t piece = std::max<std::size_t>(1, (size + 3) / 4);
  unsigned sleep_us = max_delay_us_ == 0 ? 0 : static_cast<unsigned>(random_() % (std::uint64_t{max_delay_us_} + 1));
  for (std::size_t done = 0; done < size; done += piece) {
    const unsigned part = sleep_us == 0 ? 0 : static_cast<unsigned>(random_() % (std::uint64_t{sleep_us} + 1));
    op->pieces.push_back({std::min(piece, size - done), part});
    sleep_us -= part;
  }
  for (Fault& fault : copy_faults_) {
    if (fault.skip != 0) {
      --fault.skip;
    } else if (fault.times != 0) {
      --fault.times;
      op->fail = fault.code;
    }
  }
  ++(to_device ? counters_.copies_to_device : counters_.copies_from_device);
  (to_device ? counters_.bytes_to_device : counters_.bytes_from_device) += size;
  counters_.largest_copy = std::max<std::uint64_t>(counters_.largest_copy, size);
  if (std::any_of(stream->queue.begin(), stream->queue.end(), [](const auto& other) { return other->copies(); })) {
    ++counters_.queued_copies;
  }
  std::vector<Use> uses;
  uses.push_back({block, offset, size, to_device, op});
  if (host_block) uses.push_back({host_block, host_address - host_block->address, size, !to_device, op});
  enqueue(*stream, op, std::move(uses));
  if (host_block) return code::success;
  return finish(op, *stream->device);
}

}  // namespace stele_fake
