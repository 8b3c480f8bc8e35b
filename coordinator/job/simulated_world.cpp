// SPDX-License-Identifier: Apache-2.0
#include "coordinator/job/simulated_world.h"

#include <algorithm>
#include <sstream>

#include "core/protocol/messages.h"

namespace starling::coordinator {
namespace {

// A loss means the same to a federation and to gossip: what a frame carries of a model is a piece.
static_assert(protocol::kChunkBytesMax == sim::kPieceBytes);

Result<SimulatedWorld::Absence> parse_absence(const std::string& text) {
  const std::size_t plus = text.find('+');
  if (plus != std::string::npos) {
    const auto from = parse_duration(text.substr(0, plus));
    const auto lasts = parse_duration(text.substr(plus + 1));
    if (from && lasts && lasts->count() > 0) {
      return SimulatedWorld::Absence{to_seconds(*from), to_seconds(*lasts)};
    }
  }
  return wrong_setting("bad-absence", "network.coordinator-away = '" + text +
                                          "' is not FROM+DURATION, such as 300s+2m");
}

Result<std::vector<SimulatedWorld::Absence>> parse_absences(const std::string& text) {
  std::vector<SimulatedWorld::Absence> absences;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ';');) {
    STARLING_ASSIGN(const SimulatedWorld::Absence absence, parse_absence(part));
    const bool overlaps =
        !absences.empty() && absence.from <= absences.back().from + absences.back().seconds;
    if (overlaps) {
      return wrong_setting("bad-absence",
                           "network.coordinator-away: each absence begins after the one before");
    }
    absences.push_back(absence);
  }
  return absences;
}

}  // namespace

void WorldOptions::bind(config::Binder& binder) {
  binder.bind("network", network);
  binder.bind("network", coordinator_link);
  binder.bind("nodes", nodes);
}

Result<SimulatedWorld> SimulatedWorld::make(const WorldOptions& options, std::uint32_t clients,
                                            std::uint64_t seed) {
  STARLING_ASSIGN(auto network, sim::Network::make(options.network, clients + 1, seed));
  if (network.has_link_bandwidths()) {
    return wrong_setting("values-malformed",
                         "network.links: a client has one link, its access link: say its bandwidth "
                         "in a row without 'to'");
  }
  STARLING_ASSIGN(auto population, sim::Population::make(options.nodes, clients, seed));
  std::optional<double> bandwidth;
  if (const std::string& text = options.coordinator_link.coordinator_bandwidth; !text.empty()) {
    STARLING_ASSIGN(const auto rate, sim::Distribution::parse(text, sim::Unit::kRate));
    if (!rate.constant()) {
      return wrong_setting("bad-distribution",
                           "network.coordinator-bandwidth = '" + text +
                               "' is not one rate: there is one coordinator; write as 1Gbit/s");
    }
    bandwidth = rate.least();
  }
  STARLING_ASSIGN(auto absences, parse_absences(options.coordinator_link.coordinator_away));
  return SimulatedWorld(std::move(network), std::move(population), clients, bandwidth,
                        std::move(absences));
}

SimulatedWorld::SimulatedWorld(sim::Network network, sim::Population population,
                               std::uint32_t clients, std::optional<double> coordinator_bandwidth,
                               std::vector<Absence> absences)
    : network_(std::move(network)),
      population_(std::move(population)),
      coordinator_bandwidth_(coordinator_bandwidth),
      absences_(std::move(absences)),
      links_(clients + std::size_t{1}),
      streams_(clients),
      steps_(clients) {}

double SimulatedWorld::transfer_seconds(std::uint32_t node, std::uint64_t bytes) const {
  if (node == coordinator() && coordinator_bandwidth_) {
    return static_cast<double>(bytes) / *coordinator_bandwidth_;
  }
  return network_.transfer_seconds(node, bytes);
}

double SimulatedWorld::coordinator_seconds(std::uint64_t bytes) const {
  return transfer_seconds(coordinator(), bytes);
}

SimulatedWorld::Message SimulatedWorld::send(std::uint32_t client, Way way, Kind kind,
                                             std::uint64_t bytes, double now) {
  const std::uint32_t from = way == Way::kToCoordinator ? client : coordinator();
  const std::uint32_t to = way == Way::kToCoordinator ? coordinator() : client;
  Stream& stream = streams_[client][static_cast<std::size_t>(way)];
  double& link_free = links_[from].uplink_free;
  const double takes = transfer_seconds(from, bytes);
  double start = kind == Kind::kBulk ? std::max(now, link_free) : now;
  if (kind != Kind::kPulse) start = std::max(start, stream.sent);
  link_free = std::max(now, link_free) + takes;
  const auto passage = network_.pass_reliably(
      {.from = from, .to = to, .number = stream.messages++, .bytes = bytes, .sent = start + takes});
  const double again = transfer_seconds(from, passage.resent_bytes);
  link_free += again;
  // From a slower sender it comes as if at the end and at once: the receiver's link has room for
  // others meanwhile.
  const double slower_by = std::max(0.0, takes - transfer_seconds(to, bytes));
  Message message{.way = way,
                  .kind = kind,
                  .bytes = bytes,
                  .begins = start + slower_by + again + passage.seconds};
  if (kind == Kind::kPulse) return message;
  // What follows a piece that was lost waits until that has come.
  message.begins = stream.begun = std::max(message.begins, stream.begun);
  stream.sent = start + takes;
  return message;
}

double SimulatedWorld::receive(std::uint32_t client, const Message& message) {
  const std::uint32_t to = message.way == Way::kToCoordinator ? coordinator() : client;
  Stream& stream = streams_[client][static_cast<std::size_t>(message.way)];
  double& link_free = links_[to].downlink_free;
  const double takes = transfer_seconds(to, message.bytes);
  link_free = std::max(message.begins, link_free) + takes;
  const double whole = message.kind == Kind::kBulk ? link_free : message.begins + takes;
  if (message.kind == Kind::kPulse) return whole;
  return stream.whole = std::max(whole, stream.whole);
}

void SimulatedWorld::forget_session(std::uint32_t client) {
  links_[client] = {};
  for (Stream& stream : streams_[client]) stream = {.messages = stream.messages};
}

double SimulatedWorld::connect_seconds(std::uint32_t client, double now) const {
  return 4 * network_.latency(client, coordinator(), now);
}

std::optional<double> SimulatedWorld::separated_until(std::uint32_t client, double now) const {
  return network_.separated_until(client, coordinator(), now);
}

double SimulatedWorld::train_seconds(std::uint32_t client, std::uint64_t steps) {
  double seconds = 0;
  for (std::uint64_t k = 0; k < steps; ++k) {
    seconds += population_.step_seconds(client, steps_[client]++);
  }
  return seconds;
}

}  // namespace starling::coordinator
