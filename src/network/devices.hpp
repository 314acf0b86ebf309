#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include "base/bf16.hpp"
#include "cpu/cpu.hpp"
#include "device/choice.hpp"
#include "device/isa.hpp"
#include "network/model.hpp"
#include "plain/plain.hpp"
#if defined(ABH_CUDA) || defined(ABH_EMULATOR)
#include "cuda/gpu.hpp"
#endif

namespace abh {

// Calls body.operator()<Device, T>() with the selected device and data type as types; require_device accepts the
// device. If `narrow` is false, the body is only compiled for float.
template <bool narrow = true, class Body>
auto with_device_type(const DeviceChoice& choice, const std::string& type, const Body& body) {
  const auto with = [&]<class Device>() {
    if constexpr (narrow) {
      if (type == "bf16") return body.template operator()<Device, bf16>();
    }
    return body.template operator()<Device, float>();
  };
#if defined(ABH_CUDA)
  if (resolved_device(choice.device) == "cuda") return with.template operator()<GpuDevice<Backend::cuda>>();
#endif
#if defined(ABH_EMULATOR)
  if (choice.device == "emulated") return with.template operator()<GpuDevice<Backend::emulated>>();
#endif
  if (choice.device == "plain") return with.template operator()<PlainDevice>();
  switch (best_isa()) {
#if defined(ABH_AVX512)
    case Isa::avx512:
      return with.template operator()<CpuDevice<Isa::avx512>>();
#endif
#if defined(ABH_AVX2)
    case Isa::avx2:
      return with.template operator()<CpuDevice<Isa::avx2>>();
#endif
#if defined(ABH_NEON)
    case Isa::neon:
      return with.template operator()<CpuDevice<Isa::neon>>();
#endif
    default:
      return with.template operator()<CpuDevice<Isa::baseline>>();
  }
}

// Constructs a device; its name in messages: "cpu, avx512, 2 threads".
template <Isa isa>
std::unique_ptr<CpuDevice<isa>> make_device(std::type_identity<CpuDevice<isa>>, const DeviceChoice& choice, Mode mode) {
  return std::make_unique<CpuDevice<isa>>(working_threads(choice), mode, best_unit());
}
template <Isa isa>
std::string name_of(const CpuDevice<isa>& device, const DeviceChoice&, const std::string& type) {
  const Index threads = device.threads.count();
  return std::string("cpu, ") + isa_name(type == "float" ? isa : device.unit) + ", " + std::to_string(threads) +
         (threads == 1 ? " thread" : " threads") + (type == "float" ? "" : ", " + type);
}

inline std::unique_ptr<PlainDevice> make_device(std::type_identity<PlainDevice>, const DeviceChoice&, Mode) {
  return std::make_unique<PlainDevice>();
}
inline std::string name_of(const PlainDevice&, const DeviceChoice&, const std::string& type) {
  return type == "float" ? "plain" : "plain, " + type;
}

#if defined(ABH_CUDA) || defined(ABH_EMULATOR)
template <Backend backend>
std::unique_ptr<GpuDevice<backend>> make_device(std::type_identity<GpuDevice<backend>>, const DeviceChoice& choice,
                                                Mode mode) {
  return std::make_unique<GpuDevice<backend>>(gemm_called<backend>(choice.gemm), mode, choice.gpu);
}
template <Backend backend>
std::string name_of(const GpuDevice<backend>& device, const DeviceChoice& choice, const std::string& type) {
  return resolved_device(choice.device) + ", " + device.name() + ", " + type;
}
#endif

}  // namespace abh
