#include "console.hpp"

#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace stele::command {

namespace {

volatile std::sig_atomic_t interruption = 0;

void on_signal(int signal) {
  if (interruption != 0) {  // a second one: at once
    std::signal(signal, SIG_DFL);
    static_cast<void>(std::raise(signal));
  }
  interruption = 1;
}

}  // namespace

std::vector<std::string> prepare_console(int argc, char** argv) { return {argv, argv + argc}; }

bool is_terminal(Stream stream) noexcept { return ::isatty(static_cast<int>(stream)) != 0; }

bool write_output(const char* text, std::size_t size) noexcept {
  while (size != 0) {
    const ssize_t written = ::write(STDOUT_FILENO, text, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text += written;
    size -= static_cast<std::size_t>(written);
  }
  return true;
}

void install_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);
  }
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
}

bool interrupted() noexcept { return interruption != 0; }

void interrupt(bool on) noexcept { interruption = on ? 1 : 0; }

}  // namespace stele::command
