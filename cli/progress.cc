#include "cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

ProgressMode Resolve(ProgressMode mode, std::FILE* out) {
  if (mode != ProgressMode::kAuto) return mode;
  return isatty(fileno(out)) != 0 ? ProgressMode::kBar : ProgressMode::kLines;
}

int TerminalWidth(std::FILE* out) {
  winsize size{};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

// The first `width` characters of UTF-8 text.
std::string Cut(std::string text, int width) {
  int characters = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (starts && ++characters > width) {
      text.resize(i);
      break;
    }
  }
  return text;
}

bool HasTotal(const ProgressState& state) { return state.total && *state.total > 0; }

double Fraction(const ProgressState& state) {
  return std::clamp(static_cast<double>(state.done) / static_cast<double>(*state.total), 0.0, 1.0);
}

double Rate(const ProgressState& state) {
  const double seconds = absl::ToDoubleSeconds(state.elapsed);
  return seconds > 0 ? static_cast<double>(state.done) / seconds : 0;
}

bool InBytes(const ProgressState& state) { return state.unit == "bytes"; }

// "1,260,000/3,000,000 edges", "13.6 MB/42.8 MB"
std::string Count(const ProgressState& state, bool with_total) {
  std::string done, total;
  if (InBytes(state)) {
    done = FormatBytes(static_cast<double>(state.done));
    if (with_total) total = FormatBytes(static_cast<double>(*state.total));
  } else {
    done = FormatCount(state.done);
    if (with_total) total = FormatCount(*state.total);
    const std::string unit = state.unit.empty() ? "" : absl::StrCat(" ", state.unit);
    absl::StrAppend(with_total ? &total : &done, unit);
  }
  return with_total ? absl::StrCat(done, "/", total) : done;
}

std::string RateText(const ProgressState& state) {
  if (InBytes(state)) return absl::StrCat(FormatBytes(Rate(state)), "/s");
  return absl::StrCat(FormatRate(Rate(state)), state.unit.empty() ? "" : " ", state.unit, "/s");
}

// "0:41 left"; empty while nothing is known.
std::string Remaining(const ProgressState& state) {
  if (!HasTotal(state) || state.done <= 0 || state.done >= *state.total) return "";
  const double done = static_cast<double>(state.done);
  const double left = static_cast<double>(*state.total) - done;
  return absl::StrCat(FormatElapsed(state.elapsed * (left / done)), " left");
}

// Three digits, and the power of a thousand: "2.51 M", "950".
std::string Scaled(double value) {
  constexpr struct {
    double scale;
    const char* name;
  } kUnits[] = {{1e12, " T"}, {1e9, " G"}, {1e6, " M"}, {1e3, " k"}};
  for (const auto& unit : kUnits) {
    // Not 1e+03: what rounds up to a thousand has the next unit.
    if (value >= unit.scale * 0.9995) {
      return absl::StrCat(absl::StrFormat("%.3g", value / unit.scale), unit.name);
    }
  }
  return absl::StrFormat("%.3g", value);
}

}  // namespace

std::string FormatCount(int64_t count) {
  std::string digits = absl::StrCat(count);
  const size_t first = count < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3; i -= 3) digits.insert(i - 3, 1, ',');
  return digits;
}

std::string FormatRate(double rate) { return Scaled(rate); }

std::string FormatBytes(double bytes) {
  const std::string scaled = Scaled(bytes);
  return absl::StrCat(scaled, scaled.find(' ') == std::string::npos ? " B" : "B");
}

std::string FormatElapsed(absl::Duration duration) {
  const int64_t seconds =
      std::max<int64_t>(0, absl::ToInt64Seconds(duration + absl::Milliseconds(500)));
  if (seconds >= 3600) {
    return absl::StrFormat("%d:%02d:%02d", seconds / 3600, seconds / 60 % 60, seconds % 60);
  }
  return absl::StrFormat("%d:%02d", seconds / 60, seconds % 60);
}

std::string FormatProgressBar(const ProgressState& state, int width) {
  std::string tail = absl::StrCat("  ", Count(state, HasTotal(state)), "  ", RateText(state));
  if (const std::string left = Remaining(state); !left.empty()) absl::StrAppend(&tail, "  ", left);
  if (!state.note.empty()) absl::StrAppend(&tail, "  ", state.note);
  std::string head = state.title;
  if (HasTotal(state)) {
    absl::StrAppendFormat(&head, " %3d%%", static_cast<int>(Fraction(state) * 100));
    constexpr int kLeast = 10;
    constexpr int kMost = 30;
    const int room = width - static_cast<int>(head.size() + tail.size()) - 3;
    if (room >= kLeast) {
      const int cells = std::min(room, kMost);
      const int full = static_cast<int>(Fraction(state) * cells);
      absl::StrAppend(&head, " [", std::string(full, '#'), std::string(cells - full, '.'), "]");
    }
  }
  return Cut(head + tail, width);
}

std::string FormatProgressLine(const ProgressState& state) {
  std::string line = absl::StrCat(state.title, ": ", Count(state, HasTotal(state)));
  if (HasTotal(state)) {
    absl::StrAppend(&line, " (", static_cast<int>(Fraction(state) * 100), "%)");
  }
  absl::StrAppend(&line, ", ", RateText(state));
  if (const std::string left = Remaining(state); !left.empty()) absl::StrAppend(&line, ", ", left);
  if (!state.note.empty()) absl::StrAppend(&line, ", ", state.note);
  return line;
}

std::string FormatProgressSummary(const ProgressState& state) {
  const double seconds = absl::ToDoubleSeconds(state.elapsed);
  std::string line =
      absl::StrCat(state.title, ": ", Count(state, /*with_total=*/false), " in ",
                   seconds < 60 ? absl::StrFormat("%.1f s", seconds) : FormatElapsed(state.elapsed),
                   " (", RateText(state), ")");
  if (!state.note.empty()) absl::StrAppend(&line, ", ", state.note);
  return line;
}

ProgressReporter::ProgressReporter(Options options)
    : options_(std::move(options)),
      mode_(Resolve(options_.mode, options_.out)),
      start_(SteadyClock::now()),
      total_(options_.total) {
  if (mode_ != ProgressMode::kOff) thread_ = std::thread([this] { Loop(); });
}

ProgressReporter::~ProgressReporter() { Finish(); }

void ProgressReporter::SetTotal(std::optional<int64_t> total) {
  MutexLock lock(&mu_);
  total_ = total;
}

void ProgressReporter::SetNote(std::string_view note) {
  MutexLock lock(&mu_);
  note_ = std::string(note);
}

void ProgressReporter::Print(std::string_view line) {
  MutexLock lock(&mu_);
  const bool redraw = bar_drawn_;
  EraseBar();
  std::fprintf(options_.out, "%.*s\n", static_cast<int>(line.size()), line.data());
  if (redraw) Draw();
  std::fflush(options_.out);
}

void ProgressReporter::Finish() { Stop(/*summary=*/true); }

void ProgressReporter::Abandon() { Stop(/*summary=*/false); }

void ProgressReporter::Stop(bool summary) {
  {
    MutexLock lock(&mu_);
    if (stop_) return;
    stop_ = true;
    EraseBar();
    if (summary && mode_ != ProgressMode::kOff) {
      std::fprintf(options_.out, "%s\n", FormatProgressSummary(State()).c_str());
    }
    std::fflush(options_.out);
    stopped_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void ProgressReporter::Loop() {
  const auto interval = absl::ToChronoNanoseconds(
      mode_ == ProgressMode::kBar ? options_.bar_interval : options_.line_interval);
  SteadyClock::time_point next = start_ + interval;
  MutexLock lock(&mu_);
  while (!stop_) {
    if (stopped_.WaitUntil(&mu_, next)) continue;  // woken, perhaps for nothing
    if (stop_) return;
    Draw();
    next = std::max(next + interval, SteadyClock::now());
  }
}

void ProgressReporter::Draw() {
  if (mode_ == ProgressMode::kLines) {
    std::fprintf(options_.out, "%s\n", FormatProgressLine(State()).c_str());
  } else if (mode_ == ProgressMode::kBar) {
    // The last column stays free: some terminals wrap when it is written.
    const std::string bar = FormatProgressBar(State(), TerminalWidth(options_.out) - 1);
    std::fprintf(options_.out, "\r\x1b[K%s", bar.c_str());
    bar_drawn_ = true;
  }
  std::fflush(options_.out);
}

void ProgressReporter::EraseBar() {
  if (!bar_drawn_) return;
  std::fputs("\r\x1b[K", options_.out);
  bar_drawn_ = false;
}

ProgressState ProgressReporter::State() const {
  ProgressState state;
  state.title = options_.title;
  state.unit = options_.unit;
  state.done = done_.load(std::memory_order_relaxed);
  state.total = total_;
  state.note = note_;
  state.elapsed = absl::FromChrono(SteadyClock::now() - start_);
  return state;
}

}  // namespace weft::cli
