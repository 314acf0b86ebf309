#pragma once

#include <cstdint>
#include <string>

#include "base/random.hpp"
#include "blocks/block.hpp"
#include "blocks/parts/norm.hpp"
#include "layers/dropout.hpp"
#include "layers/embedding.hpp"
#include "network/batch.hpp"
#include "settings/config.hpp"

namespace abh {

// Parts of features (network/mixers.hpp).
template <class Device, class T>
class Patches;
template <class Device, class T>
class Sinusoids;

// Describes the input layer of the sequence or of the source: names of the weights, numbers of tokens and positions.
template <class T>
struct InputLayerShape {
  std::string prefix = "embedding.", position = "position_cd";
  Index vocabulary, context;
  const Weight<T>* table = nullptr;  // shared table of tokens; null: own table
  std::uint32_t dropout_site = sites::embedding_dropout;
};

// Input layer: maps tokens, or patches at tokens of -1, to the rows of the first block:
//
//   x_bcd = dropout(norm(scale token_vd[t] + position_cd)),    t a token, or that of cls
//   x_bcd = dropout(norm(linear(patch_bpi) + position_cd)),    t = -1
//
// The norm is optional. Positions may be computed, or added by the blocks.
template <class Device, class T>
class InputLayer {
 public:
  InputLayer(Layout<T>& layout, const InputLayerShape<T>& shape, const ModelConfig& config,
             const BlockCapacity& capacity, double dropout)
      : D_(config.channels),
        token_rows_(shape.vocabulary + (config.has_cls() ? 1 : 0)),
        scale_(config.embedding_scale),
        dropout_(dropout),
        dropout_site_(shape.dropout_site),
        has_norm_(config.embedding_norm),
        token_(table_of(layout, shape, D_)),
        patches_(layout, config),
        cls_(config.has_cls() ? layout.weight("embedding.cls_d", {D_}, Init::normal, Kind::row) : Weight<T>{}),
        position_(config.has_position_table()
                      ? layout.weight(shape.prefix + shape.position, {shape.context, D_}, Init::normal, Kind::undecayed)
                      : Weight<T>{}),
        sinusoids_(layout, config, capacity),
        norm_(layout, shape.prefix + "norm_", has_norm_, D_, capacity),
        embedded_bcd_(has_norm_ ? layout.template activation<T>(capacity.B * capacity.C * D_) : nullptr) {}

  // Table of tokens.
  const Weight<T>& token() const { return token_; }

  void forward(Device& device, T* x_bcd, const DeviceBatch<T>& batch, const PassContext& pass) {
    T* embedded_bcd = has_norm_ ? embedded_bcd_ : x_bcd;
    const bool computed = sinusoids_.present();
    const T* position_cd = computed ? sinusoids_.rows_cd(device, pass) : position_.value;
    embedding_forward<Device, T>(device, embedded_bcd, batch.token_bc, table().value, position_cd, pass.B, pass.C, D_,
                                 computed ? 0 : pass.first_c, scale_);
    if (patches_.present()) patches_.add(device, embedded_bcd, batch.patch_bpi, pass);
    const T* normed_bcd = norm_.forward(device, x_bcd, embedded_bcd, pass.BC());
    dropout_forward<Device, T>(device, x_bcd, normed_bcd, nullptr, dropout(pass), pass.BC() * D_);
  }

  // d_x_bcd: gradient of the output of forward, overwritten. Adds to the weight gradients.
  void backward(Device& device, T* d_x_bcd, const DeviceBatch<T>& batch, const PassContext& pass) {
    dropout_backward<Device, T>(device, d_x_bcd, d_x_bcd, dropout(pass), pass.BC() * D_);
    if (has_norm_) norm_.backward(device, d_x_bcd, d_x_bcd, nullptr, embedded_bcd_, pass.BC());
    Accum<T>* d_position_cd = position_.gradient;
    if (d_position_cd) d_position_cd += pass.first_c * D_;
    typename Device::SideStream beside(device);
    if (patches_.present()) patches_.backward(beside.fork(), d_x_bcd, batch.patch_bpi, pass);
    embedding_backward<Device, T>(device, table().gradient, d_position_cd, d_x_bcd, batch.token_bc, pass.B, pass.C, D_,
                                  token_rows_, scale_);
  }

 private:
  static Weight<T> table_of(Layout<T>& layout, const InputLayerShape<T>& shape, Index D) {
    if (shape.table) return *shape.table;
    if (shape.vocabulary == 0) return {};
    return layout.weight(shape.prefix + "token_vd", {shape.vocabulary, D}, Init::normal, Kind::decayed);
  }
  // Table of tokens, followed by the row of cls. With patches, cls is the only row.
  const Weight<T>& table() const { return token_.value ? token_ : cls_; }
  Dropout dropout(const PassContext& pass) const { return dropout_of(pass, dropout_, dropout_site_, D_); }

  Index D_, token_rows_;
  double scale_, dropout_;
  std::uint32_t dropout_site_;
  bool has_norm_;
  Weight<T> token_;
  Patches<Device, T> patches_;
  Weight<T> cls_, position_;
  Sinusoids<Device, T> sinusoids_;
  Norm<Device, T> norm_;
  T* embedded_bcd_;  // saved for the norm; null without a norm
};

}  // namespace abh
