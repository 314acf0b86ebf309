#pragma once

namespace abh {

// Whether standard output is a terminal that can rewrite a line (TERM set and not "dumb").
bool on_terminal();

// Whether colours are wanted on a terminal: not if NO_COLOR is set to anything.
bool colour_wanted();

}  // namespace abh
