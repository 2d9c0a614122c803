#include "kvasir/model/ordered_head.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <string>

namespace kvasir {
namespace {

using Buffer = Workspace::Buffer;

// The `count` largest, the first of equals first.
std::vector<size_t> Largest(std::span<const float> scores, int64_t count) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto end = order.begin() + count;
  std::partial_sort(order.begin(), end, order.end(), [&](size_t a, size_t b) {
    return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
  });
  order.erase(end, order.end());
  return order;
}

}  // namespace

Result<OrderedHead> OrderedHead::Load(const AssistantConfig& config, WeightSource& source) {
  constexpr const char* kOrder = "masked_embedding.token_ordering";
  const int64_t vocabulary = config.text.vocab_size;
  const int64_t hidden = config.text.hidden_size;
  OrderedHead head;
  head.looked_ = config.clusters_looked;
  KVASIR_TRY(head.order_, source.Integers(kOrder, vocabulary));
  for (const int64_t token : head.order_) {
    if (token >= 0 && token < vocabulary) continue;
    return {ErrorCode::kCorrupt, "tensor '" + std::string(kOrder) + "' names token " +
                                     std::to_string(token) + " of a vocabulary of " +
                                     std::to_string(vocabulary)};
  }
  KVASIR_TRY(head.centroids_,
             source.ExactMatrix("masked_embedding.centroids.weight", config.clusters, hidden));
  const auto size = static_cast<size_t>(vocabulary / config.clusters);
  for (size_t i = 0; i < static_cast<size_t>(config.clusters); ++i) {
    KVASIR_TRY(auto cluster,
               source.Gathered("embed_tokens.weight", vocabulary, hidden,
                               std::span(head.order_).subspan(i * size, size), false));
    head.clusters_.push_back(std::move(cluster));
  }
  return head;
}

void OrderedHead::Run(Backend& backend, Workspace& workspace, ConstFloatRows hidden,
                      FloatRows logits) const {
  const auto count = static_cast<int64_t>(clusters_.size());
  const int64_t size = clusters_[0]->outputs();
  const FloatRows scores = workspace.Rows(Buffer::kRouterScores, hidden.rows, count);
  const MatmulJob job[] = {{centroids_.get(), nullptr, scores}};
  backend.Matmul(hidden, job);
  const FloatRows found = workspace.Rows(Buffer::kExperts, looked_, size);
  for (int64_t row = 0; row < hidden.rows; ++row) {
    const auto chosen = Largest(std::span(scores.row(row), static_cast<size_t>(count)), looked_);
    std::vector<MatmulJob> jobs;
    for (size_t i = 0; i < chosen.size(); ++i) {
      jobs.push_back({clusters_[chosen[i]].get(),
                      nullptr,
                      {found.row(static_cast<int64_t>(i)), 1, size, size}});
    }
    backend.Matmul(hidden.Part(row, 1), jobs);
    float* const out = logits.row(row);
    std::fill_n(out, logits.cols, -std::numeric_limits<float>::infinity());
    for (size_t i = 0; i < chosen.size(); ++i) {
      const int64_t* const tokens = &order_[chosen[i] * static_cast<size_t>(size)];
      for (int64_t k = 0; k < size; ++k) out[tokens[k]] = found.row(static_cast<int64_t>(i))[k];
    }
  }
}

}  // namespace kvasir
