# Helpers for the rooms: one CMake target a room, all in the list STELE_ROOMS, which stele::stele links and install ships.

# stele_add_room(FOLDER): its CMakeLists.txt, or a message while there is none.
macro(stele_add_room folder)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${folder}/CMakeLists.txt")
    add_subdirectory(${folder})
  else()
    message(STATUS "stele: ${folder} has no CMakeLists.txt yet, left out")
  endif()
endmacro()

# stele_room(NAME [PUBLIC target...] [PRIVATE target...])
#
# A static library stele_NAME (stele::NAME) of every .cpp below the current folder. It sees the public headers. Other
# rooms among the targets are left out while they have no sources; without sources of its own the room is left out.
function(stele_room name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "PUBLIC;PRIVATE")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "*.cpp")
  if(NOT sources)
    message(STATUS "stele: ${name} has no sources yet, left out")
    return()
  endif()
  add_library(stele_${name} STATIC ${sources})
  target_include_directories(stele_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(stele_${name} PUBLIC cxx_std_20)
  foreach(scope IN ITEMS PUBLIC PRIVATE)
    foreach(target IN LISTS arg_${scope})
      if(target MATCHES "^stele_" AND NOT TARGET ${target})
        continue()
      endif()
      if(target STREQUAL "stele_private")  # never exported
        set(target $<BUILD_INTERFACE:stele_private>)
      endif()
      target_link_libraries(stele_${name} ${scope} ${target})
    endforeach()
  endforeach()
  stele_register_room(stele_${name})
endfunction()

# stele_register_room(TARGET): for a room that defines its target itself. stele_NAME becomes stele::NAME.
function(stele_register_room target)
  get_property(rooms GLOBAL PROPERTY STELE_ROOMS)
  if(target IN_LIST rooms)
    return()
  endif()
  string(REGEX REPLACE "^stele_" "" name ${target})
  if(NOT TARGET stele::${name})
    add_library(stele::${name} ALIAS ${target})
  endif()
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  set_property(GLOBAL APPEND PROPERTY STELE_ROOMS ${target})
endfunction()

# stele_programs(PREFIX FOLDER target...): one executable PREFIX<stem> for each FOLDER/*.cpp; their names in stele_programs.
function(stele_programs prefix folder)
  file(GLOB sources CONFIGURE_DEPENDS "${folder}/*.cpp")
  set(programs)
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM LAST_ONLY stem)
    add_executable(${prefix}${stem} ${source})
    target_link_libraries(${prefix}${stem} PRIVATE ${ARGN})
    list(APPEND programs ${prefix}${stem})
  endforeach()
  set(stele_programs ${programs} PARENT_SCOPE)
endfunction()
