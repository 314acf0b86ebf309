#include <cmath>
#include <limits>

#include "extras/transformer_xl/relative_attention.hpp"
#include "extras/transformer_xl/relative_attention_case.hpp"
#include "tests/harness/attention_case.hpp"

namespace abh {
namespace {

RelativeAttentionCase sized(Index B, Index C, Index N, Index K, Index segment, Index memory, Index P,
                            Index offset = 0) {
  return {{.B = B, .C = C, .N = N, .K = K, .S = offset + C, .query_offset = offset}, segment, memory, P};
}

TEST_CASE("relative_attention: every derivative, at every SIMD width", "[relative_attention]") {
  check_layer(sized(2, 7, 2, 3, 7, 0, 7));
  check_layer(sized(2, 11, 1, 5, 4, 3, 7));     // a memory shorter than the segments, the last of which is cut
  check_layer(sized(1, 13, 2, 4, 3, 7, 10));    // and longer
  check_layer(sized(2, 5, 2, 3, 5, 6, 11, 6));  // rows before the first query, all of them memory
  check_layer(sized(1, 6, 2, 3, 4, 3, 7, 5));   // or not all
  check_layer(sized(1, 9, 1, 3, 3, 20, 4));     // distances beyond 3 count as 3
  check_layer(sized(3, 4, 2, 2, 1, 2, 3));      // segments of one position
  check_layer(sized(2, 5, 3, 1, 2, 0, 2));      // no memory
  check_layer(sized(1, 67, 1, 2, 33, 20, 53));
}

TEST_CASE("relative_attention: masked keys, queries without keys", "[relative_attention]") {
  RelativeAttentionCase layer = sized(2, 11, 2, 3, 4, 3, 7);
  layer.mask_bs = holes(2, 11);
  check_layer(layer);
  layer = sized(2, 6, 1, 3, 6, 5, 11, 5);
  layer.mask_bs = holes(2, 11);
  check_layer(layer);
}

TEST_CASE("relative_attention: sequences of several tiles", "[relative_attention][heavy]") {
  RelativeAttentionCase masked = sized(2, 131, 1, 8, 40, 100, 140);
  masked.mask_bs = holes(2, 131);
  for (const RelativeAttentionCase& layer :
       {sized(2, 37, 3, 19, 16, 16, 32), sized(1, 64, 1, 32, 64, 0, 64), sized(1, 131, 2, 33, 70, 33, 103),
        sized(1, 150, 1, 16, 64, 128, 192), sized(3, 50, 2, 7, 50, 90, 140, 90), sized(1, 200, 1, 5, 32, 150, 20),
        sized(20, 70, 1, 7, 35, 35, 70), masked}) {
    check_float(layer, 3);
    check_threads(layer, 3);
  }
}

TEST_CASE("relative_attention: SIMD widths agree at every odd size", "[relative_attention]") {
  check_widths([](Index size) { return sized(1, size, 2, size, 5, 4, 9); });
}

TEST_CASE("relative_attention: later tokens change no bit of earlier outputs", "[relative_attention][gpu]") {
  for (const Index K : {5, 33}) check_causality(sized(1, 75, 2, K, 20, 30, 50), 10, {1, 20, 63, 64, 74});
}

TEST_CASE("relative_attention: positions before the memory have no influence", "[relative_attention][gpu]") {
  const RelativeAttentionCase layer = sized(1, 75, 1, 5, 20, 7, 27);  // the last segment begins at 60, its memory at 53
  for_each_number([&]<class T>(auto& device, const std::string& name, T) {
    INFO(name);
    Values<T> in = converted<T>(random_values(layer.inputs(), 1));
    const Values<double> before = converted<double>(run_forward<T>(layer, device, in));
    for (const std::size_t array : {1u, 2u}) {
      for (Index i = 0; i < 53 * layer.H(); ++i) in[array][size_of(i)] = T(3.0f);
    }
    const Values<double> after = converted<double>(run_forward<T>(layer, device, in));
    CHECK(std::equal(before[0].begin() + 60 * layer.H(), before[0].end(), after[0].begin() + 60 * layer.H()));
    in[1][size_of(53 * layer.H())] = T(9.0f);
    const Values<double> other = converted<double>(run_forward<T>(layer, device, in));
    CHECK(other[0].back() != after[0].back());
  });
}

TEST_CASE("relative_attention: a masked key has no influence and zero gradients", "[relative_attention][gpu]") {
  for (const Index K : {5, 33}) {
    RelativeAttentionCase layer = sized(1, 75, 1, K, 30, 20, 50);
    Array<Token> mask_c(75, 1);
    mask_c[45] = 0;
    layer.mask_bs = kept(std::move(mask_c));
    check_hidden_key(layer, 45);
  }
}

TEST_CASE("relative_attention: a query without keys has output 0, infinite lse and zero gradients",
          "[relative_attention][gpu]") {
  RelativeAttentionCase layer = sized(1, 40, 1, 3, 16, 8, 24);
  layer.mask_bs = kept(Array<Token>(40, 0));
  check_nothing_seen(layer);
}

TEST_CASE("relative_attention: a query with one key has zero score gradients", "[relative_attention][gpu]") {
  const RelativeAttentionCase layer = sized(70, 1, 1, 16, 4, 3, 2);
  for_each_number([&]<class T>(auto& device, const std::string& name, T) {
    INFO(name);
    const Values<double> gradients = run_backward<T>(layer, device, converted<T>(random_values(layer.inputs(), 1)),
                                                     converted<T>(random_values(layer.outputs(), 2)));
    // On a CPU a compiler that does not optimise may round the two sums differently.
    const bool gpu = name.find("emulated") != std::string::npos || name.find("cuda") != std::string::npos;
    for (const std::size_t array : {0u, 1u, 3u}) CHECK(largest(gradients[array]) <= (gpu ? 0 : 4e-5));
  });
}

TEST_CASE("relative_attention: scores of any magnitude", "[relative_attention][gpu]") {
  const auto layer_of = [](double scale) {
    RelativeAttentionCase layer = sized(2, 37, 2, 6, 10, 12, 22);
    layer.query_scale = scale;
    return layer;
  };
  check_scales({1e3, 1e15, 1e30}, layer_of, 1e-3);
}

TEST_CASE("relative_attention: NaN reaches only the rows that attend to it", "[relative_attention][gpu]") {
  const RelativeAttentionCase layer = sized(1, 40, 1, 8, 15, 9, 24);
  Values<float> in = converted<float>(random_values(layer.inputs(), 3));
  const Index at = 21;
  in[0][size_of(at * layer.K + 3)] = std::numeric_limits<float>::quiet_NaN();
  for_each_device(1, [&](auto& device, const std::string& name) {
    INFO(name);
    CaseArrays<float> a = arrays_of(layer, in);
    layer.forward(device, a);
    wait_for(device);
    for (Index c = 0; c < layer.C; ++c) {
      CHECK(std::isnan(a.saved[0][size_of(c)]) == (c == at));
      for (Index k = 0; k < layer.K; ++k) CHECK(std::isnan(a.out[0][size_of(c * layer.K + k)]) == (c == at));
    }
  });
}

// Outputs and gradients of one forward and one backward call over all queries and keys of the case.
struct OneCall {
  Values<double> out, d_in, d_past;
};
template <class Device>
OneCall call(Device& device, const RelativeAttentionCase& layer, const Values<double>& in, const Array<double>& d_out) {
  using T = double;
  CaseArrays<T> a = arrays_of(layer, in);
  layer.forward(device, a);
  const Index rows = layer.keys() * layer.H();
  OneCall result;
  result.out = {a.out[0]};
  result.d_in = in;
  for (std::size_t i = 4; i < 6; ++i) result.d_in[i].assign(in[i].size(), 0);
  result.d_past.assign(2, Array<double>(size_of(rows), std::nan("")));
  relative_attention_backward<Device, T>(device,
                                         {.d_query_bch = result.d_in[0].data(),
                                          .d_key_bsh = result.d_in[1].data(),
                                          .d_value_bsh = result.d_in[2].data(),
                                          .d_out_bch = d_out.data(),
                                          .out_bch = a.out[0].data(),
                                          .lse_bnc = a.saved[0].data(),
                                          .in = {.query_bch = in[0].data(),
                                                 .key_bsh = in[1].data(),
                                                 .value_bsh = in[2].data(),
                                                 .mask = {.query_offset = layer.query_offset},
                                                 .B = layer.B,
                                                 .C = layer.C,
                                                 .S = layer.keys(),
                                                 .N = layer.N,
                                                 .K = layer.K}},
                                         layer.terms<T>(a),
                                         {.d_past_key_bsh = result.d_past[0].data(),
                                          .d_past_value_bsh = result.d_past[1].data(),
                                          .d_rho_ph = result.d_in[3].data(),
                                          .d_content_bias_nk = result.d_in[4].data(),
                                          .d_position_bias_nk = result.d_in[5].data()});
  return result;
}

// Two segments in one pass, and each in its own pass, the second with the first as its memory.
TEST_CASE("relative_attention: a pass over all segments equals separate passes", "[relative_attention]") {
  const Index S = 6, H = 6;
  const RelativeAttentionCase all = sized(1, 2 * S, 2, 3, S, 4, S + 4), first = sized(1, S, 2, 3, S, 4, S + 4),
                              second = sized(1, S, 2, 3, S, 4, S + 4, S);
  PlainDevice plain;
  const Values<double> in = random_values(all.inputs(), 1);
  const Array<double> d_out = random_values(all.outputs(), 2)[0];
  const auto half = [&](const Array<double>& x, int i) {
    return Array<double>(x.begin() + i * S * H, x.begin() + (i + 1) * S * H);
  };
  const OneCall whole = call(plain, all, in, d_out);
  const OneCall one =
      call(plain, first, {half(in[0], 0), half(in[1], 0), half(in[2], 0), in[3], in[4], in[5]}, half(d_out, 0));
  const OneCall two = call(plain, second, {half(in[0], 1), in[1], in[2], in[3], in[4], in[5]}, half(d_out, 1));
  const Array<double> nothing(size_of(S * H), 0.0);
  CHECK(half(whole.out[0], 0) == one.out[0]);
  CHECK(half(whole.out[0], 1) == two.out[0]);
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(half(whole.d_in[1 + i], 0) == one.d_in[1 + i]);
    CHECK(half(whole.d_in[1 + i], 1) == half(two.d_in[1 + i], 1));
    CHECK(half(two.d_in[1 + i], 0) == nothing);
    CHECK(one.d_past[i] == nothing);
    CHECK(half(whole.d_past[i], 0) == half(two.d_past[i], 0));
    CHECK(half(whole.d_past[i], 1) == nothing);
    CHECK(half(two.d_past[i], 0) != nothing);
  }
  CHECK(half(whole.d_in[0], 0) == one.d_in[0]);
  CHECK(half(whole.d_in[0], 1) == two.d_in[0]);
  for (std::size_t i = 3; i < 6; ++i) {
    Array<double> sum = one.d_in[i];
    for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += two.d_in[i][j];
    require_close({all.inputs()[i]}, {whole.d_in[i]}, {sum}, 1e-14, "of both segments");
  }
}

TEST_CASE("relative_attention: inference equals the full pass", "[relative_attention][gpu]") {
  const RelativeAttentionCase layer = sized(1, 40, 3, 13, 40, 0, 30);
  PlainDevice plain;
  for_each_number([&]<class T>(auto& device, const std::string& name, T) {
    const Values<T> in = converted<T>(random_values(layer.inputs(), 1));
    CaseArrays<T> a = arrays_of(layer, in);
    for (Index c = 0; c < layer.C; ++c) {
      relative_attention_step<std::remove_reference_t<decltype(device)>, T>(device,
                                                                            {.out_h = a.out[0].data() + c * layer.H(),
                                                                             .query_h = a.in[0].data() + c * layer.H(),
                                                                             .key_ch = a.in[1].data(),
                                                                             .value_ch = a.in[2].data(),
                                                                             .length = c + 1,
                                                                             .N = layer.N,
                                                                             .K = layer.K},
                                                                            layer.terms<T>(a));
    }
    wait_for(device);
    require_close(layer.outputs(), converted<double>(a.out), run_forward<double>(layer, plain, converted<double>(in)),
                  std::is_same_v<T, float> ? 1e-5 : 8e-3, name);
  });
}

TEST_CASE("relative_attention: inspected weights reproduce the output", "[relative_attention]") {
  RelativeAttentionCase layer = sized(2, 7, 2, 3, 3, 2, 4);
  layer.mask_bs = holes(2, 7);
  check_weights(layer);
}

TEST_CASE("relative_attention: scratch memory grows linearly with C", "[relative_attention]") {
  const auto peak = [](Index C) { return scratch_peak(sized(1, C, 1, 2, C, 0, C)); };
  const std::size_t half = peak(1024);
  CHECK(half > 0);
  CHECK(peak(2048) <= 2 * half);
}

// extras/transformer_xl/relative_attention.md.
TEST_CASE("relative_attention: the worked example of the chapter", "[relative_attention][gpu]") {
  const double log2 = std::log(2.0);
  const RelativeAttentionCase layer = sized(1, 2, 1, 1, 2, 1, 3, 1);
  const Values<double> in = {{0, -1}, {0, log2, log2}, {0, 3, 2}, {0, log2, 0}, {1}, {2}};
  const Values<double> d_in = {{0, 4 * log2}, {-2, 2, 0}, {3, 3, 1}, {4, -2, -2}, {4 * log2}, {0}};
  const auto check = [&]<class T>(auto& device, T, double tolerance, double backward_tolerance) {
    CaseArrays<T> a = arrays_of(layer, converted<T>(in));
    layer.forward(device, a);
    wait_for(device);
    require_close(layer.outputs(), converted<double>(a.out), {{1, 2}}, tolerance, "forward");
    require_close(layer.saved(), converted<double>(a.saved), {{std::log(6.0), std::log(4.0)}}, tolerance, "lse");
    require_close(layer.inputs(), run_backward<T>(layer, device, converted<T>(in), {{3, 4}}), d_in, backward_tolerance,
                  "backward");
  };
  PlainDevice plain;
  check(plain, double{}, 1e-14, 1e-14);
  // CUDA documents errors of up to 2 units in the last place (2^-23) for expf and 1 for logf. A weight then errs by 7
  // units, and a gradient of a score by 14 units of 4 log 2. The gradient of the position bias is a sum of them that is
  // 0, compared with a hundredth of 4 log 2: 1.7e-4. With random errors of this size in the emulator the largest error
  // was 3.4e-5.
  for_each_device(1, [&](auto& device) { check(device, float{}, 1e-5, 2e-4); });

  const OneCall apart = call(plain, layer, in, {3, 4});
  const std::vector<TensorSpec> keys = {layer.inputs()[1], layer.inputs()[2]};
  require_close(keys, {apart.d_in[1], apart.d_in[2]}, {{0, 2, 0}, {0, 3, 1}}, 1e-14, "of their own segment");
  require_close(keys, apart.d_past, {{-2, 0, 0}, {3, 0, 0}}, 1e-14, "as memory");
}

TEST_CASE("relative_attention: GPU kernels at every size", "[relative_attention][gpu]") {
  const auto check = [](const std::string& what, RelativeAttentionCase layer, const Token* mask_bs = nullptr) {
    layer.mask_bs = mask_bs;
    check_gpu("relative_attention", what, layer);
  };
  check("one segment", sized(3, 37, 5, 8, 37, 0, 37));
  check("segments and a memory", sized(2, 67, 2, 7, 20, 11, 31));
  check("a memory longer than a segment", sized(1, 70, 2, 5, 9, 40, 49));
  check("rows before the first query", sized(2, 20, 2, 6, 20, 33, 53, 33));
  check("clamped", sized(2, 50, 1, 16, 17, 30, 10));
  check("masked keys", sized(2, 67, 1, 16, 30, 20, 50), holes(2, 67));
  check("one position", sized(3, 1, 2, 3, 1, 0, 1));
  check("no sequence", sized(0, 5, 2, 3, 2, 2, 4));
  // One slab of channels, two, and rows that leave no room for others.
  for (const Index K : {1, 32, 33, 130, 600}) check("K " + std::to_string(K), sized(1, 11, 1, K, 6, 4, 10));
}

}  // namespace
}  // namespace abh
