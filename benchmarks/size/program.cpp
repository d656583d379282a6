// A program with one recorder, STELE_SIZE_RECORDER of STELE_SIZE_HEADER; without these macros, with all recorders.
#ifndef STELE_SIZE_HEADER
#define STELE_SIZE_HEADER <stele/stele.hpp>
#endif
#include STELE_SIZE_HEADER

#include "model.hpp"

int main(int count, char** arguments) {
  if (count != 2) return 2;
#ifdef STELE_SIZE_RECORDER
  const STELE_SIZE_RECORDER recorder;
  const auto model = recorder.load<Model>(arguments[1]);
  return model && recorder.save(*model, arguments[1]) ? 0 : 1;
#else
  const auto model = stele::load<Model>(arguments[1]);
  return model && stele::save(*model, arguments[1]) ? 0 : 1;
#endif
}
