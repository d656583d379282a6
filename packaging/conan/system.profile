# Takes the programs that all/conanfile.py requires from the system.
include(default)

[settings]
build_type=Release
compiler.cppstd=20

[platform_tool_requires]
cmake/3.25.1
flatbuffers/2.0.8

[conf]
tools.cmake.cmaketoolchain:generator=Ninja
tools.cmake.cmaketoolchain:extra_variables={"CMAKE_UNITY_BUILD": "ON", "CMAKE_UNITY_BUILD_BATCH_SIZE": "12"}
