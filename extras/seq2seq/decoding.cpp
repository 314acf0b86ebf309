#include "extras/seq2seq/decoding.hpp"

#include <algorithm>
#include <map>
#include <string>

#include "base/error.hpp"
#include "base/text.hpp"
#include "device/available.hpp"

namespace abh {

void add_decoding_flags(Flags& flags, Decoding& decoding, Index widest) {
  flags.integer("beam", decoding.beam, "N", "beam width: number of hypotheses; 1: greedy decoding", 1, widest);
  flags.real("length-penalty", decoding.length_penalty, "ALPHA",
             "length penalty of beam search: divides the log probability of n tokens by ((5 + n) / 6)^ALPHA",
             {-100, 100});
  for (const char* word : {"num-beams", "beam-size", "beams"}) flags.also_called(word, "beam");
}

void require_penalty_of_several(const Decoding& decoding) {
  if (decoding.length_penalty == 0 || decoding.beam > 1) return;
  throw UsageError("--length-penalty: expected --beam 2 or more, found 1");
}

Decoder::Decoder(const Machine& machine, const Trained& trained, const Decoding& decoding)
    : settings_{.width = decoding.beam,
                .length_penalty = decoding.length_penalty,
                .most_tokens = trained.config.context,
                .begin = SequenceWords::begin,
                .end = SequenceWords::end} {
  const NetworkCapacity capacity{.B = 1,
                                 .C = 1,
                                 .positions = trained.config.context,
                                 .S = trained.config.source_context,
                                 .hypotheses = decoding.beam};
  require_memory(host_bytes(machine.device, model_memory(machine.device, trained.config, capacity, machine.type)));
  model_ = make_model(machine.device, trained.config, capacity, 0, machine.type);
  model_->write(Model::Arena::weights, trained.weights);
}

std::vector<Hypothesis> Decoder::operator()(const std::vector<Token>& source, std::vector<BeamNode>* tree) {
  model_->reset(batch_of_source(source));
  return beam_search(
      settings_,
      [&](Token token, Index position, Index hypothesis) {
        const std::span<const float> logits_v = model_->decode(token, position, hypothesis);
        logits_v_.assign(logits_v.begin(), logits_v.end());
        return std::span<const double>(logits_v_);
      },
      [&](Index to, Index from) { model_->copy_hypothesis(to, from); }, tree);
}

Decoders::Decoders(const Machine& machine, const Trained& trained, const Decoding& decoding, Index sources) {
  const bool is_cpu = resolved_device(machine.device.device) == "cpu";
  Machine each = machine;
  if (is_cpu) each.device.threads = 1;
  const Index count = is_cpu ? std::min(working_threads(machine.device), sources) : 1;
  for (Index i = 0; i < count; ++i) decoders_.push_back(std::make_unique<Decoder>(each, trained, decoding));
}

std::vector<Index> ranks_of_texts(const std::vector<Hypothesis>& found, const SequenceWords& words) {
  std::map<std::string, Index> rank_of;
  std::vector<Index> ranks;
  for (const Hypothesis& hypothesis : found) {
    const std::string text = words.target_text(hypothesis.tokens.data(), static_cast<Index>(hypothesis.tokens.size()));
    ranks.push_back(rank_of.try_emplace(text, static_cast<Index>(rank_of.size()) + 1).first->second);
  }
  return ranks;
}

}  // namespace abh
