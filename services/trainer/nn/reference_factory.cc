#include "services/trainer/nn/reference_factory.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <atomic>
#include <exception>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/common/status_macros.h"
#include "services/trainer/nn/batch_graph.h"
#include "services/trainer/nn/reference_model.h"

namespace weft::nn {
namespace {

// The border: no exception of LibTorch or of an operator passes it.
template <typename Function>
auto CatchExceptions(Function function) -> decltype(function()) {
  try {
    return function();
  } catch (const c10::Error& e) {
    return absl::InternalError(absl::StrCat("LibTorch: ", e.what_without_backtrace()));
  } catch (const std::exception& e) {
    return absl::InternalError(e.what());
  }
}

// Steps run in parallel; what they call must not do so once more.
void UseOneThreadEach() {
  // For this thread; threads that come to LibTorch later take the number over.
  at::set_num_threads(1);
  // OpenBLAS built on pthreads has a pool of its own, of which LibTorch knows nothing.
  using SetNumThreads = void (*)(int);
  static const auto set_blas_threads =
      reinterpret_cast<SetNumThreads>(dlsym(RTLD_DEFAULT, "openblas_set_num_threads"));
  if (set_blas_threads != nullptr) set_blas_threads(1);
}

class ReferenceBatchStep : public BatchStep {
 public:
  ReferenceBatchStep(ReferenceModel model, ParameterSet* parameters, at::ScalarType precision)
      : model_(std::move(model)), parameters_(parameters), precision_(precision) {}

  absl::StatusOr<BatchStats> Train(const EdgeBatch& batch, const SampledNegatives& negatives,
                                   const BatchTables& tables) override {
    return CatchExceptions([&]() -> absl::StatusOr<BatchStats> {
      BatchGraph graph(model_, batch, negatives, tables, precision_);
      WEFT_RETURN_IF_ERROR(graph.Forward());
      WEFT_RETURN_IF_ERROR(graph.Backward());
      graph.Step();
      std::atomic_ref(parameters_->steps).fetch_add(1, std::memory_order_relaxed);
      return graph.stats();
    });
  }

  absl::StatusOr<BatchStats> Score(const EdgeBatch& batch, const SampledNegatives& negatives,
                                   const BatchTables& tables, BatchScores* scores) override {
    return CatchExceptions([&]() -> absl::StatusOr<BatchStats> {
      at::NoGradGuard no_grad;
      BatchGraph graph(model_, batch, negatives, tables, precision_);
      WEFT_RETURN_IF_ERROR(graph.Forward());
      *scores = graph.scores();
      return graph.stats();
    });
  }

  absl::StatusOr<BatchGradients> Gradients(const EdgeBatch& batch,
                                           const SampledNegatives& negatives,
                                           const BatchTables& tables) override {
    return CatchExceptions([&]() -> absl::StatusOr<BatchGradients> {
      BatchGraph graph(model_, batch, negatives, tables, precision_);
      WEFT_RETURN_IF_ERROR(graph.Forward());
      WEFT_RETURN_IF_ERROR(graph.Backward());
      return graph.gradients();
    });
  }

 private:
  const ReferenceModel model_;
  ParameterSet* const parameters_;
  const at::ScalarType precision_;
};

class ReferenceBatchStepFactory : public BatchStepFactory {
 public:
  explicit ReferenceBatchStepFactory(at::ScalarType precision) : precision_(precision) {}

  absl::StatusOr<ParameterSet> MakeParameters(const ModelSpec& spec) const override {
    return CatchExceptions([&] { return MakeReferenceParameters(spec); });
  }

  absl::StatusOr<std::unique_ptr<BatchStep>> Make(const ModelSpec& spec,
                                                  ParameterSet* parameters) const override {
    return CatchExceptions([&]() -> absl::StatusOr<std::unique_ptr<BatchStep>> {
      WEFT_ASSIGN_OR_RETURN(ReferenceModel model, MakeReferenceModel(spec, parameters));
      UseOneThreadEach();
      return std::make_unique<ReferenceBatchStep>(std::move(model), parameters, precision_);
    });
  }

 private:
  const at::ScalarType precision_;
};

}  // namespace

const BatchStepFactory& ReferenceFactory(Precision precision) {
  static const ReferenceBatchStepFactory in_float(at::kFloat);
  static const ReferenceBatchStepFactory in_double(at::kDouble);
  return precision == Precision::kFloat ? in_float : in_double;
}

}  // namespace weft::nn

const weft::BatchStepFactory* WeftReferenceFactory(const char* version) {
  return std::string_view(version) == WEFT_VERSION ? &weft::nn::ReferenceFactory() : nullptr;
}
