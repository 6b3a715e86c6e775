// The logits that many adapters give side by side, for the test that holds them against peft's.
//
//   adapter_logits_tool MODEL OUT.safetensors < lines of "ADAPTER id id id …"; "-" is no adapter
//
// OUT: tensor n [kSteps, V] has the logits behind line n's prompt and then behind each token that is the likeliest. All lines
// run in one engine; then each runs alone, and a bit that differs is an error.
#include <iostream>
#include <map>
#include <sstream>

#include "formats/safetensors.h"
#include "serve/engine.h"

namespace slideway {
namespace {

constexpr std::int64_t kSteps = 3;
using Logits = std::vector<std::vector<float>>;  // by request

Logits run(Engine& engine, const std::vector<Request>& requests) {
  std::map<RequestId, std::size_t> places;
  Logits logits(requests.size());
  engine.watch_logits([&](RequestId id, std::span<const float> z) {
    auto& to = logits[places.at(id)];
    to.insert(to.end(), z.begin(), z.end());
  });
  for (std::size_t n = 0; n < requests.size(); ++n) places[engine.add(requests[n])] = n;
  while (!engine.idle()) engine.step();
  return logits;
}

int tool(const std::string& model, const std::string& out) {
  const auto device = make_host_device();
  Threads threads(2);
  const auto files = WeightFiles::open(model);
  Engine engine(*device, threads, *files,
                {.weights = DType::f32, .context = 64, .max_sequences = 80, .chunk = 50});
  std::vector<Request> requests;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string adapter;
    words >> adapter;
    Request request{.sampling = {.temperature = 0}, .max_tokens = kSteps};
    for (std::int32_t id; words >> id;) request.prompt.push_back(id);
    if (adapter != "-")
      request.adapter =
          std::make_shared<const Adapter>(load_adapter(adapter, engine.layout(), engine.base()));
    requests.push_back(std::move(request));
  }
  const Logits together = run(engine, requests);
  std::vector<SafetensorsWriter::Declared> declared;
  for (std::size_t n = 0; n < requests.size(); ++n) {
    if (run(engine, {requests[n]})[0] != together[n]) {
      std::cerr << "line " << n << " differs when it runs alone\n";
      return 1;
    }
    declared.push_back({std::to_string(n), "F32", {kSteps, engine.config().vocab_size}});
  }
  SafetensorsWriter writer(out, declared);
  for (const auto& z : together) writer.write(std::as_bytes(std::span(z)));
  writer.close();
  return 0;
}

}  // namespace
}  // namespace slideway

int main(int count, char** arguments) {
  if (count != 3) return 2;
  try {
    return slideway::tool(arguments[1], arguments[2]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
