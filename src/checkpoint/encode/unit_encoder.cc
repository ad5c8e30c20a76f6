#include "checkpoint/encode/unit_encoder.h"

#include "checkpoint/encode/transcode.h"

namespace nvfp4::checkpoint {

EncodedChunk UnitEncoder::chunk(const Unit& unit, std::int64_t row, std::int64_t rows,
                                const GlobalScale& global, const GramSlot* gram,
                                Buffers& buffers) const {
  const LogicalTensor& source = *plan_.tensors[unit.tensor].source;
  switch (unit.work) {
    case Work::transcode:
      return transcode_chunk(source, unit.slice, row, rows, global, buffers);
    case Work::move:
      return move_chunk(source, unit.slice, moved_scales(unit, global), row, rows, buffers);
    case Work::decode:
      return decode_chunk(plan_, unit, row, rows, options_.plain, buffers);
    case Work::quantize:
      break;
  }
  if (gram != nullptr && gram->factor.depth > 0)
    return encode_gptq_chunk(source, unit.slice, row, rows, global, *gram,
                             {options_.sweeps, options_.backend}, buffers);
  QuantizeOptions options;
  options.quantizer = options_.quantizer;
  options.backend = options_.backend;
  options.global = {&global, 1};
  const std::vector<float> by_channel = weights(unit);
  options.weights = by_channel;
  return encode_chunk(source, unit.slice, row, rows, options, buffers);
}

std::vector<float> UnitEncoder::weights(const Unit& unit) const {
  const bool none = options_.method->needs == Needs::nothing || unit.statistics == nullptr;
  return none ? std::vector<float>{} : plan_.statistics->weights(*unit.statistics);
}

MovedScales UnitEncoder::moved_scales(const Unit& unit, const GlobalScale& global) const {
  MovedScales scales = unit.moved;
  const float own = scales.global.multiplier;
  if (!plan_.groups[unit.group].moved_global) return scales;
  scales.global = global;
  scales.ratio *= own / scales.global.multiplier;
  scales.changes |= scales.ratio != 1;
  return scales;
}

}  // namespace nvfp4::checkpoint
