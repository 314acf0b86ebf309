#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "network/batch.hpp"
#include "network/model.hpp"
#include "settings/config.hpp"

namespace abh {

// An array of a network, on the host.
struct ObservedArray {
  std::vector<Index> shape;
  std::vector<double> values;
};

// Weight of position s for position c, of one head.
struct AttentionMap {
  Index layer, head;
  Index heads;                    // heads of its layer; 1 if all heads share the weights
  std::string kind;               // if a block has several: "a" of a_weight_bncs
  std::vector<double> weight_cs;  // rows sum to 1, or to 0
};

// Losses of a sequence in nats, and the importance of every position.
struct ObservedLosses {
  double mean = 0;                // over the targets that count
  std::vector<double> each_r;     // 0 where a target does not count
  std::vector<double> without_c;  // mean loss with position c masked in all layers and heads; NaN: not possible
};

// Arrays of a network for one sequence: all inspected arrays of its blocks (blocks/inspector.hpp), its weights, and its
// losses.
class Observed {
 public:
  // The batch is one sequence with at least one target. A classifier without a label gets its own prediction as target.
  // Throws Error if a result is not finite.
  Observed(Model& model, const ModelConfig& config, const std::vector<float>& weights, Batch& batch, Index most);

  const ModelConfig& config() const { return config_; }
  Index positions() const { return C_; }
  // Prefix of the names of a layer of the decoder stack.
  std::string block_of(Index layer) const { return config_.own_prefix() + "blocks." + to_text(layer) + "."; }
  // An inspected array or a weight; null if there is none.
  const ObservedArray* find(const std::string& name) const;
  // Names with this end.
  std::vector<std::string> names_ending(const std::string& end) const;
  // The attention maps of all layers and heads with weights between positions, layer by layer.
  const std::vector<AttentionMap>& maps() const { return maps_; }
  const ObservedLosses& losses() const { return losses_; }
  // The class probabilities, if the model is a classifier.
  const std::vector<double>& likely_o() const { return likely_o_; }

 private:
  void find_maps();
  void find_losses(Model& model, const Batch& batch, Index most);

  ModelConfig config_;
  Index C_;
  std::map<std::string, ObservedArray> arrays_;
  std::vector<AttentionMap> maps_;
  ObservedLosses losses_;
  std::vector<double> likely_o_;
};

// Returns (p_c - p_s)^T M (p_c - p_s) of metric attention for all pairs of positions. This is a squared distance if M
// is a metric. The result is empty if the layer has no M.
std::vector<double> squares_by_metric(const Observed& seen, Index layer, Index head);

// Total attention weight of each position.
std::vector<double> received_s(const AttentionMap& map, Index C);

// Rank correlation of two lists, -1 to 1 (Spearman's rho; equal numbers share the mean of their ranks). NaN if all
// numbers of a list are equal.
double rank_correlation(const std::vector<double>& x, const std::vector<double>& y);

// Euclidean distances between `count` rows of `width` numbers.
std::vector<double> distances(const double* rows, Index count, Index width);

}  // namespace abh
