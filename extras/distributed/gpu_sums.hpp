#pragma once

#include <memory>

#include "cuda/gpu.hpp"
#include "device/processes.hpp"

struct ncclComm;

namespace abh {

// Adds arrays in GPU memory over processes with one GPU each, as Processes does for host arrays: element by element, as
// a balanced binary tree over the ranks. Uses NCCL from GPU to GPU, concurrently with other work of the device. It may
// be captured; the captured graph must be destroyed before this object, because NCCL waits for it. Does nothing for one
// process.
template <Backend backend>
class GpuSums {
 public:
  // All processes construct it at the same time. Throws Error if there are several processes and this build has no
  // NCCL, or NCCL cannot connect them. Arrays are summed in pieces of `piece` numbers. Short arrays wait for a full
  // piece if they directly precede the last one in memory, as do the gradients of consecutive blocks.
  GpuSums(GpuDevice<backend>& device, Processes& processes, Index piece = Index{1} << 22);
  ~GpuSums();
  GpuSums(const GpuSums&) = delete;
  GpuSums& operator=(const GpuSums&) = delete;

  // Sums `values` in device memory, after all earlier work of the device.
  void begin_sum(float* values, Index count);
  // Makes later device work wait for the sums.
  void finish_sums();

 private:
  void begin_waiting();
  void sum(float* values, Index count);
  void exchange(Index partner, const float* out, Index out_count, float* in, Index in_count);

  GpuDevice<backend>& device_;
  Processes& processes_;
  Index piece_;
  std::unique_ptr<GpuDevice<backend>> beside_;
  ncclComm* all_ = nullptr;
  float* waiting_ = nullptr;
  Index waiting_count_ = 0;
  int exceptions_;  // exceptions in flight at construction
};

}  // namespace abh
