// Attention over pages through Ops, on every backend, against softmax in double. What the CPU promises beyond it is in
// paged_attention_test.cpp.
#include "rig.h"

namespace slideway {
namespace {

struct Story {
  std::int64_t before, fresh;  // tokens that are cached already, and this step's
};
struct Case {
  std::string name;
  Heads heads;
  int page_tokens, window;
  std::vector<Story> stories;
};
const Case kCases[] = {
    {"a prompt", {4, 2, 16}, 4, 0, {{0, 37}}},
    {"one token after many", {6, 2, 64}, 16, 0, {{299, 1}, {0, 1}, {127, 1}, {128, 1}}},
    {"chunks beside single tokens, odd width", {3, 1, 5}, 8, 0, {{20, 9}, {3, 1}, {0, 40}}},
    {"a window", {2, 2, 24}, 8, 50, {{200, 3}, {10, 60}}},
    {"a window of one, wide heads", {2, 1, 256}, 32, 1, {{70, 2}}},
};

TEST(PagedOps, AttendOverWhatWasWrittenIntoPages) {
  for (const Case& c : kCases) {
    for (const DType act : kBothTypes) {
      run_case({c.name + ", " + name_text(act), [&](Rig& rig) {
                  const auto [H, K, E] = c.heads;
                  const std::int64_t row = c.heads.row(), token = std::int64_t(K) * E;
                  std::vector<std::int32_t> starts = {0}, lengths;
                  std::int64_t longest = 0;
                  for (const Story& s : c.stories) {
                    starts.push_back(starts.back() + std::int32_t(s.fresh));
                    lengths.push_back(std::int32_t(s.before + s.fresh));
                    longest = std::max(longest, s.before + s.fresh);
                  }
                  const std::int64_t T = starts.back(), N = std::int64_t(c.stories.size());
                  const std::int64_t most = (longest + c.page_tokens - 1) / c.page_tokens;
                  std::vector<std::int32_t> pages;  // in an order that no arithmetic gives
                  for (std::int64_t i = 0; i < N * most; ++i)
                    pages.push_back(std::int32_t((i * 7 + 3) % (N * most * 7 + 1)));
                  const std::int64_t page = 2 * c.page_tokens * token, pool_pages = N * most * 7 + 1;
                  Numbers pool = rig.normal(pool_pages * page), qkv = rig.normal(T * row);
                  const Tensor P = rig.put(pool, act, {pool_pages, page}), Q = rig.put(qkv, act, {T, row});
                  const Tensor out = rig.blank(act, {T, std::int64_t(H) * E});
                  const PagedKv kv{.pool = static_cast<std::byte*>(P.data()),
                                   .page_bytes = std::size_t(page) * bytes_of(act),
                                   .page_tokens = c.page_tokens,
                                   .pages = pages,
                                   .max_pages = int(most),
                                   .starts = starts,
                                   .lengths = lengths,
                                   .window = c.window};
                  const float scale = 0.9f / std::sqrt(float(E));
                  rig.ops().write_kv(kv, Q, c.heads);
                  rig.ops().paged_attention(out, Q, c.heads, kv, scale);

                  const auto place = [&](std::int64_t n, std::int64_t position, int values) {
                    return std::size_t(pages[std::size_t(n * most + position / c.page_tokens)] * page +
                                       (values * c.page_tokens + position % c.page_tokens) * token);
                  };
                  Numbers right(std::size_t(T * H * E));
                  for (std::int64_t n = 0; n < N; ++n) {
                    const std::int64_t before = c.stories[std::size_t(n)].before;
                    for (std::int64_t i = 0; i < c.stories[std::size_t(n)].fresh; ++i) {
                      for (std::int64_t j = 0; j < 2 * token; ++j)
                        pool[place(n, before + i, j >= token) + std::size_t(j % token)] =
                            qkv[std::size_t((starts[std::size_t(n)] + i) * row + H * E + j)];
                    }
                    for (std::int64_t i = 0; i < c.stories[std::size_t(n)].fresh; ++i) {
                      const std::int64_t t = starts[std::size_t(n)] + i, position = before + i;
                      const std::int64_t first =
                          c.window > 0 ? std::max<std::int64_t>(0, position - c.window + 1) : 0;
                      for (int h = 0; h < H; ++h) {
                        const std::size_t head = std::size_t(h / (H / K) * E);
                        Numbers weights;
                        double largest = -1e300, total = 0;
                        for (std::int64_t s = first; s <= position; ++s) {
                          double score = 0;
                          for (int e = 0; e < E; ++e)
                            score += qkv[std::size_t(t * row + h * E + e)] *
                                     pool[place(n, s, 0) + head + std::size_t(e)];
                          weights.push_back(score * double(scale));
                          largest = std::max(largest, weights.back());
                        }
                        for (double& w : weights) total += w = std::exp(w - largest);
                        for (std::int64_t s = first; s <= position; ++s) {
                          for (int e = 0; e < E; ++e)
                            right[std::size_t((t * H + h) * E + e)] +=
                                weights[std::size_t(s - first)] / total *
                                pool[place(n, s, 1) + head + std::size_t(e)];
                        }
                      }
                    }
                  }
                  rig.expect("pool", P, pool, 0);
                  rig.expect("out", out, right, 2e-6);
                }});
    }
  }
}

}  // namespace
}  // namespace slideway
