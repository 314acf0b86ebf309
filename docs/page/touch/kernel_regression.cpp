// The kernel regression of plain/, as a page calls it: a few points, and questions about them. Numbers stand in arrays
// that the caller writes and reads.

#include "extras/kernel_regression/kernel_regression.hpp"

#include "docs/page/touch/device.hpp"

namespace {

constexpr abh::Index most_points = 32, most_questions = 128;

double near_c[most_questions], share_c[most_questions];

}  // namespace

extern "C" {

// Given by the caller.
double key_s[most_points], answer_s[most_points], query_c[most_questions], width[1];

// Found by regress, of all questions; and how much every point counts for the first of them.
double answer_c[most_questions], counts_s[most_points];

// Found by learn: half the mean square of what every point is answered by the others, and its derivative.
double loss[1], d_width[1];

}  // extern "C"

namespace {

abh::KernelRegressionInputs<double> inputs(const double* query_c, abh::Index C, abh::Index S, bool leave_one_out) {
  return {.query_c = query_c,
          .key_s = key_s,
          .value_s = answer_s,
          .width = width,
          .leave_one_out = leave_one_out,
          .C = C,
          .S = S};
}

}  // namespace

extern "C" {

void regress(int C, int S) {
  const auto in = inputs(query_c, C, S, false);
  auto& device = abh::page_device();
  abh::kernel_regression_forward<abh::PlainDevice, double>(
      device, {.out_c = answer_c, .near_c = near_c, .share_c = share_c, .in = in});
  abh::kernel_regression_weights<abh::PlainDevice, double>(device, counts_s, near_c, share_c,
                                                           inputs(query_c, 1, S, false));
}

void learn(int S) {
  const auto in = inputs(key_s, S, S, true);
  double out_c[most_points], d_out_c[most_points], d_query_c[most_points], d_key_s[most_points], d_value_s[most_points];
  auto& device = abh::page_device();
  abh::kernel_regression_forward<abh::PlainDevice, double>(
      device, {.out_c = out_c, .near_c = near_c, .share_c = share_c, .in = in});
  loss[0] = d_width[0] = 0;
  for (int s = 0; s < S; ++s) {
    d_out_c[s] = (out_c[s] - answer_s[s]) / S;
    loss[0] += (out_c[s] - answer_s[s]) * d_out_c[s] / 2;
  }
  abh::kernel_regression_backward<abh::PlainDevice, double>(device, {.d_query_c = d_query_c,
                                                                     .d_key_s = d_key_s,
                                                                     .d_value_s = d_value_s,
                                                                     .d_width = d_width,
                                                                     .d_out_c = d_out_c,
                                                                     .out_c = out_c,
                                                                     .near_c = near_c,
                                                                     .share_c = share_c,
                                                                     .in = in});
}

}  // extern "C"
