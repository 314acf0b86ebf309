// The pooling of plain/, as a page calls it: compiled to WebAssembly by ../touch.py, and as a shared library by its
// test. One sequence, one head. Numbers stand in arrays that the caller writes and reads; the functions are told how
// many of them count.

#include "layers/pooling.hpp"

#include "docs/page/touch/device.hpp"

namespace {

constexpr abh::Index most_c = 16, most_k = 2;

}  // namespace

extern "C" {

// Given by the caller.
double logit_c[most_c], x_ck[most_c * most_k], d_out_ck[most_c * most_k];

// Found by forward, backward, weights and states.
double out_ck[most_c * most_k], max_c[most_c], sum_c[most_c];
double d_x_ck[most_c * most_k], d_logit_c[most_c];
double weight_cc[most_c * most_c];
double states_of[3 * (2 + most_k)];

static abh::PoolingInputs<double> inputs(int C, int K, int window) {
  return {.logit_bnc = logit_c, .x_bch = x_ck, .shape = {1, C, 1, K, window}};
}

void forward(int C, int K, int window) {
  abh::pooling_forward<abh::PlainDevice, double>(
      abh::page_device(), {.out_bch = out_ck, .max_bnc = max_c, .sum_bnc = sum_c, .in = inputs(C, K, window)});
}

// After forward.
void backward(int C, int K, int window) {
  abh::pooling_backward<abh::PlainDevice, double>(abh::page_device(), {.d_x_bch = d_x_ck,
                                                                       .d_logit_bnc = d_logit_c,
                                                                       .d_out_bch = d_out_ck,
                                                                       .out_bch = out_ck,
                                                                       .max_bnc = max_c,
                                                                       .sum_bnc = sum_c,
                                                                       .in = inputs(C, K, window)});
}

// weight_cc[c * C + s]: how much x_s counts in out_c, which is the derivative of the one by the other. After forward;
// d_out_ck, d_x_ck and d_logit_c are overwritten.
void weights(int C, int K, int window) {
  for (int c = 0; c < C; ++c) {
    for (int i = 0; i < C * K; ++i) d_out_ck[i] = i == c * K ? 1 : 0;
    backward(C, K, window);
    for (int s = 0; s < C; ++s) weight_cc[c * C + s] = d_x_ck[s * K];
  }
}

// The window of `window` positions that ends at c, as three states of 2 + K numbers, max, sum and out: its positions in
// the block before, taken from the last to the first; those in the block of c; and both. The first is empty where c
// completes its block. After forward.
void states(int K, int window, int c) {
  const abh::PoolingShape shape{1, 1, 1, K, 0};
  const auto seen = [&](double* state, int from, int to, int by) {
    double out_k[most_k], max, sum, running[abh::pooling_state_size({1, 1, 1, most_k})];
    abh::pooling_start<abh::PlainDevice, double>(abh::page_device(), running, shape);
    for (int s = from; s != to; s += by) {
      abh::pooling_step<abh::PlainDevice, double>(abh::page_device(), {.out_h = out_k,
                                                                       .max_n = &max,
                                                                       .sum_n = &sum,
                                                                       .state = running,
                                                                       .logit_n = logit_c + s,
                                                                       .x_h = x_ck + s * K,
                                                                       .shape = shape});
    }
    for (int i = 0; i < 2 + K; ++i) state[i] = running[i];
  };
  const int block = c / window * window, first = c - window + 1;
  double *suffix = states_of, *prefix = suffix + 2 + K, *both = prefix + 2 + K;
  seen(suffix, block - 1, first < 0 ? block - 1 : first - 1, -1);
  seen(prefix, block, c + 1, 1);
  both[0] = max_c[c];
  both[1] = sum_c[c];
  for (int k = 0; k < K; ++k) both[2 + k] = out_ck[c * K + k];
}

}  // extern "C"
