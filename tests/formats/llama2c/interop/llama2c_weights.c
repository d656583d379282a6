/* Reads a model as llama2.c does, and writes its weights as f32: for each its name, a line, then the numbers.
 *
 *   llama2c_weights MODEL.bin OUT    with run.c (version 0), or -DQUANTIZED and runq.c (version 2)
 */
#define TESTING
#ifdef QUANTIZED
#include "runq.c"
#else
#include "run.c"
#endif

static FILE* out;

static void write_floats(const char* name, int layer, const float* numbers, long count) {
  if (layer < 0) {
    fprintf(out, "%s %ld\n", name, count);
  } else {
    fprintf(out, "layers.%d.%s %ld\n", layer, name, count);
  }
  fwrite(numbers, sizeof(float), count, out);
}

#ifdef QUANTIZED
static void write_matrix(const char* name, int layer, QuantizedTensor* tensors, long count) {
  float* numbers = malloc(count * sizeof(float) + 1);
  dequantize(&tensors[layer < 0 ? 0 : layer], numbers, count);
  write_floats(name, layer, numbers, count);
  free(numbers);
}
#else
static void write_matrix(const char* name, int layer, const float* numbers, long count) {
  write_floats(name, layer, numbers + (layer < 0 ? 0 : layer) * count, count);
}
#endif

int main(int count, char** arguments) {
  if (count != 3) return 1;
  Config p;
  TransformerWeights w;
  int fd;
  float* data;
  ssize_t size;
  read_checkpoint(arguments[1], &p, &w, &fd, &data, &size);
  const long kv = (long)p.dim / p.n_heads * p.n_kv_heads;
  out = fopen(arguments[2], "wb");
  write_floats("tok_embeddings.weight", -1, w.token_embedding_table, (long)p.vocab_size * p.dim);
  for (int i = 0; i < p.n_layers; ++i) {
    write_floats("attention_norm.weight", i, w.rms_att_weight + (long)i * p.dim, p.dim);
    write_floats("ffn_norm.weight", i, w.rms_ffn_weight + (long)i * p.dim, p.dim);
    write_matrix("attention.wq.weight", i, w.wq, (long)p.dim * p.dim);
    write_matrix("attention.wk.weight", i, w.wk, p.dim * kv);
    write_matrix("attention.wv.weight", i, w.wv, p.dim * kv);
    write_matrix("attention.wo.weight", i, w.wo, (long)p.dim * p.dim);
    write_matrix("feed_forward.w1.weight", i, w.w1, (long)p.dim * p.hidden_dim);
    write_matrix("feed_forward.w2.weight", i, w.w2, (long)p.dim * p.hidden_dim);
    write_matrix("feed_forward.w3.weight", i, w.w3, (long)p.dim * p.hidden_dim);
  }
  write_floats("norm.weight", -1, w.rms_final_weight, p.dim);
  write_matrix("output.weight", -1, w.wcls, (long)p.vocab_size * p.dim);
  return fclose(out);
}
