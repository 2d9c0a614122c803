#include "kvasir/model/latent_attention.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace kvasir {
namespace {

using Buffer = Workspace::Buffer;

// Elements that turn in pairs of neighbours: the first of every pair, then the second ones.
void AppendTurning(int64_t begin, int64_t count, std::vector<int64_t>* rows) {
  for (const int64_t member : {0, 1}) {
    for (int64_t i = member; i < count; i += 2) rows->push_back(begin + i);
  }
}

// Two halves of `from`, [plain] and [turning], to their places in a head.
void JoinHead(const float* plain, int64_t plain_dim, const float* turning, int64_t turning_dim,
              float* head) {
  for (const int64_t half : {0, 1}) {
    head = std::copy_n(turning + half * turning_dim / 2, turning_dim / 2, head);
    head = std::copy_n(plain + half * plain_dim / 2, plain_dim / 2, head);
  }
}

// What does not turn.
void TakePlain(const float* head, int64_t plain_dim, int64_t turning_dim, float* plain) {
  const int64_t half = plain_dim / 2;
  plain = std::copy_n(head + turning_dim / 2, half, plain);
  std::copy_n(head + turning_dim + half, half, plain);
}

// Columns [begin, begin + count).
FloatRows Columns(FloatRows all, int64_t begin, int64_t count) {
  return {all.data + begin, all.rows, count, all.stride};
}

}  // namespace

Result<LatentAttention> LatentAttention::Load(const DecoderSpec& spec, const std::string& prefix,
                                              WeightSource& source) {
  const LatentSpec& latent = spec.latent;
  LatentAttention attention;
  KVASIR_TRY_OK(attention.LoadQueries(spec, prefix, source));
  std::vector<int64_t> rows(static_cast<size_t>(latent.kv_rank));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  AppendTurning(latent.kv_rank, latent.rotary_dim, &rows);
  KVASIR_TRY(attention.latent_.weights,
             source.Gathered(prefix + "kv_a_proj_with_mqa.weight",
                             latent.kv_rank + latent.rotary_dim, spec.hidden_size, rows, false));
  KVASIR_TRY(attention.latent_norm_,
             source.Vector(prefix + "kv_a_layernorm.weight", latent.kv_rank, 0));
  KVASIR_TRY_OK(attention.LoadHeads(spec, prefix, source));
  return attention;
}

Status LatentAttention::LoadQueries(const DecoderSpec& spec, const std::string& prefix,
                                    WeightSource& source) {
  const LatentSpec& latent = spec.latent;
  const int64_t head_dim = latent.plain_dim + latent.rotary_dim;
  std::string name = "q_proj.weight";
  int64_t inputs = spec.hidden_size;
  if (latent.query_rank > 0) {
    KVASIR_TRY(query_down_.weights,
               source.Matrix(prefix + "q_a_proj.weight", latent.query_rank, spec.hidden_size));
    KVASIR_TRY(query_norm_, source.Vector(prefix + "q_a_layernorm.weight", latent.query_rank, 0));
    name = "q_b_proj.weight";
    inputs = latent.query_rank;
  }
  std::vector<int64_t> rows;
  for (int64_t head = 0; head < spec.query_heads; ++head) {
    for (int64_t i = 0; i < latent.plain_dim; ++i) rows.push_back(head * head_dim + i);
  }
  for (int64_t head = 0; head < spec.query_heads; ++head) {
    AppendTurning(head * head_dim + latent.plain_dim, latent.rotary_dim, &rows);
  }
  KVASIR_TRY(query_.weights,
             source.Gathered(prefix + name, spec.query_heads * head_dim, inputs, rows, false));
  return {};
}

Status LatentAttention::LoadHeads(const DecoderSpec& spec, const std::string& prefix,
                                  WeightSource& source) {
  const LatentSpec& latent = spec.latent;
  const int64_t heads = spec.query_heads;
  const std::string stacked_keys = prefix + "embed_q.weight";
  const std::string both = prefix + "kv_b_proj.weight";
  const int64_t both_dim = latent.plain_dim + latent.value_dim;
  const bool is_stacked = source.Has(stacked_keys);
  for (int64_t head = 0; head < heads; ++head) {
    MatrixSlice key = {.name = stacked_keys,
                       .shape = {heads, latent.kv_rank, latent.plain_dim},
                       .first_row = head * latent.kv_rank,
                       .rows = latent.kv_rank};
    MatrixSlice value = {.name = prefix + "unembed_out.weight",
                         .shape = {heads, latent.value_dim, latent.kv_rank},
                         .first_row = head * latent.value_dim,
                         .rows = latent.value_dim};
    if (!is_stacked) {
      key = {.name = both,
             .shape = {heads * both_dim, latent.kv_rank},
             .first_row = head * both_dim,
             .rows = latent.plain_dim};
      value = key;
      value.first_row += latent.plain_dim;
      value.rows = latent.value_dim;
    }
    KVASIR_TRY(auto key_matrix, is_stacked ? source.Rows(key) : source.RowsAsColumns(key));
    KVASIR_TRY(auto value_matrix, source.Rows(value));
    keys_.push_back(std::move(key_matrix));
    values_.push_back(std::move(value_matrix));
  }
  return {};
}

void LatentAttention::Project(const DecoderSpec& spec, Backend& backend, Workspace& workspace,
                              ConstFloatRows x, FloatRows queries, FloatRows latents) const {
  const LatentSpec& latent = spec.latent;
  const bool has_queries = queries.data != nullptr;
  const bool has_down = query_down_.weights != nullptr;
  const FloatRows raw =
      workspace.Rows(Buffer::kGate, x.rows, has_queries ? query_.weights->outputs() : 0);
  const FloatRows down = workspace.Rows(Buffer::kUp, x.rows, has_queries ? latent.query_rank : 0);
  const FloatRows unordered = workspace.Rows(Buffer::kLatents, x.rows, latents.cols);
  std::vector<MatmulJob> jobs;
  if (has_queries) jobs.push_back(has_down ? query_down_.job(down) : query_.job(raw));
  if (latents.data != nullptr) jobs.push_back(latent_.job(unordered));
  backend.Matmul(x, jobs);
  if (has_queries) {
    if (has_down) {
      backend.RmsNorm(down, query_norm_, spec.norm_eps, down);
      const MatmulJob up[] = {query_.job(raw)};
      backend.Matmul(down, up);
    }
    MakeQueries(spec, backend, workspace, raw, queries);
  }
  if (latents.data == nullptr) return;
  const FloatRows normed = Columns(unordered, 0, latent.kv_rank);
  backend.RmsNorm(normed, latent_norm_, spec.norm_eps, normed);
  for (int64_t i = 0; i < x.rows; ++i) {
    const float* const row = unordered.row(i);
    JoinHead(row, latent.kv_rank, row + latent.kv_rank, latent.rotary_dim, latents.row(i));
  }
}

// `raw`: [rows, heads * plain_dim + heads * rotary_dim].
void LatentAttention::MakeQueries(const DecoderSpec& spec, Backend& backend, Workspace& workspace,
                                  ConstFloatRows raw, FloatRows queries) const {
  const LatentSpec& latent = spec.latent;
  const int64_t heads = spec.query_heads;
  const FloatRows plain = workspace.Rows(Buffer::kHeadInputs, heads * raw.rows, latent.plain_dim);
  const FloatRows in_latents =
      workspace.Rows(Buffer::kHeadOutputs, heads * raw.rows, latent.kv_rank);
  std::vector<MatmulJob> jobs;
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < raw.rows; ++i) {
      std::copy_n(raw.row(i) + head * latent.plain_dim, latent.plain_dim,
                  plain.row(head * raw.rows + i));
    }
    jobs.push_back({keys_[static_cast<size_t>(head)].get(), nullptr,
                    in_latents.Part(head * raw.rows, raw.rows)});
  }
  backend.MatmulEach(plain, jobs);
  const int64_t head_dim = latent.kv_rank + latent.rotary_dim;
  for (int64_t i = 0; i < raw.rows; ++i) {
    const float* turning = raw.row(i) + heads * latent.plain_dim;
    for (int64_t head = 0; head < heads; ++head) {
      JoinHead(in_latents.row(head * raw.rows + i), latent.kv_rank,
               turning + head * latent.rotary_dim, latent.rotary_dim,
               queries.row(i) + head * head_dim);
    }
  }
}

ConstFloatRows LatentAttention::Values(const DecoderSpec& spec, Backend& backend,
                                       Workspace& workspace, ConstFloatRows attended) const {
  const LatentSpec& latent = spec.latent;
  const int64_t heads = spec.query_heads;
  const int64_t rows = attended.rows;
  const int64_t head_dim = latent.kv_rank + latent.rotary_dim;
  const FloatRows of_heads = workspace.Rows(Buffer::kHeadInputs, heads * rows, latent.kv_rank);
  const FloatRows values = workspace.Rows(Buffer::kHeadOutputs, rows, heads * latent.value_dim);
  std::vector<MatmulJob> jobs;
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t i = 0; i < rows; ++i) {
      TakePlain(attended.row(i) + head * head_dim, latent.kv_rank, latent.rotary_dim,
                of_heads.row(head * rows + i));
    }
    jobs.push_back({values_[static_cast<size_t>(head)].get(), nullptr,
                    Columns(values, head * latent.value_dim, latent.value_dim)});
  }
  backend.MatmulEach(of_heads, jobs);
  return values;
}

LatentRow LatentRowOf(const DecoderSpec& spec) {
  const LatentSpec& latent = spec.latent;
  if (latent.kv_rank == 0) return {};
  const int64_t heads = spec.query_heads;
  LatentRow row;
  row.gate = heads * (latent.plain_dim + latent.rotary_dim);
  row.up = latent.query_rank;
  // kLatents; kHeadInputs, kHeadOutputs.
  row.others = latent.kv_rank + latent.rotary_dim +
               heads * (std::max(latent.plain_dim, latent.kv_rank) +
                        std::max(latent.kv_rank, latent.value_dim));
  row.inputs = std::max(latent.query_rank, heads * latent.value_dim);
  return row;
}

}  // namespace kvasir
