#include "heddle/runtime/mesh_communicators.h"

#include "heddle/base/error.h"
#include "heddle/ir/walk/streams.h"

namespace heddle::runtime {

MeshCommunicators::MeshCommunicators(comm::World& world, const ir::StepProgram& program, const plan::Mesh& mesh) {
  if (world.size() != mesh.ranks()) {
    const plan::Degrees& d = mesh.degrees();
    config_error("mesh: tp × cp × dp × pp ({} × {} × {} × {}) needs {} ranks, {} are running", d.tp, d.cp, d.dp,
                 d.pp, mesh.ranks(), world.size());
  }
  const ir::StreamTable streams(program, program.listings_of(world.rank()));
  for (const auto& [channel, group] : streams.channels())
    owned_[channel] = world.communicator(mesh.group(group, world.rank()), channel);
}

std::map<std::string, comm::Communicator*> MeshCommunicators::by_channel() const {
  std::map<std::string, comm::Communicator*> of;
  for (const auto& [channel, communicator] : owned_) of[channel] = communicator.get();
  return of;
}

std::map<std::string, comm::Traffic> MeshCommunicators::traffic() const {
  std::map<std::string, comm::Traffic> of;
  for (const auto& [channel, communicator] : owned_) of[channel] = communicator->traffic();
  return of;
}

}  // namespace heddle::runtime
