#include "services/param_server/param_client.h"

namespace weft {

void SharedState::TrackChanges() {
  for (Parameter& p : parameters.all()) {
    p.changed.assign(static_cast<size_t>(p.values.rows()), 0);
  }
  unpartitioned_changed.resize(unpartitioned.size());
  for (size_t type = 0; type < unpartitioned.size(); ++type) {
    unpartitioned_changed[type].assign(static_cast<size_t>(unpartitioned[type].count()), 0);
  }
}

}  // namespace weft
