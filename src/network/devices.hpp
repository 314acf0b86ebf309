#pragma once

#include <string>

#include "base/bf16.hpp"
#include "cpu/cpu.hpp"
#include "device/choice.hpp"
#include "device/isa.hpp"
#include "network/model.hpp"
#include "plain/plain.hpp"
#if defined(ABH_CUDA) || defined(ABH_EMULATOR)
#include "cuda/gpu.hpp"
#include "cuda/gpu_sums.hpp"
#endif

namespace abh {

// body.operator()<Device, T>(): the device and the number type that are chosen, as types; require_device accepts them.
// Without `narrow` the body is made for float alone.
template <bool narrow = true, class Body>
auto with_device_type(const DeviceChoice& choice, const std::string& type, const Body& body) {
  const auto with = [&]<class Device>() {
    if constexpr (narrow) {
      if (type == "bf16") return body.template operator()<Device, bf16>();
    }
    return body.template operator()<Device, float>();
  };
  static_cast<void>(with);  // of builds without a GPU device
#if defined(ABH_CUDA)
  if (resolved_device(choice.device) == "cuda") return with.template operator()<GpuDevice<Backend::cuda>>();
#endif
#if defined(ABH_EMULATOR)
  if (choice.device == "emulated") return with.template operator()<GpuDevice<Backend::emulated>>();
#endif
  if (choice.device == "plain") return body.template operator()<PlainDevice, float>();
  switch (best_isa()) {
#if defined(ABH_AVX512)
    case Isa::avx512:
      return body.template operator()<CpuDevice<Isa::avx512>, float>();
#endif
#if defined(ABH_AVX2)
    case Isa::avx2:
      return body.template operator()<CpuDevice<Isa::avx2>, float>();
#endif
#if defined(ABH_NEON)
    case Isa::neon:
      return body.template operator()<CpuDevice<Isa::neon>, float>();
#endif
    default:
      return body.template operator()<CpuDevice<Isa::baseline>, float>();
  }
}

}  // namespace abh
