# Boost headers, 1.81 or newer (Describe, PFR), as the target stele_boost.
#
# Searches STELE_BOOST_INCLUDE (the folder that contains boost/), then build/deps/boost of the source tree, where
# `make deps` unpacks them when another Boost is installed, then Boost_ROOT and CMake's default places. This file
# is also installed: in a project that uses stele it searches again.
set(STELE_BOOST_INCLUDE "" CACHE PATH "Folder that holds boost/, 1.81 or newer")

# Not cached: an answer kept from before `make deps` would be wrong after it.
unset(SteleBoost_INCLUDE_DIR)
# NO_CMAKE_FIND_ROOT_PATH: headers alone, for any system; a toolchain file would replace the folder by one below its root.
if(STELE_BOOST_INCLUDE)
  find_path(SteleBoost_INCLUDE_DIR boost/version.hpp PATHS ${STELE_BOOST_INCLUDE} NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH NO_CACHE)
else()
  if(PROJECT_NAME STREQUAL "stele")
    find_path(SteleBoost_INCLUDE_DIR boost/version.hpp PATHS "${PROJECT_SOURCE_DIR}/build/deps/boost/usr/include"
              NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH NO_CACHE)
  endif()
  find_path(SteleBoost_INCLUDE_DIR boost/version.hpp HINTS ${Boost_INCLUDE_DIR} ${Boost_ROOT} ${BOOST_ROOT}
            ENV Boost_ROOT ENV BOOST_ROOT PATH_SUFFIXES include NO_CACHE)
endif()
if(SteleBoost_INCLUDE_DIR)
  string(REGEX REPLACE "/$" "" SteleBoost_INCLUDE_DIR "${SteleBoost_INCLUDE_DIR}")
  file(STRINGS "${SteleBoost_INCLUDE_DIR}/boost/version.hpp" _line REGEX "^#define BOOST_VERSION [0-9]+")
  string(REGEX REPLACE "[^0-9]" "" _number "${_line}")
  math(EXPR _major "${_number} / 100000")
  math(EXPR _minor "${_number} / 100 % 1000")
  set(SteleBoost_VERSION ${_major}.${_minor})
  if(_number LESS 108100)
    set(_problem "stele needs Boost 1.81 or newer, but ${SteleBoost_INCLUDE_DIR} holds ${SteleBoost_VERSION}.")
  endif()
else()
  set(_problem "stele needs the headers of Boost 1.81 or newer, but none were found.")
endif()
if(_problem)
  set(SteleBoost_INCLUDE_DIR)
  string(APPEND _problem " Install libboost1.81-dev, or name the folder that holds boost/: -D STELE_BOOST_INCLUDE=... In a"
                         " checkout of stele, `make deps` unpacks the headers below build/deps where another Boost is in the way.")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SteleBoost REQUIRED_VARS SteleBoost_INCLUDE_DIR VERSION_VAR SteleBoost_VERSION
                                  REASON_FAILURE_MESSAGE "${_problem}")
if(SteleBoost_FOUND AND NOT TARGET stele_boost)
  add_library(stele_boost INTERFACE IMPORTED GLOBAL)
  set_target_properties(stele_boost PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${SteleBoost_INCLUDE_DIR}")
endif()
unset(_line)
unset(_number)
unset(_major)
unset(_minor)
unset(_problem)
