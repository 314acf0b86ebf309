#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "settings/features.hpp"
#include "settings/setting.hpp"

namespace abh {

// Settings of one mixer alone.
struct AdditiveSettings {
  std::string values = "shared";  // shared (with the query) | own
  bool projection = false;        // of the pooled query
  std::string skip = "stream";    // stream | normed
};
struct LeapSettings {
  std::string focus = "elu";   // elu | exp, what a logit goes through
  bool normed_values = false;  // head by head
};

// Everything that decides the shape and the function of a network; what training needs besides is in TrainingConfig.
// The strings that the program flags, the golden files and the checkpoints use are the same.
struct ModelConfig {
  Index layers = 4;
  Index channels = 128;                // D
  Index heads = 4;                     // N
  Index hidden_channels = 0;           // F of the feed-forward net; 0: 4 * channels
  Index head_channels = 0;             // K of metric, quadratic and dot; 0: channels / heads, as in additive
  Index context = 64;                  // rows of the position table, and the longest cache
  Index vocabulary = 0;                // V, from the tokenizer; 0: patches in the place of tokens
  std::string mixer = "additive";      // one name, or a comma list with one a layer
  std::string window = "0";            // of additive pooling: one number or one a layer; 0: global
  std::string attention_window = "0";  // of what compares positions, likewise
  AdditiveSettings additive{};
  LeapSettings leap{};
  double rescale = 0;       // c of rescaled products, in leap and dot; 0: off
  bool reversible = false;  // two streams, of which blocks read one and add to the other (extras/reversible/README.md)
  bool causal = true;       // of metric, quadratic and dot; golden files may let them see all positions
  bool attention_bias = false;  // biases of the projections of `dot`; golden files may have them
  Index conv_kernel = 0;        // 0: no convolution
  Index conv_groups = 1;        // 0: one group a channel (depthwise)
  bool ffn_bias = true;
  bool embedding_norm = false;
  bool final_norm = true;
  bool logit_bias = false;
  double logit_scale = 1;
  Index classes = 0;                   // O, of a classifier, as golden files have them; 0: a language model
  std::string class_pooling = "mean";  // mean | cls, what a classifier reads: all positions, or one in front of them
  Index patch_inputs = 0;              // I, numbers of a patch, of a classifier that reads patches; 0: tokens
  // With an encoder, which reads a second sequence, the source: layers are those of the encoder and, behind them, those
  // of the decoder, every one of which reads what the encoder makes of the source.
  Index encoder_layers = 0, decoder_layers = 0;  // 0: neither
  Index source_vocabulary = 0;
  Index source_context = 0;              // S, rows of the encoder's position table
  std::string embeddings = "separate";   // separate | target | shared, tables of source, target and logits
  std::string cross = "dot";             // dot | bahdanau, how scores of the source are made
  std::string norm = "pre";              // pre | post, before a block or behind its sum with the stream
  std::string activation = "gelu";       // gelu | relu | gelu_tanh, of the feed-forward net
  double embedding_scale = 1;            // of what a token adds to the stream
  std::string positions = "learned";     // learned | none | sinusoidal | rotary | alibi
  std::string alibi_slopes = "formula";  // formula | interleaved, of alibi's heads where they are no power of two
  FeatureSettings extras{};

  Index mixer_head_channels() const { return head_channels ? head_channels : channels / heads; }
  Index convolution_groups() const { return conv_groups ? conv_groups : channels; }
  Index ffn_channels() const { return hidden_channels ? hidden_channels : 4 * channels; }  // F

  // Whether a vector of its own stands in front of the tokens. It is the last row of their table, behind the
  // vocabulary.
  bool has_cls() const { return classes > 0 && class_pooling == "cls"; }
  Index token_rows() const { return vocabulary + (has_cls() ? 1 : 0); }
  // How many patches a sequence of C positions has.
  Index patches(Index C) const { return patch_inputs > 0 ? C - (has_cls() ? 1 : 0) : 0; }

  bool has_encoder() const { return encoder_layers > 0; }
  // The layer count and the prefix of weight names of the stack that writes; an encoder may stand beside it.
  Index own_layers() const { return layers - encoder_layers; }
  std::string own_prefix() const { return has_encoder() ? "decoder." : ""; }
  // Whether a layer sees no later positions. An encoder sees all.
  bool is_causal(Index layer) const { return causal && layer >= encoder_layers; }
  std::string where_not_causal() const {
    return has_encoder() ? "where the layer is an encoder's" : "where causal is 0";
  }
  // The length of the sequence that a layer reads.
  Index context_of(Index layer) const { return layer < encoder_layers ? source_context : context; }
  // Whether norms stand behind the sums of blocks and stream. The stream is then normed where it leaves the last one.
  bool norms_after() const { return norm == "post"; }
  bool has_final_norm() const { return final_norm && !norms_after(); }

  // Whether positions have a table of learned vectors, which ends at the context.
  bool has_position_table() const { return positions == "learned"; }
  // Whether sines and cosines of its position are added to every token.
  bool has_sinusoids() const { return positions == "sinusoidal"; }
  // Whether queries and keys are turned by their position.
  bool has_rotary() const { return positions == "rotary"; }
  // Whether what lies further back counts less, by a slope a head.
  bool has_alibi() const { return positions == "alibi"; }
  bool interleaves_slopes() const { return alibi_slopes == "interleaved"; }
  // Whether heads learn how far they look back.
  bool learns_reach() const {
    bool learns = false;
    extras.each([&](const auto& feature) { learns = learns || feature.learns_reach(); });
    return learns;
  }

  // One entry a layer; which names there are the registry knows (network/mixers.hpp). UsageError for a malformed or
  // negative number, or a list of the wrong length.
  std::vector<std::string> mixer_names() const;
  std::vector<Index> windows() const;
  std::vector<Index> attention_windows() const;

  // UsageError for values outside their range. Whether they make a network, too, says check_model.
  void check() const;

  // As strings, for a checkpoint's __metadata__, under the keys of the golden files, and back. Reading starts from the
  // golden files' defaults; unknown keys are left to others. Error, naming `source`, for a value that is not one, and
  // for a missing key that files of `file_version` have; 0: a file without one, as other people's are.
  std::map<std::string, std::string> metadata() const;
  static ModelConfig from_metadata(const std::map<std::string, std::string>& metadata, const std::string& source,
                                   Index file_version = 0);
  // The keys of all settings, including those that a file omits when they have their usual values.
  static std::set<std::string> keys();

 private:
  void check_encoder() const;
  std::vector<Index> windows_in(const std::string& list, const char* flag) const;
  void check_reversible() const;
};

// How a network is trained. Losses are nats per token.
struct TrainingConfig {
  Index batch = 12;        // B
  Index shards = 1;        // S, parts of the batch whose gradients are summed as a binary tree; a power of two
  Index chunk = 0;         // S, positions of a sequence that are computed at a time (extras/chunks/README.md); 0: all
  bool truncated = false;  // no gradient crosses the border of a chunk
  Index steps = 4000;
  std::string optimizer = "adamw";  // adamw | muon, for the matrices of linear maps
  Index muon_rounds = 5;
  double learning_rate = 3e-3;
  Index warmup = 100;               // steps of linear rise before the schedule begins
  std::string schedule = "cosine";  // cosine | linear | inverse-sqrt, see learning_rate_at
  double weight_decay = 0.1;
  double clip = 1;  // global norm of the gradient; 0: off
  double beta1 = 0.9;
  double beta2 = 0.99;
  Index weight_average = 0;  // N of layers/weight_average.hpp: evaluated and kept in place of the weights; 0: off
  double dropout = 0;
  double label_smoothing = 0;
  double init_std = 0.02;
  std::string type = "float";  // of activations and of what matrix products read; bf16 keeps float weights beside it
  std::uint64_t seed = 1337;
  Index eval_every = 500;        // 0: only at the end
  Index eval_tokens = 0;         // of the validation split, but at the end, see Dataset::evaluation_rows; 0: all
  Index checkpoint_every = 500;  // 0: only at the end
  Index log_every = 50;          // 0: only at the end
  Index keep_checkpoints = 0;    // so many of the last ones stay in files of their own

  // UsageError for values outside the range of their flag (the largest sizes stand above), for shards that do not
  // divide the batch, and for chunks that are truncated where there are none.
  void check() const;

  std::map<std::string, std::string> metadata() const;
  static TrainingConfig from_metadata(const std::map<std::string, std::string>& metadata, const std::string& source,
                                      Index file_version = 0);
};

// UsageError, naming the flag, if so many parts do not divide the channels.
void require_divides(const char* flag, Index parts, Index channels);

}  // namespace abh
