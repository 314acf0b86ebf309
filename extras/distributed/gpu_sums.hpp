#pragma once

#include <memory>

#include "cuda/gpu.hpp"
#include "device/processes.hpp"

struct ncclComm;

namespace abh {

// Adds up arrays in the memory of GPUs of which each process has one, as Processes does with arrays of the host:
// element by element as a balanced binary tree over the ranks. By NCCL, from GPU to GPU, beside what the device
// computes meanwhile. It may all be recorded; a recording of it must be gone before this is, as NCCL waits for that.
// Nothing where there is one process.
template <Backend backend>
class GpuSums {
 public:
  // All processes construct theirs at the same time. Error where there are several and this build has no NCCL, or NCCL
  // cannot connect them. Arrays are summed in pieces of so many numbers, which short ones wait for if they lie directly
  // before what was begun last, as the gradients of one block before those of the next.
  GpuSums(GpuDevice<backend>& device, Processes& processes, Index piece = Index{1} << 22);
  ~GpuSums();
  GpuSums(const GpuSums&) = delete;
  GpuSums& operator=(const GpuSums&) = delete;

  // `values`, in device memory, as they are when the device has done what it has been asked for.
  void begin_sum(float* values, Index count);
  // Makes device work that is issued from now on see the sums.
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
  int exceptions_;  // on their way when this began
};

}  // namespace abh
