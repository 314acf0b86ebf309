// The changes that the lab page makes to a head (extras/lab/layers.cpp), compiled for this machine.

#include <optional>
#include <string>

#include "cases/pooling.hpp"
#include "extras/bahdanau/bahdanau_attention_case.hpp"
#include "extras/lab/layers.cpp"
#include "extras/transformer_xl/relative_attention_case.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

// Output of the forward pass, without a change or with a change of head 1.
template <class Case>
Array<float> output(const Case& layer, const Values<float>& in, std::optional<Touch::What> what) {
  std::vector<Touch> touches;
  if (what) touches.push_back({.what = *what, .core = 0, .head = 1});
  PageDevice device(Mode::compute);
  CaseArrays<float> arrays = arrays_of(layer, in);
  PageDevice::touches = &touches;
  layer.forward(device, arrays);
  PageDevice::touches = nullptr;
  return arrays.out[0];
}

// values: name of the input that the heads average.
template <class Case>
void check_head(const Case& layer, const std::string& values, Index B, Index C, Index N, Index K) {
  const std::vector<TensorSpec> specs = layer.inputs();
  const Values<float> in = converted<float>(random_values(specs, 1));
  const float* value_bch = nullptr;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name == values) value_bch = in[i].data();
  }
  REQUIRE(value_bch);
  const Array<float> same = output(layer, in, {}), uniform = output(layer, in, Touch::What::uniform),
                     off = output(layer, in, Touch::What::off);
  const Index H = N * K;
  Index wrong = 0;
  for (Index b = 0; b < B; ++b) {
    for (Index h = 0; h < H; ++h) {
      double sum = 0;
      for (Index c = 0; c < C; ++c) {
        const Index i = (b * C + c) * H + h;
        sum += static_cast<double>(value_bch[i]);
        if (h / K == 1) {
          const double mean = sum / static_cast<double>(c + 1);
          wrong += !(std::abs(static_cast<double>(uniform.data()[i]) - mean) <= 1e-6) || off.data()[i] != 0;
          wrong += c > 0 && std::abs(static_cast<double>(same.data()[i]) - mean) < 1e-3;
        } else {
          wrong += uniform.data()[i] != same.data()[i] || off.data()[i] != same.data()[i];
        }
      }
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("page: a uniform head averages all positions, and a disabled head is zero", "[page]") {
  const Index B = 2, C = 5, N = 3, K = 2;
  const AttentionCase core{.B = B, .C = C, .N = N, .K = K};
  check_head(core, "value_bsh", B, C, N, K);
  check_head(BahdanauAttentionCase{core}, "value_bsh", B, C, N, K);
  check_head(RelativeAttentionCase{core, C, C, C}, "value_bsh", B, C, N, K);
  check_head(PoolingCase{.shape = {B, C, N, K}}, "x_bch", B, C, N, K);
}

}  // namespace abh
