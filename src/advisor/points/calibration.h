// Correction of estimates by measured rows. It stands for all that closed forms do not know of a device and its
// software.
//
// The logarithm of estimated over measured throughput is a Gaussian process over the jobs' traits, and so is that
// of memory. It has a trend by device, precision and software, and a kernel over measured rows. Where measured rows
// are alike, the correction is theirs. Where none is, it shrinks to the trend. The covariance (traits.h) was chosen
// by predicting rows without their model and without their source.
//
// Every correction has an interval that held 80 % of rows as uncertain, when these were predicted without
// themselves, without their model and without their source.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "advisor/points/gaussian_process.h"
#include "advisor/points/traits.h"
#include "heddle/cost/accelerator.h"
#include "heddle/search/explain.h"

namespace heddle::advisor {

/// One measured row. `log_ratio`: ln(estimated ÷ measured) of its throughput or of its memory.
struct CalibrationSample {
  Traits traits;
  double log_ratio = 0;
};

/// Estimated ÷ measured as expected of a job, and the ends of the interval that holds 80 %.
struct Correction {
  double ratio = 1, low = 1, high = 1;
};

/// Groups of rows that are held out together.
enum class HoldOut { rows, models, sources, devices };
inline constexpr HoldOut kHoldOuts[] = {HoldOut::rows, HoldOut::models, HoldOut::sources, HoldOut::devices};
std::string_view name_of(HoldOut by);

class Calibration {
 public:
  /// Keeps at most `kMostRows` rows, evenly spread over the list.
  static Calibration fit(const std::vector<CalibrationSample>& samples, Figure figure);
  static constexpr size_t kMostRows = 2000;
  /// Indices of the samples that fit() keeps, in order.
  static std::vector<size_t> kept_rows(size_t samples);

  Correction correction(const Traits& traits) const;
  /// Corrections of the rows themselves, each by a calibration that has not seen it (or its model, …).
  std::vector<Correction> held_out(HoldOut by) const;
  /// Returns measured over estimated for a usual job of today's software on the device. On a device without
  /// measured rows the range is at least that of rows predicted without their device.
  search::ScaleInterval interval(const cost::Accelerator& device, cost::Precision precision) const;
  /// As above for one job, by its layout and how its step divides. On a network of the user's own: as above. On a
  /// device without measured rows no step is shorter than its products at the rates that the device sustains.
  search::ScaleInterval interval(const Job& job, const Estimate& estimate) const;
  size_t rows() const { return rows_.size(); }

  /// Comma-separated text with a header; read() throws ConfigError naming the line.
  std::string text() const;
  static Calibration read(std::string_view text, std::string_view name, Figure figure);
  /// Returns the calibrations that are part of the program: of throughput and of memory.
  static const Calibration& built_in();
  static const Calibration& built_in_memory();

 private:
  struct Score {
    double deviation = 0, off = 0;  // how uncertain the row was when held out, and how far off in that unit
  };
  struct Row {
    Traits traits;
    double log_ratio = 0;
    double noise = 0;
    Score scores[3];  // held out alone, with its model, with its source
  };
  void solve();
  // The usual job of today's software on a device, and how near and how many the rows are that it comes from.
  Traits usual_traits(const cost::Accelerator& device, cost::Precision precision, int& nearest,
                      size_t& count) const;
  search::ScaleInterval scaled(const Traits& traits, int nearest, size_t count) const;
  // Quantiles of measured over expected logarithms, where each row was predicted without its device.
  struct DeviceErrors {
    std::once_flag once;
    double low = 0, high = 0;
  };
  const DeviceErrors& device_errors() const;
  std::vector<size_t> groups(HoldOut by) const;
  std::vector<double> new_noise() const;  // of each row, were it measured again
  Correction with_interval(const Expected& expected, const Traits& traits) const;

  Figure figure_ = Figure::time;
  std::vector<Row> rows_;
  GaussianProcess process_;
  std::shared_ptr<DeviceErrors> device_errors_ = std::make_shared<DeviceErrors>();  // found when asked for
};

}  // namespace heddle::advisor
