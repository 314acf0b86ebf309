// The device of cuda/gpu.hpp on every GPU of this build, and that there is one where there must be.

#include <cstddef>
#include <cstdlib>

#include "base/error.hpp"
#include "layers/gelu.hpp"
#include "tests/layer_case.hpp"
#if defined(ABH_EMULATOR)
#include "cuda/emulator/emulator.hpp"
#endif

namespace abh {
namespace {

TEST_CASE("gpu device: a real GPU can be used where ABH_REQUIRE_GPU asks for one", "[gpu_device][gpu]") {
  if (!std::getenv("ABH_REQUIRE_GPU")) return;
  CHECK(has_real_gpu());
}

template <class Device>
void gelu(Device& device, Array<float>& out, const Array<float>& in) {
  gelu_forward<Device, float>(device, out.data(), in.data(), static_cast<Index>(in.size()), GeluForm::erf);
}

TEST_CASE("gpu device: a recording runs its body, whatever time it is", "[gpu_device][gpu]") {
  for_each_gpu([]<class Device>(Device& device, const std::string& name) {
    INFO(name);
    typename Device::Recording recording;
    Array<float> in(5, 0.0f), out(5);
    for (int time = 0; time < 4; ++time) {
      in[0] = static_cast<float>(100 * time);
      out[0] = -1;
      recording.run(device, [&] { gelu(device, out, in); });
      device.synchronize();
      CHECK(out[0] == in[0]);  // gelu(x) of a large x, and of 0
    }
  });
}

TEST_CASE("gpu device: a body that throws leaves nothing recorded, and the next run is as good as ever",
          "[gpu_device][gpu]") {
  for_each_gpu([]<class Device>(Device& device, const std::string& name) {
    INFO(name);
    typename Device::Recording recording;
    const Array<float> in(5, 100.0f);
    Array<float> out(5, 0.0f), other(5, 0.0f);
    const auto good = [&] { gelu(device, out, in); };
    const auto bad = [&] {
      gelu(device, other, in);
      throw Error("the body's own");
    };
    recording.run(device, good);
    for (int time = 0; time < 2; ++time) {  // both would have been recorded
      CHECK_THROWS_WITH(recording.run(device, bad), "the body's own");
      device.synchronize();
    }
    for (int time = 0; time < 3; ++time) {
      device.synchronize();
      out[0] = 0;
      recording.run(device, good);
      device.synchronize();
      CHECK(out[0] == 100);
    }
  });
}

TEST_CASE("gpu device: memory that is refused is no trouble for what comes after", "[gpu_device][gpu]") {
  for_each_gpu([](auto& device, const std::string& name) {
    INFO(name);
    CHECK_THROWS_AS(device.memory().allocate(std::size_t{1} << 50), Error);
#if defined(ABH_EMULATOR)
    CHECK(emulator::cudaGetLastError() == emulator::cudaSuccess);  // a real launch would ask for itself
#endif
    const Array<float> in(5, 100.0f);
    Array<float> out(5);
    gelu(device, out, in);
    device.synchronize();
    CHECK(out == in);
  });
}

TEST_CASE("gpu device: what was copied from the host may go at once", "[gpu_device][gpu]") {
  for_each_gpu([](auto& device, const std::string& name) {
    INFO(name);
    Array<float> to(1 << 16);
    {
      const std::vector<float> from(to.size(), 3.0f);
      device.copy_from_host(to.data(), from.data(), static_cast<Index>(from.size()));
    }
    CHECK(to == Array<float>(to.size(), 3.0f));
    std::vector<float> kept(to.size(), 4.0f), back(to.size());
    device.copy_from_host_later(to.data(), kept.data(), static_cast<Index>(kept.size()));
    device.copy_to_host(back.data(), to.data(), static_cast<Index>(back.size()));
    CHECK(back == kept);
  });
}

}  // namespace
}  // namespace abh
