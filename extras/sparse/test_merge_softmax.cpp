// Attention over parts of the keys, merged: against attention over all of them, forward and backward.

#include <cmath>

#include "extras/sparse/merge_softmax.hpp"
#include "layers/attention.hpp"
#include "tests/harness/attention_case.hpp"

namespace abh {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
struct Merged {
  Array<T> out;
  Array<Accum<T>> lse, lse_first, lse_second;
};

// Two parts with rows of B = 1 and C = 1.
template <class T, class Device>
Merged<T> merge_two(Device& device, Array<T> first, Array<T> second, Accum<T> lse_first, Accum<T> lse_second,
                    int parts = 2) {
  const Index K = static_cast<Index>(first.size());
  Merged<T> merged{Array<T>(first.size()), {0}, {lse_first}, {lse_second}};
  merge_softmax<Device, T>(
      device, {.out_bch = merged.out.data(),
               .lse_bnc = merged.lse.data(),
               .part = {{.out_rh = first.data(), .lse_bnc = merged.lse_first.data(), .rows = 1, .positions = 1},
                        {.out_rh = second.data(), .lse_bnc = merged.lse_second.data(), .rows = 1, .positions = 1}},
               .parts = parts,
               .B = 1,
               .C = 1,
               .N = 1,
               .K = K});
  wait_for(device);
  return merged;
}

TEST_CASE("merge_softmax: the worked example of the chapter", "[merge_softmax][gpu]") {
  // Sums of 1 and of 3: weights of a quarter and three quarters.
  const auto check = [&]<class T>(auto& device, T, double tolerance) {
    const auto merged =
        merge_two<T>(device, {T(8.0f), T(0.0f)}, {T(4.0f), T(-4.0f)}, Accum<T>(0), Accum<T>(std::log(3.0)));
    for (const auto& [got, expected] : {std::pair(double(merged.out[0]), 5.0),
                                        {double(merged.out[1]), -3.0},
                                        {double(merged.lse[0]), std::log(4.0)},
                                        {double(merged.lse_first[0]), std::log(4.0)},
                                        {double(merged.lse_second[0]), std::log(4.0)}}) {
      CHECK_FALSE(!(std::abs(got - expected) <= tolerance));
    }
  };
  PlainDevice plain;
  check(plain, double{}, 1e-15);
  CpuDevice<Isa::baseline> cpu(1);
  check(cpu, double{}, 1e-15);
  for_each_number(
      [&]<class T>(auto& device, const std::string&, T) { check(device, T{}, sizeof(T) == 2 ? 2e-2 : 1e-6); });
}

TEST_CASE("merge_softmax: empty parts and enormous scores", "[merge_softmax][gpu]") {
  for_each_device(1, [](auto& device) {
    const auto inf = static_cast<float>(infinity);
    const Array<float> a = {3, -5}, b = {7, 9}, zero = {0, 0};
    auto merged = merge_two<float>(device, zero, zero, inf, inf);
    CHECK(merged.out == zero);
    CHECK((merged.lse[0] == inf && merged.lse_first[0] == inf && merged.lse_second[0] == inf));
    merged = merge_two<float>(device, a, zero, -2, inf);
    CHECK(merged.out == a);
    CHECK((merged.lse[0] == -2 && merged.lse_second[0] == -2));
    merged = merge_two<float>(device, zero, b, inf, 1000);
    CHECK(merged.out == b);
    CHECK(merged.lse[0] == 1000);
    merged = merge_two<float>(device, a, b, 3000, -3000);
    CHECK(merged.out == a);
    CHECK(merged.lse[0] == 3000);
    merged = merge_two<float>(device, a, b, -3000, -3000);
    CHECK(merged.out == Array<float>{5, 2});
    merged = merge_two<float>(device, a, b, 0.25f, 5, 1);  // one part only
    CHECK(merged.out == a);
    CHECK((merged.lse[0] == 0.25f && merged.lse_second[0] == 5));
    merged = merge_two<float>(device, {std::nanf(""), 1}, b, std::nanf(""), 1);
    CHECK(std::isnan(merged.out[0]));
  });
}

// Every other key belongs to the second part, which has the rows of its queries in the opposite order, cut into
// sequences of four.
template <class T, class Device>
void check_split(Device& device, const std::string& name, bool in_place, double tolerance) {
  INFO(name << (in_place ? ", in place" : ""));
  const AttentionCase whole{.B = 2, .C = 12, .N = 3, .K = 5, .causal = false, .S = 9};
  const Index B = whole.B, C = whole.C, N = whole.N, H = whole.H(), BC = B * C, positions = 4;
  Array<Token> mask_first, mask_second, row_c;
  for (Index s = 0; s < B * whole.S; ++s) {
    mask_first.push_back(s % 2 == 0);
    mask_second.push_back(s % 2 == 1);
  }
  for (Index c = 0; c < C; ++c) row_c.push_back(static_cast<Token>(C - 1 - c));
  const Values<T> in = converted<T>(random_values(whole.inputs(), 3));
  CaseArrays<T> all = arrays_of(whole, in), part = arrays_of(whole, in);
  whole.forward(device, all);
  AttentionCase first = whole, second = whole;
  first.mask_bs = mask_first.data();
  second.mask_bs = mask_second.data();
  first.forward(device, part);
  wait_for(device);
  const Array<T> out_first = part.out[0];
  Array<Accum<T>> lse_first = part.saved[0];
  second.forward(device, part);
  wait_for(device);
  // The rows of the second part in their other order, with the log-sum-exps of its shorter sequences.
  Array<T> out_second(part.out[0].size());
  Array<Accum<T>> lse_second(part.saved[0].size());
  for (Index b = 0; b < B; ++b) {
    for (Index c = 0; c < C; ++c) {
      const Index row = b * C + C - 1 - c;
      for (Index h = 0; h < H; ++h) out_second[size_of(row * H + h)] = part.out[0][size_of((b * C + c) * H + h)];
      for (Index n = 0; n < N; ++n) {
        lse_second[size_of((row / positions * N + n) * positions + row % positions)] =
            part.saved[0][size_of((b * N + n) * C + c)];
      }
    }
  }
  Array<T> out = out_first;
  Array<Accum<T>> lse = lse_first;
  merge_softmax<Device, T>(device, {.out_bch = out.data(),
                                    .lse_bnc = lse.data(),
                                    .part = {{.out_rh = in_place ? out.data() : out_first.data(),
                                              .lse_bnc = in_place ? lse.data() : lse_first.data(),
                                              .rows = C,
                                              .positions = C},
                                             {.out_rh = out_second.data(),
                                              .lse_bnc = lse_second.data(),
                                              .row_c = row_c.data(),
                                              .rows = C,
                                              .positions = positions}},
                                    .parts = 2,
                                    .B = B,
                                    .C = C,
                                    .N = N,
                                    .K = whole.K});
  wait_for(device);
  const std::vector<TensorSpec> specs = {activation("out_bch", {BC, H}), statistic("lse_bnc", {B, N, C})};
  require_close(specs, {converted<double>(Values<T>{out})[0], converted<double>(Values<Accum<T>>{lse})[0]},
                {converted<double>(all.out)[0], converted<double>(all.saved)[0]}, tolerance, "merged");
  Index wrong = 0;
  for (Index i = 0; i < BC * N; ++i) {
    const Index b = i / (N * C), n = i / C % N, c = i % C, row = b * C + C - 1 - c;
    wrong += !(lse_second[size_of((row / positions * N + n) * positions + row % positions)] == lse[size_of(i)]);
    if (!in_place) wrong += !(lse_first[size_of(i)] == lse[size_of(i)]);
  }
  CHECK(wrong == 0);

  // Backward over either part with the merged rows: the shares of the gradients add up.
  const Values<T> d_out = converted<T>(random_values(whole.outputs(), 4));
  put_d_out(all, whole.inputs(), whole.outputs(), d_out);
  whole.backward(device, all);
  wait_for(device);
  const Values<double> expected = gradients_in(all, whole.inputs());
  Values<double> sums;
  for (const AttentionCase& each : {first, second}) {
    CaseArrays<T> a = arrays_of(each, in);
    a.out[0] = out;
    a.saved[0] = lse;
    put_d_out(a, each.inputs(), each.outputs(), d_out);
    each.backward(device, a);
    wait_for(device);
    const Values<double> share = gradients_in(a, each.inputs());
    if (sums.empty()) {
      sums = share;
      continue;
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      for (std::size_t j = 0; j < sums[i].size(); ++j) sums[i][j] += share[i][j];
    }
  }
  require_close(whole.inputs(), sums, expected, tolerance, "gradients");
}

TEST_CASE("merge_softmax: two parts equal the whole, forward and backward", "[merge_softmax][gpu]") {
  for (const bool in_place : {false, true}) {
    PlainDevice plain;
    check_split<double>(plain, "plain, double", in_place, 1e-14);
    CpuDevice<Isa::baseline> cpu(2);
    check_split<double>(cpu, "cpu, double", in_place, 1e-14);
    for_each_device(1,
                    [&](auto& device, const std::string& name) { check_split<float>(device, name, in_place, 1e-5); });
  }
}

TEST_CASE("merge_softmax: empty inputs", "[merge_softmax][gpu]") {
  for_each_device(1, []<class Device>(Device& device) {
    Array<float> out(3, 0.5f), lse(3, 0.5f);
    MergeSoftmax<float> a{.out_bch = out.data(),
                          .lse_bnc = lse.data(),
                          .part = {{.out_rh = out.data(), .lse_bnc = lse.data(), .rows = 0, .positions = 1}},
                          .parts = 1,
                          .B = 0,
                          .C = 3,
                          .N = 1,
                          .K = 1};
    merge_softmax<Device, float>(device, a);
    a.B = 3;
    a.C = 0;
    merge_softmax<Device, float>(device, a);
    wait_for(device);
    CHECK((out == Array<float>(3, 0.5f) && lse == Array<float>(3, 0.5f)));
  });
}

}  // namespace
}  // namespace abh
