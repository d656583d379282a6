# Adds tests of ten cases of the doctest program `program`; ctest includes this.
execute_process(COMMAND "${program}" --count OUTPUT_VARIABLE count COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "[0-9]+[ \n]*$" count "${count}")
string(STRIP "${count}" count)
foreach(first RANGE 1 ${count} 10)
  math(EXPR last "${first} + 9")
  add_test("cases:${first}-${last}" "${program}" --first=${first} --last=${last})
  set_tests_properties("cases:${first}-${last}" PROPERTIES FAIL_REGULAR_EXPRESSION "test cases: +0 [|]")
endforeach()
