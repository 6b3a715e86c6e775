// Known shapes: models by name, for plans and benches that need no weights, only sizes.
//
// Errors   not_found: the name, and those that are known
// Source   the models' published config.json
#pragma once

#include <string>

#include "model/config.h"

namespace slideway {

std::string known_shapes();  // their names, for people
bool is_known_shape(const std::string& name);

// layers > 0: only so many of its layers, for what of a model fits a machine.
ModelConfig config_of_shape(const std::string& name, int layers = 0);

}  // namespace slideway
