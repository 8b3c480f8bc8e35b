// SPDX-License-Identifier: Apache-2.0
#include "core/model/external_model.h"

#include <gtest/gtest.h>

#include "core/base/durable_file.h"
#include "core/model/model.h"
#include "core/model/safetensors.h"
#include "tests/support/temporary_directory.h"

namespace starling::model {
namespace {

std::vector<TensorInfo> tensors() {
  return {{.name = "fc.weight", .shape = {2, 1}},
          {.name = "bn.running_mean", .shape = {2}, .role = Role::kBuffer},
          {.name = "bn.num_batches_tracked", .shape = {}, .role = Role::kBuffer}};
}

std::string layout_refusal(std::vector<TensorInfo> of) {
  const auto layout = external_layout(std::move(of));
  return layout ? "none" : layout.error().code() + ": " + layout.error().message();
}

TEST(ExternalModel, LiesInTheOrderOfItsNames) {
  const auto layout = external_layout(tensors()).value();
  ASSERT_EQ(layout->tensors().size(), 3U);
  EXPECT_EQ(layout->tensors()[0].name, "bn.num_batches_tracked");
  EXPECT_EQ(layout->tensors()[1].name, "bn.running_mean");
  EXPECT_EQ(layout->tensors()[2].name, "fc.weight");
  EXPECT_EQ(layout->tensors()[2].offset, 3U);
  EXPECT_EQ(layout->size(), 5U);
}

TEST(ExternalModel, RefusesWhatCannotTravel) {
  EXPECT_EQ(layout_refusal({}), "bad-layout: the model has no tensors");
  auto with_private = tensors();
  with_private[0].role = Role::kPrivate;
  EXPECT_EQ(layout_refusal(with_private),
            "bad-layout: tensor \"fc.weight\" is private to a client, and does not travel");
  EXPECT_EQ(layout_refusal({{.name = "a", .shape = {0}}}),
            "bad-layout: the model's tensors have no values");
  for (const char* name : {"__metadata__", "a\nb"}) {
    EXPECT_EQ(layout_refusal({{.name = name, .shape = {1}}}),
              "bad-layout: a tensor's name is \"__metadata__\" or has a control character");
  }
  auto twice = tensors();
  twice[1].name = "fc.weight";
  EXPECT_EQ(layout_refusal(twice), "bad-layout: tensor \"fc.weight\" occurs twice");
}

TEST(ExternalModel, ItsDigestIsOfNamesShapesAndRoles) {
  const auto digest = [](std::vector<TensorInfo> of) {
    return digest_of(*external_layout(std::move(of)).value());
  };
  const Sha256Digest same = digest(tensors());
  auto other = tensors();
  std::swap(other[0], other[2]);
  EXPECT_EQ(digest(other), same) << "in another order";
  other = tensors();
  other[0].shape = {1, 2};
  EXPECT_NE(digest(other), same);
  other = tensors();
  other[0].name = "fc2.weight";
  EXPECT_NE(digest(other), same);
  other = tensors();
  other[1].role = Role::kTrainable;
  EXPECT_NE(digest(other), same);
  // 2,1 of one tensor is not 21 of another.
  EXPECT_NE(digest({{.name = "a", .shape = {21}}}), digest({{.name = "a", .shape = {2, 1}}}));
}

TEST(ExternalModel, ARuleIsPartOfTheDigestWhereItIsNotTheMean) {
  std::vector<TensorInfo> other = tensors();
  const auto digest = [](std::vector<TensorInfo> listed) {
    return digest_of(*external_layout(std::move(listed)).value());
  };
  const Sha256Digest same = digest(other);
  other[1].rule = BufferRule::kMaximum;
  EXPECT_NE(digest(other), same);
  const Sha256Digest maximum = digest(other);
  other[1].rule = BufferRule::kLast;
  EXPECT_NE(digest(other), same);
  EXPECT_NE(digest(other), maximum);
  const std::string_view lines("a\0002,buffer\nb\0003,trainable\n", 25);
  EXPECT_EQ(
      digest({{.name = "a", .shape = {2}, .role = Role::kBuffer}, {.name = "b", .shape = {3}}}),
      sha256(as_bytes(lines)))
      << "as in earlier versions";
  other[1].role = Role::kTrainable;
  const auto refused = external_layout(other);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), "bad-layout");
}

TEST(ExternalModel, ReadsAFileOfAnyOrderWithItsRoles) {
  const testing::TemporaryDirectory directory;
  const auto path = directory.path() / "model.safetensors";
  std::vector<TensorInfo> listed = tensors();
  listed[2].rule = BufferRule::kMaximum;
  listed.push_back({.name = "z", .shape = {2}, .role = Role::kBuffer, .rule = BufferRule::kLast});
  Parameters written(Layout::make(listed).value());
  for (std::size_t i = 0; i < written.size(); ++i) {
    written.values()[i] = static_cast<float>(i + 1);
  }
  ASSERT_TRUE(write_safetensors(path, written));
  SystemDisk disk;
  const Parameters read = load_external_model(disk, path).value();
  EXPECT_EQ(*read.layout(), *external_layout(listed).value()) << "with their rules";
  for (const TensorInfo& tensor : written.layout()->tensors()) {
    const auto before = std::as_const(written).values(tensor);
    const auto after = read.values(*read.layout()->find(tensor.name));
    EXPECT_TRUE(std::ranges::equal(before, after)) << tensor.name;
  }
  // What is written again has this order already.
  ASSERT_TRUE(write_safetensors(path, read));
  EXPECT_EQ(load_external_model(disk, path).value(), read);
}

TEST(ExternalModel, RefusesAListOfBuffersThatIsNotOfTheFile) {
  const auto refusal_of = [](const std::string& buffers) {
    const Parameters model(Layout::make({{.name = "a", .shape = {1}}}).value());
    Bytes file = safetensors_header(*model.layout(), {{"starling.buffers", buffers}});
    file.resize(file.size() + sizeof(float));
    const auto parsed = parse_safetensors(file);
    return parsed ? "none" : parsed.error().message();
  };
  const std::string start = "not a sound safetensors file: its list of buffers ";
  EXPECT_EQ(refusal_of(R"(["a"])"), "none");
  EXPECT_EQ(refusal_of(R"(["b"])"), start + "names \"b\", which is no tensor of it");
  EXPECT_EQ(refusal_of(R"([1])"), start + "holds something else than text");
  EXPECT_EQ(refusal_of("a"), start + "is not a JSON array");
}

TEST(ExternalModel, RefusesARuleOfWhatIsNoBuffer) {
  const Parameters model(Layout::make({{.name = "a", .shape = {1}}}).value());
  const auto refusal_of = [&](const Metadata& metadata) {
    Bytes file = safetensors_header(*model.layout(), metadata);
    file.resize(file.size() + sizeof(float));
    const auto parsed = parse_safetensors(file);
    return parsed ? "none" : parsed.error().message();
  };
  const std::string start = "not a sound safetensors file: ";
  const std::string list = R"(["a"])";
  EXPECT_EQ(refusal_of({{"starling.maximum", list}}),
            start + "its list of maximum buffers names \"a\", which is no buffer of it");
  EXPECT_EQ(refusal_of({{"starling.last", list}}),
            start + "its list of last buffers names \"a\", which is no buffer of it");
  EXPECT_EQ(refusal_of({{"starling.buffers", list}, {"starling.last", list}}), "none");
  EXPECT_EQ(
      refusal_of({{"starling.buffers", list}, {"starling.last", list}, {"starling.maximum", list}}),
      start + "it lists the buffer \"a\" under two rules");
}

TEST(ExternalModel, IsNoBuiltInModel) {
  const auto made = make_model({.kind = "external"}, {1, 1, 4}, 3);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), "bad-model-spec");
}

}  // namespace
}  // namespace starling::model
