// The emulator's stand-in for cuBLASLt: its results and its errors.
#if defined(ABH_EMULATOR)

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "cuda/emulator/cublaslt.hpp"
#include "tests/harness/emulator_case.hpp"

namespace {

using emulator_test::require_words;

// Floats in memory of the GPU, where the library may read a bias.
class OnGpu {
 public:
  OnGpu(std::initializer_list<float> numbers) {
    REQUIRE(cudaMalloc(&memory_, numbers.size() * sizeof(float)) == cudaSuccess);
    std::copy(numbers.begin(), numbers.end(), data());
  }
  ~OnGpu() { cudaFree(memory_); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;

  float* data() const { return static_cast<float*>(memory_); }
  float operator[](std::size_t i) const { return data()[i]; }

 private:
  void* memory_ = nullptr;
};

// A valid product D = 2 op(A) op(B) + 3 C and a bias, for two batches: A is 4 x 2, B transposed 3 x 2. The numbers
// between the columns and between the batches are NaN, and those of D must stay NaN.
struct Product {
  cublasLtMatmulDescOpaque_t operation;
  cublasLtMatrixLayoutOpaque_t a, b, c, d;
  cublasLtMatmulPreferenceOpaque_t preference;
  alignas(16) std::array<float, 24> a_numbers, b_numbers, d_numbers;
  OnGpu bias = {100, 200, 300, 400};
  alignas(256) std::array<char, 512> workspace;
  const void *at_a = a_numbers.data(), *at_b = b_numbers.data(), *at_c = d_numbers.data(), *at_bias = bias.data();
  void *at_d = d_numbers.data(), *at_workspace = workspace.data();
  std::size_t workspace_bytes = 512;
  float alpha = 2, beta = 3;
  cublasLtHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;

  Product() {
    cublasLtCreate(&handle);
    cublasLtMatmulDescInit(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, at_bias);
    for (auto* m : {&a, &b, &c, &d}) {
      cublasLtMatrixLayoutInit(m, CUDA_R_32F, m == &b ? 3 : 4, m == &a || m == &b ? 2 : 3, m == &b ? 3 : 4);
      set(*m, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 2);
      set(*m, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, std::int64_t{12});
    }
    cublasLtMatmulPreferenceInit(&preference);
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{512});
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set(attribute, std::uint32_t{16});
    }
    for (std::size_t i = 0; i < 24; ++i) {
      const std::size_t in_batch = i % 12;
      a_numbers[i] = in_batch < 8 ? float(i % 7) : NAN;
      b_numbers[i] = in_batch < 6 ? float(i % 5) : NAN;
      d_numbers[i] = float(i);
    }
  }

  template <class Value>
  void set(emulator::cublasLtMatmulDescAttributes_t attribute, const Value& value) {
    cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof value);
  }
  template <class Value>
  void set(emulator::cublasLtMatmulPreferenceAttributes_t attribute, const Value& value) {
    cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value);
  }
  template <class Value>
  static void set(cublasLtMatrixLayoutOpaque_t& layout, emulator::cublasLtMatrixLayoutAttribute_t attribute,
                  const Value& value) {
    cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof value);
  }

  bool choose(cublasLtMatmulHeuristicResult_t& result) {
    int found = -1;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, &operation, &a, &b, &c, &d, &preference, 1, &result, &found);
    CHECK(found == (status == CUBLAS_STATUS_SUCCESS));
    return found == 1;
  }
  void multiply(const cublasLtMatmulHeuristicResult_t& result) {
    cublasLtMatmul(handle, &operation, &alpha, at_a, &a, at_b, &b, &beta, at_c, &c, at_d, &d, &result.algo,
                   at_workspace, workspace_bytes, stream);
  }
  float expected(std::size_t batch, std::size_t m, std::size_t n) const {
    float sum = 0;
    for (std::size_t k = 0; k < 2; ++k) {
      sum += a_numbers[12 * batch + m + 4 * k] * b_numbers[12 * batch + n + 3 * k];
    }
    return 2 * sum + 3 * float(12 * batch + m + 4 * n) + bias[m];
  }
};

template <class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const emulator::Error& error) {
    return error.what();
  }
  return "";
}

// The error message of a product. `before` changes it before its algorithm is chosen, and `after` changes it then.
template <class Before, class After>
std::string error_of(const Before& before, const After& after) {
  Product p;
  return error_of([&] {
    before(p);
    cublasLtMatmulHeuristicResult_t result;
    if (!p.choose(result)) return;
    after(p);
    p.multiply(result);
  });
}
constexpr auto nothing = [](Product&) {};

TEST_CASE("cublaslt: products in place, in batches, with a bias", "[cublaslt][gpu]") {
  Product p;
  cublasLtMatmulHeuristicResult_t result;
  REQUIRE(p.choose(result));
  CHECK(result.workspaceSize <= 512);
  p.workspace.fill(1);
  p.multiply(result);
  for (std::size_t batch = 0; batch < 2; ++batch) {
    for (std::size_t n = 0; n < 3; ++n) {
      for (std::size_t m = 0; m < 4; ++m) CHECK(p.d_numbers[12 * batch + m + 4 * n] == p.expected(batch, m, n));
    }
  }
  CHECK(p.workspace.front() != 1);
  CHECK(p.workspace.back() != 1);
}

TEST_CASE("cublaslt: with beta 0, C is not read", "[cublaslt][gpu]") {
  Product p;
  cublasLtMatmulHeuristicResult_t result;
  REQUIRE(p.choose(result));
  p.d_numbers.fill(NAN);
  p.beta = 0;
  p.at_c = nullptr;
  p.multiply(result);
  for (const float x : p.d_numbers) CHECK(std::isfinite(x));
}

TEST_CASE("cublaslt: bf16 rounds to nearest, and needs paired numbers", "[cublaslt][gpu]") {
  alignas(16) const std::uint16_t a[2] = {0x3F80, 0x3F81}, b[2] = {0x3F80, 0x3C00};  // 1, 1 + 2^-7; 1, 2^-7
  alignas(16) std::uint16_t d[2] = {0xFFFF, 0xFFFF};
  Product p;
  p.set(CUBLASLT_MATMUL_DESC_EPILOGUE, emulator::CUBLASLT_EPILOGUE_DEFAULT);
  p.set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  p.beta = 0;
  p.alpha = 1;
  p.at_a = a, p.at_b = b, p.at_d = d, p.at_c = d;
  const auto shape = [&](std::int64_t leading) {
    cublasLtMatrixLayoutInit(&p.a, CUDA_R_16BF, 1, 2, 1);
    cublasLtMatrixLayoutInit(&p.b, CUDA_R_16BF, 2, 1, 2);
    cublasLtMatrixLayoutInit(&p.c, CUDA_R_16BF, 1, 1, leading);
    cublasLtMatrixLayoutInit(&p.d, CUDA_R_16BF, 1, 1, leading);
  };
  cublasLtMatmulHeuristicResult_t result;
  shape(1);
  CHECK_FALSE(p.choose(result));
  p.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  shape(2);
  cublasLtMatrixLayoutInit(&p.a, CUDA_R_16BF, 2, 1, 2);
  p.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{2});
  CHECK_FALSE(p.choose(result));
  p.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{4});
  REQUIRE(p.choose(result));
  p.multiply(result);
  CHECK(d[0] == 0x3F81);  // 1 + 2^-7 + 2^-14
  CHECK(d[1] == 0xFFFF);
}

TEST_CASE("cublaslt: a captured product runs at replay, its algorithm is chosen before", "[cublaslt][gpu]") {
  Product p;
  cublasLtMatmulHeuristicResult_t result;
  REQUIRE(p.choose(result));
  REQUIRE(cudaStreamCreateWithFlags(&p.stream, 0) == cudaSuccess);
  for (const bool chooses : {false, true}) {
    REQUIRE(cudaStreamBeginCapture(p.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    p.multiply(result);
    CHECK(p.d_numbers[1] == 1);
    if (chooses) require_words(error_of([&] { p.choose(result); }), {"cuBLASLt", "recorded"});
    cudaGraph_t graph = nullptr;
    CHECK((cudaStreamEndCapture(p.stream, &graph) == cudaSuccess) == !chooses);
    if (chooses) continue;
    cudaGraphExec_t executable;
    REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    const float expected = p.expected(0, 1, 0);
    p.alpha = p.beta = 0;
    REQUIRE(cudaGraphLaunch(executable, p.stream) == cudaSuccess);
    CHECK(p.d_numbers[1] == expected);
    p.d_numbers[1] = 1;
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }
  cudaStreamDestroy(p.stream);
}

TEST_CASE("cublaslt: mismatched matrices are refused", "[cublaslt][gpu]") {
  const auto error = [](const auto& before) { return error_of(before, nothing); };
  CHECK(error(nothing).empty());
  require_words(error([](Product& p) { p.a.leading = 3; }),
                {"A: its leading dimension, 3, is smaller than its 4 rows"});
  require_words(error([](Product& p) { p.b.columns = 3; }), {"A and B differ in k"});
  require_words(error([](Product& p) { p.a.rows = p.a.leading = 5; }), {"D has another shape"});
  require_words(error([](Product& p) { p.b.rows = 2; }), {"D has another shape"});
  require_words(error([](Product& p) { p.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T); }), {"D has another shape"});
  require_words(error([](Product& p) { p.set(CUBLASLT_MATMUL_DESC_TRANSB, 7); }), {"no such operation"});
  require_words(error([](Product& p) { p.c.columns = 2; }), {"C and D differ in shape"});
  require_words(error([](Product& p) { p.b.columns = 0; }), {"B is empty"});
  require_words(error([](Product& p) { p.b.batches = 1; }), {"batches differ in number"});
  require_words(error([](Product& p) { p.d.batches = 0; }), {"D has no batches"});
  require_words(error([](Product& p) { p.a.type = CUDA_R_16BF; }), {"A and B differ in type"});
  require_words(error([](Product& p) { p.c.type = CUDA_R_16BF; }), {"C and D differ in type"});
  require_words(error([](Product& p) { p.c.type = p.d.type = CUDA_R_16BF; }), {"no product of floats"});
  require_words(error([](Product& p) { p.a.type = static_cast<emulator::cudaDataType_t>(2); }), {"A is neither"});
  require_words(error([](Product& p) { p.operation.scale = CUDA_R_16BF; }), {"no floats"});
  require_words(error([](Product& p) { p.operation.epilogue = 32; }), {"no such epilogue"});
  require_words(error([](Product& p) { p.operation.bias = nullptr; }), {"no bias"});
  require_words(error([](Product& p) { p.handle = nullptr; }), {"no handle"});
}

TEST_CASE("cublaslt: batches of the result lie one after the other or side by side", "[cublaslt][gpu]") {
  const auto error = [](std::int64_t stride, std::int64_t leading) {
    return error_of(
        [&](Product& p) {
          p.c.batch_stride = p.d.batch_stride = stride;
          p.c.leading = p.d.leading = leading;
        },
        nothing);
  };
  CHECK(error(12, 4).empty());
  CHECK(error(4, 8).empty());
  for (const auto& [stride, leading] : {std::pair{11, 4}, {4, 7}, {3, 8}, {0, 4}, {0, 8}}) {
    CAPTURE(stride, leading);
    require_words(error(stride, leading), {"batches of D overlap"});
  }
}

TEST_CASE("cublaslt: less alignment than promised is refused", "[cublaslt][gpu]") {
  const auto error = [](const auto& after) { return error_of(nothing, after); };
  require_words(error([](Product& p) { p.at_a = p.a_numbers.data() + 1; }), {"A is not aligned to 16 bytes"});
  require_words(error([](Product& p) { p.at_b = p.b_numbers.data() + 2; }), {"B is not aligned to 16 bytes"});
  require_words(error([](Product& p) { p.at_c = p.b_numbers.data() + 1; }), {"C is not aligned to 16 bytes"});
  require_words(error([](Product& p) { p.at_d = p.d_numbers.data() + 1; }), {"D is not aligned to 16 bytes"});
  require_words(error([](Product& p) { p.at_workspace = p.workspace.data() + 128; }),
                {"the workspace is not aligned to 256 bytes"});
  require_words(error([](Product& p) { p.workspace_bytes = 256; }), {"the workspace is smaller"});
  require_words(error([](Product& p) { p.at_workspace = nullptr; }), {"no workspace"});
  const auto to_bias = [](const float* bias) {
    return [=](Product& p) { p.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias); };
  };
  const OnGpu biases = {0, 0, 0, 0, 0, 0, 0, 0};
  require_words(error(to_bias(biases.data() + 1)), {"the bias is not aligned to"});
  CHECK(error_of(to_bias(biases.data() + 1), to_bias(biases.data() + 3)).empty());
  // An algorithm is chosen with the address of a bias that is readable as a whole.
  const char* unreadable = "the bias is not memory of the GPU";
  require_words(error_of(to_bias(biases.data() + 5), nothing), {unreadable});
  require_words(error_of(to_bias(reinterpret_cast<const float*>(std::uintptr_t{16})), nothing), {unreadable});
  require_words(
      error_of([](Product& p) { p.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t{24}); }, nothing),
      {"no power of two"});
}

TEST_CASE("cublaslt: algorithms of other products and attributes of a wrong size are refused", "[cublaslt][gpu]") {
  const auto error = [](const auto& after) { return error_of(nothing, after); };
  const char* other = "chosen for another product";
  require_words(error([](Product& p) { p.a.leading = 5; }), {other});
  require_words(error([](Product& p) { p.b.batch_stride = 0; }), {other});
  require_words(error([](Product& p) { p.operation.epilogue = emulator::CUBLASLT_EPILOGUE_DEFAULT; }), {other});
  require_words(error([](Product& p) { p.a.columns = p.b.columns = 1; }), {other});
  require_words(error([](Product& p) { p.at_c = nullptr; }), {"no C"});
  require_words(error([](Product& p) { p.at_a = nullptr; }), {"no A, B or D"});
  require_words(error_of([](Product& p) { p.c.leading = 5; }, nothing), {"C is D with another layout"});
  require_words(error([](Product& p) { p.set(CUBLASLT_MATMUL_DESC_TRANSA, std::int64_t{0}); }),
                {"CUBLASLT_MATMUL_DESC_TRANSA: expected 4 bytes, found 8"});
  require_words(error([](Product& p) { p.set(p.a, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 0); }),
                {"STRIDED_BATCH_OFFSET: expected 8 bytes, found 4"});
  require_words(error([](Product& p) { p.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0); }),
                {"MAX_WORKSPACE_BYTES: expected 8 bytes, found 4"});
}

}  // namespace

#endif
