// Configuration of `slideway train`: a YAML file and key=value words become TrainOptions.
//
// Keys are axolotl's, with the names that the Hugging Face Trainer, TRL and LLaMA-Factory give the same thing as aliases.
// A value comes from the first of: a key=value word, the environment (SLIDEWAY_LEARNING_RATE=…), the file, the default.
// Keys are a table (config.cpp): one row is a key's name, aliases, field and help; parsing, the resolved configuration
// and the help text all read it.
//
// Errors   invalid_input: unknown key (with the nearest known one), wrong type, a key given twice (under one name or
//          two), YAML merge keys; with file and line
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/options.h"

namespace slideway {

// words: at most one YAML file, and overrides (key=value, --key=value, --key value) in any order. The result is
// validated.
TrainOptions load_train_options(const std::vector<std::string>& words);

// The same from texts: for tests and fuzzing. where names the text in messages.
TrainOptions parse_train_options(const std::string& yaml, const std::string& where,
                                 const std::vector<std::string>& overrides = {});

// Every key with its value, as YAML that load_train_options reads back to the same options.
std::string config_yaml(const TrainOptions& options);

// A line a key: name, default, meaning, aliases.
std::string config_help();

}  // namespace slideway
