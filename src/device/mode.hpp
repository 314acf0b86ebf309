#pragma once

namespace abh {

// The mode of a device. `dry_run`: it computes nothing, its memory is addresses without memory
// (no_memory() in memory.hpp), and all that can be learned from it is the peak of its workspace. A layer asks for its
// scratch memory as ever; what it does outside of the tasks and kernels it gives to a device, such as a sum over tasks,
// it leaves out there.
enum class Mode { compute, dry_run };

}  // namespace abh
