// The host device. At once: a stream does what it is told when it is told. Seeded: streams are queues, and a
// SeededOrder decides whose next item runs.
#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "device/device.h"
#include "device/pages.h"
#include "device/timeline.h"

namespace slideway {
namespace {

// One thing that a queue is to do: work, or, where awaited is set, to hold until its value is reached.
struct Item {
  std::function<void()> work;
  std::shared_ptr<Timeline> awaited;
  std::uint64_t value = 0;
};

struct Queue {
  std::string name;
  std::deque<Item> items;
  bool busy = false;       // its item is running and has itself begun to wait
  std::uint64_t rank = 0;  // the lower goes first
  bool may_run() const {
    return !busy && !items.empty() &&
           (!items.front().awaited || items.front().awaited->reached(items.front().value));
  }
};

// The queues of one seeded device, and the choice among them.
class SeededOrder {
 public:
  explicit SeededOrder(const HostDeviceOptions& options) : options_(options), random_(options.seed) {}
  ~SeededOrder() {
    for (const auto& [data, bytes] : closed_) unmap_pages(data, bytes);
  }

  void add(Queue& queue) { queues_.push_back(&queue); }
  void remove(Queue& queue) { std::erase(queues_, &queue); }

  void push(Queue& queue, Item item) {
    if (item.awaited) {
      const StreamWait wait{queue.name, item.awaited->name(), item.value};
      if (options_.waits) options_.waits->push_back(wait);
      if (waits_issued_++ == options_.dropped_wait || (options_.drops && options_.drops(wait))) return;
    }
    queue.items.push_back(std::move(item));
    // Now and then the streams get ahead of the host, as real ones do.
    while (depth_ == 0 && draw(4) == 0 && run_one()) {
    }
  }

  // Runs items until done() holds; waiter says who waits and for what.
  template <class Done, class Waiter>
  void run_until(const Done& done, const Waiter& waiter) {
    while (!done()) {
      if (!run_one()) fail(ErrorKind::internal, waiter(), ", but nothing can run: ", blocked_text());
    }
  }

  bool run_one() {
    std::vector<Queue*> ready;
    std::copy_if(queues_.begin(), queues_.end(), std::back_inserter(ready),
                 [](Queue* q) { return q->may_run(); });
    if (ready.empty()) return false;
    Queue& queue = choose(ready);
    const Item item = std::move(queue.items.front());
    queue.items.pop_front();
    if (!item.work) return true;
    struct Running {
      Queue& queue;
      int& depth;
      Running(Queue& q, int& d) : queue(q), depth(d) { queue.busy = true, ++depth; }
      ~Running() { queue.busy = false, --depth; }
    } running(queue, depth_);
    item.work();
    return true;
  }

  void close_later(void* data, std::size_t bytes) {
    close_pages(data, bytes);
    closed_.emplace_back(data, bytes);
  }

 private:
  // splitmix64 (Steele, Lea, Flood 2014)
  std::uint64_t draw(std::uint64_t below) {
    std::uint64_t z = (random_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % below;
  }

  // Ranks the queues anew every now and then and takes the first that may run: a stream may run far ahead of another, or
  // starve for long, which a fresh draw for each item would almost never show.
  // Source   Burckhardt et al., "A randomized scheduler with probabilistic guarantees of finding bugs" (ASPLOS 2010)
  Queue& choose(const std::vector<Queue*>& ready) {
    if (until_next_ranking_-- == 0) {
      until_next_ranking_ = draw(std::uint64_t(1) << draw(9));
      for (Queue* queue : queues_) queue->rank = draw(1u << 20);
    }
    return **std::min_element(ready.begin(), ready.end(),
                              [](Queue* a, Queue* b) { return a->rank < b->rank; });
  }

  std::string blocked_text() const {
    std::string text;
    for (const Queue* queue : queues_) {
      if (queue->busy) text += "stream '" + queue->name + "' waits inside its work; ";
      if (queue->busy || queue->items.empty()) continue;
      const Item& item = queue->items.front();
      text += "stream '" + queue->name + "' waits for event '" + item.awaited->name() + "' to reach " +
              std::to_string(item.value) + " (it is at " + std::to_string(item.awaited->value()) + "); ";
    }
    return text.empty() ? "all streams are empty" : text.substr(0, text.size() - 2);
  }

  HostDeviceOptions options_;
  std::uint64_t random_;
  std::int64_t waits_issued_ = 0;
  std::uint64_t until_next_ranking_ = 0;
  int depth_ = 0;  // items running inside each other
  std::vector<Queue*> queues_;
  std::vector<std::pair<void*, std::size_t>> closed_;
};

using OrderPtr = std::shared_ptr<SeededOrder>;  // null: at once

class HostEvent final : public Event {
 public:
  HostEvent(const std::string& name, OrderPtr order)
      : timeline_(std::make_shared<Timeline>(name)), order_(std::move(order)) {}

  void signal(std::uint64_t value) override { timeline_->raise(value); }

  void wait(std::uint64_t value) override {
    if (order_) order_->run_until([&] { return timeline_->reached(value); }, [&] { return text(value); });
    CHECK(timeline_->reached(value), text(value), ", but it is at ", timeline_->value(),
          " and nobody is left to signal it");
  }

  bool reached(std::uint64_t value) const override {
    // Whoever polls must see the streams move.
    if (order_ && !timeline_->reached(value)) order_->run_one();
    return timeline_->reached(value);
  }

  const std::shared_ptr<Timeline>& timeline() const { return timeline_; }

 private:
  std::string text(std::uint64_t value) const {
    return "the host waits for event '" + timeline_->name() + "' to reach " + std::to_string(value);
  }

  std::shared_ptr<Timeline> timeline_;
  OrderPtr order_;
};

const std::shared_ptr<Timeline>& timeline_of(Event& event) {
  const auto* host = dynamic_cast<HostEvent*>(&event);
  CHECK(host, "an event of another device was given to a stream of the host");
  return host->timeline();
}

void move_bytes(void* to, const void* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

class HostStream final : public Worker {
 public:
  HostStream(const std::string& name, OrderPtr order) : queue_{name}, order_(std::move(order)) {
    if (order_) order_->add(queue_);
  }
  ~HostStream() override {
    if (order_) order_->remove(queue_);
  }

  void run(std::function<void()> work) override {
    if (!order_) return work();
    order_->push(queue_, {.work = std::move(work)});
  }

  void copy(void* to, const void* from, std::size_t bytes) override {
    if (!order_) return move_bytes(to, from, bytes);
    order_->push(queue_, {.work = [=] { move_bytes(to, from, bytes); }});
  }

  void signal(Event& event, std::uint64_t value) override {
    const auto& timeline = timeline_of(event);
    if (!order_) return timeline->raise(value);
    order_->push(queue_, {.work = [timeline, value] { timeline->raise(value); }});
  }

  void wait(Event& event, std::uint64_t value) override {
    const auto& timeline = timeline_of(event);
    if (order_) return order_->push(queue_, {.awaited = timeline, .value = value});
    CHECK(timeline->reached(value), "stream '", queue_.name, "' waits for event '", timeline->name(),
          "' to reach ", value, ", but it is at ", timeline->value(),
          ": where streams run at once, a signal must be issued before the wait for it");
  }

  void synchronize() override {
    if (!order_) return;
    order_->run_until([&] { return queue_.items.empty(); },
                      [&] { return "the host waits for stream '" + queue_.name + "' to be empty"; });
  }

 private:
  Queue queue_;
  OrderPtr order_;
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options)
      : seed_(options.seed), order_(options.seeded ? std::make_shared<SeededOrder>(options) : nullptr) {}

  DeviceKind kind() const override { return DeviceKind::host; }
  std::string name() const override { return order_ ? "host, seed " + std::to_string(seed_) : "host"; }
  bool copies() const override { return order_ != nullptr; }

  Buffer allocate(std::size_t bytes) override { return take(bytes, "device memory (on the host)"); }
  Buffer allocate_pinned(std::size_t bytes) override { return take(bytes, "host memory"); }

  std::unique_ptr<Stream> make_stream(const std::string& name) override { return make_worker(name); }
  std::unique_ptr<Worker> make_worker(const std::string& name) override {
    return std::make_unique<HostStream>(name, order_);
  }
  std::unique_ptr<Event> make_event(const std::string& name) override {
    return std::make_unique<HostEvent>(name, order_);
  }

 private:
  Buffer take(std::size_t bytes, const char* what) {
    if (bytes == 0) return {};
    void* const data = map_pages(bytes, what);
    if (!order_) return {data, bytes, unmap_pages};
    return {data, bytes, [order = order_](void* d, std::size_t n) { order->close_later(d, n); }};
  }

  std::uint64_t seed_;
  OrderPtr order_;
};

}  // namespace

std::unique_ptr<Device> make_host_device(const HostDeviceOptions& options) {
  return std::make_unique<HostDevice>(options);
}

}  // namespace slideway
