#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/types.hpp"

namespace abh {

// How a sequence is sought that a network thinks likely (extras/seq2seq/beam_search.md).
struct BeamSettings {
  Index width = 1;            // hypotheses at once; 1: greedy
  double length_penalty = 0;  // alpha, of the score below
  Index most_tokens = 1;      // a hypothesis that has so many ends unfinished
  Token begin = 0, end = 0;   // what is read first; what finishes a hypothesis
};

// A sequence that was found: its tokens from the first one made, the end token included, what the network thinks of it,
// and by what it is ranked,
//
//   score = log_probability / ((5 + n) / 6)^length_penalty,   n tokens.
struct Hypothesis {
  std::vector<Token> tokens{};
  double log_probability = 0, score = 0;
  Index node = 0;  // where it ends in the tree of the search
};

// A hypothesis that the search kept: another one, and one token more. Those of a step stand behind those of the step
// before it. One that is nobody's parent and the node of no hypothesis that was found has died.
struct BeamNode {
  Index parent;  // its number in the tree; -1: the empty hypothesis
  Token token;
  double log_probability;
};

// One step of a network that has forgotten everything (Model::step): the logits of what follows `token`, in the place
// of a hypothesis, of which there are as many as the beam is wide. Number 0 is where the first step is made.
using NextLogits = std::function<std::span<const double>(Token token, Index position, Index hypothesis)>;
// Makes the place of one hypothesis a copy of another's.
using CopyHypothesis = std::function<void(Index to, Index from)>;

// All that is finished, or still alive after so many tokens, best first: at most `width`. At each step every live
// hypothesis is extended by every token, and of all these the likeliest go on, as many as the width less the finished
// ones; of two that are equally likely the one whose hypothesis, then whose token, comes first. A hypothesis with the
// end token is finished. Source: Wu et al., "Google's neural machine translation system", 2016, for the penalty; other
// programs stop at a bound in the place of a width that shrinks.
//
// Error for a logit that is not finite. Steps: at most width times tokens; a copy for every hypothesis that is extended
// in more than one way, once for each further one. `tree`, where it is asked for, gets all that the search kept.
std::vector<Hypothesis> beam_search(const BeamSettings& settings, const NextLogits& next, const CopyHypothesis& copy,
                                    std::vector<BeamNode>* tree = nullptr);

}  // namespace abh
