#include "layers/pooling_logits.hpp"
#include "tests/layer_case.hpp"

namespace abh {
namespace {

// x is a slice of rows of N K + gap elements; its gradient is added to, as that of a weight.
struct LogitsCase {
  Index B, C, N, K, gap = 0;
  Index stride() const { return N * K + gap; }

  std::vector<Slot> inputs() const { return {weight("x_bch", B * C * stride()), weight("pool_nk", N * K)}; }
  std::vector<Slot> outputs() const { return {activation("logit_bnc", B * N * C)}; }

  template <class Device, class T>
  void forward(Device& device, const Values<T>& in, Values<T>& out) const {
    pooling_logits_forward<Device, T>(device, {.logit_bnc = out[0].data(),
                                               .x_bch = in[0].data(),
                                               .x_stride = gap > 0 ? stride() : 0,
                                               .pool_nk = in[1].data(),
                                               .B = B,
                                               .C = C,
                                               .N = N,
                                               .K = K});
  }
  template <class Device, class T>
  void backward(Device& device, const Values<T>& in, const Values<T>& d_out, Values<T>& d_in) const {
    pooling_logits_backward<Device, T>(device, {.d_x_bch = d_in[0].data(),
                                                .d_x_stride = gap > 0 ? stride() : 0,
                                                .d_pool_nk = d_in[1].data(),
                                                .d_logit_bnc = d_out[0].data(),
                                                .x_bch = in[0].data(),
                                                .x_stride = gap > 0 ? stride() : 0,
                                                .pool_nk = in[1].data(),
                                                .B = B,
                                                .C = C,
                                                .N = N,
                                                .K = K});
  }
};

TEST_CASE("pooling_logits: every derivative, every width", "[pooling_logits]") {
  check_layer(LogitsCase{2, 5, 3, 7});
  check_layer(LogitsCase{1, 37, 2, 19, 5});
  check_layer(LogitsCase{1, 1, 1, 1});
  check_widths([](Index size) { return LogitsCase{2, 3, 2, size}; });
}

TEST_CASE("pooling_logits: many rows", "[pooling_logits]") {
  // More rows than 64 tasks of 32: the order of summation of d_pool is the other one.
  check_float(LogitsCase{3, 701, 2, 3}, 1);
  check_threads(LogitsCase{3, 701, 2, 3}, 1);
}

TEST_CASE("pooling_logits: no sequences", "[pooling_logits]") {
  const LogitsCase layer{0, 5, 1, 2};
  const auto check = [&](auto& device, const std::string&) {
    CHECK(run_backward<float>(layer, device, {{}, {1, 2}}, {{}})[1] == Array<double>{0, 0});
  };
  for_each_cpu(2, check);
  for_each_gpu(check);
}

TEST_CASE("pooling_logits: on the GPU, heads of any size", "[pooling_logits][gpu]") {
  check_gpu("pooling_logits", "sizes of nothing", LogitsCase{3, 37, 5, 8});
  for (Index K : {1, 3, 8, 33, 64, 100, 300}) {
    const std::string what = "logits, heads of " + std::to_string(K);
    check_gpu("pooling_logits", what, LogitsCase{2, 19, 2, K});
    check_gpu("pooling_logits", what + ", strides", LogitsCase{1, 9, 2, K, K % 4 == 0 ? 12 : 5});
  }
  check_gpu("pooling_logits", "logits, 1 position", LogitsCase{3, 1, 5, 8});
  // More rows than a chunk of d_pool's sums, and sequences shorter than the step of its warps.
  check_gpu("pooling_logits", "logits, 1025 positions", LogitsCase{1, 1025, 1, 8});
  check_gpu("pooling_logits", "logits, 50 sequences of 3", LogitsCase{50, 3, 2, 4});
}

}  // namespace
}  // namespace abh
