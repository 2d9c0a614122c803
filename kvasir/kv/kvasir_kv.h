// The KV cache as a C ABI, for C programs and for bindings of other languages.
// Deliberately thin: what an operation means and costs is in kv_sequence.h and docs/kv-cache.md.
//
// Rules that hold for every function here
// - Handles are opaque. `..._create` and other functions with an out parameter give one, which the
//   caller ends with its `..._destroy`; destroying NULL is a no-op. Using a handle after it was
//   destroyed, or one that this library did not make, is undefined.
// - What can fail returns a code and, where `error` is not NULL, fills it. After an error the
//   objects are as before and out parameters are untouched, unless said otherwise. NULL handles,
//   wrong sizes and ranges, and destroying in the wrong order are errors, never crashes.
// - Only where the system itself, and not a pool's budget, is out of memory, RESOURCE_EXHAUSTED may
//   leave objects changed, though usable, or the process may end.
// - What cannot fail returns its value; a NULL handle gives -1 (counts, positions) or 0 (bytes).
// - No function throws, prints or keeps a pointer to its arguments, spans included.
// - Structs begin with struct_size, which the caller sets to sizeof. Fields that a caller compiled
//   against an older header does not have are zero, which is always their neutral value.
// - THREADS: one thread at a time uses a pool and all that was made from it.
// - Shapes are row-major; `layer` counts from 0; `rows` are what one token stores in one layer.
//   Row numbers are positions, except in layers with a budget once that has evicted rows.
#ifndef KVASIR_KV_KVASIR_KV_H_
#define KVASIR_KV_KVASIR_KV_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Grows by one when a change is not backward compatible. Compare it with kvasir_kv_abi_version().
#define KVASIR_KV_ABI_VERSION 1
int32_t kvasir_kv_abi_version(void);

typedef enum kvasir_kv_code {
  KVASIR_KV_OK = 0,
  KVASIR_KV_INVALID_ARGUMENT = 1,     // the call is wrong: fix it
  KVASIR_KV_NOT_FOUND = 2,            // a file or id does not exist
  KVASIR_KV_CORRUPT = 3,              // a file exists and is malformed
  KVASIR_KV_UNSUPPORTED = 4,          // well-formed, but this version cannot do it
  KVASIR_KV_RESOURCE_EXHAUSTED = 5,   // the pool's budget is full
  KVASIR_KV_FAILED_PRECONDITION = 6,  // the object's state does not allow it
  KVASIR_KV_IO = 7,                   // the operating system refused
  KVASIR_KV_CANCELLED = 8,
  KVASIR_KV_INTERNAL = 9,  // a defect of this library
} kvasir_kv_code;

// One sentence that says what is wrong and what to do, NUL-terminated UTF-8, cut at the buffer's
// end.
typedef struct kvasir_kv_error {
  kvasir_kv_code code;
  char message[508];
} kvasir_kv_error;

typedef struct kvasir_kv_pool kvasir_kv_pool;
typedef struct kvasir_kv_spec kvasir_kv_spec;
typedef struct kvasir_kv_sequence kvasir_kv_sequence;
typedef struct kvasir_kv_snapshot kvasir_kv_snapshot;
typedef struct kvasir_kv_batch kvasir_kv_batch;
typedef struct kvasir_kv_speculation kvasir_kv_speculation;
struct DLManagedTensor;  // as in dlpack.h

// ---- Pool: the memory of caches, under one budget in bytes (kv_pool.h) --------------------------

typedef struct kvasir_kv_pool_options {
  size_t struct_size;
  size_t budget_bytes;    // all slabs together never exceed it
  size_t max_slab_bytes;  // 0: 64 MiB
} kvasir_kv_pool_options;

typedef struct kvasir_kv_pool_stats {
  size_t struct_size;
  size_t budget_bytes;
  size_t reserved_bytes;  // slabs
  size_t used_bytes;      // blocks in use, shared ones once
  size_t peak_used_bytes;
  uint64_t copied_bytes;  // copies of K or V since creation
  uint64_t growth_events;
} kvasir_kv_pool_stats;

kvasir_kv_code kvasir_kv_pool_create(const kvasir_kv_pool_options* options, kvasir_kv_pool** pool,
                                     kvasir_kv_error* error);
// FAILED_PRECONDITION while sequences, snapshots or tensors of it live.
kvasir_kv_code kvasir_kv_pool_destroy(kvasir_kv_pool* pool, kvasir_kv_error* error);
// REQUIRES: stats->struct_size is set.
kvasir_kv_code kvasir_kv_pool_get_stats(const kvasir_kv_pool* pool, kvasir_kv_pool_stats* stats,
                                        kvasir_kv_error* error);
// Gives empty slabs back to the system; returns their bytes.
size_t kvasir_kv_pool_release_free_slabs(kvasir_kv_pool* pool);

// ---- Spec: layout, codecs and retention of every layer (kv_spec.h) ------------------------------

typedef struct kvasir_kv_layer_options {
  size_t struct_size;
  int32_t kv_heads;
  int32_t key_dim;          // elements of one head
  int32_t value_dim;        // 0: key_dim
  int32_t key_norms;        // not 0: rows carry their key norms, for the score knorm
  const char* key_codec;    // "f32", "f16", "bf16", "affine4:64", "turbo3", ...; NULL: "f16"
  const char* value_codec;  // NULL: "f16"
  const char* retention;  // "all", "window:512,keep=4", "chunk:8192", "budget:1024,..."; NULL: all
  const char* dense_codec;  // of the rows that dense_start and dense_recent name; NULL: "f16"
  int64_t dense_start;      // rows below it are stored in dense_codec; a multiple of 64
  int64_t dense_recent;     // that many last rows are also kept in dense_codec; a multiple of 64
  // Queries of a token that block observed_block carries, for scores that need queries.
  int64_t observed_block;
  int32_t query_floats;   // 0: none, and observed_block means nothing
  const float* inv_freq;  // [key_dim / 2], for expected-attention and from-value keys; NULL: none
  const float* key_norm;  // [key_dim], for from-value keys; NULL: none
} kvasir_kv_layer_options;

kvasir_kv_code kvasir_kv_spec_create(kvasir_kv_spec** spec, kvasir_kv_error* error);
void kvasir_kv_spec_destroy(kvasir_kv_spec* spec);
// Appends a layer.
kvasir_kv_code kvasir_kv_spec_add_layer(kvasir_kv_spec* spec,
                                        const kvasir_kv_layer_options* options,
                                        kvasir_kv_error* error);
// Appends a layer that reads the rows of an earlier `layer`.
kvasir_kv_code kvasir_kv_spec_add_shared_layer(kvasir_kv_spec* spec, int32_t layer,
                                               kvasir_kv_error* error);
// Appends a recurrent layer: a state of so many bytes and no rows.
kvasir_kv_code kvasir_kv_spec_add_recurrent_layer(kvasir_kv_spec* spec, size_t state_bytes,
                                                  kvasir_kv_error* error);
int32_t kvasir_kv_spec_layer_count(const kvasir_kv_spec* spec);
// Sequences check it themselves; this is to know earlier.
kvasir_kv_code kvasir_kv_spec_validate(const kvasir_kv_spec* spec, kvasir_kv_error* error);
// Bytes that one token adds over all layers.
size_t kvasir_kv_spec_token_bytes(const kvasir_kv_spec* spec);
// Bytes of the blocks a sequence holds at `position`; 0 if the spec is invalid.
size_t kvasir_kv_spec_bytes_at(const kvasir_kv_spec* spec, int64_t position);

// Where things lie in one block (64 rows) of a layer, in bytes; docs of kv_codec.h and kv_layout.h.
typedef struct kvasir_kv_block_layout {
  size_t struct_size;
  size_t block_bytes;
  size_t key_head_bytes;  // keys begin at 0: [kv_heads] heads of so many bytes
  size_t values_offset;   // values: [kv_heads] heads
  size_t value_head_bytes;
  size_t norms_offset;    // f32 [64], if the layer has key norms
  size_t queries_offset;  // f32 [64][query_floats], in the observed block
  char key_codec[32];
  char value_codec[32];
} kvasir_kv_block_layout;

// How the cache of any model is to be stored: what flags of a program say (kv_policy_flags.h has
// each in full). NULL and 0 are the defaults; -1 stands for 0 where 0 is not the default.
typedef struct kvasir_kv_policy_options {
  size_t struct_size;
  const char* bits;                // "4", "3.5", ...; NULL: 16 bit
  const char* key_bits;            // overrides bits
  const char* value_bits;          // overrides bits
  const char* quant_scheme;        // "uniform", "rotated" or "turboquant"; NULL: uniform
  const char* dtype;               // "f32", "f16" or "bf16", of what is not quantized; NULL: f16
  const char* key_dtype;           // of keys, which are then not quantized
  const char* value_dtype;         // of values, likewise
  const char* dense_layers;        // "auto", "none" or "0,1,27"; NULL: auto
  const char* window_layers;       // "dense" or "packed"; NULL: dense
  int64_t group_size;              // 0: 64
  int64_t quantized_start;         // positions below stay 16 bit
  int64_t dense_recent;            // the latest rows stay 16 bit
  int64_t budget;                  // rows that each full-attention layer keeps; 0: all
  int64_t keep_first;              // 0: 4
  int64_t keep_recent;             // 0: 128, or all but a block of a budget that is smaller
  int64_t compact_interval;        // 0: 256
  const char* score;               // "keydiff", "knorm", ...; NULL: keydiff
  const char* budget_skip_layers;  // indices of layers that keep every row
  int32_t budget_per_layer;        // not 0: each layer keeps its own rows
} kvasir_kv_policy_options;

// Replaces codecs and budgets of all layers. query_heads: per layer, for scores that need queries.
kvasir_kv_code kvasir_kv_spec_apply_policy(kvasir_kv_spec* spec,
                                           const kvasir_kv_policy_options* options,
                                           int32_t query_heads, kvasir_kv_error* error);

// Of block `block` (rows [64 block, 64 block + 64)) of a layer that has rows.
kvasir_kv_code kvasir_kv_spec_block_layout(const kvasir_kv_spec* spec, int32_t layer, int64_t block,
                                           kvasir_kv_block_layout* layout, kvasir_kv_error* error);
// Of the blocks that hold a layer's last rows once more. INVALID_ARGUMENT without dense_recent.
kvasir_kv_code kvasir_kv_spec_recent_layout(const kvasir_kv_spec* spec, int32_t layer,
                                            kvasir_kv_block_layout* layout, kvasir_kv_error* error);

// ---- Sequence: reserve, write, attend, advance (kv_sequence.h) ----------------------------------

// The spec is copied and may be changed or destroyed afterwards.
kvasir_kv_code kvasir_kv_sequence_create(kvasir_kv_pool* pool, const kvasir_kv_spec* spec,
                                         kvasir_kv_sequence** sequence, kvasir_kv_error* error);
// FAILED_PRECONDITION while it is in a batch or in an open speculation.
kvasir_kv_code kvasir_kv_sequence_destroy(kvasir_kv_sequence* sequence, kvasir_kv_error* error);
// An independent sequence that shares all blocks. Copies no row.
kvasir_kv_code kvasir_kv_sequence_fork(const kvasir_kv_sequence* sequence,
                                       kvasir_kv_sequence** fork, kvasir_kv_error* error);

// Makes the rows [position, position + tokens) of every layer writable, or changes nothing.
kvasir_kv_code kvasir_kv_sequence_reserve(kvasir_kv_sequence* sequence, int64_t tokens,
                                          kvasir_kv_error* error);
// The same for `count` different sequences of one pool: all of them or none.
kvasir_kv_code kvasir_kv_reserve_all(kvasir_kv_sequence* const* sequences, const int64_t* tokens,
                                     size_t count, kvasir_kv_error* error);
// The position stays and what was reserved after it is free again. A recurrent state that was
// written meanwhile stays written: take a checkpoint before, and trim to it.
void kvasir_kv_sequence_unreserve(kvasir_kv_sequence* sequence);
// The rows are written. INVALID_ARGUMENT beyond what is reserved.
kvasir_kv_code kvasir_kv_sequence_advance(kvasir_kv_sequence* sequence, int64_t tokens,
                                          kvasir_kv_error* error);
// Removes the last min(tokens, position) tokens; `trimmed` (may be NULL) says how many.
// FAILED_PRECONDITION where what is needed is gone: never up to max_trim, beyond it unless the rows
// that a window keeps at its beginning are all that is left.
kvasir_kv_code kvasir_kv_sequence_trim(kvasir_kv_sequence* sequence, int64_t tokens,
                                       int64_t* trimmed, kvasir_kv_error* error);
int64_t kvasir_kv_sequence_max_trim(const kvasir_kv_sequence* sequence);
int64_t kvasir_kv_sequence_position(const kvasir_kv_sequence* sequence);
int64_t kvasir_kv_sequence_reserved_end(const kvasir_kv_sequence* sequence);
// How many tokens may be reserved before a budget is full, which is where runs are cut.
int64_t kvasir_kv_sequence_run_limit(const kvasir_kv_sequence* sequence);
size_t kvasir_kv_sequence_nbytes(const kvasir_kv_sequence* sequence);
size_t kvasir_kv_sequence_nbytes_exclusive(const kvasir_kv_sequence* sequence);

// Evicts rows of every budget that stores more than its size + slack_rows, down to its size, and
// drops the reservation, whose blocks count as used until then; `compacted` (may be NULL) says
// whether there was one. Reserve does it by itself where budgets have an interval.
// FAILED_PRECONDITION without a budget.
kvasir_kv_code kvasir_kv_sequence_compact(kvasir_kv_sequence* sequence, int64_t slack_rows,
                                          int32_t* compacted, kvasir_kv_error* error);
// 1 once rows were ever evicted, otherwise 0.
int32_t kvasir_kv_sequence_evicted(const kvasir_kv_sequence* sequence);
// The row of a position. INVALID_ARGUMENT below the last compaction of the layer.
kvasir_kv_code kvasir_kv_sequence_row_of(const kvasir_kv_sequence* sequence, int32_t layer,
                                         int64_t position, int64_t* row, kvasir_kv_error* error);
// The positions of the first `capacity` rows that the layer stores, by row; `stored_rows` (may be
// NULL) is how many rows it stores.
kvasir_kv_code kvasir_kv_sequence_row_positions(const kvasir_kv_sequence* sequence, int32_t layer,
                                                int64_t* positions, size_t capacity,
                                                int64_t* stored_rows, kvasir_kv_error* error);

// Encodes rows from first_row on: keys [rows, kv_heads, key_dim], values [rows, kv_heads,
// value_dim], both with their number of floats. INVALID_ARGUMENT unless the sizes agree and the
// rows are within what is reserved.
kvasir_kv_code kvasir_kv_sequence_write_rows(kvasir_kv_sequence* sequence, int32_t layer,
                                             int64_t first_row, const float* keys,
                                             size_t key_floats, const float* values,
                                             size_t value_floats, kvasir_kv_error* error);
// Decodes `rows` rows from first_row on. The sizes must be exact; NULL with 0 floats leaves keys
// or values out. INVALID_ARGUMENT for rows that are not held.
kvasir_kv_code kvasir_kv_sequence_read_rows(const kvasir_kv_sequence* sequence, int32_t layer,
                                            int64_t first_row, int64_t rows, float* keys,
                                            size_t key_floats, float* values, size_t value_floats,
                                            kvasir_kv_error* error);

// Rows [0, head_end) and [begin, end).
typedef struct kvasir_kv_visible {
  int64_t head_end;
  int64_t begin;
  int64_t end;
} kvasir_kv_visible;

// What the token at position `query` attends to in `layer`.
kvasir_kv_code kvasir_kv_sequence_visible(const kvasir_kv_sequence* sequence, int32_t layer,
                                          int64_t query, kvasir_kv_visible* visible,
                                          kvasir_kv_error* error);

// blocks[i] holds rows [64 (first_block + i), ...) and head[i] rows [64 i, ...) below them. Bytes
// of rows in [position, reserved_end) may be written, those before only read.
typedef struct kvasir_kv_blocks {
  size_t struct_size;
  void* const* blocks;
  int64_t block_count;
  int64_t first_block;
  void* const* head;
  int64_t head_count;
} kvasir_kv_blocks;

// For own kernels: the addresses of the blocks that `layer` reads. Valid until the sequence's next
// change. REQUIRES: blocks->struct_size is set.
kvasir_kv_code kvasir_kv_sequence_blocks(kvasir_kv_sequence* sequence, int32_t layer,
                                         kvasir_kv_blocks* blocks, kvasir_kv_error* error);
// The same for the last rows once more: the query of row r reads rows from
// max(0, (r + 1 - dense_recent) / 64 * 64) on here. Nothing without dense_recent.
kvasir_kv_code kvasir_kv_sequence_recent_blocks(kvasir_kv_sequence* sequence, int32_t layer,
                                                kvasir_kv_blocks* blocks, kvasir_kv_error* error);

// The state of a recurrent layer at the sequence's position; NULL in `state` while it is all zero.
kvasir_kv_code kvasir_kv_sequence_state(const kvasir_kv_sequence* sequence, int32_t layer,
                                        const void** state, kvasir_kv_error* error);
// To be made the state that the next advance reaches. FAILED_PRECONDITION unless tokens are
// reserved.
kvasir_kv_code kvasir_kv_sequence_mutable_state(kvasir_kv_sequence* sequence, int32_t layer,
                                                void** state, kvasir_kv_error* error);
// `count` positions, strictly ascending, at which coming runs leave checkpoints: reserve takes
// memory for the states at those within its run, advance makes checkpoints of them. Replaces what
// was asked for before; positions that are passed are forgotten. FAILED_PRECONDITION while tokens
// are reserved.
kvasir_kv_code kvasir_kv_sequence_keep_states_at(kvasir_kv_sequence* sequence,
                                                 const int64_t* positions, size_t count,
                                                 kvasir_kv_error* error);
// The index-th state within the reserved run, in ascending order, which is to be written on the way
// to that of mutable_state, by a run that is shorter only if it lies before its end; NULL in
// `state` behind the last. `position` may be NULL.
kvasir_kv_code kvasir_kv_sequence_inner_state(const kvasir_kv_sequence* sequence, int32_t layer,
                                              size_t index, int64_t* position, void** state,
                                              kvasir_kv_error* error);
// Remembers the states at this position, so that trim and snapshots can come back to it.
kvasir_kv_code kvasir_kv_sequence_checkpoint(kvasir_kv_sequence* sequence, kvasir_kv_error* error);
// Forgets the checkpoints below `position`.
void kvasir_kv_sequence_drop_checkpoints(kvasir_kv_sequence* sequence, int64_t position);

typedef enum kvasir_kv_part { KVASIR_KV_KEYS = 0, KVASIR_KV_VALUES = 1 } kvasir_kv_part;

// Rows as DLPack tensors (dlpack_view.h); part: a kvasir_kv_part. The caller ends them with their
// deleter, on this thread and before the pool. The written rows of one block, without a copy:
// [kv_heads, rows, dim], strided, not to be written. UNSUPPORTED if the block is stored in a packed
// codec.
kvasir_kv_code kvasir_kv_sequence_dlpack_block(const kvasir_kv_sequence* sequence, int32_t layer,
                                               int32_t part, int64_t block,
                                               struct DLManagedTensor** tensor,
                                               kvasir_kv_error* error);
// Rows [begin, end) of any codec, decoded: f32 [rows, kv_heads, dim].
kvasir_kv_code kvasir_kv_sequence_dlpack_rows(const kvasir_kv_sequence* sequence, int32_t layer,
                                              int32_t part, int64_t begin, int64_t end,
                                              struct DLManagedTensor** tensor,
                                              kvasir_kv_error* error);

// ---- Snapshot: a slice of a sequence's past (kv_snapshot.h) -------------------------------------

// What every layer holds of [begin, end). Copies no row.
kvasir_kv_code kvasir_kv_snapshot_take(const kvasir_kv_sequence* sequence, int64_t begin,
                                       int64_t end, kvasir_kv_snapshot** snapshot,
                                       kvasir_kv_error* error);
void kvasir_kv_snapshot_destroy(kvasir_kv_snapshot* snapshot);
int64_t kvasir_kv_snapshot_begin(const kvasir_kv_snapshot* snapshot);
int64_t kvasir_kv_snapshot_end(const kvasir_kv_snapshot* snapshot);
// 1 if rows were evicted before it was taken, otherwise 0.
int32_t kvasir_kv_snapshot_evicted(const kvasir_kv_snapshot* snapshot);
size_t kvasir_kv_snapshot_nbytes(const kvasir_kv_snapshot* snapshot);
size_t kvasir_kv_snapshot_nbytes_exclusive(const kvasir_kv_snapshot* snapshot);
// [begin, at) and [at, end), both or none. INVALID_ARGUMENT within rows that were compacted.
kvasir_kv_code kvasir_kv_snapshot_split(const kvasir_kv_snapshot* snapshot, int64_t at,
                                        kvasir_kv_snapshot** left, kvasir_kv_snapshot** right,
                                        kvasir_kv_error* error);
// [a.begin, b.end). INVALID_ARGUMENT unless a.end == b.begin, with one spec and pool.
kvasir_kv_code kvasir_kv_snapshot_merge(const kvasir_kv_snapshot* a, const kvasir_kv_snapshot* b,
                                        kvasir_kv_snapshot** merged, kvasir_kv_error* error);
// A sequence at the snapshot's end. FAILED_PRECONDITION, with the layer, if it lacks rows.
kvasir_kv_code kvasir_kv_snapshot_restore(const kvasir_kv_snapshot* snapshot,
                                          kvasir_kv_sequence** sequence, kvasir_kv_error* error);

// What a file says of a snapshot, beside its rows: the tokens of [begin, end), or none, and values
// under names. They belong to this handle: split, merge and restore do not carry them on.
// INVALID_ARGUMENT unless there are 0 or end - begin tokens.
kvasir_kv_code kvasir_kv_snapshot_set_tokens(kvasir_kv_snapshot* snapshot, const int32_t* tokens,
                                             size_t count, kvasir_kv_error* error);
// Replaces the value of that name; both UTF-8. NULL: there is none any more.
kvasir_kv_code kvasir_kv_snapshot_set_value(kvasir_kv_snapshot* snapshot, const char* name,
                                            const char* value, kvasir_kv_error* error);
// The first `capacity` tokens; returns how many there are.
int64_t kvasir_kv_snapshot_tokens(const kvasir_kv_snapshot* snapshot, int32_t* tokens,
                                  size_t capacity);
// NULL if there is none. Valid until the values change.
const char* kvasir_kv_snapshot_value(const kvasir_kv_snapshot* snapshot, const char* name);

// A file of one snapshot, with checksums (snapshot_file.h); it appears when it is complete.
kvasir_kv_code kvasir_kv_snapshot_save(const kvasir_kv_snapshot* snapshot, const char* path,
                                       kvasir_kv_error* error);
// The same bits again. NOT_FOUND, CORRUPT, UNSUPPORTED, RESOURCE_EXHAUSTED, IO.
kvasir_kv_code kvasir_kv_snapshot_load(kvasir_kv_pool* pool, const char* path,
                                       kvasir_kv_snapshot** snapshot, kvasir_kv_error* error);

// ---- Batch: sequences under ids, moved and never padded (kv_batch.h) ----------------------------

kvasir_kv_code kvasir_kv_batch_create(kvasir_kv_batch** batch, kvasir_kv_error* error);
// Ends its sequences too. FAILED_PRECONDITION while one is in an open speculation.
kvasir_kv_code kvasir_kv_batch_destroy(kvasir_kv_batch* batch, kvasir_kv_error* error);
int64_t kvasir_kv_batch_size(const kvasir_kv_batch* batch);
// The first `capacity` ids in order; returns the batch's size.
int64_t kvasir_kv_batch_ids(const kvasir_kv_batch* batch, uint64_t* ids, size_t capacity);
// NULL if there is none. The handle stays the batch's.
kvasir_kv_sequence* kvasir_kv_batch_find(const kvasir_kv_batch* batch, uint64_t id);
// The batch takes over: the handle stays valid while the sequence is in it, and only the batch
// ends it.
kvasir_kv_code kvasir_kv_batch_add(kvasir_kv_batch* batch, uint64_t id,
                                   kvasir_kv_sequence* sequence, kvasir_kv_error* error);
// Keeps exactly these, in that order; the others end and their handles are gone.
kvasir_kv_code kvasir_kv_batch_filter(kvasir_kv_batch* batch, const uint64_t* ids, size_t count,
                                      kvasir_kv_error* error);
// Appends all sequences of `other`, which is empty afterwards. Their handles stay valid.
kvasir_kv_code kvasir_kv_batch_extend(kvasir_kv_batch* batch, kvasir_kv_batch* other,
                                      kvasir_kv_error* error);
// Takes a sequence out; the caller ends it.
kvasir_kv_code kvasir_kv_batch_extract(kvasir_kv_batch* batch, uint64_t id,
                                       kvasir_kv_sequence** sequence, kvasir_kv_error* error);
// Reserves tokens[i] for the i-th sequence: all or none.
kvasir_kv_code kvasir_kv_batch_reserve_each(kvasir_kv_batch* batch, const int64_t* tokens,
                                            size_t count, kvasir_kv_error* error);

typedef struct kvasir_kv_trim_report {
  uint64_t id;
  int64_t trimmed;
  kvasir_kv_error refusal;  // code OK unless this sequence refused; then nothing was removed
} kvasir_kv_trim_report;

// Trims the i-th sequence by counts[i]; one that refuses does not keep others from it. `reports`
// has `count` entries.
kvasir_kv_code kvasir_kv_batch_trim_each(kvasir_kv_batch* batch, const int64_t* counts,
                                         size_t count, kvasir_kv_trim_report* reports,
                                         kvasir_kv_error* error);
// Blocks shared between its sequences count once.
size_t kvasir_kv_batch_nbytes(const kvasir_kv_batch* batch);

// ---- Speculation: append drafts, keep a different length of each, or nothing (speculation.h) ----

// Opens on different sequences. Until it is closed they cannot be destroyed, added to a batch or
// taken out of one, and release no rows.
kvasir_kv_code kvasir_kv_speculation_begin(kvasir_kv_sequence* const* sequences, size_t count,
                                           kvasir_kv_speculation** speculation,
                                           kvasir_kv_error* error);
// Tokens appended to the i-th sequence since; -1 if it is closed or i is too large.
int64_t kvasir_kv_speculation_appended(const kvasir_kv_speculation* speculation, size_t i);
// Keeps accepted[i] tokens of the i-th sequence, drops the rest, and closes. After an error it is
// still open.
kvasir_kv_code kvasir_kv_speculation_commit(kvasir_kv_speculation* speculation,
                                            const int64_t* accepted, size_t count,
                                            kvasir_kv_error* error);
// Drops everything appended since, and closes.
void kvasir_kv_speculation_rollback(kvasir_kv_speculation* speculation);
// Rolls back if it is open.
void kvasir_kv_speculation_destroy(kvasir_kv_speculation* speculation);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // KVASIR_KV_KVASIR_KV_H_
