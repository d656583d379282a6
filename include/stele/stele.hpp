// The headers for a first program: modules, records, tensors, precisions, recorders and load().
#pragma once

#include "stele/module.hpp"
#include "stele/record.hpp"
#include "stele/recorder.hpp"
#include "stele/recorders/any.hpp"
#include "stele/recorders/binary.hpp"
#include "stele/recorders/json.hpp"
#include "stele/recorders/safetensors.hpp"
#include "stele/tensor.hpp"
