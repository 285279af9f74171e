// A whole run of a simulated cluster: its shape, its data and its faults follow from one seed.
#pragma once

#include <cstdint>
#include <string>

namespace weft::simulation {

// Rules that are deliberately not kept: each must be caught.
enum class Weakened {
  kNothing,
  kNamesTrainedCopies,     // trainer: a copy keeps its name although it was trained on
  kTrainsWhatIsStored,     // trainer: no copy is taken of what is being stored
  kBlobsAnsweredUnsynced,  // partition server: an upload is acknowledged before it is synced
  kSweepsEverything,       // partition server: a keep list without its high-water mark
  kLockAnswersUnsynced,    // lock server: answers leave before the sync
  kReleasesUnflushed,      // trainer: parameters are not flushed before a release
};

struct RunResult {
  std::string failure;  // empty: all is well
  // Disks were lost or damaged so that nothing whole was left: the run said so and ended.
  bool nothing_left = false;
  int64_t kills = 0;
  int64_t passes = 0;
  int64_t edges = 0;    // of these passes
  int64_t trained = 0;  // edges, those of lost grants too
  int64_t sessions = 0;
  int64_t rewinds = 0;
  double seconds = 0;  // simulated
  uint64_t fingerprint = 0;
};

RunResult SimulateRun(uint64_t seed, Weakened weakened = Weakened::kNothing, bool verbose = false);

}  // namespace weft::simulation
