# Debian packages of a shared build: libstele<soversion>, libstele-dev, and stele-tools with the command.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the stele authors <stele@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime development)
if(STELE_COMMAND)
  list(APPEND CPACK_COMPONENTS_ALL tools)
endif()
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libstele${stele_soversion})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "This package holds the shared library.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libstele-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS  # the headers include Boost; all other libraries are linked into libstele
    "libstele${stele_soversion} (= ${PROJECT_VERSION}), libboost1.81-dev | libboost-dev (>= 1.81)")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "libcereal-dev, libeigen3-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "This package holds the headers, and what CMake and pkg-config look for.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME stele-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}")  # libstele itself
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "libstele${stele_soversion} (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "This package holds the command stele, which looks at, converts, checks and compares model files.")

foreach(part IN ITEMS RUNTIME DEVELOPMENT TOOLS)
  string(TOLOWER ${part} component)
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" RENAME copyright COMPONENT ${component}
          DESTINATION share/doc/${CPACK_DEBIAN_${part}_PACKAGE_NAME})
endforeach()
include(CPack)
