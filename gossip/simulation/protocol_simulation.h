// SPDX-License-Identifier: Apache-2.0
// The network as devices would run it: whole peers (PeerShell) with their links, failure detection,
// all-reduce, catch-up and checkpoints, in virtual time, over the network and on the nodes that the
// options describe. Nodes compute at their speeds, are killed where they crash, and go on from what
// their disks hold. Far slower than the recurrences of the other simulations, which count messages
// and times without a protocol; without faults it ends with the same models.
#pragma once

#include "gossip/simulation/network_simulation.h"

namespace starling::gossip {

// `experiment` and `pool` must outlive it. "unsupported" with custom trainers. advance() fails with
// "no-progress", and with "peer-failed" where a peer gives up its run.
[[nodiscard]] Result<std::unique_ptr<NetworkSimulation>> make_protocol_simulation(
    const Experiment& experiment, ComputePool& pool);

}  // namespace starling::gossip
