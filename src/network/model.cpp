#include "network/model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#include "base/error.hpp"
#include "base/random.hpp"
#define ABH_COMPILE_NETWORKS
#include "network/networks.hpp"
#if defined(ABH_CUDA) || defined(ABH_EMULATOR)
#include "cuda/gpu_sums.hpp"
#endif

namespace abh {

namespace {

// The sum of 2^n numbers as a balanced binary tree.
double tree_sum(std::vector<double> values) {
  for (; values.size() > 1; values.resize(values.size() / 2)) {
    for (std::size_t i = 0; i < values.size() / 2; ++i) values[i] = values[2 * i] + values[2 * i + 1];
  }
  return values.front();
}

// How processes add up their gradients, while backward goes on with others: through the memory of the host, or from GPU
// to GPU.
template <class Device>
class Sums {
 public:
  Sums(Device&, Processes& processes) : processes_(processes) {}
  void begin_sum(float* values, Index count) { processes_.begin_sum(values, count); }
  void finish_sums() { processes_.finish_sums(); }

 private:
  Processes& processes_;
};
#if defined(ABH_CUDA) || defined(ABH_EMULATOR)
template <Backend backend>
class Sums<GpuDevice<backend>> : public GpuSums<backend> {
  using GpuSums<backend>::GpuSums;
};
#endif

template <class Device, class T>
class ModelOn : public Model {
 public:
  ModelOn(std::unique_ptr<Device> device, std::string device_name, const ModelConfig& config,
          const NetworkExtent& extent, double dropout, Processes& processes)
      : device_(std::move(device)),
        device_name_(std::move(device_name)),
        processes_(processes),
        sums_(*device_, processes),
        extent_(extent),
        network_(*device_, config, extent, dropout),
        tokens_bc_(device_->memory(), static_cast<std::size_t>(extent.shards * extent.B * extent.C) * sizeof(Token)),
        targets_bc_(device_->memory(), static_cast<std::size_t>(extent.shards * extent.B * extent.C) * sizeof(Token)),
        state_(device_->memory(), sizeof(StepState)),
        count_(device_->memory(), sizeof(Index)),
        losses_(device_->memory(), static_cast<std::size_t>(extent.shards * pieces(extent.B)) * sizeof(Accum<T>)),
        logits_v_(static_cast<std::size_t>(config.vocabulary)) {}

  std::string device_name() const override { return device_name_; }
  Index weight_count() const override { return network_.weight_count(); }

  std::vector<float> read(Arena arena) override {
    if (arena == Arena::weights) return network_.read_weights();
    std::vector<float> values(static_cast<std::size_t>(weight_count()));
    device_->copy_to_host(values.data(), beside_weights(arena), weight_count());
    return values;
  }
  void write(Arena arena, const std::vector<float>& values) override {
    if (arena == Arena::weights) return network_.write_weights(values);
    device_->copy_from_host(beside_weights(arena), values.data(), weight_count());
  }

  StepResult train_step(const std::vector<Token>& tokens_bc, const std::vector<Token>& targets_bc,
                        const TrainingConfig& training, Index step) override {
    StepState state;
    state.seed = training.seed;
    state.step = static_cast<std::uint32_t>(step);
    state.learning_rate = static_cast<float>(learning_rate_at(training, step));
    set_adamw_corrections(state, AdamwSettings{training.beta1, training.beta2});
    if (extent_.average) set_average_share(state, training.weight_average);
    StepState* device_state = state_.as<StepState>();
    device_->copy_from_host_later(device_state, &state, 1);
    const std::vector<Index> counts = counts_of_pieces(targets_bc);
    const Index count = std::accumulate(counts.begin(), counts.end(), Index{0});
    device_->copy_from_host_later(count_.as<Index>(), &count, 1);
    Pass pass = send(part_of(tokens_bc), part_of(targets_bc), training.dropout > 0 ? device_state : nullptr);
    const Index first_b = processes_.rank() * pass.B;
    pass.B /= extent_.shards;
    pass.count = count_.as<Index>();
    step_.run(*device_, [&] {
      for (Index shard = 0; shard < extent_.shards; ++shard) {
        pass.first_b = first_b + shard * pass.B;
        const Token* shard_tokens = tokens() + shard * pass.BC();
        const Token* shard_targets = targets() + shard * pass.BC();
        Accum<T>* shard_losses = losses() + shard * pieces(pass.B);
        differentiate(
            network_, shard_tokens, shard_targets, training.label_smoothing, pass,
            [&](Index b, Index j, const Pass&, const auto& loss) {
              device_->copy(shard_losses + b * extent_.chunks() + j, loss.mean, 1);
            },
            [&](Index begin, Index end) {
              network_.add_shard(shard, begin, end);
              if (shard + 1 == extent_.shards) sums_.begin_sum(network_.gradients() + begin, end - begin);
            });
      }
      sums_.finish_sums();
      network_.measure_gradient(training, device_state);
      network_.update(training, device_state);
    });
    device_->copy_to_host(&state, device_state, 1);
    return {mean_loss(counts), state.gradient_norm};
  }

  LossSum evaluate(const std::vector<Token>& tokens_bc, const std::vector<Token>& targets_bc) override {
    LossSum all{0, 0};
    compute_losses(tokens_bc, targets_bc, [&](Index, Index, const Pass&, const auto& loss) {
      Accum<T> mean = 0;
      Index count = 0;
      device_->copy_to_host(&mean, loss.mean, 1);
      device_->copy_to_host(&count, loss.count, 1);
      all.sum += static_cast<double>(mean) * static_cast<double>(count);
      all.count += count;
    });
    return all;
  }

  std::vector<float> losses(const std::vector<Token>& tokens_bc, const std::vector<Token>& targets_bc) override {
    std::vector<float> loss_bc(targets_bc.size());
    compute_losses(tokens_bc, targets_bc, [&](Index b, Index, const Pass& pass, const auto& loss) {
      device_->copy_to_host(loss_bc.data() + b * extent_.C + pass.first_c, loss.each_bc, pass.BC());
    });
    return loss_bc;
  }

  void start() override { network_.start(); }
  std::span<const float> step(Token token, Index position) override {
    device_->copy_from_host_later(tokens(), &token, 1);
    return to_host(network_.step(tokens(), position));
  }
  std::span<const float> read(std::span<const Token> tokens_c) override {
    const Chunks chunks({.B = 1, .C = static_cast<Index>(tokens_c.size())}, extent_.chunk);
    for (Index j = 0; j < chunks.of_sequence(); ++j) {
      const Pass pass = chunks.pass(0, j);
      device_->copy_from_host_later(tokens(), tokens_c.data() + pass.first_c, pass.C);
      network_.run_blocks(tokens(), pass);
    }
    return to_host(network_.go_on(chunks.pass(0, chunks.of_sequence() - 1)));
  }

 private:
  std::span<const float> to_host(const T* logits_v) {
    if constexpr (std::is_same_v<T, float>) {
      device_->copy_to_host(logits_v_.data(), logits_v, static_cast<Index>(logits_v_.size()));
    } else {
      std::vector<T> narrow(logits_v_.size());
      device_->copy_to_host(narrow.data(), logits_v, static_cast<Index>(narrow.size()));
      logits_v_.assign(narrow.begin(), narrow.end());
    }
    return logits_v_;
  }

  Token* tokens() const { return tokens_bc_.template as<Token>(); }
  Token* targets() const { return targets_bc_.template as<Token>(); }
  Accum<T>* losses() const { return losses_.template as<Accum<T>>(); }

  // A batch, from the host to where the network finds it. It need not be waited for: whoever sends one waits for
  // numbers that are made of it.
  Pass send(std::span<const Token> tokens_bc, std::span<const Token> targets_bc, const StepState* state) {
    device_->copy_from_host_later(tokens(), tokens_bc.data(), static_cast<Index>(tokens_bc.size()));
    device_->copy_from_host_later(targets(), targets_bc.data(), static_cast<Index>(targets_bc.size()));
    return {.B = static_cast<Index>(tokens_bc.size()) / extent_.C, .C = extent_.C, .state = state};
  }
  // Without dropout or smoothing, chunk by chunk where the model was built for that.
  template <class Seen>
  void compute_losses(const std::vector<Token>& tokens_bc, const std::vector<Token>& targets_bc, const Seen& seen) {
    const Pass pass = send(tokens_bc, targets_bc, nullptr);
    run_in_chunks(network_, tokens(), targets(), 0, pass, seen);
  }
  // Parts of B sequences that have a loss of their own: chunks, or all of it.
  Index pieces(Index B) const { return extent_.chunk ? B * extent_.chunks() : 1; }
  // Of a batch, the sequences of this process.
  std::span<const Token> part_of(const std::vector<Token>& rows_bc) const {
    const std::size_t size = rows_bc.size() / static_cast<std::size_t>(processes_.size());
    return std::span(rows_bc).subspan(static_cast<std::size_t>(processes_.rank()) * size, size);
  }
  // Of every piece of every shard: how many of its targets count.
  std::vector<Index> counts_of_pieces(const std::vector<Token>& targets_bc) const {
    const auto C = extent_.chunk ? extent_.C : extent_.B * extent_.C, S = extent_.chunk ? extent_.chunk : C;
    std::vector<Index> counts;
    for (auto row = targets_bc.begin(); row != targets_bc.end(); row += C) {
      for (Index first = 0; first < C; first += S) {
        const Index size = std::min(S, C - first);
        counts.push_back(size - std::count(row + first, row + first + size, ignored_target));
      }
    }
    return counts;
  }
  // Of the batch, from the means of its pieces; shards are summed as their gradients are. A mean is a float: for one
  // piece, the product with its count and the quotient are exact.
  double mean_loss(const std::vector<Index>& counts) {
    const std::size_t of_shard = counts.size() / static_cast<std::size_t>(extent_.shards * processes_.size());
    std::vector<Accum<T>> means(static_cast<std::size_t>(extent_.shards) * of_shard);
    device_->copy_to_host(means.data(), losses(), static_cast<Index>(means.size()));
    const std::size_t first = static_cast<std::size_t>(processes_.rank()) * means.size();
    std::vector<double> sums(static_cast<std::size_t>(extent_.shards));
    for (std::size_t i = 0; i < means.size(); ++i) {
      sums[i / of_shard] += static_cast<double>(means[i]) * static_cast<double>(counts[first + i]);
    }
    double sum = tree_sum(sums);
    processes_.sum(&sum, 1);
    const Index count = std::accumulate(counts.begin(), counts.end(), Index{0});
    return count > 0 ? sum / static_cast<double>(count) : 0;
  }
  float* beside_weights(Arena arena) {
    if (arena == Arena::average) return network_.averages();
    return arena == Arena::first_moments ? network_.first_moments() : network_.second_moments();
  }

  std::unique_ptr<Device> device_;
  std::string device_name_;
  Processes& processes_;
  Sums<Device> sums_;
  NetworkExtent extent_;
  Network<Device, T> network_;
  DeviceMemory tokens_bc_, targets_bc_, state_, count_, losses_;
  std::vector<float> logits_v_;      // of the last step
  typename Device::Recording step_;  // gone before what it works with
};

template <Isa isa>
std::unique_ptr<CpuDevice<isa>> make_device(std::type_identity<CpuDevice<isa>>, const DeviceChoice& choice, Work work) {
  return std::make_unique<CpuDevice<isa>>(working_threads(choice), work);
}
template <Isa isa>
std::string name_of(const CpuDevice<isa>& device, const DeviceChoice&, const std::string&) {
  const Index threads = device.threads.count();
  return std::string("cpu, ") + isa_name(isa) + ", " + std::to_string(threads) +
         (threads == 1 ? " thread" : " threads");
}

std::unique_ptr<PlainDevice> make_device(std::type_identity<PlainDevice>, const DeviceChoice&, Work) {
  return std::make_unique<PlainDevice>();
}
std::string name_of(const PlainDevice&, const DeviceChoice&, const std::string&) { return "plain"; }

#if defined(ABH_CUDA) || defined(ABH_EMULATOR)
template <Backend backend>
std::unique_ptr<GpuDevice<backend>> make_device(std::type_identity<GpuDevice<backend>>, const DeviceChoice& choice,
                                                Work work) {
  const GemmChoice gemm = choice.gemm == "hand" ? GemmChoice::hand : GemmChoice::library;
  return std::make_unique<GpuDevice<backend>>(gemm, work, choice.gpu);
}
template <Backend backend>
std::string name_of(const GpuDevice<backend>& device, const DeviceChoice& choice, const std::string& type) {
  return resolved_device(choice.device) + ", " + device.name() + ", " + type;
}
#endif

// body.operator()<T>(device): the number type and the device that are chosen.
template <class Body>
auto with_device(const DeviceChoice& choice, const std::string& type, Work work, const Body& body) {
  require_device(choice, type);
  return with_device_type(choice, type, [&]<class Device, class T>() {
    return body.template operator()<T>(make_device(std::type_identity<Device>(), choice, work));
  });
}

using AnyNetwork = Network<CpuDevice<Isa::baseline>, float>;  // the table is the same on every device

}  // namespace

void add_machine_flags(Flags& flags, DeviceChoice& choice) {
  flags.section("Machine");
  flags.choice(
      "device", choice.device, {"auto", "plain", "cpu", "cuda", "emulated"},
      "where to compute; plain: the loops as the equations have them, slowly; auto: cuda if it is there, else cpu");
  for (const char* word : {"cpu", "gpu", "cuda"}) flags.also_called(word, "device");
  flags.integer("threads", choice.threads, "N", "threads of the CPU device; no more than there are processors work", 1,
                256);
  flags.environment("ATTENTION_ISA", "instruction set of the CPU device: " + isa_choices() +
                                         "; without it the widest that the machine has");
  flags.choice("gemm", choice.gemm, {"library", "hand"}, "matrix products of the CUDA device: cuBLASLt's or ours");
}

Index working_threads(const DeviceChoice& choice) { return std::min(choice.threads, available_threads()); }

std::string machine_text(const DeviceChoice& choice, const std::string& type) {
  const std::string device = resolved_device(choice.device);
  if (device == "cuda") return device + ", " + type + ", " + choice.gemm + " matrix products";
  if (device != "cpu") return device + ", " + type;
  const Index working = working_threads(choice);
  std::string text = device + " (" + isa_name(best_isa()) + "), " + type + ", " + to_text(working) +
                     (working == 1 ? " thread" : " threads");
  if (working < choice.threads) {
    text += " (" + to_text(choice.threads) + " asked for; more than there are processors only wait for each other)";
  }
  return text;
}

std::string resolved_device(const std::string& device) {
  if (device != "auto") return device;
#if defined(ABH_CUDA)
  if (gpu_available<Backend::cuda>()) return "cuda";
#endif
  return "cpu";
}

bool joins_processes([[maybe_unused]] const DeviceChoice& choice) {
#if defined(ABH_CUDA)
  if (resolved_device(choice.device) == "cuda") return has_gpu_sums<Backend::cuda>();
#endif
  return true;
}

void require_device(const DeviceChoice& choice, const std::string& type) {
  const std::string device = resolved_device(choice.device);
#if defined(ABH_CUDA)
  if (device == "cuda" && !gpu_available<Backend::cuda>()) {
    throw Error("--device cuda: this machine has no GPU that CUDA can use");
  }
#else
  if (device == "cuda") {
    throw Error("--device cuda: this build has no CUDA device; build it with cmake -DBUILD_CUDA=ON");
  }
#endif
#if !defined(ABH_EMULATOR)
  if (device == "emulated") {
    throw Error("--device emulated: this build has no emulated CUDA device; build it with cmake -DBUILD_EMULATOR=ON");
  }
#endif
  if ((device == "cpu" || device == "plain") && type != "float") {
    // Unless the device is what `auto` found.
    throw Error("--type " + type + ": the CPU computes in float; expected --device cuda or emulated",
                choice.device == device ? 2 : 1);
  }
}

std::unique_ptr<Model> make_model(const DeviceChoice& choice, const ModelConfig& config, const NetworkExtent& extent,
                                  double dropout, const std::string& type, Processes& processes) {
  return with_device(
      choice, type, Work::done, [&]<class T, class Device>(std::unique_ptr<Device> device) -> std::unique_ptr<Model> {
        const std::string name = name_of(*device, choice, type);
        return std::make_unique<ModelOn<Device, T>>(std::move(device), name, config, extent, dropout, processes);
      });
}

NetworkExtent training_extent(const ModelConfig& config, const TrainingConfig& training, bool recompute,
                              Index processes) {
  const bool muon = training.optimizer == "muon";
  return {.B = training.batch / training.shards,
          .C = config.context,
          .training = true,
          .muon = muon,
          .average = training.weight_average > 0,
          .recompute = recompute,
          .shards = training.shards / processes,
          .chunk = training.chunk,
          .truncated = training.truncated};
}

std::vector<Parameter> parameter_table(const ModelConfig& config) { return AnyNetwork::parameter_table(config); }

NetworkMemory model_memory(const DeviceChoice& choice, const ModelConfig& config, const NetworkExtent& extent,
                           const std::string& type) {
  DeviceChoice counted = choice;
  // Plain loops take no step without numbers: what the CPU's layers take stands for them.
  if (counted.device == "plain") counted.device = "cpu";
  return with_device(counted, type, Work::counted, [&]<class T, class Device>(const std::unique_ptr<Device>& device) {
    return Network<Device, T>::memory(*device, config, extent);
  });
}

std::size_t host_bytes(const DeviceChoice& choice, const NetworkMemory& memory) {
  return resolved_device(choice.device) == "cuda" ? 0 : memory.total();
}

void require_memory(std::size_t wanted, std::size_t taken, bool in_chunks) {
  const std::size_t free = available_memory(), most = std::numeric_limits<std::size_t>::max();
  const std::size_t available = free > most - taken ? most : free + taken;
  if (wanted <= available) return;
  const auto megabytes = [](std::size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; };
  throw Error("out of memory: this needs " + megabytes(wanted) + ", available are " + megabytes(available) +
              "; a smaller --batch, --context or --channels needs less, and so " +
              (in_chunks ? "do --recompute 1 and a short --chunk" : "does --recompute 1"));
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
