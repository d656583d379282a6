# libtorch, as the target stele_libtorch: Debian's, a release from pytorch.org, or that of the Python package `torch`
# (torch.utils.cmake_prefix_path), found where CMAKE_PREFIX_PATH or Torch_ROOT points.
#
# A libtorch with CUDA loads its CUDA libraries by itself, but its CMake files stop if the CUDA toolkit, of which a
# program without kernels needs no part, is not installed. They ask for the toolkit only if the target torch::cudart does
# not exist, so an empty one takes its place. This file is also installed: in a project that uses stele it searches again.
find_package(CUDAToolkit QUIET)
if(NOT CUDAToolkit_FOUND AND NOT TARGET torch::cudart)
  add_library(torch::cudart INTERFACE IMPORTED GLOBAL)
endif()
find_package(Torch QUIET)

set(_problem "stele::torch needs libtorch, which was not found. On Debian 12: tools/deps.sh torch (libtorch-dev). Elsewhere\
 name the folder of another one: -D CMAKE_PREFIX_PATH=... (of the Python package: the value of torch.utils.cmake_prefix_path)")
set(_usable ${Torch_FOUND})
set(_old_abi "_GLIBCXX_USE_CXX11_ABI=0")
if(Torch_FOUND AND "${TORCH_CXX_FLAGS}" MATCHES ${_old_abi} AND NOT "${CMAKE_CXX_FLAGS}" MATCHES ${_old_abi})
  set(_usable FALSE)
  set(_problem "libtorch in ${TORCH_INSTALL_PREFIX} has the C++ ABI of g++ 4, with which stele does not link. Take a release\
 with the cxx11 ABI, or compile all with -D CMAKE_CXX_FLAGS=-D${_old_abi}.")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(SteleTorch REQUIRED_VARS _usable REASON_FAILURE_MESSAGE "${_problem}")
if(SteleTorch_FOUND AND NOT TARGET stele_libtorch)
  add_library(stele_libtorch INTERFACE IMPORTED GLOBAL)
  target_link_libraries(stele_libtorch INTERFACE ${TORCH_LIBRARIES})
endif()
unset(_problem)
unset(_usable)
unset(_old_abi)
