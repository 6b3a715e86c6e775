#include "plan/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iomanip>
#include <sstream>
#include <thread>

#include "ops/adamw.h"
#include "ops/ops.h"

namespace slideway {
namespace {

constexpr std::size_t kCopyBytes = std::size_t(1) << 30;
constexpr double kAdamwBytes = 26;  // a parameter: 14 read, 12 written
constexpr std::int64_t kParameters = std::int64_t(1) << 28;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds_of(const std::function<void()>& work) {
  const double begin = seconds_now();
  work();
  return seconds_now() - begin;
}

// The state of an optimizer over kParameters, touched by the threads that will use it.
class Update {
 public:
  explicit Update(Threads& threads)
      : threads_(threads),
        hi_(allocate_host(kParameters * 2)),
        lo_(allocate_host(kParameters * 2)),
        m_(allocate_host(kParameters * 4)),
        v_(allocate_host(kParameters * 4)),
        gradient_(allocate_host(kParameters * 2)) {
    run();
  }

  void run() {
    adamw(threads_,
          {reinterpret_cast<bf16_t*>(hi_.data()), reinterpret_cast<std::int16_t*>(lo_.data()),
           reinterpret_cast<float*>(m_.data()), reinterpret_cast<float*>(v_.data()), gradient_.data(),
           DType::bf16, kParameters},
          adamw_step({}, 1e-5, 0, 1, 1));
  }

  // Bytes a second of runs, at least this long.
  double rate(double at_least_s) {
    int runs = 0;
    const double begin = seconds_now();
    do {
      run();
      ++runs;
    } while (seconds_now() - begin < at_least_s);
    return runs * kAdamwBytes * double(kParameters) / (seconds_now() - begin);
  }

 private:
  Threads& threads_;
  Buffer hi_, lo_, m_, v_, gradient_;
};

// Copies between the device and pinned memory, either way.
class Copies {
 public:
  explicit Copies(Device& device)
      : up_(device.make_stream("measure up")),
        down_(device.make_stream("measure down")),
        on_device_{device.allocate(kCopyBytes), device.allocate(kCopyBytes)},
        pinned_{device.allocate_pinned(kCopyBytes), device.allocate_pinned(kCopyBytes)} {
    run(true, true);
  }

  double rate(bool up, bool down) {
    const double s = seconds_of([&] {
      for (int i = 0; i < 3; ++i) run(up, down);
    });
    return 3.0 * (int(up) + int(down)) * double(kCopyBytes) / s;
  }

  void run(bool up, bool down) {
    if (up) up_->copy(on_device_[0].data(), pinned_[0].data(), kCopyBytes);
    if (down) down_->copy(pinned_[1].data(), on_device_[1].data(), kCopyBytes);
    up_->synchronize();
    down_->synchronize();
  }

 private:
  std::unique_ptr<Stream> up_, down_;
  Buffer on_device_[2], pinned_[2];
};

void measure_copies(Device& device, Update& update, MeasuredRates& out) {
  Copies copies(device);
  out.machine.copy_up = copies.rate(true, false);
  out.machine.copy_down = copies.rate(false, true);
  out.copy_both = copies.rate(true, true);
  std::atomic<bool> stop{false};
  std::atomic<std::int64_t> turns{0};
  std::thread beside([&] {
    while (!stop) {
      copies.run(true, true);
      ++turns;
    }
  });
  const double begin = seconds_now();
  out.adamw_beside = update.rate(1.0);
  const double s = seconds_now() - begin;
  out.copies_beside = double(turns) * 2 * double(kCopyBytes) / s;
  stop = true;
  beside.join();
}

// Products of zeros would be faster than those of numbers.
void fill_with_noise(Device& device, Stream& stream, const Buffer& to) {
  const Buffer pinned = device.allocate_pinned(std::min(to.bytes(), std::size_t(32) << 20));
  auto* const words = reinterpret_cast<std::uint16_t*>(pinned.data());
  std::uint64_t state = 1;
  for (std::size_t i = 0; i < pinned.bytes() / 2; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    words[i] =
        std::uint16_t(0x3C00 | (state >> 48 & 0x83FF));  // ± 2⁻⁷ … 2 as bf16; as f32, too, small numbers
  }
  for (std::size_t at = 0; at < to.bytes(); at += pinned.bytes())
    stream.copy(to.data() + at, pinned.data(), std::min(pinned.bytes(), to.bytes() - at));
  stream.synchronize();
}

double measure_products(Device& device, Threads& threads) {
  const bool large = device.kind() == DeviceKind::cuda;
  const std::int64_t t = large ? 16384 : 1024, n = large ? 28672 : 1024, c = large ? 4096 : 1024;
  const auto stream = device.make_stream("measure products");
  const auto ops = make_ops(device, *stream, threads, {.rows = t});
  const DType type = ops->preferred_activation();
  const std::size_t each = bytes_of(type);
  const Buffer x = device.allocate(std::size_t(t * c) * each), w = device.allocate(std::size_t(n * c) * each),
               y = device.allocate(std::size_t(t * n) * each);
  fill_with_noise(device, *stream, x);
  fill_with_noise(device, *stream, w);
  const auto run = [&] {
    for (int i = 0; i < 10; ++i)
      ops->linear(Tensor(y.data(), type, {t, n}), Tensor(x.data(), type, {t, c}),
                  Tensor(w.data(), type, {n, c}), {});
    stream->synchronize();
  };
  run();
  return 10 * 2.0 * double(t) * double(n) * double(c) / seconds_of(run);
}

}  // namespace

std::string MeasuredRates::line() const {
  std::ostringstream out;
  out << machine.name << std::fixed << std::setprecision(1) << ": products " << machine.product_flops * 1e-12
      << " TFLOP/s; copies up " << machine.copy_up * 1e-9 << ", down " << machine.copy_down * 1e-9
      << ", both " << copy_both * 1e-9 << " GB/s; AdamW " << adamw * 1e-9 << " GB/s (" << std::setprecision(2)
      << parameters_per_s() * 1e-9 << " G parameters/s), beside copies " << std::setprecision(1)
      << adamw_beside * 1e-9 << " + " << copies_beside * 1e-9 << "; host memory " << machine.dram * 1e-9
      << " GB/s";
  return out.str();
}

MeasuredRates measure_machine(Device& device, Threads& threads) {
  MeasuredRates out;
  out.machine.name = device.name();
  out.machine.gpu_bytes = device.available();
  out.machine.product_flops = measure_products(device, threads);
  Update update(threads);
  out.adamw = update.rate(0.5);
  out.machine.dram = out.adamw;
  if (device.kind() == DeviceKind::cuda) measure_copies(device, update, out);
  out.machine.dram = std::max(out.adamw, out.adamw_beside + out.copies_beside);
  return out;
}

}  // namespace slideway
