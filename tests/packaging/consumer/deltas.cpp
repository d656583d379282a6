// Weight updates, and deltas of the core.
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <stele/delta.hpp>
#include <stele/deltas/updates.hpp>
#include <stele/record.hpp>

int main() {
  using Weights = std::map<std::string, std::vector<float>>;
  const Weights base{{"w", {1, 2, 3}}}, next{{"w", {1, 2, 4}}};
  const auto from = stele::snapshot_of(base).value(), to = stele::snapshot_of(next).value();
  const auto delta = stele::make_delta(from, to).value();
  const bool applied = stele::load<Weights>(stele::apply_delta(from, delta).value()).value() == next;
  stele::UpdateOptions options;
  options.encoding = "none";
  const auto refused = stele::save_update(from, to, "update", options);
  const bool good = applied && stele::delta_info(delta)->changed == 1 && !refused &&
                    refused.error().code() == stele::Errc::invalid_argument;
  std::cout << (good ? "deltas: ok\n" : "deltas: wrong\n");
  return good ? 0 : 1;
}
