// The KV cache from C: append, fork, trim, within a byte budget.
// Deliberately writes zeros: what rows hold is the model's business.
#include <stdio.h>
#include <stdlib.h>

#include "kvasir/kv/kvasir_kv.h"

// Every call returns a code and, if asked, one sentence of what is wrong.
static void Must(kvasir_kv_code code, const kvasir_kv_error* error) {
  if (code == KVASIR_KV_OK) return;
  fprintf(stderr, "%s\n", error->message);
  exit(1);
}

int main(void) {
  kvasir_kv_error error;
  kvasir_kv_pool* pool = NULL;
  const kvasir_kv_pool_options options = {.struct_size = sizeof(options), .budget_bytes = 1 << 20};
  Must(kvasir_kv_pool_create(&options, &pool, &error), &error);

  kvasir_kv_spec* spec = NULL;
  Must(kvasir_kv_spec_create(&spec, &error), &error);
  const kvasir_kv_layer_options layer = {.struct_size = sizeof(layer),
                                         .kv_heads = 1,
                                         .key_dim = 64,
                                         .key_codec = "affine4:64",
                                         .value_codec = "turbo3",
                                         .retention = "window:100,keep=4"};
  Must(kvasir_kv_spec_add_layer(spec, &layer, &error), &error);
  kvasir_kv_sequence* sequence = NULL;
  Must(kvasir_kv_sequence_create(pool, spec, &sequence, &error), &error);
  kvasir_kv_spec_destroy(spec);

  static const float rows[300 * 64];  // [tokens, kv_heads, dim]
  Must(kvasir_kv_sequence_reserve(sequence, 300, &error), &error);
  Must(kvasir_kv_sequence_write_rows(sequence, 0, 0, rows, 300 * 64, rows, 300 * 64, &error),
       &error);
  Must(kvasir_kv_sequence_advance(sequence, 300, &error), &error);

  kvasir_kv_sequence* fork = NULL;
  Must(kvasir_kv_sequence_fork(sequence, &fork, &error), &error);
  if (kvasir_kv_sequence_trim(fork, 200, NULL, &error) != KVASIR_KV_OK) {
    printf("refused: %s\n", error.message);
  }
  printf("%zu bytes for 300 tokens and a fork\n", kvasir_kv_sequence_nbytes(sequence));

  Must(kvasir_kv_sequence_destroy(fork, &error), &error);
  Must(kvasir_kv_sequence_destroy(sequence, &error), &error);
  Must(kvasir_kv_pool_destroy(pool, &error), &error);
  return 0;
}
