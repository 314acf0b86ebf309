#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/types.hpp"

namespace abh {

// Initial values of a weight. Matrices are normally distributed with standard deviation --init-std. Matrices that write
// into the residual stream are divided by sqrt(2 layers), so the variance of the stream does not grow with depth. A
// convolution has few inputs (4 if depthwise), for which --init-std is too small. Its standard deviation is
// 1 / sqrt(3 inputs), as in Conv1d of PyTorch. The standard deviation of unit_normal is 1.
enum class Init { zero, one, normal, normal_residual, unit_normal, convolution, identity_packed, identity_full };

// Kind of a weight, for the optimizer.
// - linear: matrix of a linear map; has weight decay; Muon can update it.
// - decayed: other matrix (embedding, convolution, metric); has weight decay.
// - row: vector stored as an additional row of the preceding matrix; no weight decay.
// - undecayed: norms, biases, pooling vectors and positions; no weight decay.
// - span: numbers of positions, from 0 to `largest`; updates are relative to `largest`; no weight decay.
// - constant: keeps its initial value; has no gradient.
enum class Kind { linear, decayed, row, undecayed, span, constant };
inline constexpr bool decays(Kind kind) { return kind == Kind::linear || kind == Kind::decayed; }
// True for matrices and their rows. They precede all other weights in the arena.
inline constexpr bool lies_in_front(Kind kind) { return decays(kind) || kind == Kind::row; }

// Row of the table of weights. The table determines memory, checkpoints, optimizer updates and the parameter count.
struct Parameter {
  std::string name;
  std::vector<Index> shape;
  Init init;
  Kind kind;
  Index offset;  // elements from the start of the arena
  Index count;
  double largest = 0;  // largest value of a span
};

// Weight and its gradient, in the arenas.
template <class T>
struct Weight {
  T* value = nullptr;
  Accum<T>* gradient = nullptr;
};

// State that one chunk of a sequence passes to the next, and its gradient in the backward pass.
template <class Element>
struct ChunkBoundary {
  Element* value = nullptr;
  Element* adjoint = nullptr;
};

// Pointer to an inference state. In beam search each hypothesis has its own state; the pointer follows the current
// hypothesis. Without beam search, a fixed pointer.
template <class Element>
class PerHypothesis {
 public:
  PerHypothesis(Element* shared = nullptr) : shared_(shared) {}
  PerHypothesis(std::byte* const* states, std::size_t offset) : states_(states), offset_(offset) {}

  operator Element*() const { return states_ ? reinterpret_cast<Element*>(*states_ + offset_) : shared_; }

 private:
  Element* shared_ = nullptr;
  std::byte* const* states_ = nullptr;  // start of the state of the current hypothesis
  std::size_t offset_ = 0;
};

// Size of an arena that grows with each claim. Every claim is aligned to 64 bytes.
class ByteCount {
 public:
  std::size_t claim(Index count, std::size_t element_size) {
    std::size_t bytes = 0;
    if (count < 0 || __builtin_mul_overflow(static_cast<std::size_t>(count), element_size, &bytes) ||
        __builtin_add_overflow(bytes, 63, &bytes) || __builtin_add_overflow(end_, bytes / 64 * 64, &end_)) {
      throw Error("the network needs more memory than any machine can address");
    }
    return end_ - bytes / 64 * 64;
  }
  std::size_t bytes() const { return end_; }

 private:
  std::size_t end_ = 0;
};

// Bytes of an array, rounded up as in an arena.
template <class Element>
std::size_t bytes_of(Index count) {
  ByteCount bytes;
  bytes.claim(count, sizeof(Element));
  return bytes.bytes();
}

// Lays out the memory of a network. The network is constructed twice: first without memory, to measure each arena, then
// on the arenas, where every claim returns its pointer. Weights with decay come first in their arena, so the optimizer
// handles each kind as one array. Within a kind, weights follow in the order of their claims, without gaps. Therefore
// query, key and value weights that are claimed in this order also form one larger matrix.
template <class T>
class Layout {
 public:
  // recompute: true: recomputable activations get no memory.
  explicit Layout(bool recompute = false) : recompute_(recompute) {}
  // measured: layout of the same network without memory. states: address of a pointer to the current state.
  Layout(const Layout& measured, T* weights, Accum<T>* gradients, std::byte* activations, std::byte* const* states,
         std::byte* carried = nullptr, std::byte* adjoints = nullptr)
      : recompute_(measured.recompute_),
        weights_(weights),
        gradients_(gradients),
        activations_(activations),
        states_(states),
        carried_(carried),
        adjoints_(adjoints),
        first_behind_(measured.front_),
        first_lasting_(measured.activation_extent_.bytes()) {}

  Weight<T> weight(const std::string& name, std::vector<Index> shape, Init init, Kind kind, double largest = 0) {
    Index count = 1;
    for (Index extent : shape) {
      if (__builtin_mul_overflow(count, extent, &count)) throw Error(name + ": more elements than can be counted");
    }
    Index& end = lies_in_front(kind) ? front_ : behind_;
    const Index offset = (lies_in_front(kind) ? 0 : first_behind_) + end;
    Index total = 0;
    if (__builtin_add_overflow(front_ + behind_, count, &total)) {
      throw Error(name + ": more elements than can be counted");
    }
    end += count;
    parameters_.push_back({name, std::move(shape), init, kind, offset, count, largest});
    if (!weights_) return {};
    return {weights_ + offset, gradients_ ? gradients_ + offset : nullptr};
  }

  // Array that forward saves for backward.
  template <class Element>
  Element* activation(Index count) {
    const std::size_t offset = activation_extent_.claim(count, sizeof(Element));
    return activations_ ? reinterpret_cast<Element*>(activations_ + offset) : nullptr;
  }

  // Activation that is not overlaid (OverlaidActivations): it stays valid when other blocks run.
  template <class Element>
  Element* persistent_activation(Index count) {
    const std::size_t offset = first_lasting_ + lasting_extent_.claim(count, sizeof(Element));
    return activations_ ? reinterpret_cast<Element*>(activations_ + offset) : nullptr;
  }

  // Overlays activations of blocks that run one at a time: activations claimed after each call of `next` start at the
  // same address. Claims after the destructor follow the longest of them.
  class OverlaidActivations {
   public:
    explicit OverlaidActivations(Layout& layout)
        : extent_(layout.activation_extent_), begin_(extent_), longest_(extent_) {}
    OverlaidActivations(const OverlaidActivations&) = delete;
    ~OverlaidActivations() {
      next();
      extent_ = longest_;
    }
    void next() {
      if (longest_.bytes() < extent_.bytes()) longest_ = extent_;
      extent_ = begin_;
    }

   private:
    ByteCount& extent_;
    ByteCount begin_, longest_;
  };

  // Activation that is cheap to recompute; null if the network recomputes it. The block then writes it into an array
  // that is about to be overwritten, or into scratch memory.
  template <class Element>
  Element* recomputable_activation(Index count) {
    return recompute_ ? nullptr : activation<Element>(count);
  }

  // Constant array, such as the angles of positions: value(i), i < count, computed on the host in double and rounded
  // once, the same on every device. Valid after write_constants. Layers that claim the same name and count share one
  // array, so their values must be equal.
  template <class Element>
  Element* constant(const std::string& name, Index count, std::function<double(Index)> value) {
    const auto [at, is_new] = constant_offsets_.try_emplace({name, count}, 0);
    if (is_new) at->second = first_lasting_ + lasting_extent_.claim(count, sizeof(Element));
    Element* const place = activations_ ? reinterpret_cast<Element*>(activations_ + at->second) : nullptr;
    if (!is_new) return place;
    constants_.push_back([place, count, value = std::move(value)](const CopyToDevice& copy) {
      std::vector<Element> values;
      for (Index i = 0; i < count; ++i) values.push_back(rounded<Element>(value(i)));
      copy(place, values.data(), values.size() * sizeof(Element));
    });
    return place;
  }
  template <class Device>
  void write_constants(Device& device) const {
    if constexpr (requires { device.is_dry_run(); }) {
      if (device.is_dry_run()) return;
    }
    for (const auto& write : constants_) {
      write([&](void* to, const void* from, std::size_t bytes) {
        device.copy_from_host(static_cast<std::byte*>(to), static_cast<const std::byte*>(from),
                              static_cast<Index>(bytes));
      });
    }
  }

  // State that decoding keeps from one position to the next.
  template <class Element>
  PerHypothesis<Element> state(Index count) {
    const std::size_t offset = state_extent_.claim(count, sizeof(Element));
    return states_ ? PerHypothesis<Element>(states_, offset) : PerHypothesis<Element>();
  }

  // State that a block passes from one chunk of a sequence to the next (BlockCapacity), and its gradient.
  template <class Element>
  ChunkBoundary<Element> chunk_boundary(Index count) {
    const std::size_t offset = carried_extent_.claim(count, sizeof(Element));
    return {carried_ ? reinterpret_cast<Element*>(carried_ + offset) : nullptr, adjoint<Element>(count)};
  }
  // All chunk boundaries claimed when carried_bytes() was at least `before`.
  struct CarriedBytes {
    std::byte* begin;
    Index count;
  };
  CarriedBytes carried_since(std::size_t before) const {
    return {carried_ ? carried_ + before : nullptr, static_cast<Index>(carried_bytes() - before)};
  }
  // Gradient of an array that all later chunks read in place, without a chunk boundary.
  template <class Element>
  Element* adjoint(Index count) {
    const std::size_t offset = adjoint_extent_.claim(count, sizeof(Element));
    return adjoints_ ? reinterpret_cast<Element*>(adjoints_ + offset) : nullptr;
  }

  // Table of weights, in the order of the claims. The offsets of undecayed weights are only known after all claims.
  std::vector<Parameter> parameters() const {
    std::vector<Parameter> table = parameters_;
    for (Parameter& parameter : table) {
      if (!lies_in_front(parameter.kind)) parameter.offset += front_ - first_behind_;
    }
    return table;
  }
  Index weight_count() const { return front_ + behind_; }
  // Number of weights that precede the others (lies_in_front).
  Index front_count() const { return front_; }
  std::size_t activation_bytes() const { return activation_extent_.bytes() + lasting_extent_.bytes(); }
  std::size_t state_bytes() const { return state_extent_.bytes(); }
  std::size_t carried_bytes() const { return carried_extent_.bytes(); }
  std::size_t adjoint_bytes() const { return adjoint_extent_.bytes(); }

 private:
  // Converts a value to Accum<T> and then to the element type; whole numbers directly.
  template <class Element>
  static Element rounded(double value) {
    if constexpr (std::is_integral_v<Element>) {
      return static_cast<Element>(value);
    } else {
      return static_cast<Element>(static_cast<Accum<T>>(value));
    }
  }

  using CopyToDevice = std::function<void(void* to, const void* from, std::size_t bytes)>;

  bool recompute_ = false;
  T* weights_ = nullptr;
  Accum<T>* gradients_ = nullptr;
  std::byte* activations_ = nullptr;
  std::byte* const* states_ = nullptr;
  std::byte* carried_ = nullptr;
  std::byte* adjoints_ = nullptr;
  Index first_behind_ = 0;
  std::size_t first_lasting_ = 0;
  Index front_ = 0, behind_ = 0;
  ByteCount activation_extent_, lasting_extent_, state_extent_, carried_extent_, adjoint_extent_;
  std::vector<Parameter> parameters_;
  std::map<std::pair<std::string, Index>, std::size_t> constant_offsets_;
  std::vector<std::function<void(const CopyToDevice&)>> constants_;
};

}  // namespace abh
