#include "device/choice.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/extras.hpp"
#include "base/text.hpp"
#include "device/isa.hpp"
#if defined(ABH_CUDA)
#include "cuda/gpu.hpp"
#endif

namespace abh {

Index working_threads(const DeviceChoice& choice) { return std::min(choice.threads, available_threads()); }

std::string machine_text(const DeviceChoice& choice, const std::string& type) {
  const std::string device = resolved_device(choice.device);
#if defined(ABH_CUDA)
  if (device == "cuda") {
    const bool library = gemm_called<Backend::cuda>(choice.gemm) == GemmChoice::library;
    return device + ", " + type + (library ? ", library matrix products" : ", hand matrix products");
  }
#endif
  if (device != "cpu") return device + ", " + type;
  const Index working = working_threads(choice);
  std::string text = device + " (" + isa_name(type == "float" ? best_isa() : best_unit()) + "), " + type + ", " +
                     to_text(working) + (working == 1 ? " thread" : " threads");
  if (const std::string refused = refused_isa(); type != "float" && !refused.empty()) text += " (" + refused + ")";
  if (working < choice.threads) {
    text += " (" + to_text(choice.threads) + " asked for; more than there are processors only wait for each other)";
  }
  return text;
}

std::string resolved_device(const std::string& device) {
  if (device != "auto") return device;
#if defined(ABH_CUDA)
  if (gpu_available<Backend::cuda>()) return "cuda";
#endif
  return "cpu";
}

bool joins_processes([[maybe_unused]] const DeviceChoice& choice) {
#if defined(ABH_CUDA)
  if (resolved_device(choice.device) == "cuda") {
    if constexpr (has_extras) return has_gpu_sums<Backend::cuda>();
    return false;
  }
#endif
  return true;
}

void require_device(const DeviceChoice& choice) {
  const std::string device = resolved_device(choice.device);
#if defined(ABH_CUDA)
  if (device == "cuda" && !gpu_available<Backend::cuda>()) {
    throw Error("--device cuda: this machine has no GPU that CUDA can use");
  }
  if (device == "cuda" && choice.gemm == "library" && usual_gemm<Backend::cuda>() != GemmChoice::library) {
    throw Error("--gemm library: this build has no cuBLASLt; expected --gemm hand");
  }
#else
  if (device == "cuda") {
    throw Error("--device cuda: this build has no CUDA device; build it with cmake -DBUILD_CUDA=ON");
  }
#endif
#if !defined(ABH_EMULATOR)
  if (device == "emulated") {
    throw Error("--device emulated: this build has no emulated CUDA device; build it with cmake -DBUILD_EMULATOR=ON");
  }
#endif
}

}  // namespace abh
