// World is what a simulated cluster runs in: time, chance and a network, all decided by one seed.
//
// Everything happens in events of one thread, in the order of simulated time; two runs of one seed
// are the same run. Nothing here knows what the processes do.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "services/common/clock.h"
#include "services/common/random.h"

namespace weft::simulation {

class Process;

using Duration = SteadyTime::duration;

constexpr Duration Milliseconds(int64_t n) { return std::chrono::milliseconds(n); }
constexpr Duration Seconds(int64_t n) { return std::chrono::seconds(n); }

class World {
 public:
  // What happens to messages.
  struct Network {
    double lost = 0;
    double repeated = 0;
    double slow = 0;  // this share takes up to `slow_delay`, overtaken by others
    Duration slow_delay = Seconds(1);
  };

  explicit World(uint64_t seed);

  Duration now() const { return now_; }
  bool Chance(double probability) { return random_.Uniform() < probability; }
  uint32_t Below(uint32_t bound) { return random_.Below(bound); }
  Duration Between(Duration low, Duration high);
  uint64_t NewId();  // never 0

  // Runs `event` after `delay`.
  void After(Duration delay, std::function<void()> event);
  // The same, if `process` still lives that life then; while it is frozen, when it thaws.
  void AfterIn(Process* process, uint64_t life, Duration delay, std::function<void()> event);
  // Brings a message, or loses it, or brings it twice. Whoever lives at `to` then gets it; with a
  // `life`, only that one.
  void Send(Process* from, Process* to, std::optional<uint64_t> life,
            std::function<void()> message);
  // For the time of a call that does not take any: whether a message arrives.
  bool Reaches(Process* from, Process* to);

  // Runs the next event. False: there is none.
  bool Step();

  Network& network() { return network_; }
  // Nothing passes between the two until then.
  void Cut(Process* a, Process* b, Duration until);
  void EndCuts() { cuts_.clear(); }

  // Of all that has happened: equal runs have equal ones.
  uint64_t fingerprint() const { return fingerprint_; }
  void Note(uint64_t what);
  // What happened, one line each, on stderr.
  void set_verbose(bool verbose) { verbose_ = verbose; }
  void Log(const Process* process, const std::string& what);

  // Something that must never happen did: the run ends. The first one counts.
  void Fail(std::string what);
  const std::string& failure() const { return failure_; }

 private:
  struct Event {
    Duration time;
    uint64_t number;   // of equal times the first one first
    Process* process;  // may be null
    uint64_t life;
    std::function<void()> run;

    bool operator<(const Event& other) const {
      return std::pair(other.time, other.number) < std::pair(time, number);
    }
  };
  bool IsCut(Process* a, Process* b) const;
  void Push(Duration time, Process* process, uint64_t life, std::function<void()> run);

  RandomStream random_;
  Network network_;
  Duration now_{};
  uint64_t number_ = 0;
  uint64_t fingerprint_ = 0;
  bool verbose_ = false;
  std::string failure_;
  std::priority_queue<Event> events_;
  std::map<std::pair<Process*, Process*>, Duration> cuts_;
};

}  // namespace weft::simulation
