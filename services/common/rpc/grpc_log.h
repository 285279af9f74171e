// What gRPC itself has to say goes to this process's log, as lines of its format; the TLS
// handshakes that it tells of are counted, since it has no other way to hear of them.
//
// Thread-safety: any thread.
#pragma once

#include "services/common/metrics.h"

namespace weft {

// Why a handshake failed.
enum class HandshakeFailure {
  kNoCertificate,  // a client showed none
  kNotBelieved,    // the peer's is of another CA, has expired, or is damaged
  kOther,          // no TLS at all, no version or cipher in common, ended by the peer
  kCount,
};

// From now on, once a process. What gRPC says is a warning here, at most one a second.
void TakeGrpcLog();

// Of this process, as a server or a client, since TakeGrpcLog.
void WriteHandshakeMetrics(MetricsPage* page);

}  // namespace weft
