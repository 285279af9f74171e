#include "tests/simulation/store_poll.h"

#include <utility>

#include "services/common/retry.h"

namespace weft::simulation {
namespace {

constexpr Duration kWait = Seconds(3);

}  // namespace

StorePoll::StorePoll(Process* process, LockProcess* lock, PolledStore* store, StoreRunInfo run,
                     std::function<void(StoreInstructions*)> change,
                     std::function<void(const std::string&)> exit)
    : process_(process),
      lock_(lock),
      store_(store),
      run_(std::move(run)),
      change_(std::move(change)),
      exit_(std::move(exit)) {
  Poll(kWait, nullptr);
}

void StorePoll::Interrupt() { Poll(kWait, nullptr); }

void StorePoll::Last(std::function<void()> done) { Poll(Duration{}, std::move(done)); }

void StorePoll::Poll(Duration wait, std::function<void()> last) {
  const uint64_t number = ++number_;
  const RunContext context = store_->context();
  const auto report = std::make_shared<StoreReport>(store_->Report());
  const uint64_t known = store_->known_revision();
  // A call that arrives twice is two calls.
  const auto serve = [lock = lock_, context, report, known,
                      wait](const Reply<Told<StoreInstructions>>& reply) {
    const auto said = std::make_shared<StoreReport>(*report);
    lock->Serve<StoreInstructions>(
        context, wait,
        [said, known](RunCoordinator* run,
                      bool over) -> std::optional<absl::StatusOr<StoreInstructions>> {
          const auto told = run->Sync(*said);
          if (!told.ok()) return told;
          said->results.clear();
          said->persisted.clear();
          if (told->revision == known && !told->keep_list.has_value() && !over) {
            return std::nullopt;
          }
          return told;
        },
        reply);
  };
  process_->Call<Told<StoreInstructions>>(
      lock_, wait + Seconds(2), serve,
      [this, number, last](const absl::StatusOr<Told<StoreInstructions>>& told) {
        if (last != nullptr) return last();
        if (number == number_) Take(told);
      });
}

void StorePoll::Take(const absl::StatusOr<Told<StoreInstructions>>& told) {
  if (const absl::Status failure = store_->failure(); !failure.ok()) {
    return exit_(std::string(failure.message()));
  }
  absl::Status status = told.status();
  if (status.ok()) {
    StoreSyncClient::Answer answer = {told->context, told->answer};
    if (!std::exchange(told_run_, true)) answer.run = run_;
    if (change_ != nullptr) change_(&answer.instructions);
    status = store_->Take(answer);
    if (status.ok()) return Poll(kWait, nullptr);
  }
  process_->world().Log(process_, "poll: " + status.ToString());
  if (!IsTransient(status)) return exit_(std::string(status.message()));
  process_->After(process_->world().Between(Milliseconds(50), Seconds(1)),
                  [this, number = number_] {
                    if (number == number_) Poll(kWait, nullptr);
                  });
}

}  // namespace weft::simulation
