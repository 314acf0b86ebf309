#pragma once

// Messages between GPUs: NCCL's for real ones, where this build has it, the emulator's for emulated ones.

#include "cuda/platform.hpp"

#if !defined(__CUDACC__)
#include "cuda/emulator/nccl.hpp"
#define ABH_HAS_NCCL 1
#elif defined(ABH_NCCL)
#include <nccl.h>
#define ABH_HAS_NCCL 1
#endif
