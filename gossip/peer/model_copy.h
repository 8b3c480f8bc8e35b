// SPDX-License-Identifier: Apache-2.0
// Taking a model over from several members, a part from each, so that none of them is held up by
// the whole. A part that does not come is asked of another. Without sockets.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "core/base/clock.h"
#include "core/linalg/aligned.h"
#include "core/protocol/messages.h"

namespace starling::gossip {

class ModelCopy {
 public:
  struct Ask {
    protocol::Member to = 0;
    protocol::ColumnsAsk columns;
  };

  struct Patience {
    Duration silent{};   // from the question for a part, and from each piece of it to the next
    Duration sending{};  // from when its donor begins to send it, if that is longer
    // From the question until another is asked in its place, if nothing has come of it: its donor
    // is busy, or does not hear us.
    Duration begins = Duration::max();
  };

  // Of `size` floats. A donor that exceeds a patience is given up. `spare`: is asked where these
  // give nothing. `own`: of the model that the copy is to take the place of. Requires: donors; all
  // of them different.
  ModelCopy(std::vector<protocol::Member> donors, std::optional<protocol::Member> spare,
            std::size_t size, Patience patience, const protocol::Support& own);

  // What is to be asked now; once each.
  std::vector<Ask> asks(TimePoint now);
  bool expects(protocol::Member from, const protocol::ModelColumns& columns) const;
  // These columns are announced, or a piece of them came. Who begins again and again has no longer.
  void progressed(protocol::Member from, const protocol::ModelColumns& columns, TimePoint now);
  // `support`: of the donor's model. A minority's that rests on less than a quorum's own is not
  // taken, and its donor is lost. Requires: expects(), a value for each column, all finite.
  void take(protocol::Member from, const protocol::ModelColumns& columns,
            const protocol::Support& support, std::span<const float> values);
  // Its link broke, or what it gave is no model.
  void lose(protocol::Member donor);
  // It has none to give yet: what was asked of it is asked of those that have not said so; where
  // all did, they are waited for.
  void put_off(protocol::Member donor);

  // Donors that were given up, or that gave nothing in time.
  const std::vector<protocol::Member>& gave_nothing() const { return gave_nothing_; }
  bool done() const;
  bool failed() const { return donors_.empty() && !done(); }
  // Requires: done(). The furthest that the parts are of, as far as another donor is at least as
  // far.
  protocol::Progress progress() const;
  // The same: who gave parts, which may be fewer than were asked.
  std::size_t givers() const { return furthest().size(); }
  std::span<const float> model() const { return model_; }
  std::optional<TimePoint> next_deadline() const;

 private:
  struct Part {
    std::size_t begin = 0;
    std::size_t end = 0;
    std::optional<protocol::Member> asked = {};
    std::set<protocol::Member> asked_before = {};  // what they send late still counts
    TimePoint until{};                             // to the next sign of it
    TimePoint begins_until{};                      // to the first one
    std::optional<TimePoint> limit = {};           // to its end, once it has begun
    bool came = false;
    protocol::Progress progress = {};  // once it came
  };

  std::map<protocol::Member, protocol::Progress> furthest() const;  // of each that gave a part
  void expect(Part& part, TimePoint now) const;
  static bool is_of(const Part& part, protocol::Member from, const protocol::ModelColumns& columns);
  bool may_ask_others(const Part& part) const;
  void ask_others(protocol::Member donor);
  protocol::Member next_donor();

  std::vector<protocol::Member> donors_;
  std::set<protocol::Member> put_off_by_;  // some of these
  std::vector<protocol::Member> gave_nothing_;
  Patience patience_;
  protocol::Support own_;
  std::vector<Part> parts_;
  std::size_t turn_ = 0;  // whose turn it is to be asked
  linalg::AlignedVector<float> model_;
};

}  // namespace starling::gossip
