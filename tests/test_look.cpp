#include <map>
#include <string>

#include "tests/network_case.hpp"

namespace abh {
namespace {

struct Shown {
  std::vector<std::string> names;
  std::map<std::string, std::vector<double>> values;
};

template <class Device, class T>
Shown shown_by(Built<Device, T>& built) {
  Shown shown;
  built.net.look(
      [&](const std::string& name, const std::vector<Index>& shape, const std::vector<double>& values) {
        Index count = 1;
        for (const Index extent : shape) count *= extent;
        CHECK(values.size() == static_cast<std::size_t>(count));
        CHECK(shown.values.count(name) == 0);
        shown.names.push_back(name);
        shown.values[name] = values;
      },
      built.pass());
  return shown;
}

// What is seen is what was computed: on every device the same numbers up to rounding, the rows that leave one block
// those of the equations, and looking changes nothing.
TEST_CASE("look: a network shows what it computed", "[look]") {
  for (NetworkCase network : all_cases()) {
    network.dropout = 0;
    CAPTURE(network.config.mixer, network.config.window, network.config.positions, network.config.conv_kernel);
    const Array<double> weights = network.weights();
    Built<PlainDevice, double> plain(network, weights);
    const double loss = plain.forward();
    const Shown expected = shown_by(plain);
    REQUIRE(expected.names.size() > 4);
    CHECK(expected.names.front() == "x_bcd");
    CHECK(plain.forward() == loss);
    CHECK((shown_by(plain).values == expected.values));

    for_each_cpu(1, [&](auto& device, const std::string& isa) {
      INFO(isa);
      Built<std::decay_t<decltype(device)>, float> built(network, weights);
      built.forward();
      const Shown shown = shown_by(built);
      REQUIRE((shown.names == expected.names));
      for (const std::string& name : shown.names) {
        double largest = 0, error = 0;
        for (std::size_t i = 0; i < shown.values.at(name).size(); ++i) {
          const double wanted = expected.values.at(name)[i];
          // The logarithm of a sum over nothing.
          if (wanted == shown.values.at(name)[i]) continue;
          largest = std::max(largest, std::abs(wanted));
          error = at_least(error, std::abs(shown.values.at(name)[i] - wanted));
        }
        INFO(name << ": " << error << " of " << largest);
        CHECK_FALSE(!(error <= 2e-5 * largest));
      }
    });

    // The feed-forward net, by hand: out = x + W gelu(up), whose gelu is what was saved.
    const std::string ffn = "blocks.0.ffn.";
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
        double out = expected.values.at("blocks.0.mixer.out_bcd")[at] + (bias_d ? bias_d[d] : 0);
        for (Index f = 0; f < F; ++f) {
          out += down_df[d * F + f] * expected.values.at(ffn + "hidden_bcf")[static_cast<std::size_t>(bc * F + f)];
        }
        CHECK_FALSE(!(std::abs(out - expected.values.at(ffn + "out_bcd")[at]) <= 1e-12));
      }
    }
  }
}

}  // namespace
}  // namespace abh
