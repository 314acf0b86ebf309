#pragma once

#include <memory>
#include <vector>

#include "network/beam_search.hpp"
#include "network/model.hpp"
#include "program/flags.hpp"
#include "tasks/programs.hpp"
#include "tasks/sequences/sequence_task.hpp"

namespace abh {

// How a network of such a task writes by itself. Greedy but where a beam is asked for.
struct Decoding {
  Index beam = 1;
  double length_penalty = 0;
};
inline constexpr Index widest_beam = 1024;
void add_decoding_flags(Flags& flags, Decoding& decoding, Index widest = widest_beam);
// UsageError for a length penalty without a beam: a single hypothesis is the best with any penalty.
void require_penalty_of_several(const Decoding& decoding);

// A network that answers sources, one after the other.
class Decoder {
 public:
  // Error for more memory than there is.
  Decoder(const Machine& machine, const Trained& trained, const Decoding& decoding);

  // What it finds for a source of at most config.source_context tokens, best first. The end is left out of no
  // hypothesis that has one. tree: as of beam_search.
  std::vector<Hypothesis> operator()(const std::vector<Token>& source, std::vector<BeamNode>* tree = nullptr);

 private:
  BeamSettings settings_;
  std::unique_ptr<Model> model_;
  std::vector<double> logits_v_;
};

}  // namespace abh
