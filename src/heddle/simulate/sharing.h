// Resources that ops side by side share: the cores of a machine, a host's link to the others, each way, and the
// units of a rank's device that compute.
//
// Cores: all threads of a machine run at the speed that it has for as many. A link: an op asks for the part of its
// rate that it would use alone. Where all ask for more than there is, all slow down alike, so that bytes pass at
// the link's rate and none is lost. Units: messages take shares of them, and go on as if alone; an op that computes
// takes none, and has what they leave. The scarcest of an op's resources sets its speed.
#pragma once

#include <functional>
#include <vector>

namespace heddle::simulate {

class Sharing {
 public:
  /// `speed` as SimulationInput::speed; null: cores are never scarce.
  Sharing(int machines, int hosts, int devices, std::function<double(double threads)> speed)
      : machines_(machines), hosts_(hosts), speed_(std::move(speed)) {
    load_.assign(static_cast<size_t>(machines_ + 2 * hosts_ + devices), 0);
  }

  struct Demand {
    int resource = 0;
    double amount = 0;  // threads, a part of a link's rate, or of a device's units
  };
  int cores(int machine) const { return machine; }
  int out_of(int host) const { return machines_ + 2 * host; }
  int into(int host) const { return machines_ + 2 * host + 1; }
  int units(int device) const { return machines_ + 2 * hosts_ + device; }

  /// Least part of a device's units that messages leave.
  static constexpr double kLeastUnits = 0.1;

  void take(const std::vector<Demand>& demands) { add(demands, 1); }
  void give_back(const std::vector<Demand>& demands) { add(demands, -1); }
  /// Speed of an op that has taken these.
  double speed(const std::vector<Demand>& demands) const;

 private:
  void add(const std::vector<Demand>& demands, double sign);

  int machines_, hosts_;
  std::function<double(double threads)> speed_;
  std::vector<double> load_;
};

/// Puts demands of the same resource together.
void merge(std::vector<Sharing::Demand>& demands);

}  // namespace heddle::simulate
