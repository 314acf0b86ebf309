#include "network/initial_weights.hpp"

#include <algorithm>
#include <cmath>

#include "base/random.hpp"

namespace abh {

std::vector<float> initial_weights(const std::vector<Parameter>& parameters, const ModelConfig& config, double std_dev,
                                   std::uint64_t seed) {
  std::vector<float> weights;
  for (const Parameter& parameter : parameters) {
    weights.resize(std::max(weights.size(), static_cast<std::size_t>(parameter.offset + parameter.count)));
  }
  std::uint32_t row = 0;
  for (const Parameter& parameter : parameters) {
    float* values = weights.data() + parameter.offset;
    const Index K = parameter.shape.back();
    const auto fill_normal = [&](double scale) {
      for (Index i = 0; i < parameter.count; ++i) {
        const double number = normal_number(seed, static_cast<std::uint64_t>(i), row, sites::initial_weights);
        values[i] = static_cast<float>(scale * number);
      }
    };
    switch (parameter.init) {
      case Init::zero:
        break;
      case Init::one:
        std::fill_n(values, parameter.count, 1.0f);
        break;
      case Init::normal:
        fill_normal(std_dev);
        break;
      case Init::normal_residual:
        fill_normal(std_dev / std::sqrt(2 * static_cast<double>(config.layers)));
        break;
      case Init::unit_normal:
        fill_normal(1);
        break;
      case Init::convolution: {
        const Index inputs = parameter.count / parameter.shape.front();
        fill_normal(1 / std::sqrt(3 * static_cast<double>(inputs)));
        break;
      }
      case Init::identity_packed: {
        // Rows of the upper triangle have K, K - 1, ... elements. Each begins on the diagonal.
        const Index head_channels = config.mixer_head_channels();
        for (Index n = 0; n < config.heads; ++n) {
          for (Index row_length = head_channels; row_length > 0; --row_length) {
            *values = 1;
            values += row_length;
          }
        }
        break;
      }
      case Init::identity_full:
        for (Index i = 0; i < parameter.count; ++i) values[i] = i / K % K == i % K ? 1.0f : 0.0f;
        break;
    }
    ++row;
  }
  return weights;
}

}  // namespace abh
