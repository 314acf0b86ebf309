#pragma once

#include <string>

#include "base/types.hpp"
#include "device/available.hpp"

namespace abh {

// Selected device.
struct DeviceChoice {
  std::string device = "auto";  // plain, cpu, cuda or emulated; auto: cuda if this build and machine have it, else cpu
  Index threads = available_threads();  // of the CPU device
  std::string gemm = "auto";            // of the CUDA device: library (cuBLASLt) or hand (cuda/gemm.cu)
  Index gpu = 0;                        // of the CUDA device: number of the GPU
};

// Number of threads to start on the CPU device: at most one per processor.
Index working_threads(const DeviceChoice& choice);

// Device and data type, for messages: "cpu (avx512), float, 2 threads".
std::string machine_text(const DeviceChoice& choice, const std::string& type);

// Name of the device; `auto` is replaced by the device that it selects.
std::string resolved_device(const std::string& device);

// True if several processes can train together on such devices. GPUs require a build with NCCL.
bool joins_processes(const DeviceChoice& choice);

// Error if this build or this machine does not have the device.
void require_device(const DeviceChoice& choice);

}  // namespace abh
