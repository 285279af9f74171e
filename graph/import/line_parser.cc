#include "graph/import/line_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/import/utf8.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace weft {
namespace {

// Calls visit(i) for every i with text[i] equal to `a` or `b`, in order.
template <typename Visit>
void ForEachSeparator(std::string_view text, char a, char b, Visit&& visit) {
  size_t i = 0;
#ifdef __SSE2__
  const __m128i wanted_a = _mm_set1_epi8(a);
  const __m128i wanted_b = _mm_set1_epi8(b);
  for (; i + 64 <= text.size(); i += 64) {
    uint64_t found = 0;
    for (int part = 0; part < 4; ++part) {
      const __m128i bytes =
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + i + 16 * part));
      const __m128i equal =
          _mm_or_si128(_mm_cmpeq_epi8(bytes, wanted_a), _mm_cmpeq_epi8(bytes, wanted_b));
      found |= static_cast<uint64_t>(static_cast<uint32_t>(_mm_movemask_epi8(equal)))
               << (16 * part);
    }
    for (; found != 0; found &= found - 1) visit(i + std::countr_zero(found));
  }
#endif
  for (; i < text.size(); ++i) {
    if (text[i] == a || text[i] == b) visit(i);
  }
}

}  // namespace

absl::string_view EdgeFieldName(EdgeField field) {
  switch (field) {
    case EdgeField::kLhs:
      return "left-hand entity";
    case EdgeField::kRhs:
      return "right-hand entity";
    case EdgeField::kRel:
      return "relation";
    case EdgeField::kWeight:
      return "weight";
  }
  return "field";
}

void ParsedLines::Clear() {
  for (std::vector<std::string_view>& column : fields) column.clear();
  line.clear();
  begin.clear();
  bad.clear();
  unquoted.clear();
  num_lines = 0;
  num_blank = 0;
}

void ParsedLines::Move(size_t from, size_t to) {
  for (std::vector<std::string_view>& column : fields) {
    if (!column.empty()) column[to] = column[from];
  }
  line[to] = line[from];
  begin[to] = begin[from];
}

void ParsedLines::Truncate(size_t size) {
  for (std::vector<std::string_view>& column : fields) column.resize(std::min(size, column.size()));
  line.resize(size);
  begin.resize(size);
}

// One block on its way into ParsedLines.
class LineParser::Splitter {
 public:
  Splitter(const LineParser& parser, const LineBlock& block, bool skip_first, ParsedLines* out)
      : format_(parser.format_),
        num_columns_(static_cast<size_t>(parser.num_columns_)),
        block_(block),
        skip_first_(skip_first),
        check_text_(!IsAsciiWithoutNul(block.text())),
        out_(out),
        ends_(num_columns_),
        fields_(num_columns_) {}

  void Run() {
    const std::string_view text = block_.text();
    if (format_.quotes && text.find('"') != std::string_view::npos) {
      for (size_t begin = 0; begin < text.size();) {
        const size_t newline = std::min(text.find('\n', begin), text.size());
        OnQuotedLine(begin, newline);
        begin = newline + 1;
      }
      return;
    }
    size_t begin = 0;
    size_t num_ends = 0;
    ForEachSeparator(text, '\n', format_.delimiter, [&](size_t i) {
      if (text[i] != '\n') {
        if (num_ends < num_columns_) ends_[num_ends] = i;
        ++num_ends;
        return;
      }
      OnLine(begin, i, num_ends);
      begin = i + 1;
      num_ends = 0;
    });
    if (begin < text.size()) OnLine(begin, text.size(), num_ends);
  }

 private:
  // What both kinds of line go through first. False: the line is done with.
  bool Begin(size_t begin, size_t end) {
    line_ = out_->num_lines++;
    if (skip_first_ && line_ == 0) return false;
    begin_ = begin;
    text_ = block_.text().substr(begin, end - begin);
    if (text_.size() > format_.max_line_bytes || (block_.overlong && end == block_.size)) {
      return Refuse(absl::StrCat("is longer than ", format_.max_line_bytes, " bytes"));
    }
    if (!text_.empty() && text_.back() == '\r') text_.remove_suffix(1);
    if (text_.find_first_not_of(' ') == std::string_view::npos) {
      ++out_->num_blank;
      return false;
    }
    return !check_text_ || CheckText();
  }

  bool CheckText() {
    const size_t nul = text_.find('\0');
    if (nul != std::string_view::npos) return Refuse(At("has a NUL byte", nul));
    const size_t invalid = FindInvalidUtf8(text_);
    if (invalid == kWholeText) return true;
    std::string what =
        absl::StrFormat("is not UTF-8 (0x%02X)", static_cast<uint8_t>(text_[invalid]));
    const int64_t offset = block_.offset + static_cast<int64_t>(begin_ + invalid);
    if (offset == 0 && (text_[0] == '\xFF' || text_[0] == '\xFE')) {
      absl::StrAppend(&what, ", perhaps UTF-16 (iconv -f UTF-16 -t UTF-8 mends it),");
    }
    return Refuse(At(what, invalid));
  }

  std::string At(absl::string_view what, size_t index) const {
    return absl::StrCat(what, " at byte ", index + 1, " of the line, byte ",
                        block_.offset + static_cast<int64_t>(begin_ + index) + 1, " of the input");
  }

  void OnLine(size_t begin, size_t end, size_t num_ends) {
    if (!Begin(begin, end)) return;
    const size_t num_fields = num_ends + 1;
    if (num_fields < num_columns_) {
      RefuseFields(num_fields);
      return;
    }
    const char* data = block_.data.get();
    const size_t text_end = begin + text_.size();  // without a carriage return
    Accept([&](size_t column) {
      const size_t from = column == 0 ? begin : ends_[column - 1] + 1;
      const size_t to = column < num_ends ? ends_[column] : text_end;
      return std::string_view(data + from, to - from);
    });
  }

  void OnQuotedLine(size_t begin, size_t end) {
    if (!Begin(begin, end)) return;
    size_t num_fields = 0;
    for (size_t at = 0; at <= text_.size(); ++num_fields) {
      std::string_view field;
      if (at < text_.size() && text_[at] == '"') {
        if (!Unquote(&at, &field)) return;
      } else {
        const size_t stop = std::min(text_.find(format_.delimiter, at), text_.size());
        field = text_.substr(at, stop - at);
        at = stop;
      }
      if (num_fields < num_columns_) fields_[num_fields] = field;
      ++at;  // the delimiter, or past the end
    }
    if (num_fields < num_columns_) {
      RefuseFields(num_fields);
      return;
    }
    Accept([&](size_t column) { return fields_[column]; });
  }

  // From the opening quote at *at to the delimiter or the end of the line behind the closing one.
  bool Unquote(size_t* at, std::string_view* field) {
    const size_t begin = *at + 1;
    bool doubled = false;
    size_t close = text_.find('"', begin);
    while (close != std::string_view::npos && close + 1 < text_.size() && text_[close + 1] == '"') {
      doubled = true;
      close = text_.find('"', close + 2);
    }
    if (close == std::string_view::npos) {
      return Refuse("has a quoted field that does not end on its line");
    }
    *at = close + 1;
    if (*at < text_.size() && text_[*at] != format_.delimiter) {
      return Refuse(absl::StrCat("has text behind the closing quote at byte ", close + 1));
    }
    *field = text_.substr(begin, close - begin);
    if (!doubled) return true;
    std::string& copy = out_->unquoted.emplace_back();
    for (size_t i = 0; i < field->size(); ++i) {
      copy.push_back((*field)[i]);
      if ((*field)[i] == '"') ++i;
    }
    *field = copy;
    return true;
  }

  template <typename Field>
  void Accept(Field&& field_of) {
    for (int f = 0; f < kNumEdgeFields; ++f) {
      if (format_.columns[f] == LineFormat::kNoColumn) continue;
      if (field_of(static_cast<size_t>(format_.columns[f])).empty()) {
        Refuse(absl::StrCat("empty ", EdgeFieldName(static_cast<EdgeField>(f))));
        return;
      }
    }
    for (int f = 0; f < kNumEdgeFields; ++f) {
      if (format_.columns[f] == LineFormat::kNoColumn) continue;
      out_->fields[f].push_back(field_of(static_cast<size_t>(format_.columns[f])));
    }
    out_->line.push_back(static_cast<uint32_t>(line_));
    out_->begin.push_back(static_cast<uint32_t>(begin_));
  }

  void RefuseFields(size_t num_fields) {
    Refuse(absl::StrCat("has ", num_fields, num_fields == 1 ? " field" : " fields", ", needs ",
                        num_columns_));
  }
  bool Refuse(std::string reason) {
    out_->bad.push_back({line_, std::move(reason), text_});
    return false;
  }

  const LineFormat& format_;
  const size_t num_columns_;
  const LineBlock& block_;
  const bool skip_first_;
  const bool check_text_;
  ParsedLines* const out_;

  // The current line.
  int64_t line_ = 0;
  size_t begin_ = 0;
  std::string_view text_;
  std::vector<size_t> ends_;              // of its first fields: where their delimiters are
  std::vector<std::string_view> fields_;  // its first fields, when it is quoted
};

LineParser::LineParser(const LineFormat& format)
    : format_(format),
      num_columns_(*std::max_element(format.columns.begin(), format.columns.end()) + 1) {}

void LineParser::Parse(const LineBlock& block, bool skip_first, ParsedLines* out) const {
  out->Clear();
  Splitter(*this, block, skip_first, out).Run();
}

std::string_view LineParser::LineAt(const LineBlock& block, size_t begin) {
  std::string_view text = block.text().substr(begin);
  text = text.substr(0, text.find('\n'));
  if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  return text;
}

}  // namespace weft
