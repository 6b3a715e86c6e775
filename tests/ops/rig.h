// Rig: one op at a time on one backend, held to a formula in double.
//
// A case is a function of a Rig: it puts tensors into the backend's memory, calls ops, and states what every output must
// be. run_case runs it on each backend as often as the backend has ways to run (threads), and demands the same
// bits each time. Every tensor has sentinels on both sides, looked at when the case ends.
//
//   const OpCase kCase = {"adds", [](Rig& rig) {
//     const Numbers x = rig.normal(12), y = rig.normal(12);
//     Placed a = rig.put(x, DType::f32, {3, 4});
//     rig.ops().add(a.tensor, rig.put(y, DType::f32, {3, 4}).tensor);
//     rig.expect(a, [&](i) { return x[i] + y[i]; }, 1e-6);
//   }};
//
// A backend is a device and a way to make its ops: another one is another row of backends(). CUDA is among them where a
// GPU can be used; Cuda.RunsEveryCaseOfThisRoom says whether.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/threads.h"
#include "ops/ops.h"

namespace slideway {

using Numbers = std::vector<double>;

// One way to run: a device, a stream and ops of its own.
struct Backend {
  std::string name;
  std::string bits;  // those of one name must agree in every bit
  std::unique_ptr<Device> device;
  std::unique_ptr<Threads> threads;
  Buffer staging;  // pinned, where copies pass through
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Ops> ops;
};

inline Backend cpu_backend(int threads, const OpsOptions& options = {}) {
  Backend made;
  made.name = "cpu, " + std::to_string(threads) + " threads";
  made.bits = "cpu";
  made.device = make_host_device();
  made.threads = std::make_unique<Threads>(threads);
  made.stream = made.device->make_worker("ops");
  made.ops = make_cpu_ops(*made.stream, *made.threads, options);
  return made;
}

// Throws where no GPU can be used.
inline Backend cuda_backend(const std::string& bits, const std::string& name, OpsOptions options = {}) {
  Backend made;
  made.name = name;
  made.bits = bits;
  made.device = make_cuda_device();
  made.threads = std::make_unique<Threads>(1);
  made.staging = made.device->allocate_pinned(std::size_t(16) << 20);
  made.stream = made.device->make_stream("ops");
  options.rows = 4096;
  options.heads = {32, 32, 256};
  options.lora_inputs = options.lora_outputs = 2048;
  options.lora_rank = 1024;
  made.ops = make_ops(*made.device, *made.stream, *made.threads, options);
  return made;
}

// Made once.
inline std::vector<Backend>& backends() {
  static std::vector<Backend> all = [] {
    std::vector<Backend> made;
    for (const int threads : {1, 2, 3}) made.push_back(cpu_backend(threads));
    try {
      for (const char* name : {"cuda", "cuda again"}) made.push_back(cuda_backend("cuda", name));
      for (const char* name : {"cuda, own attention", "cuda, own attention again"})
        made.push_back(cuda_backend("cuda, own attention", name, {.library_attention = false}));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::unsupported && error.kind() != ErrorKind::device) throw;
    }
    return made;
  }();
  return all;
}

class Rig {
 public:
  static constexpr std::size_t kGuard = 256;  // bytes of sentinels on each side

  explicit Rig(Backend& backend) : backend_(backend) {}
  Ops& ops() { return *backend_.ops; }
  bool on_cpu() const { return backend_.device->kind() == DeviceKind::host; }

  // Reproducible numbers, drawn in order of call.
  Numbers normal(std::int64_t n, double deviation = 1) {
    std::normal_distribution<double> draw(0, deviation);
    Numbers x(std::size_t(n), 0.0);
    for (double& v : x) v = draw(random_);
    return x;
  }
  std::vector<std::int32_t> integers(std::int64_t n, int from, int to) {
    std::uniform_int_distribution<int> draw(from, to);
    std::vector<std::int32_t> x(std::size_t(n), 0);
    for (auto& v : x) v = draw(random_);
    return x;
  }

  // A tensor in the backend's memory. x is rounded to type, in x itself too: the formula starts from what the op sees.
  Tensor put(Numbers& x, DType type, std::initializer_list<std::int64_t> shape) {
    std::vector<std::byte> bytes(x.size() * bytes_of(type));
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (type == DType::f64) {
        std::memcpy(bytes.data() + 8 * i, &x[i], 8);
      } else if (type == DType::f32) {
        const float v = float(x[i]);
        std::memcpy(bytes.data() + 4 * i, &v, 4);
        x[i] = v;
      } else {
        const bf16_t v = to_bf16(float(x[i]));
        std::memcpy(bytes.data() + 2 * i, &v, 2);
        x[i] = to_float(v);
      }
    }
    return place(bytes, type, shape);
  }
  Tensor put(const std::vector<std::int32_t>& x, std::initializer_list<std::int64_t> shape) {
    std::vector<std::byte> bytes(x.size() * 4);
    std::memcpy(bytes.data(), x.data(), bytes.size());
    return place(bytes, DType::i32, shape);
  }
  // A tensor that the op writes whole: what was there before is a NaN of a sort.
  Tensor blank(DType type, std::initializer_list<std::int64_t> shape) {
    std::int64_t n = 1;
    for (const std::int64_t size : shape) n *= size;
    return place(std::vector<std::byte>(std::size_t(n) * bytes_of(type), std::byte(0xff)), type, shape);
  }

  // Bits as they are, in and out.
  Tensor put_bytes(const void* bytes, DType type, std::initializer_list<std::int64_t> shape) {
    const std::size_t n = Tensor(const_cast<void*>(bytes), type, shape).bytes();
    const auto* const begin = static_cast<const std::byte*>(bytes);
    return place({begin, begin + n}, type, shape);
  }
  std::vector<std::byte> bytes(const Tensor& tensor) { return read(tensor.data(), tensor.bytes()); }

  Numbers get(const Tensor& tensor) {
    const std::vector<std::byte> bytes = read(tensor.data(), tensor.bytes());
    Numbers x(std::size_t(tensor.elements()));
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (tensor.dtype() == DType::f64) {
        std::memcpy(&x[i], bytes.data() + 8 * i, 8);
      } else if (tensor.dtype() == DType::f32) {
        float v;
        std::memcpy(&v, bytes.data() + 4 * i, 4);
        x[i] = v;
      } else {
        bf16_t v;
        std::memcpy(&v, bytes.data() + 2 * i, 2);
        x[i] = to_float(v);
      }
    }
    return x;
  }

  // Every number of tensor within tolerance · size of the formula's, where size is the largest of the output unless
  // given; and half a unit in the last place of its type on top.
  void expect(const char* what, const Tensor& tensor, const Numbers& formula, double tolerance,
              double size = 0) {
    const Numbers found = get(tensor);
    ASSERT_EQ(found.size(), formula.size()) << what;
    if (size == 0) {
      for (const double v : formula) size = std::max(size, std::abs(v));
    }
    const double unit = tensor.dtype() == DType::bf16 ? 0x1p-8 : 0x1p-24;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double allowed = tolerance * size + 1.01 * unit * std::abs(formula[i]);
      if (std::abs(found[i] - formula[i]) <= allowed) continue;
      FAIL() << backend_.name << ": " << what << "[" << i << "] of " << shape_text(tensor) << " is "
             << found[i] << ", the formula says " << formula[i] << "; allowed " << allowed;
    }
    const std::vector<std::byte> bytes = read(tensor.data(), tensor.bytes());
    bits_.insert(bits_.end(), bytes.begin(), bytes.end());
  }

  void check_guards() {
    for (const Place& place : places_) {
      const std::vector<std::byte> all = read(place.memory.data(), place.bytes);
      for (std::size_t i = 0; i < kGuard; ++i) {
        if (all[i] != std::byte(0xa5) || all[place.bytes - 1 - i] != std::byte(0xa5)) {
          ADD_FAILURE() << backend_.name << ": something was written outside of tensor "
                        << (&place - places_.data());
          break;
        }
      }
    }
  }
  const std::vector<std::byte>& bits() const { return bits_; }

 private:
  struct Place {
    Buffer memory;
    std::size_t bytes;
  };
  Tensor place(const std::vector<std::byte>& bytes, DType type, std::initializer_list<std::int64_t> shape) {
    std::vector<std::byte> all(bytes.size() + 2 * kGuard, std::byte(0xa5));
    std::copy(bytes.begin(), bytes.end(), all.begin() + kGuard);
    places_.push_back({backend_.device->allocate(all.size()), all.size()});
    for_pieces(all.size(), [&](std::size_t at, std::size_t n, void* staging) {
      std::memcpy(staging ? staging : places_.back().memory.data() + at, all.data() + at, n);
      if (staging) backend_.stream->copy(places_.back().memory.data() + at, staging, n);
    });
    return Tensor(places_.back().memory.data() + kGuard, type, shape);
  }
  std::vector<std::byte> read(const void* from, std::size_t bytes) {
    std::vector<std::byte> out(bytes);
    backend_.stream->synchronize();
    const auto* const begin = static_cast<const std::byte*>(from);
    for_pieces(bytes, [&](std::size_t at, std::size_t n, void* staging) {
      if (staging) backend_.stream->copy(staging, begin + at, n);
      backend_.stream->synchronize();
      std::memcpy(out.data() + at, staging ? staging : begin + at, n);
    });
    return out;
  }
  // Pieces that the staging memory holds; without one, everything at once.
  template <class Piece>
  void for_pieces(std::size_t bytes, const Piece& piece) {
    const std::size_t most = backend_.staging.bytes() ? backend_.staging.bytes() : bytes;
    for (std::size_t at = 0; at < bytes; at += most) {
      piece(at, std::min(most, bytes - at), backend_.staging.data());
      backend_.stream->synchronize();
    }
  }

  Backend& backend_;
  std::mt19937_64 random_{7};
  std::vector<Place> places_;
  std::vector<std::byte> bits_;
};

// The gradient of loss at x by central differences, good to about nine digits.
inline Numbers differences(const std::function<double(const Numbers&)>& loss, Numbers x) {
  Numbers d(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = x[i], h = 1e-5 * std::max(1.0, std::abs(at));
    x[i] = at + h;
    const double up = loss(x);
    x[i] = at - h;
    d[i] = (up - loss(x)) / (2 * h);
    x[i] = at;
  }
  return d;
}

inline double dot(const Numbers& x, const Numbers& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// Elements [begin, begin + n) of x.
inline Numbers slice(const Numbers& x, std::int64_t begin, std::int64_t n) {
  return Numbers(x.begin() + begin, x.begin() + begin + n);
}

struct OpCase {
  std::string name;
  std::function<void(Rig&)> run;
};

// Runs a case on all backends: right on each, and the same bits where that is promised.
inline void run_case(const OpCase& op_case) {
  SCOPED_TRACE(op_case.name);
  const Backend* first = nullptr;
  std::vector<std::byte> bits;
  for (Backend& backend : backends()) {
    Rig rig(backend);
    op_case.run(rig);
    rig.check_guards();
    if (testing::Test::HasFatalFailure()) return;
    if (!first || first->bits != backend.bits) {
      first = &backend;
      bits = rig.bits();
    }
    EXPECT_TRUE(bits == rig.bits()) << backend.name << " gives other bits than " << first->name;
  }
}

inline std::string name_text(DType type) {
  return std::string(name_of(type));
}
constexpr DType kBothTypes[] = {DType::f32, DType::bf16};

}  // namespace slideway
