#pragma once

#include <string>
#include <vector>

#include "base/types.hpp"
#include "cuda/emulator/counts.hpp"

namespace abh {

// Memory accesses of one kernel in a training step. Extrapolated numbers may be fractions.
struct KernelTraffic {
  std::string kernel;  // "gelu: backward_kernel<bf16, 8>"
  Index launches = 0;
  double asked = 0;       // bytes of global memory that the threads access
  double in_sectors = 0;  // bytes of whole sectors, without a cache
  double distinct = 0;    // bytes of distinct sectors, per launch and direction
  double shared_requests = 0, shared_conflicts = 0;
};

// One entry per kernel, in no order.
std::vector<KernelTraffic> traffic_of(const std::vector<emulator::Counts>& counts);

// Extrapolates linearly from two smaller steps to a step with `wanted` sequences. The number of launches is that of
// `other`, the larger step.
struct CountedStep {
  Index sequences;
  std::vector<KernelTraffic> kernels;
};
std::vector<KernelTraffic> traffic_at(Index wanted, const CountedStep& one, const CountedStep& other);

// Prints a table, sorted by distinct bytes, with the sum, and with the time at a given copy rate.
void print_traffic(std::vector<KernelTraffic> kernels, double copy_bytes_per_s);

}  // namespace abh
