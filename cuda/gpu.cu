#include <string>

#include "cuda/gpu.hpp"
#include "cuda/partial_sums.hpp"
#include "cuda/platform.hpp"

namespace abh {

namespace {

// Returns `memory` if the runtime allocated it; otherwise throws an Error that names `who`.
void* given(cudaError_t status, void* memory, const char* who, std::size_t bytes) {
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // clears the error, which the next launch would report again
    throw Error(std::string("out of memory: ") + who + " refused " + std::to_string(bytes) + " bytes");
  }
  require(status, "memory");
  return memory;
}

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes);
  return given(status, memory, "the GPU", bytes);
}

// Called by destructors: errors of kernels have been reported before.
void release(void* memory) { static_cast<void>(cudaFree(memory)); }

#if defined(__CUDACC__)
void* allocate_pinned(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMallocHost(&memory, bytes);
  return given(status, memory, "the host", bytes);
}
void release_pinned(void* memory) { static_cast<void>(cudaFreeHost(memory)); }
#endif

}  // namespace

template <Backend backend>
MemorySource gpu_memory() {
  return {allocate, release};
}

#if defined(__CUDACC__)

template <Backend backend>
MemorySource pinned_memory() {
  return {allocate_pinned, release_pinned};
}

template <Backend backend>
bool gpu_available() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

// Selects the GPU and returns its name.
static std::string choose_gpu(Index gpu) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    throw Error(std::string("--device cuda: no GPU can be used on this machine (") + cudaGetErrorString(status) +
                "); --device cpu computes the same");
  }
  if (gpu >= count) {
    throw Error("--device cuda: expected a GPU for each of at least " + std::to_string(gpu + 1) +
                " processes of this machine, found " + std::to_string(count));
  }
  require(cudaSetDevice(static_cast<int>(gpu)), "choice of a GPU");
  cudaDeviceProp properties;
  require(cudaGetDeviceProperties(&properties, static_cast<int>(gpu)), "device properties");
  return properties.name;
}

#else

template <Backend backend>
MemorySource pinned_memory() {
  return host_memory();
}

template <Backend backend>
bool gpu_available() {
  return true;
}

static std::string choose_gpu(Index) { return "emulator"; }

#endif

template <Backend backend>
GpuDevice<backend>::GpuDevice(GemmChoice gemm, Mode mode, Index gpu) : gemm_(gemm), mode_(mode), gpu_(gpu) {
  name_ = choose_gpu(gpu);  // also in a dry run, because the plans of cuBLASLt depend on the GPU
  if (is_dry_run()) {
    stream_ = idle_stream();
    return;
  }
  require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
  require(cudaEventCreateWithFlags(&reached_, cudaEventDisableTiming), "event");
}

template <Backend backend>
GpuDevice<backend>::~GpuDevice() {
  if (is_dry_run()) return;
  static_cast<void>(cudaStreamSynchronize(stream_));
  static_cast<void>(cudaEventDestroy(reached_));
  static_cast<void>(cudaStreamDestroy(stream_));
}

template <Backend backend>
GpuDevice<backend>::CapturedGraph::~CapturedGraph() {
  if (graph_) static_cast<void>(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_)));
}

template <Backend backend>
bool GpuDevice<backend>::CapturedGraph::replay(GpuDevice& device) {
  if (!graph_) return false;
  require(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), device.stream()), "graph launch");
  return true;
}

// The first run is not captured: it grows scratch memory and initialises libraries, which a capture forbids.
template <Backend backend>
bool GpuDevice<backend>::CapturedGraph::begin(GpuDevice& device) {
  if (runs_++ == 0) return false;
  require(cudaStreamBeginCapture(device.stream(), cudaStreamCaptureModeThreadLocal), "graph capture");
  return true;
}

template <Backend backend>
void GpuDevice<backend>::CapturedGraph::end(GpuDevice& device) {
  cudaGraph_t captured;
  require(cudaStreamEndCapture(device.stream(), &captured), "graph capture");
  cudaGraphExec_t graph;
  const cudaError_t status = cudaGraphInstantiate(&graph, captured, 0);
  require(cudaGraphDestroy(captured), "graph");
  require(status, "graph");
  graph_ = graph;
  replay(device);
}

// Called while an Error is thrown, which may have invalidated the capture. Then there is no graph, and the status of
// the runtime is ignored.
template <Backend backend>
void GpuDevice<backend>::CapturedGraph::abandon(GpuDevice& device) {
  cudaGraph_t captured = nullptr;
  static_cast<void>(cudaStreamEndCapture(device.stream(), &captured));
  if (captured) static_cast<void>(cudaGraphDestroy(captured));
  static_cast<void>(cudaGetLastError());
}

template <Backend backend>
void GpuDevice<backend>::synchronize() {
  if (!is_dry_run()) require(cudaStreamSynchronize(stream_), "a kernel");
}

template <Backend backend>
void GpuDevice<backend>::wait_for(const GpuDevice& other) {
  if (is_dry_run()) return;
  require(cudaEventRecord(other.reached_, other.stream_), "event");
  require(cudaStreamWaitEvent(stream_, other.reached_, 0), "event");
}

template <Backend backend>
GpuDevice<backend>& GpuDevice<backend>::of_branches() {
  if (!of_branches_) of_branches_ = beside();
  return *of_branches_;
}

template <Backend backend>
GpuDevice<backend>& GpuDevice<backend>::SideStream::fork() {
  device_.of_branches().wait_for(device_);
  device_.of_branches_->late_sums_ = device_.late_sums_;
  if (!forked_) ++device_.open_branches_;
  forked_ = true;
  return *device_.of_branches_;
}

template <Backend backend>
void GpuDevice<backend>::SideStream::join() {
  if (!forked_) return;
  forked_ = false;
  --device_.open_branches_;
  device_.wait_for(*device_.of_branches_);
}

// A branch of a branch is in the stream of its own device.
template <Backend backend>
void GpuDevice<backend>::wait_for_open_branches() {
  if (open_branches_ == 0) return;
  of_branches_->wait_for_open_branches();
  wait_for(*of_branches_);
}

// If the events fail, the device is lost or its capture is invalid; the next call reports it.
template <Backend backend>
GpuDevice<backend>::SideStream::~SideStream() {
  try {
    join();
  } catch (const Error&) {
  }
}

template <Backend backend>
GpuDevice<backend>::DeferredReductions::DeferredReductions(GpuDevice& device) : parts(device.parts_), device_(device) {
  device_.late_sums_ = this;
}

template <Backend backend>
GpuDevice<backend>::DeferredReductions::~DeferredReductions() {
  device_.late_sums_ = nullptr;
}

// Two sums with one target must not run concurrently.
template <Backend backend>
void GpuDevice<backend>::DeferredReductions::add(const PartialSums& sums) {
  for (const PartialSums& other : waiting_) {
    if (other.to_d == sums.to_d) return finish(), add(sums);
  }
  waiting_.push_back(sums);
}

// Parts may come from a branch that is still open: if a target occurs twice, that branch may not have been joined.
template <Backend backend>
void GpuDevice<backend>::DeferredReductions::finish() {
  if (!waiting_.empty()) device_.wait_for_open_branches();
  do_partial_sums(device_, waiting_);
  waiting_.clear();
}

template <Backend backend>
std::size_t GpuDevice<backend>::scratch_peak() const {
  return workspace.peak() + parts_.peak() + (of_branches_ ? of_branches_->scratch_peak() : 0);
}

template <Backend backend>
void GpuDevice<backend>::expect_scratch_of(const GpuDevice& other) {
  workspace.expect(other.workspace.peak());
  parts_.expect(other.parts_.peak());
  if (other.of_branches_) of_branches().expect_scratch_of(*other.of_branches_);
}

template <Backend backend>
void GpuDevice<backend>::set_zero_bytes(void* to, std::size_t bytes) {
  if (bytes > 0 && !is_dry_run()) require(cudaMemsetAsync(to, 0, bytes, stream_), "memset");
}

template <Backend backend>
void GpuDevice<backend>::copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0 && !is_dry_run()) require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copy");
}

template MemorySource gpu_memory<Backend::ABH_BACKEND>();
template MemorySource pinned_memory<Backend::ABH_BACKEND>();
template bool gpu_available<Backend::ABH_BACKEND>();
template class GpuDevice<Backend::ABH_BACKEND>;

}  // namespace abh
