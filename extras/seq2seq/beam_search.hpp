#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/types.hpp"

namespace abh {

// Settings of the search for a likely sequence (extras/seq2seq/beam_search.md).
struct BeamSettings {
  Index width = 1;            // number of hypotheses; 1: greedy
  double length_penalty = 0;  // alpha, in the score below
  Index most_tokens = 1;      // longer hypotheses are cut off
  Token begin = 0, end = 0;   // first input token; token that finishes a hypothesis
};

// A result: its tokens, including the end token but not the begin token, its log probability, and the score for
// ranking,
//
//   score = log_probability / ((5 + n) / 6)^length_penalty,   n tokens.
struct Hypothesis {
  std::vector<Token> tokens{};
  double log_probability = 0, score = 0;
  Index node = 0;  // its last node in the search tree
};

// A node of the search tree: its parent extended by one token. Nodes of a step follow the nodes of the previous step. A
// node without children and without a finished hypothesis was discarded.
struct BeamNode {
  Index parent;  // index in the tree; -1: the empty hypothesis
  Token token;
  double log_probability;
};

// One inference step (Model::step): returns the logits after `token` for state `hypothesis`. There is one state per
// hypothesis of the beam. The first step uses state 0.
using NextLogits = std::function<std::span<const double>(Token token, Index position, Index hypothesis)>;
// Copies the state of one hypothesis to another.
using CopyHypothesis = std::function<void(Index to, Index from)>;

// Returns at most `width` hypotheses, finished or cut off, best first. A step extends every live hypothesis by every
// token. The most likely extensions continue; their number is the width minus the number of finished hypotheses. Ties
// are resolved by hypothesis, then by token. A hypothesis with the end token is finished. The penalty is that of Wu et
// al., "Google's neural machine translation system", 2016; other programs stop at a bound instead of reducing the
// width.
//
// Throws Error for a logit that is not finite. At most width steps per token; if a hypothesis has several extensions,
// its state is copied for all except one. `tree`, if given, receives all kept nodes.
std::vector<Hypothesis> beam_search(const BeamSettings& settings, const NextLogits& next, const CopyHypothesis& copy,
                                    std::vector<BeamNode>* tree = nullptr);

}  // namespace abh
