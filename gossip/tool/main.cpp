// SPDX-License-Identifier: Apache-2.0
// starling-gossip: the researcher's program.
#include "gossip/algorithms/algorithm_catalogue.h"
#include "gossip/tool/run_commands.h"

int main(int argc, char** argv) {
  const starling::gossip::AlgorithmCatalogue built_in;
  return starling::gossip::run_commands(argc, argv, built_in);
}
