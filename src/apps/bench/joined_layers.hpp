#pragma once

// Fused kernels that bench measures on a device with joins_layers: a training step launches these, not the layers
// apart.

#include <vector>

#include "cases/case.hpp"
#include "layers/parts/causal_conv_dropout.hpp"
#include "layers/parts/gate_layernorm.hpp"
#include "layers/parts/pooling_with_logits.hpp"
#include "layers/parts/with_row_sums.hpp"
#include "settings/config.hpp"

namespace abh {

template <class Device, class T, class Bench>
class JoinedLayersBench {
 public:
  JoinedLayersBench(Bench& bench, const Dropout& dropout) : bench_(bench), device_(bench.device()), dropout_(dropout) {}

  void run() {
    causal_conv_dropout();
    gate_layernorm();
    pooling_with_logits();
    row_sums();
    partial_sums();
  }

 private:
  using Arrays = typename Bench::Arrays;

  struct Slots {
    std::vector<TensorSpec> in, out, kept;
    const std::vector<TensorSpec>& inputs() const { return in; }
    const std::vector<TensorSpec>& outputs() const { return out; }
    const std::vector<TensorSpec>& saved() const { return kept; }
  };

  // As in a convolution block, depthwise with four taps: out = residual + dropout(conv(in)).
  void causal_conv_dropout() {
    const TensorSpec row = activation("row", {BC, D});
    const Slots slots{{row, weight("weight_dgj", {D, 1, 4}), row}, {row}, {}};
    const CausalConvShape shape{bench_.B(), bench_.C(), D, D, 4};
    const double rows = Bench::bytes_of({row}), weights = Bench::bytes_of({slots.in[1]});
    const double d_weights = Bench::bytes_of({slots.in[1]}, true);
    bench_.measure(
        slots,
        {{"causal_conv, dropout", "forward", 10 * numbers(), 3 * rows + weights,
          [=, this](Arrays& a) {
            causal_conv_dropout_forward<Device, T>(
                device_, {a.out[0].data(), a.in[0].data(), a.in[2].data(), a.in[1].data(), dropout_, shape});
          }},
         {"causal_conv, dropout", "backward", 17 * numbers(), 3 * rows + weights + d_weights, [=, this](Arrays& a) {
            causal_conv_dropout_backward<Device, T>(device_, {a.d_in[0].data(), a.d_in[1].data(), a.d_out[0].data(),
                                                              a.in[0].data(), a.in[1].data(), dropout_, shape});
          }}});
  }

  // As in an additive block: out = norm(r), r = residual + dropout(pooled) gate.
  void gate_layernorm() {
    const TensorSpec row = activation("row", {BC, D}), channel = weight("weight", {D}), each = statistic("each", {BC});
    const Slots slots{{row, row, row, channel, channel}, {row}, {row, row, each, each}};
    const auto inputs = [this](Arrays& a) { return GateInputs<T>{a.in[0].data(), a.in[1].data(), 0, dropout_, BC, D}; };
    const double rows = Bench::bytes_of({row}), statistics = Bench::bytes_of({each, each});
    bench_.measure(
        slots, {{"gate_layernorm", "forward", 11 * numbers(), 5 * rows + statistics,
                 [=, this](Arrays& a) {
                   const GateForward<T> gate{a.saved[0].data(), a.in[2].data(), inputs(a)};
                   gate_layernorm_forward<Device, T>(
                       device_,
                       {gate, {a.out[0].data(), a.saved[2].data(), a.saved[3].data(), a.in[3].data(), a.in[4].data()}});
                 }},
                {"gate_layernorm", "backward", 19 * numbers(), 8 * rows + statistics, [=, this](Arrays& a) {
                   const LayernormBackward<T> norm{.d_in_bcd = a.d_in[2].data(),
                                                   .d_weight_d = a.d_in[3].data(),
                                                   .d_bias_d = a.d_in[4].data(),
                                                   .d_out_bcd = a.d_out[0].data(),
                                                   .d_residual_bcd = a.saved[1].data(),
                                                   .in_bcd = a.saved[0].data(),
                                                   .mean_bc = a.saved[2].data(),
                                                   .rstd_bc = a.saved[3].data(),
                                                   .weight_d = a.in[3].data(),
                                                   .BC = BC,
                                                   .D = D};
                   const GateBackward<T> gate{.d_pooled_bcd = a.d_in[0].data(),
                                              .d_gate_bcd = a.d_in[1].data(),
                                              .d_out_bcd = a.d_in[2].data(),
                                              .in = inputs(a)};
                   gate_layernorm_backward<Device, T>(device_, {norm, gate});
                 }}});
  }

  // The gradient of the values is written, or added to that of another use.
  void pooling_with_logits() {
    const PoolingShape shape{bench_.B(), bench_.C(), bench_.N(), D / bench_.N()};
    const TensorSpec row = activation("row", {BC, D}), each = statistic("each", {shape.B, shape.N, shape.C});
    const Slots slots{{row, weight("pool_nk", {D})}, {row}, {each, each, each, each}};
    const auto inputs = [=](Arrays& a) {
      return PoolingInputs<T>{.logit_bnc = a.saved[0].data(), .x_bch = a.in[0].data(), .shape = shape};
    };
    const auto backward = [=, this](Arrays& a, bool accumulate) {
      const PoolingBackward<T> pooling{.d_x_bch = a.d_in[0].data(),
                                       .accumulate = accumulate,
                                       .d_logit_bnc = a.saved[3].data(),
                                       .d_out_bch = a.d_out[0].data(),
                                       .out_bch = a.out[0].data(),
                                       .max_bnc = a.saved[1].data(),
                                       .sum_bnc = a.saved[2].data(),
                                       .in = inputs(a)};
      pooling_with_logits_backward<Device, T>(device_, {a.d_in[1].data(), a.in[1].data(), pooling});
    };
    const double rows = Bench::bytes_of({row}), heads = Bench::bytes_of({each});
    bench_.measure(
        slots,
        {{"pooling and logits", "forward", 5 * numbers(), 2 * rows + 3 * heads,
          [=, this](Arrays& a) {
            const PoolingForward<T> pooling{a.out[0].data(), a.saved[1].data(), a.saved[2].data(), inputs(a)};
            pooling_with_logits_forward<Device, T>(device_, {a.saved[0].data(), a.in[1].data(), pooling});
          }},
         {"pooling and logits", "backward", 10 * numbers(), 4 * rows + 4 * heads,
          [=](Arrays& a) { backward(a, false); }},
         {"pooling, adding", "backward", 11 * numbers(), 5 * rows + 4 * heads, [=](Arrays& a) { backward(a, true); }}});
  }

  // Gradients of the feed-forward net's activation and of its output, with those of the biases before them.
  void row_sums() {
    const auto one = [this](const char* name, Index width, double flops, const auto& call) {
      const TensorSpec row = activation("row", {BC, width});
      const Slots slots{{row, weight("bias", {width})}, {row}, {}};
      bench_.measure(
          slots, {{name, "backward", flops * static_cast<double>(BC * width), Bench::bytes_of({row, row, row}), call}});
    };
    one("gelu, row sums", F, 39, [this](Arrays& a) {
      gelu_backward_with_row_sums<Device, T>(device_, a.d_in[1].data(), a.d_in[0].data(), a.d_out[0].data(),
                                             a.in[0].data(), {BC, F}, GeluForm::erf);
    });
    one("dropout, row sums", D, 2, [this](Arrays& a) {
      dropout_backward_with_row_sums<Device, T>(device_, a.d_in[1].data(), a.d_in[0].data(), a.d_out[0].data(),
                                                dropout_, {BC, D});
    });
  }

  // The deferred sums of a step of additive blocks, with as many parts as for the 16,384 tokens of `baby`: per layer
  // three norms, both biases of the feed-forward net, and the vectors of two poolings.
  void partial_sums() {
    struct Sum {
      Index count, parts, columns;
      bool pairs;
    };
    const std::vector<Sum> sums = {{3, 264, D, true}, {1, 128, F, false}, {1, 128, D, false}, {2, 64, D, false}};
    Index parts = 0, columns = 0;
    for (const Sum& s : sums) {
      parts += s.count * s.parts * s.columns * (s.pairs ? 2 : 1);
      columns += s.count * s.columns * (s.pairs ? 2 : 1);
    }
    const Index layers = bench_.config().layers;
    const Slots slots{{}, {}, {statistic("parts", {layers * parts}), statistic("sums", {layers * columns})}};
    bench_.measure(slots,
                   {{"partial sums", "backward", static_cast<double>(layers * parts),
                     Bench::bytes_of({slots.kept[0], slots.kept[1], slots.kept[1]}), [=, this](Arrays& a) {
                       typename Device::DeferredReductions deferred(device_);
                       const float* part = a.saved[0].data();
                       float* to = a.saved[1].data();
                       for (Index layer = 0; layer < layers; ++layer) {
                         for (const Sum& s : sums) {
                           for (Index i = 0; i < s.count; ++i) {
                             const Index stride = s.columns * (s.pairs ? 2 : 1);
                             deferred.add({to, part, s.parts, s.columns, stride, s.pairs ? to + s.columns : nullptr});
                             part += s.parts * stride;
                             to += stride;
                           }
                         }
                       }
                       deferred.finish();
                     }}});
  }

  double numbers() const { return static_cast<double>(BC * D); }

  Bench& bench_;
  Device& device_;
  Dropout dropout_;
  const Index BC = bench_.B() * bench_.C(), D = bench_.D(), F = bench_.config().ffn_channels();
};

}  // namespace abh
