#include "board.hpp"

#include <cstdint>
#include <cstring>

// From mps2.ld and virt.ld.
extern "C" std::uint32_t data_begin, data_end, data_in_flash, bss_begin, bss_end, stack_top;

namespace {

constexpr std::uint32_t untouched = 0x5AFE57AC;

std::uint32_t semihosting(std::uint32_t operation, const void* argument) {
#ifdef __riscv
  // "RISC-V Semihosting": these three instructions, uncompressed, on one page.
  register std::uint32_t a0 asm("a0") = operation;
  register const void* a1 asm("a1") = argument;
  asm volatile(".balign 16\n.option push\n.option norvc\nslli x0, x0, 0x1f\nebreak\nsrai x0, x0, 7\n.option pop\n"
               : "+r"(a0)
               : "r"(a1)
               : "memory");
  return a0;
#else
  register std::uint32_t r0 asm("r0") = operation;
  register const void* r1 asm("r1") = argument;
  asm volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
#endif
}

[[noreturn]] void stop(bool good) {
  const std::uintptr_t application_exit = 0x20026;
  const std::uintptr_t run_time_error = 0x20023;
  for (;;) semihosting(0x18, reinterpret_cast<const void*>(good ? application_exit : run_time_error));
}

}  // namespace

namespace board {

void print(std::string_view text) {
  for (const char c : text) semihosting(0x03, &c);
}

void print(unsigned number) {
  char digits[10];
  std::size_t n = sizeof digits;
  do {
    digits[--n] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  print({digits + n, sizeof digits - n});
}

bool write_file(const char* name, std::span<const std::byte> bytes) {
  const std::uintptr_t open[] = {reinterpret_cast<std::uintptr_t>(name), 5 /* "wb" */, std::strlen(name)};
  const std::uintptr_t file = semihosting(0x01, open);
  if (file == static_cast<std::uintptr_t>(-1)) return false;
  const std::uintptr_t write[] = {file, reinterpret_cast<std::uintptr_t>(bytes.data()), bytes.size()};
  const bool written = semihosting(0x05, write) == 0;
  return semihosting(0x02, &file) == 0 && written;
}

unsigned stack_used() {
  const std::uint32_t* at = &bss_end;
  while (at != &stack_top && *at == untouched) ++at;
  return static_cast<unsigned>((&stack_top - at) * 4);
}

}  // namespace board

extern "C" [[noreturn, gnu::used]] void reset() {
#ifndef __riscv
  *reinterpret_cast<volatile std::uint32_t*>(0xE000ED88) |= 0xFU << 20;  // switch the FPU on
  asm volatile("dsb\nisb");
#endif
  const std::uint32_t* from = &data_in_flash;
  for (std::uint32_t* to = &data_begin; to != &data_end; ++to) *to = *from++;
  for (std::uint32_t* to = &bss_begin; to != &bss_end; ++to) *to = 0;
  const auto* here = static_cast<std::uint32_t*>(__builtin_frame_address(0)) - 16;  // not the frame in use
  for (volatile std::uint32_t* to = &bss_end; to < here; ++to) *to = untouched;
  stop(run() == 0);
}

extern "C" [[noreturn, gnu::used, gnu::aligned(4)]] void fault() {
  board::print("a fault of the processor\n");
  stop(false);
}

#ifdef __riscv
asm(".section .vectors, \"ax\"\n"
    ".global start\n"
    "start: la sp, stack_top\n"
    "la t0, fault\n"
    ".option arch, +zicsr\n"
    "csrw mtvec, t0\n"
    "j reset\n"
    ".previous\n");
#else
extern "C" const std::uintptr_t vectors[16];
[[gnu::section(".vectors"), gnu::used]] const std::uintptr_t vectors[16] = {
    reinterpret_cast<std::uintptr_t>(&stack_top), reinterpret_cast<std::uintptr_t>(&reset),
    reinterpret_cast<std::uintptr_t>(&fault),     reinterpret_cast<std::uintptr_t>(&fault),
    reinterpret_cast<std::uintptr_t>(&fault),     reinterpret_cast<std::uintptr_t>(&fault),
    reinterpret_cast<std::uintptr_t>(&fault),
};
#endif
