#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "extras/seq2seq/beam_search.hpp"
#include "extras/seq2seq/seq2seq_task.hpp"
#include "network/model.hpp"
#include "program/flags.hpp"
#include "tasks/programs.hpp"

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

  // The answers for a source of at most config.source_context tokens, best first. The end is left out of no
  // hypothesis that has one. tree: as of beam_search.
  std::vector<Hypothesis> operator()(const std::vector<Token>& source, std::vector<BeamNode>* tree = nullptr);

 private:
  BeamSettings settings_;
  std::unique_ptr<Model> model_;
  std::vector<double> logits_v_;
};

// Decoders that share out sources: on a CPU one for each of its threads, else one.
class Decoders {
 public:
  // For at most so many sources at a time.
  Decoders(const Machine& machine, const Trained& trained, const Decoding& decoding, Index sources);

  // result(decoder, i) for i in [0, count). keep_going(results done) is asked by the calling thread after each of its
  // own; where it says no, there are none.
  template <class Result>
  std::optional<std::vector<Result>> run(Index count, const std::function<Result(Decoder&, Index)>& result,
                                         const std::function<bool(Index)>& keep_going) {
    std::vector<Result> results(static_cast<std::size_t>(count));
    std::atomic<Index> next = 0, done = 0;
    std::atomic<bool> stopped = false;
    const auto work = [&](Decoder& decoder, bool asks) {
      try {
        for (Index i = next++; i < count && !stopped; i = next++) {
          results[static_cast<std::size_t>(i)] = result(decoder, i);
          ++done;
          if (asks && !keep_going(done)) stopped = true;
        }
      } catch (...) {
        stopped = true;
        throw;
      }
    };
    std::vector<std::future<void>> others;  // which hand on what is thrown
    for (std::size_t i = 1; i < decoders_.size(); ++i) {
      others.push_back(std::async(std::launch::async, work, std::ref(*decoders_[i]), false));
    }
    work(*decoders_.front(), true);
    for (std::future<void>& other : others) other.get();
    if (stopped) return std::nullopt;
    return results;
  }

 private:
  std::vector<std::unique_ptr<Decoder>> decoders_;
};

// The rank of every hypothesis that was found, from 1, by its text: equal texts, which the beam can reach by different
// tokens, share the rank of the best of them.
std::vector<Index> ranks_of_texts(const std::vector<Hypothesis>& found, const SequenceWords& words);

}  // namespace abh
