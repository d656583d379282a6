# Unpacks the golden files and fuzz seeds of the tests, tests/**/data.zip and tests/**/corpus.zip (tools/test_data.py),
# to tests/data of the build folder, where each file has its path below tests/.
set(STELE_TEST_DATA "${PROJECT_BINARY_DIR}/tests/data")
file(GLOB_RECURSE archives CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/data.zip"
     "${PROJECT_SOURCE_DIR}/tests/corpus.zip")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${archives})
foreach(archive IN LISTS archives)
  cmake_path(RELATIVE_PATH archive BASE_DIRECTORY "${PROJECT_SOURCE_DIR}/tests" OUTPUT_VARIABLE folder)
  cmake_path(REMOVE_EXTENSION folder)
  cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY "${STELE_TEST_DATA}")
  if("${archive}" IS_NEWER_THAN "${folder}.unpacked")
    file(REMOVE_RECURSE "${folder}")
    file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${folder}")
    file(TOUCH "${folder}.unpacked")
  endif()
endforeach()
