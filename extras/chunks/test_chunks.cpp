// Sequences in chunks: loss, logits and every gradient equal those of the whole sequence.

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/random.hpp"
#include "extras/chunks/pooling_chunk.hpp"
#include "network/devices.hpp"
#include "tests/harness/model_case.hpp"
#include "tests/harness/near.hpp"
#include "tests/harness/network_case.hpp"
#include "tests/harness/plain_and_cpu.hpp"
#include "tests/harness/spy_processes.hpp"

namespace abh {
namespace {

// Networks on two sequences of 19 positions with dropout, a mask with holes and a masked start, and ignored targets.
NetworkCase chunk_case(const std::string& mixer, const std::string& window, Index conv_kernel,
                       const std::string& changes = "") {
  NetworkCase network = network_case(mixer, window, conv_kernel, "context=23 " + changes);
  network.C = 19;
  network.dropout = 0.3;
  network.label_smoothing = 0.1;
  network.masked = true;
  return network;
}

std::vector<NetworkCase> chunk_cases() {
  // Kernels and windows shorter and longer than chunks, one of them wider than any sequence.
  std::vector<NetworkCase> cases = {
      chunk_case("additive", "0,5", 6),
      chunk_case("additive", "1,12", 2, "values=own projection=1 embedding_norm=1 logit_bias=1 positions=none"),
      chunk_case("additive", "0", 0, "skip=normed"),
      chunk_case("additive,identity", "2,0", 21, "conv_groups=1"),
      chunk_case("additive", "200", 3, "positions=none conv_groups=2"),
      chunk_case("leap,average", "0,5", 3, "rescale=3"),
      chunk_case("leap,average", "6,0", 0, "normed_values=1 focus=exp"),
      chunk_case("leap,additive", "4,0", 0, "positions=alibi"),
      chunk_case("dot,additive", "0,4", 3),
      chunk_case("additive,dot", "0,0", 3, "norm=post activation=relu embedding_scale=2"),
      chunk_case("additive,dot", "0,0", 6, "reversible=1 values=own"),
      chunk_case("leap,average", "5,0", 0, "reversible=1 positions=alibi"),
      chunk_case("bahdanau,additive", "0,4", 3, "reversible=1 positions=rotary channels=8")};
  // Segments of one position, so that chunks of any length contain whole segments.
  cases.push_back(chunk_case("transformer_xl", "0", 0, "channels=8 segment=1 memory=5 clamp=3"));
  cases.push_back(chunk_case("transformer_xl", "0", 3, "segment=1 memory=30 norm=post"));
  cases[1].recompute = cases.back().recompute = true;
  cases[2].masked = false;
  cases[3].dropout = 0;
  cases.push_back(chunk_case("dot,metric", "0", 0, "span=6 ramp=5"));
  cases.push_back(chunk_case("dot,additive", "0", 2, "span=3 ramp=2 positions=alibi"));
  // Keys and values of all that came before.
  for (const std::string mixer : {"dot", "metric", "quadratic", "bahdanau"}) {
    for (const std::string positions : {"learned", "rotary", "alibi", "sinusoidal"}) {
      const bool turned = positions == "rotary";
      NetworkCase network = chunk_case(mixer, "0", 0, "channels=8 positions=" + positions);
      network.masked = positions == "alibi";
      network.dropout = turned ? 0.3 : 0;
      network.config.attention_bias = turned;
      if (turned && mixer == "dot") network.config.rescale = 4;
      cases.push_back(network);
      // Windows shorter and longer than chunks.
      network.config.attention_window = positions == "learned" ? "7,200" : positions == "rotary" ? "1,5" : "12,4";
      cases.push_back(network);
    }
  }
  return cases;
}

// Whether every mixer of a network has a backward that ends at the border of a chunk.
bool truncates(const NetworkCase& network) {
  const std::vector<MixerProperties> mixers = mixer_properties(network.config);
  return std::all_of(mixers.begin(), mixers.end(), [](const auto& mixer) { return mixer.truncates; });
}

// A network of one case that computes in chunks, on some device.
template <class Device, class T>
class InChunks {
 public:
  InChunks(Device& device, const NetworkCase& network, Index chunk, bool truncated = false,
           Processes& processes = one_process())
      : case_(network),
        device_(device),
        state_(1, network.state),
        count_(1),
        net(device, network.config,
            {.B = network.B,
             .C = network.C,
             .training = true,
             .recompute = network.recompute,
             .chunk = chunk,
             .truncated = truncated},
            network.dropout, processes) {
    const std::vector<Token> tokens = network.tokens_bc(), targets = network.targets_bc();
    tokens_.assign(tokens.begin(), tokens.end());
    targets_.assign(targets.begin(), targets.end());
    for (Index i = 0; i < network.B * network.C; ++i) {
      const Index c = i % network.C;
      mask_.push_back(i < network.C ? c >= 4 && c != 11 : c % 5 != 2);
    }
    count_[0] = network.B * network.C - std::count(targets.begin(), targets.end(), ignored_target);
    set_weights(network.weights());
  }

  void set_weights(const Array<double>& weights) {
    net.weights().write(std::vector<Accum<T>>(weights.begin(), weights.end()));
  }
  DeviceBatch<T> batch() const { return {tokens_.data(), targets_.data()}; }
  PassContext pass() const {
    return {.B = case_.B,
            .C = case_.C,
            .mask_bc = case_.masked ? mask_.data() : nullptr,
            .state = case_.dropout > 0 ? state_.data() : nullptr,
            .count = count_.data()};
  }

  // A gradient, and the intermediate results.
  void differentiate() {
    start();
    abh::differentiate(net, batch(), case_.label_smoothing, pass(), seen());
    const auto host = on_host(net.weights().gradients(), net.weights().count());
    gradients.assign(host.begin(), host.end());
  }
  void run() {
    start();
    compute_losses(net, batch(), case_.label_smoothing, pass(), seen());
  }
  // Loss of a single sequence with changed weights, while the initial state of each chunk comes from the original
  // weights.
  double loss_with(const Array<double>& other, const Array<double>& these) {
    start();
    const Chunks chunks(pass(), net.capacity().chunk);
    for (Index j = 0; j < chunks.of_sequence(); ++j) {
      set_weights(these);
      for (Index i = 0; i < j; ++i) net.run_blocks(chunks.part(batch(), 0, i), chunks.pass(0, i));
      set_weights(other);
      net.forward(chunks.part(batch(), 0, j), chunks.pass(0, j));
      seen()(0, j, chunks.pass(0, j), net.loss(chunks.part(batch(), 0, j), case_.label_smoothing, chunks.pass(0, j)));
    }
    return loss;
  }

 private:
  void start() {
    loss = 0;
    logits.assign(static_cast<std::size_t>(case_.B * case_.C * case_.config.vocabulary), std::nan(""));
  }
  template <class Number>
  std::vector<std::remove_const_t<Number>> on_host(Number* numbers, Index count) {
    std::vector<std::remove_const_t<Number>> host(static_cast<std::size_t>(count));
    device_.copy_to_host(host.data(), numbers, count);
    return host;
  }
  auto seen() {
    return [this](Index b, Index, const PassContext& part, const auto& of_part) {
      const auto mean = static_cast<double>(on_host(of_part.mean, 1)[0]);
      loss += mean * static_cast<double>(on_host(of_part.count, 1)[0]) / static_cast<double>(count_[0]);
      const Index V = case_.config.vocabulary;
      const auto host = abh::on_host<double>(device_, net.logits_bcv(), part.BC(), V, net.logit_stride());
      std::copy(host.begin(), host.end(), logits.begin() + (b * case_.C + part.first_c) * V);
    };
  }

  NetworkCase case_;
  Device& device_;
  Array<Token> tokens_, targets_, mask_;
  Array<StepState> state_;
  Array<Index> count_;

 public:
  Network<Device, T> net;
  double loss = 0;
  Array<double> logits, gradients;
};

std::string text_of(const NetworkCase& network) {
  return network.config.mixer + ", window " + network.config.window + ", kernel " +
         std::to_string(network.config.conv_kernel);
}

// Logits and gradients, tensor by tensor.
void require_same_step(const NetworkCase& network, const Array<double>& logits, const Array<double>& gradients,
                       const Array<double>& expected_logits, const Array<double>& expected_gradients,
                       double tolerance) {
  std::vector<TensorSpec> specs = {weight("logits", {static_cast<Index>(logits.size())})};
  Values<double> got = {logits}, expected = {expected_logits};
  for (const Parameter& parameter : network.parameters()) {
    specs.push_back(weight(parameter.name, {parameter.count}));
    const auto part = [&](const Array<double>& all) {
      return Array<double>(all.begin() + parameter.offset, all.begin() + parameter.offset + parameter.count);
    };
    got.push_back(part(gradients));
    expected.push_back(part(expected_gradients));
  }
  require_close(specs, got, expected, tolerance, text_of(network));
}

constexpr Index chunk_lengths[] = {1, 2, 3, 7, 16, 18, 19, 38};

template <class Device>
void check_chunks(Device& device) {
  for (const NetworkCase& network : chunk_cases()) {
    InChunks<Device, double> whole(device, network, 0);
    whole.differentiate();
    for (const Index chunk : chunk_lengths) {
      CAPTURE(chunk);
      InChunks<Device, double> parts(device, network, chunk);
      parts.run();
      CHECK_FALSE(!(std::abs(parts.loss - whole.loss) <= 1e-12));
      parts.differentiate();
      CHECK_FALSE(!(std::abs(parts.loss - whole.loss) <= 1e-12));
      require_same_step(network, parts.logits, parts.gradients, whole.logits, whole.gradients, 1e-12);
    }
  }
}

TEST_CASE("chunks: loss, logits and every gradient equal those of the whole sequence", "[chunks]") {
  on_plain_and_cpu([](auto& device) { check_chunks(device); }, 2);
}

TEST_CASE("chunks: each weight's gradient is reported complete once", "[chunks]") {
  CpuDevice<Isa::baseline> device(1);
  for (const NetworkCase& network : chunk_cases()) {
    for (const bool truncated : {false, true}) {
      if (truncated && !truncates(network)) continue;
      SpyProcesses sums;
      Index finished = 0;
      sums.heard = [&](const float*, Index count) { finished += count; };
      InChunks<CpuDevice<Isa::baseline>, float> parts(device, network, 7, truncated, sums);
      parts.differentiate();
      CHECK(finished == parts.net.weights().count());
    }
  }
}

TEST_CASE("chunks: in float on a GPU", "[chunks][gpu]") {
  PlainDevice plain;
  for (const NetworkCase& network : chunk_cases()) {
    InChunks<PlainDevice, double> whole(plain, network, 0);
    whole.differentiate();
    for_each_gpu([&](auto& device, const std::string& name) {
      for (const Index chunk : {3, 8}) {
        INFO(name << ", chunks of " << chunk);
        InChunks<std::decay_t<decltype(device)>, float> parts(device, network, chunk);
        parts.differentiate();
        CHECK_FALSE(!(std::abs(parts.loss - whole.loss) <= 1e-5));
        require_same_step(network, parts.logits, parts.gradients, whole.logits, whole.gradients, 3e-5);
      }
    });
  }
}

// In truncated mode the initial state of a chunk is a constant; central differences use a loss with this constant.
TEST_CASE("chunks: truncated chunks pass no gradient to their initial state", "[chunks][heavy]") {
  PlainDevice device;
  std::size_t turn = 0;
  for (NetworkCase network : chunk_cases()) {
    if (!truncates(network)) continue;
    const bool has_segments = mixer_properties(network.config).front().takes("segments");
    if (has_segments && network.config.conv_kernel) continue;  // the convolution's inputs before the chunk have one
    network.B = 1;
    network.C = 10;
    const Index chunk = 4;
    if (has_segments) network.config.extras.segment = chunk;
    InChunks<PlainDevice, double> exact(device, network, chunk), truncated(device, network, chunk, true);
    exact.differentiate();
    truncated.differentiate();
    CHECK_FALSE(!(std::abs(truncated.loss - exact.loss) <= 1e-12));

    InChunks<PlainDevice, double> moved(device, network, chunk);
    const Array<double> weights = network.weights();
    // Checks one weight in three, a different one in each network: two losses per weight take time.
    Array<double> other = weights, expected = truncated.gradients;
    for (std::size_t i = turn++ % 3; i < other.size(); i += 3) {
      const double at = other[i], step = 1e-5;
      other[i] = at + step;
      const double above = moved.loss_with(other, weights);
      other[i] = at - step;
      expected[i] = (above - moved.loss_with(other, weights)) / (2 * step);
      other[i] = at;
    }
    require_same_step(network, truncated.logits, truncated.gradients, exact.logits, expected, 1e-7);
    // A mixer with segments has only truncated gradients.
    if (!has_segments) CHECK((truncated.gradients != exact.gradients));
  }
}

// A prompt in chunks, then single inference steps: from the prompt's last position on, the logits equal those of the
// full pass.
template <class Device, class T>
void check_prompts(Device& device, double tolerance, const std::vector<Index>& chunks) {
  std::vector<NetworkCase> cases = chunk_cases();
  for (const char* mixer : {"additive", "leap", "average"}) {
    cases.push_back(chunk_case(mixer, "0,4", 3, "positions=sinusoidal"));
  }
  for (NetworkCase& network : cases) {
    const Index C = network.C, V = network.config.vocabulary;
    const Array<double> weights = network.weights();
    const std::vector<Token> host = network.tokens_bc();
    const Array<Token> tokens(host.begin(), host.begin() + C);
    Built<PlainDevice, double> whole(network, weights);
    whole.net.forward({tokens.data()}, {1, C});
    const double* expected_cv = whole.net.logits_bcv();
    for (const Index chunk : chunks) {
      Network<Device, T> reading(device, network.config,
                                 {.C = chunk, .positions = C, .chunk = chunk, .sequence = network.config.context});
      reading.weights().write(std::vector<Accum<T>>(weights.begin(), weights.end()));
      for (const Index prompt : {Index{1}, Index{2}, Index{6}, Index{11}, C}) {
        CAPTURE(network.config.mixer, network.config.window, network.config.positions, chunk, prompt);
        Array<T> logits_v(static_cast<std::size_t>(V));
        const auto check = [&](const T* got, Index c) {
          device.copy_to_host(logits_v.data(), got, V);
          INFO("position " << c);
          CHECK_FALSE(!(distance(logits_v, std::span(expected_cv + c * V, logits_v.size())) <= tolerance));
        };
        const Chunks parts({.B = 1, .C = prompt}, chunk);
        PassContext pass{};
        for (Index j = 0; j < parts.of_sequence(); ++j) {
          pass = parts.pass(0, j);
          reading.run_blocks({tokens.data() + pass.first_c}, pass);
        }
        check(reading.continue_after_prefill(pass), prompt - 1);
        for (Index c = prompt; c < C; ++c) check(reading.decode(tokens.data() + c, c), c);
      }
    }
  }
}

TEST_CASE("chunks: inference continues after a prompt read in chunks", "[chunks][generator]") {
  PlainDevice plain;
  check_prompts<PlainDevice, double>(plain, 1e-12, {1, 4, 19});
  CpuDevice<Isa::baseline> cpu(2);
  check_prompts<CpuDevice<Isa::baseline>, double>(cpu, 1e-12, {1, 2, 5, 30});
}

TEST_CASE("chunks: inference continues after a prompt, in float on a GPU", "[chunks][generator][gpu]") {
  for_each_gpu([](auto& device, const std::string& name) {
    INFO(name);
    check_prompts<std::decay_t<decltype(device)>, float>(device, 3e-5, {4});
  });
}

TEST_CASE("chunks: memory grows only with tokens and chunk borders", "[chunks][memory]") {
  CpuDevice<Isa::baseline> device(2);
  const ModelConfig config = chunk_case("additive", "0,5", 4, "positions=none context=4096").config;
  const auto memory = [&](Index C, Index chunk, bool truncated = false) {
    return Network<CpuDevice<Isa::baseline>, float>::memory(
        device, config, {.B = 3, .C = C, .training = true, .chunk = chunk, .truncated = truncated});
  };
  const NetworkMemory few = memory(64, 32), many = memory(4096, 32);
  CHECK(many.activation_bytes == few.activation_bytes);
  CHECK(many.workspace_bytes == few.workspace_bytes);
  // The carried values are held once as the state, once per border, and once as their gradient.
  CHECK(few.border_bytes % 3 == 0);
  CHECK(many.border_bytes == (1 + 127 + 1) * (few.border_bytes / 3));
  CHECK(memory(4096, 32, true).border_bytes == (1 + 2 + 1) * (few.border_bytes / 3));
  // One pooling carries its payload and logarithm, each with its rounding remainder. The windowed pooling carries 4
  // positions, and each convolution 3 rows.
  const std::size_t numbers = 2 * 2 * (6 + 2) + 2 * 4 * (6 + 2) + 2 * 3 * 6;
  CHECK(few.border_bytes / 3 >= numbers * sizeof(float));
  CHECK(few.border_bytes / 3 <= numbers * sizeof(float) + 14 * 64);
  // Forward only: nothing is saved at a border, and no gradient is computed.
  const NetworkMemory seen = Network<CpuDevice<Isa::baseline>, float>::memory(device, config, {.C = 4096, .chunk = 32});
  CHECK(seen.border_bytes == few.border_bytes / 3);
  CHECK(seen.activation_bytes <= few.activation_bytes);
  CHECK(memory(64, 0).border_bytes == 0);
  CHECK(memory(64, 0).activation_bytes > 4 * few.activation_bytes);
}

ModelConfig model_in_chunks() {
  return model_with(
      "layers=2 channels=8 heads=2 context=50 vocabulary_size=11 mixer=additive,dot window=7,0 conv_kernel=4");
}

// Training steps of a model: losses, gradients and evaluations equal those of a model without chunks, also in shards.
TEST_CASE("chunks: a model trains and evaluates as without chunks", "[chunks][shards][gpu]") {
  const ModelConfig config = model_in_chunks();
  const Index B = 4, C = config.context;
  std::vector<Token> tokens, targets;
  for (Index i = 0; i < B * C; ++i) {
    const std::uint32_t word = philox_word(8, static_cast<std::uint64_t>(i), 0, 902);
    tokens.push_back(static_cast<Token>(word % 11));
    targets.push_back(i < C || word % 7 == 0 ? ignored_target : static_cast<Token>((3 * word + 1) % 11));
  }
  const auto model_of = [&](const TrainingConfig& training, const std::string& device) {
    return new_model({.device = device, .threads = 1}, config, training, 0.2);
  };
  TrainingConfig training{.batch = B, .steps = 20, .learning_rate = 1e-3, .warmup = 2, .dropout = 0.1};
  const auto expected = model_of(training, "cpu");
  std::vector<Model::StepResult> steps;
  const Batch batch = batch_of_sequences(C, tokens, targets);
  const Score first_sum = expected->evaluate(batch);
  const std::vector<float> first_losses = expected->losses(batch);
  for (Index step = 0; step < 4; ++step) steps.push_back(expected->train_step(batch, training, step));
  for (const std::string& device : float_devices()) {
    for (const Index shards : {1, 2}) {
      for (const Index chunk : {9, 60}) {
        CAPTURE(device, shards, chunk);
        training.shards = shards;
        training.chunk = chunk;
        const auto model = model_of(training, device);
        if (shards == 1) {
          const Score sum = model->evaluate(batch);
          CHECK(sum.count == first_sum.count);
          CHECK(sum.hits == first_sum.hits);
          CHECK(sum.asked == first_sum.asked);
          CHECK(sum.right == first_sum.right);
          CHECK_FALSE(!(std::abs(sum.loss_sum - first_sum.loss_sum) <= 1e-5 * first_sum.loss_sum));
          const std::vector<float> losses = model->losses(batch);
          REQUIRE(losses.size() == first_losses.size());
          for (std::size_t i = 0; i < losses.size(); ++i) {
            CHECK_FALSE(!(std::abs(losses[i] - first_losses[i]) <= 1e-4));
            CHECK((losses[i] == 0) == (targets[i] == ignored_target));
          }
        }
        for (Index step = 0; step < 4; ++step) {
          const Model::StepResult result = model->train_step(batch, training, step);
          const Model::StepResult& wanted = steps[static_cast<std::size_t>(step)];
          CHECK_FALSE(!(std::abs(result.loss - wanted.loss) <= 1e-5 * wanted.loss));
          CHECK_FALSE(!(std::abs(result.gradient_norm - wanted.gradient_norm) <= 1e-4 * wanted.gradient_norm));
        }
      }
    }
  }
}

TEST_CASE("chunks: the log-sum-exp of all weights of a chunk", "[chunks][pooling][gpu]") {
  for_each_device(2, [&]<class Device>(Device& device, const std::string& name) {
    INFO(name);
    const Array<float> max_nc = {1, 2, 7, -3, 0, 0}, sum_nc = {9, 1, 9, 2, 9, 0};
    Array<float> zeta_n(3);
    pooling_zeta<Device, float>(device, zeta_n.data(), max_nc.data(), sum_nc.data(), 2, 3);
    wait_for(device);
    CHECK(zeta_n[0] == 2);
    CHECK(std::abs(zeta_n[1] - (std::log(2.0f) - 3)) < 1e-6f);
    CHECK(zeta_n[2] == static_cast<float>(pooling_nothing));
  });
}

TEST_CASE("chunks: the log-sum-exp of a chunk for any number of heads", "[chunks][pooling][gpu]") {
  const Index C = 3;
  for (const Index N : {128, 129, 300}) {
    Array<float> max_nc(static_cast<std::size_t>(N * C), not_written), sum_nc = max_nc;
    for (Index n = 0; n < N; ++n) {
      const std::size_t last = static_cast<std::size_t>(n * C + C - 1);
      max_nc[last] = static_cast<float>(n) - 150;
      sum_nc[last] = n % 7 == 5 ? 0 : static_cast<float>(n % 5 + 1);
    }
    for_each_device(2, [&]<class Device>(Device& device, const std::string& name) {
      Array<float> zeta_n(static_cast<std::size_t>(N), not_written);
      pooling_zeta<Device, float>(device, zeta_n.data(), max_nc.data(), sum_nc.data(), C, N);
      wait_for(device);
      Index wrong = 0;
      for (Index n = 0; n < N; ++n) {
        const float expected = n % 7 == 5 ? static_cast<float>(pooling_nothing)
                                          : static_cast<float>(n) - 150 + std::log(static_cast<float>(n % 5 + 1));
        wrong += !(std::abs(zeta_n[static_cast<std::size_t>(n)] - expected) <= 1e-5f * std::abs(expected));
      }
      INFO(name << ", " << N << " heads");
      CHECK(wrong == 0);
    });
  }
}

TEST_CASE("chunks: networks without chunked computation are named", "[chunks]") {
  for (const MixerProperties& mixer : Mixers::properties) {
    ModelConfig config = chunk_case(mixer.name, "0", 0).config;
    CAPTURE(mixer.name);
    CHECK(why_no_chunks(config).empty() == mixer.in_chunks);
    config.classes = 2;
    CHECK(contains(why_no_chunks(config), "found a classifier"));
    config.causal = false;
    CHECK(why_no_chunks(config) == "--chunk: expected a network that is causal");
    CHECK_THROWS_AS(check_training(config, {.chunk = 4}), UsageError);
    CHECK_NOTHROW(check_training(config, {}));
  }
}

}  // namespace
}  // namespace abh
