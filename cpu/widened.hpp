#pragma once

// bf16 layers with kernels for float: converts their rows to float in scratch memory, and rounds complete results once.

#include "cpu/rows.hpp"

namespace abh {
inline namespace ABH_ISA {

template <class Device>
class Widened {
 public:
  explicit Widened(Device& device) : device_(device), scratch_(device.workspace) {}

  // `count` rows of `width` numbers at distance `stride` (0: contiguous), converted to contiguous float rows; null for
  // null.
  const float* in(const bf16* rows, Index count, Index width, Index stride = 0) {
    return widen(rows, count, width, stride);
  }

  // Allocates such rows, which finish() rounds into `rows`. reads: true: they start with the numbers of `rows`.
  float* out(bf16* rows, Index count, Index width, Index stride = 0, bool reads = false) {
    if (!rows) return nullptr;
    float* wide = reads ? widen(rows, count, width, stride) : scratch_.template take<float>(count * width);
    results_[result_count_++] = {wide, {rows, stride_or(stride, width)}, count, width};
    return wide;
  }

  void finish() {
    for (int i = 0; i < result_count_; ++i) {
      const Result result = results_[i];
      parallel_rows(device_, result.count, rows_per_task, [=](Index row) {
        bf16* to = result.rows[row];
        const float* from = result.wide + row * result.width;
        for_lanes<bf16>(result.width, [=]<class L>(Index k) { store<L>(to + k, load<L>(from + k)); });
      });
    }
  }

 private:
  static constexpr Index rows_per_task = 32;
  static constexpr int most_results = 6;
  struct Result {
    const float* wide;
    Rows<bf16> rows;
    Index count, width;
  };

  float* widen(const bf16* rows, Index count, Index width, Index stride) {
    if (!rows) return nullptr;
    float* wide = scratch_.template take<float>(count * width);
    const Rows<const bf16> from_rows{rows, stride_or(stride, width)};
    parallel_rows(device_, count, rows_per_task, [=](Index row) {
      const bf16* from = from_rows[row];
      float* to = wide + row * width;
      for_lanes<bf16>(width, [=]<class L>(Index k) { store<L>(to + k, load<L>(from + k)); });
    });
    return wide;
  }

  Device& device_;
  typename Device::Scope scratch_;
  Result results_[most_results];
  int result_count_ = 0;
};

// Runs body(wide) between conversion and rounding.
template <class Device, class Body>
void in_float(Device& device, const Body& body) {
  Widened<Device> wide(device);
  body(wide);
  wide.finish();
}

}  // namespace ABH_ISA
}  // namespace abh
