#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "apps/bench/timing.hpp"
#include "base/types.hpp"

namespace abh {

struct Row {
  std::string layer, pass;
  Timing timing;
  double flops, bytes;
};

struct StepRow {
  std::string mixer;
  Timing timing;
  Index tokens_per_s;
  double flops;
  double activation_bytes;      // a token, saved for backward
  std::size_t peak_bytes;       // of this process while the row was measured; 0: not measured
  double page_faults_per_step;  // after the first step
};

// The peak of the device: multiply-adds on the registers of a CPU, a matrix product on a GPU.
struct Peaks {
  std::string arithmetic = "multiply-add", key = "multiply_add_flops_per_s";
  double flops_per_s = 0, copy_bytes_per_s = 0;  // 0: not measured
};

struct Results {
  std::string device, type;
  Peaks peaks;
  std::vector<StepRow> steps;
  std::vector<Row> layers;
};

// As tables on standard output, and as JSON.
void print(const Results& results);
std::string json_of(const Results& results);

// Nothing is faster than the machine: where that was measured, something else slowed the peak down. Else empty.
std::string warning_of(const Results& results);

}  // namespace abh
