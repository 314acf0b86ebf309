// What pooling takes beside its logits and one payload: decay, several payloads, a gradient of the logarithm of its
// sums, and, where it is not causal, one average for all positions.

#include <cmath>
#include <string>
#include <vector>

#include "tests/pooling_case.hpp"

namespace abh {
namespace {

// max + log sum is an output, too. Where a position sees nothing it is a constant here.
struct LseCase : PoolingCase {
  std::vector<Slot> outputs() const {
    std::vector<Slot> slots = PoolingCase::outputs();
    slots.push_back(statistic("lse_bnc", {shape.B, shape.N, shape.C}));
    return slots;
  }
  template <class T, class Arrays>
  PoolingBackward<T> backward_of(Arrays& a) const {
    PoolingBackward<T> pass = PoolingCase::backward_of<T>(a);
    pass.d_lse_bnc = a.d_out[1].data();
    return pass;
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void forward(Device& device, Arrays& a) const {
    using std::log;
    PoolingCase::forward(device, a);
    wait_for(device);
    const Accum<T>*max_bnc = a.saved[0].data(), *sum_bnc = a.saved[1].data();
    Accum<T>* lse_bnc = a.out[1].data();
    for (Index i = 0; i < shape.B * shape.N * shape.C; ++i) {
      lse_bnc[i] = sum_bnc[i] == Accum<T>(0) ? Accum<T>(0) : max_bnc[i] + log(sum_bnc[i]);
    }
  }
  template <class Device, class Arrays, class T = typename Arrays::Number>
  void backward(Device& device, Arrays& a) const {
    pooling_backward<Device, T>(device, backward_of<T>(a));
  }
};
struct LseDefinition : LseCase {
  template <class Arrays, class T = typename Arrays::Number>
  void backward(PlainDevice& device, Arrays& a) const {
    pooling_definition_backward<PlainDevice, T>(device, backward_of<T>(a));
  }
};

// Both passes with their derivatives, and against the definition.
void check(const PoolingCase& layer) {
  const LseCase lse{layer};
  PlainDevice plain;
  check_gradients(lse, 1, plain, plain);
  const Values<double> in = random_values(lse.inputs(), 5), d_out = random_values(lse.outputs(), 6);
  require_close(layer.outputs(), run_forward<double>(layer, plain, in),
                run_forward<double>(PoolingDefinition{layer}, plain, in), 1e-12, "definition, forward");
  require_close(lse.inputs(), run_backward<double>(lse, plain, in, d_out),
                run_backward<double>(LseDefinition{lse}, plain, in, d_out), 1e-12, "definition, backward");
}

constexpr Index all_windows[] = {0, 1, 2, 4, 5, 10, 11, 50};

PoolingCase decaying(PoolingCase layer) {
  layer.decays = true;
  return layer;
}

TEST_CASE("pooling: decay, every derivative", "[pooling]") {
  for (Index window : all_windows) {
    INFO("window " << window);
    check(decaying({{2, 11, 2, 5, window}}));
    check(decaying({{2, 11, 2, 3, window}, holes_and_nothing(11)}));
    check(decaying({{2, 7, 2, 3, window}, holes_and_nothing(7), true, 4, 9}));
  }
  check(decaying({{1, 4, 1, 150}}));
  check(decaying({{1, 4, 1, 150, 2}}));
  check(decaying({{9, 5, 2, 3}}));  // enough sequences for one task each
  check(decaying({{1, 1, 2, 3}}));
  check(decaying({{1, 1, 2, 3, 1}}));
}

TEST_CASE("pooling: several payloads, every derivative", "[pooling]") {
  for (Index window : {0, 1, 3, 6, 7}) {
    for (Index payloads : {2, 3}) {
      INFO("window " << window << ", payloads " << payloads);
      check({{2, 7, 2, 3, window, true, payloads}});
      check({{2, 7, 2, 3, window, true, payloads}, holes_and_nothing(7), true, 4, 9});
      check(decaying({{2, 7, 2, 3, window, true, payloads}, holes_and_nothing(7)}));
    }
  }
  check({{1, 4, 1, 150, 0, true, 2}});
  check({{1, 4, 1, 150, 2, true, 2}});
  check({{9, 5, 2, 3, 0, true, 2}});
  check({{9, 5, 2, 3, 2, true, 2}});
}

TEST_CASE("pooling: a gradient of the logarithm of the sums", "[pooling]") {
  for (Index window : all_windows) {
    INFO("window " << window);
    check({{2, 11, 2, 5, window}});
    check({{2, 11, 2, 3, window}, holes_and_nothing(11)});
  }
}

TEST_CASE("pooling: one average for all positions, every derivative", "[pooling]") {
  for (Index payloads : {1, 3}) {
    INFO("payloads " << payloads);
    check({{2, 11, 2, 5, 0, false, payloads}});
    check({{2, 11, 2, 3, 0, false, payloads}, holes_and_nothing(11)});
    check({{2, 7, 2, 3, 0, false, payloads}, holes_and_nothing(7), true, 4, 9});
    check({{1, 4, 1, 150, 0, false, payloads}});
    check({{9, 5, 2, 3, 0, false, payloads}});
    check({{1, 1, 1, 1, 0, false, payloads}});
  }
}

// The payload of a head beside another is pooled as it is alone.
TEST_CASE("pooling: payloads are pooled side by side", "[pooling]") {
  PlainDevice plain;
  for (Index window : {0, 3}) {
    const PoolingCase both{{2, 7, 2, 3, window, true, 2}}, one{{2, 7, 2, 3, window}};
    const Values<double> in = random_values(both.inputs(), 1);
    const Array<double> out = run_forward<double>(both, plain, in)[0];
    for (Index payload : {0, 1}) {
      Array<double> x, expected;
      for (Index i = 0; i < 2 * 7 * 12; ++i) {
        if (i % 12 / 6 != payload) continue;
        x.push_back(in[1][size(i)]);
        expected.push_back(out[size(i)]);
      }
      require_close(one.outputs(), run_forward<double>(one, plain, {in[0], x}), {expected}, 1e-14, "one payload");
    }
  }
}

TEST_CASE("pooling: a slope of 0 changes no bit of the plain loops", "[pooling]") {
  PlainDevice plain;
  for (Index window : {0, 1, 3, 36}) {
    const PoolingCase layer{{2, 37, 3, 5, window}, holes_and_nothing(37)};
    Values<float> in = converted<float>(random_values(layer.inputs(), 3));
    const Values<float> d_out = converted<float>(random_values(layer.outputs(), 4));
    const Values<float> out = run_forward<float>(layer, plain, in);
    const Values<double> d_in = run_backward<float>(layer, plain, in, d_out);
    in.push_back(Array<float>(3, 0.0f));
    INFO("window " << window);
    CHECK((run_forward<float>(decaying(layer), plain, in) == out));
    const Values<double> d_in_decayed = run_backward<float>(decaying(layer), plain, in, d_out);
    CHECK((d_in_decayed[0] == d_in[0] && d_in_decayed[1] == d_in[1]));
  }
}

TEST_CASE("pooling: step by step with decay and several payloads", "[pooling]") {
  PlainDevice plain;
  for (Index window : {0, 1, 2, 5, 8, 36, 37, 50}) {
    for (double scale : {1.0, 30.0}) {
      for (Index payloads : {1, 2}) {
        for (bool decays : {false, true}) {
          PoolingCase layer{{2, 37, 3, 9, window, true, payloads}};
          layer.decays = decays;
          std::vector<Slot> slots = layer.inputs();
          slots[0].scale = scale;
          const Values<double> in = converted<double>(converted<float>(random_values(slots, 4)));
          INFO("window " << window << ", logits of " << scale << ", payloads " << payloads << ", decays " << decays);
          require_close(layer.outputs(), {steps<double>(plain, layer.shape, in)}, run_forward<double>(layer, plain, in),
                        1e-11, "double");
        }
      }
    }
  }
  CHECK(pooling_state_size({1, 64, 4, 8}, true) == 4 * 11);
  CHECK(pooling_state_size({1, 64, 4, 8, 3}, true) == 1 + 4 * 44);
  CHECK(pooling_state_size({1, 64, 4, 8, 0, true, 2}) == 4 * 18);
}

}  // namespace
}  // namespace abh
