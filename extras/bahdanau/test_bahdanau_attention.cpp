#include <cmath>
#include <limits>
#include <type_traits>

#include "extras/bahdanau/bahdanau_attention.hpp"
#include "extras/bahdanau/bahdanau_attention_case.hpp"
#include "tests/harness/attention_case.hpp"

namespace abh {
namespace {

TEST_CASE("bahdanau_attention: every derivative, at every SIMD width", "[bahdanau_attention]") {
  check_layer(BahdanauAttentionCase{{.B = 2, .C = 7, .N = 2, .K = 3}});
  check_layer(BahdanauAttentionCase{{.B = 2, .C = 6, .N = 1, .K = 5, .causal = false}});
  check_layer(BahdanauAttentionCase{{.B = 1, .C = 17, .N = 2, .K = 4, .side_by_side = true}});
  check_layer(BahdanauAttentionCase{{.B = 3, .C = 1, .N = 2, .K = 3}});
  check_layer(BahdanauAttentionCase{{.B = 2, .C = 5, .N = 3, .K = 1, .side_by_side = true}});
  check_layer(BahdanauAttentionCase{{.B = 1, .C = 67, .N = 1, .K = 2}});
}

TEST_CASE("bahdanau_attention: masked keys, queries without keys", "[bahdanau_attention]") {
  check_layer(BahdanauAttentionCase{{.B = 2, .C = 11, .N = 2, .K = 3, .mask_bs = holes(2, 11)}});
  check_layer(BahdanauAttentionCase{{.B = 2, .C = 8, .N = 1, .K = 3, .causal = false, .mask_bs = holes(2, 8)}});
}

TEST_CASE("bahdanau_attention: another sequence, past keys, a window, a distance bias", "[bahdanau_attention]") {
  check_layer(BahdanauAttentionCase{{.B = 2, .C = 5, .N = 2, .K = 3, .causal = false, .S = 8}});
  check_layer(BahdanauAttentionCase{{.B = 2, .C = 9, .N = 1, .K = 2, .causal = false, .mask_bs = holes(2, 4), .S = 4}});
  check_layer(BahdanauAttentionCase{{.B = 1, .C = 5, .N = 2, .K = 3, .S = 9, .query_offset = 4}});
  check_layer(BahdanauAttentionCase{{.B = 1, .C = 9, .N = 2, .K = 3, .S = 9, .query_offset = -3}});
  check_layer(BahdanauAttentionCase{{.B = 2, .C = 11, .N = 1, .K = 3, .window = 3}});
  check_layer(BahdanauAttentionCase{{.B = 1, .C = 7, .N = 3, .K = 2, .distances = 7}});
  check_layer(BahdanauAttentionCase{{.B = 1, .C = 6, .N = 2, .K = 2, .causal = false, .window = 2, .distances = 6}});
  // The first keys belong to no query, or no key lies in the window.
  check_layer(BahdanauAttentionCase{{.B = 1, .C = 3, .N = 1, .K = 2, .S = 6, .query_offset = 3, .window = 2}});
  check_layer(BahdanauAttentionCase{{.B = 1, .C = 6, .N = 1, .K = 2, .S = 3, .query_offset = 4, .window = 2}});
}

TEST_CASE("bahdanau_attention: sequences of several tiles", "[bahdanau_attention][heavy]") {
  for (const bool causal : {true, false}) {
    for (const BahdanauAttentionCase& layer :
         {BahdanauAttentionCase{{.B = 2, .C = 37, .N = 3, .K = 19, .causal = causal}},
          BahdanauAttentionCase{{.B = 1, .C = 64, .N = 1, .K = 32, .causal = causal}},
          BahdanauAttentionCase{{.B = 1, .C = 131, .N = 2, .K = 33, .causal = causal, .side_by_side = true}},
          BahdanauAttentionCase{{.B = 2, .C = 131, .N = 1, .K = 8, .causal = causal, .mask_bs = holes(2, 131)}},
          BahdanauAttentionCase{{.B = 1, .C = 40, .N = 1, .K = 16, .causal = false, .S = 203, .window = 150}},
          BahdanauAttentionCase{{.B = 20, .C = 70, .N = 1, .K = 7, .causal = causal, .distances = 70}}}) {
      check_float(layer, 3);
      check_threads(layer, 3);
    }
  }
}

TEST_CASE("bahdanau_attention: SIMD widths agree at every odd size", "[bahdanau_attention]") {
  check_widths([](Index size) { return BahdanauAttentionCase{{.B = 1, .C = size, .N = 2, .K = size}}; });
}

// Some rows exceed the range of their exponentials, in at least one channel of one head.
TEST_CASE("bahdanau_attention: rows of any size", "[bahdanau_attention][gpu]") {
  for (const double scale : {8.0, 20.0, 100.0}) {
    for (const bool causal : {true, false}) {
      BahdanauAttentionCase layer{{.B = 2, .C = 75, .N = 2, .K = 9, .causal = causal, .query_scale = scale}};
      check_float(layer, 3);
      check_threads(layer, 3);
      layer.key_scale = scale;
      // Both at once: query and key may be large and their sum small.
      check_float(layer, 5);
      layer.query_scale = 1;
      check_float(layer, 4);
    }
  }
}

// Beyond the range of products of four exponentials, every softmax has a single weight.
TEST_CASE("bahdanau_attention: scores of any magnitude", "[bahdanau_attention][gpu]") {
  const auto layer_of = [](double scale) { return BahdanauAttentionCase{{.B = 2, .C = 37, .N = 2, .K = 6}, scale}; };
  check_scales({1e9, 1e12, 1e20, 1e36}, layer_of, 1e-6);
}

// Some of the changed rows have large entries; none of the original rows has.
TEST_CASE("bahdanau_attention: later tokens change no bit of earlier outputs", "[bahdanau_attention][gpu]") {
  for (const Index K : {5, 33}) {
    check_causality(BahdanauAttentionCase{{.B = 1, .C = 75, .N = 2, .K = K}}, 1000, {1, 20, 63, 64, 74});
  }
}

TEST_CASE("bahdanau_attention: a query without keys has output 0, infinite lse and zero gradients",
          "[bahdanau_attention][gpu]") {
  check_nothing_seen(BahdanauAttentionCase{{.B = 1, .C = 40, .N = 1, .K = 3, .mask_bs = kept(Array<Token>(40, 0))}});
}

TEST_CASE("bahdanau_attention: a masked key has no influence and zero gradients", "[bahdanau_attention][gpu]") {
  const Index masked = 66;
  Array<Token> mask_c(75, 1);
  mask_c[size_of(masked)] = 0;
  check_hidden_key(BahdanauAttentionCase{{.B = 1, .C = 75, .N = 1, .K = 5, .causal = false, .mask_bs = kept(mask_c)}},
                   masked);
}

TEST_CASE("bahdanau_attention: NaN reaches only the rows that attend to it", "[bahdanau_attention][gpu]") {
  const BahdanauAttentionCase layer{{.B = 1, .C = 40, .N = 1, .K = 8}};
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

TEST_CASE("bahdanau_attention: a query with one key has zero score gradients", "[bahdanau_attention][gpu]") {
  const BahdanauAttentionCase layer{{.B = 70, .C = 1, .N = 1, .K = 16}};
  for_each_number([&]<class T>(auto& device, const std::string& name, T) {
    INFO(name);
    const Values<double> gradients = run_backward<T>(layer, device, converted<T>(random_values(layer.inputs(), 1)),
                                                     converted<T>(random_values(layer.outputs(), 2)));
    // On a CPU a compiler that does not optimise may round the two sums differently.
    const bool gpu = name.find("emulated") != std::string::npos || name.find("cuda") != std::string::npos;
    CHECK(largest(gradients[0]) <= (gpu ? 0 : 4e-6));
    CHECK(largest(gradients[1]) <= (gpu ? 0 : 4e-6));
  });
}

// Queries are 0. A key has one channel that is not 0, so its score is `lead` times the tanh of this channel.
struct LongPast {
  LongPast(Index queries, Index keys, double lead)
      : layer{{.B = 1, .C = queries, .N = 1, .K = 4, .causal = false, .S = keys}},
        in(zeros(layer.inputs())),
        d_out(zeros(layer.outputs())) {
    in[3][0] = lead;
    d_out[0][0] = 1;
  }
  static Values<double> zeros(const std::vector<TensorSpec>& specs) {
    Values<double> values;
    for (const TensorSpec& spec : specs) values.emplace_back(size_of(spec.count()), 0.0);
    return values;
  }
  double& query(Index c, Index k) { return in[0][size_of(c * 4 + k)]; }
  double& key(Index s, Index k) { return in[1][size_of(s * 4 + k)]; }
  double& value(Index s, Index k) { return in[2][size_of(s * 4 + k)]; }
  BahdanauAttentionCase layer;
  Values<double> in, d_out;
};

// Without compensation a sum loses the terms of a tile, because they are less than half a unit in its last place.
TEST_CASE("bahdanau_attention: a heavy key before and after many light keys", "[bahdanau_attention][gpu]") {
  const Index keys = 8192;
  LongPast past(1, keys, 20.9 / 2);
  for (Index s = 0; s < keys; ++s) {
    past.key(s, 0) = s == 0 ? 9 : -9;
    past.value(s, 0) = 1;
    past.value(s, 1) = s == 0;
    past.value(s, 2) = s == 0 ? 0.5 : 1.5;
  }
  check_long_sums(past.layer, past.in, past.d_out, 1.5e-6);
  // The last, large key scales down the sum of the small ones, and the compensation with it.
  LongPast behind(1, keys, 6);
  for (Index s = 0; s < keys; ++s) {
    const bool is_heavy = s + 1 == keys;
    behind.key(s, 0) = is_heavy ? 9 : -1.2 + 0.05 * static_cast<double>(s % 7);
    behind.value(s, 0) = 1;
    behind.value(s, 1) = is_heavy;
    behind.value(s, 2) = is_heavy ? 0.1 : 0.7;
  }
  check_long_sums(behind.layer, behind.in, behind.d_out, 1.5e-6);
}

// The gradient of the query: the term of the first key is large, and a sum without compensation loses the terms of the
// other keys, where tanh is almost 1.
TEST_CASE("bahdanau_attention: the gradient of a query over many keys", "[bahdanau_attention][gpu]") {
  const Index keys = 16384;
  LongPast past(1, keys, 0.01);
  past.d_out[0][0] = 16384;  // so that gradients are about 1
  for (Index s = 0; s < keys; ++s) {
    past.key(s, 0) = s == 0 ? 0 : std::atanh(std::sqrt(1 - 6.4e-6));
    past.value(s, 0) = s == 0;
  }
  check_long_sums(past.layer, past.in, past.d_out, 2.5e-6);
}

// The gradients of keys, values and score weights over many queries. The term of the first query is the largest.
TEST_CASE("bahdanau_attention: gradients over many queries", "[bahdanau_attention][gpu]") {
  const Index queries = 8192;
  LongPast many(queries, 3, 0.7);
  for (Index k = 0; k < 4; ++k) {
    many.in[3][size_of(k)] = 0.7 - 0.2 * static_cast<double>(k);
    for (Index s = 0; s < 3; ++s) {
      many.key(s, k) = s == k ? 0.3 : 0;
      many.value(s, k) = s == k ? 1 : 0.2;
    }
    for (Index c = 0; c < queries; ++c) {
      many.query(c, k) = 0.2 - 0.1 * static_cast<double>(k);
      many.d_out[0][size_of(c * 4 + k)] = (c == 0 ? 1 : 9e-10) * (1 + 0.5 * static_cast<double>(k));
    }
  }
  check_long_sums(many.layer, many.in, many.d_out, 5e-6);
}

TEST_CASE("bahdanau_attention: inference equals the full pass", "[bahdanau_attention][gpu]") {
  const BahdanauAttentionCase layer{{.B = 1, .C = 40, .N = 3, .K = 13, .window = 25}};
  PlainDevice plain;
  for_each_number([&]<class T>(auto& device, const std::string& name, T) {
    const Values<T> in = converted<T>(random_values(layer.inputs(), 1));
    CaseArrays<T> a = arrays_of(layer, in);
    for (Index c = 0; c < layer.C; ++c) {
      bahdanau_attention_step<std::remove_reference_t<decltype(device)>, T>(device,
                                                                            {.out_h = a.out[0].data() + c * layer.H(),
                                                                             .query_h = a.in[0].data() + c * layer.H(),
                                                                             .key_ch = a.in[1].data(),
                                                                             .value_ch = a.in[2].data(),
                                                                             .mask = {.window = layer.window},
                                                                             .length = c + 1,
                                                                             .N = layer.N,
                                                                             .K = layer.K},
                                                                            a.in[3].data());
    }
    wait_for(device);
    require_close(layer.outputs(), converted<double>(a.out), run_forward<double>(layer, plain, converted<double>(in)),
                  std::is_same_v<T, float> ? 1e-5 : 4e-3, name);  // bf16: the rounding of the result, 2^-9
  });
}

TEST_CASE("bahdanau_attention: inspected weights reproduce the output", "[bahdanau_attention]") {
  const BahdanauAttentionCase layer{{.B = 2, .C = 5, .N = 2, .K = 3, .mask_bs = holes(2, 5), .distances = 5}};
  check_weights(layer);
}

TEST_CASE("bahdanau_attention: scratch memory grows linearly with C", "[bahdanau_attention]") {
  const auto peak = [](Index C) { return scratch_peak(BahdanauAttentionCase{{.B = 1, .C = C, .N = 1, .K = 2}}); };
  const std::size_t half = peak(1024);
  CHECK(half > 0);
  CHECK(peak(2048) <= 2 * half);
}

// extras/bahdanau/bahdanau_attention.md.
TEST_CASE("bahdanau_attention: the worked example of the chapter", "[bahdanau_attention][gpu]") {
  const double log2 = std::log(2.0), half_log3 = std::log(3.0) / 2;
  const BahdanauAttentionCase layer{{.B = 1, .C = 2, .N = 1, .K = 1, .causal = false}};
  const Values<double> in = {{0, half_log3}, {0, -half_log3}, {0, 3}, {2 * log2}};
  const Values<double> d_in = {{-log2, 3 * log2}, {-13 * log2, 15 * log2}, {8, 4}, {-4}};
  const auto check = [&]<class T>(auto& device, T, double tolerance) {
    CaseArrays<T> a = arrays_of(layer, converted<T>(in));
    layer.forward(device, a);
    wait_for(device);
    require_close(layer.outputs(), converted<double>(a.out), {{1, 1}}, tolerance, "forward");
    require_close(layer.saved(), converted<double>(a.saved), {{std::log(1.5), std::log(3.0)}}, tolerance, "lse");
    require_close(layer.inputs(), run_backward<T>(layer, device, converted<T>(in), {{3, 9}}), d_in, tolerance,
                  "backward");
  };
  PlainDevice plain;
  check(plain, double{}, 1e-14);
  // CUDA documents errors of up to 2 units in the last place (2^-23) for expf and 1 for logf. A logit then errs by 4
  // units, a weight by 14, and a gradient of a logit, a weight times a difference, by 28: 3.3e-6. With random errors of
  // this size in the emulator the largest error was 2.2e-6.
  for_each_device(1, [&](auto& device) { check(device, float{}, 4e-6); });
}

TEST_CASE("bahdanau_attention: GPU kernels at every size", "[bahdanau_attention][gpu]") {
  const auto check = [](const std::string& what, const AttentionCase& layer) {
    // Logits of unit standard deviation for any number of channels.
    check_gpu("bahdanau_attention", what, BahdanauAttentionCase{layer, 2 / std::sqrt(double(layer.K))});
  };
  check("odd sizes", {.B = 3, .C = 37, .N = 5, .K = 8});
  check("odd sizes, side by side", {.B = 3, .C = 37, .N = 5, .K = 7, .side_by_side = true});
  check("one position", {.B = 3, .C = 1, .N = 2, .K = 3});
  check("both directions", {.B = 2, .C = 67, .N = 2, .K = 33, .causal = false});
  check("masked keys", {.B = 2, .C = 67, .N = 1, .K = 16, .mask_bs = holes(2, 67)});
  check("another sequence", {.B = 2, .C = 9, .N = 2, .K = 24, .causal = false, .mask_bs = holes(2, 70), .S = 70});
  check("a past, a bias", {.B = 1, .C = 20, .N = 2, .K = 5, .S = 53, .query_offset = 33, .distances = 53});
  check("a reach", {.B = 1, .C = 50, .N = 2, .K = 5, .window = 9});
  // One slab of channels, two, and rows that leave no room for others.
  for (const Index K : {1, 64, 65, 130, 600}) {
    check("K " + std::to_string(K), {.B = 1, .C = 11, .N = 1, .K = K});
  }
}

TEST_CASE("bahdanau_attention: empty inputs", "[bahdanau_attention][gpu]") {
  check_no_rows(BahdanauAttentionCase{{.B = 0, .C = 4, .N = 2, .K = 3}});
  check_no_rows(BahdanauAttentionCase{{.B = 2, .C = 0, .N = 2, .K = 3}});
}

}  // namespace
}  // namespace abh
