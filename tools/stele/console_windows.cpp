#include "console.hpp"

#ifndef NOMINMAX
#define NOMINMAX
#endif
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
// After windows.h.
#include <shellapi.h>

#include <fcntl.h>
#include <io.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>

namespace stele::command {

namespace {

std::atomic<bool> interruption{false};

BOOL WINAPI on_event(DWORD) {
  return interruption.exchange(true) ? FALSE : TRUE;  // a second one: at once, by the default handler
}

UINT output_page = 0;
void restore_console() { ::SetConsoleOutputCP(output_page); }

HANDLE handle_of(Stream stream) noexcept {
  return ::GetStdHandle(stream == Stream::output ? STD_OUTPUT_HANDLE : STD_ERROR_HANDLE);
}

}  // namespace

std::vector<std::string> prepare_console(int argc, char** argv) {
  for (std::FILE* const file : {stdin, stdout, stderr}) ::_setmode(::_fileno(file), _O_BINARY);
  output_page = ::GetConsoleOutputCP();
  if (output_page != 0 && output_page != CP_UTF8 && ::SetConsoleOutputCP(CP_UTF8) != 0) std::atexit(restore_console);
  // argv has the code page's characters only.
  int count = 0;
  const std::unique_ptr<wchar_t*, decltype(&::LocalFree)> all(::CommandLineToArgvW(::GetCommandLineW(), &count),
                                                              ::LocalFree);
  if (all == nullptr) return {argv, argv + argc};
  std::vector<std::string> words;
  for (int i = 0; i < count; ++i) {
    const wchar_t* const word = all.get()[i];
    const int size = ::WideCharToMultiByte(CP_UTF8, 0, word, -1, nullptr, 0, nullptr, nullptr);
    std::string& text = words.emplace_back(static_cast<std::size_t>(std::max(size, 1)), '\0');
    ::WideCharToMultiByte(CP_UTF8, 0, word, -1, text.data(), size, nullptr, nullptr);
    text.pop_back();  // the zero at the end
  }
  return words;
}

bool is_terminal(Stream stream) noexcept {
  DWORD mode = 0;
  const HANDLE handle = handle_of(stream);
  return ::GetConsoleMode(handle, &mode) != 0 &&
         ((mode & ENABLE_VIRTUAL_TERMINAL_PROCESSING) != 0 ||
          ::SetConsoleMode(handle, mode | ENABLE_PROCESSED_OUTPUT | ENABLE_VIRTUAL_TERMINAL_PROCESSING) != 0);
}

bool write_output(const char* text, std::size_t size) noexcept {
  constexpr std::size_t largest = std::size_t{1} << 20;
  const HANDLE handle = handle_of(Stream::output);
  while (size != 0) {
    DWORD written = 0;
    if (::WriteFile(handle, text, static_cast<DWORD>(std::min(size, largest)), &written, nullptr) == 0) {
      const DWORD code = ::GetLastError();
      const bool no_reader = code == ERROR_BROKEN_PIPE || code == ERROR_NO_DATA || code == ERROR_PIPE_NOT_CONNECTED;
      errno = no_reader                                                   ? EPIPE
              : code == ERROR_DISK_FULL || code == ERROR_HANDLE_DISK_FULL ? ENOSPC
              : code == ERROR_INVALID_HANDLE                              ? EBADF
                                                                          : EIO;
      return false;
    }
    text += written;
    size -= written;
  }
  return true;
}

void install_signals() { ::SetConsoleCtrlHandler(on_event, TRUE); }

bool interrupted() noexcept { return interruption; }

void interrupt(bool on) noexcept { interruption = on; }

}  // namespace stele::command
