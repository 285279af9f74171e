#include "services/trainer/kernels/gemm.h"

#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "services/common/check.h"
#include "services/common/mutex.h"

namespace weft {
namespace {

struct ShapeHash {
  size_t operator()(const GemmShape& s) const {
    return absl::HashOf(s.transpose_a, s.transpose_b, s.m, s.n, s.k, s.a_stride, s.b_stride,
                        s.c_stride, s.accumulate);
  }
};

// A matmul primitive and its arguments, whose data pointers are set before each use.
struct CachedPrimitive {
  dnnl::matmul primitive;
  dnnl::memory a, b, c, scratchpad;
  std::unordered_map<int, dnnl::memory> arguments;
  bool batch_reduce = false;  // the kernel of new CPUs; others are dnnl_sgemm with overhead
};

// Shapes differ in the rows of a batch's last chunk, so there are few.
constexpr size_t kMaxPrimitives = 512;

}  // namespace

struct Gemm::Impl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  absl::flat_hash_map<GemmShape, std::unique_ptr<CachedPrimitive>, ShapeHash> primitives;
  // What was used last; a step asks for the same few shapes in turn.
  std::vector<std::pair<GemmShape, CachedPrimitive*>> recent;
  bool use_primitives = false;

  Impl() {
    const GemmShape typical{
        .m = 64, .n = 128, .k = 128, .a_stride = 128, .b_stride = 128, .c_stride = 128};
    use_primitives = Find(typical).batch_reduce;
  }

  CachedPrimitive& Find(const GemmShape& s) {
    for (const auto& [shape, primitive] : recent) {
      if (shape == s) return *primitive;
    }
    if (primitives.size() >= kMaxPrimitives) {
      primitives.clear();
      recent.clear();
    }
    std::unique_ptr<CachedPrimitive>& slot = primitives[s];
    if (slot == nullptr) slot = Make(s);
    if (recent.size() >= 16) recent.clear();
    recent.emplace_back(s, slot.get());
    return *slot;
  }

  std::unique_ptr<CachedPrimitive> Make(const GemmShape& s) {
    using dnnl::memory;
    const auto f32 = memory::data_type::f32;
    const auto strides = [](bool transposed, int64_t stride) {
      return transposed ? memory::dims{1, stride} : memory::dims{stride, 1};
    };
    const memory::desc a({s.m, s.k}, f32, strides(s.transpose_a, s.a_stride));
    const memory::desc b({s.k, s.n}, f32, strides(s.transpose_b, s.b_stride));
    const memory::desc c({s.m, s.n}, f32, strides(false, s.c_stride));
    dnnl::primitive_attr attributes;
    // In the default mode threads share the library's scratchpad and spoil each other's results.
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (s.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
    // Rare. oneDNN guards its cache of primitives itself, unseen by ThreadSanitizer.
    static Mutex making;
    MutexLock lock(&making);
    const dnnl::matmul::primitive_desc description({a, b, c}, attributes, engine);
    auto made = std::make_unique<CachedPrimitive>();
    made->primitive = dnnl::matmul(description);
    made->a = memory(a, engine, nullptr);
    made->b = memory(b, engine, nullptr);
    made->c = memory(c, engine, nullptr);
    made->scratchpad = memory(description.scratchpad_desc(), engine);
    made->arguments = {{DNNL_ARG_SRC, made->a},
                       {DNNL_ARG_WEIGHTS, made->b},
                       {DNNL_ARG_DST, made->c},
                       {DNNL_ARG_SCRATCHPAD, made->scratchpad}};
    made->batch_reduce = std::string_view(description.impl_info_str()).starts_with("brg");
    return made;
  }

  void Run(CachedPrimitive& p, const float* a, const float* b, float* c) {
    p.a.set_data_handle(const_cast<float*>(a), stream);
    p.b.set_data_handle(const_cast<float*>(b), stream);
    p.c.set_data_handle(c, stream);
    p.primitive.execute(stream, p.arguments);
  }
};

Gemm::Gemm() : impl_(std::make_unique<Impl>()) {}
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;
Gemm& Gemm::operator=(Gemm&&) noexcept = default;

namespace {

void Sgemm(const GemmShape& s, const float* a, const float* b, float* c) {
  const dnnl_status_t status =
      dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k, 1.0f, a,
                 s.a_stride, b, s.b_stride, s.accumulate ? 1.0f : 0.0f, c, s.c_stride);
  WEFT_CHECK(status == dnnl_success);
}

// True for products that need no GEMM; does them.
bool Trivial(const GemmShape& s, float* c) {
  if (s.m == 0 || s.n == 0) return true;
  if (s.k > 0) return false;
  if (!s.accumulate) {
    for (int64_t i = 0; i < s.m; ++i) {
      std::memset(c + i * s.c_stride, 0, static_cast<size_t>(s.n) * sizeof(float));
    }
  }
  return true;
}

}  // namespace

void Gemm::Multiply(const GemmShape& shape, const float* a, const float* b, float* c) {
  if (Trivial(shape, c)) return;
  if (impl_->use_primitives) {
    if (CachedPrimitive& cached = impl_->Find(shape); cached.batch_reduce) {
      return impl_->Run(cached, a, b, c);
    }
  }
  Sgemm(shape, a, b, c);
}

void Gemm::MultiplyBy(GemmMethod method, const GemmShape& shape, const float* a, const float* b,
                      float* c) {
  if (Trivial(shape, c)) return;
  if (method == GemmMethod::kSgemm) {
    Sgemm(shape, a, b, c);
  } else {
    impl_->Run(impl_->Find(shape), a, b, c);
  }
}

}  // namespace weft
