# RE2 as the target re2::re2: from its own CMake package, which Debian 12 does not have, or else from the library file.
find_package(re2 CONFIG QUIET)
include(FindPackageHandleStandardArgs)
if(re2_CONFIG AND TARGET re2::re2)
  find_package_handle_standard_args(re2 CONFIG_MODE)
else()
  find_path(re2_INCLUDE_DIR re2/re2.h)
  find_library(re2_LIBRARY re2)
  find_package_handle_standard_args(re2 REQUIRED_VARS re2_LIBRARY re2_INCLUDE_DIR)
  mark_as_advanced(re2_INCLUDE_DIR re2_LIBRARY)
  if(re2_FOUND AND NOT TARGET re2::re2)  # this file may be read again
    add_library(re2::re2 UNKNOWN IMPORTED)
    set_target_properties(re2::re2 PROPERTIES IMPORTED_LOCATION "${re2_LIBRARY}"
                                              INTERFACE_INCLUDE_DIRECTORIES "${re2_INCLUDE_DIR}")
  endif()
endif()
