#include "tests/device_array.hpp"

#if defined(ABH_EMULATOR) || defined(ABH_CUDA)
#include "cuda/gpu.hpp"
#endif

namespace abh {

MemorySource test_memory() {
#if defined(ABH_CUDA)
  static const bool gpu = gpu_available<Backend::cuda>();
  if (gpu) return managed_memory();
#endif
#if defined(ABH_EMULATOR)
  return gpu_memory<Backend::emulated>();
#else
  return host_memory();
#endif
}

}  // namespace abh
