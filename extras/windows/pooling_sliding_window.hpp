#pragma once

#include "layers/pooling.hpp"

namespace abh {

// Pooling over a window, the last w positions. Derivations: extras/windows/README.md. Positions are cut into blocks of
// w. The recurrence of pooling.hpp, restarted in every block, gives prefixes (from the start of the block to c); run
// backwards, it gives suffixes (from c to the end of the block). The window of c is the suffix from c-w+1 merged with
// the prefix to c. Only weights > 0 are added; nothing is subtracted:
//
//   max_c   = max(max_suffix, max_prefix),
//   sum_c   = sum_suffix e^(max_suffix - max_c) + sum_prefix e^(max_prefix - max_c)          (pooling_sliding_window.1)
//   gamma_c = sum_suffix e^(max_suffix - max_c) / sum_c                                      (pooling_sliding_window.2)
//   out_c   = prefix_c + gamma_c (suffix_{c-w+1} - prefix_c)                                 (pooling_sliding_window.3)
//
// Backward: c lies in the windows of c' = c ... min(c+w-1, C-1). Those in the block of c (a suffix, "down") and those
// in the next block (a prefix, "up") are each summed relative to their own level:
//
//   level     = max over c' of -max_c'                                                       (pooling_sliding_window.4)
//   pull      = sum over c' of e^(-max_c' - level) / sum_c' d_out_c',
//   pull_out  = sum over c' of e^(-max_c' - level) / sum_c' (d_out_c' . out_c')              (pooling_sliding_window.5)
//   d_x_c     = e^(logit_c + level_down) pull_down + e^(logit_c + level_up) pull_up          (pooling_sliding_window.6)
//   d_logit_c = x_c . d_x_c - e^(logit_c + level_down) pull_out_down
//               - e^(logit_c + level_up) pull_out_up                                         (pooling_sliding_window.7)
//
// With decay (pooling_decay.hpp) a prefix is a state at c. A suffix is a state at the end of its block; it enters the
// window of c aged by the positions between. The backward pass is the same in reversed time, with -max as the logit:
//
//   in a suffix  logit_c - slope (end - c)  for logit_c,
//   in a merge   max_suffix - slope (c - end)  for max_suffix                                (pooling_sliding_window.8)
//   level = max over c' of -max_c' - slope (c' - c), and so in the powers of pull            (pooling_sliding_window.9)
//
// Any level at most 1/2 below this maximum gives the same results up to rounding. Fast code therefore keeps one level
// as long as the maximum does not change, and ignores its last digits.

// Called by the functions of pooling.hpp if the window is shorter than the sequence. Forward takes 9 flops per element
// for any window and reads x twice, the second time from cache if a block fits; backward takes 14.
template <class Device, class T>
void pooling_sliding_window_forward(Device&, const PoolingForward<T>&);
template <class Device, class T>
void pooling_sliding_window_backward(Device&, const PoolingBackward<T>&);

}  // namespace abh
