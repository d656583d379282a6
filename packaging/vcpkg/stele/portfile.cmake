# SHA512 0 makes vcpkg print the archive's hash. packaging/fill.py fills in the owner and the hash of a release.
vcpkg_from_github(
    OUT_SOURCE_PATH SOURCE_PATH
    REPO @OWNER@/stele
    REF "v${VERSION}"
    SHA512 0
    HEAD_REF main
)

# A feature selects folders of recorders/. `all` leaves STELE_FORMATS empty, which builds all formats, stele::transforms,
# stele::ir and stele::remote.
set(formats caffe coreml darknet executorch flax gguf llama2c mxnet ncnn onnx openvino paddle pickle safetensors tensorflow tflite whisper)
if("stele-format" IN_LIST FEATURES)
    list(APPEND formats stele)
endif()
if("json" IN_LIST FEATURES)
    list(APPEND formats json)
endif()
if("zip" IN_LIST FEATURES)
    list(APPEND formats burn keras nnef numpy pytorch)
endif()
if("zarr" IN_LIST FEATURES)
    list(APPEND formats orbax zarr)
endif()
if("dl4j" IN_LIST FEATURES)
    list(APPEND formats archive samediff)
endif()
if("all" IN_LIST FEATURES)
    set(formats "")
endif()

vcpkg_check_features(OUT_FEATURE_OPTIONS options FEATURES tools STELE_COMMAND)
if(NOT "all" IN_LIST FEATURES)
    list(APPEND options -DCMAKE_DISABLE_FIND_PACKAGE_re2=ON)
endif()

vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        ${options}
        "-DSTELE_FORMATS=${formats}"
        -DSTELE_DEV=OFF
        -DSTELE_EXAMPLES=OFF
        -DSTELE_TESTS=OFF
        "-DSTELE_FLATC=${CURRENT_HOST_INSTALLED_DIR}/tools/flatbuffers/flatc${VCPKG_HOST_EXECUTABLE_SUFFIX}"
    MAYBE_UNUSED_VARIABLES
        CMAKE_DISABLE_FIND_PACKAGE_re2
        STELE_FLATC
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME stele CONFIG_PATH lib/cmake/stele)
vcpkg_fixup_pkgconfig()
if("tools" IN_LIST FEATURES)
    vcpkg_copy_tools(TOOL_NAMES stele AUTO_CLEAN)
endif()

file(REMOVE_RECURSE
    "${CURRENT_PACKAGES_DIR}/debug/include"
    "${CURRENT_PACKAGES_DIR}/debug/share"
    "${CURRENT_PACKAGES_DIR}/share/doc"
)
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
