#include "extras/seq2seq/pairs.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "extras/seq2seq/bleu.hpp"
#include "extras/seq2seq/decoding.hpp"

namespace abh {

namespace {

constexpr Index fewest_pairs = 10, most_translated = 1000;

}  // namespace

SequenceWords words_of_lines(const std::vector<PairedLine>& lines, const std::string& path, bool bytes, bool shared) {
  if (bytes) return {Tokenizer::of_bytes(), Tokenizer::of_bytes(), shared};
  std::string source, target;
  for (const PairedLine& line : lines) {
    source += line.source;
    target += line.target;
  }
  if (shared) source = target = source + target;
  return {Tokenizer::of_characters(source, path), Tokenizer::of_characters(target, path), shared};
}

SequenceWords words_of_pairs(const Metadata& task, bool shared, const std::string& source) {
  const auto tokenizer = [&](const char* key) {
    return Tokenizer::from_metadata(task.at("tokenizer"), task.at(key), source);
  };
  return {tokenizer("source_characters"), tokenizer("target_characters"), shared};
}

std::unique_ptr<PairsTask> PairsTask::of_lines(const std::vector<PairedLine>& lines, SequenceWords words,
                                               const PlainText& file, const std::string& path, Index longest,
                                               bool all) {
  std::vector<Pair> pairs;
  for (const PairedLine& line : lines) {
    const std::string where = path + ": line " + to_text(line.line);
    Pair pair{words.source_tokens(line.source, where), words.target_tokens(line.target, where)};
    const Index source = static_cast<Index>(pair.source.size()), target = static_cast<Index>(pair.target.size());
    if (source <= longest && target < longest) pairs.push_back(std::move(pair));
  }
  const Index kept = static_cast<Index>(pairs.size()), left_out = static_cast<Index>(lines.size()) - kept;
  if (kept < (all ? 1 : fewest_pairs)) {
    throw Error(path + ": holds " + to_text(kept) + " pairs" +
                (left_out > 0 ? " that are not longer than --context " + to_text(longest) : "") + ", expected " +
                (all ? "one at least" : to_text(fewest_pairs) + " at least: the last tenth is held back"));
  }
  const Index training = all ? 0 : kept - kept / 10;
  std::unique_ptr<PairsTask> task(
      new PairsTask(std::move(pairs), training, left_out, std::move(words), file.fingerprint, path, longest));
  task->notes_ = file.notes;
  const auto note = [&](Index count, const std::string& what) {
    if (count > 0) task->notes_.push_back(path + ": " + what);
  };
  const auto without = [&](std::string_view PairedLine::*side, const std::string& name) {
    const auto is_empty = [&](const PairedLine& line) { return (line.*side).empty(); };
    const Index count = std::count_if(lines.begin(), lines.end(), is_empty);
    note(count, "pairs without a " + name + ": " + to_text(count));
  };
  without(&PairedLine::source, "source");
  without(&PairedLine::target, "target");
  note(left_out, to_text(left_out) + " pairs are longer than --context " + to_text(longest) + " and left out");
  const Index known = task->known_test_pairs();
  note(known, "test pairs that also occur in the training set: " + to_text(known) + " of " +
                  to_text(task->validation_rows()) + "; accuracy and BLEU include them");
  return task;
}

PairsTask::PairsTask(std::vector<Pair> pairs, Index training, Index left_out, SequenceWords words,
                     std::string fingerprint, const std::string& path, Index longest)
    : Seq2SeqTask("pairs", std::move(words), longest, longest, training, static_cast<Index>(pairs.size()) - training),
      fingerprint_(std::move(fingerprint)),
      name_(one_line(path)),
      pairs_(std::move(pairs)),
      training_(training),
      left_out_(left_out) {}

Index PairsTask::known_test_pairs() const {
  const auto first_test = pairs_.begin() + training_;
  const std::set<Pair> known(pairs_.begin(), first_test);
  return std::count_if(first_test, pairs_.end(), [&](const Pair& tested) { return known.contains(tested); });
}

Seq2SeqTask::Pair PairsTask::pair(Index example) const {
  const Index first_test = static_cast<Index>(first_test_example);
  return pairs_[static_cast<std::size_t>(example < first_test ? example : example - first_test + training_)];
}

Metadata PairsTask::metadata() const {
  return {{"task", "pairs"},
          {"tokenizer", words().source().kind()},
          {"source_characters", words().source().vocabulary()},
          {"target_characters", words().target().vocabulary()}};
}

std::size_t PairsTask::bytes() const {
  std::size_t bytes = 0;
  for (const Pair& pair : pairs_) bytes += (pair.source.size() + pair.target.size()) * sizeof(Token);
  return bytes;
}

std::string PairsTask::summary() const {
  return name_ + ", " + to_text(training_) + " pairs for training, " + to_text(validation_rows()) + " for testing, " +
         to_text(words().source().size()) + " and " + to_text(words().target().size()) + " " + unit() + "s" +
         (left_out_ > 0 ? ", " + to_text(left_out_) + " left out because longer than " + to_text(longest_target())
                        : "");
}

Batch PairsTask::training_batch(Index B, std::uint64_t seed, Index step) const {
  // Pairs drawn for this group of steps, sorted by length; they are drawn as in other tasks.
  const Index first_step = step / steps_at_once * steps_at_once;
  std::vector<std::array<Index, 3>> drawn;  // length, number, example: equal lengths stay in the order of their numbers
  for (Index t = first_step; t < first_step + steps_at_once; ++t) {
    for (Index b = 0; b < B; ++b) {
      const Index example = training_example(B, seed, t, b);
      const Pair& pair = pairs_[static_cast<std::size_t>(example)];
      const std::size_t length = pair.source.size() + pair.target.size();
      drawn.push_back({static_cast<Index>(length), static_cast<Index>(drawn.size()), example});
    }
  }
  std::sort(drawn.begin(), drawn.end());
  // The assignment of lengths to steps is random, too.
  std::vector<Index> order(steps_at_once);
  std::iota(order.begin(), order.end(), Index{0});
  const auto lot = [&](Index i) {
    return philox_word(seed, static_cast<std::uint64_t>(B + i), static_cast<std::uint32_t>(first_step), sites::batch);
  };
  std::sort(order.begin(), order.end(), [&](Index a, Index b) { return std::pair(lot(a), a) < std::pair(lot(b), b); });
  const Index part = order[static_cast<std::size_t>(step - first_step)];
  Batch batch = empty_batch();
  for (Index b = 0; b < B; ++b) append(batch, drawn[static_cast<std::size_t>(part * B + b)][2]);
  cut_padding(batch);
  return batch;
}

Batch PairsTask::validation_batch(Index first, Index B, Index rows) const {
  Batch batch = Seq2SeqTask::validation_batch(first, B, rows);
  cut_padding(batch);
  return batch;
}

Index PairsTask::evaluation_targets(Index rows) const {
  Index targets = 0;
  for (Index row = 0; row < rows; ++row) {
    targets += static_cast<Index>(pair(evaluated_example(row, rows)).target.size()) + 1;
  }
  return targets;
}

Index PairsTask::closing_examples() const { return std::min(validation_rows(), most_translated); }

std::optional<std::string> PairsTask::closing_line(const ModelConfig& config, const std::vector<float>& weights,
                                                   Index examples, Index threads,
                                                   const std::function<bool(Index)>& keep_going) const {
  const auto text = [&](const std::vector<Token>& tokens) {
    return words().target_text(tokens.data(), static_cast<Index>(tokens.size()));
  };
  Decoders decoders({.device = {.device = "cpu", .threads = threads}},
                    {.config = config, .task = {}, .weights = weights}, {}, examples);
  const std::optional<std::vector<double>> bleu_of = decoders.run<double>(
      examples,
      [&](Decoder& decode, Index row) {
        const Pair expected = pair(evaluated_example(row, examples));
        return bleu(text(decode(expected.source).front().tokens), text(expected.target));
      },
      keep_going);
  if (!bleu_of) return std::nullopt;
  const double sum = std::accumulate(bleu_of->begin(), bleu_of->end(), 0.0);
  return "bleu: " + fixed_text(sum / static_cast<double>(examples), 4) + ", mean of " + to_text(examples) +
         " pairs held back, each written by the network itself";
}

namespace {

void check_pairs(const Metadata& metadata, const ModelConfig& config, const std::string& source) {
  const SequenceWords words = words_of_pairs(metadata, config.embeddings == "shared", source);
  require_sizes(words, config, source);
}

}  // namespace

TaskKind pairs_kind(const TaskPrograms& programs) {
  return {.name = "pairs",
          .summary = "translate the lines of a file",
          .check = check_pairs,
          .keys = {"tokenizer", "source_characters", "target_characters"},
          .complete = [](Metadata&) {},
          .programs = programs};
}

}  // namespace abh
