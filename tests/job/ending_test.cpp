#include "heddle/job/ending.h"

#include <gtest/gtest.h>

#include "heddle/job/batch_script.h"
#include "heddle/job/launcher.h"
#include "heddle/job/persistence.h"

namespace heddle::job {
namespace {

comm::RankStatus rank_at(int rank, int64_t step) {
  comm::RankStatus s;
  s.rank = rank;
  s.ranks = 4;
  s.step = step;
  return s;
}

TEST(Ending, SaysWhetherAnotherTryIsWorthIt) {
  EXPECT_EQ(ending_of({.status = 0}).cause, Cause::done);
  EXPECT_EQ(ending_of({.status = 2}).cause, Cause::mistake);
  EXPECT_EQ(ending_of({.status = 130}).cause, Cause::asked);
  EXPECT_EQ(ending_of({.status = 1, .asked = true}).cause, Cause::asked);
  for (const int status : {1, 137, 205, 134, 75})
    EXPECT_EQ(ending_of({.status = status}).cause, Cause::fault) << status;
  EXPECT_EQ(ending_of({.status = 0, .forced = "no rank has moved for 99 s"}).cause, Cause::fault);
}

TEST(Ending, ALauncherThatSaysNothingKnownIsQuoted) {
  EXPECT_EQ(ending_of({.status = 137, .ranks = {rank_at(0, 1)}}).reason, "the launcher was ended by signal 9");
  EXPECT_EQ(ending_of({.status = 213}).reason, "the launcher ended with status 213 before a rank had begun");
  EXPECT_EQ(ending_of({.status = 213, .said = {"no room for a session", ""}}).reason,
            "the launcher ended with status 213 before a rank had begun; it said last: no room for a session");
}

TEST(Ending, BelievesARankThatBlamesTheInputWhateverTheLauncherSays) {
  Evidence e{.status = 1};
  e.ranks = {rank_at(0, 3)};
  e.ranks[0].state = comm::RankState::failed;
  e.ranks[0].input = true;
  e.ranks[0].reason = "train.steps is 0";
  EXPECT_EQ(ending_of(e).cause, Cause::mistake);
  EXPECT_EQ(ending_of(e).reason, "train.steps is 0");
}

TEST(Ending, OfAJobThatHadNothingLeftToDoIsItsEnd) {
  EXPECT_EQ(
      ending_of({.status = 2, .said = {"heddle: --resume: run has done 9 steps: nothing is left to do"}}).cause,
      Cause::done);
}

TEST(Ending, NamesWhoWasNamed) {
  Evidence e{.status = 137};
  e.said = {"mpirun noticed that process rank 2 with PID 0 on node b exited on signal 9 (Killed)."};
  e.ranks = {rank_at(0, 7), rank_at(1, 8)};
  e.ranks[1].state = comm::RankState::failed;
  e.ranks[1].accused = 3;
  const Ending ending = ending_of(e);
  EXPECT_EQ(ending.step, 8);
  EXPECT_EQ(ending.suspects, (std::vector<int>{2, 3}));
  EXPECT_EQ(ending.reason, e.said[0]);
}

TEST(Ending, NamesTheTaskThatSrunSawDie) {
  EXPECT_EQ(killed_task("srun: error: node1: task 1: Killed"), 1);
  EXPECT_EQ(killed_task("srun: error: node2: tasks 12-15: Segmentation fault (core dumped)"), 12);
  EXPECT_EQ(killed_task("srun: error: node1: task 1: Exited with exit code 1"), -1);
  EXPECT_EQ(killed_task("srun: error: node1: taskless"), -1);
  EXPECT_EQ(killed_task("slurmstepd: error: node1: task 1: Killed"), -1);
  const Ending ending = ending_of({.status = 137, .said = {"srun: error: node1: task 1: Killed"}});
  EXPECT_EQ(ending.suspects, std::vector<int>{1});
  EXPECT_EQ(ending.reason, "srun: error: node1: task 1: Killed");
}

TEST(Ending, NamesWhoWasMissedBeforeAnyRankHadAPage) {
  const Evidence e{
      .status = 1,
      .said = {"heddle: rank 2 is dead, stopped or cut off: it has not answered rank 3 (d) for 20 s at "
               "the start"}};
  EXPECT_EQ(ending_of(e).suspects, std::vector<int>{2});
}

TEST(Ending, TellsWhatTheProgramSaidAndNoWarning) {
  const Ending ending =
      ending_of({.status = 1, .said = {"heddle: rank 1: no space", "heddle: warning: slow", "mpirun: something"}});
  EXPECT_EQ(ending.reason, "rank 1: no space");
}

TEST(Persistence, GivesUpWhereNothingIsGained) {
  Persistence p(3, 1, 60);
  EXPECT_EQ(p.after_fault(10), 0.0);
  EXPECT_EQ(p.after_fault(20), 0.0);
  EXPECT_EQ(p.after_fault(20), 1.0);
  EXPECT_EQ(p.after_fault(12), 2.0);
  EXPECT_EQ(p.after_fault(20), std::nullopt);
  EXPECT_EQ(p.furthest(), 20);
}

TEST(Persistence, BeginsAnewWithEveryStepThatIsGained) {
  Persistence p(2, 1, 60);
  for (int step = 0; step < 100; ++step) EXPECT_EQ(p.after_fault(step), 0.0);
  EXPECT_EQ(p.after_fault(99), 1.0);
  EXPECT_EQ(p.after_fault(100), 0.0);
}

TEST(Launcher, LinesNameHostsAndRanks) {
  const Start start{{{"a", 2}, {"b", 1}}, {"heddle", "train"}, {"HEDDLE_JOB"}, "/usr/bin/reach", {"--more"}};
  const std::vector<std::string> mpirun = launcher_named("mpirun").words(start);
  const auto has = [](const std::vector<std::string>& words, const std::string& a, const std::string& b) {
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] == a && words[i + 1] == b) return true;
    }
    return false;
  };
  EXPECT_TRUE(has(mpirun, "--host", "a:2,b:1"));
  EXPECT_TRUE(has(mpirun, "-np", "3"));
  EXPECT_TRUE(has(mpirun, "plm_rsh_agent", "/usr/bin/reach"));
  EXPECT_TRUE(has(mpirun, "-x", "HEDDLE_JOB"));
  EXPECT_TRUE(has(mpirun, "heddle", "train"));
  const std::vector<std::string> srun = launcher_named("srun").words(start);
  EXPECT_TRUE(has(srun, "--nodelist=a,b", "--nodes=2"));
  EXPECT_TRUE(has(srun, "--ntasks=3", "--more"));
  EXPECT_EQ(launcher_named("mpirun").on_host("b", "/usr/bin/reach", {"true", "it's"}),
            (std::vector<std::string>{"/usr/bin/reach", "b", "true", "'it'\\''s'"}));
}

TEST(BatchScript, QuotesWhatAShellWouldObey) {
  EXPECT_EQ(shell_word("a/b=c"), "a/b=c");
  EXPECT_EQ(shell_word("it's $HOME;"), "'it'\\''s $HOME;'");
  const std::string script = batch_script({"na me\n#SBATCH --x", 5, 8, {}, {"heddle", "launch", "a b.toml"}});
  EXPECT_NE(script.find("#SBATCH --nodes=5\n#SBATCH --ntasks-per-node=8\n"), std::string::npos);
  EXPECT_NE(script.find("#SBATCH --job-name=na_me__SBATCH_--x\n"), std::string::npos);
  EXPECT_NE(script.find("\nheddle launch 'a b.toml' &\n"), std::string::npos);
}

}  // namespace
}  // namespace heddle::job
