// The C ABI used from C: what it does, and that every misuse it promises to refuse is an error.
// Deliberately without a test framework: this file is compiled as C11, pedantically.
#include <dlpack/dlpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kvasir/kv/kvasir_kv.h"

static int failures = 0;

#define EXPECT(condition)                                             \
  do {                                                                \
    if (!(condition)) {                                               \
      printf("%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                     \
    }                                                                 \
  } while (0)

// Fails with `expected`, and says something that contains `text`.
#define EXPECT_ERROR(call, expected, text)                                                    \
  do {                                                                                        \
    kvasir_kv_error error = {KVASIR_KV_OK, ""};                                               \
    const kvasir_kv_code code = (call);                                                       \
    if (code != (expected) || error.code != code || !strstr(error.message, text)) {           \
      printf("%s:%d: %s gave %d: %s\n", __FILE__, __LINE__, #call, (int)code, error.message); \
      ++failures;                                                                             \
    }                                                                                         \
  } while (0)

#define EXPECT_OK(call) EXPECT_ERROR(call, KVASIR_KV_OK, "")

enum { kHeads = 2, kDim = 64, kRow = kHeads * kDim, kLayers = 2 };

static kvasir_kv_pool* NewPool(size_t budget_bytes) {
  kvasir_kv_pool_options options = {sizeof(options), budget_bytes, 0};
  kvasir_kv_pool* pool = NULL;
  EXPECT_OK(kvasir_kv_pool_create(&options, &pool, &error));
  return pool;
}

static kvasir_kv_layer_options LayerOptions(const char* key_codec, const char* retention) {
  kvasir_kv_layer_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.kv_heads = kHeads;
  options.key_dim = kDim;
  options.key_codec = key_codec;
  options.retention = retention;
  return options;
}

// A layer that keeps all rows in f32 keys, and one that has a window.
static kvasir_kv_spec* NewSpec(void) {
  kvasir_kv_spec* spec = NULL;
  EXPECT_OK(kvasir_kv_spec_create(&spec, &error));
  kvasir_kv_layer_options layer = LayerOptions("f32", NULL);
  EXPECT_OK(kvasir_kv_spec_add_layer(spec, &layer, &error));
  layer = LayerOptions(NULL, "window:100");
  EXPECT_OK(kvasir_kv_spec_add_layer(spec, &layer, &error));
  return spec;
}

static kvasir_kv_sequence* NewSequence(kvasir_kv_pool* pool) {
  kvasir_kv_spec* spec = NewSpec();
  kvasir_kv_sequence* sequence = NULL;
  EXPECT_OK(kvasir_kv_sequence_create(pool, spec, &sequence, &error));
  kvasir_kv_spec_destroy(spec);
  return sequence;
}

static void Row(int64_t token, float* keys, float* values) {
  for (int i = 0; i < kRow; ++i) {
    keys[i] = (float)(token % 50) + (float)i / 8;
    values[i] = -keys[i];
  }
}

static void Append(kvasir_kv_sequence* sequence, int64_t tokens) {
  float keys[kRow], values[kRow];
  EXPECT_OK(kvasir_kv_sequence_reserve(sequence, tokens, &error));
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t row = kvasir_kv_sequence_position(sequence) + i;
    Row(row, keys, values);
    for (int layer = 0; layer < kLayers; ++layer) {
      EXPECT_OK(
          kvasir_kv_sequence_write_rows(sequence, layer, row, keys, kRow, values, kRow, &error));
    }
  }
  EXPECT_OK(kvasir_kv_sequence_advance(sequence, tokens, &error));
}

// The rows [begin, position) of layer 0 are what Append wrote.
static void ExpectRows(const kvasir_kv_sequence* sequence, int64_t begin) {
  const int64_t rows = kvasir_kv_sequence_position(sequence) - begin;
  const size_t floats = (size_t)rows * kRow;
  float* keys = malloc(floats * sizeof(float));
  float* values = malloc(floats * sizeof(float));
  EXPECT_OK(
      kvasir_kv_sequence_read_rows(sequence, 0, begin, rows, keys, floats, values, floats, &error));
  for (int64_t i = 0; i < rows; ++i) {
    float key[kRow], value[kRow];
    Row(begin + i, key, value);
    EXPECT(memcmp(key, keys + i * kRow, sizeof(key)) == 0);
    EXPECT(memcmp(value, values + i * kRow, sizeof(value)) == 0);  // eighths fit into f16
  }
  free(keys);
  free(values);
}

static kvasir_kv_pool_stats Stats(const kvasir_kv_pool* pool) {
  kvasir_kv_pool_stats stats = {.struct_size = sizeof(stats)};
  EXPECT_OK(kvasir_kv_pool_get_stats(pool, &stats, &error));
  return stats;
}

static void TestSequence(void) {
  kvasir_kv_pool* pool = NewPool((size_t)4 << 20);
  kvasir_kv_sequence* sequence = NewSequence(pool);
  Append(sequence, 300);
  EXPECT(kvasir_kv_sequence_position(sequence) == 300);
  ExpectRows(sequence, 0);

  kvasir_kv_visible visible;
  EXPECT_OK(kvasir_kv_sequence_visible(sequence, 1, 299, &visible, &error));
  EXPECT(visible.head_end == 0 && visible.begin == 200 && visible.end == 300);

  kvasir_kv_sequence* fork = NULL;
  EXPECT_OK(kvasir_kv_sequence_fork(sequence, &fork, &error));
  EXPECT(Stats(pool).copied_bytes == 0);
  Append(fork, 10);
  EXPECT(Stats(pool).copied_bytes > 0);  // the shared tail block of each layer
  ExpectRows(fork, 0);

  int64_t trimmed = -1;
  EXPECT_OK(kvasir_kv_sequence_trim(fork, 10, &trimmed, &error));
  EXPECT(trimmed == 10 && kvasir_kv_sequence_position(fork) == 300);
  EXPECT(kvasir_kv_sequence_max_trim(fork) < 200);
  EXPECT_ERROR(kvasir_kv_sequence_trim(fork, 200, &trimmed, &error), KVASIR_KV_FAILED_PRECONDITION,
               "layer 1");
  EXPECT(trimmed == 10);

  kvasir_kv_blocks blocks = {.struct_size = sizeof(blocks)};
  EXPECT_OK(kvasir_kv_sequence_blocks(sequence, 0, &blocks, &error));
  EXPECT(blocks.block_count == 5 && blocks.first_block == 0 && blocks.head_count == 0);
  float element;  // head 0, dim 0 of row 1: keys are [heads][dim][64]
  memcpy(&element, (const char*)blocks.blocks[0] + sizeof(float), sizeof(element));
  EXPECT(element == 1.0f);

  EXPECT_ERROR(kvasir_kv_pool_destroy(pool, &error), KVASIR_KV_FAILED_PRECONDITION, "2 sequences");
  EXPECT_OK(kvasir_kv_sequence_destroy(fork, &error));
  EXPECT_OK(kvasir_kv_sequence_destroy(sequence, &error));
  EXPECT(Stats(pool).used_bytes == 0);
  EXPECT(kvasir_kv_pool_release_free_slabs(pool) > 0);
  EXPECT_OK(kvasir_kv_pool_destroy(pool, &error));
}

static void TestBudgetRefusesAndChangesNothing(void) {
  kvasir_kv_pool* pool = NewPool((size_t)1 << 20);
  kvasir_kv_sequence* a = NewSequence(pool);
  kvasir_kv_sequence* b = NewSequence(pool);
  EXPECT_ERROR(kvasir_kv_sequence_reserve(a, 100000, &error), KVASIR_KV_RESOURCE_EXHAUSTED,
               "budget of 1048576");
  EXPECT(kvasir_kv_sequence_nbytes(a) == 0);
  kvasir_kv_sequence* both[] = {a, b};
  const int64_t too_many[] = {64, 100000}, enough[] = {64, 128};
  EXPECT_ERROR(kvasir_kv_reserve_all(both, too_many, 2, &error), KVASIR_KV_RESOURCE_EXHAUSTED, "");
  EXPECT(kvasir_kv_sequence_reserved_end(a) == 0);
  EXPECT_OK(kvasir_kv_reserve_all(both, enough, 2, &error));
  EXPECT(kvasir_kv_sequence_reserved_end(b) == 128);
  kvasir_kv_sequence_unreserve(b);
  EXPECT(kvasir_kv_sequence_nbytes(b) == 0);
  kvasir_kv_sequence* twice[] = {a, a};
  EXPECT_ERROR(kvasir_kv_reserve_all(twice, enough, 2, &error), KVASIR_KV_INVALID_ARGUMENT,
               "twice");
  EXPECT_OK(kvasir_kv_sequence_destroy(a, &error));
  EXPECT_OK(kvasir_kv_sequence_destroy(b, &error));
  EXPECT_OK(kvasir_kv_pool_destroy(pool, &error));
}

static void TestSnapshot(void) {
  kvasir_kv_pool* pool = NewPool((size_t)4 << 20);
  kvasir_kv_sequence* sequence = NewSequence(pool);
  Append(sequence, 150);
  kvasir_kv_snapshot *whole = NULL, *left = NULL, *right = NULL, *merged = NULL;
  EXPECT_OK(kvasir_kv_snapshot_take(sequence, 0, 150, &whole, &error));
  EXPECT_OK(kvasir_kv_sequence_destroy(sequence, &error));
  EXPECT_OK(kvasir_kv_snapshot_split(whole, 77, &left, &right, &error));
  EXPECT(kvasir_kv_snapshot_end(left) == 77 && kvasir_kv_snapshot_begin(right) == 77);
  EXPECT_ERROR(kvasir_kv_snapshot_merge(right, left, &merged, &error), KVASIR_KV_INVALID_ARGUMENT,
               "ends at 150");
  EXPECT_OK(kvasir_kv_snapshot_merge(left, right, &merged, &error));
  EXPECT(kvasir_kv_snapshot_nbytes(merged) == kvasir_kv_snapshot_nbytes(whole));
  EXPECT(kvasir_kv_snapshot_nbytes_exclusive(merged) == 0);
  EXPECT_ERROR(kvasir_kv_snapshot_restore(right, &sequence, &error), KVASIR_KV_FAILED_PRECONDITION,
               "layer 0");
  kvasir_kv_snapshot_destroy(whole);
  EXPECT_OK(kvasir_kv_snapshot_restore(merged, &sequence, &error));
  EXPECT(kvasir_kv_sequence_position(sequence) == 150);
  Append(sequence, 70);
  ExpectRows(sequence, 0);
  EXPECT_ERROR(kvasir_kv_snapshot_take(sequence, 10, 221, &whole, &error),
               KVASIR_KV_INVALID_ARGUMENT, "from 10 to 221");
  EXPECT_OK(kvasir_kv_sequence_destroy(sequence, &error));
  kvasir_kv_snapshot_destroy(left);
  kvasir_kv_snapshot_destroy(right);
  EXPECT_ERROR(kvasir_kv_pool_destroy(pool, &error), KVASIR_KV_FAILED_PRECONDITION, "1 ");
  kvasir_kv_snapshot_destroy(merged);
  EXPECT_OK(kvasir_kv_pool_destroy(pool, &error));
}

static void TestSnapshotFile(void) {
  const char* path = "c_api_test.kvsnap";
  kvasir_kv_pool* pool = NewPool((size_t)4 << 20);
  kvasir_kv_sequence* sequence = NewSequence(pool);
  Append(sequence, 150);
  kvasir_kv_snapshot* snapshot = NULL;
  EXPECT_OK(kvasir_kv_snapshot_take(sequence, 0, 150, &snapshot, &error));
  EXPECT_OK(kvasir_kv_sequence_destroy(sequence, &error));
  int32_t tokens[150], loaded[2] = {0, 0};
  for (int i = 0; i < 150; ++i) tokens[i] = 1000 + i;
  EXPECT_ERROR(kvasir_kv_snapshot_set_tokens(snapshot, tokens, 149, &error),
               KVASIR_KV_INVALID_ARGUMENT, "149 tokens");
  EXPECT_OK(kvasir_kv_snapshot_set_tokens(snapshot, tokens, 150, &error));
  EXPECT_OK(kvasir_kv_snapshot_set_value(snapshot, "model", "a", &error));
  EXPECT_OK(kvasir_kv_snapshot_set_value(snapshot, "model", "b", &error));
  EXPECT_OK(kvasir_kv_snapshot_set_value(snapshot, "gone", "x", &error));
  EXPECT_OK(kvasir_kv_snapshot_set_value(snapshot, "gone", NULL, &error));
  EXPECT_OK(kvasir_kv_snapshot_save(snapshot, path, &error));
  kvasir_kv_snapshot_destroy(snapshot);
  EXPECT_OK(kvasir_kv_pool_destroy(pool, &error));

  pool = NewPool(1024);
  snapshot = NULL;
  EXPECT_ERROR(kvasir_kv_snapshot_load(pool, path, &snapshot, &error), KVASIR_KV_RESOURCE_EXHAUSTED,
               "budget");
  EXPECT(snapshot == NULL);
  EXPECT_OK(kvasir_kv_pool_destroy(pool, &error));
  pool = NewPool((size_t)4 << 20);
  EXPECT_OK(kvasir_kv_snapshot_load(pool, path, &snapshot, &error));
  EXPECT(kvasir_kv_snapshot_tokens(snapshot, loaded, 2) == 150 && loaded[1] == 1001);
  EXPECT(strcmp(kvasir_kv_snapshot_value(snapshot, "model"), "b") == 0);
  EXPECT(kvasir_kv_snapshot_value(snapshot, "gone") == NULL);
  EXPECT_OK(kvasir_kv_snapshot_restore(snapshot, &sequence, &error));
  Append(sequence, 20);
  ExpectRows(sequence, 0);
  kvasir_kv_snapshot_destroy(snapshot);
  EXPECT_OK(kvasir_kv_sequence_destroy(sequence, &error));
  EXPECT(remove(path) == 0);
  EXPECT_ERROR(kvasir_kv_snapshot_load(pool, path, &snapshot, &error), KVASIR_KV_NOT_FOUND, path);
  // A message that is cut ends with a whole character.
  kvasir_kv_error cut;
  char umlauts[801];
  for (int i = 0; i < 400; ++i) memcpy(umlauts + 2 * i, "\xC3\xA4", 2);
  for (int first = 0; first < 2; ++first) {  // one of them is cut within one
    umlauts[0] = umlauts[1] = 'x';
    umlauts[800] = '\0';
    EXPECT(kvasir_kv_snapshot_load(pool, umlauts + first, &snapshot, &cut) != KVASIR_KV_OK);
    const size_t length = strlen(cut.message);
    EXPECT(length >= sizeof(cut.message) - 2);
    EXPECT((unsigned char)cut.message[length - 1] == 0xA4);
  }
  EXPECT_OK(kvasir_kv_pool_destroy(pool, &error));
}

static void TestBatch(void) {
  kvasir_kv_pool* pool = NewPool((size_t)8 << 20);
  kvasir_kv_batch *batch = NULL, *other = NULL;
  EXPECT_OK(kvasir_kv_batch_create(&batch, &error));
  EXPECT_OK(kvasir_kv_batch_create(&other, &error));
  kvasir_kv_sequence* sequences[3];
  for (int i = 0; i < 3; ++i) {
    sequences[i] = NewSequence(pool);
    Append(sequences[i], 200 * (i + 1));
    EXPECT_OK(kvasir_kv_batch_add(i < 2 ? batch : other, (uint64_t)i, sequences[i], &error));
  }
  EXPECT_ERROR(kvasir_kv_sequence_destroy(sequences[0], &error), KVASIR_KV_FAILED_PRECONDITION,
               "extract");
  EXPECT_ERROR(kvasir_kv_batch_add(other, 7, sequences[0], &error), KVASIR_KV_FAILED_PRECONDITION,
               "extract");
  EXPECT_OK(kvasir_kv_batch_extend(batch, other, &error));
  EXPECT(kvasir_kv_batch_size(batch) == 3 && kvasir_kv_batch_size(other) == 0);
  EXPECT_OK(kvasir_kv_batch_destroy(other, &error));
  EXPECT_ERROR(kvasir_kv_batch_extend(batch, batch, &error), KVASIR_KV_INVALID_ARGUMENT, "itself");
  EXPECT(kvasir_kv_batch_find(batch, 2) == sequences[2]);
  EXPECT(kvasir_kv_batch_find(batch, 3) == NULL);

  const int64_t counts[] = {1, 150, 0};
  kvasir_kv_trim_report reports[3];
  EXPECT_OK(kvasir_kv_batch_trim_each(batch, counts, 3, reports, &error));
  EXPECT(reports[0].trimmed == 1 && reports[0].refusal.code == KVASIR_KV_OK);
  EXPECT(reports[1].trimmed == 0 && reports[1].refusal.code == KVASIR_KV_FAILED_PRECONDITION);
  EXPECT(strstr(reports[1].refusal.message, "layer 1") != NULL);
  EXPECT(reports[2].id == 2 && kvasir_kv_sequence_position(sequences[0]) == 199);
  EXPECT_ERROR(kvasir_kv_batch_trim_each(batch, counts, 2, reports, &error),
               KVASIR_KV_INVALID_ARGUMENT, "2 counts for 3");

  const uint64_t keep[] = {2, 0}, unknown[] = {2, 9};
  EXPECT_ERROR(kvasir_kv_batch_filter(batch, unknown, 2, &error), KVASIR_KV_INVALID_ARGUMENT, "9");
  EXPECT_OK(kvasir_kv_batch_filter(batch, keep, 2, &error));
  uint64_t ids[3] = {9, 9, 9};
  EXPECT(kvasir_kv_batch_ids(batch, ids, 3) == 2 && ids[0] == 2 && ids[1] == 0 && ids[2] == 9);
  const int64_t one_each[] = {1, 1};
  EXPECT_OK(kvasir_kv_batch_reserve_each(batch, one_each, 2, &error));
  EXPECT(kvasir_kv_batch_nbytes(batch) == Stats(pool).used_bytes);

  kvasir_kv_sequence* extracted = NULL;
  EXPECT_ERROR(kvasir_kv_batch_extract(batch, 1, &extracted, &error), KVASIR_KV_NOT_FOUND, "1");
  EXPECT_OK(kvasir_kv_batch_extract(batch, 0, &extracted, &error));
  EXPECT(extracted == sequences[0]);
  Append(extracted, 5);
  ExpectRows(extracted, 0);
  EXPECT_OK(kvasir_kv_sequence_destroy(extracted, &error));
  EXPECT_OK(kvasir_kv_batch_destroy(batch, &error));
  EXPECT_OK(kvasir_kv_pool_destroy(pool, &error));
}

static void TestSpeculation(void) {
  kvasir_kv_pool* pool = NewPool((size_t)8 << 20);
  kvasir_kv_sequence* sequences[] = {NewSequence(pool), NewSequence(pool)};
  kvasir_kv_batch* batch = NULL;
  EXPECT_OK(kvasir_kv_batch_create(&batch, &error));
  EXPECT_OK(kvasir_kv_batch_add(batch, 5, sequences[1], &error));
  Append(sequences[0], 130);
  Append(sequences[1], 20);
  kvasir_kv_speculation *drafts = NULL, *more = NULL;
  EXPECT_OK(kvasir_kv_speculation_begin(sequences, 2, &drafts, &error));
  EXPECT_ERROR(kvasir_kv_speculation_begin(sequences, 1, &more, &error),
               KVASIR_KV_FAILED_PRECONDITION, "open speculation");
  Append(sequences[0], 80);
  Append(sequences[1], 8);
  EXPECT(kvasir_kv_speculation_appended(drafts, 0) == 80);
  EXPECT_ERROR(kvasir_kv_sequence_destroy(sequences[0], &error), KVASIR_KV_FAILED_PRECONDITION,
               "speculation");
  EXPECT_ERROR(kvasir_kv_batch_add(batch, 6, sequences[0], &error), KVASIR_KV_FAILED_PRECONDITION,
               "speculation");
  kvasir_kv_sequence* extracted = NULL;
  EXPECT_ERROR(kvasir_kv_batch_extract(batch, 5, &extracted, &error), KVASIR_KV_FAILED_PRECONDITION,
               "speculation");
  EXPECT_ERROR(kvasir_kv_batch_filter(batch, NULL, 0, &error), KVASIR_KV_FAILED_PRECONDITION,
               "speculation");
  EXPECT_ERROR(kvasir_kv_batch_destroy(batch, &error), KVASIR_KV_FAILED_PRECONDITION,
               "speculation");
  const int64_t too_many[] = {81, 0}, accepted[] = {3, 0};
  EXPECT_ERROR(kvasir_kv_speculation_commit(drafts, too_many, 2, &error),
               KVASIR_KV_INVALID_ARGUMENT, "81");
  EXPECT_OK(kvasir_kv_speculation_commit(drafts, accepted, 2, &error));
  EXPECT(kvasir_kv_sequence_position(sequences[0]) == 133);
  EXPECT(kvasir_kv_sequence_position(sequences[1]) == 20);
  EXPECT_ERROR(kvasir_kv_speculation_commit(drafts, accepted, 2, &error),
               KVASIR_KV_FAILED_PRECONDITION, "closed");
  EXPECT(kvasir_kv_speculation_appended(drafts, 0) == -1);
  kvasir_kv_speculation_destroy(drafts);

  EXPECT_OK(kvasir_kv_speculation_begin(sequences, 1, &drafts, &error));
  Append(sequences[0], 5);
  kvasir_kv_speculation_destroy(drafts);
  EXPECT(kvasir_kv_sequence_position(sequences[0]) == 133);
  ExpectRows(sequences[0], 0);
  EXPECT_OK(kvasir_kv_batch_destroy(batch, &error));
  EXPECT_OK(kvasir_kv_sequence_destroy(sequences[0], &error));
  EXPECT_OK(kvasir_kv_pool_destroy(pool, &error));
}

static void TestSpec(void) {
  kvasir_kv_spec* spec = NULL;
  EXPECT_OK(kvasir_kv_spec_create(&spec, &error));
  EXPECT_ERROR(kvasir_kv_spec_validate(spec, &error), KVASIR_KV_INVALID_ARGUMENT, "no layers");
  kvasir_kv_layer_options layer = LayerOptions("affine4:64", NULL);
  layer.value_codec = "turbo3";
  layer.dense_start = 128;
  EXPECT_OK(kvasir_kv_spec_add_layer(spec, &layer, &error));
  EXPECT_OK(kvasir_kv_spec_add_shared_layer(spec, 0, &error));
  EXPECT_ERROR(kvasir_kv_spec_add_shared_layer(spec, 2, &error), KVASIR_KV_INVALID_ARGUMENT,
               "layer 2");
  EXPECT(kvasir_kv_spec_layer_count(spec) == 2);
  // Keys 4 bits and two halves per 64, values 3 bits and a norm; per head.
  EXPECT(kvasir_kv_spec_token_bytes(spec) == kHeads * (kDim / 2 + 4 + kDim * 3 / 8 + 4));
  kvasir_kv_block_layout block = {.struct_size = sizeof(block)};
  EXPECT_OK(kvasir_kv_spec_block_layout(spec, 1, 1, &block, &error));
  EXPECT(strcmp(block.key_codec, "f16") == 0 && block.key_head_bytes == 64 * kDim * 2);
  EXPECT_OK(kvasir_kv_spec_block_layout(spec, 1, 2, &block, &error));
  EXPECT(strcmp(block.value_codec, "turbo3") == 0);
  EXPECT(block.values_offset == kHeads * block.key_head_bytes);
  EXPECT(block.block_bytes == kvasir_kv_spec_token_bytes(spec) * 64);
  EXPECT_ERROR(kvasir_kv_spec_block_layout(spec, 0, -1, &block, &error), KVASIR_KV_INVALID_ARGUMENT,
               "-1");

  const char* bad_retentions[] = {"windo:4", "window:0", "window:99999999999999999999", ""};
  for (int i = 0; i < 4; ++i) {
    layer = LayerOptions(NULL, bad_retentions[i]);
    EXPECT_ERROR(kvasir_kv_spec_add_layer(spec, &layer, &error), KVASIR_KV_INVALID_ARGUMENT,
                 "retention");
  }
  layer = LayerOptions("affine7:64", NULL);
  EXPECT_ERROR(kvasir_kv_spec_add_layer(spec, &layer, &error), KVASIR_KV_INVALID_ARGUMENT,
               "affine7:64");
  layer = LayerOptions("affine4:128", NULL);
  EXPECT_ERROR(kvasir_kv_spec_add_layer(spec, &layer, &error), KVASIR_KV_INVALID_ARGUMENT,
               "multiple of its group");
  layer = LayerOptions(NULL, NULL);
  layer.kv_heads = -3;
  EXPECT_ERROR(kvasir_kv_spec_add_layer(spec, &layer, &error), KVASIR_KV_INVALID_ARGUMENT,
               "kv_heads");
  EXPECT(kvasir_kv_spec_layer_count(spec) == 2);
  kvasir_kv_spec_destroy(spec);
}

static void TestSharedAndRecurrentLayers(void) {
  kvasir_kv_pool* pool = NewPool((size_t)4 << 20);
  kvasir_kv_spec* spec = NewSpec();
  EXPECT_OK(kvasir_kv_spec_add_shared_layer(spec, 0, &error));
  kvasir_kv_sequence* sequence = NULL;
  EXPECT_OK(kvasir_kv_sequence_create(pool, spec, &sequence, &error));
  Append(sequence, 10);
  float row[kRow] = {0}, shared[kRow];
  EXPECT_OK(kvasir_kv_sequence_read_rows(sequence, 2, 9, 1, shared, kRow, NULL, 0, &error));
  EXPECT(shared[0] == 9.0f);
  EXPECT_OK(kvasir_kv_sequence_reserve(sequence, 1, &error));
  EXPECT_ERROR(kvasir_kv_sequence_write_rows(sequence, 2, 10, row, kRow, row, kRow, &error),
               KVASIR_KV_INVALID_ARGUMENT, "shares");
  EXPECT_OK(kvasir_kv_sequence_destroy(sequence, &error));
  EXPECT_ERROR(kvasir_kv_spec_add_recurrent_layer(spec, 0, &error), KVASIR_KV_INVALID_ARGUMENT,
               "state_bytes");
  EXPECT_OK(kvasir_kv_spec_add_recurrent_layer(spec, 1000, &error));
  kvasir_kv_block_layout block = {.struct_size = sizeof(block)};
  EXPECT_ERROR(kvasir_kv_spec_block_layout(spec, 3, 0, &block, &error), KVASIR_KV_INVALID_ARGUMENT,
               "recurrent");
  kvasir_kv_spec_destroy(spec);
  EXPECT_OK(kvasir_kv_pool_destroy(pool, &error));
}

// A layer that keeps the last 128 of 192 rows, one that has every packed thing there is.
static void TestBudgetAndRecentRows(void) {
  kvasir_kv_pool* pool = NewPool((size_t)8 << 20);
  kvasir_kv_spec* spec = NULL;
  EXPECT_OK(kvasir_kv_spec_create(&spec, &error));
  kvasir_kv_layer_options layer =
      LayerOptions("affine8:32", "budget:128,keep=4,recent=64,interval=64,score=streaming");
  layer.value_codec = "turbo4";
  layer.dense_recent = 64;
  EXPECT_OK(kvasir_kv_spec_add_layer(spec, &layer, &error));
  layer = LayerOptions("bf16", "window:100,keep=4");
  EXPECT_OK(kvasir_kv_spec_add_layer(spec, &layer, &error));
  kvasir_kv_block_layout block = {.struct_size = sizeof(block)};
  EXPECT_OK(kvasir_kv_spec_recent_layout(spec, 0, &block, &error));
  EXPECT(strcmp(block.key_codec, "f16") == 0);
  EXPECT_ERROR(kvasir_kv_spec_recent_layout(spec, 1, &block, &error), KVASIR_KV_INVALID_ARGUMENT,
               "dense_recent");
  kvasir_kv_sequence* sequence = NULL;
  EXPECT_OK(kvasir_kv_sequence_create(pool, spec, &sequence, &error));
  kvasir_kv_spec_destroy(spec);

  EXPECT(kvasir_kv_sequence_run_limit(sequence) == 192);
  EXPECT_ERROR(kvasir_kv_sequence_reserve(sequence, 193, &error), KVASIR_KV_INVALID_ARGUMENT,
               "192");
  EXPECT(kvasir_kv_sequence_evicted(sequence) == 0);
  float keys[kRow], values[kRow];
  for (int64_t position = 0; position < 200; ++position) {
    Row(position, keys, values);
    EXPECT_OK(kvasir_kv_sequence_reserve(sequence, 1, &error));
    for (int i = 0; i < kLayers; ++i) {
      int64_t row = -1;
      EXPECT_OK(kvasir_kv_sequence_row_of(sequence, i, position, &row, &error));
      EXPECT_OK(kvasir_kv_sequence_write_rows(sequence, i, row, keys, kRow, values, kRow, &error));
    }
    EXPECT_OK(kvasir_kv_sequence_advance(sequence, 1, &error));
  }
  EXPECT(kvasir_kv_sequence_evicted(sequence) == 1);
  int64_t positions[6], stored = 0, row = -1;
  EXPECT_OK(kvasir_kv_sequence_row_positions(sequence, 0, positions, 6, &stored, &error));
  EXPECT(stored == 128 + 8);  // compacted at 192
  EXPECT_OK(kvasir_kv_sequence_row_of(sequence, 0, 199, &row, &error));
  EXPECT(row == 135);
  EXPECT_ERROR(kvasir_kv_sequence_row_of(sequence, 0, 191, &row, &error),
               KVASIR_KV_INVALID_ARGUMENT, "192");
  kvasir_kv_visible visible;
  EXPECT_OK(kvasir_kv_sequence_visible(sequence, 0, 199, &visible, &error));
  EXPECT(visible.head_end == 0 && visible.begin == 0 && visible.end == 136);
  EXPECT_ERROR(kvasir_kv_sequence_visible(sequence, 0, 150, &visible, &error),
               KVASIR_KV_INVALID_ARGUMENT, "150");
  EXPECT_OK(kvasir_kv_sequence_visible(sequence, 1, 199, &visible, &error));
  EXPECT(visible.head_end == 4 && visible.begin == 104 && visible.end == 200);
  EXPECT_OK(kvasir_kv_sequence_read_rows(sequence, 1, 0, 64, NULL, 0, NULL, 0, &error));
  EXPECT_OK(kvasir_kv_sequence_read_rows(sequence, 0, 135, 1, keys, kRow, values, kRow, &error));
  EXPECT_ERROR(kvasir_kv_sequence_read_rows(sequence, 0, 135, 2, NULL, 0, NULL, 0, &error),
               KVASIR_KV_INVALID_ARGUMENT, "[0, 136)");

  kvasir_kv_blocks blocks = {.struct_size = sizeof(blocks)};
  EXPECT_OK(kvasir_kv_sequence_recent_blocks(sequence, 0, &blocks, &error));
  EXPECT(blocks.first_block + blocks.block_count == 3 && blocks.block_count >= 2);
  EXPECT_OK(kvasir_kv_sequence_recent_blocks(sequence, 1, &blocks, &error));
  EXPECT(blocks.block_count == 0);

  int32_t compacted = -1;
  EXPECT_OK(kvasir_kv_sequence_compact(sequence, 8, &compacted, &error));
  EXPECT(compacted == 0);
  EXPECT_OK(kvasir_kv_sequence_compact(sequence, 0, &compacted, &error));
  EXPECT(compacted == 1);
  EXPECT_ERROR(kvasir_kv_sequence_compact(sequence, -1, NULL, &error), KVASIR_KV_INVALID_ARGUMENT,
               "-1");
  EXPECT_ERROR(kvasir_kv_sequence_trim(sequence, 1, NULL, &error), KVASIR_KV_FAILED_PRECONDITION,
               "");
  kvasir_kv_snapshot *snapshot = NULL, *left = NULL, *right = NULL;
  EXPECT_OK(kvasir_kv_snapshot_take(sequence, 0, 200, &snapshot, &error));
  EXPECT(kvasir_kv_snapshot_evicted(snapshot) == 1);
  EXPECT_ERROR(kvasir_kv_snapshot_split(snapshot, 100, &left, &right, &error),
               KVASIR_KV_INVALID_ARGUMENT, "");
  EXPECT(left == NULL && right == NULL);
  kvasir_kv_snapshot_destroy(snapshot);
  EXPECT_OK(kvasir_kv_sequence_destroy(sequence, &error));
  EXPECT_OK(kvasir_kv_pool_destroy(pool, &error));
}

static void TestRecurrentState(void) {
  kvasir_kv_pool* pool = NewPool((size_t)1 << 20);
  kvasir_kv_spec* spec = NULL;
  EXPECT_OK(kvasir_kv_spec_create(&spec, &error));
  EXPECT_OK(kvasir_kv_spec_add_recurrent_layer(spec, 256, &error));
  kvasir_kv_sequence *sequence = NULL, *fork = NULL;
  EXPECT_OK(kvasir_kv_sequence_create(pool, spec, &sequence, &error));
  kvasir_kv_spec_destroy(spec);
  void* writable = NULL;
  const void* state = &writable;
  EXPECT_OK(kvasir_kv_sequence_state(sequence, 0, &state, &error));
  EXPECT(state == NULL);
  EXPECT_ERROR(kvasir_kv_sequence_mutable_state(sequence, 0, &writable, &error),
               KVASIR_KV_FAILED_PRECONDITION, "reserve first");
  EXPECT_ERROR(kvasir_kv_sequence_mutable_state(sequence, 1, &writable, &error),
               KVASIR_KV_INVALID_ARGUMENT, "layer 1");
  for (int step = 1; step <= 2; ++step) {
    EXPECT_OK(kvasir_kv_sequence_reserve(sequence, 10, &error));
    EXPECT_OK(kvasir_kv_sequence_mutable_state(sequence, 0, &writable, &error));
    memset(writable, step, 256);
    EXPECT_OK(kvasir_kv_sequence_advance(sequence, 10, &error));
    if (step == 1) EXPECT_OK(kvasir_kv_sequence_checkpoint(sequence, &error));
  }
  EXPECT_OK(kvasir_kv_sequence_reserve(sequence, 1, &error));
  EXPECT_ERROR(kvasir_kv_sequence_checkpoint(sequence, &error), KVASIR_KV_FAILED_PRECONDITION,
               "reserved");
  kvasir_kv_sequence_unreserve(sequence);
  EXPECT_ERROR(kvasir_kv_sequence_trim(sequence, 3, NULL, &error), KVASIR_KV_FAILED_PRECONDITION,
               "10");
  EXPECT_OK(kvasir_kv_sequence_trim(sequence, 10, NULL, &error));
  EXPECT_OK(kvasir_kv_sequence_state(sequence, 0, &state, &error));
  EXPECT(((const char*)state)[255] == 1);
  EXPECT_OK(kvasir_kv_sequence_reserve(sequence, 1, &error));
  EXPECT_ERROR(kvasir_kv_sequence_fork(sequence, &fork, &error), KVASIR_KV_FAILED_PRECONDITION,
               "half written");
  kvasir_kv_visible visible;
  EXPECT_ERROR(kvasir_kv_sequence_visible(sequence, 0, 0, &visible, &error),
               KVASIR_KV_INVALID_ARGUMENT, "recurrent");
  kvasir_kv_sequence_drop_checkpoints(sequence, 100);

  // Checkpoints within a run, of which the last ends it.
  const int64_t kept[] = {12, 13, 15}, twice[] = {12, 12};
  EXPECT_ERROR(kvasir_kv_sequence_keep_states_at(sequence, kept, 3, &error),
               KVASIR_KV_FAILED_PRECONDITION, "reserved");
  kvasir_kv_sequence_unreserve(sequence);
  EXPECT_ERROR(kvasir_kv_sequence_keep_states_at(sequence, twice, 2, &error),
               KVASIR_KV_INVALID_ARGUMENT, "ascending");
  EXPECT_OK(kvasir_kv_sequence_keep_states_at(sequence, kept, 3, &error));
  EXPECT_OK(kvasir_kv_sequence_reserve(sequence, 5, &error));
  int64_t position = 0;
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_OK(kvasir_kv_sequence_inner_state(sequence, 0, i, &position, &writable, &error));
    EXPECT(position == kept[i]);
    memset(writable, (int)position, 256);
  }
  EXPECT_OK(kvasir_kv_sequence_inner_state(sequence, 0, 2, NULL, &writable, &error));
  EXPECT(writable == NULL);
  EXPECT_OK(kvasir_kv_sequence_mutable_state(sequence, 0, &writable, &error));
  memset(writable, 15, 256);
  EXPECT_OK(kvasir_kv_sequence_advance(sequence, 5, &error));
  for (int64_t back = 15; back >= 12; back -= back == 15 ? 2 : 1) {
    EXPECT_OK(kvasir_kv_sequence_state(sequence, 0, &state, &error));
    EXPECT(((const char*)state)[0] == back);
    if (back > 12) EXPECT_OK(kvasir_kv_sequence_trim(sequence, back == 15 ? 2 : 1, NULL, &error));
  }
  EXPECT_OK(kvasir_kv_sequence_destroy(sequence, &error));
  EXPECT_OK(kvasir_kv_pool_destroy(pool, &error));
}

static void TestPolicy(void) {
  kvasir_kv_spec* spec = NULL;
  EXPECT_OK(kvasir_kv_spec_create(&spec, &error));
  for (int i = 0; i < 4; ++i) {
    kvasir_kv_layer_options layer = LayerOptions(NULL, i == 1 ? "window:64" : NULL);
    EXPECT_OK(kvasir_kv_spec_add_layer(spec, &layer, &error));
  }
  kvasir_kv_policy_options policy;
  memset(&policy, 0, sizeof(policy));
  policy.struct_size = sizeof(policy);
  policy.bits = "3.5";
  EXPECT_ERROR(kvasir_kv_spec_apply_policy(spec, &policy, kHeads, &error),
               KVASIR_KV_INVALID_ARGUMENT, "turboquant");
  policy.quant_scheme = "turboquant";
  policy.dense_layers = "none";
  EXPECT_OK(kvasir_kv_spec_apply_policy(spec, &policy, kHeads, &error));
  kvasir_kv_block_layout block = {.struct_size = sizeof(block)};
  EXPECT_OK(kvasir_kv_spec_block_layout(spec, 0, 0, &block, &error));
  EXPECT(strcmp(block.key_codec, "turbo3") == 0 && strcmp(block.value_codec, "turbo4") == 0);
  EXPECT_OK(kvasir_kv_spec_block_layout(spec, 1, 0, &block, &error));
  EXPECT(strcmp(block.key_codec, "f16") == 0);  // a window
  kvasir_kv_spec_destroy(spec);
}

static void TestStructSizes(void) {
  kvasir_kv_pool* pool = NULL;
  kvasir_kv_pool_options options = {0, 1 << 20, 0};
  EXPECT_ERROR(kvasir_kv_pool_create(&options, &pool, &error), KVASIR_KV_INVALID_ARGUMENT,
               "struct_size");
  options.struct_size = sizeof(size_t) + 4;  // half of budget_bytes
  EXPECT_ERROR(kvasir_kv_pool_create(&options, &pool, &error), KVASIR_KV_INVALID_ARGUMENT,
               "struct_size");
  options.struct_size = (size_t)-1;
  EXPECT_ERROR(kvasir_kv_pool_create(&options, &pool, &error), KVASIR_KV_INVALID_ARGUMENT,
               "struct_size");
  // An older caller, without max_slab_bytes.
  options.struct_size = offsetof(kvasir_kv_pool_options, max_slab_bytes);
  options.max_slab_bytes = 1;  // would be one block per slab
  EXPECT_OK(kvasir_kv_pool_create(&options, &pool, &error));
  // An older caller gets the fields it knows, and nothing is written behind them.
  kvasir_kv_pool_stats stats;
  memset(&stats, 7, sizeof(stats));
  stats.struct_size = offsetof(kvasir_kv_pool_stats, reserved_bytes);
  EXPECT_OK(kvasir_kv_pool_get_stats(pool, &stats, &error));
  EXPECT(stats.budget_bytes == 1 << 20 && ((const char*)&stats.reserved_bytes)[0] == 7);
  EXPECT_OK(kvasir_kv_pool_destroy(pool, &error));
  // A newer caller: what this version does not know must be zero.
  struct {
    kvasir_kv_pool_options known;
    size_t unknown;
  } newer = {{sizeof(newer), 1 << 20, 0}, 0};
  EXPECT_OK(kvasir_kv_pool_create(&newer.known, &pool, &error));
  EXPECT_OK(kvasir_kv_pool_destroy(pool, &error));
  newer.unknown = 1;
  EXPECT_ERROR(kvasir_kv_pool_create(&newer.known, &pool, &error), KVASIR_KV_UNSUPPORTED, "update");
}

static void TestRowsOutOfRange(void) {
  kvasir_kv_pool* pool = NewPool((size_t)4 << 20);
  kvasir_kv_sequence* sequence = NewSequence(pool);
  Append(sequence, 300);
  float keys[kRow], values[kRow];
  Row(0, keys, values);
  const kvasir_kv_code invalid = KVASIR_KV_INVALID_ARGUMENT;
  EXPECT_ERROR(kvasir_kv_sequence_write_rows(sequence, 0, 300, keys, kRow, values, kRow, &error),
               invalid, "[300, 300)");
  EXPECT_OK(kvasir_kv_sequence_reserve(sequence, 1, &error));
  EXPECT_ERROR(kvasir_kv_sequence_write_rows(sequence, 0, 299, keys, kRow, values, kRow, &error),
               invalid, "[300, 301)");
  EXPECT_ERROR(
      kvasir_kv_sequence_write_rows(sequence, 0, INT64_MIN, keys, kRow, values, kRow, &error),
      invalid, "[300, 301)");
  EXPECT_ERROR(
      kvasir_kv_sequence_write_rows(sequence, 0, 300, keys, kRow - 1, values, kRow, &error),
      invalid, "keys");
  EXPECT_ERROR(
      kvasir_kv_sequence_write_rows(sequence, 0, 300, keys, kRow, values, kRow - 1, &error),
      invalid, "values");
  EXPECT_ERROR(kvasir_kv_sequence_write_rows(sequence, 2, 300, keys, kRow, values, kRow, &error),
               invalid, "layer 2");
  EXPECT_ERROR(kvasir_kv_sequence_read_rows(sequence, 1, 0, 1, keys, kRow, values, kRow, &error),
               invalid, "[192, 301)");
  EXPECT_ERROR(kvasir_kv_sequence_read_rows(sequence, 0, 300, 2, keys, kRow, values, kRow, &error),
               invalid, "2 rows");
  EXPECT_ERROR(
      kvasir_kv_sequence_read_rows(sequence, 0, 5, INT64_MAX, keys, kRow, values, kRow, &error),
      invalid, "layer 0");
  EXPECT_ERROR(kvasir_kv_sequence_read_rows(sequence, 0, 5, -1, keys, kRow, values, kRow, &error),
               invalid, "layer 0");
  EXPECT_ERROR(kvasir_kv_sequence_read_rows(sequence, 0, 5, 1, keys, 2 * kRow, NULL, 0, &error),
               invalid, "keys");
  EXPECT_ERROR(kvasir_kv_sequence_advance(sequence, 2, &error), invalid, "1 are reserved");
  EXPECT_ERROR(kvasir_kv_sequence_advance(sequence, -1, &error), invalid, "-1");
  EXPECT_ERROR(kvasir_kv_sequence_reserve(sequence, -1, &error), invalid, "-1");
  EXPECT_ERROR(kvasir_kv_sequence_reserve(sequence, INT64_MAX, &error), invalid, "");
  EXPECT_ERROR(kvasir_kv_sequence_trim(sequence, -1, NULL, &error), invalid, "-1");
  kvasir_kv_visible visible;
  EXPECT_ERROR(kvasir_kv_sequence_visible(sequence, -1, 5, &visible, &error), invalid, "layer -1");
  EXPECT_ERROR(kvasir_kv_sequence_visible(sequence, 0, -5, &visible, &error), invalid, "-5");
  EXPECT(kvasir_kv_sequence_position(sequence) == 300);
  EXPECT_OK(kvasir_kv_sequence_destroy(sequence, &error));
  EXPECT_OK(kvasir_kv_pool_destroy(pool, &error));
}

// Every function with NULL for every pointer.
static void TestNull(void) {
  const kvasir_kv_code invalid = KVASIR_KV_INVALID_ARGUMENT;
  EXPECT(kvasir_kv_pool_create(NULL, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_pool_destroy(NULL, NULL) == KVASIR_KV_OK);
  EXPECT(kvasir_kv_pool_get_stats(NULL, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_pool_release_free_slabs(NULL) == 0);
  EXPECT(kvasir_kv_spec_create(NULL, NULL) == invalid);
  kvasir_kv_spec_destroy(NULL);
  EXPECT(kvasir_kv_spec_add_layer(NULL, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_spec_add_shared_layer(NULL, 0, NULL) == invalid);
  EXPECT(kvasir_kv_spec_add_recurrent_layer(NULL, 1, NULL) == invalid);
  EXPECT(kvasir_kv_spec_layer_count(NULL) == -1);
  EXPECT(kvasir_kv_spec_validate(NULL, NULL) == invalid);
  EXPECT(kvasir_kv_spec_token_bytes(NULL) == 0);
  EXPECT(kvasir_kv_spec_bytes_at(NULL, 5) == 0);
  EXPECT(kvasir_kv_spec_block_layout(NULL, 0, 0, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_spec_recent_layout(NULL, 0, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_spec_apply_policy(NULL, NULL, 1, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_run_limit(NULL) == -1);
  EXPECT(kvasir_kv_sequence_evicted(NULL) == -1);
  EXPECT(kvasir_kv_sequence_compact(NULL, 0, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_row_of(NULL, 0, 0, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_row_positions(NULL, 0, NULL, 0, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_recent_blocks(NULL, 0, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_state(NULL, 0, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_mutable_state(NULL, 0, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_checkpoint(NULL, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_keep_states_at(NULL, NULL, 0, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_inner_state(NULL, 0, 0, NULL, NULL, NULL) == invalid);
  kvasir_kv_sequence_drop_checkpoints(NULL, 0);
  EXPECT(kvasir_kv_snapshot_evicted(NULL) == -1);
  EXPECT(kvasir_kv_sequence_create(NULL, NULL, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_destroy(NULL, NULL) == KVASIR_KV_OK);
  EXPECT(kvasir_kv_sequence_fork(NULL, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_reserve(NULL, 1, NULL) == invalid);
  EXPECT(kvasir_kv_reserve_all(NULL, NULL, 1, NULL) == invalid);
  EXPECT(kvasir_kv_reserve_all(NULL, NULL, 0, NULL) == KVASIR_KV_OK);
  kvasir_kv_sequence_unreserve(NULL);
  EXPECT(kvasir_kv_sequence_advance(NULL, 1, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_trim(NULL, 1, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_max_trim(NULL) == -1);
  EXPECT(kvasir_kv_sequence_position(NULL) == -1);
  EXPECT(kvasir_kv_sequence_reserved_end(NULL) == -1);
  EXPECT(kvasir_kv_sequence_nbytes(NULL) == 0);
  EXPECT(kvasir_kv_sequence_nbytes_exclusive(NULL) == 0);
  EXPECT(kvasir_kv_sequence_write_rows(NULL, 0, 0, NULL, 0, NULL, 0, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_read_rows(NULL, 0, 0, 0, NULL, 0, NULL, 0, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_visible(NULL, 0, 0, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_blocks(NULL, 0, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_dlpack_block(NULL, 0, KVASIR_KV_KEYS, 0, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_sequence_dlpack_rows(NULL, 0, KVASIR_KV_KEYS, 0, 0, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_snapshot_take(NULL, 0, 0, NULL, NULL) == invalid);
  kvasir_kv_snapshot_destroy(NULL);
  EXPECT(kvasir_kv_snapshot_begin(NULL) == -1);
  EXPECT(kvasir_kv_snapshot_end(NULL) == -1);
  EXPECT(kvasir_kv_snapshot_nbytes(NULL) == 0);
  EXPECT(kvasir_kv_snapshot_nbytes_exclusive(NULL) == 0);
  EXPECT(kvasir_kv_snapshot_split(NULL, 0, NULL, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_snapshot_merge(NULL, NULL, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_snapshot_restore(NULL, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_snapshot_set_tokens(NULL, NULL, 0, NULL) == invalid);
  EXPECT(kvasir_kv_snapshot_set_value(NULL, NULL, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_snapshot_tokens(NULL, NULL, 0) == -1);
  EXPECT(kvasir_kv_snapshot_value(NULL, NULL) == NULL);
  EXPECT(kvasir_kv_snapshot_save(NULL, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_snapshot_load(NULL, NULL, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_batch_create(NULL, NULL) == invalid);
  EXPECT(kvasir_kv_batch_destroy(NULL, NULL) == KVASIR_KV_OK);
  EXPECT(kvasir_kv_batch_size(NULL) == -1);
  EXPECT(kvasir_kv_batch_ids(NULL, NULL, 0) == -1);
  EXPECT(kvasir_kv_batch_find(NULL, 0) == NULL);
  EXPECT(kvasir_kv_batch_add(NULL, 0, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_batch_filter(NULL, NULL, 0, NULL) == invalid);
  EXPECT(kvasir_kv_batch_extend(NULL, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_batch_extract(NULL, 0, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_batch_reserve_each(NULL, NULL, 0, NULL) == invalid);
  EXPECT(kvasir_kv_batch_trim_each(NULL, NULL, 0, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_batch_nbytes(NULL) == 0);
  EXPECT(kvasir_kv_speculation_begin(NULL, 1, NULL, NULL) == invalid);
  EXPECT(kvasir_kv_speculation_appended(NULL, 0) == -1);
  EXPECT(kvasir_kv_speculation_commit(NULL, NULL, 0, NULL) == invalid);
  kvasir_kv_speculation_rollback(NULL);
  kvasir_kv_speculation_destroy(NULL);
}

// Sequences, snapshots and batches of two pools do not mix.
static void TestOtherPool(void) {
  kvasir_kv_pool* pools[] = {NewPool((size_t)1 << 20), NewPool((size_t)1 << 20)};
  kvasir_kv_sequence* sequences[] = {NewSequence(pools[0]), NewSequence(pools[1])};
  const int64_t tokens[] = {1, 1};
  EXPECT_ERROR(kvasir_kv_reserve_all(sequences, tokens, 2, &error), KVASIR_KV_INVALID_ARGUMENT,
               "pools");
  kvasir_kv_batch* batch = NULL;
  EXPECT_OK(kvasir_kv_batch_create(&batch, &error));
  EXPECT_OK(kvasir_kv_batch_add(batch, 1, sequences[0], &error));
  EXPECT_ERROR(kvasir_kv_batch_add(batch, 2, sequences[1], &error), KVASIR_KV_INVALID_ARGUMENT,
               "pool");
  EXPECT_OK(kvasir_kv_sequence_destroy(sequences[1], &error));
  EXPECT_OK(kvasir_kv_pool_destroy(pools[1], &error));
  EXPECT_OK(kvasir_kv_batch_destroy(batch, &error));
  EXPECT_OK(kvasir_kv_pool_destroy(pools[0], &error));
}

static void TestDlpack(void) {
  kvasir_kv_pool* pool = NewPool((size_t)4 << 20);
  kvasir_kv_sequence* sequence = NewSequence(pool);
  Append(sequence, 70);
  struct DLManagedTensor *block = NULL, *rows = NULL;
  EXPECT_OK(kvasir_kv_sequence_dlpack_block(sequence, 0, KVASIR_KV_KEYS, 1, &block, &error));
  EXPECT_OK(kvasir_kv_sequence_dlpack_rows(sequence, 0, KVASIR_KV_VALUES, 60, 70, &rows, &error));
  EXPECT_ERROR(kvasir_kv_sequence_dlpack_rows(sequence, 0, 2, 0, 1, &rows, &error),
               KVASIR_KV_INVALID_ARGUMENT, "part");
  EXPECT(block->dl_tensor.shape[0] == kHeads && block->dl_tensor.shape[1] == 6);
  EXPECT(((const float*)block->dl_tensor.data)[5] == 19.0f);  // dim 0 of row 69
  EXPECT(rows->dl_tensor.shape[0] == 10);
  EXPECT(((const float*)rows->dl_tensor.data)[9 * kRow] == -19.0f);
  EXPECT_OK(kvasir_kv_sequence_destroy(sequence, &error));
  EXPECT_ERROR(kvasir_kv_pool_destroy(pool, &error), KVASIR_KV_FAILED_PRECONDITION, "2 ");
  block->deleter(block);
  rows->deleter(rows);
  EXPECT_OK(kvasir_kv_pool_destroy(pool, &error));
}

int main(void) {
  EXPECT(kvasir_kv_abi_version() == KVASIR_KV_ABI_VERSION);
  TestSequence();
  TestBudgetRefusesAndChangesNothing();
  TestSnapshot();
  TestSnapshotFile();
  TestBatch();
  TestSpeculation();
  TestSpec();
  TestSharedAndRecurrentLayers();
  TestBudgetAndRecentRows();
  TestRecurrentState();
  TestPolicy();
  TestStructSizes();
  TestRowsOutOfRange();
  TestNull();
  TestOtherPool();
  TestDlpack();
  if (failures == 0) printf("the C ABI holds\n");
  return failures == 0 ? 0 : 1;
}
