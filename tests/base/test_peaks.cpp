#include <cmath>
#include <type_traits>

#include "base/bf16.hpp"
#include "cpu/peaks.hpp"
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

// The rates divide a constant number of operations by the time. The sum of the chains shows the number independently.
TEST_CASE("peaks: chains in registers compute as many operations as their rates count", "[peaks]") {
  const auto check = [](const RegisterChains& chains) {
    CHECK_FALSE(!(std::abs(2.0 * static_cast<double>(chains.run(1)) / chains.flops - 1) <= 1e-3));
  };
  for_each_cpu(1, [&]<class Device>(Device& device, const std::string& name) {
    INFO(name);
    constexpr bool has_no_peak = std::is_same_v<Device, PlainDevice> || std::is_same_v<Device, CpuDevice<Isa::scalar>>;
    if constexpr (!has_no_peak) check(multiply_add_chains(device));
  });
  const auto check_unit = [&](auto& device, const std::string& name) {
    INFO(name);
    check(narrow_product_chains(device));
  };
  for_each_unit(1, check_unit);
#if defined(ABH_AVX512)
  if (isa_available(Isa::amx)) {
    CpuDevice<Isa::avx512> tiles(1, Mode::compute, Isa::amx);
    check_unit(tiles, "amx");
  }
#endif
}

}  // namespace abh
