#include "extras/sparse/gather_rows.hpp"
#include "extras/sparse/gather_rows_case.hpp"
#include "tests/harness/layer_case.hpp"

namespace abh {
namespace {

// Every third position, then the positions before them; some rows have no source.
const Token* some_of(Index P, Index C) {
  Array<Token> index_p(static_cast<std::size_t>(P), -1);
  Index p = 0;
  for (const Index rest : {2, 1}) {
    for (Index c = rest; c < C && p < P; c += 3) index_p[static_cast<std::size_t>(p++)] = static_cast<Token>(c);
  }
  if (p < P) index_p[static_cast<std::size_t>(P) - 1] = static_cast<Token>(C + 5);
  return kept(std::move(index_p));
}

TEST_CASE("gather_rows: every derivative, at every SIMD width", "[gather_rows]") {
  check_layer(GatherRowsCase{.B = 2, .P = 5, .C = 4, .columns = 7, .index_p = some_of(5, 4)});
  check_layer(
      GatherRowsCase{.B = 2, .P = 3, .C = 8, .columns = 5, .index_p = some_of(3, 8), .from_gap = 3, .d_from_gap = 4});
  check_layer(GatherRowsCase{.B = 3, .P = 6, .C = 4, .columns = 3});  // without an index: the first rows, then none
  check_layer(GatherRowsCase{.B = 1, .P = 1, .C = 1, .columns = 1});
  check_widths(
      [](Index size) { return GatherRowsCase{.B = 2, .P = 4, .C = 5, .columns = size, .index_p = some_of(4, 5)}; });
}

TEST_CASE("gather_rows: the worked example of the chapter", "[gather_rows][gpu]") {
  const GatherRowsCase layer{.B = 1, .P = 4, .C = 4, .columns = 2, .index_p = kept(Array<Token>{2, 0, 3, -1})};
  for_each_device(2, [&](auto& device) {
    const Values<float> in = {{1, 2, 3, 4, 5, 6, 7, 8}};
    CHECK(run_forward<float>(layer, device, in)[0] == Array<float>{5, 6, 1, 2, 7, 8, 0, 0});
    CHECK(run_backward<float>(layer, device, in, {{1, 2, 3, 4, 5, 6, 7, 8}})[0] ==
          Array<double>{3, 4, 0, 0, 1, 2, 5, 6});
  });
}

TEST_CASE("gather_rows: gradients replace old values, or are added to them", "[gather_rows][gpu]") {
  for_each_device(2, []<class Device>(Device& device) {
    Array<Token> index_p = {2, -1, 0};
    Array<float> d_from(8, 0.5f), d_to = {1, 2, 3, 4, 5, 6};
    ScatterRows<float> a{.d_from_bci = d_from.data(),
                         .d_to_bpi = d_to.data(),
                         .add = false,
                         .index_p = index_p.data(),
                         .B = 1,
                         .P = 3,
                         .C = 4,
                         .columns = 2};
    gather_rows_backward<Device, float>(device, a);
    wait_for(device);
    CHECK(d_from == Array<float>{5, 6, 0.5f, 0.5f, 1, 2, 0.5f, 0.5f});
    a.add = true;
    gather_rows_backward<Device, float>(device, a);
    wait_for(device);
    CHECK(d_from == Array<float>{10, 12, 0.5f, 0.5f, 2, 4, 0.5f, 0.5f});
  });
}

TEST_CASE("gather_rows: masks are gathered, too", "[gather_rows][gpu]") {
  for_each_device(2, []<class Device>(Device& device) {
    Array<Token> index_p = {3, -1, 0, 4}, mask_bc = {1, 0, 1, 0, /**/ 0, 1, 1, 1}, to(8, 7);
    gather_mask<Device>(device, to.data(), mask_bc.data(), index_p.data(), 2, 4, 4);
    wait_for(device);
    CHECK(to == Array<Token>{0, 0, 1, 0, /**/ 1, 0, 0, 0});
    gather_mask<Device>(device, to.data(), nullptr, index_p.data(), 2, 4, 4);
    wait_for(device);
    CHECK(to == Array<Token>{1, 0, 1, 0, /**/ 1, 0, 1, 0});
    gather_mask<Device>(device, to.data(), nullptr, nullptr, 2, 4, 3);
    wait_for(device);
    CHECK(to == Array<Token>{1, 1, 1, 0, /**/ 1, 1, 1, 0});
  });
}

TEST_CASE("gather_rows: no sequences, no rows, no positions", "[gather_rows][gpu]") {
  for_each_device(2, [](auto& device) {
    CHECK(run_forward<float>(GatherRowsCase{.B = 0, .P = 2, .C = 3, .columns = 3}, device, {{}})[0].empty());
    CHECK(run_forward<float>(GatherRowsCase{.B = 2, .P = 0, .C = 1, .columns = 1}, device, {{1, 2}})[0].empty());
    CHECK(run_forward<float>(GatherRowsCase{.B = 1, .P = 2, .C = 0, .columns = 2}, device, {{}})[0] ==
          Array<float>(4, 0.0f));
  });
}

TEST_CASE("gather_rows: many rows", "[gather_rows]") {
  const GatherRowsCase layer{.B = 2, .P = 700, .C = 1100, .columns = 130, .index_p = some_of(700, 1100)};
  check_float(layer, 1);
  check_threads(layer, 1);
}

TEST_CASE("gather_rows: on the GPU, rows of any size", "[gather_rows][gpu]") {
  for (const Index columns : {1, 3, 8, 33, 128, 260}) {
    check_gpu("gather_rows", GatherRowsCase{.B = 3, .P = 12, .C = 19, .columns = columns, .index_p = some_of(12, 19)});
  }
  check_gpu("gather_rows",
            GatherRowsCase{
                .B = 2, .P = 9, .C = 19, .columns = 8, .index_p = some_of(9, 19), .from_gap = 16, .d_from_gap = 8});
  // Rows of packs, where the distance between those of one array alone is none of packs.
  const GatherRowsCase packs{.B = 2, .P = 9, .C = 19, .columns = 8, .index_p = some_of(9, 19)};
  for (Index GatherRowsCase::*const gap :
       {&GatherRowsCase::from_gap, &GatherRowsCase::d_from_gap, &GatherRowsCase::to_gap}) {
    GatherRowsCase odd = packs;
    odd.*gap = 3;
    check_gpu("gather_rows", odd);
    odd.*gap = 4;
    check_gpu("gather_rows", odd);
  }
  check_alignment(GatherRowsCase{.B = 2, .P = 9, .C = 7, .columns = 8, .index_p = some_of(9, 7)});
}

}  // namespace
}  // namespace abh
