#include "extras/figures/gallery.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.hpp"
#include "blocks/parts/positions.hpp"
#include "extras/figures/matrix.hpp"
#include "extras/figures/strip.hpp"
#include "network/mixers.hpp"

namespace abh {

namespace {

using Names = std::vector<std::string>;

constexpr std::size_t most_with_values = 24;  // maximum length of a strip with numbers

std::string quoted(const std::string& name, Index c) { return "\u2018" + name + "\u2019 at " + to_text(c); }
std::string nats(double loss) { return short_number(loss, 4); }
std::string percent(double part) { return fixed_text(100 * part, 1) + " %"; }

Names numbers(Index count, const std::string& before = "") {
  Names names;
  for (Index i = 0; i < count; ++i) names.push_back(before + to_text(i));
  return names;
}

Figure figure_of(const std::string& file, const MatrixPicture& matrix, const std::string& caption) {
  return {file + ".svg", matrix_svg(matrix), matrix.text.title + ": " + matrix.text.description, caption};
}
Figure figure_of(const std::string& file, const StripPicture& strip, const std::string& caption) {
  return {file + ".svg", strip_svg(strip), strip.text.title + ": " + strip.text.description, caption};
}

// ---- The prediction ----

// Targets that count, and the loss of each.
Figure figure_of_losses(const Observed& seen, const FigureExample& subject) {
  StripPicture strip{.text = {"Loss of every target", "in nats", ""}, .cells = {}, .scale = {.unit = "nats"}};
  double worst = -1;
  std::string hardest;
  for (std::size_t r = 0; r < subject.batch.target_r.size(); ++r) {
    const Token target = subject.batch.target_r[r];
    if (target == ignored_target) continue;
    const std::string& name = subject.answer_o[static_cast<std::size_t>(target)];
    const double loss = seen.losses().each_r[r];
    strip.cells.push_back({name, loss, name == "\u21b5"});
    if (loss > worst) worst = loss, hardest = name;
  }
  // Loss of a uniform prediction.
  strip.scale.largest = std::max(worst, std::log(static_cast<double>(subject.answer_o.size())));
  strip.shows_values = strip.cells.size() <= most_with_values;
  strip.text.description = to_text(static_cast<Index>(strip.cells.size())) + " targets, with a mean loss of " +
                           nats(seen.losses().mean) + " nats; the largest is that of " + hardest + ", " + nats(worst) +
                           " nats.";
  return figure_of("answers", strip,
                   "The background colour of every target shows its loss. The mean is " + nats(seen.losses().mean) +
                       " nats; the largest is that of \u2018" + hardest + "\u2019 with " + nats(worst) + ".");
}

Figure figure_of_classes(const Observed& seen, const FigureExample& subject) {
  StripPicture strip{.text = {"Class probabilities", "output of the classifier", ""},
                     .cells = {},
                     .scale = {.largest = 1, .unit = "probability"},
                     .shows_values = true};
  std::size_t best = 0;
  for (std::size_t o = 0; o < subject.answer_o.size(); ++o) {
    strip.cells.push_back({subject.answer_o[o], seen.likely_o()[o], false});
    if (seen.likely_o()[o] > seen.likely_o()[best]) best = o;
  }
  const std::string said = subject.answer_o[best];
  const std::string right = subject.answer_o[static_cast<std::size_t>(subject.batch.target_r.front())];
  strip.text.description = "The prediction is " + said + ", with probability " + short_number(seen.likely_o()[best]) +
                           "; the loss is that of " + right + ".";
  return figure_of("classes", strip, strip.text.description);
}

Figure figure_of_worth(const Observed& seen, const FigureExample& subject) {
  StripPicture strip{.text = {"Importance of every position", "loss with the position masked minus loss", ""},
                     .cells = {},
                     .scale = {.colours = Colours::both_signs, .unit = "nats"}};
  std::size_t most = 0;
  double largest = -HUGE_VAL;
  for (std::size_t c = 0; c < subject.name_c.size(); ++c) {
    const double gain = seen.losses().without_c[c] - seen.losses().mean;
    strip.cells.push_back(
        {subject.name_c[c], std::isnan(gain) ? std::nullopt : std::optional(gain), subject.name_c[c] == "\u21b5"});
    if (gain > largest) largest = gain, most = c;
  }
  strip.shows_values = strip.cells.size() <= most_with_values;
  const std::string name = quoted(subject.name_c[most], static_cast<Index>(most));
  strip.text.description =
      "Masking raises the loss most at position " + name + ", by " + short_number(largest) + " nats.";
  return figure_of("worth", strip,
                   "Each position is masked in turn, in every layer and head. Orange: the loss rises; blue: it falls. "
                   "The largest rise is that of " +
                       name + ", " + short_number(largest) + " nats.");
}

PictureSection section_of_answer(const Observed& seen, const FigureExample& subject) {
  PictureSection section{"Predictions", "", {}};
  if (!seen.likely_o().empty()) {
    section.figures.push_back(figure_of_classes(seen, subject));
  } else {
    section.figures.push_back(figure_of_losses(seen, subject));
  }
  section.figures.push_back(figure_of_worth(seen, subject));
  return section;
}

// ---- Tokens, positions and the residual stream ----

MatrixPicture matrix_of_distances(const std::string& title, const std::string& of, const double* rows, Index count,
                                  Index width, const Names& names) {
  MatrixPicture matrix{.text = {title, "Euclidean distances", ""},
                       .row_names = names,
                       .column_names = names,
                       .value_rc = distances(rows, count, width),
                       .scale = {.unit = "distance"}};
  double nearest = HUGE_VAL;
  std::pair<Index, Index> pair{0, 0};
  for (Index i = 0; i < count; ++i) {
    for (Index j = 0; j < i; ++j) {
      const double distance = matrix.value_rc[static_cast<std::size_t>(i * count + j)];
      if (distance < nearest) nearest = distance, pair = {j, i};
    }
  }
  // The scale of distances begins a little below the smallest distance, so that small distances differ most in colour.
  const double farthest = largest_of(matrix.value_rc);
  if (count > 1) matrix.scale.smallest = std::max(0.0, nearest - (farthest - nearest) / 6);
  matrix.text.description = "Distances between " + to_text(count) + " " + of;
  if (count > 1) {
    const auto name = [&](Index i) { return "\u2018" + names[static_cast<std::size_t>(i)] + "\u2019"; };
    matrix.text.description += ", from " + short_number(nearest) + ", of " + name(pair.first) + " and " +
                               name(pair.second) + ", to " + short_number(farthest);
  }
  matrix.text.description += ".";
  return matrix;
}

// Embedding vectors of the tokens in the sequence.
std::optional<Figure> figure_of_embeddings(const Observed& seen, const FigureExample& subject) {
  constexpr std::size_t most = 40;
  const ObservedArray* own_vd = seen.find(seen.config().own_prefix() + "embedding.token_vd");
  const ObservedArray* token_vd = own_vd ? own_vd : seen.find("embedding.token_vd");  // shared with an encoder
  if (!token_vd) return std::nullopt;
  const Index D = token_vd->shape[1];
  std::vector<Token> known;
  Names names;
  std::vector<double> rows;
  for (std::size_t c = 0; c < subject.batch.token_bc.size() && known.size() < most; ++c) {
    const Token token = subject.batch.token_bc[c];
    if (token < 0 || token >= token_vd->shape[0] || std::find(known.begin(), known.end(), token) != known.end())
      continue;
    known.push_back(token);
    names.push_back(subject.name_c[c]);
    const auto row = token_vd->values.begin() + token * D;
    rows.insert(rows.end(), row, row + D);
  }
  if (known.empty()) return std::nullopt;
  const MatrixPicture matrix = matrix_of_distances("Distances of tokens", "tokens of the sequence", rows.data(),
                                                   static_cast<Index>(known.size()), D, names);
  return figure_of("tokens", matrix,
                   "Between the embedding vectors of these tokens, without positions. A colour near the background "
                   "means similar vectors. " +
                       matrix.text.description);
}

std::optional<Figure> figure_of_positions(const Observed& seen) {
  const Index C = seen.positions(), D = seen.config().channels;
  std::vector<double> rows;
  if (const ObservedArray* position_cd = seen.find(seen.config().own_prefix() + "embedding.position_cd")) {
    rows.assign(position_cd->values.begin(), position_cd->values.begin() + C * D);
  } else if (seen.config().has_sinusoids()) {
    for (Index i = 0; i < C * D; ++i) rows.push_back(sinusoid(i / D, i % D, D));
  } else {
    return std::nullopt;
  }
  const MatrixPicture matrix =
      matrix_of_distances("Distances of positions", "position vectors", rows.data(), C, D, numbers(C));
  return figure_of("positions", matrix,
                   "Between the vectors that are added to tokens by position (" + seen.config().positions +
                       "). A band of background colour along the diagonal: adjacent positions are similar.");
}

// Relative change of the length of a row by each block.
Figure figure_of_stream(const Observed& seen, const FigureExample& subject) {
  const Index C = seen.positions(), D = seen.config().channels;
  MatrixPicture matrix{
      .text = {"Change of the residual stream by block", "length of the change relative to that of the row", ""},
      .column_names = subject.name_c,
      .scale = {.unit = "of a row's length"}};
  const std::vector<double>* before = &seen.find(seen.config().own_prefix() + "x_bcd")->values;
  double most = -1;
  std::string strongest;
  for (Index layer = 0; layer < seen.config().own_layers(); ++layer) {
    for (const std::string block : {"conv", "mixer", "cross", "ffn"}) {
      const ObservedArray* out = seen.find(seen.block_of(layer) + block + ".out_bcd");
      if (!out) continue;
      matrix.row_names.push_back(to_text(layer) + " " + block);
      double mean = 0;
      for (Index c = 0; c < C; ++c) {
        double change = 0, length = 0;
        for (Index d = 0; d < D; ++d) {
          const auto at = static_cast<std::size_t>(c * D + d);
          change += (out->values[at] - (*before)[at]) * (out->values[at] - (*before)[at]);
          length += (*before)[at] * (*before)[at];
        }
        matrix.value_rc.push_back(length > 0 ? std::sqrt(change / length) : 0);
        mean += matrix.value_rc.back() / static_cast<double>(C);
      }
      if (mean > most) most = mean, strongest = matrix.row_names.back();
      // In a post-norm network, the next block reads normalised rows.
      const ObservedArray* normed = seen.find(seen.block_of(layer) + block + ".normed_bcd");
      before = &(normed ? normed : out)->values;
    }
  }
  matrix.text.description = "Among " + to_text(static_cast<Index>(matrix.row_names.size())) + " blocks, " + strongest +
                            " changes rows most, by " + short_number(most) + " of their length on average.";
  return figure_of("stream", matrix, "Every block adds its output to the residual stream. " + matrix.text.description);
}

PictureSection section_of_rows(const Observed& seen, const FigureExample& subject) {
  PictureSection section{"Tokens, positions, residual stream", "", {}};
  if (auto figure = figure_of_embeddings(seen, subject)) section.figures.push_back(*std::move(figure));
  if (auto figure = figure_of_positions(seen)) section.figures.push_back(*std::move(figure));
  section.figures.push_back(figure_of_stream(seen, subject));
  return section;
}

// ---- Layers ----

class LayerPictures {
 public:
  LayerPictures(const Observed& seen, const FigureExample& subject, const Thinning& thinning, Index layer)
      : seen_(seen),
        subject_(subject),
        thinning_(thinning),
        layer_(layer),
        block_(seen.block_of(layer)),
        file_("layer-" + to_text(layer) + "-"),
        number_(static_cast<std::size_t>(seen.config().encoder_layers + layer)),
        mixer_(seen.config().mixer_names()[number_]),
        has_scores_(mixer_properties(seen.config())[number_].has_scores) {}

  PictureSection section() {
    const ModelConfig& config = seen_.config();
    PictureSection section{"Layer " + to_text(layer_) + ": " + mixer_, "", {}};
    figures_ = &section.figures;
    add_taps();
    add_maps();
    const bool looks = !figures_->empty() && has_map_;
    add_gates();
    add_spans();
    add_metric();
    add_products();
    if (!looks) add_rows();
    section.introduction = looks ? "In a map, rows are positions that attend, columns are positions attended to."
                                 : "This layer has no weights between positions.";
    const Index window = (has_scores_ ? config.attention_windows() : config.windows())[number_];
    if (window > 0 && looks) {
      section.introduction += " A window of " + to_text(window) + " positions masks older ones.";
    }
    if (config.has_alibi() && looks)
      section.introduction += " More distant positions get smaller weights, by a slope per head.";
    return section;
  }

 private:
  const ObservedArray* find(const std::string& name) const { return seen_.find(block_ + name); }
  bool drawn(Index head) const { return head % thinning_.heads == 0; }
  std::string title(const std::string& what) const { return "Layer " + to_text(layer_) + ", " + what; }

  void add(const std::string& file, const MatrixPicture& matrix, const std::string& caption) {
    figures_->push_back(figure_of(file_ + file, matrix, caption));
  }

  void add_taps() {
    const ObservedArray* weight_dgj = find("conv.weight_dgj");
    if (!weight_dgj) return;
    const Index D = weight_dgj->shape[0], G = weight_dgj->shape[1], J = weight_dgj->shape[2];
    const bool depthwise = G == 1;
    MatrixPicture matrix{
        .text = {title("taps of the convolution"),
                 depthwise ? "rows: taps, columns: channels" : "root mean square over a channel's inputs", ""},
        .column_names = numbers(D),
        .scale = {.colours = depthwise ? Colours::both_signs : Colours::one_way, .unit = "weight"}};
    for (Index j = 0; j < J; ++j) {
      const Index back = J - 1 - j;
      matrix.row_names.push_back(back == 0 ? "itself" : "-" + to_text(back));
      for (Index d = 0; d < D; ++d) {
        double squares = 0;
        for (Index g = 0; g < G; ++g) {
          const double weight = weight_dgj->values[static_cast<std::size_t>((d * G + g) * J + j)];
          squares += weight * weight / static_cast<double>(G);
        }
        matrix.value_rc.push_back(depthwise ? weight_dgj->values[static_cast<std::size_t>(d * J + j)]
                                            : std::sqrt(squares));
      }
    }
    matrix.text.description = to_text(J) + " taps of " + to_text(D) + " channels, the largest " +
                              short_number(largest_of(matrix.value_rc)) + ".";
    add("taps", matrix,
        "Weights of every channel for the current and the preceding positions. " + matrix.text.description);
  }

  // Weights as multiples of the uniform weight; otherwise a row of many positions would look empty.
  static std::vector<double> shares_of(const AttentionMap& map, Index C) {
    std::vector<double> share_cs = map.weight_cs;
    for (auto row = share_cs.begin(); row != share_cs.end(); row += C) {
      const auto seen = static_cast<double>(C - std::count(row, row + C, 0.0));
      for (auto share = row; share != row + C; ++share) *share *= seen;
    }
    return share_cs;
  }

  void add_maps() {
    for (const AttentionMap& map : seen_.maps()) {
      if (map.layer != layer_) continue;
      has_map_ = true;
      if (!thinning_.draws(map)) continue;
      const std::string head = map.heads == 1 ? "" : ", head " + to_text(map.head);
      const std::string pooling = map.kind.empty() ? "" : ", weights of " + map.kind;
      MatrixPicture matrix{.text = {title(mixer_ + pooling + head), "rows: queries, columns: keys",
                                    worth_of(map, seen_, subject_.name_c)},
                           .row_names = subject_.name_c,
                           .column_names = subject_.name_c,
                           .value_rc = shares_of(map, seen_.positions()),
                           .scale = {.by_roots = true, .unit = "times the uniform weight"}};
      // In a row of equal weights all values are 1. The value 1 is at the middle of the scale or below.
      matrix.scale.largest = std::max(4.0, largest_of(matrix.value_rc));
      add((map.kind.empty() ? "" : map.kind + "-") + "head-" + to_text(map.head), matrix, matrix.text.description);
    }
  }

  // Root mean square, per head, of the product of two arrays (BCD).
  void add_gate(const std::string& file, const std::string& name, const ObservedArray* pooled,
                const ObservedArray* gate) {
    const Index N = seen_.config().heads, C = seen_.positions(), D = seen_.config().channels, K = D / N;
    MatrixPicture matrix{.text = {title("gate " + name), "root mean square of each head", ""},
                         .row_names = numbers(N, "head "),
                         .column_names = subject_.name_c,
                         .scale = {.unit = "root mean square"}};
    for (Index n = 0; n < N; ++n) {
      for (Index c = 0; c < C; ++c) {
        double squares = 0;
        for (Index d = c * D + n * K; d < c * D + (n + 1) * K; ++d) {
          const double product =
              pooled->values[static_cast<std::size_t>(d)] * gate->values[static_cast<std::size_t>(d)];
          squares += product * product / static_cast<double>(K);
        }
        matrix.value_rc.push_back(std::sqrt(squares));
      }
    }
    matrix.text.description = "Product of the pooled values and those of the position, up to " +
                              short_number(largest_of(matrix.value_rc)) + ".";
    add(file, matrix, matrix.text.description);
  }

  void add_gates() {
    if (const ObservedArray* P = find("mixer.P_bcd")) {
      const ObservedArray* p = find("mixer.p_bcd");
      add_gate("gate-p", "p k", p ? p : P, find("mixer.k_bcd"));
      add_gate("gate-u", "u v", find("mixer.u_bcd"), find("mixer.v_bcd"));
    }
    if (const ObservedArray* passed_bcn = find("mixer.passed_bcn")) {
      const Index C = passed_bcn->shape[1], N = passed_bcn->shape[2];
      MatrixPicture matrix{.text = {title("output of the gate"), "relative to the averaged value", ""},
                           .row_names = numbers(N, "head "),
                           .column_names = subject_.name_c,
                           .scale = {.largest = 1, .unit = "share"}};
      double sum = 0;
      for (Index i = 0; i < N * C; ++i) {
        matrix.value_rc.push_back(passed_bcn->values[static_cast<std::size_t>(i % C * N + i / C)]);
        sum += matrix.value_rc.back() / static_cast<double>(N * C);
      }
      matrix.text.description =
          "The gate is computed from the query and the averaged key; its mean is " + short_number(sum) + ".";
      add("gate", matrix, matrix.text.description);
    }
  }

  // Learned span mask of each head by distance.
  void add_spans() {
    const ObservedArray* span_n = find("mixer.span_n");
    if (!span_n) return;
    const Index N = span_n->shape[0], C = seen_.positions();
    const double ramp = seen_.config().extras.ramp;
    MatrixPicture masks{.text = {title("spans"), "rows: heads, columns: distances", ""},
                        .column_names = numbers(C),
                        .scale = {.colours = Colours::one_way, .unit = "span mask"}};
    std::string spans;
    for (Index n = 0; n < N; ++n) {
      const double span = span_n->values[static_cast<std::size_t>(n)];
      masks.row_names.push_back("head " + to_text(n));
      for (Index x = 0; x < C; ++x) {
        masks.value_rc.push_back(std::clamp((ramp + span - static_cast<double>(x)) / ramp, 0.0, 1.0));
      }
      spans += (n == 0 ? "" : ", ") + fixed_text(span, 1);
    }
    masks.text.description = "The spans of the heads are " + spans + " positions; beyond, the mask falls to 0 over " +
                             short_number(ramp) + " more.";
    add("spans", masks, masks.text.description);
  }

  // M of every head, and the squared distances by M between the rows p.
  void add_metric() {
    const ObservedArray* metric_nkk = find("mixer.metric_nkk");
    if (!metric_nkk) return;
    const Index N = metric_nkk->shape[0], K = metric_nkk->shape[1], C = seen_.positions();
    for (Index n = 0; n < N; ++n) {
      if (!drawn(n)) continue;
      const double* M = metric_nkk->values.data() + n * K * K;
      MatrixPicture tensor{.text = {title("M of head " + to_text(n)), "the learned metric", ""},
                           .row_names = numbers(K),
                           .column_names = numbers(K),
                           .value_rc = {M, M + K * K},
                           .scale = {.colours = Colours::both_signs, .unit = "entry"}};
      double off = 0, on = 0;
      for (Index k = 0; k < K * K; ++k) (k / K == k % K ? on : off) += M[k] * M[k];
      tensor.text.description = to_text(K) + " x " + to_text(K) + " elements; of the sum of their squares, " +
                                percent(on / (on + off)) + " is on the diagonal.";
      add("metric-head-" + to_text(n), tensor,
          "The score of two rows p, p' is p M p'. Initially M is the identity. " + tensor.text.description);

      MatrixPicture squares{.text = {title("distances by M, head " + to_text(n)), "squares: (p - p') M (p - p')", ""},
                            .row_names = subject_.name_c,
                            .column_names = subject_.name_c,
                            .scale = {.colours = Colours::both_signs, .unit = "square of a distance"}};
      squares.value_rc = squares_by_metric(seen_, layer_, n);
      Index negative = 0;
      for (Index i = 0; i < C * C; ++i) {
        negative += i / C < i % C && squares.value_rc[static_cast<std::size_t>(i)] < 0;
      }
      squares.text.description =
          negative == 0
              ? "No squared distance between " + to_text(C) + " positions is negative: M is a metric for them."
              : to_text(negative) + " of " + to_text(C * (C - 1) / 2) +
                    " pairs have a negative squared distance: M is no metric for them.";
      add("distance-head-" + to_text(n), squares, "Between the rows of two positions. " + squares.text.description);
    }
  }

  // W_q W_k^T of dot-product attention: the score of two normalised rows before rotation and scaling.
  void add_products() {
    const ObservedArray *query_hd = find("mixer.query_hd"), *key_hd = find("mixer.key_hd");
    if (!query_hd || !key_hd || find("mixer.score_nk")) return;  // undefined for scores that are not dot products
    constexpr Index most = 64;
    const Index D = query_hd->shape[1], N = seen_.config().heads, K = query_hd->shape[0] / N,
                step = (D + most - 1) / most;
    Names names;
    for (Index d = 0; d < D; d += step) names.push_back(to_text(d));
    for (Index n = 0; n < N; ++n) {
      if (!drawn(n)) continue;
      MatrixPicture matrix{.text = {title("W_q W_k^T, head " + to_text(n)),
                                    step == 1 ? "rows: query channels, columns: key channels"
                                              : "channels whose index is a multiple of " + to_text(step),
                                    ""},
                           .row_names = names,
                           .column_names = names,
                           .scale = {.colours = Colours::both_signs, .unit = "product"}};
      double trace = 0;
      for (Index d = 0; d < D; d += step) {
        for (Index e = 0; e < D; e += step) {
          double product = 0;
          for (Index k = n * K; k < (n + 1) * K; ++k) {
            product += query_hd->values[static_cast<std::size_t>(k * D + d)] *
                       key_hd->values[static_cast<std::size_t>(k * D + e)];
          }
          matrix.value_rc.push_back(product);
          trace += d == e ? product : 0;
        }
      }
      matrix.text.description = "Query channels by key channels, with a rank of at most " + to_text(std::min(K, D)) +
                                "; its trace is " + short_number(trace) +
                                (trace > 0 ? ": on average, similar rows get higher scores."
                                           : ": on average, similar rows do not get higher scores.");
      add("product-head-" + to_text(n), matrix, matrix.text.description);
    }
  }

  void add_rows() {
    const ObservedArray* out_bcd = find("mixer.out_bcd");
    const MatrixPicture matrix =
        matrix_of_distances(title("distances of rows"), "output rows of the mixer", out_bcd->values.data(),
                            seen_.positions(), seen_.config().channels, subject_.name_c);
    add("rows", matrix, matrix.text.description);
  }

  const Observed& seen_;
  const FigureExample& subject_;
  const Thinning& thinning_;
  Index layer_;
  std::string block_, file_;
  std::size_t number_;  // index among all layers, those of an encoder first
  std::string mixer_;
  bool has_scores_;
  bool has_map_ = false;
  std::vector<Figure>* figures_ = nullptr;
};

}  // namespace

std::string worth_of(const AttentionMap& map, const Observed& seen, const Names& name_c) {
  const std::vector<double>& without_c = seen.losses().without_c;
  const std::vector<double> received = received_s(map, seen.positions());
  std::vector<double> weight, worth;
  std::vector<Index> position;
  for (std::size_t c = 0; c < received.size(); ++c) {
    if (std::isnan(without_c[c])) continue;
    weight.push_back(received[c]);
    worth.push_back(without_c[c] - seen.losses().mean);
    position.push_back(static_cast<Index>(c));
  }
  if (position.empty()) return "No position can be masked.";
  const auto named = [&](std::size_t i) { return quoted(name_c[static_cast<std::size_t>(position[i])], position[i]); };
  const auto most = static_cast<std::size_t>(std::max_element(weight.begin(), weight.end()) - weight.begin());
  const auto least = static_cast<std::size_t>(std::min_element(weight.begin(), weight.end()) - weight.begin());
  const double loss = seen.losses().mean, agreement = rank_correlation(weight, worth);
  return "Most weight, " + percent(weight[most]) + ", goes to " + named(most) + ". The loss is " + nats(loss) +
         ", without that position " + nats(loss + worth[most]) + ", without the position of least weight, " +
         named(least) + ", " + nats(loss + worth[least]) + ". The rank correlation of weights and importance is " +
         (std::isnan(agreement) ? "undefined" : fixed_text(agreement, 2)) + ".";
}

std::vector<PictureSection> gallery(const Observed& seen, const FigureExample& subject, const Thinning& thinning) {
  std::vector<PictureSection> sections = {section_of_answer(seen, subject), section_of_rows(seen, subject)};
  for (Index layer = 0; layer < seen.config().own_layers(); layer += thinning.layers) {
    sections.push_back(LayerPictures(seen, subject, thinning, layer).section());
  }
  return sections;
}

}  // namespace abh
