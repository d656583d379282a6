// A plug-in for another version of the library.
#include <stele/plugin.hpp>

#undef STELE_VERSION
#define STELE_VERSION 1
static stele::FormatFamily none() { return {}; }
STELE_PLUGIN(none);
