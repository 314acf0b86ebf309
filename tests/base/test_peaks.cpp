#include <cmath>
#include <type_traits>

#include "base/bf16.hpp"
#include "device/peaks.hpp"
#include "tests/harness/catch.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {

// The speed of the machine is not tested. The measurement must stay within its arrays, which the emulator watches, and
// return a rate.
TEST_CASE("peaks: rates of a GPU are positive", "[peaks][gpu]") {
  for_each_gpu([&](auto& device, const std::string& name) {
    using Device = std::remove_reference_t<decltype(device)>;
    INFO(name);
    const double rates[] = {matrix_product_rate<Device, float>(device, 33),
                            matrix_product_rate<Device, bf16>(device, 33), copy_rate(device, 1000)};
    for (double rate : rates) {
      CHECK(rate > 0);
      CHECK(std::isfinite(rate));
    }
  });
}

TEST_CASE("peaks: rates of a CPU are positive", "[peaks]") {
  CpuDevice<Isa::baseline> device(2);
  for (double rate : {copy_rate(device, 1 << 20), multiply_add_rate(device, 0), multiply_add_rate(device, 2e-3),
                      narrow_product_rate(device, 0)}) {
    CHECK(rate > 0);
    CHECK(std::isfinite(rate));
  }
}

}  // namespace abh
