# Runs an example and compares its output with the comment after `// Output:` at the end of its source.
#
#     cmake -D PROGRAM=FILE [-D ARGUMENT=TEXT] -D SOURCE=FILE.cpp -P check.cmake
file(READ "${SOURCE}" source)
if(NOT source MATCHES "\n// Output:\n(.*)$")
  message(FATAL_ERROR "${SOURCE} does not end with the comment `// Output:`")
endif()
string(REGEX REPLACE "(^|\n)// ?" "\\1" expected "${CMAKE_MATCH_1}")
execute_process(COMMAND "${PROGRAM}" ${ARGUMENT} OUTPUT_VARIABLE printed RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} failed (${result}), after this output:\n${printed}")
endif()
if(NOT printed STREQUAL expected)
  message(FATAL_ERROR "${PROGRAM} printed:\n${printed}\nbut its source shows:\n${expected}")
endif()
