// Layers of cuda/ at sizes that a page can show, with the names of their arrays.

#include "docs/kernels/on_device.hpp"
#include "layers/attention.hpp"
#include "layers/layernorm.hpp"
#include "layers/linear.hpp"
#include "layers/pooling.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

// Numbers as in the ladders.
kernels::Array numbers(const std::string& name, const std::vector<long>& shape, bool result = false) {
  std::size_t count = 1;
  for (const long extent : shape) count *= static_cast<std::size_t>(extent);
  kernels::Array array{name, "f4", shape, std::vector<float>(count), result};
  unsigned state = static_cast<unsigned>(name.size() + 31 * static_cast<unsigned char>(name[0]));
  for (float& x : array.x) {
    state = state * 1664525 + 1013904223;
    x = float(int(state >> 16) % 17 - 8) / 4;
  }
  return array;
}
kernels::Array empty(const std::string& name, const std::vector<long>& shape) { return {name, "f4", shape, {}, true}; }

// run(gpu, arrays) calls one layer.
template <class Run>
kernels::Level layer(int number, const char* name, const std::vector<kernels::Array>& arrays, const Run& run) {
  return {"production", number, name, [=](kernels::Case& on_host, bool records) {
            on_host.arrays = arrays;
            OnDevice d(on_host, records);
            Gpu gpu(GemmChoice::hand);
            run(gpu, d);
            gpu.synchronize();
            d.copy_back();
          }};
}

}  // namespace
}  // namespace ABH_BACKEND

template <>
std::vector<kernels::Level> kernels::production<Backend::ABH_BACKEND>() {
  const auto rows = {8L, 128L}, channels = {128L}, one = {8L};
  const auto heads = {64L, 2L, 16L}, logits = {2L, 64L};
  return {
      layer(1, "layernorm_forward",
            {numbers("in_bcd", rows), numbers("weight_d", channels), numbers("bias_d", channels),
             empty("out_bcd", rows), empty("mean_bc", one), empty("rstd_bc", one)},
            [](Gpu& gpu, OnDevice& d) {
              layernorm_forward<Gpu, float>(gpu, d.at<float>("out_bcd"), d.at<float>("mean_bc"), d.at<float>("rstd_bc"),
                                            d.at<float>("in_bcd"), d.at<float>("weight_d"), d.at<float>("bias_d"), 8,
                                            128);
            }),
      layer(2, "layernorm_backward",
            {numbers("d_out_bcd", rows), numbers("in_bcd", rows), numbers("weight_d", channels),
             numbers("mean_bc", one), numbers("rstd_bc", one), empty("d_in_bcd", rows),
             numbers("d_weight_d", channels, true), numbers("d_bias_d", channels, true)},
            [](Gpu& gpu, OnDevice& d) {
              layernorm_backward<Gpu, float>(gpu, {.d_in_bcd = d.at<float>("d_in_bcd"),
                                                   .d_weight_d = d.at<float>("d_weight_d"),
                                                   .d_bias_d = d.at<float>("d_bias_d"),
                                                   .d_out_bcd = d.at<float>("d_out_bcd"),
                                                   .in_bcd = d.at<float>("in_bcd"),
                                                   .mean_bc = d.at<float>("mean_bc"),
                                                   .rstd_bc = d.at<float>("rstd_bc"),
                                                   .weight_d = d.at<float>("weight_d"),
                                                   .BC = 8,
                                                   .D = 128});
            }),
      layer(3, "pooling",
            {numbers("logit_bnc", logits), numbers("x_bch", heads), empty("out_bch", heads), empty("max_bnc", logits),
             empty("sum_bnc", logits)},
            [](Gpu& gpu, OnDevice& d) {
              PoolingForward<float> a{.out_bch = d.at<float>("out_bch"),
                                      .max_bnc = d.at<float>("max_bnc"),
                                      .sum_bnc = d.at<float>("sum_bnc"),
                                      .in = {}};
              a.in = {.logit_bnc = d.at<float>("logit_bnc"),
                      .x_bch = d.at<float>("x_bch"),
                      .shape = {.B = 1, .C = 64, .N = 2, .K = 16}};
              pooling_forward<Gpu, float>(gpu, a);
            }),
      layer(4, "product", {numbers("in_bci", {32, 32}), numbers("weight_oi", {32, 32}), empty("out_bco", {32, 32})},
            [](Gpu& gpu, OnDevice& d) {
              linear_forward<Gpu, float>(gpu, {.out_bco = d.at<float>("out_bco"),
                                               .in_bci = d.at<float>("in_bci"),
                                               .weight_oi = d.at<float>("weight_oi"),
                                               .shape = {32, 32, 32}});
            }),
      layer(5, "attention",
            {numbers("query_bch", {32, 16}), numbers("key_bsh", {32, 16}), numbers("value_bsh", {32, 16}),
             empty("out_bch", {32, 16}), empty("lse_bnc", {1, 32})},
            [](Gpu& gpu, OnDevice& d) {
              AttentionForward<float> a{.out_bch = d.at<float>("out_bch"), .lse_bnc = d.at<float>("lse_bnc"), .in = {}};
              a.in = {.query_bch = d.at<float>("query_bch"),
                      .key_bsh = d.at<float>("key_bsh"),
                      .value_bsh = d.at<float>("value_bsh"),
                      .mask = {},
                      .B = 1,
                      .C = 32,
                      .S = 32,
                      .N = 1,
                      .K = 16};
              attention_forward<Gpu, float>(gpu, a);
            }),
  };
}

}  // namespace abh
