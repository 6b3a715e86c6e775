#include "serve/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "support/expect_error.h"
#include "support/golden.h"

namespace slideway {
namespace {

constexpr std::int64_t kAnswer = 12;

// One of the golden models and what its four prompts are.
struct Model {
  explicit Model(const std::string& family) : golden(family), files(WeightFiles::open(golden.folder())) {
    const auto starts = golden.i32("starts"), ids = golden.i32("ids", 0);
    for (std::size_t n = 0; n + 1 < starts.size(); ++n)
      prompts.emplace_back(ids.begin() + starts[n], ids.begin() + starts[n + 1]);
    adapter = std::make_shared<const Adapter>(load_adapter(golden.adapter(), files->layout()));
  }
  Golden golden;
  std::unique_ptr<WeightFiles> files;
  std::vector<TokenIds> prompts;
  std::shared_ptr<const Adapter> adapter;
};

class EngineTest : public testing::Test {
 protected:
  Engine make_engine(const Model& model, EngineOptions options = {}) {
    options.weights = DType::f32;
    return Engine(*device_, threads_, *model.files, options);
  }

  // All requests side by side; their answers, in order.
  static std::vector<TokenIds> answers(Engine& engine, const std::vector<Request>& requests) {
    std::map<RequestId, TokenIds> out;
    for (const Request& request : requests) out[engine.add(request)] = {};
    while (!engine.idle())
      for (const TokenEvent& event : engine.step()) out.at(event.request).push_back(event.token);
    EXPECT_EQ(engine.cache().pool().free(), engine.cache().pool().size()) << "pages were lost";
    std::vector<TokenIds> list;
    for (const auto& [id, tokens] : out) list.push_back(tokens);
    return list;
  }

  static std::vector<Request> greedy(const Model& model, bool adapted) {
    std::vector<Request> requests;
    for (const TokenIds& prompt : model.prompts)
      requests.push_back({.prompt = prompt,
                          .adapter = adapted ? model.adapter : nullptr,
                          .sampling = {.temperature = 0},
                          .max_tokens = kAnswer});
    return requests;
  }

  // Requests that differ in everything: adapter or not, greedy or drawn, length of prompt and answer.
  static std::vector<Request> mixed(const Model& model) {
    std::vector<Request> requests;
    for (std::size_t i = 0; i < 9; ++i) {
      TokenIds prompt = model.prompts[i % model.prompts.size()];
      for (std::size_t more = 0; more < i; ++more) prompt.push_back(std::int32_t(10 + 7 * more + i));
      requests.push_back({.prompt = prompt,
                          .adapter = i % 3 ? model.adapter : nullptr,
                          .sampling = {.temperature = i % 2 ? 1.0f : 0.0f, .top_p = 0.9f, .seed = i},
                          .max_tokens = std::int64_t(3 + 5 * i)});
    }
    return requests;
  }

  const std::unique_ptr<Device> device_ = make_host_device();
  Threads threads_{2};
};

class GoldenEngineTest : public EngineTest, public testing::WithParamInterface<std::string> {};

TEST_P(GoldenEngineTest, ContinuesPromptsAsTransformersDoes) {
  const Model model(GetParam());
  Engine engine = make_engine(model, {.max_sequences = 4});
  const auto found = answers(engine, greedy(model, false));
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_EQ(found[i], model.golden.i32("greedy", std::int64_t(i))) << "prompt " << i;
}

TEST_P(GoldenEngineTest, ContinuesPromptsUnderAnAdapterAsPeftDoes) {
  const Model model(GetParam());
  Engine engine = make_engine(model, {.max_sequences = 4});
  const auto found = answers(engine, greedy(model, true));
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_EQ(found[i], model.golden.i32("lora.greedy", std::int64_t(i))) << "prompt " << i;
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenEngineTest, testing::ValuesIn(kGoldenFamilies),
                         [](const auto& info) { return info.param; });

TEST_F(EngineTest, AnswersBatchedAndInChunksAsAlone) {
  const Model model("llama");
  const auto requests = mixed(model);
  std::vector<TokenIds> alone;
  for (const Request& request : requests) {
    Engine engine = make_engine(model);
    alone.push_back(answers(engine, {request}).front());
    EXPECT_EQ(std::int64_t(alone.back().size()), request.max_tokens);
  }
  for (const std::int64_t chunk : {1, 7, 64})
    for (const std::int64_t sequences : {2, 9}) {
      Engine engine = make_engine(model, {.max_sequences = sequences, .chunk = chunk});
      EXPECT_EQ(answers(engine, requests), alone)
          << "chunk " << chunk << ", " << sequences << " side by side";
    }
}

TEST_F(EngineTest, AnswersTheSameOnAnyNumberOfThreads) {
  const Model model("qwen3");
  const auto requests = mixed(model);
  Engine two = make_engine(model, {.max_sequences = 9});
  Threads one_thread(1);
  Engine one(*device_, one_thread, *model.files, {.weights = DType::f32, .max_sequences = 9});
  EXPECT_EQ(answers(two, requests), answers(one, requests));
}

TEST_F(EngineTest, LetsRequestsWaitUntilTheCacheHasRoom) {
  const Model model("llama");
  const auto requests = mixed(model);
  const KvShape shape = kv_shape(model.files->config(), DType::f32);
  Engine roomy = make_engine(model, {.max_sequences = 9});
  Engine tight = make_engine(model, {.max_sequences = 9, .kv_bytes = shape.bytes(shape.page_tokens * 2)});
  EXPECT_EQ(answers(tight, requests), answers(roomy, requests));
}

// Requests that outgrow a page, half of them drawn and adapted.
std::vector<Request> long_answers(const Model& model) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < 5; ++i)
    requests.push_back(
        {.prompt = model.prompts[i % model.prompts.size()],
         .adapter = i % 2 ? model.adapter : nullptr,
         .sampling = {.temperature = i % 2 ? 1.0f : 0.0f, .frequency_penalty = 0.1f, .seed = i},
         .max_tokens = 150,
         .logprobs = 2,
         .prompt_logprobs = true});
  return requests;
}

TEST_F(EngineTest, AnswersPreemptedRequestsAsAlone) {
  const Model model("llama");
  const auto requests = long_answers(model);
  std::vector<TokenIds> alone;
  for (const Request& request : requests) {
    Engine engine = make_engine(model);
    alone.push_back(answers(engine, {request}).front());
    EXPECT_EQ(engine.preemptions(), 0);
  }
  const KvShape shape = kv_shape(model.files->config(), DType::f32);
  const std::uint64_t bytes = shape.bytes(shape.page_tokens * 4);
  for (const std::int64_t chunk : {1, 7, 64}) {
    Engine tight = make_engine(model, {.max_sequences = 5, .chunk = chunk, .kv_bytes = bytes});
    EXPECT_EQ(answers(tight, requests), alone) << "chunk " << chunk;
    EXPECT_GT(tight.preemptions(), 0) << "chunk " << chunk;
  }
}

TEST_F(EngineTest, GivesLogprobsOnceAndTheSameThoughARequestIsPreempted) {
  const Model model("llama");
  const auto requests = long_answers(model);
  const auto logprobs = [&](Engine& engine) {
    std::map<RequestId, std::vector<float>> out;
    std::map<RequestId, std::size_t> prompts;
    for (const Request& request : requests) engine.add(request);
    while (!engine.idle())
      for (const TokenEvent& event : engine.step()) {
        out[event.request].push_back(event.logprobs->chosen.logprob);
        for (const TokenLogprobs& token : event.prompt) out[event.request].push_back(token.chosen.logprob);
        prompts[event.request] += event.prompt.size();
      }
    for (const auto& [id, count] : prompts) EXPECT_EQ(count, requests[id - 1].prompt.size() - 1);
    return out;
  };
  const KvShape shape = kv_shape(model.files->config(), DType::f32);
  Engine roomy = make_engine(model, {.max_sequences = 5});
  Engine tight = make_engine(model, {.max_sequences = 5, .kv_bytes = shape.bytes(shape.page_tokens * 4)});
  EXPECT_EQ(logprobs(tight), logprobs(roomy));
  EXPECT_EQ(roomy.preemptions(), 0);
  EXPECT_GT(tight.preemptions(), 0);
}

TEST_F(EngineTest, CountsAPreemptedRequestAsNotRunning) {
  const Model model("llama");
  const KvShape shape = kv_shape(model.files->config(), DType::f32);
  Engine engine = make_engine(model, {.max_sequences = 2, .kv_bytes = shape.bytes(shape.page_tokens * 4)});
  const auto requests = long_answers(model);
  const RequestId first = engine.add(requests[0]), second = engine.add(requests[1]);
  engine.step();
  EXPECT_TRUE(engine.running(second));
  while (engine.preemptions() == 0 && !engine.idle()) engine.step();
  EXPECT_TRUE(engine.running(first)) << "the oldest goes on";
  EXPECT_FALSE(engine.running(second));
}

TEST_F(EngineTest, EndsAtAnyOfTheEndTokens) {
  const Model model("llama");
  const TokenIds whole = model.golden.i32("greedy", 0);
  for (const std::size_t last : {std::size_t(3), std::size_t(7)}) {
    Request request = greedy(model, false)[0];
    request.end_ids = {127, whole[last]};
    Engine engine = make_engine(model);
    engine.add(request);
    TokenIds found;
    std::optional<FinishReason> finish;
    while (!engine.idle())
      for (const TokenEvent& event : engine.step()) {
        found.push_back(event.token);
        finish = event.finish;
      }
    const auto first = std::find(whole.begin(), whole.end(), whole[last]);
    EXPECT_EQ(found, TokenIds(whole.begin(), first + 1));
    EXPECT_EQ(finish, FinishReason::stop);
  }
}

// The events of one request, alone.
std::vector<TokenEvent> events_of(Engine& engine, const Request& request) {
  engine.add(request);
  std::vector<TokenEvent> out;
  while (!engine.idle())
    for (const TokenEvent& event : engine.step()) out.push_back(event);
  return out;
}

TEST_F(EngineTest, GivesThePromptsLogProbabilitiesHoweverItIsCut) {
  const Model model("llama");
  Request request = greedy(model, false)[0];
  request.logprobs = 128;  // all
  request.prompt_logprobs = true;
  std::vector<float> wanted;
  for (std::size_t n = 1; n < request.prompt.size(); ++n) {  // each as what follows a shorter prompt
    Request shorter = request;
    shorter.prompt.resize(n);
    shorter.prompt_logprobs = false;
    shorter.max_tokens = 1;
    Engine engine = make_engine(model);
    const auto events = events_of(engine, shorter);
    for (const TokenLogprob& token : events.front().logprobs->top)
      if (token.token == request.prompt[n]) wanted.push_back(token.logprob);
  }
  for (const std::int64_t chunk : {1, 3, 64}) {
    Engine engine = make_engine(model, {.max_sequences = 2, .chunk = chunk});
    const auto events = events_of(engine, request);
    std::vector<float> found;
    for (const TokenLogprobs& token : events.front().prompt) found.push_back(token.chosen.logprob);
    EXPECT_EQ(found, wanted) << "chunk " << chunk;
    EXPECT_EQ(events.front().token, model.golden.i32("greedy", 0).front());
    for (const TokenEvent& event : events) EXPECT_EQ(event.logprobs->top.front().token, event.token);
  }
}

TEST_F(EngineTest, HoldsBackEndTokensUntilThereAreEnough) {
  const Model model("llama");
  Request request = greedy(model, false)[0];
  request.end_ids = {model.golden.i32("greedy", 0)[2]};
  request.min_tokens = 6;
  Engine engine = make_engine(model);
  const auto events = events_of(engine, request);
  EXPECT_GE(events.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NE(events[i].token, request.end_ids[0]);
}

TEST_F(EngineTest, FollowsABiasAgainstWhatItWouldHaveSaid) {
  const Model model("llama");
  Request request = greedy(model, false)[0];
  const std::int32_t first = model.golden.i32("greedy", 0).front();
  request.sampling.logit_bias = {{first, -100.0f}, {(first + 1) % 128, 100.0f}};
  request.logprobs = 1;
  Engine engine = make_engine(model);
  const auto events = events_of(engine, request);
  for (const TokenEvent& event : events) EXPECT_EQ(event.token, (first + 1) % 128);
  EXPECT_EQ(events.front().logprobs->top.front().token, first) << "log-probabilities are the model's own";
}

TEST_F(EngineTest, EndsWhereTheContextIsFull) {
  const Model model("llama");
  Request request = greedy(model, false)[0];
  request.max_tokens = 0;
  const auto prompt = std::int64_t(request.prompt.size());
  Engine engine = make_engine(model, {.context = prompt + 5});
  EXPECT_EQ(answers(engine, {request}).front().size(), 5u);
}

TEST_F(EngineTest, ForgetsACancelledRequest) {
  const Model model("llama");
  const auto requests = greedy(model, false);
  Engine engine = make_engine(model, {.max_sequences = 2});
  const RequestId running = engine.add(requests[0]);
  const RequestId other = engine.add(requests[1]);
  const RequestId waiting = engine.add(requests[2]);
  engine.step();
  EXPECT_TRUE(engine.cancel(running));
  EXPECT_TRUE(engine.cancel(waiting));
  EXPECT_FALSE(engine.cancel(running));
  TokenIds rest;
  while (!engine.idle())
    for (const TokenEvent& event : engine.step()) {
      EXPECT_EQ(event.request, other);
      rest.push_back(event.token);
    }
  const TokenIds whole = model.golden.i32("greedy", 1);
  EXPECT_EQ(rest, TokenIds(whole.begin() + 1, whole.end())) << "the neighbour's answer is untouched";
  EXPECT_EQ(engine.cache().pool().free(), engine.cache().pool().size());
}

TEST_F(EngineTest, EndsARequestAloneWhoseLogitsAreNoNumbers) {
  const Model model("llama");
  Engine engine = make_engine(model, {.max_sequences = 2});
  auto requests = greedy(model, false);
  // An adapter so large that the last layers overflow.
  Adapter wild = load_adapter(model.golden.adapter(), model.files->layout());
  for (const AdapterModule& module : wild.modules()) std::fill_n(module.b.f32(), module.b.elements(), 1e38f);
  requests[1].adapter = std::make_shared<const Adapter>(std::move(wild));
  const RequestId good = engine.add(requests[0]), bad = engine.add(requests[1]);
  TokenIds found;
  int errors = 0;
  while (!engine.idle())
    for (const TokenEvent& event : engine.step()) {
      if (event.request == good) found.push_back(event.token);
      if (event.request == bad && event.finish == FinishReason::error) ++errors;
    }
  EXPECT_EQ(errors, 1);
  EXPECT_EQ(found, model.golden.i32("greedy", 0));
}

TEST_F(EngineTest, RefusesRequestsThatCannotBeServed) {
  const Model model("llama");
  Engine engine = make_engine(model, {.context = 40, .max_lora_rank = 3});
  const auto refused = [&](const Request& request, std::initializer_list<std::string> texts) {
    expect_error(ErrorKind::invalid_input, texts, [&] { engine.add(request); });
  };
  refused({.prompt = {}}, {"no tokens"});
  refused({.prompt = {5, 128}}, {"token 128", "vocabulary of 128"});
  refused({.prompt = TokenIds(40, 5)}, {"context is 40", "40 for the prompt"});
  refused({.prompt = TokenIds(8, 5), .max_tokens = 33}, {"context is 40", "8 for the prompt and 33"});
  refused({.prompt = TokenIds(8, 5), .max_tokens = INT64_MAX}, {"context is 40", "9223372036854775807"});
  refused({.prompt = {5}, .max_tokens = -1}, {"max_tokens"});
  refused({.prompt = {5}, .sampling = {.top_p = 2}}, {"top_p"});
  refused({.prompt = {5}, .sampling = {.min_p = -1}}, {"min_p"});
  refused({.prompt = {5}, .sampling = {.repetition_penalty = 0}}, {"repetition_penalty"});
  refused({.prompt = {5}, .sampling = {.logit_bias = {{128, 1.0f}}}}, {"token 128"});
  refused({.prompt = {5}, .end_ids = {-1}}, {"token -1"});
  refused({.prompt = {5}, .adapter = model.adapter}, {"rank 4"});
  EXPECT_TRUE(engine.idle());
  expect_error(ErrorKind::invalid_input, {"context of 1000", "256"},
               [&] { make_engine(model, {.context = 1000}); });
}

}  // namespace
}  // namespace slideway
