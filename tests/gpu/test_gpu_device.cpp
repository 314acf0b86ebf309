// The device of cuda/gpu.hpp on every GPU of this build, and the presence of a GPU where one is required.

#include <cstddef>
#include <cstdlib>

#include "base/error.hpp"
#include "layers/gelu.hpp"
#include "tests/harness/layer_case.hpp"
#if defined(ABH_EMULATOR)
#include "cuda/emulator/emulator.hpp"
#endif

namespace abh {
namespace {

TEST_CASE("gpu device: ABH_REQUIRE_GPU requires a usable GPU", "[gpu_device][gpu]") {
  if (!std::getenv("ABH_REQUIRE_GPU")) return;
  CHECK(has_real_gpu());
}

template <class Device>
void gelu(Device& device, Array<float>& out, const Array<float>& in) {
  gelu_forward<Device, float>(device, out.data(), in.data(), static_cast<Index>(in.size()), GeluForm::erf);
}

TEST_CASE("gpu device: a captured graph runs its body at every call", "[gpu_device][gpu]") {
  for_each_gpu([]<class Device>(Device& device, const std::string& name) {
    INFO(name);
    typename Device::CapturedGraph recording;
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

TEST_CASE("gpu device: an exception in the body discards the capture, and the next run works", "[gpu_device][gpu]") {
  for_each_gpu([]<class Device>(Device& device, const std::string& name) {
    INFO(name);
    typename Device::CapturedGraph recording;
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

// On every GPU. On the emulator, the second and later runs of a captured graph follow only the graph's edges, in three
// orders.
template <class Body>
void in_every_order(const Body& body) {
  for_each_gpu([&](auto& device, const std::string& name) {
    for (const int order : {0, 1, 2, 3, 4}) {
      CAPTURE(name, order);
      set_thread_order(order);
      body(device);
    }
    set_thread_order(0);
  });
}

TEST_CASE("gpu device: a branch runs after earlier work and before later work", "[gpu_device][gpu]") {
  in_every_order([]<class Device>(Device& device) {
    typename Device::CapturedGraph recording;
    const Array<float> in(5, 100.0f);
    Array<float> before(5), first(5), beside(5), second(5), joined(5), after(5);
    for (int time = 0; time < 3; ++time) {
      device.synchronize();
      for (Array<float>* array : {&before, &first, &beside, &second, &joined, &after}) array->assign(5, -1);
      recording.run(device, [&] {
        gelu(device, before, in);
        {
          typename Device::SideStream branch(device);
          gelu(branch.fork(), first, before);
          gelu(device, beside, before);
          gelu(branch.fork(), second, beside);
          branch.join();
          gelu(device, joined, second);
          gelu(branch.fork(), second, first);
        }
        gelu(device, after, second);
      });
      device.synchronize();
      CHECK(joined == in);
      CHECK(after == in);
    }
  });
}

TEST_CASE("gpu device: nested branches, and a branch that throws", "[gpu_device][gpu]") {
  in_every_order([]<class Device>(Device& device) {
    typename Device::CapturedGraph recording;
    const Array<float> in(5, 100.0f);
    Array<float> outer(5), inner(5), out(5);
    bool throws = false;
    const auto body = [&] {
      {
        typename Device::SideStream branch(device);
        Device& beside = branch.fork();
        {
          typename Device::SideStream twig(beside);
          gelu(twig.fork(), inner, in);
          if (throws) throw Error("the body's own");
        }
        gelu(beside, outer, inner);
      }
      gelu(device, out, outer);
    };
    for (int time = 0; time < 5; ++time) {
      device.synchronize();
      for (Array<float>* array : {&outer, &inner, &out}) array->assign(5, -1);
      throws = time == 1;  // when it would have been recorded
      if (throws) {
        CHECK_THROWS_WITH(recording.run(device, body), "the body's own");
        continue;
      }
      recording.run(device, body);
      device.synchronize();
      CHECK(out == in);
    }
  });
}

#if defined(ABH_EMULATOR)
TEST_CASE("gpu device: a branch may run before or after concurrent work", "[gpu_device][gpu]") {
  GpuDevice<Backend::emulated> device;
  const Array<float> in(5, 100.0f);
  for (const int order : {0, 1}) {
    set_thread_order(order);
    Array<float> read(5, 0.0f), found(5);
    GpuDevice<Backend::emulated>::CapturedGraph recording;
    for (int time = 0; time < 2; ++time) {
      read.assign(5, 0.0f);
      recording.run(device, [&] {
        GpuDevice<Backend::emulated>::SideStream branch(device);
        gelu(branch.fork(), found, read);
        gelu(device, read, in);  // an unjoined branch may or may not have it
      });
    }
    CHECK(found[0] == (order == 0 ? 0.0f : 100.0f));
  }
  set_thread_order(0);
}
#endif

TEST_CASE("gpu device: scratch memory of branches is counted and expected with the device's own", "[gpu_device][gpu]") {
  for_each_gpu([]<class Device>(Device& like, const std::string& name) {
    INFO(name);
    const auto take = [](Device& device) {
      typename Device::Scope scratch(device.workspace);
      scratch.template take<float>(64);
      typename Device::SideStream branch(device);
      for (const Index count : {256, 1 << 20, 32}) {
        Device& beside = branch.fork();
        typename Device::Scope of_branch(beside.workspace);
        of_branch.template take<float>(count);
      }
    };
    Device counter(like.gemm(), Mode::dry_run), device(like.gemm());
    take(counter);
    CHECK(counter.scratch_peak() == 256 + (4 << 20));
    device.expect_scratch_of(counter);
    CHECK(device.scratch_peak() == 0);
    const void* places[2];
    for (int i = 0; i < 2; ++i) {  // one piece holds the largest from the first take on
      typename Device::SideStream branch(device);
      typename Device::Scope of_branch(branch.fork().workspace);
      places[i] = of_branch.template take<float>(i == 0 ? 1 : 1 << 20);
    }
    CHECK(places[0] == places[1]);
    take(device);
    CHECK(device.scratch_peak() == counter.scratch_peak());
  });
}

#if defined(ABH_EMULATOR)
// The GPU gives exactly as much memory as was counted: with a byte less the work fails.
TEST_CASE("gpu device: the counted scratch memory is all that the GPU allocates", "[gpu_device][gpu]") {
  using Device = GpuDevice<Backend::emulated>;
  const auto take = [](Device& device, Index own, Index parts, Index of_branch) {
    Device::DeferredReductions late(device);
    Device::Scope scratch(device.workspace);
    if (own > 0) scratch.take<float>(own);
    if (parts > 0) late.parts.take<float>(parts);
    if (of_branch == 0) return;
    Device::SideStream branch(device);
    Device::Scope beside(branch.fork().workspace);
    beside.take<float>(of_branch);
  };
  // Each of them is a piece of its own, of a megabyte at least.
  const Index own = 3 << 18, parts = 5 << 18, of_branch = 7 << 18;
  for (const auto& [a, b, c] : {std::tuple{own, parts, of_branch},
                                {own, Index{0}, Index{0}},
                                {Index{0}, parts, Index{0}},
                                {Index{0}, Index{0}, of_branch}}) {
    CAPTURE(a, b, c);
    Device counter(usual_gemm<Backend::emulated>(), Mode::dry_run);
    take(counter, a, b, c);
    const std::size_t counted = counter.scratch_peak();
    CHECK(counted == static_cast<std::size_t>(a + b + c) * sizeof(float));
    for (const std::size_t missing : {0u, 1u}) {
      Device device;
      device.expect_scratch_of(counter);
      emulator::set_memory_limit(counted - missing);
      if (missing == 0) CHECK_NOTHROW(take(device, a, b, c));
      if (missing == 1) CHECK_THROWS_AS(take(device, a, b, c), Error);
      emulator::set_memory_limit(std::size_t{1} << 40);
      if (missing == 0) CHECK(device.scratch_peak() == counted);
    }
  }
}
#endif

TEST_CASE("gpu device: a refused allocation does not affect later work", "[gpu_device][gpu]") {
  for_each_gpu([](auto& device, const std::string& name) {
    INFO(name);
    CHECK_THROWS_AS(device.memory().allocate(std::size_t{1} << 50), Error);
#if defined(ABH_EMULATOR)
    CHECK(emulator::cudaGetLastError() == emulator::cudaSuccess);  // a real launch would check the error itself
#endif
    const Array<float> in(5, 100.0f);
    Array<float> out(5);
    gelu(device, out, in);
    device.synchronize();
    CHECK(out == in);
  });
}

TEST_CASE("gpu device: host memory may be freed right after its copy", "[gpu_device][gpu]") {
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
