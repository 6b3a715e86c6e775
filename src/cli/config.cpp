#include "cli/config.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <numeric>

#include "cli/config_keys.h"
#include "core/error.h"
#include "core/file.h"

namespace slideway {
namespace {

const ConfigKey* find_key(const std::string& name) {
  for (const ConfigKey& key : config_keys())
    if (key.name == name || std::find(key.aliases.begin(), key.aliases.end(), name) != key.aliases.end())
      return &key;
  return nullptr;
}

// Levenshtein's distance.
std::size_t edits(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t(0));
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

[[noreturn]] void unknown_key(const std::string& name, const std::string& where) {
  std::string nearest;
  std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const ConfigKey& key : config_keys()) {
    std::vector<std::string> spellings = key.aliases;
    spellings.push_back(key.name);
    for (const std::string& spelling : spellings)
      if (const std::size_t distance = edits(name, spelling); distance < least) {
        least = distance;
        nearest = spelling;
      }
  }
  fail(ErrorKind::invalid_input, where, ": unknown key '", name, "'",
       nearest.empty() ? "; `slideway train --help` lists the keys" : "; did you mean '" + nearest + "'?");
}

// Reads values in order of precedence, lowest first, and remembers who gave what.
class Reader {
 public:
  void file(const YAML::Node& root, const std::string& where) {
    if (root.IsNull()) return;
    if (!root.IsMap()) fail(ErrorKind::invalid_input, where, ": expected key: value lines");
    std::map<std::string, std::string> given;  // what a key sets → how it was called
    for (const auto& pair : root) {
      const std::string at = where + ":" + std::to_string(pair.first.Mark().line + 1);
      const std::string name = key_name(pair.first, at);
      const ConfigKey* key = find_key(name);
      if (!key) unknown_key(name, at);
      if (const auto [old, fresh] = given.emplace(key->sets.empty() ? key->name : key->sets, name); !fresh)
        fail(ErrorKind::invalid_input, at, ": '", name, "' is given twice",
             old->second == name ? "" : " (before as '" + old->second + "')");
      int nodes = 0;
      check_duplicates(pair.second, where, 0, nodes);
      set(*key, name, pair.second, at);
    }
  }

  void environment() {
    for (const ConfigKey& key : config_keys()) {
      std::string name = "SLIDEWAY_";
      for (const char c : key.name) name += char(std::toupper(static_cast<unsigned char>(c)));
      if (const char* value = std::getenv(name.c_str())) set(key, key.name, load(value, name), name);
    }
  }

  void word(const std::string& word) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos)
      fail(ErrorKind::invalid_input, "'", word, "' is neither a .yml file nor key=value");
    std::string name = word.substr(0, equals);
    while (name.starts_with('-')) name.erase(0, 1);
    std::replace(name.begin(), name.end(), '-', '_');
    const ConfigKey* key = find_key(name);
    if (!key) unknown_key(name, "command line");
    set(*key, name, load(word.substr(equals + 1), "command line: " + name), "command line");
  }

  TrainOptions options;

  static YAML::Node load(const std::string& text, const std::string& where) {
    try {
      const std::vector<YAML::Node> documents = YAML::LoadAll(text);
      if (documents.size() > 1)
        fail(ErrorKind::invalid_input, where, ": expected one YAML document, found ", documents.size());
      return documents.empty() ? YAML::Node() : documents.front();
    } catch (const YAML::Exception& error) {
      fail(ErrorKind::invalid_input, where, ":", error.mark.line + 1, ": not YAML: ", error.msg);
    }
  }

 private:
  static std::string key_name(const YAML::Node& node, const std::string& at) {
    if (!node.IsScalar()) fail(ErrorKind::invalid_input, at, ": a key must be a word");
    if (node.Scalar() == "<<") fail(ErrorKind::invalid_input, at, ": YAML merge keys (<<) are not supported");
    return node.Scalar();
  }

  // yaml-cpp lets a later entry of the same name pass and reads the first. A value may hold itself (&a [*a]).
  static void check_duplicates(const YAML::Node& node, const std::string& where, int depth, int& nodes) {
    if (depth > 8 || ++nodes > 100'000)
      fail(ErrorKind::invalid_input, where, ":", node.Mark().line + 1, ": the value nests too deep");
    if (node.IsSequence())
      for (const YAML::Node& item : node) check_duplicates(item, where, depth + 1, nodes);
    if (!node.IsMap()) return;
    std::map<std::string, int> seen;
    for (const auto& pair : node) {
      const std::string at = where + ":" + std::to_string(pair.first.Mark().line + 1);
      const std::string name = key_name(pair.first, at);
      if (seen[name]++ > 0) fail(ErrorKind::invalid_input, at, ": '", name, "' is given twice");
      check_duplicates(pair.second, where, depth + 1, nodes);
    }
  }

  void set(const ConfigKey& key, const std::string& name, const YAML::Node& value, const std::string& at) {
    try {
      key.read(options, value);
    } catch (const Error& error) {
      fail(error.kind(), at, ": ", name, ": ", error.what());
    }
  }
};

// Words as they come from a command line: "key=value", "--key=value", "--key value", and one file.
struct Words {
  std::string file;
  std::vector<std::string> overrides;
};

Words sorted_words(const std::vector<std::string>& words) {
  Words out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.find('=') != std::string::npos) {
      out.overrides.push_back(word);
    } else if (word.starts_with("--")) {
      if (i + 1 == words.size()) fail(ErrorKind::invalid_input, "command line: ", word, " needs a value");
      out.overrides.push_back(word + "=" + words[++i]);
    } else if (out.file.empty()) {
      out.file = word;
    } else {
      fail(ErrorKind::invalid_input, "two configuration files: ", out.file, " and ", word);
    }
  }
  return out;
}

}  // namespace

TrainOptions parse_train_options(const std::string& yaml, const std::string& where,
                                 const std::vector<std::string>& overrides) {
  Reader reader;
  reader.file(Reader::load(yaml, where), where);
  reader.environment();
  for (const std::string& word : overrides) reader.word(word);
  reader.options.validate();
  return reader.options;
}

TrainOptions load_train_options(const std::vector<std::string>& words) {
  const Words sorted = sorted_words(words);
  return parse_train_options(sorted.file.empty() ? "" : read_text(sorted.file), sorted.file,
                             sorted.overrides);
}

std::string config_yaml(const TrainOptions& options) {
  std::string text;
  for (const ConfigKey& key : config_keys())
    if (key.print) text += key.name + ": " + key.print(options) + "\n";
  return text;
}

std::string config_help() {
  const TrainOptions defaults;
  std::string text = "Keys of the file and of key=value words:\n";
  for (const ConfigKey& key : config_keys()) {
    std::string line = "  " + key.name;
    if (key.print) line += " (" + key.print(defaults) + ")";
    line.resize(std::max<std::size_t>(line.size() + 2, 44), ' ');
    line += key.help;
    for (std::size_t i = 0; i < key.aliases.size(); ++i)
      line += (i == 0 ? "; also: " : ", ") + key.aliases[i];
    text += line + "\n";
  }
  return text;
}

}  // namespace slideway
