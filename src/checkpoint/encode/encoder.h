#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/encode/device_gptq.h"
#include "checkpoint/encode/device_lanes.h"
#include "checkpoint/encode/gram_slots.h"
#include "checkpoint/encode/window.h"
#include "checkpoint/statistics/input_weights.h"

namespace nvfp4::checkpoint {

/// Chunks of a window that one thread encodes one after the other: Window::encode [first, last).
struct Batch {
  std::size_t first, last;
  bool by_gram;  ///< of one unit, all at once; see DeviceGptq
};

struct EncoderOptions {
  safetensors::DType plain = safetensors::DType::bf16;  ///< of decoded weights
  std::string backend;                                  ///< of the CPU
  int sweeps = 0;
  Device device = {};
  bool wait_for_device = false;
  bool weigh_errors = false;  ///< fill Outcome::weighted_error; with statistics alone
};

/// What becomes of the rows of units, of every kind of work: measured, then decoded and encoded, on
/// the CPU or on another device, with the same bytes. What a device has no room or no time for, and
/// what is not quantized, is done by the CPU.
///
/// For each window: add() its units, fill() its Gram matrices and measure() its tasks in any order
/// and from any thread, settle() it, then encode() its batches().
class Encoder {
 public:
  /// Gets what became of Window::encode[task].
  using Finish = std::function<void(std::size_t task, EncodedChunk chunk)>;

  Encoder(const Plan& plan, EncoderOptions options);

  /// Whether a device other than the CPU is wanted until the end.
  bool needs_device() const { return gptq_ != nullptr; }
  /// What is added from here on, the CPU encodes.
  void leave_device() { leaving_ = true; }
  /// If it was left: gives back all that the process has there, in the background. No other call
  /// runs.
  void release_device();

  /// The unit's rows become tasks of the window. The bytes that it takes beside its input.
  std::uint64_t add(Window& window, std::size_t unit);
  /// Only the tasks that encode its rows.
  static void add_rows(Window& window, std::size_t number, const Unit& unit);
  /// Window::unfilled[i].
  void fill(const Window& window, std::size_t i) const;
  /// Window::measure[i].
  void measure(Window& window, std::size_t i);
  /// All of it is measured. No other call runs.
  void settle(Window& window);

  std::vector<Batch> batches(const Window& window) const;
  /// `globals`: of the plan's groups.
  void encode(const Window& window, const Batch& batch, std::span<const GlobalScale> globals,
              const Finish& finish);
  /// For whoever brings rows somewhere without encoding them, so that no memory is taken twice.
  BufferPool& buffers() { return pool_; }
  /// With those of the group, where others of it are encoded anew.
  MovedScales moved_scales(const Unit& unit, const GlobalScale& global) const;

 private:
  const LogicalTensor& source_of(const Unit& unit) const;
  RowsMethod method_of(const Window& window, const Unit& unit, const GlobalScale& global) const;
  void prepare_weights();
  bool weighs(const Unit& unit) const;
  double weighed(const Window& window, const EncodeTask& task, const GlobalScale& global,
                 const EncodedChunk& chunk);
  const GramSlot* factored_gram(const Window& window, const Unit& unit) const;
  std::byte* place_of(const Window& window, const EncodeTask& task) const;
  EncodedChunk on_cpu(const Window& window, const EncodeTask& task, const GlobalScale& global,
                      Buffers& buffers) const;
  void by_gram(const Window& window, const Batch& batch, std::span<const GlobalScale> globals,
               const Finish& finish);

  const Plan& plan_;
  const EncoderOptions options_;
  const Backend& backend_;
  GramSlots grams_;
  std::optional<InputWeights> input_weights_;  // if errors are weighed
  double mean_square_ = 0;                     // of the inputs that the statistics have
  BufferPool pool_;
  std::unique_ptr<DeviceLanes> lanes_;  // none if the CPU alone encodes
  std::unique_ptr<DeviceGptq> gptq_;    // none if the device is not for that
  InvertLower gram_library_;            // for it
  bool leaving_ = false;
  std::future<void> releasing_;
};

}  // namespace nvfp4::checkpoint
