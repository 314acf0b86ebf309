#pragma once

#include "settings/feature.hpp"
#include "settings/setting.hpp"

namespace abh {

// Settings of learned attention spans (extras/adaptive_span/README.md).
struct SpanSettings : FeatureDefaults {
  static constexpr const char* option = "span";

  Index span = 0;      // largest span, in positions; 0: no learned spans
  double ramp = 32;    // positions over which the weights fall to 0 beyond the span
  double penalty = 0;  // factor of the mean span of the heads of a layer, which is added to the loss, in nats

  template <class Visitor, class Self>
  static void visit(Visitor&& visit, Self& s) {
    visit(WholeSetting{{"span", "span", "TOKENS", "largest span that a head can learn; 0: no learned spans",
                        unless_default},
                       0,
                       largest_context},
          s.span);
    visit(RealSetting{{"ramp", "ramp", "TOKENS",
                       "width of the soft border of a span, over which attention weights fall to 0, with --span",
                       unless_default},
                      1e-3,
                      1e6,
                      false,
                      32},
          s.ramp);
    visit(
        RealSetting{{"penalty", "penalty", "NATS",
                     "with --span: adds NATS times the mean span of the heads, in tokens, to the loss", unless_default},
                    0,
                    1e6},
        s.penalty);
  }

  std::string fault(const ModelConfig& config, const std::vector<MixerProperties>& mixers) const;
  template <class Add>
  void add_idle(const Add& add) const {
    add("ramp", span == 0, "--span is 0");
    add("penalty", span == 0, "--span is 0");
  }
  bool learns_reach() const { return span > 0; }
};

}  // namespace abh
