// hopper_product: the kernel of hopper_kernels.hpp on a GPU, compared with the product in double. It shows that the
// instructions of cuda/gemm/hopper.hpp agree with their emulated versions. Exit status 0 if all errors are small.

#include <cstdio>

#include "tests/gpu/hopper_kernels.hpp"

namespace {

bool all_agree = true;

template <int N, int stages>
void compare(int M, int columns, int K) {
  const abh::RingProduct<N, stages> product{M, columns, K};
  const double error = product.error(product.computed());
  std::printf("64 x %d, %d stages: %d x %d x %d, largest error %g\n", N, stages, M, columns, K, error);
  all_agree = all_agree && error <= 1e-3;
}

}  // namespace

int main() try {
  compare<64, 2>(64, 64, 64);
  compare<64, 3>(100, 72, 328);
  compare<128, 4>(128, 128, 512);
  compare<256, 4>(1000, 1544, 1032);
  return all_agree ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "hopper_product: %s\n", error.what());
  return 1;
}
