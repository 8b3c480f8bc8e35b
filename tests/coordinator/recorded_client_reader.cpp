// SPDX-License-Identifier: Apache-2.0
// Reads frames by the frozen schema, not by today's: a field that a later coordinator no longer
// fills is missing here, whatever today's codec makes of it.
#include "core/wire/schema.h"  // first: it mends Cap'n Proto's headers for clang

#include <capnp/pretty-print.h>
#include <capnp/serialize.h>

#include "core/wire/frame_type.h"
#include "tests/coordinator/recorded/client_v1.capnp.h"
#include "tests/coordinator/recording.h"

namespace starling::testing {
namespace {

using wire::FrameType;

class RecordedFrame {
 public:
  explicit RecordedFrame(ByteView frame)
      : type_(load_little<std::uint16_t>(frame.data() + 6)),
        words_(words_of(frame)),
        payload_(to_bytes(frame.subspan(kHeadBytes + words_.size() * sizeof(capnp::word)))) {}

  FrameType type() const { return static_cast<FrameType>(type_); }
  ByteView payload() const { return payload_; }
  template <class T>
  std::string text() {
    return kj::str(root<T>()).cStr();
  }
  template <class T>
  typename T::Reader root() {
    return reader_.getRoot<T>();
  }

 private:
  static constexpr std::size_t kHeadBytes = 8;

  static std::vector<std::uint64_t> words_of(ByteView frame) {
    std::vector<std::uint64_t> words(load_little<std::uint16_t>(frame.data() + 4));
    std::memcpy(words.data(), frame.data() + kHeadBytes, words.size() * sizeof(capnp::word));
    return words;
  }

  std::uint16_t type_;
  std::vector<std::uint64_t> words_;
  Bytes payload_;
  capnp::FlatArrayMessageReader reader_{
      kj::arrayPtr(reinterpret_cast<const capnp::word*>(words_.data()), words_.size())};
};

std::string plan_without_settings(RecordedFrame& frame) {
  capnp::MallocMessageBuilder copy;
  copy.setRoot(frame.root<recorded_v1::RoundPlan>());
  auto plan = copy.getRoot<recorded_v1::RoundPlan>();
  plan.disownSettings();
  return kj::str(plan.asReader()).cStr();
}

std::string fields(RecordedFrame& frame) {
  switch (frame.type()) {
    case FrameType::kWelcome:
      return frame.text<recorded_v1::Welcome>();
    case FrameType::kRoundPlan:
      return plan_without_settings(frame);
    case FrameType::kChunk:
      return frame.text<recorded_v1::Chunk>();
    case FrameType::kCredit:
      return frame.text<recorded_v1::Credit>();
    case FrameType::kUpdateAccept:
      return frame.text<recorded_v1::UpdateAccept>();
    case FrameType::kUpdateReceived:
      return frame.text<recorded_v1::UpdateReceived>();
    case FrameType::kRoundCommitted:
      return frame.text<recorded_v1::RoundCommitted>();
    case FrameType::kTaskEnded:
      return frame.text<recorded_v1::TaskEnded>();
    case FrameType::kPong:
      return frame.text<recorded_v1::Pong>();
    case FrameType::kBye:
      return frame.text<recorded_v1::Bye>();
    default:
      return "a message for which the recorded client hangs up";
  }
}

}  // namespace

std::string read_by_recorded_client(ByteView bytes) {
  RecordedFrame frame(bytes);
  return std::string(wire::to_string(frame.type())) + ' ' + fields(frame) + ' ' +
         to_hex(frame.payload());
}

Settings settings_read_by_recorded_client(ByteView bytes) {
  RecordedFrame frame(bytes);
  Settings settings;
  if (frame.type() != FrameType::kRoundPlan) return settings;
  for (const auto setting : frame.root<recorded_v1::RoundPlan>().getSettings()) {
    settings.emplace_back(setting.getKey().cStr(), setting.getValue().cStr());
  }
  return settings;
}

}  // namespace starling::testing
