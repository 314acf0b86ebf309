// Tests that a network and a training step use as much memory as the library counts in advance.

#include <cstdlib>
#include <limits>
#include <new>

#include "device/available.hpp"
#include "network/model.hpp"
#include "tests/harness/error_of.hpp"
#include "tests/harness/memory_rows.hpp"
#include "tests/harness/network_case.hpp"
#include "tests/harness/red_zones.hpp"
#include "tests/harness/settings.hpp"

// Counts the bytes of a network's arenas, which only the allocator knows. All arenas come from the aligned form of
// operator new. Nothing else in this file uses that form.
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

// One training step of a new network on a new device: the scratch memory that it took.
template <class T, class Device>
std::size_t peak_of_a_step(Device& device, const ModelConfig& config, const NetworkCapacity& capacity,
                           double dropout = 0) {
  Network<Device, T> net(device, config, capacity, dropout);
  std::vector<Accum<T>> weights;
  for (Index i = 0; i < net.weights().count(); ++i) weights.push_back(0.01f * static_cast<float>(i % 7));
  net.weights().write(weights);
  const std::vector<Token> host_tokens(static_cast<std::size_t>(capacity.B * capacity.C), 1);
  const StepState host_state{.seed = 1, .learning_rate = 1e-3f};
  const DeviceMemory tokens(device.memory(), host_tokens.size() * sizeof(Token));
  const DeviceMemory state(device.memory(), sizeof(StepState));
  device.copy_from_host(tokens.as<Token>(), host_tokens.data(), static_cast<Index>(host_tokens.size()));
  device.copy_from_host(state.as<StepState>(), &host_state, 1);
  const PassContext pass{capacity.B, capacity.C, nullptr, state.as<StepState>()};
  TrainingConfig training;
  training.optimizer = capacity.muon ? "muon" : "adamw";
  differentiate(net, {tokens.as<Token>(), tokens.as<Token>()}, 0.1, pass,
                [](Index, Index, const PassContext&, const auto&) {});
  net.optimizer().measure_gradient(training, state.as<StepState>());
  net.optimizer().update(training, state.as<StepState>());
  wait_for(device);
  return device.scratch_peak();
}

// Checks that counting takes no memory. The count equals the memory that a network and a step take.
template <class Device>
void check_memory(const ModelConfig& config, const NetworkCapacity& capacity, Index threads) {
  INFO(config.mixer << ", " << capacity.B << " x " << capacity.C << ", D " << config.channels << ", groups "
                    << config.conv_groups << ", recompute " << capacity.recompute << ", muon " << capacity.muon
                    << ", average " << capacity.average << ", shards " << capacity.shards << ", chunk "
                    << capacity.chunk);
  Device device(threads);
  const std::size_t before = aligned_bytes;
  const NetworkMemory memory = Network<Device, float>::memory(device, config, capacity);
  CHECK(aligned_bytes == before);
  {
    const Network<Device, float> net(device, config, capacity);
    CHECK(aligned_bytes - before == memory.total() - memory.workspace_bytes);
    CHECK(memory.weights == net.weights().count());
  }
  const std::size_t peak = peak_of_a_step<float>(device, config, capacity);
  CHECK(peak > 0);
  CHECK(peak == memory.workspace_bytes);
  // Twice the arenas, the tokens and the state; the scratch memory in one piece.
  const std::size_t batch = static_cast<std::size_t>(capacity.B * capacity.C) * sizeof(Token) + sizeof(StepState);
  CHECK(aligned_bytes - before - batch ==
        2 * (memory.total() - memory.workspace_bytes) + std::max<std::size_t>(memory.workspace_bytes, 1 << 20));
}

void check_memory(const MemoryCase& s) {
  for (const auto& [muon, recompute] : {std::pair{false, false}, {false, true}, {true, false}}) {
    if (s.chunk > 0 && !recompute) continue;
    NetworkCapacity capacity{
        .B = s.B, .C = s.C, .training = true, .muon = muon, .average = recompute, .recompute = recompute};
    capacity.shards = muon ? 8 : recompute ? 2 : 1;
    capacity.chunk = s.chunk;
#if defined(ABH_AVX512)
    if (s.wide && isa_available(Isa::avx512)) check_memory<CpuDevice<Isa::avx512>>(s.config, capacity, s.threads);
#endif
    if (!s.wide) check_memory<Reference>(s.config, capacity, s.threads);
  }
}

TEST_CASE("network: the memory estimate equals the memory used", "[network][memory][slow]") {
  const MemoryOfPrograms without_red_zones;
  for (const MemoryCase& each : Rows<MemoryCase>::all(memory_cases())) check_memory(each);
}

// Checks that the workspace counted for a step equals the scratch memory that the step takes on the device.
template <class T, class Device>
void check_step(Device& device, const ScratchCase& s) {
  if constexpr (Network<Device, T>::can_count) {
    CAPTURE(s.mixer, s.window, s.channels, s.heads, s.conv_kernel, s.conv_groups, s.B, s.C, s.muon, s.recompute,
            s.chunk);
    const NetworkMemory memory = Network<Device, T>::memory(device, s.config(), s.capacity());
    CHECK(device.scratch_peak() == 0);
    CHECK(memory.workspace_bytes > 0);
    CHECK(peak_of_a_step<T>(device, s.config(), s.capacity(), 0.2) == memory.workspace_bytes);
  }
}

void check_step_on_cpus(const ScratchCase& s, Index threads) {
  for_each_cpu(threads, [&](auto& device, const std::string& name) {
    CAPTURE(name, threads);
    if (name == "scalar" && s.C > 100) return;  // has no scratch memory of its own, and is slow
    check_step<float>(device, s);
  });
}

TEST_CASE("network: a dry-run device requests the memory of a real step", "[network][memory][heavy]") {
  for (const ScratchCase& s : Rows<ScratchCase, ForSmallSteps>::all(small_steps())) {
    for (const Index threads : {1, 2, 3}) check_step_on_cpus(s, threads);
  }
}

TEST_CASE("network: the memory estimate holds for long sequences", "[network][memory][slow]") {
  for (const ScratchCase& s : Rows<ScratchCase, ForLongSteps>::all(long_steps())) check_step_on_cpus(s, s.threads);
}

TEST_CASE("network: the memory estimate holds on a GPU", "[network][memory][gpu]") {
  for_each_gpu([]<class Device>(Device& like, const std::string& name) {
    CAPTURE(name);
    const auto check = [&](const ScratchCase& s) {
      Device device(like.gemm()), narrow_device(like.gemm());
      check_step<float>(device, s);
      check_step<bf16>(narrow_device, s);
    };
    for (const ScratchCase& s : Rows<ScratchCase, ForSmallSteps>::all(small_steps())) check(s);
    if (name == "emulated") return;
    for (const ScratchCase& s : Rows<ScratchCase, ForLongSteps>::all(long_steps())) check(s);
  });
}

// Terabytes, on every device: no memory is touched, otherwise this test would be killed.
TEST_CASE("network: sizes beyond any machine's memory are counted", "[network][memory]") {
  const auto check = []<class T>(auto& device) {
    using Any = Network<std::decay_t<decltype(device)>, T>;
    if constexpr (!Any::can_count) return;
    for (const MixerProperties& mixer : Mixers::properties) {
      for (const Index groups : {0, 1, 1024}) {
        ModelConfig model{.layers = 20, .channels = 1 << 13, .context = 1 << 12, .vocabulary = 1 << 16};
        model = with_mixer(model, mixer.name);
        model.conv_kernel = 4;
        model.conv_groups = groups;
        const NetworkCapacity capacity{.B = 1 << 10, .C = model.context, .training = true, .muon = true};
        const auto memory = Any::memory(device, model, capacity);
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

TEST_CASE("network: memory of inference", "[network]") {
  const MemoryOfPrograms without_red_zones;
  ModelConfig model = network_case("additive,dot", "0", 3).config;
  const NetworkCapacity capacity{.positions = 20};
  Reference device(1);
  const NetworkMemory memory = Network<Reference, float>::memory(device, model, capacity);
  CHECK(memory.gradient_bytes == 0);
  CHECK(memory.moment_bytes == 0);
  // Each part is aligned to 64 bytes: two convolution rings of 2 D, two pooling states of N (2 K + 3), keys and values.
  CHECK(memory.state_bytes == 2 * 64 + 2 * 128 + 2 * 512);
  const std::size_t before = aligned_bytes;
  Network<Reference, float> net(device, model, capacity);
  CHECK(aligned_bytes - before == memory.total() - memory.workspace_bytes);
}

TEST_CASE("network: sizes beyond the address space are refused", "[network]") {
  ModelConfig model{.layers = largest_layers,
                    .channels = largest_channels,
                    .context = largest_context,
                    .vocabulary = largest_vocabulary};
  check_model(model);
  const NetworkCapacity capacity{.B = largest_batch, .C = largest_context, .training = true};
  CHECK_THROWS_AS((Network<Reference, float>::memory(Reference(1), model, capacity).total()), Error);
}

TEST_CASE("network: too little memory is refused, with settings that need less", "[network]") {
  const std::size_t wanted = std::numeric_limits<std::size_t>::max();
  CHECK(error_of([&] { require_memory(0); }) == "no error");
  const std::string less = "; reduce --batch, --context or --channels, or use ";
  CHECK(error_of([&] { require_memory(wanted); }).ends_with(less + "--recompute 1"));
  CHECK(error_of([&] { require_memory(wanted, 0, true); }).ends_with(less + "--recompute 1 and a short --chunk"));
}

}  // namespace
}  // namespace abh
