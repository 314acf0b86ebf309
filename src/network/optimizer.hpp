#pragma once

#include <algorithm>
#include <vector>

#include "base/extras.hpp"
#include "blocks/layout.hpp"
#include "device/memory.hpp"
#include "layers/adamw.hpp"
#include "layers/global_norm.hpp"
#include "layers/muon.hpp"
#include "layers/weight_average.hpp"
#include "network/capacity.hpp"
#include "network/weights.hpp"
#include "settings/config.hpp"

namespace abh {

// Limits spans to the largest one, for the feature adaptive_span (network/mixers.hpp).
template <class Device, class T>
void adaptive_span_clamp(Device&, T* span_n, Accum<T>* master_n, double largest, Index N);

// Optimizer and its state per weight: two moments and, if the capacity has one, the average of the weights. Empty
// without training.
template <class Device, class T>
class Optimizer {
 public:
  Optimizer(Device& device, Weights<Device, T>& weights, const Layout<T>& measured, const NetworkCapacity& capacity)
      : device_(device),
        weights_(weights),
        parameters_(measured.parameters()),
        linear_maps_(linear_maps(parameters_)),
        first_moments_(device.memory(), capacity.training ? bytes_of<Accum<T>>(weights.count()) : 0),
        second_moments_(device.memory(), capacity.training ? bytes_of<Accum<T>>(weights.count()) : 0),
        averages_(device.memory(), capacity.average ? bytes_of<Accum<T>>(weights.count()) : 0) {
    if (!capacity.training) return;
    device_.set_zero(first_moments(), weights.count());
    device_.set_zero(second_moments(), weights.count());
    if (averages()) device_.set_zero(averages(), weights.count());
  }

  Accum<T>* first_moments() { return first_moments_.as<Accum<T>>(); }
  Accum<T>* second_moments() { return second_moments_.as<Accum<T>>(); }
  Accum<T>* averages() { return averages_.as<Accum<T>>(); }  // null: no average

  // Computes the norm of the accumulated gradients and the clipping factor, into `state`.
  void measure_gradient(const TrainingConfig& training, StepState* state) {
    global_norm<Device, T>(device_, state, weights_.gradients(), training.clip, weights_.count());
  }

  // One update from the accumulated gradients, which are then set to 0. Call measure_gradient before. If the norm is
  // not finite, the weights do not change. Also updates the average of the weights.
  void update(const TrainingConfig& training, StepState* state) {
    AdamwSettings settings{training.beta1, training.beta2, 1e-8, training.weight_decay};
    const Index front = weights_.front_count();
    std::vector<AdamwUpdate<T>> adamw;
    if (training.optimizer == "muon") {
      update_linear_maps(training, state);
      for (const Parameter& parameter : parameters_) {
        if (parameter.kind == Kind::decayed) adamw.push_back(range(parameter.offset, parameter.count, settings, state));
      }
    } else {
      append_alike(adamw, 0, front, settings, state);
    }
    settings.weight_decay = 0;
    append_alike(adamw, front, weights_.count(), settings, state);
    for (const Parameter& parameter : parameters_) {
      if (parameter.kind == Kind::row) adamw.push_back(range(parameter.offset, parameter.count, settings, state));
      if (parameter.kind == Kind::span) adamw.push_back(span_range(parameter, settings, state));
    }
    std::erase_if(adamw, [](const AdamwUpdate<T>& a) { return a.count == 0; });
    adamw_updates<Device, T>(device_, adamw);
    for (const Parameter& parameter : parameters_) {
      if (parameter.kind == Kind::span) clamp_span(parameter);
    }
    if (averages()) {
      weight_average_update<Device, T>(device_, averages(), weights_.exact(), state, weights_.count());
    }
    device_.set_zero(weights_.gradients(), weights_.count());
  }

  // Adds the optimizer state of `count` weights to the memory of a network that is not constructed.
  static void count_memory(NetworkMemory& memory, Index count, const NetworkCapacity& capacity) {
    if (capacity.training) memory.moment_bytes = (capacity.average ? 3 : 2) * bytes_of<Accum<T>>(count);
  }

 private:
  // Updates of weights begin ... end - 1, except rows, spans and constants.
  void append_alike(std::vector<AdamwUpdate<T>>& updates, Index begin, Index end, const AdamwSettings& settings,
                    const StepState* state) {
    for (const Parameter& parameter : parameters_) {
      const bool is_alike = decays(parameter.kind) || parameter.kind == Kind::undecayed;
      if (is_alike || parameter.offset < begin || parameter.offset >= end) continue;
      updates.push_back(range(begin, parameter.offset - begin, settings, state));
      begin = parameter.offset + parameter.count;
    }
    updates.push_back(range(begin, end - begin, settings, state));
  }
  AdamwUpdate<T> range(Index begin, Index count, const AdamwSettings& settings, const StepState* state) {
    Accum<T>* const masters = weights_.masters();
    return {.weight = weights_.values() + begin,
            .master = masters ? masters + begin : nullptr,
            .first_moment = first_moments() + begin,
            .second_moment = second_moments() + begin,
            .d_weight = weights_.gradients() + begin,
            .settings = settings,
            .state = state,
            .count = count};
  }

  // The learning rate of spans is relative to the largest span. clamp_span limits the updated spans to the valid range.
  AdamwUpdate<T> span_range(const Parameter& span, AdamwSettings settings, const StepState* state) {
    settings.rate = span.largest;
    return range(span.offset, span.count, settings, state);
  }
  void clamp_span([[maybe_unused]] const Parameter& span) {
    if constexpr (has_extras) {
      Accum<T>* const masters = weights_.masters();
      adaptive_span_clamp<Device, T>(device_, weights_.values() + span.offset,
                                     masters ? masters + span.offset : nullptr, span.largest, span.count);
    }
  }

  // Matrices of linear maps with the same shape, and their offsets in the arena.
  struct LinearMaps {
    Index O, I;
    std::vector<Index> offset_m;
  };
  static std::vector<LinearMaps> linear_maps(const std::vector<Parameter>& parameters) {
    std::vector<LinearMaps> all;
    for (const Parameter& parameter : parameters) {
      if (parameter.kind != Kind::linear) continue;
      const Index O = parameter.shape[0], I = parameter.shape[1];
      const auto same =
          std::find_if(all.begin(), all.end(), [&](const auto& maps) { return maps.O == O && maps.I == I; });
      LinearMaps& maps = same != all.end() ? *same : all.emplace_back(LinearMaps{O, I, {}});
      maps.offset_m.push_back(parameter.offset);
    }
    return all;
  }

  void update_linear_maps(const TrainingConfig& training, const StepState* state) {
    std::vector<MuonUpdate<T>> muon;
    for (const LinearMaps& maps : linear_maps_) {
      muon.push_back({.weight = weights_.values(),
                      .master = weights_.masters(),
                      .first_moment = first_moments(),
                      .d_weight = weights_.gradients(),
                      .offset_m = maps.offset_m.data(),
                      .matrices = static_cast<Index>(maps.offset_m.size()),
                      .O = maps.O,
                      .I = maps.I,
                      .settings = {.weight_decay = training.weight_decay, .rounds = training.muon_rounds},
                      .state = state});
    }
    muon_updates<Device, T>(device_, muon);
  }

  Device& device_;
  Weights<Device, T>& weights_;
  std::vector<Parameter> parameters_;
  std::vector<LinearMaps> linear_maps_;
  DeviceMemory first_moments_, second_moments_, averages_;
};

}  // namespace abh
