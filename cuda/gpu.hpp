#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "device/memory.hpp"
#include "device/mode.hpp"

struct CUstream_st;
struct CUevent_st;

namespace abh {

// Backend of the kernels of cuda/*.cu: a GPU, or the emulator on the CPU.
enum class Backend { cuda, emulated };

// Implementation of matrix products: cuBLASLt, or the kernels of cuda/gemm.cu. The emulator emulates cuBLASLt and
// checks its arguments.
enum class GemmChoice { library, hand };
// library if this build has cuBLASLt; hand in the emulator, which exists to test these kernels.
template <Backend backend>
GemmChoice usual_gemm();
// Parses a name: library, hand or auto.
template <Backend backend>
GemmChoice gemm_called(const std::string& name) {
  return name == "library" ? GemmChoice::library : name == "hand" ? GemmChoice::hand : usual_gemm<backend>();
}

// True if this machine has a GPU for the backend; always true for the emulator.
template <Backend backend>
bool gpu_available();

// GPU memory. In the emulator it is filled with NaN and guarded on both sides.
template <Backend backend>
MemorySource gpu_memory();

// Page-locked host memory, which a GPU accesses over the bus. Any memory serves for the emulator.
template <Backend backend>
MemorySource pinned_memory();

template <Backend backend>
class GpuSums;  // extras/distributed/gpu_sums.hpp
// True if this build can add arrays of several processes on GPUs; not defined in a build without extras.
template <Backend backend>
bool has_gpu_sums();

// A sum over rows whose parts were computed by many blocks: to_d[d] += sum over p of part_pd[p * stride + d], in the
// order of p. If given, second_d receives the sums of the next D numbers of each part.
struct PartialSums {
  float* to_d;
  const float* part_pd;
  Index parts, D, stride;
  float* second_d = nullptr;
};

// A device of layers, blocks and networks: one stream of one GPU. Work runs in the order of the calls, asynchronously:
// the host can read results after copy_to_host or synchronize. Every member throws Error, with CUDA's message, if a
// call of the runtime fails.
template <Backend backend>
class GpuDevice {
 public:
  using Scope = Workspace::Scope;
  using Sums = GpuSums<backend>;              // adds the gradients of several processes
  static constexpr bool joins_layers = true;  // two layers with a fused kernel use it

  // Selects the GPU with this index, for the device and for all later work of the thread.
  explicit GpuDevice(GemmChoice gemm = usual_gemm<backend>(), Mode mode = Mode::compute, Index gpu = 0);
  ~GpuDevice();
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;

  // For example "NVIDIA H200".
  const std::string& name() const { return name_; }
  CUstream_st* stream() const { return stream_; }
  GemmChoice gemm() const { return gemm_; }

  // is_dry_run: true if work is only counted (device/mode.hpp). dry_run: a device of the same kind in this mode.
  bool is_dry_run() const { return mode_ == Mode::dry_run; }
  GpuDevice dry_run_device() const { return GpuDevice(gemm_, Mode::dry_run, gpu_); }

  // beside(): a device on the same GPU with another stream, for concurrent work. Ordering two devices: later work of
  // this device starts after the earlier work of the other device has finished.
  std::unique_ptr<GpuDevice> beside() const { return std::make_unique<GpuDevice>(gemm_, mode_, gpu_); }
  void wait_for(const GpuDevice& other);

  // Work that does not depend on the device's next calls and may run concurrently, in a second stream. All branches of
  // a device share this stream, which has its own scratch memory. In a captured graph it is a branch.
  //
  //   SideStream branch(device);
  //   a(branch.fork());    begins when the device has done what it was asked for until here
  //   b(device);           goes on beside that
  //   branch.join();       or the end of the branch: what the device is asked for from here on finds a done
  //
  // Before join, no other work may write data that the branch accesses, or read data that it writes. Deferred partial
  // sums wait for open branches by themselves.
  class SideStream {
   public:
    static constexpr bool runs_beside = true;
    explicit SideStream(GpuDevice& device) : device_(device) {}
    ~SideStream();
    SideStream(const SideStream&) = delete;
    SideStream& operator=(const SideStream&) = delete;

    GpuDevice& fork();
    void join();

   private:
    GpuDevice& device_;
    bool forked_ = false;
  };

  // During the lifetime of this object, partial sums are deferred to its end, because no gradient of weights is read
  // earlier. A few kernels then compute all of them, instead of one kernel per sum.
  class DeferredReductions {
   public:
    explicit DeferredReductions(GpuDevice& device);
    ~DeferredReductions();  // deferred sums are discarded: an exception was thrown
    DeferredReductions(const DeferredReductions&) = delete;
    DeferredReductions& operator=(const DeferredReductions&) = delete;

    void add(const PartialSums& sums);
    void finish();

    Scope parts;

   private:
    GpuDevice& device_;
    std::vector<PartialSums> waiting_;
  };
  DeferredReductions* deferred() const { return late_sums_; }
  // For sums that are read earlier.
  void finish_late_sums() {
    if (late_sums_) late_sums_->finish();
  }

  // Peak scratch memory in bytes, including that of branches; and a reservation equal to the peak of another device.
  std::size_t scratch_peak() const;
  void expect_scratch_of(const GpuDevice& other);

  MemorySource memory() const { return is_dry_run() ? no_memory() : gpu_memory<backend>(); }
  MemorySource host_memory() const { return pinned_memory<backend>(); }

  template <class T>
  void set_zero(T* to, Index count) {
    set_zero_bytes(to, bytes_of<T>(count));
  }
  template <class T>
  void copy(T* to, const T* from, Index count) {
    copy_bytes(to, from, bytes_of<T>(count));
  }
  // Waits until `from` has been read, and for all earlier work; the caller may then free it. This costs a round trip to
  // the GPU, some microseconds, and must not be captured.
  template <class T>
  void copy_from_host(T* to, const T* from, Index count) {
    copy_from_host_later(to, from, count);
    synchronize();
  }
  // Asynchronous. `from` must not change until this device is synchronised, because a GPU may read host memory later.
  template <class T>
  void copy_from_host_later(T* to, const T* from, Index count) {
    copy_bytes(to, from, bytes_of<T>(count));
  }
  // Waits for the numbers.
  template <class T>
  void copy_to_host(T* to, const T* from, Index count) {
    copy_bytes(to, from, bytes_of<T>(count));
    synchronize();
  }
  void synchronize();

  // Work that is repeated on the same memory: executed once, then captured as a CUDA graph, then replayed. Values that
  // change between runs must be read from device memory. If a body throws, nothing is captured, and the next run tries
  // again.
  class CapturedGraph {
   public:
    template <class Body>
    void run(GpuDevice& device, const Body& body) {
      if (replay(device)) return;
      if (begin(device)) {
        try {
          body();
        } catch (...) {
          abandon(device);
          throw;
        }
        end(device);
      } else {
        body();
      }
    }
    CapturedGraph() = default;
    ~CapturedGraph();
    CapturedGraph(const CapturedGraph&) = delete;
    CapturedGraph& operator=(const CapturedGraph&) = delete;

   private:
    bool replay(GpuDevice& device);          // false: not captured yet
    bool begin(GpuDevice& device);           // false: this run is not captured
    void end(GpuDevice& device);             // ends the capture and launches the graph
    static void abandon(GpuDevice& device);  // discards the captured work without running it

    int runs_ = 0;
    void* graph_ = nullptr;
  };

 private:
  template <class T>
  static std::size_t bytes_of(Index count) {
    return static_cast<std::size_t>(count) * sizeof(T);
  }
  GpuDevice& of_branches();
  void wait_for_open_branches();
  void set_zero_bytes(void* to, std::size_t bytes);
  void copy_bytes(void* to, const void* from, std::size_t bytes);  // in the direction given by the pointers

  std::string name_;
  CUstream_st* stream_ = nullptr;
  CUevent_st* reached_ = nullptr;  // recorded in this device's stream; another stream waits for it
  GemmChoice gemm_;
  Mode mode_;
  Index gpu_;

 public:
  Workspace workspace{memory()};

 private:
  Workspace parts_{memory()};
  DeferredReductions* late_sums_ = nullptr;  // a branch uses that of its device
  std::unique_ptr<GpuDevice> of_branches_;   // created at the first fork
  int open_branches_ = 0;                    // forked and not joined
};

}  // namespace abh
