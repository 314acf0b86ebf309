#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>

#include "base/bf16.hpp"
#include "base/error.hpp"
#include "cuda/gemm/cublaslt.hpp"
#include "cuda/platform.hpp"
#include "layers/parts/products.hpp"

// cuBLASLt if this build has it, or that of the emulator.
#if !defined(__CUDACC__)
#include "cuda/emulator/cublaslt.hpp"
#define ABH_HAS_CUBLASLT 1
#elif defined(ABH_CUBLASLT)
#include <cublasLt.h>
#define ABH_HAS_CUBLASLT 1
#endif

// cuBLASLt stores matrices by columns, this project by rows. A row-major matrix is its transpose in column-major order,
// so the library computes out' = b' a': its first operand, N x K, is b, its second, K x M, is a.
//
//   ours                         as the library sees it, by columns       operation
//   b, b_col = 1                 N x K, columns b_row apart               as it is
//   b, b_row = 1                 K x N, columns b_col apart               transposed
//   a, a_col = 1                 K x M, columns a_row apart               as it is
//   a, a_row = 1                 M x K, columns a_col apart               transposed
//   out                          N x M, columns out_row apart

namespace abh {

#if defined(ABH_HAS_CUBLASLT)

namespace {

// NVIDIA's recommendation for the largest GPUs. Constant, so that the selected algorithm depends on the shape alone.
constexpr std::size_t workspace_bytes = std::size_t{32} << 20;
constexpr std::size_t workspace_alignment = 256;

void require(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw Error(std::string("cuBLASLt: ") + what + ": " + cublasLtGetStatusString(status));
  }
}

template <class T>
constexpr cudaDataType_t type_of = std::is_same_v<T, bf16> ? CUDA_R_16BF : CUDA_R_32F;

// Alignment given to the library: the largest power of two, at most 16, that divides an address. A larger value would
// be useless, because arrays begin at any multiple of 64 bytes: one shape would have several plans, selected by
// address.
constexpr std::uint32_t widest_access = 16;
std::uint32_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | widest_access;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

// Column-major matrix.
struct Matrix {
  Index rows, columns, stride, batch;
  bool transposed;

  // Columns must not overlap; the stride of a single column does not matter.
  bool fits() const { return columns <= 1 || stride >= rows; }
};

// One shape, as described to the library, and the algorithm for it. Not movable, because the library holds pointers to
// the descriptions.
struct Plan {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t b, a, out;
  cublasLtMatmulHeuristicResult_t choice;
  bool found = false;
};

// All values on which the selected algorithm may depend.
using Key = std::array<Index, 19>;

// One library handle per process, because there is one GPU. Created at the first product.
class Library {
 public:
  Library() { require(cublasLtCreate(&handle), "start"); }
  ~Library() { static_cast<void>(cublasLtDestroy(handle)); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Address of a bias of `bytes` for the selection of an algorithm: GPU memory of this size, so that the library may
  // even read it, aligned to exactly widest_access, so that the selection does not depend on the biases of a network.
  const void* bias_of(std::size_t bytes) {
    if (bytes > bias_bytes) {
      bias_memory.emplace(gpu_memory<Backend::ABH_BACKEND>(), bytes + 2 * widest_access);
      bias_bytes = bytes;
    }
    const auto begin = reinterpret_cast<std::uintptr_t>(bias_memory->as<std::byte>());
    return bias_memory->as<std::byte>() + (begin % (2 * widest_access) == 0 ? widest_access : 0);
  }

  cublasLtHandle_t handle;
  std::map<Key, Plan> plans;
  std::mutex mutex;
  std::optional<DeviceMemory> bias_memory;
  std::size_t bias_bytes = 0;
};
Library& library() {
  static Library instance;
  return instance;
}

template <class Value>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  require(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), "operation");
}
template <class Value>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const Value& value) {
  require(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value), "layout");
}
template <class Value>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
  require(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "preference");
}

void describe(cublasLtMatrixLayout_t layout, cudaDataType_t type, const Matrix& m, Index batches) {
  const Index stride = m.stride > m.rows ? m.stride : m.rows;
  require(cublasLtMatrixLayoutInit(layout, type, static_cast<std::uint64_t>(m.rows),
                                   static_cast<std::uint64_t>(m.columns), stride),
          "layout");
  set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batches));
  set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, static_cast<std::int64_t>(m.batch));
}

struct Alignments {
  std::uint32_t a, b, out;
};

template <class T, class Out>
void make_plan(Plan& plan, const Gemm<T, Out>& g, const Matrix& a, const Matrix& b, const Matrix& out,
               const Alignments& aligned) {
  // Float sums; CUBLAS_COMPUTE_32F does not round float operands to TF32.
  require(cublasLtMatmulDescInit(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "operation");
  set(&plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(&plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (g.bias_n) {
    // Every product sets its own bias address; the selection uses the alignment of this one.
    set(&plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(&plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
        library().bias_of(static_cast<std::size_t>(g.N) * sizeof(Out)));
  }
  describe(&plan.b, type_of<T>, b, g.batches);
  describe(&plan.a, type_of<T>, a, g.batches);
  describe(&plan.out, type_of<Out>, out, g.batches);

  cublasLtMatmulPreferenceOpaque_t preference;
  require(cublasLtMatmulPreferenceInit(&preference), "preference");
  set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(workspace_bytes));
  // If k is split, the parts are added in order, in float, so that runs are reproducible.
  set(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned.b);
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned.a);
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned.out);
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned.out);

  // Some shapes have no algorithm, such as bf16 rows of odd length. That is no error.
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      library().handle, &plan.operation, &plan.b, &plan.a, &plan.out, &plan.out, &preference, 1, &plan.choice, &count);
  plan.found = status == CUBLAS_STATUS_SUCCESS && count == 1 && plan.choice.state == CUBLAS_STATUS_SUCCESS;
}

}  // namespace

template <class T, class Out, Backend backend>
bool library_gemm(GpuDevice<backend>& device, const Gemm<T, Out>& g) {
  // The library scales before it adds the bias, and needs the bias in the output type. A bias with smaller alignment
  // would need another plan.
  const bool bias_fits = !g.bias_n || (g.scale == 1 && g.batches == 1 && std::is_same_v<T, Out> &&
                                       alignment_of(g.bias_n) == widest_access);
  const Matrix a =
      g.a_col == 1 ? Matrix{g.K, g.M, g.a_row, g.a_batch, false} : Matrix{g.M, g.K, g.a_col, g.a_batch, true};
  const Matrix b =
      g.b_col == 1 ? Matrix{g.N, g.K, g.b_row, g.b_batch, false} : Matrix{g.K, g.N, g.b_col, g.b_batch, true};
  const Matrix out{g.N, g.M, g.out_row, g.out_batch, false};
  if (!bias_fits || g.K == 0 || !a.fits() || !b.fits() || !out.fits()) return false;

  const Out* added_mn = g.added_mn ? g.added_mn : g.out_mn;
  const Alignments aligned{alignment_of(g.a_mk), alignment_of(g.b_kn),
                           std::min(alignment_of(g.out_mn), alignment_of(added_mn))};
  const Key key = {type_of<T>,
                   type_of<Out>,
                   g.M,
                   g.N,
                   g.K,
                   g.out_row,
                   g.a_row,
                   g.a_col,
                   g.b_row,
                   g.b_col,
                   g.batches,
                   g.out_batch,
                   g.a_batch,
                   g.b_batch,
                   aligned.a,
                   aligned.b,
                   aligned.out,
                   g.bias_n != nullptr,
                   g.accumulate || g.added_mn};
  Library& the = library();
  const std::lock_guard lock(the.mutex);
  const auto [entry, is_new] = the.plans.try_emplace(key);
  Plan& plan = entry->second;
  if (is_new) make_plan(plan, g, a, b, out, aligned);
  if (!plan.found) return false;

  typename GpuDevice<backend>::Scope scratch(device.workspace);
  auto* memory = scratch.template take<std::byte>(static_cast<Index>(workspace_bytes + workspace_alignment));
  if (device.is_dry_run()) return true;
  const std::size_t past = reinterpret_cast<std::uintptr_t>(memory) % workspace_alignment;
  void* workspace = memory + (past ? workspace_alignment - past : 0);
  if (g.bias_n) set(&plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias_n);
  const float alpha = g.scale, beta = g.accumulate || g.added_mn ? float(g.added_scale) : 0.0f;
  require(
      cublasLtMatmul(the.handle, &plan.operation, &alpha, g.b_kn, &plan.b, g.a_mk, &plan.a, &beta, added_mn, &plan.out,
                     g.out_mn, &plan.out, &plan.choice.algo, workspace, workspace_bytes, device.stream()),
      "product");
  return true;
}

template <Backend backend>
GemmChoice usual_gemm() {
  return backend == Backend::cuda ? GemmChoice::library : GemmChoice::hand;
}

#else

template <class T, class Out, Backend backend>
bool library_gemm(GpuDevice<backend>&, const Gemm<T, Out>&) {
  return false;
}

template <Backend backend>
GemmChoice usual_gemm() {
  return GemmChoice::hand;
}

#endif

template GemmChoice usual_gemm<Backend::ABH_BACKEND>();
template bool library_gemm(Gpu&, const Gemm<float, float>&);
template bool library_gemm(Gpu&, const Gemm<bf16, bf16>&);
template bool library_gemm(Gpu&, const Gemm<bf16, float>&);

}  // namespace abh
