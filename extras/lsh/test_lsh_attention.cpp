#include <algorithm>
#include <cmath>
#include <limits>

#include "extras/lsh/lsh_attention.hpp"
#include "extras/lsh/lsh_attention_case.hpp"
#include "tests/harness/attention_case.hpp"

namespace abh {
namespace {

LshAttentionCase sized(Index B, Index C, Index N, Index K, Index U, Index R, Index piece) {
  return {.B = B, .C = C, .N = N, .K = K, .U = U, .R = R, .piece_size = piece};
}

LshAttentionCase with(LshAttentionCase layer, bool causal, bool counted, bool within_bucket = false) {
  layer.causal = causal;
  layer.counted = counted;
  layer.within_bucket = within_bucket;
  return layer;
}

// The order computed by a device.
struct Order {
  Array<Token> bucket, place, position;
};
template <class T, class Device>
Order order_of(Device& device, const LshAttentionCase& layer, const Values<T>& in) {
  const std::size_t count = size_of(layer.B * layer.N * layer.U * layer.C);
  Order order{Array<Token>(count), Array<Token>(count), Array<Token>(count)};
  CaseArrays<T> a = arrays_of(layer, in);
  spoil_scratch(device);
  lsh_order<Device, T>(device, {.out = {order.bucket.data(), order.place.data(), order.position.data()},
                                .query_bch = a.in[0].data(),
                                .rotations_nukr = a.in[2].data(),
                                .mask_bc = layer.mask_bc,
                                .B = layer.B,
                                .C = layer.C,
                                .N = layer.N,
                                .K = layer.K,
                                .U = layer.U,
                                .R = layer.R});
  wait_for(device);
  return order;
}

TEST_CASE("lsh_attention: every derivative, at every SIMD width", "[lsh_attention]") {
  check_layer(sized(2, 11, 2, 3, 1, 2, 3));
  check_layer(sized(1, 13, 1, 4, 3, 3, 2));                           // pairs that meet in several rounds
  check_layer(with(sized(2, 9, 2, 2, 2, 2, 4), false, false));        // later positions are met, too
  check_layer(with(sized(1, 12, 2, 3, 3, 2, 3), true, true));         // and count as often as they are
  check_layer(with(sized(2, 10, 1, 3, 2, 2, 5), true, false, true));  // only the own bucket
  check_layer(with(sized(1, 10, 1, 3, 2, 1, 3), false, true, true));
  check_layer(sized(1, 7, 1, 3, 2, 2, 1));   // pieces of one position
  check_layer(sized(2, 6, 1, 3, 1, 2, 20));  // and one piece of all
  check_layer(sized(3, 1, 2, 2, 2, 2, 4));   // a position without others
  // A key of one channel is a sign, constant except at 0: differences are computed away from 0.
  LshAttentionCase one_channel = sized(1, 8, 3, 1, 2, 1, 3);
  one_channel.query_offset = 3;
  one_channel.query_scale = 0.5;
  check_layer(one_channel);
}

TEST_CASE("lsh_attention: masked positions, slices of wider rows", "[lsh_attention]") {
  LshAttentionCase layer = sized(2, 11, 2, 3, 2, 2, 3);
  layer.mask_bc = holes(2, 11);
  check_layer(layer);
  layer = sized(2, 9, 2, 3, 2, 2, 3);
  layer.side_by_side = true;
  check_layer(layer);
}

TEST_CASE("lsh_attention: sequences of several tiles", "[lsh_attention][heavy]") {
  LshAttentionCase masked = sized(2, 131, 1, 8, 2, 4, 40);
  masked.mask_bc = holes(2, 131);
  for (const LshAttentionCase& layer :
       {sized(2, 37, 3, 19, 2, 5, 8), sized(1, 200, 2, 33, 3, 8, 64), sized(1, 300, 1, 16, 2, 2, 150),
        sized(20, 70, 1, 7, 1, 3, 33), with(sized(1, 150, 2, 5, 4, 2, 65), false, false),
        with(sized(2, 100, 1, 12, 3, 4, 16), true, true), masked}) {
    check_float(layer, 3);
    check_threads(layer, 3);
  }
}

TEST_CASE("lsh_attention: SIMD widths agree at every odd size", "[lsh_attention]") {
  check_widths([](Index size) { return sized(1, size, 2, size, 2, (size + 1) / 2, 5); });
}

// Places are a permutation, ordered by bucket, then by position; masked positions come last.
TEST_CASE("lsh_attention: every round orders positions by bucket, masked positions last", "[lsh_attention][gpu]") {
  LshAttentionCase layer = sized(2, 75, 2, 6, 3, 3, 8);
  layer.mask_bc = holes(2, 75);
  PlainDevice plain;
  for_each_number([&]<class T>(auto& device, const std::string& name, T) {
    INFO(name);
    const Values<T> in = converted<T>(random_values(layer.inputs(), 1));
    const Order order = order_of<T>(device, layer, in);
    const Order reference = order_of<double>(plain, layer, converted<double>(in));
    CHECK(order.bucket == reference.bucket);
    CHECK(order.place == reference.place);
    CHECK(order.position == reference.position);
    for (Index first = 0; first < layer.B * layer.N * layer.U * layer.C; first += layer.C) {
      const auto bucket_at = [&](Index place) {
        return order.bucket[size_of(first + order.position[size_of(first + place)])];
      };
      for (Index place = 0; place < layer.C; ++place) {
        const Index c = order.position[size_of(first + place)];
        CHECK(order.place[size_of(first + c)] == place);
        if (place == 0) continue;
        const Index before = order.position[size_of(first + place - 1)];
        CHECK((bucket_at(place - 1) < bucket_at(place) || (bucket_at(place - 1) == bucket_at(place) && before < c)));
      }
    }
  });
}

// The first of equal numbers names the bucket, and a number goes before the opposite of another one: a row of zeros is
// in bucket 0, on every device. Small whole numbers have exact sums in every type.
TEST_CASE("lsh_attention: ties of the hash", "[lsh_attention][gpu]") {
  const LshAttentionCase layer = sized(1, 60, 2, 3, 2, 4, 8);
  for_each_number([&]<class T>(auto& device, const std::string& name, T) {
    INFO(name);
    Values<double> in = random_values(layer.inputs(), 1);
    for (Array<double>& numbers : in) {
      for (double& x : numbers) x = std::round(x);
    }
    for (Index i = 0; i < 10 * layer.H(); ++i) in[0][size_of(i)] = 0;
    const Order order = order_of<T>(device, layer, converted<T>(in));
    Index ties = 0, opposites = 0;
    for (Index i = 0; i < layer.N * layer.U * layer.C; ++i) {
      const Index c = i % layer.C, u = i / layer.C % layer.U, n = i / layer.C / layer.U;
      Array<double> rotated;
      for (Index r = 0; r < layer.R; ++r) {
        double sum = 0;
        for (Index k = 0; k < layer.K; ++k) {
          sum += in[0][size_of((c * layer.N + n) * layer.K + k)] *
                 in[2][size_of(((n * layer.U + u) * layer.K + k) * layer.R + r)];
        }
        rotated.push_back(sum);
      }
      for (Index r = 0; r < layer.R; ++r) rotated.push_back(-rotated[size_of(r)]);
      const double most = *std::max_element(rotated.begin(), rotated.end());
      const auto expected = static_cast<Token>(std::find(rotated.begin(), rotated.end(), most) - rotated.begin());
      CHECK(order.bucket[size_of(i)] == expected);
      if (c < 10) CHECK(order.bucket[size_of(i)] == 0);
      ties += std::count(rotated.begin(), rotated.end(), most) > 1;
      opposites += expected < layer.R && std::count(rotated.begin() + layer.R, rotated.end(), most) > 0;
    }
    CHECK(ties > opposites);
    CHECK(opposites > 40);  // those of the zeros
  });
}

// Where everybody meets everybody, whatever the order, this is attention with keys of one length.
TEST_CASE("lsh_attention: one piece of all positions equals full attention", "[lsh_attention][gpu]") {
  const LshAttentionCase layer = with(sized(1, 23, 2, 5, 3, 2, 23), false, false);
  for_each_number([&]<class T>(auto& device, const std::string& name, T) {
    const Values<T> in = converted<T>(random_values(layer.inputs(), 1));
    const Values<double> x = converted<double>(in);
    Values<double> expected = {Array<double>(x[0].size(), 0.0)};
    const auto at = [&](Index c, Index n, Index k) { return size_of((c * layer.N + n) * layer.K + k); };
    for (Index n = 0; n < layer.N; ++n) {
      for (Index c = 0; c < layer.C; ++c) {
        double sum = 0;
        for (Index s = 0; s < layer.C; ++s) {
          if (s == c) continue;
          double product = 0, square = 0;
          for (Index k = 0; k < layer.K; ++k) {
            product += x[0][at(c, n, k)] * x[0][at(s, n, k)];
            square += x[0][at(s, n, k)] * x[0][at(s, n, k)];
          }
          const double K = static_cast<double>(layer.K);
          const double weight = std::exp(product / std::sqrt(square / K + lsh_epsilon) / std::sqrt(K));
          sum += weight;
          for (Index k = 0; k < layer.K; ++k) expected[0][at(c, n, k)] += weight * x[1][at(s, n, k)];
        }
        for (Index k = 0; k < layer.K; ++k) expected[0][at(c, n, k)] /= sum;
      }
    }
    require_close(layer.outputs(), converted<double>(run_forward<T>(layer, device, in)), expected,
                  std::is_same_v<T, float> ? 1e-5 : 8e-3, name);
  });
}

TEST_CASE("lsh_attention: a position without other keys outputs its own value", "[lsh_attention][gpu]") {
  LshAttentionCase layer = sized(2, 40, 1, 3, 2, 2, 8);
  layer.mask_bc = kept(Array<Token>(80, 0));
  for_each_number([&]<class T>(auto& device, const std::string& name, T) {
    INFO(name);
    const Values<T> in = converted<T>(random_values(layer.inputs(), 1));
    CaseArrays<T> a = arrays_of(layer, in);
    layer.forward(device, a);
    wait_for(device);
    CHECK(converted<double>(a.saved)[0] == Array<double>(80, std::numeric_limits<double>::infinity()));
    CHECK(converted<double>(a.out)[0] == converted<double>(in)[1]);
    const Values<T> d_out = converted<T>(random_values(layer.outputs(), 2));
    const Values<double> d_in = run_backward<T>(layer, device, in, d_out);
    CHECK(largest(d_in[0]) == 0);
    CHECK(d_in[1] == converted<double>(d_out)[0]);
  });
}

TEST_CASE("lsh_attention: padding at the end changes no bit of real positions", "[lsh_attention][gpu]") {
  const Index C = 53, longer = 70;
  for_each_number([&]<class T>(auto& device, const std::string& name, T) {
    INFO(name);
    const LshAttentionCase layer = sized(1, C, 2, 5, 2, 3, 8);
    LshAttentionCase padded = sized(1, longer, 2, 5, 2, 3, 8);
    Array<Token> mask(size_of(longer), 0);
    std::fill_n(mask.begin(), C, 1);
    padded.mask_bc = kept(std::move(mask));
    const Values<T> in = converted<T>(random_values(padded.inputs(), 1));
    const auto real = [&](const Array<T>& rows) { return Array<T>(rows.begin(), rows.begin() + C * layer.H()); };
    const Values<T> whole = run_forward<T>(padded, device, in);
    const Values<T> alone = run_forward<T>(layer, device, {real(in[0]), real(in[1]), in[2]});
    CHECK(converted<double>(Values<T>{real(whole[0])}) == converted<double>(alone));
    // Nor of their gradients, where nobody asks for the gradient of the padding.
    Values<T> d_out = converted<T>(random_values(padded.outputs(), 2));
    std::fill(d_out[0].begin() + C * layer.H(), d_out[0].end(), T(0.0f));
    const Values<double> d_whole = run_backward<T>(padded, device, in, d_out);
    const Values<double> d_alone = run_backward<T>(layer, device, {real(in[0]), real(in[1]), in[2]}, {real(d_out[0])});
    for (const std::size_t i : {0u, 1u}) {
      CHECK(std::equal(d_alone[i].begin(), d_alone[i].end(), d_whole[i].begin()));
      CHECK(std::all_of(d_whole[i].begin() + C * layer.H(), d_whole[i].end(), [](double x) { return x == 0; }));
    }
  });
}

// The layer is not causal although no query attends to a later key: order and pieces depend on all positions.
TEST_CASE("lsh_attention: a later token moves earlier positions to other pieces", "[lsh_attention]") {
  const LshAttentionCase layer = sized(1, 256, 1, 16, 2, 8, 16);
  PlainDevice plain;
  Values<double> in = random_values(layer.inputs(), 1);
  const Values<double> before = run_forward<double>(layer, plain, in);
  for (Index k = 0; k < layer.K; ++k) in[0][size_of((layer.C - 1) * layer.K + k)] *= -1;
  const Values<double> after = run_forward<double>(layer, plain, in);
  Index changed = 0;
  for (Index c = 0; c < layer.C - 1; ++c) {
    const auto first = before[0].begin() + c * layer.K;
    if (!std::equal(first, first + layer.K, after[0].begin() + c * layer.K)) ++changed;
  }
  CHECK(changed > 0);
}

TEST_CASE("lsh_attention: scores of any magnitude", "[lsh_attention][gpu]") {
  const auto layer_of = [](double scale) {
    LshAttentionCase layer = sized(2, 37, 2, 6, 2, 3, 8);
    layer.query_scale = scale;
    return layer;
  };
  check_scales({1e3, 1e15}, layer_of, 1e-3);
}

TEST_CASE("lsh_attention: inspected weights reproduce the output", "[lsh_attention]") {
  LshAttentionCase layer = with(sized(2, 17, 2, 3, 2, 2, 3), true, true);
  layer.mask_bc = holes(2, 17);
  check_weights(layer, 1);
}

TEST_CASE("lsh_attention: scratch memory grows linearly with C", "[lsh_attention]") {
  const std::size_t half = scratch_peak(sized(1, 1024, 1, 2, 2, 4, 32));
  CHECK(half > 0);
  CHECK(scratch_peak(sized(1, 2048, 1, 2, 2, 4, 32)) <= 2 * half);
}

// extras/lsh/lsh_attention.md: three positions of one channel, keys of length 1, one bucket for all.
TEST_CASE("lsh_attention: the worked example of the chapter", "[lsh_attention][gpu]") {
  const double log2 = std::log(2.0);
  const LshAttentionCase layer = sized(1, 3, 1, 1, 1, 1, 3);
  for_each_number([&]<class T>(auto& device, const std::string& name, T) {
    Values<T> in = converted<T>(Values<double>{{log2, -log2, log2}, {3, 6, 12}, {1}});
    const Values<double> out = converted<double>(run_forward<T>(layer, device, in));
    // The third meets the first with weight 4/5 and the second with 1/5.
    require_close(layer.outputs(), out, {{3, 3, 3.6}}, std::is_same_v<T, float> ? 1e-5 : 8e-3, name);
  });
}

TEST_CASE("lsh_attention: GPU kernels at every size", "[lsh_attention][gpu]") {
  const auto check = [](const std::string& what, LshAttentionCase layer, const Token* mask_bc = nullptr) {
    layer.mask_bc = mask_bc;
    check_gpu("lsh_attention", what, layer);
  };
  check("one round", sized(3, 37, 5, 8, 1, 4, 8));
  check("three rounds", sized(2, 67, 2, 7, 3, 5, 9));
  check("pieces longer than a warp", sized(1, 150, 2, 5, 2, 2, 70));
  check("one piece", sized(2, 20, 2, 6, 2, 2, 100));
  check("not causal", with(sized(2, 50, 1, 16, 2, 3, 11), false, false));
  check("duplicates counted", with(sized(2, 50, 1, 16, 3, 3, 11), true, true));
  check("within a bucket", with(sized(2, 50, 1, 16, 3, 3, 11), true, false, true));
  check("masked positions", sized(2, 67, 1, 16, 2, 4, 10), holes(2, 67));
  check("one position", sized(3, 1, 2, 3, 1, 2, 4));
  check("no sequence", sized(0, 5, 2, 3, 2, 2, 4));
  check("more buckets than threads", sized(1, 40, 1, 8, 1, 300, 8));
  for (const Index K : {2, 32, 33, 130, 600}) check("K " + std::to_string(K), sized(1, 11, 1, K, 2, 3, 3));
}

}  // namespace
}  // namespace abh
