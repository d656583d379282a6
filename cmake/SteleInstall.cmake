# Headers, the libraries of every room, and a package that find_package(stele) finds.
include(CMakePackageConfigHelpers)
set(stele_package "${CMAKE_INSTALL_LIBDIR}/cmake/stele")

install(TARGETS stele ${stele_rooms} EXPORT steleTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/stele" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT steleTargets NAMESPACE stele:: DESTINATION ${stele_package})
if(TARGET stele_torch)  # find_package(stele COMPONENTS torch)
  install(TARGETS stele_torch EXPORT steleTorchTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT steleTorchTargets NAMESPACE stele:: DESTINATION ${stele_package})
endif()

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/steleConfig.cmake.in" "${PROJECT_BINARY_DIR}/steleConfig.cmake"
                              INSTALL_DESTINATION ${stele_package} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/steleConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/steleConfig.cmake" "${PROJECT_BINARY_DIR}/steleConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/FindSteleBoost.cmake" "${PROJECT_SOURCE_DIR}/cmake/FindxxHash.cmake"
        DESTINATION ${stele_package})
