// Functions that differ between systems: arguments, terminals, signals. console_posix.cpp, console_windows.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace stele::command {

/// Returns the arguments in UTF-8. Prepares standard input, output and error for bytes and UTF-8.
std::vector<std::string> prepare_console(int argc, char** argv);

enum class Stream : int { output = 1, error = 2 };
/// Returns true for a terminal, which obeys escape sequences.
bool is_terminal(Stream stream) noexcept;

/// Writes to standard output. Returns false, with errno, on an error; EPIPE if the reader has gone.
bool write_output(const char* text, std::size_t size) noexcept;

/// Makes SIGINT, SIGTERM and SIGHUP (on Windows: Ctrl+C, Ctrl+Break and closing the console) end the command in an
/// orderly way, except those that its parent ignores (nohup), and SIGPIPE and SIGXFSZ errors of writing.
void install_signals();
bool interrupted() noexcept;
/// Ends the running command like a signal, or (`false`) lets another one run.
void interrupt(bool on) noexcept;

}  // namespace stele::command
