// SPDX-License-Identifier: Apache-2.0
#include "coordinator/job/job.h"

#include <gtest/gtest.h>

#include "coordinator/job/job_text.h"
#include "coordinator/machine/job_warnings.h"
#include "coordinator/rounds/run_context.h"
#include "core/base/durable_file.h"
#include "tests/support/paths.h"

namespace starling::coordinator {
namespace {

std::string refusal(std::string_view toml) {
  const auto job = parse_job(toml, "job.toml");
  return job ? "accepted" : job.error().code() + ": " + job.error().message();
}

TEST(Job, TheExampleMeansWhatItSays) {
  const std::string text =
      read_text_file(testing::source_root() / "examples/fashion-2nn.toml", 1 << 20).value();
  const auto parsed = parse_job(text, "fashion-2nn.toml");
  ASSERT_TRUE(parsed) << parsed.error().message();
  const Job& job = *parsed;
  EXPECT_EQ(job.job.name, "fashion-2nn");
  EXPECT_EQ(job.job.rounds, 20);
  EXPECT_EQ(job.training.model.hidden, (std::vector<int>{200, 200}));
  EXPECT_EQ(job.training.train.local_epochs, 2);
  EXPECT_EQ(job.training.train.schedule, "cosine");
  EXPECT_EQ(job.round.cohort, 10);
  EXPECT_EQ(job.round.asked(), 10);
  EXPECT_EQ(job.round.updates_needed(), 8);
  EXPECT_EQ(job.round.clients_awaited(), 12);
  EXPECT_EQ(job.round.deadline, std::chrono::seconds(60));
  EXPECT_EQ(job.data.partition, "dirichlet:alpha=0.5");
}

TEST(Job, AnEmptyFileIsTheDefaults) {
  const Job job = parse_job("", "job.toml").value();
  EXPECT_EQ(job.round.updates_needed(), 8) << "four fifths of 10";
  EXPECT_EQ(job.round.clients_awaited(), 8);
}

TEST(Job, OverSelectionAsksMore) {
  const Job job = parse_job("[round]\ncohort = 7\nover-selection = 1.3\n", "job.toml").value();
  EXPECT_EQ(job.round.asked(), 10);
  EXPECT_EQ(job.bounds().contributions_max, 10U);
  EXPECT_EQ(parse_job("[round]\ncohort = 100\nover-selection = 1.1\n", "job.toml")->round.asked(),
            110);
}

TEST(Job, SaysWhereAndWhatIsWrong) {
  EXPECT_NE(refusal("[round]\ncohrt = 3\n").find("cohort"), std::string::npos);
  EXPECT_NE(refusal("[round]\ncohrt = 3\n").find("job.toml:2"), std::string::npos);
  EXPECT_NE(refusal("[strategey]\nname = \"fedavg\"\n").find("'strategy.name'"), std::string::npos);
  EXPECT_NE(refusal("rounds = 0\n").find("rounds"), std::string::npos);
  EXPECT_NE(refusal("rounds = \"many\"\n"), "accepted");
  EXPECT_NE(refusal("[train]\noptimizer = \"sdg\"\n").find("sgd"), std::string::npos);
  EXPECT_NE(refusal("[strategy]\nname = \"fedmagic\"\n"), "accepted");
  EXPECT_NE(refusal("[round]\ncohort = 3\nmin-updates = 4\n").find("min-updates"),
            std::string::npos);
  EXPECT_NE(refusal("[round]\ncohort = 1000000\nover-selection = 2\n"), "accepted");
  EXPECT_NE(refusal("name = \"\"\n"), "accepted");
}

TEST(Job, KeysWithoutEffectAreNamed) {
  const auto unused = [](std::string_view toml) {
    return warnings_of_keys(parse_job(toml, "job.toml").value());
  };
  using Sentences = std::vector<std::string>;
  EXPECT_EQ(unused(""), Sentences());
  EXPECT_EQ(
      unused("[strategy]\nmu = 0.1\n"),
      Sentences({"strategy.mu is used by fednova and fedprox only; strategy.name is fedavg: it "
                 "has no effect"}));
  EXPECT_EQ(unused("[strategy]\nmu = 0.1\nname = \"fedprox\"\n"), Sentences());
  EXPECT_EQ(unused("[train]\nmomentum = 0.5\n"),
            Sentences({"train.momentum has no effect: train.optimizer is sgd (it needs momentum or "
                       "nesterov)"}));
  EXPECT_EQ(unused("[train]\nlocal-steps = 5\nlocal-epochs = 2\n"),
            Sentences({"train.local-epochs has no effect: train.local-steps is 5 (it needs 0)"}));
  EXPECT_EQ(unused("[train]\nmomentum = 0.5\noptimizer = \"nesterov\"\n"), Sentences());
  EXPECT_EQ(unused("[stop]\npatience = 3\n"),
            Sentences({"stop.patience has no effect: stop.metric is not set"}));
  EXPECT_EQ(unused("[stop]\nmode = \"max\"\n"),
            Sentences({"stop.mode has no effect: stop.metric is not set"}));
  EXPECT_EQ(unused("[evaluate]\nfederated-cohort = 3\n"),
            Sentences({"evaluate.federated-cohort has no effect: evaluate.federated-every is not "
                       "set"}));
  EXPECT_EQ(unused("[evaluate]\nevery = 3\n"),
            Sentences({"evaluate.every has no effect: evaluate.dataset is not set"}));
  EXPECT_EQ(unused("[evaluate]\nevery = 0\n"), Sentences());
  EXPECT_EQ(unused("[model]\nkernel-size = 3\n[aggregation]\ntrim = 2\n[fallback]\nafter = "
                   "\"9s\"\n[train]\nlocal-steps = 3\nlocal-epochs = 2\ngamma = 0.5\n")
                .size(),
            5U);
}

TEST(Job, AModelOfOnesOwnIsRefusedWhatTheCoordinatorCannotDoWithIt) {
  const std::string external = "[model]\nkind = \"external\"\ninitial = \"init.safetensors\"\n";
  EXPECT_EQ(refusal(external), "accepted");
  const Job job = parse_job(external + "[trainer]\nhidden = [3]\nname = \"x\"\n", "j").value();
  EXPECT_EQ(job.training.trainer.settings, R"({"hidden":[3],"name":"x"})");
  const Job again = parse_job(job_to_toml(job), "j").value();
  EXPECT_EQ(again.training.trainer.settings, job.training.trainer.settings);
  const auto refused = [&](const std::string& more) { return refusal(external + more); };
  EXPECT_EQ(refused("[evaluate]\ndataset = \"trainer\"\n[stop]\nmetric = \"loss\"\n"), "accepted");
  EXPECT_NE(refusal("[evaluate]\ndataset = \"trainer\"\n").find("'mlp' is built in"),
            std::string::npos);
  EXPECT_NE(refused("[evaluate]\ndataset = \"csv:rows.csv\"\n").find("evaluate.federated-every"),
            std::string::npos);
  EXPECT_EQ(refused("[evaluate]\nevery = 0\ndataset = \"csv:rows.csv\"\n"), "accepted");
  EXPECT_NE(refused("[fallback]\ntopology = \"ring\"\n").find("fallback.topology needs a model"),
            std::string::npos);
  EXPECT_NE(refusal("[trainer]\nhidden = 3\n").find("set model.kind = \"external\""),
            std::string::npos);
  EXPECT_NE(refused("trainer.settings = \"3\"\n"), "accepted");
  EXPECT_NE(refusal("trainer.settings = \"[3]\"\n" + external).find("not a JSON object"),
            std::string::npos);
  EXPECT_EQ(
      warnings_of_keys(parse_job(external + "[data]\nhold-out = 0.1\n", "j").value()),
      (std::vector<std::string>{"data.hold-out has no effect: model.kind is external (it needs "
                                "softmax-regression, mlp or cnn)"}));
}

TEST(Job, AMetricThatEndsARunHasANameAndADirection) {
  const std::string external =
      "[model]\nkind = \"external\"\ninitial = \"init.safetensors\"\n"
      "[evaluate]\ndataset = \"trainer\"\nfederated-every = 1\n[stop]\n";
  const auto stop = [&](const std::string& keys) { return refusal(external + keys); };
  const auto has = [](const std::string& text, std::string_view what) {
    return text.find(what) != text.npos;
  };
  EXPECT_EQ(stop("metric = \"mae\"\nmode = \"min\"\n"), "accepted");
  EXPECT_EQ(stop("metric = \"federated-recall@10\"\nmode = \"max\"\n"), "accepted");
  EXPECT_EQ(stop("metric = \"accuracy\"\nmode = \"max\"\n"), "accepted");
  EXPECT_EQ(stop("metric = \"loss\"\n"), "accepted");
  EXPECT_TRUE(has(stop("metric = \"mae\"\n"),
                  "stop.metric = 'mae' needs stop.mode = \"max\" where a larger value is better, "
                  "else \"min\""));
  EXPECT_TRUE(has(stop("metric = \"loss\"\nmode = \"max\"\n"),
                  "stop.mode = 'max' contradicts stop.metric = 'loss', of which less is better"));
  EXPECT_TRUE(has(stop("metric = \"federated-accuracy\"\nmode = \"min\"\n"),
                  "contradicts stop.metric = 'federated-accuracy', of which more is better"));
  EXPECT_NE(stop("metric = \"mae\"\nmode = \"down\"\n"), "accepted");
  for (const char* name : {"mean error", "federated-", ""}) {
    EXPECT_TRUE(
        has(stop(fmt::format("metric = \"{}\"\nmode = \"min\"\n", name)), "is no name of a metric"))
        << name;
  }
  EXPECT_TRUE(
      has(refusal("[evaluate]\ndataset = \"csv:rows.csv\"\n[stop]\nmetric = \"acuracy\"\n"),
          "stop.metric = 'acuracy' is none that the built-in model 'mlp' has; use accuracy, "
          "loss, federated-accuracy, federated-loss or none"));
  EXPECT_TRUE(has(refusal("[model]\nkind = \"external\"\ninitial = \"i.safetensors\"\n"
                          "[stop]\nmetric = \"federated-mae\"\nmode = \"min\"\n"),
                  "stop.metric = 'federated-mae' needs evaluate.federated-every above 0"));
}

TEST(Job, KeysOfTheSimulatedWorldWithoutEffectAreNamed) {
  Job job;
  const auto unused = [&job](std::string_view toml) {
    WorldOptions world;
    config::Binder binder;
    world.bind(binder);
    EXPECT_TRUE(binder.read_toml(toml, "job.toml"));
    return warnings_of_world(job, world);
  };
  using Sentences = std::vector<std::string>;
  EXPECT_EQ(unused(""), Sentences());
  EXPECT_EQ(unused("[network]\nretransmit = true\ndeadline = \"3s\"\n"),
            Sentences({"network.retransmit has no effect: the links of a federation always send "
                       "again what is lost",
                       "network.deadline has no effect: the links of a federation always send "
                       "again what is lost"}));
  const std::string of_others =
      "[network]\nretransmit-after = \"1s\"\n%[nodes]\nslowdown = 2\nreturn-after = \"1s\"\n";
  EXPECT_EQ(unused(std::string(of_others).replace(of_others.find('%'), 1, "")),
            Sentences({"network.retransmit-after has no effect: network.loss is not set",
                       "nodes.slowdown has no effect: nodes.stragglers is not set",
                       "nodes.return-after has no effect: nodes.crash-every is not set"}));
  EXPECT_EQ(unused(std::string(of_others).replace(of_others.find('%'), 1, "loss = 0.1\n") +
                   "stragglers = 0.5\ncrash-every = \"1h\"\n"),
            Sentences());
  job.fallback.topology = "ring";
  EXPECT_EQ(unused(""), Sentences({"fallback.topology has no effect: the coordinator is never away "
                                   "(network.coordinator-away is not set)"}));
  EXPECT_EQ(unused("[network]\ncoordinator-away = \"300s+2m\"\n"), Sentences());
}

TEST(Job, NormsAreBoundedWhereUpdatesAreStepsOfTheModel) {
  const auto bound = [](const std::string& strategy, const std::string& norm_max) {
    Job job =
        parse_job("[strategy]\nname = \"" + strategy + "\"\n[data]\ninput = [4]\nclasses = 2\n",
                  "job.toml")
            .value();
    if (!norm_max.empty()) job.aggregation.norm_max = norm_max;
    return std::pair(prepare_run(job, nullptr)->job.aggregation.norm_max,
                     warnings_of_keys(job).size());
  };
  for (const char* name : {"fedavg", "fedprox", "fedavgm", "fedadam", "feddyn", "diloco"}) {
    EXPECT_EQ(bound(name, ""), std::pair(std::string("10x"), std::size_t{0})) << name;
    EXPECT_EQ(bound(name, "3x"), std::pair(std::string("3x"), std::size_t{0})) << name;
  }
  for (const char* name : {"scaffold", "fednova", "qfedavg"}) {
    EXPECT_EQ(bound(name, ""), std::pair(std::string("off"), std::size_t{0})) << name;
    EXPECT_EQ(bound(name, "10x"), std::pair(std::string("10x"), std::size_t{1})) << name;
    EXPECT_EQ(bound(name, "off"), std::pair(std::string("off"), std::size_t{0})) << name;
  }
  EXPECT_NE(refusal("[aggregation]\nnorm-max = \"ten\"\n"), "accepted");
}

TEST(Job, LearningRatesThatItsStrategyIsNotDefinedForAreRefused) {
  EXPECT_NE(refusal("[strategy]\nname = \"scaffold\"\n[train]\nlearning-rate = 0\n"), "accepted");
  const std::string vanishing =
      "[train]\nschedule = \"step\"\ngamma = 0\n[strategy]\nname = \"qfedavg\"\n";
  EXPECT_EQ(refusal("rounds = 10\n" + vanishing), "accepted") << "it would vanish in round 11";
  EXPECT_NE(refusal("rounds = 11\n" + vanishing), "accepted");
}

}  // namespace
}  // namespace starling::coordinator
