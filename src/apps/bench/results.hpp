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
  double activation_bytes;      // activations saved for backward, per token
  std::size_t peak_bytes;       // peak memory of the process during the measurement; 0: not measured
  double page_faults_per_step;  // without the first step
};

// Peak of the device. CPU: multiply-adds in registers; GPU: a matrix product.
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

// Prints tables on standard output; returns JSON.
void print(const Results& results);
std::string json_of(const Results& results);

// Warning if a measurement is faster than the peak: another program slowed the measurement of the peak. Else empty.
std::string warning_of(const Results& results);

}  // namespace abh
