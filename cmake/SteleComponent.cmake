# stele_component(NAME [HOT] [WITHOUT folder...] [PUBLIC target...] [PRIVATE target...] [PACKAGES package...])
#
# A component: a static library stele_NAME (stele::NAME) of every .cpp below the current folder (not of folders that are
# components themselves, nor of those WITHOUT which it is built), which can include the public headers. stele::stele links all components, cmake --install
# installs them, and find_package(stele COMPONENTS ...) names them.
#
# HOT keeps the -O3 of release builds: code that touches every element or every tensor's name. Other components have more
# than half of the code and are built with -O2, which makes them a fifth smaller.
#
# PACKAGES are the CMake packages that the component's own targets come from; they are found here, and again in a project
# that uses the installed component. Each must have a line in SteleInstall.cmake.
function(stele_component name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "HOT" "" "WITHOUT;PUBLIC;PRIVATE;PACKAGES")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "*.cpp")
  file(GLOB others CONFIGURE_DEPENDS "*/CMakeLists.txt")  # components of their own
  foreach(other IN LISTS others)
    cmake_path(GET other PARENT_PATH other)
    list(FILTER sources EXCLUDE REGEX "^${other}/")
  endforeach()
  foreach(other IN LISTS arg_WITHOUT)
    list(FILTER sources EXCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/${other}/")
  endforeach()
  # The sources of one system come last, so that all other sources are in the same batches of a unity build on every system.
  set(of_system ${sources})
  list(FILTER of_system INCLUDE REGEX "/os/")
  list(FILTER sources EXCLUDE REGEX "/os/")
  list(APPEND sources ${of_system})
  foreach(other IN LISTS arg_PUBLIC arg_PRIVATE)
    get_property(folder GLOBAL PROPERTY STELE_FOLDER_${other})
    if(folder AND NOT TARGET ${other})
      file(RELATIVE_PATH name_of_folder "${PROJECT_SOURCE_DIR}" "${folder}")
      add_subdirectory("${folder}" "${PROJECT_BINARY_DIR}/${name_of_folder}")
    endif()
  endforeach()
  foreach(package IN LISTS arg_PACKAGES)
    set(mode)
    if(EXISTS "${PROJECT_SOURCE_DIR}/cmake/Find${package}.cmake")
      set(mode MODULE)  # CMAKE_FIND_PACKAGE_PREFER_CONFIG would skip it, and its names of targets
    endif()
    # Global: a target that links the component needs the package's targets, in any folder.
    find_package(${package} ${mode} REQUIRED GLOBAL)
  endforeach()
  set(target stele_${name})
  add_library(${target} STATIC ${sources})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${target} PUBLIC cxx_std_20)
  if(NOT MSVC)
    if(NOT WIN32)  # a program contains what it calls (benchmarks/size.py); MinGW's linker takes minutes
      target_compile_options(${target} PRIVATE -ffunction-sections -fdata-sections)
    endif()
    if(NOT arg_HOT)
      target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O2>)
    endif()
  endif()
  set(needed)  # this component and those it needs, in the order of linking
  set(packages)
  foreach(scope IN ITEMS PUBLIC PRIVATE)
    foreach(other IN LISTS arg_${scope})
      if(other MATCHES "^stele_(private|flatbuffers)$")  # never exported
        set(other $<BUILD_INTERFACE:${other}>)
      endif()
      target_link_libraries(${target} ${scope} ${other})
      if(TARGET ${other})
        get_target_property(below ${other} STELE_TARGETS)
        if(below)
          list(APPEND needed ${below})
          get_target_property(below ${other} STELE_PACKAGES)
          list(APPEND packages ${below})
        endif()
      endif()
    endforeach()
  endforeach()
  list(APPEND needed ${target})
  list(APPEND packages ${arg_PACKAGES})
  list(REMOVE_DUPLICATES needed)
  list(REMOVE_DUPLICATES packages)
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} STELE_TARGETS "${needed}" STELE_PACKAGES "${packages}")
  set_property(GLOBAL APPEND PROPERTY STELE_TARGETS ${target})
  if(name MATCHES "^recorder_")
    set_property(GLOBAL APPEND PROPERTY STELE_RECORDERS ${target})
  endif()
endfunction()

# stele_find_components(CMakeLists.txt...): stele_component adds the folders of these when it first needs their component.
function(stele_find_components)
  foreach(list IN LISTS ARGN)
    file(STRINGS "${list}" line REGEX "^stele_component[(]" LIMIT_COUNT 1)
    string(REGEX REPLACE "^stele_component[(]([a-z0-9_]+).*" "stele_\\1" target "${line}")
    cmake_path(GET list PARENT_PATH folder)
    set_property(GLOBAL PROPERTY STELE_FOLDER_${target} "${folder}")
  endforeach()
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
