#pragma once

namespace abh {

// Mode of a device. `dry_run`: the device computes nothing, and its memory is addresses without memory (no_memory() in
// memory.hpp). Its only result is the peak of the workspace. A layer takes its scratch memory as usual. In a dry run it
// must not access memory outside of tasks and kernels, for example to sum over tasks.
enum class Mode { compute, dry_run };

}  // namespace abh
