#include "cli/delimiter.h"

#include <map>

namespace weft::cli {

char ParseDelimiter(const std::string& text) {
  static const std::map<std::string, char> kNamed = {{"tab", '\t'},      {"\\t", '\t'},
                                                     {"comma", ','},     {"space", ' '},
                                                     {"semicolon", ';'}, {"pipe", '|'}};
  const auto named = kNamed.find(text);
  if (named != kNamed.end()) return named->second;
  return text.size() == 1 ? text[0] : '\0';
}

CLI::Option* AddDelimiterOption(CLI::App& command, const std::string& flag, std::string* text,
                                const std::string& description) {
  return command.add_option(flag, *text, description)
      ->type_name("X")
      ->check([](const std::string& given) {
        return ParseDelimiter(given) == '\0' ? "must be one character or a name" : std::string();
      });
}

}  // namespace weft::cli
