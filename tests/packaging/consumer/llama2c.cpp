// One recorder alone: models of llama2.c, which it only reads.
#include <stele/recorders/read_only.hpp>

#include <span>
#include <string>
#include <string_view>

#include "opened.hpp"

int main() {
  using namespace std::string_view_literals;
  // Version 1, a shared classifier; dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size and max_seq_len are 1.
  std::string file("24ka\x01\0\0\0"sv);
  for (int i = 0; i < 7; ++i) file += "\x01\0\0\0"sv;
  file += '\x01';
  file.resize(256);
  for (int i = 0; i < 11; ++i) file += "\0\0\0\x40"sv;  // as many weights of one element
  const stele::Llama2cRecorder<> recorder;
  check(recorder.open(std::as_bytes(std::span(file))).value(), "output.weight", {2.0F});
  return 0;
}
