// What a library says of itself before anything of it runs. Compiled without the flags that the
// rest gets, so that it runs on every machine.
#define EXPORT extern "C" __attribute__((visibility("default")))

// Whether this machine has the instructions.
EXPORT int rwkv_supported() {
#if defined(NEEDS_AVX512)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
#elif defined(NEEDS_AVX2)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
#else
  return 1;
#endif
}

// The digest of the sources that it was made from.
EXPORT const char* rwkv_source() { return RWKV_SOURCE; }
