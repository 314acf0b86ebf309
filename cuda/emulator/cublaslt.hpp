#pragma once

// Emulation of the part of cuBLASLt that multiplies matrices. Calls are checked against the documentation, and the
// product is computed by plain loops. A mistake throws an Error of one line, also where cuBLASLt would crash or return
// wrong results. A product without an algorithm is reported by a status.
//
//   D = alpha op(A) op(B) + beta C (+ a bias for each row of D)     all by columns
//
// Float and bf16, sums in float.

#include <cstddef>
#include <cstdint>

#include "cuda/emulator/emulator.hpp"

struct cublasLtContext;

namespace emulator {

using cublasLtHandle_t = ::cublasLtContext*;

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_SUPPORTED = 15 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68 };
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16BF = 14 };
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasLtEpilogue_t { CUBLASLT_EPILOGUE_DEFAULT = 1, CUBLASLT_EPILOGUE_BIAS = 4 };
enum cublasLtReductionScheme_t { CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2, CUBLASLT_REDUCTION_SCHEME_MASK = 7 };

enum cublasLtMatmulDescAttributes_t {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
};
enum cublasLtMatrixLayoutAttribute_t {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,
};
enum cublasLtMatmulPreferenceAttributes_t {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
};

// Opaque types, as in cuBLASLt: only the functions below use their members.
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  std::int32_t transposes_a, transposes_b;
  std::uint32_t epilogue;
  const void* bias;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t leading;
  std::int32_t batches;
  std::int64_t batch_stride;
  bool operator==(const cublasLtMatrixLayoutOpaque_t&) const = default;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace_bytes;
  std::uint32_t reductions;
  std::uint32_t alignments[4];  // for A, B, C, D
};
using cublasLtMatmulDesc_t = cublasLtMatmulDescOpaque_t*;
using cublasLtMatrixLayout_t = cublasLtMatrixLayoutOpaque_t*;
using cublasLtMatmulPreference_t = cublasLtMatmulPreferenceOpaque_t*;

// An algorithm, with the description for which it was selected.
struct cublasLtMatmulAlgo_t {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t layouts[4];  // for A, B, C, D
  cublasLtMatmulPreferenceOpaque_t preference;
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspaceSize;
  cublasStatus_t state;
};

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle);
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle);
const char* cublasLtGetStatusString(cublasStatus_t status);

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t operation, cublasComputeType_t compute,
                                      cudaDataType_t scale);
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes);
cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType_t type, std::uint64_t rows,
                                        std::uint64_t columns, std::int64_t leading);
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                std::size_t bytes);
cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t preference);
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes);

// Not during capture. A bias must be memory of the GPU, of its full size. If bf16 numbers are not aligned in pairs
// there is no algorithm.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int asked,
                                              cublasLtMatmulHeuristicResult_t* results, int* found);

// Synchronous, or captured. It writes to its workspace.
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              std::size_t workspace_bytes, cudaStream_t stream);

}  // namespace emulator

using emulator::CUBLAS_COMPUTE_32F, emulator::CUBLAS_OP_N, emulator::CUBLAS_OP_T, emulator::CUBLAS_STATUS_SUCCESS,
    emulator::CUBLASLT_EPILOGUE_BIAS, emulator::CUBLASLT_MATMUL_DESC_BIAS_POINTER,
    emulator::CUBLASLT_MATMUL_DESC_EPILOGUE, emulator::CUBLASLT_MATMUL_DESC_TRANSA,
    emulator::CUBLASLT_MATMUL_DESC_TRANSB, emulator::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
    emulator::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, emulator::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
    emulator::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, emulator::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    emulator::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, emulator::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
    emulator::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, emulator::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
    emulator::CUDA_R_16BF, emulator::CUDA_R_32F;
using emulator::cublasLtCreate, emulator::cublasLtDestroy, emulator::cublasLtGetStatusString,
    emulator::cublasLtHandle_t, emulator::cublasLtMatmul, emulator::cublasLtMatmulAlgoGetHeuristic,
    emulator::cublasLtMatmulDesc_t, emulator::cublasLtMatmulDescAttributes_t, emulator::cublasLtMatmulDescInit,
    emulator::cublasLtMatmulDescOpaque_t, emulator::cublasLtMatmulDescSetAttribute,
    emulator::cublasLtMatmulHeuristicResult_t, emulator::cublasLtMatmulPreference_t,
    emulator::cublasLtMatmulPreferenceAttributes_t, emulator::cublasLtMatmulPreferenceInit,
    emulator::cublasLtMatmulPreferenceOpaque_t, emulator::cublasLtMatmulPreferenceSetAttribute,
    emulator::cublasLtMatrixLayout_t, emulator::cublasLtMatrixLayoutAttribute_t, emulator::cublasLtMatrixLayoutInit,
    emulator::cublasLtMatrixLayoutOpaque_t, emulator::cublasLtMatrixLayoutSetAttribute, emulator::cublasStatus_t,
    emulator::cudaDataType_t;
