#include <algorithm>
#include <cstddef>
#include <exception>
#include <string>

#include "cuda/platform.hpp"
#include "extras/distributed/gpu_sums.hpp"
#include "extras/distributed/recursive_halving.hpp"
#include "layers/dropout.hpp"

// NCCL if this build has it, or that of the emulator.
#if !defined(__CUDACC__)
#include "cuda/emulator/nccl.hpp"
#define ABH_HAS_NCCL 1
#elif defined(ABH_NCCL)
#include <nccl.h>
#define ABH_HAS_NCCL 1
#endif

namespace abh {

#if defined(ABH_HAS_NCCL)

namespace {

void require_sent(ncclResult_t status, const char* what) {
  if (status != ncclSuccess) throw Error(std::string("NCCL: ") + what + ": " + ncclGetErrorString(status));
}

}  // namespace

template <Backend backend>
GpuSums<backend>::GpuSums(GpuDevice<backend>& device, Processes& processes, Index piece)
    : device_(device), processes_(processes), piece_(piece), exceptions_(std::uncaught_exceptions()) {
  if (processes.size() == 1) return;
  beside_ = device.beside();
  ncclUniqueId id;
  if (processes.leads()) require_sent(ncclGetUniqueId(&id), "a name for all processes");
  const std::string sent = processes.of_first(std::string(id.internal, sizeof id.internal));
  std::copy_n(sent.data(), std::min(sent.size(), sizeof id.internal), id.internal);
  require_sent(ncclCommInitRank(&all_, static_cast<int>(processes.size()), id, static_cast<int>(processes.rank())),
               "connection of all processes");
}

// A regular end includes all processes. A process that leaves because of an error leaves alone.
template <Backend backend>
GpuSums<backend>::~GpuSums() {
  if (!all_) return;
  if (std::uncaught_exceptions() > exceptions_) {
    static_cast<void>(ncclCommAbort(all_));
  } else {
    static_cast<void>(cudaStreamSynchronize(beside_->stream()));
    static_cast<void>(ncclCommDestroy(all_));
  }
}

template <Backend backend>
void GpuSums<backend>::begin_sum(float* values, Index count) {
  if (!all_) return;
  if (values + count != waiting_) begin_waiting();
  waiting_ = values;
  waiting_count_ += count;
  if (waiting_count_ >= piece_) begin_waiting();
}

template <Backend backend>
void GpuSums<backend>::finish_sums() {
  if (!all_) return;
  begin_waiting();
  device_.wait_for(*beside_);
}

template <Backend backend>
void GpuSums<backend>::begin_waiting() {
  beside_->wait_for(device_);
  for (Index first = 0; first < waiting_count_; first += piece_) {
    sum(waiting_ + first, std::min(piece_, waiting_count_ - first));
  }
  waiting_ = nullptr;
  waiting_count_ = 0;
}

template <Backend backend>
void GpuSums<backend>::sum(float* values, Index count) {
  typename GpuDevice<backend>::Scope scratch(beside_->workspace);
  sum_by_halving(
      values, count, scratch.template take<float>((count + 1) / 2), processes_.rank(), processes_.size(),
      [this](Index partner, const float* out, Index out_count, float* in, Index in_count) {
        exchange(partner, out, out_count, in, in_count);
      },
      [this](float* to, const float* from, Index size) {  // dropout without dropping: an addition
        dropout_forward<GpuDevice<backend>, float>(*beside_, to, to, from, Dropout{}, size);
      });
}

template <Backend backend>
void GpuSums<backend>::exchange(Index partner, const float* out, Index out_count, float* in, Index in_count) {
  const int other = static_cast<int>(partner);
  const auto numbers = [](Index count) { return static_cast<std::size_t>(count); };
  require_sent(ncclGroupStart(), "a message");
  require_sent(ncclSend(out, numbers(out_count), ncclFloat, other, all_, beside_->stream()), "a message");
  require_sent(ncclRecv(in, numbers(in_count), ncclFloat, other, all_, beside_->stream()), "a message");
  require_sent(ncclGroupEnd(), "a message");
}

template <Backend backend>
bool has_gpu_sums() {
  return true;
}

#else

template <Backend backend>
GpuSums<backend>::GpuSums(GpuDevice<backend>& device, Processes& processes, Index piece)
    : device_(device), processes_(processes), piece_(piece), exceptions_(0) {
  if (processes.size() > 1) throw Error("several processes with a GPU each need NCCL, which this build does not have");
}

template <Backend backend>
GpuSums<backend>::~GpuSums() {}

template <Backend backend>
void GpuSums<backend>::begin_sum(float*, Index) {}

template <Backend backend>
void GpuSums<backend>::finish_sums() {}

template <Backend backend>
bool has_gpu_sums() {
  return false;
}

#endif

template class GpuSums<Backend::ABH_BACKEND>;
template bool has_gpu_sums<Backend::ABH_BACKEND>();

}  // namespace abh
