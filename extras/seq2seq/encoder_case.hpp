#pragma once

// Networks with an encoder and a decoder, trained by tests.

#include "tests/harness/network_rows.hpp"

namespace abh {

// A network with a source, and these numbers of encoder and decoder layers.
inline NetworkCase encoder_case(const std::string& mixer, Index encoder_layers, Index decoder_layers,
                                const std::string& changes = "") {
  NetworkCase network = network_case(mixer);
  network.S = 6;
  network.config.layers = encoder_layers + decoder_layers;
  network.config.encoder_layers = encoder_layers;
  network.config.decoder_layers = decoder_layers;
  network.config.source_vocabulary = 9;
  network.config.source_context = 8;
  network.config = changed(network.config, changes);
  return network;
}

}  // namespace abh
