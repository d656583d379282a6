// The SIMD targets of the kernels for blocks; included before foreach_target.h. x86 from SSE4 on and 64-bit Arm: other
// vector units flush subnormals or have not been tried, and there Highway's scalar target runs. AVX-512 gives no gain:
// decoders of the common types already wait for their stores.
#if defined(__x86_64__) || defined(__i386__) || defined(__aarch64__)
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3 | HWY_AVX3 | HWY_AVX3_DL)
#else
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_EMU128))
#endif
