// What scripts of other trainers are written in, read and never run.
#include "advisor/shell/shell.h"

#include <gtest/gtest.h>

#include "heddle/base/error.h"

namespace heddle::advisor::shell {
namespace {

// The words behind "run" in the script's last such command, apart by '|'; unknown ones as "?".
std::string run_words(const std::string& script, const Environment& environment = {}) {
  const Script read = read_script(script, "folder/run.sh", environment);
  std::string text;
  for (const Command& c : read.commands) {
    if (c.words.front() != "run") continue;
    text.clear();
    for (size_t i = 1; i < c.words.size(); ++i)
      text += (i > 1 ? "|" : "") + (is_known(c.words[i]) ? c.words[i] : "?");
  }
  return text;
}

std::string why(const std::string& script) {
  const Script read = read_script(script, "folder/run.sh");
  for (const Command& c : read.commands)
    for (const std::string& word : c.words)
      if (!is_known(word)) return read.why_unknown(word);
  return "";
}

std::string failure(const std::string& script) {
  try {
    read_script(script, "run.sh");
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
    return error.what();
  }
  return "";
}

TEST(Shell, ConditionsOnKnownWords) {
  EXPECT_EQ(run_words("D=fp8\nif [[ $D == \"fp8\" ]]; then A=1; else A=2; fi\nrun --a $A"), "--a|1");
  EXPECT_EQ(run_words("D=bf16\nif [ \"$D\" = fp8 ]; then A=1; elif [ $D != fp16 ]; then A=3; fi\nrun --a $A"),
            "--a|3");
  EXPECT_EQ(run_words("V=2\nif [ $V -gt 1 ] && [ $V -le 2 ]; then A=(x y); fi\nrun --a ${A[@]}"), "--a|x|y");
  EXPECT_EQ(run_words("if test -z \"$GIVEN\"; then GIVEN=d; fi\nrun --a $GIVEN"), "--a|d");
  EXPECT_EQ(run_words("if [[ -n $GIVEN || 3 -lt 2 ]]; then A=1; else A=0; fi\nrun --a $A"), "--a|0");
  EXPECT_EQ(run_words("N=qwen3_30b\nif [[ $N == qwen* && ! $N == *8b ]]; then A=1; fi\nrun --a $A"), "--a|1");
  EXPECT_EQ(run_words("T=4\nif (( T > 1 )); then A=1; fi\nrun --a $A"), "--a|1");
  EXPECT_EQ(run_words("[ 1 -eq 2 ] || A=or\n[ 1 -eq 1 ] && B=and\nrun --a $A $B"), "--a|or|and");
  EXPECT_EQ(run_words("case ${SIZE:-8B} in 4B) L=36;; 8B|9B) L=40 ;; *) L=0;; esac\nrun --a $L"), "--a|40");
  EXPECT_EQ(run_words("S=13B\ncase $S in 7B) L=1;; 13*) L=2;; *) L=3;; esac\nrun --a $L"), "--a|2");
}

TEST(Shell, Arithmetic) {
  EXPECT_EQ(run_words("T=2\nrun --a $(( ($T > 1) ? 1 : 0 )) $((T>1&&T<4)) $((!T)) $((7%4*2**3)) $((1<<4))"),
            "--a|1|1|0|24|16");
  EXPECT_EQ(run_words("i=3\n((i++))\n((i += 2))\nlet j=i*2\nrun --a $i $j $((16#ff))"), "--a|6|12|255");
  EXPECT_EQ(run_words("run --port $((10000 + $SLURM_JOB_ID % 1000)) --tp $((1 ? 2 : SLURM_JOB_ID))"),
            "--port|?|--tp|2");
  EXPECT_EQ(run_words("run --a $((1/0)) $((9223372036854775807+1)) $((2+))"), "--a|?|?|?");
}

TEST(Shell, ParametersOfAllKinds) {
  EXPECT_EQ(run_words("A=(a 'b c' d)\nrun --n ${#A[@]} ${A[1]} \"${A[@]}\" ${A[-1]}"), "--n|3|b|c|a|b c|d|d");
  EXPECT_EQ(run_words("P=a/b/c.tar.gz\nrun --p ${P##*/} ${P%.*} ${P%%.*} ${P#*/} ${P/b/x} ${#P} ${P:2:3}"),
            "--p|c.tar.gz|a/b/c.tar|a/b/c|b/c.tar.gz|a/x/c.tar.gz|12|b/c");
  EXPECT_EQ(run_words("X=Ab\nY=X\nrun --x ${X,,} ${X^^} ${!Y} ${Z:-d} ${Z:=e} $Z ${X:+set}"),
            "--x|ab|AB|Ab|d|e|e|set");
  EXPECT_EQ(run_words("declare -A M=([small]=4 [large]=8)\nM[huge]=9\nK=large\nrun --m ${M[$K]} ${M[huge]}"),
            "--m|8|9");
  EXPECT_EQ(run_words("A=(--a 1)\nA+=(--b 2)\nS=\"--c 3\"\nS+=\" --d 4\"\nrun ${A[@]} $S"),
            "--a|1|--b|2|--c|3|--d|4");
}

TEST(Shell, LoopsAndFunctions) {
  EXPECT_EQ(run_words("for x in a b c; do L+=\"$x,\"; done\nrun --l $L"), "--l|a,b,c,");
  EXPECT_EQ(run_words("for ((i=0; i<3; i++)); do A+=($((i % 2))); done\nrun --l ${A[@]}"), "--l|0|1|0");
  EXPECT_EQ(run_words("for i in $(seq 2 4); do S=$((S0 + i)); S0=$S; done\nrun --l $i"), "--l|4");
  EXPECT_EQ(run_words("i=0\nwhile [ $i -lt 5 ]; do i=$((i+1)); [ $i = 3 ] && break; done\nrun --l $i"), "--l|3");
  EXPECT_EQ(run_words("launch() {\n  local tp=$1; shift\n  run --tp $tp \"$@\"\n}\nlaunch 4 --pp 2"),
            "--tp|4|--pp|2");
  EXPECT_EQ(run_words("while [[ $# -gt 0 ]]; do case $1 in --x) X=$2; shift 2;; esac; done\nrun --x ${X:-none}"),
            "--x|none");
}

TEST(Shell, FunctionsHaveNamesAndAStatusOfTheirOwn) {
  EXPECT_EQ(run_words("L=4\nf() { local L=9 K; K=2; H=5; }\nf\nrun --l $L --h $H --k ${K:-none}"),
            "--l|4|--h|5|--k|none");
  EXPECT_EQ(run_words("declare -A M=([a]=1)\nf() { local -A M=([a]=2 [b]=3); X=${M[b]}; }\nf\nrun --m ${M[@]} $X"),
            "--m|1|3");
  EXPECT_EQ(run_words("big() { [ \"$1\" = b ] && return 0; return 1; }\nbig b && A=1\nbig s && A=2\nrun --a $A"),
            "--a|1");
  EXPECT_EQ(run_words("f() { [ -f x ] && return 0; return 1; }\nA=1\nf && A=2\nrun --a $A"), "--a|?");
  EXPECT_EQ(run_words("size() { case $1 in 7b) echo 32 4096;; *) echo 0;; esac; }\nS=($(size 7b))\n"
                      "run --l ${S[0]} --h \"$(size 7b)\""),
            "--l|32|--h|32 4096");
  EXPECT_EQ(run_words("f() { [ -f x ] && echo 1; echo 2; }\nrun --a $(f) --b $(nvidia-smi; echo 1)"),
            "--a|?|--b|?");
  EXPECT_EQ(run_words("go() { run --tp $1 \"${@:2}\"; }\ngo 4 --pp 2"), "--tp|4|--pp|2");
}

TEST(Shell, ShellsOfTheirOwnLeaveNothingBehind) {
  EXPECT_EQ(run_words("L=4\n( L=9; exit 1 )\nf() ( L=8 )\nf\nrun --l $L"), "--l|4");
  EXPECT_EQ(run_words("L=4\necho x | while read y; do L=5; done\n{ H=6; }\nrun --l $L $H"), "--l|4|6");
  EXPECT_EQ(run_words("L=$(L=3; echo $L)$(pwd)\nrun --l $L"), "--l|?");
  EXPECT_EQ(run_words("A=(x y)\nrun --l $(IFS=,; echo \"${A[*]}\") \"${A[*]}\""), "--l|x,y|x y");
  EXPECT_EQ(run_words("bash -c 'run --num-layers \"$1\" \"$@\"' name 4 --h 5"), "--num-layers|4|4|--h|5");
}

TEST(Shell, APathThatEndsTheScriptIsNotTheJobs) {
  EXPECT_EQ(run_words("if [ -f x ]; then A=(--a 1); else exit 1; fi\nrun ${A[@]}"), "--a|1");
  EXPECT_EQ(run_words("case $1 in a) L=1;; *) echo no; exit 1;; esac\nrun --l $L"), "--l|1");
  EXPECT_EQ(run_words("usage() { exit 2; }\nL=4\n[ -d x ] && { L=9; usage; }\nrun --l $L"), "--l|4");
  const Script certain = read_script("if [ -d x ]; then run --a 1; else exit 1; fi", "run.sh");
  ASSERT_EQ(certain.commands.size(), 1u);
  EXPECT_TRUE(certain.commands[0].certain);
  // The arguments that a check misses will be there; behind the job nothing runs.
  EXPECT_EQ(run_words("if [ $# -lt 1 ]; then exit 1; fi\nrun --a 1"), "--a|1");
  EXPECT_EQ(run_words("run --num-layers 1\nexit 0\nrun --num-layers 2"), "--num-layers|1");
}

TEST(Shell, LoopsInLoopsAreLeftByNumber) {
  EXPECT_EQ(run_words("for a in 1 2; do for b in 4 5 6; do L=$a$b; [ $b = 5 ] && break 2; done; done\nrun --l $L"),
            "--l|15");
  EXPECT_EQ(run_words("for a in 1 2; do for b in 4 5 6; do [ $b = 5 ] && continue 2; S+=$b; done; S+=x; done\n"
                      "run --s $S"),
            "--s|44");
  EXPECT_EQ(run_words("case a in a) A=1;& b) B=2;; c) B=3;; esac\ncase ab in a*) C=1;;& *b) D=2;; esac\n"
                      "run --x $A $B $C $D"),
            "--x|1|2|1|2");
}

TEST(Shell, WordsAreCutAndMade) {
  EXPECT_EQ(run_words("for i in {2..4} {a,b}{1,2} {08..10}; do S+=$i.; done\nrun --s $S x{,y} \"{1,2}\" {z}"),
            "--s|2.3.4.a1.a2.b1.b2.08.09.10.|x|xy|{1,2}|{z}");
  EXPECT_EQ(run_words("IFS=, read -ra P <<< \"4,512,a b\"\nread L H REST <<< '1 2 3 4'\n"
                      "run --p \"${P[@]}\" $L $H \"$REST\""),
            "--p|4|512|a b|1|2|3 4");
  EXPECT_EQ(run_words("read A B <<< \"$(hostname)\"\nrun --a $A $B"), "--a|?|?");
  EXPECT_EQ(run_words("mapfile -t A <<'EOF'\n--x\n4 5\nEOF\nrun \"${A[@]}\""), "--x|4 5");
  EXPECT_EQ(run_words("L='1:2 3'\nIFS=:\nset -- $L\nunset IFS\nrun --n $1 \"$2\""), "--n|1|2 3");
  EXPECT_EQ(run_words("A=(a b c d)\nunset 'A[1]'\nrun --s \"${A[@]:1:2}\" \"${A[@]/#/-}\" ${A[0]/%/!} ${#A[@]}"),
            "--s|c|d|-a|-c|-d|a!|3");
  EXPECT_EQ(run_words("declare -A M=([x]=1 [y]=2)\nfor k in \"${!M[@]}\"; do S+=$k${M[$k]}; done\nrun --s $S"),
            "--s|x1y2");
  EXPECT_EQ(run_words("M[x]=1\nM[y]=2\nrun --s \"${M[@]}\" ${#M[@]}"), "--s|1|2|2");
  EXPECT_EQ(run_words("run --s $'a\\tb' $(printf '%03d-%s' 7 x) $(printf '%s,' 1 2) $(expr 2 + 3 \\* 4) "
                      "$(basename a/b.sh .sh)"),
            "--s|a\tb|007-x|1,2,|14|b");
}

TEST(Shell, CommandsInStrings) {
  EXPECT_EQ(run_words("O=\"--num-layers 4\"\nsrun -l bash -c \"run ${O} --r \\$SLURM_PROCID\""),
            "--num-layers|4|--r|?");
  EXPECT_EQ(run_words("srun bash -lc 'cd /x && run --num-layers 4'"), "--num-layers|4");
  EXPECT_EQ(run_words("C=\"run --num-layers 4\"\necho $C\neval $C"), "--num-layers|4");
  EXPECT_EQ(run_words("N=3\nsbatch <<EOF\n#!/bin/bash\nrun --num-layers $N\nEOF\n"), "--num-layers|3");
  EXPECT_EQ(run_words("read -r -d '' O <<'EOF'\n--num-layers 5\nEOF\nrun $O"), "--num-layers|5");
  EXPECT_EQ(run_words("cat <<'EOF' > hosts\nit's no quote\nEOF\nrun --a 1"), "--a|1");
}

TEST(Shell, FilesBesideTheScript) {
  Environment e;
  std::vector<std::string> asked;
  e.file = [&](const std::string& path) -> std::optional<std::string> {
    asked.push_back(path);
    if (path == "models/m.sh") return "ARGS=(--num-layers $N)";
    return std::nullopt;
  };
  for (const char* source :
       {"source models/m.sh", ". \"$(dirname \"$0\")/models/m.sh\"",
        "D=\"$(cd -- \"$(dirname -- \"${BASH_SOURCE[0]}\")\" &>/dev/null && pwd)\"\nsource ${D}/models/m.sh"})
    EXPECT_EQ(run_words(std::string("N=7\n") + source + "\nrun ${ARGS[@]}", e), "--num-layers|7") << source;
  e.file = [&](const std::string& path) -> std::optional<std::string> {
    asked.push_back(path);
    if (path == "lib/m.sh") return "L=${1:-4}\n. $(dirname ${BASH_SOURCE[0]})/n.sh";
    if (path == "lib/n.sh") return "N=$L";
    if (path == "go.sh") return "run --num-layers $1";
    if (path == "bad.sh") return "\nA=(";
    return std::nullopt;
  };
  EXPECT_EQ(run_words("source lib/m.sh 6\nrun --l $L $N ${1:-none}", e), "--l|6|6|none");
  EXPECT_EQ(run_words("bash go.sh 5", e), "--num-layers|5");
  // Words that name a size count where the file starts nothing with them.
  EXPECT_EQ(read_script("bash lib/n.sh --num-layers 3", "folder/run.sh", e).commands.size(), 1u);
  EXPECT_EQ(read_script("bash go.sh 5", "folder/run.sh", e).commands.at(0).file, "go.sh");
  try {
    read_script("source bad.sh", "folder/run.sh", e);
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("bad.sh:2: '(' is never closed"), std::string::npos) << error.what();
  }
  asked.clear();
  const Script read = read_script("source /etc/passwd\nsource other.sh", "folder/run.sh", e);
  EXPECT_EQ(asked, std::vector<std::string>{"other.sh"});
  ASSERT_EQ(read.notes.size(), 2u);
  EXPECT_NE(read.notes[1].find("line 2: the sourced file other.sh is not read"), std::string::npos);
}

TEST(Shell, WhatIsUnknownSaysWhy) {
  EXPECT_EQ(why("P=$(shuf -n 1)\nrun --port $P"), "line 1: the output of shuf");
  EXPECT_EQ(why("run --n $SLURM_NNODES"), "line 1: SLURM_NNODES is for the machine to set");
  EXPECT_EQ(why("T=$3\nrun --tp $T"), "line 1: the script's argument 3 is not given");
  EXPECT_EQ(why("run --tp $TP"), "line 1: TP is not set");
  EXPECT_EQ(why("T=1\nif [ -f x ]; then T=2; fi\nrun --tp $T"),
            "line 2: T is set in a branch that may not be taken (line 2: what -f x finds)");
  EXPECT_EQ(why("B=1\nif [ -n \"$6\" ]; then B=$6; fi\nrun --b $B"),
            "line 2: B is set in a branch that may not be taken (line 2: the script's argument 6 is not given)");
  EXPECT_EQ(why("case $1 in a) B=1;; *) B=2;; esac\nrun --b $B"),
            "line 1: B is set in a branch that may not be taken (line 1: the script's argument 1 is not given)");
  EXPECT_EQ(why("nvidia-smi --x || B=1\nrun --b $B"),
            "line 1: B is set in a branch that may not be taken (line 1: whether nvidia-smi succeeds)");
  EXPECT_EQ(run_words("#SBATCH --nodes=4\n#SBATCH --gres=gpu:h100:8\nrun --n $SLURM_NNODES $SLURM_GPUS_ON_NODE"),
            "--n|4|8");
}

TEST(Shell, BranchesOnTheUnknown) {
  // Both sides alike.
  EXPECT_EQ(run_words("if [ -f x ]; then T=2; else T=2; fi\nrun --tp $T"), "--tp|2");
  // Flags that may be added are left out, and that is said.
  const Script read = read_script("A=(--a 1)\nif [ -d x ]; then A+=(--b 2); fi\nrun ${A[@]}", "run.sh");
  ASSERT_EQ(read.commands.size(), 1u);
  EXPECT_EQ(read.commands[0].words, (Values{"run", "--a", "1"}));
  ASSERT_EQ(read.notes.size(), 1u);
  EXPECT_EQ(read.notes[0],
            "line 2: this branch may or may not be taken: the flags that it would add to A are left out");
  // A check that would end the script changes nothing.
  EXPECT_EQ(run_words("if [ ! -f pretrain.py ]; then echo no; exit 1; fi\nrun --a 1"), "--a|1");
  // A command in such a branch is found, and not certain.
  const Script branch = read_script("if [ $RANK = 0 ]; then run --a 1; fi", "run.sh");
  ASSERT_EQ(branch.commands.size(), 1u);
  EXPECT_FALSE(branch.commands[0].certain);
  const Script unset = read_script("if [ -n \"$EXTRA\" ]; then run --a 1; fi", "run.sh");
  EXPECT_EQ(unset.commands.size(), 0u);
  EXPECT_EQ(unset.notes, Values{"not set, taken as empty: EXTRA"});
}

TEST(Shell, GivenVariablesWin) {
  Environment e;
  e.variables = {{"NNODES", "64"}, {"2", "8B"}};
  EXPECT_EQ(run_words("NNODES=16\nexport NNODES=4\nG=$((NNODES*8))\nrun --n $NNODES --g $G --s $2", e),
            "--n|64|--g|512|--s|8B");
  const Script read = read_script("NNODES=16\nrun --n $NNODES", "run.sh", e);
  ASSERT_EQ(read.overridden.size(), 1u);
  EXPECT_EQ(read.overridden[0].line, 1);
  EXPECT_EQ(std::string("NNODES=16\n").substr(read.overridden[0].begin, 2), "16");
}

TEST(Shell, IsBounded) {
  EXPECT_NE(failure("A=\"open").find("run.sh:1: a quote is opened"), std::string::npos);
  EXPECT_NE(failure("\n\nA=(a b").find("run.sh:3: '(' is never closed"), std::string::npos);
  std::string doubling = "A=xxxxxxxxxx\n";
  for (int i = 0; i < 40; ++i) doubling += "A=$A$A\n";
  EXPECT_NE(failure(doubling).find("expands to more than"), std::string::npos);
  EXPECT_NE(failure("f() { f; f; }\nf").find("nested too deeply"), std::string::npos);
  EXPECT_NE(failure("A=x; eval 'eval \"$A\"; A=\"$A$A\"; f() { eval \"$A\"; f; }; f'").size(), 0u);
  EXPECT_EQ(failure("while true; do A=1; done\nrun --a 1"), "");  // some rounds, and that is said
  std::string loops;
  for (int i = 0; i < 3; ++i) loops += "for a" + std::to_string(i) + " in $(seq 1 1000); do ";
  loops += "X=1; ";
  for (int i = 0; i < 3; ++i) loops += "done; ";
  EXPECT_NE(failure(loops), "");
  std::string branches;
  for (int i = 0; i < 200; ++i) branches += "V" + std::to_string(i) + "=" + std::string(1000, 'x') + "\n";
  for (int i = 0; i < 3000; ++i) branches += "if [ -f x ]; then A=1; fi\n";
  EXPECT_NE(failure(branches).find("more branches"), std::string::npos);
  // Brackets that nothing closes are read in a time that their number bounds.
  for (const char* piece :
       {"((", "[[", "$((", "${a:-", "`", "$(", "a(", "a[", "<<x\n", "case ", "{ ", "if ", "{a,", "a{", "{a,b}"}) {
    std::string many;
    while (many.size() < 200000) many += piece;
    failure(many);
  }
}

}  // namespace
}  // namespace heddle::advisor::shell
