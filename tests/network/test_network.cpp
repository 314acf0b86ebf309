#include "tests/harness/network_case.hpp"
#include "tests/harness/red_zones.hpp"

namespace abh {
namespace {

TEST_CASE("network: the gradient of every weight against dual numbers", "[network][heavy]") {
  for (const NetworkCase& network : all_cases()) {
    CAPTURE(network.config.mixer, network.config.window, network.config.conv_kernel, network.config.positions);
    const Array<double> weights = network.weights();
    Built<Reference, double> built(network, weights);
    const double loss = built.forward();
    CHECK(loss > 0.1);
    CHECK(loss < 10);
    built.backward();
    const Array<double> gradients = built.gradients();

    Built<CpuDevice<Isa::scalar>, Dual> dual(network, weights);
    const std::vector<Parameter> parameters = network.parameters();
    std::vector<TensorSpec> specs;
    Values<double> got, by_dual;
    for (const Parameter& parameter : parameters) {
      // 64 random elements, or all elements if there are fewer.
      const Index count = std::min<Index>(parameter.count, 64);
      specs.push_back(weight(parameter.name, {count}));
      got.emplace_back();
      by_dual.emplace_back();
      for (Index i = 0; i < count; ++i) {
        const Index draw = philox_word(31, static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(specs.size()), 0);
        const Index element = parameter.offset + (count < 64 ? i : draw % parameter.count);
        dual.net.weights().values()[element].derivative = 1;
        by_dual.back().push_back(dual.forward().derivative);
        dual.net.weights().values()[element].derivative = 0;
        got.back().push_back(gradients[static_cast<std::size_t>(element)]);
      }
    }
    require_close(specs, got, by_dual, 1e-11, "backward against dual numbers");

    double norm = 0;
    for (double g : gradients) norm += g * g;
    norm = std::sqrt(norm);
    CHECK(norm > 1e-2);
    for (std::uint32_t direction = 0; direction < 3; ++direction) {
      double expected = 0;
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        const double step = normal_number(51, i, direction, 1000);
        dual.net.weights().values()[i].derivative = step;
        expected += step * gradients[i];
      }
      const double error = std::abs(dual.forward().derivative - expected) / norm;
      INFO("direction " << direction << ", error " << error);
      CHECK_FALSE(!(error <= 1e-11));
    }
  }
}

TEST_CASE("network: gradients accumulate over passes, and float is near double", "[network]") {
  for (const NetworkCase& network : all_cases()) {
    CAPTURE(network.config.mixer, network.config.window, network.config.conv_kernel, network.config.positions);
    Array<double> weights = network.weights();
    for (double& x : weights) x = static_cast<float>(x);
    Built<Reference, double> reference(network, weights);
    const double loss = reference.forward();
    reference.backward();
    const Array<double> once = reference.gradients();
    reference.forward();
    reference.backward();
    Array<double> twice = once;
    for (double& x : twice) x *= 2;
    const std::vector<TensorSpec> spec = {weight("all", {static_cast<Index>(once.size())})};
    require_close(spec, {reference.gradients()}, {twice}, 1e-14, "two passes");
    for_each_cpu(1, [&](auto& device, const std::string& isa) {
      Built<std::decay_t<decltype(device)>, float> built(network, weights);
      const double float_loss = static_cast<double>(built.forward());
      INFO(isa);
      CHECK_FALSE(!(std::abs(float_loss - loss) <= 1e-5 * loss));
      built.backward();
      require_close(spec, {built.gradients()}, {once}, 2e-5, isa);
    });
  }
}

TEST_CASE("network: the loss is the mean over the targets that are not ignored", "[network]") {
  NetworkCase network = network_case("additive", "0", 0, "logit_bias=1");
  Built<Reference, double> built(network, network.weights());
  const double loss = built.forward();
  const std::vector<Token> targets = network.targets_bc();
  const std::size_t V = 11;
  double sum = 0, count = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] < 0) continue;
    const double* logits = built.net.logits_bcv() + i * V;
    double total = 0;
    for (std::size_t v = 0; v < V; ++v) total += std::exp(logits[v]);
    sum += std::log(total) - logits[targets[i]];
    count += 1;
  }
  CHECK(count == 8);
  CHECK_FALSE(!(std::abs(loss - sum / count) <= 1e-13));

  // The scale multiplies logits and bias alike.
  Array<double> logits(built.net.logits_bcv(), built.net.logits_bcv() + targets.size() * V);
  network.config.logit_scale = 0.25;
  Built<Reference, double> scaled(network, network.weights());
  scaled.forward();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    CHECK_FALSE(!(std::abs(scaled.net.logits_bcv()[i] - 0.25 * logits[i]) <= 1e-14));
  }
}

TEST_CASE("network: dropout is off without a state", "[network]") {
  NetworkCase network = network_case("dot", "0", 2);
  const double quiet = Built<Reference, double>(network, network.weights()).forward();
  network.dropout = 0.5;
  Built<Reference, double> built(network, network.weights());
  const double noisy = built.forward();
  CHECK(noisy != quiet);
  network.state.step += 1;
  CHECK((Built<Reference, double>(network, network.weights()).forward()) != noisy);
  const PassContext evaluation{network.B, network.C};
  built.net.forward(built.batch(), evaluation);
  CHECK(*built.net.loss(built.batch(), 0, evaluation).mean == quiet);
}

TEST_CASE("network: the embedding has its own dropout mask", "[network]") {
  // If all blocks add 0, logits are dropout(token) token^T.
  NetworkCase network = network_case("dot", "0", 0, "positions=none final_norm=0");
  network.dropout = 0.5;
  Array<double> weights = network.weights();
  const Index D = network.config.channels, V = network.config.vocabulary;
  const std::vector<Parameter> parameters = network.parameters();
  REQUIRE(parameters[0].name == "embedding.token_vd");
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Index place = static_cast<Index>(i) - parameters[0].offset;
    if (place < 0 || place >= parameters[0].count) weights[i] = 0;
  }
  Built<Reference, double> built(network, weights);
  built.forward();
  const std::vector<Token> tokens = network.tokens_bc();
  const double* token_vd = built.net.weights().values() + parameters[0].offset;
  for (Index bc = 0; bc < network.B * network.C; ++bc) {
    for (Index v = 0; v < V; ++v) {
      double sum = 0;
      for (Index d = 0; d < D; ++d) {
        const auto element = static_cast<std::uint64_t>(bc * D + d);
        const bool kept =
            philox_word(network.state.seed, element, network.state.step, sites::embedding_dropout) >= 0x80000000u;
        if (kept) sum += 2 * token_vd[tokens[static_cast<std::size_t>(bc)] * D + d] * token_vd[v * D + d];
      }
      CHECK_FALSE(!(std::abs(built.net.logits_bcv()[bc * V + v] - sum) <= 1e-13));
    }
  }
}

// Wider than the lanes of every instruction set, and not a multiple of them.
NetworkCase wider(NetworkCase network) {
  network.config = changed(network.config, "channels=38 context=16");
  network.C = 13;
  network.masked = false;
  network.dropout = 0;
  return network;
}

TEST_CASE("network: causal, bit for bit, in every instruction set", "[network]") {
  for (const NetworkCase& each : all_cases()) {
    if (!why_no_decoding(each.config).empty()) continue;  // later positions change the keys of earlier ones
    const NetworkCase network = wider(each);
    CAPTURE(network.config.mixer, network.config.window, network.config.conv_kernel, network.config.positions);
    const Array<double> weights = network.weights();
    for_each_cpu(1, [&](auto& device, const std::string& isa) {
      Built<std::decay_t<decltype(device)>, float> built(network, weights);
      const std::vector<Token> tokens = network.tokens_bc();
      const Index V = network.config.vocabulary;
      const auto logits_of = [&](const std::vector<Token>& any) {
        auto batch = built.batch();
        batch.token_bc = any.data();
        built.net.forward(batch, built.pass());
        return std::vector<float>(built.net.logits_bcv(), built.net.logits_bcv() + network.B * network.C * V);
      };
      const std::vector<float> logits = logits_of(tokens);
      for (const Index last : {Index{0}, Index{1}, Index{6}, network.C - 2}) {
        std::vector<Token> changed = tokens;
        for (Index b = 0; b < network.B; ++b) {
          for (Index c = last + 1; c < network.C; ++c) {
            Token& token = changed[static_cast<std::size_t>(b * network.C + c)];
            token = static_cast<Token>((token + 1 + c) % V);
          }
        }
        const std::vector<float> other = logits_of(changed);
        Index differences = 0;
        for (Index b = 0; b < network.B; ++b) {
          for (Index i = b * network.C * V; i < (b * network.C + last + 1) * V; ++i) {
            differences += !(logits[static_cast<std::size_t>(i)] == other[static_cast<std::size_t>(i)]);
          }
        }
        INFO(isa << ", tokens changed behind position " << last);
        CHECK(differences == 0);
        CHECK(logits != other);
      }
    });
  }
}

template <class T, class Device>
void check_network_steps(const NetworkCase& network, Device& device, double tolerance, const std::string& what) {
  const Array<double> weights = network.weights();
  const std::vector<Token> tokens = network.tokens_bc();
  const Index V = network.config.vocabulary;
  const std::vector<TensorSpec> specs = {activation("logits_cv", {network.C * V})};
  Built<Reference, double> parallel(network, weights);
  const std::vector<Token> source = network.source_bs();
  parallel.net.forward({.token_bc = tokens.data(), .source_bs = source.data()},
                       {.B = 1, .C = network.C, .S = network.S});
  const Values<double> logits = {{parallel.net.logits_bcv(), parallel.net.logits_bcv() + network.C * V}};

  Network<Device, T> stepping(device, network.config, {.positions = network.C, .S = network.S});
  for (std::size_t i = 0; i < weights.size(); ++i) stepping.weights().values()[i] = static_cast<T>(weights[i]);
  for (int time = 0; time < 2; ++time) {  // the second time after a new start
    stepping.reset({.source_bs = source.data()}, {.B = 1, .C = 1, .S = network.S});
    Values<double> stepped(1);
    for (Index c = 0; c < network.C; ++c) {
      const T* next = stepping.decode(&tokens[static_cast<std::size_t>(c)], c);
      for (Index v = 0; v < V; ++v) stepped[0].push_back(static_cast<double>(next[v]));
    }
    require_close(specs, stepped, logits, tolerance, what);
  }
}

TEST_CASE("network: inference equals the full pass", "[network]") {
  std::vector<NetworkCase> cases = all_cases();
  for (const MixerProperties& mixer : Mixers::properties) {
    for (const std::string& positions : all_positions()) {
      cases.push_back(network_case(mixer.name, "0", 0, "positions=" + positions));
    }
  }
  for (const NetworkCase& each : Rows<NetworkCase, ForSteps>::all(cases)) {
    if (!why_no_decoding(each.config).empty()) continue;
    const NetworkCase network = wider(each);
    CAPTURE(network.config.mixer, network.config.window, network.config.conv_kernel, network.config.positions);
    Reference device(1);
    check_network_steps<double>(network, device, 1e-11, "double");
    for_each_cpu(1, [&](auto& any, const std::string& isa) { check_network_steps<float>(network, any, 1e-4, isa); });
  }
}

TEST_CASE("network: training has the same bits with any number of threads", "[network][slow]") {
  for (const NetworkCase& each : all_cases()) {
    // Additive with every option, also with windows; dot with every option; all mixers together.
    const bool full = each.masked && (each.config.window != "0" || each.config.mixer == "dot");
    if (!full && each.config.layers == 2) continue;
    NetworkCase network = wider(each);
    network.dropout = 0.1;
    network.B = 3;
    network.C = 16;
    CAPTURE(network.config.mixer, network.config.window, network.config.conv_kernel, network.config.positions);
    TrainingConfig training;
    training.optimizer = GENERATE("adamw", "muon");
    CAPTURE(training.optimizer);
    std::vector<std::vector<float>> trained;
    Array<double> weights = network.weights();
    for_each_cpu(1, [&]<class Device>(Device&, const std::string& isa) {
      trained.clear();
      for (const Index threads : {1, 2, 3}) {
        Built<Device, float> built(network, weights, threads);
        std::vector<float>& result = trained.emplace_back();
        for (std::uint32_t step = 0; step < 5; ++step) {
          StepState state{.seed = 3, .step = step, .learning_rate = 1e-2f};
          set_adamw_corrections(state, {.beta1 = training.beta1, .beta2 = training.beta2});
          const PassContext pass{network.B, network.C, nullptr, &state};
          built.net.forward(built.batch(), pass);
          result.push_back(*built.net.loss(built.batch(), 0.1, pass).mean);
          built.net.backward(built.batch(), 0.1, pass);
          built.update(training, state);
          CHECK(state.gradient_norm > 0);
          result.push_back(static_cast<float>(state.gradient_norm));
        }
        const Array<double> gradients = built.gradients();
        CHECK(gradients == Array<double>(gradients.size(), 0));
        for (const float* arena : {static_cast<const float*>(built.net.weights().values()),
                                   static_cast<const float*>(built.net.optimizer().first_moments()),
                                   static_cast<const float*>(built.net.optimizer().second_moments())}) {
          result.insert(result.end(), arena, arena + built.net.weights().count());
        }
      }
      INFO(isa);
      for (std::size_t run = 1; run < trained.size(); ++run) CHECK(trained[run] == trained[0]);
      CHECK_FALSE(!(trained[0][8] < trained[0][0]));  // the loss falls
    });
  }
}

// Scratch memory contiguous, as in a program, and scattered (tests/harness/red_zones.hpp), at other addresses in every
// run. Rows of odd widths end in scalars, whose rounding must not depend on the alignment.
TEST_CASE("network: training has the same bits wherever scratch memory lies", "[network][threads]") {
  std::vector<NetworkCase> cases;
  for (const MixerProperties& mixer : Mixers::properties) {
    for (const Index channels : {5, 6, 7, 9, 10, 12, 14, 15, 18, 20}) {
      cases.push_back(case_for_scratch(mixer.name, "0", channels));
    }
  }
  for (const NetworkCase& network : Rows<NetworkCase, ForScratch>::all(cases)) {
    CAPTURE(network.config.mixer, network.config.window, network.config.channels);
    const Array<double> weights = network.weights();
    for_each_cpu(1, [&]<class Device>(Device&, const std::string& isa) {
      if (std::is_same_v<Device, CpuDevice<Isa::scalar>>) return;
      INFO(isa);
      const auto trained = [&](Index threads) {
        Built<Device, float> built(network, weights, threads);
        std::vector<float> result{built.forward()};
        built.backward();
        const Array<float> gradients = built.copy_of(built.net.weights().gradients());
        result.insert(result.end(), gradients.begin(), gradients.end());
        return result;
      };
      std::vector<float> expected;
      {
        const MemoryOfPrograms side_by_side;
        expected = trained(1);
      }
      for (const Index threads : {1, 2, 3, 4}) {
        CAPTURE(threads);
        CHECK(trained(threads) == expected);
      }
    });
  }
}

TEST_CASE("network: recomputed activations have the same bits", "[network][heavy]") {
  for (const NetworkCase& each : all_cases()) {
    for (const bool narrow : {true, false}) {
      NetworkCase network = narrow ? each : wider(each);
      network.dropout = each.dropout;
      CAPTURE(network.config.mixer, network.config.window, network.config.conv_kernel, network.config.channels);
      const Array<double> weights = network.weights();
      for_each_cpu(1, [&](auto& device, const std::string& isa) {
        INFO(isa);
        std::vector<float> losses;
        std::vector<Array<double>> gradients;
        for (const bool recompute : {false, true}) {
          network.recompute = recompute;
          Built<std::decay_t<decltype(device)>, float> built(network, weights, 2);
          for (int pass = 0; pass < 2; ++pass) {  // the second one on scratch memory that has been used
            losses.push_back(built.forward());
            built.backward();
          }
          gradients.push_back(built.gradients());
        }
        for (const float loss : losses) CHECK(loss == losses[0]);
        CHECK(gradients[0] == gradients[1]);
      });
    }
  }
}

TEST_CASE("network: recomputation saves 30 % of the activations", "[network]") {
  const Reference device(1);
  for (const std::string& preset : preset_names) {
    for (const MixerProperties& mixer : Mixers::properties) {
      auto [model, training] = Preset(preset);
      model = with_mixer(model, mixer.name);
      NetworkCapacity capacity{.B = training.batch, .C = model.context, .training = true};
      const NetworkMemory all = Network<Reference, float>::memory(device, model, capacity);
      capacity.recompute = true;
      const NetworkMemory less = Network<Reference, float>::memory(device, model, capacity);
      const double share = static_cast<double>(less.activation_bytes) / static_cast<double>(all.activation_bytes);
      INFO(preset << ", " << mixer.name << ": " << share << " of "
                  << all.activation_bytes / static_cast<std::size_t>(training.batch * model.context)
                  << " bytes a token");
      CHECK(share <= 0.7);
      CHECK(less.total() < all.total());
    }
  }
}

TEST_CASE("network: the weight table has the names and shapes of the checkpoints", "[network]") {
  const NetworkCase network =
      network_case("additive,dot", "0", 3, "values=own projection=1 embedding_norm=1 logit_bias=1");
  std::string table;
  Index end = 0, count = 0;
  for (const Parameter& parameter : network.parameters()) {
    table += parameter.name + " ";
    Index elements = 1;
    for (Index extent : parameter.shape) elements *= extent;
    CHECK(elements == parameter.count);
    end = std::max(end, parameter.offset + parameter.count);
    count += parameter.count;
  }
  CHECK(end == count);  // without gaps
  CHECK(table ==
        "embedding.token_vd embedding.position_cd embedding.norm_weight_d embedding.norm_bias_d "
        "blocks.0.conv.norm_weight_d blocks.0.conv.norm_bias_d blocks.0.conv.weight_dgj "
        "blocks.0.mixer.norm_weight_d blocks.0.mixer.norm_bias_d "
        "blocks.0.mixer.mid_norm_weight_d blocks.0.mixer.mid_norm_bias_d "
        "blocks.0.mixer.query_dd blocks.0.mixer.key_dd blocks.0.mixer.value_dd blocks.0.mixer.mix_dd "
        "blocks.0.mixer.query_pool_nk blocks.0.mixer.key_pool_nk "
        "blocks.0.ffn.norm_weight_d blocks.0.ffn.norm_bias_d blocks.0.ffn.up_fd blocks.0.ffn.up_bias_f "
        "blocks.0.ffn.down_df blocks.0.ffn.down_bias_d "
        "blocks.1.conv.norm_weight_d blocks.1.conv.norm_bias_d blocks.1.conv.weight_dgj "
        "blocks.1.mixer.norm_weight_d blocks.1.mixer.norm_bias_d blocks.1.mixer.query_hd blocks.1.mixer.key_hd "
        "blocks.1.mixer.value_hd blocks.1.mixer.output_dh "
        "blocks.1.ffn.norm_weight_d blocks.1.ffn.norm_bias_d blocks.1.ffn.up_fd blocks.1.ffn.up_bias_f "
        "blocks.1.ffn.down_df blocks.1.ffn.down_bias_d "
        "final_norm.weight_d final_norm.bias_d logit_bias_v ");
}

TEST_CASE("network: parameter counts of the presets", "[network]") {
  // By hand, for 65 characters. tiny: D = 128, table 65 D, positions 64 D, final norm 2 D; a layer has a convolution of
  // 2 D + 4 D, a feed-forward net of 2 D + 8 D^2 + 5 D, and a mixer of 4 D + 2 D^2 + 2 D (additive) or 2 D + 4 D^2
  // (dot).
  const auto count = [](const std::string& preset, const std::string& mixer) {
    ModelConfig model = Preset(preset).model;
    if (!mixer.empty()) model.mixer = mixer;
    return Network<Reference, float>::memory(Reference(1), model, {}).weights;
  };
  CHECK(count("tiny", "") == 681856);
  CHECK(count("tiny", "dot") == 810880);
  CHECK(count("baby", "") == 9015168);
  CHECK(count("baby", "dot") == 10775424);
  CHECK(count("fastformer", "") == 4824385);
}

}  // namespace
}  // namespace abh
