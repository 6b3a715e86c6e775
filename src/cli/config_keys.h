// The table of configuration keys: what each is called, which field it sets, how its value is read and printed.
#pragma once

#include <yaml-cpp/yaml.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "train/options.h"

namespace slideway {

struct ConfigKey {
  std::string name;
  std::vector<std::string> aliases;
  std::string help;
  // Sets the field; invalid_input says what was expected, without key and place: the caller adds those.
  std::function<void(TrainOptions&, const YAML::Node&)> read;
  // The field's value as YAML; empty: the key only sets what other keys print.
  std::function<std::string(const TrainOptions&)> print;
  std::string sets = {};  // the key whose field it sets, if another: only one of the two may be given
};

const std::vector<ConfigKey>& config_keys();

}  // namespace slideway
