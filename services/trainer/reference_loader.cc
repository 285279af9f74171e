#include "services/trainer/reference_loader.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr char kLibrary[] = "libweft_nn.so";
constexpr char kFunction[] = "WeftReferenceFactory";  // services/trainer/nn/reference_factory.h
using Function = const BatchStepFactory* (*)(const char* version);

absl::StatusOr<const BatchStepFactory*> FindAndLoad() {
  std::error_code error;
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::filesystem::path beside = folder / kLibrary;
  const std::filesystem::path installed = (folder / ".." / "lib" / kLibrary).lexically_normal();
  for (const std::filesystem::path& path : {beside, installed}) {
    if (std::filesystem::exists(path, error)) return LoadReferenceFactoryFrom(path.string());
  }
  return absl::NotFoundError(absl::StrCat(
      "the reference implementation needs ", kLibrary, ", which is neither ", beside.string(),
      " nor ", installed.string(), "; build Weft with -DWEFT_WITH_TORCH=ON"));
}

}  // namespace

absl::StatusOr<const BatchStepFactory*> LoadReferenceFactory() {
  static const absl::StatusOr<const BatchStepFactory*> loaded = FindAndLoad();
  return loaded;
}

absl::StatusOr<const BatchStepFactory*> LoadReferenceFactoryFrom(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("cannot open the library: ", dlerror()));
  }
  const auto function = reinterpret_cast<Function>(dlsym(library, kFunction));
  if (function == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": is not Weft's reference implementation (", dlerror(), ")"));
  }
  const BatchStepFactory* factory = function(WEFT_VERSION);
  if (factory == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": belongs to another version of Weft than this program (", WEFT_VERSION, ")"));
  }
  return factory;
}

}  // namespace weft
