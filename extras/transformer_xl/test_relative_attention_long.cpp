// Relative attention over many keys and queries: rounding errors of long sums do not accumulate.

#include "extras/transformer_xl/relative_attention.hpp"
#include "extras/transformer_xl/relative_attention_case.hpp"
#include "tests/harness/attention_case.hpp"

namespace abh {
namespace {

RelativeAttentionCase sized(Index B, Index C, Index N, Index K, Index segment, Index memory, Index P,
                            Index offset = 0) {
  return {{.B = B, .C = C, .N = N, .K = K, .S = offset + C, .query_offset = offset}, segment, memory, P};
}

// One query after many keys, all of them memory. The rows of keys and of distances are 0, except the elements that a
// test sets.
struct LongPast {
  explicit LongPast(Index keys)
      : layer(sized(1, 1, 1, 4, 1, keys, 8, keys - 1)), in(zeros(layer.inputs())), d_out(zeros(layer.outputs())) {
    in[0][0] = 1;
    d_out[0][0] = 1;
  }
  static Values<double> zeros(const std::vector<TensorSpec>& specs) {
    Values<double> values;
    for (const TensorSpec& spec : specs) values.emplace_back(size_of(spec.count()), 0.0);
    return values;
  }
  Index keys() const { return layer.keys(); }
  double& key(Index s, Index k) { return in[1][size_of(s * 4 + k)]; }
  double& value(Index s, Index k) { return in[2][size_of(s * 4 + k)]; }
  RelativeAttentionCase layer;
  Values<double> in, d_out;
};

// Compares the output in float on every device with the plain loops in double.
void check_output(const LongPast& past) {
  PlainDevice plain;
  const Values<float> in = converted<float>(past.in);
  const Values<double> out = run_forward<double>(past.layer, plain, converted<double>(in));
  for_each_device(1, [&](auto& device, const std::string& name) {
    require_close(past.layer.outputs(), converted<double>(run_forward<float>(past.layer, device, in)), out, 1.5e-6,
                  name);
  });
}

// Without compensation a sum loses the terms of a tile, because they are less than half a unit in its last place.
TEST_CASE("relative_attention: a heavy key before and after many light keys", "[relative_attention][gpu]") {
  LongPast past(8192);
  past.key(0, 0) = 2 * 20.9;
  for (Index s = 0; s < past.keys(); ++s) {
    past.value(s, 0) = 1;
    past.value(s, 1) = s == 0;
    past.value(s, 2) = s == 0 ? 0.5 : 1.5;
  }
  check_output(past);
  // The last, large key scales down the sum of the small ones, and the compensation with it.
  LongPast behind(8192);
  for (Index s = 0; s < behind.keys(); ++s) {
    const bool is_heavy = s + 1 == behind.keys();
    behind.key(s, 0) = is_heavy ? 2 * 12.0 : -0.3 - 0.1 * static_cast<double>(s % 7);
    behind.value(s, 0) = 1;
    behind.value(s, 1) = is_heavy;
    behind.value(s, 2) = is_heavy ? 0.1 : 0.7;
  }
  check_output(behind);
}

// The gradient of the query: the term of the first key is large, and a sum without compensation loses the terms of the
// other keys.
TEST_CASE("relative_attention: the gradient of a query over many keys", "[relative_attention][gpu]") {
  LongPast past(16384);
  past.in[0][0] = 0;
  past.d_out[0][0] = 16384;  // so that gradients are about 1
  for (Index s = 0; s < past.keys(); ++s) {
    past.value(s, 0) = s == 0;
    past.key(s, 1) = s == 0 ? 1 : 6.5e-6;
  }
  check_long_sums(past.layer, past.in, past.d_out, 2.5e-6);
}

// The gradients of keys, values and biases over many queries. The term of the first query is the largest.
TEST_CASE("relative_attention: gradients over many queries", "[relative_attention][gpu]") {
  // One segment, where all queries attend to the first keys; and many segments, for the rows of distances.
  for (const Index segment : {1024, 4}) {
    const Index C = segment == 4 ? 8192 : 1024;
    RelativeAttentionCase layer = sized(1, C, 1, 4, segment, 0, segment);
    Array<Token> mask_c(size_of(C), segment == 4);
    for (Index s = 0; s < 4; ++s) mask_c[size_of(s)] = 1;
    layer.mask_bs = kept(std::move(mask_c));
    Values<double> in = LongPast::zeros(layer.inputs()), d_out = LongPast::zeros(layer.outputs());
    for (Index c = 0; c < C; ++c) {
      for (Index k = 0; k < 4; ++k) {
        in[0][size_of(c * 4 + k)] = 0.5 + 0.1 * static_cast<double>(k);
        in[1][size_of(c * 4 + k)] = c % 4 == k ? 0.3 : 0;
        in[2][size_of(c * 4 + k)] = c % 4 == k ? 1 : 0.2;
        // Per tile of 64: less than half a unit in the last place of the terms of the first queries.
        d_out[0][size_of(c * 4 + k)] = (c < 4 ? 1 : 9e-10) * (1 + 0.5 * static_cast<double>(k));
      }
    }
    check_long_sums(layer, in, d_out, 3e-6);
  }
}

}  // namespace
}  // namespace abh
