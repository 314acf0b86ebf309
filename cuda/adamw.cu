#include <type_traits>
#include <vector>

#include "cuda/kernel.hpp"
#include "layers/adamw.hpp"

namespace abh {

namespace {

constexpr int threads_per_block = 256;

// `exact`: array that (adamw.6) updates: the weights, or a master copy whose rounded values are stored in `rounded`.
template <class T>
struct Arrays {
  float* exact;
  T* rounded;
  float *first_moment, *second_moment;
  const float* d_weight;
};

// Computed by the host before a step. Complements in double, because 1 - 0.99f has a relative error of a millionth.
struct Factors {
  float beta1, beta1_complement, beta2, beta2_complement, epsilon;
  double weight_decay, rate;
};
Factors factors_of(const AdamwSettings& settings) {
  return {float(settings.beta1),   float(1 - settings.beta1), float(settings.beta2), float(1 - settings.beta2),
          float(settings.epsilon), settings.weight_decay,     settings.rate};
}

// Updates weights i ... i + width - 1.
template <int width, class T>
__device__ __forceinline__ void update(const Arrays<T>& a, const Factors& f, const StepState& state, Index i) {
  const float clip_scale = float(state.clip_scale), learning_rate = float(state.learning_rate * f.rate);
  const float mean_correction = float(state.first_moment_correction);
  const float square_correction = float(state.second_moment_correction);
  const float decay = float(state.learning_rate * f.rate * f.weight_decay);

  Floats<width> weight = load<width>(a.exact + i), first = load<width>(a.first_moment + i),
                second = load<width>(a.second_moment + i);
  const Floats<width> d_weight = load<width>(a.d_weight + i);
  for (int v = 0; v < width; ++v) {
    const float gradient = clip_scale * d_weight.x[v];                                 // (adamw.1)
    first.x[v] = f.beta1 * first.x[v] + f.beta1_complement * gradient;                 // (adamw.2)
    second.x[v] = f.beta2 * second.x[v] + f.beta2_complement * (gradient * gradient);  // (adamw.3)
    const float mean = first.x[v] * mean_correction;                                   // (adamw.4)
    const float square = second.x[v] * square_correction;                              // (adamw.5)
    const float direction = mean / (sqrtf(square) + f.epsilon);
    weight.x[v] -= learning_rate * direction + decay * weight.x[v];  // (adamw.6)
  }
  store<width>(a.exact + i, weight);
  store<width>(a.first_moment + i, first);
  store<width>(a.second_moment + i, second);
  if constexpr (!std::is_same_v<T, float>) store<width>(a.rounded + i, weight);
}

constexpr int width = widest<float>;

// Maximum number of updates per launch, limited by the size of kernel arguments.
constexpr int most_updates = 32;
static_assert(most_updates <= most_pieces);
template <class T>
struct Update {
  Arrays<T> arrays;
  Factors factors;
  Index count;
  unsigned first_block;
  bool aligned;  // for accesses of `width` numbers: tensors are adjacent and may begin at any index
};
template <class T>
struct Updates {
  Update<T> update[most_updates];
  int count = 0;
};

// A thread handles `width` adjacent weights; the last thread of an update handles the rest:
//
//   thread    0        1        2     ...
//   weight    0 .. 3   4 .. 7   8 .. 11
//
// Accesses of 16 bytes to four arrays keep enough bytes in flight for any number of registers. Reads 16 bytes per
// weight and writes 12, or 14 with a rounded copy; every number once. Grid: the blocks of one update after another.
template <class T>
__global__ void __launch_bounds__(threads_per_block) update_kernel(Updates<T> all, const StepState* state) {
  wait_for_kernel_before();
  require_at_most(threads_per_block);
  if (state->clip_scale != state->clip_scale) return;  // NaN: invalid step
  const Update<T>& a = all.update[piece_of_block(all.update, all.count)];
  Index i = (Index{blockIdx.x - a.first_block} * threads_per_block + threadIdx.x) * width;
  if (a.aligned && i + width <= a.count) return update<width>(a.arrays, a.factors, *state, i);
  for (const Index end = min_of(i + width, a.count); i < end; ++i) update<1>(a.arrays, a.factors, *state, i);
}

template <class T>
Update<T> update_of(const AdamwUpdate<T>& a) {
  Arrays<T> arrays{a.master, a.weight, a.first_moment, a.second_moment, a.d_weight};
  if constexpr (std::is_same_v<T, float>) arrays.exact = a.weight;
  const bool aligned = widest_fits<float>(width, arrays.exact, a.first_moment, a.second_moment, a.d_weight) &&
                       reinterpret_cast<std::uintptr_t>(a.weight) % (width * sizeof(T)) == 0;
  return {arrays, factors_of(a.settings), a.count, 0, aligned};
}

}  // namespace

template <class Device, class T>
void adamw_updates_together(Device& device, const std::vector<AdamwUpdate<T>>& all) {
  for (std::size_t first = 0; first < all.size(); first += most_updates) {
    Updates<T> together{};
    Index blocks = 0;
    for (std::size_t i = first; i < all.size() && together.count < most_updates; ++i) {
      Update<T>& update = together.update[together.count++];
      update = update_of(all[i]);
      update.first_block = blocks_for(blocks, 1);
      blocks += blocks_for(update.count, Index{width} * threads_per_block);
    }
    launch(update_kernel<T>, blocks_for(blocks, 1), threads_per_block, 0, device.stream(), together, all[first].state);
  }
}

template <class Device, class T>
void adamw_update(Device& device, const AdamwUpdate<T>& a) {
  adamw_updates_together<Device, T>(device, {a});
}

ABH_INSTANTIATE(Gpu, adamw_update, adamw_updates_together)

}  // namespace abh
