// The kind of a plan's subject: a model, a launch script or a configuration, by its name and by what is there.
#pragma once

#include <string>

#include "advisor/answer/plan_answer.h"

namespace heddle::advisor {

struct Subject {
  PlanKind kind = PlanKind::model;
  std::string name;  // of a model: its name, or the folder with its config.json; else the file
};

/// ConfigError where a file or folder is named that is not there, with the nearest name beside it, or a folder is
/// neither a model's nor a run's.
Subject subject_of(const std::string& text);

}  // namespace heddle::advisor
