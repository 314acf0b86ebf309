#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "cpu/cpu.hpp"
#include "error.hpp"
#include "isa.hpp"
#include "network.hpp"
#include "random.hpp"

namespace abh {

namespace {

template <class Device, class T>
class ModelOn : public Model {
 public:
  ModelOn(std::unique_ptr<Device> device, std::string device_name, const ModelConfig& config,
          const NetworkExtent& extent, double dropout)
      : device_(std::move(device)),
        device_name_(std::move(device_name)),
        extent_(extent),
        vocabulary_(config.vocabulary),
        network_(*device_, config, extent, dropout) {}

  std::string device_name() const override { return device_name_; }
  Index weight_count() const override { return network_.weight_count(); }

  std::vector<float> read(Arena arena) override {
    std::vector<float> values(static_cast<std::size_t>(weight_count()));
    device_->copy_to_host(values.data(), arena_of(arena), weight_count());
    return values;
  }
  void write(Arena arena, const std::vector<float>& values) override {
    device_->copy_from_host(arena_of(arena), values.data(), weight_count());
  }

  StepResult train_step(const std::vector<Token>& tokens_bc, const std::vector<Token>& targets_bc,
                        const TrainingConfig& training, Index step) override {
    StepState state;
    state.seed = training.seed;
    state.step = static_cast<std::uint32_t>(step);
    state.learning_rate = static_cast<float>(learning_rate_at(training, step));
    set_adamw_corrections(state, AdamwSettings{training.beta1, training.beta2});
    const Pass pass = pass_of(tokens_bc, training.dropout > 0 ? &state : nullptr);
    network_.forward(tokens_bc.data(), pass);
    const double loss = *network_.loss(targets_bc.data(), training.label_smoothing, pass).mean;
    if (!std::isfinite(loss)) return {loss, std::numeric_limits<double>::quiet_NaN()};
    network_.backward(tokens_bc.data(), targets_bc.data(), training.label_smoothing, pass);
    network_.measure_gradient(training, &state);
    if (std::isfinite(state.gradient_norm)) network_.update(training, &state);
    return {loss, state.gradient_norm};
  }

  LossSum evaluate(const std::vector<Token>& tokens_bc, const std::vector<Token>& targets_bc) override {
    const Pass pass = pass_of(tokens_bc, nullptr);
    network_.forward(tokens_bc.data(), pass);
    const auto loss = network_.loss(targets_bc.data(), 0, pass);
    return {static_cast<double>(*loss.mean) * static_cast<double>(*loss.count), *loss.count};
  }

  void start() override { network_.start(); }
  std::span<const float> step(Token token, Index position) override {
    return {network_.step(&token, position), static_cast<std::size_t>(vocabulary_)};
  }

 private:
  Pass pass_of(const std::vector<Token>& tokens_bc, const StepState* state) const {
    return {.B = static_cast<Index>(tokens_bc.size()) / extent_.C, .C = extent_.C, .state = state};
  }
  T* arena_of(Arena arena) {
    switch (arena) {
      case Arena::first_moments:
        return network_.first_moments();
      case Arena::second_moments:
        return network_.second_moments();
      case Arena::weights:
        break;
    }
    return network_.weights();
  }

  std::unique_ptr<Device> device_;
  std::string device_name_;
  NetworkExtent extent_;
  Index vocabulary_;
  Network<Device, T> network_;
};

template <Isa isa>
std::unique_ptr<Model> make_cpu_model(Index threads, const ModelConfig& config, const NetworkExtent& extent,
                                      double dropout) {
  const std::string name =
      std::string("cpu, ") + isa_name(isa) + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  return std::make_unique<ModelOn<CpuDevice<isa>, float>>(std::make_unique<CpuDevice<isa>>(threads), name, config,
                                                          extent, dropout);
}

using AnyNetwork = Network<CpuDevice<Isa::baseline>, float>;  // the table is the same on every device

// The number in a file that holds nothing else ("max" for none), as control groups have it.
std::size_t number_in(const char* path) {
  std::size_t number = 0;
  if (std::ifstream file(path); file >> number) return number;
  return std::numeric_limits<std::size_t>::max();
}

}  // namespace

std::unique_ptr<Model> make_model(const std::string& device, Index threads, const ModelConfig& config,
                                  const NetworkExtent& extent, double dropout) {
  if (device == "cuda") throw Error("--device cuda: this build has no CUDA device");
  if (device == "emulated") throw Error("--device emulated: this build has no emulated CUDA device");
  switch (best_isa()) {
#if defined(ABH_X86)
    case Isa::avx512:
      return make_cpu_model<Isa::avx512>(threads, config, extent, dropout);
    case Isa::avx2:
      return make_cpu_model<Isa::avx2>(threads, config, extent, dropout);
#endif
    default:
      return make_cpu_model<Isa::baseline>(threads, config, extent, dropout);
  }
}

std::vector<Parameter> parameter_table(const ModelConfig& config) { return AnyNetwork::parameter_table(config); }

NetworkMemory model_memory(const ModelConfig& config, const NetworkExtent& extent) {
  return AnyNetwork::memory(config, extent);
}

std::size_t available_memory() {
  std::size_t available = std::numeric_limits<std::size_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key, unit; meminfo >> key;) {
    std::size_t kilobytes = 0;
    if (meminfo >> kilobytes; key == "MemAvailable:") {
      available = kilobytes * 1024;
      break;
    }
    std::getline(meminfo, unit);
  }
  // A control group counts the page cache as used, but gives its inactive part up before it refuses anything.
  const std::size_t limit = number_in("/sys/fs/cgroup/memory.max");
  std::size_t used = number_in("/sys/fs/cgroup/memory.current");
  std::ifstream statistics("/sys/fs/cgroup/memory.stat");
  std::size_t bytes = 0;
  for (std::string key; statistics >> key >> bytes;) {
    if (key == "inactive_file" && bytes <= used) used -= bytes;
  }
  if (limit != std::numeric_limits<std::size_t>::max()) {
    available = std::min(available, limit > used ? limit - used : 0);
  }
  return available;
}

void require_memory(std::size_t wanted) {
  const std::size_t available = available_memory();
  if (wanted <= available) return;
  const auto megabytes = [](std::size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; };
  throw Error("out of memory: this needs " + megabytes(wanted) + ", available are " + megabytes(available) +
              "; a smaller --batch, --context or --channels needs less");
}

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
      case Init::convolution: {
        const Index inputs = parameter.count / parameter.shape.front();
        fill_normal(1 / std::sqrt(3 * static_cast<double>(inputs)));
        break;
      }
      case Init::identity_packed: {
        // Rows of the upper triangle are K, K - 1, ... long, and each begins on the diagonal.
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
