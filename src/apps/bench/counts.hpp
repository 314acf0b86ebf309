#pragma once

#include <string>
#include <vector>

#include "base/types.hpp"
#include "cuda/emulator/counts.hpp"

namespace abh {

// The memory accesses of one kernel in a training step. Not whole numbers where they are reckoned.
struct KernelTraffic {
  std::string kernel;  // "gelu: backward_kernel<bf16, 8>"
  Index launches = 0;
  double asked = 0;       // bytes of global memory that lanes asked for,
  double in_sectors = 0;  // those of whole sectors, without a cache,
  double distinct = 0;    // and each sector once a launch and direction
  double shared_requests = 0, shared_conflicts = 0;
};

// By kernel, in no order.
std::vector<KernelTraffic> traffic_of(const std::vector<emulator::Counts>& counts);

// That of a step of `wanted` sequences, from those of fewer: every number on the straight line through its two, and as
// many launches as the larger one has, `other`.
struct CountedStep {
  Index sequences;
  std::vector<KernelTraffic> kernels;
};
std::vector<KernelTraffic> traffic_at(Index wanted, const CountedStep& one, const CountedStep& other);

// As a table, most distinct bytes first, and their sum, with the time that they take at a rate of copying.
void print_traffic(std::vector<KernelTraffic> kernels, double copy_bytes_per_s);

}  // namespace abh
