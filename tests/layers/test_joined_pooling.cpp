// The fused pooling and gate of a GPU give the bits of the separate layers.

#include "layers/parts/pooling_with_logits.hpp"
#include "tests/harness/layer_case.hpp"
#include "tests/harness/row_sums.hpp"

namespace abh {
namespace {

struct GatedCase {
  bool decays, masks, residual;
  Index first, gap;  // of the dropout, and between the rows of the gate
};

template <class T, class Device>
void check_gated_pooling(Device& device, const PoolingShape& s, const Dropout& dropout, const GatedCase& c) {
  const Index H = s.N * s.K, BC = s.B * s.C, BNC = BC * s.N, stride = H + c.gap;
  const Array<T> x = numbers<T>(1, BC * H), by = numbers<T>(2, BC * stride), around = numbers<T>(3, BC * H),
                 pool = numbers<T>(4, H);
  const Array<float> slope(size(s.N), 0.25f);
  Array<Token> mask(size(BC));
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = i % 3 == 1 ? 0 : 1;
  struct Result {
    Array<T> pooled, out;
    Array<float> logit, most, sum;
    bool operator==(const Result&) const = default;
  };
  const auto result = [&](bool joined, bool in_place) {
    Result now{Array<T>(size(BC * H)), x, Array<float>(size(BNC)), Array<float>(size(BNC)), Array<float>(size(BNC))};
    const T* x_bch = x.data();
    if (in_place) x_bch = now.out.data();
    const PoolingForward<T> pooling{now.pooled.data(),
                                    now.most.data(),
                                    now.sum.data(),
                                    {.logit_bnc = now.logit.data(),
                                     .x_bch = x_bch,
                                     .slope_n = c.decays ? slope.data() : nullptr,
                                     .mask_bc = c.masks ? mask.data() : nullptr,
                                     .shape = s}};
    const PoolingWithLogitsForward<T> pooled{now.logit.data(), pool.data(), pooling};
    const GateForward<T> gate{
        now.out.data(), c.residual ? around.data() : nullptr, {now.pooled.data(), by.data(), stride, dropout, BC, H}};
    if (joined) {
      gated_pooling_forward<Device, T>(device, {pooled, gate});
    } else {
      pooling_with_logits_forward<Device, T>(device, pooled);
      gate_forward<Device, T>(device, gate);
    }
    device.synchronize();
    return now;
  };
  const Result expected = result(false, false);
  CHECK((result(true, false) == expected));
  CHECK((result(true, true) == expected));
}

// In a tile with rows of whole accesses: one kernel. Else, or with a mask that begins within a Philox block: two.
TEST_CASE("joined layers: pooling and its gate", "[joined_layers][pooling][gate][gpu]") {
  const Array<StepState> state(1, {.seed = 7, .step = 3});
  for_each_gpu([&](auto& device, const std::string& name) {
    for (const PoolingShape& s :
         {PoolingShape{.B = 2, .C = 256, .N = 3, .K = 64}, PoolingShape{.B = 3, .C = 37, .N = 5, .K = 16},
          PoolingShape{.B = 1, .C = 255, .N = 2, .K = 32}, PoolingShape{.B = 1, .C = 300, .N = 2, .K = 64},
          PoolingShape{.B = 2, .C = 1, .N = 3, .K = 24}, PoolingShape{.B = 0, .C = 9, .N = 1, .K = 64}}) {
      for (const double p : {0.0, 0.4}) {
        for (const GatedCase& c : {GatedCase{false, false, true, 8, 64}, GatedCase{true, true, false, 0, 0},
                                   GatedCase{false, true, true, 2, 8}, GatedCase{true, false, true, 4, 3}}) {
          CAPTURE(name, s.B, s.C, s.N, s.K, p, c.decays, c.masks, c.residual, c.first, c.gap);
          const Dropout dropout{.p = p, .site = 5, .state = state.data(), .first = c.first};
          check_gated_pooling<float>(device, s, dropout, c);
          check_gated_pooling<bf16>(device, s, dropout, c);
        }
      }
    }
  });
}

}  // namespace
}  // namespace abh
