# What `cmake --install` ships: headers, libraries, and packages for CMake (find_package) and pkg-config. A shared build
# also packs them for Debian (cpack): docs/guide/install.md says why only that one.
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
set(stele_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/stele")
set(stele_soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

# The pkg-config module of each package that a component names.
set(stele_pc_SteleBoost "")  # has none
set(stele_pc_hwy libhwy)
set(stele_pc_Threads "")
set(stele_pc_re2 re2)
set(stele_pc_zstd libzstd)
set(stele_pc_ZLIB zlib)
set(stele_pc_libdeflate libdeflate)
set(stele_pc_xxHash libxxhash)
set(stele_pc_Protobuf protobuf)

# One export set a component, so that it defines its own targets only and asks for their packages only.
set(stele_components)
set(stele_component_lines)
set(stele_pc_libs)
set(stele_pc_requires)
foreach(target IN LISTS stele_targets)
  string(REGEX REPLACE "^stele_(recorder_)?" "" component ${target})
  get_target_property(needed ${target} STELE_TARGETS)
  get_target_property(packages ${target} STELE_PACKAGES)
  list(TRANSFORM needed REPLACE "^stele_" "")
  if(BUILD_SHARED_LIBS)
    set(packages SteleBoost)  # what the headers need; the rest is inside
  else()
    get_target_property(name ${target} EXPORT_NAME)
    install(TARGETS ${target} EXPORT stele_${name} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT stele_${name} FILE component_${name}.cmake NAMESPACE stele:: DESTINATION ${stele_package_dir})
    string(PREPEND stele_pc_libs " -l${target}")
    foreach(package IN LISTS packages)
      if(NOT DEFINED stele_pc_${package})
        message(FATAL_ERROR "stele: ${target} names the package ${package}, which has no line in SteleInstall.cmake")
      endif()
      list(APPEND stele_pc_requires ${stele_pc_${package}})
    endforeach()
  endif()
  list(APPEND stele_components ${component})
  list(JOIN needed " " needed)
  list(JOIN packages " " packages)
  string(APPEND stele_component_lines "set(_stele_needs_${component} ${needed})\n"
                                      "set(_stele_packages_${component} ${packages})\n")
endforeach()
if(TARGET stele_torch AND NOT BUILD_SHARED_LIBS)  # find_package(stele COMPONENTS torch); never one of all
  get_target_property(needed stele_recorder_pytorch STELE_TARGETS)
  get_target_property(packages stele_recorder_pytorch STELE_PACKAGES)
  list(TRANSFORM needed REPLACE "^stele_" "")
  list(JOIN needed " " needed)
  list(JOIN packages " " packages)
  install(TARGETS stele_torch EXPORT stele_torch ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT stele_torch FILE component_torch.cmake NAMESPACE stele:: DESTINATION ${stele_package_dir})
  string(APPEND stele_component_lines "set(_stele_needs_torch ${needed} torch)\n"
                                      "set(_stele_packages_torch ${packages} SteleTorch)\n")
endif()
install(TARGETS stele EXPORT stele LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
                                   NAMELINK_COMPONENT development)
install(EXPORT stele FILE stele.cmake NAMESPACE stele:: DESTINATION ${stele_package_dir})
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/stele" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

list(JOIN stele_components " " stele_components)
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/steleConfig.cmake.in" "${PROJECT_BINARY_DIR}/steleConfig.cmake"
                              INSTALL_DESTINATION ${stele_package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/steleConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
file(GLOB stele_finders "${PROJECT_SOURCE_DIR}/cmake/Find*.cmake")
install(FILES "${PROJECT_BINARY_DIR}/steleConfig.cmake" "${PROJECT_BINARY_DIR}/steleConfigVersion.cmake" ${stele_finders}
        DESTINATION ${stele_package_dir})

if(BUILD_SHARED_LIBS)
  set(stele_pc_libs " -lstele")
endif()
list(REMOVE_DUPLICATES stele_pc_requires)
list(JOIN stele_pc_requires " " stele_pc_requires)
file(RELATIVE_PATH stele_pc_up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
cmake_path(SET stele_pc_up NORMALIZE "${stele_pc_up}")
configure_file("${PROJECT_SOURCE_DIR}/cmake/stele.pc.in" "${PROJECT_BINARY_DIR}/stele.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/stele.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

if(PROJECT_IS_TOP_LEVEL AND BUILD_SHARED_LIBS)
  include(StelePack)
else()
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()
