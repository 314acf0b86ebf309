// The blocks of the core that pool, over windows, and networks of them.

#include <string>

#include "tests/harness/network_case.hpp"
#include "tests/harness/pooling_blocks.hpp"

namespace abh {
namespace {

TEST_CASE("windows: additive, every derivative", "[windows]") {
  for_each_form(additive_case(2, 2, 1, 7, 3), [](const auto& block) { check_layer(block); });
  for (const Index window : {1, 2, 5, 9}) check_layer(additive_case(1, 3, 2, 8, window));
  BlockCase<MakeAdditive> block = additive_case(2, 2, 2, 5, 2);
  const Array<Token> mask_bc = {1, 1, 0, 0, 1, /**/ 0, 0, 1, 1, 0};  // a hole; padding on both sides
  block.config.positions = "alibi";
  check_layer(block);
  for (const char* positions : {"learned", "alibi"}) {
    block.config.positions = positions;
    block.mask_bc = mask_bc;
    for_each_form(block, [](const auto& each) { check_layer(each); });
  }
}

TEST_CASE("windows: a window shorter than the sequence is not global", "[windows]") {
  const Values<double> in = random_values(additive_case(2, 3, 2, 6).inputs(), 3);
  CpuDevice<Isa::baseline> device(1);
  CHECK(run_forward<double>(additive_case(2, 3, 2, 6, 5), device, in) !=
        run_forward<double>(additive_case(2, 3, 2, 6), device, in));
}

TEST_CASE("windows: additive is causal, and inference equals the full pass", "[windows][gpu]") {
  check_causality(additive_case(1, 9, 1, 9, 4));
  for (const Index window : {1, 2, 3, 5, 12, 20}) check_steps(additive_case(2, 4, 1, 13, window));
  for (const Index window : {1, 4, 20}) {
    BlockCase<MakeAdditive> block = additive_case(2, 4, 1, 13, window);
    block.config.positions = "alibi";
    check_causality(block);
    check_steps(block);
  }
}

TEST_CASE("windows: average, every derivative", "[windows]") {
  for (const Index window : {1, 2, 5, 9}) check_layer(average_case(2, 3, 2, 8, window));
  check_average_with_mask(average_case(2, 2, 2, 5, 2));
  check_average_example(average_case(1, 1, 1, 4, 2), {2, 3, 6.5, 5}, {2, 2.5, 3.5, 2});
}

TEST_CASE("windows: average is causal, and inference equals the full pass", "[windows][gpu]") {
  for (const Index window : {1, 3}) {
    CAPTURE(window);
    check_causality(average_case(2, 3, 2, 5, window));
    check_steps(average_case(2, 3, 1, 11, window));
  }
}

TEST_CASE("windows: GPU kernels of additive", "[windows][gpu]") {
  for (const char* positions : {"none", "alibi"}) {
    BlockCase<MakeAdditive> block = additive_case(2, 16, 3, 21, 4);
    block.config.positions = positions;
    check_gpu("additive", std::string("block, window 4, positions ") + positions, block);
  }
}

TEST_CASE("network: every layer has its own window", "[network]") {
  const auto loss_of = [](const std::string& windows) {
    const NetworkCase network = network_case("additive", windows);
    return Built<Reference, double>(network, network.weights()).forward();
  };
  CHECK(loss_of("2,3") != loss_of("2,2"));
  CHECK(loss_of("2,3") != loss_of("3,3"));
}

}  // namespace
}  // namespace abh
