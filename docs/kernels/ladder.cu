// The list of all levels: what each of them is called with.

#include "docs/kernels/ladder.hpp"
#include "docs/kernels/on_device.hpp"

namespace abh {
inline namespace ABH_BACKEND {

namespace {

Layernorm layernorm_of(OnDevice& d) {
  return {.out_bcd = d.at<float>("out_bcd"),
          .mean_bc = d.at<float>("mean_bc"),
          .rstd_bc = d.at<float>("rstd_bc"),
          .in_bcd = d.at<float>("in_bcd"),
          .weight_d = d.at<float>("weight_d"),
          .bias_d = d.at<float>("bias_d"),
          .d_in_bcd = d.at<float>("d_in_bcd"),
          .d_weight_d = d.at<float>("d_weight_d"),
          .d_bias_d = d.at<float>("d_bias_d"),
          .d_out_bcd = d.at<float>("d_out_bcd"),
          .BC = d.size(0),
          .D = d.size(1)};
}
Pooling pooling_of(OnDevice& d) {
  return {d.at<float>("out_bck"),
          d.at<float>("logit_bc"),
          d.at<float>("x_bck"),
          d.at<float>("state_of_chunk"),
          d.size(0),
          d.size(1),
          d.size(2)};
}
template <class T>
ProductOf<T> product_of(OnDevice& d) {
  return {d.at<float>("out_bco"), d.at<T>("in_bci"), d.at<T>("weight_oi"), d.size(0), d.size(1), d.size(2)};
}
template <class T>
AttentionOf<T> attention_of(OnDevice& d) {
  return {d.at<float>("out_bck"), d.at<T>("query_bck"), d.at<T>("key_bsk"), d.at<T>("value_bsk"), d.size(0), d.size(1)};
}
EmbeddingGradient embedding_of(OnDevice& d) {
  return {d.at<float>("d_token_vd"),
          d.at<float>("d_out_bcd"),
          d.at<int>("token_bc"),
          d.at<int>("row_r"),
          d.at<int>("first_v"),
          d.size(0),
          d.size(1),
          d.size(2)};
}

// A level that is called with these arguments of a case.
template <class Arguments, class ArgumentsOf>
kernels::Level level(const char* operation, int number, const char* idea, void (*run)(const Arguments&, cudaStream_t),
                     const ArgumentsOf& arguments_of, const char* shared_type = "f4") {
  const bool narrow = std::string(shared_type) == "bf";
  return {operation, number, idea,
          [=](kernels::Case& on_host, bool records) {
            OnDevice d(on_host, records);
#if defined(EMULATOR_RECORDS)
            if (records) emulator::record::type_of_shared(shared_type);
#endif
            run(arguments_of(d), nullptr);
            d.copy_back();
          },
          narrow ? 1e-2 : 2e-6};
}

}  // namespace
}  // namespace ABH_BACKEND

template <>
std::vector<kernels::Level> kernels::ladder<Backend::ABH_BACKEND>() {
  return {
      level("layernorm", 1, "one thread per row", layernorm_1, layernorm_of),
      level("layernorm", 2, "one warp per row, sums by shuffles", layernorm_2, layernorm_of),
      level("layernorm", 3, "16 bytes per lane", layernorm_3, layernorm_of),
      level("layernorm", 4, "the row stays in registers", layernorm_4, layernorm_of),
      level("pooling", 1, "one thread per channel", pooling_1, pooling_of),
      level("pooling", 2, "a scan across a warp", pooling_2, pooling_of),
      level("pooling", 3, "a tile transposed in shared memory", pooling_3, pooling_of),
      level("pooling", 4, "a scan across a block, with a carry", pooling_4, pooling_of),
      level("pooling", 5, "chunks in two launches", pooling_5, pooling_of),
      level("product", 1, "one thread per output", product_1, product_of<float>),
      level("product", 2, "tiles in shared memory", product_2, product_of<float>),
      level("product", 3, "a tile in registers", product_3, product_of<float>),
      level("product", 4, "16 bytes per lane, no bank conflicts", product_4, product_of<float>),
      level("product", 5, "asynchronous copies", product_5, product_of<float>),
      level("product", 6, "tensor cores", product_6, product_of<bf16>, "bf"),
      level("attention", 1, "one thread per query", attention_1, attention_of<float>),
      level("attention", 2, "tiles in shared memory", attention_2, attention_of<float>),
      level("attention", 3, "tiles skipped by causality", attention_3, attention_of<float>),
      level("attention", 4, "tensor cores", attention_4, attention_of<bf16>, "bf"),
      level("embedding_gradient", 1, "one thread per element, atomics", embedding_gradient_1, embedding_of),
      level("embedding_gradient", 2, "rows sorted by token", embedding_gradient_2, embedding_of),
      level("embedding_gradient", 3, "one block per row of the table", embedding_gradient_3, embedding_of),
  };
}

}  // namespace abh
