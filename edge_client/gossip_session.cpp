// SPDX-License-Identifier: Apache-2.0
#include "edge_client/gossip_session.h"

#include <utility>

#include "gossip/peer/held_roster.h"

namespace starling::edge_client {

using protocol::Envelope;
using protocol::VectorTransfer;

namespace {

enum class Answer {
  kNone,
  kFinal,  // it has the model of this transfer, or does not want it
  kLater,  // too many come at once
};

Answer answer_of(const Envelope& envelope, TaskId transfer) {
  if (const auto* ended = std::get_if<protocol::TaskEnded>(&envelope.message)) {
    if (ended->task != transfer) return Answer::kNone;
    const bool is_busy = ended->code == "too-many-models" || ended->code == "queue-full";
    return is_busy ? Answer::kLater : Answer::kFinal;
  }
  const auto* received = std::get_if<protocol::UpdateReceived>(&envelope.message);
  return received != nullptr && received->task == transfer ? Answer::kFinal : Answer::kNone;
}

}  // namespace

GossipSession::GossipSession(World world, gossip::PeerNode::Options options,
                             gossip::PeerData trains_on, Link link)
    : world_(world),
      link_(std::move(link)),
      to_issuer_({},
                 [](const VectorTransfer&) -> Result<void> {
                   return rejected("not-wanted", "a device takes no transfer from its issuer");
                 }),
      node_({world.loop, world.clock, world.log, world.identity}, std::move(options),
            std::move(trains_on),
            {.report =
                 [this](const protocol::PeerReport& report) {
                   if (linked_) link_.send({report, {}});
                   if (linked_ && std::exchange(again_, false)) send_hand_in();
                   on_report_();
                 },
             .hand_in = [this](const VectorTransfer& transfer,
                               SharedBytes data) { hand_in(transfer, std::move(data)); }},
            link_) {}

net::Async<void> GossipSession::run() { co_await node_.run(); }

void GossipSession::link_up() {
  linked_ = true;
  const identity::SignedRoster* held = node_.peer().roster();
  link_.send({issuer::ask_for_newer(held ? &held->roster() : nullptr), {}});
  if (held) link_.send({node_.peer().report(), {}});
  send_hand_in();
  node_.links().issuer_up();
}

void GossipSession::link_down() {
  linked_ = false;
  assembler_ = {};
  to_issuer_.restart();
  node_.links().issuer_down();
}

bool GossipSession::take(const Envelope& envelope) {
  if (const auto* part = std::get_if<protocol::RosterPart>(&envelope.message)) {
    const identity::SignedRoster* held = node_.peer().roster();
    const auto taken =
        assembler_.take(*part, envelope.payload.view(), held ? &held->roster() : nullptr);
    if (taken.ask) link_.send({*taken.ask, {}});
    if (!taken.whole) return true;
    const auto roster = gossip::verify_roster(*taken.whole, world_.identity);
    if (roster) {
      node_.peer().take_roster(*roster, gossip::PeerShell::Source::kIssuer);
      on_report_();
    } else {
      world_.log.warning("the roster is not used: {}", roster.error().message());
    }
    return true;
  }
  if (const auto* relay = std::get_if<protocol::Relay>(&envelope.message)) {
    node_.links().take_relayed(*relay, envelope.payload);
    return true;
  }
  // Its answers about models that are handed in; ids of rounds' tasks mean nothing to the flow.
  const Answer answer = unanswered_ ? answer_of(envelope, unanswered_->transfer.id) : Answer::kNone;
  if (answer == Answer::kFinal) unanswered_.reset();
  if (answer == Answer::kLater) again_ = true;
  (void)to_issuer_.take(envelope);
  pump();
  return false;
}

void GossipSession::hand_in(const VectorTransfer& transfer, SharedBytes data) {
  unanswered_ = HandIn{transfer, std::move(data)};
  if (linked_) send_hand_in();
}

void GossipSession::send_hand_in() {
  if (unanswered_) {
    (void)to_issuer_.send(unanswered_->transfer, unanswered_->data,
                          gossip::TransferFlow::Urgency::kNow);
  }
  pump();
}

void GossipSession::pump() {
  while (linked_) {
    const auto envelope = to_issuer_.next();
    if (!envelope) return;
    const auto* announced = std::get_if<VectorTransfer>(&envelope->message);
    if (announced != nullptr && unanswered_ && announced->epoch == unanswered_->transfer.epoch &&
        announced->content == unanswered_->transfer.content) {
      unanswered_->transfer.id = announced->id;
    }
    link_.send(*envelope);
  }
}

std::optional<EdgeStatus::Gossip> GossipSession::status() const {
  const identity::SignedRoster* roster = node_.peer().roster();
  if (roster == nullptr) return std::nullopt;
  const protocol::PeerReport report = node_.peer().report();
  return EdgeStatus::Gossip{.run_name = roster->roster().run,
                            .epoch = report.epoch,
                            .state = report.state,
                            .step = report.step,
                            .neighbours = report.neighbours,
                            .expected = report.expected,
                            .links = report.linked - 1,
                            .reachable = report.reachable,
                            .problem = report.problem,
                            .model = node_.peer().model_file().string()};
}

Result<gossip::PeerNode::Options> node_options(const EdgeOptions& options,
                                               const StateDirectory& state, std::string software,
                                               std::uint64_t seed) {
  gossip::PeerNode::Options node;
  if (!options.gossip.listen.empty()) {
    STARLING_ASSIGN(node.links.listen, identity::parse_host_port(options.gossip.listen));
  }
  node.links.bind = options.gossip.bind;
  node.links.connect.deadline =
      std::min(options.connection.connect_deadline, Duration(std::chrono::seconds(5)));
  node.directory = state.gossip();
  node.checkpoint_every = options.gossip.checkpoint_every;
  node.patience_max = options.gossip.patience;
  node.software = std::move(software);
  node.seed = seed;
  return node;
}

}  // namespace starling::edge_client
