// The format as a plug-in.
#include <stele/plugin.hpp>

#include "tiny.hpp"

STELE_PLUGIN(tiny_formats);
