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

// Settings of a single mixer.
struct AdditiveSettings {
  std::string values = "shared";  // shared (the queries also serve as values) | own
  bool projection = false;        // true: apply a linear map to the pooled query
  std::string skip = "stream";    // stream | normed
};
struct LeapSettings {
  std::string focus = "elu";   // elu | exp, the function that maps a logit to a weight
  bool normed_values = false;  // true: normalise the values, per head
};

// All settings that determine the shape and the function of a network. TrainingConfig has the other settings of
// training. Flags, golden files and checkpoints use the same strings.
struct ModelConfig {
  Index layers = 4;
  Index channels = 128;                // D
  Index heads = 4;                     // N
  Index hidden_channels = 0;           // F of the feed-forward block; 0: 4 * channels
  Index head_channels = 0;             // K of metric, quadratic and dot; 0: channels / heads, as in additive
  Index context = 64;                  // rows of the position table, and length of the KV cache
  Index vocabulary = 0;                // V, from the tokenizer; 0: patches instead of tokens
  std::string mixer = "additive";      // one name, or a comma-separated list with one name per layer
  std::string window = "0";            // window of pooling: one number, or one number per layer; 0: no window
  std::string attention_window = "0";  // window of attention, in the same format
  AdditiveSettings additive{};
  LeapSettings leap{};
  double rescale = 0;           // largest logit with QK normalisation, in leap and dot; 0: off
  bool reversible = false;      // true: two residual streams (extras/reversible/README.md)
  bool causal = true;           // causal mask of metric, quadratic and dot; false only in classifiers and golden files
  bool attention_bias = false;  // true: biases of the projections of `dot`, only in golden files
  Index conv_kernel = 0;        // 0: no convolution
  Index conv_groups = 1;        // 0: one group per channel (depthwise)
  bool ffn_bias = true;
  bool embedding_norm = false;
  bool final_norm = true;
  bool logit_bias = false;
  double logit_scale = 1;
  Index classes = 0;                   // O, number of classes; 0: language model
  std::string class_pooling = "mean";  // mean | cls, input of the classifier: mean over positions, or an extra position
  Index patch_inputs = 0;              // I, numbers per patch; 0: the network reads tokens
  // With an encoder, `layers` counts the layers of the encoder and of the decoder. The encoder processes a second
  // sequence, the source. Each decoder layer attends to the output of the encoder.
  Index encoder_layers = 0, decoder_layers = 0;  // 0: no encoder
  Index source_vocabulary = 0;
  Index source_context = 0;              // S, rows of the encoder's position table
  std::string embeddings = "separate";   // separate | target | shared, tables of source, target and output layer
  std::string cross = "dot";             // dot | bahdanau, scores of cross-attention
  std::string norm = "pre";              // pre | post, layernorm before a block or after the residual sum
  std::string activation = "gelu";       // gelu | relu | gelu_tanh, in the feed-forward block
  double embedding_scale = 1;            // factor of the token embeddings
  std::string positions = "learned";     // learned | none | sinusoidal | rotary | alibi
  std::string alibi_slopes = "formula";  // formula | interleaved, for numbers of heads that are not a power of two
  FeatureSettings extras{};

  Index mixer_head_channels() const { return head_channels ? head_channels : channels / heads; }
  Index convolution_groups() const { return conv_groups ? conv_groups : channels; }
  Index ffn_channels() const { return hidden_channels ? hidden_channels : 4 * channels; }  // F

  // True if a learned vector precedes the tokens (cls). It is the last row of the token table, after the vocabulary.
  bool has_cls() const { return classes > 0 && class_pooling == "cls"; }
  Index token_rows() const { return vocabulary + (has_cls() ? 1 : 0); }
  // Number of patches in a sequence of C positions.
  Index patches(Index C) const { return patch_inputs > 0 ? C - (has_cls() ? 1 : 0) : 0; }

  bool has_encoder() const { return encoder_layers > 0; }
  // Number of layers, and prefix of weight names, of the decoder (of the only stack if there is no encoder).
  Index own_layers() const { return layers - encoder_layers; }
  std::string own_prefix() const { return has_encoder() ? "decoder." : ""; }
  // True if the layer has a causal mask. Encoder layers attend to all positions.
  bool is_causal(Index layer) const { return causal && layer >= encoder_layers; }
  std::string where_not_causal() const {
    return has_encoder() ? "where the layer is an encoder's" : "where causal is 0";
  }
  // Length of the sequence that a layer processes.
  Index context_of(Index layer) const { return layer < encoder_layers ? source_context : context; }
  // True if layernorms follow the residual sums (post-norm). The output of the last block is then already normalised.
  bool norms_after() const { return norm == "post"; }
  bool has_final_norm() const { return final_norm && !norms_after(); }

  // True if positions have a table of learned vectors, with one row per position of the context.
  bool has_position_table() const { return positions == "learned"; }
  // True if sines and cosines of the position are added to every token embedding.
  bool has_sinusoids() const { return positions == "sinusoidal"; }
  // True if queries and keys are rotated by their position.
  bool has_rotary() const { return positions == "rotary"; }
  // True if scores decrease linearly with the distance, with one slope per head (ALiBi).
  bool has_alibi() const { return positions == "alibi"; }
  bool interleaves_slopes() const { return alibi_slopes == "interleaved"; }
  // True if heads learn their attention span.
  bool learns_reach() const {
    bool learns = false;
    extras.each([&](const auto& feature) { learns = learns || feature.learns_reach(); });
    return learns;
  }

  // One entry per layer. network/mixers.hpp lists the names of mixers. UsageError for a malformed or negative number,
  // or a list of the wrong length.
  std::vector<std::string> mixer_names() const;
  std::vector<Index> windows() const;
  std::vector<Index> attention_windows() const;

  // UsageError for values outside their range. check_model checks whether the values are compatible.
  void check() const;

  // Conversion to and from strings, for the __metadata__ of a checkpoint or a golden file. Missing keys have the
  // defaults of golden files; unknown keys are ignored. Error, with the name of `source`, for an invalid value, and for
  // a missing key that every file of `file_version` has. file_version 0: the file has no version, for example a file of
  // another program.
  std::map<std::string, std::string> metadata() const;
  static ModelConfig from_metadata(const std::map<std::string, std::string>& metadata, const std::string& source,
                                   Index file_version = 0);
  // Keys of all settings, including keys that a file omits if the setting has its default.
  static std::set<std::string> keys();

 private:
  void check_encoder() const;
  std::vector<Index> windows_in(const std::string& list, const char* flag) const;
  void check_reversible() const;
};

// Settings of training. Losses are in nats per token.
struct TrainingConfig {
  Index batch = 12;        // B
  Index shards = 1;        // S, micro-batches of gradient accumulation, summed as a binary tree; a power of two
  Index chunk = 0;         // S, positions per chunk of a sequence (extras/chunks/README.md); 0: no chunks
  bool truncated = false;  // true: no gradient crosses the border of a chunk
  Index steps = 4000;
  std::string optimizer = "adamw";  // adamw | muon, for the matrices of linear maps
  Index muon_rounds = 5;
  double learning_rate = 3e-3;
  Index warmup = 100;               // steps of linear warm-up before the schedule begins
  std::string schedule = "cosine";  // cosine | linear | inverse-sqrt, see learning_rate_at
  double weight_decay = 0.1;
  double clip = 1;  // global norm of the gradient; 0: off
  double beta1 = 0.9;
  double beta2 = 0.99;
  Index weight_average = 0;  // N of layers/weight_average.hpp; the average is evaluated and saved; 0: off
  double dropout = 0;
  double label_smoothing = 0;
  double init_std = 0.02;
  std::string type =
      "float";  // type of activations and of inputs of matrix products; bf16 keeps master weights in float
  std::string order = "random";  // random | shuffled, of training examples
  std::uint64_t seed = 1337;
  Index eval_every = 500;  // 0: only at the end
  Index eval_tokens = 0;   // tokens per evaluation, except the last (Dataset::evaluation_rows); 0: the whole split
  Index checkpoint_every = 500;  // 0: only at the end
  Index log_every = 50;          // 0: only at the end
  Index keep_checkpoints = 0;    // number of last checkpoints that are kept in separate files

  // UsageError for values outside the range of their flag (largest sizes: setting.hpp), if the batch is not a multiple
  // of the shards, and for `truncated` without chunks.
  void check() const;

  std::map<std::string, std::string> metadata() const;
  static TrainingConfig from_metadata(const std::map<std::string, std::string>& metadata, const std::string& source,
                                      Index file_version = 0);
};

// UsageError, with the name of the flag, if channels is not a multiple of parts.
void require_divides(const char* flag, Index parts, Index channels);

}  // namespace abh
