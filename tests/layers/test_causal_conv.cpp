#include <type_traits>
#include <vector>

#include "cases/causal_conv.hpp"
#include "layers/causal_conv.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

// Narrow and wide groups, kernels longer than the sequence, several tasks, D not a multiple of any SIMD width, and a
// multiple of four positions, where the last positions read beyond the end.
const std::vector<CausalConvShape> shapes = {
    {2, 2, 12, 1, 1},  {2, 2, 12, 1, 3},  {1, 2, 12, 1, 4},  {1, 2, 12, 1, 5},  {2, 2, 12, 2, 1}, {2, 2, 12, 2, 3},
    {2, 2, 12, 2, 4},  {2, 2, 12, 2, 5},  {2, 2, 12, 3, 1},  {2, 2, 12, 3, 3},  {2, 2, 12, 3, 4}, {2, 2, 12, 3, 5},
    {2, 2, 12, 12, 1}, {2, 2, 12, 12, 3}, {2, 2, 12, 12, 4}, {2, 2, 12, 12, 5}, {1, 1, 1, 1, 1},  {2, 1, 1, 1, 4},
    {1, 7, 38, 19, 3}, {2, 9, 16, 2, 4},  {1, 66, 6, 6, 3},  {1, 5, 37, 37, 2}, {1, 5, 9, 1, 3},  {1, 67, 7, 1, 2},
    {2, 8, 5, 5, 3},   {2, 8, 6, 3, 5},
};

template <class Body>
void for_each_shape(const Body& body) {
  for (const CausalConvShape& s : shapes) {
    INFO("B " << s.B << ", C " << s.C << ", D " << s.D << ", groups " << s.groups << ", kernel " << s.kernel);
    body(CausalConvCase{.shape = s});
  }
}

TEST_CASE("causal_conv: every derivative, at every SIMD width", "[causal_conv]") {
  for_each_shape([](const CausalConvCase& layer) { check_layer(layer); });
}

TEST_CASE("causal_conv: many positions, at every SIMD width, with any number of threads", "[causal_conv]") {
  for (const CausalConvShape& s :
       {CausalConvShape{3, 131, 67, 67, 4}, CausalConvShape{2, 131, 68, 34, 3}, CausalConvShape{2, 131, 66, 2, 4},
        CausalConvShape{2, 70, 70, 1, 3}, CausalConvShape{2, 70, 67, 67, 6}, CausalConvShape{2, 70, 68, 34, 9}}) {
    INFO("D " << s.D << ", groups " << s.groups);
    check_float(CausalConvCase{.shape = s}, 2);
    check_threads(CausalConvCase{.shape = s}, 2);
  }
}

TEST_CASE("causal_conv: matches the definition", "[causal_conv]") {
  CpuDevice<Isa::baseline> device(1);
  PlainDevice plain;
  const auto check = [&](const CausalConvCase& layer) {
    const Values<double> in = random_values(layer.inputs(), 3), d_out = random_values(layer.outputs(), 5);
    require_close(layer.outputs(), run_forward<double>(layer, device, in), run_forward<double>(layer, plain, in), 1e-14,
                  "forward");
    require_close(layer.inputs(), run_backward<double>(layer, device, in, d_out),
                  run_backward<double>(layer, plain, in, d_out), 1e-13, "backward");
  };
  for_each_shape(check);
  // Narrow and wide groups take different code paths.
  for (const Index groups : {1, 4, 8, 12, 24})
    check(CausalConvCase{.shape = {.B = 2, .C = 7, .D = 24, .groups = groups, .kernel = 3}});
}

TEST_CASE("causal_conv: the worked example of the chapter", "[causal_conv]") {
  const CausalConvCase layer{{.B = 1, .C = 3, .D = 4, .groups = 2, .kernel = 2}};
  const Values<double> in = {{1, 1, 1, 0, 0, 2, 2, 1, 3, -1, 0, 1}, {1, 2, 0, -1, 3, 1, 1, 0, 1, 0, 0, 1, -1, 1, 0, 0}};
  const Values<double> d_out = {{1, 0, 1, 2, 0, 1, 0, 1, 1, -1, 2, 0}};
  const auto check = [&](auto& device) {
    const Values<double> out = run_forward<double>(layer, device, in);
    CHECK(out == Values<double>{{1, 1, 0, 1, -1, 4, 2, 1, 7, 5, 3, -2}});
    const Values<double> d_in = run_backward<double>(layer, device, in, d_out);
    CHECK(d_in ==
          Values<double>{{5, 0, 1, 1, -1, -1, 3, 0, 1, -1, 0, 2}, {0, 4, 2, 0, 1, -3, -1, 3, 4, 1, 2, 2, 1, 4, 0, 1}});
    CHECK(dot(out, d_out) == 16);
    CHECK(dot({in[0]}, {d_in[0]}) == 16);
    CHECK(dot({in[1]}, {d_in[1]}) == 16);
  };
  PlainDevice plain;
  CpuDevice<Isa::baseline> cpu(1);
  check(plain);
  check(cpu);
}

// Adds 1,000 to all of sequence 0 from a position on.
template <class T, class Device>
void check_causality(Device& device, const CausalConvShape& s) {
  const CausalConvCase layer{s};
  const Values<T> in = converted<T>(random_values(layer.inputs(), 6));
  const Array<T> out_bcd = run_forward<T>(layer, device, in)[0];
  for (const Index changed : {Index(0), Index(1), Index(63), Index(64), Index(69)}) {
    Values<T> other = in;
    const auto first = static_cast<std::size_t>(changed * s.D);
    const auto end = static_cast<std::size_t>(s.C * s.D);
    for (std::size_t i = first; i < end; ++i) other[0][i] = T(other[0][i] + T(1000));
    const Array<T> out = run_forward<T>(layer, device, other)[0];
    Index changed_before = 0, same_at = 0, changed_elsewhere = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      changed_before += i < first && out[i] != out_bcd[i];
      same_at += i >= first && i < first + static_cast<std::size_t>(s.D) && out[i] == out_bcd[i];
      changed_elsewhere += i >= end && out[i] != out_bcd[i];
    }
    CHECK(changed_before == 0);
    CHECK(changed_elsewhere == 0);
    CHECK(same_at == 0);
  }
}

TEST_CASE("causal_conv: later positions change no bit of earlier outputs", "[causal_conv][gpu]") {
  for (const CausalConvShape& s :
       {CausalConvShape{2, 70, 19, 19, 4}, CausalConvShape{2, 70, 40, 20, 3}, CausalConvShape{2, 70, 34, 2, 4},
        CausalConvShape{2, 70, 17, 1, 5}, CausalConvShape{2, 70, 16, 16, 6}}) {
    for_each_cpu(1, [&](auto& device, const std::string& name) {
      INFO(name << ", D " << s.D << ", groups " << s.groups);
      check_causality<float>(device, s);
    });
    for_each_gpu([&](auto& device, const std::string& name) {
      INFO(name << ", D " << s.D << ", groups " << s.groups);
      check_causality<float>(device, s);
      check_causality<bf16>(device, s);
    });
  }
}

template <class T, class Device>
Values<T> run_steps(const CausalConvCase& layer, Device& device, const Values<T>& in) {
  const CausalConvShape& s = layer.shape;
  Array<T> out_bcd(in[0].size());
  for (Index b = 0; b < s.B; ++b) {
    Array<T> state_jd(static_cast<std::size_t>((s.kernel - 1) * s.D), T(0));
    for (Index c = 0; c < s.C; ++c) {
      const Index at = (b * s.C + c) * s.D;
      causal_conv_step<Device, T>(device, out_bcd.data() + at, state_jd.data(), in[0].data() + at, in[1].data(), c, s);
    }
    wait_for(device);
  }
  return {out_bcd};
}

TEST_CASE("causal_conv: inference equals the full pass", "[causal_conv][gpu]") {
  const auto check_steps = [](const CausalConvCase& layer) {
    const Values<double> in = random_values(layer.inputs(), 7);
    CpuDevice<Isa::baseline> device(1);
    PlainDevice plain;
    const Values<double> out = run_forward<double>(layer, plain, in);
    require_close(layer.outputs(), run_steps<double>(layer, device, in), out, 1e-11, "double");
    for_each_device(2, [&](auto& any, const std::string& name) {
      require_close(layer.outputs(), converted<double>(run_steps<float>(layer, any, converted<float>(in))), out, 1e-4,
                    name);
    });
    for_each_gpu([&](auto& any, const std::string& name) {
      // An inference step rounds like the full pass: sums are in float, and a result is rounded once when it is stored.
      const Values<bf16> narrow = converted<bf16>(in);
      const Values<double> exact = run_forward<double>(layer, plain, converted<double>(narrow));
      require_close(layer.outputs(), converted<double>(run_steps<bf16>(layer, any, narrow)), exact, 0x1p-8, name);
    });
  };
  for_each_shape(check_steps);
  check_steps(CausalConvCase{.shape = {.B = 1, .C = 20, .D = 150, .groups = 1, .kernel = 3}});  // more than one task
}

TEST_CASE("causal_conv: an inference step may overwrite its input", "[causal_conv][gpu]") {
  const CausalConvShape s{1, 1, 6, 3, 3};
  const CausalConvCase layer{s};
  const Values<float> in = converted<float>(random_values(layer.inputs(), 8));
  for_each_device(1, [&]<class Device>(Device& device) {
    Array<float> x_d = in[0], state_jd(12, 0.0f);
    causal_conv_step<Device, float>(device, x_d.data(), state_jd.data(), x_d.data(), in[1].data(), 0, s);
    wait_for(device);
    CHECK(x_d == run_steps<float>(layer, device, in)[0]);
    CHECK(Array<float>(state_jd.begin(), state_jd.begin() + 6) == in[0]);
  });
}

TEST_CASE("causal_conv: no sequences", "[causal_conv][gpu]") {
  for (const Index groups : {1, 6, 12}) check_no_rows(CausalConvCase{{0, 5, 12, groups, 3}});
}

TEST_CASE("causal_conv: SIMD widths agree at every odd size", "[causal_conv]") {
  check_widths(
      [](Index size) { return CausalConvCase{.shape = {.B = 2, .C = 9, .D = size, .groups = size, .kernel = 4}}; });
  check_widths(
      [](Index size) { return CausalConvCase{.shape = {.B = 1, .C = size, .D = size, .groups = 1, .kernel = 3}}; });
}

// Every number of channels per group with kernels of one tap, fewer than four, four and more; ends of strips and blocks
// at different places, aligned and misaligned rows, kernels longer than the sequence.
TEST_CASE("causal_conv: GPU kernels at every size", "[causal_conv][gpu]") {
  for (const Index groups : {40, 20, 8, 5, 2, 1}) {
    for (const Index kernel : {1, 3, 4, 7}) {
      check_gpu("causal_conv", CausalConvCase{.shape = {.B = 3, .C = 37, .D = 40, .groups = groups, .kernel = kernel}});
    }
    check_gpu("causal_conv", CausalConvCase{.shape = {.B = 2, .C = 5, .D = 40, .groups = groups, .kernel = 9}},
              CausalConvCase{.shape = {.B = 3, .C = 1, .D = 40, .groups = groups, .kernel = 4}});
  }
  check_gpu("causal_conv", CausalConvCase{.shape = {.B = 3, .C = 37, .D = 37, .groups = 37, .kernel = 4}},
            CausalConvCase{.shape = {.B = 2, .C = 33, .D = 12, .groups = 12, .kernel = 5}});  // aligned in float only
  check_gpu("causal_conv", CausalConvCase{.shape = {.B = 2, .C = 9, .D = 1, .groups = 1, .kernel = 3}},
            CausalConvCase{.shape = {.B = 1, .C = 1025, .D = 8, .groups = 8, .kernel = 4}},
            CausalConvCase{.shape = {.B = 4200, .C = 2, .D = 4, .groups = 4, .kernel = 4}},
            CausalConvCase{.shape = {.B = 2, .C = 9, .D = 1032, .groups = 1032, .kernel = 4}},
            CausalConvCase{.shape = {.B = 1, .C = 1025, .D = 6, .groups = 3, .kernel = 3}},
            CausalConvCase{.shape = {.B = 1, .C = 1025, .D = 9, .groups = 1, .kernel = 2}});
  for (const Index groups : {16, 2}) {
    for (const Index kernel : {3, 4})
      check_alignment(CausalConvCase{.shape = {.B = 2, .C = 9, .D = 16, .groups = groups, .kernel = kernel}});
  }
}

TEST_CASE("causal_conv: on the GPU with parts of several strips", "[causal_conv][gpu]") {
  check_gpu("causal_conv", CausalConvCase{.shape = {.B = 67, .C = 3, .D = 64, .groups = 64, .kernel = 256}});
}

}  // namespace
}  // namespace abh
