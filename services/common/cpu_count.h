// How many processors this process may use.
#pragma once

#include <string>

namespace weft {

// At least 1: the processors of the affinity mask, or fewer when a control group's quota is lower
// (rounded up to whole processors), as in a container with a processor limit.
int AvailableCores();

// The quota of the control group of this process and of those above it, in processors; 0 without
// one. Version 2 (cpu.max) and version 1 (cpu.cfs_quota_us). `root` stands for "/" in tests.
double ControlGroupCores(const std::string& root);

}  // namespace weft
