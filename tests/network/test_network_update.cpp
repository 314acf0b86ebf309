// Tests of the weight update: optimizers, settings and gradient norm.

#include "tests/harness/network_case.hpp"

namespace abh {
namespace {

StepState first_step(const TrainingConfig& training) {
  StepState state{.seed = 1, .step = 0, .learning_rate = 0.125f};
  set_adamw_corrections(state, {.beta1 = training.beta1, .beta2 = training.beta2});
  return state;
}

TEST_CASE("network: Muon updates the matrices of linear maps, AdamW all other weights", "[network]") {
  const NetworkCase network = network_case("metric,additive,quadratic,dot", "0", 3, "layers=4 values=own");
  const Array<double> weights = network.weights();
  TrainingConfig training;
  std::vector<Array<double>> updated, second_moments;
  for (const char* optimizer : {"adamw", "muon"}) {
    training.optimizer = optimizer;
    Built<Reference, double> built(network, weights);
    StepState state = first_step(training);
    built.forward();
    built.backward();
    built.update(training, state);
    updated.push_back(built.copy_of(built.net.weights().values()));
    second_moments.push_back(built.copy_of(built.net.optimizer().second_moments()));
  }
  Index linear_maps = 0;
  for (const Parameter& parameter : network.parameters()) {
    INFO(parameter.name);
    const auto named = [&](const std::string& part) { return parameter.name.find(part) != std::string::npos; };
    const bool tabular = named("embedding") || named("metric_") || named("pool");
    const bool linear = parameter.shape.size() == 2 && !tabular;
    linear_maps += linear;
    Index same = 0, moved = 0, at_rest = 0;
    for (auto i = static_cast<std::size_t>(parameter.offset), n = i + static_cast<std::size_t>(parameter.count); i < n;
         ++i) {
      same += updated[1][i] == updated[0][i];
      moved += !(updated[1][i] == weights[i]);
      at_rest += second_moments[1][i] == 0;
    }
    CHECK(moved > 0);
    if (linear) {
      CHECK(same < parameter.count / 10 + 1);
      CHECK(at_rest == parameter.count);
    } else {
      CHECK(same == parameter.count);
    }
  }
  CHECK(linear_maps == 4 * 2 + 2 + 3 + 2 + 4);  // feed-forward; metric, additive, quadratic, dot
}

TEST_CASE("network: an update uses the training settings and the norm of all gradients", "[network]") {
  const NetworkCase network = network_case("metric,additive", "0", 2);
  const Array<double> weights = network.weights();
  TrainingConfig training{.weight_decay = 0, .clip = 0, .beta1 = 0.75, .beta2 = 0.875};
  Built<Reference, double> built(network, weights);
  // So small that epsilon, 1e-8, counts.
  double squares = 0;
  Array<double> gradients;
  for (Index i = 0; i < built.net.weights().count(); ++i) {
    gradients.push_back(1e-8 * normal_number(3, static_cast<std::uint64_t>(i), 0, 1000));
    built.net.weights().gradients()[i] = gradients.back();
    squares += gradients.back() * gradients.back();
  }
  StepState state = first_step(training);
  built.update(training, state);
  CHECK_FALSE(!(std::abs(state.gradient_norm - std::sqrt(squares)) <= 1e-14 * std::sqrt(squares)));
  double error = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const double g = gradients[i], moved = built.net.weights().values()[i] - weights[i];
    error = at_least(error, std::abs(built.net.optimizer().first_moments()[i] / g - 0.25));
    error = at_least(error, std::abs(built.net.optimizer().second_moments()[i] / (g * g) - 0.125));
    error = at_least(error, std::abs(moved + 0.125 * g / (std::abs(g) + 1e-8)));
  }
  CHECK_FALSE(!(error <= 1e-12));

  training.optimizer = "muon";
  std::vector<Array<double>> updated;
  for (const Index rounds : {1, 2}) {
    training.muon_rounds = rounds;
    Built<Reference, double> with_muon(network, weights);
    for (std::size_t i = 0; i < gradients.size(); ++i) with_muon.net.weights().gradients()[i] = gradients[i];
    with_muon.update(training, state);
    updated.push_back(with_muon.copy_of(with_muon.net.weights().values()));
  }
  CHECK(updated[0] != updated[1]);

  // Every matrix has its own shape, although up and down maps have the same number of elements.
  Reference device(1);
  for (const Parameter& parameter : network.parameters()) {
    if (parameter.kind != Kind::linear) continue;
    Array<double> weight = weights, first_moment(weights.size());
    muon_update<Reference, double>(device, {.weight = weight.data(),
                                            .master = nullptr,
                                            .first_moment = first_moment.data(),
                                            .d_weight = gradients.data(),
                                            .offset_m = &parameter.offset,
                                            .matrices = 1,
                                            .O = parameter.shape[0],
                                            .I = parameter.shape[1],
                                            .settings = {.weight_decay = 0, .rounds = 2},
                                            .state = &state});
    const auto begin = weight.begin() + parameter.offset;
    INFO(parameter.name);
    CHECK(std::equal(begin, begin + parameter.count, updated[1].begin() + parameter.offset));
  }
}

TEST_CASE("network: weight decay applies to matrices only", "[network]") {
  const std::vector<NetworkCase> cases =
      Rows<NetworkCase, ForWeightDecay>::all({network_case("metric,additive", "0", 2)});
  const NetworkCase& network = cases.at(GENERATE_COPY(range(std::size_t{0}, cases.size())));
  const Array<double> weights = network.weights();
  Built<Reference, double> built(network, weights);
  TrainingConfig training;
  training.weight_decay = 0.5;
  training.optimizer = GENERATE("adamw", "muon");
  StepState state = first_step(training);
  built.update(training, state);
  for (const Parameter& parameter : network.parameters()) {
    // A matrix has two dimensions or more and is neither a position table nor a set of pooling vectors.
    const bool matrix = parameter.shape.size() >= 2 && parameter.name.find("position") == std::string::npos &&
                        parameter.name.find("pool") == std::string::npos;
    const double factor = matrix ? 1 - 0.125 * 0.5 : 1;
    double error = 0;
    for (auto i = static_cast<std::size_t>(parameter.offset), n = i + static_cast<std::size_t>(parameter.count); i < n;
         ++i)
      error = at_least(error, std::abs(built.net.weights().values()[i] - factor * weights[i]));
    INFO(parameter.name << ", error " << error);
    CHECK_FALSE(!(error <= 1e-15));
  }
}

}  // namespace
}  // namespace abh
