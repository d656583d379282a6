// Reads text as operator descriptors, and checks that they are the same after writing and reading. Checks that an
// operation, with as many arguments of each type as the first bytes declare, gets names and then its original
// positions.
#include <stele/operators.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "fuzz/require.hpp"

namespace {

using stele_test::require;

template <class List>
void fill(List& list, std::uint8_t count) {
  list.resize(count % 8);
}

void check_positions(const stele::OperatorDescriptor& descriptor, std::span<const std::uint8_t> counts) {
  stele::GraphOperation operation;
  operation.op_name = descriptor.name;
  const auto count = [&](std::size_t i) { return i < counts.size() ? counts[i] : std::uint8_t{1}; };
  fill(operation.inputs, count(0));
  fill(operation.outputs, count(1));
  fill(operation.ints, count(2));
  fill(operation.doubles, count(3));
  fill(operation.bools, count(4));
  for (std::size_t i = 0; i < operation.ints.size(); ++i) operation.ints[i].second = count(5 + i) & 1;
  for (std::size_t i = 0; i < operation.bools.size(); ++i) operation.bools[i].second = (count(5 + i) & 2) != 0;
  const auto names = stele::named(descriptor, operation);
  if (!names) return;
  const auto again = stele::ordered(descriptor, *names);
  require(again.has_value());
  require(again->inputs == operation.inputs && again->outputs == operation.outputs);
  require(again->ints.size() == operation.ints.size() && again->doubles.size() == operation.doubles.size());
  require(again->bools.size() == operation.bools.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto operators = stele::OperatorSet::open(std::as_bytes(std::span(data, size)));
  if (!operators) return 0;
  const std::string text = operators->to_text();
  if (text.size() > (1 << 20)) return 0;
  const auto again = stele::OperatorSet::open(std::as_bytes(std::span(text)));
  require(again.has_value());
  require(std::equal(operators->all().begin(), operators->all().end(), again->all().begin(), again->all().end()));
  for (const stele::OperatorDescriptor& o : operators->all()) check_positions(o, std::span(data, size));
  return 0;
}
