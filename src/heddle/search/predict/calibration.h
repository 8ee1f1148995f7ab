// One scalar for each (device, software release, precision): measured step time over estimated. It stands for all
// that the closed forms don't know of a device and a software version.
//
// A group's scalar is the mean logarithm of its rows, drawn towards its neighbours' as if they were `kPrior` more
// rows; a group that has never been measured takes its neighbours' alone. Neighbours count the less the further
// they are: in release date first, then in precision, software stack, device, generation of devices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heddle/cost/accelerator.h"
#include "heddle/search/predict/point_job.h"

namespace heddle::search {

struct CalibrationKey {
  std::string device;
  cost::Family family = cost::Family::other;
  std::string stack, release;
  double date = 0;
  cost::Precision precision = cost::Precision::bf16;
};
CalibrationKey key_of(const PointJob& point);

/// What measured steps are of estimated ones: the likeliest factor and the range that nine of ten fall into.
struct ScaleInterval {
  double scale = 1, low = 1, high = 1;
  std::string from;  // which measurements it leans on
};

/// ln(measured step / estimated step) of one row.
struct CalibrationSample {
  CalibrationKey key;
  double log_ratio = 0;
};

class Calibration {
 public:
  static Calibration fit(const std::vector<CalibrationSample>& samples);

  /// What to multiply an estimated step by; 1 when nothing at all was measured.
  double scale(const CalibrationKey& key) const;
  /// For a job of today's software on the device. The range comes from residuals: of rows within their groups, and
  /// where the device or precision was not measured, of groups predicted from those as far away.
  ScaleInterval interval(const cost::Accelerator& device, cost::Precision precision) const;
  size_t groups() const { return groups_.size(); }

  /// Comma-separated text with a header; read() throws ConfigError naming the line.
  std::string text() const;
  static Calibration read(std::string_view text, std::string_view name);
  /// The one that is part of the program.
  static const Calibration& built_in();

 private:
  struct Group {
    CalibrationKey key;
    double log_scale = 0;
    double rows = 0;
    double spread = 0;  // standard deviation of its rows' logarithms
  };
  // Mean of the groups at least `step` steps from the key (0: any), and whether there are any.
  bool from_afar(const CalibrationKey& key, int step, const Group* skip, double& mean) const;
  // Mean of the groups other than `skip`, by nearness.
  double neighbours(const CalibrationKey& key, const Group* skip) const;

  std::vector<Group> groups_;
};

}  // namespace heddle::search
