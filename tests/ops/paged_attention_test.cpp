// Attention over pages: against f64, and bit for bit alike for any chunk, batch, page size, thread count and level.
#include "ops/cpu/paged_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "ops/guarded.h"

namespace slideway {
namespace {

constexpr float kScale = 0.31f;

// A sequence's queries, keys and values for all its tokens, as rows of qkv.
struct Story {
  Heads heads;
  std::int64_t tokens;
  Guarded qkv;

  Story(DType type, Heads h, std::int64_t n, unsigned seed)
      : heads(h), tokens(n), qkv(type, n * h.row(), seed) {}
  double query(std::int64_t t, int head, int e) const {
    return qkv.at(t * heads.row() + head * heads.width + e);
  }
  double key(std::int64_t t, int head, int e) const { return query(t, heads.query + head, e); }
  double value(std::int64_t t, int head, int e) const {
    return query(t, heads.query + heads.key_value + head, e);
  }
};

// A cache for several stories, its pages handed out in a scattered order and filled with NaN until they are written.
class Cache {
 public:
  Cache(DType type, Heads heads, int page_tokens, std::vector<const Story*> stories)
      : type_(type), heads_(heads), stories_(std::move(stories)) {
    kv_.page_tokens = page_tokens;
    kv_.page_bytes = std::size_t(2 * page_tokens * heads.key_value * heads.width) * bytes_of(type) + 64;
    std::int64_t most = 0;
    for (const Story* story : stories_) most = std::max(most, story->tokens);
    kv_.max_pages = int((most + page_tokens - 1) / page_tokens);
    pages_.resize(stories_.size() * std::size_t(kv_.max_pages));
    std::iota(pages_.begin(), pages_.end(), 0);
    std::shuffle(pages_.begin(), pages_.end(), std::mt19937(9));
    memory_.assign(pages_.size() * kv_.page_bytes, std::byte(0xff));
    lengths_.assign(stories_.size(), 0);
    kv_.pool = memory_.data();
    kv_.pages = pages_;
  }
  void set_window(int window) { kv_.window = window; }

  // The next tokens of each story in one step; returns their outputs, one story's after another.
  Guarded step(Threads& threads, const std::vector<std::int64_t>& counts, CpuLevel level) {
    starts_.assign(1, 0);
    for (const std::int64_t count : counts) starts_.push_back(std::int32_t(starts_.back() + count));
    const std::int64_t rows = starts_.back(), width = heads_.row(), out_width = heads_.query * heads_.width;
    Guarded qkv(type_, rows * width), out(type_, rows * out_width);
    for (std::size_t n = 0; n < stories_.size(); ++n) {
      for (std::int64_t i = 0; i < counts[n] * width; ++i) {
        qkv.set(starts_[n] * width + i, float(stories_[n]->qkv.at(lengths_[n] * width + i)));
      }
      lengths_[n] += std::int32_t(counts[n]);
    }
    kv_.starts = starts_;
    kv_.lengths = lengths_;
    write_kv(threads, kv_, qkv.tensor({rows, width}), heads_);
    paged_attention(threads, out.tensor({rows, out_width}), qkv.tensor({rows, width}), heads_, kv_, kScale,
                    level);
    EXPECT_TRUE(out.guarded());
    return out;
  }
  bool page_ends_untouched() const {
    for (std::size_t page = 1; page <= pages_.size(); ++page) {
      for (std::size_t i = 1; i <= 64; ++i) {
        if (memory_[page * kv_.page_bytes - i] != std::byte(0xff)) return false;
      }
    }
    return true;
  }

 private:
  DType type_;
  Heads heads_;
  std::vector<const Story*> stories_;
  PagedKv kv_;
  std::vector<std::int32_t> pages_, starts_, lengths_;
  std::vector<std::byte> memory_;
};

// All rows of one story, fed in chunks.
Guarded in_chunks(Threads& threads, const Story& story, std::int64_t chunk, int page_tokens, int window,
                  CpuLevel level) {
  Cache cache(story.qkv.type, story.heads, page_tokens, {&story});
  cache.set_window(window);
  const std::int64_t width = story.heads.query * story.heads.width;
  Guarded all(story.qkv.type, story.tokens * width);
  for (std::int64_t t = 0; t < story.tokens; t += chunk) {
    const std::int64_t rows = std::min(chunk, story.tokens - t);
    const Guarded out = cache.step(threads, {rows}, level);
    for (std::int64_t i = 0; i < rows * width; ++i) all.copy(t * width + i, out, i);
  }
  EXPECT_TRUE(cache.page_ends_untouched());
  return all;
}

std::vector<double> row_in_double(const Story& story, std::int64_t t, int head, int window) {
  const Heads& h = story.heads;
  const int kv_head = head / (h.query / h.key_value);
  const std::int64_t first = window > 0 ? std::max<std::int64_t>(0, t - window + 1) : 0;
  std::vector<double> scores, out(std::size_t(h.width), 0);
  for (std::int64_t s = first; s <= t; ++s) {
    double dot = 0;
    for (int e = 0; e < h.width; ++e) dot += story.query(t, head, e) * story.key(s, kv_head, e);
    scores.push_back(double(kScale) * dot);
  }
  const double most = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (double& s : scores) total += s = std::exp(s - most);
  for (std::int64_t s = first; s <= t; ++s) {
    for (int e = 0; e < h.width; ++e)
      out[std::size_t(e)] += scores[std::size_t(s - first)] / total * story.value(s, kv_head, e);
  }
  return out;
}

constexpr Heads kManyHeads[] = {{3, 1, 64}, {4, 2, 8}, {2, 2, 20}, {10, 2, 80}, {1, 1, 128}};

TEST(PagedAttention, EqualsTheFormulaInDoublePrecision) {
  Threads threads(2);
  for (const CpuLevel level : vector_levels()) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const Heads& heads : kManyHeads) {
        for (const int window : {0, 1, 70}) {
          const Story story(type, heads, 150, 4);
          const Guarded out = in_chunks(threads, story, 37, 16, window, level);
          for (std::int64_t t = 0; t < story.tokens; t += 7) {
            for (int head = 0; head < heads.query; ++head) {
              const std::vector<double> expected = row_in_double(story, t, head, window);
              for (int e = 0; e < heads.width; ++e) {
                ASSERT_NEAR(out.at((t * heads.query + head) * heads.width + e), expected[std::size_t(e)],
                            type == DType::f32 ? 4e-6 : 1.2e-2)
                    << "token " << t << " head " << head << " of width " << heads.width << " window "
                    << window;
              }
            }
          }
        }
      }
    }
  }
}

TEST(PagedAttention, EqualsTheFormulaOverALongContextWithLargeScores) {
  Threads threads(2);
  Story story(DType::f32, {2, 1, 32}, 1700, 4);
  for (std::int64_t i = 0; i < story.tokens * story.heads.row(); ++i)
    story.qkv.set(i, 3 * float(story.qkv.at(i)));
  const Guarded out = in_chunks(threads, story, 425, 64, 0, best_cpu_level());
  for (const std::int64_t t : {511, 512, 513, 1023, 1024, 1699}) {
    const std::vector<double> expected = row_in_double(story, t, 1, 0);
    for (int e = 0; e < 32; ++e)
      ASSERT_NEAR(out.at((t * 2 + 1) * 32 + e), expected[std::size_t(e)], 6e-5) << t;
  }
}

TEST(PagedAttention, GivesARowTheSameBitsInAnyChunkPageSizeThreadCountAndLevel) {
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const int window : {0, 90, 600}) {
      const Story story(type, {4, 2, 24}, 1100, 8);
      Threads one(1);
      const Guarded expected = in_chunks(one, story, story.tokens, 64, window, best_cpu_level());
      const std::int64_t width = story.heads.query * story.heads.width;
      for (const CpuLevel level : vector_levels()) {
        for (const std::int64_t chunk : {1, 7, 64, 333}) {
          Threads threads(int(chunk % 3) + 1);
          const Guarded out = in_chunks(threads, story, chunk, chunk == 7 ? 5 : 32, window, level);
          for (std::int64_t t = 0; t < story.tokens; ++t) {
            ASSERT_TRUE(out.same_row(t, expected, t, width))
                << "token " << t << " chunk " << chunk << " window " << window;
          }
        }
      }
    }
  }
}

TEST(PagedAttention, GivesARowTheSameBitsAloneAndInABatch) {
  const Heads heads{6, 2, 16};
  const std::int64_t width = heads.query * heads.width;
  std::vector<Story> stories;
  for (unsigned n = 0; n < 40; ++n) stories.emplace_back(DType::f32, heads, 1 + 37 * n, n);
  std::vector<const Story*> all;
  for (const Story& story : stories) all.push_back(&story);
  Threads threads(2);
  Cache batch(DType::f32, heads, 16, all);
  std::vector<std::int64_t> before, last;
  for (const Story& story : stories) {
    before.push_back(story.tokens - 1);
    last.push_back(1);
  }
  batch.step(threads, before, best_cpu_level());
  const Guarded together = batch.step(threads, last, best_cpu_level());
  for (std::size_t n = 0; n < stories.size(); ++n) {
    Cache alone(DType::f32, heads, 16, {all[n]});
    alone.step(threads, {stories[n].tokens - 1}, best_cpu_level());
    const Guarded out = alone.step(threads, {1}, best_cpu_level());
    ASSERT_TRUE(together.same_row(std::int64_t(n), out, 0, width)) << "sequence of " << stories[n].tokens;
  }
}

TEST(PagedAttention, WritesEachTokensKeysAndValuesToItsPlace) {
  const Heads heads{4, 2, 3};
  std::vector<float> qkv(5 * 24), pool(6 * 24, -1);  // pages of 2 tokens
  std::iota(qkv.begin(), qkv.end(), 0.f);
  const std::vector<std::int32_t> pages{4, 1, 2, 0}, starts{0, 2, 5}, lengths{3, 3};
  const PagedKv kv{.pool = reinterpret_cast<std::byte*>(pool.data()),
                   .page_bytes = 24 * 4,
                   .page_tokens = 2,
                   .pages = pages,
                   .max_pages = 2,
                   .starts = starts,
                   .lengths = lengths};
  Threads threads(1);
  write_kv(threads, kv, Tensor(qkv.data(), DType::f32, {5, 24}), heads);
  const auto expect_token = [&](std::int64_t page, std::int64_t token, std::int64_t row) {
    for (std::int64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(pool[std::size_t(page * 24 + token * 6 + i)], float(row * 24 + 12 + i));
      EXPECT_EQ(pool[std::size_t(page * 24 + 12 + token * 6 + i)], float(row * 24 + 18 + i));
    }
  };
  expect_token(4, 1, 0);  // sequence 0: positions 1 and 2
  expect_token(1, 0, 1);
  expect_token(2, 0, 2);  // sequence 1: positions 0 to 2
  expect_token(2, 1, 3);
  expect_token(0, 0, 4);
  EXPECT_EQ(std::count(pool.begin(), pool.end(), -1.f), 6 * 24 - 5 * 12);
}

}  // namespace
}  // namespace slideway
