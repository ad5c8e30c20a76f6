#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/encode/device.h"
#include "checkpoint/encode/window.h"
#include "checkpoint/statistics/statistics.h"

namespace nvfp4::checkpoint {

/// The chunks Window::encode [first, last), which one thread encodes one after the other.
struct Batch {
  std::size_t first, last;
  bool by_gram;  ///< chunks of one unit, encoded at once; see DeviceGptq
};

struct EncoderOptions {
  std::string backend;  ///< backend of the CPU
  int sweeps = 0;
  Device device = {};
  bool wait_for_device = false;
  bool weigh_errors = false;  ///< fill Outcome::weighted_error; requires statistics
};

/// Measures and encodes the rows of units. The CPU and other devices give the same bytes. A device
/// does QuantizeWork, if it has memory and time; the CPU does all else.
///
/// For each window: add() its units, then fill() its Gram matrices and measure() its tasks, in any
/// order and from any thread. Then settle() it and encode() its batches().
class Encoder {
 public:
  /// Receives the result of Window::encode[task].
  using Finish = std::function<void(std::size_t task, EncodedChunk chunk)>;

  Encoder(const Plan& plan, EncoderOptions options);

  /// Reports whether a device other than the CPU is needed until the end.
  bool needs_device() const { return gptq_ != nullptr; }
  /// Makes the CPU encode all units that are added later.
  void leave_device() { leaving_ = true; }
  /// Frees everything that the process has on the device, in the background, if leave_device() was
  /// called. No other call may run.
  void release_device();

  /// Adds the unit's rows to the window as tasks. Returns the bytes that the unit takes in addition
  /// to its input.
  std::uint64_t add(Window& window, std::size_t unit);
  /// Fills Window::unfilled[i].
  void fill(const Window& window, std::size_t i) const;
  /// Measures Window::measure[i].
  void measure(Window& window, std::size_t i);
  /// Ends the measurement of the window. All its tasks must be measured, and no other call may run.
  void settle(Window& window);

  std::vector<Batch> batches(const Window& window) const;
  /// Encodes a batch. `globals` has the global scale of each group of the plan.
  void encode(const Window& window, const Batch& batch, std::span<const GlobalScale> globals,
              const Finish& finish);
  /// The buffers, also for copies, so that no memory is allocated twice.
  BufferPool& buffers() { return pool_; }

 private:
  const LogicalTensor& source_of(const Unit& unit) const;
  MatrixRows rows_of(const EncodeTask& task) const;
  RowsMethod method_of(const Window& window, const Unit& unit,
                       std::span<const GlobalScale> globals) const;
  void prepare_weights();
  void compare(const EncodeTask& task, const RowsMethod& method, EncodedChunk& chunk);
  void weigh(const Window& window, const EncodeTask& task, float global, EncodedChunk& chunk);
  const GramSlot* factored_gram(const Window& window, const Unit& unit) const;
  std::byte* place_of(const Window& window, const EncodeTask& task) const;
  void by_gram(const Window& window, const Batch& batch, std::span<const GlobalScale> globals,
               const Finish& finish);

  const Plan& plan_;
  const EncoderOptions options_;
  const Backend& backend_;
  GramSlots grams_;
  std::optional<InputWeights> input_weights_;  // only if errors are weighed
  double mean_square_ = 0;                     // mean over the inputs in the statistics
  BufferPool pool_;
  std::unique_ptr<DeviceLanes> lanes_;  // null if only the CPU encodes
  std::unique_ptr<DeviceGptq> gptq_;    // null if the device runs no GPTQ
  InvertLower gram_library_;            // for Gram matrices
  bool leaving_ = false;
  std::future<void> releasing_;
};

}  // namespace nvfp4::checkpoint
