#pragma once

// The devices that tests run on.

#include <cstdlib>
#include <string>
#include <type_traits>

#include "base/types.hpp"
#include "catch.hpp"
#include "cpu/cpu.hpp"
#include "device/isa.hpp"
#include "plain/plain.hpp"
#if defined(ABH_EMULATOR) || defined(ABH_CUDA)
#include "cuda/gpu.hpp"
#endif

namespace abh {

// Runs body(device) on every CPU device that computes T = float here: the plain loops, width 1, baseline, and all
// instruction sets of this machine and build. A unit that multiplies bf16 is a separate device for bf16: see
// for_each_unit.
template <class Body>
void for_each_cpu(Index threads, const Body& body) {
  PlainDevice plain;
  body(plain, "plain");
  CpuDevice<Isa::scalar> scalar(threads);
  body(scalar, "scalar");
  CpuDevice<Isa::baseline> baseline(threads);
  body(baseline, "baseline");
#if defined(ABH_AVX2)
  if (isa_available(Isa::avx2)) {
    CpuDevice<Isa::avx2> avx2(threads);
    body(avx2, "avx2");
  }
#endif
#if defined(ABH_AVX512)
  if (isa_available(Isa::avx512)) {
    CpuDevice<Isa::avx512> avx512(threads);
    body(avx512, "avx512");
  }
#endif
#if defined(ABH_NEON)
  CpuDevice<Isa::neon> neon(threads);
  body(neon, "neon");
#endif
}

// Runs body(device, name) on CPU devices with a unit that multiplies bf16: the unit of this machine, and AMX, which is
// emulated if the machine lacks it.
template <class Body>
void for_each_unit([[maybe_unused]] Index threads, [[maybe_unused]] const Body& body) {
#if defined(ABH_AVX512)
  if (isa_available(Isa::avx512_bf16)) {
    CpuDevice<Isa::avx512> pairs(threads, Mode::compute, Isa::avx512_bf16);
    body(pairs, "avx512_bf16");
  }
#endif
#if defined(ABH_AVX2)
  if (isa_available(Isa::avx2)) {
    CpuDevice<Isa::avx2> emulated(threads, Mode::compute, Isa::amx);
    body(emulated, "amx, emulated");
  }
#endif
}

// Runs body(another, threads) on devices of the same kind with 2 and 3 threads. The plain loops and GPUs have no
// threads.
template <class Device, class Body>
void with_more_threads(const Device&, const Body&) {}
template <Isa isa, class Body>
void with_more_threads(const CpuDevice<isa>& device, const Body& body) {
  for (const Index threads : {2, 3}) {
    CpuDevice<isa> another(threads, Mode::compute, device.unit);
    body(another, threads);
  }
}

// true: tests run on a real GPU. If the environment has ABH_REQUIRE_GPU, tests without a GPU fail instead of being
// skipped.
inline bool has_real_gpu() {
#if defined(ABH_CUDA)
  if (gpu_available<Backend::cuda>()) return true;
#endif
  if (std::getenv("ABH_REQUIRE_GPU")) FAIL("ABH_REQUIRE_GPU is set, but this program can use no GPU here");
  return false;
}

// Runs body(device, name) on every GPU of this build: the emulator, and a real GPU if present, with the matrix products
// of cuBLASLt and with ours. Without a GPU nothing runs. The emulator uses its stand-in for cuBLASLt only in tests that
// request it.
template <class Body>
void for_each_gpu([[maybe_unused]] const Body& body, [[maybe_unused]] bool multiplies_matrices = false) {
#if defined(ABH_EMULATOR)
  GpuDevice<Backend::emulated> emulated;
  body(emulated, "emulated");
  if (multiplies_matrices) {
    GpuDevice<Backend::emulated> library(GemmChoice::library);
    body(library, "emulated, cuBLASLt");
  }
#endif
  [[maybe_unused]] const bool real = has_real_gpu();
#if defined(ABH_CUDA)
  if (real) {
    GpuDevice<Backend::cuda> library(GemmChoice::library), hand(GemmChoice::hand);
    body(library, "cuda");
    body(hand, "cuda, hand gemm");
  }
#endif
}

// Runs body(device, name), or body(device), on every device that computes in float.
template <class Body>
void for_each_device(Index threads, const Body& body) {
  const auto named = [&](auto& device, const std::string& name) {
    INFO(name);
    if constexpr (std::is_invocable_v<Body, decltype(device), const std::string&>) {
      body(device, name);
    } else {
      body(device);
    }
  };
  for_each_cpu(threads, named);
  for_each_gpu(named);
}

// Whether its products are cuBLASLt's, which may round twice and sums in another order for every shape.
template <class Device>
bool has_library_products([[maybe_unused]] const Device& device) {
#if defined(ABH_EMULATOR) || defined(ABH_CUDA)
  if constexpr (requires { device.gemm(); }) return device.gemm() == GemmChoice::library;
#endif
  return false;
}

// Waits until the results of a device can be read.
inline void wait_for(PlainDevice&) {}
template <Isa isa>
void wait_for(CpuDevice<isa>&) {}
#if defined(ABH_EMULATOR) || defined(ABH_CUDA)
template <Backend backend>
void wait_for(GpuDevice<backend>& device) {
  device.synchronize();
}
#endif

}  // namespace abh
