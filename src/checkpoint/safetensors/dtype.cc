#include <iterator>

#include "nvfp4/checkpoint/safetensors.h"

namespace nvfp4::safetensors {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  int bits;
};

constexpr Row kTable[] = {
    {DType::boolean, "BOOL", 8},
    {DType::u8, "U8", 8},
    {DType::i8, "I8", 8},
    {DType::f8_e5m2, "F8_E5M2", 8},
    {DType::f8_e4m3, "F8_E4M3", 8},
    {DType::f8_e8m0, "F8_E8M0", 8},
    {DType::f8_e4m3fnuz, "F8_E4M3FNUZ", 8},
    {DType::f8_e5m2fnuz, "F8_E5M2FNUZ", 8},
    {DType::f4, "F4", 4},
    {DType::f6_e2m3, "F6_E2M3", 6},
    {DType::f6_e3m2, "F6_E3M2", 6},
    {DType::i16, "I16", 16},
    {DType::u16, "U16", 16},
    {DType::f16, "F16", 16},
    {DType::bf16, "BF16", 16},
    {DType::i32, "I32", 32},
    {DType::u32, "U32", 32},
    {DType::f32, "F32", 32},
    {DType::f64, "F64", 64},
    {DType::i64, "I64", 64},
    {DType::u64, "U64", 64},
    {DType::c64, "C64", 64},
};

constexpr bool rows_stand_at_their_dtype() {
  for (std::size_t i = 0; i < std::size(kTable); ++i)
    if (static_cast<std::size_t>(kTable[i].dtype) != i) return false;
  return std::size(kTable) == static_cast<std::size_t>(DType::c64) + 1;
}
static_assert(rows_stand_at_their_dtype());

}  // namespace

std::string_view dtype_name(DType t) { return kTable[static_cast<std::size_t>(t)].name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& row : kTable)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

int dtype_bits(DType t) { return kTable[static_cast<std::size_t>(t)].bits; }

}  // namespace nvfp4::safetensors
