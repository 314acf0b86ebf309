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

// The backend that runs the kernels of cuda/*.cu: a GPU, or the emulator on the CPU.
enum class Backend { cuda, emulated };

// The products of linear maps: cuBLASLt's, or the kernels of cuda/gemm.cu. The emulator has a stand-in for the former,
// which checks what cuBLASLt is asked for.
enum class GemmChoice { library, hand };
// The former where this build has cuBLASLt; but the latter are what the emulator is there for.
template <Backend backend>
GemmChoice usual_gemm();
// By name: library, hand or auto.
template <Backend backend>
GemmChoice gemm_called(const std::string& name) {
  return name == "library" ? GemmChoice::library : name == "hand" ? GemmChoice::hand : usual_gemm<backend>();
}

// Whether this machine has a GPU that the backend can use; the emulator always can.
template <Backend backend>
bool gpu_available();

// Memory of the GPU. The emulator's is filled with NaN and guarded on both sides.
template <Backend backend>
MemorySource gpu_memory();

// Memory of the host that stays in its place, so that a GPU reads and writes it over the bus. Any does for the
// emulator.
template <Backend backend>
MemorySource pinned_memory();

template <Backend backend>
class GpuSums;  // extras/distributed/gpu_sums.hpp
// Whether this build's GPUs can add up arrays of several processes; in a build without extras it is not there.
template <Backend backend>
bool has_gpu_sums();

// Sums over rows of which many blocks have made parts: to_d[d] += sum over p of part_pd[p * stride + d], in the order
// of p; and second_d, where given, the same of the D numbers behind the first ones of each part.
struct PartialSums {
  float* to_d;
  const float* part_pd;
  Index parts, D, stride;
  float* second_d = nullptr;
};

// A device of layers, blocks and networks: one stream of one GPU. Work is done in the order in which it was asked
// for, but later: the host sees results after copy_to_host or synchronize. Every member throws Error, with what CUDA
// says, when a call of its runtime fails.
template <Backend backend>
class GpuDevice {
 public:
  using Scope = Workspace::Scope;
  using Sums = GpuSums<backend>;              // of the gradients of several processes
  static constexpr bool joins_layers = true;  // where two are done in one sweep over the rows, it is

  // Selects the machine's GPU with this number, for the device and for all later work of the thread.
  explicit GpuDevice(GemmChoice gemm = usual_gemm<backend>(), Mode mode = Mode::compute, Index gpu = 0);
  ~GpuDevice();
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;

  // "NVIDIA H200", say.
  const std::string& name() const { return name_; }
  CUstream_st* stream() const { return stream_; }
  GemmChoice gemm() const { return gemm_; }

  // Whether work is only counted (device/mode.hpp), and a device where it is, of the same kind.
  bool is_dry_run() const { return mode_ == Mode::dry_run; }
  GpuDevice dry_run_device() const { return GpuDevice(gemm_, Mode::dry_run, gpu_); }

  // The same GPU with another stream, whose work may be done beside this one's; and what keeps two of them in order:
  // work that is asked for from now on begins when the other device has done what it was asked for until now.
  std::unique_ptr<GpuDevice> beside() const { return std::make_unique<GpuDevice>(gemm_, mode_, gpu_); }
  void wait_for(const GpuDevice& other);

  // Work that needs nothing of what the device is asked for next, and may be done beside it: in a second stream, which
  // the device has for all of its branches, with scratch memory of its own. In a recording it is a branch of the graph.
  //
  //   SideStream branch(device);
  //   a(branch.fork());    begins when the device has done what it was asked for until here
  //   b(device);           goes on beside that
  //   branch.join();       or the end of the branch: what the device is asked for from here on finds a done
  //
  // Until then nothing may overwrite what the branch reads or writes, nor read what it writes.
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

  // While one of these lives, partial sums wait for its end, with their parts: nobody reads a gradient of weights
  // sooner. Then few kernels do all of them, in the place of one each.
  class DeferredReductions {
   public:
    explicit DeferredReductions(GpuDevice& device);
    ~DeferredReductions();  // what waits then is not done: something went wrong
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
  // Somebody reads them sooner.
  void finish_late_sums() {
    if (late_sums_) late_sums_->finish();
  }

  // Most bytes of scratch memory that were in use at one time, with those of its branches; and that it will be as much
  // as on another device.
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
  // Waits until `from` has been read, and so for all that was asked for before: the caller may free it. That costs a
  // way to the GPU and back, some microseconds, and must not be recorded.
  template <class T>
  void copy_from_host(T* to, const T* from, Index count) {
    copy_from_host_later(to, from, count);
    synchronize();
  }
  // Does not wait. `from` must stay as it is until this device has been waited for: a GPU may read the host's memory
  // itself, when it gets there.
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

  // A piece of work that is done many times over the same memory: run once as it is, then recorded as a CUDA graph,
  // then replayed. What changes between runs must be read from device memory. A body that throws leaves nothing
  // recorded; the next run tries again.
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
    bool replay(GpuDevice& device);          // false: nothing is recorded yet
    bool begin(GpuDevice& device);           // false: this run is not recorded
    void end(GpuDevice& device);             // and does what was recorded
    static void abandon(GpuDevice& device);  // what was recorded is thrown away, not done

    int runs_ = 0;
    void* graph_ = nullptr;
  };

 private:
  template <class T>
  static std::size_t bytes_of(Index count) {
    return static_cast<std::size_t>(count) * sizeof(T);
  }
  GpuDevice& of_branches();
  void set_zero_bytes(void* to, std::size_t bytes);
  void copy_bytes(void* to, const void* from, std::size_t bytes);  // in whichever direction the pointers say

  std::string name_;
  CUstream_st* stream_ = nullptr;
  CUevent_st* reached_ = nullptr;  // in this device's stream, for another one that waits
  GemmChoice gemm_;
  Mode mode_;
  Index gpu_;

 public:
  Workspace workspace{memory()};

 private:
  Workspace parts_{memory()};
  DeferredReductions* late_sums_ = nullptr;  // a branch has those of whom it belongs to
  std::unique_ptr<GpuDevice> of_branches_;   // made when the first one forks
};

}  // namespace abh
