// Measures GEMMs of ggml's CPU backend, also of that in ik_llama.cpp: both have the same C API.

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>
#if __has_include(<ggml-cpu.h>)
#include <ggml-cpu.h>  // only in ggml, like buffers with rearranged weights
#define PEER_REARRANGES 1
#else
#define PEER_REARRANGES 0
#endif
#include <sys/mman.h>

#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "peer.h"

namespace nvfp4::peers {
namespace {

// Each library measures its own types. _r4 and _r8 are interleaved rows of ik_llama.cpp.
constexpr const char* kTypes[] = {"nvfp4", "iq4_ks",  "iq4_ks_r4", "iq4_nl",   "iq4_nl_r4",
                                  "q4_0",  "q4_0_r8", "mxfp4",     "mxfp4_r8", "bf16"};

struct Free {
  void operator()(ggml_context* context) const { ggml_free(context); }
  void operator()(ggml_backend_buffer_t buffer) const { ggml_backend_buffer_free(buffer); }
  void operator()(ggml_backend_t backend) const { ggml_backend_free(backend); }
};
using Context = std::unique_ptr<ggml_context, Free>;
using Buffer = std::unique_ptr<std::remove_pointer_t<ggml_backend_buffer_t>, Free>;
using Backend = std::unique_ptr<std::remove_pointer_t<ggml_backend_t>, Free>;

template <class T>
T* found(T* pointer, const char* what) {
  if (pointer == nullptr) throw std::runtime_error(std::string("ggml has no ") + what);
  return pointer;
}

/// Returns a context for the shapes of a few tensors. Their data are in a buffer.
Context shapes(int tensors) {
  const std::size_t size = static_cast<std::size_t>(tensors) * ggml_tensor_overhead();
  return Context(ggml_init({size + ggml_graph_overhead(), nullptr, /*no_alloc=*/true}));
}

/// Allocates memory for all tensors of the context, in large pages if the system has them.
Buffer allocate(ggml_context* context, ggml_backend_buffer_type_t place) {
  Buffer buffer(found(ggml_backend_alloc_ctx_tensors_from_buft(context, place), "memory"));
  constexpr std::uintptr_t kPage = 2 << 20;
  const auto base = reinterpret_cast<std::uintptr_t>(ggml_backend_buffer_get_base(buffer.get()));
  const std::uintptr_t start = (base + kPage - 1) / kPage * kPage;
  const std::uintptr_t end = base + ggml_backend_buffer_get_size(buffer.get());
  if (start < end) (void)madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
  return buffer;
}

/// Calls ggml_quantize_chunk, which has an additional argument in ik_llama.cpp; nullptr is the
/// default.
template <class... More>
void quantize(std::size_t (*chunk)(ggml_type, const float*, void*, std::int64_t, std::int64_t,
                                   std::int64_t, const float*, More...),
              ggml_type type, const float* w, void* out) {
  chunk(type, w, out, 0, kPattern, kK, nullptr, More{}...);
}

/// Returns the matrix [kN, kK] of one copy.
std::vector<char> quantized(ggml_type type, const Problem& problem) {
  const std::size_t part = ggml_row_size(type, kK) * kPattern;
  std::vector<char> all(part * (kN / kPattern));
  quantize(ggml_quantize_chunk, type, problem.w.data(), all.data());
  for (std::size_t at = part; at < all.size(); at += part)
    std::memcpy(all.data() + at, all.data(), part);
  return all;
}

class Library {
 public:
  explicit Library(double seconds) : seconds_(seconds) {}

  /// Measures GEMMs with weights of this type, unchanged and in every rearrangement.
  void measure_type(ggml_type type) {
    const std::string name = ggml_type_name(type);
    measure_weights(name, type, plain());
    for (ggml_backend_buffer_type_t place : rearranging(type))
      measure_weights(name + " " + ggml_backend_buft_name(place), type, place);
  }

 private:
  ggml_backend_buffer_type_t plain() const {
    return ggml_backend_get_default_buffer_type(backend_.get());
  }

  /// Returns the buffers that rearrange weights of this type, such as for AMX, and support GEMMs.
  std::vector<ggml_backend_buffer_type_t> rearranging([[maybe_unused]] ggml_type type) const {
    std::vector<ggml_backend_buffer_type_t> places;
#if PEER_REARRANGES
    const ggml_backend_dev_t device = ggml_backend_get_device(backend_.get());
    const auto list =
        reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
    const Context context = shapes(3);
    ggml_tensor* w = ggml_new_tensor_2d(context.get(), type, kK, kN);
    ggml_tensor* x = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, kK, kMaxRows);
    const ggml_tensor* y = ggml_mul_mat(context.get(), w, x);
    for (auto* place = list ? list(device) : nullptr; place && *place; ++place) {
      const Buffer empty(ggml_backend_buft_alloc_buffer(*place, 0));
      w->buffer = empty.get();
      if (ggml_backend_dev_supports_op(device, y)) places.push_back(*place);
    }
#endif
    return places;
  }

  void measure_weights(const std::string& name, ggml_type type, ggml_backend_buffer_type_t place) {
    const int count = copies(static_cast<std::int64_t>(ggml_row_size(type, kK)) * kN);
    const Context context = shapes(count);
    std::vector<ggml_tensor*> w;
    for (int i = 0; i < count; ++i) w.push_back(ggml_new_tensor_2d(context.get(), type, kK, kN));
    const Buffer buffer = allocate(context.get(), place);
    const std::vector<char> matrix = quantized(type, problem_);
    ggml_backend_tensor_set(w[0], matrix.data(), 0, matrix.size());
    const std::size_t size = ggml_backend_buft_get_alloc_size(place, w[0]);
    for (int i = 1; i < count; ++i)
      std::memcpy(w[static_cast<std::size_t>(i)]->data, w[0]->data, size);
    Weights weights{name, static_cast<std::int64_t>(size), count,
                    type == GGML_TYPE_BF16 ? 0.01 : 0.15};
    for (const std::int64_t m : kRows) measure_rows(weights, w, m);
  }

  void measure_rows(Weights& weights, const std::vector<ggml_tensor*>& w, std::int64_t m) {
    const Context context = shapes(2);
    ggml_tensor* x = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, kK, m);
    ggml_tensor* y = ggml_mul_mat(context.get(), w[0], x);
    ggml_cgraph* graph = ggml_new_graph(context.get());
    ggml_build_forward_expand(graph, y);
    const Buffer buffer = allocate(context.get(), plain());
    ggml_backend_tensor_set(x, problem_.x.data(), 0, ggml_nbytes(x));
    for (const int threads : kThreads) {
      ggml_backend_cpu_set_n_threads(backend_.get(), threads);
      std::memset(y->data, 0, ggml_nbytes(y));
      measure(
          weights, m, threads, seconds_,
          [&](int copy) {
            y->src[0] = w[static_cast<std::size_t>(copy)];
            if (ggml_backend_graph_compute(backend_.get(), graph) != GGML_STATUS_SUCCESS)
              throw std::runtime_error("ggml could not compute a product");
          },
          [&] { return problem_.error(static_cast<const float*>(y->data), m); });
    }
  }

  double seconds_;
  Problem problem_;
  Backend backend_{found(ggml_backend_cpu_init(), "CPU backend")};
};

}  // namespace
}  // namespace nvfp4::peers

int main(int count, char** arguments) {
  using namespace nvfp4::peers;
  return run(count, arguments, [](double seconds) {
    Library library(seconds);
    for (const char* wanted : kTypes)
      for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
        const char* name = ggml_type_name(static_cast<ggml_type>(type));
        if (name && std::strcmp(name, wanted) == 0)
          library.measure_type(static_cast<ggml_type>(type));
      }
  });
}
