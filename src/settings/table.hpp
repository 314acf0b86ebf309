#pragma once

#include "settings/config.hpp"

namespace abh {

// Calls visit(setting, field) for every field of a const or non-const configuration, in the order of --help.
template <class Visitor, class Config>
void visit_model(Visitor&& visit, Config& m) {
  visit(
      WholeSetting{
          {"layers", "layers", "N", "number of layers, each with a mixer and a feed-forward block"}, 1, largest_layers},
      m.layers);
  visit(WholeSetting{{"heads", "heads", "N", "attention heads per layer; must divide --channels"}, 1, largest_channels},
        m.heads);
  visit(WholeSetting{{"channels", "channels", "N", "hidden size (d_model)"}, 1, largest_channels}, m.channels);
  visit(WholeSetting{{"context", "context", "TOKENS", "sequence length in training"}, 1, largest_context}, m.context);
  visit(WholeSetting{{"vocabulary_size"}, 0, largest_vocabulary}, m.vocabulary);
  visit(WholeSetting{{"hidden_channels"}, 0, 4 * largest_channels}, m.hidden_channels);
  visit(WholeSetting{{"head_channels"}, 0, largest_channels}, m.head_channels);
  // network/mixers.hpp has the names of the mixers.
  visit(Setting{"mixer", "mixer", "LIST",
                "mixer, the block that combines positions: one name, or a comma-separated list, one per layer"},
        m.mixer);
  visit(Setting{"window", "window", "LIST",
                "pooling window in tokens: one number, or a comma-separated list, one per layer; 0: none"},
        m.window);
  visit(ChoiceSetting{{"values", "additive-values", "",
                       "values of additive attention; shared: equal to the queries; own: another projection"},
                      {"shared", "own"}},
        m.additive.values);
  visit(Setting{"projection", "additive-projection", "", "linear map of the pooled query"}, m.additive.projection);
  visit(ChoiceSetting{{"skip", "additive-skip", "",
                       "array to which additive attention adds its result; stream: the residual stream; normed: the "
                       "layernorm of the stream plus the keys times the pooled queries"},
                      {"stream", "normed"}},
        m.additive.skip);
  visit(ChoiceSetting{{"focus", "leap-focus", "", "weight of a position in leap: elu(logit) + 1, or exp(logit)", 2},
                      {"elu", "exp"}},
        m.leap.focus);
  visit(RealSetting{{"rescale", "rescale", "C", "QK normalisation, with logits of at most C; 0: off", 2}, 0, 1e6},
        m.rescale);
  visit(Setting{"normed_values", "normed-values", "", "normalise the values of leap, per head", 2},
        m.leap.normed_values);
  visit(Setting{"causal", "causal", "", "1: causal mask; 0: attend to all positions (classifiers only)"}, m.causal);
  visit(Setting{"attention_bias"}, m.attention_bias);
  visit(WholeSetting{{"conv_kernel", "conv-kernel", "TOKENS", "kernel size of the convolution before mixers; 0: none"},
                     0,
                     largest_conv_kernel},
        m.conv_kernel);
  visit(WholeSetting{{"conv_groups", "conv-groups", "N", "convolution groups; 0: one per channel (depthwise)"},
                     0,
                     largest_channels},
        m.conv_groups);
  visit(Setting{"ffn_bias", "ffn-bias", "", "use biases in the feed-forward block"}, m.ffn_bias);
  visit(Setting{"embedding_norm", "embedding-norm", "", "apply layernorm after the embedding"}, m.embedding_norm);
  visit(Setting{"final_norm", "final-norm", "", "apply layernorm before the output layer"}, m.final_norm);
  visit(Setting{"logit_bias", "logit-bias", "", "use a bias in the output layer"}, m.logit_bias);
  visit(Setting{"logit_scale"}, m.logit_scale);
  visit(ChoiceSetting{{"positions", "positions", "",
                       "position encoding: a learned table, none, sinusoids added to the token embeddings, rotary "
                       "queries and keys, or ALiBi (scores decrease linearly with distance)"},
                      {"learned", "none", "sinusoidal", "rotary", "alibi"}},
        m.positions);
  visit(ChoiceSetting{{"alibi_slopes", "alibi-slopes", "",
                       "slopes of --positions alibi if the number of heads is not a power of two; formula: as in the "
                       "paper; interleaved: as in the authors' code and BLOOM",
                       3},
                      {"formula", "interleaved"}},
        m.alibi_slopes);
  visit(WholeSetting{{"classes", "", "", "", unless_default}, 0, largest_vocabulary}, m.classes);
  visit(ChoiceSetting{{"pooling", "class-pooling", "",
                       "input of the classifier; mean: the mean over all positions; cls: an extra first position",
                       unless_default},
                      {"mean", "cls"}},
        m.class_pooling);
  visit(WholeSetting{{"patch_inputs", "", "", "", unless_default}, 0, largest_patch_inputs}, m.patch_inputs);
  visit(ChoiceSetting{{"norm", "norm", "",
                       "place of the layernorms; pre: before each block; post: after the sum with the residual stream",
                       unless_default},
                      {"pre", "post"}},
        m.norm);
  visit(Setting{"reversible", "reversible", "",
                "two residual streams; recompute activations, so that only those of one block are stored",
                unless_default},
        m.reversible);
  visit(ChoiceSetting{{"activation", "activation", "",
                       "activation function of the feed-forward block; gelu_tanh: the GELU of GPT-2", unless_default},
                      {"gelu", "relu", "gelu_tanh"}},
        m.activation);
  visit(RealSetting{{"embedding_scale", "embedding-scale", "FACTOR", "factor of the token embeddings", unless_default},
                    -1e6,
                    1e6,
                    false,
                    1},
        m.embedding_scale);
  visit(WholeSetting{{"encoder_layers", "encoder-layers", "N", "layers of the encoder, which processes the source",
                      unless_default},
                     0,
                     largest_layers},
        m.encoder_layers);
  visit(WholeSetting{{"decoder_layers", "decoder-layers", "N",
                      "layers of the decoder, which attends to the encoder output", unless_default},
                     0,
                     largest_layers},
        m.decoder_layers);
  visit(WholeSetting{{"source_vocabulary_size", "", "", "", unless_default}, 0, largest_vocabulary},
        m.source_vocabulary);
  visit(WholeSetting{{"source_context", "", "", "", unless_default}, 0, largest_context}, m.source_context);
  visit(
      ChoiceSetting{
          {"embeddings", "embeddings", "",
           "with an encoder: embedding tables of source, target and output; separate: three tables; target: one table "
           "for target and output; shared: one table for all three; without an encoder, input and output of a language "
           "model share a table",
           unless_default},
          {"separate", "target", "shared"}},
      m.embeddings);
  visit(ChoiceSetting{{"cross", "cross", "", "scores of cross-attention: scaled dot product, or Bahdanau (MLP)",
                       unless_default},
                      {"dot", "bahdanau"}},
        m.cross);
  visit(Setting{"attention_window", "attention-window", "LIST",
                "attention window in tokens: one number, or a comma-separated list, one per layer; 0: none",
                unless_default},
        m.attention_window);
  m.extras.each([&](auto& feature) { feature.visit(visit, feature); });
}

template <class Visitor, class Config>
void visit_training(Visitor&& visit, Config& t) {
  visit(WholeSetting{{"steps", "steps", "STEPS", "optimizer steps", 1, true}, 0, largest_steps}, t.steps);
  visit(WholeSetting{{"batch", "batch", "SEQUENCES", "sequences per step"}, 1, largest_batch}, t.batch);
  visit(WholeSetting{{"shards", "shards", "N",
                      "gradient accumulation: split each batch into N parts, to save memory; a power of two"},
                     1,
                     largest_batch},
        t.shards);
  visit(WholeSetting{{"chunk", "chunk", "TOKENS",
                      "compute sequences in chunks of TOKENS tokens, to save memory; 0: whole sequences", 2},
                     0,
                     largest_context},
        t.chunk);
  visit(Setting{"truncated", "truncated", "", "stop the gradient at the borders of chunks, with --chunk", 2},
        t.truncated);
  visit(ChoiceSetting{{"optimizer", "optimizer", "",
                       "optimizer of the matrices of linear maps; AdamW updates all other weights"},
                      {"adamw", "muon"}},
        t.optimizer);
  visit(WholeSetting{{"muon_rounds", "muon-rounds", "N",
                      "Newton-Schulz iterations of Muon; fewer are faster and less exact"},
                     0,
                     largest_muon_rounds},
        t.muon_rounds);
  visit(RealSetting{{"learning_rate", "learning-rate", "RATE", "peak learning rate"}, 0, 1e6}, t.learning_rate);
  visit(WholeSetting{{"warmup", "warmup", "STEPS", "steps of linear learning-rate warm-up, before --schedule begins"},
                     0,
                     largest_steps},
        t.warmup);
  visit(ChoiceSetting{{"schedule", "schedule", "",
                       "learning-rate decay after the warm-up: cosine to 10 %, linear to 0, or as 1 / sqrt(step)"},
                      {"cosine", "linear", "inverse-sqrt"}},
        t.schedule);
  visit(
      RealSetting{{"weight_decay", "weight-decay", "RATE", "weight decay of matrices, multiplied by the learning rate"},
                  0,
                  1e6},
      t.weight_decay);
  visit(RealSetting{{"clip", "clip", "NORM", "largest global norm of the gradient; 0: no clipping"}, 0, 1e30}, t.clip);
  visit(RealSetting{{"beta1", "beta1", "RATE", "decay rate of the first moment of AdamW, below 1"}, 0, 1, true},
        t.beta1);
  visit(RealSetting{{"beta2", "beta2", "RATE", "decay rate of the second moment of AdamW, below 1"}, 0, 1, true},
        t.beta2);
  visit(WholeSetting{{"weight_average", "weight-average", "STEPS",
                      "average weights over about STEPS steps, for evaluation and the saved model; 0: off"},
                     0,
                     largest_steps},
        t.weight_average);
  visit(RealSetting{{"dropout", "dropout", "P", "probability that dropout sets an element to 0"}, 0, 1}, t.dropout);
  visit(RealSetting{{"label_smoothing", "label-smoothing", "P",
                     "share of the target probability that is distributed evenly over all classes"},
                    0,
                    1},
        t.label_smoothing);
  visit(RealSetting{{"init_std", "init-std", "STD", "standard deviation of the initial matrices"}, 0, 1e6}, t.init_std);
  visit(ChoiceSetting{{"type", "type", "", "data type of activations and matrix products; bf16 takes half the memory"},
                      {"float", "bf16"}},
        t.type);
  visit(ChoiceSetting{{"order", "order", "",
                       "training examples of a step; random: drawn independently; shuffled: every example once per "
                       "epoch, in random order; examples of a text are windows of --context tokens",
                       unless_default},
                      {"random", "shuffled"}},
        t.order);
  visit(Setting{"seed", "seed", "", "seed of initial weights, batches, dropout and samples"}, t.seed);
  visit(WholeSetting{{"eval_every", "eval-every", "STEPS",
                      "steps between evaluations on the validation split; 0: only at the end", 1, true},
                     0,
                     largest_steps},
        t.eval_every);
  visit(WholeSetting{{"eval_tokens", "eval-tokens", "TOKENS",
                      "approximate number of validation tokens per evaluation; the last evaluation uses the whole "
                      "validation split; 0: always the whole split",
                      unless_default, true},
                     0,
                     largest_eval_tokens},
        t.eval_tokens);
  visit(WholeSetting{{"checkpoint_every", "checkpoint-every", "STEPS", "steps between checkpoints; 0: only at the end",
                      1, true},
                     0,
                     largest_steps},
        t.checkpoint_every);
  visit(WholeSetting{{"keep_checkpoints", "keep-checkpoints", "N",
                      "keep the weights of the last N checkpoints as RUN/checkpoint.STEP.safetensors, for "
                      "the program average_checkpoints",
                      unless_default, true},
                     0,
                     largest_kept_checkpoints},
        t.keep_checkpoints);
  visit(WholeSetting{{"log_every", "log-every", "STEPS", "steps between rows of log.csv; 0: only at the end", 1, true},
                     0,
                     largest_steps},
        t.log_every);
}

}  // namespace abh
