#include "nvfp4/matrix.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "core/require.h"

namespace nvfp4 {

void Matrix::Free::operator()(std::byte* p) const { std::free(p); }

std::unique_ptr<std::byte[], Matrix::Free> Matrix::allocate(std::int64_t bytes) {
  constexpr std::size_t kAlign = 64;
  const auto size = static_cast<std::size_t>(round_up(bytes, kAlign));
  if (size == 0) return nullptr;
  auto* p = static_cast<std::byte*>(std::aligned_alloc(kAlign, size));
  if (p == nullptr) throw std::bad_alloc();
  std::memset(p, 0, size);
  return std::unique_ptr<std::byte[], Free>(p);
}

Matrix::Matrix(DType dtype, std::int64_t rows, std::int64_t cols)
    : dtype_(dtype), rows_(rows), cols_(cols) {
  require<ShapeError>(rows >= 0 && cols >= 0, "Matrix: shape = [{}, {}], must not be negative",
                      rows, cols);
  require<ShapeError>(rows == 0 || cols <= kMaxMatrixElements / rows,
                      "Matrix: shape = [{}, {}], more than 2^48 elements", rows, cols);
  data_ = allocate(rows * cols * dtype_size(dtype));
}

void Matrix::swap(Matrix& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(dtype_, other.dtype_);
  std::swap(rows_, other.rows_);
  std::swap(cols_, other.cols_);
}

namespace {
const QuantizedShape& checked(const QuantizedShape& s) {
  require<ShapeError>(s.block == 16 || s.block == 32,
                      "QuantizedMatrix: block = {}, must be 16 or 32", s.block);
  require<ShapeError>(
      s.rows >= 0 && s.cols >= 0 && s.depth() % s.block == 0 &&
          (s.rows == 0 || s.cols <= kMaxMatrixElements / s.rows),
      "QuantizedMatrix: shape = [{}, {}], K must be a multiple of {} and the size at "
      "most 2^48",
      s.rows, s.cols, s.block);
  return s;
}
}  // namespace

void QuantizedMatrix::swap(QuantizedMatrix& other) noexcept {
  std::swap(shape_, other.shape_);
  std::swap(codes_, other.codes_);
  std::swap(scales_, other.scales_);
  std::swap(global_, other.global_);
}

QuantizedMatrix::QuantizedMatrix(const QuantizedShape& shape)
    : shape_(checked(shape)),
      codes_(Matrix::allocate(shape.code_bytes())),
      scales_(Matrix::allocate(shape.scale_bytes())),
      global_(Matrix::allocate(shape.global_count() * static_cast<std::int64_t>(sizeof(float)))) {}

bool QuantizedMatrix::operator==(const QuantizedMatrix& other) const {
  const auto same = [](const void* a, const void* b, std::int64_t bytes) {
    return bytes == 0 || std::memcmp(a, b, static_cast<std::size_t>(bytes)) == 0;
  };
  return shape_ == other.shape_ && same(codes(), other.codes(), shape_.code_bytes()) &&
         same(scales(), other.scales(), shape_.scale_bytes()) &&
         same(global_scale(), other.global_scale(),
              shape_.global_count() * static_cast<std::int64_t>(sizeof(float)));
}

}  // namespace nvfp4
