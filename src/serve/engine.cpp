#include "serve/engine.h"

#include <algorithm>

namespace slideway {

struct Engine::Sequence {
  RequestId id = 0;
  Request request;
  TokenIds tokens;             // the prompt, then what was drawn
  std::int64_t scheduled = 0;  // tokens whose keys and values are in the cache, or will be after this step
  std::int64_t end = 0;        // tokens at which it ends
  KvPages pages;
  std::optional<GrammarState> grammar;
  std::vector<TokenLogprobs> prompt_logprobs;
  bool ended = false;
  std::int64_t known() const { return std::int64_t(tokens.size()); }
};

namespace {

constexpr DType kAct = DType::f32;  // activations, and so keys and values, on the CPU

std::int64_t context_of(const ModelConfig& config, const EngineOptions& options) {
  const std::int64_t made_for = config.max_position_embeddings;
  if (options.context > made_for)
    fail(ErrorKind::invalid_input, "a context of ", options.context,
         " tokens was asked for, but the model was made for ", made_for);
  return options.context > 0 ? options.context : made_for;
}

std::int64_t max_rows(const EngineOptions& options) {
  return options.chunk + options.max_sequences;
}

std::uint64_t kv_bytes_of(const KvShape& shape, const EngineOptions& options, std::int64_t context) {
  if (options.kv_bytes > 0) return options.kv_bytes;
  return shape.bytes(context) * std::uint64_t(options.max_sequences);
}

// What the head needs beyond the rows themselves.
struct HeadWork {
  Tensor last;    // [S, D] act: the rows whose logits are wanted
  Tensor normed;  // [S, D] act
  Tensor rstd;    // [S] f32
  Tensor logits;  // [S, V] f32
  HeadWork(Arena& arena, const ModelConfig& config, std::int64_t sampled)
      : last(arena.take("last rows", kAct, {sampled, config.hidden_size})),
        normed(arena.take("normed", kAct, {sampled, config.hidden_size})),
        rstd(arena.take("rstd", DType::f32, {sampled})),
        logits(arena.take("logits", DType::f32, {sampled, config.vocab_size})) {}
};

// The most that compute() takes.
std::size_t workspace_bytes(const ModelConfig& config, const EngineOptions& options) {
  const std::int64_t r = options.max_lora_rank, rows = max_rows(options);
  const LoraPart part;
  const std::span<const LoraPart> some(&part, 1);
  const LayerLora widest{.qkv = {some, 3 * r}, .o = {some, r}, .gate_up = {some, 2 * r}, .down = {some, r}};
  Arena arena = Arena::measuring();
  arena.take("x", kAct, {rows, config.hidden_size});
  {
    const Arena::Frame frame(arena);
    take_saved(arena, config, rows, kAct, &widest);
    arena.take("scratch", DType::u8, {std::int64_t(forward_scratch_bytes(config, rows, kAct))});
  }
  {
    const Arena::Frame frame(arena);
    arena.take("v of the embedding", DType::f32, {rows, r});
  }
  HeadWork(arena, config, options.max_sequences);
  arena.take("v of the head", DType::f32, {options.max_sequences, r});
  return arena.high_water();
}

}  // namespace

Engine::Engine(Device& device, Threads& threads, const WeightFiles& files, const EngineOptions& options)
    : context_(context_of(files.config(), options)),
      options_(options),
      stream_(device.make_worker("engine")),
      ops_(make_ops(device, *stream_, threads, {.row_invariant = true})),
      model_(device, *stream_, threads, files, options.weights),
      decoder_(model_.config(), *ops_, kAct),
      ends_(*ops_, options.max_lora_rank),
      cache_(device, kv_shape(model_.config(), kAct),
             kv_bytes_of(kv_shape(model_.config(), kAct), options, context_)),
      batch_(model_.layout(), cache_, max_rows(options)),
      workspace_(device.allocate(workspace_bytes(model_.config(), options))) {}

Engine::~Engine() = default;

FetchTensor Engine::base() const {
  return [this](const TensorSpec& spec, std::span<float> out) { model_.read(spec, out); };
}

RequestId Engine::add(Request request) {
  validate(request);
  auto sequence = std::make_unique<Sequence>();
  sequence->id = next_id_++;
  sequence->end = end_of(request);
  sequence->tokens.reserve(std::size_t(sequence->end));
  sequence->tokens = request.prompt;
  if (request.grammar) sequence->grammar.emplace(request.grammar);
  sequence->request = std::move(request);
  waiting_.push_back(std::move(sequence));
  return waiting_.back()->id;
}

std::int64_t Engine::end_of(const Request& request) const {
  if (request.max_tokens == 0) return context_;
  return std::int64_t(request.prompt.size()) + request.max_tokens;
}

void Engine::validate(const Request& request) const {
  const auto prompt = std::int64_t(request.prompt.size());
  if (prompt == 0) fail(ErrorKind::invalid_input, "the prompt has no tokens");
  if (request.max_tokens < 0)
    fail(ErrorKind::invalid_input, "max_tokens should be 1 or more, found ", request.max_tokens);
  if (std::max<std::int64_t>(request.max_tokens, 1) > context_ - prompt)
    fail(ErrorKind::invalid_input, "the context is ", context_, " tokens, but the request needs ", prompt,
         " for the prompt and ", std::max<std::int64_t>(request.max_tokens, 1), " for the answer");
  slideway::validate(request.sampling);
  const auto check_id = [&](std::int32_t id) {
    if (id < 0 || id >= config().vocab_size)
      fail(ErrorKind::invalid_input, "token ", id, " is not in the vocabulary of ", config().vocab_size);
  };
  for (const auto& [id, bias] : request.sampling.logit_bias) check_id(id);
  for (const std::int32_t id : request.end_ids) check_id(id);
  for (const std::int32_t id : request.prompt) check_id(id);
  if (request.adapter)
    for (const AdapterModule& module : request.adapter->modules())
      if (module.rank() > options_.max_lora_rank)
        fail(ErrorKind::invalid_input, "the adapter has rank ", module.rank(), " on ", module.name,
             "; at most ", options_.max_lora_rank, " was planned for");
  const std::int64_t pages = cache_.shape().pages(end_of(request));
  if (pages > cache_.pool().size())
    fail(ErrorKind::invalid_input, "the request may come to ", end_of(request), " tokens, ", pages,
         " pages of keys and values, but the cache has ", cache_.pool().size());
}

bool Engine::cancel(RequestId id) {
  const auto is = [&](const std::unique_ptr<Sequence>& s) { return s->id == id; };
  if (std::erase_if(waiting_, is)) return true;
  const auto found = std::find_if(running_.begin(), running_.end(), is);
  if (found == running_.end()) return false;
  (*found)->ended = true;
  finish_ended();
  return true;
}

bool Engine::running(RequestId id) const {
  return std::any_of(running_.begin(), running_.end(), [&](const auto& s) { return s->id == id; });
}

std::span<const TokenEvent> Engine::step() {
  events_.clear();
  admit();
  plan();
  fill_batch();
  if (items_.empty()) return {};
  compute();
  finish_ended();
  return events_;
}

void Engine::admit() {
  while (!waiting_.empty() && std::int64_t(running_.size()) < options_.max_sequences) {
    Sequence& next = *waiting_.front();
    if (!cache_.try_extend(next.pages, next.known())) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

// Shares for which there are pages. Where the pool runs dry the latest to arrive gives its own back: the oldest always
// goes on, and alone it fits, which add() saw to.
void Engine::plan() {
  const auto find_pages = [&](const StepShare& share) {
    Sequence& s = *running_[share.sequence];
    return cache_.try_extend(s.pages, s.scheduled + share.rows);
  };
  do {
    progress_.clear();
    for (const auto& s : running_) progress_.push_back({s->scheduled, s->known()});
    plan_step(progress_, {.rows = max_rows(options_)}, shares_);
    if (std::all_of(shares_.begin(), shares_.end(), find_pages)) return;
    preempt_latest();
  } while (true);
}

// Its tokens stay and are read again later, as if they were a prompt; the next one is drawn as it would have been.
void Engine::preempt_latest() {
  CHECK(running_.size() > 1, "a sequence that is alone has all pages");
  Sequence& s = *running_.back();
  cache_.release(s.pages);
  s.prompt_logprobs.clear();
  if (s.scheduled > 0) ++preemptions_;
  s.scheduled = 0;
  waiting_.push_front(std::move(running_.back()));
  running_.pop_back();
}

void Engine::fill_batch() {
  // One adapter's rows stand together; the order among sequences changes no bit.
  std::stable_sort(shares_.begin(), shares_.end(), [&](const StepShare& x, const StepShare& y) {
    return std::less<>()(running_[x.sequence]->request.adapter.get(),
                         running_[y.sequence]->request.adapter.get());
  });
  items_.clear();
  logits_rows_.clear();
  for (const StepShare& share : shares_) {
    Sequence& s = *running_[share.sequence];
    const bool sampled = s.scheduled + share.rows == s.known();
    // Not again when it is read once more after a preemption.
    const bool answering = s.known() > std::int64_t(s.request.prompt.size());
    const bool all = s.request.prompt_logprobs && !answering;
    const std::int64_t last = s.scheduled + share.rows - 1;
    for (std::int64_t at = all ? s.scheduled : last; at <= last; ++at)
      if (all || sampled) logits_rows_.push_back({&s, at});
    items_.push_back(
        {.tokens = std::span(s.tokens).subspan(std::size_t(s.scheduled), std::size_t(share.rows)),
         .position = s.scheduled,
         .pages = &s.pages,
         .adapter = s.request.adapter.get(),
         .sampled = sampled,
         .all_rows = all});
    s.scheduled += share.rows;
  }
  if (!items_.empty()) batch_.set(items_);
}

// The step's layers; then the logits that are wanted, as many rows at a time as there may be sequences.
void Engine::compute() {
  const ModelConfig& c = config();
  Arena arena(workspace_.span());
  const Tensor x = arena.take("x", kAct, {batch_.count(), c.hidden_size});
  ends_.begin();
  ops_->embed(x, model_.embed(), batch_.ids());
  ends_.embed(x, batch_.host_ids(), batch_.adapter_rows(), arena);
  for (int l = 0; l < c.num_layers(); ++l) {
    const Arena::Frame frame(arena);
    const LayerLora* lora = batch_.lora(l);
    const LayerSaved saved = take_saved(arena, c, batch_.count(), kAct, lora, x);
    decoder_.forward(l, model_.layer(l), batch_.rows(l), model_.inv_freq(l), saved, x, lora, arena);
  }
  const Tensor rows = batch_.sampled_rows();
  const auto count = std::int64_t(logits_rows_.size());
  for (std::int64_t first = 0; first < count; first += options_.max_sequences) {
    const Arena::Frame frame(arena);
    const std::int64_t end = std::min(count, first + options_.max_sequences);
    const HeadWork head(arena, c, end - first);
    ops_->embed(head.last, x, rows.rows(first, end));  // gathers rows of x
    ops_->rms_norm(head.normed, head.rstd, head.last, model_.final_norm(), c.rms_norm_eps);
    ends_.head(head.logits, head.normed, model_.head(), batch_.sampled_adapters(first, end), arena);
    stream_->synchronize();
    read_logits(head.logits, first);
  }
  stream_->synchronize();
}

void Engine::read_logits(Tensor logits, std::int64_t first) {
  const std::int64_t v = config().vocab_size;
  for (std::int64_t i = 0; i < logits.size(0); ++i) {
    const LogitsRow& row = logits_rows_[std::size_t(first + i)];
    Sequence& s = *row.sequence;
    const std::span<const float> z(logits.f32() + i * v, std::size_t(v));
    if (row.position + 1 < std::int64_t(s.request.prompt.size())) {
      const std::int32_t next = s.tokens[std::size_t(row.position + 1)];
      s.prompt_logprobs.push_back(token_logprobs(z, next, s.request.logprobs.value_or(0)));
    } else {
      draw(s, z);
    }
  }
}

void Engine::draw(Sequence& s, std::span<const float> z) {
  if (see_logits_) see_logits_(s.id, z);
  TokenEvent event{.request = s.id};
  event.error = "the model's logits are not finite numbers";
  const auto token = draw_by_rules(s, z, event);
  if (!token) {
    event.finish = FinishReason::error;
  } else {
    event.error.clear();
    event.token = *token;
    if (s.request.logprobs) event.logprobs = token_logprobs(z, *token, *s.request.logprobs);
    event.prompt = std::move(s.prompt_logprobs);
    s.prompt_logprobs.clear();
    s.tokens.push_back(*token);
    const auto& ends = s.request.end_ids;
    if (std::find(ends.begin(), ends.end(), *token) != ends.end())
      event.finish = FinishReason::stop;
    else if (s.known() >= s.end)
      event.finish = FinishReason::length;
  }
  s.ended = event.finish.has_value();
  events_.push_back(std::move(event));
}

// What the request's rules leave is drawn from; nothing, and the event says why, where that is not possible.
std::optional<std::int32_t> Engine::draw_by_rules(Sequence& s, std::span<const float> z, TokenEvent& event) {
  const std::span<const std::int32_t> tokens = s.tokens;
  const std::size_t prompt = s.request.prompt.size();
  const bool too_early = std::int64_t(tokens.size() - prompt) < s.request.min_tokens;
  if (s.grammar || too_early || LogitRules::any(s.request.sampling)) {
    changed_.assign(z.begin(), z.end());
    rules_.apply(changed_, s.request.sampling, tokens.first(prompt), tokens.subspan(prompt));
    if (too_early) LogitRules::ban(changed_, s.request.end_ids);
    if (s.grammar) {
      allowed_.assign((z.size() + 31) / 32, 0);
      if (!s.grammar->mask(allowed_)) {
        event.error = "the grammar allows no token here";
        return std::nullopt;
      }
      LogitRules::keep(changed_, allowed_);
    }
    z = changed_;
  }
  const auto token = sampler_.sample(z, s.request.sampling, s.request.choice, s.known());
  if (token && s.grammar) CHECK(s.grammar->accept(*token), "the grammar allowed token ", *token);
  return token;
}

void Engine::finish_ended() {
  for (const auto& s : running_)
    if (s->ended) cache_.release(s->pages);
  std::erase_if(running_, [](const std::unique_ptr<Sequence>& s) { return s->ended; });
}

}  // namespace slideway
