// Support for the programs for a microcontroller, Arm or RISC-V: semihosting, through which QEMU prints, writes files
// and ends.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace board {

void print(std::string_view text);
void print(unsigned number);
inline void print_fault(unsigned code, unsigned offset) {
  print("fault ");
  print(code);
  print(" at ");
  print(offset);
  print("\n");
}
/// Returns false if the file cannot be written.
bool write_file(const char* name, std::span<const std::byte> bytes);
/// Returns the bytes of the stack that were ever in use.
unsigned stack_used();

}  // namespace board

/// Runs the program. Its result is the emulator's exit status: 0 or 1.
int run();
