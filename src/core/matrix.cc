#include "nvfp4/matrix.h"

#include <fmt/format.h>

#include <cstring>
#include <new>
#include <string>

#include "core/device_memory.h"
#include "core/require.h"
#include "platform/memory.h"

namespace nvfp4 {

Buffer::Buffer(std::int64_t bytes, Device device) : device_(device) {
  if (device.type == DeviceType::cuda) {
    if (bytes > 0) data_ = device_allocate(device, bytes);
    return;
  }
  // Large matrices are in huge pages if the system has them. There are fewer page faults and TLB
  // misses, and the hardware prefetches across 4 KB.
  constexpr std::int64_t kHugePage = 2 << 20;
  const bool huge = bytes >= 2 * kHugePage;
  const auto align = static_cast<std::size_t>(huge ? kHugePage : 64);
  const auto size = static_cast<std::size_t>(round_up(bytes, huge ? kHugePage : 64));
  if (size == 0) return;
  data_ = platform::allocate_aligned(align, size);
  if (data_ == nullptr) throw std::bad_alloc();
  if (huge) platform::prefer_large_pages(data_, size);
  std::memset(data_, 0, size);
}

Buffer::~Buffer() {
  if (data_ == nullptr || !owns_) return;
  if (device_.type == DeviceType::cuda)
    device_free(device_, data_);
  else
    platform::free_aligned(data_);
}

Matrix::Matrix(DType dtype, std::int64_t rows, std::int64_t cols, Device device)
    : dtype_(dtype), rows_(rows), cols_(cols) {
  require<ShapeError>(rows >= 0 && cols >= 0, "Matrix: shape = [{}, {}], must not be negative",
                      rows, cols);
  require<ShapeError>(rows == 0 || cols <= kMaxMatrixElements / rows,
                      "Matrix: shape = [{}, {}], more than 2^48 elements", rows, cols);
  data_ = Buffer(rows * cols * dtype_size(dtype), device);
}

void Matrix::swap(Matrix& other) noexcept {
  data_.swap(other.data_);
  std::swap(dtype_, other.dtype_);
  std::swap(rows_, other.rows_);
  std::swap(cols_, other.cols_);
}

void Matrix::throw_data_type(std::string_view type, std::size_t size) const {
  throw ValueError(fmt::format(
      "Matrix::data: T is {}, must be {} for a matrix of {}, or a type of {} bytes or 1 byte",
      type.empty() ? fmt::format("a type of {} bytes", size) : std::string(type),
      dtype_ == DType::f32    ? "float"
      : dtype_ == DType::bf16 ? "BF16"
                              : "FP16",
      dtype_name(dtype_), dtype_size(dtype_)));
}

namespace {
const QuantizedShape& checked(const QuantizedShape& s) {
  require<ShapeError>(s.block == 16 || s.block == 32,
                      "QuantizedMatrix: block = {}, must be 16 or 32", s.block);
  require<ShapeError>(
      s.rows >= 0 && s.cols >= 0 && s.depth() % s.block == 0 &&
          (s.rows == 0 || s.cols <= kMaxMatrixElements / s.rows),
      ErrorCode::partial_block,
      "QuantizedMatrix: shape = [{}, {}], K must be a multiple of {} and the size at "
      "most 2^48",
      s.rows, s.cols, s.block);
  return s;
}
}  // namespace

void QuantizedMatrix::swap(QuantizedMatrix& other) noexcept {
  std::swap(shape_, other.shape_);
  codes_.swap(other.codes_);
  scales_.swap(other.scales_);
  global_.swap(other.global_);
}

QuantizedMatrix::QuantizedMatrix(const QuantizedShape& shape, Device device)
    : shape_(checked(shape)),
      codes_(shape.code_bytes(), device),
      scales_(shape.scale_bytes(), device),
      global_(shape.global_count() * static_cast<std::int64_t>(sizeof(float)), device) {}

bool QuantizedMatrix::operator==(const QuantizedMatrix& other) const {
  const auto same = [](const void* a, const void* b, std::int64_t bytes) {
    return bytes == 0 || std::memcmp(a, b, static_cast<std::size_t>(bytes)) == 0;
  };
  return shape_ == other.shape_ && same(codes(), other.codes(), shape_.code_bytes()) &&
         same(scales(), other.scales(), shape_.scale_bytes()) &&
         same(global_scale(), other.global_scale(),
              shape_.global_count() * static_cast<std::int64_t>(sizeof(float)));
}

namespace {
void copy_bytes(Device to_device, void* to, std::int64_t to_stride, Device from_device,
                const void* from, std::int64_t from_stride, std::int64_t row_bytes,
                std::int64_t rows, Stream stream) {
  if (rows == 0 || row_bytes == 0) return;
  if (to_device.type == DeviceType::cuda || from_device.type == DeviceType::cuda)
    return device_copy(to_device, to, to_stride, from_device, from, from_stride, row_bytes, rows,
                       stream);
  for (std::int64_t r = 0; r < rows; ++r)
    std::memcpy(static_cast<std::byte*>(to) + r * to_stride,
                static_cast<const std::byte*>(from) + r * from_stride,
                static_cast<std::size_t>(row_bytes));
}
}  // namespace

void copy(MatrixView from, MatrixSpan to, Stream stream) {
  require<ShapeError>(from.rows == to.rows && from.cols == to.cols && from.dtype == to.dtype,
                      "copy: from is {} [{}, {}], to is {} [{}, {}]", dtype_name(from.dtype),
                      from.rows, from.cols, dtype_name(to.dtype), to.rows, to.cols);
  const std::int64_t size = dtype_size(from.dtype);
  copy_bytes(to.device, to.data, to.stride * size, from.device, from.data, from.stride * size,
             from.cols * size, from.rows, stream);
}

void copy(QuantizedView from, QuantizedSpan to, Stream stream) {
  require<ShapeError>(from.shape == to.shape, "copy: from and to have different quantized shapes");
  const auto part = [&](void* out, const void* in, std::int64_t bytes) {
    copy_bytes(to.device, out, bytes, from.device, in, bytes, bytes, 1, stream);
  };
  part(to.codes, from.codes, from.shape.code_bytes());
  part(to.scales, from.scales, from.shape.scale_bytes());
  part(to.global_scale, from.global_scale,
       from.shape.global_count() * static_cast<std::int64_t>(sizeof(float)));
}

namespace {
template <class View, class Owner>
Owner copied(View from, Owner to, Device device) {
  copy(from, to.span());
  for (const Device side : {device, from.device})
    if (side.type == DeviceType::cuda) synchronize(side);
  return to;
}
}  // namespace

Matrix to_device(MatrixView m, Device device) {
  return copied(m, Matrix(m.dtype, m.rows, m.cols, device), device);
}

QuantizedMatrix to_device(QuantizedView q, Device device) {
  return copied(q, QuantizedMatrix(q.shape, device), device);
}

}  // namespace nvfp4
