#include <map>
#include <string>

#include "files/safetensors.hpp"
#include "tests/harness/model_case.hpp"
#include "tests/harness/network_case.hpp"
#include "tests/harness/shown_rows.hpp"

namespace abh {
namespace {

// Largest distance of the numbers from the expected numbers, and the largest expected number. Both may contain the
// logarithm of an empty sum.
std::pair<double, double> error_and_size(const std::vector<double>& got, const std::vector<double>& wanted) {
  double error = 0, largest = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == got[i]) continue;
    largest = std::max(largest, std::abs(wanted[i]));
    error = at_least(error, std::abs(got[i] - wanted[i]));
  }
  return {error, largest};
}

struct Shown {
  std::vector<std::string> names;
  std::map<std::string, std::vector<double>> values;
};

template <class Device, class T>
Shown shown_by(Built<Device, T>& built) {
  Shown shown;
  built.net.inspect(
      [&](const std::string& name, const std::vector<Index>& shape, const std::vector<double>& values) {
        CHECK(values.size() == static_cast<std::size_t>(element_count(shape)));
        CHECK(shown.values.count(name) == 0);
        shown.names.push_back(name);
        shown.values[name] = values;
      },
      built.pass());
  return shown;
}

// Inspected arrays are the computed arrays: every device shows the same numbers up to rounding. The output rows of a
// block satisfy the equations, and inspection changes nothing.
TEST_CASE("inspector: a network shows the arrays that it computed", "[inspector]") {
  for (NetworkCase network : all_cases()) {
    network.dropout = 0;
    CAPTURE(network.config.mixer, network.config.window, network.config.positions, network.config.conv_kernel);
    const Array<double> weights = network.weights();
    Built<PlainDevice, double> plain(network, weights);
    const double loss = plain.forward();
    const Shown expected = shown_by(plain);
    REQUIRE(expected.names.size() > 4);
    const bool encodes = network.config.has_encoder(), after = network.config.norms_after();
    CHECK(expected.names.front() == (encodes ? "encoder.x_bcd" : "x_bcd"));
    CHECK(plain.forward() == loss);
    CHECK((shown_by(plain).values == expected.values));

    for_each_cpu(1, [&](auto& device, const std::string& isa) {
      INFO(isa);
      Built<std::decay_t<decltype(device)>, float> built(network, weights);
      built.forward();
      const Shown shown = shown_by(built);
      REQUIRE((shown.names == expected.names));
      for (const std::string& name : shown.names) {
        const auto [error, largest] = error_and_size(shown.values.at(name), expected.values.at(name));
        INFO(name << ": " << error << " of " << largest);
        CHECK_FALSE(!(error <= 2e-5 * largest));
      }
    });

    // The feed-forward net from its definition: out = x + W gelu(up), with the saved gelu, or relu. A reversible
    // network adds it to the other stream.
    const std::string block = encodes ? "decoder.blocks.0." : "blocks.0.", ffn = block + "ffn.";
    const std::string before = block + (encodes ? "cross." : "mixer.") + (after ? "normed_bcd" : "out_bcd");
    const Index D = network.config.channels, F = network.config.ffn_channels(), BC = network.B * network.C;
    const auto weight = [&](const std::string& name) {
      for (const Parameter& parameter : network.parameters()) {
        if (parameter.name == name) return weights.data() + parameter.offset;
      }
      return static_cast<const double*>(nullptr);
    };
    const double *down_df = weight(ffn + "down_df"), *bias_d = weight(ffn + "down_bias_d");
    for (Index bc = 0; bc < BC; ++bc) {
      for (Index d = 0; d < D; ++d) {
        const auto at = static_cast<std::size_t>(bc * D + d);
        double out = (network.config.reversible ? 0 : expected.values.at(before)[at]) + (bias_d ? bias_d[d] : 0);
        for (Index f = 0; f < F; ++f) {
          out += down_df[d * F + f] * expected.values.at(ffn + "hidden_bcf")[static_cast<std::size_t>(bc * F + f)];
        }
        CHECK_FALSE(!(std::abs(out - expected.values.at(ffn + "out_bcd")[at]) <= 1e-12));
      }
    }
  }
}

// The same of a model on any device, on a batch with a mask.
TEST_CASE("inspector: a model shows the arrays of a batch", "[inspector][gpu]") {
  for (const MixerProperties& mixer : Mixers::properties) {
    const ModelConfig config =
        with_mixer({.layers = 1, .channels = 12, .heads = 2, .context = 9, .vocabulary = 7}, mixer.name);
    Batch batch{.B = 2, .C = 9};
    for (Index i = 0; i < 18; ++i) {
      batch.token_bc.push_back(static_cast<Token>(5 * i % 7));
      batch.mask_bc.push_back(i == 3 || i == 12 ? 0 : 1);
      batch.target_r.push_back(static_cast<Token>(3 * i % 7));
    }
    std::map<std::string, std::vector<double>> expected;
    for (const std::string& device : float_devices()) {
      CAPTURE(mixer.name, device);
      const auto model = with_weights(make_model({.device = device, .threads = 1}, config, {.B = 2, .C = 9}),
                                      some_weights(config, 0.5, 3));
      std::map<std::string, std::vector<double>> shown;
      model->inspect(batch, [&](const std::string& name, const std::vector<Index>&, const std::vector<double>& values) {
        shown[name] = values;
      });
      if (expected.empty()) expected = shown;
      REQUIRE(shown.size() == expected.size());
      for (const auto& [name, values] : expected) {
        CAPTURE(name);
        REQUIRE(shown.count(name) == 1);
        const auto [error, largest] = error_and_size(shown.at(name), values);
        CHECK_FALSE(!(error <= 5e-5 * largest));
      }
      // Rows of the weights of attention sum to 1.
      const auto weight = shown.find("blocks.0.mixer.weight_bncs");
      for (std::size_t row = 0; weight != shown.end() && row < weight->second.size(); row += 9) {
        double sum = 0;
        for (std::size_t s = 0; s < 9; ++s) sum += weight->second[row + s];
        CHECK_FALSE(!(std::abs(sum - 1) <= 1e-5));
      }
      // The average is the weighted sum of the payload: (weight, payload, average) of each mixer that pools.
      for (const auto& [pooling_mixer, weight_name, payload_name, average_name] :
           Rows<ShownPooling>::all({{"average", "weight_bncs", "h_bcd", "y_bcd"},
                                    {"additive", "a_weight_bncs", "q_bcd", "P_bcd"},
                                    {"additive", "e_weight_bncs", "t_bcd", "u_bcd"}})) {
        const bool pools =
            shown.count("blocks.0.mixer." + average_name) == 1 && shown.count("blocks.0.mixer." + weight_name) == 1;
        CHECK(pools == (mixer.name == pooling_mixer));
        if (!pools) continue;
        const std::vector<double>& average = shown.at("blocks.0.mixer." + average_name);
        const std::vector<double>& pooling = shown.at("blocks.0.mixer." + weight_name);
        const std::vector<double>& payload = shown.at("blocks.0.mixer." + payload_name);
        for (std::size_t i = 0; i < 2 * 9 * 12; ++i) {
          const std::size_t b = i / 108, c = i / 12 % 9, d = i % 12, n = d / 6;
          double sum = 0;
          for (std::size_t s = 0; s < 9; ++s) {
            const double share = pooling[((b * 2 + n) * 9 + c) * 9 + s];
            CHECK((share == 0 || (s <= c && batch.mask_bc[b * 9 + s] == 1)));
            sum += share * payload[(b * 9 + s) * 12 + d];
          }
          CHECK_FALSE(!(std::abs(sum - average[i]) <= 1e-5));
        }
      }
      for (const auto& [name, check] : Rows<ShownBlock>::all()) {
        if (mixer.name == name) check(shown);
      }
      // A packed metric is symmetric, and its matrix computes the keys from p.
      if (const auto metric = shown.find("blocks.0.mixer.metric_nkk"); metric != shown.end()) {
        const std::vector<double>&p = shown.at("blocks.0.mixer.p_bch"), &key = shown.at("blocks.0.mixer.key_bch");
        for (std::size_t i = 0; i < 2 * 9 * 12; ++i) {
          const std::size_t n = i % 12 / 6, k = i % 6, row = i - i % 6;
          double sum = 0;
          for (std::size_t l = 0; l < 6; ++l) sum += metric->second[(n * 6 + k) * 6 + l] * p[row + l];
          CHECK_FALSE(!(std::abs(sum - key[i]) <= 1e-5));
        }
      }
    }
  }
}

}  // namespace
}  // namespace abh
