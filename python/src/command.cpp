// The command in this process: the functions that take files run it with --json, and `python -m stele` is it.
#include <atomic>
#include <mutex>

#include "bindings.hpp"
#include "console.hpp"
#include "model.hpp"
#include "run.hpp"
#include "terminal.hpp"

namespace stele::python {

namespace {

class Run;

/// The command runs once at a time, in this process.
struct Turns {
  std::mutex turn;   // held by the run
  std::mutex mutex;  // lock of the next run; taken after `turn`
  const Run* now = nullptr;
};
Turns* turns = new Turns;

std::atomic<bool> urls{false};      // some were opened
std::atomic<bool> stopping{false};  // a signal handler has raised in wait_for()

/// A run of the command, which another thread can interrupt.
class Run {
 public:
  explicit Run(const nb::list& words) {
    for (const nb::handle word : words) words_.push_back(string_of(word));
  }
  /// Returns the exit status and, if `captured`, the output.
  nb::tuple run(bool captured) {
    std::string output;
    const int status = without_gil([&] {
      const std::lock_guard turn(turns->turn);
      if (!set_now(this)) return interrupted_status;
      command::set_for_python(captured);
      const int result = command::run(words_, captured ? &output : nullptr);
      command::set_for_python(false);
      set_now(nullptr);
      return result;
    });
    return nb::make_tuple(status, nb::bytes(output.data(), output.size()));
  }
  /// Ends the current run, or else the next run.
  void interrupt() {
    const std::lock_guard lock(turns->mutex);
    interrupted_ = true;
    if (turns->now == this) command::interrupt(true);
  }

 private:
  static constexpr int interrupted_status = 130;
  /// Returns false if the run was interrupted before it began.
  bool set_now(const Run* run) {
    const std::lock_guard lock(turns->mutex);
    command::interrupt(false);
    turns->now = run;
    return !interrupted_;
  }

  std::vector<std::string> words_;
  bool interrupted_ = false;
};

}  // namespace

void watch_urls() { urls = true; }

bool watches_signals() {
  if (!urls) return false;
  const nb::module_ threading = nb::module_::import_("threading");
  return threading.attr("current_thread")().is(threading.attr("main_thread")());
}

void wait_for(const std::function<bool(std::chrono::milliseconds)>& ended) {
  std::exception_ptr raised;
  while (!without_gil([&] { return ended(std::chrono::milliseconds(50)); })) {
    if (PyErr_CheckSignals() == 0) continue;
    try {
      nb::raise_python_error();
    } catch (...) {
      raised = std::current_exception();
    }
    stopping = true;
  }
  stopping = false;
  if (raised) std::rethrow_exception(raised);
}

void bind_command(nb::module_& module) {
  command::watch_interrupts([] { return stopping.load(); });
  nb::class_<Run>(module, "Run")
      .def(nb::init<const nb::list&>(), nb::arg("words"))
      .def("run", &Run::run, nb::arg("captured"))
      .def("interrupt", &Run::interrupt);
  // Ends requests of URLs, or (False) lets others begin.
  module.def(
      "stop_requests", [](bool on) { stopping = on; }, nb::arg("on"));
  module.def("install_signals", command::install_signals);
  module.def(
      "spelled", [](nb::handle message) { return text(command::spelled_for_python(string_of(message))); },
      nb::sig("def spelled(message: str) -> str"));
  // For a forked process, in which the thread that held the locks does not exist.
  module.def("forget_runs", [] {
    turns = new Turns;
    stopping = false;
    command::interrupt(false);
  });
}

}  // namespace stele::python
