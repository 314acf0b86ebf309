// The list of the kernels of basics.md.

#include "docs/kernels/basics.hpp"
#include "docs/kernels/on_device.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

// run(out, in) for arrays of this shape; in: 0.5, 1, 1.5, ... For a broken kernel, the recording keeps the emulator's
// message.
template <class Run>
kernels::Level kernel(int number, const char* name, const std::vector<long>& shape, const Run& run) {
  return {"basics", number, name, [=](kernels::Case& on_host, bool records) {
            std::size_t count = 1;
            for (const long extent : shape) count *= static_cast<std::size_t>(extent);
            kernels::Array in{"in", "f4", shape, std::vector<float>(count), false};
            for (std::size_t i = 0; i < count; ++i) in.x[i] = float(i % 100 + 1) / 2;
            on_host.arrays = {in, {"out", "f4", shape, {}, true}};
            OnDevice d(on_host, records);
            try {
              run(d.at<float>("out"), d.at<float>("in"));
            } catch ([[maybe_unused]] const std::exception& error) {
#if defined(EMULATOR_RECORDS)
              if (records) return emulator::record::fault(error.what());
#endif
              throw;
            }
            d.copy_back();
          }};
}

}  // namespace
}  // namespace ABH_BACKEND

template <>
std::vector<kernels::Level> kernels::basics<Backend::ABH_BACKEND>() {
  const auto simple = [](void (*run)(float*, const float*, cudaStream_t)) {
    return [=](float* out, const float* in) { run(out, in, nullptr); };
  };
  const auto with = [](void (*run)(float*, const float*, bool, cudaStream_t), bool broken) {
    return [=](float* out, const float* in) { run(out, in, broken, nullptr); };
  };
  return {
      kernel(1, "unaligned_rows", {4, 33}, simple(unaligned_rows)),
      kernel(2, "transpose_32", {32, 32}, simple(transpose_32)),
      kernel(3, "transpose_33", {32, 32}, simple(transpose_33)),
      kernel(4, "phases", {8, 32}, simple(phases)),
      kernel(5, "warp_scan", {32}, simple(warp_scan)),
      kernel(6, "missing_barrier", {64}, with(missing_barrier, true)),
      kernel(7, "missing_barrier_corrected", {64}, with(missing_barrier, false)),
      kernel(8, "divergent_barrier", {64}, with(divergent_barrier, true)),
      kernel(9, "divergent_barrier_corrected", {64}, with(divergent_barrier, false)),
  };
}

}  // namespace abh
