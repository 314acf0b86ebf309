#include "extras/figures/observed.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "base/text.hpp"

namespace abh {

namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

// The batch, repeated `count` times.
Batch repeated(const Batch& batch, Index count) {
  return with_rows(batch, count * batch.B, [&](const auto& once) {
    auto all = once;
    for (Index i = 1; i < count; ++i) all.insert(all.end(), once.begin(), once.end());
    return all;
  });
}

double mean_of(const std::vector<float>& loss_r, std::size_t begin, std::size_t end, Index count) {
  const double sum = std::accumulate(loss_r.begin() + static_cast<std::ptrdiff_t>(begin),
                                     loss_r.begin() + static_cast<std::ptrdiff_t>(end), 0.0);
  return sum / static_cast<double>(count);
}

std::vector<double> ranks(const std::vector<double>& x) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return x[i] < x[j]; });
  std::vector<double> rank(x.size());
  for (std::size_t first = 0, end; first < order.size(); first = end) {
    for (end = first; end < order.size() && x[order[end]] == x[order[first]];) ++end;
    for (std::size_t i = first; i < end; ++i) rank[order[i]] = static_cast<double>(first + end - 1) / 2;
  }
  return rank;
}

}  // namespace

Observed::Observed(Model& model, const ModelConfig& config, const std::vector<float>& weights, Batch& batch, Index most)
    : config_(config), C_(batch.C) {
  for (const Parameter& parameter : parameter_table(config)) {
    const auto begin = weights.begin() + parameter.offset;
    arrays_[parameter.name] = {parameter.shape, {begin, begin + parameter.count}};
  }
  model.inspect(batch,
                [this](const std::string& name, const std::vector<Index>& shape, const std::vector<double>& values) {
                  arrays_[name] = {shape, values};
                });
  if (config.classes > 0) {
    const std::vector<float> logit_o = model.last_logits(batch);
    const auto best = std::max_element(logit_o.begin(), logit_o.end());
    double sum = 0;
    for (const float logit : logit_o) sum += std::exp(static_cast<double>(logit - *best));
    for (const float logit : logit_o) likely_o_.push_back(std::exp(static_cast<double>(logit - *best)) / sum);
    if (batch.target_r.front() == ignored_target) batch.target_r = {static_cast<Token>(best - logit_o.begin())};
  }
  find_losses(model, batch, most);
  find_maps();
}

const ObservedArray* Observed::find(const std::string& name) const {
  const auto found = arrays_.find(name);
  return found == arrays_.end() ? nullptr : &found->second;
}

std::vector<std::string> Observed::names_ending(const std::string& end) const {
  std::vector<std::string> names;
  for (const auto& [name, array] : arrays_) {
    if (name.ends_with(end)) names.push_back(name);
  }
  return names;
}

void Observed::find_losses(Model& model, const Batch& batch, Index most) {
  const Index count = static_cast<Index>(batch.target_r.size()) -
                      std::count(batch.target_r.begin(), batch.target_r.end(), ignored_target);
  const std::size_t R = batch.target_r.size();
  const std::vector<float> loss_r = model.losses(batch);
  losses_.each_r.assign(loss_r.begin(), loss_r.end());
  losses_.mean = mean_of(loss_r, 0, R, count);
  if (!std::isfinite(losses_.mean)) {
    throw Error("the model computed a loss that is not finite: its weights are broken");
  }
  losses_.without_c.assign(static_cast<std::size_t>(C_), none);
  // The position of cls has no token, and the classifier reads it.
  const Index first = config_.has_cls() ? 1 : 0;
  for (Index begin = first; begin < C_; begin += most) {
    const Index rows = std::min(most, C_ - begin);
    Batch masked = repeated(batch, rows);
    masked.mask_bc.assign(static_cast<std::size_t>(rows * C_), 1);
    for (Index i = 0; i < rows; ++i) masked.mask_bc[static_cast<std::size_t>(i * C_ + begin + i)] = 0;
    const std::vector<float> loss_br = model.losses(masked);
    for (Index i = 0; i < rows; ++i) {
      const std::size_t row = static_cast<std::size_t>(i) * R;
      const double mean = mean_of(loss_br, row, row + R, count);
      // Differences of this size come from another order of float sums and count as 0.
      const bool same = std::abs(mean - losses_.mean) < 2e-6 * std::max(1.0, losses_.mean);
      losses_.without_c[static_cast<std::size_t>(begin + i)] = same ? losses_.mean : mean;
    }
  }
}

void Observed::find_maps() {
  for (Index layer = 0; layer < config_.own_layers(); ++layer) {
    const std::string block = block_of(layer) + "mixer.", end = "weight_bncs";
    for (const auto& entry : arrays_) {
      const std::string& name = entry.first;
      const ObservedArray& array = entry.second;
      if (!name.starts_with(block) || !name.ends_with(end) || array.shape.back() != C_) continue;
      std::string kind = name.substr(block.size(), name.size() - block.size() - end.size());
      if (!kind.empty()) kind.pop_back();  // removes the trailing "_"
      const Index N = array.shape[1], size = C_ * C_;
      const auto weights_of = [&](Index n) {
        const auto begin = array.values.begin() + n * size;
        return std::vector<double>(begin, begin + size);
      };
      bool alike = true;
      for (Index n = 1; n < N && alike; ++n) alike = weights_of(n) == weights_of(0);
      for (Index n = 0; n < (alike ? 1 : N); ++n) maps_.push_back({layer, n, alike ? 1 : N, kind, weights_of(n)});
    }
  }
}

std::vector<double> squares_by_metric(const Observed& seen, Index layer, Index head) {
  const std::string block = seen.block_of(layer) + "mixer.";
  const ObservedArray *metric_nkk = seen.find(block + "metric_nkk"), *p_bch = seen.find(block + "p_bch");
  if (!metric_nkk) return {};
  const Index N = metric_nkk->shape[0], K = metric_nkk->shape[1], C = seen.positions();
  const double* M = metric_nkk->values.data() + head * K * K;
  const auto p = [&](Index c) { return p_bch->values.data() + (c * N + head) * K; };
  std::vector<double> square_cs, gap(static_cast<std::size_t>(K));
  for (Index i = 0; i < C * C; ++i) {
    for (Index k = 0; k < K; ++k) gap[static_cast<std::size_t>(k)] = p(i / C)[k] - p(i % C)[k];
    double square = 0;
    for (Index k = 0; k < K * K; ++k) {
      square += gap[static_cast<std::size_t>(k / K)] * M[k] * gap[static_cast<std::size_t>(k % K)];
    }
    square_cs.push_back(square);
  }
  return square_cs;
}

std::vector<double> received_s(const AttentionMap& map, Index C) {
  std::vector<double> received(static_cast<std::size_t>(C));
  const double all = std::accumulate(map.weight_cs.begin(), map.weight_cs.end(), 0.0);
  for (std::size_t i = 0; i < map.weight_cs.size() && all > 0; ++i) {
    received[i % static_cast<std::size_t>(C)] += map.weight_cs[i] / all;
  }
  return received;
}

double rank_correlation(const std::vector<double>& x, const std::vector<double>& y) {
  const std::vector<double> rank_x = ranks(x), rank_y = ranks(y);
  const double mean = (static_cast<double>(x.size()) - 1) / 2;
  double xx = 0, xy = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double dx = rank_x[i] - mean, dy = rank_y[i] - mean;
    xx += dx * dx;
    xy += dx * dy;
    yy += dy * dy;
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : none;
}

std::vector<double> distances(const double* rows, Index count, Index width) {
  std::vector<double> distance;
  for (Index i = 0; i < count; ++i) {
    for (Index j = 0; j < count; ++j) {
      double square = 0;
      for (Index d = 0; d < width; ++d) {
        const double gap = rows[i * width + d] - rows[j * width + d];
        square += gap * gap;
      }
      distance.push_back(std::sqrt(square));
    }
  }
  return distance;
}

}  // namespace abh
