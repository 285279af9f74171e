#include "services/trainer/kernels/cpu.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>

#include <cstdlib>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "hwy/highway.h"

namespace weft {
namespace {

struct CpuClass {
  std::string_view name;
  int64_t best_target;  // Highway's; better targets have lower bits
  dnnl_cpu_isa_t isa;
};

constexpr CpuClass kClasses[] = {
    {"sse4", HWY_SSE4, dnnl_cpu_isa_sse41},
    {"avx2", HWY_AVX2, dnnl_cpu_isa_avx2},
    {"avx512", HWY_AVX3, dnnl_cpu_isa_avx512_core},
};

absl::Status ApplyEnvironment() {
  const char* wanted = std::getenv("WEFT_CPU");
  if (wanted == nullptr || *wanted == '\0') return absl::OkStatus();
  for (const CpuClass& c : kClasses) {
    if (c.name != wanted) continue;
    if ((hwy::SupportedTargets() & c.best_target) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("WEFT_CPU=", wanted, ": this CPU does not have it"));
    }
    hwy::DisableTargets(c.best_target - 1);
    if (dnnl_set_max_cpu_isa(c.isa) != dnnl_success) {
      return absl::InternalError("WEFT_CPU: oneDNN was in use before it could be limited");
    }
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("WEFT_CPU=", wanted, ": must be sse4, avx2 or avx512"));
}

}  // namespace

absl::Status InitKernels() {
  static const absl::Status status = ApplyEnvironment();
  return status;
}

void UseOneOpenMpThread() {
  if (omp_get_max_threads() != 1) omp_set_num_threads(1);
}

std::vector<VectorTarget> SupportedVectorTargets() {
  std::vector<VectorTarget> targets;
  for (const int64_t id : hwy::SupportedAndGeneratedTargets()) {
    targets.push_back({id, hwy::TargetName(id)});
  }
  return targets;
}

void ForceVectorTarget(int64_t id) {
  hwy::SetSupportedTargetsForTest(id);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace weft
