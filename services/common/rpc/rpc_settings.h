// Numbers that both ends of a connection agree on.
#pragma once

namespace weft {

// Measured over loopback: 1.5-2.0 GB/s with 16 MiB and no BDP probe, 0.9-1.4 with gRPC's defaults.
inline constexpr int kStreamWindowBytes = 16 << 20;

// HTTP/2's default of 16 KiB would cut a segment in 256 frames.
inline constexpr int kMaxFrameBytes = 1 << 20;

// Of one connection, at once. What a client asks for beyond it waits on its side.
inline constexpr int kMaxStreamsPerConnection = 1024;

// A peer that does not answer a ping is gone: a stopped process, a cut cable.
inline constexpr int kKeepaliveMs = 15'000;
inline constexpr int kKeepaliveTimeoutMs = 10'000;

}  // namespace weft
