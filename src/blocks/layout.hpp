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

// How a weight starts. Matrices are normal with standard deviation --init-std; those that write into the residual
// stream are divided by sqrt(2 layers), so that the stream's variance does not grow with depth.
// A convolution sums over few inputs (4 where it is depthwise), so --init-std would all but switch it off: its standard
// deviation is (3 inputs)^(-1/2), as that of PyTorch's Conv1d. That of unit_normal is 1.
enum class Init { zero, one, normal, normal_residual, unit_normal, convolution, identity_packed, identity_full };

// The kind of a weight, which the optimizer reads: linear, the matrix of a linear map, decays, and Muon can update it;
// the other matrices (embedding, convolutions, metrics) decay; norms, biases, pooling vectors and positions do not.
// row: a vector that lies behind a matrix as one more row of it and does not decay. span: numbers of positions, from 0
// to a largest one, of which a step is a share; they do not decay either. constant: it stays as it was drawn, and has
// no gradient.
enum class Kind { linear, decayed, row, undecayed, span, constant };
inline constexpr bool decays(Kind kind) { return kind == Kind::linear || kind == Kind::decayed; }
// Matrices and their rows lie in front of all other weights.
inline constexpr bool lies_in_front(Kind kind) { return decays(kind) || kind == Kind::row; }

// One row of the table of weights, from which memory, checkpoints, the optimizer and the parameter count are laid out.
struct Parameter {
  std::string name;
  std::vector<Index> shape;
  Init init;
  Kind kind;
  Index offset;  // elements from the start of the arena
  Index count;
  double largest = 0;  // of a span
};

// A weight and its gradient, where a block finds them.
template <class T>
struct Weight {
  T* value = nullptr;
  Accum<T>* gradient = nullptr;
};

// The state that passes from one chunk of a sequence to the next, and its gradient, on the way back.
template <class Element>
struct ChunkBoundary {
  Element* value = nullptr;
  Element* adjoint = nullptr;
};

// A place in the memory that is kept from step to step, which several hypotheses have each their own of: that of the
// one at work. Or a place that all of them share.
template <class Element>
class PerHypothesis {
 public:
  PerHypothesis(Element* shared = nullptr) : shared_(shared) {}
  PerHypothesis(std::byte* const* states, std::size_t offset) : states_(states), offset_(offset) {}

  operator Element*() const { return states_ ? reinterpret_cast<Element*>(*states_ + offset_) : shared_; }

 private:
  Element* shared_ = nullptr;
  std::byte* const* states_ = nullptr;  // where those of the hypothesis at work begin
  std::size_t offset_ = 0;
};

// An amount of memory that grows as parts of it are claimed; every part is aligned to 64 bytes.
class ByteCount {
 public:
  std::size_t claim(Index count, std::size_t element_size) {
    std::size_t bytes = 0;
    if (count < 0 || __builtin_mul_overflow(static_cast<std::size_t>(count), element_size, &bytes) ||
        __builtin_add_overflow(bytes, 63, &bytes) || __builtin_add_overflow(end_, bytes / 64 * 64, &end_)) {
      throw Error("the network asks for more memory than any machine can address");
    }
    return end_ - bytes / 64 * 64;
  }
  std::size_t bytes() const { return end_; }

 private:
  std::size_t end_ = 0;
};

// Bytes of an array, rounded up to a part of that kind.
template <class Element>
std::size_t bytes_of(Index count) {
  ByteCount bytes;
  bytes.claim(count, sizeof(Element));
  return bytes.bytes();
}

// Lays out the memory of a network. The network is built twice: first with no memory, to learn how much each arena
// needs, then on the real arenas, where every claim returns its pointer. Weights that decay come first in their arena,
// so that the optimizer handles each kind in one piece; within a kind they keep the order of their claims, without
// gaps, so that query, key and value weights claimed one after the other are also one taller weight.
template <class T>
class Layout {
 public:
  // recompute: what is cheap to compute again gets no memory.
  explicit Layout(bool recompute = false) : recompute_(recompute) {}
  // `measured` is a layout of the same network without memory. states: a variable that says where those begin.
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

  // Saved by a forward pass for its backward pass.
  template <class Element>
  Element* activation(Index count) {
    const std::size_t offset = activation_extent_.claim(count, sizeof(Element));
    return activations_ ? reinterpret_cast<Element*>(activations_ + offset) : nullptr;
  }

  // The same for what others must find there longer than until its block's turn is over, who share a room.
  template <class Element>
  Element* persistent_activation(Index count) {
    const std::size_t offset = first_lasting_ + lasting_extent_.claim(count, sizeof(Element));
    return activations_ ? reinterpret_cast<Element*>(activations_ + offset) : nullptr;
  }

  // A room for blocks of which one at a time is at work: the activations that each claims after its call of `next` lie
  // where those of the others do. What is claimed when it is gone lies behind the largest.
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

  // The same as activation for what is cheap to compute again: null where the network does that instead. Its block then
  // finds room in arrays that are about to be overwritten, or in scratch memory.
  template <class Element>
  Element* recomputable_activation(Index count) {
    return recompute_ ? nullptr : activation<Element>(count);
  }

  // Numbers that no weight changes, such as the angles of positions: value(i), i < count, computed on the host in
  // double, rounded once, and the same on every device. They are there after write_constants. What has one name and one
  // count has one value: all layers read the same array.
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

  // Kept from one position to the next in step-by-step inference.
  template <class Element>
  PerHypothesis<Element> state(Index count) {
    const std::size_t offset = state_extent_.claim(count, sizeof(Element));
    return states_ ? PerHypothesis<Element>(states_, offset) : PerHypothesis<Element>();
  }

  // Where a sequence is computed in chunks (BlockCapacity): what a block hands from one to the next, and its gradient.
  template <class Element>
  ChunkBoundary<Element> chunk_boundary(Index count) {
    const std::size_t offset = carried_extent_.claim(count, sizeof(Element));
    return {carried_ ? reinterpret_cast<Element*>(carried_ + offset) : nullptr, adjoint<Element>(count)};
  }
  // All of it that was claimed since so many bytes of it had been.
  struct CarriedBytes {
    std::byte* begin;
    Index count;
  };
  CarriedBytes carried_since(std::size_t before) const {
    return {carried_ ? carried_ + before : nullptr, static_cast<Index>(carried_bytes() - before)};
  }
  // The gradient of what all later chunks see in place, and nobody hands on.
  template <class Element>
  Element* adjoint(Index count) {
    const std::size_t offset = adjoint_extent_.claim(count, sizeof(Element));
    return adjoints_ ? reinterpret_cast<Element*>(adjoints_ + offset) : nullptr;
  }

  // The table, in the order of the claims. While measuring, the place of the weights that lie behind the
  // front is only known at the end.
  std::vector<Parameter> parameters() const {
    std::vector<Parameter> table = parameters_;
    for (Parameter& parameter : table) {
      if (!lies_in_front(parameter.kind)) parameter.offset += front_ - first_behind_;
    }
    return table;
  }
  Index weight_count() const { return front_ + behind_; }
  // Weights that lie in front.
  Index front_count() const { return front_; }
  std::size_t activation_bytes() const { return activation_extent_.bytes() + lasting_extent_.bytes(); }
  std::size_t state_bytes() const { return state_extent_.bytes(); }
  std::size_t carried_bytes() const { return carried_extent_.bytes(); }
  std::size_t adjoint_bytes() const { return adjoint_extent_.bytes(); }

 private:
  // A number in Accum<T> on its way to T, but whole numbers as they are.
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
