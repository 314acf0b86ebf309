#pragma once

#include <cstddef>
#include <functional>
#include <type_traits>
#include <vector>

#include "cpu/cpu.hpp"
#include "device/memory.hpp"

namespace abh {

// A change to a network's computation, in a layer that mixes positions. A core is a pooling or an attention; the cores
// of a network are numbered in the order of computation.
struct Touch {
  enum class What { off, uniform, logit };
  What what;
  Index core, head;
  Index position = 0;  // position of a logit in the first sequence
  float value = 0;
};

// Device of the lab page: the CPU baseline, with hooks in every layer (layers.cpp). On request it changes results and
// shows gradients.
class PageDevice : public SharesHostMemory<PageDevice> {
 public:
  explicit PageDevice(Mode mode) : cpu(1, mode) {}

  bool is_dry_run() const { return cpu.is_dry_run(); }
  PageDevice dry_run_device() const { return PageDevice(Mode::dry_run); }
  MemorySource memory() const { return cpu.memory(); }

  template <class T>
  void set_zero(T* to, Index count) {
    cpu.set_zero(to, count);
  }
  template <class T>
  void copy(T* to, const T* from, Index count) {
    cpu.copy(to, from, count);
  }
  template <class T>
  void copy_to_host(T* to, const T* from, Index count) {
    if (reads) {
      constexpr const char* types[] = {"float32", "int32", "int64"};
      constexpr bool whole = std::is_integral_v<T>;
      reads->push_back({reinterpret_cast<const std::byte*>(from), count, sizeof(T), types[whole * sizeof(T) / 4]});
    }
    cpu.copy(to, from, count);
  }

  CpuDevice<Isa::baseline> cpu;
  Workspace& workspace = cpu.workspace;

  // Rows read for inspection; null: none.
  struct Read {
    const std::byte* at;
    Index count;
    std::size_t size;  // bytes per number of this type
    const char* type;
  };
  static inline std::vector<Read>* reads = nullptr;

  // Active changes; null: none.
  static inline const std::vector<Touch>* touches = nullptr;
  // Calls body for each change of the core that writes `out`. `out` identifies a core; cores are numbered in order of
  // use.
  template <class Body>
  void for_touches(const void* out, Touch::What what, const Body& body) {
    if (!touches || is_dry_run()) return;
    std::size_t core = 0;
    while (core < cores_.size() && cores_[core] != out) ++core;
    if (core == cores_.size()) cores_.push_back(out);
    for (const Touch& touch : *touches) {
      if (touch.what == what && touch.core == static_cast<Index>(core)) body(touch);
    }
  }

  // Observes gradients: `gradient` is the gradient of an array with rows of `width` numbers; its row stride is
  // `gradient_stride` (0: contiguous).
  using SeeGradient =
      std::function<void(const float* array, Index width, const float* gradient, Index gradient_stride)>;
  static inline const SeeGradient* sees_gradient = nullptr;
  void gradient(const float* array, Index width, const float* gradient, Index gradient_stride = 0) const {
    if (sees_gradient && array && gradient && !is_dry_run()) (*sees_gradient)(array, width, gradient, gradient_stride);
  }

  // Output that a layer computed from another array, or with a weight, in its last forward pass. The backward pass
  // needs it but does not receive it.
  const float*& made_with(const void* known) {
    for (auto& [key, value] : made_) {
      if (key == known) return value;
    }
    return made_.emplace_back(known, nullptr).second;
  }

 private:
  std::vector<const void*> cores_;
  std::vector<std::pair<const void*, const float*>> made_;
};

}  // namespace abh
