// One recorder alone: pickles of NumPy arrays, which are only read.
#include <stele/record.hpp>
#include <stele/recorders/read_only.hpp>

#include <span>
#include <string_view>

#include "model.hpp"

int main() {
  using namespace std::string_view_literals;
  constexpr std::string_view file = "\x80\x04}\x8c\4stepK\7s."sv;
  const stele::Snapshot opened = stele::PickleRecorder<>().open(std::as_bytes(std::span(file))).value();
  return opened.nodes().size() == 2 ? 0 : 1;
}
