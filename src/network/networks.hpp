#pragma once

// Networks that the programs use, on every device of this build. They are compiled once, in model.cpp, which defines
// ABH_COMPILE_NETWORKS.

#include "base/bf16.hpp"
#include "network/devices.hpp"
#include "network/network.hpp"

#if defined(ABH_COMPILE_NETWORKS)
#define ABH_NETWORK template class Network
#else
#define ABH_NETWORK extern template class Network
#endif

namespace abh {

ABH_NETWORK<PlainDevice, float>;
ABH_NETWORK<PlainDevice, bf16>;
ABH_NETWORK<CpuDevice<Isa::baseline>, float>;
ABH_NETWORK<CpuDevice<Isa::baseline>, bf16>;
#if defined(ABH_AVX2)
ABH_NETWORK<CpuDevice<Isa::avx2>, float>;
ABH_NETWORK<CpuDevice<Isa::avx2>, bf16>;
#endif
#if defined(ABH_AVX512)
ABH_NETWORK<CpuDevice<Isa::avx512>, float>;
ABH_NETWORK<CpuDevice<Isa::avx512>, bf16>;
#endif
#if defined(ABH_NEON)
ABH_NETWORK<CpuDevice<Isa::neon>, float>;
ABH_NETWORK<CpuDevice<Isa::neon>, bf16>;
#endif
#if defined(ABH_EMULATOR)
ABH_NETWORK<GpuDevice<Backend::emulated>, float>;
ABH_NETWORK<GpuDevice<Backend::emulated>, bf16>;
#endif
#if defined(ABH_CUDA)
ABH_NETWORK<GpuDevice<Backend::cuda>, float>;
ABH_NETWORK<GpuDevice<Backend::cuda>, bf16>;
#endif

// For results that do not depend on the device.
using AnyNetwork = Network<CpuDevice<Isa::baseline>, float>;

}  // namespace abh
