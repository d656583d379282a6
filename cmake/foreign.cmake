# Toolchain for another architecture of Debian, -D STELE_TRIPLET=s390x-linux-gnu: Debian's cross compiler, libraries that
# tools/foreign.sh unpacked, QEMU to run.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES STELE_TRIPLET)
string(REGEX REPLACE "-.*" "" CMAKE_SYSTEM_PROCESSOR "${STELE_TRIPLET}")
string(REPLACE i686 i386 machine ${CMAKE_SYSTEM_PROCESSOR})  # QEMU's name
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_CXX_COMPILER ${STELE_TRIPLET}-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-${machine} -L /usr/${STELE_TRIPLET})
set(CMAKE_FIND_ROOT_PATH "${CMAKE_CURRENT_LIST_DIR}/../build/${STELE_TRIPLET}/sysroot")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
