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

// Settings of autoregressive decoding: greedy, or beam search.
struct Decoding {
  Index beam = 1;
  double length_penalty = 0;
};
inline constexpr Index widest_beam = 1024;
void add_decoding_flags(Flags& flags, Decoding& decoding, Index widest = widest_beam);
// Throws UsageError for a length penalty without a beam: it would not change a single hypothesis.
void require_penalty_of_several(const Decoding& decoding);

// A network that decodes answers to sources, one source at a time.
class Decoder {
 public:
  // Throws Error if memory is not sufficient.
  Decoder(const Machine& machine, const Trained& trained, const Decoding& decoding);

  // Answers for a source of at most config.source_context tokens, best first, each with its end token, if any. tree: as
  // in beam_search.
  std::vector<Hypothesis> operator()(const std::vector<Token>& source, std::vector<BeamNode>* tree = nullptr);

 private:
  BeamSettings settings_;
  std::unique_ptr<Model> model_;
  std::vector<double> logits_v_;
};

// Decoders that share the sources: on a CPU one per thread, else one.
class Decoders {
 public:
  // For at most `sources` sources at a time.
  Decoders(const Machine& machine, const Trained& trained, const Decoding& decoding, Index sources);

  // Calls result(decoder, i) for i in [0, count). The calling thread calls keep_going(results done) after each of its
  // own results; if false, returns no results.
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
    std::vector<std::future<void>> others;  // they rethrow exceptions
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

// Rank of every hypothesis by its text, from 1. Equal texts, which can consist of different tokens, share the best
// rank.
std::vector<Index> ranks_of_texts(const std::vector<Hypothesis>& found, const SequenceWords& words);

}  // namespace abh
