// Reversible networks: reconstructed streams equal the original ones, up to rounding in the reconstruction.

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "extras/chunks/chunks.hpp"
#include "extras/reversible/reversible.hpp"
#include "tests/harness/near.hpp"
#include "tests/harness/network_case.hpp"
#include "tests/harness/program.hpp"

namespace abh {
namespace {

Array<double> normal(Index count, std::uint32_t site) {
  Array<double> numbers;
  for (Index i = 0; i < count; ++i) numbers.push_back(normal_number(7, static_cast<std::uint64_t>(i), 0, site));
  return numbers;
}

// The two streams as one row of arrays, all of which are kept, and every block in a room of its own:
//
//   x_0 = x_1 = x,  x_{i+2} = x_i + f_i(x_{i+1}),  out = (x_n + x_{n+1}) / 2
template <class Device, class T>
class KeptStack : public Stack<Device, T> {
 public:
  KeptStack(Layout<T>& layout, const StackShape<T>& shape, const ModelConfig& config, const BlockCapacity& capacity,
            double)
      : Stack<Device, T>(layout, {.layers = 0}, config, capacity, 0, true), D_(config.channels) {
    for (Index i = 0; i < shape.layers; ++i) {
      const std::string name = "blocks." + std::to_string(i) + ".";
      const BlockOptions options{.residual = false, .layer = static_cast<std::uint32_t>(i)};
      blocks_.push_back(Mixers::make<Device, T>(mixers_of(config)[static_cast<std::size_t>(i)], layout, name + "mixer.",
                                                config, capacity, options));
      blocks_.push_back(std::make_unique<FfnBlock<Device, T>>(layout, name + "ffn.", config, capacity, options));
    }
    for (std::size_t i = 0; i < blocks_.size() + 3; ++i) {
      x_bcd_.push_back(layout.template activation<T>(capacity.B * capacity.C * D_));
    }
  }
  T* in_bcd() override { return x_bcd_[1]; }
  const T* out_bcd() const override { return x_bcd_.back(); }
  void forward(Device& device, const PassContext& pass) override {
    const std::size_t n = blocks_.size();
    const Index count = pass.BC() * D_;
    device.copy(x_bcd_[0], static_cast<const T*>(x_bcd_[1]), count);
    for (std::size_t i = 0; i < n; ++i) {
      blocks_[i]->forward(device, x_bcd_[i + 2], x_bcd_[i + 1], pass);
      add<Device, T>(device, x_bcd_[i + 2], x_bcd_[i + 2], x_bcd_[i], count);
    }
    for (Index j = 0; j < count; ++j) x_bcd_[n + 2][j] = (x_bcd_[n][j] + x_bcd_[n + 1][j]) / T(2);
  }
  Index backward(Device& device, T* d_x_bcd, const PassContext& pass, Weights<Device, T>&, Index end) override {
    const std::size_t n = blocks_.size(), count = static_cast<std::size_t>(pass.BC() * D_);
    std::vector<Array<T>> d_x(n + 2, Array<T>(count, T(0)));
    for (std::size_t j = 0; j < count; ++j) d_x[n][j] = d_x[n + 1][j] = d_x_bcd[j] / T(2);
    for (std::size_t i = n; i-- > 0;) {
      Array<T> d_f = d_x[i + 2];
      blocks_[i]->backward(device, d_f.data(), x_bcd_[i + 1], pass);
      for (std::size_t j = 0; j < count; ++j) {
        d_x[i][j] += d_x[i + 2][j];
        d_x[i + 1][j] += d_f[j];
      }
    }
    for (std::size_t j = 0; j < count; ++j) d_x_bcd[j] = d_x[0][j] + d_x[1][j];
    return end;
  }
  void inspect(Device&, const Inspector&, const PassContext&) const override {}
  void decode(Device&, Index) override {}

 private:
  Index D_;
  std::vector<std::unique_ptr<Block<Device, T>>> blocks_;
  std::vector<T*> x_bcd_;
};

// A stack of additive attention and feed-forward nets on 32 positions of 32 channels, once forward and back. Matrices
// are normal with standard deviation scale / sqrt(inputs).
struct Walk {
  Index layers;
  double scale;
  ModelConfig config = {.layers = layers, .channels = 32, .heads = 4, .context = 32, .vocabulary = 1};
  Index C = 32;

  template <class T>
  struct Result {
    Array<T> in, out, recovered, d_in;
    std::vector<Array<T>> gradients;  // of every tensor
  };
  template <template <class, class> class Kind, class T, class Device>
  Result<T> run(Device& device) const {
    const Index count = C * config.channels;
    const BlockCapacity capacity{.B = 1, .C = C, .positions = 0};
    const auto make = [&](Layout<T>& layout) {
      return std::make_unique<Kind<Device, T>>(layout, StackShape<T>{.layers = layers}, config, capacity, 0);
    };
    Layout<T> measured;
    make(measured);
    Weights<Device, T> weights(device, measured, {.training = true}, one_process());
    DeviceMemory activations(device.memory(), measured.activation_bytes());
    Layout<T> layout(measured, weights.values(), weights.gradients(), activations.as<std::byte>(), nullptr);
    const auto stack = make(layout);
    std::uint32_t site = 3;
    for (const Parameter& parameter : layout.parameters()) {
      TensorSpec spec = spec_of(parameter);
      if (parameter.shape.size() == 2) spec.scale *= scale;
      const Array<double> values = random_values(spec, 11, site++);
      for (std::size_t i = 0; i < values.size(); ++i) {
        weights.values()[static_cast<std::size_t>(parameter.offset) + i] =
            static_cast<T>(static_cast<float>(values[i]));
      }
    }
    Result<T> result;
    for (const double x : normal(count, 1)) result.in.push_back(static_cast<T>(static_cast<float>(x)));
    for (const double d : normal(count, 2)) result.d_in.push_back(static_cast<T>(static_cast<float>(d)));
    std::copy(result.in.begin(), result.in.end(), stack->in_bcd());
    const PassContext pass{.B = 1, .C = C, .last = false};
    stack->forward(device, pass);
    result.out.assign(stack->out_bcd(), stack->out_bcd() + count);
    stack->backward(device, result.d_in.data(), pass, weights, weights.front_count());
    result.recovered.assign(stack->in_bcd(), stack->in_bcd() + count);
    for (const Parameter& parameter : layout.parameters()) {
      const T* begin = weights.gradients() + parameter.offset;
      result.gradients.emplace_back(begin, begin + parameter.count);
    }
    return result;
  }
};

template <class T>
double largest(const Array<T>& numbers) {
  return distance(numbers, Array<T>(numbers.size(), T(0)));
}

// Largest error of all tensors, relative to the largest entry of the tensor; NaN if any number is NaN.
template <class T>
double worst_gradient(const std::vector<Array<T>>& got, const std::vector<Array<double>>& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = distance(got[i], expected[i]) / largest(expected[i]);
    worst = error <= worst ? worst : error;
  }
  return worst;
}

TEST_CASE("reversible: gradients equal those with all streams saved", "[reversible]") {
  const auto check = [](auto& device) {
    for (const Index layers : {1, 2, 7}) {
      CAPTURE(layers);
      const Walk walk{layers, 1};
      const auto got = walk.run<ReversibleStack, double>(device);
      const auto kept = walk.run<KeptStack, double>(device);
      CHECK_FALSE(!(distance(got.out, kept.out) <= 1e-13 * largest(kept.out)));
      CHECK_FALSE(!(distance(got.d_in, kept.d_in) <= 1e-12 * largest(kept.d_in)));
      CHECK_FALSE(!(worst_gradient(got.gradients, kept.gradients) <= 1e-12));
      CHECK_FALSE(!(distance(got.recovered, got.in) <= 1e-12 * largest(got.in)));
      CHECK(largest(kept.d_in) > 1e-3);
    }
  };
  PlainDevice plain;
  check(plain);
  Reference cpu(2);
  check(cpu);
}

// The chapter's table; build/tests "reversible: the drift*" -s prints it. Bounds are a few times the measured errors.
TEST_CASE("reversible: the drift of the reconstructed streams", "[reversible]") {
  struct Row {
    double scale;
    Index layers;
    double in_double, in_float, gradients, kept;  // bounds
  };
  const Row rows[] = {{1, 2, 3e-14, 5e-6, 5e-6, 5e-6},  {1, 8, 1e-13, 5e-5, 5e-5, 2e-5},
                      {1, 32, 3e-13, 2e-4, 2e-4, 4e-5}, {2, 2, 2e-13, 1e-4, 5e-5, 2e-5},
                      {2, 8, 5e-12, 5e-3, 2e-3, 5e-4},  {2, 32, 2e-11, 1e-2, 4e-3, 5e-4}};
  Reference device(2);
  for (const Row& row : rows) {
    const Walk walk{row.layers, row.scale};
    const auto exact = walk.run<KeptStack, double>(device);
    const auto wide = walk.run<ReversibleStack, double>(device);
    const auto narrow = walk.run<ReversibleStack, float>(device);
    const auto kept = walk.run<KeptStack, float>(device);
    const double size = largest(exact.in);
    const double in_double = distance(wide.recovered, wide.in) / size;
    const double in_float = distance(narrow.recovered, narrow.in) / size;
    const double undone = worst_gradient(narrow.gradients, exact.gradients);
    const double stored = worst_gradient(kept.gradients, exact.gradients);
    INFO("drift: weights " << row.scale << ", layers " << row.layers << ": input in double " << in_double
                           << ", in float " << in_float << "; gradients in float " << undone << ", with all kept "
                           << stored);
    CHECK_FALSE(!(in_double <= row.in_double));
    CHECK_FALSE(!(in_float <= row.in_float));
    CHECK_FALSE(!(undone <= row.gradients));
    CHECK_FALSE(!(stored <= row.kept));
    CHECK(in_float > 0);  // it is reconstructed, not saved
  }
}

// The config of a reversible network: the preset with its 4 layers, or with another number of layers.
ModelConfig deep(const std::string& mixer, Index layers, const std::string& changes = "") {
  ModelConfig config = changed(Preset("tiny").model, "mixer=" + mixer + " reversible=1 " + needs_of(mixer) + changes);
  config.layers = layers;
  return config;
}
NetworkMemory memory_of(const ModelConfig& config, const NetworkCapacity& capacity) {
  return Network<Reference, float>::memory(Reference(1), config, capacity);
}
double rest(const NetworkMemory& memory) {
  return static_cast<double>(memory.activation_bytes + memory.border_bytes + memory.workspace_bytes);
}

TEST_CASE("reversible: checkpoints have the key only if the setting is on", "[reversible][config]") {
  CHECK(ModelConfig().metadata().count("reversible") == 0);
  CHECK(ModelConfig::from_metadata({{"reversible", "1"}}, "file").metadata().at("reversible") == "1");
}

TEST_CASE("reversible: memory of 32 layers equals that of 4", "[reversible][memory]") {
  for (const MixerProperties& mixer : Mixers::properties) {
    for (const std::string& positions : all_positions()) {
      const std::string changes = "positions=" + positions;
      const NetworkCapacity capacity{.B = 12, .C = 64, .training = true};
      const NetworkMemory few = memory_of(deep(mixer.name, 4, changes), capacity);
      const NetworkMemory many = memory_of(deep(mixer.name, 32, changes), capacity);
      const NetworkMemory kept = memory_of(deep(mixer.name, 4, changes + " reversible=0"), capacity);
      INFO("memory: " << mixer.name << ", " << positions << ": 4 layers " << few.activation_bytes << " bytes, 32 "
                      << many.activation_bytes << ", without two streams 4 layers " << kept.activation_bytes);
      CHECK_FALSE(!(static_cast<double>(many.activation_bytes) <= 1.3 * static_cast<double>(few.activation_bytes)));
      CHECK_FALSE(!(rest(many) <= 1.3 * rest(few)));
      CHECK(few.activation_bytes < kept.activation_bytes);
    }
  }
}

TEST_CASE("reversible: in chunks, memory hardly grows with the sequence length", "[reversible][memory]") {
  for (const char* mixer : {"additive", "leap", "average"}) {
    const auto memory = [&](Index C) {
      return memory_of(deep(mixer, 4, "positions=none context=65536"), {.C = C, .training = true, .chunk = 1024});
    };
    const NetworkMemory few = memory(8192), many = memory(65536);
    INFO("memory: " << mixer << ": " << rest(few) << " bytes at 8,192, " << rest(many) << " at 65,536, of these "
                    << few.border_bytes << " and " << many.border_bytes << " for borders");
    CHECK(many.activation_bytes == few.activation_bytes);
    CHECK_FALSE(!(rest(many) <= 1.3 * rest(few)));
  }
}

// The sequence of a classifier, of which only the mean of all positions has a target.
TEST_CASE("reversible: every gradient of a classifier", "[reversible]") {
  for (const std::string pooling : {"mean", "cls"}) {
    NetworkCase network = network_case("dot,additive", "0", 2, "reversible=1 causal=0 classes=3 pooling=" + pooling);
    network.masked = false;
    const Array<double> weights = network.weights();
    const std::vector<Token> labels = {2, 0};
    const std::vector<Token> tokens = network.tokens_bc();
    const PassContext pass{.B = network.B, .C = network.C};
    const auto loss_of = [&]<class Device, class T>(Network<Device, T>& net) {
      const DeviceBatch<T> batch{tokens.data(), labels.data()};
      net.forward(batch, pass);
      return *net.loss(batch, 0.1, pass).mean;
    };
    Reference device(1);
    Network<Reference, double> net(device, network.config, {.B = network.B, .C = network.C, .training = true});
    for (std::size_t i = 0; i < weights.size(); ++i) net.weights().values()[i] = weights[i];
    loss_of(net);
    net.backward({tokens.data(), labels.data()}, 0.1, pass);

    CpuDevice<Isa::scalar> scalar(1);
    Network<CpuDevice<Isa::scalar>, Dual> dual(scalar, network.config, {.B = network.B, .C = network.C});
    for (std::size_t i = 0; i < weights.size(); ++i) dual.weights().values()[i] = Dual(weights[i]);
    double norm = 0, expected = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double gradient = net.weights().gradients()[i], step = normal_number(51, i, 0, 1000);
      dual.weights().values()[i].derivative = step;
      expected += step * gradient;
      norm += gradient * gradient;
    }
    CHECK(norm > 1e-4);
    CHECK_FALSE(!(std::abs(loss_of(dual).derivative - expected) <= 1e-11 * std::sqrt(norm)));
  }
}

const Arguments everything = words(
    "--reversible 1 --layers 3 --mixer additive,dot,leap --conv-kernel 3 --positions alibi --dropout 0.2 --batch 4 "
    "--chunk 5 --weight-average 3 --seed 5");

TEST_CASE("reversible: a resumed run has the bits of an uninterrupted run", "[reversible][programs]") {
  const Workplace place;
  const Arguments flags = with(with(smallest, {"--data", place.data, "--steps", "30"}), everything);
  check_interrupted_run(flags, "step 9/", place);
}

TEST_CASE("reversible: a trained model generates, is evaluated and starts another run", "[reversible][programs]") {
  const Workplace place;
  const Outcome outcome = require_success(train(place.flags(everything)));
  CHECK(model_of(place.run).config.reversible);
  generated({"--checkpoint", place.run, "--prompt", "a", "--tokens", "9"});
  require_success(evaluate({"--checkpoint", place.run, "--data", place.data}));
  const std::string other = place / "other";
  require_success(train(with(place.flags(everything), {"--out", other, "--init-from", place.run})));
}

TEST_CASE("reversible: irreversible settings are refused in one line", "[reversible][programs]") {
  const Workplace place;
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"--additive-skip normed", {"--reversible: expected --additive-skip stream, found normed"}},
      {"--norm post", {"--reversible: expected --norm pre, found post"}},
      {"--type bf16 --device emulated", {"--reversible: expected --type float, found bf16", "0.84"}}};
  for (const auto& [flags, expected] : cases) {
    INFO(flags);
    require_refusal(train(place.flags(with(words(flags), {"--reversible", "1"}))), 2, expected);
    CHECK_FALSE(exists(place.run));
  }
}

}  // namespace
}  // namespace abh
