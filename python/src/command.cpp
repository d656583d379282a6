// The command in this process: the functions that take files run it with --json, and `python -m stele` is it.
#include <mutex>

#include "bindings.hpp"
#include "console.hpp"
#include "model.hpp"
#include "run.hpp"

namespace stele::python {

namespace {

std::mutex running;

/// Returns the exit status and, if `captured`, the output.
nb::tuple run(const nb::list& arguments, bool captured) {
  std::vector<std::string> words;
  for (const nb::handle word : arguments) words.push_back(string_of(word));
  std::string output;
  const int status = without_gil([&] {
    const std::lock_guard lock(running);
    command::interrupt(false);
    return command::run(words, captured ? &output : nullptr);
  });
  return nb::make_tuple(status, nb::bytes(output.data(), output.size()));
}

}  // namespace

void bind_command(nb::module_& module) {
  command::watch_interrupts();
  module.def("run", run, nb::arg("words"), nb::arg("captured"));
  module.def("interrupt", [] { command::interrupt(true); });
}

}  // namespace stele::python
