#pragma once

// Attention of bf16 rows by the unit that multiplies bf16 matrices.
//
// As on a GPU, products read bf16 numbers: rows of query, key, value and d_out, weights, and gradients of scores. Sums,
// scores and the softmax are floats. Sections (attention_tiles.hpp) would change less than the rounding of the output.

#include "cpu/units/attention_unit_backward.hpp"
#include "cpu/units/attention_unit_forward.hpp"

namespace abh {

namespace {

// Bias of every head at signed distances (BiasTable), filled.
template <class Device, class Scope>
BiasTable<float> filled_bias(Device& device, Scope& scratch, const AttentionInputs<bf16>& in) {
  const BiasTable<float> bias(scratch, in);
  if (bias.first) parallel_for(device, in.N, [&](Index n, Index) { bias.fill(in, n); });
  return bias;
}

template <class Tiles, class Device>
void attention_in_unit(Device& device, const AttentionForward<bf16>& a) {
  const auto& in = a.in;
  const Index heads = in.B * in.N, block = block_rows(heads, in.C, in.K), blocks = blocks_of(in.C, block);
  const Index words = UnitForward<Tiles>::words(in.K, block);
  const Index sums = up_to(block, Tiles::rows) * up_to(in.K, Tiles::columns);
  typename Device::Scope scratch(device.workspace);
  Pair* all_words = scratch.template take<Pair>(device.threads.count() * words);
  float* all_sums = scratch.template take<float>(device.threads.count() * sums);
  const BiasTable<float> bias = filled_bias(device, scratch, in);
  parallel_for(device, heads * blocks, [&](Index task, Index worker) {
    const Index head = task / blocks, i = task % blocks;
    const Index t = i % 2 == 0 ? i / 2 : blocks - 1 - i / 2;  // as in forward_in_tiles
    [[maybe_unused]] const typename Tiles::Session session;
    UnitForward<Tiles>(a, head / in.N, head % in.N, t * block, block, bias.of_head(head % in.N),
                       all_words + worker * words, all_sums + worker * sums)
        .run();
  });
}

template <class Tiles, class Device>
void attention_in_unit(Device& device, const AttentionBackward<bf16>& a) {
  using Backward = UnitBackward<Tiles>;
  const auto& in = a.in;
  const Index heads = in.B * in.N, blocks = Backward::blocks(in.S), pieces = pieces_of(heads, blocks);
  const Index words = Backward::words(in.K, in.C, in.S), numbers = Backward::numbers(in.K, in.C, in.S);
  const Index d_query_numbers = Backward::d_query_numbers(in.K, in.C), padded_K = up_to(in.K, Tiles::columns);
  const Index workers = device.threads.count();
  const float scale = score_scale<float>(in);
  typename Device::Scope scratch(device.workspace);
  Pair* all_words = scratch.template take<Pair>(workers * words);
  float* all_numbers = scratch.template take<float>(workers * numbers);
  // One array per worker, or one per piece of every head.
  float* d_query = scratch.template take<float>((pieces == 1 ? workers : heads * pieces) * d_query_numbers);
  const BiasTable<float> bias = filled_bias(device, scratch, in);

  // Adds the pieces of rows [begin, end) of a head.
  const auto finish = [&](Index head, const float* d_query_pck, Index begin, Index end) {
    const Rows<bf16> d_query_ck =
        head_rows(a.d_query_bch, a.d_query_stride, head / in.N, head % in.N, in.C, in.N, in.K);
    for (Index c = begin; c < end; ++c) {
      for_lanes<bf16>(in.K, [&]<class M>(Index k) {
        M sum = splat<M>(0.0f);
        for (Index p = 0; p < pieces; ++p) sum += load<M>(d_query_pck + p * d_query_numbers + c * padded_K + k);
        store<M>(d_query_ck[c] + k, sum * scale);
      });
    }
  };
  parallel_for(device, heads * pieces, [&](Index task, Index worker) {
    const Index head = task / pieces;
    float* own = d_query + (pieces == 1 ? worker : task) * d_query_numbers;
    {
      [[maybe_unused]] const typename Tiles::Session session;
      Backward backward(a, head / in.N, head % in.N, bias.of_head(head % in.N), all_words + worker * words,
                        all_numbers + worker * numbers, own);
      for (Index t = task % pieces; t < blocks; t += pieces) backward.run_block(t * Backward::block_of(in.S));
    }
    if (pieces == 1) finish(head, own, 0, in.C);
  });
  if (pieces == 1) return;
  const Index tiles = blocks_of(in.C, tile);
  parallel_for(device, heads * tiles, [&](Index task, Index) {
    const Index head = task / tiles, first = task % tiles * tile;
    finish(head, d_query + head * pieces * d_query_numbers, first, min_of(first + tile, in.C));
  });
}

}  // namespace

}  // namespace abh
