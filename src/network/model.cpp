#include "network/model.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/error.hpp"
#include "network/staging_buffer.hpp"
#define ABH_COMPILE_NETWORKS
#include "network/mixers.hpp"
#include "network/networks.hpp"
#include "settings/schedule.hpp"

namespace abh {

namespace {

// Sum of 2^n numbers as a balanced binary tree.
double tree_sum(std::vector<double> values) {
  for (; values.size() > 1; values.resize(values.size() / 2)) {
    for (std::size_t i = 0; i < values.size() / 2; ++i) values[i] = values[2 * i] + values[2 * i + 1];
  }
  return values.front();
}

template <class Device, class T>
class ModelOn : public Model {
  template <class Number>
  using StagingRange = typename StagingBuffer<Device>::template StagingRange<Number>;

 public:
  ModelOn(std::unique_ptr<Device> device, std::string device_name, const ModelConfig& config,
          const NetworkCapacity& capacity, double dropout, Processes& processes)
      : device_(std::move(device)),
        device_name_(std::move(device_name)),
        processes_(processes),
        capacity_(capacity),
        network_(*device_, config, capacity, dropout, processes),
        config_(config),
        losses_(places_.template take<Accum<T>>(capacity.shards * pieces(capacity.B))),
        state_(places_.template take<StepState>(1)),
        count_(places_.template take<Index>(1)),
        token_bc_(places_.template take<Token>(capacity.shards * capacity.B * capacity.C)),
        target_r_(places_.template take<Token>(capacity.shards * capacity.B * capacity.C)),
        mask_bc_(places_.template take<Token>(capacity.shards * capacity.B * capacity.C)),
        source_bs_(places_.template take<Token>(capacity.shards * capacity.B * capacity.S)),
        source_mask_bs_(places_.template take<Token>(capacity.shards * capacity.B * capacity.S)),
        patch_bpi_(places_.template take<T>(capacity.shards * capacity.B * numbers_of_patches(capacity.C))),
        staging_(*device_, places_),
        logits_v_(static_cast<std::size_t>(config.vocabulary)) {}

  std::string device_name() const override { return device_name_; }
  Index weight_count() const override { return network_.weights().count(); }

  std::vector<float> read(Arena arena) override {
    if (arena == Arena::weights) return network_.weights().read();
    std::vector<float> values(static_cast<std::size_t>(weight_count()));
    device_->copy_to_host(values.data(), beside_weights(arena), weight_count());
    return values;
  }
  void write(Arena arena, const std::vector<float>& values) override {
    const Index count = static_cast<Index>(values.size());
    if (count != weight_count()) {
      throw Error("expected " + to_text(weight_count()) + " weights for this network, found " + to_text(count));
    }
    if (arena == Arena::weights) return network_.weights().write(values);
    device_->copy_from_host(beside_weights(arena), values.data(), weight_count());
  }

  using Model::train_step;
  StepResult train_step(const Batch& batch, const TrainingConfig& training, Index step,
                        const std::function<void()>& meanwhile) override {
    StepState state;
    state.seed = training.seed;
    state.step = static_cast<std::uint32_t>(step);
    state.learning_rate = static_cast<float>(learning_rate_at(training, step));
    set_adamw_corrections(state, AdamwSettings{training.beta1, training.beta2});
    if (capacity_.average) set_average_share(state, training.weight_average);
    *staging_.to_send(state_) = state;
    StepState* device_state = staging_.on_device(state_);
    const std::vector<Index> counts = counts_of_pieces(batch);
    *staging_.to_send(count_) = std::accumulate(counts.begin(), counts.end(), Index{0});
    PassContext whole = send(state_.begin, batch, processes_, training.dropout > 0 ? device_state : nullptr);
    const Index first_b = processes_.rank() * whole.B;
    whole.B /= capacity_.shards;
    whole.count = staging_.on_device(count_);
    const Index rows = whole.B * targets_of_sequence(batch);
    steps_[{whole.B, whole.C, whole.S, whole.mask_bc != nullptr, whole.source_mask_bs != nullptr}].run(*device_, [&] {
      for (Index shard = 0; shard < capacity_.shards; ++shard) {
        PassContext pass = whole;
        pass.first_b = first_b + shard * pass.B;
        const Index BS = pass.B * pass.S;
        if (pass.mask_bc) pass.mask_bc += shard * pass.BC();
        if (pass.source_mask_bs) pass.source_mask_bs += shard * BS;
        const DeviceBatch<T> part{tokens() + shard * pass.BC(), targets() + shard * rows,
                                  patches() + shard * pass.B * numbers_of_patches(pass.C), sources() + shard * BS};
        Accum<T>* shard_losses = losses() + shard * pieces(pass.B);
        network_.weights().begin_shard(shard);
        differentiate(network_, part, training.label_smoothing, pass,
                      [&](Index b, Index j, const PassContext&, const auto& loss) {
                        device_->copy(shard_losses + b * capacity_.chunks() + j, loss.mean, 1);
                      });
      }
      network_.weights().finish_sums();
      network_.optimizer().measure_gradient(training, device_state);
      network_.optimizer().update(training, device_state);
    });
    meanwhile();
    staging_.fetch(losses_.begin, state_.end());
    return {mean_loss(counts), staging_.on_host(state_)->gradient_norm};
  }

  using Model::evaluate;
  Score evaluate(const Batch& batch, std::vector<Token>& best_r) override {
    const Index R = targets_of_sequence(batch);
    Score score;
    best_r.assign(batch.target_r.size(), 0);
    compute_losses(batch, [&](Index b, Index, const PassContext& pass, const auto& loss) {
      Accum<T> mean = 0;
      Index count = 0;
      device_->copy_to_host(&mean, loss.mean, 1);
      device_->copy_to_host(&count, loss.count, 1);
      score.loss_sum += static_cast<double>(mean) * static_cast<double>(count);
      score.count += count;
      device_->copy_to_host(best_r.data() + b * R + pass.first_c, loss.best_r, rows_of(pass, R));
    });
    for (Index b = 0; b < batch.B; ++b) {
      Index asked = 0, hits = 0;
      for (Index r = b * R; r < (b + 1) * R; ++r) {
        const Token target = batch.target_r[static_cast<std::size_t>(r)];
        asked += target != ignored_target;
        hits += target != ignored_target && best_r[static_cast<std::size_t>(r)] == target;
      }
      score.hits += hits;
      score.asked += asked > 0;
      score.right += asked > 0 && hits == asked;
    }
    return score;
  }

  std::vector<float> losses(const Batch& batch) override {
    const Index R = targets_of_sequence(batch);
    std::vector<float> loss_r(batch.target_r.size());
    compute_losses(batch, [&](Index b, Index, const PassContext& pass, const auto& loss) {
      device_->copy_to_host(loss_r.data() + b * R + pass.first_c, loss.each_r, rows_of(pass, R));
    });
    return loss_r;
  }

  std::vector<float> last_logits(const Batch& batch) override {
    const PassContext pass = send(batch);
    network_.forward(all(), pass);
    const Index V = network_.logit_columns(), of_sequence = network_.logit_rows(pass) / pass.B;
    std::vector<T> logits_bv(static_cast<std::size_t>(pass.B * V));
    for (Index b = 0; b < pass.B; ++b) {
      Index last = of_sequence - 1;
      const auto is_padding = [&](Index c) {
        return !batch.mask_bc.empty() && batch.mask_bc[static_cast<std::size_t>(b * pass.C + c)] == 0;
      };
      while (last > 0 && is_padding(last)) --last;
      device_->copy_to_host(logits_bv.data() + b * V,
                            network_.logits_rv() + (b * of_sequence + last) * network_.logit_stride(), V);
    }
    return {logits_bv.begin(), logits_bv.end()};
  }

  std::vector<float> logits(const Batch& batch) override {
    const PassContext pass = send(batch);
    network_.forward(all(), pass);
    return on_host<float>(*device_, network_.logits_rv(), network_.logit_rows(pass), network_.logit_columns(),
                          network_.logit_stride());
  }

  std::vector<float> gradient(const Batch& batch) override {
    auto& weights = network_.weights();
    *staging_.to_send(count_) = static_cast<Index>(batch.target_r.size()) -
                                std::count(batch.target_r.begin(), batch.target_r.end(), ignored_target);
    PassContext pass = send(count_.begin, batch, one_process(), nullptr);
    pass.count = staging_.on_device(count_);
    weights.begin_shard(0);
    differentiate(network_, all(), 0, pass, [](Index, Index, const PassContext&, const auto&) {});
    weights.finish_sums();
    std::vector<float> gradient(static_cast<std::size_t>(weights.count()));
    device_->copy_to_host(gradient.data(), weights.gradients(), weights.count());
    device_->set_zero(weights.gradients(), weights.count());
    return gradient;
  }

  void inspect(const Batch& batch, const Inspector& inspector) override {
    const PassContext pass = send(batch);
    network_.forward(all(), pass);
    network_.inspect(inspector, pass);
  }

  void reset() override { network_.reset(); }
  void reset(const Batch& batch) override { network_.reset(all(), send(batch)); }
  void copy_hypothesis(Index to, Index from) override { network_.arenas().copy_state(to, from); }
  std::span<const float> decode(Token token, Index position, Index hypothesis) override {
    network_.arenas().work_on(hypothesis);
    device_->copy_from_host_later(tokens(), &token, 1);
    return to_host(network_.decode(tokens(), position));
  }
  std::span<const float> prefill(std::span<const Token> tokens_c) override {
    const auto send = [&](std::span<const Token> part) {
      device_->copy_from_host_later(tokens(), part.data(), static_cast<Index>(part.size()));
      return tokens();
    };
    if constexpr (has_extras) return to_host(read_in_chunks(network_, tokens_c, send));
    network_.reset();
    const T* logits_v = nullptr;
    for (Index c = 0; c < static_cast<Index>(tokens_c.size()); ++c) {
      logits_v = network_.decode(send(tokens_c.subspan(static_cast<std::size_t>(c), 1)), c);
    }
    return to_host(logits_v);
  }

 private:
  std::span<const float> to_host(const T* logits_v) {
    if constexpr (std::is_same_v<T, float>) {
      device_->copy_to_host(logits_v_.data(), logits_v, static_cast<Index>(logits_v_.size()));
    } else {
      std::vector<T> narrow(logits_v_.size());
      device_->copy_to_host(narrow.data(), logits_v, static_cast<Index>(narrow.size()));
      logits_v_.assign(narrow.begin(), narrow.end());
    }
    return logits_v_;
  }

  Token* tokens() const { return staging_.on_device(token_bc_); }
  Token* targets() const { return staging_.on_device(target_r_); }
  Token* sources() const { return staging_.on_device(source_bs_); }
  T* patches() const { return staging_.on_device(patch_bpi_); }
  // For a sequence of C positions.
  Index numbers_of_patches(Index C) const { return config_.patches(C) * config_.patch_inputs; }
  DeviceBatch<T> all() const { return {tokens(), targets(), patches(), sources()}; }
  Accum<T>* losses() const { return staging_.on_device(losses_); }

  // Targets per sequence: one per position; one for a classifier.
  static Index targets_of_sequence(const Batch& batch) {
    return batch.B > 0 ? static_cast<Index>(batch.target_r.size()) / batch.B : 0;
  }
  // Rows of logits of a pass.
  static Index rows_of(const PassContext& pass, Index targets_of_sequence) {
    return targets_of_sequence == 1 ? pass.B : pass.BC();
  }

  // Copies the sequences of this process from the batch on the host to the input arrays of the network. The same
  // transfer includes the preceding bytes of the staging buffer, from `begin` on.
  PassContext send(std::size_t begin, const Batch& batch, const Processes& processes, const StepState* state) {
    const Index B = batch.B / processes.size(), first_b = processes.rank() * B;
    std::size_t end = begin;
    // Copies an array of of_sequence numbers per sequence. Null if the batch has none.
    const auto put = [&]<class To, class From>(const StagingRange<To>& range, const std::vector<From>& from,
                                               Index of_sequence) -> const To* {
      if (from.empty()) return nullptr;
      To* to = staging_.to_send(range);
      const From* first = from.data() + first_b * of_sequence;
      for (Index i = 0; i < B * of_sequence; ++i) to[i] = static_cast<To>(first[i]);
      end = range.begin + static_cast<std::size_t>(B * of_sequence) * sizeof(To);
      return staging_.on_device(range);
    };
    put(token_bc_, batch.token_bc, batch.C);
    put(target_r_, batch.target_r, targets_of_sequence(batch));
    PassContext pass{.B = B, .C = batch.C, .state = state, .S = batch.S};
    pass.mask_bc = put(mask_bc_, batch.mask_bc, batch.C);
    put(source_bs_, batch.source_bs, batch.S);
    pass.source_mask_bs = put(source_mask_bs_, batch.source_mask_bs, batch.S);
    put(patch_bpi_, batch.patch_bpi, numbers_of_patches(batch.C));
    staging_.send(begin, end);
    return pass;
  }
  PassContext send(const Batch& batch) { return send(token_bc_.begin, batch, one_process(), nullptr); }
  // Computes losses without dropout and label smoothing, by chunks if the model has chunks.
  template <class Seen>
  void compute_losses(const Batch& batch, const Seen& seen) {
    abh::compute_losses(network_, all(), 0, send(batch), seen);
  }
  // Parts of B sequences with separate losses: one per chunk, or one in total.
  Index pieces(Index B) const { return capacity_.chunk ? B * capacity_.chunks() : 1; }
  // Counted targets of every piece of every shard.
  std::vector<Index> counts_of_pieces(const Batch& batch) const {
    const Index B = batch.B / (capacity_.shards * processes_.size());
    const Index rows = targets_of_sequence(batch) * (capacity_.chunk ? 1 : B);
    const Index of_piece = capacity_.chunk ? capacity_.chunk : rows;
    std::vector<Index> counts;
    for (auto row = batch.target_r.begin(); row != batch.target_r.end(); row += rows) {
      for (Index first = 0; first < rows; first += of_piece) {
        const Index size = std::min(of_piece, rows - first);
        counts.push_back(size - std::count(row + first, row + first + size, ignored_target));
      }
    }
    return counts;
  }
  // Mean loss of the batch, from the means of its pieces. Shards are summed as a tree, like their gradients. A mean is
  // a float: for one piece, the product with its count and the quotient are exact.
  double mean_loss(const std::vector<Index>& counts) {
    const std::size_t of_shard = counts.size() / static_cast<std::size_t>(capacity_.shards * processes_.size());
    const Accum<T>* means = staging_.on_host(losses_);
    const std::size_t own = static_cast<std::size_t>(capacity_.shards) * of_shard;
    const std::size_t first = static_cast<std::size_t>(processes_.rank()) * own;
    std::vector<double> sums(static_cast<std::size_t>(capacity_.shards));
    for (std::size_t i = 0; i < own; ++i) {
      sums[i / of_shard] += static_cast<double>(means[i]) * static_cast<double>(counts[first + i]);
    }
    double sum = tree_sum(sums);
    processes_.sum(&sum, 1);
    const Index count = std::accumulate(counts.begin(), counts.end(), Index{0});
    return count > 0 ? sum / static_cast<double>(count) : 0;
  }
  float* beside_weights(Arena arena) {
    auto& optimizer = network_.optimizer();
    if (arena == Arena::average) return optimizer.averages();
    return arena == Arena::first_moments ? optimizer.first_moments() : optimizer.second_moments();
  }

  std::unique_ptr<Device> device_;
  std::string device_name_;
  Processes& processes_;
  NetworkCapacity capacity_;
  Network<Device, T> network_;
  ModelConfig config_;
  // Places in the staging buffer, in the order of the transfers of a step: results, then inputs; first the inputs that
  // every batch has.
  typename StagingBuffer<Device>::Places places_;
  StagingRange<Accum<T>> losses_;
  StagingRange<StepState> state_;
  StagingRange<Index> count_;
  StagingRange<Token> token_bc_, target_r_, mask_bc_, source_bs_, source_mask_bs_;
  StagingRange<T> patch_bpi_;
  StagingBuffer<Device> staging_;
  std::vector<float> logits_v_;  // of the last decode step
  // CUDA graphs of training steps, one per number and length of sequences, length of sources, and presence of their
  // masks. Destroyed before the arrays that they use.
  std::map<std::tuple<Index, Index, Index, bool, bool>, typename Device::CapturedGraph> steps_;
};

// Calls body.operator()<T>(device) with the selected data type and device.
template <class Body>
auto with_device(const DeviceChoice& choice, const std::string& type, Mode mode, const Body& body) {
  require_device(choice);
  return with_device_type(choice, type, [&]<class Device, class T>() {
    return body.template operator()<T>(make_device(std::type_identity<Device>(), choice, mode));
  });
}

}  // namespace

std::unique_ptr<Model> make_model(const DeviceChoice& choice, const ModelConfig& config,
                                  const NetworkCapacity& capacity, double dropout, const std::string& type,
                                  Processes& processes) {
  if (const std::string fault = why_no_decoding(config); capacity.positions > 0 && !fault.empty()) throw Error(fault);
  return with_device(choice, type, Mode::compute,
                     [&]<class T, class Device>(std::unique_ptr<Device> device) -> std::unique_ptr<Model> {
                       const std::string name = name_of(*device, choice, type);
                       return std::make_unique<ModelOn<Device, T>>(std::move(device), name, config, capacity, dropout,
                                                                   processes);
                     });
}

NetworkCapacity training_capacity(const ModelConfig& config, const TrainingConfig& training, bool recompute,
                                  Index processes) {
  const bool muon = training.optimizer == "muon";
  return {.B = training.batch / training.shards,
          .C = config.context,
          .training = true,
          .muon = muon,
          .average = training.weight_average > 0,
          .recompute = recompute,
          .shards = training.shards / processes,
          .chunk = training.chunk,
          .truncated = training.truncated,
          .S = config.source_context};
}

std::vector<Parameter> parameter_table(const ModelConfig& config) { return AnyNetwork::parameter_table(config); }

NetworkMemory model_memory(const DeviceChoice& choice, const ModelConfig& config, const NetworkCapacity& capacity,
                           const std::string& type) {
  DeviceChoice counted = choice;
  // The plain loops have no dry run; the CPU layers give the estimate.
  if (counted.device == "plain") counted.device = "cpu";
  return with_device(counted, type, Mode::dry_run, [&]<class T, class Device>(const std::unique_ptr<Device>& device) {
    return Network<Device, T>::memory(*device, config, capacity);
  });
}

std::size_t host_bytes(const DeviceChoice& choice, const NetworkMemory& memory) {
  return resolved_device(choice.device) == "cuda" ? 0 : memory.total();
}

}  // namespace abh
