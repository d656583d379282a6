// Models that are folders.
#include <stele/bundle.hpp>

#include <doctest/doctest.h>
