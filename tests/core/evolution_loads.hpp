// Loads of files of older versions of classes (tests/evolution/data, written by evolution/write_old.cpp).
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "evolution/old.hpp"
#include "support/any_recorder.hpp"
#include "support/models.hpp"
#include "support/temp_dir.hpp"
#include "support/test_data.hpp"

namespace stele_test {

using stele::Errc;
using stele::LoadOptions;
using stele::Report;
using stele::Result;
using stele::Snapshot;
using stele::Tensor;

using Floats = std::vector<float>;

inline std::string old_path(const AnyRecorder& recorder, std::string_view group) {
  return test_data() + "/evolution/data/" + old_file(recorder.format().target(), group);
}

/// Loads M from `from` in each way there is, and shows it to `check`.
template <class M, class Check>
void in_every_way(const AnyRecorder& recorder, const stele::Input& from, const LoadOptions& options, Check check) {
  Report report;
  M live = good(recorder.load<M>(from, reporting(options, report)));
  check(live);
  good(recorder.load_into(live, from, options));
  check(live);
  LoadOptions rebuild = options;
  rebuild.rebuild = true;
  M empty;
  good(recorder.load_into(empty, from, rebuild));
  check(empty);
  check(good(stele::from_record<M>(good(recorder.load<stele::Record<M>>(from, options)))));
  const Snapshot file = good(recorder.open(from, options));
  // A dry run makes no object that could be shared.
  const Report dry = good(stele::dry_run<M>(file, options));
  CHECK(dry.count(Report::What::applied) == report.count(Report::What::applied) + report.count(Report::What::tied));
}

template <class M>
stele::Error refused(const AnyRecorder& recorder, std::string_view group, const LoadOptions& options = {}) {
  return bad(recorder.load<M>(old_path(recorder, group), options));
}

template <class T>
Floats numbers(const T& tensor) {
  return Floats(tensor.begin(), tensor.end());
}

}  // namespace stele_test
