# Helpers for the rooms: one static library a room, all in the list STELE_ROOMS. stele::stele links them,
# cmake --install ships them, and find_package(stele COMPONENTS ...) names them.

# stele_add_room(FOLDER): its CMakeLists.txt, or a message while there is none.
macro(stele_add_room folder)
  if(EXISTS "${PROJECT_SOURCE_DIR}/${folder}/CMakeLists.txt")
    add_subdirectory(${folder})
  else()
    message(STATUS "stele: ${folder} has no CMakeLists.txt yet, left out")
  endif()
endmacro()

# stele_room(NAME [PUBLIC target...] [PRIVATE target...] [PACKAGES package...])
#
# A static library stele_NAME (stele::NAME) of every .cpp below the current folder. It sees the public headers. Other
# rooms among the targets are left out while they have no sources; without sources of its own the room is left out.
#
# PACKAGES are the CMake packages that the room's own targets come from; they are found here, and again in a project
# that uses the installed room. Each must have a line in SteleInstall.cmake.
function(stele_room name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "PUBLIC;PRIVATE;PACKAGES")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "*.cpp")
  if(NOT sources)
    message(STATUS "stele: ${name} has no sources yet, left out")
    return()
  endif()
  foreach(package IN LISTS arg_PACKAGES)
    find_package(${package} REQUIRED GLOBAL)  # global: whoever links the room needs its targets, in any folder
  endforeach()
  set(target stele_${name})
  add_library(${target} STATIC ${sources})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  if(NOT MSVC)  # a program linked with --gc-sections contains what it calls (benchmarks/size.py)
    target_compile_options(${target} PRIVATE -ffunction-sections -fdata-sections)
  endif()
  set(rooms)  # with the rooms below, in the order of their arrows
  set(packages)
  foreach(scope IN ITEMS PUBLIC PRIVATE)
    foreach(other IN LISTS arg_${scope})
      if(other MATCHES "^stele_(private|flatbuffers)$")  # never exported
        set(other $<BUILD_INTERFACE:${other}>)
      elseif(other MATCHES "^stele_" AND NOT TARGET ${other})
        continue()
      endif()
      target_link_libraries(${target} ${scope} ${other})
      if(TARGET ${other})
        get_target_property(below ${other} STELE_ROOMS)
        if(below)
          list(APPEND rooms ${below})
          get_target_property(below ${other} STELE_PACKAGES)
          list(APPEND packages ${below})
        endif()
      endif()
    endforeach()
  endforeach()
  list(APPEND rooms ${target})
  list(APPEND packages ${arg_PACKAGES})
  list(REMOVE_DUPLICATES rooms)
  list(REMOVE_DUPLICATES packages)
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} STELE_ROOMS "${rooms}" STELE_PACKAGES "${packages}")
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
