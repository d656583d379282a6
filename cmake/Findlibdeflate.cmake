# libdeflate as the target libdeflate::libdeflate: from its own CMake package, which Debian 12 does not have, or else
# from the library file.
find_package(libdeflate CONFIG QUIET)
include(FindPackageHandleStandardArgs)
foreach(stele_libdeflate IN ITEMS libdeflate::libdeflate_shared libdeflate::libdeflate_static)
  if(TARGET ${stele_libdeflate} AND NOT TARGET libdeflate::libdeflate)
    add_library(libdeflate::libdeflate INTERFACE IMPORTED)
    target_link_libraries(libdeflate::libdeflate INTERFACE ${stele_libdeflate})
  endif()
endforeach()
if(libdeflate_CONFIG AND TARGET libdeflate::libdeflate)
  find_package_handle_standard_args(libdeflate CONFIG_MODE)
else()
  find_path(libdeflate_INCLUDE_DIR libdeflate.h)
  find_library(libdeflate_LIBRARY deflate)
  find_package_handle_standard_args(libdeflate REQUIRED_VARS libdeflate_LIBRARY libdeflate_INCLUDE_DIR)
  mark_as_advanced(libdeflate_INCLUDE_DIR libdeflate_LIBRARY)
  if(libdeflate_FOUND AND NOT TARGET libdeflate::libdeflate)  # this file may be read again
    add_library(libdeflate::libdeflate UNKNOWN IMPORTED)
    set_target_properties(libdeflate::libdeflate PROPERTIES IMPORTED_LOCATION "${libdeflate_LIBRARY}"
                                                            INTERFACE_INCLUDE_DIRECTORIES "${libdeflate_INCLUDE_DIR}")
  endif()
endif()
