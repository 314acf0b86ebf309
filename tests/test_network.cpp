#include <cstdlib>
#include <new>

#include "tests/network_case.hpp"

// What the arenas of a network take is only known to the allocator that hands them out. All of them, and nothing else
// here, come from the aligned form of operator new.
namespace {
std::size_t aligned_bytes = 0;
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  aligned_bytes += bytes;
  const std::size_t step = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(step, (bytes + step - 1) / step * step);
}
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace abh {
namespace {

TEST_CASE("network: the gradient of every weight against dual numbers", "[network]") {
  for (const NetworkCase& network : all_cases()) {
    CAPTURE(network.config.mixer, network.config.window, network.config.conv_kernel);
    const Array<double> weights = network.weights();
    Built<Reference, double> built(network, weights);
    const double loss = built.forward();
    CHECK(loss > 0.1);
    CHECK(loss < 10);
    built.backward();
    const Array<double> gradients = built.gradients();

    Built<CpuDevice<Isa::scalar>, Dual> dual(network, weights);
    const std::vector<Parameter> parameters = network.parameters();
    std::vector<Slot> slots;
    Values<double> got, by_dual;
    for (const Parameter& parameter : parameters) {
      // 64 elements drawn by the seed, or all if there are fewer.
      const Index count = std::min<Index>(parameter.count, 64);
      slots.push_back(weight(parameter.name, {count}));
      got.emplace_back();
      by_dual.emplace_back();
      for (Index i = 0; i < count; ++i) {
        const Index draw = philox_word(31, static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(slots.size()), 0);
        const Index element = parameter.offset + (count < 64 ? i : draw % parameter.count);
        dual.net.weights()[element].derivative = 1;
        by_dual.back().push_back(dual.forward().derivative);
        dual.net.weights()[element].derivative = 0;
        got.back().push_back(gradients[static_cast<std::size_t>(element)]);
      }
    }
    require_close(slots, got, by_dual, 1e-11, "backward against dual numbers");

    double norm = 0;
    for (double g : gradients) norm += g * g;
    norm = std::sqrt(norm);
    CHECK(norm > 1e-2);
    for (std::uint32_t direction = 0; direction < 3; ++direction) {
      double expected = 0;
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        const double step = normal_number(51, i, direction, 1000);
        dual.net.weights()[i].derivative = step;
        expected += step * gradients[i];
      }
      const double error = std::abs(dual.forward().derivative - expected) / norm;
      INFO("direction " << direction << ", error " << error);
      CHECK_FALSE(!(error <= 1e-11));
    }
  }
}

TEST_CASE("network: gradients add up over passes, and float is near double", "[network]") {
  for (const NetworkCase& network : all_cases()) {
    CAPTURE(network.config.mixer, network.config.window, network.config.conv_kernel);
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
    const std::vector<Slot> slot = {weight("all", {static_cast<Index>(once.size())})};
    require_close(slot, {reference.gradients()}, {twice}, 1e-14, "two passes");
    for_each_cpu(1, [&](auto& device, const std::string& isa) {
      Built<std::decay_t<decltype(device)>, float> built(network, weights);
      const double float_loss = static_cast<double>(built.forward());
      INFO(isa);
      CHECK_FALSE(!(std::abs(float_loss - loss) <= 1e-5 * loss));
      built.backward();
      require_close(slot, {built.gradients()}, {once}, 2e-5, isa);
    });
  }
}

TEST_CASE("network: the loss is the mean over the targets that count", "[network]") {
  NetworkCase network = network_case("additive");
  network.config.logit_bias = true;
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
  const Pass evaluation{network.B, network.C};
  built.net.forward(network.tokens_bc().data(), evaluation);
  CHECK(*built.net.loss(network.targets_bc().data(), 0, evaluation).mean == quiet);
}

TEST_CASE("network: the embedding has a dropout mask of its own", "[network]") {
  // With blocks of zeros alone, logits are dropout(token) token^T.
  NetworkCase network = network_case("dot");
  network.config.positions = "none";
  network.config.final_norm = false;
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
  const double* token_vd = built.net.weights() + parameters[0].offset;
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

TEST_CASE("network: every layer has its own window", "[network]") {
  const auto loss_of = [](const std::string& windows) {
    const NetworkCase network = network_case("additive", windows);
    return Built<Reference, double>(network, network.weights()).forward();
  };
  CHECK(loss_of("2,3") != loss_of("2,2"));
  CHECK(loss_of("2,3") != loss_of("3,3"));
}

// Wider than the lanes of every instruction set, and not a multiple of them.
NetworkCase wider(NetworkCase network) {
  network.config.channels = 38;
  network.config.context = 16;
  network.C = 13;
  network.masked = false;
  network.dropout = 0;
  return network;
}

TEST_CASE("network: causal, bit by bit, in every instruction set", "[network]") {
  for (const NetworkCase& each : all_cases()) {
    const NetworkCase network = wider(each);
    CAPTURE(network.config.mixer, network.config.window, network.config.conv_kernel);
    const Array<double> weights = network.weights();
    for_each_cpu(1, [&](auto& device, const std::string& isa) {
      Built<std::decay_t<decltype(device)>, float> built(network, weights);
      const std::vector<Token> tokens = network.tokens_bc();
      const Index V = network.config.vocabulary;
      const auto logits_of = [&](const std::vector<Token>& any) {
        built.net.forward(any.data(), built.pass());
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
  const std::vector<Slot> slots = {activation("logits_cv", {network.C * V})};
  Built<Reference, double> parallel(network, weights);
  parallel.net.forward(tokens.data(), {1, network.C});
  const Values<double> logits = {{parallel.net.logits_bcv(), parallel.net.logits_bcv() + network.C * V}};

  Network<Device, T> stepping(device, network.config, {.positions = network.C});
  for (std::size_t i = 0; i < weights.size(); ++i) stepping.weights()[i] = static_cast<T>(weights[i]);
  for (int time = 0; time < 2; ++time) {  // the second time after a new start
    stepping.start();
    Values<double> stepped(1);
    for (Index c = 0; c < network.C; ++c) {
      const T* next = stepping.step(&tokens[static_cast<std::size_t>(c)], c);
      for (Index v = 0; v < V; ++v) stepped[0].push_back(static_cast<double>(next[v]));
    }
    require_close(slots, stepped, logits, tolerance, what);
  }
}

TEST_CASE("network: step-by-step inference is the parallel pass", "[network]") {
  for (const NetworkCase& each : all_cases()) {
    const NetworkCase network = wider(each);
    CAPTURE(network.config.mixer, network.config.window, network.config.conv_kernel);
    Reference device(1);
    check_network_steps<double>(network, device, 1e-11, "double");
    for_each_cpu(1, [&](auto& any, const std::string& isa) { check_network_steps<float>(network, any, 1e-4, isa); });
  }
}

TEST_CASE("network: training is bitwise the same for every number of threads", "[network][slow]") {
  // Additive with everything switched on, windows too; the same for dot; all mixers at once.
  const std::vector<NetworkCase> cases = all_cases();
  for (const std::size_t number : {cases.size() - 5, cases.size() - 2, cases.size() - 1}) {
    NetworkCase network = wider(cases[number]);
    network.dropout = 0.1;
    network.B = 3;
    network.C = 16;
    CAPTURE(network.config.mixer, network.config.window, network.config.conv_kernel);
    TrainingConfig training;
    training.optimizer = GENERATE("adamw", "muon");
    CAPTURE(training.optimizer);
    std::vector<std::vector<float>> trained;
    Array<double> weights = network.weights();
    for_each_cpu(1, [&](auto& device, const std::string& isa) {
      using Device = std::decay_t<decltype(device)>;
      trained.clear();
      for (const Index threads : {1, 2, 3}) {
        Built<Device, float> built(network, weights, threads);
        std::vector<float>& result = trained.emplace_back();
        for (std::uint32_t step = 0; step < 5; ++step) {
          StepState state{.seed = 3, .step = step, .learning_rate = 1e-2f};
          set_adamw_corrections(state, {.beta1 = training.beta1, .beta2 = training.beta2});
          const Pass pass{network.B, network.C, nullptr, &state};
          built.net.forward(network.tokens_bc().data(), pass);
          result.push_back(*built.net.loss(network.targets_bc().data(), 0.1, pass).mean);
          built.net.backward(network.tokens_bc().data(), network.targets_bc().data(), 0.1, pass);
          built.net.measure_gradient(training, &state);
          CHECK(state.gradient_norm > 0);
          built.net.update(training, &state);
          result.push_back(static_cast<float>(state.gradient_norm));
        }
        const Index count = built.net.weight_count();
        Index not_zero = 0;
        for (Index i = 0; i < count; ++i) not_zero += !(built.net.gradients()[i] == 0);
        CHECK(not_zero == 0);
        result.insert(result.end(), built.net.weights(), built.net.weights() + count);
        result.insert(result.end(), built.net.first_moments(), built.net.first_moments() + count);
        result.insert(result.end(), built.net.second_moments(), built.net.second_moments() + count);
      }
      INFO(isa);
      for (std::size_t run = 1; run < trained.size(); ++run) CHECK(trained[run] == trained[0]);
      CHECK_FALSE(!(trained[0][8] < trained[0][0]));  // the loss falls
    });
  }
}

TEST_CASE("network: what is computed again is the same, bit by bit", "[network]") {
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
        CHECK(losses[0] == losses[1]);
        CHECK(losses[0] == losses[2]);
        CHECK(losses[0] == losses[3]);
        CHECK(gradients[0] == gradients[1]);
      });
    }
  }
}

TEST_CASE("network: computing again saves three tenths of the activations", "[network]") {
  const Reference device(1);
  for (const char* preset : {"tiny", "baby", "fastformer"}) {
    for (const MixerProperties& properties : Mixers::properties) {
      const char* mixer = properties.name;
      ModelConfig model;
      TrainingConfig training;
      apply_preset(preset, model, training);
      model.vocabulary = 65;
      model.mixer = mixer;
      NetworkExtent extent{.B = training.batch, .C = model.context, .training = true};
      const NetworkMemory all = Network<Reference, float>::memory(device, model, extent);
      extent.recompute = true;
      const NetworkMemory less = Network<Reference, float>::memory(device, model, extent);
      const double share = static_cast<double>(less.activation_bytes) / static_cast<double>(all.activation_bytes);
      INFO(preset << ", " << mixer << ": " << share << " of "
                  << all.activation_bytes / static_cast<std::size_t>(training.batch * model.context)
                  << " bytes a token");
      CHECK(share <= 0.7);
      CHECK(less.total() < all.total());
    }
  }
}

TEST_CASE("network: the table of weights has the names and shapes of the checkpoints", "[network]") {
  NetworkCase network = network_case("additive,dot", "0", 3);
  network.config.additive_values = "own";
  network.config.additive_projection = true;
  network.config.embedding_norm = network.config.logit_bias = true;
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
    ModelConfig model;
    TrainingConfig training;
    apply_preset(preset, model, training);
    model.vocabulary = 65;
    if (!mixer.empty()) model.mixer = mixer;
    return Network<Reference, float>::memory(Reference(1), model, {}).weights;
  };
  CHECK(count("tiny", "") == 681856);
  CHECK(count("tiny", "dot") == 810880);
  CHECK(count("baby", "") == 9015168);
  CHECK(count("baby", "dot") == 10775424);
  CHECK(count("fastformer", "") == 4824385);
}

// One training step of a new network on a new device: the scratch memory that it took.
template <class T, class Device>
std::size_t peak_of_a_step(Device& device, const ModelConfig& config, const NetworkExtent& extent, double dropout = 0) {
  Network<Device, T> net(device, config, extent, dropout);
  std::vector<Accum<T>> weights;
  for (Index i = 0; i < net.weight_count(); ++i) weights.push_back(0.01f * static_cast<float>(i % 7));
  net.write_weights(weights);
  const std::vector<Token> host_tokens(static_cast<std::size_t>(extent.B * extent.C), 1);
  const StepState host_state{.seed = 1, .learning_rate = 1e-3f};
  const DeviceMemory tokens(device.memory(), host_tokens.size() * sizeof(Token));
  const DeviceMemory state(device.memory(), sizeof(StepState));
  device.copy_from_host(tokens.as<Token>(), host_tokens.data(), static_cast<Index>(host_tokens.size()));
  device.copy_from_host(state.as<StepState>(), &host_state, 1);
  const Pass pass{extent.B, extent.C, nullptr, state.as<StepState>()};
  TrainingConfig training;
  training.optimizer = extent.muon ? "muon" : "adamw";
  net.forward(tokens.as<Token>(), pass);
  net.loss(tokens.as<Token>(), 0.1, pass);
  net.backward(tokens.as<Token>(), tokens.as<Token>(), 0.1, pass);
  net.measure_gradient(training, state.as<StepState>());
  net.update(training, state.as<StepState>());
  wait_for(device);
  return device.workspace.peak();
}

// What is counted takes no memory, and is what a network and a step on it take.
template <class Device>
void check_memory(const ModelConfig& config, const NetworkExtent& extent, Index threads) {
  INFO(config.mixer << ", " << extent.B << " x " << extent.C << ", D " << config.channels << ", groups "
                    << config.conv_groups << ", recompute " << extent.recompute << ", muon " << extent.muon);
  Device device(threads);
  const std::size_t before = aligned_bytes;
  const NetworkMemory memory = Network<Device, float>::memory(device, config, extent);
  CHECK(aligned_bytes == before);
  {
    const Network<Device, float> net(device, config, extent);
    CHECK(aligned_bytes - before == memory.total() - memory.workspace_bytes);
    CHECK(memory.weights == net.weight_count());
  }
  const std::size_t peak = peak_of_a_step<float>(device, config, extent);
  CHECK(peak > 0);
  CHECK(peak == memory.workspace_bytes);
  // Twice the arenas, the tokens and the state; the scratch memory in one piece.
  const std::size_t batch = static_cast<std::size_t>(extent.B * extent.C) * sizeof(Token) + sizeof(StepState);
  CHECK(aligned_bytes - before - batch ==
        2 * (memory.total() - memory.workspace_bytes) + std::max<std::size_t>(memory.workspace_bytes, 1 << 20));
}
template <class Device>
void check_memory(const ModelConfig& config, Index B, Index C, Index threads) {
  for (const auto& [muon, recompute] : {std::pair{false, false}, {false, true}, {true, false}}) {
    check_memory<Device>(config, {.B = B, .C = C, .training = true, .muon = muon, .recompute = recompute}, threads);
  }
}

TEST_CASE("network: the estimate of its memory is what it takes", "[network][memory][slow]") {
  for (const MixerProperties& properties : Mixers::properties) {
    const char* mixer = properties.name;
    for (const Index conv_groups : {-1, 0, 1, 2, 32}) {
      ModelConfig model;
      TrainingConfig training;
      apply_preset("tiny", model, training);
      model.layers = 1;
      model.vocabulary = 65;
      model.mixer = mixer;
      model.conv_groups = conv_groups < 0 ? 0 : conv_groups;
      if (conv_groups < 0) model.conv_kernel = 0;
      check_memory<Reference>(model, 12, 64, 2);
      check_memory<Reference>(model, 1, 1, 1);
      check_memory<Reference>(model, 2, 33, 3);
      model.window = "8";
      model.additive_values = "own";
      check_memory<Reference>(model, 2, 64, 1);
      // One wide head, few channels: scratch of the pooling and of the core, not of the matrices.
      model.channels = 32;
      model.heads = 1;
      model.context = 300;
      check_memory<Reference>(model, 1, 300, 1);
#if defined(ABH_AVX512)
      if (isa_available(Isa::avx512)) check_memory<CpuDevice<Isa::avx512>>(model, 2, 33, 3);
#endif
    }
    ModelConfig model;
    TrainingConfig training;
    apply_preset("baby", model, training);
    model.layers = 1;
    model.vocabulary = 65;
    model.mixer = mixer;
    check_memory<Reference>(model, 2, model.context, 2);
  }
  // A vocabulary that outweighs everything else, and many heads.
  ModelConfig model = network_case("dot").config;
  model.channels = 24;
  model.heads = 24;
  model.vocabulary = 3000;
  check_memory<Reference>(model, 3, 7, 1);
  model.mixer = "additive";
  check_memory<Reference>(model, 3, 7, 2);
}

// Networks whose steps ask for scratch memory in different layers.
struct Scratch {
  const char *mixer, *window;
  Index channels, heads, conv_kernel, conv_groups, B, C;
  bool muon, recompute;
};
ModelConfig config_of(const Scratch& s) {
  ModelConfig config = network_case(s.mixer, s.window, s.conv_kernel).config;
  config.channels = s.channels;
  config.heads = s.heads;
  config.conv_groups = s.conv_groups;
  config.context = s.C;
  config.additive_values = s.B % 2 == 0 ? "own" : "shared";
  config.embedding_norm = s.recompute;
  config.logit_bias = s.muon;
  config.attention_bias = s.recompute;
  return config;
}
constexpr Scratch small_steps[] = {
    {"additive", "0", 6, 2, 0, 0, 2, 5, false, false},   {"additive", "0", 24, 3, 3, 0, 3, 9, true, false},
    {"additive", "4", 24, 2, 0, 0, 2, 9, false, true},   {"additive", "1,7", 20, 5, 2, 1, 1, 13, false, false},
    {"metric", "0", 6, 2, 0, 0, 2, 5, false, false},     {"metric", "0", 24, 3, 3, 8, 1, 33, true, false},
    {"quadratic", "0", 24, 2, 0, 0, 3, 7, false, true},  {"quadratic", "0", 20, 1, 4, 2, 2, 9, true, false},
    {"dot", "0", 6, 2, 0, 0, 2, 5, false, false},        {"dot", "0", 24, 24, 3, 3, 1, 17, true, true},
    {"dot", "0", 36, 4, 2, 0, 2, 33, false, false},      {"additive,dot", "3", 16, 2, 5, 4, 2, 8, false, true},
    {"dot,metric", "0", 40, 1, 0, 0, 1, 1, true, false}, {"additive", "0", 136, 1, 0, 0, 1, 20, false, false},
    {"dot", "0", 136, 1, 0, 0, 1, 20, false, false},
};
constexpr Scratch long_steps[] = {
    {"additive", "0", 32, 2, 0, 0, 1, 600, false, false},
    {"additive", "0", 32, 1, 3, 0, 3, 1100, false, true},
    {"additive", "0", 8, 1, 0, 0, 9, 300, true, false},
    {"additive", "256", 32, 2, 0, 0, 1, 600, false, false},
    {"additive", "500", 16, 1, 0, 0, 2, 700, false, true},
    {"additive", "300", 160, 1, 0, 0, 1, 600, false, false},
    {"additive", "128", 32, 16, 0, 0, 1, 520, true, false},
    {"additive", "200", 8, 2, 3, 1, 9, 400, false, false},
    {"metric", "0", 32, 2, 0, 0, 1, 600, false, false},
    {"metric", "0", 8, 1, 2, 1, 2, 300, false, true},
    {"metric", "0", 160, 1, 0, 0, 1, 130, true, false},
    {"quadratic", "0", 32, 2, 4, 2, 1, 300, false, false},
    {"quadratic", "0", 144, 2, 0, 0, 2, 70, true, true},
    {"dot", "0", 32, 2, 0, 0, 1, 1100, false, false},
    {"dot", "0", 8, 1, 0, 0, 1, 1300, false, true},
    {"dot", "0", 200, 1, 0, 0, 1, 600, false, false},
    {"dot", "0", 20, 1, 3, 0, 16, 129, false, false},
    {"dot", "0", 160, 8, 3, 4, 1, 200, true, false},
    {"dot", "0", 256, 4, 4, 1, 1, 64, false, false},
    {"dot", "0", 264, 4, 0, 0, 2, 70, false, true},
    {"additive,dot", "256", 48, 3, 5, 6, 1, 520, true, true},
    {"additive", "0", 136, 4, 3, 0, 1, 520, true, false},
    {"dot", "0", 24, 24, 0, 0, 3, 70, false, false},
    {"metric,additive", "65", 64, 4, 7, 0, 2, 129, true, false},
    {"quadratic,dot", "0", 96, 12, 2, 12, 4, 65, false, false},
};

TEST_CASE("network: a step on a device that computes nothing asks for the memory of a step", "[network][memory]") {
  const auto check = [](const Scratch& s, Index threads) {
    const ModelConfig config = config_of(s);
    const NetworkExtent extent{.B = s.B, .C = s.C, .training = true, .muon = s.muon, .recompute = s.recompute};
    CAPTURE(s.mixer, s.window, s.channels, s.heads, s.conv_kernel, s.conv_groups, s.B, s.C, s.muon, s.recompute);
    CAPTURE(threads);
    for_each_cpu(threads, [&](auto& device, const std::string& name) {
      INFO(name);
      if (name == "scalar" && s.C > 100) return;  // no scratch memory of its own, and slow
      using Any = Network<std::decay_t<decltype(device)>, float>;
      if constexpr (Any::can_count) {
        const NetworkMemory memory = Any::memory(device, config, extent);
        CHECK(device.workspace.peak() == 0);
        CHECK(memory.workspace_bytes > 0);
        CHECK(peak_of_a_step<float>(device, config, extent, 0.2) == memory.workspace_bytes);
      }
    });
  };
  for (const Scratch& s : small_steps) {
    for (const Index threads : {1, 2, 3}) check(s, threads);
  }
  Index i = 0;
  for (const Scratch& s : long_steps) check(s, i++ % 3 + 1);
}

template <class T, class Device>
void check_gpu_step(const Device& like, const ModelConfig& config, const NetworkExtent& extent) {
  Device device(like.gemm());
  const NetworkMemory memory = Network<Device, T>::memory(device, config, extent);
  CHECK(device.workspace.peak() == 0);
  CHECK(memory.workspace_bytes > 0);
  CHECK(peak_of_a_step<T>(device, config, extent, 0.2) == memory.workspace_bytes);
}

TEST_CASE("network: the same on a GPU", "[network][memory][gpu]") {
  for_each_gpu([](auto& device, const std::string& name) {
    for (const Scratch& s : small_steps) {
      const ModelConfig config = config_of(s);
      const NetworkExtent extent{.B = s.B, .C = s.C, .training = true, .muon = s.muon, .recompute = s.recompute};
      CAPTURE(name, s.mixer, s.window, s.channels, s.heads, s.conv_kernel, s.conv_groups, s.B, s.C, s.muon);
      check_gpu_step<float>(device, config, extent);
      check_gpu_step<bf16>(device, config, extent);
    }
    if (name == "emulated") return;
    for (const Scratch& s : long_steps) {
      const NetworkExtent extent{.B = s.B, .C = s.C, .training = true, .muon = s.muon, .recompute = s.recompute};
      CAPTURE(name, s.mixer, s.window, s.channels, s.heads, s.conv_kernel, s.conv_groups, s.B, s.C, s.muon);
      check_gpu_step<float>(device, config_of(s), extent);
      check_gpu_step<bf16>(device, config_of(s), extent);
    }
  });
}

// Terabytes, on every device: nothing is touched, or this would end.
TEST_CASE("network: what no machine has is counted all the same", "[network][memory]") {
  const auto check = []<class T>(auto& device) {
    using Any = Network<std::decay_t<decltype(device)>, T>;
    if constexpr (!Any::can_count) return;
    for (const MixerProperties& mixer : Mixers::properties) {
      for (const Index groups : {0, 1, 1024}) {
        ModelConfig model;
        model.layers = 20;
        model.channels = 1 << 13;
        model.context = 1 << 12;
        model.vocabulary = 1 << 16;
        model.mixer = mixer.name;
        model.conv_kernel = 4;
        model.conv_groups = groups;
        const NetworkExtent extent{.B = 1 << 10, .C = model.context, .training = true, .muon = true};
        const auto memory = Any::memory(device, model, extent);
        CHECK(memory.total() > std::size_t{1} << 43);
        CHECK(memory.workspace_bytes > std::size_t{1} << 36);
      }
    }
  };
  for_each_cpu(3, [&](auto& device, const std::string&) { check.template operator()<float>(device); });
#if defined(ABH_EMULATOR)
  GpuDevice<Backend::emulated> emulated;
  check.template operator()<float>(emulated);
  check.template operator()<bf16>(emulated);
#endif
}

TEST_CASE("network: memory of step-by-step inference", "[network]") {
  ModelConfig model = network_case("additive,dot", "0", 3).config;
  const NetworkExtent extent{.positions = 20};
  Reference device(1);
  const NetworkMemory memory = Network<Reference, float>::memory(device, model, extent);
  CHECK(memory.gradient_bytes == 0);
  CHECK(memory.moment_bytes == 0);
  // Each part on its own 64 bytes: two convolution rings of 2 D, two pooling states of N (K + 2), keys and values.
  CHECK(memory.state_bytes == 2 * 64 + 2 * 64 + 2 * 512);
  const std::size_t before = aligned_bytes;
  Network<Reference, float> net(device, model, extent);
  CHECK(aligned_bytes - before == memory.total() - memory.workspace_bytes);
}

TEST_CASE("network: what cannot be addressed is refused when it is counted", "[network]") {
  ModelConfig model;
  model.layers = largest_layers;
  model.channels = largest_channels;
  model.context = largest_context;
  model.vocabulary = largest_vocabulary;
  check_model(model);
  const NetworkExtent extent{.B = largest_batch, .C = largest_context, .training = true};
  CHECK_THROWS_AS((Network<Reference, float>::memory(Reference(1), model, extent).total()), Error);
}

}  // namespace
}  // namespace abh
