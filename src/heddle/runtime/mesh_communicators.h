// A communicator for each channel on which a rank communicates, of the mesh group that the channel is named for.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "heddle/comm/world.h"
#include "heddle/plan/plan.h"

namespace heddle::runtime {

class MeshCommunicators {
 public:
  /// Every rank of the world calls it. ConfigError when the world has another size than the mesh.
  MeshCommunicators(comm::World& world, const ir::StepProgram& program, const plan::Mesh& mesh);

  /// Communicators by channel ("comm.tp", "comm.pp.forward"); for ExecutorOptions.
  std::map<std::string, comm::Communicator*> by_channel() const;
  /// Traffic that this rank has sent on each channel so far.
  std::map<std::string, comm::Traffic> traffic() const;

 private:
  std::map<std::string, std::unique_ptr<comm::Communicator>> owned_;
};

}  // namespace heddle::runtime
