#include <nlohmann/json.hpp>

#include "train/train_plan.h"

namespace slideway {
namespace {

using Json = nlohmann::ordered_json;

Json fields_of(const NumericPlan& plan) {
  return {{"version", 1},
          {"weights", name_of(plan.precision.weights)},
          {"activations", name_of(plan.precision.activations)},
          {"gradients", name_of(plan.precision.gradients)},
          {"micro_batch_size", plan.micro_batch_size},
          {"gradient_accumulation_steps", plan.gradient_accumulation_steps},
          {"head_token_tile", plan.head_token_tile},
          {"head_vocab_tile", plan.head_vocab_tile},
          {"products", plan.products}};
}

DType type_named(const Json& name) {
  for (const DType type : {DType::f32, DType::bf16})
    if (name == name_of(type)) return type;
  fail(ErrorKind::corrupt, "no such type: ", name.dump());
}

}  // namespace

std::string NumericPlan::to_json() const {
  return fields_of(*this).dump(2);
}

NumericPlan NumericPlan::from_json(const std::string& text, const std::string& where) {
  try {
    const Json json = Json::parse(text);
    NumericPlan plan;
    plan.precision = {type_named(json.at("weights")), type_named(json.at("activations")),
                      type_named(json.at("gradients"))};
    json.at("micro_batch_size").get_to(plan.micro_batch_size);
    json.at("gradient_accumulation_steps").get_to(plan.gradient_accumulation_steps);
    json.at("head_token_tile").get_to(plan.head_token_tile);
    json.at("head_vocab_tile").get_to(plan.head_vocab_tile);
    json.at("products").get_to(plan.products);
    return plan;
  } catch (const Json::exception& error) {
    fail(ErrorKind::corrupt, where, " is not a numeric plan: ", error.what());
  }
}

std::string NumericPlan::difference(const NumericPlan& other) const {
  const Json ours = fields_of(*this), theirs = fields_of(other);
  for (const auto& [key, value] : ours.items())
    if (theirs.at(key) != value)
      return key + " is " + value.dump() + " here and " + theirs.at(key).dump() + " there";
  return "";
}

}  // namespace slideway
