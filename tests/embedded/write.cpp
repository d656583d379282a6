// A model that was filled here is written into memory here and sent out: IMAGES in, the file WRITTEN out.
#include <stele/recorders/stele_writer.hpp>

#include <array>
#include <cstddef>
#include <span>

#include "board.hpp"
#include "hash.hpp"
#include "observer.hpp"

asm(".section .model,\"a\"\n"
    "images_begin: .incbin \"" IMAGES
    "\"\n"
    "images_end:\n"
    ".previous\n");
extern "C" const std::byte images_begin[], images_end[];

namespace {

std::array<float, 16> half;
alignas(64) std::array<std::byte, 3072> memory;

}  // namespace

int run() {
  Observer observer(half);
  for (const std::byte* image = images_begin; image != images_end; image += Observer::pixels) observer.see(image);

  std::size_t size = 0;
  if (const auto fault = stele::write_to(observer, memory, size, xxh3)) {
    board::print_fault(static_cast<unsigned>(fault.code), static_cast<unsigned>(fault.offset));
    return 1;
  }
  if (!board::write_file(WRITTEN, std::span(memory).first(size))) {
    board::print("cannot write " WRITTEN "\n");
    return 1;
  }
  board::print("stack: ");
  board::print(board::stack_used());
  board::print(" bytes\n");
  return 0;
}
