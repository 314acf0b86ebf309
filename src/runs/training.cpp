#include "runs/training.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/crc32.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "device/isa.hpp"
#include "files/atomic_file.hpp"
#include "network/initial_weights.hpp"
#include "network/model.hpp"
#include "program/flags.hpp"
#include "program/terminal.hpp"
#include "runs/log.hpp"
#include "runs/progress.hpp"
#include "runs/run_folder.hpp"
#include "settings/schedule.hpp"

namespace abh {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* heard = "stopping: the run saves and leaves; the same signal again ends it unsaved";

volatile std::sig_atomic_t stop_signal = 0;
bool clear_line = false;  // true: clear the progress line before a message

// Signal handler. Prints a message immediately, because a step may take long.
void hear(int signal) {
  const int error = errno;
  const auto say = [](std::string_view text) {
    [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
  };
  if (stop_signal == 0) {
    if (clear_line) say("\r\x1b[K");
    say(heard);
    say("\n");
  }
  stop_signal = signal;
  errno = error;
}

// Ctrl-C, SIGTERM and SIGHUP (the terminal was closed): the run finishes the step or the evaluation batch, saves and
// ends. A second Ctrl-C or SIGTERM ends the program immediately. A second SIGHUP does not, because a shell and the
// system both send it. Signals that are ignored at the start stay ignored, such as Ctrl-C in the background and SIGHUP
// with nohup.
class StopOnSignals {
 public:
  explicit StopOnSignals(bool live_line) {
    stop_signal = 0;
    clear_line = live_line;
    struct sigaction action {};
    action.sa_handler = hear;
    for (Stopping& each : stopping_) {
      action.sa_flags = SA_RESTART | (each.signal == SIGHUP ? 0 : static_cast<int>(SA_RESETHAND));
      sigaction(each.signal, nullptr, &each.before);
      if (each.before.sa_handler != SIG_IGN) sigaction(each.signal, &action, nullptr);
    }
  }
  ~StopOnSignals() {
    for (const Stopping& each : stopping_) sigaction(each.signal, &each.before, nullptr);
  }
  StopOnSignals(const StopOnSignals&) = delete;
  StopOnSignals& operator=(const StopOnSignals&) = delete;

 private:
  struct Stopping {
    int signal;
    struct sigaction before {};
  };
  Stopping stopping_[3] = {{SIGHUP}, {SIGINT}, {SIGTERM}};
};

// Accumulates the time between start and stop.
class Stopwatch {
 public:
  void start() { begin_ = Clock::now(); }
  void stop() { seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }
  double seconds() const { return seconds_; }

 private:
  Clock::time_point begin_{};
  double seconds_ = 0;
};

constexpr auto longest_sample_of_stopped = std::chrono::seconds(2);

// Minimal time between two checks for a signal, so that processes do not wait for each other after every batch.
constexpr auto shortest_stretch = std::chrono::milliseconds(50);

class Trainer {
 public:
  Trainer(const TrainingRun& run, const Task& task, Processes& processes)
      : run_(run),
        processes_(processes),
        task_(task),
        C_(run.model.context),
        model_(make_model(run.device, run.model,
                          training_capacity(run.model, run.training, run.recompute, processes.size()),
                          run.training.dropout, run.training.type, processes)),
        progress_(run.training.steps, processes.size() == 1 && on_terminal()),  // else mpirun owns it
        saved_(run.resume.has_value()) {
    if (processes_.leads()) {
      // A killed run may have logged the pending step without saving. Its row is removed, because the step is evaluated
      // again.
      log_.emplace(
          run.run + "/log.csv",
          run.resume ? std::optional(run.resume->step - (run.resume->pending_gradient_norm ? 1 : 0)) : std::nullopt,
          RunLog::Columns{.accuracy = task.counts_answers(), .span = run.model.learns_reach()});
    }
    if (run.resume) {
      state_ = *run.resume;
      if (log_ && log_->position() != state_.log_position) {
        log_->clear();
        progress_.line(one_line(run.run) + "/log.csv: not the log of this run up to step " + to_text(state_.step) +
                       "; a new one begins");
      }
      model_->write(Model::Arena::weights, state_.weights);
      model_->write(Model::Arena::first_moments, state_.first_moments);
      model_->write(Model::Arena::second_moments, state_.second_moments);
      if (averages()) model_->write(Model::Arena::average, state_.average);
    } else {
      state_.task = task.metadata();
      state_.data_fingerprint = task.fingerprint();
      const std::vector<float> weights =
          !run.weights.empty()
              ? run.weights
              : initial_weights(parameter_table(run.model), run.model, run.training.init_std, run.training.seed);
      model_->write(Model::Arena::weights, weights);
      if (averages()) model_->write(Model::Arena::average, weights);
    }
    state_.config = run.model;
    state_.training = run.training;
    recent_losses_.assign(state_.recent_losses.begin(), state_.recent_losses.end());
  }

  int train() {
    const StopOnSignals signals(progress_.live());
    const TrainingConfig& training = run_.training;
    bool complete = !state_.pending_gradient_norm || after_step(*state_.pending_gradient_norm);
    while (complete && state_.step < training.steps && !received_signal()) {
      watch_.start();
      draw_batch(state_.step);
      const Model::StepResult result = model_->train_step(batch_, training, state_.step, [&] {
        if (state_.step + 1 < training.steps) draw_batch(state_.step + 1);
      });
      watch_.stop();
      require_finite(result);
      recent_losses_.push_back(result.loss);
      if (static_cast<Index>(recent_losses_.size()) > recent_steps) recent_losses_.pop_front();
      ++state_.step;
      ++steps_made_;
      state_.last_loss.reset();
      state_.last_accuracy.reset();
      complete = after_step(result.gradient_norm);
    }
    if (!complete || state_.step < training.steps || !finish()) stop();
    const Index signal = received_signal();
    return signal ? 128 + static_cast<int>(signal) : 0;
  }

 private:
  // Signal that one of the processes received; 0: none. All processes get the same result after the same step or
  // evaluation batches.
  Index received_signal() {
    const Index signal = processes_.largest(stop_signal);
    if (signal && stop_signal == 0) hear(static_cast<int>(signal));  // received by another process
    return signal;
  }

  // True: the average of the weights is evaluated and saved.
  bool averages() const { return run_.training.weight_average > 0; }

  static bool due(Index step, Index every) { return every > 0 && step % every == 0; }

  // Makes batch_ the batch of a step. train drew it during the previous step, if there was one.
  void draw_batch(Index step) {
    if (batch_step_ == step) return;
    batch_ = task_.training_batch(run_.training.batch, run_.training.seed, step);
    batch_step_ = step;
  }

  // Does the work due at this step: evaluation, log row, checkpoint. All are due at the last step. Returns false if a
  // signal arrived before the end of the evaluation; the resumed run then does this work.
  bool after_step(double gradient_norm) {
    const TrainingConfig& training = run_.training;
    const bool last = state_.step == training.steps;
    Measured measured;
    if (last || due(state_.step, training.eval_every)) {
      const std::optional<Measured> now = evaluate(last ? task_.validation_rows() : rows_on_the_way());
      state_.pending_gradient_norm = now ? std::nullopt : std::optional(gradient_norm);
      if (!now) return false;
      measured = *now;
      // A few examples measure the time for the closing line.
      if (!last) closing_line(best(), std::min(task_.closing_examples(), working_threads(run_.device)));
    }
    const std::optional<double> val_loss = measured.loss;
    state_.pending_gradient_norm.reset();
    if (last || due(state_.step, training.log_every) || (val_loss && training.log_every > 0)) {
      append_to_log({.step = state_.step,
                     .train_loss = recent_loss(),
                     .val_loss = val_loss,
                     .accuracy = measured.accuracy,
                     .span = mean_span(),
                     .loss = recent_losses_.empty() ? std::nullopt : std::optional(recent_losses_.back()),
                     .learning_rate = shown_learning_rate_at(training, state_.step - 1),
                     .grad_norm = gradient_norm,
                     .tokens_per_s = tokens_per_second()});
      progress_.update(state_.step, *recent_loss(), val_loss, tokens_per_second(), seconds_left(), measured.accuracy);
    }
    if (!last && due(state_.step, training.checkpoint_every)) save();
    return true;
  }

  // Rows of an evaluation that is not the last.
  Index rows_on_the_way() const { return task_.evaluation_rows(run_.training.eval_tokens); }

  // Estimated remaining time, from the measured steps and evaluations: remaining steps, evaluations and the closing
  // line. NaN before the first measurement.
  double seconds_left() const {
    const Index steps = run_.training.steps - state_.step, rows = rows_to_come();
    const double step = watch_.seconds() / static_cast<double>(steps_made_);
    return (steps > 0 ? step * static_cast<double>(steps) : 0) +
           (rows > 0 ? seconds_of_row() * static_cast<double>(rows) : 0) +
           seconds_of_example_ * static_cast<double>(task_.closing_examples());
  }

  // Seconds per evaluated row. Before the first evaluation: a third of the time per row of a training step.
  double seconds_of_row() const {
    if (evaluated_rows_ > 0) return evaluation_watch_.seconds() / static_cast<double>(evaluated_rows_);
    return watch_.seconds() / static_cast<double>(3 * steps_made_ * run_.training.batch);
  }

  // Validation rows that remain to be evaluated after this step.
  Index rows_to_come() const {
    const Index steps = run_.training.steps, every = run_.training.eval_every, rows = rows_on_the_way();
    if (state_.step == steps) return 0;
    const Index on_the_way = every > 0 ? (steps - 1) / every - state_.step / every : 0;
    // The last evaluation also measures the best weights again if they were measured on fewer rows.
    const bool again = rows < task_.validation_rows() && (on_the_way > 0 || state_.best_loss);
    return on_the_way * rows + (again ? 2 : 1) * task_.validation_rows();
  }

  // Learned attention spans per layer, if the network has them.
  using Spans = std::vector<std::pair<std::string, std::vector<double>>>;
  Spans spans_in(const std::vector<float>& weights) const {
    Spans spans;
    for (const Parameter& parameter : parameter_table(run_.model)) {
      if (parameter.kind != Kind::span) continue;
      const auto begin = weights.begin() + parameter.offset;
      spans.emplace_back(parameter.name, std::vector<double>(begin, begin + parameter.count));
    }
    return spans;
  }
  std::optional<double> mean_span() {
    if (!log_ || !run_.model.learns_reach()) return std::nullopt;
    double sum = 0, count = 0;
    for (const auto& [name, span_n] : spans_in(model_->read(Model::Arena::weights))) {
      sum = std::accumulate(span_n.begin(), span_n.end(), sum);
      count += static_cast<double>(span_n.size());
    }
    return count > 0 ? std::optional(sum / count) : std::nullopt;
  }
  static void print(const Spans& spans) {
    for (const auto& [name, span_n] : spans) {
      std::string line = name + ", in tokens:";
      for (const double span : span_n) line += " " + fixed_text(span, 1);
      std::printf("%s\n", line.c_str());
    }
  }

  void append_to_log(const LogRow& row) {
    if (log_) log_->append(row);
  }

  // Error of a run that cannot continue because `what` is not finite.
  Error lost(const std::string& what, const std::string& when) const {
    return Error(what + " is not finite " + when + ": the run stops; " +
                 (saved_ ? "its last good checkpoint is kept" : "it had no checkpoint yet") +
                 ". A lower --learning-rate may help");
  }

  void require_finite(const Model::StepResult& result) {
    if (std::isfinite(result.loss) && std::isfinite(result.gradient_norm)) return;
    const bool loss = !std::isfinite(result.loss);
    progress_.finish();
    throw lost(loss ? "the loss" : "the gradient", "at step " + std::to_string(state_.step + 1) + " (" +
                                                       to_text(loss ? result.loss : result.gradient_norm) + ")");
  }

  // Checks that a checkpoint is usable: all values are finite, and so is the loss of the next batch.
  void require_good_state() {
    const auto require = [this](bool good, const char* what) {
      if (!good) throw lost(what, "after step " + std::to_string(state_.step));
    };
    const auto finite = [](const std::vector<float>& values) {
      return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
    };
    require(finite(state_.weights) && finite(state_.average), "a weight");
    require(finite(state_.first_moments) && finite(state_.second_moments), "a moment of the gradient");
    draw_batch(state_.step);
    const Index B = run_.training.batch / run_.training.shards;
    const auto shard = [&](Index i) { return part_of(batch_, i * B, B); };
    const auto always = [](Index) { return true; };
    require(std::isfinite(sum_of_scores(run_.training.shards, shard, always)->loss), "the next loss");
  }

  // Sum of the losses of `batches` batches of the size of a shard, without dropout and label smoothing, in order, and
  // the numbers of correct and all answers. draw(i) returns batch i. The processes share the batches. All of them call
  // keep_going(done) from time to time, after the same batches; if it returns false, there is no sum.
  struct Sums {
    double loss = 0, right = 0, asked = 0;
  };
  template <class Draw, class KeepGoing>
  std::optional<Sums> sum_of_scores(Index batches, const Draw& draw, const KeepGoing& keep_going) {
    std::vector<double> losses(static_cast<std::size_t>(batches));
    double answers[2] = {};  // right, asked
    const Index P = processes_.size();
    Index rounds = 1;
    for (Index first = 0, end; first < batches; first = end) {
      end = std::min(batches, first + rounds * P);
      const Clock::time_point begin = Clock::now();
      for (Index i = first + processes_.rank(); i < end; i += P) {
        const Score score = model_->evaluate(draw(i));
        losses[static_cast<std::size_t>(i)] = score.loss_sum;
        answers[0] += static_cast<double>(score.right);
        answers[1] += static_cast<double>(score.asked);
      }
      if (end == batches) break;
      const bool is_short = processes_.largest(Clock::now() - begin >= shortest_stretch) == 0;
      if (!keep_going(end)) return std::nullopt;
      if (is_short) rounds *= 2;
    }
    processes_.sum(losses.data(), batches);  // each number is 0 in all processes except one
    if (task_.counts_answers()) processes_.sum(answers, 2);
    return Sums{std::accumulate(losses.begin(), losses.end(), 0.0), answers[0], answers[1]};
  }

  // Progress of an evaluation, which may measure several sets of weights.
  struct Evaluated {
    Index rows, targets;  // in total
    Index done = 0;       // rows done
    Clock::time_point shown = Clock::now();
  };

  // Result of an evaluation: mean loss and, if the task counts answers, the share of correct answers.
  struct Measured {
    std::optional<double> loss{}, accuracy{};
  };

  // Measures `rows` rows of the validation split, without dropout and label smoothing; nullopt if a signal arrived.
  std::optional<Measured> measure(Index rows, Evaluated& evaluated) {
    const Index B = run_.training.batch / run_.training.shards, before = evaluated.done;
    const auto count = [&](Index done) {
      evaluation_watch_.stop();
      evaluated_rows_ += before + done - evaluated.done;
      evaluated.done = before + done;
      evaluation_watch_.start();
    };
    evaluation_watch_.start();
    const std::optional<Sums> sums =
        sum_of_scores((rows + B - 1) / B, [&](Index i) { return task_.validation_batch(i * B, B, rows); },
                      [&](Index batches) {
                        count(batches * B);
                        show(evaluated);
                        return received_signal() == 0;
                      });
    if (!sums) return std::nullopt;
    count(rows);
    evaluation_watch_.stop();
    Measured measured{.loss = sums->loss / static_cast<double>(task_.evaluation_targets(rows))};
    if (task_.counts_answers()) measured.accuracy = sums->right / sums->asked;
    return measured;
  }

  // Shows the progress in targets; all rows of an evaluation have about the same number.
  void show(Evaluated& evaluated) {
    if (Clock::now() - evaluated.shown < progress_.pause()) return;
    evaluated.shown = Clock::now();
    progress_.working(state_.step, "validation", evaluated.targets * evaluated.done / evaluated.rows, evaluated.targets,
                      seconds_left() + seconds_of_row() * static_cast<double>(evaluated.rows - evaluated.done));
  }

  // Measures with other weights and then restores the weights of the model.
  std::optional<Measured> measure_with(const std::vector<float>& others, Index rows, Evaluated& evaluated) {
    const std::vector<float> weights = model_->read(Model::Arena::weights);
    model_->write(Model::Arena::weights, others);
    const std::optional<Measured> measured = measure(rows, evaluated);
    model_->write(Model::Arena::weights, weights);
    return measured;
  }

  // Measures `rows` rows of the validation split and updates the best weights. If the best weights were measured on
  // other rows, they are measured again for the comparison. Returns nullopt, without changes, if a signal arrived.
  std::optional<Measured> evaluate(Index rows) {
    const auto require_finite = [this](double loss) {
      if (std::isfinite(loss)) return;
      throw lost("the validation loss", "after step " + std::to_string(state_.step) + " (" + to_text(loss) + ")");
    };
    const bool whole = rows == task_.validation_rows();
    const Index targets = task_.evaluation_targets(rows), tokens = whole ? 0 : targets;
    const bool again = state_.best_loss && (state_.best_tokens != tokens || lacks_best_accuracy());
    Evaluated evaluated{.rows = (again ? 2 : 1) * rows, .targets = (again ? 2 : 1) * targets};
    const std::optional<Measured> now =
        averages() ? measure_with(model_->read(Model::Arena::average), rows, evaluated) : measure(rows, evaluated);
    if (!now) return std::nullopt;
    const double loss = *now->loss;
    require_finite(loss);
    Measured best{state_.best_loss, state_.best_accuracy};
    if (again) {
      const std::optional<Measured> anew = measure_with(state_.best_weights, rows, evaluated);
      if (!anew) return std::nullopt;
      best = *anew;
      require_finite(*best.loss);
    }
    if (!best.loss || loss < *best.loss) {
      best = *now;
      state_.best_step = state_.step;
      state_.best_weights = model_->read(evaluated_arena());
    }
    state_.best_loss = best.loss;
    state_.best_accuracy = best.accuracy;
    state_.best_tokens = tokens;
    state_.last_loss = whole ? now->loss : std::nullopt;
    state_.last_accuracy = whole ? now->accuracy : std::nullopt;
    return now;
  }

  // True for runs that an older version of the program started.
  bool lacks_best_accuracy() const { return task_.counts_answers() && state_.best_loss && !state_.best_accuracy; }

  // Weights that are evaluated and saved as the model.
  Model::Arena evaluated_arena() const { return averages() ? Model::Arena::average : Model::Arena::weights; }

  // Saves the best weights (before the first evaluation, the current weights), then the state of the run.
  void save() {
    if (processes_.leads()) {
      state_.weights = model_->read(Model::Arena::weights);
      state_.first_moments = model_->read(Model::Arena::first_moments);
      state_.second_moments = model_->read(Model::Arena::second_moments);
      if (averages()) state_.average = model_->read(Model::Arena::average);
    }
    require_good_state();
    saved_ = true;
    if (processes_.leads()) write_files();
  }

  void write_files() {
    state_.recent_losses.assign(recent_losses_.begin(), recent_losses_.end());
    state_.log_position = log_->position();
    write_checkpoint(model_path(run_.run), best());
    write_run_state(resume_path(run_.run), state_);
    keep_checkpoint();
    std::optional<CurvePoint> best_point;
    if (state_.best_loss) best_point = {static_cast<double>(state_.best_step), *state_.best_loss};
    write_file_atomically(
        run_.run + "/loss.svg",
        loss_curve_svg(curve_of(log_->rows(), &LogRow::train_loss), curve_of(log_->rows(), &LogRow::val_loss), "Loss",
                       task_.unit(), best_point, curve_of(log_->rows(), &LogRow::accuracy)));
  }

  // If a checkpoint is due, saves the weights of this step in a separate file, and deletes the earliest such files
  // beyond the limit. The checkpoint of a stopped run is not kept this way.
  void keep_checkpoint() {
    const Index every = run_.training.checkpoint_every;
    const bool due = state_.step == run_.training.steps || (every > 0 && state_.step % every == 0);
    if (run_.training.keep_checkpoints == 0 || !due) return;
    const std::vector<float>& now = averages() ? state_.average : state_.weights;
    write_checkpoint(kept_checkpoint_path(run_.run, state_.step),
                     {{run_.model, state_.task, now, state_.step}, std::nullopt});
    const std::vector<std::string> kept = kept_checkpoints(run_.run);
    const std::size_t most = static_cast<std::size_t>(run_.training.keep_checkpoints);
    for (std::size_t i = 0; i + most < kept.size(); ++i) std::filesystem::remove(kept[i]);
  }

  Checkpoint best() const {
    if (!state_.best_loss) {
      const std::vector<float>& now = averages() ? state_.average : state_.weights;
      return {{run_.model, state_.task, now, state_.step}, std::nullopt};
    }
    return {{run_.model, state_.task, state_.best_weights, state_.best_step}, state_.best_loss, state_.best_tokens};
  }

  void stop() {
    save();
    progress_.finish("stopped at step " + std::to_string(state_.step) + "; continue with " +
                     pasted_flag("resume", run_.run));
    write_sample();
  }

  // Returns false if a signal arrived before the end of the last evaluation.
  bool finish() {
    // Not yet measured in a run of no steps, or a run that was stopped at its last step.
    if ((!state_.last_loss || lacks_best_accuracy()) && !evaluate(task_.validation_rows())) return false;
    save();
    write_sample();
    const Checkpoint checkpoint = best();
    const std::optional<std::string> closing = closing_line(checkpoint, task_.closing_examples());
    progress_.finish();
    const RunResult result{.step = state_.step,
                           .train_loss = recent_loss(),
                           .val_loss = *state_.last_loss,
                           .best_loss = *state_.best_loss,
                           .accuracy = state_.last_accuracy,
                           .best_accuracy = state_.best_accuracy,
                           .best_step = state_.best_step,
                           .tokens_per_s = tokens_per_second()};
    if (processes_.leads()) {
      print(spans_in(checkpoint.weights));
      if (closing) std::printf("%s\n", closing->c_str());
    }
    std::printf("%s\n", task_.final_line(result).c_str());
    return true;
  }

  // Closing line of the task, from this number of examples; nullopt if a signal arrived.
  std::optional<std::string> closing_line(const Checkpoint& checkpoint, Index examples) {
    if (!processes_.leads() || examples == 0) return std::nullopt;
    const Clock::time_point begin = Clock::now();
    Clock::time_point shown = begin;
    return task_.closing_line(checkpoint.config, checkpoint.weights, examples, working_threads(run_.device),
                              [&](Index done) {
                                const Clock::time_point now = Clock::now();
                                const double seconds = std::chrono::duration<double>(now - begin).count();
                                seconds_of_example_ = seconds / static_cast<double>(std::max<Index>(done, 1));
                                if (now - shown >= progress_.pause()) {
                                  shown = now;
                                  progress_.working(state_.step, "answers", done, examples,
                                                    seconds_of_example_ * static_cast<double>(examples - done));
                                }
                                return stop_signal == 0;
                              });
  }

  // Writes the sample of the task for the best weights. After a signal, its time is limited; without a new sample, the
  // old file is removed.
  void write_sample() {
    if (!processes_.leads()) return;
    const Checkpoint checkpoint = best();
    const Clock::time_point begin = Clock::now();
    const auto keep_going = [&] { return stop_signal == 0 || Clock::now() - begin < longest_sample_of_stopped; };
    const std::optional<std::string> text =
        task_.sample(checkpoint.config, checkpoint.weights, run_.training.seed, keep_going);
    const std::string path = run_.run + "/sample.txt";
    if (text) return write_file_atomically(path, *text);
    std::filesystem::remove(path);
    progress_.line(path + ": left out, it takes too long");
  }

  std::optional<double> recent_loss() const {
    if (recent_losses_.empty()) return std::nullopt;
    return std::accumulate(recent_losses_.begin(), recent_losses_.end(), 0.0) /
           static_cast<double>(recent_losses_.size());
  }

  Index tokens_per_second() const {
    if (steps_made_ == 0) return 0;
    return static_cast<Index>(static_cast<double>(steps_made_ * run_.training.batch * C_) / watch_.seconds());
  }

  const TrainingRun& run_;
  Processes& processes_;
  const Task& task_;
  Index C_;
  std::unique_ptr<Model> model_;
  Batch batch_;                // current batch, or the next one
  Index batch_step_ = -1;      // its step
  std::optional<RunLog> log_;  // only in the process that writes
  Progress progress_;
  RunState state_;
  std::deque<double> recent_losses_;
  Stopwatch watch_, evaluation_watch_;         // of training steps, and of evaluation batches
  Index steps_made_ = 0, evaluated_rows_ = 0;  // by this process
  double seconds_of_example_ = 0;              // for the closing line; 0: unknown
  bool saved_;                                 // true: this run has a checkpoint
};

}  // namespace

void require_same_everywhere(const TrainingRun& run, const std::string& data_fingerprint, Processes& processes) {
  if (processes.size() == 1) return;
  const std::vector<float>& weights = run.resume ? run.resume->weights : run.weights;
  std::vector<std::string> mine{
      "version " + std::string(version),
      "device " + resolved_device(run.device.device),
      std::string("instruction set ") + isa_name(run.training.type == "float" ? best_isa() : best_unit()),
      "data " + data_fingerprint,
      "step " + to_text(run.resume ? run.resume->step : 0),
      "weights with crc32 " + to_text(crc32(weights.data(), weights.size() * sizeof(float)))};
  for (const auto& metadata : {run.model.metadata(), run.training.metadata()}) {
    for (const auto& [key, value] : metadata) mine.push_back(key + " " + value);
  }
  for (const std::string& found : mine) {
    const std::string expected = processes.of_first(found);
    if (found == expected) continue;
    throw Error("process " + to_text(processes.rank()) + " differs from process 0: expected " + expected + ", found " +
                found);
  }
  processes.largest(0);
}

int train(const TrainingRun& run, const Task& task, Processes& processes) {
  if (processes.leads()) require_writable(run.run);
  Trainer trainer(run, task, processes);
  if (processes.leads() && !run.data.empty()) remember_data(run.run, run.data);
  return trainer.train();
}

}  // namespace abh
