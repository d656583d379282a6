// Selects the SIMD targets of the block kernels; included before foreach_target.h. The targets are x86 from SSE4 on and
// 64-bit Arm. Other vector units flush subnormals or are untested, so Highway's scalar target runs there. AVX-512 is
// excluded because it is not faster: decoders of the common types already wait for their stores.
#undef HWY_DISABLED_TARGETS
#if defined(__x86_64__) || defined(__i386__) || defined(__aarch64__)
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_SSSE3 | HWY_AVX3 | HWY_AVX3_DL)
#else
#define HWY_DISABLED_TARGETS (~(HWY_SCALAR | HWY_EMU128))
#endif
