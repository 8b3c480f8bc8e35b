// SPDX-License-Identifier: Apache-2.0
// One member of an all-reduce as a process: the machine over real links, as gossip/peer drives it,
// on numbers that a test can add up for itself. Prints a line when it is done.
//   all_reduce_member IDENTITY ROSTER ring|tree FLOATS [HALT-AT-BYTES]
// With HALT-AT-BYTES it stops itself (SIGSTOP) as soon as it has sent so many: it is to be killed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "core/base/check.h"
#include "core/base/digest.h"
#include "core/net/alarm.h"
#include "core/net/signals.h"
#include "gossip/collective/all_reduce_machine.h"
#include "gossip/peer/held_roster.h"
#include "gossip/peer/peer_links.h"
#include "tests/gossip_peer/all_reduce_numbers.h"

namespace starling::gossip {
namespace {

using collective::AllReduceMachine;
using protocol::ReducePiece;
using protocol::VectorTransfer;

constexpr protocol::Epoch kEpoch = 1;

struct Task {
  collective::ShapeRule::Choice shape = collective::ShapeRule::Choice::kRing;
  std::uint64_t floats = 0;
  std::uint64_t halt_at_bytes = 0;  // 0: never
};

// As AllReduceProtocol has them.
collective::AllReduceOptions reduce_options(const Task& task) {
  collective::AllReduceOptions options;
  options.stragglers = {.initial = std::chrono::seconds(60),
                        .min = std::chrono::seconds(2),
                        .max = std::chrono::seconds(60)};
  options.shape.choice = task.shape;
  return options;
}

void print(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

class ReducingMember {
 public:
  ReducingMember(PeerLinks::World world, Task task,
                 std::shared_ptr<const identity::SignedRoster> roster, Member self)
      : world_(world),
        task_(task),
        roster_(std::move(roster)),
        self_(self),
        machine_(reduce_options(task), kEpoch, self, names_of(roster_->roster())),
        links_(world, link_options(), handlers(), {},
               Rng({.seed = self + 1U, .purpose = Purpose::kBackoff})),
        alarm_(world.loop, [this] { on(collective::Tick{}); }),
        alive_(world.loop) {}

  Result<void> start() {
    links_.set_roster(roster_);
    STARLING_TRY(links_.listen());
    std::set<Member> others;
    for (Member member = 0; member < members(); ++member) {
      if (member != self_) others.insert(member);
    }
    links_.keep(others);
    return {};
  }

  net::Async<void> run() {
    alive_.spawn(sleep_until_stopped());
    co_await alive_.wait();
    alarm_.clear();
    co_await links_.stop();
  }
  void request_stop() {
    stopping_ = true;
    alive_.cancel();
  }

 private:
  net::Async<void> sleep_until_stopped() {
    while (!stopping_) {
      const TimePoint tomorrow = world_.loop.now() + std::chrono::hours(24);
      co_await net::sleep_until(world_.loop, tomorrow);
    }
  }

  std::size_t members() const { return roster_->roster().members.size(); }

  PeerLinks::Options link_options() const {
    PeerLinks::Options options;
    options.listen = *identity::parse_host_port(roster_->roster().members[self_].address);
    options.bind = options.listen->host;
    return options;
  }

  PeerLinks::Handlers handlers() {
    return {.hello = [] { return protocol::PeerHello{.epoch = kEpoch}; },
            .on_up = [this](Member member, const protocol::PeerHello&) { met(member); },
            .on_down = [this](Member member, const Error&) { lost(member); },
            .on_message =
                [this](Member from, const protocol::Envelope& envelope) {
                  const auto* note = std::get_if<protocol::ReduceNote>(&envelope.message);
                  if (note) on(collective::NoteReceived{from, *note});
                },
            .check = [this](Member, const VectorTransfer& transfer) { return check(transfer); },
            .on_transfer = [this](Member from, TransferFlow::Whole whole) { take(from, whole); }};
  }

  void met(Member member) {
    met_.insert(member);
    on(collective::LinkUp{member, std::nullopt});
    if (begun_ || met_.size() + 1 < members()) return;
    begun_ = true;
    std::vector<float> input(task_.floats);
    for (std::uint64_t i = 0; i < task_.floats; ++i) {
      input[i] = static_cast<float>(testing::reduced_number(self_, i));
    }
    if (task_.halt_at_bytes > 0) watch();
    on(collective::Begin{{}, collective::share(std::move(input))});
  }

  void lost(Member member) { on(collective::LinkDown{member}); }

  // Between any two things that this process does.
  void watch() {
    if (links_.counters().wire_bytes_out < task_.halt_at_bytes) {
      return world_.loop.post([this] { watch(); });
    }
    print("halted");
    std::raise(SIGSTOP);
  }

  Result<void> check(const VectorTransfer& transfer) const {
    const auto* const piece = std::get_if<ReducePiece>(&transfer.content);
    if (piece != nullptr && piece->floats <= task_.floats) return {};
    return rejected("not-wanted", "not a piece of this all-reduce");
  }

  void take(Member from, const TransferFlow::Whole& whole) {
    const auto& piece = std::get<ReducePiece>(whole.transfer.content);
    const std::span<const float> values(reinterpret_cast<const float*>(whole.data.view().data()),
                                        piece.floats);
    on(collective::PieceReceived{from,
                                 whole.transfer.epoch,
                                 {whole.transfer.support.backed, piece.exchange},
                                 piece.attempt,
                                 piece.place,
                                 collective::Floats{whole.data.owner(), values}});
  }

  void on(collective::Event event) {
    for (collective::Action& action : machine_.on(std::move(event), world_.loop.now())) {
      std::visit([this](auto& a) { perform(a); }, action);
    }
    if (const auto due = machine_.next_deadline()) {
      alarm_.set(*due);
    } else {
      alarm_.clear();
    }
  }

  void perform(collective::SendNote& send) { links_.send(send.to, send.note); }
  void perform(collective::SendPiece& send) {
    const VectorTransfer transfer{.epoch = kEpoch,
                                  .content = ReducePiece{.exchange = send.at.exchange,
                                                         .attempt = send.attempt,
                                                         .place = send.place,
                                                         .floats = send.floats.values.size()}};
    links_.send_transfer(send.to, transfer,
                         SharedBytes(send.floats.owner, as_bytes(send.floats.values)),
                         TransferFlow::Urgency::kNow);
  }
  void perform(collective::Finished& finished) {
    const auto counters = links_.counters();
    print(fmt::format("finished members={} sha256={} sent={} received={}",
                      fmt::join(finished.members, ","),
                      sha256(as_bytes(finished.mean.values)).hex(), counters.wire_bytes_out,
                      counters.wire_bytes_in));
  }
  void perform(collective::CatchUp&) { print("behind"); }
  void perform(collective::Say& say) { world_.log.write(say.level, say.line); }

  PeerLinks::World world_;
  Task task_;
  std::shared_ptr<const identity::SignedRoster> roster_;
  Member self_;
  std::set<Member> met_;
  bool begun_ = false;
  bool stopping_ = false;
  AllReduceMachine machine_;
  PeerLinks links_;
  net::Alarm alarm_;
  net::TaskGroup alive_;
};

int run(const std::string& directory, const std::string& roster_file, const Task& task) {
  const auto log = make_stderr_log(LogLevel::kInfo);
  const SystemClock clock;
  const auto identity = identity::IdentityDirectory::load(directory);
  STARLING_CHECK(identity.has_value());
  const auto roster = identity::SignedRoster::load(roster_file, identity->credentials().authorities,
                                                   identity->identity().federation);
  STARLING_CHECK(roster.has_value());
  const auto self = roster->roster().find(identity->identity().name);
  STARLING_CHECK(self.has_value());
  net::EventLoop loop;
  ReducingMember member({loop, clock, *log, *identity}, task,
                        std::make_shared<const identity::SignedRoster>(*roster), *self);
  const net::SignalWatcher signals(loop, [&](net::Signal) { member.request_stop(); });
  if (const auto started = member.start(); !started) {
    log->error("{}", started.error().message());
    return 1;
  }
  loop.run_task(member.run());
  return 0;
}

}  // namespace
}  // namespace starling::gossip

int main(int argc, char** argv) {
  using Choice = starling::collective::ShapeRule::Choice;
  STARLING_CHECK(argc == 5 || argc == 6);
  starling::gossip::Task task;
  task.shape = std::string_view(argv[3]) == "ring" ? Choice::kRing : Choice::kTree;
  task.floats = std::strtoull(argv[4], nullptr, 10);
  if (argc == 6) task.halt_at_bytes = std::strtoull(argv[5], nullptr, 10);
  return starling::gossip::run(argv[1], argv[2], task);
}
