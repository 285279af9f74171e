#include "services/common/config_json.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace weft {
namespace {

using Kind = JsonNode::Kind;

// Walks the text for nlohmann's lexer and tells how far that has read.
class TellingIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TellingIterator() = default;
  TellingIterator(const char* at, const char** told) : at_(at), told_(told) {}

  reference operator*() const { return *at_; }
  TellingIterator& operator++() {
    *told_ = ++at_;
    return *this;
  }
  TellingIterator operator++(int) {
    TellingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const TellingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const TellingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_ = nullptr;
  const char** told_ = nullptr;
};

// Builds the tree from the events of nlohmann's SAX parser.
class TreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TreeBuilder(absl::string_view text)
      : counted_(text.data()), read_(text.data()), text_(text) {}

  const char** read() { return &read_; }
  JsonNode TakeRoot() {
    root_.line = 0;
    return std::move(root_);
  }
  const std::string& error() const { return error_; }
  size_t error_offset() const { return error_offset_; }

  bool null() override { return Leaf(Kind::kNull, ""); }
  bool boolean(bool value) override {
    Place(Kind::kBool)->boolean = value;
    return true;
  }
  bool number_integer(int64_t value) override { return Leaf(Kind::kInteger, absl::StrCat(value)); }
  bool number_unsigned(uint64_t value) override {
    return Leaf(Kind::kInteger, absl::StrCat(value));
  }
  bool number_float(double, const std::string& digits) override {
    // Integers beyond 64 bits come here too.
    const bool decimal = digits.find_first_of(".eE") != std::string::npos;
    return Leaf(decimal ? Kind::kDecimal : Kind::kInteger, digits);
  }
  bool string(std::string& value) override { return Leaf(Kind::kString, std::move(value)); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(Kind::kObject); }
  bool start_array(size_t) override { return Open(Kind::kArray); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(std::string& name) override {
    JsonMember& member = open_.back()->members.emplace_back();
    member.key = std::move(name);
    member.value.line = Line();
    return true;
  }
  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::json::exception& exception) override {
    error_offset_ = std::min(text_.size(), position == 0 ? 0 : position - 1);
    error_ = Explain(last_token, exception.what());
    return false;
  }

 private:
  // The line of the last token. A number ends where the lexer has read one byte too many, so the
  // last byte that was read does not count.
  int Line() {
    const char* const last = read_ == text_.data() ? read_ : read_ - 1;
    if (last > counted_) {
      line_ += static_cast<int>(std::count(counted_, last, '\n'));
      counted_ = last;
    }
    return line_;
  }

  JsonNode* Place(Kind kind) {
    JsonNode* node = &root_;
    if (!open_.empty()) {
      JsonNode& parent = *open_.back();
      node =
          parent.is(Kind::kObject) ? &parent.members.back().value : &parent.elements.emplace_back();
    }
    if (node->line == 0) node->line = Line();
    node->kind = kind;
    return node;
  }
  bool Leaf(Kind kind, std::string text) {
    Place(kind)->text = std::move(text);
    return true;
  }
  bool Open(Kind kind) {
    // Pointers stay valid: a container grows only after those opened inside it are closed.
    open_.push_back(Place(kind));
    if (open_.size() <= static_cast<size_t>(kMaxJsonDepth)) return true;
    error_offset_ = static_cast<size_t>(read_ - text_.data()) - 1;
    error_ = absl::StrCat("nested more than ", kMaxJsonDepth, " deep");
    return false;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  // A message for a person: what is known about usual mistakes, else the parser's words.
  std::string Explain(const std::string& last_token, absl::string_view what) const {
    const char at = error_offset_ < text_.size() ? text_[error_offset_] : '\0';
    const size_t before = text_.substr(0, error_offset_).find_last_not_of(" \t\r\n");
    if (at == '/' || at == '#') return "comments are not allowed in JSON";
    if (at == '\'') return "strings and keys need double quotes";
    if ((at == '}' || at == ']') && before != absl::string_view::npos && text_[before] == ',') {
      return absl::StrCat("a comma before '", std::string(1, at), "'");
    }
    const absl::string_view rest = text_.substr(error_offset_);
    for (const absl::string_view word : {"NaN", "Infinity"}) {
      if (absl::StartsWith(rest, word) ||
          (absl::StartsWith(rest, word.substr(1)) && last_token == "-" + std::string(1, word[0])) ||
          absl::StartsWith(rest, absl::StrCat("-", word))) {
        return absl::StrCat(word, " is not a JSON number");
      }
    }
    if (absl::StartsWith(rest, "Infinity")) return "Infinity is not a JSON number";
    for (const absl::string_view word : {"True", "False", "None"}) {
      if (absl::StartsWith(rest, word)) return "write true, false and null in lower case";
    }
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
    if (absl::ConsumePrefix(&what, "[")) {
      if (const size_t end = what.find("] "); end != absl::string_view::npos) {
        what.remove_prefix(end + 2);
      }
      if (const size_t end = what.find(": ");
          absl::StartsWith(what, "parse error at") && end != absl::string_view::npos) {
        what.remove_prefix(end + 2);
      }
    }
    return std::string(what);
  }

  JsonNode root_;
  std::vector<JsonNode*> open_;  // from the outermost to the innermost container
  int line_ = 1;                 // the line of `counted_`
  const char* counted_;
  const char* read_;
  absl::string_view text_;
  std::string error_;
  size_t error_offset_ = 0;
};

nlohmann::ordered_json ToNlohmann(const JsonNode& node) {
  switch (node.kind) {
    case Kind::kNull:
      return nullptr;
    case Kind::kBool:
      return node.boolean;
    case Kind::kInteger: {
      int64_t value;
      if (absl::SimpleAtoi(node.text, &value)) return value;
      uint64_t large;
      if (absl::SimpleAtoi(node.text, &large)) return large;
      [[fallthrough]];
    }
    case Kind::kDecimal: {
      double value = 0;
      (void)absl::SimpleAtod(node.text, &value);
      return value;
    }
    case Kind::kString:
      return node.text;
    case Kind::kArray: {
      auto array = nlohmann::ordered_json::array();
      for (const JsonNode& element : node.elements) array.push_back(ToNlohmann(element));
      return array;
    }
    case Kind::kObject: {
      auto object = nlohmann::ordered_json::object();
      // Not operator[]: that searches all members each time.
      auto& members = object.get_ref<nlohmann::ordered_json::object_t&>();
      for (const JsonMember& member : node.members) {
        members.push_back({member.key, ToNlohmann(member.value)});
      }
      return object;
    }
  }
  return nullptr;
}

// What the text is, when it is plainly not meant as JSON in UTF-8.
std::optional<std::string> Foreign(absl::string_view text) {
  if (text.size() > kMaxJsonBytes) {
    return absl::StrCat("has ", text.size(), " bytes, more than ", kMaxJsonBytes);
  }
  if (absl::StartsWith(text, "\xEF\xBB\xBF")) {
    return "begins with a byte-order mark (EF BB BF): save it as UTF-8 without one";
  }
  if (absl::StartsWith(text, "\xFF\xFE") || absl::StartsWith(text, "\xFE\xFF")) {
    return "is UTF-16: save it as UTF-8";
  }
  if (text.find_first_not_of(" \t\r\n") == absl::string_view::npos) return "is empty";
  if (const size_t nul = text.find('\0'); nul != absl::string_view::npos) {
    // For the parser it would be the end.
    return absl::StrCat("has a zero byte at byte ", nul + 1, "; is the file damaged?");
  }
  if (absl::StrContains(text, "def get_torchbiggraph_config")) {
    return "is a configuration of PBG in Python: write what get_torchbiggraph_config() returns as "
           "JSON (json.dumps of it)";
  }
  return std::nullopt;
}

}  // namespace

JsonNode JsonNode::Boolean(bool value) {
  JsonNode node;
  node.kind = Kind::kBool;
  node.boolean = value;
  return node;
}

JsonNode JsonNode::Integer(int64_t value) {
  JsonNode node;
  node.kind = Kind::kInteger;
  node.text = absl::StrCat(value);
  return node;
}

JsonNode JsonNode::Integer(uint64_t value) {
  JsonNode node;
  node.kind = Kind::kInteger;
  node.text = absl::StrCat(value);
  return node;
}

JsonNode JsonNode::Decimal(double value) {
  JsonNode node;
  node.kind = Kind::kDecimal;
  node.text = JsonNumber(value);
  return node;
}

JsonNode JsonNode::String(absl::string_view text) {
  JsonNode node;
  node.kind = Kind::kString;
  node.text = std::string(text);
  return node;
}

JsonNode JsonNode::Array() { return Array(std::vector<JsonNode>()); }

JsonNode JsonNode::Array(std::vector<JsonNode> elements) {
  JsonNode node;
  node.kind = Kind::kArray;
  node.elements = std::move(elements);
  return node;
}

JsonNode JsonNode::Object() { return Object(std::vector<JsonMember>()); }

JsonNode JsonNode::Object(std::vector<JsonMember> members) {
  JsonNode node;
  node.kind = Kind::kObject;
  node.members = std::move(members);
  return node;
}

const JsonNode* JsonNode::Find(absl::string_view key) const {
  for (const JsonMember& member : members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

JsonNode* JsonNode::Find(absl::string_view key) {
  return const_cast<JsonNode*>(static_cast<const JsonNode&>(*this).Find(key));
}

absl::StatusOr<JsonNode> ParseJson(absl::string_view text, absl::string_view origin) {
  if (const std::optional<std::string> foreign = Foreign(text)) {
    return absl::InvalidArgumentError(absl::StrCat(origin, ": ", *foreign));
  }
  TreeBuilder builder(text);
  const TellingIterator begin(text.data(), builder.read());
  const TellingIterator end(text.data() + text.size(), builder.read());
  if (!nlohmann::json::sax_parse(begin, end, &builder)) {
    const absl::string_view before = text.substr(0, builder.error_offset());
    const size_t line_start = before.rfind('\n');
    return absl::InvalidArgumentError(absl::StrCat(
        origin, ":", 1 + std::count(before.begin(), before.end(), '\n'), ":",
        1 + before.size() - (line_start == absl::string_view::npos ? 0 : line_start + 1),
        ": not valid JSON: ", builder.error()));
  }
  return builder.TakeRoot();
}

std::string WriteJson(const JsonNode& node) {
  using nlohmann::ordered_json;
  return ToNlohmann(node).dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string DescribeJson(const JsonNode& node) {
  switch (node.kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return node.boolean ? "true" : "false";
    case Kind::kInteger:
    case Kind::kDecimal:
      return Shortened(node.text);
    case Kind::kString:
      return absl::StrCat("the string \"", absl::Utf8SafeCHexEscape(Shortened(node.text)), "\"");
    case Kind::kArray:
      return "a list";
    case Kind::kObject:
      return "an object";
  }
  return "";
}

std::string Shortened(absl::string_view text) {
  constexpr size_t kShown = 60;
  if (text.size() <= kShown) return std::string(text);
  size_t size = kShown;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  return absl::StrCat(text.substr(0, size), "...");
}

std::string JsonNumber(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string digits(buffer, end);
  if (digits.find_first_of(".en") == std::string::npos) digits += ".0";
  return digits;
}

}  // namespace weft
