// SPDX-License-Identifier: Apache-2.0
// The program starling-gossip as a function: for its main, and for that of a program with
// algorithms or topologies of its own (examples/own_algorithm, examples/own_topology).
#pragma once

namespace starling::gossip {

class AlgorithmCatalogue;

// Runs the command of the program's arguments and returns its exit code. `algorithms`: those that
// `simulate` takes beside the built-in ones, and its topologies, which `topology` knows too;
// `launch` does not, whose peers are other programs.
int run_commands(int argc, char** argv, const AlgorithmCatalogue& algorithms);

}  // namespace starling::gossip
