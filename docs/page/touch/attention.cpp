// A row of the attention of plain/, as a page calls it: one query that sees S keys. Numbers stand in arrays that the
// caller writes and reads. The query is 1 and so is the scale, so that a key is its score and its gradient d_score.

#include "layers/attention.hpp"

#include "docs/page/touch/device.hpp"

namespace {

constexpr abh::Index most_s = 16;

}  // namespace

extern "C" {

// Given by the caller.
double score_s[most_s], value_s[most_s], d_out_row[1];

// Found by row.
double out_row[1], weight_s[most_s], d_score_s[most_s];

void row(int S) {
  const double query = 1;
  double lse, d_query, d_value_s[most_s];
  const abh::AttentionInputs<double> in{.query_bch = &query,
                                        .key_bsh = score_s,
                                        .value_bsh = value_s,
                                        .mask = {.causal = false},
                                        .scale = 1,
                                        .B = 1,
                                        .C = 1,
                                        .S = S,
                                        .N = 1,
                                        .K = 1};
  auto& device = abh::page_device();
  abh::attention_forward<abh::PlainDevice, double>(device, {.out_bch = out_row, .lse_bnc = &lse, .in = in});
  abh::attention_weights<abh::PlainDevice, double>(device, weight_s, &lse, in);
  abh::attention_backward<abh::PlainDevice, double>(device, {.d_query_bch = &d_query,
                                                             .d_key_bsh = d_score_s,
                                                             .d_value_bsh = d_value_s,
                                                             .d_out_bch = d_out_row,
                                                             .out_bch = out_row,
                                                             .lse_bnc = &lse,
                                                             .in = in});
}

}  // extern "C"
