#include "cuda/emulator/cublaslt.hpp"

#include <bit>
#include <cstring>
#include <string>

#include "cuda/emulator/counts.hpp"

namespace emulator {

namespace {

using Layout = cublasLtMatrixLayoutOpaque_t;

// Alignment of workspaces; no other alignment is larger.
constexpr std::size_t widest_alignment = 256;

void require(bool holds, const std::string& what) {
  if (!holds) throw Error("emulator: cuBLASLt: " + what);
}

// Value of an attribute, after a check of its size.
template <class Value>
void read(Value& to, const void* value, std::size_t bytes, const char* name) {
  require(value != nullptr && bytes == sizeof to,
          std::string(name) + ": expected " + std::to_string(sizeof to) + " bytes, found " + std::to_string(bytes));
  std::memcpy(&to, value, sizeof to);
}

std::size_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | widest_alignment;
  return bits & (~bits + 1);
}
void require_aligned_to(std::size_t alignment, const void* address, const char* name) {
  require(reinterpret_cast<std::uintptr_t>(address) % alignment == 0,
          std::string(name) + " is not aligned to " + std::to_string(alignment) + " bytes");
}

std::int64_t extent(std::uint64_t count) { return static_cast<std::int64_t>(count); }

void require_layout(const Layout& m, const std::string& name) {
  require(m.type == CUDA_R_32F || m.type == CUDA_R_16BF, name + " is neither float nor bf16");
  require(m.rows > 0 && m.columns > 0, name + " is empty");
  require(m.leading >= extent(m.rows), name + ": its leading dimension, " + std::to_string(m.leading) +
                                           ", is smaller than its " + std::to_string(m.rows) + " rows");
  require(m.batches > 0, name + " has no batches");
}

// True if the batches do not overlap: each follows the previous one, or they are adjacent within each column.
bool batches_are_apart(const Layout& m) {
  if (m.batches == 1) return true;
  const std::int64_t rows = extent(m.rows), behind = m.leading * (extent(m.columns) - 1) + rows;
  return m.batch_stride >= behind || (m.batch_stride >= rows && m.leading >= m.batch_stride * (m.batches - 1) + rows);
}

// Checks everything that does not depend on the addresses of the matrices.
void require_operation(const cublasLtMatmulDescOpaque_t& operation, const Layout& a, const Layout& b, const Layout& c,
                       const Layout& d) {
  require_layout(a, "A"), require_layout(b, "B"), require_layout(c, "C"), require_layout(d, "D");
  require(operation.compute == CUBLAS_COMPUTE_32F && operation.scale == CUDA_R_32F, "sums and scales are no floats");
  require(a.type == b.type, "A and B differ in type");
  require(c.type == d.type, "C and D differ in type");
  require(a.type == d.type || a.type == CUDA_R_16BF, "no product of floats is rounded to bf16");
  const auto is_operation = [](std::int32_t t) { return t == CUBLAS_OP_N || t == CUBLAS_OP_T; };
  require(is_operation(operation.transposes_a) && is_operation(operation.transposes_b), "no such operation on A or B");
  const bool ta = operation.transposes_a == CUBLAS_OP_T, tb = operation.transposes_b == CUBLAS_OP_T;
  require((ta ? a.columns : a.rows) == d.rows && (tb ? b.rows : b.columns) == d.columns, "D has another shape");
  require((ta ? a.rows : a.columns) == (tb ? b.columns : b.rows), "A and B differ in k");
  require(c.rows == d.rows && c.columns == d.columns, "C and D differ in shape");
  require(a.batches == d.batches && b.batches == d.batches && c.batches == d.batches, "batches differ in number");
  require(batches_are_apart(d), "batches of D overlap");
  const bool adds_bias = operation.epilogue == CUBLASLT_EPILOGUE_BIAS;
  require(adds_bias || operation.epilogue == CUBLASLT_EPILOGUE_DEFAULT, "no such epilogue");
  require(!adds_bias || operation.bias, "there is no bias to be added");
}

// True if bf16 numbers are aligned in pairs.
bool in_pairs(const Layout& m, std::uint32_t alignment) {
  return m.type == CUDA_R_32F || (m.leading % 2 == 0 && (m.batches == 1 || m.batch_stride % 2 == 0) && alignment >= 4);
}

// ---- The product

struct Bf16 {
  std::uint16_t bits;
};
double number(float x) { return static_cast<double>(x); }
double number(Bf16 x) { return static_cast<double>(std::bit_cast<float>(std::uint32_t{x.bits} << 16)); }

void round_to(float& to, double x) { to = static_cast<float>(x); }
void round_to(Bf16& to, double x) {  // round to nearest, ties to even; NaN stays NaN
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
  const std::uint32_t up = 0x7FFF + (bits >> 16 & 1);
  to.bits = static_cast<std::uint16_t>((x == x ? bits + up : bits | 0x400000) >> 16);
}

struct Product {
  cublasLtMatmulDescOpaque_t operation;
  Layout a_layout, b_layout, c_layout, d_layout;
  const void *a, *b, *c;
  void *d, *workspace;
  std::size_t workspace_bytes;
  double alpha, beta;
};

// Accesses every number of the matrices once.
template <class Number>
void count_matrix(const void* matrix, const Layout& layout, bool writes) {
  for (std::int64_t batch = 0; batch < layout.batches; ++batch) {
    const auto* columns = static_cast<const Number*>(matrix) + batch * layout.batch_stride;
    for (std::int64_t n = 0; n < extent(layout.columns); ++n) {
      detail::count_work_on(columns + n * layout.leading, layout.rows * sizeof(Number), writes);
    }
  }
}
template <class In, class Out>
void count(const Product& p) {
  detail::count_work("product of cuBLASLt");
  count_matrix<In>(p.a, p.a_layout, false);
  count_matrix<In>(p.b, p.b_layout, false);
  if (p.beta != 0) count_matrix<Out>(p.c, p.c_layout, false);
  if (p.operation.epilogue == CUBLASLT_EPILOGUE_BIAS) {
    detail::count_work_on(p.operation.bias, p.d_layout.rows * sizeof(Out), false);
  }
  count_matrix<Out>(p.d, p.d_layout, true);
}

template <class In, class Out>
void multiply(const Product& p) {
  const bool ta = p.operation.transposes_a == CUBLAS_OP_T, tb = p.operation.transposes_b == CUBLAS_OP_T;
  const std::int64_t K = extent(ta ? p.a_layout.rows : p.a_layout.columns);
  const std::int64_t a_row = ta ? p.a_layout.leading : 1, a_column = ta ? 1 : p.a_layout.leading;
  const std::int64_t b_row = tb ? p.b_layout.leading : 1, b_column = tb ? 1 : p.b_layout.leading;
  const auto* bias = static_cast<const Out*>(p.operation.bias);
  if constexpr (detail::counts_accesses) count<In, Out>(p);
  for (std::int64_t batch = 0; batch < p.d_layout.batches; ++batch) {
    const In* a = static_cast<const In*>(p.a) + batch * p.a_layout.batch_stride;
    const In* b = static_cast<const In*>(p.b) + batch * p.b_layout.batch_stride;
    const Out* c = static_cast<const Out*>(p.c) + batch * p.c_layout.batch_stride;
    Out* d = static_cast<Out*>(p.d) + batch * p.d_layout.batch_stride;
    for (std::int64_t n = 0; n < extent(p.d_layout.columns); ++n) {
      for (std::int64_t m = 0; m < extent(p.d_layout.rows); ++m) {
        double sum = 0;
        for (std::int64_t k = 0; k < K; ++k) {
          sum += number(a[m * a_row + k * a_column]) * number(b[k * b_row + n * b_column]);
        }
        sum *= p.alpha;
        if (p.beta != 0) sum += p.beta * number(c[m + n * p.c_layout.leading]);
        if (p.operation.epilogue == CUBLASLT_EPILOGUE_BIAS) sum += number(bias[m]);
        round_to(d[m + n * p.d_layout.leading], sum);
      }
    }
  }
}

// Overwrites the workspace, whose contents are undefined. Only both ends are written.
void spoil_workspace(const Product& p) {
  constexpr std::size_t most = 1024;
  const std::size_t bytes = p.workspace_bytes < most ? p.workspace_bytes : most;
  if (bytes == 0) return;
  std::memset(p.workspace, 0xFF, bytes);
  std::memset(static_cast<char*>(p.workspace) + p.workspace_bytes - bytes, 0xFF, bytes);
}

void compute(const Product& p) {
  spoil_workspace(p);
  if (p.d_layout.type == CUDA_R_16BF) {
    multiply<Bf16, Bf16>(p);
  } else if (p.a_layout.type == CUDA_R_16BF) {
    multiply<Bf16, float>(p);
  } else {
    multiply<float, float>(p);
  }
  check_guards();
}

}  // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static char place;
  *handle = reinterpret_cast<cublasLtHandle_t>(&place);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "no error" : "not supported";
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t operation, cublasComputeType_t compute_type,
                                      cudaDataType_t scale) {
  *operation = {compute_type, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      read(operation->transposes_a, value, bytes, "CUBLASLT_MATMUL_DESC_TRANSA");
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      read(operation->transposes_b, value, bytes, "CUBLASLT_MATMUL_DESC_TRANSB");
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      read(operation->epilogue, value, bytes, "CUBLASLT_MATMUL_DESC_EPILOGUE");
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      read(operation->bias, value, bytes, "CUBLASLT_MATMUL_DESC_BIAS_POINTER");
      break;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType_t type, std::uint64_t rows,
                                        std::uint64_t columns, std::int64_t leading) {
  *layout = {type, rows, columns, leading, 1, 0};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      read(layout->batches, value, bytes, "CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT");
      break;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      read(layout->batch_stride, value, bytes, "CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET");
      break;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t preference) {
  constexpr auto alignment = static_cast<std::uint32_t>(widest_alignment);
  *preference = {0, CUBLASLT_REDUCTION_SCHEME_MASK, {alignment, alignment, alignment, alignment}};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      read(preference->workspace_bytes, value, bytes, "CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES");
      break;
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      read(preference->reductions, value, bytes, "CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK");
      break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: {
      std::uint32_t& alignment = preference->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
      read(alignment, value, bytes, "CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_x_BYTES");
      require(std::has_single_bit(alignment), "an alignment is no power of two");
      break;
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int asked,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  require(handle != nullptr, "there is no handle");
  require(asked > 0, "no algorithm is asked for");
  require(!detail::breaks_recording(), "an algorithm is chosen while a stream is recorded");
  require_operation(*operation, *a, *b, *c, *d);
  // The documentation does not exclude that the library reads the bias here.
  const std::size_t bias_bytes = d->rows * (d->type == CUDA_R_32F ? sizeof(float) : sizeof(Bf16));
  require(operation->epilogue != CUBLASLT_EPILOGUE_BIAS || detail::is_global(operation->bias, bias_bytes),
          "the bias is not memory of the GPU");
  const std::uint32_t(&alignments)[4] = preference->alignments;
  *found = in_pairs(*a, alignments[0]) && in_pairs(*b, alignments[1]) && in_pairs(*c, alignments[2]) &&
           in_pairs(*d, alignments[3]);
  if (*found == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  *results = {{*operation, {*a, *b, *c, *d}, *preference}, preference->workspace_bytes, CUBLAS_STATUS_SUCCESS};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream) {
  require(handle != nullptr, "there is no handle");
  require(algorithm != nullptr, "there is no algorithm");
  require(a && b && d, "there is no A, B or D");
  require_operation(*operation, *a_layout, *b_layout, *c_layout, *d_layout);
  const Product product{*operation,
                        *a_layout,
                        *b_layout,
                        *c_layout,
                        *d_layout,
                        a,
                        b,
                        c,
                        d,
                        workspace,
                        workspace_bytes,
                        number(*static_cast<const float*>(alpha)),
                        number(*static_cast<const float*>(beta))};

  const cublasLtMatmulDescOpaque_t& chosen = algorithm->operation;
  require(algorithm->layouts[0] == *a_layout && algorithm->layouts[1] == *b_layout &&
              algorithm->layouts[2] == *c_layout && algorithm->layouts[3] == *d_layout &&
              chosen.compute == operation->compute && chosen.scale == operation->scale &&
              chosen.transposes_a == operation->transposes_a && chosen.transposes_b == operation->transposes_b &&
              chosen.epilogue == operation->epilogue,
          "the algorithm was chosen for another product");
  const std::uint32_t(&alignments)[4] = algorithm->preference.alignments;
  require_aligned_to(alignments[0], a, "A");
  require_aligned_to(alignments[1], b, "B");
  require_aligned_to(alignments[3], d, "D");
  // The algorithm was selected for the alignment of the bias address.
  if (operation->epilogue == CUBLASLT_EPILOGUE_BIAS) {
    require_aligned_to(alignment_of(chosen.bias), operation->bias, "the bias");
  }
  if (product.beta != 0) {
    require(c != nullptr, "there is no C");
    require_aligned_to(alignments[2], c, "C");
    require(c != d || *c_layout == *d_layout, "C is D with another layout");
  }
  require(workspace_bytes >= algorithm->preference.workspace_bytes, "the workspace is smaller than was promised");
  require(workspace_bytes == 0 || workspace != nullptr, "there is no workspace");
  require_aligned_to(widest_alignment, workspace, "the workspace");

  detail::ask(stream, [product] { compute(product); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace emulator
