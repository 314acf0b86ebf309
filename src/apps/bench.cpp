// bench: measures the speed of training and of each layer, compared with the peak rates of the machine.

#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "apps/bench/counts.hpp"
#include "apps/bench/layers.hpp"
#include "apps/bench/results.hpp"
#include "apps/bench/timing.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "device/available.hpp"
#include "device/choice.hpp"
#include "device/pages.hpp"
#include "device/peaks.hpp"
#include "device/threads.hpp"
#include "files/atomic_file.hpp"
#include "network/devices.hpp"
#include "network/initial_weights.hpp"
#include "network/mixer_flags.hpp"
#include "network/mixers.hpp"
#include "program/flags.hpp"
#include "program/machine_flags.hpp"
#include "program/run_program.hpp"
#include "settings/config.hpp"
#include "settings/presets.hpp"
#include "settings/setting_flags.hpp"

namespace abh {
namespace {

// Flops of a training step: 6 per matrix parameter and token, plus 12 C D / 2 per attention layer and token.
double training_flops(const ModelConfig& config, Index tokens) {
  double parameters = 0;
  for (const Parameter& parameter : parameter_table(config)) {
    if (decays(parameter.kind)) parameters += static_cast<double>(parameter.count);
  }
  double attention = 0;
  for (const MixerProperties& mixer : mixer_properties(config)) {
    if (!mixer.has_scores) continue;
    const Index H = config.heads * config.mixer_head_channels();
    attention += 6.0 * static_cast<double>(config.context * H);
  }
  return (6 * parameters + attention) * static_cast<double>(tokens);
}

// Selection and settings of the measurements.
struct BenchSettings {
  DeviceChoice device;
  ModelConfig config;
  TrainingConfig training;
  bool recompute = false;
  bool every_mixer = true;  // true: a training step with each mixer; false: with the mixer of the configuration
  bool each_layer = true;   // false: only the training step and the peaks
  double seconds = 0.2;
  bool counts = false;  // true: only count the memory accesses of kernels
  Index counted_batch = 1;
  double copy_terabytes_per_s = 4.2;
};

// The configuration with each mixer, or unchanged.
std::vector<ModelConfig> configs_of(const BenchSettings& s) {
  if (!s.every_mixer) return {s.config};
  std::vector<ModelConfig> configs;
  for (const MixerProperties& mixer : Mixers::properties) {
    configs.push_back(mixer.name == s.config.mixer ? s.config : with_mixer(s.config, mixer.name));
  }
  return configs;
}

// A model with initial weights, and a batch.
struct FirstStep {
  NetworkMemory memory;
  std::unique_ptr<Model> model;
  Batch batch;
};
FirstStep first_step(const BenchSettings& s, const ModelConfig& config) {
  const NetworkCapacity capacity = training_capacity(config, s.training, s.recompute);
  FirstStep first{model_memory(s.device, config, capacity, s.training.type), nullptr, {}};
  require_memory(host_bytes(s.device, first.memory));
  reset_peak_memory();
  first.model = make_model(s.device, config, capacity, s.training.dropout, s.training.type);
  first.model->write(Model::Arena::weights,
                     initial_weights(parameter_table(config), config, s.training.init_std, s.training.seed));
  std::vector<Token> token_bc(static_cast<std::size_t>(s.training.batch * config.context));
  for (std::size_t i = 0; i < token_bc.size(); ++i) {
    token_bc[i] = static_cast<Token>(philox_word(s.training.seed, i, 0, sites::batch) % config.vocabulary);
  }
  first.batch = batch_of_sequences(config.context, token_bc, token_bc);
  return first;
}

// Measures one row per mixer.
void bench_steps(const BenchSettings& s, const PeakRate& peak, Results& results) {
  for (const ModelConfig& one : configs_of(s)) {
    const FirstStep first = first_step(s, one);
    results.device = first.model->device_name();
    const Index tokens = s.training.batch * one.context;
    Index step = 0;
    long faults_before = 0;
    const auto make_step = [&] {
      first.model->train_step(first.batch, s.training, step % s.training.steps);
      if (++step == 1) faults_before = page_faults();
    };
    const double flops = training_flops(one, tokens);
    const bool slow = s.device.device == "emulated" || s.device.device == "plain";
    const Timing timing = median_timing((peak ? 8 : 4) * s.seconds, flops, peak, make_step, slow ? 1 : 5);
    const double faults = static_cast<double>(page_faults() - faults_before) / static_cast<double>(step - 1);
    results.steps.push_back(
        {one.mixer, timing, static_cast<Index>(1e3 * static_cast<double>(tokens) / timing.milliseconds), flops,
         static_cast<double>(first.memory.activation_bytes) / static_cast<double>(tokens), peak_memory(), faults});
  }
}

#if defined(ABH_COUNTS)
CountedStep counted_step(BenchSettings s, const ModelConfig& config, Index sequences) {
  s.training.batch = sequences;
  const FirstStep first = first_step(s, config);
  emulator::take_counts();
  first.model->train_step(first.batch, s.training, 0);
  return {sequences, traffic_of(emulator::take_counts())};
}

// Prints one table per mixer.
void print_counts(const BenchSettings& s) {
  const Index batch = s.training.batch, few = std::min(s.counted_batch, batch);
  std::printf("%s of a training step: %lld sequences of %lld\n", few == batch ? "counted" : "reckoned",
              static_cast<long long>(batch), static_cast<long long>(s.config.context));
  if (few < batch) {
    std::printf("from steps of %lld and %lld sequences that were counted, along the straight line through both\n",
                static_cast<long long>(few), static_cast<long long>(2 * few));
  }
  for (const ModelConfig& config : configs_of(s)) {
    std::printf("\nmixer %s, %s\n", config.mixer.c_str(), s.training.type.c_str());
    const CountedStep one = counted_step(s, config, few);
    print_traffic(few == batch ? one.kernels : traffic_at(batch, one, counted_step(s, config, 2 * few)),
                  1e12 * s.copy_terabytes_per_s);
  }
}
#endif

template <class T, Isa isa>
void bench_on(std::type_identity<CpuDevice<isa>>, const BenchSettings& s, Results& results) {
  constexpr bool narrow = !std::is_same_v<T, Accum<T>>;
  CpuDevice<isa> device(working_threads(s.device), Mode::compute, narrow ? best_unit() : isa);
  const PeakRate peak = [&](double seconds) {
    return narrow ? narrow_product_rate(device, seconds) : multiply_add_rate(device, seconds);
  };
  if (narrow) results.type = s.training.type;
  if (device.unit != isa) results.peaks = {"bf16 product", "bf16_product_flops_per_s"};
  for (int repeat = 0; repeat < 20; ++repeat) {
    const double window = 5e-3;  // seconds; in the first windows, sleeping threads wake up
    results.peaks.flops_per_s = std::max(results.peaks.flops_per_s, peak(window));
  }
  bench_steps(s, peak, results);
  results.peaks.copy_bytes_per_s = copy_rate(device, std::size_t{64} << 20);
  if (!s.each_layer) return;
  LayerBench<CpuDevice<isa>, T>(device, s.config, s.training.batch, s.seconds, peak, results.layers).run();
}

// No comparison with peaks: the plain loops are not optimised.
template <class T>
void bench_on(std::type_identity<PlainDevice>, const BenchSettings& s, Results& results) {
  PlainDevice device;
  const PeakRate no_peak;
  bench_steps(s, no_peak, results);
  if (!s.each_layer) return;
  LayerBench<PlainDevice, T>(device, s.config, s.training.batch, s.seconds, no_peak, results.layers).run();
}

#if defined(ABH_CUDA) || defined(ABH_EMULATOR)
template <class T, Backend backend>
void bench_on(std::type_identity<GpuDevice<backend>>, const BenchSettings& s, Results& results) {
  using Device = GpuDevice<backend>;
  const PeakRate no_peak;
  bench_steps(s, no_peak, results);
  results.type = s.training.type;
  results.peaks = {"matrix product", "matrix_product_flops_per_s"};
  if (backend == Backend::cuda) {
    // The peak is that of the library, also if the layers use the kernels of this project.
    Device device(GemmChoice::library);
    results.peaks.flops_per_s = matrix_product_rate<Device, T>(device, 8192);
    results.peaks.copy_bytes_per_s = copy_rate(device, std::size_t{1} << 30);
  }
  if (!s.each_layer) return;
  Device device(gemm_called<backend>(s.device.gemm));
  LayerBench<Device, T>(device, s.config, s.training.batch, s.seconds, no_peak, results.layers).run();
}
#endif

// Replaces this process by tools/pytorch_reference.py, which measures the same training step in PyTorch and with this
// program, alternately. Error if that fails.
[[noreturn]] void run_peer(const std::string& python, const char* program, const std::string& preset,
                           const BenchSettings& s) {
  const std::string mixers = s.every_mixer ? "additive,metric,dot" : s.config.mixer;
  const std::string where = resolved_device(s.device.device);
  const std::string script = ABH_SOURCE_DIR "/tools/pytorch_reference.py";
  std::vector<std::string> words = {python,           script,
                                    "--bench",        program,
                                    "--preset",       preset,
                                    "--mixer",        mixers,
                                    "--type",         s.training.type,
                                    "--device",       where == "cuda" ? "cuda" : "cpu",
                                    "--bench-device", where,
                                    "--layers",       to_text(s.config.layers),
                                    "--channels",     to_text(s.config.channels),
                                    "--heads",        to_text(s.config.heads),
                                    "--context",      to_text(s.config.context),
                                    "--batch",        to_text(s.training.batch),
                                    "--dropout",      to_text(s.training.dropout),
                                    "--threads",      to_text(s.device.threads),
                                    "--recompute",    s.recompute ? "1" : "0",
                                    "--rounds",       "5"};
  if (where != "cuda") words.insert(words.end(), {"--modes", "eager,compile"});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execvp(python.c_str(), arguments.data());
  throw Error("--peer: " + python + " cannot be run: " + std::strerror(errno));
}

int body(int argc, char** argv) {
  std::string preset = peek_preset(argc, argv), mixer, json, peer;
  BenchSettings s;
  ModelConfig& config = s.config;
  TrainingConfig& training = s.training;
  apply_preset(preset, config, training);
  config.vocabulary = 65;  // as in Tiny Shakespeare
  Flags flags("bench",
              "Measures the speed of training and of every layer, compared with the peak rates of the machine.");
  flags.choice("preset", preset, preset_names, "preset whose sizes are measured");
  flags.text("mixer", mixer, "LIST", "mixers of the training step; none: all mixers, one after the other");
  add_model_flags(flags, config, {"layers", "channels", "heads", "context"});
  add_training_flags(flags, training, {"batch", "dropout"});
  flags.toggle("recompute", s.recompute, "recompute activations in the backward pass");
  flags.real("seconds", s.seconds, "S", "time for each measurement", {0, 3600});
  flags.toggle("each-layer", s.each_layer, "also measure every layer separately");
  flags.text("json", json, "FILE", "also write the results to this file");
  flags.text("peer", peer, "PYTHON",
             "only compare the training step with PyTorch, run by this interpreter (for example python3)");
  flags.bare("counts", s.counts,
             "only count the memory accesses of each kernel of a training step, with --device emulated, in a build "
             "with EMULATOR_COUNTS (docs/emulator.md)");
  flags.integer(
      "counted-batch", s.counted_batch, "SEQUENCES",
      "sequences of the counted step; a second step has twice as many; counts of a larger --batch are extrapolated", 1);
  flags.real("copy-rate", s.copy_terabytes_per_s, "TB_PER_S",
             "memory bandwidth of the GPU; --counts predicts a time from it", {1e-3, 1e3});
  add_machine_flags(flags, s.device);
  flags.choice("type", training.type, {"float", "bf16"},
               "data type of activations and matrix products; bf16 takes half the memory");
  flags.seed("seed", training.seed, "seed of weights and tokens");
  if (const auto status = flags.parse(argc, argv)) return *status;
  require_device(s.device);
  s.every_mixer = mixer.empty();
  if (!s.every_mixer) config.mixer = mixer;
  check_model(config);
  if (s.counts) {
#if defined(ABH_COUNTS)
    if (s.device.device != "emulated") throw UsageError("--counts: expected --device emulated");
    if (flags.given("json") || flags.given("peer")) throw UsageError("--counts: expected without --json or --peer");
    print_counts(s);
    return 0;
#else
    throw UsageError("--counts: this build cannot count operations; configure one with cmake --preset counts");
#endif
  }
  for (const char* flag : {"counted-batch", "copy-rate"}) {
    if (flags.given(flag)) throw UsageError(std::string("--") + flag + ": expected together with --counts");
  }
  if (flags.given("peer")) {
    if (peer.empty()) throw UsageError("--peer: expected a Python interpreter, found \"\"");
    for (const char* flag : {"json", "seconds", "each-layer", "seed"}) {
      if (flags.given(flag)) throw UsageError(std::string("--") + flag + ": expected without --peer");
    }
    run_peer(peer, argv[0], preset, s);
  }
  if (flags.given("json")) {
    if (json.empty()) throw UsageError("--json: expected a file, found \"\"");
    const AtomicFile probe(json);  // reports a file that cannot be written before the measurements
  }
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 1 << 20);  // memory of a model is returned to the system, so each model has its own peak
#endif
  Results results;
  // Measures training steps, peaks and layers.
  with_device_type(s.device, training.type,
                   [&]<class Device, class T>() { bench_on<T>(std::type_identity<Device>(), s, results); });
  print(results);
  if (!json.empty()) write_file_atomically(json, json_of(results));
  return 0;
}

}  // namespace
}  // namespace abh

int main(int argc, char** argv) { return abh::run_program("bench", argc, argv, abh::body); }
