#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>

#include "nvfp4/device.h"
#include "nvfp4/format.h"
#include "nvfp4/layout.h"

/// Matrices and quantized matrices. Shape, type, layout and device are part of the value. Views own
/// no memory and are cheap to copy. Owners can be moved, not copied.
namespace nvfp4 {

/// The types of dense elements.
enum class DType : std::uint8_t { f32, bf16, f16 };

/// Returns the size of an element in bytes.
constexpr std::int64_t dtype_size(DType t) { return t == DType::f32 ? 4 : 2; }
/// Returns "f32", "bf16" or "f16".
constexpr std::string_view dtype_name(DType t) {
  return t == DType::f32 ? "f32" : t == DType::bf16 ? "bf16" : "f16";
}

/// The limit for the elements of a matrix, padding included. Sizes in bytes then fit 64 bits.
inline constexpr std::int64_t kMaxMatrixElements = std::int64_t{1} << 48;

/// A stride that stands for `cols`: rows follow one another without gaps.
inline constexpr std::int64_t kDense = std::numeric_limits<std::int64_t>::min();

/// A view of a row-major matrix [rows, cols]. `stride` is the distance between rows in elements, at
/// least `cols`.
template <class Void>
struct BasicMatrixView {
  Void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0, cols = 0, stride = 0;
  Device device{};

  BasicMatrixView() = default;
  BasicMatrixView(Void* data_, DType dtype_, std::int64_t rows_, std::int64_t cols_,
                  std::int64_t stride_ = kDense, Device device_ = {})
      : data(data_),
        dtype(dtype_),
        rows(rows_),
        cols(cols_),
        stride(stride_ == kDense ? cols_ : stride_),
        device(device_) {}
  /// Converts a mutable view to a const one.
  template <class Other>
    requires(std::is_const_v<Void> && !std::is_const_v<Other>)
  BasicMatrixView(const BasicMatrixView<Other>& o)  // NOLINT: implicit on purpose
      : data(o.data),
        dtype(o.dtype),
        rows(o.rows),
        cols(o.cols),
        stride(o.stride),
        device(o.device) {}

  std::int64_t size() const { return rows * cols; }
  /// Returns element (row, col) of a matrix on the CPU as FP32. It is for tests and error messages,
  /// not for fast loops.
  float at(std::int64_t row, std::int64_t col) const {
    const std::int64_t i = row * stride + col;
    if (dtype == DType::f32) return static_cast<const float*>(data)[i];
    const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[i];
    return dtype == DType::bf16 ? BF16{bits}.to_float() : FP16{bits}.to_float();
  }
};
using MatrixView = BasicMatrixView<const void>;  ///< a view that only reads
using MatrixSpan = BasicMatrixView<void>;        ///< a view that can write

/// Memory on a device, owned or borrowed. A buffer can be moved, not copied.
class Buffer {
 public:
  Buffer() = default;
  /// Allocates memory, aligned to 64 bytes (256 on CUDA), and fills it with zeros. Throws
  /// std::bad_alloc, or DeviceError on CUDA.
  Buffer(std::int64_t bytes, Device device);
  /// Returns a buffer that refers to memory of the caller. That memory must outlive the buffer.
  static Buffer borrow(void* data, Device device) {
    Buffer borrowed;
    borrowed.data_ = data;
    borrowed.device_ = device;
    borrowed.owns_ = false;
    return borrowed;
  }
  ~Buffer();
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer(std::move(other)).swap(*this);
    return *this;
  }
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(device_, other.device_);
    std::swap(owns_, other.owns_);
  }
  void* data() const { return data_; }
  Device device() const { return device_; }

 private:
  void* data_ = nullptr;
  Device device_{};
  bool owns_ = true;
};

/// A dense matrix that owns its memory, aligned to 64 bytes. Its elements are zero at first.
class Matrix {
 public:
  Matrix() = default;
  /// Allocates the matrix. Throws ShapeError for an invalid shape, std::bad_alloc, or DeviceError
  /// on CUDA.
  Matrix(DType dtype, std::int64_t rows, std::int64_t cols, Device device = {});
  Matrix(Matrix&& other) noexcept { swap(other); }
  Matrix& operator=(Matrix&& other) noexcept {
    Matrix(std::move(other)).swap(*this);
    return *this;
  }
  void swap(Matrix& other) noexcept;

  MatrixView view() const { return {data_.data(), dtype_, rows_, cols_, cols_, device()}; }
  MatrixSpan span() { return {data_.data(), dtype_, rows_, cols_, cols_, device()}; }
  std::int64_t rows() const { return rows_; }
  std::int64_t cols() const { return cols_; }
  DType dtype() const { return dtype_; }
  Device device() const { return data_.device(); }
  /// Returns the elements. T is float, BF16 or FP16 as dtype() says, a type of the same size
  /// (bits), or void or a type of one byte (raw memory). Throws ValueError for another T.
  template <class T>
  T* data() {
    return static_cast<T*>(checked_data<T>());
  }
  template <class T>
  const T* data() const {
    return static_cast<const T*>(checked_data<T>());
  }

 private:
  template <class T>
  void* checked_data() const {
    if constexpr (!std::is_void_v<T>) {
      constexpr bool kBf16 = std::is_same_v<T, BF16>, kF16 = std::is_same_v<T, FP16>;
      if (kBf16  ? dtype_ != DType::bf16
          : kF16 ? dtype_ != DType::f16
                 : sizeof(T) != 1 && sizeof(T) != static_cast<std::size_t>(dtype_size(dtype_)))
        throw_data_type(kBf16 ? "BF16" : kF16 ? "FP16" : "", sizeof(T));
    }
    return data_.data();
  }
  [[noreturn]] void throw_data_type(std::string_view type, std::size_t size) const;

  Buffer data_;
  DType dtype_ = DType::f32;
  std::int64_t rows_ = 0, cols_ = 0;
};

/// The direction of the blocks. `rows`: along a row, K = cols (activations, weights stored [N, K]).
/// `columns`: down a column, K = rows (weights stored [K, N]).
enum class BlockAxis : std::uint8_t { rows, columns };

/// The part of a tensor that has a global scale: the whole tensor, or each vector of blocks. A
/// vector is a row, or a column if the blocks run down the columns.
enum class GlobalScope : std::uint8_t { tensor, vector };

/// Shape and layout of a quantized matrix: everything but its bytes.
struct QuantizedShape {
  std::int64_t rows = 0, cols = 0;  ///< shape of the dequantized matrix
  BlockAxis axis = BlockAxis::rows;
  int block = kBlock;  ///< 16, or 32 for four_over_six and mse
  ScaleLayout layout = ScaleLayout::linear;
  GlobalScope scope = GlobalScope::tensor;

  /// Returns M or N, the number of vectors.
  NVFP4_HD std::int64_t vectors() const { return axis == BlockAxis::rows ? rows : cols; }
  /// Returns K.
  NVFP4_HD std::int64_t depth() const { return axis == BlockAxis::rows ? cols : rows; }
  /// Returns the number of blocks in a vector.
  NVFP4_HD std::int64_t blocks() const { return depth() / block; }
  /// Returns the size of the codes in bytes.
  NVFP4_HD std::int64_t code_bytes() const { return rows * cols / 2; }
  /// Returns the size of the block scales in bytes, padding included. With axis = columns the
  /// linear layout is [blocks, cols], like the codes. The other layouts are those of the transposed
  /// matrix, since a GEMM addresses an operand by (vector, block).
  std::int64_t scale_bytes() const { return nvfp4::scale_bytes(layout, vectors(), blocks()); }
  /// Returns the byte offset of the scale of block `b` of a vector.
  std::int64_t scale_offset(std::int64_t vector, std::int64_t b) const {
    if (layout == ScaleLayout::linear && axis == BlockAxis::columns) return b * cols + vector;
    return nvfp4::scale_offset(layout, vector, b, vectors(), blocks());
  }
  /// Returns the number of global scales.
  std::int64_t global_count() const { return scope == GlobalScope::tensor ? 1 : vectors(); }
  bool operator==(const QuantizedShape&) const = default;
};

/// A view of a quantized matrix: x ≈ e2m1 · scale · global_scale, where all scales multiply.
///
/// codes         axis rows: [rows, cols/2]; axis columns: [rows/2, cols]. The element with the even
///               K index is in the low nibble.
/// scales        E4M3 without sign, shape.scale_bytes() bytes; padding is zero.
/// global_scale  shape.global_count() FP32 multipliers.
template <class Byte, class Float>
struct BasicQuantizedView {
  QuantizedShape shape;
  Byte* codes = nullptr;
  Byte* scales = nullptr;
  Float* global_scale = nullptr;
  Device device{};

  BasicQuantizedView() = default;
  BasicQuantizedView(const QuantizedShape& s, Byte* c, Byte* sc, Float* g, Device d = {})
      : shape(s), codes(c), scales(sc), global_scale(g), device(d) {}
  template <class B, class F>
    requires(std::is_const_v<Byte> && !std::is_const_v<B>)
  BasicQuantizedView(const BasicQuantizedView<B, F>& o)  // NOLINT: implicit on purpose
      : shape(o.shape),
        codes(o.codes),
        scales(o.scales),
        global_scale(o.global_scale),
        device(o.device) {}

  /// Returns the global scale of a vector. The view must be on the CPU.
  float global_of(std::int64_t vector) const {
    return global_scale[shape.scope == GlobalScope::tensor ? 0 : vector];
  }
};
using QuantizedView = BasicQuantizedView<const std::uint8_t, const float>;
using QuantizedSpan = BasicQuantizedView<std::uint8_t, float>;

/// A quantized matrix that owns its codes, scales and global scales. They are zero at first.
class QuantizedMatrix {
 public:
  QuantizedMatrix() = default;
  /// Allocates the matrix. Throws ShapeError for an invalid shape, std::bad_alloc, or DeviceError
  /// on CUDA.
  explicit QuantizedMatrix(const QuantizedShape& shape, Device device = {});
  QuantizedMatrix(QuantizedMatrix&& other) noexcept { swap(other); }
  QuantizedMatrix& operator=(QuantizedMatrix&& other) noexcept {
    QuantizedMatrix(std::move(other)).swap(*this);
    return *this;
  }
  void swap(QuantizedMatrix& other) noexcept;

  const QuantizedShape& shape() const { return shape_; }
  QuantizedView view() const { return {shape_, codes(), scales(), global_scale(), device()}; }
  QuantizedSpan span() { return {shape_, codes(), scales(), global_scale(), device()}; }
  Device device() const { return codes_.device(); }
  std::uint8_t* codes() const { return static_cast<std::uint8_t*>(codes_.data()); }
  std::uint8_t* scales() const { return static_cast<std::uint8_t*>(scales_.data()); }
  float* global_scale() const { return static_cast<float*>(global_.data()); }
  /// Reports whether both have the same shape and the same bytes. Both must be on the CPU.
  bool operator==(const QuantizedMatrix& other) const;

 private:
  QuantizedShape shape_;
  Buffer codes_, scales_, global_;
};

/// Copies between devices, or within one. Shapes and dtypes must agree. If a side is on CUDA, the
/// copy is enqueued on the stream and the call returns at once: see synchronize(). Throws
/// ShapeError, DeviceError.
void copy(MatrixView from, MatrixSpan to, Stream stream = {});
void copy(QuantizedView from, QuantizedSpan to, Stream stream = {});
/// Returns a copy on another device. The copy is complete when the call returns.
Matrix to_device(MatrixView m, Device device);
QuantizedMatrix to_device(QuantizedView q, Device device);

}  // namespace nvfp4
