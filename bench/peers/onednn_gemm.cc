// Measures GEMMs of oneDNN 2 with weights in the layout that it chooses: BF16 and 8-bit integers.
// Version 2 has no 4-bit weights, version 3 has another C++ API.

#include <omp.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

#include "peer.h"

static_assert(DNNL_VERSION_MAJOR == 2, "written for the API of oneDNN 2");

namespace nvfp4::peers {
namespace {

using dnnl::memory;

struct Kind {
  const char* name;
  memory::data_type inputs;
  memory::data_type output;
  float x_scale, w_scale;  // size of a step of the inputs
  double most_error;
};
/// Size of a step: 127 steps are 4.5 standard deviations.
constexpr float kStep = 4.5f / 127;
constexpr Kind kKinds[] = {
    {"bf16", memory::data_type::bf16, memory::data_type::f32, 1, 1, 0.01},
    {"int8", memory::data_type::s8, memory::data_type::s32, kStep, 0.02f * kStep, 0.03},
};

struct Free {
  void operator()(char* p) const { std::free(p); }
};
using Pages = std::unique_ptr<char, Free>;

/// Allocates memory in large pages if the system has them.
Pages pages(std::size_t bytes) {
  constexpr std::size_t kPage = 2 << 20;
  const std::size_t size = (bytes + kPage - 1) / kPage * kPage;
  Pages p(static_cast<char*>(std::aligned_alloc(kPage, size)));
  if (!p) throw std::bad_alloc();
  (void)madvise(p.get(), size, MADV_HUGEPAGE);
  return p;
}

class Library {
 public:
  explicit Library(double seconds) : seconds_(seconds) {}

  void measure_kind(const Kind& kind) {
    const auto size = static_cast<std::int64_t>(memory::data_type_size(kind.inputs));
    Weights weights{kind.name, kN * kK * size, copies(kN * kK * size), kind.most_error};
    const memory x =
        converted(problem_.x, {kMaxRows, kK}, memory::format_tag::ab, kind.inputs, kind.x_scale);
    std::vector<float> w;
    for (std::int64_t n = 0; n < kN; n += kPattern)
      w.insert(w.end(), problem_.w.begin(), problem_.w.end());
    // Rows of K weights are columns of a K by N matrix for the library.
    const memory given = converted(w, {kK, kN}, memory::format_tag::ba, kind.inputs, kind.w_scale);
    for (const std::int64_t m : kRows)
      for (const int threads : kThreads) measure_product(kind, weights, given, x, m, threads);
  }

 private:
  void reorder(memory from, memory to, const dnnl::primitive_attr& how = {}) {
    dnnl::reorder(from, to, how).execute(stream_, from, to);
    stream_.wait();
  }

  memory converted(std::vector<float> values, const memory::dims& dims, memory::format_tag order,
                   memory::data_type type, float scale) {
    const memory from({dims, memory::data_type::f32, order}, engine_, values.data());
    memory to({dims, type, order}, engine_);
    dnnl::primitive_attr how;
    if (scale != 1) how.set_output_scales(0, {1 / scale});
    reorder(from, to, how);
    return to;
  }

  /// Writes the weights to the copies in a layout, unless they already have it.
  void pack(const Weights& weights, const memory& given, const memory::desc& layout) {
    if (!packed_.empty() && packed_[0].get_desc() == layout) return;
    packed_.clear();
    pages_.clear();
    for (int i = 0; i < weights.count; ++i) {
      pages_.push_back(pages(layout.get_size()));
      packed_.emplace_back(layout, engine_, pages_.back().get());
      if (i == 0)
        reorder(given, packed_[0]);
      else
        std::memcpy(pages_.back().get(), pages_[0].get(), layout.get_size());
    }
  }

  void measure_product(const Kind& kind, Weights& weights, const memory& given, const memory& x,
                       std::int64_t m, int threads) {
    omp_set_num_threads(threads);
    const memory::desc rows({m, kK}, kind.inputs, memory::format_tag::ab);
    const memory::desc any({kK, kN}, kind.inputs, memory::format_tag::any);
    const memory::desc result({m, kN}, kind.output, memory::format_tag::ab);
    const dnnl::matmul::primitive_desc chosen({rows, any, result}, engine_);
    const dnnl::matmul product(chosen);
    pack(weights, given, chosen.weights_desc());
    const memory first_rows(rows, engine_, x.get_data_handle());
    const memory y(result, engine_);
    std::memset(y.get_data_handle(), 0, result.get_size());
    measure(
        weights, m, threads, seconds_,
        [&](int copy) {
          product.execute(stream_, {{DNNL_ARG_SRC, first_rows},
                                    {DNNL_ARG_WEIGHTS, packed_[static_cast<std::size_t>(copy)]},
                                    {DNNL_ARG_DST, y}});
          stream_.wait();
        },
        [&] {
          const void* values = y.get_data_handle();
          return kind.output == memory::data_type::f32
                     ? problem_.error(static_cast<const float*>(values), m)
                     : problem_.error(static_cast<const std::int32_t*>(values), m,
                                      double{kind.x_scale} * kind.w_scale);
        });
  }

  double seconds_;
  Problem problem_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::vector<Pages> pages_;
  std::vector<memory> packed_;
};

}  // namespace
}  // namespace nvfp4::peers

int main(int count, char** arguments) {
  using namespace nvfp4::peers;
  return run(count, arguments, [](double seconds) {
    Library library(seconds);
    for (const Kind& kind : kKinds) library.measure_kind(kind);
  });
}
