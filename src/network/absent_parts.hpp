#pragma once

#include "blocks/block.hpp"
#include "blocks/parts/attention_core.hpp"
#include "blocks/parts/key_value_cache.hpp"
#include "blocks/parts/pooling.hpp"
#include "layers/parts/with_row_sums.hpp"
#include "network/batch.hpp"
#include "network/input_layer.hpp"
#include "network/weights.hpp"
#include "program/flags.hpp"
#include "settings/config.hpp"
#if defined(ABH_CUDA) || defined(ABH_EMULATOR)
#include "base/error.hpp"
#include "base/extras.hpp"
#include "cuda/gpu.hpp"
#include "device/processes.hpp"
#endif

// Empty substitutes for the parts of features in blocks and networks, for a build without extras (-DEXTRAS=OFF). No
// part is present, and the functions return their input. The folders in extras/ describe the parts.
namespace abh {

// Maps of rows: positions/rescale_rows.hpp, positions/rotary_rows.hpp, seq2seq/relu_rows.hpp, digits/patches_block.hpp,
// positions/sinusoids.hpp.
struct AbsentRows {
  template <class... Arguments>
  explicit AbsentRows(const Arguments&...) {}

  static constexpr bool present() { return false; }
  template <class... Arguments>
  void forward(const Arguments&...) const {}
  template <class... Arguments>
  void backward(const Arguments&...) const {}
};
template <class Device, class T>
class Rescale : public AbsentRows {
  using AbsentRows::AbsentRows;
};
template <class Device, class T>
class Rotary : public AbsentRows {
  using AbsentRows::AbsentRows;
};
template <class Device, class T>
class Relu : public AbsentRows {
  using AbsentRows::AbsentRows;
};
template <class Device, class T>
class Patches : public AbsentRows {
 public:
  using AbsentRows::AbsentRows;
  void add(Device&, T*, const T*, const PassContext&) const {}
};
template <class Device, class T>
class Sinusoids : public AbsentRows {
 public:
  using AbsentRows::AbsentRows;
  const T* rows_cd(Device&, const PassContext&) const { return nullptr; }
};

// sparse/patterned_scores.hpp: scores of all pairs.
template <class Device, class T>
class PatternedScores : public DotProductScores<Device, T> {
 public:
  static PatternedScores of(Layout<T>&, const ModelConfig&, const BlockOptions&, const BlockCapacity&) { return {}; }
};

// adaptive_span/span.hpp: no head has a span.
template <class Device, class T>
class Span {
 public:
  static Index reach(const ModelConfig&) { return 0; }
  Span() = default;
  Span(Layout<T>&, const std::string&, const ModelConfig&) {}
  void claim(Layout<T>&, AttentionMask<Accum<T>>&) const {}
  void forward(Device&) const {}
  void inspect(Device&, const Inspector&) const {}
  void backward(Device&, const AttentionBackward<T>&, const PassContext&) const {}
};

// chunks/: a pass contains whole sequences.
template <class Device, class T>
class AttentionPast : public KeyValueCache<T> {
 public:
  using KeyValueCache<T>::KeyValueCache;
  static Index positions(const PassContext&) { return 0; }
  void append(Device&, const QueryKeyValue<const T>&, const PassContext&) const {}
  template <class Scope>
  QueryKeyValue<const T> join(Device&, Scope&, const QueryKeyValue<const T>& rows, const PassContext&) const {
    return rows;
  }
  void leave(Device&, const QueryKeyValue<const T>&, const PassContext&) const {}
  template <class Scope>
  QueryKeyValue<T> scratch_rows(Scope&, const QueryKeyValue<T>& d_rows, const PassContext&) const {
    return d_rows;
  }
  void split(Device&, const QueryKeyValue<T>&, const QueryKeyValue<T>&, const PassContext&) const {}
  void continue_after_prefill(Device&, Index) const {}
};
template <class Device, class T>
class PastRows {
 public:
  PastRows(Layout<T>&, Index, Index, const BlockCapacity&) {}
  static Index positions(const PassContext&) { return 0; }
  template <class Scope>
  const T* join(Device&, Scope&, const T* rows_bcd, const PassContext&) const {
    return rows_bcd;
  }
  template <class Scope>
  T* scratch_rows(Scope&, T* out_bcd, const PassContext&) const {
    return out_bcd;
  }
  void leave(Device&, const T*, const PassContext&) const {}
  void hand_on(Device&, T*, const PassContext&) const {}
  void put_in_ring(Device&, T*, Index, Index) const {}
};
template <class Device, class T>
class PoolingPast {
 public:
  PoolingPast(Layout<T>&, const PoolingShape&, const BlockCapacity&) {}
  static Index most() { return 0; }
  static Index positions(const PassContext&) { return 0; }
  template <class Scope>
  PoolingInput<T> join(Device&, Scope&, const PoolingInputs<T>& chunk, const PassContext&) const {
    return {chunk};
  }
  template <class Scope>
  PoolingGradients<T> join(Device&, Scope&, const PoolingGradients<T>& d, const PassContext&) const {
    return d;
  }
  template <class... Arguments>
  void leave(const Arguments&...) const {}
  template <class... Arguments>
  void split(const Arguments&...) const {}
  template <class... Arguments>
  void put_in_state(const Arguments&...) const {}
};

// transformer_xl/memory_flag.hpp: no network has a memory.
struct MemoryFlag {
  void add_to(Flags&) const {}
  void apply_to(ModelConfig&) const {}
};

// seq2seq/encoder.hpp: there is no source.
template <class Device, class T>
class Encoder {
 public:
  Encoder(Layout<T>&, const InputLayerShape<T>&, const ModelConfig&, const BlockCapacity&, double) {}
  const Source<T>& source() const { return source_; }
  void forward(Device&, const DeviceBatch<T>&, const PassContext&) const {}
  void collect(Device&, T*, const PassContext&) const {}
  Index backward(Device&, const DeviceBatch<T>&, const PassContext&, Weights<Device, T>&, Index end) const {
    return end;
  }
  void inspect(Device&, const Inspector&, const PassContext&) const {}

 private:
  Source<T> source_;
};

#if defined(ABH_CUDA) || defined(ABH_EMULATOR)
// distributed/gpu_sums.hpp: only one process uses a GPU.
template <Backend backend>
class GpuSums {
 public:
  GpuSums(GpuDevice<backend>&, const Processes& processes) {
    if (processes.size() > 1) throw Error("several processes with a GPU each: " + needs_feature("distributed"));
  }
  void begin_sum(float*, Index) const {}
  void finish_sums() const {}
};
#endif

}  // namespace abh
