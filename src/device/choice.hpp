#pragma once

#include <string>

#include "base/types.hpp"
#include "device/available.hpp"

namespace abh {

// Where to compute.
struct DeviceChoice {
  std::string device =
      "auto";  // plain, cpu, cuda or emulated; auto: cuda where this build has it and there is a GPU, else cpu
  Index threads = available_threads();  // of the CPU device
  std::string gemm = "auto";            // of the CUDA device: library (cuBLASLt) or hand (cuda/gemm.cu)
  Index gpu = 0;                        // of the CUDA device: which one of this machine
};

// How many of the CPU device's threads are worth starting: more than there are processors wait for each other.
Index working_threads(const DeviceChoice& choice);

// The device and how it computes, for people: "cpu (avx512), float, 2 threads".
std::string machine_text(const DeviceChoice& choice, const std::string& type);

// The name of the device that `auto` stands for, any other as it is.
std::string resolved_device(const std::string& device);

// Whether several processes can train together on such devices: on GPUs only where this build has NCCL.
bool joins_processes(const DeviceChoice& choice);

// Error if this build or this machine does not have the device.
void require_device(const DeviceChoice& choice);

}  // namespace abh
