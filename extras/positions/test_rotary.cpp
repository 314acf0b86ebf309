#include "blocks/parts/positions.hpp"
#include "extras/positions/rotary.hpp"
#include "extras/positions/rotary_case.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

std::size_t size(Index count) { return static_cast<std::size_t>(count); }

// The table of a network, rounded to T.
template <class T>
Array<T> turns(Index C, Index K) {
  Array<T> turn_ck;
  for (Index i = 0; i < C * K; ++i) turn_ck.push_back(static_cast<T>(rotary_turn(i / K, i % K, K)));
  return turn_ck;
}

TEST_CASE("rotary: every derivative, at every SIMD width", "[rotary]") {
  check_layer(RotaryCase{.B = 2, .C = 3, .N = 2, .K = 7});
  check_layer(RotaryCase{.B = 1, .C = 35, .N = 1, .K = 3});
  check_layer(RotaryCase{.B = 2, .C = 2, .N = 3, .K = 19, .gap = 5, .d_gap = 2, .out_gap = 3});
  check_layer(RotaryCase{.B = 1, .C = 2, .N = 2, .K = 1});
  check_widths([](Index size) { return RotaryCase{.B = 1, .C = 3, .N = 2, .K = size}; });
}

TEST_CASE("rotary: the worked example of the chapter", "[rotary]") {
  const RotaryCase layer{1, 1, 1, 5};
  const Values<double> in = {{5, 10, 2, 3, 7}, {0.6, 0.8, 0, 1, 99}};
  const auto check = [&](auto& device) {
    const Array<double> out = run_forward<double>(layer, device, in)[0];
    const Array<double> d_in = run_backward<double>(layer, device, in, {{5, 5, 1, 4, 2}})[0];
    const Array<double> expected_out = {-5, 10, -3, 2, 7}, expected_d_in = {7, -1, 4, -1, 2};
    for (std::size_t k = 0; k < 5; ++k) {
      CHECK_FALSE(!(std::abs(out[k] - expected_out[k]) <= 1e-14));
      CHECK_FALSE(!(std::abs(d_in[k] - expected_d_in[k]) <= 1e-14));
    }
  };
  PlainDevice plain;
  CpuDevice<Isa::baseline> cpu(1);
  check(plain);
  check(cpu);
}

// One query and one key at every one of C positions; every `step`th is compared with the first.
template <class Device>
void check_distances(Device& device, Index C, Index step) {
  const Index K = 10;
  const RotaryCase layer{1, C, 1, K};
  const Array<float> query = converted<float>(random_values({activation("query", {K})}, 1))[0];
  const Array<float> key = converted<float>(random_values({activation("key", {K})}, 2))[0];
  const Array<float> turn_ck = turns<float>(C, K);
  const auto turned = [&](const Array<float>& row) {
    Array<float> rows;
    for (Index c = 0; c < C; ++c) rows.insert(rows.end(), row.begin(), row.end());
    return run_forward<float>(layer, device, {rows, turn_ck})[0];
  };
  const Array<float> queries = turned(query), keys = turned(key);
  const auto product = [&](const Array<float>& a, Index i, const Array<float>& b, Index j) {
    double sum = 0;
    for (Index k = 0; k < K; ++k) sum += double(a[size(i * K + k)]) * double(b[size(j * K + k)]);
    return sum;
  };
  for (Index k = 0; k < K; ++k) CHECK(queries[size(k)] == query[size(k)]);  // position 0
  for (Index distance : {0, 1, 7}) {
    const double first = product(queries, distance, keys, 0);
    double error = 0;
    for (Index c = distance; c < C; c += step) {
      error = at_least(error, std::abs(product(queries, c, keys, c - distance) - first));
    }
    INFO("distance " << distance);
    CHECK_FALSE(!(error <= 1e-5));
  }
  CHECK_FALSE(!(std::abs(product(queries, 7, keys, 0) - product(queries, 0, keys, 7)) > 0.1));
  double error = 0;
  for (Index c = 0; c < C; c += step) {
    error = at_least(error, std::abs(product(queries, c, queries, c) - product(queries, 0, queries, 0)));
  }
  CHECK_FALSE(!(error <= 1e-5));
}

TEST_CASE("rotary: a product depends only on the distance, a norm is unchanged", "[rotary][gpu]") {
  for_each_device(2, [](auto& device) { check_distances(device, 50, 1); });
}

TEST_CASE("rotary: positions of 65,536 keep their precision", "[rotary]") {
  PlainDevice plain;
  check_distances(plain, 65536, 1);
  for_each_cpu(2, [](auto& device, const std::string& isa) {
    INFO(isa);
    check_distances(device, 65536, 7);
  });
}

TEST_CASE("rotary: the table of angles", "[rotary]") {
  CHECK(rotary_turn(0, 4, 8) == 1);
  CHECK(rotary_turn(0, 5, 8) == 0);
  CHECK(rotary_turn(3, 0, 8) == std::cos(3.0));
  CHECK(rotary_turn(3, 1, 8) == std::sin(3.0));
  // Pair 2 of 8 channels turns by 10000^(-1/2) a position; the width of an odd head counts in full.
  CHECK_FALSE(!(std::abs(rotary_turn(70, 4, 8) - std::cos(0.7)) <= 1e-15));
  CHECK_FALSE(!(std::abs(rotary_turn(70, 3, 5) - std::sin(70 * std::pow(10000, -0.4))) <= 1e-15));
}

// Both passes in place.
template <class Device>
void check_turns_in_place(Device& device, const RotaryCase& layer) {
  const Array<float> turn_ck = turns<float>(layer.C, layer.K);
  const Array<float> in = converted<float>(random_values(layer.inputs(), 3))[0];
  Array<float> forward = in, backward = in;
  rotary_forward<Device, float>(device, {.out_bch = forward.data(),
                                         .in_bch = forward.data(),
                                         .turn_ck = turn_ck.data(),
                                         .B = layer.B,
                                         .C = layer.C,
                                         .N = layer.N,
                                         .K = layer.K});
  rotary_backward<Device, float>(device, {.d_in_bch = backward.data(),
                                          .d_out_bch = backward.data(),
                                          .turn_ck = turn_ck.data(),
                                          .B = layer.B,
                                          .C = layer.C,
                                          .N = layer.N,
                                          .K = layer.K});
  wait_for(device);
  CHECK(forward == run_forward<float>(layer, device, {in, turn_ck})[0]);
  CHECK(converted<double>(Values<float>{backward})[0] == run_backward<float>(layer, device, {in, turn_ck}, {in})[0]);
}

TEST_CASE("rotary: may work in place", "[rotary][gpu]") {
  for_each_device(2, [&](auto& device) {
    check_turns_in_place(device, {2, 9, 3, 17});
    check_turns_in_place(device, {2, 9, 3, 40});
  });
}

TEST_CASE("rotary: no rows", "[rotary][gpu]") {
  check_no_rows(RotaryCase{.B = 2, .C = 0, .N = 1, .K = 3});
  check_no_rows(RotaryCase{.B = 0, .C = 2, .N = 1, .K = 3});
}

TEST_CASE("rotary: on the GPU, rows and strides of any size", "[rotary][gpu]") {
  for (Index K : {1, 2, 7, 37, 64, 261, 264}) {
    check_gpu("rotary", RotaryCase{.B = 3, .C = 5, .N = 2, .K = K});
  }
  check_gpu("rotary", RotaryCase{.B = 3, .C = 37, .N = 3, .K = 40},
            RotaryCase{.B = 1, .C = 5, .N = 2, .K = 40, .gap = 3},
            RotaryCase{.B = 1, .C = 5, .N = 2, .K = 40, .gap = 8},
            RotaryCase{.B = 1, .C = 5, .N = 2, .K = 40, .gap = 8, .d_gap = 11},
            RotaryCase{.B = 1, .C = 5, .N = 2, .K = 40, .gap = 0, .d_gap = 0, .out_gap = 5},
            RotaryCase{.B = 1, .C = 5, .N = 3, .K = 13, .gap = 9},
            RotaryCase{.B = 1, .C = 5, .N = 3, .K = 13, .gap = 9, .d_gap = 9, .out_gap = 9});
  check_alignment(RotaryCase{.B = 1, .C = 3, .N = 2, .K = 8});
}

}  // namespace
}  // namespace abh
