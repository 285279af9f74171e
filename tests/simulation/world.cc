#include "tests/simulation/world.h"

#include <algorithm>
#include <cstdio>

#include "tests/simulation/process.h"

namespace weft::simulation {

World::World(uint64_t seed) : random_(seed, RandomUse::kTest, /*a=*/0x5111) {}

Duration World::Between(Duration low, Duration high) {
  return low + Duration(random_.Below64(static_cast<uint64_t>((high - low).count()) + 1));
}

uint64_t World::NewId() { return random_.Below64(UINT64_MAX - 1) + 1; }

void World::Push(Duration time, Process* process, uint64_t life, std::function<void()> run) {
  events_.push({time, ++number_, process, life, std::move(run)});
}

void World::After(Duration delay, std::function<void()> event) {
  Push(now_ + delay, nullptr, 0, std::move(event));
}

void World::AfterIn(Process* process, uint64_t life, Duration delay, std::function<void()> event) {
  Push(now_ + delay, process, life, std::move(event));
}

void World::Send(Process* from, Process* to, std::optional<uint64_t> life,
                 std::function<void()> message) {
  if (IsCut(from, to) || Chance(network_.lost)) return;
  const int copies = Chance(network_.repeated) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    Duration delay = Between(Duration(200'000), Milliseconds(3));
    if (Chance(network_.slow)) delay += Between(Duration{}, network_.slow_delay);
    if (life.has_value()) {
      AfterIn(to, *life, delay, message);
    } else {
      // Whoever it is, it is not there while it is frozen.
      After(delay, [this, to, message] {
        if (to->frozen_until() > now_) {
          After(to->frozen_until() - now_, message);
        } else {
          message();
        }
      });
    }
  }
}

bool World::Reaches(Process* from, Process* to) {
  return to->up() && to->frozen_until() <= now_ && !IsCut(from, to) && !Chance(network_.lost);
}

void World::Cut(Process* a, Process* b, Duration until) { cuts_[std::minmax(a, b)] = until; }

bool World::IsCut(Process* a, Process* b) const {
  const auto cut = cuts_.find(std::minmax(a, b));
  return cut != cuts_.end() && cut->second > now_;
}

bool World::Step() {
  if (events_.empty()) return false;
  Event event = std::move(const_cast<Event&>(events_.top()));
  events_.pop();
  now_ = event.time;
  Process* const process = event.process;
  if (process != nullptr) {
    if (process->life() != event.life || !process->up()) return true;
    if (process->frozen_until() > now_) {
      Push(process->frozen_until(), process, event.life, std::move(event.run));
      return true;
    }
  }
  Note(static_cast<uint64_t>(now_.count()));
  event.run();
  return true;
}

void World::Note(uint64_t what) {
  fingerprint_ = (fingerprint_ ^ what) * 0x9E3779B97F4A7C15u;
  fingerprint_ ^= fingerprint_ >> 29;
}

void World::Log(const Process* process, const std::string& what) {
  if (!verbose_) return;
  std::fprintf(stderr, "%10.3f %-12s %s\n", std::chrono::duration<double>(now_).count(),
               process == nullptr ? "" : process->name().c_str(), what.c_str());
}

void World::Fail(std::string what) {
  Log(nullptr, "FAILURE: " + what);
  if (failure_.empty()) failure_ = std::move(what);
}

}  // namespace weft::simulation
